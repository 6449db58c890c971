// Asks nodes for their pages: the node that this page came from, and when that is silent, the
// brokers of the cluster in turn.

const ANSWER_TIMEOUT_MS = 8_000;
const WARM_INTERVAL_MS = 5_000;
const TOKEN = "octopi-token";

export class NodePages {
  constructor() {
    this.origin = location.origin; // of the node that answered last
    this.#others = [];
    this.#warmedAt = 0;
  }
  #others;
  #warmedAt;

  get token() {
    return sessionStorage.getItem(TOKEN) ?? "";
  }

  setToken(token) {
    sessionStorage.setItem(TOKEN, token);
  }

  // The node that answers, as clients write it.
  get server() {
    return this.origin.replace(/^http/, "ws");
  }

  // *addresses*: of the brokers that live.
  learn(addresses) {
    this.#others = [location.origin, ...addresses.map((one) => one.replace(/^ws/, "http"))].filter((one) => one !== this.origin);
  }

  // What a page has.  Throws what the last node said, with its status (0: no node answered).
  async get(page) {
    let last;
    for (const origin of [this.origin, ...this.#others]) {
      try {
        const found = await this.#getFrom(origin, page);
        this.origin = origin;
        return found;
      } catch (error) {
        last ??= error;
        if (error.status !== 0 && error.status !== 503) throw error;
      }
    }
    throw last;
  }

  // Has one broker look at the cluster now and then: without the register, a broker can only show
  // what it has seen.
  warm() {
    const [broker] = this.#others;
    if (!broker || Date.now() - this.#warmedAt < WARM_INTERVAL_MS) return;
    this.#warmedAt = Date.now();
    this.#getFrom(broker, "cluster?limit=1").catch(() => {}); // it is asked again
  }

  async #getFrom(origin, page) {
    const headers = this.token ? { authorization: `Bearer ${this.token}` } : {};
    let answer, told;
    try {
      answer = await fetch(`${origin}/api/v1/${page}`, { headers, signal: AbortSignal.timeout(ANSWER_TIMEOUT_MS) });
      told = await answer.json();
    } catch {
      // A page that is cut off, as by the time-out, is no answer; a refusal need not be JSON.
      if (!answer || answer.ok) throw Object.assign(new Error("no node answers"), { status: 0 });
    }
    if (!answer.ok) throw Object.assign(new Error(told?.error?.reason ?? `the node answered ${answer.status}`), { status: answer.status });
    return told;
  }
}
