/* area.c -- see area.h. Builds an area, takes records from it, and gives it back. */
#include "engine/table/area.h"

#include "engine/base/grow.h"
#include "engine/memory/epoch.h"

/* ---- pieces ---- */

#define SHARE_SPLIT (INT64_C(64) << 10) /* a smaller share keeps no memory for sketches */
#define SKETCHES_MAX (INT64_C(128) << 10)

static uint32_t record_lines(uint32_t kind, bool synced, uint32_t count) {
    if (kind == 0 && synced) return (count + 1) / 2 * 3;
    return count * twi_kinds[kind].lines;
}

static int64_t without_sketches(int64_t share) {
    if (share < SHARE_SPLIT) return share;
    return share - (share / 8 < SKETCHES_MAX ? share / 8 : SKETCHES_MAX);
}

/* Returns the memory that a share has for all uses except sketches. 0 means that there is no bound. */
static int64_t most_without_sketches(const struct twi_quota *quota) {
    return without_sketches(twi_load_relaxed(&quota->bytes_max));
}

#define INDEX_OF_KEY 18u /* the bytes of the index for each key, if the index was laid out for that many keys */

uint64_t twi_share_keys(uint64_t bytes, uint32_t windows, bool synced) {
    uint64_t record = record_lines(0, synced, 2) * TWI_LINE_BYTES / 2;
    return (uint64_t)without_sketches((int64_t)bytes) / windows / (record + INDEX_OF_KEY);
}

/* Returns false if the share has no room for the piece. If `most` is 0, there is no bound. */
static bool charge(struct twi_generation *generation, int64_t bytes, int64_t most) {
    int64_t used = twi_add_relaxed(&generation->quota->bytes, bytes) + bytes;
    if (most != 0 && used > most) {
        (void)twi_sub_relaxed(&generation->quota->bytes, bytes);
        return false;
    }
    (void)twi_add_relaxed(&generation->bytes, bytes);
    return true;
}

static void discharge(struct twi_generation *generation, int64_t bytes) {
    (void)twi_sub_relaxed(&generation->quota->bytes, bytes);
    (void)twi_sub_relaxed(&generation->bytes, bytes);
}

static int64_t bytes_of(uint32_t lines) {
    return (int64_t)twi_arena_round(lines) * TWI_LINE_BYTES;
}

struct twi_quota_use twi_quota_use(const struct twi_arena *arena, struct twi_quota *quota) {
    int64_t most = most_without_sketches(quota);
    if (most != 0) return (struct twi_quota_use){twi_load_relaxed(&quota->bytes), most};
    return (struct twi_quota_use){twi_arena_rest_used(arena), twi_arena_rest_max(arena)};
}

static int64_t part_of(const struct twi_arena *arena, struct twi_quota *quota, uint8_t windows) {
    twi_check_dear(windows != 0);
    return twi_quota_use(arena, quota).most / windows;
}

/* Returns the lines of the greatest piece that has at most so many, but at least two. */
static uint32_t round_down(int64_t lines) {
    if (lines > INT32_MAX) lines = INT32_MAX;
    if (lines > TWI_SEGMENT_LINES) return (uint32_t)(lines - lines % TWI_SEGMENT_LINES);
    while (lines > 2 && twi_arena_round((uint32_t)lines) != lines) lines--;
    return lines > 2 ? (uint32_t)lines : 2;
}

void twi_quota_divide(const struct twi_arena *arena, struct twi_quota *quota, uint8_t windows) {
    uint32_t lines = windows != 0 ? round_down(part_of(arena, quota, windows) / 4 / TWI_LINE_BYTES) : 0;
    twi_store_relaxed(&quota->guest_lines, lines);
    twi_store_relaxed(&quota->windows, windows);
}

int64_t twi_quota_beside_guests(const struct twi_arena *arena, struct twi_quota *quota) {
    return part_of(arena, quota, twi_load_relaxed(&quota->windows)) - bytes_of(twi_load_relaxed(&quota->guest_lines));
}

/* Windows with guests have equal parts of the memory, so that the next window finds room, whatever came in this one. */
static bool is_window_full(const struct twi_arena *arena, struct twi_generation *generation, int64_t bytes) {
    struct twi_quota *quota = generation->quota;
    return twi_unlikely(twi_load_relaxed(&quota->windows) != 0) &&
           twi_load_relaxed(&generation->bytes) + bytes > twi_quota_beside_guests(arena, quota);
}

uint32_t twi_piece_take(struct twi_arena *arena, struct twi_generation *generation, uint32_t lines) {
    if (is_window_full(arena, generation, bytes_of(lines))) return 0;
    if (!charge(generation, bytes_of(lines), most_without_sketches(generation->quota))) return 0;
    uint32_t line = twi_quota_take(arena, generation->quota, lines);
    if (line == 0) discharge(generation, bytes_of(lines));
    return line;
}

void twi_piece_disown(struct twi_generation *generation, uint32_t lines) {
    discharge(generation, bytes_of(lines));
}

void twi_piece_give(struct twi_arena *arena, struct twi_generation *generation, uint32_t line, uint32_t lines) {
    discharge(generation, bytes_of(lines));
    twi_arena_give(arena, line, lines);
}

static uint32_t take_reserved(struct twi_arena *arena, struct twi_generation *generation, uint32_t *lines) {
    uint32_t line = twi_arena_take_reserved(arena, lines);
    if (line == 0 || charge(generation, bytes_of(*lines), twi_load_relaxed(&generation->quota->bytes_max))) return line;
    twi_arena_give(arena, line, *lines);
    return 0;
}

uint32_t twi_piece_take_for_spill(struct twi_arena *arena, struct twi_generation *generation, uint32_t *lines,
                                  uint32_t least) {
    for (uint32_t tried = *lines; tried >= least; tried -= tried / 4) {
        uint32_t line = 0;
        *lines = twi_arena_round(tried);
        if (charge(generation, bytes_of(*lines), twi_load_relaxed(&generation->quota->bytes_max))) {
            line = twi_quota_take(arena, generation->quota, *lines);
            if (line == 0) discharge(generation, bytes_of(*lines));
        }
        if (line == 0) line = take_reserved(arena, generation, lines);
        if (line != 0) return line;
    }
    return 0;
}

int64_t twi_piece_room(const struct twi_arena *arena, struct twi_quota *quota) {
    struct twi_quota_use use = twi_quota_use(arena, quota);
    return use.most - use.used;
}

/* ---- chunks, and records of them ---- */

void twi_chunk_begin(struct twi_arena *arena, struct twi_generation *generation, struct twi_chunk *chunk, uint32_t kind,
                     uint32_t lines) {
    bool synced = generation->synced;
    uint32_t capacity = kind == 0 && synced ? (lines - 1) / 3 * 2 : (lines - 1) / twi_kinds[kind].lines;
    chunk->capacity = (uint16_t)(synced && capacity > TWI_CHUNK_MARKS * 64 ? TWI_CHUNK_MARKS * 64 : capacity);
    chunk->kind = (uint8_t)kind;
    chunk->lines = (uint16_t)lines;
    chunk->generation = twi_arena_line(arena, generation);
}

/* a chunk takes at most this part of a share, because some of its records may not be needed */
#define SHARE_CHUNKS 64u
#define SHARE_CHUNK_LINES 32u /* but a chunk may always have this many lines */

static uint32_t chunk_lines_max(const struct twi_generation *generation) {
    uint32_t most = generation->synced ? TWI_CHUNK_LINES_SYNCED : TWI_CHUNK_LINES;
    uint64_t share = (uint64_t)twi_load_relaxed(&generation->quota->bytes_max) / TWI_LINE_BYTES / SHARE_CHUNKS;
    if (share == 0 || share >= most) return most;
    return share > SHARE_CHUNK_LINES ? (uint32_t)share : SHARE_CHUNK_LINES;
}

#define FEW_KEYS 32u /* with fewer keys, a new chunk has as many records as keys */

/* Chunks grow with the generation. A new chunk has about a quarter as many records as the generation has keys, and at
 * most a segment. It has an eighth beside an area, because few more keys are likely to come. If no run of free lines is
 * that long, it tries half as many records, and then again half as many. */
static struct twi_chunk *add_chunk(struct twi_arena *arena, struct twi_generation *generation, uint32_t kind,
                                   uint32_t older) {
    bool synced = generation->synced;
    uint64_t keys = twi_load_relaxed(&generation->keys);
    bool has_area = twi_load_relaxed(&generation->area.places[kind != 0]) != 0;
    uint64_t wanted = keys < FEW_KEYS ? keys : keys / (has_area ? 8 : 4);
    uint32_t records = wanted < 1 ? 1 : wanted > 1024 ? 1024 : (uint32_t)wanted;
    uint32_t most = chunk_lines_max(generation), lines, line;
    for (;; records /= 2) {
        if (records == 0) return NULL;
        lines = 1 + record_lines(kind, synced, records);
        if (lines > most && records > 1 && 1 + record_lines(kind, synced, records / 2) >= most) continue;
        lines = twi_arena_round(lines > most ? most : lines);
        line = twi_piece_take(arena, generation, lines);
        if (line != 0) break;
    }
    struct twi_chunk *chunk = twi_arena_at(arena, line);
    twi_chunk_begin(arena, generation, chunk, kind, lines);
    chunk->older = older;
    uint32_t found = older;
    if (twi_cas_acqrel(&generation->chunks[kind], &found, line)) return chunk; /* T10, pairs with T11 */
    twi_piece_give(arena, generation, line, lines);
    return twi_arena_at(arena, found);
}

struct twi_cell *twi_record_take(struct twi_arena *arena, struct twi_generation *generation, uint32_t kind,
                                 uint64_t *meta) {
    for (;;) {
        uint32_t line = twi_load_acquire(&generation->chunks[kind]); /* T11, pairs with T10 */
        struct twi_cell *cell = twi_record_take_next(arena, generation, kind, generation->synced, meta);
        if (cell != NULL) return cell;
        if (add_chunk(arena, generation, kind, line) == NULL) return NULL;
    }
}

/* If a window fits into about the second-level cache, it gets a quarter more records than keys, so that more keys find
 * their place free. For larger windows, and in a memory_share, memory matters more: 1 record in 400 more. */
#define ROOMY_LINES 262144u

/* If the lengths of the keys are not known, one key in 256 decides: at least one key, and at most 64. */
#define DECIDING_PART 256u
#define DECIDING_MOST 64u
/* Shared memory rarely has huge pages, so a touch of a page commits no more than it. There only so much of an area is
 * faulted in before it is used (8 MiB). */
#define AHEAD_LINES_SHARED 131072u

/* Returns how many records are adjacent: two if they share a line for their cold parts, otherwise one. *lines
 * becomes the number of their lines. */
static uint32_t unit_records(bool synced, uint32_t lines) {
    return synced && lines == 1 ? 2 : 1;
}
static uint32_t unit_lines(bool synced, uint32_t lines) {
    return synced && lines == 1 ? 3 : lines;
}

/* ---- records of an area ---- */

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

/* Returns the largest size of a piece with at most so many lines. In many small windows the places beyond it would cost
 * more than they bring: a few keys have their records elsewhere. */
static uint32_t fitted(uint32_t lines) {
    uint32_t number = twi_size_number(lines);
    return twi_sizes[number] == lines || number == 0 ? twi_sizes[number] : twi_sizes[number - 1];
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
    if (chunks == 1) plan->lines_of_chunk = fitted(plan->lines_of_chunk);
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

/* Returns how many chunks fit into so many lines. */
static uint32_t chunks_in(const struct twi_area *area, uint32_t lines) {
    return (lines + area->stride - area->lines_of_chunk) / area->stride;
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
    area->stride = (uint16_t)plan->stride;
    area->lines_of_chunk = (uint16_t)plan->lines_of_chunk;
    uint32_t unit = unit_lines(generation->synced, plan->lines);
    plan->chunks = chunks_in(area, (uint32_t)lines_of(plan)); /* a smaller area may have a rest for one more */
    area->per_chunk = UINT32_MAX;                             /* with only one chunk no place is lost */
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

static struct twi_chunk *chunk_at(struct twi_arena *arena, const struct twi_generation *generation, uint32_t number) {
    return twi_arena_at(arena, line_of(arena, generation) + number * generation->area.stride);
}

/* Makes the head of a chunk. It is entered together with the others: before that, threads take the records of other
 * chunks by their number, and would find a chunk without any. */
static void begin_chunk(struct twi_arena *arena, struct twi_generation *generation, uint32_t number) {
    struct twi_chunk *chunk = chunk_at(arena, generation, number);
    twi_chunk_begin(arena, generation, chunk, generation->area.lines - 1u, generation->area.lines_of_chunk);
    chunk->lines = 0;                                 /* the chunk is not a separate piece of memory */
    twi_store_relaxed(&chunk->used, chunk->capacity); /* no thread takes its records by their number */
    if (number != 0) chunk->older = twi_arena_line(arena, chunk_at(arena, generation, number - 1));
}

/* All chunks are made, so walks, look-ups and inserts may use the area. */
static void show(struct twi_arena *arena, struct twi_generation *generation) {
    struct twi_area *area = &generation->area;
    uint32_t last = chunks_in(area, area->taken) - 1, older;
    struct twi_chunk *first = chunk_at(arena, generation, 0), *chunk = chunk_at(arena, generation, last);
    uint32_t line = twi_arena_line(arena, chunk);
    twi_push(&generation->chunks[area->lines - 1], line, older, first->older = older); /* T10 */
    TWI_RACE_POINT(area_made_not_shown);
    twi_store_release(&area->places[area->lines != 1],
                      last * area->per_chunk + chunk->capacity); /* H1, pairs with H2 */
}

bool twi_area_fill(struct twi_arena *arena, struct twi_generation *generation, struct twi_area_plan *plan,
                   uint32_t *work) {
    if (plan->chunks == 0) return true;
    for (; plan->next < plan->chunks; plan->next++) {
        if (*work < plan->stride) return false;
        *work -= plan->stride;
        uint32_t line = line_of(arena, generation) + plan->next * plan->stride;
        if (plan->ahead) twi_arena_touch(arena, line, plan->lines_of_chunk);
        begin_chunk(arena, generation, plan->next);
    }
    show(arena, generation);
    return true;
}

void twi_area_lay_out(struct twi_arena *arena, struct twi_generation *generation, uint64_t keys_expected) {
    struct twi_area_plan plan;
    struct twi_area_forecast forecast = {keys_expected, 1};
    uint32_t work = UINT32_MAX;
    if (!plan_of(arena, generation, forecast, INT64_MAX, &plan)) return;
    uint64_t lines = lines_of(&plan), segments = lines / TWI_SEGMENT_LINES;
    /* A few more, because other threads take single segments while one looks for adjacent ones. */
    if (segments > 1 && !(lines > AHEAD_LINES_SHARED && arena->is_shared))
        (void)twi_arena_stock(twi_quota_arena(arena, generation->quota), TWI_SEGMENT_LINES,
                              (uint32_t)(segments + 1 + segments / 128), &work);
    twi_store_relaxed(&generation->announced,
                      keys_expected < TWI_AREA_LAYING ? (uint32_t)keys_expected : TWI_AREA_LAYING - 1);
}

/* Begins the area if enough keys have come. Returns the word with which it is laid out; 0 means that there is no area,
 * or that another thread begins it. */
static uint32_t begin_announced(struct twi_arena *arena, struct twi_generation *generation, uint32_t announced) {
    uint64_t keys = announced / DECIDING_PART < DECIDING_MOST ? announced / DECIDING_PART : DECIDING_MOST;
    struct twi_area_plan plan;
    if (twi_load_relaxed(&generation->keys) <= keys) return 0;
    if (!twi_cas_relaxed(&generation->announced, &announced, 0)) return 0;
    if (!twi_area_begin(arena, generation, twi_area_forecast(generation, announced), INT64_MAX, &plan)) return 0;
    twi_store_relaxed(&generation->area_cursor, plan.chunks);
    TWI_RACE_POINT(area_begun_not_told);
    twi_store_release(&generation->announced, TWI_AREA_LAYING | plan.chunks); /* H3, pairs with H4 */
    return TWI_AREA_LAYING | plan.chunks;
}

void twi_area_decide(struct twi_arena *arena, struct twi_generation *generation) {
    uint32_t announced = twi_load_acquire(&generation->announced); /* H4, pairs with H3: the area has its shape */
    if (announced != 0 && announced < TWI_AREA_LAYING) announced = begin_announced(arena, generation, announced);
    do {
        if (announced < TWI_AREA_LAYING) return;
    } while (!twi_cas_acqrel(&generation->announced, &announced, /* H4 */
                             announced - 1 == TWI_AREA_LAYING ? 0 : announced - 1));
    begin_chunk(arena, generation, announced - 1 - TWI_AREA_LAYING);
    TWI_RACE_POINT(area_chunk_made_not_counted);
    /* H5, pairs with itself: who makes the count 0 sees all chunks. If a thread ends before it counts its chunk, the
     * area is not used. */
    if (twi_sub_acqrel(&generation->area_cursor, 1) == 1) show(arena, generation);
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
