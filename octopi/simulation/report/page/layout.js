// What is shown, and where: moments pass the filters and fall into rows, one below the other.

const HIDDEN_AT_FIRST = new Set(["quiet"]);
const WINDOW = 200; // events before the conflict that are shown at first
const GAP_US = 5000; // a quiet spell that is worth a line
const TOGETHER_US = 100; // different hosts share a row if it all happens within this
const CELL_BADGES = 4;

const KINDS = [
  ["P", "1–9", "producing a batch: 1 received, 2 appended and forwarded, 3 replicated, 4 acknowledged to the leader, 5 heard from all in sync, 6 committed and told so, 7 acknowledged to the producer, 8 followed by the followers' marks, 9 refused"],
  ["C", "C", "clients"],
  ["E", "E", "leadership: epochs, leaders, in-sync sets"],
  ["J", "J", "joining: a broker its cluster, a follower its leader"],
  ["R", "R", "the register's memory"],
  ["T", "T", "topics"],
  ["V", "V", "topics that get other partitions"],
  ["S", "S", "durable subscriptions"],
  ["M", "M", "topics in memory: relays"],
  ["A", "A", "records by agreement: acceptors"],
  ["G", "G", "several registers: votes and terms"],
  ["H", "H", "loads of brokers"],
  ["D", "D", "what is made durable"],
  ["fault", "⚑", "faults"],
  ["host", "host", "boots, ends, pauses"],
  ["world", "net", "the network and the world"],
  ["note", "note", "what clients noted"],
  ["message", "→", "messages"],
  ["quiet", "♥", "heartbeats, credit"],
];

// Which moments are shown: between `from` and `to`, of the kinds and lanes that aren't hidden,
// about `log` (null: any; its partition null: any of the topic's), with `words` in their line.
function newFilter() {
  const before = run.conflict.length ? run.conflict[0] : run.focus;
  return { all: false, from: windowStart(before), to: windowEnd(), kinds: new Set(HIDDEN_AT_FIRST), lanes: new Set(), log: null, words: "" };
}

// So that WINDOW events come before the focus, and the first in conflict is among them if
// that is not too far away.
function windowStart(first) {
  let start = run.focus;
  for (let left = WINDOW; start > 0 && left > 0; start--) left -= run.moments[start - 1].type === "event";
  return run.focus - first < 5 * WINDOW ? Math.min(start, Math.max(0, first - 20)) : start;
}

function windowEnd() {
  let end = run.focus + 1;
  const behind = run.moments[run.focus]?.kind === "fault" ? WINDOW / 2 : WINDOW / 5;
  for (let left = behind; end < run.moments.length && left > 0; end++) left -= run.moments[end].type === "event";
  return end;
}

function isShown(one, filter) {
  if (one.type === "came") {
    const sent = subject(one);
    return sent !== one && isShown(sent, { ...filter, from: 0, to: Infinity });
  }
  if (filter.kinds.has(one.kind) || filter.lanes.has(one.lane)) return false;
  if (one.type === "sent" && filter.lanes.has(one.target)) return false;
  if (filter.log !== null && !isAbout(one, filter.log)) return false;
  return !filter.words || (run.lines[one.line] || "").toLowerCase().includes(filter.words);
}

// Events of hosts and faults belong to every log.
function isAbout(one, log) {
  if (["fault", "host", "world", "note"].includes(one.kind)) return true;
  if (one.log < 0) return false;
  const own = run.logs[one.log];
  return isSameLog(own, log);
}

// --- rows ------------------------------------------------------------------------------------

// Rows in the order of time, each with the badges of its cells.  Nobody does two things at
// different times in one row, and a message never ends in the row where it began.
function layOut(filter) {
  const rows = [];
  const rowOf = new Map(); // moment -> row
  const messages = [];
  const to = filter.all ? run.moments.length : filter.to;
  let row = null;
  for (let number = filter.all ? 0 : filter.from; number < to; number++) {
    const one = run.moments[number];
    if (!isShown(one, filter)) continue;
    if (!row || !hasRoom(row, one, rowOf)) {
      const gap = row ? one.us - row.lastUs : 0;
      row = { number: rows.length, us: one.us, lastUs: one.us, first: number, gap: gap >= GAP_US ? gap : 0, isInConflict: false, cells: new Map() };
      rows.push(row);
    }
    row.lastUs = one.us;
    row.isInConflict ||= run.conflict.includes(number);
    rowOf.set(number, row);
    place(row, one);
    if (one.type === "sent") messages.push(one);
    else if (one.type === "came" && !rowOf.has(one.sent)) messages.push(run.moments[one.sent]);
  }
  return { rows, rowOf, messages };
}

function hasRoom(row, one, rowOf) {
  if (one.type === "came" && rowOf.get(one.sent) === row) return false;
  if (one.us - row.us > TOGETHER_US) return false;
  const isInConflict = run.conflict.includes(one.number);
  if (isInConflict && row.isInConflict) return false;
  const cell = row.cells.get(one.lane);
  if (!cell) return true;
  if (cell.us !== one.us) return false;
  if (one.type !== "event" || !cell.badges.length) return true;
  // What is in conflict stands alone.
  if (isInConflict || run.conflict.includes(cell.badges[0].moments[0])) return false;
  return joins(cell, one) || (one.code !== "" && cell.badges[0].code !== "" && cell.badges.length < CELL_BADGES);
}

// Whether an event is one more edge of the step before, the same for another follower, or what
// a fault did at once.
function joins(cell, one) {
  const last = cell.badges[cell.badges.length - 1];
  if (last.kind === "fault" && one.kind === "host") return true; // what the fault did
  return last.kind === one.kind && (one.code ? last.code === one.code && last.log === one.log : last.words === one.words);
}

function place(row, one) {
  let cell = row.cells.get(one.lane);
  if (!cell) row.cells.set(one.lane, (cell = { us: one.us, badges: [] }));
  if (one.type !== "event") return;
  if (cell.badges.length && joins(cell, one)) cell.badges[cell.badges.length - 1].moments.push(one.number);
  else cell.badges.push({ code: one.code, kind: one.kind, words: one.words, log: one.log, moments: [one.number] });
}
