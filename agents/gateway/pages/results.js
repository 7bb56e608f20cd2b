/* The results page: reads the published documents and shows them. Nothing is sent but GET requests
   for the documents themselves; search runs on what was loaded. */
"use strict";

(() => {
  const TOP = 20;
  const byId = (id) => document.getElementById(id);
  const state = {
    published: [], // numbers of the published epochs, newest first
    latest: null, // the newest of them that has results, or the newest at all
    previous: null, // the one with results before that, to compare with
    missing: "No results are loaded yet.", // said in place of results
    history: null, // the earlier epochs, promised: they are asked for once
    asked: null, // the record whose history was asked for last
    filtered: false, // show what all epochs together say, instead of each epoch by itself
    redraw: null,
  };
  const charts = {};

  const percent = (p) => {
    if (p === null || p === undefined) return "–";
    const digits = Math.abs(p) >= 0.1 ? 1 : Math.abs(p) >= 0.001 ? 2 : 4;
    return `${(100 * p).toFixed(digits)}\u00a0%`;
  };
  const range = (f) => (f && f.low !== null ? `${percent(f.low)}\u00a0– ${percent(f.high)}` : "–");
  // Seconds only where a window does not begin on a whole minute, as in a demo.
  const when = (s) => new Date(1000 * s).toISOString().slice(0, s % 60 ? 19 : 16).replace("T", " ");

  // When the groups disagree the publication says which estimate to read.
  const figure = (row, result) => {
    if (state.filtered && row.filtered) return row.filtered;
    const prefer = result.agreement ? result.agreement.prefer : "blend";
    return row[prefer] || row.blend || row.client || row.optin;
  };

  // The service publishes queries in NFC, folded, with single spaces. JavaScript has no casefold;
  // upper then lower case comes closest. It is not the same (the service writes no final sigma), so
  // what was typed and what was published are compared with both folded here.
  const tidy = (text) => text.normalize("NFC").trim().split(/\s+/u).join(" ");
  const fold = (text) => tidy(tidy(text).toUpperCase().toLowerCase());

  /* The answer, or null where nothing is published. */
  async function ask(path, accept) {
    const answer = await fetch(path, { headers: { accept } });
    if (answer.status === 404) return null;
    if (!answer.ok) throw new Error(`${path} answered ${answer.status}`);
    return answer;
  }

  async function load(path) {
    const answer = await ask(path, "application/json");
    return answer && answer.json();
  }

  /* An address that never changes what it answers: browsers ask for each epoch once. */
  const publication = (epoch) => load(`v1/estimates/${epoch}`);

  /* Queries by the figure that is shown, which need not be the one the document is ordered by. */
  const ranked = (result) => {
    const value = (q) => { const f = figure(q, result); return f && f.probability !== null ? f.probability : -1; };
    return result.queries.slice().sort((a, b) => value(b) - value(a));
  };

  function row(cells) {
    const tr = document.createElement("tr");
    cells.forEach((cell, i) => {
      const td = document.createElement(i === 0 && cell.head ? "th" : "td");
      if (cell.head) td.scope = "row";
      td.className = cell.kind || "";
      if (cell.button) {
        const button = document.createElement("button");
        button.type = "button";
        button.className = "plain word";
        button.textContent = cell.text;
        if (cell.label) button.setAttribute("aria-label", cell.label);
        button.addEventListener("click", cell.button);
        td.append(button);
      } else td.textContent = cell.text;
      if (cell.mark) {
        const mark = document.createElement("span");
        mark.className = "mark";
        mark.textContent = cell.mark;
        td.append(" ", mark);
      }
      tr.append(td);
    });
    return tr;
  }

  /* A disputed record's own two values; its query has the mark alone. */
  const markOf = (r) => r.disputed && (r.url === undefined ? "disputed" : `disputed: opt-in users ${percent(r.optin.probability)}, clients ${percent(r.client.probability)}`);

  const fill = (table, rows) => byId(table).tBodies[0].replaceChildren(...rows);

  /* Charts. Colours are read from the style sheet, so that both themes work. */
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function axes(xAxis) {
    const common = { stroke: colour("--ink"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    return [
      { ...common, ...xAxis },
      { ...common, size: 64, values: (_, ticks) => ticks.map((t) => `${+(100 * t).toPrecision(3)} %`) },
    ];
  }

  function clear(place) {
    if (charts[place]) charts[place].destroy();
    delete charts[place];
  }

  function plot(place, xs, figures, options) {
    const host = byId(place);
    clear(place);
    const numbers = (key) => figures.map((f) => (f ? f[key] : null));
    const line = options.joined ? { width: 2 } : { paths: () => null };
    const whisker = (u) => {
      if (options.joined) return;
      u.ctx.save();
      u.ctx.strokeStyle = colour("--accent");
      u.ctx.lineWidth = 2 * devicePixelRatio;
      xs.forEach((x, i) => {
        if (!figures[i] || figures[i].low === null) return;
        const at = u.valToPos(x, "x", true);
        u.ctx.beginPath();
        u.ctx.moveTo(at, u.valToPos(figures[i].low, "y", true));
        u.ctx.lineTo(at, u.valToPos(figures[i].high, "y", true));
        u.ctx.stroke();
      });
      u.ctx.restore();
    };
    const hidden = { stroke: "transparent", points: { show: false } };
    charts[place] = new uPlot({
      width: host.clientWidth || 600,
      height: options.height,
      padding: [12, options.joined ? 12 : 48, null, null],
      legend: { show: false },
      cursor: { show: false },
      scales: { x: options.x, y: { range: (_, low, high) => [Math.min(0, low || 0), (high || 1) * 1.08] } },
      axes: axes(options.axis),
      series: [{}, hidden, hidden, { stroke: colour("--accent"), points: { show: true, size: 7, fill: colour("--accent") }, ...line }],
      bands: options.joined ? [{ series: [2, 1], fill: colour("--band") }] : [],
      hooks: { draw: [whisker] },
    }, [xs, numbers("low"), numbers("high"), numbers("probability")], host);
  }

  function trendsChart() {
    const top = ranked(state.latest).slice(0, innerWidth < 600 ? TOP / 2 : TOP);
    if (!top.length) return clear("trends-chart");
    const short = (q) => ([...q].length > 16 ? `${[...q].slice(0, 15).join("")}…` : q);
    plot("trends-chart", top.map((_, i) => i), top.map((q) => figure(q, state.latest)), {
      height: 320,
      x: { time: false, range: [-0.6, top.length - 0.4] },
      axis: { splits: () => top.map((_, i) => i), values: () => top.map((q) => short(q.query)), rotate: -50, size: 110, gap: 4, grid: { show: false } },
    });
  }

  /* A change, or that there is no clear one: two epochs are independent, so their variances add.
     A disputed range spans both groups' and is wider than its variance says: ranges must be apart. */
  function changeText(now, then, disputed) {
    if (!now || now.probability === null || then.probability === null) return "–";
    const change = now.probability - then.probability;
    const clear = disputed
      ? now.low > then.high || now.high < then.low
      : Math.abs(change) >= 1.96 * Math.sqrt(now.variance + then.variance);
    if (!clear) return "no clear change";
    return `${change >= 0 ? "+" : "−"}${(100 * Math.abs(change)).toFixed(2)} points`;
  }

  function trends(all) {
    const before = new Map(
      state.previous ? state.previous.queries.map((q) => [q.query, figure(q, state.previous)]) : [],
    );
    const queries = ranked(state.latest).slice(0, all ? undefined : TOP);
    fill("trends-table", queries.map((q, i) => {
      const now = figure(q, state.latest);
      const then = before.get(q.query);
      const text = !then ? (state.previous ? "new" : "–") : changeText(now, then, q.disputed);
      return row([
        { text: String(i + 1), kind: "number" },
        { text: q.query, button: () => searchFor(q.query), kind: "word" },
        { text: percent(now && now.probability), kind: "number", mark: markOf(q) },
        { text: range(now), kind: "number" },
        { text, kind: "number" },
      ]);
    }));
    byId("more").hidden = all || state.latest.queries.length <= TOP;
  }

  function showAll() {
    trends(true);
    // The button that had the focus is gone: go on at the first row that was not there before.
    byId("trends-table").tBodies[0].rows[TOP].querySelector("button").focus();
  }

  /* Published queries that contain what was typed; those that begin with it first. */
  function containing(wanted) {
    const places = ranked(state.latest || { queries: [] }).map((q) => [fold(q.query).indexOf(wanted), q.query]);
    const found = places.filter(([place]) => place >= 0);
    return [...found.filter(([place]) => place === 0), ...found.filter(([place]) => place > 0)].map(([, query]) => query).slice(0, TOP);
  }

  function searchFor(query) {
    byId("search-box").value = query;
    search();
    byId("search-status").scrollIntoView({ block: "center" });
  }

  function searchButton(query) {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: query });
    button.addEventListener("click", () => searchFor(query));
    return button;
  }

  function listed(element) {
    const item = document.createElement("li");
    item.append(element);
    return item;
  }

  function search() {
    const typed = tidy(byId("search-box").value);
    const wanted = fold(typed);
    const alike = state.latest ? state.latest.records.filter((r) => r.url !== null && fold(r.query) === wanted) : [];
    // Queries that fold alike here but not in the service (ı and i) are two: the one typed is meant.
    const queries = [...new Set(alike.map((r) => r.query))];
    const query = [typed, typed.toLowerCase()].find((q) => queries.includes(q)) || queries[0];
    const found = alike.filter((r) => r.query === query);
    const parts = found.length || !wanted ? [] : containing(wanted);
    byId("search-results").hidden = !found.length;
    byId("search-parts").replaceChildren(...parts.map((part) => listed(searchButton(part))));
    byId("search-status").textContent = !wanted
      ? "Type a query first."
      : found.length
        ? `${found.length} result${found.length > 1 ? "s" : ""} for “${query}”`
        : state.missing || (parts.length
          ? `No published query is “${wanted}” with results; ${parts.length === 1 ? "one contains" : `${parts.length} contain`} it:`
          : `Nothing is published for “${wanted}”: too few people searched for it, or nobody did.`);
    fill("search-table", found.map((r) => {
      const f = figure(r, state.latest);
      return row([
        { text: r.url, kind: "word", mark: markOf(r) },
        { text: percent(f && f.probability), kind: "number" },
        { text: range(f), kind: "number" },
        { text: "history", label: `history of ${r.url}`, button: () => history(r), kind: "number" },
      ]);
    }));
  }

  const nameOf = (r) => JSON.stringify([r.query, r.url]);

  /* Only the figures of earlier epochs are kept, oldest first. */
  async function readHistory() {
    const figures = async (epoch) => {
      const result = await publication(epoch);
      return result && {
        epoch,
        from: result.window_start_s,
        figures: new Map(result.records.map((r) => [nameOf(r), figure(r, result)])),
        marks: new Map(result.records.filter((r) => r.disputed).map((r) => [nameOf(r), markOf(r)])),
      };
    };
    return (await Promise.all(state.published.map(figures))).filter(Boolean).reverse();
  }

  async function history(record) {
    byId("history").hidden = false;
    byId("history-what").textContent = "Loading earlier epochs…";
    byId("history-title").focus();
    state.asked = record;
    const reading = (state.history = state.history || readHistory());
    let epochs, failed;
    try {
      epochs = await reading;
    } catch (error) {
      failed = error;
      if (state.history === reading) state.history = null; // The next click tries again.
    }
    if (state.asked !== record) return;
    if (failed) {
      byId("history-what").textContent = `Earlier epochs could not be loaded: ${failed.message || failed}`;
      return;
    }
    const points = epochs.map((e) => ({ ...e, f: e.figures.get(nameOf(record)) || null, mark: e.marks.get(nameOf(record)) }));
    byId("history-what").textContent = `“${record.query}” → ${record.url}, over the last ${points.length} published epochs. A gap means that it was not on that epoch’s list.`;
    state.redraw = () => plot("history-chart", points.map((p) => p.epoch), points.map((p) => p.f), {
      height: 260, joined: true, x: { time: false, range: (_, low, high) => [low - 0.5, high + 0.5] },
      axis: { values: (_, ticks) => ticks.map((t) => (Number.isInteger(t) ? String(t) : "")) },
    });
    state.redraw();
    fill("history-table", points.map(({ epoch, from, f, mark }) => row([
      { text: String(epoch), kind: "number" },
      { text: when(from), kind: "number" },
      { text: percent(f && f.probability), kind: "number", mark },
      { text: range(f), kind: "number" },
    ])));
  }

  function epochs(answer) {
    fill("epochs-table", answer.epochs.map((e) => row([
      { text: String(e.epoch), kind: "number" },
      { text: e.state.replaceAll("_", " ") },
      { text: `${when(e.window_start_s)} to ${when(e.window_end_s)} UTC` },
      { text: [e.outcome, ...(e.reasons || [])].filter(Boolean).join(", ").replaceAll("_", " ") || e.abandoned || "" },
    ])));
    if (answer.paused) {
      notice(`Paused until ${when(answer.paused.resumes_s)} UTC: ${answer.paused.detail}`);
    }
  }

  function notice(text) {
    const place = byId("notice");
    if (place.textContent.includes(text)) return;
    place.textContent = place.hidden ? text : `${place.textContent} ${text}`;
    place.hidden = false;
  }

  function say(place, text) {
    byId(place).hidden = !text;
    byId(place).textContent = text || "";
  }

  function results() {
    const { latest, previous } = state;
    const people = latest.participants;
    byId("headline").textContent =
      `Epoch ${latest.epoch}, ${when(latest.window_start_s)} to ${when(latest.window_end_s)} UTC, ` +
      `${latest.outcome}: ${latest.queries.length} queries, ${latest.records.filter((r) => r.url !== null).length} results.`;
    const newer = state.published.indexOf(latest.epoch);
    if (newer > 0) {
      notice(`${newer > 1 ? "Newer epochs were" : "A newer epoch was"} published without results; the table of epochs says why. Shown is epoch ${latest.epoch}.`);
    }
    if (latest.agreement && latest.agreement.prefer !== "blend") {
      notice("Opt-in users and clients differ in this epoch by more than chance; shown are the clients’ estimates.");
    }
    if (latest.reasons.length) notice(`This epoch is ${latest.outcome}: ${latest.reasons.join(", ").replaceAll("_", " ")}.`);
    state.missing = latest.queries.length ? null : `Epoch ${latest.epoch} is empty; there is nothing to search in.`;
    byId("change").textContent = previous
      ? `“Change” compares with epoch ${previous.epoch}; one within 1.96 standard errors is no clear change.`
      : "There is no earlier epoch with results to compare with.";
    // Publications of version 1 have neither of the two.
    say("difference", latest.difference && latest.difference.statement);
    // Nor had all of version 2 this one.
    byId("which").hidden = !latest.filtered;
    if (latest.filtered) {
      byId("which-text").textContent =
        `Show the filtered estimate: what all ${latest.filtered.epochs} publications since epoch ${latest.filtered.since_epoch} together say. ` +
        "It is closer to the truth, and later to follow a sudden change.";
    }
    say("disputed", latest.disputed && `Marked “disputed”: ${latest.disputed.reason}`);
    byId("statement").textContent = latest.privacy.statement;
    byId("participants").textContent =
      `Took part: ${(people.selection + people.estimation).toLocaleString("en")} opt-in users, ${people.clients.toLocaleString("en")} clients.`;
    byId("queries").replaceChildren(...latest.queries.map((q) => Object.assign(document.createElement("option"), { value: q.query })));
    trendsChart();
    trends(false);
  }

  async function save(accept, name) {
    let body;
    try {
      const answer = await ask("v1/estimates/latest", accept);
      if (!answer) throw new Error("Nothing is published yet");
      body = await answer.blob();
    } catch (error) {
      notice(`Nothing was saved: ${error.message || error}.`);
      byId("notice").scrollIntoView({ block: "center" });
      return;
    }
    const link = document.createElement("a");
    link.href = URL.createObjectURL(body);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  async function start() {
    byId("headline").textContent = "Loading the latest results…";
    try {
      const states = await load("v1/epochs");
      epochs(states);
      const published = states.epochs.filter((e) => e.state === "published");
      state.published = published.map((e) => e.epoch);
      // The newest two that have results. Of an epoch known to be empty the document is not needed.
      for (const { epoch } of published.filter((e) => e.outcome !== "empty")) {
        const result = await publication(epoch);
        if (!result) state.published = state.published.filter((n) => n !== epoch); // Not there yet, or no longer.
        if (!result || !result.queries.length) continue;
        if (state.latest) {
          state.previous = result;
          break;
        }
        state.latest = result;
      }
      if (!state.latest && published.length) state.latest = await publication(state.published[0]);
      if (state.latest) return results();
      byId("headline").textContent = "Nothing is published yet; the first epoch is still on its way.";
      state.missing = "Nothing is published yet.";
    } catch (error) {
      byId("headline").textContent = "The results could not be loaded.";
      state.latest = state.previous = null;
      state.missing = "No results are loaded; load the page again later.";
      notice(String(error.message || error));
    }
  }

  byId("filtered").addEventListener("change", () => {
    state.filtered = byId("filtered").checked;
    byId("shown").textContent = state.filtered ? "Shown: filtered, from all epochs together." : "Shown: each epoch by itself.";
    state.history = null; // It holds the figures that were shown.
    if (!state.latest) return;
    trendsChart();
    trends(false);
    if (!byId("search-results").hidden) search();
    if (!byId("history").hidden && state.asked) history(state.asked);
  });
  byId("more").addEventListener("click", showAll);
  byId("search-form").addEventListener("submit", (event) => { event.preventDefault(); search(); });
  byId("get-json").addEventListener("click", () => save("application/json", "estimates.json"));
  byId("get-csv").addEventListener("click", () => save("text/csv", "estimates.csv"));
  const redraw = () => {
    if (state.latest) trendsChart();
    if (state.redraw) state.redraw();
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  let resizing;
  addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(redraw, 200); });
  start();
})();
