// The console: a view for each address, drawn anew whenever something has changed.

import { html, nothing, render } from "../vendor/lit-html.js";
import { actionDialog, Actions } from "./actions.js";
import { addressOf, TABS, viewOf } from "./address.js";
import { brokersTab } from "./brokers.js";
import { RateChart } from "./chart.js";
import { ClusterFeed } from "./cluster_feed.js";
import { eventList, eventsTab } from "./events.js";
import { messagesTab, openMessages } from "./messages.js";
import { overviewTab } from "./overview.js";
import { Replay, replayPanel } from "./replay.js";
import { runbookTab } from "./runbook.js";
import { subscriptionsTab } from "./subscriptions.js";
import { Tail } from "./tail.js";
import { topicsTab } from "./topics.js";
import { topology } from "./topology.js";

const ARRIVAL_MS = 100; // between two drawings of what came, however fast it comes

const root = document.getElementById("console");
let isDrawing = false;
let isWaiting = false;
let chart = null;
let wantedFocus = null; // id of what gets it as soon as it is there
let replay = null;
let replayProblem = "";

const feed = new ClusterFeed(() => {
  tail.measure();
  draw();
}, draw);
const tail = new Tail(drawSoon, feed.pages);
const actions = new Actions(feed, draw);
const producing = { onChange: draw, problem: "", receipt: null, isBusy: false };

// --- drawing ----------------------------------------------------------------------------------

function draw() {
  if (isDrawing) return;
  isDrawing = true;
  requestAnimationFrame(() => {
    isDrawing = false;
    render(screen(), root);
    drawChart();
    const dialog = document.getElementById("action");
    if (dialog && !dialog.open) dialog.showModal();
    const wanted = wantedFocus && document.getElementById(wantedFocus);
    if (!wanted) return; // its view is not there yet
    wantedFocus = null;
    wanted.focus({ preventScroll: wanted.id === "main" });
  });
}

function drawSoon() {
  if (isWaiting) return;
  isWaiting = true;
  setTimeout(() => {
    isWaiting = false;
    draw();
  }, ARRIVAL_MS);
}

function drawChart() {
  const place = document.getElementById("chart");
  const { points } = feed.view.tab === "overview" ? feed.traffic : feed.topicTraffic;
  if (!place || points.length < 2) return;
  if (chart?.place !== place) chart = new RateChart(place);
  chart.show(points);
}

function screen() {
  if (feed.needsToken) return [header(), main(tokenForm())];
  if (replay) return [header(), main([replayPanel(replay, draw, closeReplay), topology(replay.cluster), eventList(replay.events, (one) => replay.timeOf(one))])];
  if (!feed.cluster) return [header(), main(html`<p class="starting">${feed.problem || "Asking the cluster …"}</p>`)];
  return [header(), main(tab()), actionDialog(actions)];
}

function main(content) {
  return html`<main id="main" tabindex="-1">${content}</main>`;
}

function tab() {
  switch (feed.view.tab) {
    case "topics":
      return topicsTab(feed, actions);
    case "subscriptions":
      return subscriptionsTab(feed, actions);
    case "brokers":
      return brokersTab(feed, actions);
    case "events":
      return eventsTab(feed);
    case "messages":
      return messagesTab(feed, tail, producing);
    case "runbook":
      return runbookTab(feed);
    default:
      return overviewTab(feed);
  }
}

function header() {
  const { cluster, status, problem, pages } = feed;
  const isShown = cluster && !replay && !feed.needsToken;
  const isWell = cluster?.healthy && !feed.isStale;
  return html`
    <header>
      <h1><a href=${addressOf("overview")}><img src="console/icon.svg" alt="" width="28" height="28"> Octopi</a></h1>
      ${isShown
        ? html`
            <p class="health ${isWell ? "well" : "ill"}" role="status">${feed.isStale ? "no news" : isWell ? "healthy" : "not healthy"}</p>
            <p class="faint">cluster <code>${cluster.cluster || "not formed yet"}</code> seen by ${pages.origin === location.origin ? `${status.role}${status.broker ? ` ${status.broker}` : ""}` : "the node"} at <code>${pages.origin.replace(/^https?:\/\//, "")}</code></p>
          `
        : nothing}
      <span class="buttons">
        <label class="file button">Replay a run … <input type="file" accept=".html,text/html" @change=${openReplay}></label>
        <button type="button" @click=${switchTheme}><span aria-hidden="true">◐</span> Theme</button>
      </span>
      ${isShown ? html`<nav aria-label="Views">${TABS.map(tabLink)}</nav>` : nothing}
      ${isShown ? problems(cluster, feed.isStale ? problem : "") : nothing}
      ${replayProblem ? html`<p class="problem" role="alert">${replayProblem}</p>` : nothing}
    </header>
  `;
}

function tabLink(name) {
  const isHere = feed.view.tab === name;
  return html`<a href=${addressOf(name)} aria-current=${isHere ? "page" : "false"}>${name[0].toUpperCase()}${name.slice(1)}</a>`;
}

function problems(cluster, problem) {
  // What is away has a card of its own in these tabs.
  const isTold = ["overview", "brokers"].includes(feed.view.tab);
  const all = problem ? [problem, "what is shown is what was seen last"] : cluster.problems.filter((one) => !(isTold && /^(broker \d+ is away$|the register does not answer)/.test(one)));
  return all.length ? html`<div class="problem" role="alert"><ul class="plain">${all.map((one) => html`<li>${one}</li>`)}</ul></div>` : nothing;
}

function tokenForm() {
  const submit = (event) => {
    event.preventDefault();
    feed.setToken(new FormData(event.target).get("token").trim());
  };
  return html`
    <form class="card bar" @submit=${submit}>
      <label>Token <input name="token" type="password" required autocomplete="off"></label>
      <button class="primary">Look</button>
      <p class="hint">${feed.problem} A token is made with <code>octopi-node token create</code>. This tab forgets it when it is closed.</p>
    </form>
  `;
}

// --- replay -----------------------------------------------------------------------------------

async function openReplay(event) {
  const [file] = event.target.files;
  if (!file) return;
  try {
    replay = await Replay.read(file);
    replayProblem = "";
  } catch (error) {
    replayProblem = error.message;
  }
  event.target.value = "";
  draw();
}

function closeReplay() {
  replay?.play(false, draw);
  replay = null;
  draw();
}

// --- addresses, keys and colours --------------------------------------------------------------

function openFromAddress() {
  const before = feed.view;
  const view = viewOf(location.hash);
  feed.show(view);
  replay = null;
  if (view.tab === "messages") openMessages(tail, view);
  else tail.stop();
  const names = view.names.join("/");
  document.title = [names || (view.tab === "overview" ? "" : view.tab), "Octopi"].filter(Boolean).join(" · ");
  draw();
  return view.tab !== before.tab || names !== before.names.join("/");
}

window.addEventListener("hashchange", () => {
  if (!["busy", "done"].includes(actions.state)) actions.close();
  // Another view is read from its beginning, also by screen readers.
  if (openFromAddress()) wantedFocus ??= "main";
});

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // "#main" is no address of ours
  document.getElementById("main").focus();
});

function switchTheme() {
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const { dataset } = document.documentElement;
  dataset.theme = (dataset.theme ?? (isDark ? "dark" : "light")) === "dark" ? "light" : "dark";
  localStorage.setItem("octopi-theme", dataset.theme);
  draw();
}

// Goes to a view, and then to a field of it.
function goTo(tabName, field) {
  const isThere = feed.view.tab === tabName && document.getElementById(field);
  if (!isThere) location.hash = addressOf(tabName);
  wantedFocus = field;
  if (isThere) draw();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, dialog")) return;
  const number = Number(event.key);
  if (event.key === "p" && replay) replay.play(!replay.isPlaying, draw);
  else if (event.key === "p" && tail.reading) tail.pause(!tail.isPaused);
  else if (event.key === "/") goTo(feed.view.tab === "subscriptions" ? "subscriptions" : "topics", "search");
  else if (event.key === "t") goTo("messages", "tail-topic");
  else if (TABS[number - 1]) location.hash = addressOf(TABS[number - 1]);
  else return;
  event.preventDefault();
});

root.replaceChildren();
openFromAddress();
feed.run();
