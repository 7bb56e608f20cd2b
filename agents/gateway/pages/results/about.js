/* Texts about an epoch and the service: headline, notices, states, privacy. */

import { write } from "./address.js";
import { byId, element, say, show } from "./elements.js";
import { count, moment, plain, windowText } from "./words.js";

const notices = new Set();

/* Show a notice at the top, once. */
export function notice(text) {
  notices.add(text);
  settle();
}

/* Start another view; the shown text stays until `settle`, so that screen readers do not repeat it. */
export const forgetNotices = () => notices.clear();

export const settle = () => say("notice", [...notices].join(" "));

export function headline({ shown }) {
  say("headline", `Epoch ${shown.epoch}, ${windowText(shown)}, ${shown.outcome}: ${count(shown.place.size, "query", "queries")}.`);
}

/* Show the statements of one publication. */
export function document(view) {
  const { document: publication, shown, states } = view;
  const published = states.epochs.filter((e) => e.state === "published").map((e) => e.epoch);
  const newer = published.filter((epoch) => epoch > publication.epoch).length;
  if (newer && view.address.epoch === null) {
    notice(`${newer > 1 ? "Newer epochs were" : "A newer epoch was"} published without results; the table of epochs has the reasons. This page shows epoch ${publication.epoch}.`);
  }
  if (publication.agreement && publication.agreement.prefer !== "blend" && (view.own || !shown.filtered)) {
    notice("Opt-in users and clients differ significantly in this epoch; the page shows the clients’ estimates.");
  }
  if (publication.reasons.length) notice(`This epoch is ${publication.outcome}: ${publication.reasons.map(plain).join(", ")}.`);
  say("difference", publication.difference?.statement);
  say("disputed", publication.disputed && `Marked “disputed”: ${publication.disputed.reason}`);
  byId("statement").textContent = publication.privacy.statement;
  const people = publication.participants;
  byId("participants").textContent =
    `Took part in epoch ${publication.epoch}: ${(people.selection + people.estimation).toLocaleString("en")} opt-in users, ${people.clients.toLocaleString("en")} clients.`;
  byId("which-text").textContent = publication.filtered ? together(publication.filtered) : "";
}

const together = ({ epochs, since_epoch: since }) => (epochs > 1
  ? `Combines all ${epochs} publications since epoch ${since}: more accurate, but slower to show a sudden change.`
  : `Starts with epoch ${since}: there is no other publication to combine it with yet.`);

/* Show recent epochs; published ones link to their results. */
export function epochs(states) {
  show(byId("epochs-table").tBodies[0], ...states.epochs.map((e) => element("tr", {},
    element("td", {}, e.state === "published" && e.outcome !== "empty"
      ? element("a", { href: write({ epoch: e.epoch }), "data-name": `epoch ${e.epoch}` }, String(e.epoch)) : String(e.epoch)),
    element("td", {}, plain(e.state)),
    element("td", {}, windowText({ from: e.window_start_s, to: e.window_end_s })),
    element("td", {}, [e.outcome, ...(e.reasons ?? [])].filter(Boolean).map(plain).join(", ") || e.abandoned || ""))));
  if (states.paused) notice(`Paused until ${moment(states.paused.resumes_s)}: ${states.paused.detail}`);
}
