// Talks to this service's API: JSON, binary, and the event stream, with the reader's token.

const root = document.documentElement;
const KEY = "weaklink-token";
let kept = null; // where the session's storage is closed to us
let skewMs = 0;

export const base = root.dataset.base;

export function token() {
  try { return sessionStorage.getItem(KEY) ?? kept; } catch { return kept; }
}

export function keepToken(value) {
  kept = value;
  try { sessionStorage.setItem(KEY, value); } catch { /* this page only */ }
}

/** The service's clock: a reader's clock may be minutes off. */
export const now = () => Date.now() + skewMs;

/** What the service answered instead of data; `message` is fit for people. */
export class Problem extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

function headers(more) {
  const all = { ...more };
  if (token()) all.Authorization = `Bearer ${token()}`;
  return all;
}

function learnClock(response) {
  const date = Date.parse(response.headers.get("date") ?? "");
  // The header has whole seconds: only a real difference counts.
  if (!Number.isNaN(date)) skewMs = Math.abs(date - Date.now()) > 2000 ? date - Date.now() : 0;
}

async function answer(response) {
  learnClock(response);
  if (response.ok) return response;
  let text = response.statusText || `status ${response.status}`;
  try {
    const problem = await response.json();
    text = problem.detail || problem.title || text;
    if (typeof text !== "string") text = problem.title ?? `status ${response.status}`;
  } catch { /* not a problem document */ }
  throw new Problem(response.status, text);
}

export async function getJson(path, signal) {
  return (await answer(await fetch(`${base}/api/v1${path}`, { headers: headers({ Accept: "application/json" }), signal }))).json();
}

export async function getBinary(path, type) {
  return (await answer(await fetch(`${base}/api/v1${path}`, { headers: headers({ Accept: type }) }))).arrayBuffer();
}

export async function send(method, path, body) {
  const init = { method, headers: headers({ Accept: "application/json" }) };
  if (body !== undefined) {
    init.headers["Content-Type"] = "application/json";
    init.body = JSON.stringify(body);
  }
  return answer(await fetch(`${base}/api/v1${path}`, init));
}

// Fragments come from this service's own templates, which escape every value.
const policy = globalThis.trustedTypes?.createPolicy("weaklink", { createHTML: (html) => html }) ?? { createHTML: (html) => html };

/** This address's `<main>` as a document of its own; also for refusals, which are pages too. */
export async function fragment(url = location.href) {
  const response = await fetch(url, { headers: headers({ Accept: "text/html", "X-Weaklink-Fragment": "1" }), cache: "no-store" });
  learnClock(response);
  return new DOMParser().parseFromString(policy.createHTML(await response.text()), "text/html");
}

/** Server-sent events by fetch, since EventSource cannot carry a token. */
export async function* events(lastId, signal) {
  const more = { Accept: "text/event-stream" };
  if (lastId) more["Last-Event-ID"] = lastId;
  const response = await answer(await fetch(`${base}/api/v1/events`, { headers: headers(more), signal, cache: "no-store" }));
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value.replaceAll("\r\n", "\n").replaceAll("\r", "\n");
    let end;
    while ((end = text.indexOf("\n\n")) >= 0) {
      yield parsed(text.slice(0, end));
      text = text.slice(end + 2);
    }
  }
}

function parsed(block) {
  const event = { kind: "message", id: null, data: "" };
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    if (colon < 0) continue;
    const value = line.slice(colon + 1).replace(/^ /, "");
    if (colon === 0) event.kind = "comment";
    else if (line.startsWith("event:")) event.kind = value;
    else if (line.startsWith("id:")) event.id = value;
    else if (line.startsWith("data:")) event.data += (event.data && "\n") + value;
  }
  return event;
}
