// How much is written, over the last two minutes: uPlot in an element of its own.

import { clock, size } from "./words.js";

const HEIGHT = 150;
const SPAN_S = 120;

export class RateChart {
  constructor(place) {
    this.place = place;
    this.colours = "";
    this.plot = null;
    new ResizeObserver(() => this.plot?.setSize({ width: place.clientWidth, height: HEIGHT })).observe(place);
  }

  // *rates*: pairs of seconds and bytes a second.
  show(rates) {
    const data = [rates.map(([at]) => at), rates.map(([, bytes]) => bytes)];
    const style = getComputedStyle(this.place);
    const colours = ["color", "border-color", "accent-color"].map((name) => style.getPropertyValue(name));
    if (colours.join() !== this.colours) this.#draw(data, colours);
    else this.plot.setData(data);
  }

  // Anew when the colours have changed: uPlot paints on a canvas.
  #draw(data, [ink, line, accent]) {
    this.colours = [ink, line, accent].join();
    this.plot?.destroy();
    const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
    const options = {
      width: this.place.clientWidth,
      height: HEIGHT,
      cursor: { y: false },
      legend: { show: false },
      scales: { x: { range: (_, first, last) => [last - SPAN_S, last] }, y: { range: (_, low, high) => [0, Math.max(high * 1.1, 1000)] } },
      axes: [{ ...axis, space: 90, values: (_, ticks) => ticks.map((one) => clock(1000 * one).slice(0, 8)) }, { ...axis, size: 70, values: (_, ticks) => ticks.map((one) => `${size(one)}/s`) }],
      series: [{}, { stroke: accent, width: 2, fill: `${accent.replace("rgb(", "rgba(").replace(")", ", 0.15)")}`, points: { show: false } }],
    };
    this.plot = new uPlot(options, data, this.place);
  }
}
