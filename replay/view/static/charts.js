// Line charts of an alert's story, drawn by uPlot (a global of its own script).

import { clock, quantity, times } from "./format.js";
import { ink } from "./palette.js";

const HEIGHT = 170;

/** Vertical lines with a word at the top: onset and alert. */
function markPlugin(marks, colours) {
  return {
    hooks: {
      draw: (plot) => {
        const { ctx, bbox } = plot;
        const ratio = devicePixelRatio || 1;
        ctx.save();
        ctx.font = `${11 * ratio}px system-ui, sans-serif`;
        ctx.textBaseline = "top";
        marks.forEach(({ ms, word }, i) => { // the first word stands left of its line, the next right
          const x = Math.round(plot.valToPos(ms / 1000, "x", true));
          if (x < bbox.left || x > bbox.left + bbox.width) return;
          ctx.strokeStyle = ctx.fillStyle = colours.alarm;
          ctx.lineWidth = ratio;
          ctx.setLineDash(i ? [] : [4 * ratio, 3 * ratio]);
          ctx.beginPath();
          ctx.moveTo(x, bbox.top);
          ctx.lineTo(x, bbox.top + bbox.height);
          ctx.stroke();
          const width = ctx.measureText(word).width + 6 * ratio;
          const fits = i ? x + width < bbox.left + bbox.width : x - width > bbox.left;
          const right = Boolean(i) === fits;
          ctx.textAlign = right ? "left" : "right";
          ctx.fillText(word, x + (right ? 4 : -4) * ratio, bbox.top + (fits ? 2 : 15) * ratio);
        });
        ctx.restore();
      },
    },
  };
}

function axes(colours, format) {
  const common = { stroke: colours.muted, grid: { stroke: colours.line, width: 1 }, ticks: { stroke: colours.line, width: 1 }, font: "11px system-ui, sans-serif" };
  return [
    { ...common, size: 30, space: 80, values: (_, splits) => splits.map((s) => clock(s * 1000)) },
    { ...common, size: 64, space: 30, values: (_, splits) => splits.map(format) },
  ];
}

/** A chart that follows its box's width; `rebuild` makes it anew in the colours of now. */
class Chart {
  constructor(box, describe) {
    this.box = box;
    this.describe = describe;
    this.rebuild();
    this.observer = new ResizeObserver(() => this.fit());
    this.observer.observe(box);
  }

  destroy() {
    this.observer.disconnect();
    this.plot.destroy();
  }

  rebuild() {
    this.plot?.destroy();
    const { data, options, readout } = this.describe(ink(this.box));
    const line = this.box.parentElement.querySelector("[data-role=value]");
    this.plot = new uPlot({
      width: Math.max(200, this.box.clientWidth), height: HEIGHT, legend: { show: false }, tzDate: (s) => new Date(s * 1000),
      cursor: { sync: { key: "weaklink" }, y: false, points: { size: 7 } },
      ...options,
      hooks: { setCursor: [(plot) => { if (line) line.textContent = readout(plot.cursor.idx); }] },
    }, data, this.box);
    if (line) line.textContent = readout(null);
  }

  fit() {
    const width = Math.max(200, this.box.clientWidth);
    if (width !== this.plot.width) this.plot.setSize({ width, height: HEIGHT });
  }
}

/**
 * The machine's line over its peers' band (10th to 90th percentile) and median.
 * `series`: {metric, unit, times_ms, value, low, median, high}, arrays of one length, null = missing.
 */
export function metricChart(box, series, marks) {
  const { unit } = series;
  const data = [series.times_ms.map((ms) => ms / 1000), series.high, series.low, series.median, series.value];
  const at = (values, i) => quantity(values[i], unit);
  return new Chart(box, (colours) => ({
    data,
    readout: (i) => (i === null || i === undefined ? "" : `${clock(series.times_ms[i])}: machine ${at(series.value, i)}, peers ${at(series.median, i)} (${at(series.low, i)} to ${at(series.high, i)})`),
    options: {
      scales: { x: { time: true }, y: { range: (_, low, high) => padded(low, high) } },
      axes: axes(colours, (v) => quantity(v, unit)),
      bands: [{ series: [1, 2], fill: colours.band }],
      series: [
        {},
        { stroke: "transparent", points: { show: false } },
        { stroke: "transparent", points: { show: false } },
        { stroke: colours.peer, width: 1.5, dash: [5, 4], points: { show: false } },
        { stroke: colours.alarm, width: 2, points: { show: false } },
      ],
      plugins: [markPlugin(marks, colours)],
    },
  }));
}

/** A machine's score over time, with the threshold at 1. */
export function scoreChart(box, timesMs, scores, marks) {
  const data = [timesMs.map((ms) => ms / 1000), timesMs.map(() => 1), scores];
  return new Chart(box, (colours) => ({
    data,
    readout: (i) => (i === null || i === undefined ? "" : `${clock(timesMs[i])}: ${times(scores[i])} of the threshold`),
    options: {
      scales: { x: { time: true }, y: { range: (_, low, high) => [0, Math.max(1.5, (high ?? 1) * 1.3)] } },
      axes: axes(colours, (v) => `${Number(v.toFixed(2))}×`),
      series: [
        {},
        { stroke: colours.text, width: 1, dash: [6, 4], points: { show: false } },
        { stroke: colours.accent, width: 2, points: { show: false } },
      ],
      plugins: [markPlugin(marks, colours)],
    },
  }));
}

function padded(low, high) {
  if (low === null || high === null) return [0, 1];
  const room = (high - low) * 0.08 || Math.abs(high) * 0.1 || 1;
  return [low >= 0 ? Math.max(0, low - room) : low - room, high + 2.5 * room]; // the marks' words need the top
}
