// What pages do beyond links and forms.  Every page can be read without this file.
// @ts-check

const EVERY_MS = 5000;
const MISSED = 3;

const policy = window.trustedTypes
  ? window.trustedTypes.createPolicy("console", { createHTML: (/** @type {string} */ text) => text })
  : { createHTML: (/** @type {string} */ text) => text };

/** Show times in the viewer's time zone; the title has the time in UTC. */
function localTimes(/** @type {ParentNode} */ root) {
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
  localTimes(fresh);
  if (ids(main) !== ids(next) && !main.querySelector("form :focus")) replaceAll(main, next);
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

/** The parts of a page: others are there once there is something to show, or once an error is over. */
function ids(/** @type {Element} */ main) {
  return [...main.querySelectorAll(":scope > [id]")].map((part) => part.id).join(" ") + main.hasAttribute("data-error");
}

function replaceAll(/** @type {Element} */ main, /** @type {Element} */ next) {
  main.replaceChildren(...[...next.childNodes].map((node) => document.importNode(node, true)));
  main.toggleAttribute("data-error", next.hasAttribute("data-error"));
  copyButtons();
}

/** Say above the page why it is not read anew; "": it is. */
function notify(/** @type {string} */ text, /** @type {string} */ action = "", /** @type {string} */ address = "") {
  const notice = document.querySelector("[data-notice]");
  if (!(notice instanceof HTMLElement) || (notice.dataset.notice === text && !notice.hidden)) return;
  notice.dataset.notice = text;
  notice.hidden = !text;
  const link = document.createElement("a");
  link.href = address;
  link.textContent = action;
  notice.replaceChildren(text, ...(action ? [" ", link] : []));
}

let missed = 0;
let live = true;
let timer = 0;

async function refresh() {
  missed += 1;
  let lacking = "No answer";
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" }, redirect: "manual" });
    lacking = "Not updated";
    if (answer.type === "opaqueredirect") {
      const next = encodeURIComponent(location.pathname + location.search);
      notify("You are signed out. This page is as it was.", "Sign in", `/console/login?next=${next}`);
    } else {
      const text = await answer.text();
      const fresh = new DOMParser().parseFromString(/** @type {any} */ (policy.createHTML(text)), "text/html");
      const [old, now] = [document, fresh].map((page) => page.documentElement.dataset.version);
      if (!answer.ok) {
        const why = ["h1", ".verdict"].map((part) => fresh.querySelector(part)?.textContent?.trim() ?? "");
        notify(`${why.filter(Boolean).join(": ")} This page is as it was.`);
      } else if (old !== now) {
        notify(`This page is from version ${old}; the broker runs ${now}.`, "Reload", location.href);
        missed = 0;
      } else {
        swap(fresh);
        notify("");
        missed = 0;
      }
    }
  } catch {
    // No answer at all: it is said below once several are missing.
  }
  const stale = missed >= MISSED;
  document.documentElement.classList.toggle("stale", stale);
  document.querySelector(".asof")?.classList.toggle("stale", stale);
  const note = document.querySelector("[data-live]");
  if (note instanceof HTMLElement) {
    note.hidden = !stale && live;
    note.textContent = stale ? `${lacking} for ${(missed * EVERY_MS) / 1000} s · ` : live ? "" : "Live updates are off · ";
  }
}

function schedule() {
  clearInterval(timer);
  if (live && document.visibilityState === "visible" && document.querySelector("main [id], main[data-error]")) {
    timer = setInterval(refresh, EVERY_MS);
  }
}

/** A button that copies, behind each command. */
function copyButtons() {
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
  else if (event.key === "?") location.assign("/console/help");
  else if (event.key === "r") {
    live = !live;
    schedule();
    refresh();
  }
}

localTimes(document);
copyButtons();
schedule();
document.addEventListener("visibilitychange", schedule);
document.addEventListener("keydown", pressed);
