// One line to the reader, seen and read aloud, gone after a while.

const SHOWN_MS = 8_000;
let timer = 0;

export function say(text) {
  const place = document.getElementById("news");
  place.textContent = text;
  clearTimeout(timer);
  timer = setTimeout(() => { place.textContent = ""; }, SHOWN_MS);
}
