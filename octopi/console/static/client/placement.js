// Where the partitions of a topic are, by what the register said of it.

import { OctopiError } from "./errors.js";

// Refuses a topic that got other partitions while it was in use: the list of partitions alone does not
// say in which order its logs are read, nor which of them takes a message.
export function requireOneGeneration(info) {
  if (!info.generations?.length) return;
  throw new OctopiError("unsupported_version", `topic ${info.topic} got other partitions: this client can't keep the order; load a newer one`);
}

export function placeOf(info, partition) {
  const place = info.partitions.find((one) => one.partition === partition);
  if (!place) {
    const has = info.partitions.map((one) => one.partition).join(", ");
    throw new OctopiError("unknown_partition", `topic ${info.topic} has no partition ${partition}; it has ${has}`);
  }
  return place;
}

export function leaderAddress(info, partition) {
  const { leader, leader_address: address } = placeOf(info, partition);
  if (leader === null || !address) throw new OctopiError("not_ready", `no broker leads partition ${partition} of ${info.topic} now`);
  return address;
}

// Where a log can be read, best first.
export function readerAddresses(info, partition) {
  const addresses = readers(placeOf(info, partition));
  if (!addresses.length) throw new OctopiError("not_ready", `no broker serves partition ${partition} of ${info.topic} now`);
  return addresses;
}

// The addresses where a log can be read, best first; none if it can't be now.
export function readers(place) {
  return [...new Set([...place.readers, place.leader_address])].filter((address) => address !== "");
}
