// Joins the coordinator of a subscription, and stays joined: carries out what a `GroupSession`
// decides towards the coordinator, and hands the rest on.

import { OctopiError } from "./errors.js";
import { GroupSession, joinRemedy } from "./group_session.js";
import { LeaderSession } from "./leader_session.js";
import { finishCreation } from "./subscription_creation.js";
import { Bell } from "./waiting.js";

const SIGNS = 3; // of life in a session timeout

export class Membership {
  #cluster;
  #options;
  #session;
  #clock;
  #link;
  #hooks;
  #begin; // resolves `joined`
  #hasJoined = false;
  #isLeaving = false;
  #signedAt = 0;
  #left = new Bell();
  #hasLeft = false;

  // *options*: topic, coordinator (the topic's first partition), sid, name (of the subscription),
  // member (a name or empty), takeOver, sessionTimeoutMs, joinTimeoutMs.  *hooks*: `perform` gets the
  // effects that are about logs, `onTrouble` what is in the way of joining.
  constructor(cluster, options, clock, hooks) {
    this.#cluster = cluster;
    this.#options = options;
    this.#clock = clock;
    this.#hooks = hooks;
    this.#session = new GroupSession(options.member);
    this.#link = new LeaderSession(cluster, options.topic, options.coordinator);
    this.joined = new Promise((resolve) => (this.#begin = resolve)); // for the first time
  }

  // What the coordinator calls this member; empty before it has joined.
  get member() {
    return this.#session.member;
  }

  finished(partition, claim) {
    this.#perform(this.#session.finished(partition, claim));
  }

  lost(partition, claim) {
    this.#perform(this.#session.lost(partition, claim));
  }

  // Joins, again whenever the connection breaks.  Returns when it left; throws why it is a member
  // no more.
  async run(signal) {
    const beganAt = this.#clock.now();
    const timer = setInterval(() => this.#signIfDue(), this.#signMs / 2);
    try {
      for (;;) {
        try {
          const { sid, takeOver, member } = this.#options;
          const question = () => ({
            type: "join_group",
            sid,
            member: this.member,
            static: member !== "",
            take_over: takeOver && !this.#hasJoined,
            held: onWire(this.#session.joining()),
          });
          await this.#link.run(question, (message) => this.#take(message), () => this.#signIfDue(), () => ({ type: "leave_group" }), signal);
        } catch (error) {
          if (this.#isLeaving) return;
          signal.throwIfAborted();
          const why = this.#whyNotAgain(error, beganAt);
          if (why) throw why;
          if (this.#hasJoined && error.code === "not_ready") {
            // The coordinator may have lost that the subscription was created to the end.  If this
            // fails, the next attempt to join is refused, too.
            await finishCreation(this.#cluster, this.#options, signal).catch(() => {});
          }
          await this.#link.beforeAgain(error, signal, (delay) => this.#hooks.onTrouble(error, delay));
        }
      }
    } finally {
      clearInterval(timer);
      this.#hasLeft = true;
      this.#left.ring();
    }
  }

  // Tells the coordinator, and waits for a moment until it knows.
  async leave() {
    this.#isLeaving = true;
    if (!this.#link.isOpen || this.#hasLeft) return;
    this.#link.post({ type: "leave_group" });
    await this.#left.next(undefined, this.#signMs);
  }

  #take(message) {
    if (message.type !== "assignment") throw new OctopiError("protocol", `${message.type} is no part of a membership`);
    this.#hooks.onTrouble(null);
    this.#hasJoined = true;
    this.#perform(this.#session.assigned(message.member, pairs(message.add), pairs(message.release)));
    this.#begin();
  }

  #perform(effects) {
    for (const effect of effects) {
      if (effect.do === "report") this.#report(effect.claims);
      else this.#hooks.perform(effect);
    }
  }

  #report(claims) {
    this.#signedAt = this.#clock.now();
    this.#link.post({ type: "holding", released: onWire(claims) });
  }

  get #signMs() {
    return this.#options.sessionTimeoutMs / SIGNS;
  }

  #signIfDue() {
    if (this.#link.isOpen && this.#clock.now() >= this.#signedAt + this.#signMs / 2) this.#report([]);
  }

  // Null: joining again may help.
  #whyNotAgain(error, beganAt) {
    const remedy = joinRemedy(error);
    if (remedy === "start over") {
      this.#perform(this.#session.expired());
      return null;
    }
    if (this.#hasJoined) {
      if (error.code === "subscription_busy") return new OctopiError("member_fenced", `another member has it now: ${error.message}`);
      return remedy === "stop" ? error : null;
    }
    if (remedy === "stop") return error;
    const waitedMs = this.#clock.now() - beganAt;
    if (waitedMs < this.#options.joinTimeoutMs) return null;
    return new OctopiError(error.code, `given up to join after ${Math.round(waitedMs)} ms; last: ${error.message}`);
  }
}

const pairs = (claims) => claims.map(({ partition, claim }) => [partition, claim]);
const onWire = (claims) => claims.map(([partition, claim]) => ({ partition, claim }));
