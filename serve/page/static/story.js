// Charts of an alert's or a machine's story: each metric over the peers' band, and the score.

import { metricChart, scoreChart } from "../view/charts.js";
import { getJson } from "./client.js";
import { endOfData, fetchGrid } from "./scores.js";

const BEFORE_MS = 10 * 60_000;
const AFTER_MS = 10 * 60_000;
const RECENT_MS = 30 * 60_000;

export class Story {
  constructor(root) {
    this.root = root;
    this.job = root.dataset.job;
    this.machine = root.dataset.machine;
    this.charts = new Map();
  }

  get marks() {
    const { onset, detected } = this.root.dataset;
    if (!onset) return [];
    return [{ ms: Date.parse(onset), word: "onset" }, { ms: Date.parse(detected), word: "alert" }];
  }

  /** From well before the onset until well after the alert, or the last half hour. */
  async period() {
    const { onset, detected } = this.root.dataset;
    const end = await endOfData(this.job);
    if (!onset) return [end - RECENT_MS, end];
    return [Date.parse(onset) - BEFORE_MS, Math.min(end, Date.parse(detected) + AFTER_MS)];
  }

  async update() {
    if (!this.machine) return;
    try {
      const [start, end] = await this.period();
      if (end === this.end) return; // nothing new has come, or the story is told
      this.end = end;
      await Promise.all([this.metrics(start, end), this.score(start, end)]);
    } catch (problem) {
      if (!problem.status && !(problem instanceof TypeError)) throw problem;
    }
  }

  async metrics(start, end) {
    const wanted = this.wanted ?? [...this.root.querySelectorAll("[data-metric]")];
    const query = new URLSearchParams({ start: new Date(start).toISOString(), end: new Date(end).toISOString() });
    if (!("all" in this.root.dataset)) for (const box of wanted) query.append("metric", box.dataset.metric);
    if (!wanted.length && !("all" in this.root.dataset)) return;
    const path = `/jobs/${encodeURIComponent(this.job)}/machines/${encodeURIComponent(this.machine)}/metrics`;
    for (const series of seriesOf(await getJson(`${path}?${query}`))) {
      for (const box of this.boxes(series)) this.draw(box, (at) => metricChart(at, series, this.marks));
    }
  }

  /** Where a metric's chart belongs; on a machine's own page, a new card. */
  boxes(series) {
    const found = [...this.root.querySelectorAll("[data-metric]")].filter((e) => e.dataset.metric === series.metric);
    if (found.length || !("all" in this.root.dataset)) return found;
    const card = this.root.querySelector(".score-card").cloneNode(true);
    card.classList.remove("score-card");
    card.dataset.metric = series.metric;
    card.querySelector("h3").textContent = series.title ?? series.metric;
    card.querySelector(".evidence-meta span").textContent = series.metric;
    card.querySelector(".chart").replaceChildren();
    card.querySelector(".chart").setAttribute("aria-label", `${series.metric} of ${this.machine} over its peers' band`);
    const foot = card.querySelector(".chart-foot");
    foot.replaceChildren(foot.lastElementChild);
    this.root.querySelector("[data-role=charts]").append(card);
    return [card];
  }

  async score(start, end) {
    const card = this.root.querySelector(".score-card");
    if (!card) return;
    const grid = await fetchGrid(this.job, start, end, this.machine);
    const row = grid.rowOf.get(this.machine);
    if (row === undefined) return;
    const columns = [...Array(grid.columns).keys()];
    this.draw(card, (box) => scoreChart(box, columns.map((c) => grid.timeOf(c)), columns.map((c) => grid.score(row, c)), this.marks));
  }

  draw(card, make) {
    if (!this.machine) return;
    const box = card.querySelector(".chart");
    const known = this.charts.get(box);
    known?.destroy();
    this.charts.set(box, make(box));
  }

  destroy() {
    for (const chart of this.charts.values()) chart.destroy();
    this.charts.clear();
    this.machine = ""; // an answer that is still on its way finds no chart to draw
  }

  recolour() {
    for (const chart of this.charts.values()) chart.rebuild();
  }
}

/** The API's answer as a list of series with arrays of one length. */
function seriesOf(answer) {
  return answer.series ?? [answer];
}
