// Publishes and reads with octopi.js, a line of standard input after the other: "publish TEXT" or
// "read COUNT" (from where it read last), or "prove COUNT", which computes digests, or "behind ID", for what follows a message; answers with a line
// of JSON, or the code of an error.

import { createInterface } from "node:readline";

const [modules, url] = process.argv.slice(2);
const { Octopi } = await import(`${modules}/octopi.js`);
const octopi = await Octopi.connect(url.split(","));
const toHex = (bytes) => Buffer.from(bytes).toString("hex");
const readings = new Map(); // not before they are asked for: a reading would notice that its broker dies

for await (const line of createInterface({ input: process.stdin })) {
  const [deed, argument] = line.split(" ");
  let answer = null;
  if (deed === "publish") {
    const { offset, duplicate, id, digest } = await octopi.publish("orders", argument);
    answer = { offset, duplicate, id: id && toHex(id), digest: digest && toHex(digest) };
  } else if (deed === "behind") {
    const from = new Uint8Array(Buffer.from(argument, "hex"));
    const reading = octopi.subscribe("orders", { from });
    answer = await reading.next().then(({ value }) => value.text(), ({ code }) => code);
    reading.unsubscribe();
  } else {
    if (!readings.has(deed)) readings.set(deed, octopi.subscribe("orders", { from: "earliest", proven: deed === "prove" }));
    answer = [];
    try {
      while (answer.length < Number(argument)) {
        const { value } = await readings.get(deed).next();
        answer.push(new TextDecoder().decode(value.value));
      }
    } catch ({ code }) {
      answer = code;
    }
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
process.exit(0);
