/* closing_tags.h -- the place of the names of a window's keys, by tag, if keys lie in several stores.
 *
 * An election lies in one key slot, that of the family's empty key. One slot must not have the names of all keys, so
 * each group of keys (core/key_template.h) has a set of names, in the slot of its counters. The election's slot has an
 * index, which is the set of groups in which names were added.
 *
 *   an engine adds names:   announce (list) ─▶ add the names, group by group ─▶ confirm (list, with the groups)
 *   an engine closes:       read the index ─▶ fetch the names, group by group ─▶ totals, hook, done ─▶ drop the sets
 *
 * The sets have a ROUND in their names, which is how often the window was closed and not opened again. An engine that
 * adds names after that adds them to the sets of the next round. So the engine that drops the sets drops none of these
 * names. The reply to a confirmation has the round, too. If it has changed, the engine drops the names that it added,
 * and begins again.
 * Always true: an engine delays the window from its announcement until its confirmation. So an engine that may claim
 * the window finds all names. The turn only. */
#ifndef TWI_TURN_CLOSING_TAGS_H
#define TWI_TURN_CLOSING_TAGS_H

#include "engine/base/key_slot.h"
#include "engine/core/family.h"
#include "engine/port/messages.h"

#define TWI_CLOSING_TAGS_WORDS (TWI_KEY_SLOT_TAGS_MAX / 64)
/* after that they begin again at 0, because the sets of that round are gone by then */
#define TWI_CLOSING_TAGS_ROUNDS 1000u

struct twi_closing_groups {
    uint64_t words[TWI_CLOSING_TAGS_WORDS]; /* a bit for each group */
};

struct twi_closing_tags {
    uint32_t round;                  /* the round of the sets that this engine adds to, or fetches */
    struct twi_closing_groups own;   /* groups that it has added names to */
    struct twi_closing_groups found; /* the index */
    struct twi_closing_groups left;  /* groups that the current step has still to do */
    struct twi_closing_groups lost;  /* groups that took no names for too long */
    uint32_t group, sent;            /* the group of the message under way, and how many names, or groups, it has */
    int64_t failing_ms;              /* since when that group's messages have failed; 0 means that they have not */
    int64_t renew_ms;                /* when the claim must be renewed while names are read */
    bool renews;                     /* the message under way renews it */
    int64_t pause_ms;                /* in PASS, a store was empty at this time; 0 means that the hook returned false */
    bool reads_all; /* an engine has died, and may have recorded names in groups that the index lacks */
    bool relists;   /* in DROP, the names that it added are in the sets of a round that is over */
    /* The pages, while names are added. For each group the lines of the records that are not sent yet. */
    uint16_t *counts;
    uint32_t *lines;
    char texts[TWI_CLOSING_NAMES_MAX][TWI_KEY_SLOT_TAG_DIGITS]; /* the numbers of groups, as members of the index */
};

/* Returns true if the names of the family's keys lie by tag. */
bool twi_closing_tags_are_used(const struct tw_family *family);
/* NULL means no memory. */
struct twi_closing_tags *twi_closing_tags_create(void);
void twi_closing_tags_free(struct twi_closing_tags *tags);

/* Forgets the names that were added, and the pages. */
void twi_closing_tags_reset(struct twi_closing_tags *tags);
/* Puts names of one group into the message. Walks the window's keys from the cursor on, as far as it takes. Returns
 * false if there is no message now. Then either cursor->done is true and all names are sent, or more work or memory is
 * needed. */
bool twi_closing_tags_fill(struct twi_closing_tags *tags, struct twi_generation *generation, struct twi_cursor *cursor,
                           struct twi_closing_message *message);
/* The names of the message under way are there; or its group is given up, with the names that it still has. */
void twi_closing_tags_added(struct twi_closing_tags *tags);
void twi_closing_tags_skip(struct twi_closing_tags *tags);

/* The groups that were added to are to be confirmed. */
void twi_closing_tags_confirm(struct twi_closing_tags *tags);
/* Puts numbers of groups into the message, which are the next members of the index. Returns false if no group is
 * left. */
bool twi_closing_tags_fill_index(struct twi_closing_tags *tags, struct twi_closing_message *message);
void twi_closing_tags_confirmed(struct twi_closing_tags *tags);

/* One member of the index. */
void twi_closing_tags_note(struct twi_closing_tags *tags, const struct tw_family *family, tw_key member);
/* The groups that were found (all groups if `reads_all`), or those that were added to, are the next to do. */
void twi_closing_tags_do_found(struct twi_closing_tags *tags, const struct tw_family *family);
/* The group under way has names. */
void twi_closing_tags_found(struct twi_closing_tags *tags);
void twi_closing_tags_do_own(struct twi_closing_tags *tags);
/* The next group to do becomes tags->group. Returns false if no group is left. */
bool twi_closing_tags_next(struct twi_closing_tags *tags);
/* tags->group is done. */
void twi_closing_tags_done(struct twi_closing_tags *tags);

#endif
