/* spoilt.c -- see spoilt.h. */
#include "sync/ask/spoilt.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/atomic.h"
#include "engine/base/check.h"
#include "engine/base/lock.h"
#include "engine/port/services.h"
#include "sync/wire/fnv.h"

#define NAME_BYTES 120u /* of a key's name */
#define LOG_EVERY_MS 1000
#define SAME_MS (10 * INT64_C(60000)) /* what is said again after that is news */

void twi_spoilt_begin(struct twi_spoilt *spoilt) {
    pthread_mutex_init(&spoilt->lock, NULL);
}

void twi_spoilt_end(struct twi_spoilt *spoilt) {
    pthread_mutex_destroy(&spoilt->lock);
}

/* Appends as many bytes as there is room for. Unprintable bytes become "?". */
static void put(char line[TWI_SPOILT_BYTES], const char *text, size_t size) {
    size_t used = strlen(line);
    twi_check(used < TWI_SPOILT_BYTES);
    for (size_t i = 0; i < size && used + 1 < TWI_SPOILT_BYTES; i++)
        line[used++] = text[i] >= ' ' && text[i] < 127 ? text[i] : '?';
    line[used] = '\0';
}

/* `line` begins empty. */
static void write_line(char line[TWI_SPOILT_BYTES], const struct twi_request *request, const char *why) {
    for (size_t i = 0; i < request->key_count; i++) {
        size_t size = request->keys[i].size;
        if (i != 0) put(line, ", ", 2);
        put(line, request->keys[i].data, size < NAME_BYTES ? size : NAME_BYTES);
    }
    put(line, ": ", 2);
    put(line, why, strlen(why) < NAME_BYTES ? strlen(why) : NAME_BYTES);
}

static bool is_known(const struct twi_spoilt *spoilt, uint64_t hash) {
    for (uint32_t i = 0; i < TWI_SPOILT_KNOWN; i++)
        if (spoilt->known[i] == hash) return true;
    return false;
}

static void leave(struct twi_spoilt *spoilt, const char *line, bool is_refusal, int64_t now_ms) {
    char when[32];
    snprintf(when, sizeof when, "%" PRId64, now_ms / SAME_MS);
    uint64_t hash = twi_fnv_add(twi_fnv_add(TWI_FNV_BEGIN, line, strlen(line)), when, strlen(when));
    twi_lock(&spoilt->lock);
    uint32_t waiting = twi_load_relaxed(&spoilt->waiting); /* only changed under the lock */
    twi_check(waiting <= TWI_SPOILT_LINES);
    if (waiting < TWI_SPOILT_LINES && !is_known(spoilt, hash)) {
        spoilt->known[spoilt->known_next++ % TWI_SPOILT_KNOWN] = hash;
        snprintf(spoilt->lines[waiting], sizeof spoilt->lines[waiting], "%s", line);
        spoilt->are_refusals[waiting] = is_refusal;
        twi_store_relaxed(&spoilt->waiting, waiting + 1);
    }
    twi_unlock(&spoilt->lock);
}

void twi_spoilt_note(struct twi_spoilt *spoilt, const struct twi_request *request, const char *why, int64_t now_ms) {
    char line[TWI_SPOILT_BYTES] = "";
    write_line(line, request, why);
    leave(spoilt, line, false, now_ms);
}

void twi_spoilt_refused(struct twi_spoilt *spoilt, const char *why, int64_t now_ms) {
    leave(spoilt, why, true, now_ms);
}

void twi_spoilt_log(struct twi_spoilt *spoilt, tw_engine *engine) {
    char line[TWI_SPOILT_BYTES];
    int64_t now_ms = twi_port_mono_ms(engine);
    if (twi_load_relaxed(&spoilt->waiting) == 0) return; /* a hint; the next turn sees lines that this one misses */
    if (spoilt->logged_ms != 0 && now_ms - spoilt->logged_ms < LOG_EVERY_MS) return;
    twi_lock(&spoilt->lock);
    uint32_t waiting = twi_load_relaxed(&spoilt->waiting) - 1;
    twi_check(waiting < TWI_SPOILT_LINES);
    bool is_refusal = spoilt->are_refusals[0];
    memcpy(line, spoilt->lines[0], sizeof line);
    memmove(spoilt->lines[0], spoilt->lines[1], waiting * sizeof spoilt->lines[0]);
    memmove(&spoilt->are_refusals[0], &spoilt->are_refusals[1], waiting * sizeof spoilt->are_refusals[0]);
    twi_store_relaxed(&spoilt->waiting, waiting);
    twi_unlock(&spoilt->lock);
    spoilt->logged_ms = now_ms != 0 ? now_ms : 1;
    if (is_refusal)
        twi_port_log(engine, TW_LOG_ERROR, TW_EVENT_REFUSED, "Redis refuses calls that wait: %s", line);
    else
        twi_port_log(engine, TW_LOG_ERROR, TW_EVENT_POISON,
                     "Redis cannot decide a call, for one of its keys holds something else: %s", line);
}
