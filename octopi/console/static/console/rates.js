// Rates of the last minutes, from what counters were at two looks.  A history that the cluster
// keeps by itself would go in front of these points, with `begin`.

const POINTS_MAX = 300;

export class Rates {
  #last = null;
  points = []; // [seconds, [amounts a second]], oldest first

  // *points*: what is known of the time before.
  begin(points) {
    this.points = [...points, ...this.points].slice(-POINTS_MAX);
  }

  // *at*: ms; *counters*: name -> Map of a counter each.  What is new or began anew counts as 0.
  note(at, counters) {
    const last = this.#last;
    if (last && at <= last.at) return;
    this.#last = { at, counters };
    if (!last) return;
    const seconds = (at - last.at) / 1000;
    const amounts = counters.map((now, number) => {
      let grown = 0;
      for (const [name, value] of now) grown += Math.max(0, value - (last.counters[number].get(name) ?? value));
      return grown / seconds;
    });
    this.points = [...this.points, [at / 1000, amounts]].slice(-POINTS_MAX);
  }

  get newest() {
    return this.points.at(-1)?.[1] ?? null;
  }
}
