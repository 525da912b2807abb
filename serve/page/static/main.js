// Starts what the page holds: live updates, forms, heat maps, charts, the token's dialog.

import { keepToken, token } from "./client.js";
import { fillRemembered, listen } from "./forms.js";
import { Live } from "./live.js";
import { LiveBoard } from "./scores.js";
import { Story } from "./story.js";

const MAP_MS = 2_000;
const STORY_MS = 10_000;

let boards = [];
let stories = [];

function begin(where) {
  boards = [...where.querySelectorAll("[data-board]")].map((root) => new LiveBoard(root));
  stories = [...where.querySelectorAll("[data-story]")].map((root) => new Story(root));
  fillRemembered(where);
  boards.forEach((board) => board.update());
  stories.forEach((story) => story.update());
}

function askForToken() {
  const dialog = document.getElementById("sign-in");
  document.querySelector("[data-action=token][hidden]")?.removeAttribute("hidden");
  if (dialog.open) return;
  dialog.querySelector("[data-role=error]").textContent = token() ? "That token does not open this. Another one?" : "";
  dialog.showModal();
}

const live = new Live({
  onLocked: askForToken,
  onUnlocked: begin,
  onSwap: fillRemembered,
  onStory: (root) => {
    stories.forEach((story) => story.destroy());
    stories = [new Story(root)];
    stories[0].update();
  },
  onRefresh: () => boards.forEach((board) => board.remark()),
});

document.getElementById("sign-in").addEventListener("close", (event) => {
  const dialog = event.target;
  const field = dialog.querySelector("[name=token]");
  if (dialog.returnValue === "use" && field.value) {
    keepToken(field.value.trim());
    field.value = "";
    dispatchEvent(new Event("weaklink-token"));
    live.refresh();
  }
});
document.addEventListener("click", (event) => { if (event.target.closest?.("[data-action=token]")) askForToken(); });
addEventListener("weaklink-theme", () => {
  boards.forEach((board) => board.board.recolour());
  stories.forEach((story) => story.recolour());
});
listen({ after: () => live.refresh(), locked: askForToken });
begin(document);
live.start();
setInterval(() => { if (!document.hidden) boards.forEach((board) => board.update()); }, MAP_MS);
setInterval(() => { if (!document.hidden) stories.forEach((story) => story.update()); }, STORY_MS);
