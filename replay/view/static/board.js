// A heat map with what belongs to it: the worst machines pinned on top in words and as strips,
// the legend, the tools, and a line that says what the cursor points at.

import { clock, times } from "./format.js";
import { HeatMap } from "./heatmap.js";
import { currentTheme, palette, TOP_SCORE } from "./palette.js";
import { fit, paint, paintStrip } from "./paint.js";

const PINNED = 8;
const WATCHED = 0.6; // a score from which a machine is worth a line without an alarm
const AT_LEAST = 3;

export class Board {
  /** `actions`: href(machine) -> link or null. */
  constructor(root, actions = {}) {
    this.root = root;
    this.actions = actions;
    this.grid = null;
    this.alarms = new Map();
    this.part = Object.fromEntries([...root.querySelectorAll("[data-role]")].map((e) => [e.dataset.role, e]));
    this.map = new HeatMap(this.part.map, {
      onMove: (cell) => this.read(cell),
      onSelect: (machine) => this.open(machine),
      onView: () => this.pin(),
    });
    this.part.order.addEventListener("change", () => this.refresh());
    this.part["zoom-in"].addEventListener("click", () => this.map.zoom(0.5));
    this.part["zoom-out"].addEventListener("click", () => this.map.zoom(2));
    this.part.whole.addEventListener("click", () => this.map.reset());
    new ResizeObserver(() => this.strips()).observe(this.part.pinned);
    this.legend();
  }

  /** `alarms`: Map machine -> {onsetMs, status, id}. */
  show(grid, alarms) {
    this.grid = grid;
    this.alarms = alarms;
    this.part.empty.hidden = grid.rows > 0 && grid.columns > 0;
    this.refresh();
  }

  recolour() {
    if (this.grid) this.map.draw();
    this.strips();
    this.legend();
  }

  refresh() {
    if (!this.grid) return;
    this.map.show(this.grid, this.order(), this.alarms);
    this.pin();
  }

  order() {
    const rows = Int32Array.from(this.grid.machines.keys());
    if (this.part.order.value !== "worst") return rows;
    const peaks = this.grid.peaks(0, this.grid.columns);
    const alarmed = this.grid.machines.map((name) => (this.alarms.has(name) ? 1 : 0));
    return rows.sort((a, b) => alarmed[b] - alarmed[a] || peaks[b] - peaks[a] || a - b);
  }

  /** The rows that stand on top: alarmed ones first, then the highest in view. */
  worst() {
    const { c0, c1 } = this.map.view;
    const peaks = this.grid.peaks(c0, c1);
    const rows = this.grid.machines.map((machine, row) => ({
      machine, row, alarm: this.alarms.get(machine), peak: peaks[row] ? (peaks[row] - 1) * this.grid.scale : null,
    }));
    rows.sort((a, b) => Boolean(b.alarm) - Boolean(a.alarm) || (b.peak ?? -1) - (a.peak ?? -1) || a.row - b.row);
    const alarmed = rows.filter((r) => r.alarm).length;
    const watched = rows.filter((r) => r.alarm || (r.peak ?? 0) >= WATCHED).length;
    return { shown: rows.slice(0, Math.min(PINNED, Math.max(AT_LEAST, watched))), more: Math.max(0, alarmed - PINNED) };
  }

  pin() {
    if (!this.grid) return;
    const { shown, more } = this.worst();
    const focused = this.part.pinned.contains(document.activeElement) ? document.activeElement.textContent : null;
    this.part.pinned.replaceChildren(...shown.map((r) => this.pinnedRow(r)));
    this.part.more.textContent = more ? `and ${more} more machines in open alerts` : "";
    if (focused !== null) [...this.part.pinned.querySelectorAll("a, button")].find((e) => e.textContent === focused)?.focus();
    this.shown = shown;
    this.strips();
  }

  pinnedRow({ machine, row, alarm, peak }) {
    const item = element("li", alarm ? "pin pin-alarm" : "pin");
    const label = element("div", "pin-label");
    const link = this.actions.href?.(machine);
    const name = element(link ? "a" : "span", "pin-name", machine);
    name.title = machine;
    if (link) name.href = link;
    const word = alarm ? (alarm.status === "acknowledged" ? "acknowledged" : "alarm") : (peak ?? 0) >= 1 ? "over" : (peak ?? 0) >= WATCHED ? "watch" : "normal";
    label.append(name, element("span", `tag tag-${word}`, alarm ? `▲ ${word}` : word), element("span", "pin-score", times(peak)));
    const strip = element("div", "pin-strip");
    const canvas = document.createElement("canvas");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${machine}: highest score ${times(peak)} of the alarm threshold`);
    strip.append(canvas);
    item.append(label, strip);
    return item;
  }

  strips() {
    if (!this.grid || !this.shown) return;
    const colours = palette(currentTheme(), this.grid.scale);
    this.part.pinned.querySelectorAll("canvas").forEach((canvas, i) => paintStrip(canvas, this.grid, this.shown[i].row, this.map.view, colours));
  }

  legend() {
    const scale = 0.01;
    const columns = TOP_SCORE / scale;
    const codes = Uint16Array.from({ length: columns }, (_, i) => i + 1);
    const context = fit(this.part.scale, 160, 12, Math.min(2, devicePixelRatio || 1));
    const image = context.createImageData(this.part.scale.width, this.part.scale.height);
    paint(image, { codes, columns }, [0], { r0: 0, r1: 1, c0: 0, c1: columns }, palette(currentTheme(), scale));
    context.putImageData(image, 0, 0);
    const blank = fit(this.part.blank, 22, 12, Math.min(2, devicePixelRatio || 1));
    const hatch = blank.createImageData(this.part.blank.width, this.part.blank.height);
    paint(hatch, { codes: new Uint16Array(1), columns: 1 }, [0], { r0: 0, r1: 1, c0: 0, c1: 1 }, palette(currentTheme(), scale));
    blank.putImageData(hatch, 0, 0);
  }

  read(cell) {
    if (!cell) {
      this.part.readout.textContent = this.part.readout.dataset.hint;
      return;
    }
    const { machine, ms, score } = cell;
    const words = score === null ? "no data" : `score ${times(score)} of the alarm threshold${score >= 1 ? ", alarm" : ""}`;
    const parts = [element("b", "", machine), ` · ${clock(ms)} UTC · ${words} `];
    const link = this.actions.href?.(machine);
    if (link) {
      const open = element("a", "", "open machine");
      open.href = link;
      parts.push(open);
    }
    this.part.readout.replaceChildren(...parts);
  }

  open(machine) {
    const link = this.actions.href?.(machine);
    if (link) location.href = link;
  }
}

function element(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}
