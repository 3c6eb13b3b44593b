/* pace.c -- see pace.h. A token bucket of keys. It fills at keys_per_s, has room for two chunks, and starts with
 * one. */
#include "sync/wire/pace.h"

#include "engine/base/check.h"

/* ---- breaker ----
 * CLOSED --fail--> OPEN --time--> TRYING --succeed--> CLOSED, or --fail--> OPEN for
 * longer. */

static void open_for(struct twi_breaker *breaker, int64_t now_ms, int64_t wait_ms) {
    twi_check(wait_ms >= 0);
    breaker->state = TWI_BREAKER_OPEN;
    breaker->retry_at_ms = now_ms + wait_ms;
}

void twi_breaker_fail(struct twi_breaker *breaker, int64_t now_ms, uint64_t random) {
    int64_t most_ms = breaker->retry_max_ms != 0 ? breaker->retry_max_ms : TWI_BREAKER_RETRY_MAX_MS;
    int64_t ceiling_ms = TWI_BREAKER_BASE_MS;
    for (uint32_t i = 0; i < breaker->failures && ceiling_ms < most_ms; i++) ceiling_ms *= 2;
    if (ceiling_ms > most_ms) ceiling_ms = most_ms;
    if (breaker->failures < UINT32_MAX) breaker->failures++;
    int64_t span_ms = ceiling_ms > TWI_BREAKER_FLOOR_MS ? ceiling_ms - TWI_BREAKER_FLOOR_MS + 1 : 1;
    open_for(breaker, now_ms, TWI_BREAKER_FLOOR_MS + (int64_t)(random % (uint64_t)span_ms));
}

void twi_breaker_fail_slowly(struct twi_breaker *breaker, int64_t now_ms, uint64_t random) {
    twi_breaker_fail(breaker, now_ms, random);
    open_for(breaker, now_ms, TWI_BREAKER_SLOW_MS + (int64_t)(random % TWI_BREAKER_SLOW_MS));
}

void twi_breaker_succeed(struct twi_breaker *breaker) {
    *breaker = (struct twi_breaker){.state = TWI_BREAKER_CLOSED, .retry_max_ms = breaker->retry_max_ms};
}

bool twi_breaker_may_try(struct twi_breaker *breaker, int64_t now_ms) {
    twi_check(breaker->state == TWI_BREAKER_CLOSED || breaker->state == TWI_BREAKER_OPEN ||
              breaker->state == TWI_BREAKER_TRYING);
    if (breaker->state == TWI_BREAKER_OPEN && now_ms < breaker->retry_at_ms) return false;
    breaker->state = TWI_BREAKER_TRYING;
    return true;
}

void twi_breaker_nudge(struct twi_breaker *breaker, int64_t now_ms) {
    if (breaker->state == TWI_BREAKER_OPEN && breaker->retry_at_ms > now_ms) breaker->retry_at_ms = now_ms;
}

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

/* ---- estimate ---- */

#define HALF_US 5000000 /* a measurement is used for five to ten seconds */
#define MIB (INT64_C(1) << 20)
#define FAST_US 250          /* a request that is sent within this time measures the round trip, even if it is heavy */
#define PACE_MAX 64000000    /* 16 KiB a second; the bound of the pace after a passed deadline */
#define PASSING_MAX_MS 60000 /* the most that bytes may add to a reply's time */
#define WAYS 4               /* a reply may need so many round trips */
#define SLOWER_TIMES 8       /* one reply changes the pace by at most this, because it may have been delayed */
#define FASTER_TIMES 4
#define DEADLINE_PART 8 /* a reply removes this part of the pace that came from passed deadlines */

static int64_t earlier_or(int64_t a, int64_t b) {
    return a == 0 || (b != 0 && b < a) ? b : a;
}

static int64_t greater(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t least_of(const struct twi_least *least) {
    return earlier_or(least->of[0], least->of[1]);
}

static void note_least(struct twi_least *least, int64_t value, int64_t now_us) {
    twi_check(value >= 0);
    int64_t passed_us = now_us - least->half_us;
    if (passed_us >= HALF_US || passed_us < 0) {
        least->of[1] = passed_us < 2 * HALF_US ? least->of[0] : 0;
        least->of[0] = 0;
        least->half_us = now_us;
    }
    least->of[0] = earlier_or(least->of[0], value);
}

static int64_t passing_us(uint64_t bytes, int64_t pace) {
    twi_check(pace >= 0);
    int64_t size = bytes < (UINT64_C(1) << 30) ? (int64_t)bytes : INT64_C(1) << 30;
    return size * pace / MIB;
}

/* Returns the pace for calculations. */
static int64_t pace_of(const struct twi_estimate *estimate) {
    return greater(estimate->pace, estimate->deadline_pace);
}

static void note_pace(struct twi_estimate *estimate, const struct twi_measure *measure, int64_t now_us) {
    twi_check(measure->bytes != 0);
    int64_t passed_us = measure->took_us - measure->work_us;
    if (measure->is_alone) passed_us -= twi_estimate_way_us(estimate);
    if (passed_us < 0) passed_us = 0;
    if (passed_us > 1000 * (int64_t)PASSING_MAX_MS) passed_us = 1000 * (int64_t)PASSING_MAX_MS;
    int64_t pace = passed_us * MIB / (int64_t)measure->bytes + 1, before = estimate->pace;
    note_least(&estimate->best, pace, now_us);
    if (before != 0 && pace > before * SLOWER_TIMES) pace = before * SLOWER_TIMES;
    if (pace < before / FASTER_TIMES) pace = before / FASTER_TIMES;
    estimate->pace = pace;
    estimate->deadline_pace -= estimate->deadline_pace / DEADLINE_PART;
    if (estimate->deadline_pace <= pace) estimate->deadline_pace = 0;
}

static void note_way(struct twi_estimate *estimate, const struct twi_measure *measure, int64_t now_us) {
    int64_t way_us = greater(measure->took_us - measure->work_us, 1);
    if (estimate->by_latest)
        estimate->way_us = (struct twi_least){.of = {way_us, 0}, .half_us = now_us};
    else
        note_least(&estimate->way_us, way_us, now_us);
}

void twi_estimate_note(struct twi_estimate *estimate, const struct twi_measure *measure, int64_t now_us) {
    bool is_light = measure->bytes < TWI_ESTIMATE_LIGHT;
    if (!is_light) note_pace(estimate, measure, now_us);
    if (measure->is_alone && (is_light || passing_us(measure->bytes, estimate->pace) <= FAST_US))
        note_way(estimate, measure, now_us);
}

void twi_estimate_answered(struct twi_estimate *estimate) {
    estimate->timeouts = 0;
}

void twi_estimate_timed_out(struct twi_estimate *estimate, uint64_t bytes, int64_t waited_ms) {
    if (estimate->timeouts < TWI_ESTIMATE_TIMES_MAX) estimate->timeouts++;
    if (bytes < TWI_ESTIMATE_LIGHT || waited_ms <= 0) return;
    int64_t pace = waited_ms < PASSING_MAX_MS ? waited_ms * 1000 * MIB / (int64_t)bytes : PACE_MAX;
    estimate->deadline_pace = greater(estimate->deadline_pace, pace < PACE_MAX ? pace : PACE_MAX);
}

void twi_estimate_forget(struct twi_estimate *estimate) {
    *estimate = (struct twi_estimate){
        .by_latest = estimate->by_latest, .deadline_pace = estimate->deadline_pace, .timeouts = estimate->timeouts};
}

int64_t twi_estimate_way_us(const struct twi_estimate *estimate) {
    return least_of(&estimate->way_us);
}

int64_t twi_estimate_distance_us(const struct twi_estimate *estimate) {
    return twi_estimate_way_us(estimate) + passing_us(TWI_ESTIMATE_LIGHT, least_of(&estimate->best));
}

uint32_t twi_estimate_timeout_ms(const struct twi_estimate *estimate) {
    int64_t ms = (twi_estimate_way_us(estimate) * WAYS + 999) / 1000;
    if (ms > TWI_TIMEOUT_MOST_MS) return TWI_TIMEOUT_MOST_MS;
    return ms > TWI_TIMEOUT_LEAST_MS ? (uint32_t)ms : TWI_TIMEOUT_LEAST_MS;
}

uint64_t twi_estimate_bytes(const struct twi_estimate *estimate, uint32_t timeout_ms) {
    int64_t pace = pace_of(estimate), time_us = twi_estimate_way_us(estimate) + 2500 * (int64_t)timeout_ms;
    if (pace == 0) return TWI_ESTIMATE_BYTES_UNKNOWN;
    if (time_us > INT64_MAX / MIB) time_us = INT64_MAX / MIB;
    return (uint64_t)greater(time_us * MIB / pace, TWI_ESTIMATE_BYTES_MIN);
}

int64_t twi_estimate_wait_ms(const struct twi_estimate *estimate, uint32_t timeout_ms, uint64_t bytes,
                             bool is_greeting) {
    twi_check(timeout_ms != 0);
    int64_t most_ms = (int64_t)timeout_ms * TWI_ESTIMATE_TIMES_MAX, ms = timeout_ms;
    int64_t far_ms = twi_estimate_way_us(estimate) / 1000 * WAYS,
            passing_ms = passing_us(bytes, pace_of(estimate)) / 500;
    for (uint32_t i = 0; i < estimate->timeouts; i++) ms *= 2;
    ms = greater(ms, far_ms);
    if (is_greeting || ms > most_ms) ms = most_ms;
    return ms + (passing_ms < PASSING_MAX_MS ? passing_ms : PASSING_MAX_MS);
}
