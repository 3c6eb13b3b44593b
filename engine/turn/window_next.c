/* window_next.c -- prepares the next window while the present one is open, so that no thread meets an unused page at
 * the end of the window.
 * Always true: a forecast uses no memory that present counters need. A window that cannot be finished is given back
 * at once. */
#include "engine/turn/window_next.h"

#include "engine/core/window_map.h"
#include "engine/table/record.h"

#define ROOM_LOOKS 32 /* how often in the length of a window to check whether the next window has room */

/* No other thread has ever seen this generation. The generation joins the dropped ones, and is given back in bounded
 * pieces. */
void twi_window_abandon(struct twi_rollover *rollover) {
    twi_check(rollover->family->turn.prepared.generation == NULL ||
              rollover->family->turn.prepared.generation->family == rollover->family);
    struct tw_family *family = rollover->family;
    struct twi_generation *generation = family->turn.prepared.generation;
    if (generation == NULL) return;
    generation->turn.announced = generation->turn.dropped.is_hidden = true;
    twi_rollover_drop(rollover->engine, generation);
    family->turn.prepared.generation = NULL;
    generation->turn.dropped.stamp = 0;
    family->turn.held++;
}

static bool has_share(const struct tw_family *family) {
    return twi_load_relaxed(&family->quota.bytes_max) != 0;
}

/* The memory of the family's windows, and the memory that the open window and the next one will still need if both
 * become as large as the largest of those windows and the last one. */
struct room {
    int64_t lives, needs;
    struct twi_generation *oldest; /* the oldest window in the history; NULL means that there is none */
};

static struct room room_of(struct twi_rollover *rollover, struct twi_span span) {
    struct tw_family *family = rollover->family;
    int64_t size = family->turn.bytes_last, now = 0, next = 0;
    struct room room = {0, 0, NULL};
    for (uint32_t line = family->turn.generations; line != 0;) {
        struct twi_generation *each = twi_generation_at(&rollover->engine->arena, line);
        int64_t bytes = twi_load_relaxed(&each->bytes);
        line = each->turn.next_all;
        if (each->start_ms == span.start_ms) now = bytes;
        if (each->start_ms == span.end_ms) next = bytes;
        if (bytes > size) size = bytes;
        room.lives += bytes;
        if (room.oldest == NULL && twi_load_relaxed(&each->phase) == TWI_HISTORY) room.oldest = each;
    }
    room.needs = 2 * size - now - next;
    return room;
}

/* With a memory_share, windows of the history give their memory to counters. From the middle of a window on, there must
 * be room for all keys that may still come in it and for the next window. The keys of both may come around the moment
 * at which one window ends and the next one begins. Then no turn can make room. If there is no room, each turn drops
 * the oldest window of the history before its time. Returns false while memory of dropped windows comes back. */
static bool make_room_for_next(struct twi_rollover *rollover, struct twi_span span) {
    twi_check(span.start_ms < span.end_ms);
    struct tw_family *family = rollover->family;
    if (!has_share(family)) return true;
    struct room room = room_of(rollover, span);
    /* The function is called again while keys come, and when a window opens. */
    if (twi_window_find(family, span.start_ms) != NULL)
        twi_rollover_due(rollover,
                         twi_time_add(rollover->engine->turn.now_ms, (span.end_ms - span.start_ms) / ROOM_LOOKS));
    struct twi_quota_use use = twi_quota_use(&rollover->engine->arena, &family->quota);
    if (room.oldest != NULL && room.lives + room.needs > use.most) {
        room.oldest->turn.history.gives_way = true;
        twi_rollover_look(rollover, 0);
        rollover->due_ms = INT64_MIN; /* every window is examined again */
        return false;
    }
    if (room.lives + room.needs > use.most || use.used + room.needs <= use.most) return true;
    twi_rollover_look(rollover, 0);
    return false;
}

/* Called if there is no memory for the prepared window, or not enough to finish it. The prepared window is not kept,
 * and the window begins small, like any other. */
static void give_forecast_up(struct twi_rollover *rollover, struct twi_span span) {
    twi_check(span.start_ms < span.end_ms);
    twi_window_abandon(rollover);
    rollover->family->turn.prepared.start_ms = span.end_ms;
}

/* A forecast uses no memory that live counters need. The forecast uses the memory that the open window will not need.
 * The open window needs room for `more` keys, or for the keys that it lacks to reach the forecast, whichever is more.
 * Keys that find room in the area of the window need no more memory. Returns a value below 0 if no memory is left. */
static int64_t spare_bytes(struct tw_family *family, const struct twi_generation *now, uint64_t forecast,
                           uint64_t more) {
    int64_t room = twi_piece_room(&family->engine->arena, &family->quota);
    uint64_t keys = twi_load_relaxed(&now->keys), to_come = forecast > keys + more ? forecast : keys + more,
             held = keys;
    uint64_t places = (uint64_t)twi_load_relaxed(&now->area.places[0]) + twi_load_relaxed(&now->area.places[1]);
    if (places > held) held = places;
    if (to_come <= held) return room;
    double rest = (double)twi_load_relaxed(&now->bytes) * (double)(to_come - held) / (double)held;
    return rest < (double)room ? room - (int64_t)rest : -1;
}

static void begin_next(struct tw_family *family, struct twi_span span, uint64_t forecast,
                       struct twi_area_forecast in_area, int64_t spare) {
    twi_check(family->turn.prepared.generation == NULL);
    twi_check(span.start_ms < span.end_ms);
    struct twi_arena *arena = &family->engine->arena;
    family->turn.prepared.generation = twi_window_make(family, span, 0);
    family->turn.prepared.leaves = 0;
    family->turn.prepared.root = 0;
    family->turn.prepared.area.chunks = 0;
    if (family->turn.prepared.generation == NULL) return;
    family->turn.prepared.root = twi_index_begin(arena, family->turn.prepared.generation, forecast);
    if (family->kind.from_first) return;
    (void)twi_area_begin(arena, family->turn.prepared.generation, in_area, spare - twi_index_bytes(forecast),
                         &family->turn.prepared.area);
    family->turn.prepared.area.ahead = true;
}

/* Returns how many keys the next window will have, by the keys of this window and the last one and by keys_expected.
 * 0 means that this is not known yet. */
static uint64_t forecast_keys(const struct tw_family *family, const struct twi_generation *now, struct twi_span span) {
    uint64_t forecast = now != NULL ? twi_load_relaxed(&now->keys) : 0;
    uint64_t expected = twi_load_relaxed(&family->policy.keys_expected);
    if (forecast == 0) return 0;
    /* If a family began in the second half of the window, it is not known yet how many keys will come in this window or
     * the next. */
    if (expected == 0 && family->turn.opened_ms >= span.start_ms + (span.end_ms - span.start_ms) / 2) return 0;
    if (family->turn.keys_last > forecast) forecast = family->turn.keys_last;
    return expected > forecast ? expected : forecast;
}

enum prepared { PREPARED, TO_GO_ON, NO_ROOM };

/* Builds the next window's index, a piece in each turn. */
static enum prepared prepare_index(struct twi_rollover *rollover, struct twi_generation *now, struct twi_span span,
                                   uint64_t forecast) {
    twi_check(now != NULL && now->family == rollover->family);
    struct tw_family *family = rollover->family;
    struct twi_arena *arena = &rollover->engine->arena;
    if (family->turn.prepared.generation == NULL) {
        uint64_t keys = twi_load_relaxed(&now->keys);
        int64_t spare = spare_bytes(family, now, forecast, keys);
        /* A share is dimensioned for windows of equal size. An index that grows needs twice as much in the end. */
        bool fits =
            twi_index_bytes(forecast) <= (has_share(family) ? spare_bytes(family, now, forecast, keys / 4) : spare);
        if (!fits) return NO_ROOM;
        begin_next(family, twi_calendar_span(&family->rule, span.end_ms), forecast, twi_area_forecast(now, forecast),
                   spare);
    }
    if (family->turn.prepared.root == 0) return NO_ROOM;
    if (!twi_index_fill(arena, family->turn.prepared.generation, family->turn.prepared.root,
                        &family->turn.prepared.leaves, &rollover->work))
        return rollover->work < TWI_SEGMENT_LINES ? TO_GO_ON : NO_ROOM;
    twi_store_relaxed(&family->turn.prepared.generation->root, family->turn.prepared.root);
    return PREPARED;
}

/* Prepares the memory for the next window's records, which is its area, or memory for a part of the records. */
static enum prepared prepare_records(struct twi_rollover *rollover, uint64_t forecast) {
    struct tw_family *family = rollover->family;
    struct twi_arena *arena = &rollover->engine->arena;
    if (family->turn.prepared.area.chunks != 0)
        return twi_area_fill(arena, family->turn.prepared.generation, &family->turn.prepared.area, &rollover->work)
                   ? PREPARED
                   : TO_GO_ON;
    uint64_t records = forecast / 1000 + 1;
    if (forecast > 1000 &&
        twi_arena_stock(twi_quota_arena(arena, &family->quota),
                        family->kind.synced ? TWI_CHUNK_LINES_SYNCED : TWI_CHUNK_LINES,
                        records > 65536 ? 65536 : (uint32_t)records, &rollover->work) &&
        rollover->work < TWI_SEGMENT_LINES)
        return TO_GO_ON;
    return PREPARED;
}

/* Called from the middle of a window on. It builds the index of the next window, sized by this window and the last
 * one, and prepares memory for records. So no thread meets an unused page at the end of the window. If no thread
 * counts in a window, no next one is prepared. */
void twi_window_prepare(struct twi_rollover *rollover) {
    twi_check(rollover->family->kind.has_starts);
    struct tw_family *family = rollover->family;
    int64_t now_ms = rollover->engine->turn.now_ms;
    struct twi_span span = twi_calendar_span(&family->rule, now_ms);
    if (family->turn.prepared.generation != NULL && family->turn.prepared.generation->start_ms < span.end_ms)
        twi_window_abandon(rollover); /* too late */
    if (now_ms < span.start_ms + (span.end_ms - span.start_ms) / 2) {
        twi_rollover_due(rollover, span.start_ms + (span.end_ms - span.start_ms) / 2);
        return;
    }
    bool has_room = make_room_for_next(rollover, span);
    if (family->turn.prepared.start_ms == span.end_ms || !has_room) return;
    /* the next window was opened early, by event time, so the threads that count in it already build it */
    if (twi_window_find(family, span.end_ms) != NULL) {
        give_forecast_up(rollover, span);
        return;
    }
    struct twi_generation *now = twi_window_find(family, span.start_ms);
    uint64_t forecast = forecast_keys(family, now, span);
    if (forecast == 0) return;
    enum prepared done = prepare_index(rollover, now, span, forecast);
    if (done == PREPARED) done = prepare_records(rollover, forecast);
    if (done == TO_GO_ON) {
        twi_rollover_look(rollover, 0);
        return;
    }
    if (done == NO_ROOM) {
        give_forecast_up(rollover, span);
        return;
    }
    family->turn.prepared.start_ms = span.end_ms;
    if (twi_window_publish(family, family->turn.prepared.generation))
        family->turn.prepared.generation = NULL;
    else
        twi_window_abandon(rollover);
}
