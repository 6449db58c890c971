// What an operator does: a dialog asks before anything is changed, and tells how it went.

import { html, nothing } from "../vendor/lit-html.js";
import { addressOf, topicAddress } from "./address.js";
import { Admin, TOPIC_DEFAULTS } from "./admin.js";
import { plural } from "./words.js";

const UNITS_MS = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };
const UNITS_BYTES = { "": 1, B: 1, kB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12, KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3, TiB: 1024 ** 4 };

export class Actions {
  // *onChange* is called when there is something new to be seen.
  constructor(feed, onChange) {
    this.feed = feed;
    this.onChange = onChange;
    this.admin = new Admin(() => feed.pages.server, () => feed.pages.token);
    this.open = null; // the dialog: title, text, fields, verb, run, and typed, a text or a function of the values
    this.values = null; // of the dialog's fields, since one was changed
    this.state = ""; // "", "busy", "done" or "failed"
    this.result = "";
  }

  ask(dialog) {
    Object.assign(this, { open: dialog, values: null, state: "", result: "" });
    this.onChange();
  }

  note(values) {
    this.values = values;
    this.onChange();
  }

  close() {
    this.open = null;
    this.onChange();
  }

  async carryOut(values) {
    const { open } = this;
    this.state = "busy";
    this.onChange();
    try {
      const result = await open.run(values);
      if (this.open === open) Object.assign(this, { state: "done", result });
    } catch (error) {
      if (this.open === open) Object.assign(this, { state: "failed", result: error.code ? `${error.message} [${error.code}]` : error.message });
    }
    this.feed.lookNow();
    this.onChange();
  }

  // --- what there is to do --------------------------------------------------------------------

  createTopic() {
    this.ask({
      title: "Create a topic",
      verb: "Create",
      fields: [
        { name: "topic", label: "Name", pattern: "[A-Za-z0-9._\\-]+", hint: "letters, digits, . _ and -", maxlength: 200 },
        { name: "partitions", label: "Partitions", value: "1", type: "number", min: 1, max: 1000, hint: "it stays at that number" },
        ...optionFields({}),
      ],
      run: async ({ topic, partitions, ...values }) => {
        await this.admin.createTopic(topic, Number(partitions), optionsOf(values));
        location.hash = topicAddress(topic);
        return `Topic ${topic} was created.`;
      },
    });
  }

  // *options*: as they are now.
  alterTopic(topic, options) {
    this.ask({
      title: `Change options of topic ${topic}`,
      verb: "Change them",
      text: "All brokers go by the new options at once, one that is away when it is back. While fewer replicas are in sync than must be, producers wait.",
      fields: optionFields(options),
      // What retention removes is gone, so that is confirmed as a deletion is.
      typed: (values) => (removesMore(optionsOf(values), options) ? topic : ""),
      warning: "Messages that are too old or too many by the new options are removed on all brokers. There is no way back.",
      run: async (values) => {
        const wanted = optionsOf(values);
        const names = Object.keys(wanted).filter((name) => wanted[name] !== (options[name] ?? TOPIC_DEFAULTS[name]));
        if (!names.length) throw new Error("these are the options that the topic has; nothing was changed");
        const { topic: altered } = await this.admin.alterTopic(topic, names, wanted);
        const few = altered.partitions.filter((one) => one.in_sync.length < altered.options.min_insync);
        const wait = few.length ? ` Producers wait in ${plural(few.length, "partition")}, which ${few.length === 1 ? "has" : "have"} fewer replicas in sync.` : "";
        return `Topic ${topic} has the new options.${wait}`;
      },
    });
  }

  deleteTopic(topic) {
    this.ask({
      title: `Delete topic ${topic}`,
      verb: "Delete it",
      isGrave: true,
      text: "Its messages are deleted on all brokers, and its subscriptions with them. There is no way back.",
      typed: topic,
      run: async () => {
        await this.admin.deleteTopic(topic);
        location.hash = addressOf("topics");
        return `Topic ${topic} was deleted.`;
      },
    });
  }

  resetSubscription(topic, name) {
    this.ask({
      title: `Reset subscription ${topic}/${name}`,
      verb: "Reset it",
      isGrave: true,
      text: "Its marks are moved in all logs of the topic. Moved back, messages are processed again; moved on, messages are never processed.",
      fields: [
        { name: "at", label: "To", choices: [["earliest", "the beginning: everything is processed again"], ["latest", "the end: what waits is passed over"], ["timestamp", "the first message from this time on:"]] },
        { name: "time", label: "Time (for the last choice)", type: "datetime-local", optional: true, step: 1 },
        { name: "force", label: "Also take the logs from members that have them now", type: "checkbox" },
      ],
      typed: name,
      run: async ({ at, time, force }) => {
        if (at === "timestamp" && !time) throw new Error("no time is given, and nothing was changed");
        const reset = await this.admin.resetSubscription(topic, name, at, at === "timestamp" ? new Date(time).getTime() : 0, Boolean(force));
        return `It goes on at ${reset.map((one) => `offset ${one.offset.toLocaleString("en")} in p${one.partition}`).join(", ")}.`;
      },
    });
  }

  drainBroker(broker, leads) {
    this.ask({
      title: `Drain broker ${broker}`,
      verb: "Drain it",
      text: `Other brokers lead the ${leads} partitions that it leads now. It goes on as a follower, and leads nothing until it is started again.`,
      run: async () => {
        await this.admin.drainBroker(broker);
        return `Broker ${broker} leads no partition now.`;
      },
    });
  }

  // *held*: the partitions of which another broker can get the replica.  *up*: the brokers that are.
  moveReplica(broker, held, up) {
    const others = up.filter((one) => held.some(({ replicas }) => !replicas.includes(one.broker))).map((one) => [String(one.broker), `broker ${one.broker}`]);
    this.ask({
      title: `Move a replica from broker ${broker}`,
      verb: "Move it",
      text: "The other broker copies the partition first; then it is a replica instead. That takes as long as copying does, and goes on when this page is closed.",
      fields: [
        { name: "partition", label: "Partition", choices: held.map(({ partition }) => [String(partition), `partition ${partition}`]) },
        { name: "to", label: "To", choices: others },
      ],
      run: async ({ partition, to }) => {
        await this.admin.moveReplica(Number(partition), broker, Number(to));
        return `Broker ${to} has partition ${partition} now, and broker ${broker} no more.`;
      },
    });
  }
}

// --- the options of topics --------------------------------------------------------------------

function optionFields({ retention_ms: ms = null, retention_bytes: bytes = null, min_insync: insync = TOPIC_DEFAULTS.min_insync, flush_before_ack: flushes = TOPIC_DEFAULTS.flush_before_ack }) {
  return [
    { name: "retention", label: "Keep messages for", value: inUnits(ms, UNITS_MS), optional: true, placeholder: "for ever", hint: "such as 7d, 12h; empty: for ever" },
    { name: "size", label: "Keep at most, in each partition", value: inUnits(bytes, UNITS_BYTES), optional: true, placeholder: "any size", hint: "such as 10GB; empty: any size" },
    { name: "insync", label: "Replicas that must be in sync", value: String(insync), type: "number", min: 1, max: 9, hint: "with fewer, producers wait" },
    { name: "flush", label: "Flush to disk before each acknowledgement", type: "checkbox", value: flushes },
  ];
}

// What the fields of optionFields say, as TopicOptions.
function optionsOf({ retention, size, insync, flush }) {
  return { retention_ms: amount(retention, UNITS_MS, "a time, such as 7d"), retention_bytes: amount(size, UNITS_BYTES, "a size, such as 10GB"), min_insync: Number(insync), flush_before_ack: Boolean(flush) };
}

// Whether retention by *wanted* removes what it keeps by *options*.
function removesMore(wanted, options) {
  return ["retention_ms", "retention_bytes"].some((name) => (wanted[name] ?? Infinity) < (options[name] ?? Infinity));
}

// The reverse of amount: the largest unit of which *number* is a multiple.
function inUnits(number, units) {
  if (number === null) return "";
  const fitting = Object.entries(units).filter(([, factor]) => number % factor === 0);
  const [unit, factor] = fitting.reduce((best, one) => (one[1] > best[1] ? one : best));
  return `${number / factor}${unit}`;
}

// A number with a unit; null if there is none.
function amount(text, units, example) {
  if (!text) return null;
  const [, number, unit] = /^\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*$/.exec(text) ?? [];
  const factor = units[unit];
  if (number === undefined || factor === undefined) throw new Error(`“${text}” is not ${example}; nothing was changed`);
  return Math.round(Number(number) * factor);
}

// --- the view ---------------------------------------------------------------------------------

export function actionDialog(actions) {
  const { open, state, result } = actions;
  if (!open) return nothing;
  const typed = toBeTyped(actions);
  const submit = (event) => {
    event.preventDefault();
    actions.carryOut(Object.fromEntries(new FormData(event.target)));
  };
  const isOver = state === "done";
  const why = state === "busy" ? "" : actions.feed.whyNoChange; // since the dialog is open
  return html`
    <dialog id="action" aria-labelledby="action-title" @cancel=${() => actions.close()} @close=${() => actions.close()}>
      <h2 id="action-title">${open.title}</h2>
      ${isOver
        ? html`<p role="status" class="good">${result}</p><p class="buttons"><button type="button" class="primary" autofocus @click=${() => actions.close()}>Close</button></p>`
        : html`
            <form @submit=${submit} @input=${(event) => actions.note(Object.fromEntries(new FormData(event.currentTarget)))}>
              ${open.text ? html`<p>${open.text}</p>` : nothing}
              ${(open.fields ?? []).map(field)}
              ${typed
                ? html`
                    ${open.warning ? html`<p class="problem" role="alert">${open.warning}</p>` : nothing}
                    <label class="field"><span>To confirm, type <b>${typed}</b></span> <input name="confirmed" required autocomplete="off" spellcheck="false" pattern=${escaped(typed)} title="exactly: ${typed}"></label>
                  `
                : nothing}
              ${state === "failed" ? html`<p class="problem" role="alert">${result}</p>` : nothing}
              ${why ? html`<p class="problem" role="alert">${why}</p>` : nothing}
              <p class="buttons">
                <button class=${open.isGrave || (typed && open.warning) ? "grave" : "primary"} ?disabled=${state === "busy" || Boolean(why)}>${state === "busy" ? "At work …" : open.verb}</button>
                <button type="button" @click=${() => actions.close()}>${state === "busy" ? "Close" : "Cancel"}</button>
              </p>
            </form>
          `}
    </dialog>
  `;
}

// What has to be typed before the dialog's action is done; empty: nothing.
function toBeTyped({ open, values }) {
  if (typeof open.typed !== "function") return open.typed ?? "";
  try {
    return values ? open.typed(values) : "";
  } catch {
    return ""; // a value is not understood, which is said when it is sent
  }
}

// *text* as a regular expression for exactly that.
function escaped(text) {
  return text.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&");
}

function field({ name, label, hint, choices, type = "text", optional = false, value = "", placeholder = "", ...more }) {
  if (choices) {
    return html`<label class="field">${label} <select name=${name} required>${choices.map(([one, words]) => html`<option value=${one}>${words}</option>`)}</select></label>`;
  }
  if (type === "checkbox") return html`<label class="field check"><input type="checkbox" name=${name} ?checked=${value}> ${label}</label>`;
  const { pattern, min, max, step, maxlength } = more;
  return html`
    <label class="field">${label}
      <input name=${name} type=${type} value=${value} placeholder=${placeholder} ?required=${!optional} autocomplete="off" spellcheck="false"
        pattern=${pattern ?? ".*"} min=${min ?? nothing} max=${max ?? nothing} step=${step ?? nothing} maxlength=${maxlength ?? 1000}>
      ${hint ? html`<small class="faint">${hint}</small>` : nothing}
    </label>
  `;
}
