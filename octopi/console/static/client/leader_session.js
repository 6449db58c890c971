// One request that the leader of a log answers again and again, until either side ends it.
//
// It is sent to the leader as the register names it, or as another broker does.  When the
// connection breaks or another broker leads, its owner sends it again.

import { OctopiError, refusal } from "./errors.js";
import { Route } from "./route.js";
import { sleep, unlessAborted } from "./waiting.js";

const ANSWER_TIMEOUT_MS = 10_000;
const SILENCE_MS_FIRST = 1_000; // of the leader; then the register is asked whether it still leads
const SILENCE_MS_MAX = 60_000;

const MAY_BE_ELSEWHERE = new Set(["unknown_topic", "unknown_partition"]); // from a broker; the register has the last word

export class LeaderSession {
  #cluster;
  #route;
  #backoff;
  #restore;
  #link = null; // connection and number of the request, once it was sent

  // *restore*: makes the mark of the log again if its replicas have lost it, or throws why it can't;
  // none: the log is of the coordinator, and needs no mark.
  constructor(cluster, topic, partition, restore = null) {
    this.#cluster = cluster;
    this.#restore = restore;
    this.topic = topic;
    this.partition = partition;
    this.#route = new Route(cluster, topic, partition);
    this.#backoff = cluster.newBackoff();
    this.isOpen = false; // whether the request was answered
  }

  // Sends *message* with the request's number; nothing if the request isn't on its way.
  post(message) {
    if (!this.#link || this.#link.connection.endReason) return;
    const { connection, request } = this.#link;
    connection.post({ type: message.type, request, ...message });
  }

  // Sends *question()* to the leader, and gives *take* each answer.  *wake* is called whenever
  // anything at all came from that broker: timers of a hidden page hardly run.  Aborted, or after an
  // error that *take* threw, *farewell*() is sent.
  //
  // Returns never; throws the signal's reason, `closed` after a `done`, or why it ended.
  async run(question, take, wake, farewell, signal) {
    const address = await unlessAborted(this.#route.find(), signal);
    const connection = await unlessAborted(this.#cluster.connection(address), signal);
    const request = connection.nextRequest();
    let isOver = false;
    let timer;
    const heard = { at: Date.now(), silence: SILENCE_MS_FIRST };
    const unwatch = connection.watch(wake);
    try {
      const ended = new Promise((_, reject) => {
        timer = setTimeout(() => connection.lose(new OctopiError("connection_lost", `${address} didn't answer for ${this.topic}/${this.partition}`)), ANSWER_TIMEOUT_MS);
        const look = async () => {
          if (Date.now() - heard.at >= heard.silence) {
            heard.silence = Math.min(2 * heard.silence, SILENCE_MS_MAX);
            const leads = await this.#cluster.isLeader(this.topic, this.partition, address).catch(() => true);
            if (!leads) reject(new OctopiError("connection_lost", `${address} leads ${this.topic}/${this.partition} no more`));
          }
          if (!isOver) timer = setTimeout(look, heard.silence);
        };
        const hear = (message) => {
          Object.assign(heard, { at: Date.now(), silence: SILENCE_MS_FIRST });
          try {
            const error = endOf(message);
            if (error) {
              isOver = true;
              throw error;
            }
            if (!this.isOpen) {
              this.isOpen = true;
              this.#route.arrived();
              this.#backoff.reset();
              clearTimeout(timer);
              timer = setTimeout(look, heard.silence);
            }
            take(message);
          } catch (error) {
            reject(error);
          }
        };
        this.#link = { connection, request };
        const { type, ...rest } = question();
        connection.ask({ type, request, topic: this.topic, partition: this.partition, ...rest }, hear);
      });
      await unlessAborted(ended, signal);
    } finally {
      clearTimeout(timer);
      unwatch();
      connection.forget(request);
      if (!isOver) this.post(farewell());
      isOver = true;
      this.#link = null;
      this.isOpen = false;
    }
  }

  // Does, and waits, what is good after *error*, which may pass.  Throws if the log has no mark
  // because the subscription is gone.
  async beforeAgain(error, signal, tell = () => {}) {
    if (error.code === "unknown_subscription" && this.#restore) {
      try {
        await this.#restore(this.partition, signal);
        return;
      } catch (why) {
        if (!why.retryable) throw why;
      }
    }
    const delay = this.#route.redirected(error) ? 0 : this.#backoff.nextMs();
    tell(delay);
    await sleep(delay, signal);
  }
}

// The error for which a session ends with *message*; null: it goes on.
function endOf(message) {
  if (message instanceof OctopiError) return message;
  if (message.type === "done") return new OctopiError("closed", "it was ended");
  if (message.type !== "failure" && message.type !== "detached") return null;
  const error = refusal(message);
  return MAY_BE_ELSEWHERE.has(error.code) ? new OctopiError("not_ready", error.message) : error;
}
