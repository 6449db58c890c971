// The messages of a topic, as they come: read, searched and kept; messages.js shows them.
//
// What a page can show at once is bounded, so what it keeps is, too: so many rows, and of large
// values the whole only while there is room.  Paused, it takes nothing, and then the broker sends
// nothing: it goes on where it was.

import { Octopi } from "../octopi.js";
import { preview } from "./words.js";

export const ROWS_MAX = 500;
export const SHOWN_BYTES_MAX = 4_096; // of a value, before all of it is asked for
export const WHOLE_BYTES_MAX = 1_048_576; // larger values are cut for good
const SEARCHED_BYTES_MAX = 65_536; // of a value
const KEPT_BYTES_MAX = 33_554_432; // of all rows together
const WINDOW_BYTES = 1_048_576;

const fromUtf8 = new TextDecoder();

export class Tail {
  // *onChange* is called when there is something new to be seen.
  // *pages*: the `NodePages` that know which node answers, and the token.
  constructor(onChange, pages) {
    this.onChange = onChange;
    this.pages = pages;
    this.topic = "";
    this.partition = "";
    this.from = "latest";
    this.place = ""; // an offset or a time, if *from* asks for one
    this.filter = "";
    this.form = "json";
    this.rows = []; // newest first
    this.isPaused = false;
    this.problem = "";
    this.state = "";
    this.seen = 0;
    this.matching = 0;
    this.rate = 0;
    this.keptBytes = 0;
    this.heldBytes = 0; // came while it was paused
    this.wake = () => {};
    this.reading = null;
    this.client = null;
    this.nextKey = 0;
    this.open = new Set(); // rows that are shown as a whole
    this.one = null; // the message that has the page
    this.#counted = { at: Date.now(), seen: 0 };
  }
  #counted;
  #attempt = 0; // counts what was begun and stopped

  start() {
    this.stop();
    this.one = null;
    if (!this.topic) return;
    this.rows = [];
    this.open.clear();
    this.keptBytes = this.heldBytes = this.seen = this.matching = 0;
    this.#counted = { at: Date.now(), seen: 0 };
    this.problem = "";
    this.isPaused = false;
    const attempt = this.#attempt;
    this.#read(attempt).catch((error) => this.#failed(error, attempt));
  }

  // The end of a reading that another one has replaced is no failure.
  #failed(error, attempt) {
    if (attempt !== this.#attempt) return;
    this.problem = error.code ? `${error.message} [${error.code}]` : String(error);
    this.state = "";
    this.reading = null;
    this.onChange();
  }

  // Reads the one message at *offset*.
  async showOne(topic, partition, offset) {
    this.stop();
    Object.assign(this, { topic, partition: String(partition), one: null, rows: [], problem: "" });
    this.onChange();
    const attempt = this.#attempt;
    try {
      const client = await this.#connected();
      if (attempt !== this.#attempt) return;
      const reading = (this.reading = client.subscribe(topic, { from: offset, partition, window: 1 }));
      const { value: message } = await reading.next();
      if (this.reading !== reading) return;
      this.one = this.#rowOf(message);
      this.stop();
      this.onChange();
    } catch (error) {
      this.#failed(error, attempt);
    }
  }

  // Stores a message, and resolves with its receipt.
  async produce(topic, value, options) {
    const client = await this.#connected();
    return client.publish(topic, value, options);
  }

  stop() {
    this.#attempt++;
    this.reading?.unsubscribe();
    this.reading = null;
    this.state = "";
    this.#resume();
  }

  pause(isPaused) {
    this.isPaused = isPaused;
    if (!isPaused) this.#resume();
    this.onChange();
  }

  #resume() {
    this.wake();
    this.wake = () => {};
  }

  setFilter(text) {
    this.filter = text;
    this.rows = this.rows.filter((row) => this.#matches(row));
    this.keptBytes = this.rows.reduce((sum, row) => sum + row.value.length, 0);
    this.matching = this.rows.length;
    this.onChange();
  }

  // Whether key, headers or value contain what is searched for.
  #matches({ keyText, headers, value }) {
    const { filter } = this;
    if (!filter || keyText?.includes(filter)) return true;
    if (headers.some(([name, text]) => name.includes(filter) || text.includes(filter))) return true;
    return fromUtf8.decode(value.subarray(0, SEARCHED_BYTES_MAX)).includes(filter);
  }

  // The client, which goes on with other nodes by itself.
  async #connected() {
    if (!this.client || this.client.state === "closed") {
      this.client = await Octopi.connect(this.pages.server, { name: "console", token: () => this.pages.token });
      this.client.addEventListener("state", ({ detail }) => {
        if (this.reading) this.state = detail.state === "open" ? "live" : detail.state;
        this.onChange();
      });
    }
    return this.client;
  }

  async #read(attempt) {
    this.state = "connecting";
    this.onChange();
    const client = await this.#connected();
    if (attempt !== this.#attempt) return;
    const options = { from: this.#start(), partition: this.partition === "" ? "all" : Number(this.partition), window: WINDOW_BYTES, onGap: "skip", onFork: "resume" };
    const reading = (this.reading = client.subscribe(this.topic, options));
    await reading.ready;
    this.state = "live";
    this.onChange();
    for await (const batch of reading.batches()) {
      this.heldBytes = batch.at(-1).nextOffset - batch[0].offset;
      while (this.isPaused && this.reading === reading) await new Promise((resolve) => (this.wake = resolve));
      this.heldBytes = 0;
      if (this.reading !== reading) return;
      for (const message of batch) this.#take(message);
      this.onChange();
      // Between two batches the page paints, and people press keys.
      await new Promise((resolve) => setTimeout(resolve));
    }
  }

  #start() {
    if (this.from === "offset") return Number(this.place) || 0;
    if (this.from === "time") return new Date(this.place);
    return this.from.startsWith("-") ? { last: -Number(this.from) } : this.from;
  }

  #take(message) {
    this.seen++;
    const row = this.#rowOf(message);
    if (!this.#matches(row)) return;
    this.matching++;
    this.rows.unshift(row);
    this.keptBytes += row.value.length;
    while (this.rows.length > ROWS_MAX) {
      const gone = this.rows.pop();
      this.keptBytes -= gone.value.length;
      this.open.delete(gone.key);
    }
    for (let at = this.rows.length - 1; this.keptBytes > KEPT_BYTES_MAX && at > 0; at--) {
      const row = this.rows[at];
      if (row.value.length <= SHOWN_BYTES_MAX) continue;
      this.keptBytes -= row.value.length - SHOWN_BYTES_MAX;
      row.value = row.value.slice(0, SHOWN_BYTES_MAX);
    }
  }

  // A copy: the original is a view of everything that came with it.
  #rowOf({ topic, offset, nextOffset, partition, timestamp, headers, key, value }) {
    const keyText = key === null ? null : fromUtf8.decode(key.subarray(0, 1_000));
    return { key: this.nextKey++, topic, offset, nextOffset, partition, timestamp, headers: copied(headers), keyText, value: value.slice(0, WHOLE_BYTES_MAX), valueBytes: value.length };
  }

  // Messages a second, since it was asked last; call it about once a second.
  measure() {
    const now = Date.now();
    this.rate = Math.round((1000 * (this.seen - this.#counted.seen)) / Math.max(1, now - this.#counted.at));
    this.#counted = { at: now, seen: this.seen };
  }
}

// Names and texts.
function copied(headers) {
  return Object.entries(headers).map(([name, value]) => [name, preview(value.slice(0, 300), "text")]);
}
