// What an operator changes: through a connection to a node, with the messages that commands use.
// The node checks the token for each of them.

import { Cluster } from "../client/cluster.js";
import { OctopiError } from "../client/errors.js";

const ATTEMPT_MS = 20_000;
const DRAIN_MS = 60_000; // as the register has it
const MOVE_MS = 3_600_000; // a replica is copied meanwhile
const MIN_DELAY_MS = 100;
const MAX_DELAY_MS = 5_000;
const NO_CLAIM = 0;
export const TOPIC_DEFAULTS = { retention_ms: null, retention_bytes: null, segment_bytes: null, flush_before_ack: false, min_insync: 1 }; // as TopicOptions

export class Admin {
  // *server*: a function that names the node that answers now (ws://host:port).
  constructor(server, token) {
    this.#server = server;
    this.#token = token;
  }
  #server;
  #token;

  // *options*: as TopicOptions, without those that have their default.
  createTopic(topic, partitions, options) {
    return this.#ask({ type: "create_topic", topic, partition_count: partitions, partitions: null, options: { ...TOPIC_DEFAULTS, ...options } }, "topic_description");
  }

  // Changes those options that *names* has.  Resolves with the topic's description.
  alterTopic(topic, names, options) {
    return this.#ask({ type: "alter_topic", topic, names, options: { ...TOPIC_DEFAULTS, ...options } }, "topic_description", { since: 2 });
  }

  deleteTopic(topic) {
    return this.#ask({ type: "delete_topic", topic }, "done");
  }

  drainBroker(broker) {
    return this.#ask({ type: "drain_broker", broker }, "done", { timeoutMs: DRAIN_MS });
  }

  moveReplica(partition, leaving, joining) {
    return this.#ask({ type: "move_replica", partition, leaving, joining }, "done", { timeoutMs: MOVE_MS });
  }

  // Sets the mark of a subscription in each log; *at* and *value* as in find_offset.  *force*: also
  // where a member has the log, which is fenced.  Resolves with the offsets.
  async resetSubscription(topic, name, at, value, force) {
    return this.#using(async (cluster) => {
      const info = await cluster.retry(() => cluster.topic(topic, { anew: true }));
      const [coordinator] = info.partitions.map((one) => one.partition);
      const { definition } = await cluster.askLeader(topic, coordinator, { type: "describe_subscription", name }, "subscription_description");
      const reset = [];
      for (const log of definition.partitions) {
        const { offset } = await cluster.askLeader(topic, log, { type: "find_offset", at, value }, "found_offset");
        await resetLog(cluster, definition, log, offset, force);
        reset.push({ partition: log, offset });
      }
      return reset;
    });
  }

  // Once: a repetition would be refused if the first one was carried out and its answer lost.
  // *since*: the version of the protocol that the message came with.
  #ask(message, expected, { timeoutMs = ATTEMPT_MS, since = 1 } = {}) {
    return this.#using(async (cluster) => {
      const connection = await cluster.retry(() => cluster.connection(this.#server()));
      if (connection.greeting.version < since) throw new OctopiError("unsupported_version", `${connection.url} is of an earlier version, without ${message.type}`);
      return connection.request(message, expected, timeoutMs, true);
    });
  }

  async #using(act) {
    const cluster = new Cluster([this.#server()], { token: this.#token() || null, name: "console", minDelay: MIN_DELAY_MS, maxDelay: MAX_DELAY_MS, requestTimeout: ATTEMPT_MS });
    try {
      return await act(cluster);
    } finally {
      cluster.close(new Error("it is done"));
    }
  }
}

// First the coordinator takes the log from its member, then the log's leader sets the mark, then
// the coordinator assigns the log again.  The log's leader may know a newer claim.
async function resetLog(cluster, definition, log, offset, force) {
  try {
    await resetFrom(cluster, definition, log, offset, force, NO_CLAIM);
  } catch (error) {
    if (error.code !== "member_fenced") throw error;
    const { claim } = await cluster.askLeader(definition.topic, log, { type: "describe_marks", sid: definition.sid }, "marks_description");
    await resetFrom(cluster, definition, log, offset, force, claim);
  }
}

async function resetFrom(cluster, { topic, sid, partitions }, log, offset, force, newest) {
  const [coordinator] = partitions;
  const { claim } = await cluster.askLeader(topic, coordinator, { type: "reset_subscription", sid, log, offset, force, newest }, "reset_begun");
  await cluster.askLeader(topic, log, { type: "set_mark", sid, claim, offset }, "done");
  await cluster.askLeader(topic, coordinator, { type: "finish_reset", sid, log, claim }, "done");
}
