/* The order of steps by which a release is drawn once: a model of streams/releases/log.py.

   Two jobs of one kind want to release the same epoch. Each may pause anywhere (the others run
   meanwhile), crash anywhere and start again, miss any answer, and be fenced. When both have used
   up their attempts, a third job runs alone and undisturbed: it must finish.

   Kafka is modelled as its clients see it, with what the protocol assumes of it: what was readable
   stays so, and a server that is cut off from its peers acknowledges nothing. Such a server has a
   frozen copy, which is a beginning of the true log, and answers from it without an error.

   Must hold in every state: at most one release is readable; once one is, servers refuse any other
   draw; a release is readable only with the rest of its commit; jobs publish one draw, never two.
   At the end: no job waits for ever, and one release is readable.

   test_release_order.py runs the model as it is, which must pass, and with these, which must fail:
     OLD_ORDER     no fence record; reads up to the end that any server tells
     END_TOLD      a fence record, but reads up to the end that any server tells
     NO_FENCE      reads up to the true end, and starts its producer afterwards
     NO_READ_BACK  publishes a release when its commit is acknowledged, before reading it
     TWO_RECORDS   the entries of one commit travel in two records
     UNVERIFIED    servers take a record without asking the coordinator for its transaction
   With ONE_SERVER no server is ever cut off. */

#ifndef ATTEMPTS
#define ATTEMPTS 2    /* of each disturbed job: every crash, doubt or fence uses one up */
#endif
#ifndef COPIES
#define COPIES 1      /* how often a request to commit is repeated while the first is on its way */
#endif
#ifndef HANGING
#define HANGING 1     /* how often an acknowledged commit stays unreadable: its marker is lost */
#endif
#define JOBS 3
#define NOBODY JOBS
#define NOWHERE 255

/* --- the cluster: the true log, its coordinator, and requests on their way --- */

mtype = { NONE, BEGUN, DECIDED };     /* our kind's transaction, as the coordinator knows it */
mtype = { UNSENT, OPEN, READABLE };   /* the last record that a job has sent */
mtype = { TURN, PART, ENTRY };        /* what a record has: a part is a piece of a document */

byte length = 1;                /* the log's end, open transactions included */
bool other_open = true;         /* record 0 is of another kind of job; readers wait for its end */
byte first = NOWHERE;           /* our kind's records that are open: where they start, */
byte entry = NOWHERE;           /*     where their entry is, */
byte entries, parts;            /*     and how many they have */
byte release = NOWHERE;         /* the first readable release, */
byte releases;                  /*     and how many are readable */
byte published = NOWHERE;       /* the release that a job has published */

byte owner = NOBODY;            /* the job whose producer started last: all others are fenced */
mtype transaction = NONE;
mtype own[JOBS] = UNSENT;
bool asked[JOBS];               /* a request to commit is on its way to the coordinator */
bool copy[JOBS];                /* so is an earlier one of the same producer, delayed */
bool acknowledged[JOBS];        /* the coordinator's answer */
byte copies = COPIES, hanging = HANGING;
byte ended;                     /* how many jobs have ended */

/* Readers of committed records get this far: to the first record that is open. */
#define STABLE (other_open -> 0 : (first < length -> first : length))

/* The marker after our kind's records. Readers see all that were open from now on, or none. */
#define FATE(record, fate) (record == OPEN -> fate : record)
inline end_records(fate) {
    own[0] = FATE(own[0], fate); own[1] = FATE(own[1], fate); own[2] = FATE(own[2], fate);
    if
    :: fate == READABLE && entries > 0 ->
        release = (release == NOWHERE -> entry : release);
        releases = releases + entries;
        assert(releases <= 1); assert(parts >= entries)
    :: else
    fi;
    transaction = NONE; first = NOWHERE; entry = NOWHERE; entries = 0; parts = 0
}

/* By a new producer, or by the coordinator when a transaction took too long. Requests of earlier
   producers that are still on their way will be refused: forget them. */
inline fence(by) {
    if
    :: transaction == BEGUN -> end_records(UNSENT)
    :: else     /* A hanging transaction stays: the coordinator knows of none. */
    fi;
    owner = by;
    asked[0] = false; asked[1] = false; asked[2] = false;
    copy[0] = false; copy[1] = false; copy[2] = false
}

/* A request to commit names a producer, not a transaction: a delayed one ends the transaction that
   this producer has begun since. (Kafka prevents that by KIP-890, part 2; our client lacks it.) */
inline decide() { transaction = (transaction == BEGUN -> DECIDED : transaction) }

active proctype Cluster() {
end:
    do
    :: atomic { owner != NOBODY && transaction != DECIDED && asked[owner] ->
        asked[owner] = false; acknowledged[owner] = true; decide();
        if
        :: copies > 0 -> copies--; copy[owner] = true
        :: true
        fi }
    :: d_step { owner != NOBODY && transaction != DECIDED && copy[owner] ->
        copy[owner] = false; decide() }
    :: d_step { transaction == DECIDED -> end_records(READABLE) }
    :: d_step { transaction == DECIDED && hanging > 0 && ended < 2 ->
        hanging--; transaction = NONE }
    :: d_step { transaction == BEGUN && ended < 2 -> fence(NOBODY) }
    :: other_open -> other_open = false
    od
}

/* --- a job --- */

/* A crash, or an answer that was lost or came too late. The next attempt reads the log again from
   its beginning; to keep what was read would change nothing, since that stays true. */
#define STUMBLES :: !calm -> goto again

inline start_producer() {
    if
    :: d_step { transaction != DECIDED -> fence(me) }
    STUMBLES
    fi
}

inline begin() {
    if
    :: d_step { owner == me && transaction == NONE ->
        transaction = BEGUN; acknowledged[me] = false; own[me] = UNSENT }
    :: owner != me -> goto again
    STUMBLES
    fi
}

/* A server accepts a record if it has a transaction open itself, or the coordinator confirms one.
   (The client names the partition to the coordinator once for each transaction.) */
#ifdef UNVERIFIED
#define ACCEPTED (owner == me)
#else
#define ACCEPTED (owner == me && (transaction == BEGUN || first != NOWHERE))
#endif

inline send(what) {
    if
    :: d_step { ACCEPTED ->
        assert(releases == 0 || what == TURN);
        first = (first == NOWHERE -> length : first);
        entry = (what == ENTRY -> length : entry);
        entries = entries + (what == ENTRY);
        parts = parts + (what == PART);
        length++; mine = length; own[me] = OPEN }
    :: !ACCEPTED -> goto again
    STUMBLES
    fi
}

inline commit() {
    if
    :: d_step { owner == me -> asked[me] = true }
    :: owner != me -> goto again
    STUMBLES
    fi;
    if
    :: acknowledged[me]
    :: owner != me -> goto again
    STUMBLES
    fi
}

/* Read committed records up to a place. Which server shows them makes no difference: a frozen copy
   shows a beginning of the true log and then no more, and the reader opens another. */
inline read_upto(place, condition) {
    if
    :: condition && STABLE >= place -> seen = release < place
    STUMBLES
    fi
}

/* The random id is seen when the record that has it is readable. */
inline read_own() { read_upto(mine, own[me] == READABLE) }

/* "Where does the log end?" A frozen copy may be of any earlier moment. */
#ifdef ONE_SERVER
#define OLDEST length
#else
#define OLDEST 0
#endif
inline ask_any_server() { select(told : OLDEST .. length) }

inline publish(draw) {
    d_step { assert(published == NOWHERE || published == draw); published = draw }
}

proctype Job(byte me; bool calm) {
    byte attempts, told;
    byte mine;            /* the place after our own last record */
    bool seen;            /* whether what was read has a release */
again:
    mine = 0; told = 0;
    if
    :: !calm && attempts == ATTEMPTS -> goto out
    :: !calm && attempts < ATTEMPTS -> attempts++
    :: calm
    fi;
#if defined(NO_FENCE)
    told = length; read_upto(told, true);
    start_producer();
#else
    start_producer();                          /* step 1 */
#if !defined(OLD_ORDER)
    begin(); send(TURN); commit();             /* step 2 */
#endif
#if defined(OLD_ORDER) || defined(END_TOLD)
    ask_any_server(); read_upto(told, true);
#else
    read_own();                                /* step 3 */
#endif
#endif
    if                                         /* step 4 */
    :: seen -> publish(release); goto out
    :: else
    fi;
    begin();                                   /* step 5 */
#if defined(TWO_RECORDS)
    send(ENTRY); send(PART);
#else
    send(PART); send(ENTRY);
#endif
    commit();
#if defined(NO_READ_BACK)
    publish(mine - 1);
#else
    read_own();                                /* step 6 */
    publish(release);
#endif
out:
    ended++
}

init {
    atomic { run Job(0, false); run Job(1, false) }
    ended == 2 -> run Job(2, true);
    ended == 3 && transaction == NONE -> assert(releases == 1)
}
