/* items.h -- the contract of engine and sync/ on counters: what is collected, how it is settled, what it is called in Redis.
 *
 * sync/ reaches counters through the items it collects here, and through nothing else.
 * Threads: everything here is called by the owner of the turn (one thread at a time, see state.h), except where noted.
 * Always true: an item that was collected is settled exactly once (acknowledged, returned or given up), and from its
 * collection until then its generation stays in memory. */
#ifndef TWI_PORT_ITEMS_H
#define TWI_PORT_ITEMS_H

#include "tallywheel.h"

struct twi_generation;
struct twi_cell;

enum {
    /* this engine has not yet had this counter acknowledged: its expiry must be looked after */
    TWI_ITEM_FIRST = 1,
    TWI_ITEM_FROM_FIRST = 2, /* the key's life: expiry_ms is where we think it ends; Redis's answer decides (adopted) */
    TWI_ITEM_OVERFLOW = 4,
    TWI_ITEM_GAUGE = 8 /* of a gauge (gauge.c): not for a batch. `units` is all that this engine counts */
};

/* One counter's share of a batch. Plain data: copied freely, frozen by whoever holds it. */
struct twi_item {
    tw_family *family;
    struct twi_generation *generation;
    struct twi_cell *cell;
    int64_t delta;     /* 0: only the total is asked for */
    int64_t expiry_ms; /* absolute Unix ms by Redis's clock at which the key dies in Redis; 0: never */
    uint32_t flags;    /* TWI_ITEM_* */
    /* TWI_ITEM_GAUGE: all that this engine counts. Else: the part of `delta` that an earlier store has, and this one
     * has yet to be told (restore.h) */
    int64_t units;
};

/* a rendered name, prefix included; tw_family_open() refuses templates that could pass it */
#define TWI_REDIS_KEY_MAX 2048

/* Takes up to `count_max` counters that owe Redis something (or whose total was asked for): each one's delta is frozen
 * into its item (`handed` advances). Closed windows first, a quarter kept for open ones. Returns how many; fewer than
 * count_max means that a full collection has been completed. */
size_t twi_port_collect(tw_engine *engine, struct twi_item *items, size_t count_max);
/* Counters near their limit, which are not to wait for the interval (share.h): at most TWI_NEAR_LIMIT_MAX. */
#define TWI_NEAR_LIMIT_MAX 64u
size_t twi_port_collect_near_limit(tw_engine *engine, struct twi_item *items);
bool twi_port_is_near_limit(tw_engine *engine); /* there may be such */
/* The ticket of tw_flush: begins a full collection of every delta whose add had returned before this call. An adder may
 * be between its add and its mark, so a grace period must pass first (trap E10): go on collecting turn by turn until
 * twi_port_collect_is_done() says true; then all of them are in items that have been returned by twi_port_collect(). */
void twi_port_collect_begin(tw_engine *engine);
bool twi_port_collect_is_done(tw_engine *engine);
/* True if a counter has been marked since the last full collection (cheap; may be true for nothing). */
bool twi_port_is_dirty(tw_engine *engine);
/* The Redis key of an item (prefix and template rendered), not terminated. Returns its size, <= TWI_REDIS_KEY_MAX. */
size_t twi_port_render(const struct twi_item *item, char *out);
/* The name of what we keep beside that key: "tw:", `what`, ":" in front of it, behind the prefix. `what` has at most 8 letters; `out`
 * has room for TWI_OWN_NAME_MAX bytes. */
size_t twi_port_render_own(const struct twi_item *item, const char *what, char *out);
#define TWI_OWN_NAME_MAX (TWI_REDIS_KEY_MAX + 16)
/* The user's key, and the window, for reports. */
tw_key twi_port_key(const struct twi_item *item);
int64_t twi_port_start_ms(const struct twi_item *item);

/* What Redis answered for one item. */
struct twi_reply {
    int64_t total;  /* the key's value after the batch was applied */
    bool has_total; /* false: no total came with it, or it must not be taken (a replay is under way) */
    int64_t end_ms; /* from-first: when the key dies, by our clock; 0: not told */
};
/* Redis has applied the item's delta: acked += delta, base = total - acked. */
void twi_port_acknowledge(const struct twi_item *item, const struct twi_reply *answer);
/* Redis has certainly not applied it: the delta goes back (handed -= delta) and will be collected again, not before
 * `after_ms` have passed (0: at the next collection). */
void twi_port_return(const struct twi_item *item, uint32_t after_ms);
/* It will not be sent again: settled, and reported to on_lost with TW_LOST_* (and to the statistics). */
void twi_port_give_up(const struct twi_item *item, int reason);

/* Redis was found to have forgotten: that a total is lower than it was is explained. */
void twi_port_forgotten(tw_engine *engine);
/* Redis holds nothing any more of what it ever acknowledged to this engine: all that living counters contributed is owed
 * again, once, except for what was given up. No item may be in a batch. Returns the units that no counter holds any more,
 * though their windows lived in Redis. Then, turn by turn, twi_port_restore_some() until it answers false (nothing is left);
 * nothing may be collected before that. Begun again in between, it begins anew. */
uint64_t twi_port_restore(tw_engine *engine);
bool twi_port_restore_some(tw_engine *engine);
/* Before that: an item of unknown outcome, which the store that was left may have after all. */
void twi_port_adrift(const struct twi_item *item);
/* The life of the item's key in Redis is over. The part that the store of before has was there for as long as that
 * one was seen; nobody misses it now. The part that it perhaps has is given up as uncertain. The item loses both, and
 * what is left of it is settled by itself. Answers whether anything was given up. */
bool twi_port_end_item(struct twi_item *item);
/* A store that was left is back: what is still to be told because of it was told there, and is not told again. What
 * was under way is settled before: an item of unknown outcome loses the part that the store of before has
 * (twi_port_keep_item), and is given up. Answers whether a restoration has begun since that store was left;
 * *uncertain becomes what it may lack: what was newly acknowledged since. */
void twi_port_keep_item(struct twi_item *item);
bool twi_port_keep(tw_engine *engine, uint64_t *uncertain);

#endif
