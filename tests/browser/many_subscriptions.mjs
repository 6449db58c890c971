// Opens hundreds of readings and subscriptions under one signal, aborts it, and prints how they
// ended and which warnings Node gave.

const [modules] = process.argv.slice(2);
const { Octopi } = await import(`${modules}/octopi.js`);

const warnings = new Set();
process.on("warning", ({ name }) => warnings.add(name));

const octopi = new Octopi("ws://127.0.0.1:1");
const stop = new AbortController();
const ends = [];
const ended = (promise) => ends.push(promise.catch((error) => error.name));
for (let number = 0; number < 200; number++) {
  const topic = `topic-${number}`;
  const { signal } = stop;
  ended(octopi.subscribe(topic, { signal }).next());
  ended(octopi.subscription(topic, { name: "log", signal }).then((one) => one.next()));
  ended(octopi.subscription(topic, { name: "queue", mode: "shared", signal }).then((one) => one.next()));
  ended(octopi.publish(topic, "hello", { signal }));
}
await new Promise((resolve) => setTimeout(resolve, 50)); // warnings come in a later turn
stop.abort();
const names = await Promise.all(ends);
await octopi.close();
await new Promise((resolve) => setImmediate(resolve));
process.stdout.write(JSON.stringify({ count: names.length, names: [...new Set(names)], warnings: [...warnings] }));
