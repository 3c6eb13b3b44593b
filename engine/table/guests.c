/* guests.c -- see guests.h. */
#include "engine/table/guests.h"

#include "engine/table/area.h"

#define REFUSED 1u /* in place of the line of the table: there was no memory */
#define HEAD_LINES 1u
#define LINES_LEAST (HEAD_LINES + 1)
#define STAMPS_LOG2 4u /* how many stamps pass while as many guests come as there are places */
#define STAMP_BITS 6u
#define STAMP_MASK ((UINT64_C(1) << STAMP_BITS) - 1)
#define KEY_SHIFT (TWI_GUEST_VALUE_BITS + STAMP_BITS)
static_assert(offsetof(struct twi_guests, places) == HEAD_LINES * TWI_LINE_BYTES, "sets are lines");

/* ---- memory ---- */

struct twi_guests *twi_guests_of(const struct twi_arena *arena, struct twi_generation *generation) {
    twi_check_dear(!generation->synced);
    uint32_t line = twi_load_acquire(&generation->guests); /* B9, pairs with B8 */
    return line > REFUSED ? twi_arena_at(arena, line) : NULL;
}

static uint32_t stamp_shift_of(uint64_t places) {
    uint32_t log2 = 63 - (uint32_t)__builtin_clzll(places);
    return log2 > STAMPS_LOG2 ? log2 - STAMPS_LOG2 : 0;
}

/* A window that finds little memory has a small table. */
static uint32_t take(struct twi_arena *arena, struct twi_generation *generation, uint32_t *lines) {
    *lines = twi_load_relaxed(&generation->quota->guest_lines);
    return twi_piece_take_for_spill(arena, generation, lines, LINES_LEAST);
}

struct twi_guests *twi_guests_begin(struct twi_arena *arena, struct twi_generation *generation) {
    if (twi_guests_have_come(generation)) return twi_guests_of(arena, generation);
    uint32_t lines, line = take(arena, generation, &lines), none = 0;
    if (line != 0) {
        struct twi_guests *guests = twi_arena_at(arena, line);
        guests->lines = lines;
        guests->sets = lines - HEAD_LINES;
        guests->stamp_shift = stamp_shift_of((uint64_t)guests->sets * TWI_GUESTS_IN_SET);
    }
    if (!twi_cas_acqrel(&generation->guests, &none, line != 0 ? line : REFUSED) && line != 0) /* B8 */
        twi_piece_give(arena, generation, line, lines);
    return twi_guests_of(arena, generation);
}

void twi_guests_give(struct twi_arena *arena, struct twi_generation *generation) {
    if (generation->synced) return; /* the word says something else */
    struct twi_guests *guests = twi_guests_of(arena, generation);
    twi_store_relaxed(&generation->guests, 0);
    if (guests != NULL) twi_piece_give(arena, generation, twi_arena_line(arena, guests), guests->lines);
}

/* ---- places ---- */

static uint64_t key_of(const struct twi_lookup_key *lookup) {
    return lookup->tag >> (32 - (64 - KEY_SHIFT));
}
static int64_t value_of(uint64_t word) {
    return (int64_t)(word & (uint64_t)TWI_GUEST_MOST);
}

static uint64_t stamp_now(struct twi_guests *guests) {
    return twi_load_relaxed(&guests->arrivals) >> guests->stamp_shift & STAMP_MASK;
}

/* Returns what a guest's place is worth. Less means that it is given up earlier. */
static uint64_t worth_of(uint64_t word, int64_t spent, uint64_t now) {
    if (value_of(word) <= spent) return 0;
    uint64_t age = (now - (word >> TWI_GUEST_VALUE_BITS)) & STAMP_MASK;
    return STAMP_MASK + 1 - age;
}

void twi_guest_find(struct twi_guests *guests, const struct twi_lookup_key *lookup, int64_t spent,
                    struct twi_guest *guest) {
    twi_check_dear(spent >= 0);
    _Atomic uint64_t *places = guests->places[(uint64_t)lookup->place * guests->sets >> 32];
    uint64_t key = key_of(lookup), now = stamp_now(guests), least = UINT64_MAX;
    for (uint32_t i = 0; i < TWI_GUESTS_IN_SET; i++) {
        uint64_t word = twi_load_relaxed(&places[i]), worth;
        if (value_of(word) != 0 && word >> KEY_SHIFT == key) {
            *guest = (struct twi_guest){&places[i], word, value_of(word)};
            return;
        }
        worth = worth_of(word, spent, now);
        if (worth >= least) continue;
        least = worth;
        *guest = (struct twi_guest){&places[i], word, 0};
    }
}

bool twi_guest_set(struct twi_guests *guests, const struct twi_lookup_key *lookup, const struct twi_guest *guest,
                   int64_t value) {
    twi_check_dear(value >= 0 && value <= TWI_GUEST_MOST);
    uint64_t word = guest->word;
    uint64_t after = key_of(lookup) << KEY_SHIFT | stamp_now(guests) << TWI_GUEST_VALUE_BITS | (uint64_t)value;
    if (!twi_cas_acqrel(guest->place, &word, after)) return false;
    if (guest->value == 0) (void)twi_add_relaxed(&guests->arrivals, 1);
    return true;
}

void twi_guest_touch(struct twi_guests *guests, const struct twi_guest *guest) {
    uint64_t word = guest->word, now = stamp_now(guests);
    if (guest->value == 0 || (word >> TWI_GUEST_VALUE_BITS & STAMP_MASK) == now) return;
    uint64_t after = (word & ~(STAMP_MASK << TWI_GUEST_VALUE_BITS)) | now << TWI_GUEST_VALUE_BITS;
    (void)twi_cas_relaxed(guest->place, &word, after); /* who has changed the place meanwhile has used it, too */
}

bool twi_guest_gives_up(const struct twi_guest *guest, int64_t spent) {
    return guest->value == 0 && value_of(guest->word) > spent;
}
