/* each.c -- tw_each() shows every counter of a window to a visitor. See each.h. Inside a section the counts are
 * copied into a buffer. Outside of the section they are shown to the visitor. So a slow visitor delays only the
 * walked window (walk.h). */
#include "engine/count/each.h"

#include "engine/count/walk.h"

#include <stdalign.h>

#define EACH_BYTES 8192

struct each {
    bool (*wants)(void *ctx, tw_key key); /* NULL means all */
    bool (*visit)(void *ctx, const tw_count *count);
    void *ctx;
    struct twi_thread *self;
    size_t used;
    alignas(8) unsigned char buffer[EACH_BYTES];
};
static_assert(sizeof(tw_count) + TW_KEY_SIZE_MAX <= EACH_BYTES, "the longest key fits");

/* Returns false if the buffer is full. */
static bool copy(void *ctx, const tw_count *count) {
    struct each *each = ctx;
    if (each->wants != NULL && !each->wants(each->ctx, count->key)) return true;
    size_t size = sizeof *count + ((count->key.size + 7) & ~(size_t)7);
    if (each->used + size > EACH_BYTES) return false;
    memcpy(each->buffer + each->used, count, sizeof *count);
    memcpy(each->buffer + each->used + sizeof *count, count->key.data, count->key.size);
    each->used += size;
    return true;
}

static bool show_buffer(void *ctx) {
    struct each *each = ctx;
    for (size_t at = 0; at < each->used;) {
        tw_count count;
        memcpy(&count, each->buffer + at, sizeof count);
        count.key.data = each->buffer + at + sizeof count;
        if (!each->visit(each->ctx, &count) || twi_thread_self != each->self) return false;
        at += sizeof count + ((count.key.size + 7) & ~(size_t)7);
    }
    each->used = 0;
    return true;
}

static bool show_overflow(void *ctx, const tw_count *spill) {
    const struct each *each = ctx;
    return each->wants != NULL || (spill->local == 0 && spill->view == 0) || each->visit(each->ctx, spill);
}

/* The caller has set `wants`. */
static tw_status show(struct each *each, bool at_end, tw_family *family, int64_t unix_ms,
                      bool (*visit)(void *ctx, const tw_count *count), void *ctx) {
    each->visit = visit;
    each->ctx = ctx;
    each->self = twi_thread_here();
    each->used = 0;
    const struct twi_walker walker = {
        .ctx = each, .at_end = at_end, .take = copy, .rest = show_buffer, .end = show_overflow};
    return twi_walk(family, unix_ms, &walker);
}

tw_status twi_each_wanted(tw_family *family, int64_t unix_ms, bool (*wants)(void *ctx, tw_key key),
                          bool (*visit)(void *ctx, const tw_count *count), void *ctx) {
    struct each each; /* the buffer is not cleared */
    each.wants = wants;
    return show(&each, false, family, unix_ms, visit, ctx);
}

tw_status twi_each_at_end(tw_family *family, int64_t unix_ms, bool (*visit)(void *ctx, const tw_count *count),
                          void *ctx) {
    struct each each;
    each.wants = NULL;
    return show(&each, true, family, unix_ms, visit, ctx);
}

tw_status tw_each(tw_family *family, int64_t unix_ms, bool (*visit)(void *ctx, const tw_count *count), void *ctx) {
    twi_check(family != NULL && visit != NULL);
    return twi_each_wanted(family, unix_ms, NULL, visit, ctx);
}
