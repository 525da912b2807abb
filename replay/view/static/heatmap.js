// The heat map: machines × time on a canvas, with zoom, pan, pointer and keyboard.

import { currentTheme, ink, palette } from "./palette.js";
import { fit, paint } from "./paint.js";
import { clock, timeStep } from "./format.js";

const STRIP = 20; // phase strip above the map, CSS pixels
const AXIS = 22; // time axis below it
const GUTTER = 190; // names at the left
const NARROW = 620; // below this width names stand on the map itself
const LABEL_HEIGHT = 13;

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
    this.listen();
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
    if (this.cursor && (this.cursor.r >= grid.rows || this.cursor.c >= grid.columns)) this.cursor = null;
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
    const ratio = Math.min(2, devicePixelRatio || 1);
    const context = fit(this.base, width, height, ratio);
    this.base.style.left = `${left}px`;
    this.base.style.top = `${top}px`;
    const image = context.createImageData(this.base.width, this.base.height);
    const marked = [];
    this.order.forEach((row, at) => { if (this.alarms.has(this.grid.machines[row])) marked.push(at); });
    this.marked = marked;
    paint(image, this.grid, this.order, this.view, palette(currentTheme(), this.grid.scale), marked, Math.round(4 * ratio));
    context.putImageData(image, 0, 0);
    this.drawOver();
  }

  drawOver() {
    const ratio = Math.min(2, devicePixelRatio || 1);
    const context = fit(this.over, this.host.clientWidth, this.host.clientHeight, ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.host.clientWidth, this.host.clientHeight);
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    const colours = ink(this.host);
    this.drawPhases(context, colours);
    this.drawAxis(context, colours);
    this.drawNames(context, colours);
    this.drawOnsets(context, colours);
    if (this.drag?.box) this.drawBox(context, colours);
    if (this.cursor) this.drawCursor(context, colours);
  }

  x(column) {
    const { left, width } = this.area;
    return left + ((column - this.view.c0) / (this.view.c1 - this.view.c0)) * width;
  }

  y(at) {
    const { top, height } = this.area;
    return top + ((at - this.view.r0) / (this.view.r1 - this.view.r0)) * height;
  }

  drawPhases(context, colours) {
    const { left, width } = this.area;
    const phases = this.grid.phases;
    context.textAlign = "left";
    if (left) {
      context.fillStyle = colours.muted;
      context.fillText("phase", 0, STRIP / 2 - 1);
    }
    phases.forEach(([startMs, name], i) => {
      const from = Math.max(left, this.x((startMs - this.grid.startMs) / this.grid.stepMs));
      const endMs = phases[i + 1]?.[0] ?? this.grid.endMs;
      const to = Math.min(left + width, this.x((endMs - this.grid.startMs) / this.grid.stepMs));
      if (to <= from) return;
      context.fillStyle = i % 2 ? colours["surface-2"] : colours.line;
      context.fillRect(from, 0, to - from, STRIP - 4);
      context.fillStyle = colours.text;
      if (context.measureText(name).width + 10 < to - from) context.fillText(name, from + 5, STRIP / 2 - 1);
    });
  }

  drawAxis(context, colours) {
    const { left, width, top, height } = this.area;
    const fromMs = this.grid.timeOf(this.view.c0);
    const toMs = this.grid.timeOf(this.view.c1);
    const step = timeStep(toMs - fromMs, width / 90);
    context.fillStyle = colours.muted;
    context.strokeStyle = colours.muted;
    context.textAlign = "center";
    for (let ms = Math.ceil(fromMs / step) * step; ms <= toMs; ms += step) {
      const at = left + ((ms - fromMs) / (toMs - fromMs)) * width;
      context.fillRect(Math.round(at), top + height, 1, 4);
      if (at - left > 26 && left + width - at > 26) context.fillText(clock(ms), at, top + height + AXIS / 2 + 3);
    }
  }

  drawNames(context, colours) {
    const { left, top, height } = this.area;
    const rowHeight = height / (this.view.r1 - this.view.r0);
    const all = rowHeight >= LABEL_HEIGHT - 1 && !this.narrow;
    const visible = [];
    if (all) for (let at = this.view.r0; at < this.view.r1; at++) visible.push(at);
    else visible.push(...this.marked.filter((at) => at >= this.view.r0 && at < this.view.r1));
    let free = top - LABEL_HEIGHT;
    for (const at of visible) {
      const name = this.grid.machines[this.order[at]];
      const alarm = this.alarms.has(name);
      const y = Math.min(Math.max(this.y(at + 0.5), top + 6), top + height - 6);
      if (alarm) {
        context.fillStyle = colours.alarm;
        context.beginPath();
        context.moveTo(left - 8, y - 5);
        context.lineTo(left - 1, y);
        context.lineTo(left - 8, y + 5);
        context.fill();
      }
      if (y - free < LABEL_HEIGHT) continue;
      free = y;
      context.fillStyle = alarm ? colours.alarm : colours.muted;
      context.font = alarm ? "600 12px system-ui, sans-serif" : "11px system-ui, sans-serif";
      if (left) {
        context.textAlign = "right";
        context.fillText(shortened(context, name, left - 16), left - 12, y);
      } else this.drawPill(context, colours, `▶ ${name}`, y);
    }
    context.font = "12px system-ui, sans-serif";
    if (left && !all && !visible.length) {
      context.textAlign = "left";
      context.fillStyle = colours.muted;
      context.fillText(`${this.view.r1 - this.view.r0} machines`, 0, top + 8);
    }
  }

  drawPill(context, colours, text, y) {
    context.textAlign = "left";
    const shown = shortened(context, text, this.host.clientWidth * 0.6);
    context.fillStyle = colours.surface;
    context.globalAlpha = 0.85;
    context.fillRect(2, y - 8, context.measureText(shown).width + 8, 16);
    context.globalAlpha = 1;
    context.fillStyle = colours.alarm;
    context.fillText(shown, 6, y);
  }

  drawOnsets(context, colours) {
    const { left, top, width, height } = this.area;
    context.strokeStyle = colours.alarm;
    context.setLineDash([3, 4]);
    const drawn = new Set();
    for (const { onsetMs } of this.alarms.values()) {
      const x = Math.round(this.x((onsetMs - this.grid.startMs) / this.grid.stepMs)) + 0.5;
      if (!(x > left && x < left + width) || drawn.has(x) || drawn.size > 4) continue;
      drawn.add(x);
      context.beginPath();
      context.moveTo(x, top);
      context.lineTo(x, top + height);
      context.stroke();
    }
    context.setLineDash([]);
  }

  drawBox(context, colours) {
    const [a, b] = [this.drag.from, this.drag.to];
    context.strokeStyle = colours.accent;
    context.strokeRect(Math.min(a.x, b.x), Math.min(a.y, b.y), Math.abs(a.x - b.x), Math.abs(a.y - b.y));
  }

  drawCursor(context, colours) {
    const { left, top, width, height } = this.area;
    const { r, c } = this.cursor;
    const x = this.x(c);
    const y = this.y(r);
    const w = Math.max(3, this.x(c + 1) - x);
    const h = Math.max(3, this.y(r + 1) - y);
    context.strokeStyle = colours.text;
    context.globalAlpha = 0.35;
    context.strokeRect(left, y + h / 2, width, 0.01);
    context.strokeRect(x + w / 2, top, 0.01, height);
    context.globalAlpha = 1;
    context.lineWidth = 2;
    context.strokeRect(x - 1, y - 1, w + 2, h + 2);
    context.lineWidth = 1;
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

  cellAt(event) {
    const box = this.over.getBoundingClientRect();
    const { left, top, width, height } = this.area;
    const x = event.clientX - box.left;
    const y = event.clientY - box.top;
    const inside = y >= top && y < top + height && x >= 0 && x < left + width;
    const { r0, r1, c0, c1 } = this.view;
    return {
      x, y, inside,
      r: Math.floor(r0 + ((y - top) / height) * (r1 - r0)),
      c: Math.floor(c0 + (Math.max(0, x - left) / width) * (c1 - c0)),
    };
  }

  /** A pixel may cover several rows: point at the one that colours it. */
  worstNear(cell) {
    const { r0, r1, c0, c1 } = this.view;
    const { width, height } = this.area;
    const tall = Math.max(1, Math.ceil((r1 - r0) / height));
    const wide = Math.max(1, Math.ceil((c1 - c0) / width));
    const near = this.marked.find((at) => Math.abs(this.y(at + 0.5) - cell.y) <= 3);
    const rows = near === undefined ? [cell.r, Math.min(r1, cell.r + tall)] : [near, near + 1];
    let best = { r: rows[0], c: cell.c, code: -1 };
    for (let r = rows[0]; r < rows[1]; r++) {
      for (let c = cell.c; c < Math.min(c1, cell.c + wide); c++) {
        const code = this.grid.codes[this.order[r] * this.grid.columns + c];
        if (code > best.code) best = { r, c, code };
      }
    }
    return best;
  }

  listen() {
    const over = this.over;
    over.addEventListener("pointermove", (event) => {
      if (!this.grid) return;
      const cell = this.cellAt(event);
      if (this.drag) {
        this.drag.to = cell;
        this.drag.box = Math.hypot(cell.x - this.drag.from.x, cell.y - this.drag.from.y) > 6;
        this.drawOver();
      } else if (cell.inside) {
        const { r, c } = this.worstNear(cell);
        this.moveTo(r, c);
      }
    });
    over.addEventListener("pointerdown", (event) => {
      if (!this.grid || event.button) return;
      const cell = this.cellAt(event);
      if (event.pointerType === "mouse" && cell.inside) {
        this.drag = { from: cell, to: cell, box: false };
        over.setPointerCapture(event.pointerId);
      } else if (cell.inside) {
        const { r, c } = this.worstNear(cell);
        this.moveTo(r, c);
      }
    });
    over.addEventListener("pointerup", () => {
      const drag = this.drag;
      this.drag = null;
      if (drag?.box) {
        const [a, b] = [drag.from, drag.to];
        this.setView({ r0: Math.min(a.r, b.r), r1: Math.max(a.r, b.r) + 1, c0: Math.min(a.c, b.c), c1: Math.max(a.c, b.c) + 1 });
      } else if (drag && this.cursor) this.actions.onSelect?.(this.pointed().machine);
    });
    over.addEventListener("pointercancel", () => { this.drag = null; });
    over.addEventListener("pointerleave", () => {
      if (document.activeElement === over || !this.grid) return;
      this.cursor = null;
      this.drawOver();
      this.actions.onMove?.(null);
    });
    over.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    over.addEventListener("keydown", (event) => this.key(event));
  }

  wheel(event) {
    if (!this.grid) return;
    const { r0, r1, c0, c1 } = this.view;
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.cellAt(event));
      return;
    }
    const step = Math.sign(event.deltaY) * Math.max(1, Math.round((r1 - r0) / 10));
    if (!step || r1 - r0 === this.grid.rows || (step < 0 && r0 === 0) || (step > 0 && r1 === this.grid.rows)) return;
    event.preventDefault();
    this.setView({ r0: r0 + step, r1: r1 + step, c0, c1 });
  }

  key(event) {
    if (!this.grid || event.altKey || event.ctrlKey || event.metaKey) return;
    const { r0, r1, c0, c1 } = this.view;
    const at = this.cursor ?? { r: r0, c: c1 - 1 };
    const page = Math.max(1, Math.round((r1 - r0) / 10));
    const leap = event.shiftKey ? Math.max(1, Math.round((c1 - c0) / 10)) : 1;
    const moves = {
      ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -leap], ArrowRight: [0, leap],
      PageUp: [-page, 0], PageDown: [page, 0], Home: [0, -at.c], End: [0, this.grid.columns],
    };
    if (event.key in moves) this.moveTo(at.r + moves[event.key][0], at.c + moves[event.key][1]);
    else if (event.key === "+" || event.key === "=") this.zoom(0.5);
    else if (event.key === "-") this.zoom(2);
    else if (event.key === "Escape" || event.key === "0") this.reset();
    else if (event.key === "w" || event.key === "W") this.toWorst();
    else if (event.key === "Enter" && this.cursor) this.actions.onSelect?.(this.pointed().machine);
    else return;
    event.preventDefault();
  }
}

function shortened(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let end = text.length;
  while (end > 1 && context.measureText(`${text.slice(0, end)}…`).width > width) end--;
  return `${text.slice(0, end)}…`;
}
