/* counter.c -- from text to counts. See counter.h. */
#include "tools/count/counter.h"

#include <stdlib.h>

const char counter_too_long[] = "longer than 1 MiB";

void counter_forget_windows(struct counter *counter) {
    counter->window_start_ms = WINDOWS_FREE;
    for (size_t i = 0; i < COUNTER_WINDOWS_NOTED; i++) counter->noted[i] = WINDOWS_FREE;
}

struct counter *counter_new(tw_family *family, tw_family *sums, const struct line_rule *rule, int64_t window_ms,
                            struct windows_shared *windows) {
    struct counter *counter = malloc(sizeof *counter);
    if (counter == NULL) return NULL;
    counter->family = family;
    counter->sums = sums;
    counter->rule = rule;
    counter->head = NULL;
    counter->window_ms = window_ms;
    counter->start_min_ms = INT64_MIN;
    counter->windows = windows;
    counter->batched = 0;
    counter_forget_windows(counter);
    return counter;
}

void counter_free(struct counter *counter) {
    free(counter);
}

static const char *refusal(tw_status status) {
    switch (status) {
    case TW_ERR_RANGE: return "the count would exceed 2^61 - 1";
    case TW_ERR_LATE: return "late: its window has been closed";
    case TW_ERR_EARLY: return "its time is too far ahead";
    default: return tw_status_text(status);
    }
}

/* Most lines are in the same window as the line before, or in one noted recently; so the shared set is rarely
 * needed. */
static void note_window(struct counter *counter, int64_t unix_ms) {
    if (counter->window_start_ms != WINDOWS_FREE) {
        int64_t into = unix_ms - counter->window_start_ms; /* cannot wrap, because times are within +-10^15 ms */
        if (into >= 0 && into < counter->window_ms) return;
    }
    int64_t start_ms = windows_start(unix_ms, counter->window_ms, counter->rule->utc_offset_ms);
    int64_t *noted = &counter->noted[(uint64_t)(start_ms / counter->window_ms) % COUNTER_WINDOWS_NOTED];
    if (*noted != start_ms) windows_note(counter->windows, start_ms);
    *noted = start_ms;
    counter->window_start_ms = start_ms;
}

static void counter_settle(struct counter *counter, tw_status status, int64_t unix_ms, uint64_t line,
                           struct outcome *outcome) {
    if (status == TW_OK) {
        note_window(counter, unix_ms);
        outcome->counted++;
    } else if (status == TW_ERR_FULL || status == TW_ERR_MEMORY || status == TW_OVERFLOWED) {
        outcome->unserved++;
    } else {
        outcome_skip(outcome, line, refusal(status), NULL, 0);
    }
}

static tw_status one_add(const struct counter *counter, tw_family *family, size_t at, int64_t delta) {
    if (delta == 0) return TW_OK;
    return counter->window_ms == WINDOWS_ALL ? tw_add(family, counter->keys[at], delta, NULL)
                                             : tw_add_at(family, counter->keys[at], delta, counter->unix_ms[at], NULL);
}

/* Each line with its sum: both count, or neither. */
static void batch_add_sums(struct counter *counter, struct outcome *outcome) {
    for (size_t i = 0; i < counter->batched; i++) {
        tw_status status = one_add(counter, counter->sums, i, counter->sum[i]);
        if (status == TW_OK) {
            status = one_add(counter, counter->family, i, counter->deltas[i]);
            if (status != TW_OK) (void)one_add(counter, counter->sums, i, -counter->sum[i]);
        }
        counter_settle(counter, status, counter->unix_ms[i], counter->lines[i], outcome);
    }
    counter->batched = 0;
}

static void batch_add(struct counter *counter, struct outcome *outcome) {
    if (counter->batched == 0) return;
    if (counter->sums != NULL) {
        batch_add_sums(counter, outcome);
        return;
    }
    tw_status worst =
        counter->window_ms == WINDOWS_ALL
            ? tw_add_many(counter->family, counter->keys, counter->deltas, counter->batched, NULL, counter->statuses)
            : tw_add_many_at(counter->family, counter->keys, counter->deltas, counter->batched, counter->unix_ms, NULL,
                             counter->statuses);
    if (worst == TW_OK) {
        for (size_t i = 0; i < counter->batched; i++) note_window(counter, counter->unix_ms[i]);
        outcome->counted += counter->batched;
    } else {
        for (size_t i = 0; i < counter->batched; i++)
            counter_settle(counter, counter->statuses[i], counter->unix_ms[i], counter->lines[i], outcome);
    }
    counter->batched = 0;
}

static tw_status element_add(struct counter *counter, const struct line *line) {
    if (counter->window_ms == WINDOWS_ALL) return tw_distinct_add(counter->family, line->key, line->element, NULL);
    return tw_distinct_add_at(counter->family, line->key, line->element, line->unix_ms, NULL);
}

static void line_take(struct counter *counter, const char *text, size_t size, struct outcome *outcome) {
    struct line line;
    size_t at = counter->batched;
    const char *why =
        line_parse(counter->rule, counter->head, text, size, &line, counter->joined + at * TW_KEY_SIZE_MAX);
    outcome->lines++;
    if (why == NULL && counter->start_min_ms != INT64_MIN &&
        windows_start(line.unix_ms, counter->window_ms, counter->rule->utc_offset_ms) < counter->start_min_ms) {
        why = refusal(TW_ERR_LATE);
    }
    if (why != NULL) {
        if (why == line_is_head)
            outcome->heads++;
        else if (why != line_left_out)
            outcome_skip(outcome, outcome->lines, why, text, size);
        return;
    }
    if (counter->rule->element_count > 0) {
        counter_settle(counter, element_add(counter, &line), line.unix_ms, outcome->lines, outcome);
        return;
    }
    counter->keys[at] = line.key;
    counter->deltas[at] = line.delta;
    counter->sum[at] = line.sum;
    counter->unix_ms[at] = line.unix_ms;
    counter->lines[at] = outcome->lines;
    if (++counter->batched == COUNTER_BATCH) batch_add(counter, outcome);
}

void counter_take(struct counter *counter, const char *text, size_t size, struct outcome *outcome) {
    const char *end = text + size;
    memset(outcome, 0, offsetof(struct outcome, reason)); /* the reasons are filled one by one */
    while (text < end) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        const char *line_end = newline == NULL ? end : newline;
        line_take(counter, text, (size_t)(line_end - text), outcome);
        text = newline == NULL ? end : newline + 1;
    }
    batch_add(counter, outcome);
}
