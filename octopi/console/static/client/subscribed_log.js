// One log that a member of a subscription has: its messages, and its mark.
//
// Two things go on side by side: records are read from any in-sync replica, as a reading does, and a
// session with the log's leader takes marks.  `MarkSession` decides what is told to the leader and
// whether messages may be handed out.

import { OctopiError } from "./errors.js";
import { LogFollower } from "./follower.js";
import { LeaderSession } from "./leader_session.js";
import { attachRemedy, MarkSession } from "./mark_session.js";
import { readRecords } from "./record.js";
import { Bell, sleep } from "./waiting.js";

export class SubscribedLog {
  #cluster;
  #how;
  #member;
  #clock;
  #owner;
  #marks;
  #link;
  #follower = null;
  #begin; // the mark is known, and reading begins
  #chunks = []; // iterators over messages, in their order; the window bounds their bytes
  #inHand = null; // behind the last message that was handed out, and is not marked
  #timer = null;
  #timerAt = Infinity; // when it fires
  #confirming = Promise.resolve(); // one confirmation is asked for at a time
  #news = new Bell();
  #ending = new AbortController();

  // *how*: topic, topicId, sid, window, isAuto, skipGaps, sessionTimeoutMs, releaseTimeoutMs.
  // *owner*: onNews(), onGap(gap), onFork(fork), onReleased(log), onFenced(log),
  // onTrouble(who, error, delay).
  constructor(cluster, how, member, partition, claim, clock, owner) {
    this.#cluster = cluster;
    this.#how = how;
    this.#member = member;
    this.#clock = clock;
    this.#owner = owner;
    this.#marks = new MarkSession(how.sessionTimeoutMs);
    this.#link = new LeaderSession(cluster, how.topic, partition);
    this.partition = partition;
    this.claim = claim;
    this.error = null; // why nothing more can be read, or marked
    this.isEnding = false; // another member is to have the log
    this.isOver = false; // another member has it, or may have
    this.#run();
  }

  // Everything of the log below it is processed.
  get marked() {
    return this.#marks.marked;
  }

  // How far the mark is behind the newest highwater mark heard of (bytes).
  get lagBytes() {
    return this.#follower ? Math.max(0, this.#follower.highwater - this.#marks.marked) : 0;
  }

  // Received and not handed out yet.
  get bufferedBytes() {
    return this.#follower?.waitingBytes ?? 0;
  }

  get hasInHand() {
    return this.#inHand !== null;
  }

  // Whether a message was handed out that may come again.
  get hasUnconfirmed() {
    return this.hasInHand || !this.#marks.isSettled;
  }

  // --- messages ---------------------------------------------------------------------------

  // The messages that are next to be handed out, at most *countMax*, of those that came together;
  // empty if there are none, or none may be handed out now.
  next(countMax) {
    const found = [];
    if (!this.#mayHandOut()) return found;
    while (this.#chunks.length && found.length < countMax) {
      let step;
      try {
        step = this.#chunks[0].next();
      } catch (error) {
        this.#chunks.length = 0; // nothing behind it is handed out
        this.#fail(error);
        break;
      }
      if (step.done) {
        this.#chunks.shift();
        if (found.length) break;
        continue;
      }
      found.push(step.value);
      this.#follower.took(step.value.nextOffset - step.value.offset);
    }
    if (!this.#chunks.length) this.#marks.isWanted = false;
    if (found.length) this.#inHand = found.at(-1).nextOffset;
    return found;
  }

  // What was handed out last is done.
  settle() {
    if (this.#inHand === null) return;
    const offset = this.#inHand;
    this.#inHand = null;
    if (this.#how.isAuto) this.mark(offset);
    if (this.isEnding) this.#tell();
  }

  // Everything below *offset* is processed.
  mark(offset) {
    if (!this.isOver) this.#send(this.#marks.mark(offset, this.#clock.now()));
  }

  // Resolves when what is marked now is committed.
  confirmed() {
    if (this.#marks.start === null) return Promise.resolve();
    const offset = this.#marks.marked;
    const done = this.#confirming.then(() => this.#confirm(offset));
    this.#confirming = done.catch(() => {});
    return done;
  }

  async #confirm(offset) {
    if (this.#marks.isCommitted(offset)) return;
    this.#send(this.#marks.commit(this.#clock.now()));
    while (!this.#marks.isCommitted(offset)) {
      if (this.isOver) throw new OctopiError("member_fenced", `${this.#name}: another member may have the log, so messages since the last confirmed mark come again`);
      if (this.error) throw this.error;
      await this.#news.next();
    }
  }

  // --- the end ----------------------------------------------------------------------------

  // The log is to go to another member: the page has the release timeout to finish what it has in
  // hand.
  async finish() {
    this.isEnding = true;
    this.#tell();
    const finishBy = this.#clock.now() + this.#how.releaseTimeoutMs;
    const left = () => finishBy - this.#clock.now();
    while (this.hasInHand && !this.isOver && left() > 0) await this.#news.next(undefined, left());
    if (!this.isOver && left() > 0) {
      // If it can't be committed, nobody can be told here: what is not marked comes again.
      const stored = this.confirmed().catch(() => {});
      await Promise.race([stored, sleep(left(), this.#ending.signal).catch(() => {})]);
    }
    if (this.isOver) return;
    this.abandon();
    this.#owner.onReleased(this);
  }

  // Hands out nothing more.
  abandon() {
    if (this.isOver) return;
    this.#send(this.#marks.flush(this.#clock.now()));
    this.isOver = true;
    this.#chunks.length = 0;
    clearTimeout(this.#timer);
    this.#ending.abort(new OctopiError("closed", `${this.#name} was given up`));
    this.#owner.onTrouble(this, null);
    this.#tell();
  }

  // --- within -----------------------------------------------------------------------------

  get #name() {
    return `${this.#how.topic}/${this.partition}`;
  }

  #mayHandOut() {
    return !this.isOver && !this.isEnding && this.#marks.mayHandOut(this.#clock.now());
  }

  #fail(error) {
    if (this.isOver) return;
    this.error ??= error;
    this.#tell();
  }

  #tell() {
    this.#news.ring();
    this.#owner.onNews();
  }

  #run() {
    const begun = new Promise((resolve) => (this.#begin = resolve));
    const { signal } = this.#ending;
    this.#keepAttached(signal).catch((error) => this.#fail(error));
    begun
      .then(() => this.#follower.run(signal))
      .catch((error) => this.#fail(error))
      .finally(() => this.#owner.onTrouble(this.#follower, null));
  }

  async #keepAttached(signal) {
    const question = () => {
      this.#marks.attaching(this.#clock.now());
      return { type: "attach", sid: this.#how.sid, member: this.#member, claim: this.claim };
    };
    for (;;) {
      try {
        await this.#link.run(question, (message) => this.#take(message), () => this.#tick(), "detach", signal);
      } catch (error) {
        signal.throwIfAborted();
        this.#marks.disconnected();
        const remedy = attachRemedy(error);
        if (remedy === "lost") {
          this.#owner.onFenced(this);
          return;
        }
        if (remedy === "stop") throw error;
        await this.#link.beforeAgain(error, signal, (delay) => this.#owner.onTrouble(this, error, delay));
      }
    }
  }

  #take(message) {
    this.#owner.onTrouble(this, null);
    if (message.type === "attached") this.#attached(message);
    else if (message.type === "marked") this.#marks.acknowledged(message.acknowledge);
    else throw new OctopiError("protocol", `${message.type} is no part of an attachment`);
    this.#tick();
    this.#tell();
  }

  #attached({ mark, log_start: logStart, lost_from: lostFrom, lost_to: lostTo, anchor }) {
    if (!Number.isSafeInteger(mark)) throw new OctopiError("protocol", `${this.#name}: the mark ${mark} is beyond what a number holds`);
    const isFirst = this.#marks.start === null;
    this.#send(this.#marks.attached(mark, this.#clock.now()));
    if (!isFirst) return;
    const { topic, topicId, window, skipGaps } = this.#how;
    const { partition } = this;
    let start = { offset: mark, anchor: anchor ?? "" };
    const isLost = Number.isSafeInteger(lostFrom) && Number.isSafeInteger(lostTo);
    if (isLost && mark >= logStart) {
      this.#owner.onFork({ topic, partition, offset: mark, readUntil: lostTo });
    } else if (isLost) {
      const gap = { topic, partition, wanted: lostFrom, availableFrom: lostTo };
      this.#owner.onGap(gap);
      if (!skipGaps) {
        this.#fail(new OctopiError("history_lost", `${this.#name}: the records from offset ${lostFrom} to ${lostTo} were removed by retention before they were processed`, { gap }));
        return;
      }
      start = { offset: lostTo, anchor: "" };
      this.mark(lostTo);
    }
    this.#follower = new LogFollower(this.#cluster, { topic, topicId, partition, start, window, skipGaps, resumeForks: false }, {
      onRecords: (_, offset, records) => {
        this.#chunks.push(readRecords(records, offset, topic, partition));
        this.#marks.isWanted = true;
        this.#tick();
        this.#tell();
      },
      onGap: this.#owner.onGap,
      onFork: this.#owner.onFork,
      onTrouble: this.#owner.onTrouble,
    });
    this.#begin();
  }

  #send(marks) {
    for (const { offset, acknowledge } of marks) {
      this.#link.post({ type: "mark", offset, confirm: acknowledge !== null, acknowledge: acknowledge ?? 0 });
    }
    this.#wait();
  }

  #tick() {
    this.#send(this.#marks.tick(this.#clock.now()));
  }

  // A timer that fires too early does no harm; to set one anew for each mark would cost much.
  #wait() {
    const dueAt = this.isOver ? null : this.#marks.dueAt();
    if (dueAt === null || dueAt >= this.#timerAt) return;
    clearTimeout(this.#timer);
    this.#timerAt = dueAt;
    const fire = () => {
      this.#timerAt = Infinity;
      this.#tick();
    };
    this.#timer = setTimeout(fire, Math.max(0, dueAt - this.#clock.now()));
  }
}
