// Topics with their partitions, consumers with their lag, and what the register saw.

import { html, nothing } from "../vendor/lit-html.js";
import { consumerName, leastLag } from "./cluster_feed.js";
import { MARKS, markOf } from "./topology.js";
import { clock, count, plural, rate, size } from "./words.js";

// --- topics -----------------------------------------------------------------------------------

// *open*: names of the topics whose partitions are shown; *act*: what people do.
export function topics(feed, open, act) {
  const first = feed.topicPages.length === 1;
  return html`
    <section class="card" aria-labelledby="topics-title" id="topics">
      <h2 id="topics-title">Topics <small>${count(feed.cluster.topic_count)}</small></h2>
      <form class="bar" @submit=${(event) => event.preventDefault()}>
        <label>Names that begin with
          <input id="topic-search" type="search" .value=${feed.prefix} placeholder="all" spellcheck="false" autocomplete="off"
            @input=${(event) => feed.search(event.target.value.trim())}></label>
        <span class="buttons">
          <button type="button" ?disabled=${first} @click=${() => feed.previousTopics()}>Previous</button>
          <button type="button" ?disabled=${!feed.hasMoreTopics} @click=${() => feed.nextTopics()}>Next</button>
        </span>
      </form>
      <div class="scroll" tabindex="0" role="group" aria-label="Table of topics">
        <table>
          <thead><tr><th>Topic</th><th class="number roomy">Partitions</th><th>State</th><th class="number">Size</th><th class="number roomy">Written</th><th></th></tr></thead>
          <tbody>${feed.topics.map((one) => topic(one, feed.topicRates.get(one.topic) ?? null, open.has(one.topic), act))}</tbody>
        </table>
        ${feed.topics.length ? nothing : html`<p class="empty">${feed.prefix ? "No topic's name begins so." : "There is no topic yet: octopi-node produce orders"}</p>`}
      </div>
    </section>
  `;
}

function topic({ topic, partitions }, written, isOpen, act) {
  const wrong = partitions.filter((one) => one.leader === null || one.in_sync.length < one.replicas.length);
  const leaderless = wrong.some((one) => one.leader === null);
  const bytes = partitions.reduce((sum, one) => sum + (one.size_bytes ?? 0), 0);
  const held = partitions.reduce((sum, one) => sum + (one.held_bytes ?? 0), 0);
  return html`
    <tr>
      <td class="name"><button type="button" class="plain" aria-expanded=${isOpen} @click=${() => act.toggle(topic)}><span aria-hidden="true">${isOpen ? "▾" : "▸"}</span> ${topic}</button></td>
      <td class="number roomy">${count(partitions.length)}</td>
      <td>${wrong.length ? html`<span class="warning">${leaderless ? "no leader" : "under-replicated"}</span>` : html`<span class="good">in sync</span>`}${kept(held)}</td>
      <td class="number">${size(bytes)}</td>
      <td class="number roomy">${rate(written)}</td>
      <td><button type="button" class="small" @click=${() => act.tail(topic)}>Tail</button></td>
    </tr>
    ${isOpen ? partitions.map(partition) : nothing}
  `;
}

// What retention keeps for durable subscriptions alone; *subscription*: the slowest, if it is known.
function kept(bytes, subscription) {
  return bytes > 0 ? html` <span class="faint">${size(bytes)} kept for ${subscription || "subscriptions"}</span>` : nothing;
}

function partition({ partition, epoch, leader, replicas, in_sync: inSync, log_start: start, highwater, log_end: end, held_bytes: held, held_for: heldFor, copies }) {
  const dot = (broker) => {
    const copy = copies.find((one) => one.broker === broker);
    const behind = copy?.lag_bytes ? ` −${size(copy.lag_bytes)}` : "";
    return html`<span class="replica ${inSync.includes(broker) ? "" : "warning"}">${MARKS[markOf(broker, leader, inSync, copy)]} ${broker}${behind}${copy?.fault ? html` <b class="warning">${copy.fault}</b>` : nothing}</span>`;
  };
  return html`
    <tr class="detail">
      <td colspan="6">
        <b>p${partition}</b> epoch ${epoch}: ${replicas.map(dot)}
        <span class="faint">offsets ${count(start)} … ${count(highwater)} committed, ${count(end)} end</span>${kept(held, heldFor)}
      </td>
    </tr>
  `;
}

// --- consumers --------------------------------------------------------------------------------

const CONSUMERS_SHOWN_MAX = 200;

export function consumers(feed) {
  const all = [...feed.consumers].sort((one, other) => leastLag(other) - leastLag(one));
  const most = Math.max(1, ...all.map(leastLag));
  return html`
    <section class="card" aria-labelledby="consumers-title" id="consumers">
      <h2 id="consumers-title">Consumers <small>${count(feed.consumersCount)}${feed.consumersTruncated ? "+" : ""}</small></h2>
      <div class="scroll" tabindex="0" role="group" aria-label="Table of consumers">
        <table>
          <thead><tr><th>Consumer</th><th>Log</th><th class="number roomy">Position</th><th class="number" title="Committed and not yet sent to it">To send</th><th class="number" title="Committed and not yet dealt with by its program">Lag</th><th>Trend</th></tr></thead>
          <tbody>
            ${all.slice(0, CONSUMERS_SHOWN_MAX).map(
              (one) => html`
                <tr>
                  <td class="who">${one.name ? html`<b>${one.name}</b> ` : nothing}${one.agent} <span class="faint">${one.consumer}</span> <span class="faint">at broker ${one.broker}</span></td>
                  <td class="name">${one.topic}/${one.partition}</td>
                  <td class="number roomy">${count(one.position)}</td>
                  <td class="number">${size(one.sent_lag_bytes)}</td>
                  <td class="number"><meter min="0" max=${most} .value=${leastLag(one)} aria-hidden="true"></meter> ${one.lag_bytes === null ? html`<span class="faint">unknown</span>` : size(one.lag_bytes)}</td>
                  <td>${trend(feed.lags.get(consumerName(one)), one.lag_bytes !== null)}</td>
                </tr>
              `,
            )}
          </tbody>
        </table>
        ${all.length ? nothing : html`<p class="empty">Nobody reads right now.</p>`}
        ${feed.consumersCount > CONSUMERS_SHOWN_MAX ? html`<p class="hint">The ${CONSUMERS_SHOWN_MAX} that are farthest behind.</p>` : nothing}
      </div>
    </section>
  `;
}

// *isDealt*: of what the program has dealt with; else only of what it was sent.
function trend(lags, isDealt) {
  const change = lags.at(-1) - lags[0];
  if (lags.at(-1) === 0) return isDealt ? html`<span class="good">up to date</span>` : "all was sent";
  if (change === 0) return "→ steady";
  return change > 0 ? html`<span class="warning">↗ ${size(change)} more</span>` : html`<span class="good">↘ ${size(-change)} less</span>`;
}

// --- events -----------------------------------------------------------------------------------

const GRAVE = new Set(["broker_left", "epoch_announced"]);
const GOOD = new Set(["leader", "broker_joined"]);

// *events*: newest first.  *time*: how the time of one is written.
export function events(all, time = ({ at_ms: at }) => clock(at)) {
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
