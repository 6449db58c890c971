// Producers: which log a message goes to, and the lives of those that have a name.

import { OctopiError } from "./errors.js";
import { LogPublisher } from "./publisher.js";
import { crc32, prepare } from "./record.js";
import { sha256 } from "./sha256.js";
import { consumerNameFault } from "./subscription_options.js";
import { unlessAborted } from "./waiting.js";

const ID_BYTES = 16;

// The id of the producer *name*, the same in each client of each language.
export function producerId(name) {
  return sha256(new TextEncoder().encode(`octopi producer ${name}`)).slice(0, ID_BYTES);
}

// Sends messages, under an id that is random or, with a *name*, made from that.
export class Producer {
  #cluster;
  #signal;
  #onTrouble;
  #id;
  #topics = new Map(); // topic -> { info, partitions, byPartition, sticky }
  #ended = null;

  constructor(cluster, { name = null, signal, onTrouble }) {
    if (name !== null && consumerNameFault(name)) throw new OctopiError("invalid_option", `name is ${JSON.stringify(name)}; ${consumerNameFault(name)}`);
    this.name = name;
    this.#cluster = cluster;
    this.#signal = signal;
    this.#onTrouble = onTrouble;
    this.#id = name === null ? crypto.getRandomValues(new Uint8Array(ID_BYTES)) : producerId(name);
  }

  // Ends the earlier life of this name in all logs of *topics*.
  async begin(topics) {
    for (const topic of topics) {
      const places = await this.#places(topic);
      for (const partition of places.partitions) await this.#publisher(topic, places, partition).begin();
    }
    return this;
  }

  // Stores a message, once, and resolves with its receipt when it is committed.
  async publish(topic, value, { key, headers, partition, signal, timestamp = Date.now(), expectedEnd = null } = {}) {
    this.#checkOpen();
    signal?.throwIfAborted();
    if (expectedEnd !== null && !(Number.isSafeInteger(expectedEnd) && expectedEnd >= 0)) {
      throw new OctopiError("invalid_option", `expectedEnd is ${expectedEnd}: it is an offset, such as a receipt's nextOffset`);
    }
    const record = prepare(value, key, headers, timestamp);
    const places = await this.#places(topic, signal);
    this.#checkOpen();
    if (expectedEnd !== null && partition === undefined && !record.key && places.partitions.length > 1) {
      throw new OctopiError("invalid_option", `expectedEnd is the end of one log, and topic ${topic} has ${places.partitions.length}: give the partition, or a key`);
    }
    const publisher = this.#publisher(topic, places, partition ?? this.#partitionFor(places, record));
    return publisher.publish(record, signal, expectedEnd);
  }

  #checkOpen() {
    if (this.#signal.aborted) throw new OctopiError("closed", "the client was closed");
    if (this.#ended) throw new OctopiError(this.#ended.code, this.#ended.message, { cause: this.#ended });
  }

  async #places(topic, signal) {
    let places = this.#topics.get(topic);
    if (!places) {
      places = { info: null, partitions: null, byPartition: new Map(), sticky: Math.floor(Math.random() * 2 ** 16) };
      this.#topics.set(topic, places);
    }
    if (!places.info) {
      const info = this.#cluster.retry(() => this.#cluster.topic(topic, { create: true, anew: true }), this.#signal);
      info.catch(() => (places.info = null));
      places.info = info;
    }
    places.partitions ??= (await unlessAborted(places.info, signal)).partitions.map((one) => one.partition);
    return places;
  }

  // With a key the one that every client in every language computes; without, the same until a
  // batch is full.
  #partitionFor({ partitions, sticky }, { key }) {
    return partitions[(key ? crc32(key) : sticky) % partitions.length];
  }

  #publisher(topic, places, partition) {
    if (!places.partitions.includes(partition)) {
      throw new OctopiError("unknown_partition", `topic ${topic} has no partition ${partition}; it has ${places.partitions.join(", ")}`);
    }
    let publisher = places.byPartition.get(partition);
    if (!publisher) {
      publisher = new LogPublisher(this.#cluster, topic, partition, this.#id, {
        isNamed: this.name !== null,
        onTrouble: this.#onTrouble,
        onBatchFull: () => places.sticky++,
        onGone: () => Object.assign(places, { info: null, partitions: null }),
        onFenced: (error) => (this.#ended ??= this.#fenced(error)),
        signal: this.#signal,
      });
      places.byPartition.set(partition, publisher);
    }
    return publisher;
  }

  #fenced(error) {
    const who = this.name === null ? "a producer with this one's id" : `the producer '${this.name}'`;
    return new OctopiError(
      "producer_fenced",
      `${who} was opened again, by another program or by another start of this one, and that ended this one (${error.message}); ` +
        "have only one program use the name, or open it again here, which ends the other one",
    );
  }
}
