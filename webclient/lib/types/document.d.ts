/** As Python spells a float: 4.0, 1e-05.
 * @param {number} x */
export function spellReal(x: number): string;
/** The document, or null: one spelling only, since two would have two ids.
 * @param {Uint8Array} bytes @returns {HeadList | null} */
export function readHeadList(bytes: Uint8Array): HeadList | null;
/** @param {Uint8Array<ArrayBuffer>} bytes @returns {Promise<string>} */
export function idOf(bytes: Uint8Array<ArrayBuffer>): Promise<string>;
/** The cells: each listed record, then (if so) each query's ⋆, and ⟨⋆,⋆⟩ last.
 * @param {HeadList} d */
export function cellsOf({ records, listed, query_wildcards }: HeadList): {
    /** For each cell the number of its query, ⋆ last. */
    queryOf: number[];
    queries: number;
    size: number;
    /** @param {[string, string] | null} record @returns {number} */
    numberOf(record: [string, string] | null): number;
};
export function keyOf([query, url]: [string, string]): string;
export type Spec = {
    name: string;
    epsilon: number;
    delta: number;
    answers: number;
    query_budget_share: number;
    max_cells_per_answer: number;
    listed_64ths: number;
    cells_per_answer: number;
};
export type HeadList = {
    schema: string;
    epoch: number;
    window_start_s: number;
    window_end_s: number;
    reports_until_s: number;
    cohorts: number;
    normalisation: number;
    query_wildcards: boolean;
    listed: number;
    records: [string, string][];
    noisy_counts: number[] | null;
    randomizer: Spec;
    mechanisms: Record<string, string>;
    quantity: string;
};
export type Cells = ReturnType<typeof cellsOf>;
