// The cluster's history: what nodes wrote to the topics `_octopi.*` before this page was opened.
// Where it is not written, or the token may not read it, the page begins with nothing, as before.

import { Octopi } from "../octopi.js";

const RATES = "_octopi.rates";
const EVENTS = "_octopi.events";
const FORMAT = 1;
const READ_FOR_MS = 5_000; // then the page goes on with what has come, or with nothing
const EVENTS_READ = 1_000;

export const SPAN_MS = 1_800_000; // of the charts

// What is known of the time before: { rates, events }, both oldest first.
export async function readHistory(feed) {
  const client = await Octopi.connect(feed.pages.server, { name: "console", token: () => feed.pages.token });
  try {
    const [rates, events] = await Promise.all([
      feed.may("subscribe", RATES) ? messagesOf(client, RATES, new Date(Date.now() - SPAN_MS)) : [],
      feed.may("subscribe", EVENTS) ? messagesOf(client, EVENTS, { last: EVENTS_READ }) : [],
    ]);
    return { rates, events };
  } finally {
    client.close();
  }
}

// Null: it is something else, as a cluster without keys lets everybody write.
function contentOf(message) {
  try {
    return message.json();
  } catch {
    return null;
  }
}

// The messages from *from* up to the end of the topic; none, if there is no such topic.
async function messagesOf(client, topic, from) {
  const reading = client.subscribe(topic, { from, partition: "all", onGap: "skip", onFork: "resume" });
  const timer = setTimeout(() => reading.unsubscribe(), READ_FOR_MS);
  const found = [];
  try {
    for await (const batch of reading.batches()) {
      found.push(...batch.map(contentOf).filter((one) => one?.format === FORMAT));
      if (reading.lagBytes + reading.bufferedBytes === 0) break;
    }
  } catch {
    // The page shows what comes from now on.
  } finally {
    clearTimeout(timer);
    reading.unsubscribe();
  }
  return found;
}
