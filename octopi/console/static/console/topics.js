// The tab of topics: all of them in a table, and a page for each.

import { html, nothing } from "../vendor/lit-html.js";
import { addressOf, brokerAddress, messagesAddress, topicAddress } from "./address.js";
import { TOPICS_PER_PAGE } from "./cluster_feed.js";
import { actionButton, chartCard, consumers, nameLink, reasonsNot, table } from "./parts.js";
import { relaysCard } from "./relays.js";
import { subscriptions } from "./subscriptions.js";
import { MARKS, markOf } from "./topology.js";
import { count, duration, plural, rate, size } from "./words.js";

const COLUMNS = [
  ["name", "Topic", ""],
  ["partitions", "Partitions", "number w6 roomy"],
  ["state", "State", "w10 state"],
  ["", "Messages", "number w6 roomy"],
  ["size", "Size", "number w6"],
  ["", "Written", "number w6 roomy"],
  ["", "Retention", "w10 roomy"],
  ["consumers", "Consumers", "number w6 roomy"],
];

export function topicsTab(feed, actions) {
  if (feed.view.names.length) return topicPage(feed, actions);
  const { found, view } = feed;
  const { search = "", sort = "name", descending = "", first = "0" } = Object.fromEntries(view.chosen);
  const go = (chosen) => (location.hash = addressOf("topics", [], { search, sort: sort === "name" ? "" : sort, descending, first, ...chosen }));
  const begin = Number(first) || 0;
  const isFirst = begin === 0;
  const isLast = !found || begin + TOPICS_PER_PAGE >= found.count;
  return html`
    <section class="card" aria-labelledby="topics-title" id="topics">
      <h2 id="topics-title">Topics <small>${count(feed.cluster.topic_count)}</small></h2>
      <form class="bar" role="search" @submit=${(event) => event.preventDefault()}>
        <label>Name contains
          <input id="search" type="search" .value=${search} placeholder="anything" spellcheck="false" autocomplete="off"
            @input=${(event) => go({ search: event.target.value.trim(), first: "" })}></label>
        <span class="paging">
          <output>${range(found)}</output>
          <button type="button" ?disabled=${isFirst} @click=${() => go({ first: String(Math.max(0, begin - TOPICS_PER_PAGE)) })}>Previous</button>
          <button type="button" ?disabled=${isLast} @click=${() => go({ first: String(begin + TOPICS_PER_PAGE) })}>Next</button>
        </span>
        ${feed.grants.create?.length ? html`<span class="buttons">${reasonsNot(feed.whyNoChange)} ${actionButton("Create a topic …", feed.whyNoChange, () => actions.createTopic(), "primary")}</span>` : nothing}
      </form>
      <div class="scroll" tabindex="0" role="group" aria-label="Table of topics">
        <table class="rows">
          <thead><tr>${COLUMNS.map((one) => heading(one, sort, descending, go))}</tr></thead>
          <tbody>${(found?.topics ?? []).map((one) => row(one, feed.topicRates.get(one.topic) ?? null))}</tbody>
        </table>
        ${found && !found.count ? html`<p class="empty">${search ? "No topic's name contains that." : "There is no topic yet: octopi-node produce orders"}</p>` : nothing}
      </div>
    </section>
    ${feed.cluster.relays ? relaysCard(feed.cluster.relays) : nothing}
  `;
}

function range(found) {
  if (!found) return "";
  const { first, count: all, topics, truncated } = found;
  if (!topics.length) return `0 of ${count(all)}`;
  return `${count(first + 1)}-${count(first + topics.length)} of ${count(all)}${truncated ? "+" : ""}`;
}

function heading([key, words, classes], sort, descending, go) {
  if (!key) return html`<th scope="col" class=${classes}>${words}</th>`;
  const isSorted = sort === key;
  // Numbers are most interesting from the largest on.
  const next = isSorted ? (descending ? "" : "1") : key === "name" ? "" : "1";
  return html`
    <th scope="col" class=${classes} aria-sort=${isSorted ? (descending ? "descending" : "ascending") : "none"}>
      <button type="button" class="plain" @click=${() => go({ sort: key === "name" ? "" : key, descending: next, first: "" })}>${words}${isSorted ? html` <span aria-hidden="true">${descending ? "▾" : "▴"}</span>` : nothing}</button>
    </th>
  `;
}

function row({ topic, partitions_count: partitions, replicas_count: replicas, state, messages_count: messages, size_bytes: bytes, held_bytes: held, options, consumers_count: readers }, written) {
  return html`
    <tr>
      <td class="name" title=${topic}>${nameLink(topic, topicAddress(topic))}</td>
      <td class="number roomy">${count(partitions)}<span class="faint"> ×${replicas}</span></td>
      <td class="wraps" title=${state}>${state === "ok" ? html`<span class="good">in sync</span>` : html`<span class="warning">${state}</span>`}${held > 0 ? html` <span class="faint" title="kept for subscriptions alone">${size(held)} kept for subscriptions</span>` : nothing}</td>
      <td class="number roomy">${count(messages)}</td>
      <td class="number">${size(bytes)}</td>
      <td class="number roomy">${rate(written)}</td>
      <td class="roomy" title=${retention(options)}>${retention(options)}</td>
      <td class="number roomy">${count(readers)}</td>
    </tr>
  `;
}

function retention({ retention_ms: ms = null, retention_bytes: bytes = null }) {
  if (ms === null && bytes === null) return "for ever";
  return [ms === null ? "" : duration(ms), bytes === null ? "" : size(bytes)].filter(Boolean).join(", ");
}

// --- the page of one --------------------------------------------------------------------------

function topicPage(feed, actions) {
  const [name] = feed.view.names;
  const { topic } = feed;
  if (topic === null) return html`<p class="starting">Asking the cluster …</p>`;
  if (topic === undefined) {
    return html`<section class="card" id="topic"><h2>Topic ${name}</h2><p class="problem" role="alert">There is no topic ${name}, or the token does not cover it.</p><p><a href=${addressOf("topics")}>All topics</a></p></section>`;
  }
  const bytes = topic.partitions.reduce((sum, one) => sum + (one.size_bytes ?? 0), 0);
  const isCounted = topic.partitions.every((one) => typeof one.messages_count === "number");
  const messages = isCounted ? `, ${plural(topic.partitions.reduce((sum, one) => sum + one.messages_count, 0), "message")}` : "";
  return html`
    <section class="card" aria-labelledby="topic-title" id="topic">
      <h2 id="topic-title">Topic ${name} <small>${plural(topic.partitions.length, "partition")}${messages}, ${size(bytes)}</small></h2>
      <p class="bar">
        <a class="button primary" href=${messagesAddress(name, { from: "-100" })}>Messages</a>
        ${feed.may("admin", name) ? html`${actionButton("Change options …", feed.whyNoChange, () => actions.alterTopic(name, topic.options))} ${actionButton("Delete …", feed.whyNoChange, () => actions.deleteTopic(name))}` : nothing}
        <a href=${addressOf("topics")}>All topics</a>
        ${feed.may("admin", name) ? reasonsNot(feed.whyNoChange) : nothing}
      </p>
      ${options(topic)}
      ${partitions(topic)}
    </section>
    ${feed.cluster.relays?.streams.some((one) => one.topic === name) ? relaysCard(feed.cluster.relays, name) : nothing}
    ${subscriptions(feed, `of ${name}`)}
    ${consumers(feed)}
    ${chartCard("Written", feed.topicTraffic.points, rate(feed.topicTraffic.newest?.[0] ?? null))}
  `;
}

function options({ topic_id: id, options }) {
  const facts = [
    ["kept", retention(options)],
    ["replicas that must be in sync", count(options.min_insync ?? 1)],
    ["flushed before acknowledged", options.flush_before_ack ? "yes" : "no"],
    ["segments of", options.segment_bytes ? size(options.segment_bytes) : "the default size"],
    ["waits for subscriptions", options.hold_ms || options.hold_bytes ? [options.hold_ms && duration(options.hold_ms), options.hold_bytes && size(options.hold_bytes)].filter(Boolean).join(", ") : "no"],
    ["id", id],
  ];
  return html`<dl class="facts">${facts.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

function partitions(topic) {
  const head = [["Partition", "w6"], ["Epoch", "number w4 roomy"], ["Replicas", ""], ["From offset", "number w8 roomy"], ["Committed", "number w8"], ["Messages", "number w6 roomy"], ["Size", "number w6 roomy"], [html`<span class="sr">Read</span>`, "w4"]];
  const rows = topic.partitions.map((one) => {
    const { partition, epoch, leader, replicas, in_sync: inSync, log_start: start, highwater, messages_count: messages, size_bytes: bytes, held_bytes: held, held_for: heldFor, copies } = one;
    return html`
      <tr>
        <td>p${partition}</td>
        <td class="number roomy">${epoch}</td>
        <td class="wraps">${replicas.map((broker) => replica(broker, leader, inSync, copies.find((copy) => copy.broker === broker)))}${leader === null ? html`<b class="warning">no leader</b>` : nothing}${kept(held, heldFor)}</td>
        <td class="number roomy">${count(start)}</td>
        <td class="number">${count(highwater)}</td>
        <td class="number roomy">${count(messages)}</td>
        <td class="number roomy">${size(bytes)}</td>
        <td><a href=${messagesAddress(topic.topic, { partition, from: "-100" })}>Read</a></td>
      </tr>
    `;
  });
  return html`
    ${table("Table of partitions", head, rows, "")}
    <p class="hint">♛ leads, ● in sync, ◐ behind (with how much it lacks), ○ no answer; the number is the broker's.</p>
  `;
}

function replica(broker, leader, inSync, copy) {
  const mark = markOf(broker, leader, inSync, copy);
  return html`<a class="replica ${inSync.includes(broker) ? "" : "warning"}" href=${brokerAddress(broker)} title="broker ${broker}: ${mark}"><span aria-hidden="true">${MARKS[mark]}</span> ${broker}<span class="sr"> ${mark}</span>${copy?.lag_bytes ? ` −${size(copy.lag_bytes)}` : ""}</a>${copy?.fault ? html` <b class="warning">${copy.fault}</b> ` : nothing}`;
}

// What retention keeps for durable subscriptions alone; *subscription*: the slowest, if it is known.
function kept(bytes, subscription) {
  return bytes > 0 ? html` <span class="faint">${size(bytes)} kept for ${subscription || "subscriptions"}</span>` : nothing;
}
