// How a reader moves over the heat map.

function cellAt(map, event) {
  const box = map.over.getBoundingClientRect();
  const { left, top, width, height } = map.area;
  const x = event.clientX - box.left;
  const y = event.clientY - box.top;
  const inside = y >= top && y < top + height && x >= 0 && x < left + width;
  const { r0, r1, c0, c1 } = map.view;
  return {
    x, y, inside,
    r: Math.floor(r0 + ((y - top) / height) * (r1 - r0)),
    c: Math.floor(c0 + (Math.max(0, x - left) / width) * (c1 - c0)),
  };
}

/** A pixel may cover several rows: point at the one that colours it. */
function worstNear(map, cell) {
  const { r0, r1, c0, c1 } = map.view;
  const { width, height } = map.area;
  const tall = Math.max(1, Math.ceil((r1 - r0) / height));
  const wide = Math.max(1, Math.ceil((c1 - c0) / width));
  const near = map.marked.find((at) => Math.abs(map.y(at + 0.5) - cell.y) <= 3);
  const rows = near === undefined ? [cell.r, Math.min(r1, cell.r + tall)] : [near, near + 1];
  let best = { r: rows[0], c: cell.c, code: -1 };
  for (let r = rows[0]; r < rows[1]; r++) {
    for (let c = cell.c; c < Math.min(c1, cell.c + wide); c++) {
      const code = map.grid.codes[map.order[r] * map.grid.columns + c];
      if (code > best.code) best = { r, c, code };
    }
  }
  return best;
}

/** Pointer: point, drag to zoom, click to open. Wheel: pan, with Ctrl zoom. Keyboard: all of it. */
export function listen(map) {
  const over = map.over;
  over.addEventListener("pointermove", (event) => {
    if (!map.grid) return;
    const cell = cellAt(map, event);
    if (map.drag) {
      map.drag.to = cell;
      map.drag.box = Math.hypot(cell.x - map.drag.from.x, cell.y - map.drag.from.y) > 6;
      map.drawOver();
    } else if (cell.inside) {
      const { r, c } = worstNear(map, cell);
      map.moveTo(r, c);
    }
  });
  over.addEventListener("pointerdown", (event) => {
    if (!map.grid || event.button) return;
    const cell = cellAt(map, event);
    if (event.pointerType === "mouse" && cell.inside) {
      map.drag = { from: cell, to: cell, box: false };
      over.setPointerCapture(event.pointerId);
    } else if (cell.inside) {
      const { r, c } = worstNear(map, cell);
      map.moveTo(r, c);
    }
  });
  over.addEventListener("pointerup", () => {
    const drag = map.drag;
    map.drag = null;
    if (drag?.box) {
      const [a, b] = [drag.from, drag.to];
      map.setView({ r0: Math.min(a.r, b.r), r1: Math.max(a.r, b.r) + 1, c0: Math.min(a.c, b.c), c1: Math.max(a.c, b.c) + 1 });
    } else if (drag && map.cursor) map.actions.onSelect?.(map.pointed().machine);
  });
  over.addEventListener("pointercancel", () => { map.drag = null; });
  over.addEventListener("pointerleave", () => {
    if (document.activeElement === over || !map.grid) return;
    map.cursor = null;
    map.drawOver();
    map.actions.onMove?.(null);
  });
  over.addEventListener("wheel", (event) => wheel(map, event), { passive: false });
  over.addEventListener("keydown", (event) => key(map, event));
}

function wheel(map, event) {
  if (!map.grid) return;
  const { r0, r1, c0, c1 } = map.view;
  if (event.ctrlKey || event.metaKey) {
    event.preventDefault();
    map.zoom(event.deltaY > 0 ? 1.25 : 0.8, cellAt(map, event));
    return;
  }
  const step = Math.sign(event.deltaY) * Math.max(1, Math.round((r1 - r0) / 10));
  if (!step || r1 - r0 === map.grid.rows || (step < 0 && r0 === 0) || (step > 0 && r1 === map.grid.rows)) return;
  event.preventDefault();
  map.setView({ r0: r0 + step, r1: r1 + step, c0, c1 });
}

function key(map, event) {
  if (!map.grid || event.altKey || event.ctrlKey || event.metaKey) return;
  const { r0, r1, c0, c1 } = map.view;
  const at = map.cursor ?? { r: r0, c: c1 - 1 };
  const page = Math.max(1, Math.round((r1 - r0) / 10));
  const leap = event.shiftKey ? Math.max(1, Math.round((c1 - c0) / 10)) : 1;
  const moves = {
    ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -leap], ArrowRight: [0, leap],
    PageUp: [-page, 0], PageDown: [page, 0], Home: [0, -at.c], End: [0, map.grid.columns],
  };
  if (event.key in moves) map.moveTo(at.r + moves[event.key][0], at.c + moves[event.key][1]);
  else if (event.key === "+" || event.key === "=") map.zoom(0.5);
  else if (event.key === "-") map.zoom(2);
  else if (event.key === "Escape" || event.key === "0") map.reset();
  else if (event.key === "w" || event.key === "W") map.toWorst();
  else if (event.key === "Enter" && map.cursor) map.actions.onSelect?.(map.pointed().machine);
  else return;
  event.preventDefault();
}
