// What the node's pages tell about the cluster, again and again, and what follows from two
// answers: rates and trends.  docs/browser.md says where the JSON is described.

const INTERVAL_MS = 1_000;
const HISTORY_COUNT = 120; // of rates, for the chart
const LAGS_COUNT = 8; // of each consumer, for its trend
const TOPICS_PER_PAGE = 50;
const EVENTS_MAX = 500;
const TOKEN = "octopi-token";

export class ClusterFeed {
  // *onChange* is called after every look, *onSubscriptions* after those at subscriptions, which
  // may take longer.
  constructor(onChange, onSubscriptions) {
    this.onChange = onChange;
    this.onSubscriptions = onSubscriptions;
    this.status = null;
    this.cluster = null;
    this.topics = [];
    this.hasMoreTopics = false;
    this.topicPages = [""]; // names behind which each page begins; the last one is shown
    this.prefix = "";
    this.consumers = [];
    this.consumersCount = 0; // all of them, of which the page has those that are farthest behind
    this.consumersTruncated = false;
    this.subscriptions = []; // of the topics that are shown
    this.subscriptionsSilent = []; // topics of which they are not known, and why
    this.subscriptionsContinued = []; // topics that have more of them
    this.subscriptionsProblem = ""; // why the last look at them failed
    this.opened = null; // the subscription that has the page: topic and name
    this.detail = null; // what is known of it
    this.events = []; // newest first
    this.problem = ""; // why the last look failed
    this.needsToken = false;
    this.rates = []; // [seconds, bytes a second]
    this.topicRates = new Map();
    this.lags = new Map(); // consumer -> its latest lags
    this.#ends = null;
    this.#life = "";
    this.#wake = () => {};
  }
  #ends;
  #life;
  #wake;
  #topicEnds = new Map();
  #nextTopics = null;
  #isLookingAtSubscriptions = false;

  get token() {
    return sessionStorage.getItem(TOKEN);
  }

  setToken(token) {
    sessionStorage.setItem(TOKEN, token);
    this.#wake();
  }

  // Topics by the beginning of their names.
  search(prefix) {
    this.prefix = prefix;
    this.topicPages = [""];
    this.#wake();
  }

  nextTopics() {
    this.topicPages.push(this.#nextTopics ?? this.topics.at(-1).topic);
    this.#wake();
  }

  previousTopics() {
    this.topicPages.pop();
    this.#wake();
  }

  // Shows one subscription, *topic* and *name*, or all if it is null.
  open(subscription) {
    this.opened = subscription;
    this.detail = null;
    this.subscriptionsProblem = "";
    this.#wake();
  }

  // Looks again and again; hidden pages rest.
  async run() {
    document.addEventListener("visibilitychange", () => this.#wake());
    for (;;) {
      if (!document.hidden || !this.cluster) await this.#look();
      await new Promise((resolve) => {
        const timer = setTimeout(resolve, INTERVAL_MS);
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
  }

  async #look() {
    this.#lookAtSubscriptions();
    try {
      this.status ??= await this.#get("status");
      const newest = this.events[0]?.number ?? 0;
      const topics = new URLSearchParams({ after: this.topicPages.at(-1), limit: TOPICS_PER_PAGE, prefix: this.prefix });
      const [cluster, found, consumers, events] = await Promise.all([
        this.#get("cluster"),
        this.#get(`topics?${topics}`),
        this.#get("consumers"),
        this.#get(`events?after=${newest}`),
      ]);
      this.#takeCluster(cluster);
      this.#takeTopics(found);
      this.#takeConsumers(consumers);
      await this.#takeEvents(events);
      this.problem = "";
      this.needsToken = false;
    } catch (error) {
      this.problem = error.message;
      this.needsToken = error.status === 401 || error.status === 403;
    }
    this.onChange();
  }

  // Beside the others: it takes seconds while a leader is silent.
  async #lookAtSubscriptions() {
    if (this.#isLookingAtSubscriptions) return;
    this.#isLookingAtSubscriptions = true;
    const { opened } = this;
    try {
      const query = new URLSearchParams(opened ?? { after: this.topicPages.at(-1), prefix: this.prefix });
      const found = await this.#get(`${opened ? "subscription" : "subscriptions"}?${query}`);
      if (this.opened === opened) this.#takeSubscriptions(found);
    } catch (error) {
      if (this.opened === opened) this.subscriptionsProblem = error.message;
    }
    this.#isLookingAtSubscriptions = false;
    this.onSubscriptions();
    if (this.opened !== opened) this.#lookAtSubscriptions();
  }

  #takeSubscriptions(found) {
    this.subscriptionsProblem = "";
    if (this.opened) {
      this.detail = found;
      return;
    }
    this.subscriptions = found.subscriptions;
    this.subscriptionsSilent = found.silent;
    this.subscriptionsContinued = found.continued;
  }

  async #get(page) {
    const headers = this.token ? { authorization: `Bearer ${this.token}` } : {};
    let answer;
    try {
      answer = await fetch(`/api/v1/${page}`, { headers });
    } catch {
      throw new Error("the node does not answer");
    }
    const told = await answer.json().catch(() => ({}));
    if (!answer.ok) throw Object.assign(new Error(told.error?.reason ?? `the node answered ${answer.status}`), { status: answer.status });
    return told;
  }

  #takeCluster(cluster) {
    const leading = cluster.partitions.flatMap(({ partition, copies }) => copies.filter((one) => one.role === "leader").map((one) => [partition, one.log_end]));
    const ends = { at: cluster.seen_at_ms, byPartition: new Map(leading.filter(([, end]) => end !== null)) };
    if (this.#ends && ends.at > this.#ends.at) {
      const seconds = (ends.at - this.#ends.at) / 1000;
      let grown = 0;
      for (const [partition, end] of ends.byPartition) grown += Math.max(0, end - (this.#ends.byPartition.get(partition) ?? end));
      this.rates.push([ends.at / 1000, grown / seconds]);
      if (this.rates.length > HISTORY_COUNT) this.rates.shift();
    }
    if (!this.#ends || ends.at > this.#ends.at) this.#ends = ends;
    this.cluster = cluster;
  }

  #takeTopics({ topics, more, next, seen_at_ms: at }) {
    this.topics = topics;
    this.#nextTopics = next;
    this.hasMoreTopics = more;
    const ends = new Map(topics.map(({ topic, partitions }) => [topic, { at, end: partitions.reduce((sum, one) => sum + (one.log_end ?? 0), 0) }]));
    for (const [topic, { end }] of ends) {
      const before = this.#topicEnds.get(topic);
      if (before && at > before.at) this.topicRates.set(topic, (1000 * Math.max(0, end - before.end)) / (at - before.at));
      else if (before) ends.set(topic, before);
      else this.topicRates.delete(topic);
    }
    this.#topicEnds = ends;
  }

  #takeConsumers({ consumers, count, truncated }) {
    const lags = new Map();
    for (const one of consumers) {
      const name = consumerName(one);
      lags.set(name, [...(this.lags.get(name) ?? []), leastLag(one)].slice(-LAGS_COUNT));
    }
    this.lags = lags;
    this.consumers = consumers;
    this.consumersCount = count;
    this.consumersTruncated = truncated;
  }

  async #takeEvents({ events, life }) {
    if (life !== this.#life && this.#life) {
      // A register was started anew and counts from the beginning.
      this.#life = life;
      this.events = [];
      ({ events } = await this.#get("events?after=0"));
    }
    this.#life = life;
    this.events = [...events.reverse(), ...this.events].slice(0, EVENTS_MAX);
  }
}

export function consumerName({ broker, consumer, topic, partition }) {
  return `${broker} ${consumer} ${topic}/${partition}`;
}

// The lag of a consumer that is certain: of programs that report nothing, only what was not sent.
export function leastLag({ lag_bytes: lag, sent_lag_bytes: sent }) {
  return lag ?? sent;
}
