/* The second view: the history of one query or result, comparisons, and the results clicked. */

import { MOST, write } from "./address.js";
import { shareCell, trendCell } from "./all-queries.js";
import { chart, readout } from "./chart.js";
import { byId, element, queryText, quoted, say, show, urlText } from "./elements.js";
import { historyOf, nameOf } from "./published.js";
import { changesOfRecords } from "./trends.js";
import { missing } from "./drawings.js";
import { brief, count, percent, range, share, windowText } from "./words.js";

const labelOf = ({ query, url }) => (url === undefined ? quoted(query) : `${quoted(query)} → ${quoted(url)}`);
const itemText = ({ query, url }) => element("span", {}, queryText(query), ...(url === undefined ? [] : [" → ", urlText(url)]));

/* Return the epochs of the view in the table of records. */
const recordsOf = (view, epochs) => epochs.map(({ epoch }) => view.records.at(epoch)).filter(Boolean);

function changed(view) {
  const then = view.then && view.records.at(view.then.epoch);
  return changesOfRecords(view.records, view.records.at(view.shown.epoch), then, recordsOf(view, view.earlier), view.own);
}

function chips(view) {
  const { items } = view.address;
  show(byId("chips"), ...items.map((item, n) => element("li", { class: "chip" },
    element("span", { class: `swatch line-${n + 1}`, "aria-hidden": "true" }),
    element("span", { class: "word" }, itemText(item)),
    items.length > 1
      ? element("a", { class: "remove", href: write({ ...view.address, items: items.filter((_, i) => i !== n) }), "aria-label": `Remove ${labelOf(item)}`, "data-name": `remove ${labelOf(item)}` }, "×")
      : null)));
  byId("compare").hidden = items.length >= MOST;
}

function sentence(view, lines) {
  const { shown, then } = view;
  const [item] = view.address.items;
  if (lines.length > 1) return `${count(lines.length, "line")} over ${count(view.recent.length, "epoch")}.`;
  const figure = lines[0].figures.at(-1);
  if (!figure) {
    const listed = view.recent.filter((_, i) => lines[0].figures[i]);
    return listed.length
      ? `Not on the list of epoch ${shown.epoch}; last on that of epoch ${listed.at(-1).epoch} (${brief(listed.at(-1))}).`
      : `Not on any list of the ${count(view.recent.length, "epoch")} loaded: too few people searched for it, or no one did.`;
  }
  const change = (item.url === undefined ? view.changes : changed(view)).get(nameOf(item.query, item.url));
  const since = !change ? "" : {
    up: ` A clear rise since ${brief(then ?? shown)}.`,
    down: ` A clear fall since ${brief(then ?? shown)}.`,
    none: ` No clear change since ${brief(then ?? shown)}.`,
    new: ` New: no share above 0 in the ${count(view.earlier.length, "publication")} before.`,
    back: ` Known before; epoch ${then?.epoch} has nothing to compare it with.`,
  }[change.kind];
  const asked = figure.listed ? "" : " Not on this epoch’s list: no device reported on it.";
  return `${windowText(shown)}: ${share(figure)} of people, 95 % range ${range(figure)}.${asked}${since}`;
}

function numbers(view, lines) {
  const table = byId("history-table");
  table.tHead.replaceChildren(element("tr", {}, element("th", { scope: "col" }, "Epoch"), element("th", { scope: "col" }, "Window (UTC)"),
    ...lines.flatMap(({ item }) => [element("th", { scope: "col" }, "Share", ...(lines.length > 1 ? [": ", itemText(item)] : [])), element("th", { scope: "col" }, "95 % range")])));
  table.tBodies[0].replaceChildren(...view.recent.map((epoch, i) => element("tr", {},
    element("td", {}, element("a", { href: write({ ...view.address, epoch: epoch.epoch, since: null }) }, String(epoch.epoch))),
    element("td", {}, windowText(epoch)),
    ...lines.flatMap(({ figures }) => [
      element("td", { class: "number" }, share(figures[i]), figures[i]?.disputed ? " (disputed)" : "",
        missing(figures[i]) && element("span", { class: "mark" }, missing(figures[i]))),
      element("td", { class: "number" }, range(figures[i])),
    ]))).reverse());
}

/* Return both groups' estimates of a disputed record, from the epoch's publication. */
function disputedText(view, query, url) {
  const row = view.document?.records.find((r) => r.query === query && r.url === url && r.disputed);
  return row ? `disputed: opt-in users ${percent(row.optin?.probability)}, clients ${percent(row.client?.probability)}` : null;
}

function clicked(view) {
  const queries = [...new Set(view.address.items.map(({ query }) => query))];
  const epoch = view.records.at(view.shown.epoch);
  byId("clicked").hidden = !epoch;
  if (!epoch) return;
  const rows = [...epoch.place.keys(), ...(view.own ? [] : epoch.further.keys())].filter((name) => queries.includes(view.records.rows.get(name).query))
    .map((name) => ({ name, ...view.records.rows.get(name), figure: view.records.figure(name, epoch, view.own) }))
    .sort((a, b) => (b.figure?.share ?? -1) - (a.figure?.share ?? -1));
  const change = changed(view);
  const most = Math.max(1e-12, ...rows.map((row) => row.figure?.high ?? 0));
  const recent = recordsOf(view, view.recent);
  const full = view.address.items.length >= MOST;
  show(byId("clicked-table").tBodies[0], ...rows.map(({ name, query, url, figure }) => {
    const drawn = view.address.items.some((item) => item.query === query && item.url === url);
    return element("tr", {},
      element("th", { scope: "row", class: "word" }, queries.length > 1 ? itemText({ query, url }) : urlText(url), " ",
        figure?.disputed ? element("span", { class: "mark" }, disputedText(view, query, url) ?? "disputed") : null,
        figure && !figure.listed ? element("span", { class: "mark" }, "not on this epoch’s list") : null,
        drawn || full ? null : element("a", { class: "add", href: write({ ...view.address, items: [...view.address.items, { query, url }] }), "aria-label": `Add to the chart: ${quoted(url)}`, "data-name": name }, "add to chart")),
      shareCell(figure && { ...figure, disputed: false }, most),
      trendCell(change.get(name), view.records.history(name, recent, view.own)));
  }));
  byId("clicked-scroll").hidden = !rows.length;
  say("clicked-none", rows.length ? "" : "No result is on this epoch’s list.");
}

export function history(view) {
  const { items } = view.address;
  byId("history-title").replaceChildren(items.length === 1 ? itemText(items[0]) : `Comparing ${items.length}`);
  byId("back").href = write({ ...view.address, items: [] });
  chips(view);
  byId("chips").hidden = items.length < 2;
  const lines = items.map((item) => ({
    item,
    label: () => itemText(item),
    figures: item.url === undefined
      ? historyOf(item.query, view.series, view.records, view.recent, view.own)
      : view.recent.map(({ epoch }) => {
        const at = view.records.at(epoch);
        return at ? view.records.figure(nameOf(item.query, item.url), at, view.own) : null;
      }),
  }));
  say("history-what", sentence(view, lines));
  const listed = lines.some(({ figures }) => figures.some(Boolean));
  byId("chart-card").hidden = !listed;
  if (listed) chart(byId("chart"), view.recent, lines, (i) => byId("readout").replaceChildren(readout(view.recent[i], lines, i)));
  numbers(view, lines);
  clicked(view);
}
