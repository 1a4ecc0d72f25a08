// What pages do beyond links and forms.  Every page can be read without this file.
// @ts-check

const EVERY_MS = 5000;
const MISSED = 3;

const policy = window.trustedTypes
  ? window.trustedTypes.createPolicy("console", { createHTML: (/** @type {string} */ text) => text })
  : { createHTML: (/** @type {string} */ text) => text };

/** Show times in the viewer's time zone; the title has the time in UTC. */
export function localTimes(/** @type {ParentNode} */ root) {
  const format = new Intl.DateTimeFormat(undefined, { dateStyle: "short", timeStyle: "medium" });
  for (const time of root.querySelectorAll("time[datetime]")) {
    const at = new Date(time.getAttribute("datetime") ?? "");
    if (Number.isNaN(at.getTime())) continue;
    time.setAttribute("title", time.textContent ?? "");
    time.textContent = format.format(at);
  }
}

/** Replace the parts of the page that have an id and whose text has changed. */
function swap(/** @type {Document} */ fresh) {
  const main = document.querySelector("main");
  const next = fresh.querySelector("main");
  if (!main || !next) return;
  for (const part of next.querySelectorAll("[id]")) {
    const own = document.getElementById(part.id);
    if (own && !own.closest("form") && own.textContent !== part.textContent && !own.contains(document.activeElement)) {
      own.replaceWith(document.importNode(part, true));
    }
  }
  const asOf = document.querySelector(".asof");
  const nextAsOf = fresh.querySelector(".asof time");
  if (asOf && nextAsOf) asOf.querySelector("time")?.replaceWith(document.importNode(nextAsOf, true));
}

/** Say that the session or the share link has ended, with the way back to this page; until it is read again. */
function tellEnd(/** @type {string} */ why) {
  const told = document.querySelector("[data-ended]");
  if (!why) told?.remove();
  if (!why || told) return;
  const note = document.createElement("p");
  note.className = "verdict";
  note.dataset.ended = "";
  note.setAttribute("role", "alert");
  note.textContent = why;
  if (!location.pathname.startsWith("/console/shared/")) {
    const link = document.createElement("a");
    link.href = `/console/login?next=${encodeURIComponent(location.pathname + location.search)}`;
    link.textContent = "Sign in again";
    note.append(" ", link);
  }
  document.querySelector("main")?.prepend(note);
}

/** Read a page.  Returns null if there was no answer. */
export async function readPage(/** @type {string} */ url) {
  try {
    const answer = await fetch(url, { headers: { Accept: "text/html" }, redirect: "manual" });
    if (answer.type === "opaqueredirect") tellEnd("You are signed out: the session has ended, or its key was revoked.");
    if (answer.status === 401) tellEnd("The link has expired or was revoked. Ask for a new one.");
    if (!answer.ok) return null;
    const text = await answer.text();
    const page = new DOMParser().parseFromString(/** @type {any} */ (policy.createHTML(text)), "text/html");
    localTimes(page);
    tellEnd("");
    return page;
  } catch {
    return null;
  }
}

let missed = 0;
// A tail says itself whether the page is read anew, and a search is not repeated.
let live = !document.querySelector("[data-tail], [data-still]");
let timer = 0;

async function refresh() {
  const fresh = await readPage(location.href);
  if (fresh) swap(fresh);
  missed = fresh ? 0 : missed + 1;
  const stale = missed >= MISSED;
  document.documentElement.classList.toggle("stale", stale);
  document.querySelector(".asof")?.classList.toggle("stale", stale);
  const note = document.querySelector("[data-live]");
  if (note instanceof HTMLElement) {
    note.hidden = !stale && live;
    note.textContent = stale ? `No answer for ${(missed * EVERY_MS) / 1000} s · ` : live ? "" : "Live updates are off · ";
  }
}

/** Read the page anew every few seconds, or do not. */
export function setPolling(/** @type {boolean} */ on) {
  if (live === on) return;
  live = on;
  schedule();
}

function schedule() {
  clearInterval(timer);
  if (document.querySelector("form.action")) return; // its numbers are those that were asked for
  if (live && document.visibilityState === "visible" && document.querySelector("main [id]")) {
    timer = setInterval(refresh, EVERY_MS);
  }
}

/** A button that copies, behind each command. */
function copyButtons() {
  for (const block of document.querySelectorAll("pre.command")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "plain";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      const text = block.querySelector("code")?.textContent ?? "";
      try {
        await navigator.clipboard.writeText(text);
      } catch {
        const range = document.createRange();
        range.selectNodeContents(block.querySelector("code") ?? block);
        getSelection()?.removeAllRanges();
        getSelection()?.addRange(range);
        document.execCommand("copy");
      }
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 2000);
    });
    block.append(button);
  }
}

function toggleTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  document.cookie = `broker_theme=${root.dataset.theme}; path=/console; max-age=31536000; samesite=lax`;
}

/** Move the focus between the links of the rows of tables. */
function moveRow(/** @type {number} */ by) {
  const rows = [...document.querySelectorAll("[data-rows] tbody tr, .findings li")];
  const links = rows.map((row) => row.querySelector("a")).filter((link) => link !== null);
  const at = links.findIndex((link) => link.closest("tr, li")?.contains(document.activeElement));
  links[Math.max(0, Math.min(links.length - 1, at + by))]?.focus();
}

/** @type {Record<string, string>} */
const PLACES = { o: "", t: "/topics", s: "/subscriptions", p: "/operations" };
let going = false;

function pressed(/** @type {KeyboardEvent} */ event) {
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.ctrlKey || event.metaKey || event.altKey || target.closest("input, textarea, select")) return;
  const project = location.pathname.match(/^\/console\/projects\/[^/]+/)?.[0];
  if (going && project && event.key in PLACES) location.assign(project + PLACES[event.key]);
  going = event.key === "g";
  if (event.key === "/") {
    event.preventDefault();
    document.getElementById("search")?.focus();
  } else if (event.key === "j") moveRow(1);
  else if (event.key === "k") moveRow(-1);
  else if (event.key === "t" && !going) toggleTheme();
  else if (event.key === ".") /** @type {HTMLElement | null} */ (document.querySelector(".actions a"))?.focus();
  else if (event.key === "?") location.assign("/console/help");
  else if (event.key === "r" && document.querySelector("[data-pause]")) {
    /** @type {HTMLElement} */ (document.querySelector("[data-pause]")).click();
  } else if (event.key === "r") {
    live = !live;
    schedule();
    refresh();
  }
}

/** Take the token out of the address, and send it; where somebody is signed in already, the button does. */
function sendToken() {
  const form = document.querySelector("form[data-token-form]");
  const field = document.getElementById("token");
  if (!(form instanceof HTMLFormElement) || !(field instanceof HTMLInputElement) || location.hash.length < 2) return;
  field.value = location.hash.slice(1);
  history.replaceState(null, "", location.pathname + location.search);
  if (!("asks" in form.dataset)) form.submit();
}

localTimes(document);
sendToken();
copyButtons();
schedule();
document.addEventListener("visibilitychange", schedule);
document.addEventListener("keydown", pressed);
