/* Search the queries by any part of them, while the user types. It runs in the page. */

import { byId, element, pieces } from "./elements.js";

// The service publishes queries in NFC, casefolded, with single spaces. JavaScript has no casefold;
// upper then lower case is closest, but differs (the service writes no final sigma), so both the
// typed and the published text are folded here before they are compared.
export const tidy = (text) => text.normalize("NFC").trim().split(/\s+/u).join(" ");
export const fold = (text) => tidy(tidy(text).toUpperCase().toLowerCase());

/* Return the published query that equals the typed text, if there is one. */
export function exact(typed, queries) {
  const alike = queries.filter((query) => fold(query) === fold(typed));
  // Queries that fold alike here but not in the service (ı and i) differ: prefer the typed one.
  return [tidy(typed), tidy(typed).toLowerCase()].find((query) => alike.includes(query)) ?? alike[0];
}

/* Return the queries that contain the typed text, in the given order; first those that begin with
   it, then those with a word that does. */
export function containing(typed, queries) {
  const wanted = fold(typed);
  if (!wanted) return [];
  const rank = (query) => {
    const place = fold(query).indexOf(wanted);
    return place < 0 ? -1 : place === 0 ? 0 : fold(query)[place - 1] === " " ? 1 : 2;
  };
  const ranked = queries.map((query) => [rank(query), query]).filter(([place]) => place >= 0);
  return [0, 1, 2].flatMap((place) => ranked.filter(([at]) => at === place).map(([, query]) => query));
}

const OFFERED = 8;

/* A text field with a list of suggestions: arrows select, Enter accepts, Escape closes.
   `queries()` are in order of their share, `beside(query)` is shown on the right; `take(query)` is
   called with a published query, `leave(typed)` if the text is not a published query. */
export function searchBox(id, { queries, beside, take, leave }) {
  const input = byId(id), list = byId(`${id}-list`);
  let chosen = -1;

  function close() {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
    chosen = -1;
  }

  function choose(place) {
    const options = [...list.children];
    // After the last option, and before the first, the typed text is selected.
    chosen = place >= options.length ? -1 : place < -1 ? options.length - 1 : place;
    options.forEach((option, i) => option.setAttribute("aria-selected", String(i === chosen)));
    if (chosen < 0) input.removeAttribute("aria-activedescendant");
    else {
      input.setAttribute("aria-activedescendant", options[chosen].id);
      options[chosen].scrollIntoView({ block: "nearest" });
    }
  }

  function offer() {
    const found = containing(input.value, queries()).slice(0, OFFERED);
    list.replaceChildren(...found.map((query, i) => {
      const at = fold(query).indexOf(fold(input.value));
      // Folding may change a text's length: the part is marked only if it does not.
      const marked = at >= 0 && fold(query).length === query.length
        ? [...pieces(query.slice(0, at)), element("b", {}, ...pieces(query.slice(at, at + fold(input.value).length))), ...pieces(query.slice(at + fold(input.value).length))]
        : pieces(query);
      const option = element("li", { id: `${id}-${i}`, role: "option", "aria-selected": "false", "data-query": query },
        element("bdi", { class: "word" }, ...marked), element("span", { class: "beside" }, beside(query)));
      // Not click: the field would lose the focus first, and the list close.
      option.addEventListener("pointerdown", (event) => { event.preventDefault(); done(query); });
      return option;
    }));
    chosen = -1;
    list.hidden = !found.length;
    input.setAttribute("aria-expanded", String(!list.hidden));
    input.removeAttribute("aria-activedescendant");
  }

  function done(query) {
    close();
    take(query);
  }

  input.addEventListener("input", offer);
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !list.hidden) {
      event.preventDefault(); // The first Escape closes the list, the next clears the field.
      close();
    }
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    event.preventDefault();
    if (list.hidden) offer();
    if (list.children.length) choose(chosen + (event.key === "ArrowDown" ? 1 : -1));
  });
  input.form.addEventListener("submit", (event) => {
    event.preventDefault();
    const meant = chosen >= 0 ? list.children[chosen].dataset.query : exact(input.value, queries());
    close();
    if (meant !== undefined) take(meant);
    else leave(tidy(input.value));
  });
}
