/* redis_call.c -- see redis_call.h. */
#include "engine/ask/redis_call.h"

#include "engine/core/call_guard.h"
#include "engine/core/report.h"

#include <inttypes.h>
#include <stdio.h>

tw_status twi_ask_may(tw_engine *engine) {
    tw_status status = twi_engine_may_wait(engine);
    if (status != TW_OK) return status;
    status = twi_engine_check_thread(engine);
    if (status != TW_OK) return status;
    return engine->sync == NULL || engine->driver->ask == NULL ? twi_store_refuse() : TW_OK;
}

void twi_asking_begin(struct twi_asking *asking, tw_engine *engine, enum twi_script script, uint32_t timeout_ms) {
    if (timeout_ms == 0) timeout_ms = engine->options.redis_timeout_ms;
    asking->used = 0;
    asking->ask = (struct twi_ask){.script = script, .keys = asking->keys, .args = asking->args};
    asking->ask.deadline_ms = twi_clock_mono_ms(&engine->clock) + timeout_ms;
}

static char *room(struct twi_asking *asking, size_t size) {
    twi_check(asking->used + size <= sizeof asking->text);
    return asking->text + asking->used;
}

void twi_asking_key(struct twi_asking *asking, const tw_family *family, const char *what, tw_key key,
                    int64_t start_ms) {
    char name[TWI_REDIS_KEY_MAX], *out = room(asking, TWI_ASK_NAME_MAX);
    size_t size = twi_template_render(&family->template, key, start_ms, what != NULL ? name : out);
    if (what != NULL) size = twi_template_own(&family->template, what, name, size, out);
    asking->keys[asking->ask.key_count++] = tw_bytes(out, size);
    asking->used += size;
}

void twi_asking_text(struct twi_asking *asking, const char *text) {
    size_t size = strlen(text) + 1;
    char *out = room(asking, size);
    memcpy(out, text, size);
    asking->used += size;
    asking->args[asking->ask.arg_count++] = tw_bytes(out, size - 1);
}

void twi_asking_number(struct twi_asking *asking, int64_t number) {
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRId64, number);
    twi_asking_text(asking, text);
}

enum twi_asked twi_asking_do(struct twi_asking *asking, tw_engine *engine) {
    return engine->driver->ask(engine->sync, &asking->ask);
}

void twi_asking_answered(tw_family *family) {
    if (twi_load_relaxed(&family->silent_since_ms) != 0) twi_store_relaxed(&family->silent_since_ms, 0);
}

/* Since the family's first question that was not answered, or since the engine's own connection failed, if that is longer: one clock
 * for a whole outage, also for who asks seldom. A hint: who is answered late ends the outage for those who are not. */
static int64_t silent_for_ms(tw_family *family) {
    int64_t now_ms = twi_clock_mono_ms(&family->engine->clock), since_ms = twi_load_relaxed(&family->silent_since_ms);
    if (since_ms == 0)
        twi_store_relaxed(&family->silent_since_ms, since_ms = now_ms); /* of two at once either will do */
    int64_t away_since_ms = twi_load_relaxed(&family->engine->leases.away_since_ms);
    if (away_since_ms != 0 && away_since_ms < since_ms) since_ms = away_since_ms;
    return now_ms - since_ms;
}

uint32_t twi_asking_policy(tw_family *family, enum twi_asked asked) {
    uint32_t policy = twi_load_relaxed(&family->on_outage), grace_ms = twi_load_relaxed(&family->outage_grace_ms);
    if (asked == TWI_ASKED_DONE) twi_asking_answered(family); /* no outage, but this key's own trouble */
    if (grace_ms == 0 || policy == TW_OUTAGE_SHARE || asked == TWI_ASKED_DONE) return policy;
    return silent_for_ms(family) < grace_ms ? TW_OUTAGE_LOCAL : policy;
}

bool twi_asking_falls_back_here(tw_family *family) {
    uint32_t policy = twi_load_relaxed(&family->on_outage);
    return policy == TW_OUTAGE_LOCAL || policy == TW_OUTAGE_SHARE || twi_load_relaxed(&family->outage_grace_ms) != 0;
}

tw_status twi_asking_refuse(tw_engine *engine, enum twi_asked asked) {
    if (twi_load_acquire(&engine->stopped)) return twi_refuse(TW_ERR_CLOSED, NULL);
    if (asked == TWI_ASKED_UNKNOWN)
        return twi_refuse(TW_ERR_TIMEOUT,
                          "redis_timeout_ms: Redis has not answered in time; it may have done what it was asked");
    char error[TWI_REPORT_ERROR_MAX];
    twi_report_error_text(&engine->report, error);
    const char *what = asked == TWI_ASKED_DONE      ? "its answer decides nothing (does the key hold something else?)"
                       : asked == TWI_ASKED_REFUSED ? "it refuses"
                                                    : "it is away, or all connections are in use";
    return twi_refuse_with(TW_ERR_REDIS, "Redis: %s%s%s", what, error[0] != '\0' ? "; its last error: " : "", error);
}

bool twi_asking_said(const struct twi_asking *asking, const char *word) {
    return asking->ask.said_count != 0 && strcmp(asking->ask.said[0].text, word) == 0;
}

int64_t twi_asking_told(const struct twi_asking *asking, size_t index) {
    return index < asking->ask.said_count && asking->ask.said[index].is_number ? asking->ask.said[index].number : 0;
}
