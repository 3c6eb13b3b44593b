/* totals.c -- see totals.h. */
#include "engine/ask/totals.h"

#include "engine/ask/redis_call.h"
#include "engine/base/check.h"
#include "engine/base/grow.h"

#include <errno.h>
#include <stdlib.h>

#define ROOM_FIRST 64u
#define NUMBER_DIGITS_MAX 20u /* with the sign */

/* Returns false if the text is no whole number within +-most. */
static bool read_total(tw_key text, int64_t most, int64_t *total) {
    twi_check(most >= 0 && total != NULL);
    char digits[NUMBER_DIGITS_MAX + 1], *end;
    if (text.size == 0 || text.size > NUMBER_DIGITS_MAX) return false;
    memcpy(digits, text.data, text.size);
    digits[text.size] = '\0';
    if (digits[0] != '-' && (digits[0] < '0' || digits[0] > '9')) return false;
    errno = 0;
    *total = strtoll(digits, &end, 10);
    return errno == 0 && end == digits + text.size && *total <= most && *total >= -most;
}

static enum twi_totals_added read_page(struct twi_totals *totals, const char *page, size_t size, int64_t most) {
    for (size_t at = 0; at < size;) {
        struct twi_total found = {.order = totals->count};
        tw_key number;
        if (!twi_redis_call_next_text(page, size, &at, &found.name) ||
            !twi_redis_call_next_text(page, size, &at, &number))
            return TWI_TOTALS_MALFORMED;
        if (!read_total(number, most, &found.total)) continue;
        if (totals->count == TWI_TOTALS_MAX) return TWI_TOTALS_TOO_MANY;
        twi_check(totals->count <= totals->room);
        if (!twi_grow(&totals->each, sizeof *totals->each, &totals->room, totals->count + 1, ROOM_FIRST))
            return TWI_TOTALS_NO_MEMORY;
        totals->each[totals->count++] = found;
    }
    return TWI_TOTALS_ADDED;
}

enum twi_totals_added twi_totals_add(struct twi_totals *totals, char *page, size_t size, int64_t most) {
    twi_check(page != NULL && totals->page_count <= totals->page_room);
    if (!twi_grow(&totals->pages, sizeof(char *), &totals->page_room, totals->page_count + 1, ROOM_FIRST)) {
        free(page);
        return TWI_TOTALS_NO_MEMORY;
    }
    totals->pages[totals->page_count++] = page;
    totals->bytes += size;
    if (totals->bytes > TWI_TOTALS_BYTES_MAX) return TWI_TOTALS_TOO_MANY;
    return read_page(totals, page, size, most);
}

static int compare_names(tw_key a, tw_key b) {
    size_t size = a.size < b.size ? a.size : b.size;
    int order = size != 0 ? memcmp(a.data, b.data, size) : 0;
    return order != 0 ? order : (a.size > b.size) - (a.size < b.size);
}

static int by_name(const void *left, const void *right) {
    const struct twi_total *a = left, *b = right;
    int order = compare_names(a->name, b->name);
    return order != 0 ? order : (a->order > b->order) - (a->order < b->order);
}

static int by_rank(const void *left, const void *right) {
    const struct twi_total *a = left, *b = right;
    if (a->total != b->total) return a->total > b->total ? -1 : 1;
    return compare_names(b->name, a->name);
}

static void sort(struct twi_totals *totals, int (*compare)(const void *left, const void *right)) {
    twi_check(totals->count <= totals->room);
    if (totals->count != 0) qsort(totals->each, totals->count, sizeof *totals->each, compare);
}

void twi_totals_unite(struct twi_totals *totals) {
    size_t kept = 0;
    sort(totals, by_name);
    for (size_t i = 0; i < totals->count; i++) {
        bool is_last = i + 1 == totals->count || compare_names(totals->each[i].name, totals->each[i + 1].name) != 0;
        if (is_last) totals->each[kept++] = totals->each[i];
    }
    totals->count = kept;
    twi_check(kept <= totals->room);
}

void twi_totals_rank(struct twi_totals *totals) {
    sort(totals, by_rank);
}

void twi_totals_clear(struct twi_totals *totals) {
    twi_check(totals->page_count == 0 || totals->pages != NULL);
    for (size_t i = 0; i < totals->page_count; i++) free(totals->pages[i]);
    free(totals->pages);
    free(totals->each);
    *totals = (struct twi_totals){0};
}
