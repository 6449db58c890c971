// A durable subscription, as a page uses it: messages, and marks for what is processed.

import { OctopiError } from "./errors.js";
import { Membership } from "./membership.js";
import { SubscribedLog } from "./subscribed_log.js";
import { haveSubscription, restoreMark } from "./subscription_creation.js";
import { Bell, onAbort, SteadyClock, sleep, unlessAborted } from "./waiting.js";

const CLOSING_MS = 5_000; // `close` waits so long for the commit of marks
const CAME_FROM = Symbol("log"); // of a message: the log, with its claim, by which it came
const HISTORY = Symbol("history"); // of a message: how often its log had begun again

// Made by `Octopi.subscription`.  docs/browser.md says what is marked when.
export class Subscription {
  #cluster;
  #options;
  #hooks;
  #ending = new AbortController();
  #clock = new SteadyClock();
  #membership = null;
  #definition = null;
  #how = null; // how logs are read
  #logs = new Map(); // partition -> SubscribedLog
  #turns = []; // logs, in the order in which they hand out messages
  #handedOut = null; // { log, messages }, what was handed out last
  #wasLeft = false; // by a loop: what it had in hand is next, unless it is marked
  #lostUnconfirmed = new Set(); // partitions that were lost with marks that were not confirmed, since the last `commit`
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

  // Partition -> claim, of the logs that this member has.
  get claims() {
    return new Map([...this.#logs].map(([partition, { claim }]) => [partition, claim]));
  }

  // How far the marks are behind the newest highwater marks heard of, in all (bytes).
  get lagBytes() {
    return [...this.#logs.values()].reduce((sum, one) => sum + one.lagBytes, 0);
  }

  // Received and not handed out yet.
  get bufferedBytes() {
    return [...this.#logs.values()].reduce((sum, one) => sum + one.bufferedBytes, 0);
  }

  // --- messages ---------------------------------------------------------------------------

  [Symbol.asyncIterator]() {
    return this;
  }

  // The next message; the one before is done.
  next() {
    return this.#next(1, ([message]) => message);
  }

  // A loop was left, by `break` or by an exception: nobody can tell by which.  So nothing is marked,
  // and what it had in hand comes again.
  return() {
    this.#wasLeft = true;
    return Promise.resolve({ done: true, value: undefined });
  }

  // The messages in lists, each of one log, as they arrived.  A list is the unit: asking for the next
  // one marks the one before.
  batches() {
    const batches = {
      [Symbol.asyncIterator]: () => batches,
      next: () => this.#next(Infinity, (messages) => messages),
      return: () => this.return(),
    };
    return batches;
  }

  #next(countMax, shape) {
    return this.#inTurn(async () => {
      const again = this.#failure ? null : this.#again(countMax);
      if (again) return { done: false, value: shape(again) };
      for (;;) {
        if (this.#failure?.code === "closed") return { done: true, value: undefined };
        if (this.#failure) throw this.#failure;
        this.#settle();
        const messages = this.#take(countMax);
        if (messages) return { done: false, value: shape(messages) };
        const broken = this.#turns.find((log) => log.error);
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

  // What a loop that was left had in hand; null if that is marked, or its log is lost.
  #again(countMax) {
    const wasLeft = this.#wasLeft;
    this.#wasLeft = false;
    if (!wasLeft || !this.#handedOut) return null;
    const { log, messages } = this.#handedOut;
    if (log.isOver || !log.hasInHand) return null;
    const left = messages.filter((one) => one.nextOffset > log.marked);
    return left.length && left.length <= countMax ? left : null;
  }

  #settle() {
    this.#handedOut?.log.settle();
    this.#handedOut = null;
  }

  // Logs take turns.
  #take(countMax) {
    for (let count = this.#turns.length; count > 0; count--) {
      const log = this.#turns.shift();
      this.#turns.push(log);
      const messages = log.next(countMax);
      if (!messages.length) continue;
      for (const message of messages) {
        message[CAME_FROM] = log;
        message[HISTORY] = log.history;
      }
      this.#handedOut = { log, messages };
      return messages;
    }
    return null;
  }

  // --- marks ------------------------------------------------------------------------------

  // Everything of its log up to *message* is processed.  It is stored a moment later.
  mark(message) {
    const log = message?.[CAME_FROM];
    if (!log) throw new OctopiError("invalid_option", "only a message of this subscription can be marked");
    if (this.#logs.get(log.partition) !== log || log.isOver) {
      throw new OctopiError("member_fenced", `${this.topic}/${log.partition}: this member doesn't have the log any more`);
    }
    if (message[HISTORY] !== log.history) return; // all replicas lost it
    log.mark(message.nextOffset);
    if (this.#handedOut?.messages.at(-1) === message) this.#settle();
  }

  // Marks what was handed out (with `mark: "auto"`), and resolves when all marks are committed: no
  // message below them comes again, but by a reset.
  async commit() {
    if (this.#failure) throw this.#failure;
    if (this.#options.mark === "auto") this.#settle();
    const lost = [...this.#lostUnconfirmed].sort((one, other) => one - other);
    this.#lostUnconfirmed.clear();
    if (lost.length) {
      throw new OctopiError("member_fenced", `${this.topic}/${lost.join(", ")}: this member lost the log before its marks were confirmed, so messages since the last confirmed one come again`);
    }
    await unlessAborted(this.#confirmed(), this.#ending.signal);
  }

  #confirmed() {
    return Promise.all([...this.#logs.values()].map((log) => log.confirmed()));
  }

  // --- from begin to end ------------------------------------------------------------------

  async #start() {
    const cluster = this.#cluster;
    const { signal } = this.#ending;
    signal.throwIfAborted();
    const definition = await haveSubscription(cluster, this.topic, this.#options, signal);
    this.#definition = definition;
    const { session_timeout_ms: sessionTimeoutMs, release_timeout_ms: releaseTimeoutMs } = definition.options;
    const { window, mark, onGap, member, takeOver, joinTimeout } = this.#options;
    this.#how = {
      topic: definition.topic,
      topicId: definition.topic_id,
      sid: definition.sid,
      window,
      isAuto: mark === "auto",
      skipGaps: onGap === "skip",
      sessionTimeoutMs,
      releaseTimeoutMs,
    };
    const wanted = {
      topic: definition.topic,
      coordinator: definition.partitions[0],
      sid: definition.sid,
      name: this.name,
      member,
      takeOver,
      sessionTimeoutMs,
      joinTimeoutMs: joinTimeout,
    };
    this.#membership = new Membership(cluster, wanted, this.#clock, {
      perform: (effect) => this.#perform(effect),
      // That another member is there is no trouble with connections.
      onTrouble: (error, delay) => this.#hooks.onTrouble(this, error?.code === "subscription_busy" ? null : error, delay),
    });
    const membership = this.#membership.run(signal);
    membership.catch((error) => this.#end(error));
    await Promise.race([this.#membership.joined, membership]);
  }

  // Hands out nothing more, and marks nothing more: what was marked is committed, for five seconds
  // at most, and the logs go to other members.  Who has to know that it is, awaits `commit`.
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
      await Promise.race([this.#confirmed(), late]).catch(() => {}); // then it comes again
      late.catch(() => {});
      over.abort();
      for (const log of this.#logs.values()) log.abandon();
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
    if (error?.code === "member_fenced") [...this.#logs.values()].filter((log) => !log.isOver).forEach((log) => this.#tellFenced(log));
    this.#stop(error);
  }

  #stop(error) {
    for (const log of this.#logs.values()) log.abandon();
    this.#ending.abort(error);
    this.#hooks.onTrouble(this, null);
    this.#hooks.onEnd(this);
    this.#news.ring();
  }

  // --- what the coordinator and the logs say ----------------------------------------------

  #perform({ do: deed, partition, claim }) {
    if (deed === "begin") this.#begin(partition, claim);
    else if (deed === "finish") this.#logs.get(partition)?.finish();
    else {
      const log = this.#logs.get(partition);
      if (log) this.#forget(log);
      if (log && !log.isOver) this.#tellFenced(log);
      log?.abandon();
    }
    this.#news.ring();
  }

  #begin(partition, claim) {
    if (this.#ending.signal.aborted) return;
    const log = new SubscribedLog(this.#cluster, this.#how, this.member, partition, claim, this.#clock, {
      restoreMark: (lost, signal) => restoreMark(this.#cluster, this.#definition, lost, signal),
      onNews: () => this.#news.ring(),
      onGap: this.#hooks.onGap,
      onFork: this.#hooks.onFork,
      onTrouble: this.#hooks.onTrouble,
      onReleased: () => {
        this.#forget(log);
        this.#membership.finished(partition, claim);
      },
      onFenced: () => this.#fenced(log),
    });
    this.#logs.set(partition, log);
    this.#turns.push(log);
  }

  #fenced(log) {
    if (this.#options.mode === "exclusive" && !log.isEnding) {
      this.#end(new OctopiError("member_fenced", `${this.topic}/${log.partition}: another member has the subscription ${this.name} now, or its mark was reset`));
    }
    this.#membership.lost(log.partition, log.claim);
  }

  #tellFenced({ partition, claim }) {
    this.#hooks.onFenced({ topic: this.topic, subscription: this.name, partition, claim });
  }

  #forget(log) {
    if (this.#logs.get(log.partition) !== log) return;
    if (log.hasUnconfirmed) this.#lostUnconfirmed.add(log.partition);
    this.#logs.delete(log.partition);
    this.#turns.splice(this.#turns.indexOf(log), 1);
  }
}
