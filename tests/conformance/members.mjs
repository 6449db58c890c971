// Members of durable subscriptions and queues with octopi.js: the commands of driving.py for them.

const clients = new Map(); // token -> Octopi
const members = new Map(); // name -> Member
let gaps = 0; // that were told

// A page's program: a loop over messages, in which each step is ordered from outside.
class Member {
  #orders = [];
  #given = [];
  #wake = [];

  constructor(subscription) {
    this.subscription = subscription;
    this.taken = [];
    this.hasInHand = false;
    this.ended = this.#run();
    this.ended.catch(() => {});
  }

  async #run() {
    try {
      for await (const message of this.subscription) {
        this.#give(message);
        const order = await this.#next(this.#orders);
        if (order === "fail") throw new Error("the page failed");
        if (order === "leave") break;
      }
      await this.subscription.commit().catch((error) => {
        if (error.code !== "closed") throw error;
      });
    } finally {
      await this.subscription.close();
    }
  }

  async take(count) {
    while (count-- > 0) {
      if (this.hasInHand) this.#order("next");
      this.hasInHand = false;
      const message = await Promise.race([this.#next(this.#given), this.ended.then(() => Promise.reject(new Error("it has left")))]);
      this.hasInHand = true;
      this.taken.push(message);
    }
  }

  async leave() {
    if (this.hasInHand) this.#order("leave");
    else await this.subscription.close();
    await this.ended;
  }

  async fail() {
    this.#order("fail");
    await this.ended.catch((error) => {
      if (error.message !== "the page failed") throw error;
    });
  }

  #order(order) {
    this.#orders.push(order);
    this.#ring();
  }

  #give(message) {
    this.#given.push(message);
    this.#ring();
  }

  #ring() {
    for (const wake of this.#wake.splice(0)) wake();
  }

  async #next(queue) {
    while (!queue.length) await new Promise((resolve) => this.#wake.push(resolve));
    return queue.shift();
  }
}

// Of a queue: it answers each message by itself.
class QueueMember {
  constructor(subscription) {
    this.subscription = subscription;
    this.taken = [];
  }

  async take(count) {
    while (count-- > 0) this.taken.push((await this.subscription.next()).value);
  }

  async takeLists(count, release) {
    for await (const batch of this.subscription.batches()) {
      this.taken.push(...batch);
      if (release === undefined) batch.acknowledge();
      else batch.release(release);
      count -= batch.length;
      if (count <= 0) break;
    }
  }

  async leave() {
    await this.subscription.close();
  }
}

// The texts of the messages that *member* takes in *work*.
async function taken(member, work) {
  const before = member.taken.length;
  await work(member);
  return member.taken.slice(before).map((one) => one.text());
}

export const MEMBERS = {
  join: async ({ as, topic, name, token, options }, { Octopi, url }) => {
    if (!clients.has(token)) {
      clients.set(token, await Octopi.connect(url, { token }));
      clients.get(token).addEventListener("gap", () => gaps++);
    }
    const subscription = await clients.get(token).subscription(topic, { name, joinTimeout: 500, ...options });
    await subscription.ready;
    const isQueue = options.mode === "shared" || options.mode === "key_shared";
    members.set(as, isQueue ? new QueueMember(subscription) : new Member(subscription));
  },
  take: ({ as, count }) => taken(members.get(as), (member) => member.take(count)),
  "take lists": ({ as, count, release }) => taken(members.get(as), (member) => member.takeLists(count, release)),
  commit: ({ as }) => members.get(as).subscription.commit(),
  claims: ({ as }) => Object.fromEntries(members.get(as).subscription.claims),
  mark: ({ as, message }) => members.get(as).subscription.mark(members.get(as).taken[message]),
  acknowledge: ({ as, message }) => members.get(as).taken[message].acknowledge(),
  release: ({ as, message, delay }) => members.get(as).taken[message].release(delay),
  reject: ({ as, message, reason }) => members.get(as).taken[message].reject(reason),
  extend: ({ as, message }) => members.get(as).taken[message].extend(),
  attempt: ({ as, message }) => members.get(as).taken[message].attempt,
  gaps: () => gaps,
  "deadline in": ({ as, message }) => Math.round((members.get(as).taken[message].deadline - Date.now()) / 60_000),
  leave: ({ as }) => members.get(as).leave(),
  fail: ({ as }) => members.get(as).fail(),
  closeMembers: async () => {
    for (const one of clients.values()) await one.close();
    clients.clear();
    members.clear();
    gaps = 0;
  },
};
