// Waits that end: by their time, by a signal, or by what they wait for.

import { OctopiError } from "./errors.js";

// Random waits below a bound that doubles, so that pages that lost the same node at the same
// time come back spread out.  (M. Brooker, "Exponential Backoff And Jitter", 2015.)
export class Backoff {
  constructor(firstMs, maxMs) {
    this.firstMs = firstMs;
    this.maxMs = maxMs;
    this.attempts = 0;
  }

  nextMs() {
    const bound = Math.min(this.maxMs, this.firstMs * 2 ** Math.min(this.attempts, 16));
    this.attempts++;
    return bound * Math.random();
  }

  reset() {
    this.attempts = 0;
  }
}

const waitingFor = new WeakMap(); // signal -> what is called when it is aborted

// Has *act* called when *signal* is aborted from now on; returns what ends that.  Whoever waits for a
// signal shares one listener, since Node warns of more than ten.
export function onAbort(signal, act) {
  if (!signal) return () => {};
  let acts = waitingFor.get(signal);
  if (!acts) {
    acts = new Set();
    waitingFor.set(signal, acts);
    const all = () => {
      for (const one of [...acts]) if (acts.delete(one)) one();
    };
    signal.addEventListener("abort", all, { once: true });
  }
  const own = () => act();
  acts.add(own);
  return () => acts.delete(own);
}

// Resolves after *ms*; rejects with the signal's reason as soon as it is aborted.
export function sleep(ms, signal) {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const timer = setTimeout(() => {
      forget();
      resolve();
    }, ms);
    const forget = onAbort(signal, () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}

// What *promise* gives, unless *signal* is aborted first; the promise itself goes on.
export function unlessAborted(promise, signal) {
  if (!signal) return promise;
  return new Promise((resolve, reject) => {
    const aborted = () => reject(signal.reason);
    if (signal.aborted) aborted();
    const forget = onAbort(signal, aborted);
    promise.then(resolve, reject).finally(forget);
  });
}

// What *promise* gives, unless *ms* (perhaps Infinity) pass first; the promise itself goes on.  *who*
// gives no answer then.
export function within(ms, promise, who) {
  if (ms === Infinity) return promise;
  return new Promise((resolve, reject) => {
    const late = () => reject(new OctopiError("connection_lost", `${who} gave no answer within ${ms} ms`, { isLate: true }));
    const timer = setTimeout(late, ms);
    promise.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}

// Milliseconds that never go back, and that go on while the machine sleeps or the page is frozen:
// browsers disagree on which of their clocks does, so the one that went further counts.
export class SteadyClock {
  #wall = Date.now();
  #counter = performance.now();
  #passed = 0;

  now() {
    const [wall, counter] = [Date.now(), performance.now()];
    this.#passed += Math.max(0, wall - this.#wall, counter - this.#counter);
    [this.#wall, this.#counter] = [wall, counter];
    return this.#passed;
  }
}

// A condition that many wait for and anybody announces.
export class Bell {
  #waiters = new Set();

  // Resolves at the next ring, or after *ms* if that is given.
  next(signal, ms) {
    return new Promise((resolve, reject) => {
      signal?.throwIfAborted();
      let timer;
      const done = () => {
        this.#waiters.delete(done);
        clearTimeout(timer);
        forget();
        resolve();
      };
      const forget = onAbort(signal, () => {
        this.#waiters.delete(done);
        clearTimeout(timer);
        reject(signal.reason);
      });
      if (ms !== undefined) timer = setTimeout(done, ms);
      this.#waiters.add(done);
    });
  }

  ring() {
    for (const waiter of [...this.#waiters]) waiter();
  }
}
