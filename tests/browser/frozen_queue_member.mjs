// A member of a queue that is frozen while it has a message in hand, and others wait: says what it
// gets, and what became of its answer afterwards, a line of JSON each.

import { createInterface } from "node:readline";

const [modules, url] = process.argv.slice(2);
const { Octopi } = await import(`${modules}/octopi.js`);
const say = (...facts) => process.stdout.write(`${JSON.stringify(facts)}\n`);

const octopi = await Octopi.connect(url);
const numbers = await octopi.subscription("numbers", { name: "sum", mode: "shared", ackTimeout: 1_000 });
const { value: first } = await numbers.next();
say("got", first.text());
// Frozen here; afterwards a line comes.
for await (const _ of createInterface({ input: process.stdin })) break;
first.acknowledge();
say("stale", await numbers.commit());
await octopi.publish("numbers", "the next one");
const { value: next } = await numbers.next();
say("got", next.text());
next.acknowledge();
await octopi.close();
process.exit(0);
