// Keeps the page true: listens to events, asks again when they fail, and says which it is.

import { clock, span } from "../view/format.js";
import { events, fragment, now } from "./client.js";
import { say } from "./say.js";

const SILENT_MS = 20_000; // the stream sends a sign of life more often than this
const POLL_MS = 5_000;
const DEAD_S = 60;
const ROUTINE_MS = 5_000; // lag, phase and the like need no more

export class Live {
  /** `actions`: onLocked(), onUnlocked(main), onSwap(part), onStory(root), onRefresh(). */
  constructor(actions) {
    this.actions = actions;
    this.lastId = null;
    this.heardMs = 0;
    this.state = "wait";
    this.refreshing = null;
    this.again = false;
    this.refreshedMs = now();
    this.known = openAlerts(document);
    this.sources = new WeakMap(); // each live part as the service sent it
    this.note(document);
  }

  note(where) {
    for (const part of where.querySelectorAll("[data-live]")) this.sources.set(part, part.innerHTML);
  }

  start() {
    this.follow();
    setInterval(() => this.tick(), 1000);
    addEventListener("online", () => this.refresh());
    document.addEventListener("visibilitychange", () => { if (!document.hidden) this.refresh(); });
  }

  /** Read the stream for ever; between attempts, poll. */
  async follow() {
    let pause = 500;
    for (;;) {
      const stop = new AbortController();
      const watch = setInterval(() => { if (now() - this.heardMs > SILENT_MS) stop.abort(); }, 1000);
      this.heardMs = now();
      try {
        for await (const event of events(this.lastId, stop.signal)) {
          pause = 500;
          this.hear(event);
        }
      } catch (problem) {
        if (problem.status === 401 || problem.status === 403) {
          this.set("locked");
          this.actions.onLocked();
          clearInterval(watch);
          await new Promise((resolve) => addEventListener("weaklink-token", resolve, { once: true }));
          continue;
        }
      }
      clearInterval(watch);
      if (this.state === "ok") this.set("wait");
      await this.refresh();
      await new Promise((resolve) => setTimeout(resolve, pause));
      pause = Math.min(POLL_MS, pause * 2);
    }
  }

  hear(event) {
    this.heardMs = now();
    if (event.id) this.lastId = event.id;
    if (event.kind === "reset") this.lastId = null; // the log has moved on without us
    this.set("ok");
    const urgent = /^(alert|silence|storm|breaker|reset)/.test(event.kind);
    if (urgent || now() - this.refreshedMs > ROUTINE_MS) this.refresh();
  }

  /** Fetch this view again and swap in what changed; calls during one run make one more. */
  async refresh() {
    if (this.refreshing) {
      this.again = true;
      return this.refreshing;
    }
    this.refreshing = this.fetchAndSwap();
    try { await this.refreshing; } finally { this.refreshing = null; }
    if (this.again) {
      this.again = false;
      return this.refresh();
    }
    return undefined;
  }

  async fetchAndSwap() {
    let fresh;
    try { fresh = await fragment(); } catch { this.set("bad"); return; }
    this.refreshedMs = now();
    if (this.state === "bad") this.set("wait");
    this.take(fresh);
  }

  take(fresh) {
    const main = document.getElementById("main");
    const incoming = fresh.getElementById("main");
    if (!incoming) return;
    if (incoming.querySelector("[data-locked]")) {
      if (!main.querySelector("[data-locked]")) return; // a passing failure: keep what is known
      main.replaceChildren(...incoming.childNodes);
      return;
    }
    if (main.querySelector("[data-locked]")) {
      main.replaceChildren(...incoming.childNodes);
      document.title = fresh.title;
      this.note(main);
      this.actions.onUnlocked(main);
      return;
    }
    document.title = fresh.title;
    this.takeStory(main, incoming);
    for (const part of main.querySelectorAll("[data-live]")) {
      const next = incoming.querySelector(`#${part.id}`);
      if (next && !busy(part) && this.sources.get(part) !== next.innerHTML) {
        this.sources.set(next, next.innerHTML);
        swap(part, next);
        this.actions.onSwap(next);
      }
    }
    this.announce();
    this.actions.onRefresh();
  }

  /** Other evidence, or another machine: the charts must be made anew. */
  takeStory(main, incoming) {
    const story = main.querySelector("[data-signature]");
    const next = incoming.querySelector("[data-signature]");
    if (!story || !next || story.dataset.signature === next.dataset.signature) return;
    this.note(next);
    story.replaceWith(next);
    this.actions.onStory(next);
  }

  announce() {
    const open = openAlerts(document);
    const fresh = [...open].filter(([id]) => !this.known.has(id)).map(([, words]) => words);
    if (fresh.length) say(`New alert: ${fresh.join(". ")}`);
    this.known = open;
  }

  set(state) {
    if (state === "bad" && this.state !== "bad") this.lostMs = this.refreshedMs;
    this.state = state;
    this.show();
  }

  tick() {
    this.show();
    for (const node of document.querySelectorAll("[data-ago]")) {
      node.textContent = `(${span((now() - Date.parse(node.dataset.ago)) / 1000)} ago)`;
    }
  }

  show() {
    const badge = document.getElementById("live");
    const banner = document.getElementById("stale");
    const quiet = (now() - this.heardMs) / 1000;
    const words = {
      ok: quiet > 12 ? `last sign ${span(quiet)} ago` : this.liveWords(),
      wait: "reconnecting, asking every few seconds",
      bad: "disconnected",
      locked: "locked",
    }[this.state];
    badge.className = `live live-${this.state === "ok" && quiet > 12 ? "wait" : this.state}`;
    if (badge.lastElementChild.textContent !== words) badge.lastElementChild.textContent = words;
    const lost = this.state === "bad" ? `Disconnected. What you see is as of ${clock(this.lostMs)} UTC; it may have changed since.` : this.trouble();
    banner.hidden = !lost;
    if (banner.textContent !== lost) banner.textContent = lost;
  }

  /** Detection's own sign of life, which views of jobs and alerts carry. */
  beat() {
    const [stamp, unattended] = (document.getElementById("beat")?.textContent ?? "").trim().split(" ");
    const at = Date.parse(stamp);
    return { silent: Number.isNaN(at) ? null : Math.max(0, (now() - at) / 1000), unattended: Number(unattended) || 0 };
  }

  liveWords() {
    const { silent } = this.beat();
    return silent === null ? "live" : `live, detection ${span(silent)} ago`;
  }

  trouble() {
    const { silent, unattended } = this.beat();
    if (unattended) return `Detection does not watch ${unattended === 1 ? "a job" : `${unattended} jobs`} shown here: no worker has reported it lately. Silence means nothing now.`;
    if (silent > DEAD_S) return `Detection has given no sign of life for ${span(silent)}. Silence means nothing now.`;
    return "";
  }
}

function openAlerts(where) {
  return new Map([...where.querySelectorAll(".alert-open[data-alert]")].map((e) => [e.dataset.alert, e.querySelector("h3 a").textContent]));
}

/** Somebody is writing here, or has just been told something: leave it alone. */
function busy(part) {
  const active = document.activeElement;
  if (part.querySelector("details.menu[open]")) return true;
  if (part.querySelector("form[data-busy]")) return true;
  return part.contains(active) && active.matches("input, select, textarea");
}

/** Put `next` in place of `part`, keeping the keyboard's place in it. */
function swap(part, next) {
  const active = part.contains(document.activeElement) ? document.activeElement : null;
  const key = active && (active.getAttribute("href") ?? active.textContent);
  part.replaceWith(next);
  if (!active) return;
  const again = [...next.querySelectorAll("a, button, summary")].find((e) => (e.getAttribute("href") ?? e.textContent) === key);
  (again ?? document.getElementById("main")).focus();
}
