/* Format numbers and dates. Times are UTC, as published. */

const DAY_S = 86_400;

export const percent = (p) => {
  if (p === null || p === undefined) return "–";
  const digits = Math.abs(p) >= 0.1 ? 1 : Math.abs(p) >= 0.001 ? 2 : 4;
  return `${(100 * p).toFixed(digits)}\u00a0%`;
};

/* Format a share, with "at least" if it excludes some of a query's results. */
export const share = (figure) => (figure?.atLeast ? `at least ${percent(figure.share)}` : percent(figure?.share));

export const range = (figure) =>
  figure && figure.low !== null ? `${percent(figure.low)}\u00a0– ${percent(figure.high)}` : "–";

/* Format a difference of two shares, in percentage points. */
export const points = (by) => {
  const size = 100 * Math.abs(by);
  return `${by >= 0 ? "+" : "−"}${size.toFixed(size >= 0.1 ? 2 : 4)} points`;
};

export const count = (n, one, many = `${one}s`) => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;

const writer = (options) => new Intl.DateTimeFormat("en-GB", { timeZone: "UTC", ...options });
const writers = {
  day: writer({ day: "numeric", month: "short" }),
  year: writer({ day: "numeric", month: "short", year: "numeric" }),
  clock: writer({ hour: "2-digit", minute: "2-digit" }),
  seconds: writer({ hour: "2-digit", minute: "2-digit", second: "2-digit" }),
};
const written = (style, s) => writers[style].format(new Date(1000 * s));
// Seconds only if a window does not begin on a whole minute, as in the demo.
const clock = (s) => written(s % 60 ? "seconds" : "clock", s);
const wholeDays = (epoch) => epoch.from % DAY_S === 0 && epoch.to % DAY_S === 0;

export const moment = (s) => `${written("year", s)}, ${clock(s)} UTC`;

/* Format a window briefly, for axes and headings. */
export const brief = (epoch) => (wholeDays(epoch) ? written("day", epoch.from) : clock(epoch.from));

/* Format a window in full. */
export function windowText(epoch) {
  if (wholeDays(epoch)) {
    const last = epoch.to - DAY_S;
    return last === epoch.from ? written("year", last) : `${written("day", epoch.from)} to ${written("year", last)}`;
  }
  const ends = Math.floor(epoch.from / DAY_S) === Math.floor(epoch.to / DAY_S) ? clock(epoch.to) : moment(epoch.to).replace(" UTC", "");
  return `${written("year", epoch.from)}, ${clock(epoch.from)} to ${ends} UTC`;
}

/* Format a window by its beginning, for menus. */
export const begins = (epoch) => (wholeDays(epoch) ? windowText(epoch) : `${written("day", epoch.from)}, ${clock(epoch.from)}`);

/* Format codes such as not_all_counted as words. */
export const plain = (code) => code.replaceAll("_", " ");
