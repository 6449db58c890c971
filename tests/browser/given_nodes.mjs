// A program of Node that is given some nodes, a line of standard input after the other: "topics",
// "publish TEXT", "read COUNT" (from where it read last), "member COUNT" (the next messages of a
// subscription), "opened" (the nodes to which it opened a WebSocket); answers with a line of JSON.

import { createInterface } from "node:readline";

const [modules, ...nodes] = process.argv.slice(2);
const { Octopi } = await import(`${modules}/octopi.js`);

const opened = new Set();
class Counted extends WebSocket {
  constructor(url, protocols) {
    super(url, protocols);
    opened.add(new URL(url).host);
  }
}
globalThis.fetch = () => Promise.reject(new Error("a client needs no HTTP"));

const octopi = await Octopi.connect(nodes, { WebSocket: Counted });
let messages = null;
let member = null;

async function take(from, count) {
  const taken = [];
  while (taken.length < count) taken.push((await from.next()).value.text());
  return taken;
}

const DEEDS = {
  topics: async () => (await octopi.topics()).map((one) => one.topic),
  publish: async (text) => (await octopi.publish("orders", text)).offset,
  read: (count) => take((messages ??= octopi.subscribe("orders", { from: "earliest" })), count),
  member: async (count) => {
    member ??= await octopi.subscription("orders", { name: "billing", mode: "shared" });
    return take(member, count);
  },
  opened: () => [...opened],
};

for await (const line of createInterface({ input: process.stdin })) {
  const [deed, argument] = line.split(" ");
  let answer;
  try {
    answer = await DEEDS[deed](argument);
  } catch ({ code, message }) {
    answer = { code, message };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
process.exit(0);
