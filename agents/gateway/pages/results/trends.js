/* What rises, what falls and what is new, and which of it is more than chance.

   Two epochs by themselves are independent, so the variances of two shares add up. Filtered ones
   share what they remember: the sum then overstates their noise, and what is called clear is.
   Of many queries some change much by chance: Benjamini and Hochberg's rule lets one in twenty of
   those called clear be wrong, however many are looked at. */

const FALSE_OF_CLEAR = 0.05;

/* The probability that a normal number is further from 0 than z (Abramowitz and Stegun 7.1.26). */
export function chance(z) {
  const x = Math.abs(z) / Math.SQRT2;
  const t = 1 / (1 + 0.3275911 * x);
  const tail = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  return tail * Math.exp(-x * x);
}

/* Which of these probabilities of chance are small enough, by Benjamini and Hochberg. */
export function small(chances) {
  const sorted = chances.slice().sort((a, b) => a - b);
  let limit = -1;
  sorted.forEach((p, i) => {
    if (p <= (FALSE_OF_CLEAR * (i + 1)) / sorted.length) limit = p;
  });
  return chances.map((p) => p <= limit);
}

function chanceOf(now, then) {
  // A disputed interval spans both groups' and is wider than its variance says: it must be apart.
  const overlap = now.low <= then.high && then.low <= now.high;
  if ((now.disputed || then.disputed) && overlap) return 1;
  const variance = now.variance + then.variance;
  return variance > 0 ? chance((now.share - then.share) / Math.sqrt(variance)) : 1;
}

/* Whether an epoch says of a row, by itself or with all others, that somebody has it. */
const told = (series, name, epoch) => [false, true].some((own) => series.figure(name, epoch, own)?.low > 0);

/* How each row changed, from `pair(name)`: its figures now and then, or null where one is missing.
   "up" or "down" by so much if that is clear, "none" if not; "new" if no epoch before has a figure
   of it whose range begins above 0, "back" if one has, but nothing to compare. */
function judged(series, shown, then, before, own, pair) {
  const found = new Map();
  const compared = [];
  for (const name of shown.place.keys()) {
    const both = pair(name), now = series.figure(name, shown, own);
    if (both) compared.push({ name, by: both.now.share - both.past.share, p: chanceOf(both.now, both.past) });
    else if (now) {
      const kind = then.place.has(name) ? "none" : before.some((epoch) => told(series, name, epoch)) ? "back" : "new";
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

/* A query's share is that of its known results. One that is no longer known is no fall: like is
   compared with like, the results that both epochs know. */
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

/* The clear ones of a kind, largest first. */
export const clearest = (found, kind) =>
  [...found].filter(([, change]) => change.kind === kind && change.clear).sort(([, a], [, b]) => Math.abs(b.by) - Math.abs(a.by));
