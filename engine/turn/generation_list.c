/* generation_list.c -- see generation_list.h. The sort is a merge sort. */
#include "engine/turn/generation_list.h"

static uint32_t merge(struct twi_arena *arena, const struct twi_generation_order *order, uint32_t a, uint32_t b) {
    uint32_t head = 0, *link = &head;
    while (a != 0 && b != 0) {
        bool a_first = order->at_ms(twi_generation_at(arena, a)) <= order->at_ms(twi_generation_at(arena, b));
        uint32_t *first = a_first ? &a : &b;
        *link = *first;
        link = order->next(twi_generation_at(arena, *first));
        *first = *link;
    }
    *link = a != 0 ? a : b;
    return head;
}

/* Takes the first `count` generations from *list, and returns them sorted. */
static uint32_t take_sorted(struct twi_arena *arena, const struct twi_generation_order *order, uint32_t *list,
                            uint32_t count) {
    twi_check(*list != 0); /* the list has as many generations as its owner has counted */
    if (count == 1) {
        uint32_t line = *list, *next = order->next(twi_generation_at(arena, line));
        *list = *next;
        *next = 0;
        return line;
    }
    uint32_t first = take_sorted(arena, order, list, count / 2);
    return merge(arena, order, first, take_sorted(arena, order, list, count - count / 2));
}

uint32_t twi_generations_sort(struct twi_arena *arena, const struct twi_generation_order *order, uint32_t list,
                              uint32_t count) {
    if (count == 0) return list;
    uint32_t fresh = take_sorted(arena, order, &list, count);
    return merge(arena, order, fresh, list);
}
