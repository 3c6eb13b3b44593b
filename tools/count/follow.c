/* follow.c -- `count --follow` reads logs as they grow and prints each window when it closes.
 *
 * First it catches up, which means that it reads the existing lines. Then the family still accepts counts of any time.
 * Then it prints the windows that have ended, and the family's lateness becomes --lateness. From then on the engine
 * closes windows. Its hook renders a window on the engine's thread, and the main thread writes it. So a slow reader of
 * the output delays neither windows nor Redis.
 * Always true: each window is printed once; a line for a window that was printed is skipped and reported as late. */
#include "tools/count/follow.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "tools/common/moment.h"
#include "tools/common/stop.h"
#include "tools/count/tail.h"
#include "tools/common/tool.h"

#define LOOK_EVERY_MS 200  /* how often growing files are checked */
#define PIPE_QUIET_MS 1000 /* a pipe that was silent for this long has no more past lines */
#define FORGET_AT 4096     /* when this many printed windows are remembered, old ones are removed */

/* A window that was rendered and not yet written. */
struct page {
    struct page *next;
    int64_t start_ms;
    struct sink text;
};

/* Shared with the hook. It is static, because the hook may be called until the engine is closed, also after
 * follow_run() has returned. */
static struct live {
    pthread_mutex_t lock;
    bool over;            /* no window is rendered any more */
    int64_t start_min_ms; /* windows before this one were printed when catching up ended */
    size_t top;
    bool is_alone; /* no Redis */
    struct print print;
    struct rows rows;
    struct windows printed; /* windows printed by the hook */
    struct page *pages, **pages_tail;
} live = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The state of follow_run(). */
struct follow {
    const struct plan *plan;
    tw_family *family;
    tw_family_options *options;
    struct print *print;
    struct result *result;
    struct counter *counter;
    struct windows_shared windows;
    struct tail *tails;
    size_t tail_count;
    bool is_live;
    int64_t quiet_since_ms;
};

static int64_t follow_wall_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- the hook: the engine's thread ---- */

/* Returns false if there is no memory; the engine calls the hook again. */
static bool page_add(tw_family *family, int64_t start_ms) {
    struct page *page = malloc(sizeof *page);
    if (page == NULL) return false;
    *page = (struct page){.start_ms = start_ms};
    if (sink_open(&page->text, -1) && rows_collect(&live.rows, family, start_ms, live.top, live.is_alone) == TW_OK &&
        windows_add(&live.printed, start_ms)) {
        live.print.sink = &page->text;
        print_window(&live.print, start_ms, &live.rows);
        if (page->text.error == 0) {
            *live.pages_tail = page;
            live.pages_tail = &page->next;
            return true;
        }
    }
    sink_close(&page->text);
    free(page);
    return false;
}

static bool on_window_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    (void)ctx, (void)end_ms, (void)flags;
    pthread_mutex_lock(&live.lock);
    bool done = live.over || start_ms < live.start_min_ms || windows_holds(&live.printed, start_ms) ||
                page_add(family, start_ms);
    pthread_mutex_unlock(&live.lock);
    return done;
}

/* ---- printing: the main thread ---- */

static void pages_write(struct follow *follow) {
    pthread_mutex_lock(&live.lock);
    struct page *page = live.pages;
    live.pages = NULL;
    live.pages_tail = &live.pages;
    pthread_mutex_unlock(&live.lock);
    while (page != NULL) {
        struct page *next = page->next;
        sink_bytes(follow->print->sink, page->text.buffer, page->text.size);
        sink_flush(follow->print->sink);
        sink_close(&page->text);
        free(page);
        page = next;
    }
}

/* Prints the windows that start in [low, high) and that the hook has not printed, in ascending order. */
static void windows_print(struct follow *follow, int64_t low_ms, int64_t high_ms) {
    struct print *print = follow->print;
    size_t count;
    int64_t *starts = windows_sorted(&follow->windows.set, &count);
    struct rows rows = ROWS_EMPTY;
    tw_status status = starts == NULL && count > 0 ? TW_ERR_MEMORY : TW_OK;
    for (size_t i = 0; starts != NULL && i < count && status == TW_OK && print->sink->error == 0; i++) {
        if (starts[i] < low_ms || starts[i] >= high_ms || windows_holds(&live.printed, starts[i])) continue;
        status = rows_collect(&rows, follow->family, starts[i], follow->plan->top, follow->plan->redis_url == NULL);
        if (status == TW_OK) print_window(print, starts[i], &rows);
    }
    if (status != TW_OK) {
        tool_complain("a window cannot be shown: %s", tw_status_text(status));
        follow->result->trouble = true;
    }
    sink_flush(print->sink);
    rows_free(&rows);
    free(starts);
}

/* From time to time, forgets windows that the hook has printed. A follower runs for months. */
static void printed_forget(struct follow *follow) {
    pthread_mutex_lock(&live.lock);
    if (live.printed.count >= FORGET_AT) {
        struct windows kept = WINDOWS_EMPTY;
        const struct windows *all = &follow->windows.set;
        bool whole = true;
        for (size_t i = 0; i < all->capacity && whole; i++) {
            int64_t start_ms = all->slots[i];
            if (start_ms == WINDOWS_FREE || start_ms < live.start_min_ms || windows_holds(&live.printed, start_ms))
                continue;
            whole = windows_add(&kept, start_ms);
        }
        if (whole) {
            windows_free(&follow->windows.set);
            windows_free(&live.printed);
            follow->windows.set = kept;
            counter_forget_windows(follow->counter);
        } else {
            windows_free(&kept);
        }
    }
    pthread_mutex_unlock(&live.lock);
}

/* ---- catching up ---- */

/* The first window that still accepts lines, which is the one with the moment `lateness` ago. */
static int64_t first_open_window(const struct plan *plan) {
    return windows_start(follow_wall_ms() - plan->lateness_ms, plan->window_ms, plan->rule.utc_offset_ms);
}

/* A file read to its end has caught up. An empty pipe may only be slow. Unless its lines have come to the present, it
 * gets one more second. */
static bool has_caught_up(const struct follow *follow) {
    bool pipes = false;
    for (size_t i = 0; i < follow->tail_count; i++)
        pipes = pipes || (follow->tails[i].now.may_block && !follow->tails[i].ended);
    if (!pipes) return true;
    if (follow->counter->window_start_ms != WINDOWS_FREE &&
        follow->counter->window_start_ms >= first_open_window(follow->plan)) {
        return true;
    }
    return moment_mono_ms() - follow->quiet_since_ms >= PIPE_QUIET_MS;
}

static void go_live(struct follow *follow) {
    const struct plan *plan = follow->plan;
    char error[256] = "";
    int64_t first_ms = first_open_window(plan);
    windows_print(follow, INT64_MIN, first_ms);
    follow->counter->start_min_ms = first_ms;
    live.start_min_ms = first_ms;
    live.top = plan->top;
    live.is_alone = plan->redis_url == NULL;
    live.print = *follow->print;
    live.pages_tail = &live.pages;
    follow->options->lateness_ms = plan->lateness_ms;
    follow->options->on_window_closed = on_window_closed;
    follow->options->error_text = error;
    follow->options->error_size = sizeof error;
    tw_status status = tw_family_set(follow->family, follow->options);
    if (status != TW_OK) {
        tool_complain("%s", error[0] != '\0' ? error : tw_status_text(status));
        follow->result->trouble = true;
    }
    follow->is_live = true;
}

/* ---- the loop ---- */

/* Checks every input once. Returns whether there may be more at once; `*all_ended` becomes true if all inputs have
 * ended. */
static bool inputs_read(struct follow *follow, bool *all_ended) {
    struct result *result = follow->result;
    bool more = false;
    *all_ended = true;
    for (size_t i = 0; i < follow->tail_count; i++) {
        uint64_t lines = result->total.lines;
        enum tail_state state = tail_read(&follow->tails[i], follow->counter, &result->total, &result->skipped_file);
        if (state == TAIL_TROUBLE) result->trouble = true;
        if (state == TAIL_MORE) more = true;
        if (!follow->tails[i].ended) *all_ended = false;
        if (result->total.lines != lines) follow->quiet_since_ms = moment_mono_ms();
    }
    return more;
}

/* Waits until something may have come. A pipe wakes it, files are checked periodically. */
static void inputs_wait(const struct follow *follow) {
    int fd = -1;
    for (size_t i = 0; i < follow->tail_count && fd < 0; i++) {
        if (follow->tails[i].now.may_block && !follow->tails[i].ended) fd = follow->tails[i].now.fd;
    }
    stop_wait(fd, LOOK_EVERY_MS);
}

static void loop(struct follow *follow) {
    bool all_ended = false;
    follow->quiet_since_ms = moment_mono_ms();
    while (stop_signal() == 0 && !all_ended && follow->print->sink->error == 0 && !follow->result->trouble) {
        bool more = inputs_read(follow, &all_ended);
        if (!more && !all_ended && !follow->is_live && has_caught_up(follow)) go_live(follow);
        if (follow->is_live) {
            pages_write(follow);
            printed_forget(follow);
        }
        if (!more && !all_ended) inputs_wait(follow);
    }
}

/* Prints the windows that are still open, as they are. */
static void follow_finish(struct follow *follow) {
    pthread_mutex_lock(&live.lock);
    live.over = true;
    pthread_mutex_unlock(&live.lock);
    if (follow->is_live) {
        pages_write(follow);
        follow->print->windows = live.print.windows;
        follow->print->sum = live.print.sum;
    }
    for (size_t i = 0; i < follow->tail_count; i++)
        tail_finish(&follow->tails[i], follow->counter, &follow->result->total, &follow->result->skipped_file);
    windows_print(follow, follow->is_live ? live.start_min_ms : INT64_MIN, INT64_MAX);
    print_end(follow->print);
    if (follow->windows.no_memory) {
        tool_complain("no memory for the list of windows");
        follow->result->trouble = true;
    }
    windows_free(&follow->windows.set);
    windows_free(&live.printed);
    rows_free(&live.rows);
}

void follow_run(const struct plan *plan, tw_family *family, tw_family_options *options, struct print *print,
                struct result *result) {
    struct follow follow = {.plan = plan,
                            .family = family,
                            .options = options,
                            .print = print,
                            .result = result,
                            .windows = WINDOWS_SHARED_EMPTY};
    follow.counter = counter_new(family, NULL, &plan->rule, plan->window_ms, &follow.windows);
    follow.tails = calloc(plan->file_count, sizeof *follow.tails);
    if (follow.counter == NULL || follow.tails == NULL) {
        tool_complain("no memory for counting");
        result->trouble = true;
    }
    for (size_t i = 0; i < plan->file_count && !result->trouble; i++) {
        result->trouble = !tail_open(&follow.tails[i], plan->files[i]);
        if (!result->trouble) follow.tail_count++;
    }
    if (!result->trouble) {
        print_begin(print);
        loop(&follow);
        follow_finish(&follow);
    }
    for (size_t i = 0; i < follow.tail_count; i++) tail_close(&follow.tails[i]);
    free(follow.tails);
    counter_free(follow.counter);
}
