// The cluster as one page knows it: a connection for each node, and where topics are.

import { openConnection } from "./connection.js";
import { Entrances } from "./entrances.js";
import { OctopiError } from "./errors.js";
import { readers, requireOneGeneration } from "./placement.js";
import { isUnanswered, Route } from "./route.js";
import { Backoff, sleep, unlessAborted, within } from "./waiting.js";

const CONNECT_TIMEOUT_MS = 5_000;
const ATTEMPT_TIMEOUT_MS = 10_000;
const KNOWN_FOR_MS = 500;
const REFRESH_AT = 0.7; // of a token's remaining life
const REFRESH_MS_MIN = 250;

export class Cluster {
  #connections = new Map(); // address -> promise of a connection
  #topics = new Map(); // name -> promise of what the register said
  #described = new Map(); // name -> what it said last, also if that proved wrong
  #entrances;
  #first = null; // the first node that named its cluster
  #closed = null;

  // *servers*: any nodes.  *requestTimeout*: for all attempts of one request together (ms).
  constructor(servers, { token, name, minDelay, maxDelay, requestTimeout, WebSocket }) {
    this.#entrances = new Entrances(servers);
    this.requestTimeout = requestTimeout;
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
    const timeoutMs = this.#atMost(CONNECT_TIMEOUT_MS);
    const connection = await openConnection(address, token, { name: this.name, timeoutMs, canRenew, WebSocket: this.WebSocket });
    if (this.#closed) connection.close();
    const { cluster } = connection.greeting;
    if (cluster) this.#first ??= { address, cluster };
    if (cluster && cluster !== this.#first.cluster) {
      connection.close();
      throw new OctopiError("unreachable", `${address} belongs to cluster ${cluster}, and ${this.#first.address} to cluster ${this.#first.cluster}: name nodes of one cluster`);
    }
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

  // One attempt to reach a node that may be asked.
  reachOnce() {
    return this.#atEntrance(true, async () => null);
  }

  // One attempt to ask the register, or a broker that passes the question on.  *isLookup*: the answer
  // changes nothing, so it can be asked for at another node before this one has answered.
  askRegisterOnce(message, expected, isLookup = false) {
    return this.#atEntrance(isLookup, (connection, isPassedOn) => connection.request(message, expected, this.#atMost(ATTEMPT_TIMEOUT_MS), isPassedOn));
  }

  askRegister(message, expected, signal) {
    return this.retry(() => this.askRegisterOnce(message, expected), signal);
  }

  // Does *act* with the connection to a node.  If it can't answer, the next attempt is at another one.
  async #atEntrance(isLookup, act) {
    const entrances = this.#entrances;
    const server = entrances.current;
    const patience = isLookup ? entrances.patienceMs : Infinity;
    let isPassedOn = false;
    const asking = async () => {
      const connection = await this.connection(server);
      isPassedOn = connection.greeting.role !== "register";
      return act(connection, isPassedOn);
    };
    try {
      const answer = await within(patience, asking(), server);
      entrances.answered();
      for (const { readers } of answer?.topic?.partitions ?? []) entrances.learn(readers);
      entrances.learn((answer?.brokers ?? []).filter((one) => one.live).map((one) => one.address));
      return answer;
    } catch (error) {
      if (isUnanswered(error) || (isPassedOn && error.retryable)) entrances.failed(server, error.isLate);
      // The register may have done what the broker passed on.
      throw error.code === "answer_lost" ? new OctopiError("connection_lost", error.message) : error;
    }
  }

  // A time-out for one attempt, which leaves time for a second one, perhaps at another node.
  #atMost(timeoutMs) {
    return Math.min(timeoutMs, this.requestTimeout / 2);
  }

  // Tries *attempt* until it succeeds, can't any more, or time is over.
  async retry(attempt, signal) {
    const { requestTimeout } = this;
    const backoff = this.newBackoff();
    const giveUpAt = Date.now() + requestTimeout;
    let last;
    for (;;) {
      signal?.throwIfAborted();
      try {
        return await unlessAborted(within(giveUpAt - Date.now(), attempt(), "the cluster"), signal);
      } catch (error) {
        if (!error.retryable || this.#closed) throw error;
        if (!last || !error.isLate) last = error;
      }
      const delay = backoff.nextMs();
      if (Date.now() + delay > giveUpAt) {
        throw new OctopiError(last.code, `given up after ${requestTimeout} ms and ${backoff.attempts} failed attempts; last: ${last.message}`, { cause: last, ...(last.tried && { tried: last.tried }) });
      }
      await sleep(delay, signal);
    }
  }

  // --- topics -----------------------------------------------------------------------------

  // Where a topic is: what is known already, or with *otherThan* (which proved wrong) something
  // that was asked for since; with *anew* what the register says now.  One attempt.
  topic(name, { create = false, otherThan = null, anew = false } = {}) {
    const known = this.#topics.get(name);
    const isGood = known?.info ? known.info !== otherThan && !anew : known && (known.create || !create);
    if (isGood) return known.promise;
    const entry = { info: null, promise: null, create };
    entry.promise = this.askRegisterOnce({ type: "describe_topic", topic: name, create }, "topic_description", !create).then(
      ({ topic }) => {
        requireOneGeneration(topic);
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
          return await connection.request({ topic, partition, ...message }, expected, this.#atMost(ATTEMPT_TIMEOUT_MS));
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
      this.#judging.set(topic, { at: Date.now(), promise: this.askRegisterOnce({ type: "describe_topic", topic, create: false }, "topic_description", true) });
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
