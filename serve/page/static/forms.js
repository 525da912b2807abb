// Forms that speak to the API: data-post or data-delete names the address.

import { now, send } from "./client.js";
import { say } from "./say.js";

/** `after()` is called when something was changed; `locked()` when a token is needed. */
export function listen({ after, locked }) {
  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (!(form.dataset.post || form.dataset.delete)) return;
    event.preventDefault();
    if (form.dataset.busy) return;
    const output = form.querySelector("output");
    const buttons = form.querySelectorAll("button");
    form.dataset.busy = "yes";
    buttons.forEach((b) => { b.disabled = true; });
    output.className = "";
    output.textContent = "sending";
    try {
      if (form.dataset.post) await send("POST", form.dataset.post, body(form));
      else await send("DELETE", form.dataset.delete);
      output.textContent = "";
      say(form.dataset.done);
      form.closest("details")?.removeAttribute("open");
      form.reset();
      fillRemembered(document);
    } catch (problem) {
      output.className = "bad";
      output.textContent = `Not done: ${problem.message}`;
      if (problem.status === 401 || problem.status === 403) locked();
    } finally {
      delete form.dataset.busy;
      buttons.forEach((b) => { b.disabled = false; });
    }
    if (!output.className) await after();
  });
  document.addEventListener("keydown", (event) => {
    const menu = event.key === "Escape" && document.activeElement?.closest("details.menu[open]");
    if (!menu) return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });
  document.addEventListener("click", (event) => {
    for (const menu of document.querySelectorAll("details.menu[open]")) {
      if (!menu.contains(event.target)) menu.open = false;
    }
    const copy = event.target.closest?.("[data-action=copy]");
    if (copy) copyCommand(copy);
  });
}

function body(form) {
  const values = {};
  for (const field of form.elements) {
    if (!field.name || (field.type === "radio" && !field.checked)) continue;
    const value = field.value.trim();
    if ("optional" in field.dataset && !value) continue;
    if (field.dataset.until) values[field.dataset.until] = new Date(now() + Number(value) * 3_600_000).toISOString();
    else values[field.name] = value;
    if (field.dataset.remember) remember(field.dataset.remember, value);
  }
  if (form.dataset.signed && remembered("who")) values[form.dataset.signed] = remembered("who");
  return values;
}

function remember(name, value) {
  try { localStorage.setItem(`weaklink-${name}`, value); } catch { /* asked again next time */ }
}

function remembered(name) {
  try { return localStorage.getItem(`weaklink-${name}`) ?? ""; } catch { return ""; }
}

/** Fill what this reader has given before (their name). */
export function fillRemembered(where) {
  for (const field of where.querySelectorAll("[data-remember]")) field.value ||= remembered(field.dataset.remember);
}

async function copyCommand(button) {
  const code = button.parentElement.querySelector("code");
  try {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(code); // no clipboard without TLS: one key is left to press
    button.textContent = "Selected";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
}
