/** @param {bigint} n @param {bigint} d @returns {Fraction} */
export function fraction(n: bigint, d: bigint): Fraction;
/** The very number that a float holds.
 * @param {number} x @returns {Fraction} */
export function exact(x: number): Fraction;
/** n with n/2^32 ≤ e^x, by Taylor's series with every term rounded down.
 * @param {Fraction} x @returns {bigint} */
export function expNumerator([n, d]: Fraction): bigint;
/** ω of subset selection over K cells, E = n/d: the least variance of a rare record.
 * @param {number} K @param {Fraction} E @param {number} cap */
export function subsetSize(K: number, [n, d]: Fraction, cap: number): number;
/** ω of subset or none over M records, E = n/d, if λ of 64 people hold something listed.
 * @param {number} M @param {Fraction} E @param {number} cap @param {number} [listed_64ths] */
export function namedSize(M: number, [n, d]: Fraction, cap: number, listed_64ths?: number): number;
/** The randomizer that a head list names, or null where it cannot be built.
 * @param {Spec} spec @param {Cells} cells @param {boolean} wildcards @returns {Randomizer | null} */
export function randomizerFor(spec: Spec, cells: Cells, wildcards: boolean): Randomizer | null;
/** Raw records in random order, each order equally likely.
 * @template T @param {T[]} records @param {Dice} dice @returns {T[]} */
export function shuffled<T>(records: T[], dice: Dice): T[];
/** A report's body; all of one head list have one length.
 * @param {string} id @param {string} contributor @param {number[][]} answers @param {number} K */
export function reportBody(id: string, contributor: string, answers: number[][], K: number): string;
/** Draw a record for each answer, a contributor, and randomise: the one place where noise is drawn.
 * @param {string} id @param {[string, string][]} records @param {Spec} spec @param {Cells} cells
 * @param {Randomizer} randomizer @param {Dice} dice */
export function makeReport(id: string, records: [string, string][], spec: Spec, cells: Cells, randomizer: Randomizer, dice: Dice): string;
/** Numbers of the operating system's generator, each below the bound equally likely.
 * @type {Dice} */
export const systemDice: Dice;
export function below(dice: Dice, bound: number): number;
export function drawForAnswers<T>(records: T[], answers: number, dice: Dice): (T | null)[];
/**
 * in lowest terms
 */
export type Fraction = [bigint, bigint];
export type Dice = {
    below(bound: bigint): bigint;
};
export type Cells = import("./document.js").Cells;
export type Spec = import("./document.js").Spec;
export type Randomizer = {
    cellsPerAnswer: number;
    answer(cell: number, dice: Dice): number[];
};
