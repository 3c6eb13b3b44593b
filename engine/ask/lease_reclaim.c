/* lease_reclaim.c -- tw_lease_reclaim() frees by hand the units of hard limits that a dead engine was granted. No clock
 * may do this. An engine that was only paused would spend the same units again (trap L3). Any unit that an engine had
 * in hand may have been sold in its last moments, so freeing one ends P4. The caller accepts that.
 * Always true: an engine whose heartbeat reached Redis within the last seconds is refused. */
#include "engine/ask/lease_reclaim.h"

#include "engine/ask/redis_call.h"
#include "engine/base/check.h"
#include "engine/base/key_slot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- login ---- */

int64_t twi_login_mono_ms(void) {
    struct timespec now;
    twi_clock_system_monotonic(&now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

bool twi_login_goes_on(tw_engine *engine) {
    return engine == NULL || !twi_load_acquire(&engine->life.stopped);
}

void twi_login_of_engine(tw_engine *engine, tw_audit_options *options, struct twi_audit *audit) {
    options->redis_prefix = engine->options.redis_prefix;
    audit->options = options;
    audit->server = &engine->options;
    audit->mono_ms = twi_login_mono_ms;
    audit->goes_on = twi_login_goes_on;
    audit->engine = engine;
}

/* ---- lease reclaim cluster ----
 * tw_lease_reclaim() in a Redis Cluster searches all masters for the engine's leases, over separate connections
 * (sync/audit/audit_servers.c), and a script frees one lease, on the master that has its slot by then (sync/ask).
 *
 *   1. the epochs (tw:leases:{14}), one for each slot with leases, that know the engine: did any hear of it just now?
 *   2. the leases of the family from which the engine has units
 * The script looks at the epoch of its slot again. So a lease that is met twice is freed once, and so is one whose
 * reply was lost. What was given back stays given back.
 * Always true: an engine whose heartbeat reached any store that was seen, within the last seconds, is refused, and
 * nothing is freed; neither is it if a store that knows the engine cannot say when it heard of it. A slot that cannot
 * be looked at stops no other, nor does a lease that cannot be freed. The error says how much of both there is. */

#define OTHERS_MAX 4u /* leases whose owners are looked up, for an error */

struct search_reclaim {
    tw_engine *engine;
    const char *instance;
    bool only_looks;
    const struct twi_key_template *template;
    int64_t freed;
    bool is_over;            /* the engine is alive, or the caller's is being closed */
    uint32_t unsaid;         /* epochs that list the engine without the time of its last heartbeat */
    uint64_t leases, unfree; /* leases that were found; of them, those that could not be freed */
    uint64_t fields;         /* leases of the family in which the engine has a field */
    uint32_t other_count;    /* number of leases in which it has no units */
    struct {
        size_t size;
        char text[TWI_OWN_NAME_MAX];
    } others[OTHERS_MAX];
    tw_status status; /* the first status that was not TW_OK */
    char why[200];    /* the reason for it */
};

static void note(struct search_reclaim *reclaim, tw_status status) {
    twi_check(status != TW_OK);
    reclaim->is_over = reclaim->is_over || status == TW_DENIED || status == TW_ERR_CLOSED;
    if (reclaim->status != TW_OK && !reclaim->is_over) return;
    reclaim->status = status;
    (void)snprintf(reclaim->why, sizeof reclaim->why, "%s", tw_error_text());
}

/* Runs the script for one lease; If `lease` is NULL, only the epoch is looked at. Returns false if Redis did not do
 * it. */
static bool run_search(struct search_reclaim *reclaim, tw_key epoch, const tw_key *lease) {
    struct twi_redis_call call;
    twi_redis_call_begin(&call, TWI_SCRIPT_RECLAIM);
    call.keys[call.request.key_count++] = epoch;
    char counter[TWI_REDIS_CALL_NAME_MAX];
    if (lease != NULL) {
        call.keys[call.request.key_count++] = *lease;
        size_t size = twi_key_template_counter_of(reclaim->template, "lease", *lease, counter);
        call.keys[call.request.key_count++] = tw_bytes(counter, size);
    }
    twi_redis_call_text(&call, reclaim->only_looks ? "look" : "free");
    twi_redis_call_text(&call, reclaim->instance);
    twi_redis_call_text(&call, lease != NULL ? "" : "0");
    enum twi_request_outcome outcome = twi_redis_call_run(&call, reclaim->engine);
    bool is_done = outcome == TWI_REQUEST_DONE && call.answer.value_count == 3;
    if (is_done) reclaim->freed += twi_result_number(&call.result, 1);
    if (is_done) return true;
    bool is_alive = twi_result_is(&call.result, "ALIVE");
    note(reclaim, is_alive ? TW_DENIED : twi_redis_call_refuse(reclaim->engine, outcome));
    return false;
}

/* ---- epochs ---- */

static bool knows(void *ctx, tw_key name, const char *value) {
    (void)ctx, (void)name;
    return value != NULL;
}

static bool found_epoch(void *ctx, tw_key name) {
    struct search_reclaim *reclaim = ctx;
    if (!run_search(reclaim, name, NULL)) reclaim->unsaid++;
    return !reclaim->is_over;
}

/* ---- leases ---- */

/* "connection granted returned spent risk" (lease.lua). */
static bool has_units(void *ctx, tw_key name, const char *value) {
    struct search_reclaim *reclaim = ctx;
    if (value != NULL) reclaim->fields++;
    if (value == NULL && reclaim->other_count < OTHERS_MAX && name.size <= sizeof reclaim->others[0].text) {
        memcpy(reclaim->others[reclaim->other_count].text, name.data, name.size);
        reclaim->others[reclaim->other_count++].size = name.size;
    }
    if (value == NULL) return false;
    long long numbers[4] = {0};
    for (int i = 0; i < 4; i++) {
        char *end;
        numbers[i] = strtoll(value, &end, 10);
        if (end == value) return false;
        value = end;
    }
    return numbers[1] - numbers[2] - numbers[3] > 0;
}

/* Returns the epoch of the lease's slot. `out` has room for TWI_REDIS_CALL_NAME_MAX bytes. */
static tw_key epoch_of(const struct search_reclaim *reclaim, tw_key lease, char *out) {
    twi_check(reclaim->engine->here->remote.shorts != NULL && lease.size != 0);
    uint32_t number = reclaim->engine->here->remote.shorts[twi_key_slot_of(lease.data, lease.size)];
    int size =
        snprintf(out, TWI_REDIS_CALL_NAME_MAX, "%stw:leases:{%u}", twi_port_prefix(reclaim->engine), (unsigned)number);
    return tw_bytes(out, (size_t)size);
}

static bool found_lease(void *ctx, tw_key name) {
    twi_check(name.size != 0);
    struct search_reclaim *reclaim = ctx;
    if (reclaim->unsaid != 0) return false;
    char epoch[TWI_REDIS_CALL_NAME_MAX];
    reclaim->leases++;
    if (!run_search(reclaim, epoch_of(reclaim, name, epoch), &name)) reclaim->unfree++;
    return !reclaim->is_over;
}

/* ---- all ---- */

/* If a template has no tag, a lease's name begins with that of its slot, unless the key has a tag
 * (twi_key_template_own()). */
static tw_status search(tw_family *family, struct search_reclaim *reclaim) {
    twi_check(family->engine->here->remote.driver->search != NULL && reclaim->template == &family->template);
    char epochs[2 * TWI_KEY_TEMPLATE_FRAME_BYTES_MAX + 48], field[48];
    char patterns[2][TWI_KEY_TEMPLATE_GLOB_MAX];
    struct twi_search searches[3] = {
        {.pattern = epochs, .field = field, .is_wanted = knows, .found = found_epoch, .ctx = reclaim},
        {.pattern = patterns[0],
         .field = reclaim->instance,
         .is_wanted = has_units,
         .found = found_lease,
         .ctx = reclaim}};
    tw_audit_options options = {.size = sizeof options, .timeout_ms = twi_port_timeout_ms(family->engine)};
    struct twi_audit audit = {0};
    options.keys_max = UINT64_MAX;
    twi_login_of_engine(family->engine, &options, &audit);
    twi_glob_names(twi_port_prefix(family->engine), "tw:leases:{*}", epochs, sizeof epochs);
    (void)snprintf(field, sizeof field, "i:%s", reclaim->instance);
    twi_key_template_glob(&family->template, "tw:lease:", patterns[0]);
    twi_key_template_glob(&family->template, "tw:lease:{[0-9]*}", patterns[1]);
    searches[2] = searches[1];
    searches[2].pattern = patterns[1];
    return family->engine->here->remote.driver->search(&audit, searches, family->template.tags != NULL ? 2 : 3);
}

/* Writes one sentence about the masters that were not seen (the search's sentence), the missing times, or the leases
 * that were not freed. */
static tw_status refuse(const struct search_reclaim *reclaim, tw_status searched) {
    twi_check(searched != TW_OK || reclaim->status != TW_OK);
    char seen[300] = "Redis: incomplete";
    if (searched != TW_OK) (void)snprintf(seen, sizeof seen, "%s", tw_error_text());
    tw_status status = searched != TW_OK ? searched : reclaim->status;
    if (reclaim->unsaid != 0)
        return twi_refuse_with(status,
                               "%s; nothing was freed: %u of the stores that know the engine did not say when they "
                               "heard of it: %s",
                               seen, (unsigned)reclaim->unsaid, reclaim->why);
    return twi_refuse_with(status, "%s; %llu of %llu leases that were found could not be freed: %s", seen,
                           (unsigned long long)reclaim->unfree, (unsigned long long)reclaim->leases, reclaim->why);
}

/* No epoch lists the instance. Looks up who has the leases. */
static tw_status refuse_unknown(struct search_reclaim *reclaim, const char *family) {
    char known[200] = "", epoch[TWI_REDIS_CALL_NAME_MAX];
    twi_check(reclaim->other_count <= OTHERS_MAX);
    if (reclaim->other_count == 0)
        return twi_refuse_with(TW_ERR_UNKNOWN_TOKEN, "family: Redis has no lease of family \"%s\"", family);
    for (uint32_t i = 0; i < reclaim->other_count && known[0] == '\0'; i++) {
        struct twi_redis_call call;
        tw_key lease = tw_bytes(reclaim->others[i].text, reclaim->others[i].size);
        twi_redis_call_begin(&call, TWI_SCRIPT_RECLAIM);
        call.keys[call.request.key_count++] = epoch_of(reclaim, lease, epoch);
        call.keys[call.request.key_count++] = lease;
        twi_redis_call_text(&call, "who");
        twi_redis_call_text(&call, reclaim->instance);
        call.request.wants_long = true;
        if (twi_redis_call_run(&call, reclaim->engine) == TWI_REQUEST_DONE && call.answer.long_size != 0)
            (void)snprintf(known, sizeof known, "%.*s", (int)call.answer.long_size, call.answer.long_text);
        free(call.answer.long_text);
    }
    return twi_refuse_with(TW_ERR_UNKNOWN_TOKEN, "instance: it has no lease of family \"%s\"; these have: %s", family,
                           known);
}

tw_status twi_lease_reclaim_cluster(tw_family *family, const char *instance, bool only_looks, int64_t *units) {
    struct search_reclaim reclaim = {.engine = family->engine,
                                     .instance = instance,
                                     .only_looks = only_looks,
                                     .template = &family->template,
                                     .status = TW_OK};
    tw_status status = search(family, &reclaim);
    *units = reclaim.freed;
    if (reclaim.is_over) return reclaim.status;
    if (status != TW_OK || reclaim.status != TW_OK) return reclaim.status != TW_OK ? refuse(&reclaim, status) : status;
    return reclaim.fields == 0 ? refuse_unknown(&reclaim, family->options.name) : TW_OK;
}

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
    twi_redis_call_begin(redis_call, TWI_SCRIPT_RECLAIM);
    redis_call->keys[redis_call->request.key_count++] = tw_str(reclaim->epoch);
    twi_redis_call_text(redis_call, what);
    twi_redis_call_text(redis_call, reclaim->instance);
}

static tw_status run(struct reclaim *reclaim, struct twi_redis_call *redis_call, size_t said) {
    enum twi_request_outcome outcome = twi_redis_call_run(redis_call, reclaim->engine);
    if (outcome != TWI_REQUEST_DONE) return twi_redis_call_refuse(reclaim->engine, outcome);
    if (twi_result_is(&redis_call->result, "ALIVE")) return TW_DENIED;
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
    reclaim->freed += twi_result_number(&redis_call.result, 1);
    reclaim->fields += twi_result_number(&redis_call.result, 2);
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
    tw_request call;
    twi_call_by_thread(&call, 0);
    tw_status status = twi_redis_call_may(family->engine, &call);
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
    TWI_NEED(family);
    TWI_NEED(instance);
    return reclaim_of(family, instance, false, units);
}

tw_status tw_lease_stranded(tw_family *family, const char *instance, int64_t *units) {
    TWI_NEED(family);
    TWI_NEED(instance);
    return reclaim_of(family, instance, true, units);
}
