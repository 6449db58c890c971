// The tab of messages: those of a topic as they come, one by its address, and a form to produce.

import { repeat } from "../vendor/directives/repeat.js";
import { html, nothing } from "../vendor/lit-html.js";
import { addressOf, messageAddress, messagesAddress, topicAddress } from "./address.js";
import { asJsonLine, copyText, download } from "./taking_out.js";
import { ROWS_MAX, SHOWN_BYTES_MAX, WHOLE_BYTES_MAX } from "./tail.js";
import { clock, content, count, date, preview, size } from "./words.js";

const STARTS = [
  ["latest", "what comes now"],
  ["-10", "the last 10"],
  ["-100", "the last 100"],
  ["earliest", "the beginning"],
  ["offset", "an offset …"],
  ["time", "a time …"],
];
const FORMS = ["json", "text", "hex"];

// Has *tail* read what the address *names* and *chosen* say.
export function openMessages(tail, { names, chosen }) {
  const [topic, partition, offset] = names;
  if (names.length === 3) {
    tail.showOne(topic, Number(partition), Number(offset));
    return;
  }
  if (!topic) {
    tail.one = null;
    return;
  }
  const { from = "latest", form = "json", search = "", place = "" } = Object.fromEntries(chosen);
  Object.assign(tail, { topic, partition: chosen.get("partition") ?? "", from: STARTS.some(([one]) => one === from) ? from : "latest", place, filter: search, form: FORMS.includes(form) ? form : "json" });
  tail.start();
}

function addressOfReading({ topic, partition, from, place, filter, form }) {
  return messagesAddress(topic, { partition, from, place: ["offset", "time"].includes(from) ? place : "", search: filter, form: form === "json" ? "" : form });
}

export function messagesTab(feed, tail, producing) {
  if (feed.view.names.length === 3) return onePage(feed, tail);
  return html`${tailCard(feed, tail)} ${produceCard(feed, tail, producing)}`;
}

function tailCard(feed, tail) {
  const start = (event) => {
    event.preventDefault();
    const address = addressOfReading(tail);
    if (location.hash === address) tail.start();
    else location.hash = address;
  };
  const choose = (change) => (event) => {
    Object.assign(tail, change(event.target.value));
    tail.onChange();
  };
  const type = (event) => {
    tail.topic = event.target.value.trim();
    feed.offer(tail.topic);
  };
  return html`
    <section class="card" aria-labelledby="tail-title" id="tail">
      <h2 id="tail-title">Messages <small>${status(tail)}</small></h2>
      <form class="bar" @submit=${start}>
        <label>Topic <input id="tail-topic" list="topic-names" required .value=${tail.topic} spellcheck="false" autocomplete="off" @input=${type}></label>
        <datalist id="topic-names">${feed.offered.map((topic) => html`<option value=${topic}></option>`)}</datalist>
        <label>Partition <input id="tail-partition" class="short" inputmode="numeric" pattern="[0-9]*" placeholder="all" .value=${tail.partition} @input=${choose((value) => ({ partition: value.trim() }))}></label>
        <label>From <select id="tail-from" @change=${choose((from) => ({ from }))}>
          ${STARTS.map(([value, words]) => html`<option value=${value} ?selected=${tail.from === value}>${words}</option>`)}
        </select></label>
        ${tail.from === "offset" ? html`<label>Offset <input id="tail-offset" class="short" inputmode="numeric" pattern="[0-9]+" required .value=${tail.place} @input=${choose((place) => ({ place }))}></label>` : nothing}
        ${tail.from === "time" ? html`<label>Time <input id="tail-time" type="datetime-local" step="1" required .value=${tail.place} @input=${choose((place) => ({ place }))}></label>` : nothing}
        <label>Key, headers or value contain <input id="tail-filter" type="search" placeholder="anything" .value=${tail.filter} spellcheck="false" autocomplete="off" @input=${(event) => tail.setFilter(event.target.value)}></label>
        <fieldset class="forms"><legend>Values as</legend>
          ${FORMS.map((form) => html`<label><input type="radio" name="form" value=${form} .checked=${tail.form === form} @change=${choose((value) => ({ form: value }))}> ${form}</label>`)}
        </fieldset>
        <span class="buttons">
          <button class="primary">${tail.reading ? "Start again" : "Start"}</button>
          <button type="button" id="pause" ?disabled=${!tail.reading} aria-pressed=${tail.isPaused} @click=${() => tail.pause(!tail.isPaused)}>${tail.isPaused ? "Go on" : "Pause"} <kbd>p</kbd></button>
          <button type="button" ?disabled=${!tail.reading} @click=${() => (tail.stop(), tail.onChange())}>Stop</button>
          <button type="button" id="download-rows" ?disabled=${!tail.rows.length} @click=${() => download(`${tail.topic}.jsonl`, tail.rows.toReversed().map(asJsonLine).join(""))}>Download</button>
        </span>
      </form>
      ${tail.problem ? html`<p class="problem" role="alert">${tail.problem}</p>` : nothing}
      <div class="scroll tall" tabindex="0" role="group" aria-label="Messages, newest first">
        <table class="messages">
          <thead><tr><th scope="col">Time</th><th scope="col">Log</th><th scope="col" class="number">Offset</th><th scope="col">Key</th><th scope="col">Headers</th><th scope="col">Value</th></tr></thead>
          <tbody>${repeat(tail.rows, (row) => row.key, (row) => messageRow(tail, row))}</tbody>
        </table>
        ${tail.rows.length ? nothing : html`<p class="empty">${empty(tail, feed)}</p>`}
      </div>
    </section>
  `;
}

function empty({ reading, filter, seen, state }, feed) {
  if (!reading) return "Choose a topic.";
  if (state !== "live" && feed.registerAwaySince) return "The register says which brokers have the topic: reading begins when it answers.";
  return filter && seen ? `None of ${count(seen)} messages contains that.` : "Nothing has come yet.";
}

function status(tail) {
  if (!tail.reading) return nothing;
  const lag = tail.reading.lagBytes + tail.heldBytes;
  const words = [tail.isPaused ? "paused" : tail.state, `${count(tail.rate)} messages/s`, `${count(tail.seen)} seen`];
  if (tail.filter) words.push(`${count(tail.matching)} with that`);
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
  const headers = row.headers.map(([name, value]) => `${name}=${value}`).join(" ");
  return html`
    <tr class=${isOpen ? "opened" : ""}>
      <td title=${row.timestamp === null ? "" : date(row.timestamp)}>${row.timestamp === null ? "–" : clock(row.timestamp)}</td>
      <td title="${row.topic}/${row.partition}">${row.topic}/${row.partition}</td>
      <td class="number"><a href=${messageAddress(row.topic, row.partition, row.offset)} title="the address of this message">${row.offset}</a></td>
      <td title=${row.keyText ?? ""}>${row.keyText ?? html`<span class="faint">none</span>`}</td>
      <td class="headers" title=${headers}>${headers || html`<span class="faint">none</span>`}</td>
      <td><button type="button" class="plain value" aria-expanded=${isOpen} @click=${toggle}>${preview(row.value, tail.form) || html`<span class="faint">empty</span>`}${row.valueBytes > 300 ? html` <small>${size(row.valueBytes)}</small>` : nothing}</button></td>
    </tr>
    ${isOpen ? html`<tr class="detail"><td colspan="6">${whole(tail, row)}</td></tr>` : nothing}
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

// Headers and value of a message, and what can be done with it.
function whole(tail, row) {
  const bytesMax = row.isWhole ? WHOLE_BYTES_MAX : SHOWN_BYTES_MAX;
  const isCut = row.valueBytes > Math.min(bytesMax, row.value.length);
  const isAllHere = row.value.length === row.valueBytes;
  const showAll = () => {
    row.isWhole = true;
    tail.onChange();
  };
  const copy = async (text, what) => {
    row.copied = (await copyText(text)) ? `The ${what} was copied.` : "The browser does not let pages copy; select the text instead.";
    tail.onChange();
  };
  return html`
    ${row.headers.map(([name, value]) => html`<p class="header"><b>${name}</b> ${value}</p>`)}
    <pre tabindex="0" aria-label="Value">${contentOf(row, tail.form, bytesMax)}</pre>
    ${isCut ? html`<p class="hint">${size(Math.min(bytesMax, row.value.length))} of ${size(row.valueBytes)}.
      ${!row.isWhole && row.value.length > SHOWN_BYTES_MAX ? html`<button type="button" @click=${showAll}>Show ${isAllHere ? "all" : size(row.value.length)}</button>` : nothing}</p>` : nothing}
    <p class="buttons">
      <button type="button" class="small" @click=${() => copy(content(row.value, tail.form, WHOLE_BYTES_MAX), "value")}>Copy the value</button>
      <button type="button" class="small" @click=${() => copy(location.href.replace(/#.*/s, "") + messageAddress(row.topic, row.partition, row.offset), "link")}>Copy a link</button>
      <button type="button" class="small" ?disabled=${!isAllHere} title=${isAllHere ? "" : "it is too large to be kept here as a whole"} @click=${() => download(`${row.topic}-${row.partition}-${row.offset}`, row.value)}>Download the value</button>
      <span role="status" class="faint">${row.copied ?? ""}</span>
    </p>
  `;
}

// --- one message ------------------------------------------------------------------------------

function onePage({ view }, tail) {
  const [topic, partition, offset] = view.names;
  const { one: row } = tail;
  return html`
    <section class="card" aria-labelledby="message-title" id="message">
      <h2 id="message-title">Message ${topic}/${partition} at offset ${offset}</h2>
      <p class="bar">
        <a href=${messagesAddress(topic, { partition, from: "offset", place: offset })}>Messages from here on</a>
        ${row ? html`<a href=${messageAddress(topic, partition, row.nextOffset)}>The next one</a>` : nothing}
        <a href=${topicAddress(topic)}>Topic ${topic}</a>
        <a href=${addressOf("messages")}>All messages</a>
      </p>
      ${tail.problem ? html`<p class="problem" role="alert">${tail.problem}</p>` : nothing}
      ${row
        ? html`
            <dl class="facts">
              <div><dt>time</dt><dd>${row.timestamp === null ? "–" : `${date(row.timestamp)}`}</dd></div>
              <div><dt>key</dt><dd>${row.keyText ?? "none"}</dd></div>
              <div><dt>value</dt><dd>${size(row.valueBytes)}</dd></div>
            </dl>
            <div class="detail">${whole(tail, row)}</div>
          `
        : tail.problem
          ? nothing
          : html`<p class="empty">It is read, or waited for if it is not there yet …</p>`}
    </section>
  `;
}

// --- producing --------------------------------------------------------------------------------

// *producing*: how the last message went (*text*, *isProblem*), and what is called when that changes.
function produceCard(feed, tail, producing) {
  const [topic] = feed.view.names;
  if (!topic || !feed.topic || !feed.may("publish", topic)) return nothing;
  const produce = async (event) => {
    event.preventDefault();
    const { key, value, headers, partition } = Object.fromEntries(new FormData(event.target));
    producing.isBusy = true;
    producing.onChange();
    try {
      const receipt = await tail.produce(topic, value, { key: key === "" ? null : key, headers: headersOf(headers), ...(partition === "" ? {} : { partition: Number(partition) }) });
      Object.assign(producing, { problem: "", receipt: { topic, ...receipt } });
    } catch (error) {
      Object.assign(producing, { problem: error.code ? `${error.message} [${error.code}]` : error.message, receipt: null });
    }
    producing.isBusy = false;
    producing.onChange();
  };
  const { receipt, problem, isBusy } = producing;
  return html`
    <section class="card" aria-labelledby="produce-title" id="produce">
      <h2 id="produce-title">Produce a message <small>to ${topic}</small></h2>
      <form class="produce" @submit=${produce}>
        <label>Key <input name="key" placeholder="none" autocomplete="off" spellcheck="false"></label>
        <label>Partition <select name="partition"><option value="">the key's, or any</option>${feed.topic.partitions.map(({ partition }) => html`<option value=${partition}>${partition}</option>`)}</select></label>
        <label>Headers, one in a line <textarea name="headers" rows="3" placeholder="name=value" spellcheck="false"></textarea></label>
        <label class="grow">Value <textarea name="value" rows="3" spellcheck="false"></textarea></label>
        <span class="buttons"><button class="primary" ?disabled=${isBusy}>${isBusy ? "At work …" : "Produce"}</button></span>
      </form>
      ${problem ? html`<p class="problem" role="alert">${problem}</p>` : nothing}
      <p role="status">${receipt ? html`It is stored, <a href=${messageAddress(receipt.topic, receipt.partition, receipt.offset)}>in partition ${receipt.partition} at offset ${receipt.offset}</a>.` : nothing}</p>
    </section>
  `;
}

function headersOf(text) {
  const lines = text.split("\n").map((line) => line.trim()).filter(Boolean);
  return Object.fromEntries(
    lines.map((line) => {
      const [name, value] = line.split(/=(.*)/s);
      if (value === undefined) throw new Error(`the header “${line}” has no “=”: write name=value; nothing was sent`);
      return [name.trim(), value];
    }),
  );
}
