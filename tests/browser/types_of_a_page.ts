import { Octopi, OctopiError, type From, type Message, type Reading, type DealtMessage, type Producer } from "./octopi.js";

const octopi: Octopi = await Octopi.connect(["ws://127.0.0.1:7000"], { token: async () => "t", name: "types", requestTimeout: 5_000 });
octopi.addEventListener("state", ({ detail }) => console.log(detail.state, detail.error?.code, detail.delay));
octopi.addEventListener("gap", (event) => console.log(event.detail.availableFrom), { once: true });
octopi.addEventListener("anything", (event: Event) => console.log(event.type));
const { partition, offset, duplicate }: { partition: number; offset: number; duplicate: boolean } = await octopi.publish(
  "orders", new Uint8Array([1]), { key: "customer", headers: { unit: "celsius", raw: new ArrayBuffer(1) } });
const pricing: Producer = await octopi.producer("pricing", { topics: ["prices"] });
console.log(pricing.name, (await pricing.publish("prices", "1", { key: "umbrella" })).offset);
const from: From = { last: 10 };
const reading: Reading = octopi.subscribe("orders", { from, waitForTopic: 30_000, create: false });
for await (const message of reading) {
  const text: string = message.text();
  const body: { celsius: number } = message.json<{ celsius: number }>();
  console.log(text, body.celsius, reading.position, partition, offset, duplicate);
}
for await (const batch of reading.batches()) batch.map((one: Message) => one.value.length);
const billing = await octopi.subscription("orders", { name: "billing", mode: "failover" });
for await (const message of billing) billing.mark(message);
const queue = await octopi.subscription("orders", { name: "work", mode: "shared", attempts: null });
for await (const dealt of queue) {
  const one: DealtMessage = dealt;
  one.reject(new Error("torn"));
}
for await (const list of queue.batches()) list.release(100);
try {
  const stale: number = await queue.commit();
  console.log(stale);
} catch (error) {
  if (error instanceof OctopiError && error.retryable) console.log(error.code);
}
// @ts-expect-error: a queue has attempts, a reading has not
octopi.subscribe("orders", { attempts: 3 });
// @ts-expect-error: the event has no such detail
octopi.addEventListener("gap", ({ detail }) => detail.delay);
await Octopi.connect("ws://127.0.0.1:7000", { WebSocket });
await octopi.close();
export {};
