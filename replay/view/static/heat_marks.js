// What stands on and around the heat map: phases, time axis, names, onsets, cursor.

import { clock, timeStep } from "./format.js";

export const STRIP = 20; // phase strip above the map, CSS pixels
export const AXIS = 22; // time axis below it
const LABEL_HEIGHT = 13;

/** Draw everything but the cells onto the map's upper canvas. */
export function drawMarks(map, context, colours) {
  context.font = "12px system-ui, sans-serif";
  context.textBaseline = "middle";
  drawPhases(map, context, colours);
  drawAxis(map, context, colours);
  drawNames(map, context, colours);
  drawOnsets(map, context, colours);
  if (map.drag?.box) drawBox(map, context, colours);
  if (map.cursor) drawCursor(map, context, colours);
}

function drawPhases(map, context, colours) {
  const { left, width } = map.area;
  const phases = map.grid.phases;
  context.textAlign = "left";
  if (left) {
    context.fillStyle = colours.muted;
    context.fillText("phase", 0, STRIP / 2 - 1);
  }
  phases.forEach(([startMs, name], i) => {
    const from = Math.max(left, map.x((startMs - map.grid.startMs) / map.grid.stepMs));
    const endMs = phases[i + 1]?.[0] ?? map.grid.endMs;
    const to = Math.min(left + width, map.x((endMs - map.grid.startMs) / map.grid.stepMs));
    if (to <= from) return;
    context.fillStyle = i % 2 ? colours["surface-2"] : colours.line;
    context.fillRect(from, 0, to - from, STRIP - 4);
    context.fillStyle = colours.text;
    if (context.measureText(name).width + 10 < to - from) context.fillText(name, from + 5, STRIP / 2 - 1);
  });
}

function drawAxis(map, context, colours) {
  const { left, width, top, height } = map.area;
  const fromMs = map.grid.timeOf(map.view.c0);
  const toMs = map.grid.timeOf(map.view.c1);
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

function drawNames(map, context, colours) {
  const { left, top, height } = map.area;
  const rowHeight = height / (map.view.r1 - map.view.r0);
  const all = rowHeight >= LABEL_HEIGHT - 1 && !map.narrow;
  const visible = [];
  if (all) for (let at = map.view.r0; at < map.view.r1; at++) visible.push(at);
  else visible.push(...map.marked.filter((at) => at >= map.view.r0 && at < map.view.r1));
  let free = top - LABEL_HEIGHT;
  for (const at of visible) {
    const name = map.grid.machines[map.order[at]];
    const alarm = map.alarms.has(name);
    const y = Math.min(Math.max(map.y(at + 0.5), top + 6), top + height - 6);
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
    } else drawPill(map, context, colours, `▶ ${name}`, y);
  }
  context.font = "12px system-ui, sans-serif";
  if (left && !all && !visible.length) {
    context.textAlign = "left";
    context.fillStyle = colours.muted;
    context.fillText(`${map.view.r1 - map.view.r0} machines`, 0, top + 8);
  }
}

function drawPill(map, context, colours, text, y) {
  context.textAlign = "left";
  const shown = shortened(context, text, map.host.clientWidth * 0.6);
  context.fillStyle = colours.surface;
  context.globalAlpha = 0.85;
  context.fillRect(2, y - 8, context.measureText(shown).width + 8, 16);
  context.globalAlpha = 1;
  context.fillStyle = colours.alarm;
  context.fillText(shown, 6, y);
}

function drawOnsets(map, context, colours) {
  const { left, top, width, height } = map.area;
  context.strokeStyle = colours.alarm;
  context.setLineDash([3, 4]);
  const drawn = new Set();
  for (const { onsetMs } of map.alarms.values()) {
    const x = Math.round(map.x((onsetMs - map.grid.startMs) / map.grid.stepMs)) + 0.5;
    if (!(x > left && x < left + width) || drawn.has(x) || drawn.size > 4) continue;
    drawn.add(x);
    context.beginPath();
    context.moveTo(x, top);
    context.lineTo(x, top + height);
    context.stroke();
  }
  context.setLineDash([]);
}

function drawBox(map, context, colours) {
  const [a, b] = [map.drag.from, map.drag.to];
  context.strokeStyle = colours.accent;
  context.strokeRect(Math.min(a.x, b.x), Math.min(a.y, b.y), Math.abs(a.x - b.x), Math.abs(a.y - b.y));
}

function drawCursor(map, context, colours) {
  const { left, top, width, height } = map.area;
  const { r, c } = map.cursor;
  const x = map.x(c);
  const y = map.y(r);
  const w = Math.max(3, map.x(c + 1) - x);
  const h = Math.max(3, map.y(r + 1) - y);
  context.strokeStyle = colours.text;
  context.globalAlpha = 0.35;
  context.strokeRect(left, y + h / 2, width, 0.01);
  context.strokeRect(x + w / 2, top, 0.01, height);
  context.globalAlpha = 1;
  context.lineWidth = 2;
  context.strokeRect(x - 1, y - 1, w + 2, h + 2);
  context.lineWidth = 1;
}

function shortened(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let end = text.length;
  while (end > 1 && context.measureText(`${text.slice(0, end)}…`).width > width) end--;
  return `${text.slice(0, end)}…`;
}
