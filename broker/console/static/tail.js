// Follows the messages of a topic: Server-Sent Events of the console become rows, the newest first.
// @ts-check

import { localTimes, readPage, setPolling, signInLink } from "./console.js";

const SLOTS = 3; // tabs of a browser that follow at the same time: it opens 6 connections to a server over HTTP/1.1
const SILENT_MS = 40_000; // the server sends something every 15 s
const AGAIN_MS = 5_000;
const FLUSH_MS = 200;

/** @typedef {{id: string, href: string, time: string, key: string, attributes: string, body: string}} Message */
/** @typedef {{message: Message} | {skipped: number}} Entry */

const root = /** @type {HTMLElement | null} */ (document.querySelector("[data-tail]"));
if (root) follow(root);

function follow(/** @type {HTMLElement} */ root) {
  const find = (/** @type {string} */ name) => /** @type {HTMLElement} */ (root.querySelector(`[data-${name}]`));
  const mostRows = Number(root.dataset.mostRows);
  const overlapMs = Number(root.dataset.overlapMs); // its events begin that long before a page; what it has is left out
  const pauseButton = find("pause");
  const showButton = find("show");
  const template = /** @type {HTMLTemplateElement} */ (root.querySelector("template"));
  let known = shownIds();

  /** @type {EventSource | null} */
  let source = null;
  /** @type {(() => void) | null} */
  let leaveSlot = null;
  let lastId = "";
  let polled = false;
  let paused = "paused" in root.dataset;
  let ended = false;
  let isOld = false; // it has followed before
  let lostAt = 0;
  let attempt = 0;
  let timer = 0;
  let silence = 0;
  let flushing = 0;
  /** @type {Entry[]} */
  let waiting = [];
  let came = 0;
  let removed = 0;

  function shownIds() {
    const { rows } = /** @type {HTMLTableElement} */ (root.querySelector("table")).tBodies[0];
    return new Set([...rows].map((row) => row.querySelector("a")?.textContent ?? ""));
  }

  /** The address of the events from the last one on, or from shortly before the page was read. */
  function address() {
    const url = new URL(root.dataset.tail ?? "", location.href);
    if (lastId) url.searchParams.set("lastEventId", lastId);
    else if (polled) {
      const read = document.querySelector(".asof time")?.getAttribute("datetime") ?? "";
      url.searchParams.set("startTime", new Date(Date.parse(read) - overlapMs).toISOString());
    }
    return url;
  }

  function show(/** @type {string} */ state, why = "") {
    for (const each of root.querySelectorAll("[data-state]")) {
      /** @type {HTMLElement} */ (each).hidden = /** @type {HTMLElement} */ (each).dataset.state !== state;
    }
    find("why").textContent = why;
    root.dataset.now = state;
  }

  // --- the connection ---------------------------------------------------------------------------------------

  async function open() {
    close();
    if (paused || ended || document.visibilityState !== "visible") return;
    const mine = ++attempt;
    const slot = await takeSlot();
    if (mine !== attempt) {
      slot?.();
      return;
    }
    if (!slot) {
      lastId = "";
      polled = true;
      show("polling", `${SLOTS} other tabs of this browser follow messages.`);
      setPolling(true);
      timer = setTimeout(open, AGAIN_MS);
      return;
    }
    leaveSlot = slot;
    setPolling(false);
    if (!lostAt) show("waiting");
    if (!lastId) known = shownIds();
    source = new EventSource(address());
    source.addEventListener("alive", heard);
    source.addEventListener("message", (event) => {
      heard();
      lastId = event.lastEventId || lastId;
      take({ message: JSON.parse(event.data) });
    });
    source.addEventListener("skipped", (event) => {
      heard();
      take({ skipped: JSON.parse(event.data).messages });
    });
    source.addEventListener("refused", refused);
    source.addEventListener("error", () => {
      if (!source) return;
      lost();
      if (source.readyState === EventSource.CLOSED) again();
    });
    watch();
  }

  function close() {
    attempt += 1;
    clearTimeout(timer);
    clearTimeout(silence);
    source?.close();
    source = null;
    leaveSlot?.();
    leaveSlot = null;
    setPolling(false);
  }

  function again() {
    close();
    timer = setTimeout(open, AGAIN_MS);
  }

  function watch() {
    clearTimeout(silence);
    silence = setTimeout(() => {
      lost();
      open();
    }, SILENT_MS);
  }

  function heard() {
    watch();
    const asOf = document.querySelector(".asof time");
    if (asOf?.parentElement) {
      asOf.textContent = new Date().toISOString();
      asOf.setAttribute("datetime", asOf.textContent);
      localTimes(asOf.parentElement);
    }
    if (root.dataset.now === "following") return;
    if (isOld) readPage(location.href); // which says so if the broker has another version now
    isOld = true;
    const seconds = Math.round((Date.now() - lostAt) / 1000);
    show("following", lostAt ? `Connected again after ${seconds} s; it went on where it was.` : "");
    lostAt = 0;
  }

  function lost() {
    lostAt ||= Date.now();
    show("reconnecting", "The connection was lost.");
  }

  function refused(/** @type {MessageEvent} */ event) {
    const { status, message } = JSON.parse(event.data);
    if (status === 429 || status >= 500) {
      lostAt ||= Date.now();
      show("reconnecting", message);
      again();
    } else if (status === 400 && lastId) {
      lastId = ""; // it is of before a purge
      again();
    } else {
      ended = true;
      close();
      show("ended", message);
      pauseButton.hidden = true;
      if (status === 401) find("why").append(" ", signInLink());
    }
  }

  // --- rows -------------------------------------------------------------------------------------------------

  function take(/** @type {Entry} */ entry) {
    if ("message" in entry) {
      if (known.has(entry.message.id)) return;
      known.add(entry.message.id);
      came += 1;
    }
    waiting.push(entry);
    if (waiting.length > mostRows) {
      const [first] = waiting.splice(0, 1);
      if ("message" in first) {
        known.delete(first.message.id);
        removed += 1;
      }
    }
    flushing ||= setTimeout(flush, FLUSH_MS);
  }

  /** Whether the viewer reads a row, which must not move then. */
  function isRead() {
    const table = /** @type {HTMLElement} */ (root.querySelector("table"));
    const selection = getSelection();
    return (
      table.getBoundingClientRect().top < 0 ||
      table.matches(":hover") ||
      table.contains(document.activeElement) ||
      (!!selection && !selection.isCollapsed && table.contains(selection.anchorNode))
    );
  }

  function flush() {
    clearTimeout(flushing);
    flushing = 0;
    const messages = waiting.filter((entry) => "message" in entry).length;
    if (waiting.length && isRead()) {
      showButton.hidden = false;
      showButton.textContent = messages === 1 ? "Show 1 new message" : `Show ${messages.toLocaleString()} new messages`;
      return;
    }
    insert();
  }

  function insert() {
    showButton.hidden = true;
    const body = /** @type {HTMLTableElement} */ (root.querySelector("table")).tBodies[0];
    const fragment = document.createDocumentFragment();
    for (const entry of waiting.reverse()) fragment.append("message" in entry ? messageRow(entry.message) : gap(entry.skipped));
    waiting = [];
    localTimes(fragment);
    body.prepend(fragment);
    while (body.rows.length > mostRows) {
      const last = body.rows[body.rows.length - 1];
      known.delete(last.querySelector("a")?.textContent ?? "");
      last.remove();
      removed += 1;
    }
    find("none").hidden = body.rows.length > 0;
    if (came || removed) count();
  }

  function count() {
    const text = came === 1 ? "1 new message" : `${came.toLocaleString()} new messages`;
    const gone = removed ? `; the page keeps the newest ${mostRows} rows and has removed ${removed.toLocaleString()}` : "";
    find("count").textContent = `${text} since this page was opened${gone}.`;
  }

  function messageRow(/** @type {Message} */ message) {
    const row = /** @type {HTMLTableRowElement} */ (
      document.importNode(/** @type {HTMLElement} */ (template.content.querySelector("tr")), true)
    );
    const [link, time, attributes] = ["a", "time", ".attribute"].map(
      (name) => /** @type {HTMLElement} */ (row.querySelector(name)),
    );
    link.setAttribute("href", message.href);
    link.textContent = message.id;
    time.setAttribute("datetime", message.time);
    time.textContent = message.time;
    row.cells[2].textContent = message.key;
    attributes.textContent = message.attributes;
    row.cells[3].prepend(message.body, " ");
    return row;
  }

  function gap(/** @type {number} */ messages) {
    const row = document.createElement("tr");
    row.className = "gap";
    const cell = row.insertCell();
    cell.colSpan = 4;
    cell.textContent =
      messages === 1
        ? "1 message was left out here: messages came faster than this page shows them."
        : `${messages.toLocaleString()} messages were left out here: they came faster than this page shows them.`;
    return row;
  }

  // --- the viewer -------------------------------------------------------------------------------------------

  pauseButton.hidden = false;
  find("refresh").hidden = true;
  pauseButton.addEventListener("click", () => {
    if (ended) return;
    paused = !paused;
    const url = new URL(location.href);
    if (paused) url.searchParams.set("paused", "true");
    else url.searchParams.delete("paused");
    history.replaceState(null, "", url);
    showPause();
    if (paused) close();
    else open();
  });
  showButton.addEventListener("click", () => {
    insert();
    scrollTo({ top: 0 });
  });

  function showPause() {
    pauseButton.textContent = paused ? "Resume" : "Pause";
    if (paused) show("paused", "Resume to see what was published since.");
  }

  document.addEventListener("visibilitychange", open);
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => event.persisted && open());
  for (const change of ["scroll", "focusout", "mouseleave", "selectionchange"]) {
    document.addEventListener(change, () => waiting.length && !flushing && (flushing = setTimeout(flush, FLUSH_MS)), true);
  }
  show("waiting");
  showPause();
  open();
}

/** Take one of the slots of this browser.  Returns what gives it back; null if all are taken. */
async function takeSlot() {
  if (!navigator.locks) return () => {}; // over plain HTTP from another machine
  for (let number = 0; number < SLOTS; number += 1) {
    /** @type {(() => void) | null} */
    const release = await new Promise((resolve) => {
      navigator.locks.request(`broker tail ${number}`, { ifAvailable: true }, (lock) =>
        lock ? new Promise((/** @type {(value?: unknown) => void} */ free) => resolve(() => free())) : resolve(null),
      );
    });
    if (release) return release;
  }
  return null;
}
