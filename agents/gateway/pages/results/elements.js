/* Building the page. Queries are text that people typed: they only ever become text, never markup,
   and neither their direction nor their controls reach the words around them. */

export const byId = (id) => document.getElementById(id);

const SVG = "http://www.w3.org/2000/svg";

function filled(made, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

export const element = (tag, properties = {}, ...children) => filled(document.createElement(tag), properties, children);

export const shape = (tag, properties = {}, ...children) => filled(document.createElementNS(SVG, tag), properties, children);

/* Characters that change the direction of the text after them, and are not seen themselves. */
const DIRECTION = /([\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069])/u;
const named = (control) => `U+${control.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;

/* Typed text, in pieces: a control is shown by its name, and has no effect. */
export const pieces = (text) => text.split(DIRECTION).map((piece) => (DIRECTION.test(piece)
  ? element("span", { class: "control", title: "A control character that changes the direction of text" }, named(piece)) : piece));

/* A query, apart from the direction of what is around it. */
export const queryText = (query) => element("bdi", {}, ...pieces(query));

/* A URL, which is read from left to right. */
export const urlText = (url) => element("bdi", { dir: "ltr" }, ...pieces(url));

/* The same within a sentence that cannot have elements. Isolated by two invisible characters of ours,
   unless it has nothing that is written from right to left. */
const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;
export function quoted(text) {
  const visible = text.split(DIRECTION).map((piece) => (DIRECTION.test(piece) ? `[${named(piece)}]` : piece)).join("");
  return RIGHT_TO_LEFT.test(visible) ? `\u2068${visible}\u2069` : visible;
}

/* Replace what a place shows. Who was at something in it with the keyboard stays there. */
export function show(place, ...children) {
  const at = place.contains(document.activeElement) ? document.activeElement.dataset.name : undefined;
  place.replaceChildren(...children);
  if (at === undefined) return;
  [...place.querySelectorAll("[data-name]")].find((one) => one.dataset.name === at)?.focus();
}

export function say(place, text) {
  byId(place).hidden = !text;
  if (byId(place).textContent !== (text || "")) byId(place).textContent = text || "";
}
