// What this device sent, what that can reveal at most, and what follows: the record for its owner.
// It is part of the budget entries, so it is written with them and kept as long. Of opt-in records
// it has their number only. docs/localclient.md describes the document.
import { nextFitS, totalLeft, totalSpent } from './budget.js'
import { bytesOf } from './normalise.js'

/** @typedef {import('./budget.js').BudgetEntry} BudgetEntry */
/** @typedef {import('./budget.js').Submission} Submission */
/** @typedef {import('./budget.js').SentCell} SentCell */

/** All answers kept take at most so many bytes; beyond it the oldest go first. Fewer would lose a
 * year's reports sooner, more would make each save of the state slower. */
const MAX_ANSWER_BYTES = 256 << 10
const CELL_BYTES = 16

/** Each answer's cells with the texts that they stand for; null is ⋆.
 * @param {number[][]} answers @param {import('./document.js').HeadList} document
 * @returns {SentCell[][]} */
export function describeAnswers(answers, { records, listed, query_wildcards }) {
  const queries = query_wildcards
    ? [...new Set(records.slice(0, listed).map(([query]) => query))]
    : []
  return answers.map((cells) =>
    cells.map((cell) =>
      cell < listed ? [cell, ...records[cell]] : [cell, queries[cell - listed] ?? null, null],
    ),
  )
}

/** The entries, of which the last now says what is sent.
 * @param {BudgetEntry[]} entries @param {Submission} submission @returns {BudgetEntry[]} */
export function noteSubmission(entries, submission) {
  let left = MAX_ANSWER_BYTES
  return [...entries.slice(0, -1), { ...entries[entries.length - 1], submission }]
    .reverse()
    .map((entry) => {
      for (const [, query, url] of entry.submission?.answers?.flat() ?? []) {
        left -= CELL_BYTES + bytesOf(query ?? '') + bytesOf(url ?? '')
      }
      return left < 0 ? withoutAnswers(entry) : entry
    })
    .reverse()
}

/** The entries with the result of the last one's delivery.
 * @param {BudgetEntry[]} entries @param {string} result @param {number | null} nowS */
export const finishLast = (entries, result, nowS) =>
  entries.map((entry, i) =>
    i === entries.length - 1 && entry.submission
      ? { ...entry, submission: { ...entry.submission, result, finished_at_s: nowS } }
      : entry,
  )

/** The entry without the text of what was sent; the rest stays.
 * @param {BudgetEntry} entry @returns {BudgetEntry} */
export const withoutAnswers = (entry) =>
  entry.submission ? { ...entry, submission: { ...entry.submission, answers: null } } : entry

/** e^ε to three digits; null where it is beyond all numbers. @param {number} epsilon */
export const oddsFactor = (epsilon) =>
  epsilon < 700 ? Number(Math.exp(epsilon).toPrecision(3)) : null

/** The document `blendstream/sent/1` of this state.
 * @param {import('./device.js').State} state @param {import('./budget.js').Limits} limits
 * @param {number} nowS */
export function sentDocument({ budget_entries, scheduled_send }, limits, nowS) {
  /** @param {number[]} amounts */
  const named = ([epsilon, delta]) => ({ epsilon, delta })
  return {
    schema: 'blendstream/sent/1',
    at_s: nowS,
    limits: {
      epsilon_per_report: limits.epsilonPerReport,
      delta_per_report: limits.deltaPerReport,
      epsilon_per_period: limits.epsilonPerPeriod,
      delta_per_period: limits.deltaPerPeriod,
      period_s: limits.periodS,
    },
    spent: named(totalSpent(budget_entries, limits, nowS)),
    left: named(totalLeft(budget_entries, limits, nowS)),
    next_fit_s: nextFitS(budget_entries, limits, nowS),
    sent: budget_entries.map(({ submission, ...entry }) => ({
      ...entry,
      odds: oddsFactor(entry.epsilon),
      .../** @type {Submission} */ (submission),
      answers:
        submission?.answers?.map((answer) =>
          answer.map(([cell, query, url]) => ({ cell, query, url })),
        ) ?? null,
    })),
    next: scheduled_send,
  }
}
/** @typedef {ReturnType<typeof sentDocument>} SentDocument */
