/** Each answer's cells with the texts that they stand for; null is ⋆.
 * @param {number[][]} answers @param {import('./document.js').HeadList} document
 * @returns {SentCell[][]} */
export function describeAnswers(answers: number[][], { records, listed, query_wildcards }: import("./document.js").HeadList): SentCell[][];
/** The entries, of which the last now says what is sent.
 * @param {BudgetEntry[]} entries @param {Submission} submission @returns {BudgetEntry[]} */
export function noteSubmission(entries: BudgetEntry[], submission: Submission): BudgetEntry[];
/** The document `blendstream/sent/1` of this state.
 * @param {import('./device.js').State} state @param {import('./budget.js').Limits} limits
 * @param {number} nowS */
export function sentDocument({ budget_entries, scheduled_send }: import("./device.js").State, limits: import("./budget.js").Limits, nowS: number): {
    schema: string;
    at_s: number;
    limits: {
        epsilon_per_report: number;
        delta_per_report: number;
        epsilon_per_period: number;
        delta_per_period: number;
        period_s: number;
    };
    spent: {
        epsilon: number;
        delta: number;
    };
    left: {
        epsilon: number;
        delta: number;
    };
    next_fit_s: number;
    sent: {
        answers: {
            cell: number;
            query: string | null;
            url: string | null;
        }[][] | null;
        randomizer: string;
        listed: number;
        cells: number;
        searches: number;
        result: string;
        finished_at_s: number | null;
        odds: number | null;
        mode: import("./budget.js").Mode;
        epoch: number;
        subject: string;
        window_start_s: number;
        window_end_s: number;
        at_s: number;
        epsilon: number;
        delta: number;
    }[];
    next: import("./device.js").ScheduledSend | null;
};
export function finishLast(entries: BudgetEntry[], result: string, nowS: number | null): import("./budget.js").BudgetEntry[];
export function withoutAnswers(entry: BudgetEntry): BudgetEntry;
export function oddsFactor(epsilon: number): number | null;
export type BudgetEntry = import("./budget.js").BudgetEntry;
export type Submission = import("./budget.js").Submission;
export type SentCell = import("./budget.js").SentCell;
export type SentDocument = ReturnType<typeof sentDocument>;
