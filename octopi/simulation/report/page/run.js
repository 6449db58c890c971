"use strict";

// The run, as the page's data tells it.  A moment is a position in run.moments;
// octopi/simulation/report/page_data.py says what the data is.

// Messages that go to and fro all the time, and tell something only by their absence.
const QUIET = new Set(["heartbeat", "credit", "ping", "pong"]);

let run; // set once, before anything else happens

async function readRun() {
  const packed = Uint8Array.from(atob(document.getElementById("data").textContent), (character) => character.charCodeAt(0));
  const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const data = JSON.parse(await new Response(unpacked).text());
  const moments = [];
  let lineCount = 0;
  data.moments.forEach((row, number) => {
    const one = { number, lane: row[0], us: row[1], line: -1 };
    if (row.length === 3) {
      Object.assign(one, { type: "came", sent: row[2] });
      if (row[2] >= 0) moments[row[2]].came = number;
    } else if (row.length === 4) {
      const [code, words, kind] = data.whats[row[2]];
      Object.assign(one, { type: "event", code, words, kind, log: row[3] });
    } else {
      Object.assign(one, { type: "sent", words: data.kinds[row[2]], log: row[3], bytes: row[4], target: row[5], came: -1 });
      one.kind = QUIET.has(one.words) ? "quiet" : "message";
    }
    if (one.type !== "came") one.line = lineCount++;
    moments.push(one);
  });
  const lanes = data.lanes.map(([name, kind], number) => ({ number, name, kind }));
  return {
    moments,
    lines: data.lines,
    lanes,
    logs: data.logs.map(([topic, partition]) => ({ topic, partition })),
    conflict: data.conflict,
    focus: data.focus,
    lives: data.lives.map(([lane, number, begin]) => ({ lane, number, begin })),
    spells: data.spells.map(([lane, what, begin, end]) => ({ lane, what, begin, end: upTo(end) })),
    leads: data.leads.map(([lane, partition, epoch, begin, end]) => ({ lane, partition, epoch, begin, end: upTo(end) })),
    reigns: data.reigns.map(([partition, begin, epoch, leader, inSync]) => ({ partition, begin, epoch, leader, inSync })),
    marks: data.marks.map(([log, lane, flat]) => ({ log, lane, flat })),
  };

  function upTo(end) {
    return end < 0 ? data.moments.length : end;
  }
}

// --- facts -----------------------------------------------------------------------------------

// The fields of a moment's line: number, seconds, host, what, then facts.
function fieldsOf(one) {
  if (one.line < 0) return [];
  return (run.lines[one.line] || "").slice(1).trim().split(/ {2,}/);
}

// Name and value of each fact; what has no name has an empty one.
function factsOf(one) {
  one.facts ??= fieldsOf(one)
    .slice(4)
    .map((field) => {
      const at = field.search(/[= ]/);
      return field[at] === "=" ? [field.slice(0, at), field.slice(at + 1)] : ["", field];
    });
  return one.facts;
}

function fact(one, name) {
  for (const [known, value] of factsOf(one)) if (known === name) return value;
  return "";
}

// --- words -----------------------------------------------------------------------------------

function logWords(log) {
  const { topic, partition } = run.logs[log];
  return topic ? `${topic}/${partition}` : `partition ${partition}`;
}

function seconds(us) {
  return `${(us / 1e6).toFixed(6)} s`;
}

function duration(us) {
  if (us >= 1e6) return `${(us / 1e6).toFixed(2)} s`;
  if (us >= 1000) return `${(us / 1000).toFixed(us < 1e4 ? 1 : 0)} ms`;
  return `${us} µs`;
}

// The other end of a message, or -1.
function otherEnd(one) {
  return one.type === "sent" ? one.came : one.type === "came" ? one.sent : -1;
}

// What stands for a moment: an arrival has no line of its own, its message has one.
function subject(one) {
  return one.type === "came" && one.sent >= 0 ? run.moments[one.sent] : one;
}

// What happened to the same records: moments that share a batch, or its place in a log.
function relatedTo(one, among) {
  const batchOf = (other) => {
    const producer = fact(other, "producer");
    return producer && producer !== "None" ? `${other.log} ${producer} ${fact(other, "sequence")}` : "";
  };
  const places = new Set();
  const take = (other) => {
    const end = fact(other, "end") || fact(other, "highwater");
    if (end) places.add(`${other.log} end ${end}`);
    const offset = fact(other, "offset");
    if (offset) places.add(`${other.log} offset ${offset}`);
  };
  const batch = batchOf(one);
  const candidates = among.filter((other) => other.type !== "came" && other.log >= 0);
  for (const other of candidates) if (other === one || (batch && batchOf(other) === batch)) take(other);
  const isThere = (other, name, value) => value && places.has(`${other.log} ${name} ${value}`);
  const isRelated = (other) =>
    (batch && batchOf(other) === batch) ||
    isThere(other, "end", fact(other, "end")) ||
    isThere(other, "end", fact(other, "highwater")) ||
    (other.type === "sent" && fact(other, "records") !== "0 bytes" && isThere(other, "offset", fact(other, "offset")));
  return new Set(candidates.filter(isRelated).map((other) => other.number));
}
