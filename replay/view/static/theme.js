// Runs before the first paint: the theme is the one chosen here before, else the system's.
// A classic script, so that it may stand in a page's head.
(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const stored = () => { try { return localStorage.getItem("weaklink-theme"); } catch { return null; } };
  const apply = () => {
    root.dataset.theme = stored() ?? (system.matches ? "dark" : "light");
    dispatchEvent(new Event("weaklink-theme"));
  };
  apply();
  system.addEventListener("change", apply);
  addEventListener("storage", apply);
  addEventListener("click", (event) => {
    if (!(event.target instanceof Element) || !event.target.closest("[data-action=theme]")) return;
    const next = root.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("weaklink-theme", next); } catch { /* private window: for this page only */ }
    apply();
    root.dataset.theme = next;
    dispatchEvent(new Event("weaklink-theme"));
  });
})();
