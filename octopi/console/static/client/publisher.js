// Publishes to one log: batches, sequences, repetition.
//
// One batch is on its way at a time.  Once it was sent its bytes never change, so a repetition
// (after a lost connection, or to another leader) is recognised by the broker by producer id,
// epoch and sequence, and stored once.  A batch that ends without a receipt ends the producer
// epoch with it: the next one fences off every copy that may still be under way.  A named producer
// chooses no epoch: the leader begins each one, because another life may begin one, too.

import { OctopiError } from "./errors.js";
import { encodeRecords } from "./record.js";
import { Route } from "./route.js";
import { onAbort, sleep } from "./waiting.js";

const BATCH_BYTES = 128 * 1024;
const BUFFER_BYTES = 32 * 1024 * 1024;
const DELIVERY_TIMEOUT_MS = 60_000;

// Refusals that a broker gives only before it appends.
const BEFORE_APPEND = new Set([
  "malformed_message", "unknown_message", "unsupported_version", "wrong_endpoint", "message_too_large", "too_many",
  "unknown_topic", "invalid_topic", "unknown_partition", "invalid_option", "wrong_kind", "topic_closed", "malformed_record",
  "record_checksum", "condition_failed", "sequence_gap", "producer_fenced", "unknown_producer", "not_leader", "not_ready", "no_broker",
  "shutting_down", "no_quorum", "stale_route", "buffer_full", "disk_full", "unauthenticated", "forbidden", "expired", "over_limit", "quota_exceeded", "not_a_member",
  "unreachable", "page_refused", "token",
]);
const MAY_BE_ELSEWHERE = new Set(["unknown_topic", "unknown_partition"]);
const START_OVER = new Set(["sequence_gap", "unknown_producer"]);

// The id of the record *number* of a transaction in memory, whose first one has *id*: the last two of
// its 16 bytes are a sequence.
function idBehind(id, number) {
  const behind = new Uint8Array(id);
  const view = new DataView(behind.buffer);
  view.setUint16(14, view.getUint16(14) + number);
  return behind;
}

export class LogPublisher {
  #cluster;
  #queue = [];
  #queuedBytes = 0;
  #isRunning = false;
  #epoch = null; // of a named producer: null before the first one
  #isEpochOver = true;
  #sequence = 0;
  #route;

  constructor(cluster, topic, partition, producerId, { isNamed, onTrouble, onBatchFull, onFenced, onGone, signal }) {
    this.topic = topic;
    this.partition = partition;
    this.producerId = producerId;
    this.#cluster = cluster;
    this.#route = new Route(cluster, topic, partition, { create: true });
    this.onTrouble = onTrouble;
    this.onBatchFull = onBatchFull;
    this.onGone = onGone; // the topic has this partition no more: it was made again
    this.isNamed = isNamed;
    this.onFenced = onFenced;
    this.signal = signal;
  }

  // The receipt of a message, once it is committed.  *expectedEnd*: where the log has to end, so that
  // the message is stored there; null: anywhere.
  publish(record, signal, expectedEnd = null) {
    if (signal?.aborted) return Promise.reject(signal.reason);
    if (this.#queuedBytes + record.size > BUFFER_BYTES) {
      return Promise.reject(new OctopiError("too_many", `${this.topic}/${this.partition}: ${this.#queuedBytes} bytes wait to be sent: await some receipts first`));
    }
    return new Promise((resolve, reject) => {
      const forget = onAbort(signal, () => this.#withdraw(entry, signal.reason));
      const then = (settle) => (outcome) => (forget(), settle(outcome));
      const entry = { record, expectedEnd, resolve: then(resolve), reject: then(reject), deadline: Date.now() + DELIVERY_TIMEOUT_MS };
      this.#queue.push(entry);
      this.#queuedBytes += record.size;
      if (!this.#isRunning) this.#run();
    });
  }

  // Aborted before it was sent: it never is.  Later: it may be stored.
  #withdraw(entry, reason) {
    const at = this.#queue.indexOf(entry);
    if (at >= 0) {
      this.#queue.splice(at, 1);
      this.#queuedBytes -= entry.record.size;
    }
    entry.reject(reason);
  }

  async #run() {
    this.#isRunning = true;
    await Promise.resolve(); // what is published in the same breath goes into one batch
    while (this.#queue.length) {
      const batch = this.#nextBatch();
      try {
        const { offset, duplicate, id, digest } = await this.#deliver(batch);
        this.#sequence += batch.length;
        let at = offset;
        batch.forEach(({ record, resolve }, number) => {
          const receipt = { partition: this.partition, offset: at, nextOffset: at + record.size, duplicate };
          if (id?.length) Object.assign(receipt, { id: idBehind(id, number), digest });
          resolve(receipt);
          at += record.size;
        });
      } catch (error) {
        this.#startOver();
        if (error.code === "unknown_partition") this.onGone();
        if (error.code === "producer_fenced" || error.cause?.code === "producer_fenced") this.onFenced(error);
        for (const { reject } of batch) reject(error);
      }
    }
    this.#isRunning = false;
    this.onTrouble(this, null);
  }

  #nextBatch() {
    let size = 0;
    let count = 0;
    const isAlone = ({ expectedEnd }) => expectedEnd !== null;
    while (count < this.#queue.length && (count === 0 || size + this.#queue[count].record.size <= BATCH_BYTES)) {
      if (count && (isAlone(this.#queue[count]) || isAlone(this.#queue[0]))) break;
      size += this.#queue[count++].record.size;
    }
    if (count < this.#queue.length) this.onBatchFull(this);
    this.#queuedBytes -= size;
    return this.#queue.splice(0, count);
  }

  #startOver() {
    this.#isEpochOver = true;
  }

  // Has an epoch begin, unless one has.
  async begin() {
    if (!this.#isEpochOver) return;
    const { topic, partition, producerId: producer_id } = this;
    if (this.isNamed) {
      const message = { type: "describe_producer", producer_id, begins: true, after: this.#epoch };
      const { epoch } = await this.#cluster.askLeader(topic, partition, message, "producer_description", this.signal);
      this.#epoch = epoch;
    } else {
      this.#epoch = this.#epoch === null ? 0 : this.#epoch + 1;
    }
    this.#sequence = 0;
    this.#isEpochOver = false;
  }

  // What the broker answered when the batch was committed.
  async #deliver(batch) {
    const { deadline, expectedEnd } = batch[0];
    const records = batch.map((one) => one.record);
    const backoff = this.#cluster.newBackoff();
    let isMaybeStored = false;
    let bytes = null;
    for (;;) {
      let error;
      try {
        await this.begin();
        bytes ??= encodeRecords(records, this.producerId, this.#epoch, this.#sequence);
        return await this.#send(bytes, expectedEnd);
      } catch (caught) {
        error = caught;
      }
      if (!(error instanceof OctopiError)) throw error;
      // Behind the expected end the log has something else than this message, for good.
      if (error.code === "condition_failed" && error.offset > expectedEnd) isMaybeStored = false;
      const canPass = error.retryable || (error.isFromBroker && MAY_BE_ELSEWHERE.has(error.code));
      if (error.isAboutRecords && !BEFORE_APPEND.has(error.code)) isMaybeStored = true;
      if (error.isFromBroker && START_OVER.has(error.code) && this.#sequence !== 0 && !isMaybeStored) {
        this.#startOver();
        bytes = null;
        continue;
      }
      const delay = backoff.nextMs();
      const isTold = this.#route.redirected(error);
      if (this.signal.aborted || !canPass || Date.now() + delay > deadline) throw this.#verdict(isMaybeStored, error);
      this.onTrouble(this, error, delay);
      await sleep(isTold ? 0 : delay, this.signal).catch(() => {});
    }
  }

  async #send(bytes, expectedEnd) {
    const { topic, partition } = this;
    const connection = await this.#cluster.connection(await this.#route.find());
    try {
      const produced = await connection.request({ type: "produce", topic, partition, records: bytes, ...(expectedEnd !== null && { expected_end: expectedEnd }) }, "produced");
      this.#route.arrived();
      this.onTrouble(this, null);
      return produced;
    } catch (error) {
      throw Object.assign(new OctopiError(error.code, error.message, { address: error.address, epoch: error.epoch, offset: error.offset }), {
        isAboutRecords: true,
        isFromBroker: error.status !== undefined,
      });
    }
  }

  #verdict(isMaybeStored, cause) {
    const name = `${this.topic}/${this.partition}`;
    if (isMaybeStored) return new OctopiError("outcome_unknown", `${name}: it may be stored, its answer never came; last: ${cause.message}`, { cause });
    if (cause.retryable) return new OctopiError("not_delivered", `${name}: it is not stored; last: ${cause.message}`, { cause });
    const details = cause.code === "condition_failed" ? { cause, end: cause.offset } : { cause };
    return new OctopiError(cause.code, `${name}: ${cause.message}`, details);
  }
}
