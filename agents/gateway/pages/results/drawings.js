/* Small drawings in table rows. Colours come from the style sheet, so that both themes work. */

import { shape } from "./elements.js";
import { percent, range, share } from "./words.js";

const round = (x) => Math.round(100 * x) / 100;

/* Return runs of consecutive epochs that have a figure; a row has a gap where it was not listed. */
export function runs(figures) {
  const found = [];
  figures.forEach((figure, i) => {
    if (!figure) return;
    if (i && figures[i - 1]) found.at(-1).push(i);
    else found.push([i]);
  });
  return found;
}

/* Return an SVG path through some points. */
export const path = (places) => places.map(([x, y], i) => `${i ? "L" : "M"}${round(x)} ${round(y)}`).join("");

/* Draw a share as a bar with its 95 % range, on a scale that ends at `most`. */
export function whisker(figure, most) {
  const [width, height, middle] = [140, 16, 8];
  const x = (share) => 1 + (width - 4) * Math.min(1, Math.max(0, share / most));
  const [low, high] = [x(figure.low ?? figure.share), x(figure.high ?? figure.share)];
  return shape("svg", { class: "whisker", viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" },
    shape("rect", { class: "track", x: 0, y: middle - 4, width, height: 8, rx: 2 }),
    shape("rect", { class: "bar", x: 0, y: middle - 4, width: round(x(figure.share)), height: 8, rx: 2 }),
    shape("path", { class: "reach", d: `M${round(low)} ${middle}H${round(high)}M${round(low)} ${middle - 4}v8M${round(high)} ${middle - 4}v8` }),
    shape("circle", { class: "dot", cx: round(x(figure.share)), cy: middle, r: 3 }));
}

/* Draw a row's last epochs: its share with its 95 % range. The ranges fill the height, so that
   changes within the noise look small. */
export function sparkline(figures) {
  const [width, height] = [120, 28];
  const listed = figures.filter(Boolean);
  const most = Math.max(...listed.map((f) => f.high ?? f.share)), least = Math.min(...listed.map((f) => f.low ?? f.share));
  const x = (i) => (figures.length < 2 ? width / 2 : 3 + ((width - 6) * i) / (figures.length - 1));
  const y = (share) => (most > least ? height - 3 - ((height - 6) * (share - least)) / (most - least) : height / 2);
  const drawing = shape("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, role: "img" });
  for (const run of runs(figures)) {
    const edge = (key) => run.map((i) => [x(i), y(figures[i][key] ?? figures[i].share)]);
    drawing.append(
      shape("path", { class: "band", d: `${path([...edge("low"), ...edge("high").reverse()])}Z` }),
      shape("path", { class: "line", d: path(edge("share")) }),
    );
    for (const i of run) if (figures[i].missing) drawing.append(shape("circle", { class: "part", cx: round(x(i)), cy: round(y(figures[i].share)), r: 2 }));
    if (run.length === 1) drawing.append(shape("circle", { class: "dot", cx: round(x(run[0])), cy: round(y(figures[run[0]].share)), r: 1.6 }));
  }
  const last = figures.at(-1);
  if (last) drawing.append(shape("circle", { class: "dot", cx: round(x(figures.length - 1)), cy: round(y(last.share)), r: 2.6 }));
  drawing.setAttribute("aria-label", listed.length
    ? `known in ${listed.length} of ${figures.length} epochs, ${percent(Math.min(...listed.map((f) => f.share)))} to ${percent(Math.max(...listed.map((f) => f.share)))}${listed.some((f) => f.missing) ? ", in some not all of its results" : ""}`
    : "not known");
  return drawing;
}

/* Describe how many of a query's results an epoch did not know yet. */
export const missing = (figure) => (figure?.missing ? `${figure.missing} of ${figure.of} results not known yet` : "");

export const spoken = (figure) => (figure
  ? `${share(figure)}, 95 % range ${range(figure)}${missing(figure) && `, ${missing(figure)}`}` : "not known");
