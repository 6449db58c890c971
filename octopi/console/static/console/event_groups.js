// Events that belong together: when a broker dies, each of its partitions tells of several steps.

const GAP_MS = 2_000; // without an event, ends a group

const WORDS = {
  broker_joined: (count) => (count === 1 ? null : `${count} brokers joined`),
  broker_left: (count) => (count === 1 ? null : `${count} brokers left`),
  epoch_announced: (count, partitions) => `${partitions} began to elect a leader`,
  leader: (count, partitions) => `${partitions} got a leader`,
  in_sync: (count, partitions) => `in-sync replicas of ${partitions} changed`,
  topic_created: (count) => (count === 1 ? null : `${count} topics were created`),
  topic_deleted: (count) => (count === 1 ? null : `${count} topics were deleted`),
};

// *events*: newest first.  Groups, newest first: { at_ms, number, lines, events }, where a line has
// the kind, a text, and the names of topics that it is about.
export function eventGroups(events) {
  const groups = [];
  for (const event of events) {
    const group = groups.at(-1);
    if (group && group.events.at(-1).at_ms - event.at_ms <= GAP_MS) group.events.push(event);
    else groups.push({ at_ms: event.at_ms, number: event.number, events: [event] });
  }
  for (const group of groups) {
    group.at_ms = group.events.at(-1).at_ms;
    group.number = group.events.at(-1).number; // stays as the group grows
    group.lines = lines([...group.events].reverse());
  }
  return groups;
}

// One line for each kind, in the order in which they began; but a broker that left is the cause of
// the rest, though the register may notice its replicas' absence first.
function lines(events) {
  const byKind = new Map(events.some((one) => one.kind === "broker_left") ? [["broker_left", []]] : []);
  for (const event of events) byKind.set(event.kind, [...(byKind.get(event.kind) ?? []), event]);
  return [...byKind].map(([kind, all]) => {
    const partitions = new Set(all.map((one) => one.partition).filter((one) => one !== null && one !== undefined));
    const { size } = partitions;
    const text = size === 1 ? `partition ${[...partitions][0]}` : `${size} partitions`;
    const single = all.length === 1 ? all[0].text : null;
    return { kind, count: all.length, text: single ?? WORDS[kind]?.(all.length, text) ?? all.map((one) => one.text).join("; "), ...topicsOf(all) };
  });
}

// The topics of the partitions of *events*: the names of a few, and the number of the others.
function topicsOf(events) {
  const byPartition = new Map(events.filter((one) => one.topics).map((one) => [one.partition, one]));
  const names = new Set([...byPartition.values()].flatMap((one) => one.topics));
  const all = [...byPartition.values()].reduce((sum, one) => sum + one.topics_count, 0);
  const named = [...names].slice(0, 3);
  // A topic with several partitions counts several times in *all*.
  return { topics: named, more: Math.max(names.size, all) - named.length, isAtMost: byPartition.size > 1 };
}
