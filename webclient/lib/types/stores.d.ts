export function grown(records: TimedRecord[], record: TimedRecord, maxBytes: number): TimedRecord[];
/** Forgets everything with the page: for trying it out, and for tests.
 * @implements {Store} */
export class MemoryStore implements Store {
    /** @type {string | null} */ text: string | null;
    begun: boolean;
    /** @type {TimedRecord[]} */ records: TimedRecord[];
    load(): Promise<{
        text: string | null;
        begun: boolean;
        records: TimedRecord[];
    }>;
    begin(): Promise<void>;
    /** @param {string | null} before @param {string} after @param {number} forgetBeforeS */
    commit(before: string | null, after: string, forgetBeforeS: number): Promise<boolean>;
    /** @param {TimedRecord} record @param {number} maxBytes */
    keep(record: TimedRecord, maxBytes: number): Promise<void>;
    /** @template T @param {() => Promise<T>} act @returns {Promise<T | undefined>} */
    exclusively<T>(act: () => Promise<T>): Promise<T | undefined>;
    #private;
}
/** The store of pages, workers and extensions; tabs of one origin share it.
 * @implements {Store} */
export class IndexedDbStore implements Store {
    /** @param {string} [name] @param {Marker} [marker] */
    constructor(name?: string, marker?: Marker);
    load(): Promise<{
        begun: boolean;
        text: any;
        records: any;
    }>;
    begin(): Promise<void>;
    /** @param {string | null} before @param {string} after @param {number} forgetBeforeS */
    commit(before: string | null, after: string, forgetBeforeS: number): Promise<boolean>;
    /** @param {TimedRecord} record @param {number} maxBytes */
    keep(record: TimedRecord, maxBytes: number): Promise<void>;
    /** @template T @param {() => Promise<T>} act @returns {Promise<T | undefined>} */
    exclusively<T>(act: () => Promise<T>): Promise<T | undefined>;
    #private;
}
/**
 * A second place that says that this device has begun: browsers may clear IndexedDB alone.
 */
export type Marker = {
    has(): Promise<boolean>;
    set(): Promise<unknown>;
};
/**
 * [second, query, URL]
 */
export type TimedRecord = [number, string, string];
/**
 * `commit` durably replaces the state, if it still is `before`, and drops records made earlier
 * than `forgetBeforeS`, at once or not at all. `exclusively` runs `act` unless another tab or
 * process is at it (then: undefined). `begun` outlives the state, so that its loss is noticed.
 */
export type Store = {
    load(): Promise<{
        text: string | null;
        begun: boolean;
        records: TimedRecord[];
    }>;
    begin(): Promise<void>;
    commit(before: string | null, after: string, forgetBeforeS: number): Promise<boolean>;
    keep(record: TimedRecord, maxBytes: number): Promise<void>;
    exclusively<T>(act: () => Promise<T>): Promise<T | undefined>;
};
