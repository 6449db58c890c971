// What to do when something is wrong: the commands of docs/operations.md, which has the reasons.

import { html, nothing } from "../vendor/lit-html.js";
import { addressOf } from "./address.js";

const PAGES = {
  "broker-away": {
    title: "A broker is away",
    section: "Replace a broker, or lose its disk",
    steps: [
      ["Start it again with the command, the data directory and the address that it had. It joins, catches up, and is in sync again by itself. Watch that with", "octopi-node status"],
      ["If its disk is lost, start a broker with an empty data directory and without --id. It gets a new id. Then move each replica of the old one to it (here partition 3 from broker 2 to broker 5), with this command or on the page of the old broker here", "octopi-node partitions move 3 --from 2 --to 5"],
      ["When the old one has no replica any more, have the cluster forget it", "octopi-node brokers remove 2"],
      ["If a partition has no leader, see which replicas it waits for; start those first. This command changes nothing", "octopi-node partitions recover 7"],
    ],
  },
  "ring-broker-away": {
    title: "A broker is away, without a register",
    section: "A cluster without a register",
    steps: [
      ["Start it again with the command, the data directory and the address that it had. It joins the ring, catches up, and is in sync again by itself. Watch that with", "octopi-node status"],
      ["If it does not come back, have the others take over what it has, and remove it for good; otherwise they do so after ten minutes, and it stays in lists", "octopi-node brokers remove 2"],
      ["If a partition has no leader, see which replicas it waits for; start those first. This command changes nothing", "octopi-node partitions recover 7"],
    ],
  },
  "register-away": {
    title: "The register does not answer",
    section: "Restart the register, Lose the register",
    steps: [
      ["Start it again with the command and the data directory that it had. Clients notice nothing of it.", "octopi-node --role register --listen 127.0.0.1:7000 --data-dir data/register"],
      ["If its disk is lost, start it with an empty data directory and the cluster's join secret: it learns everything from the brokers. Until then don't stop brokers: no leader is replaced meanwhile.", "octopi-node status"],
    ],
  },
  "full-disk": {
    title: "A disk is full or fails",
    section: "A full disk",
    steps: [
      ["Free space on the disk; the broker notices by itself, and takes messages again. What there is on it:", "octopi-node status"],
      ["Or move replicas to brokers that have room (here partition 3 from broker 2 to broker 5)", "octopi-node partitions move 3 --from 2 --to 5"],
    ],
  },
};

export function runbookTab({ view }) {
  const page = PAGES[view.names[0]];
  const pages = Object.entries(PAGES);
  return html`
    <section class="card" aria-labelledby="runbook-title" id="runbook">
      <h2 id="runbook-title">What to do: ${page?.title ?? "choose what has happened"}</h2>
      ${page ? html`<ol class="steps">${page.steps.map(([words, command]) => html`<li>${words}<pre>${command}</pre></li>`)}</ol><p class="hint">docs/operations.md has more: ${page.section}.</p>` : nothing}
      <ul class="plain bar">${pages.map(([name, { title }]) => html`<li><a href=${addressOf("runbook", [name])}>${title}</a></li>`)}</ul>
    </section>
  `;
}
