/* step.c -- the counts of some lines. See step.h. */
#include "tools/count/step.h"

#include <string.h>

#include "tools/common/text.h"

void step_clear(struct step *step) {
    step->count = 0;
    memset(step->slots, 0, sizeof step->slots);
}

static bool is_row(const struct step_row *row, int64_t start_ms, bool is_sum, tw_key key) {
    return row->start_ms == start_ms && row->is_sum == is_sum && row->size == key.size &&
           memcmp(row->key, key.data, key.size) == 0;
}

static bool row_add(struct step *step, int64_t start_ms, bool is_sum, tw_key key, int64_t delta) {
    uint64_t hash = text_hash(text_hash(TEXT_HASH_BEGIN, key.data, key.size), &start_ms, sizeof start_ms);
    size_t slot = (size_t)(hash >> 32) % STEP_SLOTS;
    for (; step->slots[slot] != 0; slot = (slot + 1) % STEP_SLOTS) {
        struct step_row *row = &step->row[step->slots[slot] - 1];
        if (!is_row(row, start_ms, is_sum, key)) continue;
        int64_t sum = row->delta + delta; /* both are within 2^53 */
        if (sum > TW_DELTA_MAX || sum < -TW_DELTA_MAX) return false;
        row->delta = sum;
        return true;
    }
    if (step->count == STEP_COUNTERS) return false;
    struct step_row *row = &step->row[step->count++];
    row->start_ms = start_ms;
    row->is_sum = is_sum;
    row->delta = delta;
    row->size = key.size;
    memcpy(row->key, key.data, key.size);
    step->slots[slot] = (uint8_t)step->count;
    return true;
}

bool step_add(struct step *step, int64_t start_ms, tw_key key, int64_t delta, int64_t sum) {
    if (sum == 0) return row_add(step, start_ms, false, key, delta);
    /* Behind the sum nothing may fail: there is room for both, and so few lines do not exceed a delta. */
    return step->count + 2 <= STEP_COUNTERS && row_add(step, start_ms, true, key, sum) &&
           row_add(step, start_ms, false, key, delta);
}
