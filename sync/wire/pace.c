/* pace.c -- see pace.h. A token bucket of keys. It fills at keys_per_s, has room for two chunks, and starts with
 * one. */
#include "sync/wire/pace.h"

#include "engine/base/check.h"

/* One chunk has the keys of 20 ms, at least 8 and at most 1000. That is short enough for other clients of Redis. */
static int64_t chunk_mkeys(const struct twi_pace *pace) {
    uint32_t keys = pace->keys_per_s / 50;
    if (keys < TWI_PACE_CHUNK_MIN) keys = TWI_PACE_CHUNK_MIN;
    return (int64_t)(keys > 1000 ? 1000 : keys) * 1000;
}

void twi_pace_begin(struct twi_pace *pace, int64_t now_ms) {
    twi_check(pace->keys_per_s != 0);
    pace->catching_up = true;
    pace->allowance_mkeys = chunk_mkeys(pace);
    pace->at_ms = now_ms;
}

static void pace_fill(struct twi_pace *pace, int64_t now_ms) {
    twi_check(pace->keys_per_s != 0);
    int64_t most = 2 * chunk_mkeys(pace), passed_ms = now_ms - pace->at_ms;
    if (passed_ms <= 0) return;
    pace->at_ms = now_ms;
    /* one key per second is one thousandth of a key per millisecond */
    if (passed_ms >= most / pace->keys_per_s + 1)
        pace->allowance_mkeys = most;
    else
        pace->allowance_mkeys += passed_ms * pace->keys_per_s;
    if (pace->allowance_mkeys > most) pace->allowance_mkeys = most;
}

size_t twi_pace_room(struct twi_pace *pace, size_t most, int64_t now_ms, int64_t *wait_ms) {
    twi_check(!pace->catching_up || pace->keys_per_s != 0);
    if (!pace->catching_up) return most;
    pace_fill(pace, now_ms);
    int64_t missing = chunk_mkeys(pace) - pace->allowance_mkeys;
    if (missing > 0) {
        *wait_ms = missing / pace->keys_per_s + 1;
        return 0;
    }
    twi_check(pace->allowance_mkeys >= 0);
    size_t keys = (size_t)(pace->allowance_mkeys / 1000);
    return keys < most ? keys : most;
}

void twi_pace_took(struct twi_pace *pace, size_t keys, bool whole) {
    pace->allowance_mkeys -= (int64_t)keys * 1000;
    if (whole) pace->catching_up = false;
}

int64_t twi_pace_spread_ms(int64_t outage_ms, uint64_t random) {
    int64_t most_ms = outage_ms / 2;
    if (most_ms > (int64_t)TWI_PACE_SPREAD_MAX_MS) most_ms = TWI_PACE_SPREAD_MAX_MS;
    return most_ms > 0 ? (int64_t)(random % (uint64_t)(most_ms + 1)) : 0;
}
