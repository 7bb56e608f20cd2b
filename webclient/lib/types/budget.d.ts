/** @param {GivenLimits} given @returns {Limits} */
export function checkedLimits(given: GivenLimits): Limits;
/** @typedef {{code: string, detail: string, freeAtS?: number}} Refusal */
/** Returns why the entry's window or time does not follow the last entry's; null if it does.
 * @param {BudgetEntry[]} entries @param {BudgetEntry} entry @returns {Refusal | null} */
export function checkFollows(entries: BudgetEntry[], entry: BudgetEntry): Refusal | null;
/** Returns why this entry may not be added now; null if it may.
 * @param {BudgetEntry[]} entries @param {BudgetEntry} entry @param {Limits} limits @returns {Refusal | null} */
export function checkEntry(entries: BudgetEntry[], entry: BudgetEntry, limits: Limits): Refusal | null;
/** @param {BudgetEntry[]} entries @param {BudgetEntry} entry @param {Limits} limits @returns {BudgetEntry[]} */
export function addEntry(entries: BudgetEntry[], entry: BudgetEntry, limits: Limits): BudgetEntry[];
export function totalSpent(entries: BudgetEntry[], limits: Limits, nowS: number): number[];
export function totalLeft(entries: BudgetEntry[], limits: Limits, nowS: number): number[];
export function nextFitS(entries: BudgetEntry[], limits: Limits, nowS: number): number;
export type Refusal = {
    code: string;
    detail: string;
    freeAtS?: number;
};
/**
 * ε and δ are for data that differ in the values of one person's records (replace-one). The first
 * five have no default: no budget without somebody's choice.
 */
export type GivenLimits = {
    epsilonPerReport: number;
    deltaPerReport: number;
    epsilonPerPeriod: number;
    deltaPerPeriod: number;
    periodS: number;
    maxAnswers?: number;
    maxOptinRecords?: number;
    maxHeadListBytes?: number;
    maxCellsPerAnswer?: number;
    maxCohorts?: number;
    minWindowS?: number;
    maxWindowS?: number;
    maxWaitS?: number;
    maxClockSkewS?: number;
    keepRecordsS?: number;
    maxRecordBytes?: number;
};
export type Limits = Required<GivenLimits>;
export type Mode = "report" | "opt-in";
export type BudgetEntry = {
    mode: Mode;
    epoch: number;
    subject: string;
    window_start_s: number;
    window_end_s: number;
    at_s: number;
    epsilon: number;
    delta: number;
    submission: Submission | null;
};
/**
 * A cell that an answer named: its number, query and URL; null is ⋆.
 */
export type SentCell = [number, string | null, string | null];
/**
 * What was sent for one window: the randomised answers, or how many searches unchanged. `result`
 * is "pending", "dropped" or the code of the delivery.
 */
export type Submission = {
    randomizer: string;
    listed: number;
    cells: number;
    answers: SentCell[][] | null;
    searches: number;
    result: string;
    finished_at_s: number | null;
};
