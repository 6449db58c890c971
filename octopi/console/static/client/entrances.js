// The nodes that a page may ask about topics, partitions and brokers: all nodes of the cluster.
//
// A register answers by itself; a broker passes the question on.  The client asks the nodes that it
// was given, one until it doesn't answer, then the next.  Brokers that it learnt of from answers are
// asked when none of those that it was given answered.  octopi/clients/entrances.py is the same
// machine; a test compares them step by step.

const SILENCE_MS = 1_000; // of a node, if another one could be asked as well
const LEARNED_MAX = 16;

export class Entrances {
  #given;
  #learned = [];
  #givenFailures = 0; // how many given nodes failed, one after the other, since a node answered or since each learned one was tried
  #learnedFailures = 0;
  #silenceMs = SILENCE_MS;

  // *given*: addresses of nodes, at least one.
  constructor(given) {
    this.#given = [...given];
  }

  // The address to ask.
  get current() {
    return (this.#learned.length && this.#areGivenAway ? this.#learned : this.#given)[0];
  }

  // How long to wait for an answer that another node could give as well.
  get patienceMs() {
    return this.#given.length + this.#learned.length > 1 ? this.#silenceMs : Infinity;
  }

  get #areGivenAway() {
    return this.#givenFailures >= this.#given.length;
  }

  // Brokers are at *addresses*.
  learn(addresses) {
    for (const address of addresses) {
      if (!address || this.#given.includes(address) || this.#learned.includes(address)) continue;
      if (this.#learned.length === LEARNED_MAX) this.#learned.pop();
      this.#learned.push(address);
    }
  }

  // The current node answered.
  answered() {
    this.#silenceMs = SILENCE_MS;
    this.#learnedFailures = 0;
    if (!this.#areGivenAway) this.#givenFailures = 0;
  }

  // The node at *address* can't answer now: ask another one next, if there is one.  *wasSilent*: it
  // gave no answer in time.
  failed(address, wasSilent = false) {
    if (address !== this.current) return; // another request has found that out before
    if (!this.#areGivenAway) {
      this.#given.push(this.#given.shift());
      this.#givenFailures++;
      if (!this.#areGivenAway || this.#learned.length) return;
    } else {
      this.#learned.push(this.#learned.shift());
      if (++this.#learnedFailures < this.#learned.length) return;
    }
    // Each node was tried: begin with the given ones again.
    this.#givenFailures = this.#learnedFailures = 0;
    if (wasSilent) this.#silenceMs *= 2;
  }
}
