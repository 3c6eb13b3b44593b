/* count_engine.c -- the engine and the family of `tallywheel count`. They are opened by the options, drained and closed
 * at the end. See count_engine.h. */
#include "tools/count/count_engine.h"

#include <inttypes.h>

#include "tools/common/moment.h"
#include "tools/common/stop.h"
#include "tools/common/tool.h"

#define FAMILY_NAME "count"
#define SUMS_NAME "sum"
#define RETENTION_MS (7 * TW_DAY)
#define DRAIN_MS 60000      /* how long the rest of the counts may need at the end, if Redis replies */
#define DRAIN_AWAY_MS 10000 /* how long to wait for it if it does not */

/* ---- lost counts ---- */

static const char *lost_why(int reason) {
    switch (reason) {
    case TW_LOST_EXPIRED: return "their retention ended before it could be reached";
    case TW_LOST_LATE: return "its clock says that their windows are over";
    case TW_LOST_ROLLBACK: return "it forgot them";
    case TW_LOST_UNCERTAIN: return "it is not known whether it counted them";
    case TW_LOST_POISON: return "it refuses the keys: they hold something else there, or their sums are out of range";
    default: return "it did not take them in time";
    }
}

static void on_lost(void *ctx, tw_family *family, tw_key key, int64_t start_ms, int64_t delta, int reason) {
    struct count_lost *lost = ctx;
    (void)family, (void)key, (void)start_ms;
    lost->keys++;
    lost->units += delta < 0 ? -delta : delta;
    lost->reason = reason;
}

/* ---- opening ---- */

/* The library's errors name its fields, but users see options. */
static void complain_options(const char *error) {
    static const char *const names[][2] = {{"redis_key", "--redis-key"},
                                           {"redis_url", "--redis"},
                                           {"retention_ms", "--retention"},
                                           {"window_ms", "--window"},
                                           {"utc_offset_ms", "--utc-offset"},
                                           {"lateness_ms", "--lateness"},
                                           {"memory_bytes_max", "--memory"},
                                           {"kind", "--distinct"},
                                           {"redis_tls_ca_file", "--tls-ca"},
                                           {"redis_tls_cert_file", "--tls-cert"},
                                           {"redis_tls_key_file", "--tls-key"},
                                           {"redis_tls_server_name", "--tls-server-name"},
                                           {"redis_tls_insecure", "--tls-insecure"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t size = strlen(names[i][0]);
        if (strncmp(error, names[i][0], size) == 0) {
            tool_complain("%s%s", names[i][1], error + size);
            return;
        }
    }
    tool_complain("%s", error);
}

/* What is lost is said once, at the end, in the command's own words. */
static void on_log(void *ctx, int level, int event, const char *text) {
    (void)ctx;
    if (level <= TW_LOG_WARNING && event != TW_EVENT_LOST) complain_options(text);
}

/* Explains what an error of the library means for the command. */
static int open_failed(tw_status status, const char *error) {
    if (error[0] != '\0') {
        complain_options(error);
    } else {
        tool_complain("%s", tw_status_text(status));
    }
    if (status == TW_ERR_MEMORY) tool_complain("a smaller --memory may help");
    return status == TW_ERR_OPTIONS ? EXIT_USAGE : EXIT_TROUBLE;
}

int count_engine_open(const struct plan *plan, struct count_lost *lost, tw_engine **engine) {
    char error[256] = "";
    tw_options options;
    tw_options_init(&options);
    options.error_text = error;
    options.error_size = sizeof error;
    options.memory_bytes_max = plan->memory_bytes;
    options.redis_url = plan->redis_url;
    options.redis_timeout_ms = 2000; /* no request waits for a count, so a slow moment of Redis is no outage */
    redis_flags_apply(&plan->flags, &options);
    options.log_write = on_log;
    options.on_lost = on_lost;
    options.lost_ctx = lost;
    if (plan->resume && plan->redis_url != NULL) options.threads = TW_HOST_DRIVEN;
    tw_status status = tw_open(&options, engine);
    return status == TW_OK ? EXIT_DONE : open_failed(status, error);
}

static int named_open(const struct plan *plan, tw_engine *engine, const char *name, tw_family_options *options,
                      tw_family **family) {
    char error[256] = "";
    tw_family_options_init(options);
    options->error_text = error;
    options->error_size = sizeof error;
    options->name = name;
    if (plan->rule.element_count > 0) options->kind = TW_KIND_DISTINCT;
    bool is_endless = plan->window_ms == WINDOWS_ALL;
    options->window = is_endless ? TW_WINDOW_FOREVER : TW_WINDOW_ALIGNED;
    options->window_ms = is_endless ? 0 : plan->window_ms;
    options->utc_offset_ms = plan->rule.utc_offset_ms;
    if (!is_endless) options->lateness_ms = options->earliness_ms = TW_UNBOUNDED;
    options->retention_ms = plan->retention_ms;
    if (plan->retention_ms == 0 && !is_endless)
        options->retention_ms = plan->window_ms > RETENTION_MS ? plan->window_ms : RETENTION_MS;
    options->redis_key = plan->redis_key;
    options->on_full = TW_ON_FULL_REJECT;
    tw_status status = tw_family_open(engine, options, family);
    options->error_text = NULL;
    options->error_size = 0;
    return status == TW_OK ? EXIT_DONE : open_failed(status, error);
}

int count_family_open(const struct plan *plan, tw_engine *engine, tw_family_options *options, tw_family **family) {
    return named_open(plan, engine, FAMILY_NAME, options, family);
}

int count_sums_open(const struct plan *plan, tw_engine *engine, tw_family **sums) {
    tw_family_options options;
    *sums = NULL;
    return plan->rule.sum_count == 0 ? EXIT_DONE : named_open(plan, engine, SUMS_NAME, &options, sums);
}

/* ---- the end ---- */

tw_status count_drain(tw_engine *engine) {
    int64_t begun_ms = moment_mono_ms();
    bool said = false, stopped = stop_signal() != 0;
    for (;;) {
        tw_stats stats;
        tw_status status = tw_flush(engine, 250);
        if (status != TW_ERR_TIMEOUT) return status;
        int64_t passed_ms = moment_mono_ms() - begun_ms;
        if (tw_stats_read(engine, &stats) != TW_OK) return status;
        if (passed_ms >= (stats.redis_connected ? DRAIN_MS : DRAIN_AWAY_MS)) return status;
        if (!stopped && stop_signal() != 0) return status;
        if (!said && passed_ms >= 2000) {
            tool_complain(stats.redis_connected ? "waiting for Redis to take the rest"
                                                : "waiting for Redis, which does not reply");
            said = true;
        }
    }
}

bool count_engine_close(tw_engine *engine, bool has_redis, const struct count_lost *lost) {
    tw_stats stats = {0};
    tw_stats_read(engine, &stats);
    tw_status status = tw_close(engine, has_redis ? 1000 : 0);
    if (!has_redis) return true;
    if (lost->keys > 0) {
        tool_complain("Redis: %" PRId64 " counts in %" PRIu64 " counters did not arrive: %s", lost->units, lost->keys,
                      lost_why(lost->reason));
    } else if (status != TW_OK) {
        tool_complain("Redis did not take every count: %s", tw_status_text(status));
    }
    bool all = lost->keys == 0 && status == TW_OK;
    if (!all && stats.last_error[0] != '\0') tool_complain("Redis: the last error was: %s", stats.last_error);
    return all;
}
