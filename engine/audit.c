/* audit.c -- tw_audit() checks the options and gathers the values that only the engine has (its families' names, its
 * ledgers' numbers). sync/audit/audit.c sends the requests, over a separate connection.
 * Always true: it changes no state, here or in Redis. The turn is held only while a few words are copied. */
#include "engine/audit.h"

#include "engine/ask/lease_reclaim.h"
#include "engine/core/family.h"
#include "engine/core/operation.h"
#include "engine/core/options.h"
#include "engine/base/grow.h"
#include "engine/base/key_slot.h"
#include "engine/turn/turn.h"
#include "engine/base/threads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KEYS_DEFAULT UINT64_C(10000000)

void tw_audit_options_init_sized(tw_audit_options *options, size_t size) {
    if (options == NULL) return;
    memset(options, 0, size);
    options->size = size;
}

static tw_status refuse(const tw_audit_options *in, const char *text) {
    twi_check(text != NULL);
    return twi_options_refuse(in->error_text, in->error_size, "%s", text);
}

/* %k occurs once, and never in the name of a sorted set. %t occurs at most once, in separate braces, before %k and
 * before any other brace (key_template.c). */
static bool name_is_good(const char *name, bool is_zset) {
    const char *tag = strstr(name, "{%t}");
    unsigned keys = 0, tags = 0;
    if (tag && memchr(name, '{', (size_t)(tag - name))) return false;
    for (; *name; name++) {
        if (*name != '%') continue;
        if (*++name == 'k')
            keys++;
        else if (*name == 't' && keys == 0 && tag && name == tag + 2)
            tags++;
        else if (*name != '%')
            return false;
    }
    return is_zset ? keys + tags == 0 : keys == 1 && tags <= 1;
}

static tw_status check_totals(const tw_audit_options *in, tw_audit_options *out) {
    bool is_zset = out->redis_shape == TW_REDIS_ZSET;
    if (out->redis_shape > TW_REDIS_ZSET)
        return refuse(in, "redis_shape: neither TW_REDIS_STRING, TW_REDIS_HASH nor TW_REDIS_ZSET");
    if (out->key_separator != '\0' && out->redis_shape != TW_REDIS_HASH)
        return refuse(in, "key_separator: belongs to redis_shape = TW_REDIS_HASH");
    if (is_zset && !out->totals_name && out->totals_path)
        return refuse(in, "totals_name: missing; it is the name of the sorted set");
    if (out->totals_name && !name_is_good(out->totals_name, is_zset))
        return refuse(in, is_zset ? "totals_name: of a sorted set it has neither %k nor {%t}, and %% for a percent sign"
                                  : "totals_name: %k once, before it perhaps {%t}, and %% for a percent sign");
    if (!twi_key_slot_tags_fit(out->redis_tags)) return refuse(in, TWI_OPTIONS_TAGS_REFUSED);
    if (out->redis_tags == 0) out->redis_tags = TWI_OPTIONS_TAGS_DEFAULT;
    if (out->key_separator == '\0') out->key_separator = TWI_OPTIONS_SEPARATOR_DEFAULT;
    if (!out->totals_name) out->totals_name = "%k";
    return TW_OK;
}

static bool has_tls(const tw_audit_options *options) {
    return options->redis_tls_ca_file || options->redis_tls_cert_file || options->redis_tls_key_file ||
           options->redis_tls_server_name || options->redis_tls_insecure;
}

static tw_status check(const tw_audit_options *in, bool has_engine, tw_audit_options *out) {
    *out = (tw_audit_options){0};
    if (in == NULL) return twi_refuse(TW_ERR_OPTIONS, "options: NULL; fill them by tw_audit_options_init()");
    size_t first = offsetof(tw_audit_options, timeout_ms) + sizeof out->timeout_ms;
    if (in->size < first || in->size > 4096)
        return twi_refuse(TW_ERR_OPTIONS, "size: the struct was not filled by tw_audit_options_init()");
    memcpy(out, in, in->size < sizeof *out ? in->size : sizeof *out);
    if (!has_engine && !in->redis_url) return refuse(in, "redis_url: missing, and there is no engine");
    if (has_engine && (in->redis_url || in->redis_prefix)) return refuse(in, "redis_url: the engine has its own");
    if (has_engine && has_tls(out)) return refuse(in, "redis_tls_*: the engine has its own");
    if (in->timeout_ms > 600000) return refuse(in, "timeout_ms: must be within 1..600000");
    if (out->timeout_ms == 0) out->timeout_ms = 1000;
    if (out->keys_max == 0) out->keys_max = KEYS_DEFAULT;
    return check_totals(in, out);
}

/* ---- names as patterns ------------------------------------------------------------------------------------------- */

/* Makes a pattern for all names of the family, for the MATCH of SCAN. Returns NULL if there is no memory. */
static char *pattern_of(const struct twi_key_template *template) {
    char *pattern = malloc(TWI_KEY_TEMPLATE_GLOB_MAX);
    if (pattern) twi_key_template_glob(template, "", pattern);
    return pattern;
}

struct patterns {
    char **all;
    size_t count;
};

static void patterns_free(struct patterns *patterns) {
    for (size_t i = 0; i < patterns->count; i++) free(patterns->all[i]);
    free(patterns->all);
}

static tw_status gather(struct twi_roster *roster, struct patterns *patterns) {
    tw_status status = TW_OK;
    twi_lock(&roster->lock);
    for (struct tw_family *family = twi_load_acquire(&roster->first); family != NULL && status == TW_OK;
         family = twi_load_acquire(&family->entry.next)) {
        if (!family->kind.synced || family->options.window == TW_WINDOW_FOREVER) continue;
        char **all = realloc(patterns->all, (patterns->count + 1) * sizeof *all);
        if (all) patterns->all = all;
        char *pattern = all ? pattern_of(&family->template) : NULL;
        if (pattern)
            all[patterns->count++] = pattern;
        else
            status = twi_refuse(TW_ERR_MEMORY, NULL);
    }
    twi_unlock(&roster->lock);
    return status;
}

/* ---- the call ---------------------------------------------------------------------------------------------------- */

static bool take_turn(tw_engine *engine, uint32_t timeout_ms) {
    int64_t deadline_ms = twi_login_mono_ms() + timeout_ms;
    while (!twi_turn_take(engine)) {
        if (twi_login_mono_ms() >= deadline_ms || !twi_login_goes_on(engine)) return false;
        twi_event_count_wait(&engine->turn.ended, twi_event_count_value(&engine->turn.ended), 1);
    }
    return true;
}

/* The caller frees `*own`. */
static tw_status read_own(tw_engine *engine, uint32_t timeout_ms, struct twi_audit_own **own, size_t *count) {
    twi_check(own != NULL && count != NULL);
    if (!take_turn(engine, timeout_ms)) return twi_refuse(TW_ERR_TIMEOUT, "timeout_ms: the engine's turn took longer");
    bool done = engine->here->remote.driver->own(engine->here->remote.sync, own, count);
    twi_turn_leave(engine);
    return done ? TW_OK : twi_refuse(TW_ERR_MEMORY, NULL);
}

static tw_status audit_engine(tw_engine *engine, struct twi_audit *audit, tw_audit_options *options) {
    struct patterns patterns = {0};
    struct twi_audit_own *own = NULL;
    tw_status status = twi_guard_may_wait(engine);
    if (status != TW_OK) return status;
    status = twi_guard_engine(engine);
    if (status == TW_OK) status = twi_guard_redis(engine);
    if (status != TW_OK) return status;
    twi_login_of_engine(engine, options, audit);
    status = read_own(engine, options->timeout_ms, &own, &audit->own_count);
    audit->own = own;
    if (status == TW_OK && !options->pattern) status = gather(&engine->roster, &patterns);
    if (!options->pattern) audit->patterns = (const char *const *)patterns.all, audit->pattern_count = patterns.count;
    if (status == TW_OK) status = engine->here->remote.driver->audit(audit);
    patterns_free(&patterns);
    free(own);
    return status;
}

static tw_status compare(tw_engine *engine, const tw_audit_options *in, tw_audit_options *options,
                         struct twi_audit *audit) {
    if (options->pattern) audit->patterns = &options->pattern, audit->pattern_count = 1;
    if (engine != NULL) return audit_engine(engine, audit, options);
    const tw_options server = {.redis_url = options->redis_url,
                               .sentinel_user = options->sentinel_user,
                               .sentinel_password = options->sentinel_password,
                               .sentinel_password_ctx = options->sentinel_password_ctx,
                               .redis_tls_ca_file = options->redis_tls_ca_file,
                               .redis_tls_cert_file = options->redis_tls_cert_file,
                               .redis_tls_key_file = options->redis_tls_key_file,
                               .redis_tls_server_name = options->redis_tls_server_name,
                               .redis_tls_insecure = options->redis_tls_insecure};
    audit->server = &server;
    const struct twi_driver *driver = twi_driver_find();
    if (driver != NULL) return driver->audit(audit);
    (void)refuse(in, "redis_url: this library was built without Redis");
    return twi_refuse(TW_ERR_REDIS, "redis_url: this library was built without Redis");
}

tw_status tw_audit_sized(tw_engine *engine, const tw_audit_options *in,
                         void (*found)(void *ctx, const tw_finding *finding), void *ctx, tw_audit_report *report,
                         size_t size) {
    tw_audit_options options;
    tw_status status = check(in, engine != NULL, &options);
    if (status != TW_OK) return status;
    tw_audit_report whole = {.memory_used = -1, .memory_max = -1, .evicted = -1};
    struct twi_audit audit = {.options = &options,
                              .mono_ms = twi_login_mono_ms,
                              .found = found,
                              .ctx = ctx,
                              .report = &whole,
                              .goes_on = twi_login_goes_on,
                              .engine = engine};
    status = compare(engine, in, &options, &audit);
    if (report != NULL) twi_sized_copy(report, size, &whole, sizeof whole);
    return status;
}

/* ---- periodic audits
 * ---------------------------------------------------------------------------------------------- */

#define FIRST_BYTES 160

struct first {
    bool any;
    char text[FIRST_BYTES]; /* the sentence of the first finding, and the name that it is about */
};

static void note_first(void *ctx, const tw_finding *finding) {
    struct first *first = ctx;
    if (first->any) return;
    first->any = true;
    int used = snprintf(first->text, sizeof first->text, "%.100s ", finding->text);
    const unsigned char *name = finding->name.data;
    for (size_t i = 0; i < finding->name.size && used + 5 < FIRST_BYTES; i++) {
        bool plain = name[i] > ' ' && name[i] < 127 && name[i] != '\\';
        used += snprintf(first->text + used, sizeof first->text - (size_t)used, plain ? "%c" : "\\x%02x", name[i]);
    }
}

/* A thread that logs has to own the turn. */
static void publish(tw_engine *engine, tw_status status, const char *error, const tw_audit_report *report,
                    const struct first *first) {
    if (!take_turn(engine, UINT32_MAX)) return;
    if (status != TW_OK)
        twi_port_log(engine, TW_LOG_WARNING, TW_EVENT_AUDIT, "an audit failed: %s", error);
    else if (report->findings)
        twi_port_log(engine, TW_LOG_WARNING, TW_EVENT_AUDIT, "an audit found %llu differences; the first: %s",
                     (unsigned long long)report->findings, first->text);
    else
        twi_port_log(engine, TW_LOG_INFO, TW_EVENT_AUDIT, "an audit found no difference: %llu ledgers, %llu keys",
                     (unsigned long long)report->ledgers, (unsigned long long)report->keys);
    twi_turn_leave(engine);
}

static void audit_once(tw_engine *engine) {
    twi_check(!engine->life.host_driven);
    char error[256] = "";
    struct first first = {.any = false};
    tw_audit_options options;
    tw_audit_report report;
    tw_audit_options_init(&options);
    options.error_text = error;
    options.error_size = sizeof error;
    tw_status status = tw_audit(engine, &options, note_first, &first, &report);
    if (!twi_login_goes_on(engine)) return;
    twi_port_count(engine, audits, status == TW_OK);
    twi_stat_set(engine, offsetof(tw_stats, audit_findings), status == TW_OK ? (int64_t)report.findings : -1);
    publish(engine, status, error[0] ? error : tw_status_text(status), &report, &first);
}

/* Returns true when the audit is due, false when the thread has to stop. */
static bool sleep_until_due(tw_engine *engine) {
    struct twi_auditor *auditor = &engine->here->auditor;
    struct timespec due;
    twi_clock_system_monotonic(&due);
    int64_t ns = due.tv_nsec + (int64_t)(engine->options.audit_interval_ms % 1000) * 1000000;
    due.tv_sec += engine->options.audit_interval_ms / 1000 + ns / 1000000000;
    due.tv_nsec = ns % 1000000000;
    twi_lock(&auditor->lock);
    int result = 0;
    while (!auditor->stops && result == 0) result = pthread_cond_timedwait(&auditor->wake, &auditor->lock, &due);
    bool stops = auditor->stops;
    twi_unlock(&auditor->lock);
    return !stops;
}

static void *run_audits(void *arg) {
    while (sleep_until_due(arg)) audit_once(arg);
    return NULL;
}

tw_status twi_audit_start(tw_engine *engine) {
    struct twi_auditor *auditor = &engine->here->auditor;
    if (engine->options.audit_interval_ms == 0 || engine->here->remote.sync == NULL) return TW_OK;
    pthread_condattr_t by_monotonic;
    pthread_condattr_init(&by_monotonic);
    pthread_condattr_setclock(&by_monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&auditor->lock, NULL);
    pthread_cond_init(&auditor->wake, &by_monotonic);
    pthread_condattr_destroy(&by_monotonic);
    auditor->stops = false;
    auditor->runs = twi_own_thread_start(&auditor->thread, run_audits, engine);
    return auditor->runs ? TW_OK : twi_refuse(TW_ERR_MEMORY, "no thread could be started");
}

void twi_audit_stop(tw_engine *engine) {
    struct twi_auditor *auditor = &engine->here->auditor;
    if (!auditor->runs) return;
    twi_lock(&auditor->lock);
    auditor->stops = true;
    pthread_cond_signal(&auditor->wake);
    twi_unlock(&auditor->lock);
    pthread_join(auditor->thread, NULL);
    auditor->runs = false;
    pthread_cond_destroy(&auditor->wake);
    pthread_mutex_destroy(&auditor->lock);
}
