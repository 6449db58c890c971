// A connection to one node: hello and welcome, numbered requests, heartbeats.
//
// Knows no topics: what a message means is its caller's business.

import { decode, encode } from "./cbor.js";
import { OctopiError, refusal } from "./errors.js";

const PROTOCOL_VERSION = 2; // the newest that we speak, and the oldest:
const PROTOCOL_VERSION_MIN = 1;
const NO_WEBSOCKET =
  "there is no WebSocket here: use Node 22 or newer, start Node 20 with --experimental-websocket, or give a class as the option WebSocket, such as that of the package ws";
const SUBPROTOCOL = "octopi.v1.cbor";
const PATH = "/v1/client";
const AGENT = "octopi-js/0.1.0";
const VISIT_TIMEOUT_MS = 2_000;
const REQUEST_TIMEOUT_MS = 10_000;
const SILENT_AFTER = 1.2; // intervals of heartbeats
const NORMAL_CLOSURE = 1000;
const ABNORMAL_CLOSURE = 1006;
const PAGE_REFUSED = new Set([403, 421]); // HTTP statuses: for its origin, for the node's name there

// A connection to the node at *url* (ws:// or wss://, host and port).
// *name*: what people see it called; *timeoutMs*: for the node to welcome us; *canRenew*: whether an expired token ends only this connection,
// for the next has a new one; *WebSocket*: the class to connect with, if not the global one.
// Throws an OctopiError: unreachable, protocol, or why the node doesn't want us.
export async function openConnection(url, token, options) {
  try {
    return await openOnce(url, token, options);
  } catch (error) {
    if (error.closeCode !== ABNORMAL_CLOSURE || !globalThis.location) throw error;
    const refused = await visit(url);
    if (refused || !url.startsWith("wss:")) throw refused ?? error;
  }
  return openOnce(url, token, options);
}

// Asks the node over HTTP whether it refuses this page, and resolves with the OctopiError that says
// so, or null: a page's script isn't told why a WebSocket failed.
//
// It serves a second purpose.  Nodes that verify each other ask whoever connects for a certificate,
// and take none for an answer.  Chromium cancels a WebSocket then, unless a request to the same node
// went through without a certificate before (https://crbug.com/993907): this is that request.
async function visit(url) {
  try {
    const address = `${url.replace(/^ws/, "http")}/api/v1/status`;
    const answer = await fetch(address, { signal: AbortSignal.timeout(VISIT_TIMEOUT_MS) });
    if (!PAGE_REFUSED.has(answer.status)) return null;
    const { error } = await answer.json();
    return new OctopiError("page_refused", `${url}: ${error.reason}`);
  } catch {
    return null; // it is down, or no node
  }
}

async function openOnce(url, token, { name, timeoutMs, canRenew, WebSocket = globalThis.WebSocket }) {
  if (typeof WebSocket !== "function") throw new OctopiError("invalid_option", NO_WEBSOCKET);
  const socket = openSocket(url, WebSocket);
  const connection = new Connection(url, socket, canRenew);
  const timer = setTimeout(
    () => connection.lose(new OctopiError("unreachable", `${url} did not welcome us within ${timeoutMs} ms`)),
    timeoutMs,
  );
  try {
    await connection.welcomed(token, name);
  } finally {
    clearTimeout(timer);
  }
  return connection;
}

function openSocket(url, WebSocket) {
  try {
    const socket = new WebSocket(url + PATH, [SUBPROTOCOL]);
    socket.binaryType = "arraybuffer";
    return socket;
  } catch (error) {
    throw new OctopiError("invalid_option", `can't connect to ${url}: ${error.message}`);
  }
}

class Connection {
  #socket;
  #callbacks = new Map();
  #watchers = new Set();
  #lastRequest = 0;
  #timer;
  #sentAt = 0;
  #heardAt = 0;
  #settleWelcome;

  constructor(url, socket, canRenew) {
    this.url = url;
    this.canRenew = canRenew;
    this.greeting = null; // the node's welcome
    this.endReason = null; // the error by which it ended
    this.whenEnded = new Promise((resolve) => (this.announceEnd = resolve));
    this.#socket = socket;
  }

  // --- opening ----------------------------------------------------------------------------

  async welcomed(token, name) {
    const socket = this.#socket;
    const answered = new Promise((resolve, reject) => (this.#settleWelcome = { resolve, reject }));
    const hello = { type: "hello", version: PROTOCOL_VERSION, agent: AGENT, token: token ?? null, name: name || undefined };
    socket.onopen = () => this.post(hello);
    socket.onmessage = ({ data }) => this.#receive(data);
    socket.onclose = ({ code, reason }) => this.#closed(code, reason);
    socket.onerror = () => {}; // says nothing; the close event that follows does
    await answered;
    this.#keepAlive();
  }

  #closed(code, reason) {
    const said = reason ? `: ${reason}` : "";
    if (this.greeting) this.lose(new OctopiError("connection_lost", `${this.url} closed the connection (${code})${said}`));
    else this.lose(new OctopiError("unreachable", `nobody welcomed us at ${this.url} (${code})${said}`, { closeCode: code }));
  }

  #keepAlive() {
    const interval = this.greeting.heartbeat_interval_ms;
    const timeout = this.greeting.heartbeat_timeout_ms;
    this.#timer = setInterval(() => {
      if (Date.now() - this.#heardAt > timeout) this.lose(new OctopiError("connection_lost", `${this.url} was silent for ${timeout} ms`));
      else this.#beat();
    }, interval / 2);
  }

  // Timers of hidden pages hardly run; the node's own heartbeats wake us then.
  #beat() {
    if (Date.now() - this.#sentAt >= this.greeting.heartbeat_interval_ms / 2) this.post({ type: "heartbeat" });
  }

  // --- sending ----------------------------------------------------------------------------

  nextRequest() {
    return ++this.#lastRequest;
  }

  // Throws why the connection ended, if it has.
  post(message) {
    if (this.endReason) throw this.endReason;
    if (this.#socket.readyState !== 1) return; // it is closing: the end is told in a moment
    this.#socket.send(encode(message));
    this.#sentAt = Date.now();
  }

  // Posts a request; *onAnswer* gets each message that comes back with its number until `forget`,
  // and at last the OctopiError by which the connection ended.
  ask(message, onAnswer) {
    this.post(message);
    this.#callbacks.set(message.request, onAnswer);
  }

  forget(request) {
    this.#callbacks.delete(request);
  }

  // Has *heard* called whenever anything came from the node, and returns what ends that.
  watch(heard) {
    this.#watchers.add(heard);
    return () => this.#watchers.delete(heard);
  }

  // The one answer to a question; refusals are thrown.  *isPassedOn*: another node answers it, so if
  // that is slow, the connection goes on unless this node is silent, too.
  request(message, expected, timeoutMs = REQUEST_TIMEOUT_MS, isPassedOn = false) {
    const numbered = { type: message.type, request: this.nextRequest(), ...message };
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        // It may still be carried out, and nothing sent on this connection can tell.
        const error = new OctopiError("connection_lost", `${this.url} gave no answer to ${message.type} within ${timeoutMs} ms`);
        if (isPassedOn && Date.now() - this.#heardAt < this.greeting.heartbeat_interval_ms * SILENT_AFTER) take(error);
        else this.lose(error);
      }, timeoutMs);
      const take = (answer) => {
        clearTimeout(timer);
        this.forget(numbered.request);
        if (answer instanceof OctopiError) reject(answer);
        else if (answer.type === "failure") reject(refusal(answer));
        else if (answer.type !== expected) reject(new OctopiError("protocol", `${this.url} answered ${message.type} with ${answer.type}`));
        else resolve(answer);
      };
      try {
        this.ask(numbered, take);
      } catch (error) {
        clearTimeout(timer);
        reject(error);
      }
    });
  }

  close() {
    this.lose(new OctopiError("closed", "the connection was closed by this side"));
  }

  // --- receiving --------------------------------------------------------------------------

  #receive(data) {
    this.#heardAt = Date.now();
    let message;
    try {
      message = decode(new Uint8Array(data));
      if (typeof message?.type !== "string") throw new Error("it has no type");
    } catch (error) {
      this.lose(new OctopiError("protocol", `${this.url} sent what is no message: ${error.message}`));
      return;
    }
    if (!this.greeting) this.#takeGreeting(message);
    else if (message.type === "heartbeat") this.#beat();
    else if (message.type === "failure" && message.request === null) this.#dismissed(refusal(message));
    else {
      this.#callbacks.get(message.request)?.(message);
      if (!this.endReason) this.#beat();
    }
    for (const heard of [...this.#watchers]) heard();
  }

  #dismissed(error) {
    const passes = error.code === "expired" && this.canRenew;
    this.lose(passes ? new OctopiError("connection_lost", `${this.url}: ${error.message}`) : error);
  }

  #takeGreeting(message) {
    if (message.type === "failure") this.lose(refusal(message));
    else if (message.type !== "welcome") this.lose(new OctopiError("protocol", `${this.url} greeted us with ${message.type}`));
    else if (!(message.version >= PROTOCOL_VERSION_MIN && message.version <= PROTOCOL_VERSION)) {
      this.lose(new OctopiError("unsupported_version", `${this.url} speaks version ${message.version} of the protocol, we ${PROTOCOL_VERSION_MIN} to ${PROTOCOL_VERSION}`));
    } else {
      this.greeting = message;
      this.#settleWelcome.resolve();
    }
  }

  // Ends the connection for *error*, once.
  lose(error) {
    if (this.endReason) return;
    this.endReason = error;
    clearInterval(this.#timer);
    this.#socket.close(NORMAL_CLOSURE);
    this.#settleWelcome?.reject(error);
    const callbacks = [...this.#callbacks.values()];
    this.#callbacks.clear();
    for (const callback of callbacks) callback(error);
    this.announceEnd(error);
  }
}
