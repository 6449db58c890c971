// Computes the digests of a relay topic from what a reading is sent, and compares them with those that
// relays state; see octopi/clients/consuming/digest_chain.py, and octopi/wire/proofs.py for the bytes.

import { OctopiError } from "./errors.js";
import { sha256 } from "./sha256.js";

const DIGEST_BYTES = 32;
const ID_BYTES = 16;
const HEAD_BYTES = 8 + DIGEST_BYTES;
const ROW_BYTES = ID_BYTES + 8 + DIGEST_BYTES;
const ANCHOR_DIGITS = 16;
const TRANSACTION_BYTES_MAX = 16 * 1024 * 1024;

export class DigestChain {
  #name;
  #anchored; // { end, digits }: known of a place before anything came; null: nothing is
  #at; // where the transaction begins that comes next, or of which a part has come; null: not known
  #digest; // there
  #begun; // what is digested of that transaction: digest, id, length, and the records that came; null: none
  #came; // bytes of its records

  constructor(name, anchor = "") {
    this.#name = name;
    this.begin(anchor);
  }

  // Reading goes on elsewhere: believe the next relay again, but for *anchor*.
  begin(anchor = "") {
    const [end, digits] = anchor.split(".");
    this.#anchored = digits?.length === ANCHOR_DIGITS && !anchor.includes("-") ? { end: Number(end), digits } : null;
    this.#at = null;
    this.#begun = null;
    this.#came = 0;
  }

  // *records*, which follow those before, have come from *offset* on.  Throws `digest_mismatch`, or
  // `protocol` if *proof* is none of them.
  take(offset, records, proof) {
    const { start, before, rows } = this.#read(proof);
    const end = offset + records.length;
    const { begin, size } = rows.at(-1);
    if (!(start <= offset && offset < start + rows[0].size && begin < end && end <= begin + size)) throw this.#noProof(`it is one of ${start} to ${begin + size}, and not of ${offset} to ${end}`);
    if (this.#begun && offset !== this.#at + this.#came) throw this.#noProof(`records are missing before offset ${offset}`);
    if (this.#at === null) this.#pass(start, before);
    else if (start !== this.#at || hex(before) !== hex(this.#digest)) throw this.#mismatch(start, hex(this.#digest), before);
    for (const row of rows) {
      // If reading began in the middle of it, its digest can't be computed.
      if (row.begin < offset && !this.#begun) this.#pass(row.begin + row.size, row.digest);
      else this.#add(row, records.subarray(Math.max(row.begin, offset) - offset, Math.max(0, row.begin + row.size - offset)));
    }
  }

  #read(proof) {
    const length = proof?.length ?? 0;
    if (length <= HEAD_BYTES || (length - HEAD_BYTES) % ROW_BYTES) throw this.#noProof(`it has ${length} bytes`);
    const view = new DataView(proof.buffer, proof.byteOffset, length);
    const start = Number(view.getBigUint64(0));
    const rows = [];
    for (let at = HEAD_BYTES, begin = start; at < length; at += ROW_BYTES) {
      const size = Number(view.getBigUint64(at + ID_BYTES));
      if (size < 1 || size > TRANSACTION_BYTES_MAX) throw this.#noProof(`it has a transaction of ${size} bytes`);
      rows.push({ begin, size, id: proof.subarray(at, at + ID_BYTES), digest: proof.slice(at + ID_BYTES + 8, at + ROW_BYTES) });
      begin += size;
    }
    return { start, before: proof.slice(8, HEAD_BYTES), rows };
  }

  #add({ begin, size, id, digest: told }, part) {
    const head = DIGEST_BYTES + ID_BYTES + 8;
    if (!this.#begun) {
      this.#begun = new Uint8Array(head + size);
      this.#begun.set(this.#digest);
      this.#begun.set(id, DIGEST_BYTES);
      new DataView(this.#begun.buffer).setBigUint64(DIGEST_BYTES + ID_BYTES, BigInt(size));
      this.#came = 0;
    }
    const whole = this.#begun.length - head;
    if (this.#came + part.length > whole) throw this.#noProof(`a transaction of ${whole} bytes has ${size}`);
    this.#begun.set(part, head + this.#came);
    this.#came += part.length;
    if (this.#came < whole) return;
    const digest = sha256(this.#begun);
    if (hex(digest) !== hex(told)) throw this.#mismatch(begin + size, hex(digest), told);
    this.#begun = null;
    this.#pass(begin + size, digest);
  }

  // *digest* is that at *end*.
  #pass(end, digest) {
    if (this.#anchored?.end === end) {
      const { digits } = this.#anchored;
      this.#anchored = null;
      if (hex(digest).slice(0, ANCHOR_DIGITS) !== digits) throw this.#mismatch(end, digits, digest);
    }
    this.#at = end;
    this.#digest = digest;
  }

  #mismatch(offset, known, told) {
    const [mine, theirs] = [known, hex(told)].map((digits) => digits.slice(0, ANCHOR_DIGITS));
    return new OctopiError(
      "digest_mismatch",
      `${this.#name}: at offset ${offset} the digest is ${mine} by what was read, and the relay says ${theirs}: its memory, or what is between, changes messages; ` +
        "octopi-node relay verify TOPIC says which relay differs",
      { offset },
    );
  }

  #noProof(why) {
    return new OctopiError("protocol", `${this.#name}: a relay sent what is no proof: ${why}`);
  }
}

function hex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
