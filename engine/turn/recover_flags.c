/* recover_flags.c -- flags of list members that promise a step which nobody will make any more, because the owner of
 * the turn had taken the list and ended (recover.c).
 *
 *   flag                               the member is in, or will be pushed to
 *   `listed` of a chunk                the chunks of its window
 *   `listed` of a window               the engine's list of windows with marks
 *   `is_news` of a family              the news
 *   a window that is not `announced`   the arrivals of its family
 *   `listed` of a lease                the leases that callers have requested
 * A flag that is set may also be that of a thread which pushes the member at this moment. Such a thread says so before
 * it sets the flag, and until it has pushed (twi_marking_begin). So the order is: the flag, then what the threads say,
 * then the list. If no thread says it and the list has not the member, the flag is cleared. If a thread says it, the
 * thread may also be one that found the flag set and will push nothing. Then the next turn looks again.
 * First the turn takes each list into its own, so that the lists are short: they have what is pushed meanwhile.
 * Always true: a flag is cleared only if no push is to come. After that the next thread that finds it clear pushes.
 * What threads marked while it was set has no push, so the turn lists the member itself (D4). */
#include "engine/turn/recover_flags.h"

#include "engine/core/agenda.h"
#include "engine/core/window_map.h"
#include "engine/count/dirty.h"
#include "engine/turn/lease_stores.h"

/* Returns true if a thread may be about to push a window of this family to the arrivals, or the family to the news.
 * With a window, only that window counts. */
static bool is_said(tw_engine *engine, const struct tw_family *family, const struct twi_generation *window,
                    const void *first_cell, const void *end) {
    void *generation, *cell;
    for (uint32_t number = 0;
         twi_thread_next_marking(engine, twi_engine_process(engine), &number, &generation, &cell);) {
        if (generation == NULL && window == NULL && cell == family) return true;
        if (generation == NULL || !twi_arena_has(&engine->arena, generation)) continue;
        struct twi_generation *of = generation;
        if (window != NULL ? of != window : of->family != family || cell != &of->overflow) continue;
        if (first_cell == NULL ||
            ((const char *)cell >= (const char *)first_cell && (const char *)cell < (const char *)end))
            return true;
    }
    return false;
}

/* Returns true if the flag is to be cleared. */
static bool is_orphan(tw_engine *engine, bool said, bool in_list) {
    if (said) engine->turn.has_doubts = true;
    return !said && !in_list;
}

static bool has_chunk(tw_engine *engine, uint32_t line, uint32_t wanted) {
    while (line != 0 && line != wanted) line = ((struct twi_chunk *)twi_arena_at(&engine->arena, line))->next_marked;
    return line != 0;
}

static void check_chunk(tw_engine *engine, struct twi_generation *generation, uint32_t line) {
    struct twi_chunk *chunk = twi_arena_at(&engine->arena, line);
    if (twi_load_acquire(&chunk->listed) == 0) return;
    const char *end = (const char *)chunk + (size_t)TWI_SEGMENT_LINES * TWI_LINE_BYTES;
    bool said = is_said(engine, generation->family, generation, chunk, end);
    bool in_list = has_chunk(engine, generation->turn.taken, line) ||
                   has_chunk(engine, twi_load_acquire(&generation->marks.chunks), line); /* D8, with the links */
    if (is_orphan(engine, said, in_list)) twi_dirty_unlist(engine, generation, chunk);
}

static bool is_marked(tw_engine *engine, const struct twi_generation *wanted) {
    struct twi_generation *generation = twi_generation_at(&engine->arena, twi_load_acquire(&engine->collector.marked));
    while (generation != NULL && generation != wanted)
        generation = twi_generation_at(&engine->arena, generation->marks.next);
    return generation != NULL;
}

static bool is_requested(tw_engine *engine, uint32_t wanted) {
    uint32_t line = twi_load_acquire(&engine->leases.requested); /* J8, with the links */
    while (line != 0 && line != wanted) line = twi_load_relaxed(&twi_lease_at(&engine->arena, line)->next_requested);
    return line != 0;
}

static void check_leases(tw_engine *engine, struct twi_generation *generation) {
    for (uint32_t line = twi_load_acquire(&generation->leases); line != 0;) { /* J4 */
        struct twi_lease *lease = twi_lease_at(&engine->arena, line);
        if (twi_load_acquire(&lease->listed) != 0) {
            const char *cell = twi_arena_at(&engine->arena, lease->cell);
            bool said = is_said(engine, generation->family, generation, cell, cell + 1);
            if (is_orphan(engine, said, is_requested(engine, line))) twi_lease_stores_unlist(engine, lease);
        }
        line = lease->attached.older;
    }
}

static void check_window(void *ctx, struct twi_generation *generation) {
    tw_engine *engine = ctx;
    struct tw_family *family = generation->family;
    if (!generation->turn.announced) {
        bool said = is_said(engine, family, generation, &generation->overflow, &generation->overflow + 1);
        if (is_orphan(engine, said, twi_window_is_arriving(family, generation))) generation->turn.announced = true;
    }
    if (twi_load_acquire(&generation->marks.listed) != 0) {
        bool said = is_said(engine, family, generation, NULL, NULL);
        if (is_orphan(engine, said, is_marked(engine, generation))) twi_dirty_unlist(engine, generation, NULL);
    }
    bool may_be_sent = twi_dirty_may_be_sent(generation);
    if (may_be_sent) twi_dirty_owe_listed(engine, generation);
    if (family->kind.is_hard && may_be_sent) check_leases(engine, generation);
    for (uint32_t kind = 0; generation->synced && kind < TWI_KINDS; kind++)
        for (uint32_t line = twi_load_acquire(&generation->chunks[kind]); line != 0;) {
            check_chunk(engine, generation, line);
            line = ((struct twi_chunk *)twi_arena_at(&engine->arena, line))->older;
        }
}

static void check_family(tw_engine *engine, struct tw_family *family) {
    twi_window_visit_entered(family, check_window, engine);
    if (twi_load_acquire(&family->agenda.is_news) == 0) return;
    if (!is_orphan(engine, is_said(engine, family, NULL, NULL, NULL), twi_agenda_has_news(family))) return;
    (void)twi_swap_acqrel(&family->agenda.is_news, 0); /* D4 */
    twi_agenda_notify(family);
}

void twi_recover_flags(tw_engine *engine) {
    twi_check(twi_turn_is_owned(engine));
    engine->turn.has_doubts = false;
    twi_dirty_take_marked(engine);
    twi_lease_stores_sort(engine);
    for (uint32_t line = engine->unlinked.generations; line != 0;) {
        struct twi_generation *generation = twi_generation_at(&engine->arena, line);
        line = generation->turn.dropped.next;
        check_window(engine, generation);
    }
    for (struct tw_family *family = twi_load_acquire(&engine->roster.first); family != NULL;
         family = twi_load_acquire(&family->entry.next))
        check_family(engine, family);
}
