// A tab that reads a topic of numbers, and counts what it misses and what it sees twice.
// `octopi-node demo --keep` publishes them, and kills whoever leads them now and then.

import { Octopi } from "../octopi.js";

const TOPIC = "ticks";
const show = (id, text) => (document.getElementById(id).textContent = text);

function note(text) {
  const line = document.createElement("li");
  line.textContent = `${new Date().toLocaleTimeString()} ${text}`;
  document.getElementById("events").prepend(line);
}

function showState(state) {
  show("state", state);
  document.getElementById("state").className = `health ${state === "open" ? "well" : "ill"}`;
}

const octopi = await Octopi.connect(undefined, { name: "example" });
showState(octopi.state);
octopi.addEventListener("state", ({ detail }) => {
  showState(detail.state);
  note(detail.error ? `${detail.state}: ${detail.error.message}` : detail.state);
});

// Of this tab alone, so that several read on their own; it goes on there when it is loaded again.
const stored = JSON.parse(sessionStorage.getItem(TOPIC) ?? "null");
let { position, last, count, missing, twice } = stored ?? { position: { last: 1 }, last: null, count: 0, missing: 0, twice: 0 };
if (stored) note(`loaded again: goes on behind number ${last}`);

let longest = 0;
let heardAt = null;
const ticks = octopi.subscribe(TOPIC, { from: position });
try {
  for await (const message of ticks) {
    const number = Number(message.text());
    if (last !== null && number > last + 1) missing += number - last - 1;
    if (last !== null && number <= last) twice++;
    last = number;
    count++;
    const now = performance.now();
    if (heardAt !== null) longest = Math.max(longest, now - heardAt);
    heardAt = now;
    position = ticks.position;
    sessionStorage.setItem(TOPIC, JSON.stringify({ position, last, count, missing, twice }));
    show("newest", last);
    show("count", count);
    show("missing", missing);
    show("twice", twice);
    show("silence", `${(longest / 1000).toFixed(2)} s`);
    show("position", position);
  }
} catch (error) {
  showState("ended");
  note(`${error.message} [${error.code}]`);
  if (error.code === "topic_replaced") sessionStorage.removeItem(TOPIC); // another demo: load again
}
