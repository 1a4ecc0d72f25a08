// What pages do beyond links and forms.  Every page can be read without this file.
// @ts-check

const EVERY_MS = 5_000;
const STALE_SECONDS = 15;
const LONGEST_MS = 30_000; // that an answer may take: connections to a machine that has gone do not fail by themselves

const policy = window.trustedTypes
  ? window.trustedTypes.createPolicy("console", { createHTML: (/** @type {string} */ text) => text })
  : { createHTML: (/** @type {string} */ text) => text };

/** Parse a page, of which nothing runs, and show its times in the viewer's time zone. */
export function parsePage(/** @type {string} */ text) {
  const page = new DOMParser().parseFromString(/** @type {any} */ (policy.createHTML(text)), "text/html");
  localTimes(page);
  return page;
}

/** Show times in the viewer's time zone, those of today without the date; the title has the time in UTC. */
export function localTimes(/** @type {ParentNode} */ root) {
  const format = new Intl.DateTimeFormat(undefined, { dateStyle: "short", timeStyle: "medium" });
  const ofToday = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
  const withZone = new Intl.DateTimeFormat(undefined, { timeStyle: "long" });
  const today = new Date().toDateString();
  for (const time of root.querySelectorAll("time[datetime]")) {
    const at = new Date(time.getAttribute("datetime") ?? "");
    if (Number.isNaN(at.getTime())) continue;
    time.setAttribute("title", time.textContent ?? "");
    const short = time.closest(".asof") ? withZone : ofToday;
    time.textContent = (at.toDateString() === today ? short : format).format(at);
  }
}

/** Replace the parts of the page that have an id and whose text has changed. */
function swap(/** @type {Document} */ fresh) {
  const main = document.querySelector("main");
  const next = fresh.querySelector("main");
  if (!main || !next) return;
  if (outline(main) !== outline(next) && !main.querySelector("form :focus")) replaceAll(main, next);
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

/**
 * The parts of a page, of which others are there once there is something to show; of a refusal all that it says.  A
 * receipt is no part: only the first answer has it.
 */
function outline(/** @type {Element} */ main) {
  if (main.hasAttribute("data-error")) return main.textContent;
  return [...main.querySelectorAll(":scope > [id]:not(#receipt)")].map((part) => part.id).join(" ");
}

function replaceAll(/** @type {Element} */ main, /** @type {Element} */ next) {
  const receipt = main.querySelector(":scope > #receipt");
  main.replaceChildren(...[...next.childNodes].map((node) => document.importNode(node, true)));
  if (receipt && !main.querySelector(":scope > #receipt")) main.prepend(receipt);
  copyButtons();
}

/** Whether a page shows why it was refused, and nothing else. */
function isRefusal(/** @type {Document} */ page) {
  return page.querySelector("main[data-error]") !== null;
}

export function linkTo(/** @type {string} */ address, /** @type {string} */ text) {
  const link = document.createElement("a");
  link.href = address;
  link.textContent = text;
  return link;
}

/** A link to the sign-in, which leads back to this page. */
export function signInLink() {
  return linkTo(`/console/login?next=${encodeURIComponent(location.pathname + location.search)}`, "Sign in again");
}

/** Say above the page why it is not read anew, with a link to what helps; "": it is. */
function notify(/** @type {string} */ text, /** @type {Node[]} */ ...links) {
  const notice = document.querySelector("[data-notice]");
  if (!(notice instanceof HTMLElement) || (notice.dataset.notice === text && !notice.hidden)) return;
  notice.dataset.notice = text;
  notice.hidden = !text;
  notice.replaceChildren(text, " ", ...links);
}

let lacking = "No answer";

/** Read a page.  Returns null if it was not answered, after saying why. */
export async function readPage(/** @type {string} */ url) {
  lacking = "No answer";
  try {
    // An answer to another page that shows the same may be a second old.
    const headers = { Accept: "text/html", "Cache-Control": "max-age=1" };
    const answer = await fetch(url, { headers, redirect: "manual", signal: AbortSignal.timeout(LONGEST_MS) });
    lacking = "Not updated";
    if (answer.type === "opaqueredirect") {
      const why = "You are signed out: the session has ended, or its key was revoked. This page is as it was.";
      notify(why, signInLink());
      return null;
    }
    const fresh = parsePage(await answer.text());
    const isKept = !isRefusal(document); // a refusal is replaced by the next one
    if (answer.status === 401 && isKept) {
      notify("The link has expired or was revoked. Ask for a new one. This page is as it was.");
      return null;
    }
    const [old, now] = [document, fresh].map((page) => page.documentElement.dataset.version);
    if (!answer.ok && isKept) {
      const why = ["h1", ".verdict"].map((part) => fresh.querySelector(part)?.textContent?.trim() ?? "");
      notify(`${why.filter(Boolean).join(": ")} This page is as it was.`);
      return null;
    }
    if (old !== now) {
      notify(`This page is from version ${old}; the broker runs ${now}.`, linkTo(location.href, "Reload"));
      return null;
    }
    notify("");
    return fresh;
  } catch {
    return null;
  }
}

// A tail says itself whether the page is read anew, and a search is not repeated.
let live = !document.querySelector("[data-tail], [data-still]");
let timer = 0;
let reading = false;
let since = Date.now(); // when what the page shows was asked for, or when it began to ask

async function refresh() {
  if (!reading) {
    const asked = Date.now();
    reading = true;
    const fresh = await readPage(location.href);
    reading = false;
    if (fresh) {
      since = asked;
      if (isRefusal(document) && !isRefusal(fresh)) location.reload(); // with the scripts of the page
      else swap(fresh);
    }
  }
  const seconds = Math.round((Date.now() - since) / 1000);
  const stale = seconds >= STALE_SECONDS;
  document.documentElement.classList.toggle("stale", stale);
  document.querySelector(".asof")?.classList.toggle("stale", stale);
  const note = document.querySelector("[data-live]");
  if (note instanceof HTMLElement) {
    note.hidden = !stale && live;
    note.textContent = stale ? `${lacking} for ${seconds} s · ` : live ? "" : "Live updates are off · ";
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
  timer = 0;
  if (document.querySelector("form.action")) return; // its numbers are those that were asked for
  if (live && document.visibilityState === "visible" && document.querySelector("main [id], main[data-error]")) {
    since = Date.now();
    timer = setInterval(refresh, EVERY_MS);
  }
}

/** A button that copies, behind each command. */
export function copyButtons() {
  for (const block of document.querySelectorAll("pre.command:not(:has(button))")) {
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

document.querySelector(".rail [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
localTimes(document);
sendToken();
copyButtons();
schedule();
document.addEventListener("visibilitychange", () => {
  schedule();
  if (timer) refresh();
});
document.addEventListener("keydown", pressed);
