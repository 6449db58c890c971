// Rates over the last minutes: uPlot in an element of its own.

import { clock, size } from "./words.js";

const HEIGHT = 150;
const SPAN_S = 1_800; // at most; at least a sixth of it
const DASH = [6, 4]; // of the second line: nothing is told by colour alone

export class RateChart {
  constructor(place) {
    this.place = place;
    this.colours = "";
    this.plot = null;
    new ResizeObserver(() => this.plot?.setSize({ width: place.clientWidth, height: HEIGHT })).observe(place);
  }

  // *points*: pairs of seconds and amounts a second, one for each line.
  show(points) {
    const lines = points[0][1].length;
    const data = [points.map(([at]) => at), ...Array.from({ length: lines }, (_, line) => points.map(([, amounts]) => amounts[line] ?? null))];
    const style = getComputedStyle(this.place);
    const colours = ["color", "border-color", "accent-color", "caret-color"].map((name) => style.getPropertyValue(name));
    if ([...colours, lines].join() !== this.colours) this.#draw(data, colours, lines);
    else this.plot.setData(data);
  }

  // Anew when the colours have changed: uPlot paints on a canvas.
  #draw(data, [ink, line, first, second], lines) {
    this.colours = [ink, line, first, second, lines].join();
    this.plot?.destroy();
    const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
    const options = {
      width: this.place.clientWidth,
      height: HEIGHT,
      cursor: { y: false },
      legend: { show: false },
      scales: { x: { range: (_, begin, end) => [Math.max(end - SPAN_S, Math.min(begin, end - SPAN_S / 6)), end] }, y: { range: (_, low, high) => [0, Math.max(high * 1.1, 1000)] } },
      axes: [{ ...axis, space: 90, values: (_, ticks) => ticks.map((one) => clock(1000 * one).slice(0, 8)) }, { ...axis, size: 70, values: (_, ticks) => ticks.map((one) => `${size(one)}/s`) }],
      series: [
        {},
        { stroke: first, width: 2, fill: `${first.replace("rgb(", "rgba(").replace(")", ", 0.15)")}`, points: { show: false } },
        ...(lines > 1 ? [{ stroke: second, width: 2, dash: DASH, points: { show: false } }] : []),
      ],
    };
    this.plot = new uPlot(options, data, this.place);
  }
}
