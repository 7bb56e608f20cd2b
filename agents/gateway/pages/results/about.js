/* What is said about an epoch and the service beside the numbers: headline, notices, states,
   privacy. */

import { write } from "./address.js";
import { byId, element, say, show } from "./elements.js";
import { count, moment, plain, windowText } from "./words.js";

const notices = new Set();

/* Say something at the top, once. */
export function notice(text) {
  notices.add(text);
  settle();
}

/* Another view begins; what was said stays until `settle`, so that it is not read out twice. */
export const forgetNotices = () => notices.clear();

export const settle = () => say("notice", [...notices].join(" "));

export function headline({ shown }) {
  say("headline", `Epoch ${shown.epoch}, ${windowText(shown)}, ${shown.outcome}: ${count(shown.place.size, "query", "queries")}.`);
}

/* What one publication says of itself. */
export function document(view) {
  const { document: told, shown, states } = view;
  const published = states.epochs.filter((e) => e.state === "published").map((e) => e.epoch);
  const newer = published.filter((epoch) => epoch > told.epoch).length;
  if (newer && view.address.epoch === null) {
    notice(`${newer > 1 ? "Newer epochs were" : "A newer epoch was"} published without results; the table of epochs says why. This page shows epoch ${told.epoch}.`);
  }
  if (told.agreement && told.agreement.prefer !== "blend" && (view.own || !shown.filtered)) {
    notice("Opt-in users and clients differ in this epoch by more than chance; the page shows the clients’ estimates.");
  }
  if (told.reasons.length) notice(`This epoch is ${told.outcome}: ${told.reasons.map(plain).join(", ")}.`);
  say("difference", told.difference?.statement);
  say("disputed", told.disputed && `Marked “disputed”: ${told.disputed.reason}`);
  byId("statement").textContent = told.privacy.statement;
  const people = told.participants;
  byId("participants").textContent =
    `Took part in epoch ${told.epoch}: ${(people.selection + people.estimation).toLocaleString("en")} opt-in users, ${people.clients.toLocaleString("en")} clients.`;
  byId("which-text").textContent = told.filtered ? together(told.filtered) : "";
}

const together = ({ epochs, since_epoch: since }) => (epochs > 1
  ? `Combines all ${epochs} publications since epoch ${since}: more accurate, but slower to show a sudden change.`
  : `Begins with epoch ${since}: there is nothing to combine it with yet.`);

/* Recent epochs, each published one a link to what it says. */
export function epochs(states) {
  show(byId("epochs-table").tBodies[0], ...states.epochs.map((e) => element("tr", {},
    element("td", {}, e.state === "published" && e.outcome !== "empty"
      ? element("a", { href: write({ epoch: e.epoch }), "data-name": `epoch ${e.epoch}` }, String(e.epoch)) : String(e.epoch)),
    element("td", {}, plain(e.state)),
    element("td", {}, windowText({ from: e.window_start_s, to: e.window_end_s })),
    element("td", {}, [e.outcome, ...(e.reasons ?? [])].filter(Boolean).map(plain).join(", ") || e.abandoned || ""))));
  if (states.paused) notice(`Paused until ${moment(states.paused.resumes_s)}: ${states.paused.detail}`);
}
