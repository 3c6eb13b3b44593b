/* part.c -- see part.h. */
#include "engine/memory/part.h"

#include <string.h>

#define REST_PART 8u      /* parts leave an eighth of the memory to all other uses */
#define RUNS_MAX 16u      /* the most runs of one step, because a share is not made of small pieces */
#define LOOKED_AT_MAX 32u /* how many parts are looked at in each turn */

/* ---- one part ---- */

static void own(struct twi_arena *whole, const struct twi_part *part, struct twi_arena *owner) {
    uint32_t first = part->arena.shift / TWI_SEGMENT_LINES + 1;
    for (uint32_t i = 0; i < part->segments; i++) twi_store_relaxed(&whole->parts.owners[first + i], owner);
}

/* Zeroes its memory for free lines. */
static void begin(struct twi_arena *whole, struct twi_part *part, uint32_t line, uint32_t segments) {
    struct twi_arena *arena = &part->arena;
    void *bits = arena->free_map.bits;
    memset((void *)arena, 0, sizeof *arena);
    arena->whole = whole;
    arena->is_shared = whole->is_shared;
    arena->shift = line - TWI_SEGMENT_LINES; /* the first segment of the part is number 1, because line 0 means none */
    arena->base = twi_arena_at(whole, arena->shift);
    arena->bytes_max = (uint64_t)segments * TWI_SEGMENT_BYTES;
    arena->segments_max = segments;
    twi_free_map_begin(&arena->free_map, bits, segments);
    part->segments = segments;
    part->next = whole->parts.first;
    whole->parts.first = part;
    (void)twi_add_relaxed(&whole->parts.bytes_aside, (int64_t)arena->bytes_max);
    own(whole, part, arena);
}

static size_t bits_bytes(uint32_t segments) {
    return (twi_free_map_bytes(segments) + TWI_LINE_BYTES - 1) & ~(size_t)(TWI_LINE_BYTES - 1);
}

static struct twi_part *make(struct twi_arena *whole, uint32_t segments) {
    size_t head = (sizeof(struct twi_part) + TWI_LINE_BYTES - 1) & ~(size_t)(TWI_LINE_BYTES - 1);
    size_t bytes = head + bits_bytes(segments);
    struct twi_part *part = twi_arena_block(bytes, whole->is_shared);
    if (part == NULL) return NULL;
    part->bytes = bytes;
    part->arena.free_map.bits = (void *)((unsigned char *)part + head);
    uint32_t line = twi_arena_detach(whole, segments);
    if (line == 0) {
        twi_arena_give_block(part, bytes, whole->is_shared);
        return NULL;
    }
    begin(whole, part, line, segments);
    return part;
}

static void give(struct twi_arena *whole, struct twi_part *part) {
    struct twi_part **link = &whole->parts.first;
    while (*link != part) link = &(*link)->next;
    *link = part->next;
    if (whole->parts.next == part) whole->parts.next = part->next;
    own(whole, part, NULL);
    twi_arena_attach(whole, part->arena.shift + TWI_SEGMENT_LINES, part->segments);
    (void)twi_sub_relaxed(&whole->parts.bytes_aside, (int64_t)part->arena.bytes_max);
    twi_arena_give_block(part, part->bytes, whole->is_shared);
}

/* ---- the parts of a family ---- */

uint64_t twi_parts_bytes(twi_parts *parts) {
    uint64_t bytes = 0;
    for (const struct twi_part *part = twi_load_acquire(parts); part != NULL; part = part->older)
        bytes += part->arena.bytes_max;
    return bytes;
}

uint64_t twi_parts_bytes_left(const struct twi_arena *whole) {
    uint32_t rest = whole->segments_max / REST_PART != 0 ? whole->segments_max / REST_PART : 1;
    uint64_t most = (uint64_t)(whole->segments_max - rest) * TWI_SEGMENT_BYTES;
    uint64_t aside = (uint64_t)twi_load_relaxed(&whole->parts.bytes_aside);
    return most > aside ? most - aside : 0;
}

bool twi_parts_extend(struct twi_arena *whole, twi_parts *parts, uint64_t bytes) {
    uint64_t have = twi_parts_bytes(parts);
    if (bytes <= have) return true;
    uint64_t more = (bytes - have + TWI_SEGMENT_BYTES - 1) / TWI_SEGMENT_BYTES;
    if (more * TWI_SEGMENT_BYTES > twi_parts_bytes_left(whole)) return false;
    struct twi_part *before = twi_load_relaxed(parts), *newest = before;
    uint32_t wanted = (uint32_t)more, run = wanted;
    for (uint32_t runs = 0; wanted != 0 && run != 0 && runs < RUNS_MAX;) {
        if (run > wanted) run = wanted;
        struct twi_part *part = make(whole, run);
        if (part == NULL) {
            run /= 2;
            continue;
        }
        part->older = newest;
        newest = part;
        wanted -= run;
        runs++;
    }
    while (wanted != 0 && newest != before) {
        struct twi_part *part = newest;
        newest = part->older;
        give(whole, part);
    }
    twi_store_release(parts, newest); /* A8, pairs with A9, so a thread that sees a part sees it complete */
    return wanted == 0;
}

uint32_t twi_parts_take(twi_parts *parts, uint32_t lines) {
    for (struct twi_part *part = twi_load_acquire(parts); part != NULL; part = part->older) { /* A9 */
        if (lines > part->segments * TWI_SEGMENT_LINES) continue;
        uint32_t line = twi_arena_take(&part->arena, lines);
        if (line != 0) return line + part->arena.shift;
    }
    return 0;
}

bool twi_parts_are_empty(twi_parts *parts) {
    for (const struct twi_part *part = twi_load_acquire(parts); part != NULL; part = part->older)
        if (twi_arena_bytes_used(&part->arena) != 0) return false;
    return true;
}

void twi_parts_give(struct twi_arena *whole, twi_parts *parts) {
    struct twi_part *part = twi_load_relaxed(parts);
    twi_store_relaxed(parts, NULL);
    while (part != NULL) {
        struct twi_part *older = part->older;
        twi_check(twi_arena_bytes_used(&part->arena) == 0);
        give(whole, part);
        part = older;
    }
}

bool twi_parts_renew(struct twi_arena *whole, twi_parts *parts) {
    for (struct twi_part *part = twi_load_relaxed(parts); part != NULL; part = part->older) {
        uint32_t line = twi_arena_detach(whole, part->segments);
        if (line == 0) return false;
        memset((void *)part->arena.free_map.bits, 0, bits_bytes(part->segments));
        begin(whole, part, line, part->segments);
    }
    return true;
}

void twi_parts_free(twi_parts *parts) {
    for (struct twi_part *part = twi_load_relaxed(parts), *older; part != NULL; part = older) {
        older = part->older;
        twi_arena_give_block(part, part->bytes, part->arena.is_shared);
    }
}

void twi_parts_keep_ahead(struct twi_arena *whole, int64_t mono_ms, uint32_t *work) {
    for (uint32_t left = LOOKED_AT_MAX; left != 0 && whole->parts.first != NULL; left--) {
        struct twi_part *part = whole->parts.next != NULL ? whole->parts.next : whole->parts.first;
        whole->parts.next = part->next;
        if (twi_arena_bytes_used(&part->arena) == 0) continue; /* memory is committed only when it is used */
        twi_arena_survey(&part->arena, mono_ms);
        twi_arena_keep_ahead(&part->arena, work);
        if (whole->parts.next == NULL) return;
    }
}
