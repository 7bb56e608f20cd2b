/* Find rising, falling and new rows, and which changes are statistically significant.

   The own estimates of two epochs are independent, so their variances add up. Filtered estimates
   are correlated: the sum then overstates the noise, and the test is conservative.
   Of many queries some change much by chance: by Benjamini and Hochberg's rule at most one in
   twenty of the changes called clear is expected to be false, however many rows are tested. */

const FALSE_OF_CLEAR = 0.05;

/* Return the probability that a standard normal variable exceeds |z| in absolute value
   (Abramowitz and Stegun 7.1.26). */
export function chance(z) {
  const x = Math.abs(z) / Math.SQRT2;
  const t = 1 / (1 + 0.3275911 * x);
  const tail = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  return tail * Math.exp(-x * x);
}

/* Return which p-values are significant, by Benjamini and Hochberg. */
export function small(chances) {
  const sorted = chances.slice().sort((a, b) => a - b);
  let limit = -1;
  sorted.forEach((p, i) => {
    if (p <= (FALSE_OF_CLEAR * (i + 1)) / sorted.length) limit = p;
  });
  return chances.map((p) => p <= limit);
}

function chanceOf(now, then) {
  // A disputed interval spans both groups' and is wider than its variance: it must not overlap.
  const overlap = now.low <= then.high && then.low <= now.high;
  if ((now.disputed || then.disputed) && overlap) return 1;
  const variance = now.variance + then.variance;
  return variance > 0 ? chance((now.share - then.share) / Math.sqrt(variance)) : 1;
}

/* Return true if a row's own or filtered range in an epoch begins above 0. */
const present = (series, name, epoch) => [false, true].some((own) => series.figure(name, epoch, own)?.low > 0);

/* Return each row's change, from `pair(name)`: its figures now and then, or null if one is missing.
   "up" or "down" if the change is significant, else "none"; "new" if no earlier epoch has a figure
   whose range begins above 0, "back" if one has, but there is no figure to compare with. */
function judged(series, shown, then, before, own, pair) {
  const found = new Map();
  const compared = [];
  for (const name of shown.place.keys()) {
    const both = pair(name), now = series.figure(name, shown, own);
    if (both) compared.push({ name, by: both.now.share - both.past.share, p: chanceOf(both.now, both.past) });
    else if (now) {
      const kind = then.place.has(name) ? "none" : before.some((epoch) => present(series, name, epoch)) ? "back" : "new";
      found.set(name, { kind, by: now.share, clear: kind !== "none" && now.low > 0 });
    }
  }
  const clear = small(compared.map((one) => one.p));
  compared.forEach(({ name, by }, i) => {
    found.set(name, { kind: clear[i] ? (by > 0 ? "up" : "down") : "none", by, clear: clear[i] });
  });
  return found;
}

export function changesOfRecords(records, shown, then, before, own) {
  if (!shown || !then) return new Map();
  return judged(records, shown, then, before, own, (name) => {
    const [now, past] = [records.figure(name, shown, own), records.figure(name, then, own)];
    return now && past ? { now, past } : null;
  });
}

const sum = (figures) => figures.reduce((all, one) => ({
  share: all.share + one.share, variance: all.variance + one.variance, low: all.low + one.low, high: all.high + one.high,
  disputed: all.disputed || one.disputed,
}));

/* Return the changes of queries. A query's share is that of its known results, and a result that is
   no longer known is not a fall, so only the results that both epochs know are compared. */
export function changesOfQueries(queries, records, shown, then, before, own) {
  const [now, past] = [records.at(shown.epoch), then && records.at(then.epoch)];
  if (!now || !past) return new Map();
  const pairs = new Map();
  for (const name of [...now.place.keys(), ...now.further.keys()]) {
    const both = [records.figure(name, now, own), records.figure(name, past, own)];
    if (!both[0] || !both[1]) continue;
    const { query } = records.rows.get(name);
    pairs.set(query, [...(pairs.get(query) ?? []), both]);
  }
  return judged(queries, shown, then, before, own, (name) => {
    const found = pairs.get(name);
    return found ? { now: sum(found.map(([one]) => one)), past: sum(found.map(([, one]) => one)) } : null;
  });
}

/* Return the significant changes of a kind, largest first. */
export const clearest = (found, kind) =>
  [...found].filter(([, change]) => change.kind === kind && change.clear).sort(([, a], [, b]) => Math.abs(b.by) - Math.abs(a.by));
