// Follows one log for a reading: keeps a reading open at some broker that has the log,
// across reconnects, and hands on each record once and in order.
//
// Credit is a position: the broker may send records that start below it.  So a grant that comes
// late or twice does no harm, and a slow page costs the broker nothing.  What was received and
// not taken yet, plus what may be on its way, fits the window, apart from the last record's end.

import { NODE_FAULTS, OctopiError, refusal } from "./errors.js";
import { placeOf, readerAddresses } from "./placement.js";
import { isAnchor } from "./position.js";
import { PositionReports } from "./position_reports.js";
import { Trail } from "./trail.js";
import { isAway, Route } from "./route.js";
import { sleep, unlessAborted } from "./waiting.js";

const SUBSCRIBE_TIMEOUT_MS = 10_000;
const SILENCE_MS_FIRST = 1_000; // of a broker; then the register is asked whether it is still the right one
const SILENCE_MS_MAX = 60_000;
const BEHIND_THE_END_MS_MAX = 60_000;

const MAY_BE_ELSEWHERE = new Set(["unknown_topic", "unknown_partition"]); // from a broker; the register has the last word

export class LogFollower {
  // *start*: { offset, anchor }.  *dealt* returns the offset below which the page has dealt with all.
  // *chain*: computes the digests, if that is wanted.
  constructor(cluster, { topic, topicId, partition, start, window, skipGaps, resumeForks, chain }, { onRecords, onGap, onFork, onTrouble, dealt }) {
    this.cluster = cluster;
    this.topic = topic;
    this.topicId = topicId;
    this.partition = partition;
    this.window = window;
    this.skipGaps = skipGaps;
    this.resumeForks = resumeForks;
    this.chain = chain;
    this.onRecords = onRecords;
    this.onGap = onGap;
    this.onFork = onFork;
    this.onTrouble = onTrouble;
    this.start = { ...start }; // with its anchor, once that is known
    this.trail = new Trail(start.offset, start.anchor);
    this.readUntil = null; // a broker disagreed with what was read up to there, and none has agreed since
    this.highwater = start.offset; // the newest one heard of
    this.waitingBytes = 0; // came, and weren't taken yet
    this.credit = start.offset;
    this.reports = new PositionReports(() => ({ dealt: dealt(), taken: Math.max(0, this.wanted - this.waitingBytes) }));
    this.link = null; // connection and request number of the reading
    this.backoff = cluster.newBackoff();
    this.wrong = null; // the topic's description that led nowhere
    this.route = new Route(cluster, topic, partition); // says which redirects to follow
    this.untried = []; // readers since the topic was looked up
    this.readers = new Set();
    this.unable = new Set(); // readers whose disk or program fails
    this.heardAt = 0;
    this.behindSince = null; // when a log first ended before what is wanted
  }

  // The next record to come from a broker.
  get wanted() {
    return this.trail.offset;
  }

  // Returns never; throws the signal's reason, or why trying again can't help.
  async run(signal) {
    for (;;) {
      try {
        await this.#followOnce(signal);
      } catch (error) {
        signal.throwIfAborted();
        await this.#mend(error, signal);
      }
    }
  }

  // The page took *bytes* of what waited: let the broker send more when half of the window is free.
  took(bytes) {
    this.waitingBytes -= bytes;
    const credit = this.#creditNow();
    if (this.link && (credit - this.credit) * 2 >= this.window) {
      this.credit = credit;
      const { connection, request } = this.link;
      if (!connection.endReason) connection.post({ type: "credit", request, until: credit });
    }
    this.reports.took();
  }

  #creditNow() {
    return this.wanted + Math.max(0, this.window - this.waitingBytes);
  }

  async #followOnce(signal) {
    if (!this.untried.length) {
      const readers = await this.#findReaders(signal);
      this.readers = new Set(readers);
      this.untried = readers.sort((one, other) => this.unable.has(one) - this.unable.has(other));
    }
    this.address = this.untried.shift();
    const connection = await unlessAborted(this.cluster.connection(this.address), signal);
    await this.#subscribe(connection, signal);
  }

  // Where the log can be read; while the register is away, where it may be known.
  async #findReaders(signal) {
    let info;
    try {
      info = await unlessAborted(this.cluster.topic(this.topic, { otherThan: this.wrong }), signal);
    } catch (error) {
      const known = isAway(error) ? this.cluster.brokers(this.topic, this.partition) : [];
      if (!known.length) throw error;
      this.route.lookedUp();
      return known;
    }
    this.wrong = info;
    this.#checkTopic(info.topic_id);
    this.route.lookedUp(placeOf(info, this.partition).epoch);
    return readerAddresses(info, this.partition);
  }

  // Receives until the reading ends; throws why.
  async #subscribe(connection, signal) {
    const request = connection.nextRequest();
    let timer;
    let silence = SILENCE_MS_FIRST;
    try {
      await unlessAborted(
        new Promise((resolve, reject) => {
          const look = async () => {
            if (Date.now() - this.heardAt >= silence) {
              silence = Math.min(2 * silence, SILENCE_MS_MAX);
              const isReader = await this.cluster.isReader(this.topic, this.partition, this.address).catch(() => true);
              if (!isReader) reject(new OctopiError("connection_lost", `${this.address} serves ${this.topic}/${this.partition} no more`));
            }
            timer = setTimeout(look, silence);
          };
          timer = setTimeout(() => reject(new OctopiError("connection_lost", `${this.address} didn't answer a request to subscribe`)), SUBSCRIBE_TIMEOUT_MS);
          this.credit = this.#creditNow();
          const { topic, partition, wanted: offset, credit } = this;
          const anchor = this.trail.anchor || undefined;
          connection.ask({ type: "subscribe", request, topic, partition, offset, credit, anchor, proven: this.chain ? true : undefined }, (message) => {
            this.heardAt = Date.now();
            silence = SILENCE_MS_FIRST;
            try {
              this.#take(message);
            } catch (error) {
              reject(error);
              return;
            }
            if (message.type === "subscribed") {
              this.link = { connection, request };
              this.reports.begin((offset) => connection.endReason || connection.post({ type: "report_position", request, offset }));
              clearTimeout(timer);
              timer = setTimeout(look, silence);
            }
          });
        }),
        signal,
      );
    } finally {
      clearTimeout(timer);
      timer = undefined;
      this.link = null;
      this.reports.end();
      connection.forget(request);
      if (!connection.endReason) connection.post({ type: "unsubscribe", request });
    }
  }

  #take(message) {
    if (message instanceof OctopiError) throw message;
    switch (message.type) {
      case "delivery":
        this.backoff.reset();
        this.highwater = Math.max(this.highwater, message.highwater);
        this.#delivered(message.offset, message.records, this.#checkAnchor(message.anchor), message.proof);
        return;
      case "subscribed":
        this.#checkTopic(message.topic_id);
        this.untried = [];
        this.route.arrived();
        this.behindSince = null;
        this.onTrouble(this, null);
        this.#accepted(message.highwater, this.#checkAnchor(message.anchor));
        return;
      case "failure":
        throw Object.assign(refusal(message), { isFromBroker: true });
      default:
        throw new OctopiError("protocol", `${message.type} is no part of a reading`);
    }
  }

  // A broker agrees with what was read before `wanted`.
  #accepted(highwater, anchor) {
    const { topic, partition, start, trail, readUntil } = this;
    trail.know(anchor);
    if (readUntil === null) {
      if (!start.anchor && start.offset === trail.offset) start.anchor = trail.anchor;
      this.highwater = Math.max(this.highwater, highwater);
      return;
    }
    this.readUntil = null;
    this.highwater = highwater;
    const fork = { topic, partition, offset: trail.offset, readUntil };
    this.onFork(fork);
    if (this.resumeForks) return;
    throw new OctopiError(
      "history_forked",
      `${this.#name}: the records from offset ${fork.offset} to ${readUntil} were lost after they were read, and others may stand in their place; ` +
        `start again at ${fork.offset} to read what is there now`,
      { fork },
    );
  }

  #delivered(offset, records, anchor, proof) {
    const end = offset + records.length;
    if (!Number.isSafeInteger(end)) throw new OctopiError("protocol", `${this.#name}: offset ${offset} is beyond what a number holds`);
    if (end <= this.wanted) return; // again
    if (offset !== this.wanted) {
      throw new OctopiError("protocol", `${this.#name}: records from offset ${offset} came where ${this.wanted} is next`);
    }
    this.chain?.take(offset, records, proof);
    this.unable.clear();
    this.trail.read(end, anchor);
    this.waitingBytes += records.length;
    this.onRecords(this, offset, records, anchor);
  }

  #checkTopic(topicId) {
    if (topicId === this.topicId) return;
    throw new OctopiError("topic_replaced", `${this.topic}: the topic was deleted and created again (id ${this.topicId}, now ${topicId}); start from earliest or latest`);
  }

  #checkAnchor(anchor) {
    if (anchor === undefined || anchor === "") return "";
    if (typeof anchor === "string" && isAnchor(anchor)) return anchor;
    throw new OctopiError("protocol", `${this.#name}: a broker sent an anchor that is none`);
  }

  // Returns when subscribing can be tried again; throws if it can't.
  async #mend(error, signal) {
    if (!(error instanceof OctopiError)) throw error;
    if (error.code === "history_forked" && error.isFromBroker) {
      if (!Number.isSafeInteger(error.offset) || error.offset >= this.wanted) {
        throw new OctopiError("protocol", `${this.#name}: a broker disagrees with what was read before ${this.wanted}, and claims to agree up to ${error.offset}`);
      }
      this.readUntil ??= this.wanted;
      this.trail.fallBack(error.offset);
      this.chain?.begin(this.trail.anchor);
      this.untried.unshift(this.address); // it answered, and will again
      return;
    }
    if (error.code === "offset_out_of_range") {
      await this.#checkHistory(signal);
    } else if (error.isFromBroker && NODE_FAULTS.has(error.code)) {
      this.unable.add(this.address);
      if (this.unable.size >= this.readers.size) throw error;
    } else if (!(error.retryable || (error.isFromBroker && MAY_BE_ELSEWHERE.has(error.code)))) {
      throw error;
    }
    if (this.route.redirected(error)) this.untried.unshift(this.route.takeTold());
    const delay = this.untried.length ? 0 : this.backoff.nextMs();
    this.onTrouble(this, error, delay);
    await sleep(delay, signal);
  }

  // A broker said that it doesn't have the next record.
  async #checkHistory(signal) {
    const { topic, partition, wanted } = this;
    const bounds = await this.cluster.askLeader(topic, partition, { type: "find_offset", at: "latest", value: 0 }, "found_offset", signal);
    if (wanted < bounds.log_start) {
      const gap = { topic, partition, wanted, availableFrom: bounds.log_start };
      this.onGap(gap);
      if (!this.skipGaps) {
        throw new OctopiError(
          "history_lost",
          `${this.#name}: the records from offset ${wanted} to ${bounds.log_start} were removed by retention before they were read`,
          { gap },
        );
      }
      this.trail = new Trail(bounds.log_start, "");
      this.chain?.begin();
    } else if (wanted > bounds.highwater) {
      const leader = this.wrong.partitions.find((one) => one.partition === partition)?.leader_address;
      if (this.trail.anchor && leader) this.untried = [leader]; // if what was read is gone, it knows
      // A new leader may not know yet how far all is committed; it does in a moment.
      this.behindSince ??= Date.now();
      if (Date.now() - this.behindSince < BEHIND_THE_END_MS_MAX) return;
      throw new OctopiError("offset_out_of_range", `${this.#name}: there is no offset ${wanted}; the log ends at ${bounds.highwater}`);
    }
  }

  get #name() {
    return `${this.topic}/${this.partition}`;
  }
}
