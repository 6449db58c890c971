// SHA-256, for pages without `crypto.subtle`: browsers have that only on pages over TLS or from this
// machine.

const primes = [];
for (let one = 2; primes.length < 64; one++) if (primes.every((prime) => one % prime)) primes.push(one);
const fraction = (root) => ((root - Math.floor(root)) * 2 ** 32) | 0;
const START = primes.slice(0, 8).map((prime) => fraction(Math.sqrt(prime)));
const ROUNDS = primes.map((prime) => fraction(Math.cbrt(prime)));

const rotated = (word, bits) => (word >>> bits) | (word << (32 - bits));

export function sha256(bytes) {
  const padded = new Uint8Array(((bytes.length + 72) >> 6) << 6);
  padded.set(bytes);
  padded[bytes.length] = 0x80;
  const view = new DataView(padded.buffer);
  view.setUint32(padded.length - 4, bytes.length * 8);
  let state = START;
  for (let at = 0; at < padded.length; at += 64) state = block(state, view, at);
  const digest = new DataView(new ArrayBuffer(32));
  state.forEach((word, number) => digest.setInt32(4 * number, word));
  return new Uint8Array(digest.buffer);
}

function block(state, view, at) {
  const words = [];
  let [a, b, c, d, e, f, g, h] = state;
  for (let number = 0; number < 64; number++) {
    if (number < 16) {
      words.push(view.getInt32(at + 4 * number));
    } else {
      const [early, late] = [words[number - 15], words[number - 2]];
      const first = rotated(early, 7) ^ rotated(early, 18) ^ (early >>> 3);
      const second = rotated(late, 17) ^ rotated(late, 19) ^ (late >>> 10);
      words.push((words[number - 16] + first + words[number - 7] + second) | 0);
    }
    const chosen = (e & f) ^ (~e & g);
    const sum = (h + (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) + chosen + ROUNDS[number] + words[number]) | 0;
    const more = ((rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    [h, g, f, e, d, c, b, a] = [g, f, e, (d + sum) | 0, c, b, a, (sum + more) | 0];
  }
  return [a, b, c, d, e, f, g, h].map((word, number) => (word + state[number]) | 0);
}
