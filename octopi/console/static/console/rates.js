// Rates of the last half hour: of the time before the page was opened as the cluster's history has
// them, and then from what counters were at two looks.

const POINTS_MAX = 1_800;
const GRID_S = 10;
const LATE_S = 30; // a broker that wrote nothing for so long is away

export class Rates {
  #last = null;
  points = []; // [seconds, [amounts a second]], oldest first

  // *points*: what is known of the time before.
  begin(points) {
    const first = this.points[0]?.[0] ?? Infinity;
    this.points = [...points.filter(([at]) => at < first), ...this.points].slice(-POINTS_MAX);
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

// Points for `begin`, every ten seconds, of the brokers' *notes* (messages of `_octopi.rates`).
// *amountsOf*: what of a note counts, one number for each line.  Each note tells of the seconds
// before it, so at any time there is one note of each broker.
export function pointsOf(notes, amountsOf) {
  const newest = new Map(notes.map((one) => [one.broker, one.at_ms / 1000]));
  const last = Math.max(...newest.values());
  // The notes of the last seconds are not there of all brokers yet.
  const end = Math.min(...[...newest.values()].filter((at) => last - at <= LATE_S));
  const sums = new Map();
  for (const note of notes) {
    const amounts = amountsOf(note);
    const until = Math.min(note.at_ms / 1000, end);
    for (let at = Math.floor(until / GRID_S) * GRID_S; at > note.at_ms / 1000 - note.seconds; at -= GRID_S) {
      const before = sums.get(at) ?? amounts.map(() => 0);
      sums.set(at, before.map((sum, line) => sum + amounts[line] / note.seconds));
    }
  }
  return [...sums].sort(([one], [other]) => one - other);
}

export const amountsOfAll = (note) => [note.bytes_in, note.bytes_out];

// A note names the busiest topics only; of others it counts nothing.
export function amountsOfTopic(topic) {
  return (note) => [note.topics.find((one) => one.topic === topic)?.bytes_in ?? 0];
}
