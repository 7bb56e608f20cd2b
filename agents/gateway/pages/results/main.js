/* The results page: reads published documents, shows the view that the URL selects, and polls for
   newer epochs. */

import * as about from "./about.js";
import { SPANS, read, write } from "./address.js";
import { allQueries, showAll } from "./all-queries.js";
import { save } from "./downloads.js";
import { byId, element, quoted, say } from "./elements.js";
import { history } from "./history.js";
import { Series, publication, states as readStates } from "./published.js";
import { searchBox } from "./search.js";
import { changesOfQueries } from "./trends.js";
import { begins, brief, share } from "./words.js";

const TITLE = document.title;
/* Compare with this many epochs before, by default. */
const BACK = 7;

const series = new Series("queries");
const records = new Series("records");
let states = null;
let view = null;

const withRows = () => series.epochs.filter((epoch) => epoch.place.size);

/* Return the epochs that the URL selects, of those that were read. */
function epochsOf(address) {
  const listed = withRows();
  const shown = series.at(address.epoch) ?? listed.at(-1) ?? series.newest;
  const recent = series.upTo(shown, address.last);
  const before = recent.filter((epoch) => epoch !== shown && epoch.place.size);
  const then = before.find((epoch) => epoch.epoch === address.since) ?? before.at(-BACK) ?? before[0];
  const earlier = listed.filter((epoch) => epoch.epoch < shown.epoch);
  return { shown, recent, before, earlier, then };
}

/* Return the view that the URL selects, with all data to draw it. */
function viewOf(address) {
  const { shown, recent, before, earlier, then } = epochsOf(address);
  const { own } = address;
  const size = (name) => series.figure(name, shown, own)?.share ?? -1;
  return {
    address, series, records, states, shown, then, own, before, earlier, recent,
    document: null,
    changes: changesOfQueries(series, records, shown, then, earlier, own),
    ranked: [...series.rows.keys()].sort((a, b) => size(b) - size(a)),
    missing: withRows().length ? null : `Epoch ${shown.epoch} is empty: there are no queries to search.`,
  };
}

function options(place, epochs, chosen, words) {
  place.replaceChildren(...epochs.map((epoch) => element("option", { value: epoch.epoch, selected: epoch.epoch === chosen?.epoch }, words(epoch))));
}

function controls() {
  const published = states.epochs.filter((e) => e.state === "published" && e.outcome !== "empty")
    .map((e) => ({ epoch: e.epoch, from: e.window_start_s, to: e.window_end_s }));
  for (const { epoch, from, to } of withRows()) if (!published.some((e) => e.epoch === epoch)) published.push({ epoch, from, to });
  published.sort((a, b) => b.epoch - a.epoch);
  options(byId("epoch"), published, view.shown, (e) => `${begins(e)} (epoch ${e.epoch})`);
  options(byId("since"), view.before.toReversed(), view.then, (e) => `${brief(e)} (epoch ${e.epoch})`);
  byId("since").disabled = !view.before.length;
  const offered = SPANS.filter((span, i) => i === 0 || published.length > SPANS[i - 1]);
  byId("last").replaceChildren(...offered.map((span) => element("option", { value: span, selected: span === view.address.last }, `the last ${span} epochs`)));
  byId("last-label").hidden = offered.length < 2;
  byId("which").hidden = !view.shown.filtered;
  for (const button of byId("which").querySelectorAll("button")) button.setAttribute("aria-pressed", String((button.id === "own") === view.own));
  byId("controls").hidden = false;
}

function draw() {
  const { items, find } = view.address;
  // The box shows the search, unless the user is typing in it.
  if (document.activeElement !== byId("search")) byId("search").value = items.length === 1 ? items[0].query : find;
  about.headline(view);
  controls();
  byId("all").hidden = items.length > 0;
  byId("history").hidden = !items.length;
  document.title = items.length ? `${items.map(({ query }) => quoted(query)).join(", ")} – ${TITLE}` : TITLE;
  if (items.length) history(view);
  else allQueries(view);
  byId("downloads-epoch").textContent = `Epoch ${view.shown.epoch}`;
}

/* Show the view that the URL selects, and fetch the data that it lacks. */
async function follow() {
  const address = read();
  if (!series.epochs.length) return;
  about.forgetNotices();
  const newest = series.newest.epoch, beyond = address.epoch > newest;
  if (beyond) address.epoch = null;
  try {
    if (address.epoch !== null || address.last !== SPANS[0]) await series.reach(address.epoch ?? epochsOf(address).shown.epoch, address.last);
    // Changes need the results of one other epoch; the rest of their history is fetched later.
    const { shown, recent, then } = epochsOf(address);
    await records.reach(shown.epoch, then ? recent.length - recent.indexOf(then) : 1);
  } catch (error) {
    about.notice(`Earlier epochs could not be loaded: ${error.message || error}`);
    if (view) return;
  }
  const [seen, made] = [view?.address, (view = viewOf(address))];
  if (beyond) about.notice(`Epoch ${read().epoch} is not published: the newest is epoch ${newest}.`);
  if (address.epoch !== null && made.shown.epoch !== address.epoch) {
    about.notice(`This service has no results of epoch ${address.epoch}. This page shows epoch ${made.shown.epoch}.`);
  }
  about.epochs(states);
  draw();
  if (seen) arrive(seen, address);
  await Promise.all([details(made), results(made)]);
  if (view === made) about.settle();
}

/* Scroll to the title of another view; stay in place if the view only changed. */
function arrive(seen, address) {
  const title = byId(address.items.length ? "history-title" : "queries-title");
  const another = Boolean(seen.items.length) !== Boolean(address.items.length)
    || (address.items.length === 1 && write({ items: seen.items }) !== write({ items: address.items }));
  if (another) scrollTo(0, 0);
  if (another || document.activeElement === document.body) title.focus({ preventScroll: true });
}

/* Fetch and show the epoch's publication: participants, disputed records, privacy. */
async function details(made) {
  try {
    made.document = await publication(made.shown.epoch);
  } catch (error) {
    return about.notice(String(error.message || error));
  }
  if (view !== made || !made.document) return;
  about.document(made);
  if (made.address.items.length) history(made);
}

/* Fetch the results' history, over which queries' histories are drawn: one request, the first time. */
async function results(made) {
  const many = records.epochs.length;
  try {
    await records.reach(made.shown.epoch, made.recent.length);
  } catch (error) {
    return about.notice(`The results’ history could not be loaded: ${error.message || error}`);
  }
  if (view === made && records.epochs.length > many) draw();
}

const go = (address) => { location.hash = write(address); };

function searchBoxes() {
  const queries = () => view?.ranked ?? [];
  const beside = (query) => {
    const figure = view.series.figure(query, view.shown, view.own);
    return figure ? share(figure) : "not on this list";
  };
  searchBox("search", {
    queries, beside,
    take: (query) => { byId("search").value = query; say("search-status", ""); go({ ...read(), find: "", items: [{ query }] }); },
    leave: (typed) => {
      say("search-status", typed ? view ? "" : missing : "Type a query first.");
      if (typed && view) go({ ...read(), items: [], find: typed });
    },
  });
  searchBox("add", {
    queries: () => queries().filter((query) => !read().items.some((item) => item.query === query && item.url === undefined)),
    beside,
    take: (query) => { byId("add").value = ""; say("add-status", ""); go({ ...read(), items: [...read().items, { query }] }); },
    leave: (typed) => say("add-status", typed ? `“${quoted(typed)}” is not a published query.` : "Type a query first."),
  });
}

let missing = "No results are loaded yet.";

async function load() {
  [states] = await Promise.all([readStates(), series.read(), records.read(null, BACK + 1)]);
}

/* Poll for newer epochs. A page that shows the newest moves to the next; one with an older stays. */
async function look() {
  if (document.hidden || !states) return;
  try {
    const now = await readStates();
    const newest = now.epochs.find((e) => e.state === "published");
    const known = series.newest?.epoch ?? -1;
    states = now;
    if (newest && newest.epoch > known) await Promise.all([series.read(), records.read(null, BACK + 1)]);
    if ((series.newest?.epoch ?? -1) > known) {
      await follow();
      say("search-status", `Epoch ${series.newest.epoch} was published.`);
    } else if (view) {
      view.states = states;
      about.epochs(states);
    }
  } catch { /* The service is unavailable; the page keeps its data, and the next poll may succeed. */ }
}

/* Poll four times per window, but not more often than every 3 s nor less than once per minute. */
async function keepLooking() {
  const { collecting } = states ?? {};
  const seconds = collecting ? (collecting.window_end_s - collecting.window_start_s) / 4 : 60;
  await new Promise((later) => setTimeout(later, 1000 * Math.min(60, Math.max(3, seconds))));
  await look();
  keepLooking();
}

async function start() {
  byId("headline").textContent = "Loading the latest results…";
  searchBoxes();
  try {
    await load();
    about.epochs(states);
    if (series.epochs.length) await follow();
    else {
      byId("headline").textContent = "Nothing is published yet; the first epoch is still in progress.";
      missing = "Nothing is published yet.";
    }
  } catch (error) {
    byId("headline").textContent = "The results could not be loaded.";
    missing = "No results are loaded; load the page again later.";
    about.notice(String(error.message || error));
  }
  byId("main").setAttribute("aria-busy", "false");
  keepLooking();
}

addEventListener("hashchange", follow);
byId("skip").addEventListener("click", (event) => {
  event.preventDefault(); // The part after the # selects the view.
  byId(view?.address.items.length ? "history-title" : "queries-title").focus();
});
byId("epoch").addEventListener("change", (event) => go({ ...read(), epoch: Number(event.target.value), since: null }));
byId("last").addEventListener("change", (event) => go({ ...read(), last: Number(event.target.value) }));
byId("since").addEventListener("change", (event) => go({ ...read(), since: Number(event.target.value) }));
for (const button of byId("which").querySelectorAll("button")) button.addEventListener("click", () => go({ ...read(), own: button.id === "own" }));
byId("more").addEventListener("click", showAll);
byId("downloads").addEventListener("click", ({ target }) => {
  if (target.dataset.form) save(target.dataset.which, target.dataset.form, target.dataset.table, view?.shown.epoch, about.notice);
});
document.addEventListener("visibilitychange", look);
let resizing;
addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(() => { if (view?.address.items.length) history(view); }, 200); });
start();
