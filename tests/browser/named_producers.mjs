// Named producers of octopi.js, a line of standard input after the other: "open" (begins a life of
// "pricing" in "prices"), "publish TEXT" or "hash TEXT"; answers with a line of JSON.

import { createInterface } from "node:readline";

const [modules, url] = process.argv.slice(2);
const { Octopi } = await import(`${modules}/octopi.js`);
const { sha256 } = await import(`${modules}/client/sha256.js`);
const octopi = url ? await Octopi.connect(url) : null;
let producer = null;

async function answer(deed, text) {
  if (deed === "hash") return Buffer.from(sha256(new TextEncoder().encode(text))).toString("hex");
  if (deed === "open") return (producer = await octopi.producer("pricing", { topics: ["prices"] })).name;
  if (deed === "open-badly") return (await octopi.producer("a b")).name;
  return (await producer.publish("prices", text)).duplicate;
}

for await (const line of createInterface({ input: process.stdin })) {
  const at = line.indexOf(" ");
  const words = at < 0 ? [line, ""] : [line.slice(0, at), line.slice(at + 1)];
  const told = await answer(...words).catch(({ code, message }) => ({ code, message }));
  process.stdout.write(`${JSON.stringify(told)}\n`);
}
process.exit(0);
