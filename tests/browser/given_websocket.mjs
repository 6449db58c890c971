// Connects where no WebSocket is global, as in Node 20: without a class, then with one.

const [modules, url] = process.argv.slice(2);
const { Octopi } = await import(`${modules}/octopi.js`);

const Given = class extends globalThis.WebSocket {};
delete globalThis.WebSocket;

const began = performance.now();
const why = await Octopi.connect(url).catch(({ code, message, retryable }) => ({ code, message, retryable }));
const ms = performance.now() - began;
const octopi = await Octopi.connect(url, { WebSocket: Given });
const { offset } = await octopi.publish("greetings", "hello");
await octopi.close();
process.stdout.write(JSON.stringify({ why, ms, offset }));
