// CBOR (RFC 8949), the part of it that Octopi speaks: integers of 64 bits with sign, byte and
// text strings, arrays, maps with text keys, booleans, null; definite lengths.
//
// Everything else is refused, and no length is believed before it was compared with what is
// there, so a message costs no more than its own size.  An integer beyond what a number holds
// exactly becomes a BigInt.  Byte strings are views of the message, not copies.  A key whose value
// is undefined is not written: so an optional field is left out, and reads as undefined.

const DEPTH_MAX = 8;
const UNSIGNED = 0;
const NEGATIVE = 1;
const BYTES = 2;
const TEXT = 3;
const ARRAY = 4;
const MAP = 5;
const FALSE = 0xf4;
const TRUE = 0xf5;
const NULL = 0xf6;
const TWO_32 = 2 ** 32;

const toUtf8 = new TextEncoder();
const fromUtf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

export class CborError extends Error {}

// --- encoding ---------------------------------------------------------------------------------

export function encode(value) {
  const writer = new Writer();
  writer.value(value, 0);
  return writer.bytes.slice(0, writer.length);
}

class Writer {
  constructor() {
    this.bytes = new Uint8Array(256);
    this.view = new DataView(this.bytes.buffer);
    this.length = 0;
  }

  value(value, depth) {
    if (depth > DEPTH_MAX) throw new CborError(`it nests deeper than ${DEPTH_MAX}`);
    if (value === null) this.byte(NULL);
    else if (value === true) this.byte(TRUE);
    else if (value === false) this.byte(FALSE);
    else if (typeof value === "number" || typeof value === "bigint") this.integer(value);
    else if (typeof value === "string") this.text(value);
    else if (value instanceof Uint8Array) this.string(BYTES, value);
    else if (Array.isArray(value)) {
      this.head(ARRAY, value.length);
      for (const one of value) this.value(one, depth + 1);
    } else if (typeof value === "object" && isPlain(value)) {
      const entries = Object.entries(value).filter(([, one]) => one !== undefined);
      this.head(MAP, entries.length);
      for (const [key, one] of entries) {
        this.text(key);
        this.value(one, depth + 1);
      }
    } else throw new CborError(`there is no place for ${typeof value === "object" ? value.constructor.name : typeof value}`);
  }

  integer(value) {
    if (typeof value === "number" && !Number.isSafeInteger(value)) {
      throw new CborError(`${value} is no integer that a number holds exactly`);
    }
    if (BigInt.asIntN(64, BigInt(value)) !== BigInt(value)) throw new CborError(`${value} does not fit into 64 bits with sign`);
    if (value >= 0) this.head(UNSIGNED, value);
    else this.head(NEGATIVE, typeof value === "bigint" ? -1n - value : -1 - value);
  }

  text(value) {
    if (!isWellFormed(value)) throw new CborError("a text has half a surrogate pair");
    this.string(TEXT, toUtf8.encode(value));
  }

  string(major, bytes) {
    this.head(major, bytes.length);
    this.reserve(bytes.length);
    this.bytes.set(bytes, this.length);
    this.length += bytes.length;
  }

  head(major, argument) {
    this.reserve(9);
    const { view, length } = this;
    const initial = major << 5;
    if (argument < 24) {
      view.setUint8(length, initial | Number(argument));
      this.length += 1;
    } else if (argument < 0x100) {
      view.setUint8(length, initial | 24);
      view.setUint8(length + 1, Number(argument));
      this.length += 2;
    } else if (argument < 0x10000) {
      view.setUint8(length, initial | 25);
      view.setUint16(length + 1, Number(argument));
      this.length += 3;
    } else if (argument < TWO_32) {
      view.setUint8(length, initial | 26);
      view.setUint32(length + 1, Number(argument));
      this.length += 5;
    } else {
      view.setUint8(length, initial | 27);
      view.setBigUint64(length + 1, BigInt(argument));
      this.length += 9;
    }
  }

  byte(value) {
    this.reserve(1);
    this.bytes[this.length++] = value;
  }

  reserve(more) {
    const needed = this.length + more;
    if (needed <= this.bytes.length) return;
    const bytes = new Uint8Array(Math.max(needed, 2 * this.bytes.length));
    bytes.set(this.bytes.subarray(0, this.length));
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer);
  }
}

function isPlain(value) {
  const prototype = Object.getPrototypeOf(value);
  return prototype === null || prototype === Object.prototype;
}

function isWellFormed(text) {
  return !/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/.test(text);
}

// --- decoding ---------------------------------------------------------------------------------

// The one value in *bytes*; maps become objects without a prototype.
export function decode(bytes) {
  const reader = new Reader(bytes);
  const value = reader.value(0);
  if (reader.at !== bytes.length) throw new CborError(`${bytes.length - reader.at} bytes follow it`);
  return value;
}

class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.at = 0;
  }

  value(depth) {
    if (depth > DEPTH_MAX) throw new CborError(`it nests deeper than ${DEPTH_MAX}`);
    if (this.at >= this.bytes.length) throw new CborError("it ends too early");
    const initial = this.bytes[this.at];
    if (initial === FALSE || initial === TRUE || initial === NULL) {
      this.at++;
      return initial === NULL ? null : initial === TRUE;
    }
    const major = initial >> 5;
    const argument = this.argument();
    switch (major) {
      case UNSIGNED:
        return inRange(argument);
      case NEGATIVE:
        inRange(argument);
        return typeof argument === "bigint" ? -1n - argument : argument === Number.MAX_SAFE_INTEGER ? -1n - BigInt(argument) : -1 - argument;
      case BYTES:
        return this.string(argument);
      case TEXT:
        return this.text(argument);
      case ARRAY:
        return this.array(argument, depth);
      case MAP:
        return this.map(argument, depth);
      default:
        throw new CborError(`there is no place for byte 0x${initial.toString(16)}`);
    }
  }

  argument() {
    const { view, at } = this;
    const additional = this.bytes[at] & 31;
    if (additional < 24) {
      this.at = at + 1;
      return additional;
    }
    if (additional > 27) throw new CborError("indefinite lengths and reserved values are not allowed");
    const behind = at + 1 + (1 << (additional - 24));
    if (behind > this.bytes.length) throw new CborError("it ends too early");
    this.at = behind;
    if (additional === 24) return view.getUint8(at + 1);
    if (additional === 25) return view.getUint16(at + 1);
    if (additional === 26) return view.getUint32(at + 1);
    const large = view.getBigUint64(at + 1);
    return large <= Number.MAX_SAFE_INTEGER ? Number(large) : large;
  }

  string(size) {
    const end = this.at + Number(size);
    if (end > this.bytes.length) throw new CborError("it ends too early");
    const bytes = this.bytes.subarray(this.at, end);
    this.at = end;
    return bytes;
  }

  text(size) {
    const bytes = this.string(size);
    try {
      return fromUtf8.decode(bytes);
    } catch {
      throw new CborError("a text is not UTF-8");
    }
  }

  array(count, depth) {
    const values = [];
    for (let left = count; left > 0; left--) values.push(this.value(depth + 1)); // ends with the bytes
    return values;
  }

  map(count, depth) {
    const values = Object.create(null);
    for (let left = count; left > 0; left--) {
      if (this.at < this.bytes.length && this.bytes[this.at] >> 5 !== TEXT) throw new CborError("a key is no text");
      const key = this.value(depth);
      if (key in values) throw new CborError("a key comes twice");
      values[key] = this.value(depth + 1);
    }
    return values;
  }
}

function inRange(argument) {
  if (typeof argument === "bigint" && argument >= 2n ** 63n) throw new CborError("an integer does not fit into 64 bits with sign");
  return argument;
}
