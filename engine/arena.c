/* arena.c -- see arena.h. The door to mmap and madvise.
 *
 * A class keeps a stack of free pieces and one segment that is being carved. A stack word carries a count that rises
 * with every change, so that a pop that slept through a pop and a push of the same piece fails (A1). Carving is one
 * fetch-and-add on {segment, next}, so a fresh segment is touched piece by piece as it is used, and no thread waits
 * for another. */
#include "engine/arena.h"

#include <string.h>
#include <sys/mman.h>

#define LOW32(word) ((uint32_t)(word))
#define HIGH32(word) ((uint32_t)((word) >> 32))
#define PAIR(high, low) ((uint64_t)(high) << 32 | (uint32_t)(low))

static const uint16_t small_lines[TWI_ARENA_SMALL_CLASSES] = {1,  2,  3,  4,   6,   8,   12,  16,  24,  32,
                                                              48, 64, 96, 128, 192, 256, 341, 512, 768, 1024};

static uint32_t bin_of(uint32_t lines) {
    for (uint32_t bin = 0; bin < TWI_ARENA_SMALL_CLASSES; bin++)
        if (lines <= small_lines[bin]) return bin;
    uint32_t bin = TWI_ARENA_SMALL_CLASSES;
    for (uint64_t size = 2 * TWI_SEGMENT_LINES; size < lines; size *= 2) bin++;
    return bin;
}

static uint32_t bin_lines(uint32_t bin) {
    if (bin < TWI_ARENA_SMALL_CLASSES) return small_lines[bin];
    return TWI_SEGMENT_LINES << (bin - TWI_ARENA_SMALL_CLASSES + 1);
}

uint32_t twi_arena_round(uint32_t lines) {
    return bin_lines(bin_of(lines));
}

#define HUGE_BYTES (UINT64_C(2) << 20)
#define HUGE_SEGMENTS ((uint32_t)(HUGE_BYTES / TWI_SEGMENT_BYTES))

bool twi_arena_make(struct twi_arena *arena, uint64_t bytes_max) {
    memset(arena, 0, sizeof *arena);
    arena->bytes_max = bytes_max;
    arena->segments_max = (uint32_t)(bytes_max / TWI_SEGMENT_BYTES);
    arena->map_bytes = (uint64_t)(arena->segments_max + 1) * TWI_SEGMENT_BYTES + HUGE_BYTES;
    void *map =
        mmap(NULL, arena->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) return false;
    /* Counts may be somebody's traffic: they stay out of core files. And out of cache every second miss is one of the
     * page table's: huge pages where the system has them. A kernel without the advice changes nothing. */
    (void)madvise(map, arena->map_bytes, MADV_DONTDUMP);
    (void)madvise(map, arena->map_bytes, MADV_HUGEPAGE);
    arena->map = map;
    arena->base = (unsigned char *)(((uintptr_t)map + HUGE_BYTES - 1) & ~(uintptr_t)(HUGE_BYTES - 1));
    return true;
}

void twi_arena_unmake(struct twi_arena *arena) {
    if (arena->map != NULL) munmap(arena->map, arena->map_bytes);
    arena->base = NULL;
    arena->map = NULL;
}

static _Atomic uint64_t *link_of(const struct twi_arena *arena, uint32_t line) {
    return (_Atomic uint64_t *)twi_arena_at(arena, line);
}

static uint32_t pop_free(struct twi_arena *arena, struct twi_arena_class *bin) {
    uint64_t head = twi_load_acquire(&bin->free); /* A2, pairs with A3: the piece's link and zeroes are seen */
    while (LOW32(head) != 0) {
        _Atomic uint64_t *link = link_of(arena, LOW32(head));
        /* garbage if another thread took the piece; then the swap below fails */
        uint64_t next = twi_load_relaxed(link);
        if (twi_cas_weak_acqrel(&bin->free, &head, PAIR(HIGH32(head) + 1, next))) { /* A1 */
            twi_store_relaxed(link, 0);
            (void)twi_sub_relaxed(&bin->free_pieces, 1);
            return LOW32(head);
        }
    }
    return 0;
}

static void push_free(struct twi_arena *arena, struct twi_arena_class *bin, uint32_t line) {
    uint64_t head = twi_load_relaxed(&bin->free);
    do {
        twi_store_relaxed(link_of(arena, line), LOW32(head));
    } while (!twi_cas_weak_acqrel(&bin->free, &head, PAIR(HIGH32(head) + 1, line))); /* A3 */
    (void)twi_add_relaxed(&bin->free_pieces, 1);
}

/* `count` segments in a row that were never used, or 0. Segment 0 is the head: line 0 means none. */
static uint32_t fresh_segments(struct twi_arena *arena, uint32_t count) {
    uint32_t taken = twi_load_relaxed(&arena->segments_taken);
    do {
        if (count > arena->segments_max - taken) return 0;
    } while (!twi_cas_relaxed(&arena->segments_taken, &taken, taken + count));
    return taken + 1;
}

static uint32_t carve_small(struct twi_arena *arena, struct twi_arena_class *bin, uint32_t lines) {
    uint32_t pieces = TWI_SEGMENT_LINES / lines;
    for (;;) {
        uint64_t carve = twi_load_acquire(&bin->carve);
        if (HIGH32(carve) != 0 && LOW32(carve) < pieces) {
            /* Overshoot is bounded by the number of threads that pass the line above at once: 32 bits do not wrap. */
            carve = twi_add_acqrel(&bin->carve, 1);
            if (HIGH32(carve) != 0 && LOW32(carve) < pieces)
                return HIGH32(carve) * TWI_SEGMENT_LINES + LOW32(carve) * lines;
            continue;
        }
        uint32_t segment = fresh_segments(arena, 1), spent = HIGH32(carve);
        if (segment == 0) return 0;
        while (HIGH32(carve) == spent) /* others may still overshoot the spent segment */
            if (twi_cas_weak_acqrel(&bin->carve, &carve, PAIR(segment, 1))) return segment * TWI_SEGMENT_LINES;
        /* Another thread brought a segment first: this one serves as single pieces. */
        for (uint32_t piece = 1; piece < pieces; piece++)
            push_free(arena, bin, segment * TWI_SEGMENT_LINES + piece * lines);
        return segment * TWI_SEGMENT_LINES;
    }
}

/* Nothing fresh is left: a larger free piece is cut up. Pieces are not joined again, but an engine that is full of one
 * size can go on with another. Pieces of many segments are halved on the way down, so that whoever needs a small one lists
 * no more than one segment's worth. */
static uint32_t split_larger(struct twi_arena *arena, uint32_t number) {
    uint32_t larger = number + 1, line = 0, lines = bin_lines(number);
    while (larger < TWI_ARENA_CLASSES && (line = pop_free(arena, &arena->classes[larger])) == 0) larger++;
    if (line == 0) return 0;
    while (larger > number && larger >= TWI_ARENA_SMALL_CLASSES) {
        larger--;
        push_free(arena, &arena->classes[larger], line + bin_lines(larger));
    }
    for (uint32_t at = lines; at + lines <= bin_lines(larger); at += lines)
        push_free(arena, &arena->classes[number], line + at);
    return line;
}

static void account(struct twi_arena *arena, int64_t bytes) {
    int64_t used = twi_add_relaxed(&arena->bytes_used, bytes) + bytes;
    int64_t high = twi_load_relaxed(&arena->bytes_high);
    while (used > high && !twi_cas_relaxed(&arena->bytes_high, &high, used)) continue;
}

uint32_t twi_arena_take(struct twi_arena *arena, uint32_t lines) {
    uint32_t number = bin_of(lines);
    twi_check(number < TWI_ARENA_CLASSES);
    struct twi_arena_class *bin = &arena->classes[number];
    uint32_t line = pop_free(arena, bin);
    if (line == 0) {
        lines = bin_lines(number);
        if (number < TWI_ARENA_SMALL_CLASSES)
            line = carve_small(arena, bin, lines);
        else
            line = fresh_segments(arena, lines / TWI_SEGMENT_LINES) * TWI_SEGMENT_LINES;
    }
    if (line == 0) line = split_larger(arena, number);
    if (line == 0) return 0;
    account(arena, (int64_t)bin_lines(number) * TWI_LINE_BYTES);
    return line;
}

/* Zeroes all but the first word: a pop that is about to fail may still read that, and push_free() writes it as an atomic.
 * The pages of a large piece go back to the system, which gives them back zeroed: writing to them would only commit what
 * was never touched. */
static void wipe(unsigned char *piece, size_t bytes) {
    if (bytes >= 2 * TWI_SEGMENT_BYTES && madvise(piece, bytes, MADV_DONTNEED) == 0) return;
    memset(piece + sizeof(uint64_t), 0, bytes - sizeof(uint64_t));
}

void twi_arena_give(struct twi_arena *arena, uint32_t line, uint32_t lines) {
    uint32_t number = bin_of(lines);
    lines = bin_lines(number);
    wipe(twi_arena_at(arena, line), (size_t)lines * TWI_LINE_BYTES);
    push_free(arena, &arena->classes[number], line);
    account(arena, -(int64_t)lines * TWI_LINE_BYTES);
}

void twi_arena_touch(struct twi_arena *arena, uint32_t line, uint32_t lines) {
    unsigned char *piece = twi_arena_at(arena, line);
    for (uint64_t at = 0; at < (uint64_t)lines * TWI_LINE_BYTES; at += 4096) {
        /* A fresh page reads 0, and 0 is stored there: the page becomes ours; on any other, nothing changes. Not an atomic "or
         * 0", which a compiler may turn into a load (clang does): that maps the page of zeroes, and the taker's write faults. */
        uint8_t untouched = 0;
        (void)twi_cas_relaxed((_Atomic uint8_t *)(piece + at), &untouched, 0);
    }
}

bool twi_arena_stock(struct twi_arena *arena, uint32_t lines, uint32_t pieces, uint32_t *work) {
    uint32_t number = bin_of(lines);
    struct twi_arena_class *bin = &arena->classes[number];
    twi_check(number < TWI_ARENA_SMALL_CLASSES);
    lines = bin_lines(number);
    while (twi_load_relaxed(&bin->free_pieces) < (int32_t)pieces && *work >= lines) {
        uint32_t line = carve_small(arena, bin, lines);
        if (line == 0) return false;
        twi_arena_touch(arena, line, lines);
        push_free(arena, bin, line);
        *work -= lines;
    }
    return true;
}

/* ---- ahead of need ---- */

/* The kernel populates what lies ahead: whoever takes it meanwhile may be writing there already, so nothing is touched from
 * here. A kernel without the advice (before 5.14) leaves the first touch to the taker. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* Long enough for a background thread that the system lets wait a little, short enough to follow a burst. */
#define SLICE_MS 50

static void populate(struct twi_arena *arena, uint32_t segment, uint32_t count) {
    (void)madvise(twi_arena_at(arena, segment * TWI_SEGMENT_LINES), (size_t)count * TWI_SEGMENT_BYTES,
                  MADV_POPULATE_WRITE);
}

void twi_arena_watch(struct twi_arena *arena, int64_t mono_ms) {
    uint32_t taken = twi_load_relaxed(&arena->segments_taken);
    arena->segments_lately += taken - arena->segments_seen;
    arena->segments_seen = taken;
    arena->segments_left = arena->segments_touched > taken ? arena->segments_touched - taken : 0;
    if (arena->segments_lately > arena->segments_rate) arena->segments_rate = arena->segments_lately;
    if (mono_ms - arena->slice_began_ms < SLICE_MS) return;
    uint32_t calmer = arena->segments_rate - (arena->segments_rate + 3) / 4;
    arena->segments_rate = arena->segments_lately > calmer ? arena->segments_lately : calmer;
    arena->segments_lately = 0;
    arena->slice_began_ms = mono_ms;
}

/* The last segment that is to lie ready. */
static uint32_t reserve_end(const struct twi_arena *arena, uint32_t taken) {
    uint64_t wanted = arena->segments_rate != 0 ? HUGE_SEGMENTS + 2 * (uint64_t)arena->segments_rate : 0;
    uint64_t most = HUGE_SEGMENTS + taken / 8;
    if (wanted < arena->segments_left) wanted = arena->segments_left;
    uint64_t end = taken + (wanted < most ? wanted : most);
    if (taken < HUGE_SEGMENTS / 2)
        end = HUGE_SEGMENTS - 1; /* the first huge page, which is there as a whole or not at all */
    return end < arena->segments_max ? (uint32_t)end : arena->segments_max;
}

/* Takers have outrun the reserve. They fault in what they use, as they use it; but of each class's present segment the rest may
 * be used long after. */
static void catch_up(struct twi_arena *arena, uint32_t taken) {
    for (uint32_t i = 0; i < TWI_ARENA_SMALL_CLASSES; i++) {
        uint32_t segment = HIGH32(twi_load_relaxed(&arena->classes[i].carve));
        if (segment > arena->segments_touched) populate(arena, segment, 1);
    }
    arena->segments_touched = taken;
}

void twi_arena_keep_ahead(struct twi_arena *arena, uint32_t *work) {
    uint32_t taken = twi_load_relaxed(&arena->segments_taken), end = reserve_end(arena, taken);
    arena->segments_seen = taken;
    if (arena->segments_touched < taken) catch_up(arena, taken);
    uint32_t count = end > arena->segments_touched ? end - arena->segments_touched : 0;
    if (count > *work / TWI_SEGMENT_LINES) count = *work / TWI_SEGMENT_LINES;
    if (count == 0) return;
    populate(arena, arena->segments_touched + 1, count);
    arena->segments_touched += count;
    *work -= count * TWI_SEGMENT_LINES;
}

void *twi_arena_wiped_pages(size_t bytes) {
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) return NULL;
    if (madvise(map, bytes, MADV_WIPEONFORK) != 0) {
        munmap(map, bytes);
        return NULL;
    }
    return map;
}

int64_t twi_arena_bytes_used(const struct twi_arena *arena) {
    return twi_load_relaxed(&arena->bytes_used);
}
int64_t twi_arena_bytes_high(const struct twi_arena *arena) {
    return twi_load_relaxed(&arena->bytes_high);
}
int64_t twi_arena_bytes_committed(const struct twi_arena *arena) {
    return (int64_t)twi_load_relaxed(&arena->segments_taken) * TWI_SEGMENT_BYTES;
}
