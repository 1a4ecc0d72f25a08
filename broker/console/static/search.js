// Continues a search that has found nothing so far, until something is found, it ends, or the viewer stops it.
// The address says how far it has got.
// @ts-check

import { readPage } from "./console.js";

let stopped = false;

async function searchOn() {
  for (;;) {
    const results = document.querySelector("[data-results]");
    const next = results?.getAttribute("data-continue");
    if (!results || !next) return;
    const stop = /** @type {HTMLButtonElement | null} */ (results.querySelector("[data-stop]"));
    const link = /** @type {HTMLElement | null} */ (results.querySelector("[data-next]"));
    if (stop && link) {
      stop.hidden = stopped;
      link.hidden = !stopped;
      stop.addEventListener("click", () => {
        stopped = true;
        stop.hidden = true;
        link.hidden = false;
      });
    }
    if (stopped) return;
    const url = new URL(next, location.href).href;
    const fresh = (await readPage(url))?.querySelector("[data-results]");
    if (!fresh || stopped) {
      if (link) link.hidden = false;
      if (stop) stop.hidden = true;
      return;
    }
    history.replaceState(null, "", url);
    results.replaceWith(document.importNode(fresh, true));
  }
}

searchOn();
