// A cluster without a register: the places of its brokers on the ring, and whom each keeps in touch with.

import { html, nothing, svg } from "../vendor/lit-html.js";
import { brokerAddress } from "./address.js";
import { table } from "./parts.js";
import { count, duration, plural } from "./words.js";

const RADIUS = 84;
const MIDDLE = 110;
const DRAWN_MAX = 40; // beyond, numbers stand on each other

export function ringCard({ ring, brokers }) {
  const known = new Map(brokers.map((one) => [one.broker, one]));
  const agreed = ring.acceptors.length ? `; ${ring.acceptors.length === 1 ? "broker" : "brokers"} ${ring.acceptors.join(", ")} ${ring.acceptors.length === 1 ? "decides" : "agree"} about it` : "";
  return html`
    <section class="card" aria-labelledby="ring-title" id="ring">
      <h2 id="ring-title">Ring <small>${plural(ring.brokers.length, "broker")}, as broker ${ring.asked ?? "–"} sees them</small></h2>
      <p class="hint">The record of the cluster was changed ${ring.version === 1 ? "once" : `${count(ring.version)} times`}${agreed}. A broker comes first for the keys between the one before it and itself.</p>
      ${ring.waits_for ? html`<p class="problem" role="alert">This broker is not in the ring: ${ring.waits_for}.</p>` : nothing}
      <div class="ring">
        ${ring.brokers.length > 1 && ring.brokers.length <= DRAWN_MAX ? circle(ring.brokers) : nothing}
        ${places(ring, known)}
      </div>
    </section>
  `;
}

// Decoration: the table says the same.
function circle(brokers) {
  return html`
    <svg viewBox="0 0 ${2 * MIDDLE} ${2 * MIDDLE}" width="220" height="220" aria-hidden="true">
      <circle class="line" cx=${MIDDLE} cy=${MIDDLE} r=${RADIUS}></circle>
      ${brokers.map((one) => {
        const angle = 2 * Math.PI * one.at;
        const [x, y] = [Math.sin(angle), -Math.cos(angle)];
        return svg`
          <circle class="at ${one.state}" cx=${MIDDLE + RADIUS * x} cy=${MIDDLE + RADIUS * y} r="6"></circle>
          <text x=${MIDDLE + (RADIUS + 16) * x} y=${MIDDLE + (RADIUS + 16) * y}>${one.broker}</text>
        `;
      })}
    </svg>
  `;
}

// What is to be known of a broker beside its place.
export function ringState({ state, drained, leaving, heard_ms: heard }) {
  const orders = leaving ? ["leaving"] : drained ? ["drained"] : [];
  const silent = state === "silent" ? [`silent${heard === null ? "" : `, heard ${duration(heard)} ago`}`] : [];
  return [...silent, ...orders].join("; ") || "answers";
}

function places(ring, known) {
  const head = [["Broker", "w6"], ["Place", "number w6", "Clockwise, in percent of the ring"], ["Keys", "number w6", "The part of the ring for whose keys it comes first"], ["Before", "w6 roomy", "The broker before it, as it says"], ["Behind", "w8 roomy", "Those behind it that it keeps in touch with, as it says"], ["Leads", "number w8"], ["State"]];
  const rows = ring.brokers.map((one) => {
    const { leads, replicas } = known.get(one.broker) ?? {};
    const state = ringState(one);
    return html`
      <tr>
        <td><a href=${brokerAddress(one.broker)}>Broker ${one.broker}</a></td>
        <td class="number">${(100 * one.at).toFixed(1)} %</td>
        <td class="number">${(100 * one.share).toFixed(1)} %</td>
        <td class="roomy">${one.before ?? "–"}</td>
        <td class="roomy">${one.behind?.join(" ") || "–"}</td>
        <td class="number">${count(leads)} of ${count(replicas)}${one.fenced ? html` <span class="warning">${count(one.fenced)} without a majority</span>` : nothing}</td>
        <td class=${state === "answers" ? "" : "warning"}>${state}${one.broker === ring.asked ? ", shows this page" : ""}</td>
      </tr>
    `;
  });
  return table("Table of the ring", head, rows, "No broker is in the ring.");
}
