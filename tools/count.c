/* count.c -- `tallywheel count`: counts lines of logs by key and window, in the process and, if requested, in Redis.
 *
 * Without --follow the family takes counts of any time until the end (unlimited lateness and earliness), so every
 * window stays readable until it is printed. With --follow windows close by themselves (follow.c).
 * Always true: the output has what this run read, whatever else Redis holds. Every line that was read is in the output
 * or in a complaint; the exit status tells which. */
#include "count.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "feed.h"
#include "say.h"
#include "sentinel_login.h"
#include "stop.h"
#include "tool.h"

#define FAMILY_NAME "count"
#define RETENTION_MS (7 * TW_DAY)
#define DRAIN_MS 60000      /* how long Redis may take for what is left at the end, if it replies */
#define DRAIN_AWAY_MS 10000 /* how long to wait for it if it does not */

/* Counts that will not reach Redis. Hooks on the engine's thread write it; it is read when the engine is gone. */
struct lost {
    uint64_t keys;
    int64_t units;
    int reason;
};

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
    struct lost *lost = ctx;
    (void)family, (void)key, (void)start_ms;
    lost->keys++;
    lost->units += delta < 0 ? -delta : delta;
    lost->reason = reason;
}

static void on_log(void *ctx, int level, int event, const char *text) {
    (void)ctx, (void)event;
    if (level <= TW_LOG_WARNING) tool_complain("%s", text);
}

/* ---- opening ---- */

/* The library's errors name its own fields; users know options. */
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

static int engine_open(const struct plan *plan, struct lost *lost, tw_engine **engine) {
    char error[256] = "";
    tw_options options;
    tw_options_init(&options);
    options.error_text = error;
    options.error_size = sizeof error;
    options.memory_bytes_max = plan->memory_bytes;
    options.redis_url = plan->redis_url;
    options.redis_timeout_ms = 2000; /* no request waits for a count: a Redis that is slow for a moment is no outage */
    tls_flags_apply(&plan->tls, &options);
    sentinel_login_apply(&options);
    options.log_write = on_log;
    options.on_lost = on_lost;
    options.lost_ctx = lost;
    tw_status status = tw_open(&options, engine);
    return status == TW_OK ? EXIT_DONE : open_failed(status, error);
}

static int family_open(const struct plan *plan, tw_engine *engine, tw_family_options *options, tw_family **family) {
    char error[256] = "";
    tw_family_options_init(options);
    options->error_text = error;
    options->error_size = sizeof error;
    options->name = FAMILY_NAME;
    if (plan->rule.element_count > 0) options->kind = TW_KIND_DISTINCT;
    options->window = TW_WINDOW_ALIGNED;
    options->window_ms = plan->window_ms;
    options->utc_offset_ms = plan->rule.utc_offset_ms;
    options->lateness_ms = TW_UNBOUNDED;
    options->earliness_ms = TW_UNBOUNDED;
    options->retention_ms = plan->retention_ms;
    if (plan->retention_ms == 0)
        options->retention_ms = plan->window_ms > RETENTION_MS ? plan->window_ms : RETENTION_MS;
    options->redis_key = plan->redis_key;
    options->on_full = TW_ON_FULL_REJECT;
    tw_status status = tw_family_open(engine, options, family);
    options->error_text = NULL;
    options->error_size = 0;
    return status == TW_OK ? EXIT_DONE : open_failed(status, error);
}

/* ---- printing ---- */

static size_t terminal_width(void) {
    struct winsize size;
    if (isatty(STDOUT_FILENO) != 1) return 0;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

static struct print print_make(const struct plan *plan, struct sink *sink) {
    struct print print = {.sink = sink, .form = plan->form, .window_ms = plan->window_ms};
    print.utc_offset_ms = plan->rule.utc_offset_ms;
    print.width = plan->form == PRINT_TABLE ? terminal_width() : 0;
    print.bold = print.width > 0 && getenv("NO_COLOR") == NULL;
    print.stream = plan->follow;
    print.distinct = plan->rule.element_count > 0;
    return print;
}

/* Prints every window that has counts, in ascending order. Returns false after a message on standard error. */
static bool print_all(const struct plan *plan, tw_family *family, const struct windows *windows, struct print *print) {
    struct rows rows = ROWS_EMPTY;
    size_t count;
    tw_status status = TW_OK;
    int64_t *starts = windows_sorted(windows, &count);
    if (starts == NULL && count > 0) status = TW_ERR_MEMORY;
    print_begin(print);
    for (size_t i = 0; starts != NULL && i < count && status == TW_OK && print->sink->error == 0; i++) {
        status = rows_collect(&rows, family, starts[i], plan->top, plan->redis_url == NULL);
        if (status == TW_OK) print_window(print, starts[i], &rows);
    }
    print_end(print);
    if (status == TW_ERR_MEMORY) {
        tool_complain("no memory to sort the counts with; --top N needs less, and so does a smaller --memory");
    } else if (status != TW_OK) {
        tool_complain("a window cannot be read: %s", tw_status_text(status));
    }
    rows_free(&rows);
    free(starts);
    return status == TW_OK;
}

static bool flush_output(struct sink *sink) {
    if (sink_flush(sink)) return true;
    if (sink->error != EPIPE) /* the reader, such as `head`, has closed the pipe */
        tool_complain("cannot write the output: %s", strerror(sink->error));
    return false;
}

/* ---- the end ---- */

/* Reports lines that were read and are not in the output. Returns true if nothing is missing (skipped lines do not
 * count). */
static bool report(const struct result *result) {
    const struct outcome *total = &result->total;
    if (total->skipped > 0) {
        tool_complain("%" PRIu64 " line%s skipped, first: %s:%" PRIu64 ": %s", total->skipped,
                      total->skipped == 1 ? "" : "s", feed_name(result->skipped_file), total->skipped_line,
                      total->skipped_why);
    }
    if (total->homeless > 0) {
        tool_complain("memory did not suffice for every key: %" PRIu64
                      " line%s of keys that came late are missing (--memory)",
                      total->homeless, total->homeless == 1 ? "" : "s");
    }
    if (total->lines > 0 && total->skipped == total->lines)
        tool_complain("no line could be read; is it another --format?");
    return !result->trouble && total->homeless == 0 && (total->lines == 0 || total->skipped < total->lines);
}

/* Waits until Redis has everything; a signal ends the wait. */
static void drain(tw_engine *engine) {
    int64_t begun_ms = say_mono_ms();
    bool said = false, stopped = stop_signal() != 0;
    for (;;) {
        tw_stats stats;
        tw_status status = tw_flush(engine, 250);
        if (status != TW_ERR_TIMEOUT) return;
        int64_t passed_ms = say_mono_ms() - begun_ms;
        if (tw_stats_read(engine, &stats) != TW_OK) return;
        if (passed_ms >= (stats.redis_connected ? DRAIN_MS : DRAIN_AWAY_MS)) return;
        if (!stopped && stop_signal() != 0) return;
        if (!said && passed_ms >= 2000) {
            tool_complain(stats.redis_connected ? "waiting for Redis to take the rest"
                                                : "waiting for Redis, which does not reply");
            said = true;
        }
    }
}

/* What Redis held before this run, as far as known, in the counters that this run has counted. */
struct before {
    uint64_t counters, with; /* all of them, and those that held something before */
    int64_t units;
};

static bool look_before(void *ctx, const tw_count *count) {
    struct before *before = ctx;
    before->counters++;
    if (count->view == count->local) return true;
    before->with++;
    before->units += count->view - count->local;
    return true;
}

/* A user who runs the same command twice finds everything twice in Redis: this warns about it. */
static void complain_of_before(tw_family *family, const struct windows *windows) {
    struct before before = {0};
    size_t count;
    int64_t *starts = windows_sorted(windows, &count);
    for (size_t i = 0; starts != NULL && i < count; i++) (void)tw_each(family, starts[i], look_before, &before);
    free(starts);
    if (before.with == 0) return;
    tool_complain("Redis: %" PRIu64 " of %" PRIu64 " counters held %" PRId64
                  " more than this run has counted: what was there was added to. Were the same lines counted before?"
                  " (a second run counts them a second time)",
                  before.with, before.counters, before.units);
}

/* Returns true if Redis has everything, or if there is no Redis. */
static bool engine_close(const struct plan *plan, tw_engine *engine, tw_family *family, const struct result *result,
                         struct lost *lost) {
    tw_stats stats = {0};
    if (plan->redis_url != NULL) drain(engine);
    if (plan->redis_url != NULL) complain_of_before(family, &result->windows);
    tw_stats_read(engine, &stats);
    tw_status status = tw_close(engine, plan->redis_url != NULL ? 1000 : 0);
    if (plan->redis_url == NULL) return true;
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

static void feed_files(const struct plan *plan, tw_family *family, struct print *print, struct result *result) {
    struct windows_shared windows = WINDOWS_SHARED_EMPTY;
    struct feed feed = {.files = plan->files,
                        .file_count = plan->file_count,
                        .threads = plan->threads,
                        .family = family,
                        .rule = &plan->rule,
                        .window_ms = plan->window_ms,
                        .windows = &windows};
    feed_run(&feed);
    if (stop_signal() != 0) {
        tool_complain("stopped by SIG%s: the input was not read to its end", stop_signal() == SIGINT ? "INT" : "TERM");
    }
    *result = (struct result){.total = feed.total, .skipped_file = feed.skipped_file, .trouble = feed.trouble};
    if (windows.no_memory) tool_complain("no memory for the list of windows");
    if (!print_all(plan, family, &windows.set, print) || windows.no_memory) result->trouble = true;
    result->windows = windows.set;
}

static int run(const struct plan *plan, struct sink *sink) {
    struct lost lost = {0};
    tw_engine *engine;
    tw_family *family;
    tw_family_options options;
    int code = engine_open(plan, &lost, &engine);
    if (code != EXIT_DONE) return code;
    code = family_open(plan, engine, &options, &family);
    if (code != EXIT_DONE) {
        tw_close(engine, 0);
        return code;
    }
    struct print print = print_make(plan, sink);
    struct result result = {0};
    if (plan->follow) {
        follow_run(plan, family, &options, &print, &result);
    } else {
        feed_files(plan, family, &print, &result);
    }
    bool good = flush_output(sink);
    good = report(&result) && good;
    good = engine_close(plan, engine, family, &result, &lost) && good;
    windows_free(&result.windows);
    if (stop_signal() != 0) return EXIT_SIGNAL + stop_signal();
    return good ? EXIT_DONE : EXIT_TROUBLE;
}

int count_main(int argc, char **argv) {
    struct plan plan;
    struct sink sink;
    int code = plan_read(argc, argv, &plan);
    if (code == -1) return EXIT_DONE;
    if (code != EXIT_DONE) return code;
    if (!stop_begin()) {
        tool_complain("cannot watch for signals: %s", strerror(errno));
        return EXIT_TROUBLE;
    }
    if (!sink_open(&sink, STDOUT_FILENO)) {
        tool_complain("no memory for the output");
        return EXIT_TROUBLE;
    }
    code = run(&plan, &sink);
    sink_close(&sink);
    return code;
}
