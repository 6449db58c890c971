// The tab of events: what the register decided and saw, in groups that belong together.

import { html, nothing } from "../vendor/lit-html.js";
import { repeat } from "../vendor/directives/repeat.js";
import { eventGroups } from "./event_groups.js";
import { topicNames } from "./parts.js";
import { clock, count, date, plural } from "./words.js";

const GRAVE = new Set(["broker_left", "recovered"]);
const GOOD = new Set(["broker_joined", "register_started"]);
const LINES_MAX = 200; // of a group that is opened

export function eventsTab(feed) {
  return eventsCard(eventGroups(feed.events), `${plural(feed.events.length, "event")}, newest first, at most 1,000, also of registers before this one`, "tall");
}

// *groups*: as `eventGroups` makes them.
export function eventsCard(groups, about, kind = "") {
  return html`
    <section class="card" aria-labelledby="events-title" id="events">
      <h2 id="events-title">Events <small>${about}</small></h2>
      <ol class="scroll log ${kind}" tabindex="0" aria-label="Events, newest first">
        ${repeat(groups, keyOf, groupItem)}
      </ol>
      ${groups.length ? nothing : html`<p class="empty">Nothing has happened yet.</p>`}
    </section>
  `;
}

// Each life of the register numbers its events from 1.
function keyOf({ number, events }) {
  return `${events.at(-1).life ?? ""} ${number}`;
}

function groupItem({ at_ms: at, lines, events }) {
  return html`
    <li class=${tone(lines)}>
      <time title=${date(at)}>${clock(at).slice(0, 8)}</time>
      <div>
        ${lines.map(
          (one) => html`<p>${one.text}${one.topics.length || one.more > 0 ? html`<span class="faint">: ${topicNames(one)}</span>` : nothing}</p>`,
        )}
        ${events.length > lines.length
          ? html`<details><summary>${count(events.length)} events</summary><ul class="plain">${events.slice(0, LINES_MAX).map((one) => html`<li><time>${clock(one.at_ms)}</time> ${one.text}</li>`)}</ul></details>`
          : nothing}
      </div>
    </li>
  `;
}

function tone(lines) {
  if (lines.some(({ kind }) => GRAVE.has(kind))) return "grave";
  return lines.some(({ kind }) => GOOD.has(kind)) ? "fine" : "";
}

// Single events, newest first, as a replayed run has them.  *time*: how the time of one is written.
export function eventList(all, time) {
  return html`
    <section class="card" aria-labelledby="events-title" id="events">
      <h2 id="events-title">Events <small>${plural(all.length, "line")}, newest first</small></h2>
      <ol class="scroll log" tabindex="0" aria-label="Events, newest first">
        ${all.map((one) => html`<li class=${GRAVE.has(one.kind) ? "grave" : GOOD.has(one.kind) ? "fine" : ""}><time>${time(one)}</time> <span>${one.text}</span></li>`)}
      </ol>
      ${all.length ? nothing : html`<p class="empty">Nothing has happened yet.</p>`}
    </section>
  `;
}
