// Colours of scores. Blue below the threshold, orange from it on, with a jump in brightness at
// the threshold itself: the scale reads the same with any colour vision and in grey.

const STOPS = {
  light: [[0, 0xf1f4f7], [0.5, 0xcfdeea], [0.99, 0x7ba3c9], [1, 0xf08a12], [2, 0xc2410c], [4, 0x5f1606]],
  dark: [[0, 0x18202b], [0.5, 0x25425f], [0.99, 0x4a86bf], [1, 0xffa726], [2, 0xffd180], [4, 0xfff6e0]],
};

const HATCH = { light: [0xe3e6ea, 0xcdd2d9], dark: [0x2a2f37, 0x3d434d] };

export const TOP_SCORE = 4;

function mix(a, b, t) {
  const channel = (shift) => {
    const from = (a >> shift) & 255;
    return Math.round(from + (((b >> shift) & 255) - from) * t) << shift;
  };
  return channel(16) | channel(8) | channel(0);
}

function colour(stops, score) {
  for (let i = 1; i < stops.length; i++) {
    const [to, high] = stops[i];
    const [from, low] = stops[i - 1];
    if (score < to) return mix(low, high, (score - from) / (to - from));
  }
  return stops.at(-1)[1];
}

// ImageData is bytes R, G, B, A; every machine a browser runs on is little-endian.
const packed = (rgb) => ((255 << 24) | ((rgb & 255) << 16) | (rgb & 0xff00) | (rgb >> 16)) >>> 0;

/** Pixel values by score code (the last one for all higher codes), and the two of "no data". */
export function palette(theme, scale) {
  const codes = new Uint32Array(Math.round(TOP_SCORE / scale) + 2);
  for (let code = 1; code < codes.length; code++) codes[code] = packed(colour(STOPS[theme], (code - 1) * scale));
  return { codes, hatch: Uint32Array.from(HATCH[theme], packed) };
}

/** The theme in force: the one chosen, else the system's. */
export function currentTheme() {
  const chosen = document.documentElement.dataset.theme;
  if (chosen === "light" || chosen === "dark") return chosen;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

/** Colours of text, lines and marks, as the style sheet defines them. */
export function ink(element) {
  const style = getComputedStyle(element);
  const names = ["text", "muted", "line", "accent", "alarm", "band", "peer", "surface", "surface-2"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}
