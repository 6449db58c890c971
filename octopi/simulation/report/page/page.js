// What people do with the page: filters, keys, pointing, copying.

const CHUNK_LINES = 400;
const LINE_HEIGHT = 18; // as the style sheet has it

async function start() {
  copyOnClick();
  switchTheme();
  try {
    run = await readRun();
  } catch (error) {
    document.getElementById("count").textContent = `This browser can't unpack the run: ${error}`;
    return;
  }
  writeTimeline();
  document.getElementById("part").hidden = true; // of use on paper only
  if (!run.moments.length) {
    for (const id of ["diagram-section", "charts-section"]) document.getElementById(id).hidden = true;
    return;
  }
  const view = new View();
  view.apply();
  view.goTo(run.focus);
  showInTimeline(subject(run.moments[run.focus]).line);
}

class View {
  constructor() {
    this.filter = newFilter();
    this.selected = null;
    this.detail = document.getElementById("detail");
    const diagram = document.getElementById("diagram");
    this.diagram = new Diagram(
      diagram,
      (moment) => this.describe(moment ?? this.selected),
      (moment) => this.select(moment),
    );
    this.charts = new Charts(document.getElementById("charts"), (moment) => this.goTo(this.nearest(moment)));
    this.buildFilters();
    this.buildLegend();
    document.addEventListener("keydown", (event) => this.press(event));
    document.addEventListener("click", (event) => {
      const link = event.target.closest("a[data-moment]");
      if (!link) return;
      event.preventDefault();
      this.comeTo(Number(link.dataset.moment));
    });
    document.getElementById("timeline").addEventListener("click", (event) => this.lineClicked(event));
  }

  // --- filters ---------------------------------------------------------------------------

  buildFilters() {
    const range = document.getElementById("range");
    const near = run.conflict.length ? "around the conflict" : "the end of the run";
    range.append(new Option(near, "near"), new Option("all of the run", "all"));
    range.addEventListener("change", () => this.change({ all: range.value === "all" }));
    const log = document.getElementById("log");
    const choices = logChoices();
    log.append(new Option("all", ""), ...choices.map(({ words }, number) => new Option(words, number)));
    log.addEventListener("change", () => this.change({ log: log.value === "" ? null : choices[Number(log.value)].log }));
    const words = document.getElementById("words");
    words.addEventListener("input", () => this.change({ words: words.value.trim().toLowerCase() }));
    const used = new Set(run.moments.map((one) => one.kind));
    for (const [kind, short, meaning] of KINDS.filter(([name]) => used.has(name))) {
      this.addToggle("kinds", `kind-${kind}`, short, meaning, this.filter.kinds, kind);
    }
    for (const lane of run.lanes) this.addToggle("hosts", "", lane.name, lane.kind, this.filter.lanes, lane.number);
    document.getElementById("filters").addEventListener("submit", (event) => event.preventDefault());
    document.getElementById("zoom-in").addEventListener("click", () => this.diagram.setZoom(this.diagram.zoom + 1));
    document.getElementById("zoom-out").addEventListener("click", () => this.diagram.setZoom(this.diagram.zoom - 1));
    const toConflict = document.getElementById("to-conflict");
    toConflict.addEventListener("click", () => this.nextOf(run.conflict, 1));
    toConflict.hidden = !run.conflict.length;
  }

  // A box that is ticked as long as its key isn't in *hidden*.
  addToggle(place, kind, short, meaning, hidden, key) {
    const label = part("label", `toggle ${kind}`, document.getElementById(place));
    label.title = meaning;
    const box = part("input", "", label);
    box.type = "checkbox";
    box.checked = !hidden.has(key);
    part("span", "", label).textContent = short;
    box.addEventListener("change", () => {
      if (box.checked) hidden.delete(key);
      else hidden.add(key);
      this.change({});
    });
  }

  buildLegend() {
    const legend = document.getElementById("legend");
    for (const [kind, short, meaning] of KINDS) {
      part("b", `toggle kind-${kind}`, part("dt", "", legend)).textContent = short;
      part("dd", "", legend).textContent = meaning;
    }
  }

  change(changes) {
    const middle = this.selected ?? this.diagram.rowInMiddle()?.first ?? run.focus;
    Object.assign(this.filter, changes);
    this.apply();
    this.diagram.scrollTo(middle);
  }

  apply() {
    this.diagram.show(this.filter);
    this.charts.show(this.filter);
    const events = [...this.diagram.rowOf.keys()].filter((number) => run.moments[number].type === "event").length;
    const all = run.moments.filter((one) => one.type === "event").length;
    const share = events === all ? "" : ` of the run's ${all}`;
    const idle = this.diagram.idle.map((lane) => lane.name).join(", ");
    document.getElementById("count").textContent =
      `${events}${share} events and ${this.diagram.messages.length} messages are shown.` + (idle ? ` Left out, having nothing to do: ${idle}.` : "");
  }

  // --- pointing --------------------------------------------------------------------------

  select(moment) {
    const shown = moment === null ? null : subject(run.moments[moment]).number;
    this.selected = shown;
    const among = [...this.diagram.rowOf.keys()].map((number) => run.moments[number]);
    this.diagram.select(shown, shown === null ? new Set() : relatedTo(run.moments[shown], among));
    this.charts.select(moment);
    this.describe(shown);
  }

  // Select a moment, having it shown if it isn't.
  goTo(moment) {
    if (moment < 0 || moment >= run.moments.length) return;
    const { from, to, all } = this.filter;
    if (!all && (moment < from || moment >= to)) {
      document.getElementById("range").value = "all";
      this.filter.all = true;
      this.apply();
    }
    this.select(moment);
    if (!this.diagram.isInView(moment)) this.diagram.scrollTo(moment);
  }

  // The same for somebody who is elsewhere on the page.
  comeTo(moment) {
    this.goTo(moment);
    document.getElementById("diagram-section").scrollIntoView({ block: "start" });
    document.getElementById("diagram").focus({ preventScroll: true });
  }

  // The shown moment that is nearest to one that may not be shown.
  nearest(moment) {
    const row = this.diagram.rowAt(moment);
    return row && !this.diagram.rowOf.has(moment) ? row.first : moment;
  }

  describe(moment) {
    this.detail.replaceChildren();
    if (moment === null) {
      part("p", "hint", this.detail).textContent = "Nothing is selected.";
      return;
    }
    const one = run.moments[moment];
    const badge = [...(this.diagram.rowOf.get(moment)?.cells.values() ?? [])].flatMap((cell) => cell.badges).find((own) => own.moments.includes(moment));
    for (const number of one.type === "event" && badge ? badge.moments : [moment]) this.describeOne(run.moments[number]);
  }

  describeOne(one) {
    const [, , host, words] = fieldsOf(one);
    const about = part("article", run.conflict.includes(one.number) ? "in-conflict" : "", this.detail);
    part("h3", "", about).textContent = words;
    part("p", "", about).textContent = host === "-" ? seconds(one.us) : `${host} at ${seconds(one.us)}`;
    const list = part("dl", "", about);
    for (const [name, value] of factsOf(one)) {
      if (name) part("dt", "", list).textContent = name;
      part("dd", name ? "" : "whole", list).textContent = value;
    }
    if (one.type === "sent" && one.came >= 0) {
      part("p", "", about).textContent = `under way for ${duration(run.moments[one.came].us - one.us)}`;
    }
  }

  lineClicked(event) {
    const chunk = event.target.closest("pre");
    if (!chunk || !getSelection().isCollapsed) return; // somebody selects text
    const before = [...chunk.parentElement.children].indexOf(chunk) * CHUNK_LINES;
    const line = before + Math.floor((event.clientY - chunk.getBoundingClientRect().top) / LINE_HEIGHT);
    const one = run.moments.find((other) => other.line === line);
    if (one) this.comeTo(one.number);
  }

  // --- keys ------------------------------------------------------------------------------

  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, dialog")) return;
    // Elsewhere arrows scroll, as people expect.
    if (event.key.startsWith("Arrow") && !event.target.closest("#diagram")) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const action = {
      ArrowDown: () => this.step(1, false),
      j: () => this.step(1, false),
      ArrowUp: () => this.step(-1, false),
      k: () => this.step(-1, false),
      ArrowRight: () => this.step(1, true),
      l: () => this.step(1, true),
      ArrowLeft: () => this.step(-1, true),
      h: () => this.step(-1, true),
      m: () => this.follow(),
      c: () => this.nextOf(run.conflict, 1),
      f: () => this.nextOf(run.moments.filter((one) => one.kind === "fault").map((one) => one.number), event.shiftKey ? -1 : 1),
      a: () => this.toggleRange(),
      t: () => this.showLine(),
      "+": () => this.diagram.setZoom(this.diagram.zoom + 1),
      "=": () => this.diagram.setZoom(this.diagram.zoom + 1),
      "-": () => this.diagram.setZoom(this.diagram.zoom - 1),
      "?": () => document.getElementById("help").showModal(),
      Escape: () => this.select(null),
    }[key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  // To the next or previous of what is shown, on the same host or on any.
  step(way, isSameHost) {
    const shown = [...this.diagram.rowOf.keys()].filter((number) => run.moments[number].type !== "came");
    const at = this.selected ?? run.focus;
    const lane = run.moments[at].lane;
    const fits = shown.filter((number) => (way > 0 ? number > at : number < at) && (!isSameHost || run.moments[number].lane === lane));
    if (fits.length) this.goTo(way > 0 ? fits[0] : fits[fits.length - 1]);
  }

  // From a message to where it arrives: the first event of that host from then on.
  follow() {
    const one = this.selected === null ? null : run.moments[this.selected];
    if (!one || one.type !== "sent" || one.came < 0) return;
    const next = run.moments.find((other) => other.number > one.came && other.type === "event" && other.lane === one.target);
    if (next) this.goTo(next.number);
  }

  nextOf(moments, way) {
    if (!moments.length) return;
    const at = this.selected ?? run.focus;
    const behind = way > 0 ? moments.filter((one) => one > at) : moments.filter((one) => one < at).reverse();
    this.goTo(behind.length ? behind[0] : way > 0 ? moments[0] : moments[moments.length - 1]);
    document.getElementById("diagram").focus({ preventScroll: true });
  }

  toggleRange() {
    const range = document.getElementById("range");
    range.value = this.filter.all ? "near" : "all";
    range.dispatchEvent(new Event("change"));
  }

  showLine() {
    if (this.selected === null) return;
    const { line } = run.moments[this.selected];
    const timeline = document.getElementById("timeline");
    timeline.scrollIntoView({ block: "nearest" });
    showInTimeline(line);
    timeline.focus({ preventScroll: true });
  }
}

// What can be chosen as a log: whole topics that have several partitions, then each log.
function logChoices() {
  const counts = new Map();
  for (const { topic } of run.logs) counts.set(topic, (counts.get(topic) || 0) + 1);
  const topics = [...counts].filter(([topic, count]) => topic && count > 1);
  return [
    ...topics.map(([topic]) => ({ words: topic, log: { topic, partition: null } })),
    ...run.logs.map((log, number) => ({ words: logWords(number), log })),
  ];
}

// The lines, in pieces that a browser lays out only when they are looked at.
function writeTimeline() {
  const timeline = document.getElementById("timeline");
  const marked = new Map();
  for (const one of run.moments) {
    if (run.conflict.includes(one.number)) marked.set(one.line, "mark");
    else if (one.kind === "fault") marked.set(one.line, "b");
  }
  for (let from = 0; from < run.lines.length; from += CHUNK_LINES) {
    const chunk = part("pre", "", timeline);
    let plain = [];
    run.lines.slice(from, from + CHUNK_LINES).forEach((line, index) => {
      const tag = marked.get(from + index);
      if (!tag) return plain.push(line);
      chunk.append(plain.map((one) => `${one}\n`).join(""));
      part(tag, "", chunk).textContent = line;
      chunk.append("\n");
      plain = [];
    });
    chunk.append(plain.join("\n"));
  }
}

// All pieces but the last one have the same height, also before they are laid out.
function showInTimeline(line) {
  const timeline = document.getElementById("timeline");
  timeline.scrollTop = line * LINE_HEIGHT - timeline.clientHeight / 3;
}

function copyOnClick() {
  for (const button of document.querySelectorAll("button[data-copy]")) {
    const source = document.getElementById(button.dataset.copy);
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(source.textContent);
      } catch {
        // Some browsers refuse a page from a disk; then the text is at least selected.
        getSelection().selectAllChildren(source);
        document.execCommand("copy");
      }
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1500);
    });
  }
}

function switchTheme() {
  const root = document.documentElement;
  document.getElementById("theme").addEventListener("click", () => {
    const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
  });
}

start();
