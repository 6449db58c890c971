// Messages of a queue in a page's hands: each one is acknowledged, released or rejected.

import { Message } from "./record.js";

// A message of a queue, dealt to this member.  The first answer counts; further ones have no effect.
// None of them waits: `QueueSubscription.commit` does.  An answer that comes after `deadline` may be
// too late: then the message was dealt to another member, and `staleCount` counts it.
export class DealtMessage extends Message {
  #log;
  #delivery;

  // *log*: the `DealtLog` that it came from.
  constructor(log, delivery) {
    const { topic, partition, offset, nextOffset, timestamp, key, value, headers } = delivery.message;
    super(topic, partition, offset, nextOffset, timestamp, key, value, headers);
    this.#log = log;
    this.#delivery = delivery;
  }

  static deliveryOf(message) {
    return message.#delivery;
  }

  // How often it was dealt, this time included: 1 the first time.
  get attempt() {
    return this.#delivery.attempt;
  }

  // When the ack timeout ends (ms since 1970, by this machine's clock); `extend` moves it.
  get deadline() {
    return this.#log.deadline(this.#delivery);
  }

  // Whether the page has acknowledged, released or rejected it.
  get isAnswered() {
    return this.#delivery.isAnswered;
  }

  // It is processed.
  acknowledge() {
    this.#log.acknowledge([this.#delivery]);
  }

  // Deal it again, to any member, at once or after *delayMs* (up to 12 hours).
  release(delayMs = 0) {
    this.#log.release([this.#delivery], delayMs);
  }

  // It can't be processed: make it a dead letter, which carries *reason* (up to 1,000 bytes).
  reject(reason = "") {
    this.#log.reject(this.#delivery, reason);
  }

  // It takes longer: the ack timeout begins anew.
  extend() {
    this.#log.extend(this.#delivery);
  }
}

// Messages of one log, as a list.  What was answered by itself stays so.
export class DealtBatch extends Array {
  #log;

  static get [Symbol.species]() {
    return Array; // what `map` and `filter` return is no batch
  }

  constructor(log = null, messages = []) {
    super();
    this.push(...messages);
    this.#log = log;
  }

  // All are processed.
  acknowledge() {
    this.#log.acknowledge(this.map(DealtMessage.deliveryOf));
  }

  // Deal all of them again, at once or after *delayMs* (up to 12 hours).
  release(delayMs = 0) {
    this.#log.release(this.map(DealtMessage.deliveryOf), delayMs);
  }
}
