// A member of a subscription that is frozen while it has a message in hand: says what it gets, and
// what it is told afterwards, a line of JSON each.

import { createInterface } from "node:readline";

const [modules, url] = process.argv.slice(2);
const { Octopi } = await import(`${modules}/octopi.js`);
const say = (...facts) => process.stdout.write(`${JSON.stringify(facts)}\n`);

const octopi = await Octopi.connect(url);
octopi.addEventListener("fenced", ({ detail }) => say("fenced", detail.claim));
const numbers = await octopi.subscription("numbers", { name: "sum", sessionTimeout: 1_000 });
const { value: first } = await numbers.next();
say("got", first.text());
// Frozen here; afterwards a line comes.
for await (const _ of createInterface({ input: process.stdin })) break;
await numbers.commit().then(
  () => say("commit", "done"),
  (error) => say("commit", error.code),
);
process.exit(0);
