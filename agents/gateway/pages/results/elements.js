/* Building the page. Queries are text that people typed: they only ever become text, never markup. */

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
