/* alike.h -- a model's reply beside that of a real Redis, element by element.
 * Always true: of errors the first word counts, for a later Redis may change the rest, and sync reads no more; but a
 * redirect counts as a whole. Times may differ by the milliseconds between the two. */
#ifndef TEST_REDIS_ALIKE_H
#define TEST_REDIS_ALIKE_H

#include "sync/batch/reply.h"
#include "tests/support/support.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static inline bool is_alike(const struct twi_node *a, const struct twi_node *b) {
    if (a->type != b->type || a->depth != b->depth) return false;
    if (a->type == TWI_NODE_INTEGER)
        return a->integer == b->integer ||
               (a->integer > INT64_C(1600000000000) && llabs(a->integer - b->integer) <= 3000);
    if (a->type == TWI_NODE_ARRAY) return a->integer == b->integer;
    if (a->type == TWI_NODE_NIL) return true;
    bool whole = a->type != TWI_NODE_ERROR || twi_node_is(a, "MOVED") || twi_node_is(a, "ASK");
    if (whole) return a->size == b->size && memcmp(a->text, b->text, a->size) == 0;
    const char *said = twi_reply_said(a), *other = twi_reply_said(b);
    size_t size = strcspn(said, " ");
    return size == strcspn(other, " ") && memcmp(said, other, size) == 0;
}

/* `server`: which one was asked, for the line about a difference. */
static inline void assert_alike(int server, const struct twi_node *real, size_t real_count,
                                const struct twi_node *model, size_t model_count) {
    bool alike = real_count == model_count;
    for (size_t i = 0; alike && i < real_count; i++) {
        alike = is_alike(&real[i], &model[i]);
        if (!alike)
            print_error("node %zu: real %d %" PRId64 " %s, model %d %" PRId64 " %s\n", i, real[i].type, real[i].integer,
                        real[i].text ? real[i].text : "", model[i].type, model[i].integer,
                        model[i].text ? model[i].text : "");
    }
    if (!alike)
        print_error("asked %d: %zu and %zu nodes; %s / %s\n", server, real_count, model_count,
                    real_count > 1 ? real[1].text : real[0].text, model_count > 1 ? model[1].text : model[0].text);
    assert_true(alike);
}

#endif
