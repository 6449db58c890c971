// The live tail: the newest messages of a topic, as they come.
//
// What a page can show at once is bounded, so what it keeps is, too: so many rows, and of large
// values the whole only while there is room.  Paused, it takes nothing, and then the broker sends
// nothing: it goes on where it was.

import { Octopi } from "../octopi.js";
import { repeat } from "../vendor/directives/repeat.js";
import { html, nothing } from "../vendor/lit-html.js";
import { clock, content, count, preview, size } from "./words.js";

const ROWS_MAX = 500;
const SHOWN_BYTES_MAX = 4_096; // of a value, before somebody wants all of it
const WHOLE_BYTES_MAX = 1_048_576; // larger values are cut for good
const KEPT_BYTES_MAX = 33_554_432; // of all rows together
const WINDOW_BYTES = 1_048_576;

const fromUtf8 = new TextDecoder();

export class Tail {
  // *onChange* is called when there is something new to be seen.
  constructor(onChange, token) {
    this.onChange = onChange;
    this.token = token;
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
    this.#counted = { at: Date.now(), seen: 0 };
  }
  #counted;

  start() {
    this.stop();
    if (!this.topic) return;
    this.rows = [];
    this.open.clear();
    this.keptBytes = this.heldBytes = this.seen = this.matching = 0;
    this.#counted = { at: Date.now(), seen: 0 };
    this.problem = "";
    this.isPaused = false;
    this.#read().catch((error) => {
      this.problem = error.code ? `${error.message} [${error.code}]` : String(error);
      this.state = "";
      this.reading = null;
      this.onChange();
    });
  }

  stop() {
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
    this.rows = this.rows.filter((row) => this.#matches(row.keyText));
    this.keptBytes = this.rows.reduce((sum, row) => sum + row.value.length, 0);
    this.matching = this.rows.length;
    this.onChange();
  }

  #matches(keyText) {
    return !this.filter || (keyText !== null && keyText.includes(this.filter));
  }

  async #read() {
    this.state = "connecting";
    this.onChange();
    if (!this.client || this.client.state === "closed") {
      this.client = await Octopi.connect(undefined, { name: "console", token: this.token });
      this.client.addEventListener("state", ({ detail }) => {
        this.state = detail.state === "open" ? "live" : detail.state;
        this.onChange();
      });
    }
    const options = { from: this.#start(), partition: this.partition === "" ? "all" : Number(this.partition), window: WINDOW_BYTES, onGap: "skip", onFork: "resume" };
    const reading = (this.reading = this.client.subscribe(this.topic, options));
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
    const keyText = message.key === null ? null : fromUtf8.decode(message.key.subarray(0, 1_000));
    if (!this.#matches(keyText)) return;
    this.matching++;
    // A copy: the original is a view of everything that came with it.
    const value = message.value.slice(0, WHOLE_BYTES_MAX);
    const { offset, partition, timestamp, headers } = message;
    this.rows.unshift({ key: this.nextKey++, offset, partition, timestamp, headers: copied(headers), keyText, value, valueBytes: message.value.length });
    this.keptBytes += value.length;
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

  // Messages a second, since it was asked last; call it about once a second.
  measure() {
    const now = Date.now();
    this.rate = Math.round((1000 * (this.seen - this.#counted.seen)) / Math.max(1, now - this.#counted.at));
    this.#counted = { at: now, seen: this.seen };
  }
}

function copied(headers) {
  return Object.entries(headers).map(([name, value]) => [name, preview(value.slice(0, 300), "text")]);
}

// --- the view ---------------------------------------------------------------------------------

const STARTS = [
  ["latest", "what comes now"],
  ["-10", "the last 10"],
  ["-100", "the last 100"],
  ["earliest", "the beginning"],
  ["offset", "an offset …"],
  ["time", "a time …"],
];

export function tailPanel(tail, topics) {
  const start = (event) => {
    event.preventDefault();
    tail.start();
  };
  return html`
    <section class="card wide" aria-labelledby="tail-title" id="tail">
      <h2 id="tail-title">Live tail <small>${status(tail)}</small></h2>
      <form class="bar" @submit=${start}>
        <label>Topic <input id="tail-topic" list="topic-names" required .value=${tail.topic} spellcheck="false" autocomplete="off" @input=${(event) => (tail.topic = event.target.value.trim())}></label>
        <datalist id="topic-names">${topics.map(({ topic }) => html`<option value=${topic}></option>`)}</datalist>
        <label>Partition <input id="tail-partition" class="short" inputmode="numeric" pattern="[0-9]*" placeholder="all" .value=${tail.partition} @input=${(event) => (tail.partition = event.target.value.trim())}></label>
        <label>From <select id="tail-from" @change=${(event) => ((tail.from = event.target.value), tail.onChange())}>
          ${STARTS.map(([value, words]) => html`<option value=${value} ?selected=${tail.from === value}>${words}</option>`)}
        </select></label>
        ${tail.from === "offset" ? html`<label>Offset <input class="short" inputmode="numeric" pattern="[0-9]+" required .value=${tail.place} @input=${(event) => (tail.place = event.target.value)}></label>` : nothing}
        ${tail.from === "time" ? html`<label>Time <input type="datetime-local" step="1" required .value=${tail.place} @input=${(event) => (tail.place = event.target.value)}></label>` : nothing}
        <label>Key has <input id="tail-filter" type="search" placeholder="anything" .value=${tail.filter} spellcheck="false" autocomplete="off" @input=${(event) => tail.setFilter(event.target.value)}></label>
        <fieldset class="forms"><legend>Values as</legend>
          ${["json", "text", "hex"].map((form) => html`<label><input type="radio" name="form" value=${form} .checked=${tail.form === form} @change=${() => ((tail.form = form), tail.onChange())}> ${form}</label>`)}
        </fieldset>
        <span class="buttons">
          <button class="primary">${tail.reading ? "Start again" : "Start"}</button>
          <button type="button" id="pause" ?disabled=${!tail.reading} aria-pressed=${tail.isPaused} @click=${() => tail.pause(!tail.isPaused)}>${tail.isPaused ? "Go on" : "Pause"} <kbd>p</kbd></button>
          <button type="button" ?disabled=${!tail.reading} @click=${() => (tail.stop(), tail.onChange())}>Stop</button>
        </span>
      </form>
      ${tail.problem ? html`<p class="problem" role="alert">${tail.problem}</p>` : nothing}
      <div class="scroll tall" tabindex="0" role="group" aria-label="Messages, newest first">
        <table class="messages">
          <thead><tr><th>Time</th><th>Log</th><th class="number">Offset</th><th>Key</th><th>Value</th></tr></thead>
          <tbody>${repeat(tail.rows, (row) => row.key, (row) => messageRow(tail, row))}</tbody>
        </table>
        ${tail.rows.length ? nothing : html`<p class="empty">${tail.reading ? "Nothing has come yet." : "Choose a topic."}</p>`}
      </div>
    </section>
  `;
}

function status(tail) {
  if (!tail.reading) return nothing;
  const lag = tail.reading.lagBytes + tail.heldBytes;
  const words = [tail.isPaused ? "paused" : tail.state, `${count(tail.rate)} messages/s`, `${count(tail.seen)} seen`];
  if (tail.filter) words.push(`${count(tail.matching)} with that key`);
  if (tail.matching > ROWS_MAX) words.push(`the newest ${ROWS_MAX} are shown`);
  if (lag > 0) words.push(`${size(lag)} behind`);
  return words.join(", ");
}

function messageRow(tail, row) {
  const isOpen = tail.open.has(row.key);
  const toggle = () => {
    if (isOpen) tail.open.delete(row.key);
    else tail.open.add(row.key);
    row.isWhole = false;
    tail.onChange();
  };
  return html`
    <tr class=${isOpen ? "opened" : ""}>
      <td>${row.timestamp === null ? "–" : clock(row.timestamp)}</td>
      <td>${tail.topic}/${row.partition}</td>
      <td class="number">${row.offset}</td>
      <td>${row.keyText ?? html`<span class="faint">none</span>`}</td>
      <td><button type="button" class="plain value" aria-expanded=${isOpen} @click=${toggle}>${preview(row.value, tail.form) || html`<span class="faint">empty</span>`}${row.valueBytes > 300 ? html` <small>${size(row.valueBytes)}</small>` : nothing}</button></td>
    </tr>
    ${isOpen ? whole(tail, row) : nothing}
  `;
}

// Kept, for the screen is drawn again and again.
function contentOf(row, form, bytesMax) {
  const shown = `${form} ${bytesMax} ${row.value.length}`;
  if (row.shown !== shown) {
    row.shown = shown;
    row.content = content(row.value, form, bytesMax);
  }
  return row.content;
}

function whole(tail, row) {
  const bytesMax = row.isWhole ? WHOLE_BYTES_MAX : SHOWN_BYTES_MAX;
  const isCut = row.valueBytes > Math.min(bytesMax, row.value.length);
  const showAll = () => {
    row.isWhole = true;
    tail.onChange();
  };
  return html`
    <tr class="detail">
      <td colspan="5">
        ${row.headers.map(([name, value]) => html`<p class="header"><b>${name}</b> ${value}</p>`)}
        <pre>${contentOf(row, tail.form, bytesMax)}</pre>
        ${isCut ? html`<p class="hint">${size(Math.min(bytesMax, row.value.length))} of ${size(row.valueBytes)}.
          ${!row.isWhole && row.value.length > SHOWN_BYTES_MAX ? html`<button type="button" @click=${showAll}>Show ${row.value.length === row.valueBytes ? "all" : size(row.value.length)}</button>` : nothing}</p>` : nothing}
      </td>
    </tr>
  `;
}
