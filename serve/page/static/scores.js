// Heat maps on the page: fetches score grids and keeps them growing.

import { Board } from "../view/board.js";
import { Grid, MEDIA_TYPE } from "../view/grid.js";
import { base, getBinary, getJson, now } from "./client.js";

const MAX_COLUMNS = 1800;
const BEFORE_MS = 15 * 60_000; // of an alert's onset
const AFTER_MS = 15 * 60_000;

const iso = (ms) => new Date(ms).toISOString();

export async function fetchGrid(job, startMs, endMs, machine) {
  const query = new URLSearchParams({ start: iso(startMs), max_columns: MAX_COLUMNS });
  if (endMs) query.set("end", iso(endMs));
  if (machine) query.set("machine", machine);
  const buffer = await getBinary(`/jobs/${encodeURIComponent(job)}/scores?${query}`, MEDIA_TYPE);
  performance.mark("weaklink:scores-arrived");
  return Grid.decode(buffer);
}

/** The end of the job's telemetry: replayed or late data is not at the wall clock. */
export async function endOfData(job) {
  const state = await getJson(`/jobs/${encodeURIComponent(job)}`);
  const mark = Date.parse(state.watermark ?? "");
  return Number.isNaN(mark) ? now() : mark;
}

/** The alarmed machines of the page's current alert data. */
export function alarms() {
  const found = new Map();
  for (const node of document.querySelectorAll("[data-role=alerts]")) {
    for (const alert of JSON.parse(node.textContent)) {
      for (const machine of alert.machines) {
        if (!found.has(machine)) found.set(machine, { onsetMs: Date.parse(alert.onset), status: alert.status, id: alert.id });
      }
    }
  }
  return found;
}

export const machineLink = (job, machine) => `${base}/machine?${new URLSearchParams({ job, machine })}`;

export class LiveBoard {
  constructor(root) {
    this.root = root;
    this.job = root.dataset.job;
    this.period = root.querySelector("[data-role=period]");
    this.grid = null;
    this.board = new Board(root, { href: (machine) => machineLink(this.job, machine) });
    this.period?.addEventListener("change", () => { this.grid = null; this.update(); });
  }

  get periodMs() { return Number(this.period.value) * 1000; }

  /** What this map shows at most: around an onset, or a period that ends with the data. */
  async span() {
    const around = Date.parse(this.root.dataset.around ?? "");
    if (!Number.isNaN(around)) return [around - BEFORE_MS, around + AFTER_MS];
    return [(await endOfData(this.job)) - this.periodMs, undefined];
  }

  /** Fetch what is missing and draw. */
  async update() {
    if (this.running) return;
    this.running = true;
    try {
      if (!this.grid?.columns || !(await this.append())) {
        const [start, end] = await this.span();
        this.end = end;
        this.draw(await fetchGrid(this.job, start, end));
      }
    } catch (problem) {
      if (!problem.status && !(problem instanceof TypeError)) throw problem;
      // Refused or unreachable: the live badge says so, the map keeps what it has.
    } finally {
      this.running = false;
    }
  }

  /** Fetch only what is newer; false if it does not go with what is here. */
  async append() {
    const { grid, end } = this;
    if (end && grid.endMs >= end) return true;
    const newer = await fetchGrid(this.job, grid.endMs - 2 * grid.stepMs, end);
    if (!newer.columns || this.grid !== grid) return true;
    const joined = grid.joined(newer, end ? Infinity : Math.ceil(this.periodMs / grid.stepMs));
    if (joined) this.draw(joined);
    return Boolean(joined);
  }

  draw(grid) {
    this.grid = grid;
    this.remark();
    requestAnimationFrame(() => performance.measure("weaklink:heat-map", "weaklink:scores-arrived"));
  }

  /** The alerts changed: mark other rows. */
  remark() {
    if (!this.grid) return;
    const known = [...alarms()].filter(([, alarm]) => alarm.onsetMs <= this.grid.endMs);
    this.board.show(this.grid, new Map(known));
  }
}
