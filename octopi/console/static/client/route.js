// The way to a log's leader: what the register says, itself or through a broker, and while it can't be
// asked, what brokers of the topic say.
//
// Every broker knows the partition table.  One that does not lead answers `not_leader` with the
// leader's address and epoch, as far as it heard.  Such redirects are followed, but never in
// circles: at most two in a row before the register is asked again, an address once in an epoch,
// and never one of an older epoch than the newest that is known.

import { leaderAddress, placeOf } from "./placement.js";

const REDIRECTS_IN_A_ROW_MAX = 2;
const ADDRESSES_TOLD_MAX = 8;

// `no_quorum`: a relay that hears no majority names another one.
const REDIRECTS = new Set(["not_leader", "no_quorum"]);

export class Route {
  #cluster;
  #info = null; // what the register said last
  #epoch = 0; // the newest that anybody spoke of
  #tried = new Set(); // addresses that were tried as that epoch's leader
  #inARow = 0;
  #told = ""; // where the last redirect leads, if it is to be followed
  #brokers = []; // asked in turn while the register is away
  #address = ""; // the one that was tried last
  #leads = false; // whether the broker there took what it was sent
  #asked = []; // the addresses that were tried since a leader was found, the last ones

  constructor(cluster, topic, partition, { create = false } = {}) {
    this.#cluster = cluster;
    this.topic = topic;
    this.partition = partition;
    this.create = create;
  }

  // A broker failed or refused with *error*: whether that says where to go next.  If it leads in
  // circles, *error* gets the addresses that were tried, as `tried`.
  redirected(error) {
    this.#told = "";
    this.#leads = false;
    if (!REDIRECTS.has(error.code) || !error.address) return false;
    const epoch = error.epoch ?? this.#epoch;
    if (epoch < this.#epoch) return false;
    this.#note(epoch);
    if (this.#inARow >= REDIRECTS_IN_A_ROW_MAX || this.#tried.has(error.address)) {
      error.tried = [...this.#asked];
      return false;
    }
    this.#inARow++;
    this.#told = error.address;
    return true;
  }

  // Where the last redirect leads, if it is to be followed, once; else empty.
  takeTold() {
    const address = this.#told;
    this.#told = "";
    if (address) {
      this.#tried.add(address);
      this.#ask(address);
    }
    return address;
  }

  // The register was asked; *epoch*: what it said, if it answered.
  lookedUp(epoch = 0) {
    this.#inARow = 0;
    if (!epoch) this.#tried.clear(); // who was tried may know better by now
    this.#note(epoch);
  }

  // The broker that was tried leads.
  arrived() {
    this.#inARow = 0;
    this.#leads = true;
    this.#asked = [];
  }

  // The address to try next: one attempt.
  async find() {
    if (!this.#leads) this.#address = this.takeTold() || (await this.#lookUp());
    return this.#address;
  }

  async #lookUp() {
    let info;
    try {
      info = await this.#cluster.topic(this.topic, { create: this.create, otherThan: this.#info });
    } catch (error) {
      if (!isAway(error)) throw error;
      this.lookedUp();
      if (!this.#brokers.length) this.#brokers = this.#cluster.brokers(this.topic, this.partition);
      if (!this.#brokers.length) throw error;
      this.#brokers.push(this.#brokers.shift());
      return this.#ask(this.#brokers.at(-1));
    }
    this.#info = info;
    this.#brokers = [];
    this.lookedUp(placeOf(info, this.partition).epoch);
    const address = leaderAddress(info, this.partition);
    this.#tried.add(address);
    return this.#ask(address);
  }

  #ask(address) {
    this.#asked = [...this.#asked, address].slice(-ADDRESSES_TOLD_MAX);
    return address;
  }

  #note(epoch) {
    if (epoch <= this.#epoch) return;
    this.#epoch = epoch;
    this.#tried.clear();
  }
}

// Whether the register could not be asked: it is away, or the broker that passes questions on can't
// reach it.
export function isAway(error) {
  return isUnanswered(error) || error.code === "not_ready";
}

// Whether a node could not be asked, or its answer never came.
export function isUnanswered({ code }) {
  return code === "unreachable" || code === "connection_lost";
}
