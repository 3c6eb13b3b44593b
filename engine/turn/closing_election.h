/* closing_election.h -- the election of one window: its state, beginning and end. closing.h has the states and their
 * order. Only the files of closing.h include it.
 * Always true: an election is in its family's list from its beginning to its end. If a message is under way when the
 * election ends, the reply finds it OVER and frees it. Threads: only the turn calls these functions. */
#ifndef TWI_TURN_CLOSING_ELECTION_H
#define TWI_TURN_CLOSING_ELECTION_H

#include "engine/core/closing_keys.h"
#include "engine/core/family.h"
#include "engine/port/messages.h"

enum twi_close_election_state {
    TWI_ELECTION_CLAIM,
    TWI_ELECTION_RECORD,  /* Redis may lack names of this engine's keys: batches bring them again */
    TWI_ELECTION_LIST,    /* names by tag: announce that names will be added */
    TWI_ELECTION_ADD,     /* names by tag: add the names, group by group */
    TWI_ELECTION_CONFIRM, /* names by tag: list the groups */
    TWI_ELECTION_READ,    /* names by tag: read the groups */
    TWI_ELECTION_FETCH,   /* names by tag: read the names, group by group */
    TWI_ELECTION_TOTALS,
    TWI_ELECTION_CALL_HOOK,
    /* give up the claim, because the hook returned false for a minute, or a store was empty a short time ago */
    TWI_ELECTION_PASS,
    TWI_ELECTION_PARTIAL, /* the hook was called before the window's time */
    TWI_ELECTION_DONE,
    TWI_ELECTION_DROP,   /* names by tag: remove the sets of names */
    TWI_ELECTION_UNSENT, /* others closed the window without the unsent counts of this engine */
    TWI_ELECTION_OVER
};

struct twi_close_election {
    struct twi_close_election *next; /* the next election of the family */
    struct twi_generation *generation;
    int64_t start_ms;
    enum twi_close_election_state state;
    bool in_flight;
    /* this engine gives the window up while others may still count in it. The others continue with it. */
    bool partial;
    bool lists_only;     /* this engine has no hook, so it only says that it no longer delays the window */
    bool listed;         /* Redis has the names of this engine's keys, whether it was closed before or not */
    bool through;        /* this engine no longer delays the window */
    bool is_repeat;      /* the window was reported before */
    bool left_to_others; /* according to the last reply, another engine has claimed the window */
    bool is_noted;       /* the log line that no hook will report late counts was written */
    bool has_names;      /* Redis had names of this window's keys */
    /* the hook will not get all counts, because memory for others' keys, names or totals are missing */
    bool is_short;
    int64_t failing_ms;              /* since when the set of names refuses messages; 0: it accepts them */
    struct twi_cursor cursor;        /* the current walk */
    char scan[24];                   /* how far the names of other engines were read (the cursor of SCAN) */
    int64_t at_ms;                   /* when to send next; monotonic, same as all times here */
    int64_t claim_ms;                /* the claim is valid until then */
    int64_t chosen_ms, totals_ms;    /* when this engine won the claim; when RECORD or TOTALS began */
    uint64_t acked_units;            /* in UNSENT: the units acknowledged when the window was closed */
    struct twi_closing_keys foreign; /* keys that only other engines counted; the hook reads them, too */
    struct twi_closing_tags *tags;   /* names are grouped by tag (closing_tags.h); NULL means that all are in one set */
};

/* Returns the election of this window. NULL means that it has not begun, or that it has ended. */
struct twi_close_election *twi_close_election_of(const struct twi_generation *generation);

struct twi_close_election *twi_close_election_make(tw_engine *engine, struct twi_generation *generation);
void twi_close_election_enter(struct twi_close_election *election, enum twi_close_election_state state, int64_t at_ms);
void twi_close_election_begin_again(struct twi_close_election *election);
/* Returns true if Redis may lack names of this engine's keys. record(): batches bring them again, and then the election
 * continues with its claim. By tag, a list of names does that. */
bool twi_close_election_lacks_names(const struct twi_close_election *election);
void twi_close_election_record(struct twi_close_election *election, int64_t now_ms);
void twi_close_election_end(struct twi_close_election *election);
void twi_close_election_end_closed(struct twi_close_election *election);
void twi_close_election_end_by_others(struct twi_close_election *election);
void twi_close_election_end_list(struct twi_close_election *election);
void twi_close_election_free(struct twi_close_election *election);
/* Called when Redis may have forgotten that this window is closed. If so, this engine reports the closing again. */
void twi_close_election_keep(struct tw_family *family, int64_t start_ms);
void twi_close_election_lack(struct twi_close_election *election, const char *why);
int64_t twi_close_election_claim_at_ms(const struct twi_generation *generation);
enum twi_closing_verb twi_close_election_verb(const struct twi_close_election *election);
bool twi_close_election_is_silent(const struct twi_close_election *election);

bool twi_closing_is_away(const tw_engine *engine, const struct twi_generation *generation);
bool twi_closing_had_its_time(const tw_engine *engine, const struct twi_generation *generation);
bool twi_closing_is_of_names(enum twi_closing_verb verb);

#endif
