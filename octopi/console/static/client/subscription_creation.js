// Makes durable subscriptions.  Each step can be repeated, and what one client leaves unfinished,
// another one finishes.

import { OctopiError } from "./errors.js";
import { deadLetterTopic, isQueue, optionsOnWire } from "./subscription_options.js";

// The definition of a subscription, which is made if that is wanted and it isn't there, with a mark
// in each log.
export async function haveSubscription(cluster, topic, wanted, signal) {
  const { name, mode, start, create } = wanted;
  const info = await cluster.retry(() => cluster.topic(topic, { anew: true }), signal);
  if (isQueue(mode)) deadLetterTopic(info.topic, name);
  const partitions = info.partitions.map((one) => one.partition);
  const question = { type: "create_subscription", topic_id: info.topic_id, partitions, name, mode, options: optionsOnWire(wanted), start, create };
  const { definition } = await cluster.askLeader(info.topic, partitions[0], question, "subscription_description", signal);
  if (definition.state === "creating") await openAll(cluster, definition, definition.start, info.options, signal);
  return definition;
}

// Creates the subscription *name* to its end again, if it is still the one with *sid* and that is
// needed: all replicas that knew the end of its creation may have lost that.  A log that lost its mark
// as well begins at its start.
export async function finishCreation(cluster, { topic, coordinator, name, sid }, signal) {
  const { options } = await cluster.retry(() => cluster.topic(topic, { anew: true }), signal);
  const definition = await describe(cluster, topic, coordinator, name, signal);
  if (definition.sid === sid && definition.state === "creating") await openAll(cluster, definition, "earliest", options, signal);
}

// Has the subscription begin at *start* in each log without its mark, makes the topic for dead letters,
// and says so to the coordinator.
async function openAll(cluster, definition, start, options, signal) {
  const { topic, sid, mode, partitions } = definition;
  for (const partition of partitions) await cluster.askLeader(topic, partition, openMarks(definition, start), "done", signal);
  if (isQueue(mode)) await haveDeadLetters(cluster, definition, options, signal);
  await cluster.askLeader(topic, partitions[0], { type: "finish_subscription", sid }, "done", signal);
}

async function describe(cluster, topic, coordinator, name, signal) {
  const found = await cluster.askLeader(topic, coordinator, { type: "describe_subscription", name }, "subscription_description", signal);
  return found.definition;
}

function openMarks({ sid, topic_id, name, mode, options }, start) {
  return { type: "open_marks", topic_id, sid, name, mode, options, start };
}

// Opens the mark of one log again, at the log's start: all replicas of its partition have lost it,
// with the records that it was about.
export async function restoreMark(cluster, definition, partition, signal) {
  const { sid, topic, name, partitions } = definition;
  const found = await describe(cluster, topic, partitions[0], name, signal);
  if (found.sid !== sid || found.state === "deleting") {
    throw new OctopiError("unknown_subscription", `${topic}: the subscription ${name} was deleted`);
  }
  await cluster.askLeader(topic, partition, openMarks(definition, "earliest"), "done", signal);
}

// Has the topic for the dead letters of a queue, beside its topic.
async function haveDeadLetters(cluster, { topic, name, partitions }, options, signal) {
  const { flush_before_ack, min_insync } = options;
  const letters = deadLetterTopic(topic, name);
  const question = {
    type: "create_topic",
    topic: letters,
    partition_count: 0,
    partitions: null,
    options: { retention_ms: null, retention_bytes: null, segment_bytes: null, flush_before_ack, min_insync },
    beside: topic,
  };
  const made = await cluster.retry(async () => {
    try {
      return (await cluster.askRegisterOnce(question, "topic_description")).topic;
    } catch (error) {
      if (error.code !== "topic_exists") throw error;
      return (await cluster.askRegisterOnce({ type: "describe_topic", topic: letters, create: false }, "topic_description", true)).topic;
    }
  }, signal);
  if (made.partitions.map((one) => one.partition).join() !== partitions.join()) {
    throw new OctopiError("invalid_option", `the topic ${letters} exists, for other partitions than ${topic}: dead letters need the same. Delete it, or give the subscription another name`);
  }
}
