// From scores to pixels. A pixel shows the highest score of all cells that it covers, so the
// one bad cell among a million stays visible however far the map is zoomed out.

/** Column boundaries: pixel x covers columns [bounds[x], bounds[x + 1]). */
function boundaries(from, to, width) {
  const bounds = new Int32Array(width + 1);
  for (let x = 0; x <= width; x++) bounds[x] = Math.floor(from + ((to - from) * x) / width);
  return bounds;
}

function foldRow(codes, base, bounds, peaks) {
  for (let x = 0; x < peaks.length; x++) {
    let i = base + bounds[x];
    const end = Math.max(i + 1, base + bounds[x + 1]);
    let peak = peaks[x];
    for (; i < end; i++) if (codes[i] > peak) peak = codes[i];
    peaks[x] = peak;
  }
}

function inkRow(pixels, offset, peaks, y, colours) {
  const { codes, hatch } = colours;
  const top = codes.length - 1;
  for (let x = 0; x < peaks.length; x++) {
    const code = peaks[x];
    pixels[offset + x] = code ? codes[code < top ? code : top] : hatch[((x + y) >> 2) & 1];
  }
}

/**
 * Paint rows order[view.r0 .. view.r1) × columns [view.c0, view.c1) into an image.
 * Rows in `marked` (indices into `order`) get at least `minimum` pixels.
 */
export function paint(image, grid, order, view, colours, marked = [], minimum = 0) {
  const { width, height } = image;
  const pixels = new Uint32Array(image.data.buffer);
  const bounds = boundaries(view.c0, view.c1, width);
  const peaks = new Uint16Array(width);
  const span = view.r1 - view.r0;
  let previous = -1;
  for (let y = 0; y < height; y++) {
    const first = view.r0 + Math.floor((span * y) / height);
    const last = Math.max(first + 1, view.r0 + Math.floor((span * (y + 1)) / height));
    if (first !== previous || last > first + 1) {
      peaks.fill(0);
      for (let r = first; r < last; r++) foldRow(grid.codes, order[r] * grid.columns, bounds, peaks);
      previous = first;
    }
    inkRow(pixels, y * width, peaks, y, colours);
  }
  for (const at of marked) {
    if (at < view.r0 || at >= view.r1 || height / span >= minimum) continue;
    peaks.fill(0);
    foldRow(grid.codes, order[at] * grid.columns, bounds, peaks);
    const y0 = Math.max(0, Math.min(height - minimum, Math.round(((at + 0.5 - view.r0) / span) * height - minimum / 2)));
    for (let y = y0; y < Math.min(height, y0 + minimum); y++) inkRow(pixels, y * width, peaks, y, colours);
  }
}

/** Make a canvas's pixels match its size on the screen; returns its 2D context. */
export function fit(canvas, width, height, ratio) {
  const w = Math.max(1, Math.round(width * ratio));
  const h = Math.max(1, Math.round(height * ratio));
  if (canvas.width !== w) canvas.width = w;
  if (canvas.height !== h) canvas.height = h;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  return canvas.getContext("2d");
}

/** One row as a strip, over the same columns as the map. */
export function paintStrip(canvas, grid, row, view, colours) {
  const ratio = Math.min(2, devicePixelRatio || 1);
  const width = canvas.parentElement.clientWidth;
  if (!width) return;
  const context = fit(canvas, width, 22, ratio);
  const image = context.createImageData(canvas.width, canvas.height);
  paint(image, grid, [row], { r0: 0, r1: 1, c0: view.c0, c1: view.c1 }, colours);
  context.putImageData(image, 0, 0);
}
