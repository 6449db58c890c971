// SHA-256, for pages without `crypto.subtle`: browsers have that only on pages over TLS or from this
// machine.

const primes = [];
for (let one = 2; primes.length < 64; one++) if (primes.every((prime) => one % prime)) primes.push(one);
const fraction = (root) => ((root - Math.floor(root)) * 2 ** 32) | 0;
const START = primes.slice(0, 8).map((prime) => fraction(Math.sqrt(prime)));
const ROUNDS = Int32Array.from(primes, (prime) => fraction(Math.cbrt(prime)));
const words = new Int32Array(64); // of the block at hand

const rotated = (word, bits) => (word >>> bits) | (word << (32 - bits));

export function sha256(bytes) {
  const padded = new Uint8Array(((bytes.length + 72) >> 6) << 6);
  padded.set(bytes);
  padded[bytes.length] = 0x80;
  const view = new DataView(padded.buffer);
  view.setUint32(padded.length - 4, bytes.length * 8);
  const state = Int32Array.from(START);
  for (let at = 0; at < padded.length; at += 64) block(state, view, at);
  const digest = new DataView(new ArrayBuffer(32));
  state.forEach((word, number) => digest.setInt32(4 * number, word));
  return new Uint8Array(digest.buffer);
}

// No lists are made here: with them it took more than twice as long.
function block(state, view, at) {
  for (let number = 0; number < 16; number++) words[number] = view.getInt32(at + 4 * number);
  for (let number = 16; number < 64; number++) {
    const early = words[number - 15];
    const late = words[number - 2];
    const first = rotated(early, 7) ^ rotated(early, 18) ^ (early >>> 3);
    const second = rotated(late, 17) ^ rotated(late, 19) ^ (late >>> 10);
    words[number] = (words[number - 16] + first + words[number - 7] + second) | 0;
  }
  let [a, b, c, d, e, f, g, h] = state;
  for (let number = 0; number < 64; number++) {
    const sum = (h + (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) + ((e & f) ^ (~e & g)) + ROUNDS[number] + words[number]) | 0;
    const more = ((rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    h = g;
    g = f;
    f = e;
    e = (d + sum) | 0;
    d = c;
    c = b;
    b = a;
    a = (sum + more) | 0;
  }
  [a, b, c, d, e, f, g, h].forEach((word, number) => (state[number] += word));
}
