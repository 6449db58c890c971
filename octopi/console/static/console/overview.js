// The first tab: how the cluster is, in a few numbers; what is wrong comes first.

import { html, nothing } from "../vendor/lit-html.js";
import { addressOf, brokerAddress, topicAddress } from "./address.js";
import { leastLag } from "./cluster_feed.js";
import { eventGroups } from "./event_groups.js";
import { eventsCard } from "./events.js";
import { lossesLeft, oneMoreLoss } from "./losses.js";
import { chartCard, nameLink, table, topicsOfAll, written } from "./parts.js";
import { leastUptime, versions, versionsCard } from "./versions.js";
import { count, date, duration, plural, rate, size } from "./words.js";

const GROUPS_SHOWN = 8;
const LOW_DISK = 0.1; // of its size is free

export function overviewTab(feed) {
  const { cluster } = feed;
  const away = cluster.brokers.filter((one) => !one.live && one.state === "away");
  return html`
    ${feed.registerAwaySince ? registerAway(feed) : nothing}
    ${away.map((one) => brokerAway(cluster, one))}
    ${versionsCard(cluster)}
    ${tiles(feed)}
    <div class="columns">
      <div>${chartCard("Bytes", feed.traffic.points, written(feed))} ${largest(feed)}</div>
      <div>${eventsCard(eventGroups(feed.events).slice(0, GROUPS_SHOWN), html`the newest; <a href=${addressOf("events")}>all events</a>`)}</div>
    </div>
  `;
}

function tiles(feed) {
  const { cluster } = feed;
  const up = cluster.brokers.filter((one) => one.state === "up").length;
  const [inside] = feed.traffic.newest ?? [null];
  const lag = Math.max(0, ...feed.consumers.map(leastLag));
  const left = lossesLeft(cluster);
  const wrong = cluster.partitions.filter((one) => one.state !== "ok").length;
  const disks = cluster.brokers.filter((one) => one.live && one.disk_total_bytes).map((one) => one.disk_free_bytes / one.disk_total_bytes);
  const fullest = disks.length ? Math.min(...disks) : null;
  return html`
    <ul class="tiles ${feed.isStale ? "stale" : ""}" aria-label="The cluster in numbers">
      ${tile("Brokers up", `${count(up)} of ${count(cluster.brokers.length)}`, addressOf("brokers"), up < cluster.brokers.length, cluster.brokers.map(dot))}
      ${tile("Topics", count(cluster.topic_count), addressOf("topics"))}
      ${tile("Partitions in sync", `${count(cluster.partitions.length - wrong)} of ${count(cluster.partitions.length)}`, addressOf("topics", [], { sort: "state", descending: 1 }), wrong > 0)}
      ${tile("Written", rate(inside), null)}
      ${tile("Consumers", count(feed.consumersCount), addressOf("subscriptions"), false, html`<small>largest lag ${size(lag)}</small>`)}
      ${tile("Brokers to spare", left === null ? "–" : count(left), null, left === 0 && cluster.brokers.length > 1, html`<small>${left === 0 ? "one more loss is too many" : "and all goes on"}</small>`)}
      ${tile("Least free disk", fullest === null ? "–" : `${Math.round(100 * fullest)} %`, addressOf("brokers"), fullest !== null && fullest < LOW_DISK)}
      ${versionTile(cluster)}
    </ul>
  `;
}

function versionTile(cluster) {
  const found = [...versions(cluster).keys()];
  const uptime = leastUptime(cluster);
  const differ = found.length > 1;
  return tile(differ ? "Versions" : "Version", differ ? count(found.length) : (found[0] ?? "–"), addressOf("brokers"), differ, uptime === null ? nothing : html`<small>last start ${duration(uptime)} ago</small>`);
}

function tile(label, value, address, isWrong = false, more = nothing) {
  const words = html`<span class="label">${label}</span> <b class=${isWrong ? "warning" : ""}>${value}</b> ${more}`;
  return html`<li>${address ? html`<a href=${address}>${words}</a>` : html`<div>${words}</div>`}</li>`;
}

function largest({ found, topicRates }) {
  const rows = (found?.topics ?? []).map(
    ({ topic, size_bytes: bytes, consumers_count: readers }) => html`
      <tr>
        <td title=${topic}>${nameLink(topic, topicAddress(topic))}</td>
        <td class="number">${size(bytes)}</td>
        <td class="number">${rate(topicRates.get(topic) ?? null)}</td>
        <td class="number roomy">${count(readers)}</td>
      </tr>
    `,
  );
  return html`
    <section class="card" aria-labelledby="largest-title" id="largest">
      <h2 id="largest-title">Largest topics <small><a href=${addressOf("topics")}>all topics</a></small></h2>
      ${table("Table of the largest topics", [["Topic"], ["Size", "number w6"], ["Written", "number w6"], ["Consumers", "number w6 roomy"]], rows, "There is no topic yet: octopi-node produce orders")}
    </section>
  `;
}

function dot({ broker, state }) {
  return html`<span class="dot ${state}" title="broker ${broker}: ${state}"><span aria-hidden="true">${state === "up" ? "●" : "○"}</span><span class="sr">broker ${broker} ${state}</span></span>`;
}

// --- what is wrong ----------------------------------------------------------------------------

export function registerAway({ registerAwaySince: since }) {
  return html`
    <section class="card alarm" aria-labelledby="register-away" id="register-away-card">
      <h2 id="register-away">The register does not answer <small>since ${date(since)}, ${duration(Date.now() - since)}</small></h2>
      <p>Producing and consuming go on; no leader is replaced, and nothing is created, until it is back. What is shown of leaders and topics is what the register said last.</p>
      <p><a href=${addressOf("runbook", ["register-away"])}>What to do</a></p>
    </section>
  `;
}

// A broker that is away: since when, what that means, and what to do.
export function brokerAway(cluster, { broker, address, left_at_ms: left }) {
  const missing = cluster.partitions.filter((one) => one.replicas.includes(broker));
  const leaderless = cluster.partitions.filter((one) => one.leader === null);
  const losses = oneMoreLoss(cluster);
  return html`
    <section class="card alarm" aria-labelledby="away-${broker}" id="broker-away">
      <h2 id="away-${broker}">Broker ${broker} is away <small>${left ? `since ${date(left)}, ${duration(Date.now() - left)}` : cluster.ring ? "it is not known since when" : "since before the register was started"}</small></h2>
      <p>${plural(missing.length, "partition")} ${missing.length === 1 ? "has" : "have"} a replica less: ${topicsOfAll(missing)}. ${leaderless.length ? html`<b class="warning">${plural(leaderless.length, "partition")} without a leader: ${topicsOfAll(leaderless)}.</b>` : "All of them have a leader: nothing is lost, and producing and consuming go on."}</p>
      ${losses.length
        ? html`<ul>${losses.map((one) => html`<li>${lossOf(one)}</li>`)}</ul>`
        : leaderless.length ? nothing : html`<p>If one more broker is lost, other replicas in sync lead, and all goes on.</p>`}
      <p>Start it again where it was (<code>${address.replace(/^wss?:\/\//, "")}</code>), with the same command: it catches up by itself. <a href=${addressOf("runbook", [cluster.ring ? "ring-broker-away" : "broker-away"])}>What to do</a>, also if its disk is lost. <a href=${brokerAddress(broker)}>Broker\u00a0${broker}</a></p>
    </section>
  `;
}

function lossOf({ broker, leaderless, waiting }) {
  return html`
    <b>If broker ${broker} is lost as well:</b>
    ${leaderless.length ? html`${plural(leaderless.length, "partition")} would have no replica in sync, and neither take nor give messages until one is back: ${topicsOfAll(leaderless)}. ` : nothing}
    ${waiting.length ? html`${plural(waiting.length, "partition")} would give messages, and those topics there that ask for more replicas in sync would take none: ${topicsOfAll(waiting)}.` : nothing}
  `;
}
