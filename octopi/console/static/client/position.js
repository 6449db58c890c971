// A subscription's place in a topic as text, such as v1:orders@5f0c2a91d3e87b64:0=1234,3=99:
// version, topic, topic id, and for each partition the offset of the next record.  The same
// token is used by the clients in other languages (octopi/clients/position.py).

import { OctopiError } from "./errors.js";

const FORM = /^v1:([A-Za-z0-9._-]+)@([0-9a-f]{1,64}):((?:[0-9]{1,10}=[0-9]{1,20}(?:,(?!$)|$))*)$/;

export function formatPosition(topic, topicId, offsets) {
  const places = [...offsets].sort(([one], [other]) => one - other);
  return `v1:${topic}@${topicId}:${places.map(([partition, offset]) => `${partition}=${offset}`).join(",")}`;
}

// Topic, topic id, and a map of offsets by partition.
export function parsePosition(text) {
  const match = FORM.exec(text);
  const wrong = (why) => new OctopiError("invalid_option", `${JSON.stringify(text.slice(0, 80))} ${why}`);
  if (!match) throw wrong("is no position; one looks like 'v1:orders@5f0c2a...:0=1234,3=99'");
  const [, topic, topicId, places] = match;
  const offsets = new Map();
  for (const place of places ? places.split(",") : []) {
    const [partition, offset] = place.split("=").map(Number);
    if (offsets.has(partition)) throw wrong(`names partition ${partition} twice`);
    if (!Number.isSafeInteger(offset)) throw wrong("has an offset beyond what a number holds");
    offsets.set(partition, offset);
  }
  return { topic, topicId, offsets };
}
