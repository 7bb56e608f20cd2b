/* The first view: rising, falling and new queries, and the table of all queries. */

import { write } from "./address.js";
import { sparkline, whisker } from "./drawings.js";
import { byId, element, queryText, quoted, say, show } from "./elements.js";
import { historyOf } from "./published.js";
import { containing } from "./search.js";
import { clearest } from "./trends.js";
import { brief, count, percent, points, range, share } from "./words.js";

const TOP = 20;
const MOVERS = 5;
const ARROWS = { up: "▲", down: "▼", new: "●", back: "○" };

export const mark = (figure) => (figure?.disputed ? element("span", { class: "mark" }, "disputed") : null);

/* Show a change in words, with an arrow. */
export function changeText(change) {
  if (!change) return element("span", { class: "change none" }, "–");
  const text = { up: () => points(change.by), down: () => points(change.by), new: () => "new", back: () => "known before" }[change.kind];
  return element("span", { class: `change ${change.kind}` },
    ARROWS[change.kind] ? element("span", { "aria-hidden": "true" }, `${ARROWS[change.kind]} `) : null,
    text ? text() : "no clear change");
}

/* Show share and range in words and as a drawing. */
export const shareCell = (figure, most) => element("td", { class: "share" }, element("div", { class: "pair" },
  element("span", { class: "number" }, figure?.atLeast ? element("span", { class: "least" }, "at least ") : null,
    element("strong", {}, percent(figure?.share)), " ", mark(figure),
    element("small", {}, range(figure))),
  figure ? whisker(figure, most) : null));

export const trendCell = (change, figures) => element("td", { class: "trend" },
  element("div", { class: "pair" }, changeText(change), sparkline(figures)));

function mover(view, name, change, epochs) {
  const figure = view.series.figure(name, view.shown, view.own);
  return element("li", {}, element("a", { href: write({ ...view.address, find: "", items: [{ query: name }] }), "data-name": `${change.kind} ${name}` },
    element("span", { class: "word" }, queryText(name)),
    element("span", { class: "beside" }, change.kind === "new" ? share(figure) : changeText(change)),
    sparkline(historyOf(name, view.series, view.records, epochs, view.own))));
}

function movers(view) {
  const { shown, then } = view;
  byId("movers").hidden = !then || !shown.place.size;
  if (byId("movers").hidden) return;
  const epochs = view.recent;
  const nothing = { up: "No query rose clearly.", down: "No query fell clearly.", new: "No query is new." };
  for (const kind of ["up", "down", "new"]) {
    const found = clearest(view.changes, kind);
    show(byId(`movers-${kind}`), ...(found.length
      ? found.slice(0, MOVERS).map(([name, change]) => mover(view, name, change, epochs))
      : [element("li", { class: "hint" }, nothing[kind])]));
  }
  byId("change").textContent =
    `Compared with epoch ${then.epoch} (${brief(then)}), over the results that both ${view.own ? "lists have" : "epochs know"}. Only clear changes are shown: ` +
    `at most one in twenty of them is expected to be chance. A new query has no share above 0 in the ${count(view.earlier.length, "publication")} before.`;
}

function row(view, name, i, most) {
  const figure = view.series.figure(name, view.shown, view.own);
  return element("tr", {},
    element("td", { class: "rank" }, String(i + 1)),
    element("th", { scope: "row", class: "word" },
      element("a", { href: write({ ...view.address, find: "", items: [{ query: name }] }), "data-name": name }, queryText(name))),
    shareCell(figure, most),
    trendCell(view.changes.get(name), historyOf(name, view.series, view.records, view.recent, view.own)));
}

let all = false;
let last = null;

export function showAll() {
  all = true;
  table(last);
  // The button that had the focus is hidden now: focus the first new row.
  byId("queries-table").tBodies[0].rows[TOP]?.querySelector("a").focus();
}

function table(view) {
  const { find } = view.address;
  const names = find ? containing(find, view.ranked) : view.ranked;
  const listed = names.filter((name) => view.shown.place.has(name));
  const rows = listed.slice(0, all ? undefined : TOP);
  const most = Math.max(1e-12, ...rows.map((name) => view.series.figure(name, view.shown, view.own)?.high ?? 0));
  show(byId("queries-table").tBodies[0], ...rows.map((name, i) => row(view, name, i, most)));
  byId("queries-scroll").hidden = !rows.length;
  byId("queries-title").textContent = find ? `Queries with “${quoted(find)}”` : "Top queries";
  byId("found-back").hidden = !find;
  byId("found-back").querySelector("a").href = write({ ...view.address, find: "" });
  byId("more").textContent = `Show all ${listed.length} queries`;
  byId("more").hidden = all || listed.length <= TOP;
  byId("trend-head").textContent = view.then
    ? `Change since ${brief(view.then)} · last ${count(view.recent.length, "epoch")}`
    : `Last ${count(view.recent.length, "epoch")}`;
  const earlier = names.length - listed.length;
  say("found", !find ? "" : [
    listed.length ? `${count(listed.length, "query", "queries")} on this epoch’s list.` : "",
    earlier ? `${count(earlier, "query is", "queries are")} published, but not on this epoch’s list:` : "",
    names.length ? "" : view.missing ?? `Nothing is published for “${quoted(find)}”: too few people searched for it, or no one did.`,
  ].filter(Boolean).join(" "));
  show(byId("earlier"), ...(find ? names : []).filter((name) => !view.shown.place.has(name)).slice(0, TOP).map((name) =>
    element("li", {}, element("a", { href: write({ ...view.address, find: "", items: [{ query: name }] }), "data-name": name }, queryText(name)))));
}

/* Explain the shares and their ranges. */
function promise({ shown, own }) {
  const results = own || !shown.filtered ? "results on this epoch’s list" : "known results";
  byId("promise").textContent = shown.atLeast
    ? `Share of people over a query’s ${results}, with the range that holds the true share of these results 19 times out of 20.`
    : "Share of people, with the range that holds the true share 19 times out of 20.";
  say("at-least", shown.atLeast && "“At least”: a query’s other results, which too few people click to be published, are not measured, so its whole share may be larger.");
}

export function allQueries(view) {
  last = view;
  promise(view);
  movers(view);
  if (view.address.find) byId("movers").hidden = true;
  table(view);
}
