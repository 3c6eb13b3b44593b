/* cell_check.c -- see cell_check.h. */
#include "engine/table/cell_check.h"

#include "tallywheel.h"

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
