// What a member of a queue takes from the leader of one log, and what it answers.
//
// The leader deals messages one by one, as far as the member gives credit, and each delivery is
// acknowledged, released or rejected.  The leader decides which member has a message: it deals a
// message again when a delivery wasn't answered within the ack timeout.
//
//   - Credit is what may be open here: dealt, and not answered.  It is given back when the page has
//     answered, so a page that works on one message at a time, and asks for one, gets one.
//   - Answers wait a moment for others, and go to the leader together.  Before more credit is given
//     they go at once.
//   - Messages that wait here for the page are extended, so that the ack timeout bounds the page's
//     work and not the waiting.  If the page neither takes nor answers a message for the ack timeout,
//     what waits is given back to the queue, and no credit is given until the page goes on.  What
//     could not be extended in time, since the tab was frozen, is not handed out.
//   - A delivery belongs to one attachment.  When that ends, because the leader changes, the
//     connection breaks or the mark is reset, all its deliveries are void: what waits is dropped, and
//     answers to what is in the page's hands count no more.  The messages are dealt anew.
//   - Order within a key (`isOrdered`): a message is handed out when those of its key before it are
//     answered.  One that is released or rejected takes those behind it along: the leader deals them
//     again.  What the leader dealt before it knew of that goes with them; so nothing of the key is
//     handed out until it has said that it knows.
//
// An answer that counts no more is stale.  It is counted, and no error: the message was dealt to
// another member, and a page has to bear that a message comes again.
//
// Calls are events, results are lists of effects, to be performed in their order:
//   { do: "settle", acknowledged, released, rejected, extended, confirm }  as `PendingAnswers` has them
//   { do: "credit", messages, bytes }                                      totals since the attach
// Times are milliseconds of a clock that never goes back.  It knows no connection and no timer.
// octopi/clients/subscribing/queue_session.py is the same machine; a test compares them step by step.

import { OpenDelivery, WaitingDeliveries } from "./key_turns.js";
import { PendingAnswers, SETTLE_COUNT_MAX } from "./queue_answers.js";

const SETTLING_MS = 100; // an answer waits so long for others before they are sent
const CONFIRMING_MS = 1_000; // the leader is asked so often whether acknowledgements are committed
const CHECKS = 3; // how often, in an ack timeout, it is looked at what waits

export class QueueSession {
  #isOrdered;
  #ackTimeoutMs;
  #prefetchCount;
  #prefetchBytes;
  #attachment = 0;
  #open = new Map(); // offset -> the newest delivery of it that is open here
  #waiting = new WaitingDeliveries();
  #inHand = new Set(); // what the page was given, and has not answered
  #returned = { count: 0, bytes: 0 }; // what was answered or dropped, since the attach
  #given = { count: 0, bytes: 0 }; // the part of it for which credit was given again
  #pending = new PendingAnswers();
  #held = []; // { delivery, number, isStale }, of messages that were given back: the leader knows when it has answered that confirmation
  #sentAt = -Infinity;
  #numbers = 0;
  #confirmed = 0; // all confirmations up to this number are known, or will never come
  #unconfirmed = []; // those asked for: { number, count }, and how many acknowledgements each covers that earlier ones don't
  #unasked = 0; // acknowledgements that were sent since a confirmation was asked for last
  #unaskedSince = -Infinity; // when the first of them was sent
  #activeAt = -Infinity; // when the page took or answered a message last
  #isStalled = false; // whether what waited was given back, since the page did nothing
  #resumedAt = null; // when the page went on after that; null: credit was given since
  #checkAt = null; // when to look at what waits

  // *prefetchCount*, *prefetchBytes*: what may be open here.  *isOrdered*: whether messages of a key
  // are handed out one by one.
  constructor(ackTimeoutMs, prefetchCount, prefetchBytes, isOrdered = false) {
    this.#ackTimeoutMs = ackTimeoutMs;
    this.#prefetchCount = prefetchCount;
    this.#prefetchBytes = prefetchBytes;
    this.#isOrdered = isOrdered;
    this.isAttached = false; // whether the leader deals now
    // Answers that came too late, and acknowledgements of which an attachment that ended left unknown
    // whether they count.
    this.staleCount = 0;
  }

  // --- the attachment ---------------------------------------------------------------------

  // The leader is asked for an attachment; returns the credit that it begins with.
  attaching() {
    this.disconnected();
    this.#attachment++;
    return { do: "credit", messages: this.#prefetchCount, bytes: this.#prefetchBytes };
  }

  // The leader deals from now on.
  attached() {
    this.isAttached = true;
    this.#isStalled = false;
  }

  // The attachment has ended, and may be had again: what is open is void.
  disconnected() {
    this.isAttached = false;
    this.#waiting.clear();
    this.#open.clear();
    this.#inHand.clear();
    this.#checkAt = this.#resumedAt = null;
    this.#held.length = 0;
    this.staleCount += this.#pending.clear() + this.#unasked + this.#unconfirmed.reduce((sum, { count }) => sum + count, 0);
    this.#unasked = 0;
    this.#unconfirmed.length = 0;
    this.#confirmed = this.#numbers;
    this.#returned = { count: 0, bytes: 0 };
    this.#given = { count: 0, bytes: 0 };
  }

  // The leader dealt these messages; they wait for the page.  *keys*, strings or null, matter only
  // where they are ordered.
  dealt(offsets, attempts, sizes, now, keys = []) {
    const deliveries = offsets.map((offset, place) => {
      const older = this.#open.get(offset);
      if (older) this.#void(older);
      const delivery = new OpenDelivery(offset, attempts[place], sizes[place], this.#attachment, now);
      if (this.#isOrdered && keys.length) delivery.key = keys[place];
      this.#open.set(offset, delivery);
      return delivery;
    });
    this.#waiting.add(deliveries);
    this.#checkAt ??= now + this.#ackTimeoutMs / CHECKS;
    return deliveries;
  }

  // --- the page ---------------------------------------------------------------------------

  get openCount() {
    return this.#open.size;
  }

  // The deliveries that the page was given in this attachment, as [offset, attempt], in order; but for
  // those whose answers were sent.
  get seen() {
    const inHand = [...this.#inHand].map(({ offset, attempt }) => [offset, attempt]);
    return [...inHand, ...this.#pending.deliveries].sort(([one, first], [other, second]) => one - other || first - second);
  }

  // Whether credit may be due because the page went on: call `tick`.
  get isResuming() {
    return this.#resumedAt !== null;
  }

  // The next message for the page; null: none waits.
  take(now) {
    this.#voidLate(now);
    this.#act(now);
    const delivery = this.#waiting.take();
    if (delivery) this.#inHand.add(delivery);
    return delivery;
  }

  // All messages that wait for the page, for one loop: also several of a key.
  takeAll(now) {
    this.#voidLate(now);
    this.#act(now);
    const taken = this.#waiting.takeAll();
    for (const one of taken) this.#inHand.add(one);
    return taken;
  }

  // When the message may be dealt to another member, at the earliest.
  deadline(delivery) {
    return delivery.since + this.#ackTimeoutMs;
  }

  // The page has processed these; what it answered before stays answered.
  acknowledge(deliveries, now) {
    this.#act(now);
    for (const one of deliveries) if (this.#answer(one)) this.#pending.acknowledged.push([one.offset, one.attempt]);
    return this.#afterAnswers(now);
  }

  // The page gives these back, to be dealt again after a delay.
  release(deliveries, delayMs, now) {
    this.#act(now);
    for (const one of deliveries) {
      if (!this.#answer(one, true)) continue;
      this.#pending.released.push([one.offset, one.attempt, delayMs]);
      this.#voidBehind(one);
    }
    return this.#afterAnswers(now);
  }

  // The page can't process it, ever: it becomes a dead letter.
  reject(delivery, reason, now) {
    this.#act(now);
    if (this.#answer(delivery, true)) {
      this.#pending.rejected.push([delivery.offset, delivery.attempt, reason]);
      this.#voidBehind(delivery);
    }
    return this.#afterAnswers(now);
  }

  // The page needs longer: the ack timeout begins anew.
  extend(delivery, now) {
    this.#act(now);
    if (!delivery.isAnswered && this.#counts(delivery)) this.#extend(delivery, now);
    return this.#afterAnswers(now);
  }

  // The page wants to know when all that it answered is committed: once `isConfirmed` of the number
  // that this returns, with effects.
  confirm(now) {
    if (!this.isAttached) return [this.#confirmed, []];
    if (!this.#pending.length && !this.#unasked) return [this.#unconfirmed.at(-1)?.number ?? this.#confirmed, []];
    const effects = this.#send(now, true);
    return [this.#numbers, effects];
  }

  // Whether what was answered before that `confirm` is committed, or never will be.
  isConfirmed(number) {
    return this.#confirmed >= number;
  }

  // Nothing more will be answered: send what waits.
  flush(now) {
    return this.isAttached && this.#pending.length ? this.#send(now) : [];
  }

  // --- the leader's answers ---------------------------------------------------------------

  // What was sent up to the confirmation *number* (0: none) is committed, but for *stale*: those
  // deliveries were not the newest of their messages.
  settled(number, stale, now) {
    for (const offset of stale) {
      for (const held of this.#held) held.isStale ||= held.delivery.offset === offset;
      const delivery = this.#open.get(offset);
      if (delivery?.isExtended) this.#void(delivery); // it was an extension
      else this.staleCount++;
    }
    while (this.#unconfirmed.length && this.#unconfirmed[0].number <= number) this.#confirmed = this.#unconfirmed.shift().number;
    while (this.#held.length && this.#held[0].number !== null && this.#held[0].number <= number) this.#letGo(this.#held.shift());
    return this.#afterAnswers(now);
  }

  // --- time -------------------------------------------------------------------------------

  // When to call `tick`; null: there is nothing to do.
  dueAt() {
    if (!this.isAttached) return null;
    const times = [this.#checkAt, this.#resumedAt].filter((one) => one !== null);
    if (this.#pending.length) times.push(this.#sentAt + SETTLING_MS);
    if (this.#unasked) times.push(this.#unaskedSince + CONFIRMING_MS);
    return times.length ? Math.min(...times) : null;
  }

  // Do what is due.
  tick(now) {
    if (!this.isAttached) return [];
    if (this.#checkAt !== null && now >= this.#checkAt) this.#checkWaiting(now);
    const effects = [];
    if (this.#pending.length && now >= this.#sentAt + SETTLING_MS) effects.push(...this.#send(now));
    if (this.#unasked && now >= this.#unaskedSince + CONFIRMING_MS) effects.push(...this.#send(now, true));
    if (this.#resumedAt !== null) effects.push(...this.#afterAnswers(now));
    return effects;
  }

  // Extends what waits; or gives it back, if the page does nothing.
  #checkWaiting(now) {
    this.#voidLate(now);
    this.#checkAt = null;
    const waiting = [...this.#open.values()].filter((one) => !one.isTaken);
    if (!waiting.length) return;
    if (now - Math.max(this.#activeAt, waiting[0].dealtAt) >= this.#ackTimeoutMs) {
      this.#isStalled = true;
      for (const one of waiting) {
        if (one.isVoid) continue; // one of its key before it took it along
        this.#pending.released.push([one.offset, one.attempt, 0]);
        this.#hold(one);
        this.#void(one);
      }
      return;
    }
    this.#checkAt = now + this.#ackTimeoutMs / CHECKS;
    for (const one of waiting) if (now - one.since >= this.#ackTimeoutMs / CHECKS / 2) this.#extend(one, now);
  }

  #extend(delivery, now) {
    delivery.since = now;
    delivery.isExtended = true;
    this.#pending.extended.push([delivery.offset, delivery.attempt]);
  }

  // Drops what waits and may be at another member by now: this one was paused, since otherwise it
  // would have been extended in time.
  #voidLate(now) {
    if (this.#checkAt === null || now < this.#checkAt) return;
    for (const one of [...this.#open.values()]) {
      if (one.isTaken || one.isVoid || now < this.deadline(one)) continue;
      this.#void(one);
      this.#resumedAt = now; // credit may be due
    }
  }

  // --- within -----------------------------------------------------------------------------

  // The page took or answered something.
  #act(now) {
    this.#activeAt = now;
    if (!this.#isStalled) return;
    this.#isStalled = false;
    this.#resumedAt = now;
  }

  #counts(delivery) {
    return this.isAttached && delivery.attachment === this.#attachment && !delivery.isVoid;
  }

  // The page has answered; false if that has no effect.
  #answer(delivery, givesBack = false) {
    if (delivery.isAnswered) return false;
    delivery.isAnswered = true;
    this.#inHand.delete(delivery);
    const counts = this.#counts(delivery);
    if (!counts) this.staleCount++;
    if (delivery.attachment === this.#attachment && delivery.isVoid) this.#giveBack(delivery); // it kept its credit while the page worked on it
    else if (counts) {
      if (givesBack) this.#hold(delivery);
      this.#forget(delivery);
    }
    return counts;
  }

  // It is given back: nothing of its key is handed out until the leader knows that.
  #hold(delivery) {
    if (delivery.key === null) return;
    this.#waiting.hold(delivery.key);
    this.#held.push({ delivery, number: null, isStale: false });
  }

  // The leader knows that a message was given back.
  #letGo(held) {
    if (!held.isStale) this.#voidBehind(held.delivery);
    this.#waiting.letGo(held.delivery.key);
  }

  #forget(delivery) {
    this.#open.delete(delivery.offset);
    this.#giveBack(delivery);
    this.#waiting.ended(delivery);
  }

  // The leader has dealt the message again, or will.
  #void(delivery) {
    delivery.isVoid = true;
    this.#open.delete(delivery.offset);
    if (!delivery.isTaken) this.#giveBack(delivery);
    this.#waiting.ended(delivery);
    this.#voidBehind(delivery);
  }

  // Those of its key behind it are dealt again, too.
  #voidBehind({ key, offset }) {
    if (key === null) return;
    const behind = [...this.#open.values()].filter((one) => one.key === key && one.offset > offset);
    behind.sort((one, other) => other.offset - one.offset);
    for (const one of behind) this.#void(one);
  }

  #giveBack(delivery) {
    this.#returned.count++;
    this.#returned.bytes += delivery.sizeBytes;
  }

  // Sends what is answered, and gives credit, if it is time for it.
  #afterAnswers(now) {
    this.#resumedAt = null;
    if (!this.isAttached) return [];
    const isCreditDue = !this.#isStalled && this.#isCreditDue;
    const count = this.#pending.length;
    const effects = [];
    if (count && (isCreditDue || now >= this.#sentAt + SETTLING_MS || count >= SETTLE_COUNT_MAX)) effects.push(...this.#send(now));
    if (isCreditDue) {
      this.#given = { ...this.#returned };
      effects.push({ do: "credit", messages: this.#prefetchCount + this.#given.count, bytes: this.#prefetchBytes + this.#given.bytes });
    }
    return effects;
  }

  get #isCreditDue() {
    const count = this.#returned.count - this.#given.count;
    const bytes = this.#returned.bytes - this.#given.bytes;
    return count > 0 && (2 * count >= this.#prefetchCount || 2 * bytes >= this.#prefetchBytes || !this.#open.size);
  }

  // All that is pending, in as few messages as it takes.
  #send(now, confirm = false) {
    this.#sentAt = now;
    if (!this.#unasked) this.#unaskedSince = now;
    this.#unasked += this.#pending.acknowledged.length;
    const unsent = this.#held.filter((one) => one.number === null);
    const sent = [];
    while (this.#pending.length > SETTLE_COUNT_MAX) sent.push(this.#pending.nextSettle(null));
    let number = null;
    const asks = confirm || unsent.length > 0;
    if (asks) {
      number = ++this.#numbers;
      this.#unconfirmed.push({ number, count: this.#unasked });
      this.#unasked = 0;
      for (const one of unsent) one.number = number;
    }
    if (this.#pending.length || asks) sent.push(this.#pending.nextSettle(number));
    return sent;
  }
}
