// A run of the simulator, moment by moment, as the cluster that it was: read from the page that
// `octopi-node sim show` writes.  octopi/simulation/report/page_data.py says what is in there.

import { html, nothing } from "../vendor/lit-html.js";

const PLAYED_S = 30; // a whole run
const FRAME_MS = 50;
const KINDS = { kill: "broker_left", "lose power": "broker_left", boot: "broker_joined" };

export class Replay {
  // Reads a page; throws if it is none of the simulator's.
  static async read(file) {
    const text = await file.text();
    // Taken out as text: parsed as a page, its own style would meet our Content-Security-Policy.
    const packed = /<script type="text\/plain" id="data">([A-Za-z0-9+/=\s]+)<\/script>/.exec(text)?.[1];
    if (!packed) throw new Error(`${file.name} is no page of a run: make one with octopi-node sim show`);
    const title = /<title>(.*?)<\/title>/s.exec(text)?.[1] ?? file.name;
    const bytes = Uint8Array.from(atob(packed.trim()), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    const data = JSON.parse(await new Response(stream).text());
    return new Replay(title, data);
  }

  constructor(title, data) {
    this.title = title;
    this.data = data;
    this.moment = 0;
    this.last = Math.max(0, data.moments.length - 1);
    this.isPlaying = false;
    this.lines = this.#eventLines();
  }

  // Plays on from here, or stops; *onMove* is called at each step.
  play(isPlaying, onMove) {
    this.isPlaying = isPlaying;
    if (isPlaying && this.moment === this.last) this.moment = 0;
    const step = Math.max(1, Math.round((this.last * FRAME_MS) / (PLAYED_S * 1000)));
    const frame = () => {
      if (!this.isPlaying) return;
      this.moment = Math.min(this.last, this.moment + step);
      this.isPlaying = this.moment < this.last;
      onMove();
      setTimeout(frame, FRAME_MS);
    };
    frame();
    onMove();
  }

  get seconds() {
    return this.#seconds(this.moment);
  }

  #seconds(moment) {
    const row = this.data.moments[moment];
    return row ? row[1] / 1e6 : 0;
  }

  // The next moment at which some rule is broken, or the end.
  get conflict() {
    return this.data.conflict.find((one) => one > this.moment) ?? this.data.conflict[0] ?? null;
  }

  #eventLines() {
    const lines = [];
    let line = 0;
    this.data.moments.forEach((row, moment) => {
      if (row.length === 3) return; // an arrival has no line of its own
      const words = this.data.lines[line++] ?? "";
      if (row.length !== 4) return;
      const [, name, kind] = this.data.whats[row[2]];
      if (!["E", "R", "J", "host", "fault", "world"].includes(kind)) return;
      lines.push({ number: moment, moment, kind: KINDS[name] ?? (kind === "fault" ? "broker_left" : ""), text: eventText(words) });
    });
    return lines;
  }

  // What had happened by now, newest first.
  get events() {
    const past = this.lines.filter((one) => one.moment <= this.moment);
    return past.slice(-300).reverse();
  }

  timeOf({ moment }) {
    return `${this.#seconds(moment).toFixed(3)} s`;
  }

  // The cluster at this moment, in the form of /api/v1/cluster.
  get cluster() {
    const { lanes, reigns, spells, lives, marks, logs } = this.data;
    const now = this.moment;
    const reign = new Map();
    for (const [partition, begin, epoch, leader, inSync] of reigns) if (begin <= now) reign.set(partition, { epoch, leader, inSync });
    const spell = new Map();
    for (const [lane, what, begin, end] of spells) if (begin <= now && (end < 0 || now < end)) spell.set(lane, what);
    const life = new Map();
    for (const [lane, number, begin] of lives) if (begin <= now) life.set(lane, number);
    const ends = this.#ends(marks, logs, now);

    const brokers = [];
    const idOf = new Map();
    lanes.forEach(([name, kind], lane) => {
      if (kind !== "broker") return;
      const id = name.replace(/^broker-?/, "") || name;
      idOf.set(lane, id).set(name, id);
      const state = { down: "away", paused: "silent", ended: "away" }[spell.get(lane)] ?? (life.has(lane) ? "up" : "away");
      brokers.push({ broker: id, lane, address: name, state, incarnation: life.get(lane) ?? 0, leads: 0 });
    });
    const registerLane = lanes.findIndex(([, kind]) => kind === "register");
    const partitions = [...reign].map(([partition, { epoch, leader, inSync }]) => {
      const copies = brokers.filter(({ lane }) => ends.get(partition)?.has(lane)).map(({ broker, lane }) => ({ broker, log_end: ends.get(partition).get(lane) }));
      const most = Math.max(0, ...copies.map((one) => one.log_end ?? 0));
      for (const copy of copies) copy.lag_bytes = copy.log_end === null ? null : most - copy.log_end;
      const inNow = inSync.map((name) => idOf.get(name) ?? name);
      const leads = idOf.get(leader) ?? null;
      const holder = brokers.find((one) => one.broker === leads);
      if (holder) holder.leads++;
      const replicas = [...new Set([...inNow, ...copies.map((one) => one.broker)])];
      return { partition, epoch, leader: leads, replicas, in_sync: inNow, copies };
    });
    const names = new Set(logs.filter(([topic]) => topic).map(([topic]) => topic));
    const register = { down: "away", paused: "silent", ended: "away" }[spell.get(registerLane)] ?? "up";
    return { cluster: "a simulated run", topic_count: names.size, partition_count: partitions.length, brokers, partitions, register_state: register };
  }

  // partition -> lane -> log end, over all topics of it.
  #ends(marks, logs, now) {
    const ends = new Map();
    for (const [log, lane, flat] of marks) {
      let end;
      for (let at = 0; at < flat.length && flat[at] <= now; at += 3) end = flat[at + 1] < 0 ? null : flat[at + 1];
      if (end === undefined) continue;
      const [, partition] = logs[log];
      if (!ends.has(partition)) ends.set(partition, new Map());
      const lanes = ends.get(partition);
      lanes.set(lane, end === null ? null : (lanes.get(lane) ?? 0) + end);
    }
    return ends;
  }
}

// A line of the timeline: number, seconds, host, what, then facts.
function eventText(line) {
  const [, , host, what, ...facts] = line.slice(1).trim().split(/ {2,}/);
  return [host, what, ...facts].filter(Boolean).join("  ");
}

// --- the view ---------------------------------------------------------------------------------

export function replayPanel(replay, draw, close) {
  const go = (moment) => {
    replay.moment = Math.min(Math.max(0, moment), replay.last);
    draw();
  };
  return html`
    <section class="card" aria-labelledby="replay-title" id="replay">
      <h2 id="replay-title">Replay <small>${replay.title}</small></h2>
      <div class="bar">
        <button type="button" class="primary" aria-pressed=${replay.isPlaying} @click=${() => replay.play(!replay.isPlaying, draw)}>${replay.isPlaying ? "Pause" : "Play"} <kbd>p</kbd></button>
        <label class="grow">Moment
          <input id="moment" type="range" min="0" max=${replay.last} .value=${String(replay.moment)} aria-valuetext="${replay.seconds.toFixed(3)} seconds" @input=${(event) => go(Number(event.target.value))}>
        </label>
        <output>${replay.seconds.toFixed(3)} s</output>
        ${replay.conflict === null ? nothing : html`<button type="button" @click=${() => go(replay.conflict)}>Next conflict</button>`}
        <button type="button" @click=${close}>Back to the cluster</button>
      </div>
    </section>
  `;
}
