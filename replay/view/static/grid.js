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

  /** The last score of a row that is not missing, within columns [from, to). */
  last(row, from, to) {
    for (let column = to - 1; column >= from; column--) {
      const score = this.score(row, column);
      if (score !== null) return score;
    }
    return null;
  }

  /**
   * This grid followed by a newer one (the newer one wins where they overlap), no more than
   * `maxColumns` wide; null if the two do not fit onto one time grid.
   */
  joined(newer, maxColumns) {
    const offset = (newer.startMs - this.startMs) / this.stepMs;
    if (newer.stepMs !== this.stepMs || offset < 0 || Math.abs(offset - Math.round(offset)) > 1e-6) return null;
    const at = Math.round(offset);
    const total = Math.max(this.columns, at + newer.columns);
    const skip = Math.max(0, total - maxColumns);
    const machines = [...new Set([...this.machines, ...newer.machines])].sort();
    const columns = total - skip;
    const codes = new Uint16Array(machines.length * columns);
    machines.forEach((name, row) => {
      const base = row * columns;
      const old = this.rowOf.get(name);
      if (old !== undefined && skip < this.columns) {
        codes.set(this.codes.subarray(old * this.columns + skip, (old + 1) * this.columns), base);
      }
      const fresh = newer.rowOf.get(name);
      if (fresh !== undefined) {
        const from = Math.max(0, skip - at);
        const row0 = fresh * newer.columns;
        codes.set(newer.codes.subarray(row0 + from, row0 + newer.columns), base + at + from - skip);
      }
    });
    const startMs = this.startMs + skip * this.stepMs;
    const phases = [...this.phases.filter(([ms]) => ms < newer.startMs)];
    for (const phase of newer.phases) if (phases.at(-1)?.[1] !== phase[1]) phases.push(phase);
    const cut = phases.findLastIndex(([ms]) => ms <= startMs);
    return new Grid({
      job: this.job, machines, start_ms: startMs, step_ms: this.stepMs, columns,
      scale: this.scale, phases: phases.slice(Math.max(0, cut)),
    }, codes);
  }
}
