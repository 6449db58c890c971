// Carries out conformance.json with the JavaScript client, in a page or in Node, and returns what
// it saw; tests/browser/conformance.py does the same with the Python client.

export async function carryOut(Octopi, url, prefix, steps) {
  const octopi = await Octopi.connect(url);
  const saved = {};
  const seen = [];
  for (const step of steps) {
    try {
      seen.push(step.do === "publish" ? await publish(octopi, prefix, step) : await read(octopi, prefix, step, saved));
    } catch (error) {
      seen.push(`refused: ${error.code ?? error}`);
    }
  }
  await octopi.close();
  return seen;
}

async function publish(octopi, prefix, { topic, messages }) {
  const receipts = [];
  for (const { value, bytes, key, headers, timestamp, partition } of messages) {
    const content = bytes === undefined ? value : new Uint8Array(bytes).fill(7);
    const named = Object.fromEntries(Object.entries(headers ?? {}).map(([name, hex]) => [name, fromHex(hex)]));
    const receipt = await octopi.publish(prefix + topic, content, { key, headers: named, timestamp, partition });
    receipts.push([receipt.partition, receipt.offset, receipt.duplicate]);
  }
  return receipts;
}

async function read(octopi, prefix, { topic, partition, from, count, save }, saved) {
  const reading = octopi.subscribe(prefix + topic, { partition: partition ?? "all", from: start(from, prefix, saved) });
  const messages = [];
  for await (const one of reading) {
    const headers = Object.entries(one.headers).map(([name, value]) => [name, toHex(value)]);
    const value = one.value.length > 1000 ? `${one.value.length} bytes` : toHex(one.value);
    messages.push([one.partition, one.offset, one.nextOffset, one.timestamp, one.key && toHex(one.key), headers, value]);
    if (messages.length === count) break;
  }
  if (save) saved[save] = reading.position;
  messages.sort((one, other) => one[0] - other[0] || one[1] - other[1]);
  return { messages, position: reading.position.replace(/^v1:.*@.*?:/, "") };
}

function start(from, prefix, saved) {
  if (from?.ahead) return saved[from.saved].replace(/=(\d+)/, (_, offset) => `=${Number(offset) + from.ahead}`);
  if (from?.saved) return from.of ? saved[from.saved].replace(/@.*?:/, `@${from.of}:`) : saved[from.saved];
  if (from?.last) return from;
  if (typeof from === "object") return new Date(from.at);
  return from;
}

const toHex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
const fromHex = (text) => Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));

if (globalThis.process?.argv?.[1]?.endsWith("conformance.mjs")) {
  const { readFileSync } = await import("node:fs");
  const [modules, url, prefix, script] = process.argv.slice(2);
  const { Octopi } = await import(`${modules}/octopi.js`);
  const steps = JSON.parse(readFileSync(script, "utf-8"));
  process.stdout.write(JSON.stringify(await carryOut(Octopi, url, prefix, steps)));
}
