/* Fetch the service's publications, each once. The page sends only GET requests for whole
   documents: neither the typed text nor the selected view. */

/* Return the response, or null if nothing is published. */
export async function ask(path, accept = "application/json", cache = "default") {
  const response = await fetch(path, { headers: { accept }, cache });
  if (response.status === 404) return null;
  if (!response.ok) throw new Error(`${path}: the gateway responded with ${response.status}`);
  return response;
}

async function load(path, cache) {
  const response = await ask(path, "application/json", cache);
  return response && response.json();
}

const publications = new Map();

/* Return one publication, which never changes and is fetched once. */
export async function publication(epoch) {
  if (!publications.has(epoch)) {
    const found = await load(`v1/estimates/${epoch}`);
    if (found) publications.set(epoch, found);
    return found;
  }
  return publications.get(epoch);
}

/* Fetch the epochs' states, which change. */
export const states = () => load("v1/epochs", "no-cache");

export const nameOf = (query, url) => (url === undefined ? query : JSON.stringify([query, url]));

/* Shares of many epochs: a table of queries or of records, extended with older epochs on demand. */
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

  /* Fetch the newest epochs, or those up to a given one: one request for all rows. */
  async read(upTo = null, limit = 30) {
    const before = upTo === null ? "" : `&before=${upTo + 1}`;
    const page = await load(`v1/series?table=${this.table}&limit=${Math.min(100, limit)}${before}`, "no-cache");
    const added = page.epochs.map((received) => this.add(received));
    // `older` is the previous epoch's number: null if there is none, undefined if not read yet.
    added.forEach((epoch, i) => {
      if (i + 1 < added.length) epoch.older = added[i + 1].epoch;
      else if (!page.next) epoch.older = null;
    });
    this.epochs.sort((a, b) => a.epoch - b.epoch);
    return added.length;
  }

  /* Return up to `many` epochs that end with this one, oldest first, without a gap. */
  upTo(epoch, many) {
    const found = [];
    for (let at = epoch; at && found.length < many; at = this.at(at.older)) found.unshift(at);
    return found;
  }

  /* Fetch the missing epochs among these. */
  async reach(epoch, many) {
    if (!this.at(epoch)) await this.read(epoch, many);
    for (let last; (last = this.upTo(this.at(epoch), many)[0]); ) {
      const have = this.upTo(this.at(epoch), many).length;
      if (have >= many || last.older !== undefined) return;
      if (!(await this.read(last.epoch - 1, many - have))) last.older = null;
      else last.older = this.epochs.filter((one) => one.epoch < last.epoch).at(-1)?.epoch ?? null;
    }
  }

  add(received) {
    const known = this.at(received.epoch);
    if (known) return known;
    const place = new Map(), further = new Map(), results = new Map();
    received.query.forEach((query, i) => {
      const url = received.url ? received.url[i] : undefined;
      if (query === null || url === null) return; // ⋆ has no history.
      const name = nameOf(query, url);
      // Rows after the listed ones are known from other epochs and are not on this epoch's list.
      (i < (received.listed ?? Infinity) ? place : further).set(name, i);
      if (!this.rows.has(name)) this.rows.set(name, { query, url });
      if (url !== undefined) results.set(query, [...(results.get(query) ?? []), name]);
    });
    const epoch = {
      epoch: received.epoch, from: received.window_start_s, to: received.window_end_s, outcome: received.outcome,
      own: received, filtered: received.filtered ?? null, disputed: new Set(received.disputed ?? []), place, further,
      results, atLeast: received.at_least ?? false,
      older: undefined,
    };
    this.epochs.push(epoch);
    return epoch;
  }

  /* Return one row's figure in one epoch, or null: the epoch's own if `own`, else the filtered one. */
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

  /* Return a row's figures in these epochs, null where it has none. */
  history(name, epochs, own) {
    return epochs.map((epoch) => this.figure(name, epoch, own));
  }

  /* Return a query's results that have a figure in one epoch: the known ones, or the listed if `own`. */
  known(query, epoch, own) {
    return (epoch.results.get(query) ?? []).filter((name) => this.figure(name, epoch, own));
  }
}

const Z_95 = 1.959964;

/* Sum some of a query's results. `scale` is the ratio of the published variance of all of them to
   that of independent errors; a disputed result may be anywhere in its own range. */
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

/* Return a query's figures in these epochs, over one set of results: those known in the last epoch
   that knows any. `missing` is the number of them that an epoch did not know. If a figure is
   complete, or covers exactly these results, it is the published one. */
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
    const independent = figures([...known]).reduce((sum, { variance }) => sum + variance, 0);
    const scale = published && independent > 0 ? Math.max(1, published.variance / independent) : 1;
    return { ...sumOf(figures(parts), scale), missing: wanted.length - parts.length, of: wanted.length };
  });
}
