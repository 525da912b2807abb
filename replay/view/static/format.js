// Times and numbers for people. Mirrors replay/view/words.py where both show the same thing.

const PREFIXES = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];
const PLAIN = [[1, ""]];
const PREFIXES_OF = {
  s: [[1, ""], [1e-3, "m"], [1e-6, "µ"]],
  "°C": PLAIN,
  "1/s": PLAIN,
  "packets/s": PLAIN,
};

const two = (n) => String(n).padStart(2, "0");

/** HH:MM:SS in UTC. */
export function clock(ms) {
  const t = new Date(ms);
  return `${two(t.getUTCHours())}:${two(t.getUTCMinutes())}:${two(t.getUTCSeconds())}`;
}

/** Seconds as "8 s", "3 min", "2 h", "4 d". */
export function span(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 100) return `${s} s`;
  if (s < 100 * 60) return `${Math.round(s / 60)} min`;
  if (s < 48 * 3600) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} d`;
}

function digits(value) {
  const exponent = Number(value.toExponential(2).split("e")[1]);
  if (exponent >= 2 || value === 0) return Math.round(value).toLocaleString("en-US");
  if (exponent < -6) return String(Number(value.toPrecision(3)));
  return value.toFixed(2 - exponent).replace(/\.?0+$/, "");
}

/** Three significant digits with SI prefix and unit; "missing" for null. */
export function quantity(value, unit = "") {
  if (value === null || value === undefined || Number.isNaN(value)) return "missing";
  const size = Math.abs(Number(value.toPrecision(3)));
  if (unit === "" || unit === "1" || unit === "ratio") {
    return (size >= 0.01 && size < 10) || size === 0 ? value.toFixed(2) : digits(value);
  }
  const prefixes = PREFIXES_OF[unit] ?? PREFIXES;
  const fitting = prefixes.find(([factor]) => size >= factor) ?? prefixes.at(-1);
  const [factor, prefix] = size ? fitting : [1, ""];
  return `${digits(value / factor)} ${prefix}${unit}`;
}

/** A score as a multiple of the alarm threshold. */
export function times(score) {
  if (score === null) return "no data";
  return `${score >= 10 ? Math.round(score) : score.toFixed(score >= 1 ? 1 : 2)}×`;
}

/** Whole steps of time that leave room for `count` labels at most. */
export function timeStep(spanMs, count) {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];
  const wanted = spanMs / 1000 / Math.max(1, count);
  return (steps.find((s) => s >= wanted) ?? 86400 * Math.ceil(wanted / 86400)) * 1000;
}
