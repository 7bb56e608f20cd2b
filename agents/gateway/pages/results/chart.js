/* Draw shares by date: a line with its 95 % band per row, and the numbers of the selected date. */

import { path, runs, spoken } from "./drawings.js";
import { element, shape } from "./elements.js";
import { brief, windowText } from "./words.js";

const HEIGHT = 320;
const EDGE = { left: 52, right: 14, top: 12, bottom: 30 };

/* Return about five round values from 0 to at least `most`. */
export function steps(most) {
  const rough = most / 4;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * [1, 2, 2.5, 5, 10].find((n) => n * unit >= rough);
  return Array.from({ length: Math.ceil(most / step - 1e-9) + 1 }, (_, i) => i * step);
}

const tick = (share) => `${+(100 * share).toPrecision(3)} %`;

/* Draw `lines`, { label(), figures } with one figure or null per epoch, into `host`; `point` is called
   with the index of the selected epoch. */
export function chart(host, epochs, lines, point) {
  const width = Math.max(280, host.clientWidth || 600);
  const right = width - EDGE.right, bottom = HEIGHT - EDGE.bottom;
  const times = epochs.map((epoch) => (epoch.from + epoch.to) / 2);
  const [first, last] = [times[0], times.at(-1)];
  const x = (i) => (first === last ? (EDGE.left + right) / 2 : EDGE.left + 8 + ((right - EDGE.left - 16) * (times[i] - first)) / (last - first));
  const highest = Math.max(1e-9, ...lines.flatMap(({ figures }) => figures.map((f) => (f ? f.high ?? f.share : 0))));
  const ticks = steps(highest);
  const y = (share) => bottom - ((bottom - EDGE.top) * Math.max(0, share)) / ticks.at(-1);
  const drawing = shape("svg", { class: "chart", viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, "aria-hidden": "true" });

  for (const share of ticks) {
    drawing.append(
      shape("line", { class: "grid", x1: EDGE.left, x2: right, y1: y(share), y2: y(share) }),
      shape("text", { class: "tick", x: EDGE.left - 8, y: y(share) + 4, "text-anchor": "end" }, tick(share)),
    );
  }
  const every = Math.max(1, Math.ceil(epochs.length / Math.max(2, Math.floor(width / 90))));
  epochs.forEach((epoch, i) => {
    if ((epochs.length - 1 - i) % every) return;
    drawing.append(shape("text", { class: "tick", x: x(i), y: HEIGHT - 8, "text-anchor": i === epochs.length - 1 && i ? "end" : "middle" }, brief(epoch)));
  });
  lines.forEach(({ figures }, n) => {
    const group = shape("g", { class: `line-${n + 1}` });
    for (const run of runs(figures)) {
      const edge = (key) => run.map((i) => [x(i), y(figures[i][key] ?? figures[i].share)]);
      if (run.length > 1) group.append(shape("path", { class: "band", d: `${path([...edge("low"), ...edge("high").reverse()])}Z` }));
      else group.append(shape("path", { class: "reach", d: path([edge("low")[0], edge("high")[0]]) }));
      group.append(shape("path", { class: "line", d: path(edge("share")) }));
      for (const i of run) if (figures[i].missing) group.append(shape("circle", { class: "part", cx: x(i), cy: y(figures[i].share), r: 4 }));
    }
    figures.forEach((f, i) => {
      if (f && (epochs.length <= 40 || i === figures.length - 1)) group.append(shape("circle", { class: "dot", cx: x(i), cy: y(f.share), r: 3 }));
    });
    drawing.append(group);
  });
  const guide = shape("line", { class: "guide", y1: EDGE.top, y2: bottom, x1: -9, x2: -9 });
  drawing.append(guide);

  let at = epochs.length - 1;
  const move = (to) => {
    at = Math.min(epochs.length - 1, Math.max(0, to));
    guide.setAttribute("x1", x(at));
    guide.setAttribute("x2", x(at));
    point(at);
  };
  drawing.addEventListener("pointermove", (event) => {
    const seen = ((event.clientX - drawing.getBoundingClientRect().left) * width) / drawing.getBoundingClientRect().width;
    move(epochs.reduce((best, _, i) => (Math.abs(x(i) - seen) < Math.abs(x(best) - seen) ? i : best), 0));
  });
  host.onkeydown = (event) => {
    const by = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: epochs.length - 1 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    move(by);
  };
  host.replaceChildren(drawing);
  point(at);
}

/* Describe the numbers of one date. */
export function readout(epoch, lines, i) {
  return element("span", {}, element("strong", {}, windowText(epoch)),
    ...lines.map(({ label, figures }, n) => element("span", { class: "value" },
      element("span", { class: `swatch line-${n + 1}`, "aria-hidden": "true" }),
      ...(lines.length > 1 ? [label(), ": "] : []), spoken(figures[i]))));
}

