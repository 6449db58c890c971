// A page of shared cursors.  Each tab publishes where its cursor is to a topic in memory, reads the
// positions of all, and counts what it misses and what it sees twice.
// `octopi-node demo --relay` runs the relays, moves two robots, and kills the sequencer now and then.

import { Octopi } from "../octopi.js";
import { CursorCounts, positionIn } from "./cursor_counts.js";

const CURSORS = "cursors";
const NEWS = "cursors.news"; // what happened, for people
const KILLS = "cursors.kills"; // a message here asks for a kill
const TICK_MS = 40; // between two positions of one tab
const REPEAT_MS = 1_000; // also if the cursor stands still
const UNCONFIRMED_MAX = 500; // then the newest place waits for receipts
const QUIET_MS = 5_000;
const GONE_MS = 90_000; // browsers run the timers of hidden tabs once a minute
const LOOK_MS = 1_000;
const STANDS_MS = 400; // after the last key its place is told to those who listen
const STEP = 0.01;
const NOTES_MAX = 100;
const MOVES = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const ARROW = "M1 1 L1 17 L5.5 13 L9 20 L12 18.5 L8.5 11.8 L14.5 11.5 Z";

const part = (id) => document.getElementById(id);
const show = (id, text) => (part(id).textContent = text);

function made(name, className, ...content) {
  const element = document.createElement(name);
  if (className) element.className = className;
  element.append(...content);
  return element;
}

function note(text, at = new Date()) {
  part("events").prepend(made("li", "", made("time", "", at.toLocaleTimeString()), text));
  if (part("events").children.length > NOTES_MAX) part("events").lastChild.remove();
}

function showState(state) {
  show("state", state);
  part("state").className = `health ${state === "open" ? "well" : "ill"}`;
}

const random = crypto.getRandomValues(new Uint8Array(3));
const me = `tab ${[...random].map((one) => one.toString(16).padStart(2, "0")).join("")}`;
const counts = new CursorCounts();
const colour = (who) => `c${[...who].reduce((sum, one) => (31 * sum + one.codePointAt(0)) % 65_521, 7) % 8}`;

const octopi = await Octopi.connect(undefined, { name: me });
showState(octopi.state);
let state = octopi.state;
octopi.addEventListener("state", ({ detail }) => {
  showState(detail.state);
  if (detail.state === state) return; // another attempt
  state = detail.state;
  note(detail.error ? `${detail.state}: ${detail.error.message}` : detail.state);
});

// --- the own cursor ---------------------------------------------------------------------

let place = { x: 0.2 + (0.6 * random[0]) / 255, y: 0.2 + (0.6 * random[1]) / 255 };
let relay = null; // that this tab is connected to
let number = 0; // of the next position
let confirmed = 0;
let isNews = true;
let toldAt = 0;
let partition = null; // of the topic
let standing; // the timer since the last key

const words = ({ x, y }) => `left ${Math.round(100 * x)} %, top ${Math.round(100 * y)} %`;
const within = (value) => Math.min(1, Math.max(0, value));

function move(x, y) {
  place = { x: within(x), y: within(y) };
  isNews = true;
}

part("board").addEventListener("pointermove", (event) => {
  const box = part("board").getBoundingClientRect();
  move((event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
});

part("board").addEventListener("keydown", (event) => {
  const direction = MOVES[event.key];
  if (!direction || event.ctrlKey || event.altKey || event.metaKey) return;
  event.preventDefault();
  const step = event.shiftKey ? 5 * STEP : STEP;
  move(place.x + step * direction[0], place.y + step * direction[1]);
  clearTimeout(standing);
  standing = setTimeout(() => show("where", `Your cursor: ${words(place)}`), STANDS_MS);
});

async function tell(more = {}) {
  isNews = false;
  toldAt = Date.now();
  const value = JSON.stringify({ who: me, number: number++, x: +place.x.toFixed(4), y: +place.y.toFixed(4), relay, ...more });
  show("published", number);
  try {
    ({ partition } = await octopi.publish(CURSORS, value));
    show("confirmed", ++confirmed);
  } catch (error) {
    note(`a position was not confirmed: ${error.message}`);
  }
}

function tellInTime() {
  const isTime = isNews || Date.now() - toldAt >= REPEAT_MS;
  if (isTime && number - confirmed < UNCONFIRMED_MAX) tell();
}

// --- all cursors ------------------------------------------------------------------------

const figures = new Map(); // who -> elements

function figureOf(who) {
  let figure = figures.get(who);
  if (!figure) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", "0 0 16 21");
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("d", ARROW);
    svg.append(path);
    const name = who === me ? "you" : who;
    const pointer = made("div", `cursor ${colour(who)}`, svg, made("span", "", name));
    pointer.setAttribute("aria-hidden", "true"); // the table has it as text
    const cells = Array.from({ length: 5 }, (_, at) => made("td", at > 1 ? "number" : ""));
    const heading = made("td", "", made("i", `swatch ${colour(who)}`), who === me ? `${who} (you)` : who);
    figure = { pointer, row: made("tr", "", heading, ...cells), cells };
    figure.row.dataset.who = who;
    figures.set(who, figure);
    part("board").append(pointer);
    part("cursors").append(figure.row);
  }
  return figure;
}

function forget(who) {
  counts.cursors.delete(who);
  figures.get(who)?.pointer.remove();
  figures.get(who)?.row.remove();
  figures.delete(who);
}

function draw(cursor) {
  const { pointer } = figureOf(cursor.who);
  pointer.style.left = `${100 * cursor.x}%`;
  pointer.style.top = `${100 * cursor.y}%`;
}

function drawTable() {
  const now = Date.now();
  for (const who of figures.keys()) if (!counts.cursors.has(who)) forget(who);
  for (const cursor of [...counts.cursors.values()]) {
    const silence = now - cursor.heardAt;
    if (silence > GONE_MS) {
      forget(cursor.who);
      continue;
    }
    const { pointer, cells } = figureOf(cursor.who);
    const isQuiet = silence > QUIET_MS;
    pointer.className = ["cursor", colour(cursor.who), isQuiet && "quiet", cursor.who === me && "mine"].filter(Boolean).join(" ");
    const connected = cursor.relay === null ? "–" : `relay ${cursor.relay}`;
    const texts = [connected, isQuiet ? `${words(cursor)}, quiet` : words(cursor), cursor.read, cursor.missing, cursor.twice];
    texts.forEach((text, at) => (cells[at].textContent = text));
  }
  show("missing", counts.missing);
  show("twice", counts.twice);
}

async function readCursors(reading) {
  let longest = 0;
  let heardAt = null;
  for await (const message of reading) {
    const position = positionIn(message.text());
    if (!position) continue;
    const now = Date.now();
    draw(counts.take(position, now));
    if (position.isLast) forget(position.who);
    if (heardAt !== null && now - heardAt > longest) show("silence", `${((longest = now - heardAt) / 1000).toFixed(2)} s`);
    heardAt = now;
  }
}

async function readNews(reading) {
  for await (const message of reading) note(message.text(), new Date(message.timestamp));
}

// --- relays -----------------------------------------------------------------------------

async function look() {
  const { brokers, partitions } = await octopi.describeCluster();
  const own = partitions.find((one) => one.partition === partition);
  // Whoever answers names itself first, if it takes part: that is where this tab reads.
  const at = brokers.find(({ address }) => address === own?.readers[0]);
  if ((at?.broker ?? null) !== relay) {
    relay = at?.broker ?? null;
    isNews = true;
  }
  const takesPart = (one) => one.live && own?.in_sync.includes(one.broker);
  part("relays").replaceChildren(
    ...brokers.map((one) => {
      const role = !takesPart(one) ? "away" : one.broker === own.leader ? "sequencer" : "takes part";
      const readers = [...counts.cursors.values()].filter((cursor) => cursor.relay === one.broker).length;
      const here = one.broker === relay ? "this tab is connected here; " : "";
      const card = made("div", [one.broker === relay && "here", role === "away" && "away"].filter(Boolean).join(" "));
      card.append(made("span", "label", `relay ${one.broker}`), made("b", "", role), made("small", "", `${here}tabs: ${readers}`));
      return made("li", "", card);
    }),
  );
  part("kill").disabled = !brokers.every(takesPart);
}

async function keepLooking() {
  for (;;) {
    await look().catch((error) => note(error.message));
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
  }
}

part("kill").addEventListener("click", () => {
  part("kill").disabled = true; // until all relays take part again
  octopi.publish(KILLS, me).catch((error) => note(error.message));
});

// --- all of it --------------------------------------------------------------------------

try {
  const reading = octopi.subscribe(CURSORS);
  const news = octopi.subscribe(NEWS, { from: { last: 20 } });
  await reading.ready; // so that this tab reads its own first position
  part("kill").hidden = false;
  keepLooking();
  tell();
  setInterval(tellInTime, TICK_MS);
  setInterval(drawTable, 250);
  addEventListener("pagehide", () => tell({ isLast: true }));
  await Promise.all([readCursors(reading), readNews(news)]);
} catch (error) {
  showState("ended");
  note(error.code === "unknown_topic" ? "this page is for `octopi-node demo --relay`, which makes its topics" : `${error.message} [${error.code}]`);
}
