/* area.c -- see area.h. Builds an area, takes records from it, and gives it back. */
#include "engine/table/area.h"

#include "engine/base/push.h"
#include "engine/memory/epoch.h"
#include "engine/table/record.h"

/* If a window fits into about the second-level cache, it gets a quarter more records than keys, so that more keys find
 * their place free. For larger windows, and in a memory_share, memory matters more: 1 record in 400 more. */
#define ROOMY_LINES 262144u

/* If the lengths of the keys are not known, one key in 256 decides: at least one key, and at most 64. */
#define DECIDING_PART 256u
#define DECIDING_MOST 64u
/* If an area has at most so many lines for short keys (8 MiB), an insert lays it out. Some 100,000 keys. */
#define PUT_OFF_LINES 131072u

/* Returns how many records are adjacent: two if they share a line for their cold parts, otherwise one. *lines
 * becomes the number of their lines. */
static uint32_t unit_records(bool synced, uint32_t lines) {
    return synced && lines == 1 ? 2 : 1;
}
static uint32_t unit_lines(bool synced, uint32_t lines) {
    return synced && lines == 1 ? 3 : lines;
}

/* ---- records ---- */

static struct twi_cell *take_at(struct twi_generation *generation, uint32_t place, size_t key_size) {
    const struct twi_area *area = &generation->area;
    uint32_t index = place % area->per_chunk, lines = area->lines;
    bool synced = generation->synced;
    if (index >= area->per_chunk - unit_records(synced, lines)) return NULL; /* the head of the next chunk is there */
    struct twi_cell *cell = (struct twi_cell *)(area->first + twi_area_distance(place, lines, synced) * TWI_LINE_BYTES);
    uint64_t found = 0, meta = (uint64_t)index << TWI_META_INDEX_SHIFT | (uint64_t)(lines - 1) << TWI_META_KIND_SHIFT |
                               (synced ? TWI_META_COLD : 0);
    /* relaxed, because no other thread has written to the record, and T6 publishes the record */
    if (twi_load_relaxed(&cell->meta) != 0 || !twi_cas_relaxed(&cell->meta, &found, meta | key_size)) return NULL;
    return cell;
}

/* Returns the place whose record is prefetched together with the record at `place`. It may be outside the area. */
static uint32_t place_next_to(const struct twi_generation *generation, uint32_t place) {
    const struct twi_area *area = &generation->area;
    if (generation->synced || area->lines != 1) return place ^ 1;
    uintptr_t at = (uintptr_t)area->first + (uintptr_t)place * TWI_LINE_BYTES;
    return (at & TWI_LINE_BYTES) != 0 ? place - 1 : place + 1;
}

struct twi_cell *twi_area_take(struct twi_generation *generation, uint32_t half_of_hash, size_t key_size, uint32_t kind,
                               uint32_t looks) {
    const struct twi_area *area = &generation->area;
    uint32_t places = twi_load_acquire(&area->places[kind != 0]); /* H2, pairs with H1: the chunks have their heads */
    if (places == 0 || area->lines != kind + 1) return NULL;
    uint32_t place = (uint32_t)twi_area_place(half_of_hash, places), neighbour;
    struct twi_cell *cell = take_at(generation, place, key_size);
    if (cell != NULL) return cell;
    neighbour = place_next_to(generation, place);
    if (neighbour < places && (cell = take_at(generation, neighbour, key_size)) != NULL) return cell;
    uint32_t next = twi_load_relaxed(&generation->area_cursor);
    if (next >= places) return NULL;
    uint32_t end = looks < places - next ? next + looks : places;
    while (cell == NULL && next < end) cell = take_at(generation, next++, key_size);
    twi_store_relaxed(&generation->area_cursor, next); /* another thread may move it back, so some looks are repeated */
    return cell;
}

/* ---- building ---- */

struct twi_area_forecast twi_area_forecast(const struct twi_generation *seen, uint64_t keys_expected) {
    uint64_t keys = twi_load_relaxed(&seen->keys), longer = 0, most = 0;
    struct twi_area_forecast forecast = {.lines = 1};
    for (uint32_t kind = 0; kind < TWI_LONG_KINDS; kind++) {
        uint64_t of_kind = twi_load_relaxed(&seen->long_keys[kind]);
        longer += of_kind;
        if (of_kind <= most || kind + 2 > TWI_AREA_LINES_MAX) continue;
        most = of_kind;
        forecast.lines = kind + 2;
    }
    if (longer == 0 || keys == 0) return (struct twi_area_forecast){keys_expected, 1};
    uint64_t shorter = longer < keys ? keys - longer : 0; /* inserts that are under way are in one of the two figures */
    if (shorter >= most) {
        most = shorter;
        forecast.lines = 1;
    }
    forecast.keys = most < keys ? (uint64_t)((double)keys_expected * (double)most / (double)keys) : keys_expected;
    return forecast;
}

/* Returns the lines of the whole area. The area is within one segment, or is made of whole segments. */
static uint64_t lines_of(const struct twi_area_plan *plan) {
    uint64_t lines = (uint64_t)(plan->chunks - 1) * plan->stride + plan->lines_of_chunk;
    return lines <= TWI_SEGMENT_LINES ? lines : (lines + TWI_SEGMENT_LINES - 1) / TWI_SEGMENT_LINES * TWI_SEGMENT_LINES;
}

/* Computes how many chunks so many records need, and how many lines each chunk has. The distance between two heads
 * is a multiple of a unit, so that the place of each record is a product. One unit is lost between two heads. An
 * area that is larger than a segment consists of whole segments. If the last segment would be less than three
 * quarters full, it is left out, and its records are made elsewhere. */
static void shape(struct twi_area_plan *plan, bool synced, uint64_t records) {
    uint32_t unit = unit_lines(synced, plan->lines), together = unit_records(synced, plan->lines);
    uint64_t units = (records + together - 1) / together;
    uint32_t most = TWI_CHUNK_LINES / unit, marked = TWI_CHUNK_MARKS * 64 / together + 1;
    if (synced && most > marked) most = marked; /* a chunk with marks has at most 256 records */
    uint64_t chunks = (units + most - 2) / (most - 1), each = (units + chunks - 1) / chunks;
    plan->chunks = chunks >> 24 != 0 ? 0 : (uint32_t)chunks;
    plan->lines_of_chunk = 1 + (uint32_t)each * unit;
    plan->stride = (uint32_t)(each + 1) * unit;
    if (chunks == 1) plan->lines_of_chunk = twi_arena_round(plan->lines_of_chunk);
    if (chunks == 1 || plan->chunks == 0 || lines_of(plan) <= TWI_SEGMENT_LINES) return;
    uint64_t segments = (units * unit + TWI_SEGMENT_LINES / 4) / TWI_SEGMENT_LINES;
    plan->lines_of_chunk = 1 + (most - 1) * unit;
    plan->stride = most * unit;
    plan->chunks =
        (uint32_t)(((segments != 0 ? segments : 1) * TWI_SEGMENT_LINES + plan->stride - plan->lines_of_chunk) /
                   plan->stride);
}

/* Computes the shape of an area for a forecast. Returns false if there must be no area. */
static bool plan_of(struct twi_arena *arena, const struct twi_generation *generation, struct twi_area_forecast forecast,
                    int64_t spare, struct twi_area_plan *plan) {
    *plan = (struct twi_area_plan){.lines = forecast.lines};
    uint64_t keys = forecast.keys;
    if (keys < TWI_AREA_KEYS_MIN) return false;
    bool is_roomy = keys <= ROOMY_LINES / forecast.lines && twi_load_relaxed(&generation->quota->bytes_max) == 0;
    shape(plan, generation->synced, keys + keys / (is_roomy ? 4 : 400));
    /* A forecast may be wrong, so as much memory must remain for other windows and the index. */
    int64_t bytes = (int64_t)(lines_of(plan) * TWI_LINE_BYTES);
    if (plan->chunks != 0 && bytes <= spare && bytes <= twi_piece_room(arena, generation->quota) / 2) return true;
    plan->chunks = 0;
    return false;
}

bool twi_area_begin(struct twi_arena *arena, struct twi_generation *generation, struct twi_area_forecast forecast,
                    int64_t spare, struct twi_area_plan *plan) {
    if (!plan_of(arena, generation, forecast, spare, plan)) return false;
    struct twi_area *area = &generation->area;
    uint32_t line = 0;
    /* If so many adjacent segments are not free, the loop tries half as many, for half of the keys. */
    for (; plan->chunks != 0 && line == 0; plan->chunks = line == 0 ? plan->chunks / 2 : plan->chunks)
        line = twi_piece_take(arena, generation, (uint32_t)lines_of(plan));
    if (line == 0) return false;
    area->lines = (uint8_t)plan->lines;
    uint32_t unit = unit_lines(generation->synced, plan->lines);
    area->per_chunk = UINT32_MAX; /* with only one chunk no place is lost */
    if (plan->chunks > 1) area->per_chunk = plan->stride / unit * unit_records(generation->synced, plan->lines);
    area->first = twi_arena_at(arena, line + 1);
    twi_fence_compiler(); /* if this thread ends in between, the piece leaks (table.h) */
    area->taken = (uint32_t)lines_of(plan);
    return true;
}

/* Returns the first line of the area in its arena. */
static uint32_t line_of(struct twi_arena *arena, const struct twi_generation *generation) {
    return twi_arena_line(arena, generation->area.first) - 1;
}

bool twi_area_fill(struct twi_arena *arena, struct twi_generation *generation, struct twi_area_plan *plan,
                   uint32_t *work) {
    if (plan->chunks == 0) return true;
    uint32_t kind = plan->lines - 1, first = line_of(arena, generation);
    for (; plan->next < plan->chunks; plan->next++) {
        if (*work < plan->stride) return false;
        *work -= plan->stride;
        uint32_t line = first + plan->next * plan->stride;
        if (plan->ahead) twi_arena_touch(arena, line, plan->lines_of_chunk);
        struct twi_chunk *chunk = twi_arena_at(arena, line);
        twi_chunk_begin(arena, generation, chunk, kind, plan->lines_of_chunk);
        chunk->lines = 0;                                 /* the chunk is not a separate piece of memory */
        twi_store_relaxed(&chunk->used, chunk->capacity); /* no thread takes its records by their number */
        uint32_t older;
        twi_push(&generation->chunks[kind], line, older, chunk->older = older); /* T10 */
    }
    struct twi_chunk *last = twi_arena_at(arena, first + (plan->chunks - 1) * plan->stride);
    uint32_t records = (plan->chunks - 1) * generation->area.per_chunk + last->capacity;
    TWI_RACE_POINT(area_made_not_shown);
    twi_store_release(&generation->area.places[kind != 0], records); /* H1, pairs with H2 */
    return true;
}

void twi_area_lay_out(struct twi_arena *arena, struct twi_generation *generation, uint64_t keys_expected) {
    struct twi_area_plan plan;
    struct twi_area_forecast forecast = {keys_expected, 1};
    uint32_t work = UINT32_MAX;
    if (!plan_of(arena, generation, forecast, INT64_MAX, &plan)) return;
    if (lines_of(&plan) > PUT_OFF_LINES) {
        if (twi_area_begin(arena, generation, forecast, INT64_MAX, &plan))
            (void)twi_area_fill(arena, generation, &plan, &work);
        return;
    }
    if (lines_of(&plan) > TWI_SEGMENT_LINES)
        (void)twi_arena_stock(twi_quota_arena(arena, generation->quota), TWI_SEGMENT_LINES,
                              (uint32_t)(lines_of(&plan) / TWI_SEGMENT_LINES), &work);
    twi_store_relaxed(&generation->announced, (uint32_t)keys_expected);
}

void twi_area_decide(struct twi_arena *arena, struct twi_generation *generation) {
    uint32_t announced = twi_load_relaxed(&generation->announced), work = UINT32_MAX;
    uint64_t keys = announced / DECIDING_PART < DECIDING_MOST ? announced / DECIDING_PART : DECIDING_MOST;
    if (announced == 0 || twi_load_relaxed(&generation->keys) <= keys) return;
    if (!twi_cas_relaxed(&generation->announced, &announced, 0)) return; /* another thread lays out the area */
    struct twi_area_plan plan;
    if (twi_area_begin(arena, generation, twi_area_forecast(generation, announced), INT64_MAX, &plan))
        (void)twi_area_fill(arena, generation, &plan, &work);
}

bool twi_area_unmake(struct twi_arena *arena, struct twi_generation *generation, uint32_t *work) {
    struct twi_area *area = &generation->area;
    while (area->taken != 0) { /* one segment after the other, the last first: memory is given back by lines */
        uint32_t lines = area->taken <= TWI_SEGMENT_LINES ? area->taken : TWI_SEGMENT_LINES;
        if (*work < lines && *work < TWI_SEGMENT_LINES) return false;
        *work -= lines < *work ? lines : *work;
        area->taken -= lines;
        twi_piece_give(arena, generation, line_of(arena, generation) + area->taken, lines);
    }
    return true;
}
