// A queue, as a page uses it: messages that are dealt to it, one by one.

import { DealtLog } from "./dealt_log.js";
import { OctopiError } from "./errors.js";
import { Membership } from "./membership.js";
import { haveSubscription, restoreMark } from "./subscription_creation.js";
import { PREFETCH_BYTES } from "./subscription_options.js";
import { Bell, onAbort, SteadyClock, sleep, unlessAborted } from "./waiting.js";

const CLOSING_MS = 5_000; // `close` waits so long for the commit of answers

// A member of a durable subscription in the mode `shared` or `key_shared`.  Made by
// `Octopi.subscription`.  docs/browser.md says what happens to a message that is not answered.
export class QueueSubscription {
  #cluster;
  #options;
  #hooks;
  #ending = new AbortController();
  #clock = new SteadyClock();
  #membership = null;
  #logs = []; // in the order in which they hand out messages
  #staleBefore = 0; // what `commit` has reported
  #failure = null;
  #closing = null;
  #news = new Bell();
  #turn = Promise.resolve(); // calls of `next` take turns

  constructor(cluster, topic, options, hooks) {
    this.topic = topic;
    this.name = options.name;
    this.#cluster = cluster;
    this.#options = options;
    this.#hooks = hooks;
    const { signal } = options;
    const aborted = () => this.#end(signal.reason);
    if (signal?.aborted) aborted();
    onAbort(this.#ending.signal, onAbort(signal, aborted));
    // Resolves when this is a member; rejects with why it can't be.
    this.ready = this.#start();
    this.ready.catch((error) => this.#end(error));
  }

  // What the other members call this one; empty before `ready`.
  get member() {
    return this.#membership?.member ?? "";
  }

  // Answers that did not count, since they came when the message was dealt to another member already,
  // or another broker led its log; and those of which that is unknown.  These messages come again.
  get staleCount() {
    return this.#logs.reduce((sum, log) => sum + log.staleCount, 0);
  }

  // --- messages ---------------------------------------------------------------------------

  [Symbol.asyncIterator]() {
    return this;
  }

  // The next message.  Several loops may ask: each message goes to one of them.
  next() {
    return this.#next((log) => log.nextMessage());
  }

  // A loop was left: what it had in hand stays the page's, to be answered.
  return() {
    return Promise.resolve({ done: true, value: undefined });
  }

  // The messages in lists, each of one log, as they arrive.
  batches() {
    const batches = {
      [Symbol.asyncIterator]: () => batches,
      next: () => this.#next((log) => log.nextBatch()),
      return: () => this.return(),
    };
    return batches;
  }

  #next(take) {
    return this.#inTurn(async () => {
      for (;;) {
        if (this.#failure?.code === "closed") return { done: true, value: undefined };
        if (this.#failure) throw this.#failure;
        const found = this.#take(take);
        if (found) return { done: false, value: found };
        const broken = this.#logs.find((log) => log.error);
        if (broken) throw broken.error;
        await this.#news.next();
      }
    });
  }

  #inTurn(work) {
    const turn = this.#turn.then(work);
    this.#turn = turn.catch(() => {});
    return turn;
  }

  // Logs take turns.
  #take(take) {
    for (let count = this.#logs.length; count > 0; count--) {
      const log = this.#logs.shift();
      this.#logs.push(log);
      const found = take(log);
      if (found) return found;
    }
    return null;
  }

  // --- answers ----------------------------------------------------------------------------

  // Resolves when all answers up to now are committed: no message that was acknowledged comes again,
  // but for those that are counted by what it resolves with, the answers since the last `commit` that
  // did not count, or may not (see `staleCount`).
  async commit() {
    if (this.#failure) throw this.#failure;
    await unlessAborted(this.#committed(), this.#ending.signal);
    const before = this.#staleBefore;
    this.#staleBefore = this.staleCount;
    return this.#staleBefore - before;
  }

  #committed() {
    return Promise.all(this.#logs.map((log) => log.commit()));
  }

  // --- from begin to end ------------------------------------------------------------------

  async #start() {
    const cluster = this.#cluster;
    const { signal } = this.#ending;
    signal.throwIfAborted();
    const definition = await haveSubscription(cluster, this.topic, this.#options, signal);
    const { session_timeout_ms: sessionTimeoutMs, ack_timeout_ms: ackTimeoutMs } = definition.options;
    const { member, joinTimeout, prefetch } = this.#options;
    const { topic, sid, mode, partitions } = definition;
    const wanted = { topic, coordinator: partitions[0], sid, name: this.name, member, takeOver: false, sessionTimeoutMs, joinTimeoutMs: joinTimeout };
    this.#membership = new Membership(cluster, wanted, this.#clock, {
      perform: () => {}, // a queue's members are assigned no logs: each one attaches at all of them
      onTrouble: (error, delay) => this.#hooks.onTrouble(this, error, delay),
    });
    const membership = this.#membership.run(signal);
    membership.catch((error) => this.#end(error));
    await Promise.race([this.#membership.joined, membership]);
    signal.throwIfAborted();
    const how = { topic, sid, ackTimeoutMs, prefetchCount: prefetch, prefetchBytes: PREFETCH_BYTES, isOrdered: mode === "key_shared" };
    const owner = {
      onNews: () => this.#news.ring(),
      onGap: this.#hooks.onGap,
      onFork: this.#hooks.onFork,
      restoreMark: (lost, abort) => restoreMark(cluster, definition, lost, abort),
      onTrouble: this.#hooks.onTrouble,
    };
    this.#logs = partitions.map((partition) => new DealtLog(cluster, how, () => this.member, partition, this.#clock, owner));
  }

  // Hands out nothing more.  What was answered is committed, for five seconds at most; what is open
  // goes back to the queue.  Who has to know that it is committed, awaits `commit`.
  close() {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close() {
    const isMember = this.#membership && !this.#failure;
    this.#failure ??= new OctopiError("closed", "the subscription was closed");
    this.#news.ring();
    if (isMember) {
      const over = new AbortController();
      const late = sleep(CLOSING_MS, over.signal);
      await Promise.race([this.#committed(), late]).catch(() => {}); // then it comes again
      late.catch(() => {});
      over.abort();
      for (const log of this.#logs) log.close();
      await this.#membership.leave();
    }
    this.#stop(this.#failure);
  }

  [Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]() {
    return this.close();
  }

  // Ends for *error*.
  #end(error) {
    if (this.#failure) return;
    this.#failure = error;
    this.#stop(error);
  }

  #stop(error) {
    for (const log of this.#logs) log.close();
    this.#ending.abort(error);
    this.#hooks.onTrouble(this, null);
    this.#hooks.onEnd(this);
    this.#news.ring();
  }
}
