// The cluster as one page knows it: a connection for each node, and where topics are.

import { openConnection } from "./connection.js";
import { OctopiError } from "./errors.js";
import { readers } from "./placement.js";
import { Route } from "./route.js";
import { Backoff, sleep, unlessAborted } from "./waiting.js";

const QUESTION_TIMEOUT_MS = 30_000;
const KNOWN_FOR_MS = 500;
const REFRESH_AT = 0.7; // of a token's remaining life
const REFRESH_MS_MIN = 250;

export class Cluster {
  #connections = new Map(); // address -> promise of a connection
  #topics = new Map(); // name -> promise of what the register said
  #described = new Map(); // name -> what it said last, also if that proved wrong
  #closed = null;

  // *servers*: registers, tried in turn.
  constructor(servers, { token, name, minDelay, maxDelay, WebSocket }) {
    this.servers = [...servers];
    this.token = token;
    this.name = name;
    this.minDelay = minDelay;
    this.maxDelay = maxDelay;
    this.WebSocket = WebSocket;
  }

  newBackoff() {
    return new Backoff(this.minDelay, this.maxDelay);
  }

  // The connection to the node at *address*, shared by all who ask.
  connection(address) {
    if (this.#closed) return Promise.reject(this.#closed);
    let opening = this.#connections.get(address);
    if (!opening) {
      opening = this.#open(address);
      this.#connections.set(address, opening);
      const forget = () => this.#connections.get(address) === opening && this.#connections.delete(address);
      opening.then((connection) => connection.whenEnded.then(forget), forget);
    }
    return opening;
  }

  async #open(address) {
    const token = await this.#currentToken();
    const canRenew = typeof this.token === "function";
    const connection = await openConnection(address, token, { name: this.name, canRenew, WebSocket: this.WebSocket });
    if (this.#closed) connection.close();
    if (canRenew) this.#keepFresh(connection);
    return connection;
  }

  // Gives the node a new token well before the old one expires, as long as the connection lives.
  async #keepFresh(connection) {
    let expiresMs = connection.greeting.expires_ms;
    const over = new AbortController();
    connection.whenEnded.then(() => over.abort());
    try {
      while (expiresMs !== null) {
        await sleep(Math.max(REFRESH_MS_MIN, (expiresMs - Date.now()) * REFRESH_AT), over.signal);
        const token = await this.#currentToken();
        ({ expires_ms: expiresMs } = await connection.request({ type: "authenticate", token }, "authenticated"));
      }
    } catch (error) {
      if (error instanceof OctopiError && !error.retryable) connection.lose(error);
      // Else it ended, or ends when the token has expired; the next connection has a new one.
    }
  }

  async #currentToken() {
    if (typeof this.token !== "function") return this.token ?? null;
    try {
      return await this.token();
    } catch (error) {
      throw new OctopiError("token", `the token function failed: ${error?.message ?? error}`);
    }
  }

  // --- asking -----------------------------------------------------------------------------

  // One attempt to reach a register; a broker tells where its registers are.
  async reachOnce() {
    const server = this.servers[0];
    try {
      const { greeting } = await this.connection(server);
      if (greeting.role !== "register") this.servers = await registersOf(server);
    } catch (error) {
      if (this.servers[0] === server && error.retryable) this.servers.push(this.servers.shift());
      throw error;
    }
  }

  // One attempt to ask a register; after a failure the next attempt asks another one.
  async askRegisterOnce(message, expected) {
    const server = this.servers[0];
    try {
      return await (await this.connection(server)).request(message, expected);
    } catch (error) {
      if (this.servers[0] === server && ["unreachable", "connection_lost"].includes(error.code)) {
        this.servers.push(this.servers.shift());
      }
      throw error;
    }
  }

  askRegister(message, expected, signal) {
    return this.retry(() => this.askRegisterOnce(message, expected), signal);
  }

  // Tries *attempt* until it succeeds, can't any more, or time is over.
  async retry(attempt, signal) {
    const backoff = this.newBackoff();
    const giveUpAt = Date.now() + QUESTION_TIMEOUT_MS;
    for (;;) {
      signal?.throwIfAborted();
      try {
        return await unlessAborted(attempt(), signal);
      } catch (error) {
        const delay = backoff.nextMs();
        if (!error.retryable || this.#closed || Date.now() + delay > giveUpAt) throw error;
        await sleep(delay, signal);
      }
    }
  }

  // --- topics -----------------------------------------------------------------------------

  // Where a topic is: what is known already, or with *otherThan* (which proved wrong) something
  // that was asked for since; with *anew* what the register says now.  One attempt.
  topic(name, { create = false, otherThan = null, anew = false } = {}) {
    const known = this.#topics.get(name);
    if (known && (known.info === null || (known.info !== otherThan && !anew))) return known.promise;
    const entry = { info: null, promise: null };
    entry.promise = this.askRegisterOnce({ type: "describe_topic", topic: name, create }, "topic_description").then(
      ({ topic }) => {
        this.#described.set(name, topic);
        return (entry.info = topic);
      },
      (error) => {
        if (this.#topics.get(name) === entry) this.#topics.delete(name);
        throw error;
      },
    );
    this.#topics.set(name, entry);
    return entry.promise;
  }

  // Where brokers of a topic were when the register was asked last, those of *partition* first: each
  // of them knows who leads, or knew it a moment ago.
  brokers(name, partition) {
    const places = [...(this.#described.get(name)?.partitions ?? [])];
    places.sort((one, other) => (one.partition !== partition) - (other.partition !== partition));
    return [...new Set(places.flatMap(readers))];
  }

  // Asks whoever leads a log, until it answers.
  askLeader(topic, partition, message, expected, signal) {
    const route = new Route(this, topic, partition);
    return this.retry(async () => {
      for (;;) {
        const connection = await this.connection(await route.find());
        try {
          return await connection.request({ topic, partition, ...message }, expected);
        } catch (error) {
          if (route.redirected(error)) continue;
          // The broker may not know yet, or we not any more: the register does.
          if (["unknown_topic", "unknown_partition"].includes(error.code)) throw new OctopiError("not_ready", error.message);
          throw error;
        }
      }
    }, signal);
  }

  // Whether the broker at *address* may still serve a log, as the register says now.
  async isReader(topic, partition, address) {
    const place = await this.#placeNow(topic, partition);
    return !place || place.readers.includes(address) || place.leader_address === address || !readers(place).length;
  }

  // Whether the broker at *address* may still lead a log, as the register says now.
  async isLeader(topic, partition, address) {
    const place = await this.#placeNow(topic, partition);
    return !place || place.leader_address === address || !place.leader_address;
  }

  // Where a partition is; undefined if it is gone.
  async #placeNow(topic, partition) {
    const asked = this.#judging.get(topic);
    if (!asked || Date.now() - asked.at > KNOWN_FOR_MS) {
      this.#judging.set(topic, { at: Date.now(), promise: this.askRegisterOnce({ type: "describe_topic", topic, create: false }, "topic_description") });
    }
    const { topic: info } = await this.#judging.get(topic).promise;
    return info.partitions.find((one) => one.partition === partition);
  }
  #judging = new Map();

  close(error) {
    this.#closed = error;
    for (const opening of this.#connections.values()) opening.then((connection) => connection.close(), () => {});
  }
}

async function registersOf(broker) {
  try {
    const answer = await fetch(`${broker.replace(/^ws/, "http")}/api/v1/status`);
    const { registers } = await answer.json();
    if (!registers.length) throw new Error("it knows none");
    return registers;
  } catch (error) {
    throw new OctopiError("unreachable", `${broker} is a broker and did not tell where its register is: ${error.message}`);
  }
}
