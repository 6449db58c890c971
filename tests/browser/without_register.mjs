// Publishes and reads with octopi.js, a line of standard input after the other: "publish TEXT" or
// "read COUNT" (from where it read last); answers with a line of JSON.

import { createInterface } from "node:readline";

const [modules, url] = process.argv.slice(2);
const { Octopi } = await import(`${modules}/octopi.js`);
const octopi = await Octopi.connect(url.split(","));
const toHex = (bytes) => Buffer.from(bytes).toString("hex");
let messages = null; // not before it is asked for: a reading would notice that its broker dies

for await (const line of createInterface({ input: process.stdin })) {
  const [deed, argument] = line.split(" ");
  let answer = null;
  if (deed === "publish") {
    const { offset, duplicate, id, digest } = await octopi.publish("orders", argument);
    answer = { offset, duplicate, id: id && toHex(id), digest: digest && toHex(digest) };
  } else {
    messages ??= octopi.subscribe("orders", { from: "earliest" })[Symbol.asyncIterator]();
    answer = [];
    while (answer.length < Number(argument)) {
      const { value } = await messages.next();
      answer.push(new TextDecoder().decode(value.value));
    }
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
process.exit(0);
