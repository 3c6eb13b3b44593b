/* closing_election.h -- the election of one window: its state, beginning and end. closing.h has the states and their
 * order. Only the files of closing.h include it.
 * Always true: an election is in its family's list from its beginning to its end. If a message is under way when the
 * election ends, the reply finds it OVER and frees it. Threads: only the turn calls these functions. */
#ifndef TWI_TURN_CLOSING_ELECTION_H
#define TWI_TURN_CLOSING_ELECTION_H

#include "engine/base/key_slot.h"
#include "engine/core/family.h"
#include "engine/port/messages.h"
#include "engine/core/window_map.h"

/* ---- closing tags ----
 * where the names of a window's keys are in Redis if the keys are in several stores: grouped by tag.
 *
 * An election is in one key slot, the slot of the family's empty key. That slot should not have the names of all keys.
 * So each group of keys (core/key_template.h) has a set of names, in the slot of its counters. The slot of the election
 * has an index. The index is the set of groups to which names were added.
 *
 *   an engine adds names:   announce (list) ─▶ add the names, group by group ─▶ confirm (list, with the groups)
 *   an engine closes:       read the index ─▶ fetch the names, group by group ─▶ totals, hook, done ─▶ drop the sets
 *
 * The names of the sets contain a ROUND. The number of a round is how often the window was closed and stayed closed. An
 * engine that adds names after a closing adds them to the sets of the next round. So the engine that drops the sets
 * does not drop these names. The reply to a confirmation has the round, too. If the round has changed, the engine
 * forgets the names that it has added, and begins again.
 * Always true: an engine delays the window from its announcement until its confirmation. So an engine that may claim
 * the window finds all names. The turn only. */

#define TWI_CLOSING_TAGS_WORDS (TWI_KEY_SLOT_TAGS_MAX / 64)
/* after this many rounds the numbers begin again at 0; the sets of round 0 no longer exist by then */
#define TWI_CLOSING_TAGS_ROUNDS 1000u

struct twi_closing_groups {
    uint64_t words[TWI_CLOSING_TAGS_WORDS]; /* a bit for each group */
};

struct twi_closing_tags {
    uint32_t round;                  /* the round of the sets to which this engine adds, or from which it reads */
    struct twi_closing_groups own;   /* the groups to which this engine has added names */
    struct twi_closing_groups found; /* the index */
    struct twi_closing_groups left;  /* the groups that the current step must still process */
    struct twi_closing_groups lost;  /* the groups that accepted no names for too long */
    uint32_t group, sent;            /* the group of the message under way, and its names or groups */
    int64_t failing_ms;              /* since when that group's messages fail; 0: they do not */
    int64_t renew_ms;                /* when the claim must be renewed while names are read */
    bool renews;                     /* the message under way renews it */
    int64_t pause_ms;                /* in PASS: when a store was empty; 0: the hook returned false */
    bool reads_all; /* the index may lack groups: of an engine that died, or that claimed the window before */
    bool relists;   /* in the state DROP: the names that this engine added are in sets of a round that has ended */
    /* The pages that are filled while names are added. Each group has one, with the lines of unsent records. */
    uint16_t *counts;
    uint32_t *lines;
    char texts[TWI_CLOSING_NAMES_MAX][TWI_KEY_SLOT_TAG_DIGITS]; /* the numbers of groups, as members of the index */
};

/* Returns true if the names of the family's keys are grouped by tag. */
bool twi_closing_tags_are_used(const struct tw_family *family);
/* Returns NULL if there is no memory. */
struct twi_closing_tags *twi_closing_tags_create(void);
void twi_closing_tags_free(struct twi_closing_tags *tags);

/* Forgets the names that were added, and the pages. */
void twi_closing_tags_reset(struct twi_closing_tags *tags);
/* Puts names of one group into the message. It walks the window's keys from the cursor on, until the message is
 * full. Returns false if there is no message now. Then either cursor->done is true and all names are sent, or the
 * function needs more work or memory. */
bool twi_closing_tags_fill(struct twi_closing_tags *tags, struct twi_generation *generation, struct twi_cursor *cursor,
                           struct twi_closing_message *message);
/* Called if Redis has the names of the message under way. Or the group is given up with its other names. */
void twi_closing_tags_added(struct twi_closing_tags *tags);
void twi_closing_tags_skip(struct twi_closing_tags *tags);

/* From now on, the groups to which names were added must be confirmed. */
void twi_closing_tags_confirm(struct twi_closing_tags *tags);
/* Puts numbers of groups into the message. They are the next members of the index. Returns false if no group is
 * left. */
bool twi_closing_tags_fill_index(struct twi_closing_tags *tags, struct twi_closing_message *message);
void twi_closing_tags_confirmed(struct twi_closing_tags *tags);

/* Notes one member of the index. */
void twi_closing_tags_note(struct twi_closing_tags *tags, const struct tw_family *family, tw_key member);
/* The next step processes the groups that were found (all groups if `reads_all`), or those with added names. */
void twi_closing_tags_do_found(struct twi_closing_tags *tags, const struct tw_family *family);
/* Notes that the group under way has names. */
void twi_closing_tags_found(struct twi_closing_tags *tags);
void twi_closing_tags_do_own(struct twi_closing_tags *tags);
/* Makes tags->group the next group to process. Returns false if no group is left. */
bool twi_closing_tags_next(struct twi_closing_tags *tags);
/* tags->group is done. */
void twi_closing_tags_done(struct twi_closing_tags *tags);

/* ---- closing windows ----
 * windows that outlive the engines which counted in them (TW_CLOSED_BY_ONE, closing.h).
 *
 * An engine may be killed as soon as Redis has received its counts. So at that time Redis must have all data that the
 * closer of a window needs:
 *   - The names of the keys. The batch with a key's first counts in a window also has the key's name (batch.lua).
 *   - The window itself, in the family's list of windows that have counts and are not closed. If all keys are in one
 *     store, the batch makes that entry. If keys are in several stores (see "closing tags"), the list is in another
 *     store than some counts. Then the engine announces the window with its heartbeat, and then collects its counts.
 * The reply to a heartbeat contains the first windows of that list. An engine with a hook adopts those windows that
 * should be closed by now, even if it has not counted in them.
 * Always true: if an engine has not counted in a window, it gives the window up only after a heartbeat has shown
 * that the window needs no closer. Threads: only the turn calls these functions. */

/* Returns true if the family, or the whole engine, is being closed. */
static inline bool twi_closing_is_ending(const struct tw_family *family) {
    return family->engine->turn.closing || twi_load_relaxed(&family->requests.close_requested);
}

/* Returns true if the family has a hook. It takes the lock of the roster. */
bool twi_closing_has_hook(struct tw_family *family);

/* Returns false if the window must be announced first, and a heartbeat that announces it is due. After HOLD_MS the
 * function returns true even without an announcement. */
bool twi_closing_may_collect(tw_engine *engine, struct twi_generation *generation);
/* Adds windows that must be announced to a heartbeat. */
void twi_closing_announce(struct tw_family *family, struct twi_closing_message *message);
/* Called when Redis has received this heartbeat. */
void twi_closing_announced(struct tw_family *family, const struct twi_closing_message *message);

/* Returns when an engine that has not counted in the window may adopt it, by this engine's clock. */
int64_t twi_closing_due_ms(const struct twi_generation *generation);
/* Returns true if a heartbeat may still name this window, in which this engine has not counted. */
bool twi_closing_awaits_word(const struct twi_generation *generation);

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
    struct twi_closing_tags *tags;   /* names are grouped by tag; NULL means that all are in one set */
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
