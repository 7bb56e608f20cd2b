/* Build the page's elements. Queries are text that people typed: they become text, never markup, and
   neither their direction nor their controls affect the text around them. */

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

/* Invisible characters that change the direction of the text after them. */
const DIRECTION = /([\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069])/u;
const named = (control) => `U+${control.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;

/* Split typed text: a control character is shown by its name, and has no effect. */
export const pieces = (text) => text.split(DIRECTION).map((piece) => (DIRECTION.test(piece)
  ? element("span", { class: "control", title: "A control character that changes the direction of text" }, named(piece)) : piece));

/* Show a query, isolated from the direction of the text around it. */
export const queryText = (query) => element("bdi", {}, ...pieces(query));

/* Show a URL, which is read from left to right. */
export const urlText = (url) => element("bdi", { dir: "ltr" }, ...pieces(url));

/* Quote typed text within a sentence that cannot have elements; text with right-to-left characters is
   isolated by two invisible characters. */
const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;
export function quoted(text) {
  const visible = text.split(DIRECTION).map((piece) => (DIRECTION.test(piece) ? `[${named(piece)}]` : piece)).join("");
  return RIGHT_TO_LEFT.test(visible) ? `\u2068${visible}\u2069` : visible;
}

/* Replace an element's children; the keyboard focus stays at the same item. */
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
