// A reading's place in a topic as text, such as v1:orders@5f0c2a91d3e87b64:0=1234~7-1200,3=99:
// version, topic, topic id, and for each partition the offset of the next record, with the anchor
// of what stands before it.  The same token is used by the clients in other languages
// (octopi/position.py, which says what an anchor is; here it is text that is kept as it came).

import { OctopiError } from "./errors.js";

const NUMBER = "(?:0|[1-9][0-9]{0,18})";
const BEGUN = `[1-9][0-9]{0,18}-${NUMBER}`; // an epoch, and where its records begin
// Up to six of them, or an end with a digest.
const ANCHOR = `(?:${BEGUN}(?:\\.${BEGUN}){0,5}|${NUMBER}\\.[0-9a-f]{16})`;
const PLACE = `(?:0|[1-9][0-9]{0,9})=${NUMBER}(?:~${ANCHOR})?`;
const FORM = new RegExp(`^v1:([A-Za-z0-9._-]+)@([0-9a-f]{1,64}):((?:${PLACE}(?:,${PLACE})*)?)$`);
const ANCHOR_FORM = new RegExp(`^${ANCHOR}$`);
const INT64_MAX = 2n ** 63n - 1n;

// *places*: a map of { offset, anchor } by partition; an empty anchor: not known.
export function formatPosition(topic, topicId, places) {
  const sorted = [...places].sort(([one], [other]) => one - other);
  const text = sorted.map(([partition, { offset, anchor }]) => `${partition}=${offset}${anchor ? `~${anchor}` : ""}`);
  return `v1:${topic}@${topicId}:${text.join(",")}`;
}

// Topic, topic id, and a map of places by partition.
export function parsePosition(text) {
  const match = FORM.exec(text);
  const wrong = (why) => new OctopiError("invalid_option", `${JSON.stringify(text.slice(0, 80))} ${why}`);
  if (!match) throw wrong("is no position; one looks like 'v1:orders@5f0c2a...:0=1234~7-1200,3=99'");
  const [, topic, topicId, listed] = match;
  const places = new Map();
  for (const one of listed ? listed.split(",") : []) {
    const [partition, offset, anchor = ""] = one.split(/[=~]/);
    if (places.has(Number(partition))) throw wrong(`names partition ${partition} twice`);
    if (!Number.isSafeInteger(Number(offset))) throw wrong("has an offset beyond what a number holds");
    if (anchor && !isAnchor(anchor)) throw wrong("has an anchor that is none");
    places.set(Number(partition), { offset: Number(offset), anchor });
  }
  return { topic, topicId, places };
}

// Whether *text* can be an anchor.
export function isAnchor(text) {
  if (!ANCHOR_FORM.test(text)) return false;
  const numbers = text.includes("-") ? text.split(/[-.]/) : [text.split(".")[0]];
  return numbers.every((one) => BigInt(one) <= INT64_MAX);
}
