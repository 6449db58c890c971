// Numbers, times and bytes, for people to read.

const UNITS = ["B", "kB", "MB", "GB", "TB"];
const fromUtf8 = new TextDecoder("utf-8", { fatal: true });

// Bytes, with the unit that leaves one to three digits before the point.
export function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  let unit = 0;
  let amount = bytes;
  while (amount >= 999.5 && unit < UNITS.length - 1) {
    amount /= 1000;
    unit++;
  }
  return `${unit === 0 || amount >= 99.95 ? Math.round(amount) : amount.toFixed(1)} ${UNITS[unit]}`;
}

export function rate(bytesPerSecond) {
  return bytesPerSecond === null ? "–" : `${size(bytesPerSecond)}/s`;
}

export function count(number) {
  return number === null || number === undefined ? "–" : number.toLocaleString("en");
}

export function plural(number, thing) {
  return `${count(number)} ${thing}${number === 1 ? "" : "s"}`;
}

// 0.4 s, 12 s, 3.5 min, 2 h, 9 d.
export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  let amount = ms / 1000;
  let unit = 0;
  const units = [["s", 60], ["min", 60], ["h", 24], ["d", Infinity]];
  while (amount >= units[unit][1]) amount /= units[unit++][1];
  return `${amount >= 9.95 ? Math.round(amount) : Number(amount.toFixed(1))} ${units[unit][0]}`;
}

// 14:03:12.345, in the reader's own time zone.
export function clock(ms) {
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return "–";
  return `${[at.getHours(), at.getMinutes(), at.getSeconds()].map(twoDigits).join(":")}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

// With the day: 2026-11-24 14:03:12.
export function date(ms) {
  const at = new Date(ms);
  return Number.isNaN(at.getTime()) ? "–" : `${at.toLocaleDateString("en-CA")} ${clock(ms).slice(0, 8)}`;
}

function twoDigits(number) {
  return String(number).padStart(2, "0");
}

// --- the content of messages ------------------------------------------------------------------

// Up to *bytesMax* of *bytes* as "text", "json" or "hex".
export function content(bytes, form, bytesMax) {
  const shown = bytes.subarray(0, bytesMax);
  if (form === "hex") return hexDump(shown);
  const text = asText(shown, bytes.length > bytesMax);
  if (text === null) return hexDump(shown);
  if (form === "text" || bytes.length > bytesMax) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

// Null: it isn't UTF-8.
function asText(bytes, isCut) {
  // A cut may go through a character.
  for (let dropped = 0; dropped <= (isCut ? 3 : 0); dropped++) {
    try {
      return fromUtf8.decode(bytes.subarray(0, bytes.length - dropped));
    } catch {
      // perhaps one byte less
    }
  }
  return null;
}

function hexDump(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const row = bytes.subarray(at, at + 16);
    const hex = Array.from(row, (byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const text = Array.from(row, (byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "·")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex.padEnd(47)}  ${text}`);
  }
  return lines.join("\n");
}

// One line of a message, short enough for a row.
export function preview(bytes, form) {
  if (form === "hex") return Array.from(bytes.subarray(0, 60), (byte) => byte.toString(16).padStart(2, "0")).join(" ");
  const text = asText(bytes.subarray(0, 300), bytes.length > 300);
  return text === null ? preview(bytes, "hex") : text.replace(/\s+/g, " ");
}
