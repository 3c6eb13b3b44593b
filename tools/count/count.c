/* count.c -- `tallywheel count`: counts lines of logs by key and window, in the process and, if requested, in Redis.
 *
 * Without --follow the family accepts counts of any time until the end (unlimited lateness and earliness), so every
 * window stays readable until it is printed. With --follow the engine closes windows (follow.c).
 * Always true: the output has the counts of this run, whatever else is in Redis. Every line that was read is in the
 * output or in a complaint, and the exit status shows which. */
#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tools/count/batch.h"
#include "tools/count/count_engine.h"
#include "tools/count/feed.h"
#include "tools/count/fields.h"
#include "tools/count/follow.h"
#include "tools/count/resume.h"
#include "tools/common/stop.h"
#include "tools/count/svg.h"
#include "tools/common/tool.h"

/* ---- printing ---- */

static size_t terminal_width(void) {
    struct winsize size;
    if (isatty(STDOUT_FILENO) != 1) return 0;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

static bool has_colours(void) {
    const char *terminal = getenv("TERM");
    return getenv("NO_COLOR") == NULL && terminal != NULL && strcmp(terminal, "dumb") != 0;
}

/* As the C library chooses the locale of characters, which the command does not set. */
static bool has_unicode(void) {
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        if (value != NULL && *value != '\0')
            return strcasestr(value, "utf-8") != NULL || strcasestr(value, "utf8") != NULL;
    }
    return false;
}

static struct print print_make(const struct plan *plan, struct sink *sink) {
    struct print print = {.sink = sink, .form = plan->form, .window_ms = plan->window_ms};
    print.utc_offset_ms = plan->rule.utc_offset_ms;
    print.width = plan->form == PRINT_TABLE ? terminal_width() : 0;
    print.bold = print.width > 0 && has_colours();
    print.blocks = has_unicode();
    print.stream = plan->follow;
    print.distinct = plan->rule.element_count > 0;
    print.sums = plan->rule.sum_count > 0;
    return print;
}

/* Prints every window that has counts, in ascending order. Returns false after a message on standard error. */
static bool print_all(const struct plan *plan, tw_family *family, tw_family *sums, const struct windows *windows,
                      struct print *print) {
    struct rows rows = ROWS_EMPTY;
    size_t count;
    tw_status status = TW_OK;
    int64_t *starts = windows_sorted(windows, &count);
    if (starts == NULL && count > 0) status = TW_ERR_MEMORY;
    print_begin(print);
    for (size_t i = 0; starts != NULL && i < count && status == TW_OK && print->sink->error == 0; i++) {
        status = rows_collect(&rows, family, starts[i], plan->top, plan->redis_url == NULL);
        if (status == TW_OK && sums != NULL) status = rows_add_sums(&rows, sums, starts[i]);
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
    if (stop_interrupted()) {
        tool_complain("stopped by %s: not everything was printed", stop_name());
    } else if (sink->error != EPIPE) { /* the reader, such as `head`, has closed the pipe */
        tool_complain("cannot write the output: %s", strerror(sink->error));
    }
    return false;
}

/* ---- the end ---- */

/* Each reason, with the first line that has it. If there is one alone, the line above has said all but its text. */
static void reasons_report(const struct outcome *total) {
    for (size_t i = 0; i < total->reasons; i++) {
        const struct reason *reason = &total->reason[i];
        if (total->reasons == 1 && reason->size == 0) return;
        if (total->reasons == 1) {
            tool_complain("  its text: %.*s", (int)reason->size, reason->example);
            return;
        }
        tool_complain("  %" PRIu64 " line%s: %s, as %s:%" PRIu64 "%s%.*s", reason->count, reason->count == 1 ? "" : "s",
                      reason->why, feed_name(reason->file), reason->line, reason->size > 0 ? ": " : "",
                      (int)reason->size, reason->example);
    }
}

/* Reports lines that were read and are not in the output. Returns true if no line is missing (skipped lines do not
 * count). */
static bool report(const struct plan *plan, const struct result *result) {
    const struct outcome *total = &result->total;
    if (total->skipped > 0) {
        tool_complain("%" PRIu64 " line%s skipped, first: %s:%" PRIu64 ": %s", total->skipped,
                      total->skipped == 1 ? "" : "s", feed_name(result->skipped_file), total->skipped_line,
                      total->skipped_why);
        reasons_report(total);
    }
    if (total->unserved > 0) {
        tool_complain("memory did not suffice for every key: %" PRIu64
                      " line%s of keys that came late are missing (--memory)",
                      total->unserved, total->unserved == 1 ? "" : "s");
    }
    bool has_none = total->skipped > 0 && total->skipped == total->lines - total->heads;
    if (has_none) tool_complain("no line could be read; is it another --format?");
    if (has_none && plan->rule.is_json_alone) {
        char names[240];
        fields_names(&(struct fields_asked){.format = LINE_COMBINED}, names, sizeof names);
        tool_complain("in access logs the names of fields are: %s", names);
    }
    return !result->trouble && total->unserved == 0 && !has_none;
}

/* The known earlier counts in Redis of the counters that this run has counted. */
struct before {
    uint64_t counters, with; /* all of them, and those that had an earlier count */
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

/* A user who runs the same command twice has every count twice in Redis. This warns about it. */
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

static void feed_all(const struct plan *plan, tw_family *family, tw_family *sums, struct windows_shared *windows,
                     struct result *result) {
    struct feed feed = {.files = plan->files,
                        .file_count = plan->file_count,
                        .threads = plan->threads,
                        .family = family,
                        .sums = sums,
                        .rule = &plan->rule,
                        .window_ms = plan->window_ms,
                        .windows = windows};
    feed_run(&feed);
    *result = (struct result){.total = feed.total, .skipped_file = feed.skipped_file, .trouble = feed.trouble};
}

/* Reads the files, and prints their counts. `engine` is the engine of the family. */
static void files_count(const struct plan *plan, tw_engine *engine, tw_family *family, tw_family *sums,
                        struct print *print, struct result *result) {
    struct windows_shared windows = WINDOWS_SHARED_EMPTY;
    if (plan->resume) {
        resume_run(plan, engine, family, sums, &windows, result);
    } else {
        feed_all(plan, family, sums, &windows, result);
    }
    if (stop_signal() != 0) {
        tool_complain("stopped by %s: the input was not read to its end%s", stop_name(),
                      plan->resume ? "; --resume goes on" : "");
    }
    stop_interrupts();
    if (windows.no_memory) tool_complain("no memory for the list of windows");
    if (!print_all(plan, family, sums, &windows.set, print) || windows.no_memory) result->trouble = true;
    result->windows = windows.set;
}

/* Prints and reports the counts, and sends them to Redis. Returns true if no count is missing anywhere. */
static bool count_finish(const struct plan *plan, tw_engine *engine, tw_family *family, tw_family *sums,
                         const struct result *result, struct sink *sink) {
    bool good = flush_output(sink);
    good = report(plan, result) && good;
    if (plan->svg != NULL && !stop_interrupted()) good = svg_write(plan, family, &result->windows) && good;
    if (plan->resume) return good;
    if (plan->batch != NULL) return batch_send(plan, family, sums, result) && good;
    if (plan->redis_url == NULL) return good;
    (void)count_drain(engine);
    complain_of_before(family, &result->windows);
    return good;
}

static int count_run(const struct plan *plan, struct sink *sink) {
    struct count_lost lost = {0};
    tw_engine *engine;
    tw_family *family, *sums;
    tw_family_options options;
    struct plan counting = *plan; /* a batch is counted without Redis first */
    if (plan->batch != NULL && !plan->resume) counting.redis_url = NULL;
    int code = count_engine_open(&counting, &lost, &engine);
    if (code != EXIT_DONE) return code;
    code = count_family_open(&counting, engine, &options, &family);
    if (code == EXIT_DONE) code = count_sums_open(&counting, engine, &sums);
    if (code != EXIT_DONE) {
        tw_close(engine, 0);
        return code;
    }
    struct print print = print_make(plan, sink);
    struct result result = {0};
    if (plan->follow) {
        follow_run(plan, family, &options, &print, &result);
    } else {
        files_count(&counting, engine, family, sums, &print, &result);
    }
    bool good = count_finish(plan, engine, family, sums, &result, sink);
    good = count_engine_close(engine, counting.redis_url != NULL, &lost) && good;
    windows_free(&result.windows);
    if (stop_signal() != 0) return EXIT_SIGNAL + stop_signal();
    return good ? EXIT_DONE : EXIT_TROUBLE;
}

int count_main(int argc, char **argv) {
    struct plan plan;
    struct sink sink;
    (void)setlocale(LC_CTYPE, "C.UTF-8"); /* keys are UTF-8, and wcwidth() needs this for their width */
    int code = plan_read(argc, argv, &plan);
    if (code >= 0) return code;
    if (!stop_begin()) {
        tool_complain("cannot watch for signals: %s", strerror(errno));
        return EXIT_TROUBLE;
    }
    if (!sink_open(&sink, STDOUT_FILENO)) {
        tool_complain("no memory for the output");
        return EXIT_TROUBLE;
    }
    code = count_run(&plan, &sink);
    sink_close(&sink);
    return code;
}
