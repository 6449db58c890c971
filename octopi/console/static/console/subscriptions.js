// The tab of durable subscriptions: all of them, who reads now, and a page for each.

import { html, nothing } from "../vendor/lit-html.js";
import { addressOf, subscriptionAddress, topicAddress } from "./address.js";
import { actionButton, consumers, nameLink, reasonsNot, table } from "./parts.js";
import { count, date, duration, plural, size } from "./words.js";

const QUEUES = new Set(["shared", "key_shared"]); // modes
const TOPICS_NAMED_MAX = 3; // of those whose subscriptions are not known

export function subscriptionsTab(feed, actions) {
  if (feed.view.names.length === 2) return subscriptionPage(feed, actions);
  const search = feed.view.chosen.get("search") ?? "";
  return html`
    <form class="bar" role="search" @submit=${(event) => event.preventDefault()}>
      <label>Topics whose names begin with
        <input id="search" type="search" .value=${search} placeholder="anything" spellcheck="false" autocomplete="off"
          @input=${(event) => (location.hash = addressOf("subscriptions", [], { search: event.target.value.trim() }))}></label>
    </form>
    ${subscriptions(feed, "")}
    ${consumers(feed)}
  `;
}

// --- the table --------------------------------------------------------------------------------

// *whose*: said behind their number.
export function subscriptions(feed, whose) {
  const { subscriptions: all, subscriptionsSilent: silent, subscriptionsContinued: continued, subscriptionsAfter: after, subscriptionsProblem: problem } = feed;
  const nobodyKnows = problem !== "" || silent.length > 0;
  const head = [["Subscription"], ["Mode", "w8 roomy"], ["State", "w14"], ["Members", "number w6 roomy"], ["Lag", "number w6"], ["Age", "number w6 roomy", "Of the oldest message that is not processed"]];
  return html`
    <section class="card" aria-labelledby="subscriptions-title" id="subscriptions">
      <h2 id="subscriptions-title">Subscriptions <small>${all === null || (nobodyKnows && !all.length) ? whose : `${count(all.length)} ${whose}`}</small></h2>
      ${problem ? html`<p class="problem" role="alert">${problem}</p>` : nothing}
      ${reasons(silent).map(([why, topics]) => html`<p class="problem">${topics.slice(0, TOPICS_NAMED_MAX).join(", ")}${topics.length > TOPICS_NAMED_MAX ? ` and ${count(topics.length - TOPICS_NAMED_MAX)} more` : nothing}: ${why}</p>`)}
      ${table("Table of subscriptions", head, (all ?? []).map(row), nobodyKnows ? "They are not known now." : all === null ? "Asking the cluster …" : "There is none: octopi-node subscriptions create billing --topic orders")}
      ${continued.length ? html`<p class="hint">There are more of ${continued.join(", ")}: octopi-node subscriptions list</p>` : nothing}
      ${after ? html`<p class="hint">Topics behind ${after} were not asked: search for them by the beginning of their names.</p>` : nothing}
    </section>
  `;
}

// Reasons with the topics that have them: most often it is one reason for all.
function reasons(silent) {
  const found = new Map();
  for (const { topic, why } of silent) found.set(why, [...(found.get(why) ?? []), topic]);
  return [...found];
}

function row(one) {
  return html`
    <tr>
      <td class="name" title="${one.topic}/${one.subscription}">${nameLink(`${one.topic}/${one.subscription}`, subscriptionAddress(one.topic, one.subscription))}</td>
      <td class="roomy">${one.mode}</td>
      <td class="wraps">${state(one)}</td>
      <td class="number roomy">${count(one.members_count)}</td>
      <td class="number">${size(one.lag_bytes)}</td>
      <td class="number roomy">${duration(one.lag_ms)}</td>
    </tr>
  `;
}

// What is wrong comes before what is usual.
function state({ state, lost_bytes: lost, dead_count: dead, logs_count: logs, logs_known: known, logs_without_member: idle }) {
  const words = [];
  if (state !== "ready") words.push(state);
  if (idle !== null && idle > 0) words.push(`${count(idle)} of ${plural(logs, "log")} without a member`);
  if (idle !== null && known < logs) words.push(`${count(logs - known)} unknown`);
  if (dead > 0) words.push(plural(dead, "dead letter"));
  if (lost > 0) words.push(`${size(lost)} lost`);
  if (words.length) return html`<span class="warning" title=${words.join(", ")}>${words.join(", ")}</span>`;
  return idle === null ? html`<span class="faint">not asked</span>` : html`<span class="good">ready</span>`;
}

// --- the page of one --------------------------------------------------------------------------

function subscriptionPage(feed, actions) {
  const [topic, name] = feed.view.names;
  const { detail, subscriptionsProblem: problem } = feed;
  const mayReset = detail && feed.may("admin", topic) && feed.may("consume", topic, name);
  return html`
    <div id="subscription">
      <section class="card" aria-labelledby="subscription-title">
        <h2 id="subscription-title">Subscription ${topic}/${name}</h2>
        <p class="bar">
          ${mayReset ? actionButton("Reset …", feed.whyNoChange, () => actions.resetSubscription(topic, name)) : nothing}
          <a href=${topicAddress(topic)}>Topic ${topic}</a>
          <a href=${addressOf("subscriptions")}>All subscriptions</a>
          ${mayReset ? reasonsNot(feed.whyNoChange) : nothing}
        </p>
        ${problem ? html`<p class="problem" role="alert">${problem}</p>` : nothing}
        ${detail ? facts(detail) : problem ? nothing : html`<p class="starting">Asking the cluster …</p>`}
      </section>
      ${detail ? [logs(detail), members(detail), lost(detail)] : nothing}
    </div>
  `;
}

function facts(one) {
  return html`
    <p>${state(one)}, mode ${one.mode}, ${plural(one.members_count, "member")}, ${size(one.lag_bytes)} and ${duration(one.lag_ms)} behind</p>
    ${QUEUES.has(one.mode) ? html`<p>${count(one.open_count)} open, ${count(one.waiting_count)} waiting, ${plural(one.dead_count, "dead letter")}</p>` : nothing}
    ${one.held_bytes > 0 ? html`<p>${size(one.held_bytes)} kept for it by retention</p>` : nothing}
    <p class="hint">id <code>${one.id}</code>, created ${date(one.created_ms)}, session timeout ${duration(one.options.session_timeout_ms)},
      ${one.options.expires_ms === null ? "never expires" : `expires after ${duration(one.options.expires_ms)} without use`}</p>
    ${one.more ? html`<p class="hint">Not all of it is shown: octopi-node subscriptions describe</p>` : nothing}
  `;
}

function logs({ logs, mode }) {
  const isQueue = QUEUES.has(mode);
  const hasState = !isQueue || logs.some((one) => one.letter_fault || one.why_unknown || one.held_bytes > 0);
  const most = Math.max(1, ...logs.map((one) => one.lag_bytes ?? 0));
  return html`
    <section class="card" aria-labelledby="logs-title" id="subscription-logs">
      <h2 id="logs-title">Logs <small>${count(logs.length)}</small></h2>
      <div class="scroll tall" tabindex="0" role="group" aria-label="Table of logs">
        <table>
          <thead><tr><th>Log</th>${hasState ? html`<th>State</th>` : nothing}${isQueue ? html`<th class="number">Open</th><th class="number">Waiting</th><th class="number">Dead</th>` : html`<th>Member</th><th class="number roomy">Claim</th>`}<th class="number ${isQueue ? "roomy" : ""}">Mark</th><th class="number roomy">Committed</th><th class="number">Lag</th><th class="number">Age</th><th class="roomy">Stored</th></tr></thead>
          <tbody>${logs.map((one) => log(one, most, isQueue, hasState))}</tbody>
        </table>
      </div>
    </section>
  `;
}

function log(one, most, isQueue, hasState) {
  const isKnown = one.mark !== undefined;
  return html`
    <tr>
      <td>p${one.partition}</td>
      ${hasState ? html`<td>${isQueue ? nothing : one.state} <b class="warning">${one.letter_fault || one.why_unknown}</b>${one.held_bytes > 0 ? html` <span class="faint">${size(one.held_bytes)} kept</span>` : nothing}</td>` : nothing}
      ${isQueue ? dealt(one) : holder(one, isKnown)}
      <td class="number ${isQueue ? "roomy" : ""}">${count(one.mark)}</td>
      <td class="number roomy">${count(one.highwater)}</td>
      <td class="number">${isKnown ? html`<meter min="0" max=${most} .value=${one.lag_bytes} aria-hidden="true"></meter> ` : nothing}${size(one.lag_bytes)}</td>
      <td class="number">${duration(one.lag_ms)}</td>
      <td class="roomy">${isKnown ? date(one.changed_ms) : "–"}</td>
    </tr>
  `;
}

// Who has a log.
function holder({ member, attached, claim }, isKnown) {
  return html`
    <td class="name">${member || html`<span class="warning">none</span>`}${member && isKnown && !attached ? html` <span class="faint">not connected</span>` : nothing}</td>
    <td class="number roomy">${count(claim)}</td>
  `;
}

// What became of the messages of a queue.
function dealt({ open_count: open, waiting_count: waiting, dead_count: dead }) {
  return html`
    <td class="number">${count(open)}</td>
    <td class="number">${count(waiting)}</td>
    <td class="number">${dead > 0 ? html`<span class="warning">${count(dead)}</span>` : count(dead)}</td>
  `;
}

function members({ members }) {
  return html`
    <section class="card" aria-labelledby="members-title" id="subscription-members">
      <h2 id="members-title">Members <small>${count(members.length)}</small></h2>
      <div class="scroll" tabindex="0" role="group" aria-label="Table of members">
        <table>
          <thead><tr><th>Member</th><th>Program</th><th>Token of</th><th class="number">Logs</th></tr></thead>
          <tbody>${members.map(
            (one) => html`
              <tr>
                <td class="name">${one.member}${one.static ? html` <span class="faint">static</span>` : nothing}</td>
                <td>${one.name ? html`<b>${one.name}</b> ` : nothing}${one.agent}</td>
                <td>${one.subject || html`<span class="faint">none</span>`}</td>
                <td class="number">${count(one.logs_count)}</td>
              </tr>
            `,
          )}</tbody>
        </table>
        ${members.length ? nothing : html`<p class="empty">No program is a member now.</p>`}
      </div>
    </section>
  `;
}

function lost({ logs }) {
  const all = logs.flatMap(({ partition, lost = [] }) => lost.map(([begin, end]) => ({ partition, begin, end })));
  if (!all.length) return nothing;
  return html`
    <section class="card" aria-labelledby="lost-title" id="subscription-lost">
      <h2 id="lost-title">Lost <small>${size(all.reduce((sum, one) => sum + one.end - one.begin, 0))}</small></h2>
      <p class="hint">Messages that the logs have no more, and that no member has processed.</p>
      <ul class="scroll log" tabindex="0" aria-label="Lost ranges">
        ${all.map((one) => html`<li class="grave">p${one.partition} from offset ${count(one.begin)} to ${count(one.end)}: ${size(one.end - one.begin)}</li>`)}
      </ul>
    </section>
  `;
}
