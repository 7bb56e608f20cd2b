/** One epoch's publication. `PublishedResult.read` checks it: its writer may be hostile. */
export class PublishedResult {
    /** The publication in these bytes or this text, or null if there is none. `filtered` false shows
     * what this epoch says by itself.
     * @param {Uint8Array | string} source @param {boolean} [filtered]
     * @returns {PublishedResult | null} */
    static read(source: Uint8Array | string, filtered?: boolean): PublishedResult | null;
    /** @param {any} body @param {boolean} filtered */
    constructor(body: any, filtered: boolean);
    /** @type {number} */ epoch: number;
    /** Which estimate is shown: "filtered" where there is one, else "blend" or "client" as the
     * publication says. Each row says so for itself.
     * @type {string} */
    shown: string;
    /** True if nothing can be found in it: keep the publication fetched before. */
    get empty(): boolean;
    /** What others clicked for this query, likeliest first.
     * @param {string} query @param {number} [limit] @returns {RankedUrl[]} */
    search(query: string, limit?: number): RankedUrl[];
    /** The published queries that begin so, likeliest first; a blank after a word ends the word.
     * @param {string} prefix @param {number} [limit] @returns {RankedQuery[]} */
    complete(prefix: string, limit?: number): RankedQuery[];
    /** The n queries searched for most.
     * @param {number} n @returns {RankedQuery[]} */
    trends(n: number): RankedQuery[];
    #private;
}
/**
 * Of a disputed one the groups differ far more than elsewhere: the value is one group's, and the
 * interval spans both. `estimate` is the number's name in the publication: "filtered" is from all
 * epochs remembered, "blend" and "client" from this one alone.
 */
export type Figures = {
    probability: number;
    low: number;
    high: number;
    disputed: boolean;
    estimate: string;
};
export type RankedUrl = Figures & {
    url: string;
};
/**
 * Of a query with `atLeast` URLs that are not known are not in the number, and the true one is at
 * least that.
 */
export type RankedQuery = Figures & {
    query: string;
    atLeast: boolean;
};
