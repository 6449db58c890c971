// Topics in memory: who holds which relay partition, who puts in order, and whether all hold the same.

import { html, nothing } from "../vendor/lit-html.js";
import { brokerAddress, topicAddress } from "./address.js";
import { table } from "./parts.js";
import { count, plural, size } from "./words.js";

const MARKS = { sequencer: "♛", normal: "●", joining: "◐", changing: "◐", fenced: "○", away: "○" };

// *relays*: of /api/v1/cluster.  *topic*: only this one and its partition, or all.
export function relaysCard(relays, topic = null) {
  const streams = relays.streams.filter((one) => topic === null || one.topic === topic);
  const partitions = relays.partitions.filter((one) => topic === null || streams.some(({ partition }) => partition === one.partition));
  const left = topic === null ? relays.topic_count - streams.length : 0;
  return html`
    <section class="card" aria-labelledby="relays-title" id="relays">
      <h2 id="relays-title">In memory <small>${plural(partitions.length, "relay partition")}</small></h2>
      ${streams.filter((one) => one.differs.length).map(difference)}
      ${partitionTable(partitions)}
      <p class="hint">♛ puts messages in order, ● takes part, ◐ joins or changes to another epoch, ○ hears no majority or does not answer. A greater timeline than before: history may have been lost.</p>
      ${streamTable(streams)}
      <p class="hint">A digest covers all messages before the offset: equal digests, equal histories.${left > 0 ? ` ${plural(left, "topic")} more ${left === 1 ? "is" : "are"} not compared here: octopi-node relay verify TOPIC` : ""}</p>
    </section>
  `;
}

function difference({ topic, compared, differs }) {
  const who = differs.length === 1 ? `Broker ${differs[0]} differs` : `Brokers ${differs.join(", ")} differ`;
  return html`<p class="problem" role="alert">${who} in ${topic}, up to offset ${count(compared)}: a relay's memory is wrong. It repairs itself within a minute; <code>octopi-node relay verify ${topic}</code> says from where on.</p>`;
}

function partitionTable(partitions) {
  const head = [["Partition", "w6"], ["Timeline", "number w6 roomy"], ["Epoch", "number w6 roomy"], ["Members"], ["Streams", "number w6 roomy"], ["Repairs", "number w6", "Streams under repair, at all members together"], ["Held", "number w6 roomy", "By the member that holds most"], ["Waiting", "number w6 roomy", "What no majority has written yet"]];
  const rows = partitions.map(({ partition, sequencer, generation, epoch, members }) => {
    const most = (name) => Math.max(0, ...members.map((one) => one[name] ?? 0));
    const repairs = members.reduce((sum, one) => sum + (one.repairs ?? 0), 0);
    return html`
      <tr>
        <td>p${partition}</td>
        <td class="number roomy">${generation || "–"}</td>
        <td class="number roomy">${generation ? epoch : "–"}</td>
        <td class="wraps">${members.map((one) => member(one, sequencer))}${sequencer === null ? html` <b class="warning">no sequencer</b>` : nothing}</td>
        <td class="number roomy">${count(most("streams"))}</td>
        <td class="number ${repairs ? "warning" : ""}">${count(repairs)}</td>
        <td class="number roomy">${size(most("held_bytes"))}</td>
        <td class="number roomy">${size(most("uncommitted_bytes"))}</td>
      </tr>
    `;
  });
  return table("Table of relay partitions", head, rows, "No relay answers.");
}

function member({ broker, state, repairs }, sequencer) {
  const role = broker === sequencer && state === "normal" ? "sequencer" : state;
  const isWell = state === "normal";
  return html`<a class="replica ${isWell ? "" : "warning"}" href=${brokerAddress(broker)} title="broker ${broker}: ${role}"><span aria-hidden="true">${MARKS[role]}</span> ${broker}${isWell ? html`<span class="sr"> ${role}</span>` : ` ${state}`}${repairs ? ` ${plural(repairs, "repair")}` : ""}</a>`;
}

function streamTable(streams) {
  const head = [["Topic"], ["Partition", "w6 roomy"], ["Offset", "number w8 roomy", "Up to here all of them deliver, and are compared"], ["Digests", "", "The first bytes, of each broker"], ["Verdict", "w8"]];
  const rows = streams.map(
    ({ topic, partition, compared, members, differs }) => html`
      <tr>
        <td class="name" title=${topic}><a href=${topicAddress(topic)}>${topic}</a></td>
        <td class="roomy">p${partition}</td>
        <td class="number roomy">${count(compared)}</td>
        <td class="wraps">${members.map(({ broker, digest }) => html`<span class="replica ${differs.includes(broker) ? "warning" : ""}">${broker} <code>${digest ?? "–"}</code></span> `)}</td>
        <td>${verdict(members, differs)}</td>
      </tr>
    `,
  );
  return table("Table of streams in memory", head, rows, "No topic in memory that the token covers is compared.");
}

function verdict(members, differs) {
  if (differs.length) return html`<b class="warning">${differs.join(", ")} ${differs.length === 1 ? "differs" : "differ"}</b>`;
  const known = members.filter(({ digest }) => digest !== null).length;
  return known > 1 ? html`<span class="good">alike</span>` : html`<span class="faint">not known</span>`;
}
