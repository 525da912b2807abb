// Starts a report: the data stands in the file itself, nothing is fetched.

import { Board } from "./board.js";
import { metricChart, scoreChart } from "./charts.js";
import { Grid } from "./grid.js";

async function inflated(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

async function show() {
  const data = JSON.parse(document.getElementById("report-data").textContent);
  const charts = [];
  for (const { alert, chart, series } of data.series) {
    const box = document.querySelector(`[data-alert="${alert}"] [data-evidence="${chart}"] .chart`);
    charts.push(metricChart(box, series, data.marks[alert]));
  }
  const grid = Grid.decode(await inflated(data.grid));
  for (const story of document.querySelectorAll("[data-alert]")) {
    const row = grid.rowOf.get(story.dataset.machine);
    const box = story.querySelector(".score-card .chart");
    if (row === undefined || !box) continue;
    const columns = [...Array(grid.columns).keys()];
    charts.push(scoreChart(box, columns.map((c) => grid.timeOf(c)), columns.map((c) => grid.score(row, c)), data.marks[story.dataset.alert]));
  }
  const board = new Board(document.getElementById("board"));
  board.show(grid, new Map(data.alarms));
  addEventListener("weaklink-theme", () => {
    board.recolour();
    charts.forEach((chart) => chart.rebuild());
  });
  document.documentElement.dataset.drawn = "yes";
}

show();
