/** @param {GivenLimits} given @returns {Limits} */
export function checkedLimits(given: GivenLimits): Limits;
/** @typedef {{what: string, detail: string, freeAtS?: number}} Refusal */
/** Why the claim's window or time does not come after what was answered last; null if it does.
 * @param {Claim[]} claims @param {Claim} claim @returns {Refusal | null} */
export function checkFollows(claims: Claim[], claim: Claim): Refusal | null;
/** Why this claim may not be added now; null if it may.
 * @param {Claim[]} claims @param {Claim} claim @param {Limits} limits @returns {Refusal | null} */
export function checkClaim(claims: Claim[], claim: Claim, limits: Limits): Refusal | null;
/** @param {Claim[]} claims @param {Claim} claim @param {Limits} limits @returns {Claim[]} */
export function withClaim(claims: Claim[], claim: Claim, limits: Limits): Claim[];
export function spent(claims: Claim[], limits: Limits, nowS: number): number[];
export type Refusal = {
    what: string;
    detail: string;
    freeAtS?: number;
};
/**
 * ε and δ are for data that differ in the values of one person's records (replace-one). The first
 * five have no default: a budget that nobody chose is nobody's promise.
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
export type Claim = {
    mode: Mode;
    epoch: number;
    subject: string;
    window_start_s: number;
    window_end_s: number;
    at_s: number;
    epsilon: number;
    delta: number;
};
