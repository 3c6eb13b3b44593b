/* guests.h -- short-lived counters of keys that come when a window is full (TW_ON_FULL_EVICT_IDLE in families with
 * windows and limits). A guest is a key with such a counter.
 *
 *   generation ─▶ | head | set: 8 places | set: 8 places | ...      place: 28 bits of the hash | stamp : 6 | value : 30
 *
 * The hash of a key names a set, which is one line, and the 28 bits by which the key is known in it. A key that is new
 * in a full set takes the place of the guest that costs least: one whose value is spent (an empty bucket, a count of
 * 0), otherwise the one that was not used for the longest time. The stamp says when a guest was used, in sixteenths of
 * the time in which as many guests come as there are places. So the order is that of an LRU list, but only within a
 * set, and only as exact as the stamp. If the keys of a flood come once each, fewer than one guest in 900 is given up
 * before a quarter as many keys came as there are places, and one in 20 before a half as many came.
 * Two keys of one set are the same guest if 28 bits of their hashes agree: 8 in 2^28 new keys meet such a guest. The
 * hash has a secret, so nobody can choose these keys.
 * Always true: one compare-and-swap changes a place, with key and value. So no unit is added to another key's value.
 * Two threads that bring a new key at one moment may rarely give it two places; one of them is then forgotten.
 * Threads: any thread, lock-free, inside a section. The table lives as long as its generation. */
#ifndef TWI_TABLE_GUESTS_H
#define TWI_TABLE_GUESTS_H

#include "engine/table/layout.h"

#define TWI_GUEST_VALUE_BITS 30u
#define TWI_GUEST_MOST ((INT64_C(1) << TWI_GUEST_VALUE_BITS) - 1) /* the greatest value of a guest */
#define TWI_GUESTS_IN_SET 8u

struct twi_guests {
    alignas(TWI_LINE_BYTES) _Atomic uint64_t reserved;                    /* used by the arena */
    uint32_t sets, lines, stamp_shift;                                    /* set before the table is shared */
    _Atomic uint64_t arrivals;                                            /* how many guests have come */
    alignas(TWI_LINE_BYTES) _Atomic uint64_t places[][TWI_GUESTS_IN_SET]; /* 0: free */
};

/* A guest, or the place that the key would take, as it was at one moment. */
struct twi_guest {
    _Atomic uint64_t *place;
    uint64_t word; /* of the place */
    int64_t value; /* 0: no guest */
};

/* Returns true if the window has guests, or was refused memory for them. New keys are then no longer inserted. */
TWI_INLINE bool twi_guests_have_come(struct twi_generation *generation) {
    return twi_load_relaxed(&generation->guests) != 0;
}
/* Returns the table of the generation, or NULL. The second function makes it if there is none. Without memory for
 * even a small table it is refused for this window. */
struct twi_guests *twi_guests_of(const struct twi_arena *arena, struct twi_generation *generation);
struct twi_guests *twi_guests_begin(struct twi_arena *arena, struct twi_generation *generation);

/* Finds the guest. Guests whose value is at most `spent` give up their place first. */
void twi_guest_find(struct twi_guests *guests, const struct twi_lookup_key *lookup, int64_t spent,
                    struct twi_guest *guest);
/* Sets the value of the guest, which is found, or comes. Returns false if its place has changed since. */
bool twi_guest_set(struct twi_guests *guests, const struct twi_lookup_key *lookup, const struct twi_guest *guest,
                   int64_t value);
/* Notes that a guest was used whose value does not change. */
void twi_guest_touch(struct twi_guests *guests, const struct twi_guest *guest);
/* Returns true if setting the value gives another guest up that has more than `spent`. */
bool twi_guest_gives_up(const struct twi_guest *guest, int64_t spent);

/* Gives the memory of the table back. No thread can reach it. */
void twi_guests_give(struct twi_arena *arena, struct twi_generation *generation);

#endif
