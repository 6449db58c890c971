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
import { Trail } from "./trail.js";
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
  #reading = new AbortController(); // of the follower
  #attachment = new AbortController(); // of the session with the leader
  #chunks = []; // { messages, end, anchor }, in their order, with iterators; the window bounds their bytes
  #trail = new Trail(0, ""); // the anchors of what was handed out
  #inHand = null; // behind the last message that was handed out, and is not marked
  #handed = 0; // behind the last one that was handed out and is done
  #readUntil = null; // up to there the log was read before it began again; null: the leader's mark is known
  #void = null; // why what was marked, or is in hand, is not confirmed, until a newer message is
  #timer = null;
  #timerAt = Infinity; // when it fires
  #confirming = Promise.resolve(); // one confirmation is asked for at a time
  #news = new Bell();
  #ending = new AbortController();

  // *how*: topic, topicId, sid, window, isAuto, skipGaps, sessionTimeoutMs, releaseTimeoutMs.
  // *owner*: restoreMark(partition, signal), onNews(), onGap(gap), onFork(fork), onReleased(log), onFenced(log),
  // onTrouble(who, error, delay).
  constructor(cluster, how, member, partition, claim, clock, owner) {
    this.#cluster = cluster;
    this.#how = how;
    this.#member = member;
    this.#clock = clock;
    this.#owner = owner;
    this.#marks = new MarkSession(how.sessionTimeoutMs);
    this.#link = new LeaderSession(cluster, how.topic, partition, async (_, signal) => {
      await owner.restoreMark(partition, signal);
      this.#readUntil ??= 0; // the loss is told
    });
    this.partition = partition;
    this.claim = claim;
    this.history = 0; // how often all replicas lost messages that were handed out, and it began again
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
      const { messages, end, anchor } = this.#chunks[0];
      let step;
      try {
        step = messages.next();
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
      if (end > this.#trail.offset) this.#trail.read(end, anchor);
      this.#void = null;
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
    this.#handed = offset;
    if (this.#how.isAuto) this.mark(offset);
    if (this.isEnding) this.#tell();
  }

  // Everything below *offset* is processed.
  mark(offset) {
    if (!this.isOver) this.#send(this.#marks.mark(offset, this.#clock.now(), this.#trail.anchorAt(offset)));
  }

  // Resolves when what is marked now is committed.
  confirmed() {
    if (this.#void) return Promise.reject(this.#takeVoid());
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
      if (this.#void) throw this.#takeVoid();
      if (this.error) throw this.error;
      await this.#news.next();
    }
  }

  #takeVoid() {
    const error = this.#void;
    this.#void = null;
    return error;
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
    const reason = new OctopiError("closed", `${this.#name} was given up`);
    for (const one of [this.#ending, this.#attachment, this.#reading]) one.abort(reason);
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
    this.#keepAttached(this.#ending.signal).catch((error) => this.#fail(error));
  }

  // Behind all that was handed out, or was processed before.
  get #done() {
    return Math.max(this.#marks.marked, this.#handed, this.#inHand ?? 0);
  }

  // All replicas lost records that were read: drop what is not handed out, and have the leader's mark
  // told, to read from there.  *readUntil*: where reading had come to.
  #beginAgain(readUntil = 0) {
    const until = Math.max(readUntil, this.#done, this.#follower?.wanted ?? 0, this.#readUntil ?? 0);
    if (this.hasUnconfirmed) {
      const { confirmed } = this.#marks;
      const fork = { topic: this.#how.topic, partition: this.partition, offset: confirmed, readUntil: until };
      const text = `${this.#name}: the records from offset ${confirmed} to ${until} were lost before their marks were confirmed; what stands there now is handed out next`;
      this.#void = new OctopiError("history_forked", text, { fork });
    }
    this.#readUntil = until;
    this.history++;
    this.#inHand = null;
    this.#handed = 0;
    this.#marks.beginAgain();
    this.#stopReading();
    this.#tell();
  }

  #stopReading() {
    this.#reading.abort(new OctopiError("closed", `${this.#name} is read from another place`));
    this.#chunks.length = 0;
    this.#trail = new Trail(0, "");
    this.#follower = null;
  }

  async #keepAttached(signal) {
    const question = () => {
      this.#marks.attaching(this.#clock.now());
      return { type: "attach", sid: this.#how.sid, member: this.#member, claim: this.claim };
    };
    for (;;) {
      this.#attachment = new AbortController();
      try {
        await this.#link.run(question, (message) => this.#take(message), () => this.#tick(), () => ({ type: "detach" }), this.#attachment.signal);
      } catch (error) {
        signal.throwIfAborted();
        if (this.#attachment.signal.aborted) continue; // to have the mark told again
        this.#marks.disconnected();
        const remedy = attachRemedy(error);
        if (remedy === "lost") {
          this.#owner.onFenced(this);
          return;
        }
        if (remedy === "begin") this.#beginAgain();
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
    const lost = Number.isSafeInteger(lostFrom) && Number.isSafeInteger(lostTo) ? [lostFrom, lostTo] : null;
    const fork = mark >= logStart ? lost : null;
    if (this.#marks.isSetBack(mark, fork)) this.#beginAgain();
    const isFirst = this.#marks.start === null;
    let start = { offset: mark, anchor: anchor ?? "" };
    this.#send(this.#marks.attached(mark, this.#clock.now(), start.anchor));
    if (!isFirst) return;
    const { topic, skipGaps } = this.#how;
    const { partition } = this;
    if (fork || this.#readUntil !== null) {
      const readUntil = Math.max(mark, this.#readUntil ?? 0, fork?.[1] ?? 0);
      this.#readUntil = null;
      this.#owner.onFork({ topic, partition, offset: mark, readUntil });
    }
    if (lost && !fork) {
      const gap = { topic, partition, wanted: lostFrom, availableFrom: lostTo };
      this.#owner.onGap(gap);
      if (!skipGaps) {
        this.#fail(new OctopiError("history_lost", `${this.#name}: the records from offset ${lostFrom} to ${lostTo} were removed by retention before they were processed`, { gap }));
        return;
      }
      start = { offset: lostTo, anchor: "" };
      this.mark(lostTo);
    }
    this.#readFrom(start);
  }

  #readFrom(start) {
    this.#stopReading();
    const { topic, topicId, window, skipGaps } = this.#how;
    const { partition } = this;
    const reading = new AbortController();
    const follower = new LogFollower(this.#cluster, { topic, topicId, partition, start, window, skipGaps, resumeForks: false }, {
      onRecords: (_, offset, records, anchor) => {
        if (this.#follower !== follower) return;
        this.#chunks.push({ messages: readRecords(records, offset, topic, partition), end: offset + records.length, anchor });
        this.#marks.isWanted = true;
        this.#tick();
        this.#tell();
      },
      onGap: this.#owner.onGap,
      onFork: () => {}, // an error follows
      onTrouble: this.#owner.onTrouble,
      dealt: () => this.#marks.marked,
    });
    this.#reading = reading;
    this.#follower = follower;
    this.#trail = new Trail(start.offset, start.anchor);
    follower
      .run(reading.signal)
      .catch((error) => {
        if (reading.signal.aborted) return;
        if (error.code === "history_forked" && error.fork) this.#lost(error.fork);
        else this.#fail(error);
      })
      .finally(() => this.#owner.onTrouble(follower, null));
  }

  // The log has lost records that the follower read.
  #lost(fork) {
    const offset = this.#done;
    if (fork.offset < offset) {
      this.#beginAgain(fork.readUntil);
      this.#attachment.abort(new OctopiError("closed", `${this.#name} begins again`));
      return;
    }
    // What was handed out is still there, and the rest is read again.
    this.#owner.onFork(fork);
    this.#readFrom({ offset, anchor: this.#trail.anchorAt(offset) });
  }

  #send(marks) {
    for (const { offset, acknowledge, anchor } of marks) {
      this.#link.post({ type: "mark", offset, confirm: acknowledge !== null, acknowledge: acknowledge ?? 0, anchor });
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
