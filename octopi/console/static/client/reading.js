// A reading: hands out the messages of a topic, and knows its place.

import { OctopiError } from "./errors.js";
import { LogFollower } from "./follower.js";
import { formatPosition, parsePosition } from "./position.js";
import { readRecords } from "./record.js";
import { Bell, onAbort, sleep, within } from "./waiting.js";

const TOPIC_WAIT_INTERVAL_MS = 500; // between questions whether a topic is there

// Made by `Octopi.subscribe`; iterate over it once.
export class Reading {
  #cluster;
  #topic;
  #options;
  #hooks;
  #ending = new AbortController();
  #arrived = new Bell();
  #ready = []; // { follower, records: iterator over messages, left: bytes } in their order
  #followers = [];
  #offsets = new Map(); // partition -> offset of the next message to hand out
  #inHand = null; // the first message that was handed out last, until the page asks for more
  #anchors = new Map(); // partition -> what stands before it, once a message was handed out
  #topicId = "";
  #failure = null;
  #turn = Promise.resolve(); // calls of `next` take turns

  constructor(cluster, topic, options, hooks) {
    this.#cluster = cluster;
    this.#topic = topic;
    this.#options = options;
    this.#hooks = hooks;
    const { signal } = options;
    const aborted = () => this.#end(signal.reason);
    if (signal?.aborted) aborted();
    onAbort(this.#ending.signal, onAbort(signal, aborted));
    // Resolves when it is known where reading begins; then `position` is right.
    this.ready = this.#start();
    this.ready.catch((error) => this.#end(error));
  }

  // Where to go on: behind the last message that was handed out.  A string, to be stored and
  // given as `from`, here or to a client in another language.
  get position() {
    if (!this.#topicId) return "";
    const places = this.#followers.map(({ partition, start }) => [
      partition,
      { offset: this.#offsets.get(partition), anchor: this.#anchors.get(partition) ?? start.anchor },
    ]);
    return formatPosition(this.#topic, this.#topicId, places);
  }

  // How far the position is behind the newest highwater marks heard of (bytes, all partitions).
  get lagBytes() {
    return this.#followers.reduce((sum, one) => sum + Math.max(0, one.highwater - this.#offsets.get(one.partition)), 0);
  }

  // Received and not handed out yet.
  get bufferedBytes() {
    return this.#followers.reduce((sum, one) => sum + one.waitingBytes, 0);
  }

  unsubscribe() {
    this.#end(new OctopiError("closed", "the reading was ended"));
  }

  // --- iterating --------------------------------------------------------------------------

  [Symbol.asyncIterator]() {
    return this;
  }

  next() {
    return this.#inTurn(async () => {
      this.#inHand = null;
      while (await this.#hasReady()) {
        const message = this.#takeMessage();
        if (message) return { done: false, value: message };
      }
      return { done: true, value: undefined };
    });
  }

  return() {
    this.unsubscribe();
    return Promise.resolve({ done: true, value: undefined });
  }

  // The messages in lists, as they arrived: for pages that show thousands a second.
  async *batches() {
    try {
      for (;;) {
        const batch = await this.#inTurn(() => this.#nextBatch());
        if (!batch) return;
        if (batch.length) yield batch;
      }
    } finally {
      this.unsubscribe();
    }
  }

  #inTurn(work) {
    const turn = this.#turn.then(work);
    this.#turn = turn.catch(() => {});
    return turn;
  }

  // Null at the end.
  async #nextBatch() {
    this.#inHand = null;
    if (!(await this.#hasReady())) return null;
    const batch = [];
    const chunk = this.#ready[0];
    while (this.#ready[0] === chunk) {
      let message;
      try {
        message = this.#takeMessage();
      } catch (error) {
        if (!batch.length) throw error;
        break; // and again the next time
      }
      if (message) batch.push(message);
    }
    return batch;
  }

  // False: the page has ended it.
  async #hasReady() {
    while (!this.#ready.length) {
      if (this.#failure?.code === "closed") return false;
      if (this.#failure) throw this.#failure;
      await this.#arrived.next();
    }
    return true;
  }

  // The next message of the first chunk; null if that was empty, and is gone now.
  #takeMessage() {
    const chunk = this.#ready[0];
    if (chunk.damage) throw chunk.damage;
    const { follower, records, anchor } = chunk;
    try {
      const { done, value: message } = records.next();
      if (done) {
        this.#ready.shift();
        return null;
      }
      this.#offsets.set(message.partition, message.nextOffset);
      this.#anchors.set(message.partition, anchor);
      this.#inHand ??= message;
      follower.took(message.nextOffset - message.offset);
      return message;
    } catch (error) {
      chunk.damage = error; // nothing behind it is handed out
      throw error;
    }
  }

  // --- reading ----------------------------------------------------------------------------

  async #start() {
    const { signal } = this.#ending;
    const { from, partition, window, onGap, onFork, proven } = this.#options;
    const cluster = this.#cluster;
    const { info, isNew } = await this.#findTopic(signal);
    const starts = await this.#starts(info, isNew && (from === "latest" || from?.last) ? "earliest" : from, chosen(info, partition), signal);
    const DigestChain = proven && (await this.#hooks.more()).DigestChain;
    this.#topicId = info.topic_id;
    for (const [one, start] of starts) this.#offsets.set(one, start.offset);
    for (const [one, start] of starts) {
      const log = { topic: this.#topic, topicId: info.topic_id, partition: one, start, window, skipGaps: onGap === "skip", resumeForks: onFork === "resume", chain: proven ? new DigestChain(`${this.#topic}/${one}`, start.anchor) : null };
      const follower = new LogFollower(cluster, log, {
        onRecords: (follower, offset, records, anchor) => {
          this.#ready.push({ follower, records: readRecords(records, offset, this.#topic, one), anchor, damage: null });
          this.#arrived.ring();
        },
        onGap: this.#hooks.onGap,
        onFork: this.#hooks.onFork,
        onTrouble: this.#hooks.onTrouble,
        dealt: () => (this.#inHand?.partition === one ? this.#inHand.offset : this.#offsets.get(one)),
      });
      this.#followers.push(follower);
      follower
        .run(signal)
        .catch((error) => this.#end(error))
        .finally(() => this.#hooks.onTrouble(follower, null));
    }
  }

  // The topic, and whether it was missing at first: then it is created, or waited for.  What is not
  // there yet is read from its beginning, so asking for it now and then misses nothing.
  async #findTopic(signal) {
    const { waitForTopic, create } = this.#options;
    const giveUpAt = Date.now() + waitForTopic;
    const ask = (create) => this.#cluster.retry(() => this.#cluster.topic(this.#topic, { anew: true, create }), signal);
    let last;
    try {
      return { info: await ask(false), isNew: false };
    } catch (error) {
      if (error.code !== "unknown_topic" || !(create || waitForTopic)) throw error;
      last = error;
    }
    if (create) return { info: await ask(true), isNew: true };
    for (;;) {
      const pause = TOPIC_WAIT_INTERVAL_MS * (0.5 + Math.random());
      const left = giveUpAt - Date.now();
      await sleep(Math.min(pause, left), signal);
      if (pause >= left) throw new OctopiError("unknown_topic", `waited ${waitForTopic} ms for topic ${this.#topic}; last: ${last.message}`, { cause: last });
      try {
        return { info: await within(left - pause, ask(false), "the cluster"), isNew: true };
      } catch (error) {
        if (error.code !== "unknown_topic" && !error.retryable) throw error;
        last = error;
      }
    }
  }

  // A place, offset and anchor, for each partition.
  async #starts(info, from, partitions, signal) {
    if (typeof from === "string" && from.startsWith("v1:")) {
      const position = parsePosition(from);
      if (position.topic !== info.topic) {
        throw new OctopiError("invalid_option", `the position is one in ${position.topic}, not in ${info.topic}`);
      }
      if (position.topicId !== info.topic_id) {
        throw new OctopiError("topic_replaced", `${info.topic}: the topic was deleted and created again since the position was taken; start from earliest or latest`);
      }
      const missing = partitions.filter((one) => !position.places.has(one));
      const found = await this.#find(info, missing, { at: "earliest", value: 0 }, signal);
      return partitions.map((one) => [one, position.places.get(one) ?? found.get(one)]);
    }
    const asked = question(from);
    if (asked === null) {
      if (partitions.length > 1) {
        throw new OctopiError("invalid_option", `an offset is a place in one partition, and ${info.topic} has ${partitions.length}: choose one, or use a position`);
      }
      return [[partitions[0], { offset: from, anchor: "" }]];
    }
    return [...(await this.#find(info, partitions, asked, signal))];
  }

  async #find(info, partitions, asked, signal) {
    const finding = partitions.map(async (one) => {
      const found = await this.#cluster.askLeader(info.topic, one, { type: "find_offset", ...asked }, "found_offset", signal);
      return [one, { offset: found.offset, anchor: found.anchor ?? "" }];
    });
    return new Map(await Promise.all(finding));
  }

  #end(error) {
    if (this.#failure) return;
    this.#failure = error;
    this.#ending.abort(error);
    // What has arrived before the fault is good; whoever ends it on purpose wants no more.
    if (error?.code === "closed" || !(error instanceof OctopiError)) this.#ready.length = 0;
    this.#hooks.onEnd(this);
    this.#arrived.ring();
  }
}

// `at` and `value` that ask a log for a place; null if it is an offset already.
function question(from) {
  if (from === "earliest" || from === "latest") return { at: from, value: 0 };
  if (from instanceof Date && !Number.isNaN(from.getTime())) return { at: "timestamp", value: Math.max(0, from.getTime()) };
  if (from instanceof Uint8Array) return { at: "message", value: 0, id: from };
  if (Number.isSafeInteger(from?.last) && from.last > 0) return { at: "last", value: from.last };
  if (Number.isSafeInteger(from) && from >= 0) return null;
  throw new OctopiError("invalid_option", `from is ${String(from)}; it must be earliest, latest, an offset, { last: n }, a Date, a message's id or a position`);
}

function chosen(info, partition) {
  const all = info.partitions.map((one) => one.partition);
  if (partition === "all") return all;
  if (all.includes(partition)) return [partition];
  throw new OctopiError("unknown_partition", `topic ${info.topic} has no partition ${partition}; it has ${all.join(", ")}`);
}
