// Which versions of the program the nodes of a cluster run, and since when.

import { html, nothing } from "../vendor/lit-html.js";
import { duration } from "./words.js";

// A node's version, without the name of the program; "–" if the node did not tell it.
export function versionOf({ agent }) {
  return agent ? agent.replace(/^octopi-node\//, "") : "–";
}

export function uptimeOf({ uptime_s: seconds }) {
  return duration(seconds === null || seconds === undefined ? null : seconds * 1000);
}

// A Map of the versions that run to the names of their nodes; nodes that don't tell theirs are left out.
export function versions({ register, brokers }) {
  const found = new Map();
  const nodes = [["the register", register], ...brokers.map((one) => [`broker ${one.broker}`, one])];
  for (const [name, node] of nodes) {
    if (!node?.agent) continue;
    const version = versionOf(node);
    found.set(version, [...(found.get(version) ?? []), name]);
  }
  return found;
}

// The least uptime of the nodes in milliseconds; null if none is known.
export function leastUptime({ register, brokers }) {
  const known = [register, ...brokers].map((one) => one?.uptime_s ?? null).filter((one) => one !== null);
  return known.length ? Math.min(...known) * 1000 : null;
}

// What is said where versions differ; nothing where they are the same.
export function versionsCard(cluster) {
  const found = versions(cluster);
  if (found.size < 2) return nothing;
  return html`
    <section class="card alarm" aria-labelledby="versions-title" id="versions">
      <h2 id="versions-title">Nodes run different versions</h2>
      <ul>${[...found].map(([version, names]) => html`<li><b>${version}</b>: ${names.join(", ")}</li>`)}</ul>
      <p>That is how it should be while a rolling upgrade lasts. Otherwise, start the nodes of the older version again with the newer one.</p>
    </section>
  `;
}
