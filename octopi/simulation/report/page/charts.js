// Who led each partition, and how far each replica's log went: time from left to right, over
// the moments that the diagram shows.

const CHARTS_MAX = 24; // partitions that are drawn at once
const CHART = { left: 104, right: 150, band: 26, row: 46, head: 18 };

class Charts {
  constructor(element, onSelect) {
    this.element = element;
    this.onSelect = onSelect;
    this.cursors = [];
    new ResizeObserver(() => {
      if (this.filter && this.element.clientWidth !== this.drawnWidth) this.show(this.filter);
    }).observe(element);
  }

  show(filter) {
    this.filter = filter;
    this.from = filter.all ? 0 : filter.from;
    this.to = filter.all ? run.moments.length : filter.to;
    this.drawnWidth = this.element.clientWidth;
    this.width = Math.max(480, this.drawnWidth);
    this.element.replaceChildren();
    this.cursors = [];
    const isWanted = (log) => !filter.log || isSameLog(log, filter.log);
    const partitions = [...new Set([...run.reigns.map((one) => one.partition), ...run.logs.map((one) => one.partition)])];
    let left = 0;
    for (const partition of partitions.sort((a, b) => a - b)) {
      if (filter.log && filter.log.partition !== null && filter.log.partition !== partition) continue;
      if (this.element.children.length === CHARTS_MAX) {
        left++;
        continue;
      }
      const replicas = run.marks.filter(({ log }) => run.logs[log].partition === partition && isWanted(run.logs[log]));
      const logs = [...new Set(replicas.map(({ log }) => log))];
      const isLed = run.reigns.some((one) => one.partition === partition);
      if (logs.length || (isLed && filter.log?.partition !== null)) {
        this.drawPartition(partition, logs.map((log) => [log, replicas.filter((one) => one.log === log)]));
      }
    }
    if (!this.element.children.length) part("p", "hint", this.element).textContent = "No log is written to in this run.";
    if (left) part("p", "hint", this.element).textContent = `${left} more partitions: choose a log above.`;
    this.point(null);
  }

  get inner() {
    return this.width - CHART.left - CHART.right;
  }

  x(moment) {
    const share = (moment - this.from) / Math.max(1, this.to - this.from);
    return CHART.left + Math.max(0, Math.min(1, share)) * this.inner;
  }

  momentOf(x) {
    const share = Math.max(0, Math.min(1, (x - CHART.left) / this.inner));
    return Math.min(this.to - 1, Math.round(this.from + share * (this.to - this.from)));
  }

  drawPartition(partition, logs) {
    const figure = part("figure", "", this.element);
    part("figcaption", "", figure).textContent = `Partition ${partition}`;
    const rows = logs.reduce((sum, [, replicas]) => sum + CHART.head + replicas.length * CHART.row, 0);
    const height = CHART.band + rows + 22;
    const label = `Leaders of partition ${partition} and the ends of its logs, as they change`;
    const chart = svg("svg", { class: "chart", width: this.width, height, role: "img", "aria-label": label }, figure);
    defineMarks(chart);
    this.drawReigns(partition, chart);
    let y = CHART.band;
    for (const [log, replicas] of logs) {
      text("log-name", 0, y + 14, logWords(log), chart, "start");
      y += CHART.head;
      const scale = this.scale(replicas);
      for (const replica of replicas) {
        this.drawReplica(replica, scale, y, chart);
        y += CHART.row;
      }
    }
    this.drawTimes(y + 14, chart);
    for (const moment of run.conflict) {
      if (moment < this.from || moment >= this.to) continue;
      svg("line", { class: "conflict-line", x1: this.x(moment), x2: this.x(moment), y1: 0, y2: y }, chart);
    }
    this.addCursor(chart, y);
  }

  // --- leaders ---------------------------------------------------------------------------

  drawReigns(partition, chart) {
    text("row-name", 0, 16, "leader, epoch", chart, "start");
    const reigns = run.reigns.filter((one) => one.partition === partition);
    reigns.forEach((reign, index) => {
      const end = index + 1 < reigns.length ? reigns[index + 1].begin : this.to;
      if (end <= this.from || reign.begin >= this.to) return;
      const x = this.x(reign.begin);
      const width = Math.max(1, this.x(end) - x);
      const group = svg("g", { class: `reign ${reign.leader < 0 ? "nobody" : laneColour(reign.leader)}` }, chart);
      svg("rect", { x, y: 3, width, height: 18 }, group);
      const leader = reign.leader < 0 ? "nobody" : run.lanes[reign.leader].name;
      const words = [`e${reign.epoch} ${leader}`, reign.inSync.length ? `in sync: ${reign.inSync.join(", ")}` : ""].filter(Boolean).join(" · ");
      const fits = Math.floor((width - 6) / 6.2);
      if (fits >= 2) text("", x + 4, 16, words.length > fits ? `${words.slice(0, fits - 1)}…` : words, group, "start");
      tip(group, words);
    });
  }

  // --- logs ------------------------------------------------------------------------------

  // Offsets that are seen in the range, over all replicas of a log.
  scale(replicas) {
    let low = Infinity;
    let high = -Infinity;
    for (const replica of replicas) {
      for (const [, end, highwater] of this.steps(replica)) {
        for (const value of [end, highwater]) {
          if (value < 0) continue;
          low = Math.min(low, value);
          high = Math.max(high, value);
        }
      }
    }
    const margin = (high - low) * 0.06 || 1;
    return { low: low - margin, high: high + margin };
  }

  // Moment, log end, highwater mark: from what held at the left edge on.
  steps(replica) {
    const found = [[this.from, -1, -1]];
    for (let at = 0; at < replica.flat.length; at += 3) {
      const [moment, end, highwater] = replica.flat.slice(at, at + 3);
      if (moment >= this.to) break;
      if (moment <= this.from) found[0] = [this.from, end, highwater];
      else found.push([moment, end, highwater]);
    }
    return found;
  }

  drawReplica(replica, scale, top, chart) {
    const bottom = top + CHART.row - 8;
    const y = (value) => bottom - ((value - scale.low) / (scale.high - scale.low)) * (bottom - top);
    const steps = this.steps(replica);
    svg("rect", { class: "plot", x: CHART.left, y: top, width: this.inner, height: bottom - top }, chart);
    for (const spell of run.spells) {
      if (spell.lane !== replica.lane || spell.end <= this.from || spell.begin >= this.to) continue;
      const x = this.x(spell.begin);
      svg("rect", { class: `spell ${spell.what}`, x, y: top, width: Math.max(1, this.x(spell.end) - x), height: bottom - top }, chart);
    }
    const end = this.path(steps, 1, y);
    const highwater = this.path(steps, 2, y);
    const group = svg("g", { class: laneColour(replica.lane) }, chart);
    svg("path", { class: "highwater-area", d: this.area(steps, y, bottom) }, group);
    svg("path", { class: "highwater", d: highwater }, group);
    svg("path", { class: "log-end", d: end }, group);
    text("row-name", 12, (top + bottom) / 2 + 4, run.lanes[replica.lane].name, chart, "start");
    const values = text("values", this.width - CHART.right + 8, (top + bottom) / 2 + 4, "", chart, "start");
    this.cursors.push((moment) => {
      const last = steps.filter(([at]) => at <= moment).pop() || steps[0];
      const [, ended, marked] = last;
      values.textContent = ended < 0 ? "" : `end ${ended}${marked < 0 ? "" : ` · hw ${marked}`}`;
    });
  }

  path(steps, field, y) {
    let path = "";
    let isDown = true;
    for (const [index, step] of steps.entries()) {
      const next = index + 1 < steps.length ? steps[index + 1][0] : this.to;
      if (step[field] < 0) {
        isDown = true;
        continue;
      }
      path += `${isDown ? "M" : "L"}${this.x(step[0]).toFixed(1)} ${y(step[field]).toFixed(1)}H${this.x(next).toFixed(1)}`;
      isDown = false;
    }
    return path;
  }

  area(steps, y, bottom) {
    let path = "";
    for (const [index, [moment, , highwater]] of steps.entries()) {
      const next = index + 1 < steps.length ? steps[index + 1][0] : this.to;
      if (highwater < 0) continue;
      path += `M${this.x(moment).toFixed(1)} ${bottom}V${y(highwater).toFixed(1)}H${this.x(next).toFixed(1)}V${bottom}Z`;
    }
    return path;
  }

  drawTimes(y, chart) {
    const count = Math.max(2, Math.floor(this.inner / 110));
    for (let tick = 0; tick <= count; tick++) {
      const moment = this.momentOf(CHART.left + (this.inner * tick) / count);
      const one = run.moments[moment];
      if (one) text("tick", this.x(moment), y, `${(one.us / 1e6).toFixed(3)} s`, chart, "middle");
    }
  }

  // --- pointing --------------------------------------------------------------------------

  addCursor(chart, height) {
    const line = svg("line", { class: "cursor", y1: 0, y2: height }, chart);
    this.cursors.push((moment) => setAll(line, { x1: this.x(moment), x2: this.x(moment) }));
    const at = (event) => this.momentOf(event.clientX - chart.getBoundingClientRect().left);
    chart.addEventListener("pointermove", (event) => this.point(at(event)));
    chart.addEventListener("pointerleave", () => this.point(null));
    chart.addEventListener("click", (event) => this.onSelect(at(event)));
  }

  // Show the values at a moment; null: at the one that is selected, or looked at first.
  point(moment) {
    const shown = moment ?? this.selected ?? run.focus;
    for (const cursor of this.cursors) cursor(shown);
  }

  select(moment) {
    this.selected = moment;
    this.point(null);
  }
}

function isSameLog(log, wanted) {
  if (wanted.partition === null) return log.topic === wanted.topic;
  return log.partition === wanted.partition && (!wanted.topic || !log.topic || log.topic === wanted.topic);
}
