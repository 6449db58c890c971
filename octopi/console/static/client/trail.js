// The anchors of the places that a reading passed, the newest last.
//
// A broker that finds something else before a place than the reading read there answers with
// an offset up to which both agree.  They may agree on more: an anchor names a few epochs only.  The
// reading knows of all that it read, and asks again from the next place below that it read,
// until a broker agrees; see octopi/clients/consuming/trail.py.

const RUNS_MAX = 100; // older ones are forgotten: a log changes its leader now and then

export class Trail {
  #runs = []; // { after, end, anchor }: places behind `after` up to `end`, one run behind the other

  constructor(offset, anchor) {
    this.offset = offset; // of the next record
    this.know(anchor);
  }

  // Of `offset`; empty: not known.
  get anchor() {
    return this.#runs.at(-1)?.anchor ?? "";
  }

  // The anchor of a place that was passed; empty: not known.
  anchorAt(offset) {
    const run = this.#runs.findLast(({ after }) => after < offset);
    return run && offset <= run.end ? run.anchor : "";
  }

  // *anchor* stands before `offset`; no news if that is known already.
  know(anchor) {
    if (anchor && !this.#runs.length) this.#runs.push({ after: this.offset - 1, end: this.offset, anchor });
  }

  // Records were read up to *end*, and *anchor* stands before it.
  read(end, anchor) {
    const last = this.#runs.at(-1);
    if (!anchor) this.#runs = [];
    else if (last?.anchor === anchor) last.end = end;
    else {
      this.#runs.push({ after: this.offset, end, anchor });
      if (this.#runs.length > RUNS_MAX) this.#runs.shift();
    }
    this.offset = end;
  }

  // A broker has something else before `offset`, and agrees up to *offset*, perhaps further: go back
  // to the place to ask for next.
  fallBack(offset) {
    const last = this.#runs.at(-1);
    if (last && last.after < offset) last.end = offset; // perhaps it has a part of these
    else if (last) {
      this.#runs.pop();
      if (this.#runs.length) offset = last.after; // it has none of them, but perhaps those before
    }
    this.offset = offset;
  }
}
