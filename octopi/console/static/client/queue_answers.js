// What a member of a queue sends to the leader of a log, and what it does when its attachment ended.
// octopi/clients/subscribing/queue_answers.py is the same; a test compares them.

import { NODE_FAULTS } from "./errors.js";

export const SETTLE_COUNT_MAX = 1_000; // answers in one message

// What to do after an attachment to a queue ended with *error*:
//   again  look up the log's leader, and attach there; if the leader knows no mark, the log may have
//          lost it: `LeaderSession` finds that out
//   stop   trying again can't help
// A queue's member has no claim of its own, so being fenced means only that the mark was reset.
export function queueRemedy({ code, retryable }) {
  if (code === "member_fenced" || code === "unknown_member" || code === "unknown_subscription") return "again";
  return retryable || NODE_FAULTS.has(code) ? "again" : "stop";
}

// Answers that are not sent yet.  Each entry is a list that begins with an offset and its attempt.
export class PendingAnswers {
  constructor() {
    this.acknowledged = [];
    this.released = []; // with the delay in ms
    this.rejected = []; // with the reason
    this.extended = [];
  }

  get length() {
    return this.acknowledged.length + this.released.length + this.rejected.length + this.extended.length;
  }

  // Those that the page has answered, as [offset, attempt].
  get deliveries() {
    return [...this.acknowledged, ...this.released, ...this.rejected].map(([offset, attempt]) => [offset, attempt]);
  }

  // Takes as many as one message can have, acknowledgements first.  *confirm*: the number that the
  // leader is to answer with when all that was answered up to here is committed, or null for no
  // answer.
  nextSettle(confirm) {
    let room = SETTLE_COUNT_MAX;
    const cut = (entries) => {
      const taken = entries.splice(0, room);
      room -= taken.length;
      return taken;
    };
    const [acknowledged, released, rejected, extended] = [this.acknowledged, this.released, this.rejected, this.extended].map(cut);
    return { do: "settle", acknowledged, released, rejected, extended, confirm };
  }

  // Forgets all; returns how many were no extensions.
  clear() {
    const count = this.length - this.extended.length;
    for (const entries of [this.acknowledged, this.released, this.rejected, this.extended]) entries.length = 0;
    return count;
  }
}
