/* window_map.h -- the map of a family's windows: which generation contains a moment; and keys that only others
 * counted. */
#ifndef TWI_CORE_WINDOW_MAP_H
#define TWI_CORE_WINDOW_MAP_H

#include "engine/core/family.h"
#include "tallywheel.h"

/* Gives a replaced map to the turn, which frees it when no thread can see it any more. */
void twi_window_map_retire(tw_engine *engine, uint32_t line);

/* Shows every generation of the map, also those that are dropped. Called by the turn. */
void twi_window_visit_entered(struct tw_family *family, void (*visit)(void *ctx, struct twi_generation *generation),
                              void *ctx);
/* The turn calls these two. The first returns true if the generation is in the list of arrivals. The second announces a
 * generation whose thread ended while it entered it. It returns false if the thread has not entered it. */
bool twi_window_is_arriving(struct tw_family *family, const struct twi_generation *generation);
bool twi_window_heal(struct tw_family *family, struct twi_generation *generation);

/* Returns the generation of a window. NULL means that it does not exist here. Call it inside a section. */
struct twi_generation *twi_window_find(struct tw_family *family, int64_t start_ms);
/* Returns the generation that contains a moment, if it exists here. Only the clock's moment becomes `current`. If event
 * times of many threads changed `current`, its cache line would always move between processors. */
TWI_INLINE struct twi_generation *twi_window_at(struct tw_family *family, int64_t unix_ms, bool is_now) {
    struct twi_generation *generation = twi_load_acquire(&family->current); /* W1, pairs with W2 */
    TWI_RACE_POINT(current_loaded_not_read);
    if (twi_likely(twi_generation_holds(generation, unix_ms))) return generation;
    generation = twi_window_find(family, twi_calendar_span(&family->rule, unix_ms).start_ms);
    /* not before 1970, because twi_clock_peek_ms() cannot give such a time */
    if (generation != NULL && is_now && generation->start_ms >= 0)
        twi_store_release(&family->current, generation); /* W2 */
    return generation;
}

/* How many keys of keys_expected the first key of a window announces, if the turn has not prepared that window: all, if
 * their index is one leaf, otherwise none, so that no call waits for more memory than that. */
uint64_t twi_window_announced(const struct tw_family *family);
/* Does the same as twi_window_find(), but makes the generation if it does not exist. NULL means that there is no
 * memory. Lock-free. Call it inside a section. */
struct twi_generation *twi_window_open(struct tw_family *family, struct twi_span span, uint64_t keys_expected);
/* Publishes a prepared generation. Returns false if another thread has opened the window. */
bool twi_window_publish(struct tw_family *family, struct twi_generation *generation);
/* Makes every generation whose phase is DROPPED unreachable. Called by the turn. It needs no memory, and gives
 * memory back. */
void twi_window_unlink_dropped(struct tw_family *family);
/* Gives the map of a family back. The family has no generation any more, and no thread can find it. */
void twi_window_map_give(struct tw_family *family);

/* Visits the windows that are in the map and not dropped. Called by the turn. */
void twi_window_visit(struct tw_family *family, void (*visit)(void *ctx, struct twi_generation *generation), void *ctx);

/* Adds the family's windows and keys to the sums. Call it inside a section. */
void twi_window_count(struct tw_family *family, int64_t *windows, int64_t *keys);

/* The turn calls these functions for the next retired map, and for its size in lines. */
uint32_t twi_window_map_next(struct twi_arena *arena, uint32_t line);
uint32_t twi_window_map_lines(struct twi_arena *arena, uint32_t line);
/* Makes a generation of that span, which no thread can reach yet. */
struct twi_generation *twi_window_make(struct tw_family *family, struct twi_span span, uint64_t keys_expected);

/* ---- closing keys ----
 * keys of a window that only other engines counted. The engine that closes the window passes these
 * keys to the hook (turn/closing.h).
 *
 * Each key has a record in the memory of the window's generation, outside the index of the generation. A caller's
 * look-up does not find such a record. A look-up inside the hook finds it (lookup.c).
 * Always true: a set is on its family's list from its beginning to its end, and it ends before its generation ends.
 * Only the turn uses a set, and hooks that run inside the turn. */

struct tw_family;
struct twi_cell;
struct twi_generation;

struct twi_closing_keys {
    struct twi_closing_keys *next; /* the next set in the family's list */
    struct tw_family *family;
    struct twi_generation *generation;
    uint32_t *lines; /* the lines of records, by hash; 0 means that the slot is free */
    uint32_t count, room;
};

void twi_closing_keys_begin(struct twi_closing_keys *keys, struct twi_generation *generation);
void twi_closing_keys_end(struct twi_closing_keys *keys);
/* Adds the key, if it is new. Returns false if there is no memory. */
bool twi_closing_keys_add(tw_engine *engine, struct twi_closing_keys *keys, tw_key key);
/* Returns the record of such a key of that window. Called in a hook, by the thread of the turn. NULL means none. */
struct twi_cell *twi_closing_keys_find(struct twi_generation *generation, tw_key key);

#endif
