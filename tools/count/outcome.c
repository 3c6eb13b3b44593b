/* outcome.c -- what became of lines. See outcome.h. */
#include "tools/count/outcome.h"

#include <string.h>

/* The reason's place; a new one has no lines yet. */
static struct reason *reason_find(struct outcome *outcome, const char *why) {
    for (size_t i = 0; i < outcome->reasons; i++)
        if (strcmp(outcome->reason[i].why, why) == 0) return &outcome->reason[i];
    if (outcome->reasons == OUTCOME_REASONS) return &outcome->reason[OUTCOME_REASONS - 1];
    struct reason *reason = &outcome->reason[outcome->reasons++];
    reason->why = outcome->reasons < OUTCOME_REASONS ? why : "other reasons";
    reason->file = NULL;
    reason->count = 0;
    return reason;
}

static void example_set(struct reason *reason, uint64_t line, const char *text, size_t size) {
    reason->line = line;
    reason->size = text == NULL ? 0 : size < OUTCOME_EXAMPLE_MAX ? size : OUTCOME_EXAMPLE_MAX;
    if (reason->size > 0) memcpy(reason->example, text, reason->size);
}

void outcome_skip(struct outcome *outcome, uint64_t line, const char *why, const char *text, size_t size) {
    struct reason *reason = reason_find(outcome, why);
    outcome->skipped++;
    /* A batch reports later than lines that were skipped at once. So the line with the lowest number is kept. */
    if (reason->count++ == 0 || reason->line > line) example_set(reason, line, text, size);
    if (outcome->skipped_why != NULL && outcome->skipped_line <= line) return;
    outcome->skipped_line = line;
    outcome->skipped_why = why;
}

void outcome_one_skipped(struct outcome *outcome, const char *why) {
    memset(outcome, 0, sizeof *outcome);
    outcome->lines = 1;
    outcome_skip(outcome, 1, why, NULL, 0);
}

bool outcome_fold(struct outcome *total, const struct outcome *piece, uint64_t lines_before, const char *file) {
    bool first = total->skipped_why == NULL && piece->skipped_why != NULL;
    total->lines += piece->lines;
    total->heads += piece->heads;
    total->counted += piece->counted;
    total->skipped += piece->skipped;
    total->unserved += piece->unserved;
    if (first) {
        total->skipped_line = lines_before + piece->skipped_line;
        total->skipped_why = piece->skipped_why;
    }
    for (size_t i = 0; i < piece->reasons; i++) {
        const struct reason *more = &piece->reason[i];
        struct reason *reason = reason_find(total, more->why);
        if (reason->count == 0) example_set(reason, lines_before + more->line, more->example, more->size);
        if (reason->count == 0) reason->file = file;
        reason->count += more->count;
    }
    return first;
}
