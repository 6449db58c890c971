// Drives octopi.js, in a page or in Node: `perform` carries out one command of driving.py, and gives
// { result } or { refused: code }.  In Node a line of standard input is a command.

import { MEMBERS } from "./members.mjs";

const PATIENCE_MS = 25_000; // for an answer that has to come
const clients = new Map(); // name -> () => promise of Octopi; a client connects when it is used first
const readings = new Map(); // name -> Reading
const producers = new Map(); // name -> a producer with a name
const sendings = new Map(); // name of a client -> { goesOn, receipts: a promise }

const DEEDS = {
  connect: ({ as, token, server, timeout_s }, { Octopi, url }) => {
    const options = { token, requestTimeout: timeout_s && timeout_s * 1_000 };
    new Octopi(server ?? url, options); // refuses what is no address
    let octopi;
    clients.set(as, () => (octopi ??= Octopi.connect(server ?? url, options)));
  },
  close: async ({ as }) => {
    if (readings.has(as)) readings.get(as).unsubscribe();
    else await (await clients.get(as)()).close();
  },
  "describe topic": async ({ by, topic }) => {
    const found = (await (await clients.get(by)()).topics()).find((one) => one.topic === topic);
    return found.partitions.map((one) => one.partition);
  },
  produce: async ({ as, by, topic, name }) => {
    producers.set(as, await (await clients.get(by)()).producer(name, { topics: [topic] }));
  },
  send: async ({ as, by, topic, value, key, headers, timestamp, partition, expected_end: expectedEnd }) => {
    const octopi = producers.get(as) ?? (await clients.get(by)());
    const named = Object.fromEntries(Object.entries(headers ?? {}).map(([name, one]) => [name, given(one)]));
    return shownReceipt(await octopi.publish(topic, given(value), { key: key && given(key), headers: named, timestamp, partition, expectedEnd }));
  },
  "send numbered": async ({ by, topic }) => {
    const octopi = await clients.get(by)();
    const sending = { goesOn: true };
    sending.receipts = sendNumbered(octopi, topic, sending);
    sending.receipts.catch(() => {});
    sendings.set(by, sending);
  },
  sent: ({ by }) => {
    sendings.get(by).goesOn = false;
    return sendings.get(by).receipts;
  },
  consume: async ({ as, by, topic, from, partition, on_gap, wait_s, create }) => {
    const octopi = await clients.get(by)();
    const options = { partition: partition ?? "all", from: start(from), onGap: on_gap === "skip" ? "skip" : "throw", waitForTopic: wait_s && wait_s * 1_000, create };
    const reading = octopi.subscribe(topic, options);
    await reading.ready;
    readings.set(as, reading);
  },
  next: async ({ as, count }) => {
    const messages = [];
    while (messages.length < count) {
      const { done, value } = await readings.get(as).next();
      if (done) break;
      messages.push(shown(value));
    }
    return messages;
  },
  position: ({ as }) => readings.get(as).position,
  reset: async () => {
    for (const client of clients.values()) await client().then((octopi) => octopi.close(), () => {});
    for (const names of [clients, producers, readings, sendings]) names.clear();
    await MEMBERS.closeMembers();
  },
  ...MEMBERS,
};

async function sendNumbered(octopi, topic, sending) {
  const receipts = [];
  while (sending.goesOn) receipts.push(shownReceipt(await octopi.publish(topic, String(receipts.length))));
  return receipts;
}

const shownReceipt = ({ partition, offset, nextOffset: next, duplicate }) => ({ partition, offset, next, duplicate });

function shown({ topic, partition, offset, nextOffset, timestamp, key, value, headers }) {
  const named = Object.fromEntries(Object.entries(headers).map(([name, one]) => [name, shownBytes(one)]));
  return { topic, partition, offset, next: nextOffset, timestamp, key: key && shownBytes(key), headers: named, value: shownBytes(value) };
}

function shownBytes(bytes) {
  if (bytes.length > 1000 && bytes.every((byte) => byte === 7)) return `${bytes.length} times 07`;
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function given(value) {
  if (typeof value === "string") return value;
  if ("hex" in value) return Uint8Array.from(value.hex.match(/../g) ?? [], (pair) => parseInt(pair, 16));
  return new Uint8Array(value.bytes).fill(7);
}

function start(from) {
  return from?.time === undefined ? from : new Date(from.time);
}

export async function perform(command, Octopi, url) {
  let timer;
  const late = new Promise((_, reject) => (timer = setTimeout(() => reject(new Error("nothing came")), PATIENCE_MS)));
  try {
    return { result: (await Promise.race([DEEDS[command.do](command, { Octopi, url }), late])) ?? null };
  } catch (error) {
    return error.code === undefined ? { failed: String(error.stack) } : { refused: error.code };
  } finally {
    clearTimeout(timer);
  }
}

if (globalThis.process?.argv?.[1]?.endsWith("driver.mjs")) {
  const { createInterface } = await import("node:readline");
  const [modules, url] = process.argv.slice(2);
  const { Octopi } = await import(`${modules}/octopi.js`);
  for await (const line of createInterface({ input: process.stdin })) {
    process.stdout.write(`${JSON.stringify(await perform(JSON.parse(line), Octopi, url))}\n`);
  }
  process.exit(0);
}
