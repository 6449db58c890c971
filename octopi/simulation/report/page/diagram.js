// The space-time diagram: one lane for each host, time downwards.  Only the rows in view are
// drawn, so it makes no difference how long the run was.

const GUTTER = 84;
const GAP_HEIGHT = 22;
const OVERSCAN = 240;
const ZOOMS = [
  { row: 17, lane: 76, text: false },
  { row: 20, lane: 92, text: false },
  { row: 24, lane: 104, text: true },
  { row: 28, lane: 150, text: true },
];
const SVG = "http://www.w3.org/2000/svg";

class Diagram {
  constructor(element, onPoint, onSelect) {
    this.element = element;
    this.onPoint = onPoint; // called with a moment or null when the pointer comes to one
    this.onSelect = onSelect;
    this.zoom = 2;
    this.selected = null;
    this.related = new Set();
    this.head = part("div", "head", element);
    this.canvas = part("div", "canvas", element);
    this.body = svg("svg", { class: "body" }, this.canvas);
    this.gutter = part("div", "gutter", this.canvas);
    this.times = svg("svg", {}, this.gutter);
    element.addEventListener("scroll", () => this.drawSoon());
    new ResizeObserver(() => this.drawSoon()).observe(element);
    for (const surface of [this.body, this.times]) {
      surface.addEventListener("pointerover", (event) => this.onPoint(momentAt(event)));
      surface.addEventListener("pointerleave", () => this.onPoint(null));
      surface.addEventListener("click", (event) => this.onSelect(momentAt(event)));
    }
  }

  show(filter) {
    Object.assign(this, layOut(filter));
    // A client that has nothing to do meanwhile only takes room away.
    const busy = new Set(this.rows.flatMap((row) => [...row.cells.keys()]));
    for (const one of this.messages) busy.add(one.lane).add(one.target);
    const isShown = (lane) => lane.kind === "register" || lane.kind === "broker" || busy.has(lane.number);
    this.lanes = run.lanes.filter((lane) => !filter.lanes.has(lane.number) && isShown(lane));
    this.idle = run.lanes.filter((lane) => !filter.lanes.has(lane.number) && !isShown(lane));
    this.laneAt = new Map(this.lanes.map((lane, index) => [lane.number, index]));
    this.measure();
  }

  // Where the rows are, in pixels; at the present zoom.
  measure() {
    const { row: height } = ZOOMS[this.zoom];
    let y = 4;
    for (const row of this.rows) {
      if (row.gap) y += GAP_HEIGHT;
      row.y = y + height / 2;
      y += height;
    }
    this.height = y + 8;
    // What room there is belongs to the lanes.
    const room = (this.element.clientWidth - GUTTER - 4) / Math.max(this.lanes.length, 1);
    this.laneWidth = Math.max(ZOOMS[this.zoom].lane, Math.min(room, 190));
    this.width = GUTTER + this.lanes.length * this.laneWidth;
    this.canvas.style.width = this.head.style.width = `${this.width}px`;
    this.canvas.style.height = this.gutter.style.height = `${this.height}px`;
    this.drawHead();
    this.draw();
  }

  x(lane) {
    return GUTTER + this.laneAt.get(lane) * this.laneWidth + this.inset();
  }

  // The lifeline is left of the middle of its lane: badges and captions stand right of it.
  inset() {
    return Math.min(this.laneWidth * 0.36, 44);
  }

  // The row of a moment or, if it isn't shown, the first one behind it.
  rowAt(moment) {
    const own = this.rowOf.get(moment);
    if (own) return own;
    let low = 0;
    let high = this.rows.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.rows[middle].first < moment) low = middle + 1;
      else high = middle;
    }
    return this.rows[low] || null;
  }

  yAt(moment) {
    const row = this.rowAt(moment);
    return row ? row.y - (this.rowOf.has(moment) ? 0 : ZOOMS[this.zoom].row / 2) : this.height;
  }

  setZoom(zoom) {
    const middle = this.rowInMiddle();
    this.zoom = Math.max(0, Math.min(ZOOMS.length - 1, zoom));
    this.measure();
    if (middle) this.scrollTo(middle.first);
  }

  rowInMiddle() {
    const y = this.element.scrollTop + this.element.clientHeight / 2;
    return this.rows.find((row) => row.y >= y);
  }

  scrollTo(moment) {
    const one = run.moments[moment];
    this.element.scrollTop = this.yAt(moment) - this.element.clientHeight * 0.45;
    if (one && this.laneAt.has(one.lane)) {
      const x = this.x(one.lane);
      const { scrollLeft, clientWidth } = this.element;
      if (x < scrollLeft + GUTTER + 20 || x > scrollLeft + clientWidth - 60) this.element.scrollLeft = x - clientWidth / 2;
    }
    this.draw();
  }

  isInView(moment) {
    const y = this.yAt(moment) - this.element.scrollTop;
    return y > 60 && y < this.element.clientHeight - 40;
  }

  select(moment, related) {
    this.selected = moment;
    this.related = related;
    this.draw();
  }

  // --- drawing ---------------------------------------------------------------------------

  drawHead() {
    this.head.replaceChildren();
    part("div", "corner", this.head).textContent = "seconds";
    for (const lane of this.lanes) {
      const cell = part("div", `lane-head ${lane.kind}`, this.head);
      cell.style.width = `${this.laneWidth}px`;
      cell.style.paddingLeft = `${Math.max(0, this.inset() - 26)}px`;
      cell.title = lane.kind && lane.kind !== lane.name ? `${lane.name}, a ${lane.kind}` : lane.name;
      part("i", laneColour(lane.number), cell);
      part("span", "", cell).textContent = lane.name;
    }
  }

  drawSoon() {
    if (this.isDue) return;
    this.isDue = true;
    requestAnimationFrame(() => {
      this.isDue = false;
      this.draw();
    });
  }

  draw() {
    if (!this.rows) return;
    const top = Math.max(0, this.element.scrollTop - OVERSCAN);
    const bottom = Math.min(this.height, this.element.scrollTop + this.element.clientHeight + OVERSCAN);
    this.top = top;
    for (const [surface, width] of [[this.body, this.width], [this.times, GUTTER]]) {
      surface.replaceChildren();
      surface.style.top = `${top}px`;
      setAll(surface, { width, height: Math.max(0, bottom - top), viewBox: `0 ${top} ${width} ${Math.max(0, bottom - top)}` });
    }
    defineMarks(this.body);
    const rows = this.rows.filter((row) => row.y > top - 40 && row.y < bottom + 40);
    this.drawSpans(top, bottom);
    this.drawRows(rows);
    this.drawLifelines(top, bottom);
    this.drawMessages(top, bottom);
    for (const row of rows) for (const [lane, cell] of row.cells) this.drawCell(row, lane, cell);
  }

  drawRows(rows) {
    const { row: height } = ZOOMS[this.zoom];
    let before = -1;
    for (const row of rows) {
      if (row.gap) {
        const y = row.y - height / 2 - GAP_HEIGHT / 2;
        svg("rect", { class: "gap", x: 0, y: y - GAP_HEIGHT / 2 + 3, width: this.width, height: GAP_HEIGHT - 6 }, this.body);
        text("gap-text", GUTTER - 8, y + 4, `+${duration(row.gap)}`, this.times, "end");
      }
      const conflict = run.conflict.findIndex((moment) => this.rowOf.get(moment) === row);
      if (conflict >= 0) svg("rect", { class: "conflict-row", x: 0, y: row.y - height / 2, width: this.width, height }, this.body);
      if (row.us !== before || row.gap) text("time", GUTTER - 8, row.y + 4, (row.us / 1e6).toFixed(6), this.times, "end");
      if (conflict >= 0) this.drawNumber(conflict, row);
      before = row.us;
    }
  }

  drawNumber(conflict, row) {
    const mark = svg("g", { class: "conflict-number", "data-moment": run.conflict[conflict] }, this.times);
    svg("circle", { cx: 10, cy: row.y, r: 8 }, mark);
    text("", 10, row.y + 4, String(conflict + 1), mark, "middle");
  }

  drawLifelines(top, bottom) {
    for (const lane of this.lanes) {
      const lives = run.lives.filter((life) => life.lane === lane.number);
      if (!lives.length) this.drawLifeline(lane.number, top, bottom);
      for (const { begin } of lives) {
        const over = run.spells.find((spell) => spell.lane === lane.number && spell.what !== "paused" && spell.begin >= begin);
        this.drawLifeline(lane.number, Math.max(top, this.yAt(begin)), Math.min(bottom, over ? this.yAt(over.begin) : bottom));
      }
    }
  }

  drawLifeline(lane, from, to) {
    const x = this.x(lane);
    if (to > from) svg("line", { class: "lifeline", x1: x, x2: x, y1: from, y2: to }, this.body);
  }

  drawSpans(top, bottom) {
    for (const spell of run.spells) {
      if (spell.what === "ended") continue;
      const y = this.drawSpan(spell, top, bottom, `spell ${spell.what}`, 3 - this.inset(), this.laneWidth - 6);
      const labelAt = y === null ? Infinity : Math.max(y, this.element.scrollTop + 36) + 14;
      if (labelAt < this.yAt(spell.end)) text("spell-text", this.x(spell.lane) - this.inset() + this.laneWidth / 2, labelAt, spell.what, this.body, "middle");
    }
    for (const lead of run.leads) {
      // Leading several partitions: one strip beside the other.
      const offset = -16 - 5 * (lead.partition % 4);
      const y = this.drawSpan(lead, top, bottom, "lead", offset, 4);
      const labelAt = y === null ? Infinity : Math.max(y, this.element.scrollTop + 36) + 10 + 11 * (lead.partition % 4);
      if (ZOOMS[this.zoom].text && labelAt < this.yAt(lead.end) + 10) {
        const label = text("lead-text", this.x(lead.lane) + offset - 3, labelAt, `p${lead.partition} e${lead.epoch}`, this.body, "end");
        tip(label, `leads partition ${lead.partition} in epoch ${lead.epoch}`);
      }
    }
  }

  // A box in a lane for something that lasts; returns its upper edge if it is in view.
  drawSpan(span, top, bottom, kind, offset, width) {
    if (!this.laneAt.has(span.lane)) return null;
    const from = Math.max(this.yAt(span.begin), top);
    const to = Math.min(this.yAt(span.end), bottom);
    if (to <= from) return null;
    svg("rect", { class: kind, x: this.x(span.lane) + offset, y: from, width, height: to - from }, this.body);
    return from;
  }

  drawMessages(top, bottom) {
    for (const one of this.messages) {
      const from = this.rowOf.get(one.number);
      const to = one.came >= 0 ? this.rowOf.get(one.came) : null;
      if (!from && !to) continue;
      const end = to ? to.y : from.y;
      const begin = from ? from.y : to.y;
      if (Math.max(begin, end) < top - 40 || Math.min(begin, end) > bottom + 40) continue;
      this.drawMessage(one, from, to);
    }
  }

  drawMessage(one, from, to) {
    const x1 = this.x(one.lane);
    const x2 = this.x(one.target);
    const way = Math.sign(x2 - x1) || 1;
    const { row: height } = ZOOMS[this.zoom];
    const isLost = one.came < 0 && factsOf(one).some(([, value]) => value === "never arrives");
    // What begins or ends out of sight is drawn only near the end that is in sight.
    const start = from ? [x1, from.y] : [x2 - way * 60, to.y - height];
    const stub = [x1 + way * Math.min(Math.abs(x2 - x1) * 0.6, 60), (from || to).y + height * 0.8];
    const end = to ? [x2 - way * this.badgeRoom(to, one.target, way), to.y] : stub;
    const marks = ["message", one.kind === "quiet" ? "quiet" : "", isLost ? "lost" : one.came < 0 ? "under-way" : ""];
    if (this.selected === one.number) marks.push("selected");
    else if (this.related.has(one.number)) marks.push("related");
    const group = svg("g", { class: marks.join(" "), "data-moment": one.number }, this.body);
    const path = `M${start[0]} ${start[1]}L${end[0]} ${end[1]}`;
    svg("path", { class: "reach", d: path }, group);
    svg("path", { class: "line", d: path, "marker-end": isLost ? "url(#cross)" : to ? "url(#tip)" : "" }, group);
    if (ZOOMS[this.zoom].text && Math.abs(end[0] - start[0]) > 50) {
      // Near its end, where no other message comes in.
      const x = end[0] - way * 12;
      const y = end[1] + ((x - end[0]) * (end[1] - start[1])) / (end[0] - start[0]) - 3;
      text("label", x, y, one.words, group, way > 0 ? "end" : "start");
    }
  }

  // How far from the lifeline an arrow has to end so that its tip is seen.
  badgeRoom(row, lane, way) {
    const cell = row.cells.get(lane);
    if (!cell || !cell.badges.length) return 1;
    const { places, right } = this.places(lane, cell);
    return Math.max(1, way > 0 ? this.x(lane) - places[0].left + 1 : right - this.x(lane) + 1);
  }

  // Where the badges of a cell are, the caption behind them, if it has room, and the end.
  places(lane, cell) {
    let x = this.x(lane);
    const end = x - this.inset() + this.laneWidth;
    const places = cell.badges.map((badge, index) => {
      const width = badgeWidth(badge, this.laneWidth - 8);
      const left = index ? x : x - (badge.code ? width / 2 : Math.min(width / 2, this.inset() - 4));
      x = left + width + 2;
      return { badge, left, width };
    });
    const caption = ZOOMS[this.zoom].text ? captionOf(cell.badges[cell.badges.length - 1]) : "";
    const size = 6.2 * caption.length + 4;
    return caption && x + size < end ? { places, caption, captionAt: x + 2, right: x + size } : { places, caption: "", right: x - 2 };
  }

  drawCell(row, lane, cell) {
    if (!this.laneAt.has(lane) || !cell.badges.length) return;
    const { places, caption, captionAt } = this.places(lane, cell);
    for (const { badge, left, width } of places) this.drawBadge(badge, left, row.y, width);
    if (caption) text("caption", captionAt, row.y + 3.5, caption, this.body, "start");
  }

  drawBadge(badge, left, y, width) {
    const classes = ["badge", `kind-${badge.kind}`];
    if (badge.moments.some((moment) => run.conflict.includes(moment))) classes.push("in-conflict");
    if (badge.moments.includes(this.selected)) classes.push("selected");
    else if (badge.moments.some((moment) => this.related.has(moment))) classes.push("related");
    const group = svg("g", { class: classes.join(" "), "data-moment": badge.moments[badge.moments.length - 1] }, this.body);
    if (badge.moments.includes(this.selected)) svg("rect", { class: "halo", x: left - 4, y: y - 12, width: width + 8, height: 24, rx: 10 }, group);
    svg("rect", { x: left, y: y - 8, width, height: 16, rx: badge.kind === "P" ? 8 : badge.code ? 4 : 3 }, group);
    text("", left + width / 2, y + 4, badgeWords(badge, width), group, "middle");
  }
}

// --- badges ----------------------------------------------------------------------------------

function badgeWords(badge, width = Infinity) {
  let words = badge.code ? badge.code.replace(/^P/, "") : badge.words;
  const first = run.moments[badge.moments[0]];
  if (badge.kind === "note") words = fieldsOf(first)[3];
  if (badge.kind === "fault") words = `⚑ ${fact(first, "action").match(/^\w*/)[0] || badge.words}`;
  if (badge.words === "fault skipped") words = `(${words})`;
  const life = badge.words === "boot" ? run.lives.find((one) => one.begin === badge.moments[0]) : null;
  if (life && life.number > 1) words = `boot ${life.number}`;
  if (!badge.code && badge.kind !== "fault" && badge.moments.length > 1) words += ` ×${badge.moments.length}`;
  const fits = Math.max(3, Math.floor((width - 6) / 6));
  return words.length > fits ? `${words.slice(0, fits - 1)}…` : words;
}

function badgeWidth(badge, widthMax) {
  const words = badgeWords(badge);
  return badge.kind === "P" ? Math.max(16, 8 + 7 * words.length) : Math.min(widthMax, 8 + 6.3 * words.length);
}

// The one number that tells most.
function captionOf(badge) {
  if (!badge.code || badge.log < 0) return "";
  const one = run.moments[badge.moments[badge.moments.length - 1]];
  const place = `p${run.logs[badge.log].partition}`;
  if (badge.kind === "E" || badge.kind === "J") {
    const epoch = fact(one, "epoch");
    return epoch ? `${place} e${epoch}` : place;
  }
  const value = /^P[568]$/.test(badge.code) ? fact(one, "highwater") || fact(one, "end") : fact(one, "end") || fact(one, "log_end");
  const sequence = fact(one, "sequence");
  return value ? `${place} ${value}` : sequence && sequence !== "None" ? `${place} #${sequence}` : place;
}

// Hosts that charts compare have colours of their own.
function laneColour(lane) {
  const brokers = run.lanes.filter((one) => one.kind === "broker");
  const index = brokers.findIndex((one) => one.number === lane);
  return index < 0 ? "colour-none" : `colour-${index % 6}`;
}

// --- elements --------------------------------------------------------------------------------

function momentAt(event) {
  const owner = event.target.closest("[data-moment]");
  return owner ? Number(owner.dataset.moment) : null;
}

function part(tag, kind, parent) {
  const element = document.createElement(tag);
  if (kind) element.className = kind;
  parent.append(element);
  return element;
}

function svg(tag, attributes, parent) {
  const element = document.createElementNS(SVG, tag);
  setAll(element, attributes);
  parent.append(element);
  return element;
}

function setAll(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) if (value !== "") element.setAttribute(name, value);
}

function text(kind, x, y, words, parent, anchor) {
  const element = svg("text", { class: kind, x, y, "text-anchor": anchor }, parent);
  element.textContent = words;
  return element;
}

function tip(element, words) {
  svg("title", {}, element).textContent = words;
}

function defineMarks(surface) {
  const marks = svg("defs", {}, surface);
  const arrow = svg("marker", { id: "tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8, markerHeight: 8, markerUnits: "userSpaceOnUse", orient: "auto-start-reverse" }, marks);
  svg("path", { class: "tip", d: "M0 0.5L8 4L0 7.5Z" }, arrow);
  const cross = svg("marker", { id: "cross", viewBox: "0 0 8 8", refX: 4, refY: 4, markerWidth: 10, markerHeight: 10, markerUnits: "userSpaceOnUse" }, marks);
  svg("path", { class: "cross", d: "M1 1L7 7M7 1L1 7" }, cross);
  const hatch = svg("pattern", { id: "hatch", width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, marks);
  svg("rect", { class: "hatch-back", width: 7, height: 7 }, hatch);
  svg("line", { class: "hatch-line", x1: 0, y1: 0, x2: 0, y2: 7 }, hatch);
}
