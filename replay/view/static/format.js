// Times and numbers for people. Mirrors replay/view/words.py where both show the same thing.

const PREFIXES = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];
const PLAIN_UNITS = new Set(["°C", "s", "1/s", "packets/s"]);

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
  const size = Math.abs(value);
  const places = size >= 100 ? 0 : size >= 10 ? 1 : 2;
  return String(Number(value.toFixed(places)));
}

/** Three significant digits with SI prefix and unit; "missing" for null. */
export function quantity(value, unit = "") {
  if (value === null || value === undefined || Number.isNaN(value)) return "missing";
  if (unit === "" || unit === "1" || unit === "ratio") {
    return Math.abs(value) >= 10 ? digits(value) : value.toFixed(2);
  }
  if (PLAIN_UNITS.has(unit)) return `${digits(value)} ${unit}`;
  for (const [factor, prefix] of PREFIXES) {
    if (Math.abs(value) >= factor || factor === 1) return `${digits(value / factor)} ${prefix}${unit}`;
  }
  return String(value);
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
