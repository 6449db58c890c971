// What the loss of one more broker would mean, partition by partition.

// For each broker that is up, with which partitions would have no replica in sync (*leaderless*) or
// too few of them to take messages (*waiting*); only brokers whose loss would mean that.
export function oneMoreLoss({ brokers, partitions }) {
  const up = new Set(brokers.filter((one) => one.live).map((one) => one.broker));
  return [...up].flatMap((broker) => {
    const leaderless = [];
    const waiting = [];
    for (const one of partitions) {
      const inSync = one.in_sync.filter((replica) => up.has(replica));
      if (!inSync.includes(broker)) continue;
      if (inSync.length === 1) leaderless.push(one);
      else if (inSync.length - 1 < one.min_insync && inSync.length >= one.min_insync) waiting.push(one);
    }
    return leaderless.length || waiting.length ? [{ broker, leaderless, waiting }] : [];
  });
}

// How many brokers may still be lost, one after the other, with all partitions giving and taking
// messages: each has as many replicas in sync as its topics ask for, and at least one.
export function lossesLeft({ brokers, partitions }) {
  const up = new Set(brokers.filter((one) => one.live).map((one) => one.broker));
  const left = partitions.map((one) => one.in_sync.filter((replica) => up.has(replica)).length - Math.max(1, one.min_insync));
  return partitions.length ? Math.max(0, Math.min(...left)) : null;
}
