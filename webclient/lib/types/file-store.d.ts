/** @implements {Store} */
export class FileStore implements Store {
    /** @param {string} folder */
    constructor(folder: string);
    load(): Promise<{
        text: null;
        begun: boolean;
        records: import("./stores.js").TimedRecord[];
    } | {
        text: string;
        begun: boolean;
        records: import("./stores.js").TimedRecord[];
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
export type Store = import("./stores.js").Store;
export type TimedRecord = import("./stores.js").TimedRecord;
