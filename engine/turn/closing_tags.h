/* closing_tags.h -- where the names of a window's keys are in Redis if the keys are in several stores: grouped by tag.
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
#ifndef TWI_TURN_CLOSING_TAGS_H
#define TWI_TURN_CLOSING_TAGS_H

#include "engine/base/key_slot.h"
#include "engine/core/family.h"
#include "engine/port/messages.h"

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
    bool reads_all; /* an engine has died, and may have recorded names in groups that the index lacks */
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

#endif
