/* options.c -- see options.h. One function for each struct, one line for each field. A refusal names it first. */
#include "engine/core/options.h"

#include "engine/base/key_slot.h"
#include "engine/core/key_template.h"
#include "engine/core/log_stderr.h"
#include "engine/core/metric_labels.h"
#include "engine/port/extras.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A struct of a later header may be longer by some fields. A greater size is an uninitialised word. Reading that
 * many bytes would read memory that is not part of the struct. */
#define STRUCT_BYTES_MAX 4096

/* The sizes of these structs in the first version. No earlier struct was smaller. */
#define OPTIONS_BYTES_FIRST (offsetof(tw_options, lost_ctx) + sizeof(void *))
#define FAMILY_OPTIONS_BYTES_FIRST (offsetof(tw_family_options, closed_ctx) + sizeof(void *))

#define MEMORY_BYTES_DEFAULT (UINT64_C(1) << 30)
#define RETENTION_MS_DEFAULT TW_DAY
#define REPLAY_MS_DEFAULT 30000
#define IDLE_MS_DEFAULT TW_HOUR
#define IDLE_MS_MIN 100
#define ERROR_BYTES_PLAUSIBLE (1 << 20)
#define CALLS_MAX_DEFAULT 1024
#define REPLAY_BYTES_DEFAULT (UINT64_C(64) << 20)

void tw_options_init_sized(tw_options *options, size_t size) {
    if (options == NULL) return;
    memset(options, 0, size);
    options->size = size;
}

void tw_family_options_init_sized(tw_family_options *options, size_t size) {
    if (options == NULL) return;
    memset(options, 0, size);
    options->size = size;
}

/* ---- refusing ---------------------------------------------------------------------------------------------------- */

#define refuse(options, ...) twi_options_refuse((options)->error_text, (options)->error_size, __VA_ARGS__)

/* Both structs begin with these fields: size, error_text and error_size. */
struct head {
    size_t size;
    char *error_text;
    size_t error_size;
};
static_assert(offsetof(tw_options, error_size) == offsetof(struct head, error_size), "one head");
static_assert(offsetof(tw_family_options, error_size) == offsetof(struct head, error_size), "one head");

static bool is_zero(const unsigned char *bytes, size_t size) {
    for (size_t index = 0; index < size; index++)
        if (bytes[index] != 0) return false;
    return true;
}

/* The address for the reason is used only if the struct was filled. In another struct it may be any address. Then
 * only tw_error_text() has the reason. A struct of size 0 was probably zeroed and not initialised. Its head can then
 * be read, unless its error_size is longer than any buffer. */
static tw_status check_size(const void *options, size_t first, size_t known) {
    size_t size;
    memcpy(&size, options, sizeof size);
    if (size != 0 && size < first)
        return twi_refuse_with(TW_ERR_OPTIONS, "size: %zu bytes are fewer than this struct ever had", size);
    if (size > STRUCT_BYTES_MAX)
        return twi_refuse_with(TW_ERR_OPTIONS, "size: %zu bytes cannot be; is the struct initialised?", size);
    const struct head *head = options;
    if (size == 0) {
        bool is_plausible = head->error_size <= ERROR_BYTES_PLAUSIBLE;
        return twi_options_refuse(is_plausible ? head->error_text : NULL, head->error_size,
                                  "size: 0; fill the struct with its init function first");
    }
    if (size > known && !is_zero((const unsigned char *)options + known, size - known)) {
        return refuse(head, "size: a field is set that this version of the library does not know");
    }
    if (head->error_text != NULL && head->error_size > 0) head->error_text[0] = '\0';
    return TW_OK;
}

/* ---- the engine's options ------------------------------------------------------------------------------------- */

static tw_status check_range_32(const tw_options *in, const char *field, uint32_t value, uint32_t max) {
    twi_check(max != 0);
    if (value <= max) return TW_OK;
    return refuse(in, "%s: %u is not in 1..%u", field, value, max);
}

static tw_status check_memory(const tw_options *in) {
    if (in->memory_bytes_max == 0) return TW_OK;
    if (in->memory_bytes_max < TWI_MEMORY_BYTES_MIN) {
        return refuse(in, "memory_bytes_max: %llu is less than 1 MiB", (unsigned long long)in->memory_bytes_max);
    }
    if (in->memory_bytes_max > TWI_MEMORY_BYTES_MAX) {
        return refuse(in, "memory_bytes_max: %llu is more than 256 GiB", (unsigned long long)in->memory_bytes_max);
    }
    return TW_OK;
}

static tw_status check_replay(const tw_options *in, uint64_t memory_bytes_max) {
    if (in->replay_bytes_max <= memory_bytes_max) return TW_OK;
    return refuse(in, "replay_bytes_max: %llu is more than memory_bytes_max (%llu)",
                  (unsigned long long)in->replay_bytes_max, (unsigned long long)memory_bytes_max);
}

static tw_status check_prefix(const tw_options *in) {
    if (in->redis_prefix == NULL || strnlen(in->redis_prefix, TWI_PREFIX_BYTES_MAX + 1) <= TWI_PREFIX_BYTES_MAX)
        return TW_OK;
    return refuse(in, "redis_prefix: longer than %d bytes", TWI_PREFIX_BYTES_MAX);
}

static tw_status check_sentinel(const tw_options *in) {
    bool has_user = in->sentinel_user != NULL && *in->sentinel_user != '\0';
    if (in->redis_url == NULL || !has_user || in->sentinel_password != NULL) return TW_OK;
    return refuse(in, "sentinel_user: needs sentinel_password");
}

/* At most 5 s, because leases of hard limits rely on engines being back by then (script/leases.lua). */
static tw_status check_retry(const tw_options *in) {
    if (in->retry_max_ms == 0 || (in->retry_max_ms >= 10 && in->retry_max_ms <= 5000)) return TW_OK;
    return refuse(in, "retry_max_ms: %u is not in 10..5000", in->retry_max_ms);
}

static tw_status check_audit(const tw_options *in) {
    if (in->audit_interval_ms == 0) return TW_OK;
    if (in->audit_interval_ms < 1000)
        return refuse(in, "audit_interval_ms: %u is less than 1000", in->audit_interval_ms);
    if (in->redis_url == NULL) return refuse(in, "audit_interval_ms: needs a redis_url");
    if (in->threads == TW_HOST_DRIVEN)
        return refuse(in, "audit_interval_ms: a host-driven engine has no thread for it; call tw_audit()");
    return TW_OK;
}

static tw_status check_labels(const tw_options *in) {
    char why[100];
    if (in->metrics_labels == NULL || *in->metrics_labels == '\0') return TW_OK;
    return twi_labels_check(in->metrics_labels, why, sizeof why) ? TW_OK : refuse(in, "metrics_labels: %s", why);
}

/* Returns the size of the path with %p and %% replaced. */
static size_t watch_path_size(const char *pattern) {
    size_t size = 0, digits = (size_t)snprintf(NULL, 0, "%ld", (long)getpid());
    for (const char *at = pattern; *at != '\0'; at++) size += *at == '%' && *++at == 'p' ? digits : 1;
    return size;
}

/* Whether the file system accepts the path is known only when the watch socket is opened. Then a refusal is
 * logged, and is no error. */
static tw_status check_watch(const tw_options *in) {
    if (in->watch_writes > 1) return refuse(in, "watch_writes: %u is neither 0 nor 1", in->watch_writes);
    if (in->watch_writes != 0 && in->watch_path == NULL) return refuse(in, "watch_writes: needs a watch_path");
    if (in->watch_path == NULL) return TW_OK;
    if (in->watch_path[0] != '/') return refuse(in, "watch_path: must be absolute, as /run/shop/counters.sock");
    for (const char *at = strchr(in->watch_path, '%'); at != NULL; at = strchr(at + 2, '%'))
        if (at[1] != 'p' && at[1] != '%')
            return refuse(in, "watch_path: after a percent sign comes p, for the process id, or another percent sign");
    if (watch_path_size(in->watch_path) > TWI_WATCH_PATH_MAX)
        return refuse(in, "watch_path: a path of a socket has at most %u bytes", TWI_WATCH_PATH_MAX);
    if (in->threads == TW_HOST_DRIVEN)
        return refuse(in, "watch_path: a host-driven engine has no thread for it; call tw_metrics_write()");
    return TW_OK;
}

/* A function of the host may not be at the same address in each process, or not see what the others see. */
static tw_status check_shared(const tw_options *in) {
    if (in->shared > TW_SHARED_BY_FORK) return refuse(in, "shared: %u is not a TW_SHARED_ value", in->shared);
    if (in->shared == TW_SHARED_NO) return TW_OK;
    if (in->redis_url != NULL && in->merge != TW_MERGE_SCRIPT)
        return refuse(in,
                      "merge: with TW_SHARED_BY_FORK (shared) only TW_MERGE_SCRIPT, whose ledger tells the next leader "
                      "which batches were applied");
    if (in->clock_now_ns != NULL) return refuse(in, "clock_now_ns: not with TW_SHARED_BY_FORK (shared)");
    if (in->audit_interval_ms != 0)
        return refuse(in, "audit_interval_ms: not with TW_SHARED_BY_FORK (shared); the process that leads calls "
                          "tw_audit()");
    return TW_OK;
}

tw_status twi_options_check(const tw_options *in, tw_options *out) {
    twi_check(in != NULL && out != NULL);
    tw_status status = check_size(in, OPTIONS_BYTES_FIRST, sizeof *out);
    if (status != TW_OK) return status;
    tw_options options = {0};
    memcpy(&options, in, in->size < sizeof options ? in->size : sizeof options);
    options.size = sizeof options;
    if (options.threads > TW_HOST_DRIVEN)
        status = refuse(in, "threads: %u is not a TW_ value of this field", options.threads);
    if (status == TW_OK) status = check_memory(&options);
    if (status == TW_OK) status = check_prefix(&options);
    if (status == TW_OK) status = check_sentinel(&options);
    if (status == TW_OK && options.merge > TW_MERGE_SETNX)
        status = refuse(in, "merge: %u is not a TW_MERGE_ value", options.merge);
    if (status == TW_OK) status = check_range_32(in, "sync_interval_ms", options.sync_interval_ms, 60000);
    if (status == TW_OK) status = check_range_32(in, "redis_timeout_ms", options.redis_timeout_ms, 600000);
    if (status == TW_OK) status = check_range_32(in, "replay_ms", options.replay_ms, 86400000);
    if (status == TW_OK) status = check_range_32(in, "wait_replicas", options.wait_replicas, 1000);
    if (status == TW_OK) status = check_range_32(in, "flush_keys_per_s", options.flush_keys_per_s, 1000000000);
    if (status == TW_OK) status = check_retry(&options);
    if (status == TW_OK) status = check_range_32(in, "engines_expected", options.engines_expected, 1000000);
    if (status == TW_OK && options.calls_max != 0 && (options.calls_max < 16 || options.calls_max > 65536))
        status = refuse(in, "calls_max: %u is not in 16..65536", options.calls_max);
    if (status == TW_OK) status = check_audit(&options);
    if (status == TW_OK) status = check_labels(&options);
    if (status == TW_OK) status = check_watch(&options);
    if (status == TW_OK) status = check_shared(&options);
    if (status == TW_OK && options.redis_tls_insecure > 1)
        status = refuse(in, "redis_tls_insecure: %u is neither 0 nor 1", options.redis_tls_insecure);
    if (status == TW_OK && options.wait_replicas != 0 && options.merge != TW_MERGE_SCRIPT)
        status = refuse(in, "wait_replicas: needs TW_MERGE_SCRIPT; other merges keep nothing that could be sent again");
    if (options.memory_bytes_max == 0) options.memory_bytes_max = MEMORY_BYTES_DEFAULT;
    if (status == TW_OK) status = check_replay(&options, options.memory_bytes_max);
    if (status != TW_OK) return status;
    if (options.replay_ms == 0) options.replay_ms = REPLAY_MS_DEFAULT;
    if (options.replay_bytes_max == 0) { /* this is a part of the memory (trap E42) */
        options.replay_bytes_max = options.memory_bytes_max / 8;
        if (options.replay_bytes_max > REPLAY_BYTES_DEFAULT) options.replay_bytes_max = REPLAY_BYTES_DEFAULT;
    }
    twi_log_stderr_by_environment(&options);
    if (options.sync_interval_ms == 0) options.sync_interval_ms = 100;
    if (options.calls_max == 0) options.calls_max = CALLS_MAX_DEFAULT;
    *out = options;
    return TW_OK;
}

/* ---- a family's options --------------------------------------------------------------------------------------- */

static bool name_byte_is_good(char byte) {
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') ||
           byte == '.' || byte == '_' || byte == '-';
}

static tw_status check_name(const tw_family_options *in) {
    if (in->name == NULL) return refuse(in, "name: missing");
    size_t size = strnlen(in->name, TWI_FAMILY_NAME_BYTES_MAX + 1);
    if (size == 0) return refuse(in, "name: empty");
    if (size > TWI_FAMILY_NAME_BYTES_MAX) return refuse(in, "name: longer than %d bytes", TWI_FAMILY_NAME_BYTES_MAX);
    for (size_t index = 0; index < size; index++) {
        if (name_byte_is_good(in->name[index])) continue;
        return refuse(in, "name: byte %zu (0x%02x) is not a letter, a digit, '.', '_' or '-'", index + 1,
                      (unsigned)(unsigned char)in->name[index]);
    }
    return TW_OK;
}

static bool has_length(const tw_family_options *options) {
    return options->window == TW_WINDOW_ALIGNED || options->window == TW_WINDOW_FROM_FIRST;
}

static bool has_starts(const tw_family_options *options) {
    return options->window != TW_WINDOW_FROM_FIRST && options->window != TW_WINDOW_FOREVER;
}

static tw_status check_window(tw_family_options *options) {
    if (options->window > TW_WINDOW_MONTH)
        return refuse(options, "window: %u is not a TW_ value of this field", options->window);
    if (!has_length(options)) {
        if (options->window_ms == 0) return TW_OK;
        return refuse(options, "window_ms: must be 0 for endless and calendar windows");
    }
    if (options->window_ms == 0) options->window_ms = TW_HOUR;
    if (options->window_ms < 0) return refuse(options, "window_ms: negative");
    if (options->window_ms % 1000 != 0)
        return refuse(options, "window_ms: %lld is not a multiple of 1000", (long long)options->window_ms);
    if (options->window_ms > TWI_WINDOW_MS_MAX) return refuse(options, "window_ms: more than ten years");
    return TW_OK;
}

static tw_status check_civil(const tw_family_options *in) {
    int64_t offset_ms = in->utc_offset_ms;
    if (offset_ms < -14 * TW_HOUR || offset_ms > 14 * TW_HOUR) return refuse(in, "utc_offset_ms: not within 14 hours");
    if (offset_ms % TW_MINUTE != 0)
        return refuse(in, "utc_offset_ms: %lld is not in whole minutes", (long long)offset_ms);
    if (in->week_start > 6) return refuse(in, "week_start: %u is not in 0 (Monday) .. 6 (Sunday)", in->week_start);
    return TW_OK;
}

/* Checks a duration for windows with starts. The duration may be unbounded, and may have one more special value. */
static tw_status check_duration(const tw_family_options *in, const char *field, int64_t value_ms, int64_t special) {
    if (value_ms == 0) return TW_OK;
    if (!has_starts(in)) return refuse(in, "%s: belongs to aligned and calendar windows", field);
    if (value_ms == TW_UNBOUNDED || value_ms == special) return TW_OK;
    if (value_ms < 0) return refuse(in, "%s: %lld is negative", field, (long long)value_ms);
    if (value_ms > TWI_DURATION_MS_MAX) return refuse(in, "%s: more than a hundred years, and not TW_UNBOUNDED", field);
    return TW_OK;
}

static tw_status check_retention(const tw_family_options *in) {
    if (in->retention_ms == 0) return TW_OK;
    if (in->retention_ms < 0) return refuse(in, "retention_ms: %lld is negative", (long long)in->retention_ms);
    if (in->retention_ms > TWI_DURATION_MS_MAX) return refuse(in, "retention_ms: more than a hundred years");
    struct twi_window_rule rule = twi_options_rule(in);
    int64_t window_ms = twi_calendar_longest_ms(&rule);
    if (in->window == TW_WINDOW_FOREVER || in->retention_ms >= window_ms) return TW_OK;
    return refuse(in, "retention_ms: %lld is less than one window (%lld)", (long long)in->retention_ms,
                  (long long)window_ms);
}

#define KEY_BYTES 64u /* the least memory of a key without its place in the index; with Redis half as much again */

static tw_status check_memory_policy(const tw_family_options *in, const struct twi_options_context *context) {
    uint64_t most = in->memory_share != 0 ? in->memory_share : context->memory_bytes_max;
    uint64_t key_bytes = context->has_redis ? KEY_BYTES / 2 * 3 : KEY_BYTES;
    if (in->keys_expected > most / key_bytes) {
        return refuse(in, "keys_expected: %llu keys need more than %s has (%llu bytes, %llu for each key)",
                      (unsigned long long)in->keys_expected, in->memory_share != 0 ? "memory_share" : "the engine",
                      (unsigned long long)most, (unsigned long long)key_bytes);
    }
    if (in->memory_share > context->memory_bytes_max) {
        return refuse(in, "memory_share: %llu is more than the engine's memory_bytes_max (%llu)",
                      (unsigned long long)in->memory_share, (unsigned long long)context->memory_bytes_max);
    }
    if (in->on_full > TW_ON_FULL_EVICT_IDLE) return refuse(in, "on_full: %u is not a TW_ON_FULL_ value", in->on_full);
    if (in->on_full_limit > TW_FULL_LIMIT_DENY)
        return refuse(in, "on_full_limit: %u is neither TW_FULL_LIMIT_ADMIT nor TW_FULL_LIMIT_DENY", in->on_full_limit);
    return TW_OK;
}

/* Returns the reason why a family with windows cannot evict, or NULL: its limits forget keys. */
static const char *no_guests(const tw_family_options *in, const struct twi_options_context *context) {
    if (in->window == TW_WINDOW_FROM_FIRST) return "is not for TW_WINDOW_FROM_FIRST families";
    if (context->has_redis) return "with Redis belongs to TW_WINDOW_FOREVER families";
    if (in->on_window_closed != NULL) return "is not for families with on_window_closed: it would not see evicted keys";
    if (in->kind != TW_KIND_COUNTER) return "belongs to TW_KIND_COUNTER";
    return in->limit_mode != TW_LIMIT_SOFT ? "belongs to TW_LIMIT_SOFT: what an evicted key took could be sold again"
                                           : NULL;
}

/* In an endless family, only Redis keeps the count of a key that was evicted (trap E26). */
static tw_status check_ageing(const tw_family_options *in, const struct twi_options_context *context) {
    if (in->on_full != TW_ON_FULL_EVICT_IDLE) {
        if (in->idle_ms == 0) return TW_OK;
        return refuse(in, "idle_ms: belongs to on_full = TW_ON_FULL_EVICT_IDLE");
    }
    if (in->window != TW_WINDOW_FOREVER) {
        const char *why = no_guests(in, context);
        if (why != NULL) return refuse(in, "on_full: TW_ON_FULL_EVICT_IDLE %s", why);
        return in->idle_ms == 0 ? TW_OK : refuse(in, "idle_ms: belongs to TW_WINDOW_FOREVER families");
    }
    if (!context->has_redis)
        return refuse(in, "on_full: TW_ON_FULL_EVICT_IDLE needs a redis_url: only Redis keeps evicted counts");
    if (context->is_shared)
        return refuse(in, "on_full: TW_ON_FULL_EVICT_IDLE is not for shared engines (tw_options.shared)");
    if (in->keys_max == 1) return refuse(in, "keys_max: with TW_ON_FULL_EVICT_IDLE at least 2");
    if (in->idle_ms != 0 && in->idle_ms < IDLE_MS_MIN)
        return refuse(in, "idle_ms: %lld is less than %d", (long long)in->idle_ms, IDLE_MS_MIN);
    if (in->idle_ms > TWI_DURATION_MS_MAX) return refuse(in, "idle_ms: more than a hundred years");
    return TW_OK;
}

static tw_status check_hook(const tw_family_options *in, const struct twi_options_context *context) {
    if (in->on_window_closed != NULL && !has_starts(in))
        return refuse(in, "on_window_closed: belongs to aligned and calendar windows");
    if (in->closed_by > TW_CLOSED_BY_ONE)
        return refuse(in, "closed_by: %u is not a TW_CLOSED_BY_ value", in->closed_by);
    if (in->closed_by == TW_CLOSED_BY_EACH) return TW_OK;
    if (!has_starts(in)) return refuse(in, "closed_by: TW_CLOSED_BY_ONE belongs to aligned and calendar windows");
    if (context->has_redis && context->merge != TW_MERGE_SCRIPT)
        return refuse(in, "closed_by: with Redis, TW_CLOSED_BY_ONE needs TW_MERGE_SCRIPT");
    return TW_OK;
}

/* Checks each limit field separately. Combinations are checked later. */
static tw_status check_limit_values(const tw_family_options *in) {
    if (in->kind > TW_KIND_DISTINCT) return refuse(in, "kind: %u is not a TW_KIND_ value", in->kind);
    if (in->limit_mode > TW_LIMIT_STRICT) return refuse(in, "limit_mode: %u is not a TW_LIMIT_ value", in->limit_mode);
    if (in->limit_shape > TW_SHAPE_GCRA) return refuse(in, "limit_shape: %u is not a TW_SHAPE_ value", in->limit_shape);
    if (in->on_outage > TW_OUTAGE_SHARE) return refuse(in, "on_outage: %u is not a TW_OUTAGE_ value", in->on_outage);
    if (in->burst < 0 || in->burst > TW_DELTA_MAX) return refuse(in, "burst: not within 0..TW_DELTA_MAX");
    if (in->burst != 0 && in->limit_shape != TW_SHAPE_GCRA) return refuse(in, "burst: belongs to TW_SHAPE_GCRA");
    if (in->on_busy > TW_BUSY_AS_OUTAGE) return refuse(in, "on_busy: %u is not a TW_BUSY_ value", in->on_busy);
    if (in->outage_grace_ms > 86400000) return refuse(in, "outage_grace_ms: more than a day");
    return TW_OK;
}

/* Checks which options TW_LIMIT_HARD can be combined with. */
static tw_status check_hard(const tw_family_options *in, const struct twi_options_context *context) {
    if (in->limit_mode != TW_LIMIT_HARD) return TW_OK;
    if (in->limit_shape != TW_SHAPE_FIXED) return refuse(in, "limit_shape: TW_LIMIT_HARD allows only TW_SHAPE_FIXED");
    /* Both would sell units in addition to the leased ones (trap L8). */
    if (in->on_outage != TW_OUTAGE_LOCAL && in->on_outage != TW_OUTAGE_FAIL_CLOSED)
        return refuse(in, "on_outage: TW_LIMIT_HARD allows only TW_OUTAGE_LOCAL and TW_OUTAGE_FAIL_CLOSED");
    if (!context->has_redis) return TW_OK;
    if (in->window == TW_WINDOW_FROM_FIRST)
        return refuse(in,
                      "limit_mode: with Redis, TW_LIMIT_HARD is not for TW_WINDOW_FROM_FIRST: leases are of windows");
    if (in->on_full == TW_ON_FULL_EVICT_IDLE)
        return refuse(in, "on_full: TW_LIMIT_HARD is not for TW_ON_FULL_EVICT_IDLE: a lease may not leave memory");
    if (context->merge != TW_MERGE_SCRIPT)
        return refuse(in, "limit_mode: with Redis, TW_LIMIT_HARD needs TW_MERGE_SCRIPT");
    return TW_OK;
}

/* A gauge has no window, is never evicted, and is no stock of units. */
static tw_status check_gauge(const tw_family_options *in, const struct twi_options_context *context) {
    if (in->kind != TW_KIND_GAUGE) return TW_OK;
    if (context->is_shared) return refuse(in, "kind: TW_KIND_GAUGE is not for shared engines (tw_options.shared)");
    if (in->window != TW_WINDOW_FOREVER) return refuse(in, "kind: TW_KIND_GAUGE needs window = TW_WINDOW_FOREVER");
    if (in->on_full == TW_ON_FULL_EVICT_IDLE)
        return refuse(in, "on_full: TW_ON_FULL_EVICT_IDLE is not for TW_KIND_GAUGE");
    if (in->limit_mode != TW_LIMIT_SOFT) return refuse(in, "limit_mode: TW_KIND_GAUGE allows only TW_LIMIT_SOFT");
    if (in->limit_shape != TW_SHAPE_FIXED) return refuse(in, "limit_shape: TW_KIND_GAUGE allows only TW_SHAPE_FIXED");
    if (context->has_redis && context->merge != TW_MERGE_SCRIPT)
        return refuse(in, "kind: with Redis, TW_KIND_GAUGE needs TW_MERGE_SCRIPT");
    return TW_OK;
}

/* A distinct count has no units that a limit could share out. */
static tw_status check_distinct(const tw_family_options *in, const struct twi_options_context *context) {
    if (in->kind != TW_KIND_DISTINCT) return TW_OK;
    if (context->has_redis && context->merge != TW_MERGE_SCRIPT)
        return refuse(in, "kind: with Redis, TW_KIND_DISTINCT needs TW_MERGE_SCRIPT");
    if (context->has_redis && in->window == TW_WINDOW_FROM_FIRST)
        return refuse(in, "window: with Redis, TW_KIND_DISTINCT does not allow TW_WINDOW_FROM_FIRST");
    if (context->has_redis && in->on_full == TW_ON_FULL_EVICT_IDLE)
        return refuse(in, "on_full: with Redis, TW_KIND_DISTINCT does not allow TW_ON_FULL_EVICT_IDLE");
    if (context->has_redis && in->closed_by == TW_CLOSED_BY_ONE)
        return refuse(in, "closed_by: with Redis, TW_KIND_DISTINCT does not allow TW_CLOSED_BY_ONE");
    if (in->limit_mode != TW_LIMIT_SOFT) return refuse(in, "limit_mode: TW_KIND_DISTINCT has no limits");
    if (in->limit_shape != TW_SHAPE_FIXED) return refuse(in, "limit_shape: TW_KIND_DISTINCT has no limits");
    if (in->on_outage != TW_OUTAGE_LOCAL) return refuse(in, "on_outage: TW_KIND_DISTINCT has no limits");
    if (in->shadow) return refuse(in, "shadow: TW_KIND_DISTINCT has no limits");
    return TW_OK;
}

/* Checks which options TW_LIMIT_STRICT can be combined with. */
static tw_status check_strict(const tw_family_options *in, const struct twi_options_context *context) {
    if (in->limit_mode != TW_LIMIT_STRICT || !context->has_redis) return TW_OK;
    if (context->merge != TW_MERGE_SCRIPT)
        return refuse(in, "limit_mode: with Redis, TW_LIMIT_STRICT needs TW_MERGE_SCRIPT");
    if (in->limit_shape == TW_SHAPE_SLIDING && in->window != TW_WINDOW_ALIGNED)
        return refuse(in, "limit_shape: with TW_LIMIT_STRICT, TW_SHAPE_SLIDING belongs to TW_WINDOW_ALIGNED windows");
    return TW_OK;
}

/* Checks sub_windows, and writes its default. */
static tw_status check_sub_windows(tw_family_options *options, const struct twi_options_context *context) {
    const tw_family_options *in = options;
    if (in->sub_windows == 0) options->sub_windows = 1;
    if (in->sub_windows > TW_SUB_WINDOWS_MAX)
        return refuse(in, "sub_windows: %u is not in 1..%d", in->sub_windows, TW_SUB_WINDOWS_MAX);
    if (in->sub_windows == 1) return TW_OK;
    if (in->limit_shape != TW_SHAPE_SLIDING) return refuse(in, "sub_windows: belongs to TW_SHAPE_SLIDING");
    if (in->window != TW_WINDOW_ALIGNED) return refuse(in, "sub_windows: belongs to TW_WINDOW_ALIGNED");
    return context->has_redis ? refuse(in, "sub_windows: only without a redis_url") : TW_OK;
}

/* Both shapes read the state of the previous window or of all sub-windows, so that state must still exist. */
static int64_t needed_ms(const tw_family_options *options) {
    twi_check(options->sub_windows != 0);
    struct twi_window_rule rule = twi_options_rule(options);
    return twi_calendar_longest_ms(&rule) * options->sub_windows;
}

static tw_status check_shape(const tw_family_options *in, const struct twi_options_context *context) {
    if (in->limit_shape == TW_SHAPE_FIXED) return TW_OK;
    const char *shape = in->limit_shape == TW_SHAPE_GCRA ? "TW_SHAPE_GCRA" : "TW_SHAPE_SLIDING";
    if (in->kind != TW_KIND_COUNTER) return refuse(in, "limit_shape: %s belongs to TW_KIND_COUNTER", shape);
    if (!has_starts(in) || (in->limit_shape == TW_SHAPE_GCRA && in->window != TW_WINDOW_ALIGNED))
        return refuse(in, "limit_shape: %s belongs to %s", shape,
                      in->limit_shape == TW_SHAPE_GCRA ? "TW_WINDOW_ALIGNED" : "aligned and calendar windows");
    if (in->history_ms != 0 && in->history_ms < needed_ms(in))
        return refuse(in, "history_ms: %s needs at least one window (%lld)", shape, (long long)needed_ms(in));
    if (in->limit_shape != TW_SHAPE_GCRA) return TW_OK;
    if (context->has_redis && in->limit_mode != TW_LIMIT_STRICT)
        return refuse(in, "limit_shape: with Redis, TW_SHAPE_GCRA needs TW_LIMIT_STRICT: its times do not add up");
    if (in->on_window_closed != NULL)
        return refuse(in, "on_window_closed: with TW_SHAPE_GCRA there are no counts to report");
    return TW_OK;
}

/* Refuses options that this version does not implement yet. */
static tw_status check_limit_built(const tw_family_options *in) {
    bool is_strict = in->limit_mode == TW_LIMIT_STRICT, is_gcra = in->limit_shape == TW_SHAPE_GCRA;
    if (is_gcra && in->on_outage == TW_OUTAGE_SHARE)
        return refuse(in, "on_outage: TW_OUTAGE_SHARE is not for TW_SHAPE_GCRA");
    if (is_gcra && !is_strict && in->on_outage != TW_OUTAGE_LOCAL)
        return refuse(in, "on_outage: this shape allows only TW_OUTAGE_LOCAL");
    return TW_OK;
}

static tw_status check_tags(const tw_family_options *in) {
    return twi_key_slot_tags_fit(in->redis_tags) ? TW_OK : refuse(in, TWI_OPTIONS_TAGS_REFUSED);
}

static tw_status check_fields(const tw_family_options *in) {
    struct twi_fields fields;
    const char *wrong = in->fields != NULL ? twi_fields_read(in->fields, in->key_separator, &fields) : NULL;
    return wrong == NULL ? TW_OK : refuse(in, "fields: %s", wrong);
}

/* For limits and gauges Redis needs more than one number for a key, so their keys must be strings. A hash has many
 * keys, so its life cannot begin with the first write of one key. */
static tw_status check_redis_shape(tw_family_options *options, const struct twi_options_context *context) {
    const tw_family_options *in = options;
    if (in->redis_shape > TW_REDIS_ZSET) return refuse(in, "redis_shape: %u is not a TW_REDIS_ value", in->redis_shape);
    if (in->redis_shape != TW_REDIS_HASH) {
        if (in->key_separator != '\0') return refuse(in, "key_separator: belongs to redis_shape = TW_REDIS_HASH");
        if (in->fields != NULL) return refuse(in, "fields: belongs to redis_shape = TW_REDIS_HASH");
    } else if (in->key_separator == '\0') {
        options->key_separator = TWI_OPTIONS_SEPARATOR_DEFAULT;
    }
    if (in->redis_shape == TW_REDIS_STRING) return TW_OK;
    const char *shape = in->redis_shape == TW_REDIS_HASH ? "TW_REDIS_HASH" : "TW_REDIS_ZSET";
    if (in->kind == TW_KIND_GAUGE) return refuse(in, "redis_shape: %s is not for gauges (TW_KIND_GAUGE)", shape);
    if (in->kind != TW_KIND_COUNTER) return refuse(in, "redis_shape: %s belongs to TW_KIND_COUNTER", shape);
    if (in->limit_mode != TW_LIMIT_SOFT)
        return refuse(in, "redis_shape: %s is not for hard and strict limits (limit_mode)", shape);
    if (in->limit_shape != TW_SHAPE_FIXED)
        return refuse(in, "redis_shape: %s is not for limits that slide or are a rate (limit_shape)", shape);
    if (in->window == TW_WINDOW_FROM_FIRST)
        return refuse(in, "redis_shape: %s is not for TW_WINDOW_FROM_FIRST: it has one expiry for many keys", shape);
    if (context->has_redis && context->merge != TW_MERGE_SCRIPT)
        return refuse(in, "redis_shape: with Redis, %s needs TW_MERGE_SCRIPT", shape);
    return check_fields(in);
}

static void fill_family_defaults(tw_family_options *options) {
    twi_check(options->sub_windows != 0);
    struct twi_window_rule rule = twi_options_rule(options);
    int64_t longest_ms = twi_calendar_longest_ms(&rule);
    int64_t window_ms = has_starts(options) ? needed_ms(options) : longest_ms;
    if (options->redis_tags == 0) options->redis_tags = TWI_OPTIONS_TAGS_DEFAULT;
    if (options->on_full == TW_ON_FULL_EVICT_IDLE && options->window == TW_WINDOW_FOREVER && options->idle_ms == 0)
        options->idle_ms = IDLE_MS_DEFAULT;
    if (!has_starts(options)) {
        options->retention_ms = 0;
        return;
    }
    if (options->earliness_ms == 0) options->earliness_ms = window_ms;
    if (options->history_ms == 0) options->history_ms = window_ms;
    if (options->history_ms == TW_NONE) options->history_ms = 0;
    if (options->retention_ms == 0) {
        options->retention_ms = window_ms > RETENTION_MS_DEFAULT ? window_ms : RETENTION_MS_DEFAULT;
    }
}

struct twi_window_rule twi_options_rule(const tw_family_options *checked) {
    int64_t parts = checked->sub_windows > 1 ? checked->sub_windows : 1;
    return (struct twi_window_rule){.window = checked->window,
                                    .window_ms = (checked->window_ms + parts - 1) / parts,
                                    .utc_offset_ms = checked->utc_offset_ms,
                                    .week_start = checked->week_start};
}

tw_status twi_family_options_check(const tw_family_options *in, tw_family_options *out,
                                   const struct twi_options_context *context) {
    twi_check(in != NULL && out != NULL);
    twi_check(context->merge <= TW_MERGE_SETNX);
    tw_status status = check_size(in, FAMILY_OPTIONS_BYTES_FIRST, sizeof *out);
    if (status != TW_OK) return status;
    tw_family_options options = {0};
    memcpy(&options, in, in->size < sizeof options ? in->size : sizeof options);
    options.size = sizeof options;
    status = check_name(&options);
    if (status == TW_OK) status = check_window(&options);
    if (status == TW_OK) status = check_civil(&options);
    if (status == TW_OK) status = check_duration(&options, "lateness_ms", options.lateness_ms, 0);
    if (status == TW_OK) status = check_duration(&options, "earliness_ms", options.earliness_ms, 0);
    if (status == TW_OK) status = check_duration(&options, "history_ms", options.history_ms, TW_NONE);
    if (status == TW_OK) status = check_sub_windows(&options, context);
    if (status == TW_OK) status = check_retention(&options);
    if (status == TW_OK) status = check_memory_policy(&options, context);
    if (status == TW_OK) status = check_ageing(&options, context);
    if (status == TW_OK) status = check_hook(&options, context);
    if (status == TW_OK) status = check_limit_values(&options);
    if (status == TW_OK) status = check_hard(&options, context);
    if (status == TW_OK) status = check_gauge(&options, context);
    if (status == TW_OK) status = check_distinct(&options, context);
    if (status == TW_OK) status = check_strict(&options, context);
    if (status == TW_OK) status = check_shape(&options, context);
    if (status == TW_OK) status = check_limit_built(&options);
    if (status == TW_OK) status = check_tags(&options);
    if (status == TW_OK) status = check_redis_shape(&options, context);
    if (status != TW_OK) return status;
    fill_family_defaults(&options);
    *out = options;
    return TW_OK;
}
