// The record: one message as it lies on disk and crosses the wire.  docs/record-format.md has
// the byte tables; version 2 is what is written here, both versions are read.

import { OctopiError } from "./errors.js";

const HEADER_BYTES = 41; // length, version, checksum, request id
const STRUCTURED_BYTES_MIN = HEADER_BYTES + 16; // and timestamp, key length, headers length
const CHECKSUM_END = 9;
const LENGTH_MIN = [0, 37, 53]; // by version
const RECORD_BYTES_MAX = 8 * 1024 * 1024;
const NO_KEY = 0xffffffff;
const HEADER_COUNT_MAX = 1000;
const HEADER_NAME_BYTES_MAX = 1000;
const TWO_32 = 2 ** 32;
const HALF_A_PAIR = /[\u{d800}-\u{dfff}]/u;

const toUtf8 = new TextEncoder();
const fromUtf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const fromUtf8Leniently = new TextDecoder("utf-8", { ignoreBOM: true });

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let remainder = byte;
  for (let bit = 0; bit < 8; bit++) remainder = remainder & 1 ? (remainder >>> 1) ^ 0xedb88320 : remainder >>> 1;
  return remainder;
});

// CRC-32 of IEEE 802.3, as zlib computes it.
export function crc32(bytes) {
  let remainder = 0xffffffff;
  for (let at = 0; at < bytes.length; at++) remainder = CRC_TABLE[(remainder ^ bytes[at]) & 0xff] ^ (remainder >>> 8);
  return (remainder ^ 0xffffffff) >>> 0;
}

// One message of a log.
export class Message {
  constructor(topic, partition, offset, nextOffset, timestamp, key, value, headers) {
    this.topic = topic;
    this.partition = partition;
    this.offset = offset; // where its record starts: the message's id in its log
    this.nextOffset = nextOffset;
    this.timestamp = timestamp; // ms since 1970, by its producer's clock; null in version 1
    this.key = key;
    this.value = value;
    this.headers = headers;
  }

  text() {
    return fromUtf8Leniently.decode(this.value);
  }

  json() {
    return JSON.parse(this.text());
  }
}

// --- reading ----------------------------------------------------------------------------------

// The messages of *bytes*, which holds whole records from *baseOffset* on, one at a time.  Throws
// at the first record that is damaged; what came before it is good.
export function* readRecords(bytes, baseOffset, topic, partition) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 0;
  while (at < bytes.length) {
    const message = readRecord(bytes, view, at, baseOffset, topic, partition);
    at = message.nextOffset - baseOffset;
    yield message;
  }
}

function readRecord(bytes, view, at, baseOffset, topic, partition) {
  const offset = baseOffset + at;
  const damaged = (what) => new OctopiError("record_damaged", `${topic}/${partition}: record at offset ${offset}: ${what}`);
  if (bytes.length - at < HEADER_BYTES) throw damaged("it ends too early");
  const length = view.getUint32(at);
  const version = view.getUint8(at + 4);
  if (version !== 1 && version !== 2) throw damaged(`there is no version ${version}`);
  if (length < LENGTH_MIN[version] || length > RECORD_BYTES_MAX - 4) throw damaged(`no record has length ${length}`);
  const end = at + 4 + length;
  if (end > bytes.length) throw damaged("it ends too early");
  const covered = bytes.subarray(at + (version === 1 ? HEADER_BYTES : CHECKSUM_END), end);
  if (crc32(covered) !== view.getUint32(at + 5)) throw damaged("the checksum doesn't match: the bytes changed");
  const next = baseOffset + end;
  if (version === 1) {
    return new Message(topic, partition, offset, next, null, null, bytes.subarray(at + HEADER_BYTES, end), {});
  }
  if (view.getUint32(at + 29) !== 0) throw damaged("the reserved bytes of the request id are not zero");
  const timestamp = view.getUint32(at + 41) * TWO_32 + view.getUint32(at + 45);
  const keyLength = view.getUint32(at + 49);
  const headersLength = view.getUint32(at + 53);
  const headersEnd = at + STRUCTURED_BYTES_MIN + headersLength;
  const valueAt = headersEnd + (keyLength === NO_KEY ? 0 : keyLength);
  if (valueAt > end) throw damaged("key and headers are longer than the record");
  const headers = headersLength ? readHeaders(bytes, view, at + STRUCTURED_BYTES_MIN, headersEnd, damaged) : {};
  const key = keyLength === NO_KEY ? null : bytes.subarray(headersEnd, valueAt);
  return new Message(topic, partition, offset, next, timestamp, key, bytes.subarray(valueAt, end), headers);
}

function readHeaders(bytes, view, begin, end, damaged) {
  const headers = Object.create(null);
  let count = 0;
  for (let at = begin; at < end; ) {
    const nameEnd = at + 2 <= end ? at + 2 + view.getUint16(at) : Infinity;
    const valueEnd = nameEnd + 4 <= end ? nameEnd + 4 + view.getUint32(nameEnd) : Infinity;
    if (valueEnd > end) throw damaged("a header ends too early");
    let name;
    try {
      name = fromUtf8.decode(bytes.subarray(at + 2, nameEnd));
    } catch {
      throw damaged("a header's name is not UTF-8");
    }
    if (name in headers) throw damaged("a header comes twice");
    if (nameEnd - at - 2 > HEADER_NAME_BYTES_MAX || ++count > HEADER_COUNT_MAX) throw damaged("its headers are beyond their bounds");
    headers[name] = bytes.subarray(nameEnd + 4, valueEnd);
    at = valueEnd;
  }
  return headers;
}

// --- writing ----------------------------------------------------------------------------------

// What *publish* was given, checked, as the bytes of a record's variable parts.
export function prepare(value, key, headers, timestamp) {
  const prepared = {
    value: asBytes(value, "the value"),
    key: key === undefined || key === null ? null : asBytes(key, "the key"),
    headers: encodeHeaders(headers ?? {}),
    timestamp: checkedTimestamp(timestamp),
  };
  prepared.size = STRUCTURED_BYTES_MIN + prepared.headers.length + (prepared.key?.length ?? 0) + prepared.value.length;
  if (prepared.size > RECORD_BYTES_MAX) {
    throw new OctopiError("message_too_large", `a record has at most ${RECORD_BYTES_MAX} bytes, this one would have ${prepared.size}`);
  }
  return prepared;
}

// Consecutive records of one producer, their sequences counting up from *sequence*.
export function encodeRecords(prepared, producerId, epoch, sequence) {
  const bytes = new Uint8Array(prepared.reduce((sum, one) => sum + one.size, 0));
  const view = new DataView(bytes.buffer);
  let at = 0;
  for (const { value, key, headers, timestamp, size } of prepared) {
    view.setUint32(at, size - 4);
    view.setUint8(at + 4, 2);
    bytes.set(producerId, at + CHECKSUM_END);
    view.setUint32(at + 25, epoch);
    view.setBigUint64(at + 33, BigInt(sequence++));
    view.setBigUint64(at + 41, BigInt(timestamp));
    view.setUint32(at + 49, key === null ? NO_KEY : key.length);
    view.setUint32(at + 53, headers.length);
    bytes.set(headers, at + STRUCTURED_BYTES_MIN);
    if (key !== null) bytes.set(key, at + STRUCTURED_BYTES_MIN + headers.length);
    bytes.set(value, at + size - value.length);
    view.setUint32(at + 5, crc32(bytes.subarray(at + CHECKSUM_END, at + size)));
    at += size;
  }
  return bytes;
}

function encodeHeaders(headers) {
  const torn = Object.keys(headers).find((name) => HALF_A_PAIR.test(name));
  if (torn !== undefined) throw invalid(`a header's name has half of a surrogate pair: ${JSON.stringify(torn.slice(0, 40))}`);
  const entries = Object.entries(headers).map(([name, value]) => [asBytes(name, "a header's name"), asBytes(value, `header ${name}`)]);
  if (entries.length > HEADER_COUNT_MAX) throw invalid(`a message has at most ${HEADER_COUNT_MAX} headers, this one has ${entries.length}`);
  const block = new Uint8Array(entries.reduce((sum, [name, value]) => sum + 6 + name.length + value.length, 0));
  const view = new DataView(block.buffer);
  let at = 0;
  for (const [name, value] of entries) {
    if (name.length > HEADER_NAME_BYTES_MAX) throw invalid(`a header's name has at most ${HEADER_NAME_BYTES_MAX} bytes`);
    view.setUint16(at, name.length);
    block.set(name, at + 2);
    view.setUint32(at + 2 + name.length, value.length);
    block.set(value, at + 6 + name.length);
    at += 6 + name.length + value.length;
  }
  return block;
}

function checkedTimestamp(timestamp) {
  if (!Number.isSafeInteger(timestamp) || timestamp < 0) throw invalid(`timestamp is ${timestamp}; it must be a whole number of milliseconds since 1970`);
  return timestamp;
}

// A string as UTF-8; bytes are copied, for the caller may change them before they are sent.
export function asBytes(value, what) {
  if (typeof value === "string") return toUtf8.encode(value);
  if (value instanceof ArrayBuffer) return new Uint8Array(value.slice(0));
  if (ArrayBuffer.isView(value)) return new Uint8Array(value.buffer, value.byteOffset, value.byteLength).slice();
  throw invalid(`${what} has to be a string or bytes`);
}

function invalid(text) {
  return new OctopiError("invalid_option", text);
}
