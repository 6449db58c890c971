// What a member of a subscription has to do with its logs, as far as the coordinator decides it.
//
// The coordinator assigns logs, and asks for their release.  Each assignment has a claim, a number
// that grows with each assignment of the log.  A member reads a log while it holds a claim of it:
//
//   - It takes a log with a claim that is newer than each one that it gave back, and with no other:
//     an assignment that comes late doesn't revive what was released.
//   - It gives a log back when the page has finished with it and its mark is stored.  Until the
//     coordinator has heard that, it may ask again, and is answered again.
//   - A broken connection to the coordinator ends nothing.  The member joins again under the same
//     name or id, and reads on meanwhile.
//   - It gives up all its logs if the coordinator doesn't know it any more: others may have them.
//
// Calls are events, results are lists of effects, to be performed in their order.  It knows no
// connection, no clock and no timer.  octopi/clients/subscribing/group_session.py is the same
// machine; a test compares them step by step.
//
// Effects:
//   { do: "begin", partition, claim }    attach to the log at its leader, and let the page read it
//   { do: "finish", partition, claim }   have the page finish what it has in hand, then call `finished`
//   { do: "abandon", partition, claim }  hand out nothing more: another member may have it
//   { do: "report", claims }             tell the coordinator, if it can be told now, that these are free
// Claims go in and out as pairs [partition, claim].

import { NODE_FAULTS } from "./errors.js";

const NO_CLAIM = 0;

// What to do after a join ended with *error*:
//   again      look up the coordinator, and join under the same name, with the claims that are held
//   start over the member is none any more: give up all logs (`expired`), then join again
//   stop       trying again can't help
export function joinRemedy({ code, retryable }) {
  if (code === "unknown_member") return "start over";
  return retryable || NODE_FAULTS.has(code) ? "again" : "stop";
}

export class GroupSession {
  #held = new Map(); // partition -> claim
  #ending = new Set(); // of these, the partitions that the page was asked to finish
  #givenBack = new Map(); // partition -> the newest claim of it that is held no more
  #isNew = true; // nothing was heard since the last join

  // *staticMember*: the name that it chose; empty: the coordinator gives it an id.
  constructor(staticMember = "") {
    this.staticMember = staticMember;
    this.member = staticMember; // what the coordinator calls it; empty before it has joined
  }

  // What is held now, by partition.
  get held() {
    return sorted(this.#held);
  }

  // A request to join goes out: what to say that is held.
  joining() {
    this.#isNew = true;
    return this.held;
  }

  // The coordinator assigned the logs *add* to the member, which it calls *member*, and asked for
  // the logs *release*.
  assigned(member, add, release) {
    this.member = member;
    const effects = [];
    const again = new Map();
    if (this.#isNew) {
      // What was told on an older connection may not have arrived.
      this.#isNew = false;
      for (const [partition, claim] of this.#givenBack) if (!this.#held.has(partition)) again.set(partition, claim);
    }
    for (const [partition, claim] of add) {
      if (claim <= this.#lastGivenBack(partition)) {
        if (!this.#held.has(partition)) again.set(partition, this.#givenBack.get(partition));
      } else if (claim < (this.#held.get(partition) ?? NO_CLAIM)) {
        again.set(partition, claim); // the coordinator lost the newer one; it is to go on
      } else if (claim > (this.#held.get(partition) ?? NO_CLAIM)) {
        effects.push(...this.#drop(partition));
        again.delete(partition);
        this.#held.set(partition, claim);
        effects.push({ do: "begin", partition, claim });
      }
    }
    for (const [partition, claim] of release) {
      const held = this.#held.get(partition);
      if (held === claim && !this.#ending.has(partition)) {
        this.#ending.add(partition);
        effects.push({ do: "finish", partition, claim });
      } else if (held === undefined && claim <= this.#lastGivenBack(partition)) {
        again.set(partition, this.#givenBack.get(partition));
      } else if (held === undefined) {
        // It was revoked before it was heard of.
        this.#givenBack.set(partition, claim);
        again.set(partition, claim);
      }
    }
    if (again.size) effects.push({ do: "report", claims: sorted(again) });
    return effects;
  }

  // The page has finished with the log, and its mark is stored, as far as it can be.
  finished(partition, claim) {
    if (this.#held.get(partition) !== claim) return [];
    this.#forget(partition);
    return [{ do: "report", claims: [[partition, claim]] }];
  }

  // The log's leader refuses the claim: there is a newer one.
  lost(partition, claim) {
    if (this.#held.get(partition) !== claim) return [];
    return [...this.#drop(partition), { do: "report", claims: [[partition, claim]] }];
  }

  // The coordinator knows the member no more: all its logs may be others'.
  expired() {
    this.member = this.staticMember;
    return this.held.flatMap(([partition]) => this.#drop(partition));
  }

  #drop(partition) {
    return this.#held.has(partition) ? [{ do: "abandon", partition, claim: this.#forget(partition) }] : [];
  }

  #forget(partition) {
    const claim = this.#held.get(partition);
    this.#held.delete(partition);
    this.#ending.delete(partition);
    this.#givenBack.set(partition, claim);
    return claim;
  }

  #lastGivenBack(partition) {
    return this.#givenBack.get(partition) ?? NO_CLAIM;
  }
}

function sorted(claims) {
  return [...claims].sort(([one], [other]) => one - other);
}
