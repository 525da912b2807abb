// The score grid as the API serves it; the byte layout stands in replay/view/grid.py.

export const MEDIA_TYPE = "application/vnd.weaklink.scores";

export class Grid {
  constructor(head, codes) {
    this.job = head.job;
    this.machines = head.machines;
    this.startMs = head.start_ms;
    this.stepMs = head.step_ms;
    this.columns = head.columns;
    this.scale = head.scale;
    this.phases = head.phases;
    this.codes = codes; // Uint16Array, row by row; 0 = no data
    this.rowOf = new Map(head.machines.map((name, i) => [name, i]));
  }

  static decode(buffer) {
    const magic = new Uint8Array(buffer, 0, 4);
    if (String.fromCharCode(...magic) !== "WLG1") throw new Error("not a score grid");
    const length = new DataView(buffer).getUint32(4, true);
    const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
    return new Grid(head, new Uint16Array(buffer, 8 + length, head.machines.length * head.columns));
  }

  get rows() { return this.machines.length; }
  get endMs() { return this.startMs + this.columns * this.stepMs; }

  score(row, column) {
    const code = this.codes[row * this.columns + column];
    return code ? (code - 1) * this.scale : null;
  }

  timeOf(column) { return this.startMs + column * this.stepMs; }

  columnAt(ms) { return Math.floor((ms - this.startMs) / this.stepMs); }

  /** The highest code of each row within columns [from, to). */
  peaks(from, to) {
    const peaks = new Uint16Array(this.rows);
    for (let row = 0; row < this.rows; row++) {
      const base = row * this.columns;
      let peak = 0;
      for (let i = base + from; i < base + to; i++) if (this.codes[i] > peak) peak = this.codes[i];
      peaks[row] = peak;
    }
    return peaks;
  }

  /**
   * This grid followed by a newer, equally fine or finer one (which wins where they overlap, and
   * whose cells are pooled by their maximum), no more than `maxColumns` wide; null if the two do
   * not fit onto one time grid.
   */
  joined(newer, maxColumns) {
    if (newer.stepMs > this.stepMs || newer.startMs < this.startMs) return null;
    const target = Int32Array.from({ length: newer.columns }, (_, c) => Math.floor((newer.timeOf(c) - this.startMs) / this.stepMs + 1e-6));
    const total = Math.max(this.columns, target.at(-1) + 1);
    const skip = Math.max(0, total - maxColumns);
    const columns = total - skip;
    const machines = newer.machines.every((name) => this.rowOf.has(name)) ? this.machines : [...new Set([...this.machines, ...newer.machines])].sort();
    const codes = new Uint16Array(machines.length * columns);
    machines.forEach((name, row) => {
      const base = row * columns - skip;
      const old = this.rowOf.get(name);
      if (old !== undefined && skip < this.columns) {
        codes.set(this.codes.subarray(old * this.columns + skip, (old + 1) * this.columns), base + skip);
      }
      const fresh = newer.rowOf.get(name);
      if (fresh === undefined) return;
      codes.fill(0, base + Math.max(skip, target[0]), base + target.at(-1) + 1);
      for (let c = 0; c < newer.columns; c++) {
        const code = newer.codes[fresh * newer.columns + c];
        if (target[c] >= skip && code > codes[base + target[c]]) codes[base + target[c]] = code;
      }
    });
    const startMs = this.startMs + skip * this.stepMs;
    const phases = this.phases.filter(([ms]) => ms < newer.startMs);
    for (const phase of newer.phases) if (phases.at(-1)?.[1] !== phase[1]) phases.push(phase);
    const cut = phases.findLastIndex(([ms]) => ms <= startMs);
    return new Grid({
      job: this.job, machines, start_ms: startMs, step_ms: this.stepMs, columns,
      scale: this.scale, phases: phases.slice(Math.max(0, cut)),
    }, codes);
  }
}
