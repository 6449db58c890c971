// What a member tells the leader of one of its logs, and what it may conclude from the answers.
//
// The leader keeps the mark: the offset below which everything is processed.  It answers an `attach`
// when the member's claim is committed, and from then on takes marks of that claim only.
//
// If all in-sync replicas of the log lost records, those may be gone that a mark is about, and others
// may stand in their place.  So a mark has the anchor of its offset, and the leader ends the
// attachment when its log has another history there.  Then the member forgets what it read and
// marked, and begins again at the mark that the leader knows.
//
// Marks are absolute, so late, lost and doubled ones do no harm, and only the newest matters.  It is
// sent soon after it was set, and sent again when the connection was broken and the leader, perhaps a
// new one, knows an older one.  A mark that is to be confirmed is answered when it is committed.
//
// A member that hears nothing from the leader stops handing out messages after half the session
// timeout: a frozen tab, or a pause of the network, may last so long that the log gets another
// member.  Each answer counts from when its question was sent, since the leader knew the member's
// claim for the newest at some moment after that.  While messages wait to be handed out, the mark is
// confirmed now and then for that reason alone.
//
// Calls are events, results are lists of marks to send: { offset, acknowledge, anchor }, where
// `acknowledge` is the number to answer with when the mark is committed, or null for no answer.
// Times are milliseconds of a clock that never goes back.  It knows no connection and no timer.
// octopi/clients/subscribing/mark_session.py is the same machine; a test compares them.

import { NODE_FAULTS } from "./errors.js";

const MARK_SENDING_MS = 100; // a mark waits so long for newer ones before it is sent
const PROBES = 4; // questions in a session timeout, of which the half may stay unanswered

// What to do after an attachment ended with *error*:
//   again  look up the log's leader, and attach there with the same claim; if the leader knows no
//          mark, the log may have lost it: `LeaderSession` finds that out
//   begin  the leader's log has not what was marked: `beginAgain`, and attach again
//   lost   another member has the log, or its mark was reset
//   stop   trying again can't help
export function attachRemedy({ code, retryable }) {
  if (code === "member_fenced") return "lost";
  if (code === "history_forked") return "begin";
  if (code === "unknown_subscription") return "again";
  return retryable || NODE_FAULTS.has(code) ? "again" : "stop";
}

export class MarkSession {
  #sessionTimeoutMs;
  #askedAt = 0; // when the attachment was asked for that is to be answered
  #sent = 0; // the newest mark that was sent on this attachment, or that it was answered with
  #sentAt = -Infinity;
  #wordAt = null; // when the newest question was sent that the leader has answered
  #numbers = 0;
  #unanswered = []; // confirmations asked for on this attachment: { number, sentAt, offset }
  #toConfirm = null; // the page waits for the commit of this mark
  #loss = null; // what the leader told last to be lost: [begin, end]

  constructor(sessionTimeoutMs) {
    this.#sessionTimeoutMs = sessionTimeoutMs;
    this.isAttached = false; // whether the leader takes marks now
    this.start = null; // where reading begins: the mark at the first attachment; null: that is to be told
    this.marked = 0; // the newest mark of the page
    this.anchor = ""; // of `marked`, where the page read; empty: not known
    this.confirmed = 0; // the newest mark that is known to be committed
    this.isWanted = false; // whether messages wait to be handed out
  }

  // --- the attachment ---------------------------------------------------------------------

  // The leader is asked for an attachment.
  attaching(now) {
    this.#askedAt = now;
    this.disconnected();
  }

  // Whether the answer to a later attachment tells that what was marked is lost: *mark* is older than
  // the confirmed one, or *loss*, which all replicas lost, is news.  Then `beginAgain`, before
  // `attached`.
  isSetBack(mark, loss) {
    const isNews = loss !== null && (loss[0] !== this.#loss?.[0] || loss[1] !== this.#loss[1]);
    this.#loss = loss;
    return this.start !== null && (isNews || mark < this.confirmed);
  }

  // What was marked is of records that are lost: the next attachment is the first one.
  beginAgain() {
    this.isAttached = this.isWanted = false;
    this.start = this.#wordAt = this.#toConfirm = null;
    this.marked = this.#sent = this.confirmed = 0;
    this.anchor = "";
    this.#unanswered.length = 0;
  }

  // The leader has committed the claim, and *mark* with *anchor* is what it knows.
  attached(mark, now, anchor = "") {
    this.isAttached = true;
    this.#heard(this.#askedAt);
    this.start ??= mark;
    if (mark > this.marked || (mark === this.marked && !this.anchor)) [this.marked, this.anchor] = [mark, anchor];
    this.#sent = mark;
    this.confirmed = Math.max(this.confirmed, mark);
    if (this.#isWaitedFor) return [this.#ask(now)];
    return this.marked > this.#sent ? [this.#tell(now)] : [];
  }

  // The attachment has ended, and may be had again.
  disconnected() {
    this.isAttached = false;
    this.#unanswered.length = 0;
  }

  // --- marks ------------------------------------------------------------------------------

  // The page has processed everything below *offset*, which has *anchor*.
  mark(offset, now, anchor = "") {
    if (offset <= this.marked) return [];
    [this.marked, this.anchor] = [offset, anchor];
    return this.isAttached && now >= this.#sentAt + MARK_SENDING_MS ? [this.#tell(now)] : [];
  }

  // Nothing more will be marked: what waits is sent now.
  flush(now) {
    return this.isAttached && this.marked > this.#sent ? [this.#tell(now)] : [];
  }

  // The page wants to know when its mark is committed: once `isCommitted` of what is `marked` now.
  commit(now) {
    if (this.isCommitted(this.marked)) return [];
    this.#toConfirm = this.marked;
    return this.isAttached ? [this.#ask(now)] : [];
  }

  // Whether all that was marked is known to be committed.
  get isSettled() {
    return this.start === null || this.confirmed >= this.marked;
  }

  // Whether a mark at *offset* or behind it is known to be committed.
  isCommitted(offset) {
    return this.start !== null && this.confirmed >= offset;
  }

  // The leader has committed the mark that was sent with that number, and all before it.
  acknowledged(number) {
    while (this.#unanswered.length && this.#unanswered[0].number <= number) {
      const { sentAt, offset } = this.#unanswered.shift();
      this.#heard(sentAt);
      this.confirmed = Math.max(this.confirmed, offset);
    }
    if (!this.#isWaitedFor) this.#toConfirm = null;
  }

  // --- time -------------------------------------------------------------------------------

  // Whether the leader was heard of lately.
  mayHandOut(now) {
    return this.#wordAt !== null && now < this.#wordAt + this.#sessionTimeoutMs / 2;
  }

  // When to call `tick`; null: there is nothing to do.
  dueAt() {
    if (!this.isAttached) return null;
    const times = [];
    if (this.marked > this.#sent) times.push(this.#sentAt + MARK_SENDING_MS);
    if (this.isWanted) times.push(this.#askedLastAt + this.#sessionTimeoutMs / PROBES);
    return times.length ? Math.min(...times) : null;
  }

  // Send what is due.
  tick(now) {
    const dueAt = this.dueAt();
    if (dueAt === null || now < dueAt) return [];
    const isProbeDue = now >= this.#askedLastAt + this.#sessionTimeoutMs / PROBES;
    return [this.isWanted && isProbeDue ? this.#ask(now) : this.#tell(now)];
  }

  // --- sending ----------------------------------------------------------------------------

  get #isWaitedFor() {
    return this.#toConfirm !== null && !this.isCommitted(this.#toConfirm);
  }

  get #askedLastAt() {
    return this.#unanswered.at(-1)?.sentAt ?? this.#wordAt;
  }

  #tell(now) {
    this.#sent = this.marked;
    this.#sentAt = now;
    return { offset: this.marked, acknowledge: null, anchor: this.anchor };
  }

  #ask(now) {
    this.#numbers++;
    this.#sent = this.marked;
    this.#sentAt = now;
    this.#unanswered.push({ number: this.#numbers, sentAt: now, offset: this.marked });
    return { offset: this.marked, acknowledge: this.#numbers, anchor: this.anchor };
  }

  #heard(sentAt) {
    this.#wordAt = Math.max(this.#wordAt ?? sentAt, sentAt);
  }
}
