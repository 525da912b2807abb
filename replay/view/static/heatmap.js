// The heat map: machines × time on a canvas, with zoom, pan, pointer and keyboard.

import { currentTheme, ink, palette } from "./palette.js";
import { fit, paint } from "./paint.js";
import { listen } from "./heat_input.js";
import { AXIS, drawMarks, STRIP } from "./heat_marks.js";

const GUTTER = 240; // names at the left, CSS pixels
const NARROW = 620; // below this width names stand on the map itself

export class HeatMap {
  /** `actions`: onMove({machine, ms, score} | null), onSelect(machine), onView(view). */
  constructor(host, actions = {}) {
    this.actions = actions;
    this.grid = null;
    this.order = new Int32Array(0);
    this.alarms = new Map(); // machine -> {onsetMs}
    this.view = { r0: 0, r1: 1, c0: 0, c1: 1 };
    this.cursor = null; // {r, c}: position in order, column
    this.drag = null;
    this.base = document.createElement("canvas");
    this.over = document.createElement("canvas");
    this.base.className = "heat-base";
    this.over.className = "heat-over";
    this.over.tabIndex = 0;
    this.over.setAttribute("role", "application");
    this.over.setAttribute("aria-roledescription", "heat map");
    this.over.setAttribute("aria-label", "Scores of machines over time. Arrow keys move, plus and minus zoom, W goes to the worst cell, Enter opens the machine, Escape shows everything.");
    host.classList.add("heat");
    host.append(this.base, this.over);
    this.host = host;
    listen(this);
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(host);
  }

  /** Show a grid. `order`: rows from top to bottom; the zoom is kept where it still fits. */
  show(grid, order, alarms) {
    const before = this.grid;
    const whole = !before || (this.view.r1 - this.view.r0 === before.rows && this.view.c1 - this.view.c0 === before.columns);
    const fromMs = before ? before.timeOf(this.view.c0) : 0;
    const toMs = before ? before.timeOf(this.view.c1) : 0;
    const followed = before && this.view.c1 === before.columns;
    this.grid = grid;
    this.order = order;
    this.alarms = alarms;
    if (whole) this.view = { r0: 0, r1: grid.rows, c0: 0, c1: grid.columns };
    else {
      const shift = followed ? grid.endMs - toMs : 0;
      this.setView({ r0: this.view.r0, r1: this.view.r1, c0: grid.columnAt(fromMs + shift), c1: grid.columnAt(toMs + shift) }, false);
    }
    if (this.cursor) this.cursor.c = grid.columnAt(before.timeOf(this.cursor.c));
    if (this.cursor && (this.cursor.r >= grid.rows || !(this.cursor.c >= 0 && this.cursor.c < grid.columns))) this.cursor = null;
    this.draw();
  }

  get narrow() { return this.host.clientWidth < NARROW; }

  get area() {
    const left = this.narrow ? 0 : GUTTER;
    return { left, top: STRIP, width: Math.max(1, this.host.clientWidth - left), height: Math.max(1, this.host.clientHeight - STRIP - AXIS) };
  }

  draw() {
    if (!this.grid || !this.host.clientWidth || !this.grid.columns || !this.grid.rows) return;
    const { left, top, width, height } = this.area;
    const ratio = Math.min(2, devicePixelRatio || 1); // finer pixels only cost time
    const context = fit(this.base, width, height, ratio);
    this.base.style.left = `${left}px`;
    this.base.style.top = `${top}px`;
    const image = context.createImageData(this.base.width, this.base.height);
    const marked = [];
    this.order.forEach((row, at) => { if (this.alarms.has(this.grid.machines[row])) marked.push(at); });
    this.marked = marked;
    paint(image, this.grid, this.order, this.view, palette(currentTheme(), this.grid.scale), marked, Math.round(4 * ratio));
    context.putImageData(image, 0, 0);
    this.host.dataset.view = Object.values(this.view).join(" "); // r0 r1 c0 c1, for who asks
    this.drawOver();
  }

  drawOver() {
    const ratio = Math.min(2, devicePixelRatio || 1);
    const context = fit(this.over, this.host.clientWidth, this.host.clientHeight, ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.host.clientWidth, this.host.clientHeight);
    drawMarks(this, context, ink(this.host));
  }

  x(column) {
    const { left, width } = this.area;
    return left + ((column - this.view.c0) / (this.view.c1 - this.view.c0)) * width;
  }

  y(at) {
    const { top, height } = this.area;
    return top + ((at - this.view.r0) / (this.view.r1 - this.view.r0)) * height;
  }

  /** Show part of the map; whole cells, at least 4 × 8 of them where there are as many. */
  setView(view, redraw = true) {
    const { rows, columns } = this.grid;
    const clip = (from, to, least, all) => {
      const size = Math.min(all, Math.max(least, Math.round(to) - Math.round(from)));
      const start = Math.max(0, Math.min(all - size, Math.round(from)));
      return [start, start + size];
    };
    const [r0, r1] = clip(view.r0, view.r1, 4, rows);
    const [c0, c1] = clip(view.c0, view.c1, 8, columns);
    this.view = { r0, r1, c0, c1 };
    if (redraw) this.draw();
    this.actions.onView?.(this.view);
  }

  zoom(factor, center = this.cursor) {
    const { r0, r1, c0, c1 } = this.view;
    const at = center ?? { r: (r0 + r1) / 2, c: (c0 + c1) / 2 };
    this.setView({
      r0: at.r - (at.r - r0) * factor, r1: at.r + (r1 - at.r) * factor,
      c0: at.c - (at.c - c0) * factor, c1: at.c + (c1 - at.c) * factor,
    });
  }

  reset() { this.setView({ r0: 0, r1: this.grid.rows, c0: 0, c1: this.grid.columns }); }

  moveTo(r, c) {
    const { rows, columns } = this.grid;
    this.cursor = { r: Math.max(0, Math.min(rows - 1, r)), c: Math.max(0, Math.min(columns - 1, c)) };
    const { r0, r1, c0, c1 } = this.view;
    const dr = Math.min(0, this.cursor.r - r0) + Math.max(0, this.cursor.r - r1 + 1);
    const dc = Math.min(0, this.cursor.c - c0) + Math.max(0, this.cursor.c - c1 + 1);
    if (dr || dc) this.setView({ r0: r0 + dr, r1: r1 + dr, c0: c0 + dc, c1: c1 + dc });
    else this.drawOver();
    this.actions.onMove?.(this.pointed());
  }

  pointed() {
    if (!this.cursor) return null;
    const row = this.order[this.cursor.r];
    return { machine: this.grid.machines[row], ms: this.grid.timeOf(this.cursor.c), score: this.grid.score(row, this.cursor.c) };
  }

  toWorst() {
    const { c0, c1 } = this.view;
    const peaks = this.grid.peaks(c0, c1);
    let best = 0;
    this.order.forEach((row, at) => { if (peaks[row] > peaks[this.order[best]]) best = at; });
    const base = this.order[best] * this.grid.columns;
    let column = c0;
    for (let c = c0; c < c1; c++) if (this.grid.codes[base + c] > this.grid.codes[base + column]) column = c;
    this.moveTo(best, column);
  }
}
