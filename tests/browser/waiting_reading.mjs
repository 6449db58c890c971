// Reads a topic that isn't there yet: gives up, is aborted, waits until another client has made it.

const [modules, url] = process.argv.slice(2);
const { Octopi } = await import(`${modules}/octopi.js`);
const octopi = await Octopi.connect(url);
const other = await Octopi.connect(url);

const began = performance.now();
const why = await octopi.subscribe("orders", { waitForTopic: 700 }).next().catch(({ code, message }) => ({ code, message }));
const ms = performance.now() - began;

const stop = new AbortController();
const aborted = octopi.subscribe("orders", { waitForTopic: 60_000, signal: stop.signal }).next();
setTimeout(() => stop.abort(), 50);
const reason = await aborted.catch(({ name }) => name);

const reading = octopi.subscribe("orders", { waitForTopic: 60_000, from: { last: 1 } });
for (const text of ["first", "second"]) await other.publish("orders", text);
const read = [(await reading.next()).value.text(), (await reading.next()).value.text()];

const made = octopi.subscribe("returns", { create: true });
await made.ready;
await other.publish("returns", "a parasol");
read.push((await made.next()).value.text());
await octopi.close();
await other.close();
process.stdout.write(JSON.stringify({ why, ms, reason, read }));
