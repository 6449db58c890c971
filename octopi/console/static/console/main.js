// The console: one screen, drawn anew whenever something has changed.

import { html, nothing, render } from "../vendor/lit-html.js";
import { ClusterFeed } from "./cluster_feed.js";
import { RateChart } from "./chart.js";
import { Replay } from "./replay.js";
import { openedIn, subscriptionPage, subscriptions } from "./subscriptions.js";
import { consumers, events, topics } from "./tables.js";
import { Tail, tailPanel } from "./tail.js";
import { topology } from "./topology.js";
import { count, plural, rate } from "./words.js";

const PLAYED_S = 30; // a whole run
const FRAME_MS = 50;
const ARRIVAL_MS = 100; // between two drawings of what came, however fast it comes

const root = document.getElementById("console");
const open = new Set(); // topics whose partitions are shown
let isDrawing = false;
let isWaiting = false;
let chart = null;
let replay = null;
let replayProblem = "";

const feed = new ClusterFeed(() => {
  tail.measure();
  draw();
}, draw);
const tail = new Tail(drawSoon, () => feed.token ?? "");

const act = {
  toggle(topic) {
    if (!open.delete(topic)) open.add(topic);
    draw();
  },
  tail(topic) {
    tail.topic = topic;
    tail.start();
    draw();
    document.getElementById("tail").scrollIntoView();
    document.getElementById("pause").focus({ preventScroll: true });
  },
};

// --- drawing ----------------------------------------------------------------------------------

function draw() {
  if (isDrawing) return;
  isDrawing = true;
  requestAnimationFrame(() => {
    isDrawing = false;
    render(screen(), root);
    drawChart();
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
  if (!place || feed.rates.length < 2) return;
  if (chart?.place !== place) chart = new RateChart(place);
  chart.show(feed.rates);
}

function screen() {
  if (feed.needsToken) return [header(), tokenForm()];
  if (replay) return [header(), replayPanel(), topology(replay.cluster), events(replay.events, (one) => replay.timeOf(one))];
  if (!feed.cluster) return [header(), html`<p class="starting">${feed.problem || "Asking the cluster …"}</p>`];
  if (feed.opened) return [header(), subscriptionPage(feed)];
  return html`
    ${header()}
    <main>
      ${topology(feed.cluster)}
      <div class="columns">
        <div>${topics(feed, open, act)} ${subscriptions(feed)} ${consumers(feed)}</div>
        <div>
          <section class="card" aria-labelledby="chart-title">
            <h2 id="chart-title">Written <small>${rate(feed.rates.at(-1)?.[1] ?? null)}, without copies</small></h2>
            ${feed.rates.length < 2 ? html`<p class="empty">The second look will tell.</p>` : nothing}
            <div id="chart" role="img" aria-label="Bytes written a second, over the last two minutes"></div>
          </section>
          ${events(feed.events)}
        </div>
      </div>
      ${tailPanel(tail, feed.topics)}
    </main>
  `;
}

function header() {
  const { cluster, status, problem } = feed;
  const up = cluster?.brokers.filter((one) => one.state === "up").length;
  return html`
    <header>
      <h1><img src="console/icon.svg" alt="" width="28" height="28"> Octopi</h1>
      ${cluster && !replay
        ? html`
            <p class="health ${cluster.healthy && !problem ? "well" : "ill"}" role="status">${problem ? "no news" : cluster.healthy ? "healthy" : "not healthy"}</p>
            <p>${up} of ${plural(cluster.brokers.length, "broker")} up</p>
            <p>${plural(cluster.topic_count, "topic")}</p>
            <p>${count(cluster.partitions.length)} of ${plural(cluster.partition_count, "partition")} in use</p>
            <p class="faint">seen by ${status.role}${status.broker ? ` ${status.broker}` : ""} at <code>${location.host}</code></p>
          `
        : nothing}
      <span class="buttons">
        <label class="file button">Replay a run … <input type="file" accept=".html,text/html" @change=${openReplay}></label>
        <button type="button" @click=${switchTheme}><span aria-hidden="true">◐</span> Theme</button>
      </span>
      ${replay ? nothing : problems(cluster, problem)}
      ${replayProblem ? html`<p class="problem" role="alert">${replayProblem}</p>` : nothing}
    </header>
  `;
}

function problems(cluster, problem) {
  const all = problem ? [problem, "what is shown is what was seen last"] : (cluster?.problems ?? []);
  return all.length ? html`<ul class="problem" role="alert">${all.map((one) => html`<li>${one}</li>`)}</ul>` : nothing;
}

function tokenForm() {
  const submit = (event) => {
    event.preventDefault();
    feed.setToken(new FormData(event.target).get("token").trim());
  };
  return html`
    <main>
      <form class="card bar" @submit=${submit}>
        <label>Token <input name="token" type="password" required autocomplete="off"></label>
        <button class="primary">Look</button>
        <p class="hint">${feed.problem} A token is made with <code>octopi-node token create</code>. This tab forgets it when it is closed.</p>
      </form>
    </main>
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

function replayPanel() {
  const go = (moment) => {
    replay.moment = Math.min(Math.max(0, moment), replay.last);
    draw();
  };
  const close = () => {
    replay = null;
    draw();
  };
  return html`
    <section class="card" aria-labelledby="replay-title" id="replay">
      <h2 id="replay-title">Replay <small>${replay.title}</small></h2>
      <div class="bar">
        <button type="button" class="primary" aria-pressed=${replay.isPlaying} @click=${() => play(!replay.isPlaying)}>${replay.isPlaying ? "Pause" : "Play"} <kbd>p</kbd></button>
        <label class="grow">Moment
          <input id="moment" type="range" min="0" max=${replay.last} .value=${String(replay.moment)} aria-valuetext="${replay.seconds.toFixed(3)} seconds" @input=${(event) => go(Number(event.target.value))}>
        </label>
        <output>${replay.seconds.toFixed(3)} s</output>
        ${replay.conflict === null ? nothing : html`<button type="button" @click=${() => go(replay.conflict)}>Next conflict</button>`}
        <button type="button" @click=${close}>Back to the cluster</button>
      </div>
    </section>
  `;
}

function play(isPlaying) {
  const playing = replay;
  playing.isPlaying = isPlaying;
  if (isPlaying && playing.moment === playing.last) playing.moment = 0;
  const step = Math.max(1, Math.round((playing.last * FRAME_MS) / (PLAYED_S * 1000)));
  const frame = () => {
    if (!playing.isPlaying || replay !== playing) return;
    playing.moment = Math.min(playing.last, playing.moment + step);
    playing.isPlaying = playing.moment < playing.last;
    draw();
    setTimeout(frame, FRAME_MS);
  };
  frame();
  draw();
}

// --- keys and colours -------------------------------------------------------------------------

function switchTheme() {
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const { dataset } = document.documentElement;
  dataset.theme = (dataset.theme ?? (isDark ? "dark" : "light")) === "dark" ? "light" : "dark";
  localStorage.setItem("octopi-theme", dataset.theme);
  draw();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
  if (event.key === "p" && replay) play(!replay.isPlaying);
  else if (event.key === "p" && tail.reading) tail.pause(!tail.isPaused);
  else if (event.key === "/") document.getElementById("topic-search")?.focus();
  else if (event.key === "t") document.getElementById("tail-topic")?.focus();
  else return;
  event.preventDefault();
});

// A subscription's page has an address, so that it can be kept, and left with the browser's "back".
function openFromAddress() {
  const found = openedIn(location.hash);
  if (found === null && feed.opened === null) return;
  feed.open(found);
  draw();
}
window.addEventListener("hashchange", openFromAddress);

root.replaceChildren();
openFromAddress();
draw();
feed.run();
