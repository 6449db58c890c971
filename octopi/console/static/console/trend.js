// Whether a lag gets larger or smaller, calmly: most lags move all the time, and few of them matter.

const LARGE_BYTES = 1_000_000;
const GROWTH_MIN = 0.1; // of what it was
const CHANGE_MIN_BYTES = 10_000; // less than that comes and goes
const SPAN_MS = 30_000;
const SPAN_MIN_MS = 10_000; // less than that tells nothing

// The lag of one consumer over the last half minute.
export class LagHistory {
  #points = []; // [ms, bytes], oldest first

  note(at, bytes) {
    this.#points.push([at, bytes]);
    while (this.#points[0][0] < at - SPAN_MS) this.#points.shift();
  }

  // "unknown", "none", "steady", "less", "more", or "growing": more, and so much that it is a warning.
  get trend() {
    const [begin, before] = this.#points[0] ?? [0, 0];
    const [end, now] = this.#points.at(-1) ?? [0, 0];
    if (now === 0 && this.#points.length) return "none";
    if (end - begin < SPAN_MIN_MS) return "unknown";
    const change = now - before;
    if (Math.abs(change) <= Math.max(CHANGE_MIN_BYTES, GROWTH_MIN * Math.max(before, now))) return "steady";
    if (change < 0) return "less";
    return now >= LARGE_BYTES ? "growing" : "more";
  }
}
