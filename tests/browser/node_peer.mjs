// Does what the tests ask, one line of JSON after the other, with the modules of octopi.js.
// Values go to and fro as [type, content], because JSON has neither bytes nor large integers.

import { createInterface } from "node:readline";

const [modules] = process.argv.slice(2);
const { decode, encode } = await import(`${modules}/client/cbor.js`);
const { CODES, statusTable } = await import(`${modules}/client/errors.js`);
const { formatPosition, parsePosition } = await import(`${modules}/client/position.js`);
const { Trail } = await import(`${modules}/client/trail.js`);
const { OctopiError } = await import(`${modules}/client/errors.js`);
const { Cluster } = await import(`${modules}/client/cluster.js`);
const { Admin } = await import(`${modules}/console/admin.js`);
const { Entrances } = await import(`${modules}/client/entrances.js`);
const { Membership } = await import(`${modules}/client/membership.js`);
const { Route } = await import(`${modules}/client/route.js`);
const { GroupSession, joinRemedy } = await import(`${modules}/client/group_session.js`);
const { attachRemedy, MarkSession } = await import(`${modules}/client/mark_session.js`);
const { SubscribedLog } = await import(`${modules}/client/subscribed_log.js`);
const { DealtLog } = await import(`${modules}/client/dealt_log.js`);
const { queueRemedy } = await import(`${modules}/client/queue_answers.js`);
const { DigestChain } = await import(`${modules}/client/digest_chain.js`);
const { QueueSession } = await import(`${modules}/client/queue_session.js`);
const { optionsOnWire, subscriptionOptions } = await import(`${modules}/client/subscription_options.js`);
const { crc32, encodeRecords, prepare, readRecords } = await import(`${modules}/client/record.js`);

const toHex = (bytes) => Buffer.from(bytes).toString("hex");
const fromHex = (text) => new Uint8Array(Buffer.from(text, "hex"));

function describe(value) {
  if (value === null) return ["null", null];
  if (typeof value === "boolean") return ["boolean", value];
  if (typeof value === "number" || typeof value === "bigint") return ["integer", String(value)];
  if (typeof value === "string") return ["text", value];
  if (value instanceof Uint8Array) return ["bytes", toHex(value)];
  if (Array.isArray(value)) return ["array", value.map(describe)];
  return ["map", Object.entries(value).map(([key, one]) => [key, describe(one)])];
}

function build([type, content]) {
  if (type === "integer") return Number.isSafeInteger(Number(content)) ? Number(content) : BigInt(content);
  if (type === "bytes") return fromHex(content);
  if (type === "array") return content.map(build);
  if (type === "map") {
    const map = Object.create(null);
    for (const [key, one] of content) map[key] = build(one);
    return map;
  }
  return content;
}

const DEEDS = {
  digests: ({ anchor, deliveries }) => {
    const chain = new DigestChain("prices/3", anchor);
    let taken = 0;
    try {
      for (const [offset, records, proof] of deliveries) {
        chain.take(offset, fromHex(records), proof && fromHex(proof));
        taken++;
      }
      return { taken, code: "", offset: null };
    } catch ({ code, offset }) {
      return { taken, code, offset: offset ?? null };
    }
  },
  decode: (hex) => describe(decode(fromHex(hex))),
  encode: (value) => toHex(encode(build(value))),
  crc32: (hex) => crc32(fromHex(hex)),
  readRecords: ({ hex, offset }) => {
    const messages = [];
    let error = "";
    try {
      for (const one of readRecords(fromHex(hex), offset, "t", 0)) {
        messages.push({
          offset: one.offset,
          nextOffset: one.nextOffset,
          timestamp: one.timestamp,
          key: one.key && toHex(one.key),
          value: toHex(one.value),
          headers: Object.entries(one.headers).map(([name, value]) => [name, toHex(value)]),
        });
      }
    } catch (caught) {
      error = caught.code ?? String(caught);
    }
    return { messages, error };
  },
  encodeRecords: ({ messages, producer, epoch, sequence }) => {
    const prepared = messages.map(({ value, key, headers, timestamp }) =>
      prepare(fromHex(value), key === null ? null : fromHex(key), Object.fromEntries(headers.map(([name, one]) => [name, fromHex(one)])), timestamp),
    );
    return toHex(encodeRecords(prepared, fromHex(producer), epoch, sequence));
  },
  parsePosition: (text) => {
    const { topic, topicId, places } = parsePosition(text);
    return { topic, topicId, places: [...places].map(([one, { offset, anchor }]) => [one, offset, anchor]) };
  },
  formatPosition: ({ topic, topicId, places }) =>
    formatPosition(topic, topicId, new Map(places.map(([one, offset, anchor]) => [one, { offset, anchor }]))),
  trail: ({ start, steps }) => {
    const trail = new Trail(...start);
    return steps.map(([step, ...rest]) => {
      trail[step](...rest);
      return [trail.offset, trail.anchor];
    });
  },
  entrances: ({ given, steps }) => {
    const entrances = new Entrances(given);
    return steps.map(([step, ...rest]) => {
      entrances[step](...rest);
      return [entrances.current, entrances.patienceMs === Infinity ? null : entrances.patienceMs];
    });
  },
  // A client whose nodes are played: see `playedNodes`.
  questions: async ({ nodes, given, requestTimeout = 30_000, ask }) => {
    const asked = [];
    const said = [];
    const cluster = new Cluster(given, { name: "", minDelay: 1, maxDelay: 2, requestTimeout, WebSocket: playedNodes(nodes, asked, said) });
    const results = [];
    for (const { type, isLookup = false } of ask) {
      try {
        const { topics } = await cluster.retry(() => cluster.askRegisterOnce({ type }, "topic_list", isLookup));
        results.push(topics);
      } catch ({ code, message }) {
        results.push({ code, message });
      }
    }
    cluster.close(new OctopiError("closed", ""));
    return { results, asked, said };
  },
  // The console alters a topic at a node that is played.
  alter: async ({ nodes, given: [server] }) => {
    const asked = [];
    globalThis.WebSocket = playedNodes(nodes, asked);
    const code = await new Admin(() => server, () => null).alterTopic("orders", ["min_insync"], { min_insync: 2 }).then(() => "", (error) => error.code);
    return { code, asked };
  },
  // A topic that got other partitions while it was in use is looked for.
  "topic that grew": async () => {
    const cluster = new Cluster(["ws://register"], {});
    const generations = [{ number: 1, partitions: [0], sealed: [7] }, { number: 2, partitions: [5], sealed: [] }];
    cluster.askRegisterOnce = async () => ({ topic: { topic: "orders", partitions: [], generations, sealed_partitions: [] } });
    return cluster.topic("orders").then(() => "", ({ code, message, retryable }) => ({ code, message, retryable }));
  },
  // Two that look for a topic at the same time, of which the second one has it created.
  "topic twice": async () => {
    const cluster = new Cluster(["ws://register"], {});
    const asked = [];
    cluster.askRegisterOnce = async ({ create }) => {
      asked.push(create);
      if (!create) throw new OctopiError("unknown_topic", "there is none");
      return { topic: { partitions: [] } };
    };
    const [one, other] = await Promise.allSettled([cluster.topic("orders"), cluster.topic("orders", { create: true })]);
    return [one.reason?.code, other.status, asked];
  },
  // A member whose coordinator answers each attempt to join with one of *answers*: null, an assignment
  // and then not_ready, or the code of a refusal.  *found*: the definition that it describes.
  membership: async ({ answers, found }) => {
    const done = [];
    const cluster = new Cluster(["ws://register"], { minDelay: 0, maxDelay: 0, requestTimeout: 100 });
    const place = (partition) => ({ partition, epoch: 1, leader: 1, leader_address: "ws://broker", readers: [] });
    cluster.askRegisterOnce = async ({ type, topic }) => {
      if (type !== "describe_topic") done.push(`${type} ${topic}`);
      return { topic: { topic, options: {}, partitions: [place(0), place(1)] } };
    };
    const request = async ({ type, partition, start }) => {
      done.push([type, partition, start].filter((one) => one !== undefined).join(" "));
      return { definition: found };
    };
    const ask = ({ request, type }, hear) => {
      done.push(type);
      const answer = answers.length ? answers.shift() : "forbidden";
      if (answer === null) hear({ type: "assignment", request, member: "w1", add: [], release: [] });
      const status = { not_ready: 41, forbidden: 71 }[answer ?? "not_ready"];
      setTimeout(() => hear({ type: "failure", request, status, reason: "" }));
    };
    cluster.connection = async () => ({ nextRequest: () => 7, watch: () => () => {}, forget: () => {}, post: () => {}, ask, request });
    const options = { topic: "orders", coordinator: 0, sid: "s1", name: "billing", member: "", takeOver: false, sessionTimeoutMs: 10_000, joinTimeoutMs: 10_000 };
    const member = new Membership(cluster, options, { now: () => 0 }, { perform: () => {}, onTrouble: () => {} });
    const why = await member.run(new AbortController().signal).catch((error) => error.code);
    return { why, done };
  },
  // A member's log whose leader has lost the mark; it is told what the leader answers once it is
  // restored, unless the subscription is *deleted*.
  "lost mark": async ({ deleted }) => {
    const told = [];
    const cluster = new Cluster(["ws://register"], { minDelay: 0, maxDelay: 0, requestTimeout: 100 });
    cluster.topic = async () => ({ topic_id: "t1", partitions: [{ partition: 3, epoch: 1, leader: 1, leader_address: "ws://broker", readers: [] }] });
    let isRestored = false;
    const ask = ({ type, request, offset }, hear) => {
      told.push(offset === undefined ? type : [type, offset]);
      if (type !== "attach") return;
      const attached = { type: "attached", request, mark: 0, claim: 1, log_start: 0, lost_from: null, lost_to: null, anchor: "" };
      setTimeout(() => hear(isRestored ? attached : { type: "failure", request, status: 80, reason: "no mark" }));
    };
    cluster.connection = async () => ({ nextRequest: () => 7, watch: () => () => {}, forget: () => {}, post: () => {}, ask });
    const how = { topic: "orders", topicId: "t1", sid: "s1", window: 1_000, isAuto: true, skipGaps: false, sessionTimeoutMs: 10_000, releaseTimeoutMs: 0 };
    const over = await new Promise((resolve) => {
      const log = new SubscribedLog(cluster, how, "w1", 3, 1, { now: () => 0 }, {
        restoreMark: async () => {
          if (deleted) throw new OctopiError("unknown_subscription", "it was deleted");
          isRestored = true;
          told.push("restored");
        },
        onNews: () => log?.error && resolve(log),
        onGap: () => {},
        onFork: ({ offset, readUntil }) => told.push(["fork", offset, readUntil]) && setTimeout(() => resolve(log), 20),
        onTrouble: () => {},
      });
    });
    over.abandon();
    return { told, error: over.error?.code ?? null };
  },
  // A register that may be away, and a client that looks for a leader.
  route: async (steps) => {
    let register = null;
    const cluster = new Cluster(["ws://register"], {});
    cluster.askRegisterOnce = async () => {
      if (register === null) throw new OctopiError("unreachable", "no node answers");
      if (register.length === 0) throw new OctopiError("not_ready", "a broker can't reach the register");
      const [leader, epoch, readers] = register;
      return { topic: { partitions: [{ partition: 0, epoch, leader: 1, leader_address: leader, readers }] } };
    };
    const route = new Route(cluster, "orders", 0);
    const results = [];
    for (const [step, ...rest] of steps) {
      if (step === "register") register = rest.length ? rest : null;
      if (step === "unready") register = [];
      if (step === "redirected") {
        const error = new OctopiError(rest[0], "", { address: rest[1], epoch: rest[2] });
        results.push(route.redirected(error), error.tried ?? null);
      }
      if (step === "arrived") route.arrived();
      if (step === "find") results.push(await route.find().catch((error) => error.code));
    }
    return results;
  },
  groupSession: ({ member, steps }) => {
    const session = new GroupSession(member);
    return steps.map(([step, ...rest]) => [session[step](...rest), session.held, session.member]);
  },
  markSession: (steps) => {
    const marks = new MarkSession(1_000);
    let now = 100_000;
    const seen = [];
    for (const [step, ...rest] of steps) {
      let sent = [];
      if (step === "pass") now += rest[0];
      else if (step === "want") marks.isWanted = rest[0];
      else if (step === "attached" || step === "mark") sent = marks[step](rest[0], now, rest[1]);
      else if (step === "isSetBack") sent = marks.isSetBack(...rest) ? [{ offset: -1, acknowledge: null, anchor: "" }] : [];
      else if (step === "beginAgain") marks.beginAgain();
      else if (step === "acknowledged") marks.acknowledged(rest[0]);
      else sent = marks[step](now) ?? [];
      seen.push([
        sent.map(({ offset, acknowledge, anchor }) => [offset, acknowledge, anchor]),
        [marks.isAttached, marks.start, marks.marked, marks.confirmed, marks.isSettled, marks.mayHandOut(now), marks.dueAt()],
      ]);
    }
    return seen;
  },
  queueSession: ({ prefetch, isOrdered, steps }) => {
    const session = new QueueSession(1_000, prefetch, 1_000, isOrdered);
    const hands = []; // what the page has taken, answered or not
    let now = 100_000;
    const seen = [];
    for (const [step, ...rest] of steps) {
      let effects = [];
      const chosen = (places) => (hands.length ? places.map((place) => hands[place % hands.length]) : []);
      if (step === "pass") now += rest[0];
      else if (step === "attaching") effects = [session.attaching()];
      else if (step === "attach") {
        effects = [session.attaching()];
        session.attached();
      } else if (step === "disconnected") session.disconnected();
      else if (step === "dealt") {
        if (session.isAttached) session.dealt(...rest.slice(0, 3), now, rest[3]);
      } else if (step === "take") hands.push(...[session.take(now)].filter((one) => one));
      else if (step === "takeAll") hands.push(...session.takeAll(now));
      else if (step === "acknowledge") effects = session.acknowledge(chosen(rest[0]), now);
      else if (step === "release") effects = session.release(chosen(rest[0]), rest[1], now);
      else if (step === "reject") for (const one of chosen([rest[0]])) effects = session.reject(one, rest[1], now);
      else if (step === "extend") for (const one of chosen([rest[0]])) effects = session.extend(one, now);
      else if (step === "confirm") effects = session.confirm(now).flat();
      else if (step === "settled") effects = session.settled(...rest, now);
      else effects = session[step](now);
      seen.push([
        effects,
        [session.isAttached, session.openCount, session.isResuming, session.staleCount, session.isConfirmed(1), session.isConfirmed(3), session.dueAt()],
        hands.map((one) => [one.offset, one.attempt, one.isVoid, one.isAnswered, session.deadline(one)]),
        session.seen,
      ]);
    }
    return seen;
  },
  // One log of a queue, whose leader the test plays.
  dealtLog: async ({ isOrdered = false, deleted = false, steps }) => {
    const [asked, posted, told, seen, taken] = [[], [], [], [], []];
    let hear = null; // takes what the leader says
    let now = 0;
    const until = async (holds) => {
      for (let waits = 5_000; !holds(); waits--) {
        if (!waits) throw new Error("it never came to that");
        await new Promise((resolve) => setTimeout(resolve, 1));
      }
    };
    const cluster = new Cluster(["ws://register"], { minDelay: 1, maxDelay: 2, requestTimeout: 30_000 });
    cluster.topic = async () => ({ partitions: [{ partition: 3, epoch: 1, leader: 1, leader_address: "ws://broker", readers: [] }] });
    const connection = {
      nextRequest: () => 7,
      watch: () => () => {},
      forget: () => (hear = null),
      ask: (message, onAnswer) => {
        asked.push(message);
        hear = onAnswer;
      },
      post: (message) => posted.push(message),
    };
    cluster.connection = async () => connection;
    const how = { topic: "orders", sid: "0".repeat(16), ackTimeoutMs: 30_000, prefetchCount: 10, prefetchBytes: 1_000_000, isOrdered };
    const log = new DealtLog(cluster, how, () => "w1", 3, { now: () => now }, {
      restoreMark: async () => {
        if (deleted) throw new OctopiError("unknown_subscription", "it was deleted");
        told.push("restored");
      },
      onNews: () => {},
      onGap: (gap) => told.push(["gap", gap]),
      onFork: (fork) => told.push(["fork", fork]),
      onTrouble: () => {},
    });
    const keep = (message) => {
      if (message) taken.push(message);
      return message && [message.text(), message.offset, message.attempt, message.partition];
    };
    const deeds = {
      pass: (ms) => (now += ms),
      attached: async (facts = {}) => {
        await until(() => hear);
        hear({ type: "attached", request: 7, mark: 0, claim: 0, log_start: 0, lost_from: null, lost_to: null, anchor: "", ...facts });
      },
      deal: (offsets, attempts, hex) => hear({ type: "deal", request: 7, offsets, attempts, records: fromHex(hex) }),
      hear: (message) => hear({ request: 7, ...message }),
      end: async (status) => {
        const { length } = asked;
        hear({ type: "detached", request: 7, status, reason: "" });
        await until(() => log.error || (hear && asked.length > length));
      },
      ended: () => until(() => log.error),
      again: (count = 2) => until(() => hear && asked.length >= count),
      take: () => keep(log.nextMessage()),
      answer: (place, deed, ...rest) => taken[place][deed](...rest),
      answered: (place) => taken[place].isAnswered,
      batch: (...rest) => {
        const batch = log.nextBatch();
        if (!batch) return null;
        batch[0].reject("no");
        batch[rest.length ? "release" : "acknowledge"](...rest);
        return [batch.length, batch.map(({ offset }) => offset).constructor === Array];
      },
      commit: () => log.commit().then(() => told.push("committed")) && null,
      posted: () => posted.splice(0),
      stale: () => log.staleCount,
      close: () => log.close(),
    };
    for (const [step, ...rest] of steps) {
      try {
        seen.push((await deeds[step](...rest)) ?? null);
      } catch (error) {
        seen.push(error.code ?? String(error));
      }
    }
    log.close();
    await until(() => !hear);
    return { seen, told, asked, posted, error: log.error?.code ?? null };
  },
  remedies: () =>
    Object.fromEntries(
      [...CODES.keys()].map((code) => {
        const error = new OctopiError(code, "");
        return [code, [joinRemedy(error), attachRemedy(error), queueRemedy(error)]];
      }),
    ),
  subscriptionOptions: (given) => optionsOnWire(subscriptionOptions(given, 1)),
  statuses: () => statusTable(),
  codes: () => Object.fromEntries(CODES),
};

// A class as WebSocket, to nodes that are played: *nodes* has, by address, the role, and what it does
// with one question after the other: "silent", a status with which it refuses, or null.  Then, and when
// nothing is left, it answers with its address.  One that "hangs" does not even welcome us, and one
// that is not there can not be reached.  *said*: the versions of the protocol that we said.
function playedNodes(nodes, asked, said = []) {
  return class {
    constructor(url) {
      this.address = url.replace("/v1/client", "");
      this.readyState = 1;
      const node = nodes[this.address];
      if (node?.hangs) return;
      setTimeout(() => (node ? this.onopen() : this.onclose({ code: 1006, reason: "" })));
    }

    send(bytes) {
      const { type, request, version: ours } = decode(bytes);
      const { role, cluster = "c1", version = 1, does = [] } = nodes[this.address];
      const answer = (message) => setTimeout(() => this.onmessage({ data: encode(message) }));
      if (type === "hello") {
        said.push(ours);
        answer({ type: "welcome", version, role, agent: "played", heartbeat_interval_ms: 5_000, heartbeat_timeout_ms: 20_000, message_bytes_max: 1_000_000, expires_ms: null, cluster });
      } else if (request !== undefined) {
        asked.push(this.address);
        const deed = does.shift();
        if (deed === "silent") return;
        if (typeof deed === "number") answer({ type: "failure", request, status: deed, reason: "no" });
        else answer({ type: "topic_list", request, topics: [this.address], more: false });
      }
    }

    close() {
      asked.push(`closed ${this.address}`);
    }
  };
}

for await (const line of createInterface({ input: process.stdin })) {
  const [deed, argument] = JSON.parse(line);
  let answer;
  try {
    answer = { result: await DEEDS[deed](argument) };
  } catch (error) {
    answer = { error: error.code ?? error.constructor.name, text: error.message };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
