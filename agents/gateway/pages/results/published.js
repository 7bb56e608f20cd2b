/* What the service published, asked for once. Nothing is sent but GET requests for whole documents:
   not what is typed, nor what is looked at. */

/* The answer, or null where nothing is published. */
export async function ask(path, accept = "application/json", cache = "default") {
  const answer = await fetch(path, { headers: { accept }, cache });
  if (answer.status === 404) return null;
  if (!answer.ok) throw new Error(`${path} answered ${answer.status}`);
  return answer;
}

async function load(path, cache) {
  const answer = await ask(path, "application/json", cache);
  return answer && answer.json();
}

const publications = new Map();

/* An address that never changes what it answers. */
export async function publication(epoch) {
  if (!publications.has(epoch)) {
    const found = await load(`v1/estimates/${epoch}`);
    if (found) publications.set(epoch, found);
    return found;
  }
  return publications.get(epoch);
}

/* States change: ask whether there is anything new. */
export const states = () => load("v1/epochs", "no-cache");

export const nameOf = (query, url) => (url === undefined ? query : JSON.stringify([query, url]));

/* Shares of many epochs: one table, of queries or of records, that grows towards the past. */
export class Series {
  constructor(table) {
    this.table = table;
    this.epochs = []; // oldest first
    this.rows = new Map(); // name to { query, url }
  }

  get newest() {
    return this.epochs.at(-1);
  }

  at(epoch) {
    return this.epochs.find((one) => one.epoch === epoch);
  }

  /* The newest epochs, or those up to a given one: one request for all rows. */
  async read(upTo = null, limit = 30) {
    const before = upTo === null ? "" : `&before=${upTo + 1}`;
    const page = await load(`v1/series?table=${this.table}&limit=${Math.min(100, limit)}${before}`, "no-cache");
    const added = page.epochs.map((told) => this.add(told));
    // Which epoch comes before which, as far as is known: null is the end, undefined not read yet.
    added.forEach((epoch, i) => {
      if (i + 1 < added.length) epoch.older = added[i + 1].epoch;
      else if (!page.next) epoch.older = null;
    });
    this.epochs.sort((a, b) => a.epoch - b.epoch);
    return added.length;
  }

  /* Up to `many` epochs that end with this one, oldest first, without a gap. */
  upTo(epoch, many) {
    const found = [];
    for (let at = epoch; at && found.length < many; at = this.at(at.older)) found.unshift(at);
    return found;
  }

  /* Read what is missing of them. */
  async reach(epoch, many) {
    if (!this.at(epoch)) await this.read(epoch, many);
    for (let last; (last = this.upTo(this.at(epoch), many)[0]); ) {
      const have = this.upTo(this.at(epoch), many).length;
      if (have >= many || last.older !== undefined) return;
      if (!(await this.read(last.epoch - 1, many - have))) last.older = null;
      else last.older = this.epochs.filter((one) => one.epoch < last.epoch).at(-1)?.epoch ?? null;
    }
  }

  add(told) {
    const known = this.at(told.epoch);
    if (known) return known;
    const place = new Map(), further = new Map(), results = new Map();
    told.query.forEach((query, i) => {
      const url = told.url ? told.url[i] : undefined;
      if (query === null || url === null) return; // ⋆ is no one's history.
      const name = nameOf(query, url);
      // Rows behind the listed ones are known from other epochs, and are no part of this one's list.
      (i < (told.listed ?? Infinity) ? place : further).set(name, i);
      if (!this.rows.has(name)) this.rows.set(name, { query, url });
      if (url !== undefined) results.set(query, [...(results.get(query) ?? []), name]);
    });
    const epoch = {
      epoch: told.epoch, from: told.window_start_s, to: told.window_end_s, outcome: told.outcome,
      own: told, filtered: told.filtered ?? null, disputed: new Set(told.disputed ?? []), place, further,
      results, atLeast: told.at_least ?? false,
      older: undefined,
    };
    this.epochs.push(epoch);
    return epoch;
  }

  /* One row in one epoch, or null: `own` is the epoch by itself, else all epochs together say. */
  figure(name, epoch, own) {
    const i = epoch.place.get(name) ?? epoch.further.get(name);
    if (i === undefined) return null;
    const columns = !own && epoch.filtered && epoch.filtered.share[i] !== null ? epoch.filtered : epoch.own;
    if (columns.share[i] === null) return null;
    return {
      share: columns.share[i], variance: columns.variance[i], low: columns.low[i], high: columns.high[i],
      disputed: epoch.disputed.has(i), listed: epoch.place.has(name), atLeast: epoch.atLeast,
    };
  }

  /* A row through these epochs, with null where nothing is said of it. */
  history(name, epochs, own) {
    return epochs.map((epoch) => this.figure(name, epoch, own));
  }

  /* A query's results that one epoch has a figure of: those that it knows, by itself those listed. */
  known(query, epoch, own) {
    return (epoch.results.get(query) ?? []).filter((name) => this.figure(name, epoch, own));
  }
}

const Z_95 = 1.959964;

/* The sum over some of a query's results. `scale` is by how much the published range of all of them
   is wider than by independent errors; a disputed result may be anywhere in its own range. */
function sumOf(figures, scale) {
  const add = (key) => figures.reduce((sum, figure) => sum + figure[key], 0);
  const [share, variance] = [add("share"), scale * add("variance")];
  const disputed = figures.some((figure) => figure.disputed);
  const reach = Z_95 * Math.sqrt(variance);
  return {
    share, variance, disputed, listed: true, atLeast: true,
    low: disputed ? add("low") : Math.max(0, share - reach),
    high: disputed ? add("high") : Math.min(1, share + reach),
  };
}

/* A query through these epochs, over one set of results: those known in the last epoch that knows
   any. `missing` says how many of them an epoch did not know. Where figures are complete, and where
   an epoch knows the same results, they are those published. */
export function historyOf(query, queries, records, epochs, own) {
  const tables = epochs.map(({ epoch }) => records.at(epoch));
  const last = tables.findLast((table) => table && records.known(query, table, own).length);
  const wanted = last ? records.known(query, last, own) : [];
  return epochs.map((epoch, i) => {
    const published = queries.figure(query, epoch, own);
    if (!epoch.atLeast) return published;
    if (!tables[i]) return null;
    const known = new Set(records.known(query, tables[i], own));
    const parts = wanted.filter((name) => known.has(name));
    if (published && parts.length === wanted.length && parts.length === known.size) return { ...published, missing: 0, of: wanted.length };
    if (!parts.length) return null;
    const figures = (names) => names.map((name) => records.figure(name, tables[i], own));
    const apart = figures([...known]).reduce((sum, { variance }) => sum + variance, 0);
    const scale = published && apart > 0 ? Math.max(1, published.variance / apart) : 1;
    return { ...sumOf(figures(parts), scale), missing: wanted.length - parts.length, of: wanted.length };
  });
}
