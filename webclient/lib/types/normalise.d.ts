/** @param {string} raw @returns {string | null} */
export function normaliseQuery(raw: string): string | null;
/** The record [query, url] that this text stands for, or null.
 * @param {string} query @param {string} url @returns {[string, string] | null} */
export function normalise(query: string, url: string): [string, string] | null;
/** In the order of code points, as Python sorts; `<` compares UTF-16.
 * @param {string} a @param {string} b */
export function byCodePoint(a: string, b: string): number;
export const NORMALISATION: 2;
export function bytesOf(text: string): number;
export function hasUtf8(text: string): boolean;
export function fits(text: string, most: number): boolean;
