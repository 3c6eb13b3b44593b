/* batch.c -- sending a batch of counts to Redis once. See batch.h. */
#include "tools/count/batch.h"

#include <stdio.h>
#include <stdlib.h>

#include "tools/count/count_engine.h"
#include "tools/count/resume.h"
#include "tools/count/rows.h"
#include "tools/common/stop.h"
#include "tools/common/tool.h"

struct batch {
    const struct plan *plan;
    tw_engine *engine; /* with Redis; the engine that counts has no Redis */
    tw_family *family, *sums, *marks, *positions;
};

/* What was counted without Redis; `sums` is NULL without --sum. */
struct counted {
    tw_family *family, *sums;
    const struct windows *windows;
};

/* Sets a mark. `*first` becomes true if it was not set before. */
static tw_status mark_set(const struct batch *batch, enum mark mark, bool *first) {
    char text[MARK_KEY_MAX];
    return tw_once(batch->marks, mark_key(mark, batch->plan->batch, text), first);
}

/* What to do with a batch that was begun before. Returns true if it is done. */
static bool begun_before(const struct batch *batch) {
    char text[MARK_KEY_MAX];
    const char *name = batch->plan->batch;
    int64_t total = 0;
    tw_key key = mark_key(MARK_DONE, name, text);
    tw_status status = tw_fetch(batch->marks, &key, 1, MARKS_FETCH_MS, &total);
    if (status != TW_OK) {
        tool_complain("--batch %s: Redis cannot be asked whether it is done: %s", name, tw_status_text(status));
    } else if (total > 0) {
        tool_complain("--batch %s: was counted into this Redis before; nothing was added", name);
        return true;
    } else {
        tool_complain("--batch %s: was begun and is not done: another run is sending it, or one was killed while it"
                      " did, and a part of its counts is in Redis; nothing was added",
                      name);
    }
    return false;
}

/* Adds the counts of one window to a family of the engine that has Redis. */
static tw_status window_add(const struct batch *batch, tw_family *family, int64_t start_ms, const struct rows *rows) {
    bool is_endless = batch->plan->window_ms == WINDOWS_ALL;
    for (size_t i = 0; i < rows->count; i++) {
        tw_key key = tw_bytes(rows->row[i].key, rows->row[i].key_size);
        int64_t rest = rows->row[i].count;
        do { /* a sum may exceed the delta of one add */
            int64_t delta = rest > TW_DELTA_MAX ? TW_DELTA_MAX : rest < -TW_DELTA_MAX ? -TW_DELTA_MAX : rest;
            tw_status status =
                is_endless ? tw_add(family, key, delta, NULL) : tw_add_at(family, key, delta, start_ms, NULL);
            if (status != TW_OK) return status;
            rest -= delta;
        } while (rest != 0);
    }
    return TW_OK;
}

static bool counts_add(const struct batch *batch, const struct counted *counted) {
    struct rows rows = ROWS_EMPTY;
    size_t count;
    int64_t *starts = windows_sorted(counted->windows, &count);
    tw_status status = starts == NULL && count > 0 ? TW_ERR_MEMORY : TW_OK;
    for (size_t i = 0; starts != NULL && i < count && status == TW_OK; i++) {
        status = rows_collect(&rows, counted->family, starts[i], 0, true);
        if (status == TW_OK) status = window_add(batch, batch->family, starts[i], &rows);
        if (counted->sums == NULL || status != TW_OK) continue;
        status = rows_collect(&rows, counted->sums, starts[i], 0, true);
        if (status == TW_OK) status = window_add(batch, batch->sums, starts[i], &rows);
    }
    rows_free(&rows);
    free(starts);
    if (status != TW_OK)
        tool_complain("--batch %s: not all counts can be sent: %s", batch->plan->batch, tw_status_text(status));
    return status == TW_OK;
}

/* No earlier run has begun the batch. It is sent, and marked as done when Redis has all of it. */
static bool batch_send_all(struct batch *batch, const struct counted *counted) {
    bool first, added = counts_add(batch, counted);
    if (count_drain(batch->engine) == TW_OK && added && mark_set(batch, MARK_DONE, &first) == TW_OK) return true;
    tool_complain("--batch %s: Redis did not take every count; it stays marked as begun, and no run sends it again",
                  batch->plan->batch);
    return false;
}

/* No run without --resume has begun it. If a run with --resume has, the mark that was just set is removed again. */
static bool send_unless_resumed(struct batch *batch, const struct counted *counted) {
    char text[MARK_KEY_MAX];
    const char *name = batch->plan->batch;
    bool resumed = false;
    tw_status status = resume_has_begun(batch->positions, name, &resumed);
    if (status == TW_OK && !resumed) return batch_send_all(batch, counted);
    (void)tw_once_cancel(batch->marks, mark_key(MARK_BEGUN, name, text));
    if (status == TW_OK) {
        tool_complain("--batch %s: was begun with --resume, and goes on with it alone; nothing was added", name);
    } else {
        tool_complain("--batch %s: nothing was sent, Redis cannot be asked for its position: %s", name,
                      tw_status_text(status));
    }
    return false;
}

static bool begin_and_send(struct batch *batch, const struct counted *counted) {
    bool first = false;
    tw_status status = mark_set(batch, MARK_BEGUN, &first);
    if (status != TW_OK) {
        tool_complain("--batch %s: nothing was sent, Redis cannot be asked whether it was counted before: %s",
                      batch->plan->batch, tw_status_text(status));
        return false;
    }
    return first ? send_unless_resumed(batch, counted) : begun_before(batch);
}

/* Returns the reason why the counts are not the whole batch, or NULL if they are. */
static const char *incomplete(const struct result *result) {
    if (stop_signal() != 0) return "a signal came before";
    if (result->trouble) return "not all of the input could be read";
    if (result->total.unserved > 0) return "memory did not suffice for every key";
    return NULL;
}

bool batch_send(const struct plan *plan, tw_family *family, tw_family *sums, const struct result *result) {
    const struct counted counted = {family, sums, &result->windows};
    struct batch batch = {.plan = plan};
    struct count_lost lost = {0};
    tw_family_options options;
    const char *why = incomplete(result);
    if (why != NULL) {
        tool_complain("--batch %s: nothing was sent to Redis: %s", plan->batch, why);
        return false;
    }
    if (count_engine_open(plan, &lost, &batch.engine) != EXIT_DONE) return false;
    bool good = count_family_open(plan, batch.engine, &options, &batch.family) == EXIT_DONE &&
                count_sums_open(plan, batch.engine, &batch.sums) == EXIT_DONE &&
                marks_open(batch.engine, &batch.marks) && resume_positions_open(batch.engine, &batch.positions) &&
                begin_and_send(&batch, &counted);
    return count_engine_close(batch.engine, true, &lost) && good;
}
