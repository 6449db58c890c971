// The tab of brokers: all of them as boxes, and a page for each.

import { html, nothing } from "../vendor/lit-html.js";
import { addressOf } from "./address.js";
import { brokerAway, registerAway } from "./overview.js";
import { actionButton, reasonsNot, table, topicsOf } from "./parts.js";
import { ringCard } from "./ring.js";
import { MARKS, markOf, topology } from "./topology.js";
import { uptimeOf, versionOf, versionsCard } from "./versions.js";
import { count, size } from "./words.js";

export function brokersTab(feed, actions) {
  if (feed.view.names.length) return brokerPage(feed, actions);
  return [feed.registerAwaySince ? registerAway(feed) : nothing, ...feed.cluster.brokers.filter((one) => !one.live && one.state === "away").map((one) => brokerAway(feed.cluster, one)), versionsCard(feed.cluster), feed.cluster.ring ? ringCard(feed.cluster) : nothing, topology(feed.cluster, feed.isStale || feed.registerAwaySince > 0)];
}

function brokerPage(feed, actions) {
  const { cluster } = feed;
  const number = Number(feed.view.names[0]);
  const one = cluster.brokers.find(({ broker }) => broker === number);
  if (!one) {
    return html`<section class="card" id="broker"><h2>Broker ${feed.view.names[0]}</h2><p class="problem" role="alert">The cluster has no such broker.</p><p><a href=${addressOf("brokers")}>All brokers</a></p></section>`;
  }
  const held = cluster.partitions.filter(({ replicas }) => replicas.includes(number));
  const isAdmin = feed.may("admin");
  const movable = held.filter(({ replicas }) => cluster.brokers.some((other) => isUp(other) && !replicas.includes(other.broker)));
  const whyNotMoved = feed.whyNoChange || (movable.length || cluster.more ? "" : "No other broker that is up lacks one of its partitions, so none can be moved.");
  const whyNotDrained = feed.whyNoChange || (canBeLedElsewhere(cluster, held, number) ? "" : "No other replica is in sync, so no other broker can lead.");
  const mayDrain = isAdmin && one.live;
  const mayMove = isAdmin && !cluster.ring && held.length > 0 && cluster.brokers.length > 1;
  const facts = [
    ["state", [one.state, ...(one.leaving ? ["leaving for good"] : one.drained ? ["drained until it is started again"] : [])].join(", ")],
    ["address", one.address],
    ["leads", `${count(one.leads)} of ${count(one.replicas)} replicas`],
    ["disk", one.disk_free_bytes === null ? "–" : `${size(one.disk_free_bytes)} of ${size(one.disk_total_bytes)} free`],
    ["starts", count(one.incarnation)],
    ["version", versionOf(one)],
    ["up for", uptimeOf(one)],
  ];
  return html`
    ${feed.registerAwaySince ? registerAway(feed) : nothing}
    ${!one.live && one.state === "away" ? brokerAway(cluster, one) : nothing}
    <section class="card" aria-labelledby="broker-title" id="broker">
      <h2 id="broker-title">Broker ${number} <small>${one.state}</small></h2>
      <p class="bar">
        ${mayDrain ? actionButton("Drain …", whyNotDrained, () => actions.drainBroker(number, one.leads)) : nothing}
        ${mayMove ? actionButton("Move a replica …", whyNotMoved, () => actions.moveReplica(number, movable, cluster.brokers.filter(isUp))) : nothing}
        <a href=${addressOf("brokers")}>All brokers</a>
        ${reasonsNot(mayDrain && whyNotDrained, mayMove && whyNotMoved)}
      </p>
      ${one.disk_trouble ? html`<p class="problem" role="alert">${one.disk_trouble}. <a href=${addressOf("runbook", ["full-disk"])}>What to do</a></p>` : nothing}
      <dl class="facts">${facts.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
      ${partitions(number, held)}
      ${cluster.more ? html`<p class="hint">The cluster has more partitions than are shown: octopi-node partitions list</p>` : nothing}
    </section>
  `;
}

function isUp({ state }) {
  return state === "up";
}

// Whether another broker can lead at least one of the partitions that *broker*, which holds *held*,
// leads; true also if it leads none.
function canBeLedElsewhere(cluster, held, broker) {
  const others = new Set(cluster.brokers.filter((one) => isUp(one) && one.broker !== broker).map((one) => one.broker));
  const led = held.filter(({ leader }) => leader === broker);
  return cluster.more || !led.length || led.some(({ in_sync: inSync }) => inSync.some((one) => others.has(one)));
}

function partitions(broker, held) {
  const head = [["Partition", "w6"], ["Role", "w10"], ["Topics"], ["Epoch", "number w4 roomy"], ["In sync", "w8 roomy"], ["Size", "number w6 roomy"], ["Behind", "number w6"]];
  const rows = held.map((one) => {
    const copy = one.copies.find((each) => each.broker === broker);
    const mark = markOf(broker, one.leader, one.in_sync, copy);
    return html`
      <tr>
        <td>p${one.partition}</td>
        <td class=${mark === "behind" || mark === "unknown" ? "warning" : ""}><span aria-hidden="true">${MARKS[mark]}</span> ${mark}</td>
        <td>${topicsOf(one)}</td>
        <td class="number roomy">${one.epoch}</td>
        <td class="roomy">${one.in_sync.join(", ")}</td>
        <td class="number roomy">${size(copy?.size_bytes)}</td>
        <td class="number">${size(mark === "leader" ? 0 : copy?.lag_bytes)}</td>
      </tr>
    `;
  });
  return table("Table of partitions", head, rows, "It has no replica of any partition.");
}
