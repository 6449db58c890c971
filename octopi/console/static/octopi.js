// Octopi's client for browsers (and Node): reads and writes a replicated log over WebSocket.
//
//   import { Octopi } from "/console/octopi.js";
//
//   const octopi = await Octopi.connect();
//   await octopi.publish("orders", "three umbrellas", { key: "customer-7" });
//   for await (const message of octopi.subscribe("orders", { from: "earliest" })) console.log(message.text());
//
// docs/browser.md explains it, octopi.d.ts has the types.

import { Cluster } from "./client/cluster.js";
import { OctopiError } from "./client/errors.js";
import { Producer } from "./client/producer.js";
import { Message } from "./client/record.js";
import { Reading } from "./client/reading.js";
import { onAbort } from "./client/waiting.js";

export { Message, OctopiError, Producer, Reading };

const MIN_DELAY_MS = 100;
const MAX_DELAY_MS = 10_000;
const REQUEST_TIMEOUT_MS = 30_000;
const MS_MAX = 2 ** 31 - 1; // that a timer can wait
const WINDOW_BYTES = 1024 * 1024;
const TOPICS_PER_PAGE = 1_000;
const NAME_BYTES_MAX = 200;
// C0, DEL, C1, the bidirectional controls, ends of lines and paragraphs, and half a surrogate pair.
const CONTROLS = /[\u{0}-\u{1f}\u{7f}-\u{9f}\u{61c}\u{200e}\u{200f}\u{202a}-\u{202e}\u{2066}-\u{2069}\u{2028}\u{2029}\u{d800}-\u{dfff}]/u;

export class Octopi extends EventTarget {
  #cluster;
  #window;
  #ending = new AbortController();
  #state = "connecting";
  #troubled = new Set(); // who looks for a broker right now
  #producer;
  #readings = new Set();
  #subscriptions = new Set();
  #closing = null;

  // Connects to a cluster through any of its nodes; of several urls, the first that answers is used.
  // Without any: the node that this page came from.
  static async connect(urls = globalThis.location?.origin, options = {}) {
    const octopi = new Octopi(urls, options);
    try {
      await octopi.#cluster.retry(() => octopi.#cluster.reachOnce(), options.signal);
    } catch (error) {
      await octopi.close();
      throw error;
    }
    octopi.#become("open");
    return octopi;
  }

  constructor(urls, { token, name = "", signal, minDelay = MIN_DELAY_MS, maxDelay = MAX_DELAY_MS, requestTimeout = REQUEST_TIMEOUT_MS, window = WINDOW_BYTES, WebSocket } = {}) {
    super();
    checkTime("requestTimeout", requestTimeout, 1);
    const servers = (Array.isArray(urls) ? urls : [urls]).map(serverUrl);
    this.#cluster = new Cluster(servers, { token, name: connectionName(name), minDelay, maxDelay, requestTimeout, WebSocket });
    this.#window = window;
    this.#producer = this.#newProducer(null);
    onAbort(this.#ending.signal, onAbort(signal, () => this.close()));
  }

  // connecting, open, reconnecting or closed; a "state" event tells of each change.
  get state() {
    return this.#state;
  }

  // --- asking -----------------------------------------------------------------------------

  async topics() {
    const topics = [];
    for (let more = true; more; ) {
      const after = topics.at(-1)?.topic ?? "";
      const page = await this.#ask({ type: "list_topics", after, count_max: TOPICS_PER_PAGE }, "topic_list");
      topics.push(...page.topics);
      more = page.more && page.topics.length > 0;
    }
    return topics;
  }

  async describeCluster() {
    return this.#ask({ type: "describe_cluster" }, "cluster_description");
  }

  // The logs of the broker at *address*, of one topic or of all.
  async describeLogs(address, topic = "") {
    const logs = [];
    for (let more = true; more; ) {
      const last = logs.at(-1);
      const connection = await this.#cluster.connection(address);
      const question = { type: "describe_logs", topic, after_topic: last?.topic ?? "", after_partition: last?.partition ?? -1 };
      const page = await connection.request(question, "log_list");
      logs.push(...page.logs);
      more = page.more && page.logs.length > 0;
    }
    return logs;
  }

  #ask(message, expected) {
    this.#checkOpen();
    return this.#cluster.askRegister(message, expected, this.#ending.signal);
  }

  // --- reading and writing ----------------------------------------------------------------

  // The messages of a topic, each once and in the order of its partition, for `for await`.
  subscribe(topic, { partition = "all", from = "latest", signal, window = this.#window, onGap = "throw", onFork = "throw", waitForTopic = 0, create = false, proven = false } = {}) {
    this.#checkOpen();
    if (!Number.isSafeInteger(window) || window < 1) throw new OctopiError("invalid_option", `window is ${window}; it must be a number of bytes`);
    if (onGap !== "throw" && onGap !== "skip") throw new OctopiError("invalid_option", `onGap is ${onGap}; it must be throw or skip`);
    if (onFork !== "throw" && onFork !== "resume") throw new OctopiError("invalid_option", `onFork is ${onFork}; it must be throw or resume`);
    checkTime("waitForTopic", waitForTopic, 0);
    const reading = new Reading(this.#cluster, topic, { partition, from, signal, window, onGap, onFork, waitForTopic, create, proven }, {
      more: moreCode,
      onGap: (gap) => this.dispatchEvent(new CustomEvent("gap", { detail: gap })),
      onFork: (fork) => this.dispatchEvent(new CustomEvent("fork", { detail: fork })),
      onTrouble: (who, error, delay) => this.#trouble(who, error, delay),
      onEnd: (ended) => this.#readings.delete(ended),
    });
    this.#readings.add(reading);
    return reading;
  }

  // A member of the durable subscription *name* of a topic: `for await` gives its messages from where
  // its members stopped, or in the modes of queues those that are dealt to it.  docs/browser.md has
  // the options.  Resolves when the code for it is loaded, at the first call; `ready` tells of joining.
  async subscription(topic, options = {}) {
    this.#checkOpen();
    const { openSubscription } = await moreCode();
    this.#checkOpen();
    const subscription = openSubscription(this.#cluster, topic, options, this.#window, {
      onGap: (gap) => this.dispatchEvent(new CustomEvent("gap", { detail: gap })),
      onFork: (fork) => this.dispatchEvent(new CustomEvent("fork", { detail: fork })),
      onFenced: (loss) => this.dispatchEvent(new CustomEvent("fenced", { detail: loss })),
      onTrouble: (who, error, delay) => this.#trouble(who, error, delay),
      onEnd: (ended) => this.#subscriptions.delete(ended),
    });
    this.#subscriptions.add(subscription);
    return subscription;
  }

  // Stores a message, once, and resolves with its receipt when it is committed.
  async publish(topic, value, options) {
    return this.#producer.publish(topic, value, options);
  }

  // A producer with a name: opening it ends the one that was opened under this name before, in the logs
  // of *topics* at once, in others with the first message.
  async producer(name, { topics = [] } = {}) {
    this.#checkOpen();
    return this.#newProducer(String(name)).begin(topics);
  }

  #newProducer(name) {
    return new Producer(this.#cluster, { name, signal: this.#ending.signal, onTrouble: (who, error, delay) => this.#trouble(who, error, delay) });
  }

  // --- its own state ----------------------------------------------------------------------

  #trouble(who, error, delay) {
    if (error) this.#troubled.add(who);
    else this.#troubled.delete(who);
    if (this.#state === "closed") return;
    if (error) this.#become("reconnecting", { error, delay });
    else if (!this.#troubled.size && this.#state === "reconnecting") this.#become("open");
  }

  #become(state, more = {}) {
    this.#state = state;
    this.dispatchEvent(new CustomEvent("state", { detail: { state, ...more } }));
  }

  #checkOpen() {
    if (this.#closing) throw new OctopiError("closed", "the client was closed");
  }

  // Ends readings, subscriptions and connections; what was published and has no receipt may be stored.
  close() {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close() {
    await Promise.all([...this.#subscriptions].map((one) => one.close()));
    const closed = new OctopiError("closed", "the client was closed");
    this.#ending.abort(closed);
    for (const reading of [...this.#readings]) reading.unsubscribe();
    this.#cluster.close(closed);
    this.#become("closed");
  }

  [Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]() {
    return this.close();
  }
}

// Most pages have no durable subscription, and its code is as large as all the rest.
async function moreCode() {
  try {
    return await import("./client/subscriptions.js");
  } catch (error) {
    throw new OctopiError("unreachable", `a part of the code was not loaded: ${error.message}; if the node has a new version, load the page again`);
  }
}

function checkTime(option, value, least) {
  if (!(value >= least && value <= MS_MAX)) throw new OctopiError("invalid_option", `${option} is ${value}; it must be a number of milliseconds from ${least} to ${MS_MAX}`);
}

// A node's url as the protocol has it: scheme, host, port.  An http url means the same node.
function serverUrl(text) {
  let url;
  try {
    url = new URL(text);
  } catch {
    throw new OctopiError("invalid_option", `${text} is no address of a node: write ws://host:port`);
  }
  const scheme = { "ws:": "ws:", "wss:": "wss:", "http:": "ws:", "https:": "wss:" }[url.protocol];
  if (!scheme) throw new OctopiError("invalid_option", `${text} is no address of a node: write ws://host:port`);
  return `${scheme}//${url.host}`;
}

// The name that people see beside what this client reads.  Throws if it can't be shown to them.
function connectionName(name) {
  if (typeof name !== "string" || CONTROLS.test(name)) throw new OctopiError("invalid_option", `name is ${JSON.stringify(name)}; it must be a text without control characters`);
  const length = new TextEncoder().encode(name).length;
  if (length > NAME_BYTES_MAX) throw new OctopiError("invalid_option", `name has ${length} bytes; the name of a connection has at most ${NAME_BYTES_MAX}`);
  return name;
}
