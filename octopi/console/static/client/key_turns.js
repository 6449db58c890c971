// Deliveries of a queue to a member, and which of them the page may take now.
//
// Where messages of a key are in order, one is handed out when those of its key before it are
// answered.  octopi/clients/subscribing/key_turns.py is the same; a test compares them.

// One dealing of a message to this member.
export class OpenDelivery {
  constructor(offset, attempt, sizeBytes, attachment, now) {
    this.offset = offset;
    this.attempt = attempt;
    this.sizeBytes = sizeBytes;
    this.attachment = attachment; // which one it came with
    this.dealtAt = now;
    this.since = now; // when it was dealt, or extended last
    this.key = null; // a string: what it has to wait for; null: nothing
    this.isExtended = false;
    this.message = null; // for the log that hands it out
    this.hasKey = false; // whether it is in the page's hands, and those of its key wait for it
    this.isNext = false; // whether it waited for its key, and may be taken now
    this.isTaken = false; // whether the page has it
    this.isAnswered = false;
    this.isVoid = false; // whether the leader has said that it counts no more
  }
}

// Deliveries that the page has not taken.  Those that wait behind others of their key wait for one
// that the page has, or that is next.
export class WaitingDeliveries {
  #ready = []; // those that may be taken, or have not been looked at; some may be void
  #turns = new Map(); // key -> { takenCount, behind }, of each key with a message that the page has, or that is next

  add(deliveries) {
    for (const one of deliveries) this.#ready.push(one);
  }

  // All of them are void.
  clear() {
    this.#ready.length = 0;
    this.#turns.clear();
  }

  // The next one for the page; null: there is none.
  take() {
    while (this.#ready.length) {
      const delivery = this.#ready.shift();
      if (!this.#hasTurn(delivery)) continue;
      this.#handOut(delivery);
      return delivery;
    }
    return null;
  }

  // All that one loop may have, also several of a key.
  takeAll() {
    const taken = [];
    const keys = new Set();
    while (this.#ready.length) {
      const delivery = this.#ready.shift();
      const { key } = delivery;
      const found = [delivery];
      if (delivery.isVoid || !keys.has(key)) {
        if (!this.#hasTurn(delivery)) continue;
        if (key !== null) {
          keys.add(key);
          const { behind } = this.#turns.get(key);
          found.push(...behind.splice(0).filter((one) => !one.isVoid));
        }
      }
      for (const one of found) this.#handOut(one);
      taken.push(...found);
    }
    return taken;
  }

  // It is answered, or void.
  ended(delivery) {
    const { key } = delivery;
    if (delivery.hasKey) {
      delivery.hasKey = false;
      this.letGo(key);
    } else if (delivery.isNext) {
      delivery.isNext = false;
      if (!this.#turns.get(key).takenCount) this.#nextOfKey(key);
    }
  }

  // Hands out nothing of a key, until `letGo` was called as often.
  hold(key) {
    if (!this.#turns.has(key)) this.#turns.set(key, { takenCount: 0, behind: [] });
    this.#turns.get(key).takenCount++;
  }

  letGo(key) {
    const turn = this.#turns.get(key);
    turn.takenCount--;
    if (!turn.takenCount) this.#nextOfKey(key);
  }

  // Whether it may be taken now; else it waits for its key, or is void.
  #hasTurn(delivery) {
    const { key } = delivery;
    if (delivery.isVoid) return false;
    if (key === null || delivery.isNext) return true;
    const turn = this.#turns.get(key);
    if (turn) {
      turn.behind.push(delivery);
      return false;
    }
    this.#turns.set(key, { takenCount: 0, behind: [] });
    return true;
  }

  #handOut(delivery) {
    delivery.isTaken = true;
    delivery.isNext = false;
    if (delivery.key === null) return;
    delivery.hasKey = true;
    this.#turns.get(delivery.key).takenCount++;
  }

  #nextOfKey(key) {
    const { behind } = this.#turns.get(key);
    while (behind.length) {
      const one = behind.shift();
      if (one.isVoid) continue;
      one.isNext = true;
      this.#ready.unshift(one);
      return;
    }
    this.#turns.delete(key);
  }
}
