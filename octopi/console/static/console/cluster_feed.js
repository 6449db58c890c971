// What the nodes' pages tell about the cluster, again and again, and what follows from two
// answers: rates and trends.  docs/console.md says where the JSON is described.

import { viewOf } from "./address.js";
import { allows } from "./grants.js";
import { readHistory } from "./history.js";
import { NodePages } from "./node_pages.js";
import { amountsOfAll, amountsOfTopic, pointsOf, Rates } from "./rates.js";
import { LagHistory } from "./trend.js";

const INTERVAL_MS = 1_000;
const EVENTS_MAX = 1_000;
const SUBSCRIPTION_PAGES_MAX = 8; // of 50 topics each, in one look
const NAMES_OFFERED = 20; // while a topic's name is typed
const LARGEST_SHOWN = 6; // topics, in the overview
const SUBSCRIPTIONS_INTERVAL_MS = 3_000; // of the list, for which many nodes are asked
const LARGEST_EVERY = 5; // looks
const DEAD_AFTER = 2; // looks in a row without an answer

export const TOPICS_PER_PAGE = 20;

export class ClusterFeed {
  // *onChange* is called after every look, *onSubscriptions* after those at subscriptions, which
  // may take longer.
  constructor(onChange, onSubscriptions) {
    this.onChange = onChange;
    this.onSubscriptions = onSubscriptions;
    this.pages = new NodePages();
    this.view = viewOf("");
    this.typed = ""; // the beginning of a topic's name, in a field
    this.status = null;
    this.grants = {};
    this.cluster = null;
    this.found = null; // topics, as they are searched for
    this.offered = []; // names of topics with what was typed
    this.topic = null; // the topic that has the page; undefined: there is none of that name
    this.consumers = [];
    this.consumersCount = 0; // all of them, of which the page has those that are farthest behind
    this.consumersTruncated = false;
    this.subscriptions = null; // null: they were not asked for yet
    this.subscriptionsSilent = []; // topics of which they are not known, and why
    this.subscriptionsContinued = []; // topics that have more of them
    this.subscriptionsAfter = ""; // topics behind this one were not asked
    this.subscriptionsProblem = ""; // why the last look at them failed
    this.detail = null; // what is known of the subscription that has the page
    this.events = []; // newest first: those of the register's list, and before them the history's
    this.problem = ""; // why the last look failed
    this.needsToken = false;
    this.traffic = new Rates(); // bytes written and sent to consumers
    this.topicTraffic = new Rates(); // of the topic that has the page
    this.topicRates = new Map(); // of the topics that are shown, in bytes a second
    this.lags = new Map(); // consumer -> LagHistory
  }
  #life = "";
  #ownEvents = []; // of the register's list
  #pastEvents = []; // of the cluster's history, and of registers before this one; each with its life
  #notes = []; // of brokers' rates, from before the page was opened
  #hasReadHistory = false;
  #wake = () => {};
  #topicEnds = new Map();
  #isLookingAtSubscriptions = false;
  #subscriptionsAt = 0;
  #failed = 0; // looks in a row
  #looks = 0;
  #registerHeardAt = 0; // by any node that this page has asked

  // Whether no node has answered for a while: what is shown is what was seen last.
  get isStale() {
    return this.#failed >= DEAD_AFTER;
  }

  // Whether the register is silent: since when (ms), or 0.
  get registerAwaySince() {
    return this.cluster?.register_trouble && !this.cluster.ring ? Math.max(this.#registerHeardAt, this.cluster.register_heard_at_ms) : 0;
  }

  // Why nothing can be changed in the cluster now; empty: it can.
  get whyNoChange() {
    if (this.isStale) return "No node answers: nothing can be changed now.";
    return this.registerAwaySince ? "The register does not answer: nothing can be changed until it is back." : "";
  }

  setToken(token) {
    this.pages.setToken(token);
    this.status = null;
    this.#wake();
  }

  may(verb, topic, subscription) {
    return allows(this.grants, verb, topic, subscription);
  }

  // Shows another view; what belongs to the last one is forgotten.
  show(view) {
    const isSame = view.tab === this.view.tab && view.names.join("/") === this.view.names.join("/");
    this.view = view;
    this.#subscriptionsAt = 0;
    if (!isSame) {
      this.topic = this.detail = this.subscriptions = this.found = null;
      this.subscriptionsProblem = "";
      this.topicTraffic = new Rates();
      this.#beginTopic();
    }
    this.#wake();
  }

  offer(typed) {
    this.typed = typed;
    this.#wake();
  }

  lookNow() {
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
    this.#looks++;
    this.#lookAtSubscriptions();
    const { view } = this;
    try {
      this.status ??= await this.#greet();
      const newest = this.#ownEvents[0]?.number ?? 0;
      const [cluster, consumers, events, ...more] = await Promise.all([
        this.pages.get("cluster"),
        this.pages.get(this.#consumersPage(view)),
        this.pages.get(`events?after=${newest}`),
        ...this.#morePages(view).map((one) => this.pages.get(one)),
      ]);
      if (view === this.view) for (const found of more) this.#takeTopics(view, found);
      this.#takeCluster(cluster, consumers);
      await this.#takeEvents(events);
      this.problem = "";
      this.needsToken = false;
      this.#failed = 0;
      if (this.status.role === "register") this.pages.warm();
      this.#readHistory();
    } catch (error) {
      this.problem = error.message;
      this.needsToken = error.status === 401 || error.status === 403;
      this.#failed++;
    }
    this.onChange();
  }

  // Who answers, and what our token is granted there.
  async #greet() {
    this.grants = await this.pages.get("grants");
    return this.pages.get("status");
  }

  #consumersPage({ tab, names }) {
    return tab === "topics" && names.length ? `consumers?topic=${encodeURIComponent(names[0])}` : "consumers";
  }

  #morePages({ tab, names, chosen }) {
    const exact = (topic) => `topics?${new URLSearchParams({ prefix: topic, limit: 1, messages: 1 })}`;
    if (tab === "topics" && names.length) return [exact(names[0])];
    if (tab === "messages") return [`topic-search?${new URLSearchParams({ contains: this.typed, limit: NAMES_OFFERED })}`, ...(names.length ? [exact(names[0])] : [])];
    if (tab === "overview" && this.found && this.#looks % LARGEST_EVERY) return [];
    if (tab === "overview") return [`topic-search?sort=size&descending=1&limit=${LARGEST_SHOWN}`];
    if (tab !== "topics") return [];
    const { first = 0, search = "", sort = "name", descending = "" } = Object.fromEntries(chosen);
    return [`topic-search?${new URLSearchParams({ contains: search, sort, descending, first, limit: TOPICS_PER_PAGE, messages: 1 })}`];
  }

  #takeTopics({ tab, names }, found) {
    if (found.count === undefined) {
      const [topic] = found.topics;
      this.topic = topic?.topic === names[0] ? topic : undefined;
      if (this.topic) this.topicTraffic.note(found.seen_at_ms, [new Map(topic.partitions.map((one) => [one.partition, one.log_end ?? 0]))]);
      return;
    }
    if (tab === "messages") {
      this.offered = found.topics.map((one) => one.topic);
      return;
    }
    this.found = found;
    const at = found.seen_at_ms;
    const ends = new Map(found.topics.map(({ topic, log_end: end }) => [topic, { at, end }]));
    for (const [topic, { end }] of ends) {
      const before = this.#topicEnds.get(topic);
      if (before && at > before.at) this.topicRates.set(topic, (1000 * Math.max(0, end - before.end)) / (at - before.at));
      else if (before) ends.set(topic, before);
      else this.topicRates.delete(topic);
    }
    this.#topicEnds = ends;
  }

  #takeCluster(cluster, { consumers, count, truncated, seen_at_ms: at }) {
    const lags = new Map();
    for (const one of consumers) {
      const name = consumerName(one);
      const history = this.lags.get(name) ?? new LagHistory();
      history.note(at, leastLag(one));
      lags.set(name, history);
    }
    this.lags = lags;
    this.consumers = consumers;
    this.consumersCount = count;
    this.consumersTruncated = truncated;
    const leading = cluster.partitions.flatMap(({ partition, copies }) => copies.filter((one) => one.role === "leader" && one.log_end !== null).map((one) => [partition, one.log_end]));
    this.traffic.note(cluster.seen_at_ms, [new Map(leading), new Map(consumers.map((one) => [consumerName(one), one.position]))]);
    this.pages.learn(cluster.brokers.filter((one) => one.live).map((one) => one.address));
    this.#registerHeardAt = Math.max(this.#registerHeardAt, cluster.register_heard_at_ms);
    this.cluster = cluster;
  }

  async #takeEvents({ events, life }) {
    if (life !== this.#life && this.#life) {
      // A register was started anew and counts from the beginning.
      this.#pastEvents = [...this.#ownEvents.map((one) => ({ ...one, life: this.#life })), ...this.#pastEvents];
      this.#ownEvents = [];
      ({ events } = await this.pages.get("events?after=0"));
    }
    this.#life = life;
    if (events.some((one) => one.origin)) {
      // Brokers without a register: another one may have told them before, with numbers of its own.
      const told = new Set(events.map(eventKey));
      this.#pastEvents = this.#pastEvents.filter((one) => !told.has(eventKey(one)));
    }
    this.#ownEvents = [...events.reverse(), ...this.#ownEvents].slice(0, EVENTS_MAX);
    this.#joinEvents();
  }

  #joinEvents() {
    this.events = [...this.#ownEvents, ...this.#pastEvents].slice(0, EVENTS_MAX);
  }

  // Once, beside the looks: what was before the page was opened.
  async #readHistory() {
    if (this.#hasReadHistory) return;
    this.#hasReadHistory = true;
    try {
      const { rates, events } = await readHistory(this);
      this.#notes = rates;
      this.traffic.begin(pointsOf(rates, amountsOfAll));
      this.#beginTopic();
      const oldest = this.#ownEvents.at(-1)?.number ?? Infinity;
      const known = new Set([...this.#pastEvents, ...this.#ownEvents.filter((one) => one.origin)].map(eventKey));
      for (const event of events) {
        const isKnown = known.has(eventKey(event)) || (event.life === this.#life && event.number >= oldest);
        if (!isKnown) this.#pastEvents.push(event);
        known.add(eventKey(event));
      }
      this.#pastEvents.sort((one, other) => other.at_ms - one.at_ms || other.number - one.number);
      this.#joinEvents();
      this.onChange();
    } catch {
      // No way to a node but for its pages: the page begins with nothing.
    }
  }

  // The chart of the topic that has the page.
  #beginTopic() {
    const { tab, names } = this.view;
    if (tab === "topics" && names.length) this.topicTraffic.begin(pointsOf(this.#notes, amountsOfTopic(names[0])));
  }

  // --- subscriptions ------------------------------------------------------------------------

  // Beside the others: it takes seconds while a leader is silent.
  async #lookAtSubscriptions() {
    const { view } = this;
    const { tab, names } = view;
    if (this.#isLookingAtSubscriptions || !(tab === "subscriptions" || (tab === "topics" && names.length))) return;
    if (names.length !== 2 && this.subscriptions && Date.now() - this.#subscriptionsAt < SUBSCRIPTIONS_INTERVAL_MS) return;
    this.#isLookingAtSubscriptions = true;
    try {
      const found = await this.#askForSubscriptions(view);
      this.#subscriptionsAt = Date.now();
      if (this.view === view) Object.assign(this, { subscriptionsProblem: "" }, found);
    } catch (error) {
      if (this.view === view) this.subscriptionsProblem = error.message;
    }
    this.#isLookingAtSubscriptions = false;
    this.onSubscriptions();
    if (this.view !== view) this.#lookAtSubscriptions();
  }

  async #askForSubscriptions({ tab, names, chosen }) {
    if (tab === "subscriptions" && names.length === 2) {
      return { detail: await this.pages.get(`subscription?${new URLSearchParams({ topic: names[0], name: names[1] })}`) };
    }
    const subscriptions = [];
    const silent = [];
    const continued = [];
    let after = "";
    for (let page = 0; page < SUBSCRIPTION_PAGES_MAX; page++) {
      const query = tab === "topics" ? { topic: names[0] } : { after, prefix: chosen.get("search") ?? "" };
      const found = await this.pages.get(`subscriptions?${new URLSearchParams(query)}`);
      subscriptions.push(...found.subscriptions);
      silent.push(...found.silent);
      continued.push(...found.continued);
      after = found.next ?? "";
      if (!after || tab === "topics") break;
    }
    return { subscriptions, subscriptionsSilent: silent, subscriptionsContinued: continued, subscriptionsAfter: tab === "topics" ? "" : after };
  }
}

// Who noted it, and its number there: a broker that tells what others noted has numbers of its own.
function eventKey({ life, number, origin }) {
  return origin || `${life}/${number}`;
}

export function consumerName({ broker, consumer, topic, partition }) {
  return `${broker} ${consumer} ${topic}/${partition}`;
}

// The lag of a consumer that is certain: of programs that report nothing, only what was not sent.
export function leastLag({ lag_bytes: lag, sent_lag_bytes: sent }) {
  return lag ?? sent;
}
