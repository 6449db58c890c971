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
  const ask = (partition, question, expected) => cluster.askLeader(info.topic, partition, question, expected, signal);
  const question = { type: "create_subscription", topic_id: info.topic_id, partitions, name, mode, options: optionsOnWire(wanted), start, create };
  const { definition } = await ask(partitions[0], question, "subscription_description");
  if (definition.state === "creating") {
    for (const partition of definition.partitions) await ask(partition, openMarks(definition, definition.start), "done");
    if (isQueue(definition.mode)) await haveDeadLetters(cluster, definition, info.options, signal);
    await ask(definition.partitions[0], { type: "finish_subscription", sid: definition.sid }, "done");
  }
  return definition;
}

function openMarks({ sid, topic_id, name, mode, options }, start) {
  return { type: "open_marks", topic_id, sid, name, mode, options, start };
}

// Opens the mark of one log again, at the log's start: all replicas of its partition have lost it,
// with the records that it was about.
export async function restoreMark(cluster, definition, partition, signal) {
  const { sid, topic, name, partitions } = definition;
  const found = await cluster.askLeader(topic, partitions[0], { type: "describe_subscription", name }, "subscription_description", signal);
  if (found.definition.sid !== sid || found.definition.state === "deleting") {
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
      return (await cluster.askRegisterOnce({ type: "describe_topic", topic: letters, create: false }, "topic_description")).topic;
    }
  }, signal);
  if (made.partitions.map((one) => one.partition).join() !== partitions.join()) {
    throw new OctopiError("invalid_option", `the topic ${letters} exists, for other partitions than ${topic}: dead letters need the same. Delete it, or give the subscription another name`);
  }
}
