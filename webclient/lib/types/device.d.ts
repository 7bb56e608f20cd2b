/** Every call returns a value; only `new Device` throws, for arguments that cannot be. */
export class Device {
    /** `fetch`: your own, to send through a relay. `optIn`: only for who agreed to send searches as
     * they are; its token may be a function that gets the person's own from your backend. Nothing in an application's settings belongs into `parts`: tests hand them in.
     * @param {{server: string, limits: GivenLimits, store: Store, fetch?: typeof fetch,
     *   optIn?: {userId: string, token: string | (() => string | Promise<string>)}}} options @param {Parts} [parts] */
    constructor({ server, limits, store, optIn, fetch }: {
        server: string;
        limits: GivenLimits;
        store: Store;
        fetch?: typeof globalThis.fetch;
        optIn?: {
            userId: string;
            token: string | (() => string | Promise<string>);
        };
    }, parts?: Parts);
    /** Keep what was searched for and clicked, on this device, until its window is answered.
     * @param {string} query @param {string} url
     * @returns {Promise<{code: 'kept' | 'text refused' | 'storage refused', detail: string}>} */
    record(query: string, url: string): Promise<{
        code: "kept" | "text refused" | "storage refused";
        detail: string;
    }>;
    /** Remove all raw records, opt-in records not yet sent, and the text of answers that were sent.
     * What was spent stays spent.
     * @returns {Promise<Outcome>} */
    forget(): Promise<Outcome>;
    /** What is on the device and what was spent in the period that ends now. */
    status(): Promise<Outcome | {
        code: "status";
        recordsHeld: number;
        epsilonSpent: number;
        deltaSpent: number;
        windowsAnswered: number;
        lastEpoch: number | null;
        waitingUntilS: number | null;
        unsentEpoch: number | null;
    }>;
    /** What this device sent, what it can reveal at most, what is left and what follows; offline.
     * `document` is for a file, too. */
    sentLog(): Promise<Outcome | {
        code: "sent log";
        document: {
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
            next: ScheduledSend | null;
        };
    }>;
    /** Do what is due, if anything. Call it at times that do not depend on searches. `atOnce` does
     * not wait for the scheduled time: for tests by hand.
     * @param {{atOnce?: boolean}} [how] @returns {Promise<Outcome>} */
    maybeReport({ atOnce }?: {
        atOnce?: boolean;
    }): Promise<Outcome>;
    #private;
}
export type BudgetEntry = import("./budget.js").BudgetEntry;
export type GivenLimits = import("./budget.js").GivenLimits;
export type Limits = import("./budget.js").Limits;
export type Mode = import("./budget.js").Mode;
export type Submission = import("./budget.js").Submission;
export type HeadList = import("./document.js").HeadList;
export type Store = import("./stores.js").Store;
export type TimedRecord = import("./stores.js").TimedRecord;
/**
 * What a call came to; never an exception. "sent": accepted. "waiting": a time was drawn.
 * "nothing new": no window to answer. "try later": the server was away or busy. "refused by
 * server", "expired": not counted, and still spent. The others: nothing was spent or sent.
 */
export type ResultCode = "sent" | "waiting" | "nothing new" | "try later" | "refused by server" | "expired" | "head list refused" | "clock wrong" | "limit reached" | "state unreadable" | "storage refused";
/**
 * `nextCallAtS`: calling earlier changes nothing. `detail` holds nothing of records or servers.
 */
export type Outcome = {
    code: ResultCode;
    epoch: number | null;
    nextCallAtS: number;
    detail: string;
    freeAtS?: number;
};
export type ScheduledSend = {
    mode: Mode;
    epoch: number;
    subject: string;
    window_start_s: number;
    window_end_s: number;
    records: number;
    send_at_s: number;
    until_s: number;
    epsilon: number;
    delta: number;
    listed: number;
};
export type PendingSubmission = {
    mode: Mode;
    epoch: number;
    body: string;
    until_s: number;
};
export type State = {
    version: 2;
    revision: number;
    cohorts: number;
    cohort: number;
    budget_entries: BudgetEntry[];
    scheduled_send: ScheduledSend | null;
    pending: PendingSubmission | null;
    forget_before_s: number;
};
export type Loaded = {
    text: string | null;
    state: State;
    records: TimedRecord[];
};
/**
 * `bytes` is null when there were more than was asked for.
 */
export type Answer = {
    status: number;
    headers: Headers;
    bytes: Uint8Array<ArrayBuffer> | null;
};
export type Parts = {
    clock(): number;
    dice: import("./randomizers.js").Dice;
};
