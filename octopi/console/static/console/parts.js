// What several views are made of.

import { html, nothing } from "../vendor/lit-html.js";
import { topicAddress } from "./address.js";
import { consumerName, leastLag } from "./cluster_feed.js";
import { clock, count, plural, rate, size } from "./words.js";

// A table in a frame that scrolls by itself, also with a keyboard.
export function table(label, head, rows, empty, kind = "") {
  return html`
    <div class="scroll ${kind}" tabindex="0" role="group" aria-label=${label}>
      <table class="rows">
        <thead><tr>${head.map(([words, classes = "", title = ""]) => html`<th scope="col" class=${classes} title=${title}>${words}</th>`)}</tr></thead>
        <tbody>${rows}</tbody>
      </table>
      ${rows.length ? nothing : html`<p class="empty">${empty}</p>`}
    </div>
  `;
}

// A button of an action, which can't be done now for the reason *why*, if there is one.
export function actionButton(words, why, act, classes = "") {
  return html`<button type="button" class=${classes} title=${why} ?disabled=${Boolean(why)} @click=${act}>${words}</button>`;
}

// The reasons of buttons beside it, each once, where everybody can read them.
export function reasonsNot(...reasons) {
  const all = [...new Set(reasons)].filter(Boolean);
  return all.length ? html`<span class="why faint">${all.join(" ")}</span>` : nothing;
}

const NAME_END = 14; // characters of a name that is too long for its place, beside its beginning

// A link with a name of which the end is seen, too: names often differ in nothing else.
export function nameLink(name, address) {
  const at = name.length - NAME_END;
  if (at < NAME_END) return html`<a href=${address}>${name}</a>`;
  return html`<a class="long" href=${address} aria-label=${name}><span>${name.slice(0, at)}</span><span>${name.slice(at)}</span></a>`;
}

// The names of a few topics, as links, and the number of the others.
export function topicNames({ topics, more, isAtMost = false }) {
  if (!topics.length && !more) return nothing;
  const others = more > 0 ? `${topics.length ? " and " : ""}${isAtMost ? "up to " : ""}${plural(more, topics.length ? "more" : "topic").replace(/mores$/, "more")}` : "";
  return html`${topics.map((one, at) => html`${at ? ", " : ""}<a href=${topicAddress(one)}>${one}</a>`)}${others}`;
}

// The topics of a partition of /api/v1/cluster.
export function topicsOf({ topics = [], topics_count: all = 0 }) {
  return topicNames({ topics, more: all - topics.length });
}

// The topics of several partitions.
export function topicsOfAll(partitions) {
  const names = new Set(partitions.flatMap((one) => one.topics ?? []));
  const all = partitions.reduce((sum, one) => sum + (one.topics_count ?? 0), 0);
  const topics = [...names].slice(0, 3);
  return topicNames({ topics, more: Math.max(names.size, all) - topics.length, isAtMost: partitions.length > 1 });
}

export function chartCard(title, points, legend) {
  return html`
    <section class="card" aria-labelledby="chart-title">
      <h2 id="chart-title">${title} <small>${legend}</small></h2>
      ${points.length < 2 ? html`<p class="empty">The second look will tell.</p>` : nothing}
      <div id="chart" role="img" aria-label="${title}${points.length ? `, since ${clock(1000 * points[0][0]).slice(0, 8)}` : ""}: ${legend}"></div>
    </section>
  `;
}

// --- consumers --------------------------------------------------------------------------------

const CONSUMERS_SHOWN_MAX = 200;

export function consumers(feed) {
  const all = [...feed.consumers].sort((one, other) => leastLag(other) - leastLag(one) || (consumerName(one) < consumerName(other) ? -1 : 1));
  const head = [["Client"], ["Log", "w10"], ["Position", "number w8 roomy"], ["To send", "number w6 roomy", "Committed and not yet sent to it"], ["Lag", "number w6", "Committed and not yet processed by its program"], ["Trend", "w8", "Over the last half minute"]];
  const rows = all.slice(0, CONSUMERS_SHOWN_MAX).map(
    (one) => html`
      <tr>
        <td class="who" title="${one.agent}, ${one.consumer}, at broker ${one.broker}">${one.name ? html`<b>${one.name}</b> ` : nothing}<span>${one.agent}</span> <span class="faint">${one.consumer} at broker ${one.broker}</span></td>
        <td title="${one.topic}/${one.partition}"><a href=${topicAddress(one.topic)}>${one.topic}</a>/${one.partition}</td>
        <td class="number roomy">${count(one.position)}</td>
        <td class="number roomy">${size(one.sent_lag_bytes)}</td>
        <td class="number">${one.lag_bytes === null ? html`<span class="faint" title="The client does not report it">unknown</span>` : size(one.lag_bytes)}</td>
        <td>${trend(feed.lags.get(consumerName(one))?.trend, one.lag_bytes !== null)}</td>
      </tr>
    `,
  );
  return html`
    <section class="card" aria-labelledby="consumers-title" id="consumers">
      <h2 id="consumers-title">Consumers <small>${count(feed.consumersCount)}${feed.consumersTruncated ? "+" : ""}, what is read right now</small></h2>
      ${table("Table of consumers", head, rows, "No client reads right now.")}
      ${feed.consumersCount > CONSUMERS_SHOWN_MAX ? html`<p class="hint">The ${CONSUMERS_SHOWN_MAX} that are farthest behind.</p>` : nothing}
    </section>
  `;
}

// *isDealt*: of what the program has processed; else only of what it was sent.
function trend(word, isDealt) {
  switch (word) {
    case "none":
      return isDealt ? html`<span class="good">up to date</span>` : "all was sent";
    case "steady":
      return html`<span class="faint">→ steady</span>`;
    case "less":
      return html`<span class="good">↘ less</span>`;
    case "more":
      return html`<span class="faint">↗ more</span>`;
    case "growing":
      return html`<span class="warning">↗ growing</span>`;
    default:
      return html`<span class="faint">–</span>`;
  }
}

export function written(feed) {
  const [inside, outside] = feed.traffic.newest ?? [null, null];
  return `${rate(inside)} in, ${feed.consumersCount > feed.consumers.length ? "–" : rate(outside)} out (dashed)`;
}
