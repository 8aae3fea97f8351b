// The charts of the last minutes, drawn by uPlot (vendor/), which its script puts into the page as `uPlot`.

import { h, show } from "./dom.js";

const HEIGHT = 132;
/** Steps of an axis of bytes: 1, 2, 4 ... of each unit, so that its labels are round. */
const BINARY_STEPS = Array.from({ length: 50 }, (_, power) => 2 ** power);

/** A chart in `box` whose `legend` tells the newest values, or those below the pointer. */
export class Chart {
  /** `series` are `{label, color, fill}`, their colours names of CSS variables; `least` is the least height. */
  constructor(box, legend, series, { format, least, binary = false }) {
    this.box = box;
    this.legend = legend;
    this.series = series;
    this.format = format;
    this.least = least;
    this.binary = binary;
    this.data = [[], ...series.map(() => [])];
    this.plot = null;
    new ResizeObserver(() => this.#resize()).observe(box);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#draw());
  }

  /** Show these values, one a second, the last of which ends at `endMs`. */
  update(endMs, columns) {
    const end = Math.round(endMs / 1000);
    const length = columns[0].length;
    this.data = [Array.from({ length }, (_, at) => end - length + 1 + at), ...columns];
    if (this.plot === null) this.#draw();
    else this.plot.setData(this.data);
    this.#tell(this.plot.cursor.idx);
    const told = this.series.map(({ label }, at) => `${label}: ${this.format(columns[at].at(-1) ?? 0)} in the last second`);
    this.box.setAttribute("aria-label", told.join(", "));
  }

  #draw() {
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    const axis = { stroke: color("--dim"), font: "11px system-ui, sans-serif", ticks: { show: false } };
    const grid = { stroke: color("--line"), width: 1 };
    this.plot?.destroy();
    this.plot = new uPlot(
      {
        width: Math.max(this.box.clientWidth, 100),
        height: HEIGHT,
        legend: { show: false },
        cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
        scales: { y: { range: (_, __, most) => [0, Math.max(most * 1.1, this.least)] } },
        axes: [
          { ...axis, grid: { show: false }, space: 70, values: (_, ticks) => ticks.map(clock), size: 24 },
          {
            ...axis,
            grid,
            gap: 4,
            space: 26,
            size: this.binary ? 62 : 44,
            values: (_, ticks) => ticks.map(this.format),
            ...(this.binary ? { incrs: BINARY_STEPS } : {}),
          },
        ],
        series: [
          {},
          ...this.series.map(({ label, color: name, fill }) => ({
            label,
            stroke: color(name),
            fill: fill ? color(fill) : undefined,
            width: 1.5,
            points: { show: false },
          })),
        ],
        hooks: { setCursor: [(plot) => this.#tell(plot.cursor.idx)] },
      },
      this.data,
      this.box,
    );
  }

  #resize() {
    this.plot?.setSize({ width: Math.max(this.box.clientWidth, 100), height: HEIGHT });
  }

  #tell(index) {
    const at = index ?? this.data[0].length - 1;
    const when = index === null || index === undefined ? "last second" : clock(this.data[0][at]);
    show(
      this.legend,
      this.series.map(({ label, color }, number) =>
        h("span", { class: `key ${color.slice(2)}` }, `${label} `, h("b", {}, `${this.format(this.data[number + 1][at] ?? 0)}/s`))),
      h("span", { class: "when" }, when),
    );
  }
}

const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB");
