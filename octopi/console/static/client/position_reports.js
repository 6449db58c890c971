// When the broker of a reading is told how far the page is, so that people see its lag: when the
// reading begins, then at most once a second, and only if that has changed.

const INTERVAL_MS = 1_000;

export class PositionReports {
  #positions;
  #send = null; // while there is a reading
  #reported = null; // to its broker
  #reportedAt = -Infinity;
  #timer = null;

  // *positions* returns { dealt, taken }: the page has dealt with what lies below the first offset,
  // and took what lies below the second.  While they differ, another report is due.
  constructor(positions) {
    this.#positions = positions;
  }

  // A reading begins, whose broker is told by *send*(offset).
  begin(send) {
    this.#send = send;
    this.#reported = null;
    this.#report();
  }

  end() {
    this.#send = null;
    clearTimeout(this.#timer);
    this.#timer = null;
  }

  // The page took messages.  Timers of hidden pages hardly run, so what is due is sent here.
  took() {
    const passed = Date.now() - this.#reportedAt;
    if (passed >= INTERVAL_MS) this.#report();
    else this.#later(passed);
  }

  #later(passed) {
    if (!this.#send || this.#timer !== null) return;
    this.#timer = setTimeout(() => {
      this.#timer = null;
      this.#report();
    }, INTERVAL_MS - Math.max(0, passed)); // the clock may have been set back
  }

  #report() {
    if (!this.#send) return;
    const { dealt, taken } = this.#positions();
    const offset = Math.min(dealt, taken); // behind a fork that the page doesn't know of yet, that is taken
    if (offset !== this.#reported) {
      this.#reported = offset;
      this.#reportedAt = Date.now();
      this.#send(offset);
    }
    if (offset < taken) this.#later(0);
  }
}
