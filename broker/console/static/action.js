// The form of an action: its numbers change as one types, and it is sent once.
// @ts-check

import { copyButtons, linkTo, parsePage, setPolling } from "./console.js";

const DELAY_MS = 400;
const MAX_URL = 4000;

let form = /** @type {HTMLFormElement} */ (document.getElementById("action"));
const preview = () => document.getElementById("preview");
let timer = 0;
let asked = 0;
let sending = false;

function fields() {
  const query = new URLSearchParams(/** @type {any} */ (new FormData(form)));
  for (const name of ["expectedCount", "asOf", "references", "estimated", "etag", "confirm"]) query.delete(name);
  return query;
}

/** Ask what the action would do with what is in the form now. */
async function look() {
  const query = fields();
  if (sending || query.toString().length > MAX_URL) return;
  const mine = ++asked;
  preview()?.classList.add("waiting");
  try {
    const answer = await fetch(`${location.pathname}?${query}`, { redirect: "error" });
    const fresh = parsePage(await answer.text());
    if (mine !== asked || sending) return;
    for (const [own, next] of [
      [preview(), fresh.getElementById("preview")],
      [form.querySelector(".buttons"), fresh.querySelector("#action .buttons")],
      [document.querySelector(".commands"), fresh.querySelector(".commands")],
    ]) {
      if (own && next && !own.contains(document.activeElement)) own.replaceWith(document.importNode(next, true));
    }
    copyButtons();
    history.replaceState(null, "", `${location.pathname}?${query}`);
  } catch {
    preview()?.classList.add("waiting");
  }
}

/** Where one can see whether an action was done. */
function places() {
  const path = location.pathname;
  if (path.startsWith("/console/shared/")) return [["your pushes", path.replace(/:\w+$/, "")]];
  const project = path.match(/^\/console\/projects\/[^/]+/)?.[0] ?? "/console";
  return [["operations", `${project}/operations`], ["activity", `${project}/activity`]];
}

/** Say that nobody knows whether it was done; the page does not send it again. */
function unknown(/** @type {HTMLFormElement} */ own) {
  const note = document.createElement("p");
  note.className = "refusal";
  note.id = "error";
  note.tabIndex = -1;
  note.setAttribute("role", "alert");
  note.append("The result is not known: the broker did not answer. Look before you repeat it: ");
  for (const [at, [word, path]] of places().entries()) {
    const link = linkTo(path, word);
    link.target = "_blank";
    note.append(at ? ", " : "", link);
  }
  note.append(".");
  document.getElementById("error")?.remove();
  (own.closest(".actions") ?? own).before(note);
  note.focus();
}

async function send(/** @type {SubmitEvent} */ event) {
  const own = /** @type {HTMLFormElement} */ (event.target);
  if (own.id !== "action" && !own.classList.contains("at-once")) return;
  const button = /** @type {HTMLButtonElement | null} */ (event.submitter);
  if (button?.formMethod === "get") return;
  event.preventDefault();
  if (sending) return;
  sending = true;
  if (button) button.disabled = true;
  try {
    const body = new URLSearchParams(/** @type {any} */ (new FormData(own)));
    const headers = { Accept: "application/json, text/html" };
    const address = new URL(own.getAttribute("action") ?? location.pathname, location.href);
    const answer = await fetch(address.pathname, { method: "POST", body, headers, redirect: "error" });
    if (answer.headers.get("content-type")?.startsWith("application/json")) {
      location.assign((await answer.json()).location);
      return;
    }
    const fresh = parsePage(await answer.text());
    const main = document.querySelector("main");
    const next = fresh.querySelector("main");
    if (!main || !next) throw new Error("no page");
    if (address.pathname !== location.pathname) history.pushState(null, "", address.pathname);
    main.replaceChildren(...[...next.childNodes].map((node) => document.importNode(node, true)));
    copyButtons();
    setPolling(false); // the page of this address is the form alone
    start();
    const error = document.getElementById("error");
    if (error) {
      error.tabIndex = -1;
      error.focus();
    }
  } catch {
    unknown(own);
    return;
  }
  sending = false;
}

/** A file in place of a text in base64. */
function files(/** @type {HTMLFormElement} */ own) {
  const area = /** @type {HTMLTextAreaElement | null} */ (own.querySelector("textarea[name=base64]"));
  if (!area) return;
  const input = document.createElement("input");
  input.type = "file";
  input.setAttribute("aria-label", "A file as the body");
  input.addEventListener("change", async () => {
    const file = input.files?.[0];
    if (!file) return;
    const bytes = new Uint8Array(await file.arrayBuffer());
    let text = "";
    for (let at = 0; at < bytes.length; at += 8190) text += btoa(String.fromCharCode(...bytes.subarray(at, at + 8190)));
    area.value = text;
  });
  area.after(input);
}

function start() {
  const own = /** @type {HTMLFormElement | null} */ (document.getElementById("action"));
  if (!own) return;
  form = own;
  own.addEventListener("input", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    if (target.id === "f-confirm") return;
    clearTimeout(timer);
    timer = setTimeout(look, DELAY_MS);
  });
  files(own);
}

document.addEventListener("submit", send);
start();
