// One log of a queue: its leader deals messages to this member, and hears what became of them.
//
// `QueueSession` decides what is told to the leader and which messages may be handed out.

import { DealtBatch, DealtMessage } from "./dealt.js";
import { OctopiError } from "./errors.js";
import { LeaderSession } from "./leader_session.js";
import { queueRemedy } from "./queue_answers.js";
import { QueueSession } from "./queue_session.js";
import { readRecords } from "./record.js";
import { Bell } from "./waiting.js";

const DELAY_MS_MAX = 12 * 3600 * 1000;
const REASON_BYTES_MAX = 1_000;
const NO_CLAIM = 0;
const LOOKS = 6; // how often in an ack timeout a member looks at the clock, at least
const PAUSE_SHARE = 2 / 3; // a member that did nothing for this share of the ack timeout was paused

const toUtf8 = new TextEncoder();
const fromUtf8 = new TextDecoder("utf-8", { ignoreBOM: true });
const toCharacters = new TextDecoder("latin1"); // one for each byte, and different ones: a key as a string

export class DealtLog {
  #cluster;
  #how;
  #member;
  #clock;
  #owner;
  #session;
  #link;
  #timer = null;
  #timerAt = Infinity; // when it fires
  #lookedAt; // when anything ran here last
  #wasPaused = false; // whether that was long ago at some moment since the member attached
  #seen = null; // the deliveries that the page was given, when this ended
  #losses = new Set(); // those that were told already
  #news = new Bell();
  #ending = new AbortController();

  // *how*: topic, sid, ackTimeoutMs, prefetchCount, prefetchBytes, isOrdered.  *member*() is what the
  // coordinator calls this member.  *owner*: restoreMark(partition, signal), onNews(), onGap(gap),
  // onFork(fork), onTrouble(who, error, delay).
  constructor(cluster, how, member, partition, clock, owner) {
    this.#cluster = cluster;
    this.#how = how;
    this.#member = member;
    this.#clock = clock;
    this.#owner = owner;
    this.#session = new QueueSession(how.ackTimeoutMs, how.prefetchCount, how.prefetchBytes, how.isOrdered);
    this.#link = new LeaderSession(cluster, how.topic, partition, async (_, signal) => {
      await owner.restoreMark(partition, signal);
      owner.onFork({ topic: how.topic, partition, offset: 0, readUntil: 0 });
    });
    this.#lookedAt = clock.now();
    this.partition = partition;
    this.error = null; // why nothing more is dealt from this log
    this.isOver = false;
    this.#run();
  }

  // Answers that did not count, or of which that is unknown.
  get staleCount() {
    return this.#session.staleCount;
  }

  // --- what the subscription uses ---------------------------------------------------------

  // The next message; null: none waits.
  nextMessage() {
    const delivery = this.#session.take(this.#clock.now());
    this.#wait();
    return delivery && new DealtMessage(this, delivery);
  }

  // All messages that wait, as a list; null: none waits.
  nextBatch() {
    const taken = this.#session.takeAll(this.#clock.now());
    this.#wait();
    return taken.length ? new DealtBatch(this, taken.map((one) => new DealtMessage(this, one))) : null;
  }

  // Resolves when all that was answered is committed, or never will be.  Rejects with why nothing
  // more can be.
  async commit() {
    const [number, effects] = this.#session.confirm(this.#clock.now());
    this.#send(effects);
    while (!this.#session.isConfirmed(number)) {
      if (this.error) throw this.error;
      await this.#news.next();
    }
  }

  // Sends what was answered.  What is open goes back to the queue.
  close() {
    if (this.isOver) return;
    this.#send(this.#session.flush(this.#clock.now()));
    this.isOver = true;
    this.#seen = this.#session.seen;
    clearTimeout(this.#timer);
    this.#ending.abort(new OctopiError("closed", `${this.#name} was given up`));
    this.#session.disconnected();
    this.#owner.onTrouble(this, null);
    this.#tell();
  }

  // --- what messages use ------------------------------------------------------------------

  acknowledge(deliveries) {
    this.#send(this.#session.acknowledge(deliveries, this.#clock.now()));
  }

  release(deliveries, delayMs) {
    if (!Number.isSafeInteger(delayMs) || delayMs < 0 || delayMs > DELAY_MS_MAX) {
      throw new OctopiError("invalid_option", `the delay is ${delayMs}; it must be a number of milliseconds, at most ${DELAY_MS_MAX}`);
    }
    this.#send(this.#session.release(deliveries, delayMs, this.#clock.now()));
  }

  reject(delivery, reason) {
    const text = toWellFormed(reason);
    if (toUtf8.encode(text).length > REASON_BYTES_MAX) throw new OctopiError("invalid_option", `the reason is too long; it has at most ${REASON_BYTES_MAX} bytes`);
    this.#send(this.#session.reject(delivery, text, this.#clock.now()));
  }

  extend(delivery) {
    this.#send(this.#session.extend(delivery, this.#clock.now()));
  }

  // When it may be dealt to another member (ms since 1970).
  deadline(delivery) {
    return Math.round(Date.now() + this.#session.deadline(delivery) - this.#clock.now());
  }

  // --- the leader -------------------------------------------------------------------------

  get #name() {
    return `${this.#how.topic}/${this.partition}`;
  }

  #run() {
    this.#keepAttached(this.#ending.signal).catch((error) => {
      if (this.isOver) return;
      this.error = error;
      this.#tell();
    });
  }

  async #keepAttached(signal) {
    const question = () => {
      const { messages, bytes } = this.#session.attaching();
      return { type: "attach", sid: this.#how.sid, member: this.#member(), claim: NO_CLAIM, credit_messages: messages, credit_bytes: bytes };
    };
    for (;;) {
      try {
        await this.#link.run(question, (message) => this.#take(message), () => this.#look(), () => this.#farewell(), signal);
      } catch (error) {
        signal.throwIfAborted();
        this.#session.disconnected();
        this.#tell();
        if (queueRemedy(error) === "stop") throw error;
        await this.#link.beforeAgain(error, signal, (delay) => this.#owner.onTrouble(this, error, delay));
      }
    }
  }

  #farewell() {
    const seen = this.#seen ?? this.#session.seen;
    return { type: "detach", seen: seen.map(([offset]) => offset), attempts: seen.map(([, attempt]) => attempt) };
  }

  #take(message) {
    this.#owner.onTrouble(this, null);
    if (message.type === "attached") this.#attached(message);
    else if (message.type === "deal") this.#dealt(message);
    else if (message.type === "settled") this.#send(this.#session.settled(message.acknowledge, message.stale, this.#clock.now()));
    else throw new OctopiError("protocol", `${message.type} is no part of an attachment`);
    this.#wait();
    this.#tell();
  }

  #attached({ mark, log_start: logStart, lost_from: lostFrom, lost_to: lostTo }) {
    this.#session.attached();
    this.#wasPaused = false;
    this.#lookedAt = this.#clock.now();
    const loss = `${lostFrom}-${lostTo}`;
    if (!Number.isSafeInteger(lostFrom) || !Number.isSafeInteger(lostTo) || this.#losses.has(loss)) return;
    this.#losses.add(loss);
    const { topic } = this.#how;
    const { partition } = this;
    if (mark >= logStart) this.#owner.onFork({ topic, partition, offset: mark, readUntil: lostTo });
    else this.#owner.onGap({ topic, partition, wanted: lostFrom, availableFrom: lostTo });
  }

  #dealt({ offsets, attempts, records }) {
    this.#seePause();
    if (this.#wasPaused) {
      // These may have waited in a buffer until the leader dealt them to others.
      throw new OctopiError("connection_lost", `${this.#name}: this page was paused for most of the ack timeout, so it attaches again`);
    }
    if (!this.#session.isAttached) throw new OctopiError("protocol", `${this.#name}: messages were dealt before the attachment was answered`);
    if (offsets.length !== attempts.length) throw new OctopiError("protocol", `${this.#name}: messages were dealt with more offsets than attempts, or fewer`);
    const messages = this.#messages(offsets, records);
    const sizes = messages.map((one) => one.nextOffset - one.offset);
    const keys = this.#how.isOrdered ? messages.map(({ key }) => key && toCharacters.decode(key)) : [];
    const deliveries = this.#session.dealt(offsets, attempts, sizes, this.#clock.now(), keys);
    deliveries.forEach((delivery, place) => (delivery.message = messages[place]));
  }

  // The messages of *records*, one behind the other, that begin at *offsets* of the log.
  #messages(offsets, records) {
    let at = 0;
    const messages = offsets.map((offset) => {
      if (!Number.isSafeInteger(offset)) throw new OctopiError("protocol", `${this.#name}: the offset ${offset} is beyond what a number holds`);
      if (at >= records.length) throw new OctopiError("protocol", `${this.#name}: fewer records were dealt than offsets`);
      const { value: message } = readRecords(records.subarray(at), offset, this.#how.topic, this.partition).next();
      at += message.nextOffset - offset;
      return message;
    });
    if (at !== records.length) throw new OctopiError("protocol", `${this.#name}: more records were dealt than offsets`);
    return messages;
  }

  #send(effects) {
    for (const effect of effects) this.#link.post(notice(effect));
    this.#wait();
  }

  // --- time -------------------------------------------------------------------------------

  // Notes whether nothing at all ran here for so long that what was dealt before, or meanwhile, may
  // be at other members.
  #seePause() {
    const now = this.#clock.now();
    if (now - this.#lookedAt >= this.#how.ackTimeoutMs * PAUSE_SHARE) this.#wasPaused = true;
    this.#lookedAt = now;
  }

  #look() {
    if (this.isOver) return;
    this.#seePause();
    this.#send(this.#session.tick(this.#clock.now()));
  }

  // A timer that fires too early does no harm; to set one anew for each answer would cost much.
  #wait() {
    if (this.isOver || this.error) return;
    const lookAt = this.#lookedAt + this.#how.ackTimeoutMs / LOOKS;
    const dueAt = Math.min(lookAt, this.#session.dueAt() ?? Infinity);
    if (dueAt >= this.#timerAt) return;
    clearTimeout(this.#timer);
    this.#timerAt = dueAt;
    const fire = () => {
      this.#timerAt = Infinity;
      this.#look();
    };
    this.#timer = setTimeout(fire, Math.max(0, dueAt - this.#clock.now()));
  }

  #tell() {
    this.#news.ring();
    this.#owner.onNews();
  }
}

// The message to the leader for an effect of `QueueSession`.
function notice(effect) {
  if (effect.do === "credit") return { type: "queue_credit", messages: effect.messages, bytes: effect.bytes };
  return {
    type: "settle",
    acknowledged: effect.acknowledged.map(([offset]) => offset),
    attempts: effect.acknowledged.map(([, attempt]) => attempt),
    released: effect.released.map(([offset, attempt, delay_ms]) => ({ offset, attempt, delay_ms })),
    rejected: effect.rejected.map(([offset, attempt, reason]) => ({ offset, attempt, reason })),
    extended: effect.extended.map(([offset, attempt]) => ({ offset, attempt })),
    confirm: effect.confirm !== null,
    acknowledge: effect.confirm ?? 0,
  };
}

// *reason* as text that UTF-8 can have: half a surrogate pair is replaced.
function toWellFormed(reason) {
  return fromUtf8.decode(toUtf8.encode(String(reason)));
}
