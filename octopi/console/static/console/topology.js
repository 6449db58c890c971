// The register and the brokers as boxes: which are there, what each leads, what is in sync or behind.

import { html, nothing } from "../vendor/lit-html.js";
import { brokerAddress } from "./address.js";
import { uptimeOf, versionOf } from "./versions.js";
import { count, duration, plural, size } from "./words.js";

const CHIPS_MAX = 60; // of a broker; what is wrong comes first
export const MARKS = { leader: "♛", "in sync": "●", behind: "◐", unknown: "○" };

// *cluster*: as /api/v1/cluster has it, or `Replay.cluster`.
export function topology(cluster, isStale = false) {
  const chips = chipsByBroker(cluster.partitions);
  return html`
    <section class="card ${isStale ? "stale" : ""}" aria-labelledby="topology-title" id="topology">
      <h2 id="topology-title">Brokers <small>${count(cluster.brokers.length)}</small></h2>
      <p class="hint">♛ leads, ● in sync, ◐ behind (with how much it lacks), ○ no answer. p0: partition 0, e2: its leader's epoch.</p>
      <div class="brokers">
        ${cluster.ring ? agreed(cluster) : register(cluster)}
        ${cluster.brokers.map((one) => broker(one, chips.get(one.broker) ?? []))}
        ${cluster.brokers.length ? nothing : html`<p class="empty">No broker has joined yet.</p>`}
      </div>
    </section>
  `;
}

function register({ cluster, register: node, partition_count: partitions, topic_count: topics, register_trouble: trouble, register_state: state = trouble ? "away" : "up" }) {
  return html`
    <article class="node register ${state}">
      <h3>Register <span class="state">${state}</span></h3>
      <dl>
        <dt>cluster</dt><dd><code>${cluster || "not formed yet"}</code></dd>
        <dt>holds</dt><dd>${plural(topics, "topic")}, ${plural(partitions, "partition")}</dd>
        ${program(node)}
      </dl>
    </article>
  `;
}

// In the place of the register, where brokers agree on what it would decide.
function agreed({ cluster, ring, partition_count: partitions, topic_count: topics }) {
  return html`
    <article class="node register up">
      <h3>No register <span class="state">a ring of brokers</span></h3>
      <dl>
        <dt>cluster</dt><dd><code>${cluster}</code></dd>
        <dt>holds</dt><dd>${plural(topics, "topic")}, ${plural(partitions, "partition")}</dd>
        <dt>agreed by</dt><dd>${ring.acceptors.length ? `brokers ${ring.acceptors.join(", ")}` : "–"}</dd>
      </dl>
    </article>
  `;
}

function room({ disk_free_bytes: free, disk_total_bytes: total, disk_trouble: trouble }) {
  if (trouble) return html`<dd class="warning" title=${trouble}>full</dd>`;
  return html`<dd>${free === null || free === undefined ? "–" : `${size(free)} of ${size(total)} free`}</dd>`;
}

// The version and uptime of a node; a simulated run has none.
function program(node) {
  if (node?.agent === undefined) return nothing;
  return html`<dt>version</dt><dd>${versionOf(node)}</dd><dt>up for</dt><dd>${uptimeOf(node)}</dd>`;
}

function broker({ broker, state, address, leads, incarnation, left_at_ms: left, drained, leaving, ...node }, chips) {
  const isSilent = chips.length > 0 && chips.every((one) => one.mark === "unknown");
  const lag = isSilent ? null : Math.max(0, ...chips.map((one) => one.lag ?? 0));
  const isBehind = chips.some((one) => one.mark === "behind");
  const shown = chips.slice(0, CHIPS_MAX);
  return html`
    <article class="node ${state}">
      <h3><a href=${brokerAddress(broker)}>Broker ${broker}</a> <span class="state">${state}${left ? ` for ${duration(Date.now() - left)}` : ""}${leaving ? ", leaving" : drained ? ", drained" : ""}</span></h3>
      <dl>
        <dt>at</dt><dd><code>${address.replace(/^wss?:\/\//, "") || "–"}</code></dd>
        <dt>leads</dt><dd>${count(leads)} of ${plural(chips.length, "replica")}</dd>
        <dt>behind</dt><dd class=${isBehind ? "warning" : ""}>${size(lag)}</dd>
        <dt>disk</dt>${room(node)}
        <dt>starts</dt><dd>${count(incarnation)}</dd>
        ${program(node)}
      </dl>
      <ul class="chips">
        ${shown.map(
          ({ partition, epoch, mark, lag }) => html`
            <li class="chip ${mark.replace(" ", "-")}" title="partition ${partition}, epoch ${epoch}: ${mark}${lag ? `, ${size(lag)} behind` : ""}">
              <span aria-hidden="true">${MARKS[mark]}</span> p${partition}${mark === "leader" ? html` <small>e${epoch}</small>` : nothing}
              ${mark === "behind" && lag ? html`<small>−${size(lag)}</small>` : nothing}<span class="sr"> ${mark}</span>
            </li>
          `,
        )}
        ${chips.length > CHIPS_MAX ? html`<li>and ${count(chips.length - CHIPS_MAX)} more</li>` : nothing}
      </ul>
    </article>
  `;
}

// What a replica is: a leader that is silent is still shown as the leader.
export function markOf(broker, leader, inSync, copy) {
  if (broker === leader) return "leader";
  if (!copy || copy.log_end === null) return "unknown";
  return inSync.includes(broker) ? "in sync" : "behind";
}

const ORDER = ["behind", "unknown", "leader", "in sync"];

function chipsByBroker(partitions) {
  const chips = new Map();
  for (const { partition, epoch, leader, replicas, in_sync: inSync, copies } of partitions) {
    for (const broker of replicas) {
      const copy = copies.find((one) => one.broker === broker);
      const mark = markOf(broker, leader, inSync, copy);
      if (!chips.has(broker)) chips.set(broker, []);
      chips.get(broker).push({ partition, epoch, mark, lag: broker === leader ? 0 : copy?.lag_bytes });
    }
  }
  for (const ofBroker of chips.values()) ofBroker.sort((one, other) => ORDER.indexOf(one.mark) - ORDER.indexOf(other.mark) || one.partition - other.partition);
  return chips;
}
