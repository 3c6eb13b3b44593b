/* lease_reclaim.c -- tw_lease_reclaim() frees by hand the units of hard limits that a dead engine was granted. No clock
 * may do this. An engine that was only paused would spend the same units again (trap L3). Any unit that an engine had
 * in hand may have been sold in its last moments, so freeing one ends P4. The caller accepts that.
 * Always true: an engine whose heartbeat reached Redis within the last seconds is refused. */
#include "engine/ask/lease_reclaim_cluster.h"
#include "engine/ask/redis_call.h"
#include "engine/base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INSTANCE_DIGITS 32u
#define LEASES_MAX 64u /* freed in one script, which takes some 100 microseconds */

static bool is_instance(const char *text) {
    return text != NULL && strlen(text) == INSTANCE_DIGITS && strspn(text, "0123456789abcdef") == INSTANCE_DIGITS;
}

struct reclaim {
    tw_engine *engine;
    const char *instance, *pattern;
    char epoch[TWI_REDIS_CALL_NAME_MAX];
    char cursor[80];
    bool only_looks;
    int64_t freed, fields; /* units; leases in which the engine has a field */
    char known[200];       /* instances that have leases of the family */
    uint64_t leases;       /* number of leases of the family */
};

static void begin(struct reclaim *reclaim, struct twi_redis_call *redis_call, const char *what) {
    twi_check(reclaim->engine != NULL && reclaim->epoch[0] != '\0');
    twi_redis_call_begin(redis_call, reclaim->engine, TWI_SCRIPT_RECLAIM, 0);
    redis_call->keys[redis_call->request.key_count++] = tw_str(reclaim->epoch);
    twi_redis_call_text(redis_call, what);
    twi_redis_call_text(redis_call, reclaim->instance);
}

static tw_status run(struct reclaim *reclaim, struct twi_redis_call *redis_call, size_t said) {
    enum twi_request_outcome outcome = twi_redis_call_run(redis_call, reclaim->engine);
    if (outcome != TWI_REQUEST_DONE) return twi_redis_call_refuse(reclaim->engine, outcome);
    if (twi_redis_call_is(redis_call, "ALIVE")) return TW_DENIED;
    return redis_call->answer.value_count == said ? TW_OK : twi_redis_call_refuse(reclaim->engine, outcome);
}

/* Whose leases these are, for an error. */
static tw_status ask_who(struct reclaim *reclaim, const tw_key *leases, size_t count) {
    twi_check(count != 0 && count <= LEASES_MAX);
    struct twi_redis_call redis_call;
    tw_key names[1 + LEASES_MAX];
    begin(reclaim, &redis_call, "who");
    names[0] = redis_call.keys[0];
    memcpy(names + 1, leases, count * sizeof *leases);
    redis_call.request.keys = names;
    redis_call.request.key_count += count;
    redis_call.request.wants_long = true;
    tw_status status = run(reclaim, &redis_call, 2);
    if (status == TW_OK && redis_call.answer.long_size != 0)
        (void)snprintf(reclaim->known, sizeof reclaim->known, "%.*s", (int)redis_call.answer.long_size,
                       redis_call.answer.long_text);
    free(redis_call.answer.long_text);
    return status;
}

/* Frees some leases of a page by one request that names each. */
static tw_status free_some(struct reclaim *reclaim, const char *page, size_t size, size_t *at) {
    twi_check(*at < size);
    struct twi_redis_call redis_call;
    tw_key names[1 + LEASES_MAX];
    begin(reclaim, &redis_call, reclaim->only_looks ? "look" : "free");
    names[0] = redis_call.keys[0];
    redis_call.request.keys = names;
    while (*at < size && redis_call.request.key_count <= LEASES_MAX)
        if (!twi_redis_call_next_text(page, size, at, &names[redis_call.request.key_count++]))
            return twi_redis_call_refuse(reclaim->engine, TWI_REQUEST_DONE);
    twi_redis_call_number(&redis_call, (int64_t)strlen(twi_port_prefix(reclaim->engine)));
    tw_status status = run(reclaim, &redis_call, 3);
    if (status != TW_OK) return status;
    reclaim->freed += twi_redis_call_number_at(&redis_call, 1);
    reclaim->fields += twi_redis_call_number_at(&redis_call, 2);
    reclaim->leases += redis_call.request.key_count - 1;
    twi_check(redis_call.request.key_count >= 2 && redis_call.request.key_count <= 1 + LEASES_MAX);
    if (reclaim->fields != 0 || reclaim->known[0] != '\0') return TW_OK;
    return ask_who(reclaim, names + 1, redis_call.request.key_count - 1);
}

static tw_status free_page(struct reclaim *reclaim) {
    struct twi_redis_call redis_call;
    begin(reclaim, &redis_call, "list");
    twi_redis_call_text(&redis_call, reclaim->cursor);
    twi_redis_call_text(&redis_call, reclaim->pattern);
    redis_call.request.wants_long = true;
    tw_status status = run(reclaim, &redis_call, 3);
    if (status == TW_OK) memcpy(reclaim->cursor, redis_call.answer.values[1].text, sizeof reclaim->cursor);
    for (size_t at = 0; status == TW_OK && at < redis_call.answer.long_size;)
        status = free_some(reclaim, redis_call.answer.long_text, redis_call.answer.long_size, &at);
    free(redis_call.answer.long_text);
    return status;
}

static tw_status reclaim_of(tw_family *family, const char *instance, bool only_looks, int64_t *units) {
    if (!family->kind.is_hard)
        return twi_refuse(TW_ERR_MODE, "limit_mode: tw_lease_reclaim() is for TW_LIMIT_HARD families");
    if (!is_instance(instance)) return twi_refuse(TW_ERR_UNKNOWN_TOKEN, "instance: not 32 digits of 0-9 and a-f");
    tw_status status = twi_redis_call_may(family->engine);
    if (status != TW_OK) return status;
    int64_t ignored;
    if (family->engine->here->remote.shorts != NULL)
        return twi_lease_reclaim_cluster(family, instance, only_looks, units != NULL ? units : &ignored);
    char pattern[TWI_KEY_TEMPLATE_GLOB_MAX];
    twi_key_template_glob(&family->template, "tw:lease:", pattern);
    struct reclaim reclaim = {
        .engine = family->engine, .instance = instance, .pattern = pattern, .cursor = "0", .only_looks = only_looks};
    (void)snprintf(reclaim.epoch, sizeof reclaim.epoch, "%stw:leases", twi_port_prefix(family->engine));
    do {
        status = free_page(&reclaim);
    } while (status == TW_OK && strcmp(reclaim.cursor, "0") != 0);
    if (units != NULL) *units = reclaim.freed;
    if (status != TW_OK || reclaim.fields != 0) return status;
    return twi_refuse_with(TW_ERR_UNKNOWN_TOKEN,
                           reclaim.leases == 0 ? "family: Redis has no lease of family \"%s\"%s"
                                               : "instance: it has no lease of family \"%s\"; these have: %s",
                           family->options.name, reclaim.known);
}

tw_status tw_lease_reclaim(tw_family *family, const char *instance, int64_t *units) {
    twi_check(family != NULL);
    return reclaim_of(family, instance, false, units);
}

tw_status tw_lease_stranded(tw_family *family, const char *instance, int64_t *units) {
    twi_check(family != NULL);
    return reclaim_of(family, instance, true, units);
}
