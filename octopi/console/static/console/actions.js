// What an operator does: a dialog asks before anything is changed, and tells how it went.

import { html, nothing } from "../vendor/lit-html.js";
import { addressOf, topicAddress } from "./address.js";
import { Admin } from "./admin.js";

const UNITS_MS = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };
const UNITS_BYTES = { "": 1, B: 1, kB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12, KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3, TiB: 1024 ** 4 };

export class Actions {
  // *onChange* is called when there is something new to be seen.
  constructor(feed, onChange) {
    this.feed = feed;
    this.onChange = onChange;
    this.admin = new Admin(() => feed.pages.server, () => feed.pages.token);
    this.open = null; // the dialog: title, fields, verb, run, typed
    this.state = ""; // "", "busy", "done" or "failed"
    this.result = "";
  }

  ask(dialog) {
    Object.assign(this, { open: dialog, state: "", result: "" });
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
        { name: "retention", label: "Keep messages for", optional: true, placeholder: "for ever", hint: "such as 7d, 12h" },
        { name: "size", label: "Keep at most, in each partition", optional: true, placeholder: "any size", hint: "such as 10GB" },
        { name: "insync", label: "Replicas that must be in sync", value: "1", type: "number", min: 1, max: 9, hint: "with fewer, nothing is taken" },
        { name: "flush", label: "Flush to disk before each acknowledgement", type: "checkbox" },
      ],
      run: async ({ topic, partitions, retention, size, insync, flush }) => {
        const options = { retention_ms: amount(retention, UNITS_MS, "a time, such as 7d"), retention_bytes: amount(size, UNITS_BYTES, "a size, such as 10GB"), min_insync: Number(insync), flush_before_ack: Boolean(flush) };
        await this.admin.createTopic(topic, Number(partitions), options);
        location.hash = topicAddress(topic);
        return `Topic ${topic} was created.`;
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

  moveReplica(broker, partitions, brokers) {
    const others = brokers.filter((one) => one.broker !== broker && one.state === "up").map((one) => [String(one.broker), `broker ${one.broker}`]);
    this.ask({
      title: `Move a replica from broker ${broker}`,
      verb: "Move it",
      text: "The other broker copies the partition first; then it is a replica instead. That takes as long as copying does, and goes on when this page is closed.",
      fields: [
        { name: "partition", label: "Partition", choices: partitions.map((one) => [String(one), `partition ${one}`]) },
        { name: "to", label: "To", choices: others },
      ],
      run: async ({ partition, to }) => {
        await this.admin.moveReplica(Number(partition), broker, Number(to));
        return `Broker ${to} has partition ${partition} now, and broker ${broker} no more.`;
      },
    });
  }
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
  const submit = (event) => {
    event.preventDefault();
    actions.carryOut(Object.fromEntries(new FormData(event.target)));
  };
  const isOver = state === "done";
  return html`
    <dialog id="action" aria-labelledby="action-title" @cancel=${() => actions.close()} @close=${() => actions.close()}>
      <h2 id="action-title">${open.title}</h2>
      ${isOver
        ? html`<p role="status" class="good">${result}</p><p class="buttons"><button type="button" class="primary" autofocus @click=${() => actions.close()}>Close</button></p>`
        : html`
            <form @submit=${submit}>
              ${open.text ? html`<p>${open.text}</p>` : nothing}
              ${(open.fields ?? []).map(field)}
              ${open.typed ? html`<label class="field"><span>To confirm, type <b>${open.typed}</b></span> <input name="confirmed" required autocomplete="off" spellcheck="false" pattern=${escaped(open.typed)} title="exactly: ${open.typed}"></label>` : nothing}
              ${state === "failed" ? html`<p class="problem" role="alert">${result}</p>` : nothing}
              <p class="buttons">
                <button class=${open.isGrave ? "grave" : "primary"} ?disabled=${state === "busy"}>${state === "busy" ? "At work …" : open.verb}</button>
                <button type="button" @click=${() => actions.close()}>${state === "busy" ? "Close" : "Cancel"}</button>
              </p>
            </form>
          `}
    </dialog>
  `;
}

// *text* as a regular expression for exactly that.
function escaped(text) {
  return text.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&");
}

function field({ name, label, hint, choices, type = "text", optional = false, value = "", placeholder = "", ...more }) {
  if (choices) {
    return html`<label class="field">${label} <select name=${name} required>${choices.map(([one, words]) => html`<option value=${one}>${words}</option>`)}</select></label>`;
  }
  if (type === "checkbox") return html`<label class="field check"><input type="checkbox" name=${name}> ${label}</label>`;
  const { pattern, min, max, step, maxlength } = more;
  return html`
    <label class="field">${label}
      <input name=${name} type=${type} value=${value} placeholder=${placeholder} ?required=${!optional} autocomplete="off" spellcheck="false"
        pattern=${pattern ?? ".*"} min=${min ?? nothing} max=${max ?? nothing} step=${step ?? nothing} maxlength=${maxlength ?? 1000}>
      ${hint ? html`<small class="faint">${hint}</small>` : nothing}
    </label>
  `;
}
