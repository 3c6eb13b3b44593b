/* cell.c -- see cell.h. It has the kinds of record, and the cases that the hot add leaves to a slower path. */
#include "engine/table/cell.h"

#include "tallywheel.h"

/* Lines and key bytes of each kind: 32 in the first line, 64 in each further line, 32 less with a cold part. */
const struct twi_kind twi_kinds[TWI_KINDS] = {
    {1, 32, 32}, {2, 96, 64}, {3, 160, 128}, {4, 224, 192}, {8, 480, 448}, {17, 1056, 1024},
};
static_assert(TW_KEY_SIZE_MAX <= 1024, "the last kind holds the longest key");

enum twi_added twi_cell_add_careful(struct twi_cell *cell, int64_t delta, uint64_t *before) {
    uint64_t word = twi_load_relaxed(&cell->local), after;
    do {
        *before = word;
        if ((word & TWI_FROZEN) != 0) return TWI_ADD_FROZEN;
        int64_t sum = twi_saturated_sum(twi_word_value(word), delta);
        if (sum > TW_COUNT_MAX || sum < -TW_COUNT_MAX) return TWI_ADD_RANGE;
        after = (uint64_t)sum << TWI_COUNT_SHIFT | (word & TWI_DIRTY);
    } while (!twi_cas_weak_acqrel(&cell->local, &word, after));
    int64_t value = twi_word_value(after);
    if (value >= TWI_VALUE_EDGE || value <= -TWI_VALUE_EDGE) (void)twi_or_relaxed(&cell->meta, TWI_META_EDGE);
    return TWI_ADDED;
}

int64_t twi_cell_freeze(struct twi_cell *cell, uint64_t meta) {
    _Atomic int64_t *final = twi_cell_final(cell, meta);
    uint64_t word = twi_load_relaxed(&cell->local);
    do {
        if ((word & TWI_FROZEN) != 0) return twi_load_relaxed(final);
        twi_store_relaxed(final, twi_word_value(word));
        TWI_RACE_POINT(final_stored_not_frozen);
    } while (!twi_cas_weak_acqrel(&cell->local, &word, word | TWI_FROZEN)); /* C1, pairs with C2: final before FROZEN */
    return twi_word_value(word);
}

/* ---- cell check ---- */

static bool is_within(int64_t count, int64_t bound) {
    return count >= -bound && count <= bound;
}

static bool key_fits(uint64_t meta) {
    uint64_t size = meta & TWI_META_SIZE;
    if ((meta & TWI_META_OVERFLOW) != 0) return size == 0;
    if (twi_cell_kind(meta) >= TWI_KINDS) return false;
    const struct twi_kind *kind = &twi_kinds[twi_cell_kind(meta)];
    return size <= ((meta & TWI_META_COLD) != 0 ? kind->key_synced : kind->key_local);
}

bool twi_cell_is_valid(struct twi_cell *cell) {
    uint64_t meta = twi_load_relaxed(&cell->meta), word = twi_load_relaxed(&cell->local);
    bool is_frozen = (word & TWI_FROZEN) != 0;
    if (!key_fits(meta)) return false;
    if ((meta & TWI_META_STRIPED) != 0 && !is_frozen) return false;
    if ((meta & (TWI_META_PARKED | TWI_META_RESEND)) != 0 && (meta & TWI_META_COLD) == 0) return false;
    if (is_frozen) return is_within(twi_load_relaxed(twi_cell_final(cell, meta)), TW_COUNT_MAX);
    int64_t bound = (meta & TWI_META_EDGE) != 0 ? TW_COUNT_MAX : TWI_VALUE_EDGE;
    return is_within(twi_word_value(word), bound);
}
