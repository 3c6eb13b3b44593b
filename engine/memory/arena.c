/* arena.c -- see arena.h. The only file that calls mmap and madvise.
 *
 * Each small size has one run of free lines. A thread carves one piece from it with one compare-and-swap of {first
 * line, pieces left}. So a whole segment is touched piece by piece as its pieces are used, and no thread waits for
 * another. When the run is used up, the thread searches for holes before it takes the next whole segment. If a few
 * pieces were given back meanwhile, they become the run. A thread that finds no piece gathers the runs of all sizes. */
#include "engine/memory/arena.h"

#include "engine/base/random.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LOW32(word) ((uint32_t)(word))
#define HIGH32(word) ((uint32_t)((word) >> 32))
#define PAIR(high, low) ((uint64_t)(high) << 32 | (uint32_t)(low))

/* Line numbers have 32 bits, and segment 0 is the head. So an arena for 256 GiB is one segment smaller than that. */
#define SEGMENTS_MAX (UINT32_MAX / TWI_SEGMENT_LINES)

static uint32_t segments_of(uint32_t lines) {
    return (uint32_t)(((uint64_t)lines + TWI_SEGMENT_LINES - 1) / TWI_SEGMENT_LINES);
}

uint32_t twi_arena_round(uint32_t lines) {
    if (lines <= TWI_SEGMENT_LINES) return twi_sizes[twi_size_number(lines)];
    return segments_of(lines) * TWI_SEGMENT_LINES;
}

#define HUGE_BYTES (UINT64_C(2) << 20)

static bool make(struct twi_arena *arena, uint64_t bytes_max, bool is_shared) {
    memset((void *)arena, 0, sizeof *arena);
    arena->is_shared = is_shared;
    uint64_t segments = bytes_max / TWI_SEGMENT_BYTES;
    arena->bytes_max = bytes_max;
    arena->segments_max = segments < SEGMENTS_MAX ? (uint32_t)segments : SEGMENTS_MAX;
    uint64_t bytes = (uint64_t)(arena->segments_max + 1) * TWI_SEGMENT_BYTES;
    uint64_t map_bytes =
        (twi_free_map_bytes(arena->segments_max) + TWI_LINE_BYTES - 1) & ~(uint64_t)(TWI_LINE_BYTES - 1);
    arena->map_bytes = HUGE_BYTES + bytes + map_bytes + (arena->segments_max + 1) * sizeof *arena->parts.owners;
    int kind = (is_shared ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS | MAP_NORESERVE;
    void *map = mmap(NULL, arena->map_bytes, PROT_READ | PROT_WRITE, kind, -1, 0);
    if (map == MAP_FAILED) return false;
    arena->map = map;
    arena->base = (unsigned char *)(((uintptr_t)map + HUGE_BYTES - 1) & ~(uintptr_t)(HUGE_BYTES - 1));
    /* Counts may reveal the traffic, so core files do not contain them. Outside the cache, every second cache miss is
     * one of the page table, so the arena requests huge pages. A kernel without this advice ignores it. */
    (void)madvise(map, arena->map_bytes, MADV_DONTDUMP);
    (void)madvise(arena->base, bytes, MADV_HUGEPAGE);
    twi_free_map_begin(&arena->free_map, arena->base + bytes, arena->segments_max);
    arena->parts.owners = (void *)(arena->base + bytes + map_bytes);
    return true;
}

bool twi_arena_make(struct twi_arena *arena, uint64_t bytes_max) {
    return make(arena, bytes_max, false);
}
bool twi_arena_make_shared(struct twi_arena *arena, uint64_t bytes_max) {
    return make(arena, bytes_max, true);
}

void twi_arena_unmake(struct twi_arena *arena) {
    if (arena->map != NULL) munmap(arena->map, arena->map_bytes);
    arena->base = NULL;
    arena->map = NULL;
}

void twi_arena_leave(const struct twi_arena *arena) {
    (void)munmap(arena->map, arena->map_bytes);
}

/* ---- the reserve ---- */

#define RESERVE_PART 128u
#define RESERVE_MIN 2u /* 16 MiB */
#define RESERVE_MAX 32u

void twi_arena_set_aside(struct twi_arena *arena) {
    uint32_t count = arena->segments_max / RESERVE_PART;
    if (count < RESERVE_MIN) return;
    if (count > RESERVE_MAX) count = RESERVE_MAX;
    arena->segments_max -= count;
    arena->segments_reserved = count;
    twi_store_relaxed(&arena->reserve, (UINT64_C(1) << count) - 1);
}

/* Returns the bits of `count` adjacent segments, beginning with `first`. */
static uint64_t run_of(uint32_t first, uint32_t count) {
    return ((UINT64_C(1) << count) - 1) << first;
}

static void account(struct twi_arena *arena, int64_t bytes) {
    if (arena->whole != NULL) {
        (void)twi_add_relaxed(&arena->bytes_used, bytes);
        arena = arena->whole;
        (void)twi_add_relaxed(&arena->parts.bytes_used, bytes);
    }
    int64_t used = twi_add_relaxed(&arena->bytes_used, bytes) + bytes;
    int64_t high = twi_load_relaxed(&arena->bytes_high);
    while (used > high && !twi_cas_relaxed(&arena->bytes_high, &high, used)) continue;
}

uint32_t twi_arena_take_reserved(struct twi_arena *arena, uint32_t *lines) {
    for (uint32_t count = segments_of(*lines); count != 0; count--) {
        for (uint32_t first = 0; first + count <= arena->segments_reserved; first++) {
            uint64_t run = run_of(first, count), found = twi_load_relaxed(&arena->reserve);
            while ((found & run) == run) {
                if (!twi_cas_weak_acqrel(&arena->reserve, &found, found & ~run)) continue; /* A1, pairs with A2 */
                *lines = count * TWI_SEGMENT_LINES;
                account(arena, (int64_t)*lines * TWI_LINE_BYTES);
                return (arena->segments_max + 1 + first) * TWI_SEGMENT_LINES;
            }
        }
    }
    return 0;
}

bool twi_arena_reserve_is_half_free(const struct twi_arena *arena) {
    uint32_t free_segments = (uint32_t)__builtin_popcountll(twi_load_relaxed(&arena->reserve));
    return free_segments != 0 && 2 * free_segments >= arena->segments_reserved;
}

/* Returns true if the piece belonged to the reserve. It is zeroed. */
static bool give_reserved(struct twi_arena *arena, uint32_t line, uint32_t lines) {
    uint32_t segment = line / TWI_SEGMENT_LINES;
    if (segment <= arena->segments_max) return false;
    (void)twi_or_acqrel(&arena->reserve, run_of(segment - arena->segments_max - 1, segments_of(lines))); /* A2 */
    return true;
}

/* ---- taking ---- */

#define KEEP_LINES 64u /* how many lines that were given back a size keeps, unless other sizes need them */

/* Returns the first of `count` adjacent segments that were never used, or 0. Segment 0 is the head, so 0 means none. */
static uint32_t fresh_segments(struct twi_arena *arena, uint32_t count) {
    uint32_t taken = twi_load_relaxed(&arena->segments_taken);
    do {
        if (count > arena->segments_max - taken) return 0;
    } while (!twi_cas_relaxed(&arena->segments_taken, &taken, taken + count));
    return taken + 1;
}

static uint32_t pieces_in_segment(uint32_t number) {
    return TWI_SEGMENT_LINES / twi_sizes[number];
}

/* Returns the next piece of the size's run, or 0. */
static uint32_t carve(struct twi_arena *arena, uint32_t number) {
    _Atomic uint64_t *word = &arena->carves[number].word;
    uint64_t found = twi_load_relaxed(word);
    while (found != 0) {
        uint64_t then = LOW32(found) == 1 ? 0 : PAIR(HIGH32(found) + twi_sizes[number], LOW32(found) - 1);
        /* A5, pairs with A4, so the zeroes are visible */
        if (twi_cas_weak_acqrel(word, &found, then)) return HIGH32(found);
    }
    return 0;
}

/* Returns the first piece of a whole segment. The other pieces become the run of this size. The rest of the segment
 * is too short for a piece of this size. It is free for smaller pieces. */
static uint32_t begin_segment(struct twi_arena *arena, uint32_t number, uint32_t segment) {
    uint32_t line = segment * TWI_SEGMENT_LINES, lines = twi_sizes[number], more = pieces_in_segment(number) - 1;
    uint32_t used = lines + more * lines;
    uint64_t none = 0;
    if (used != TWI_SEGMENT_LINES) twi_free_map_give(&arena->free_map, line + used, TWI_SEGMENT_LINES - used);
    if (more != 0 && !twi_cas_acqrel(&arena->carves[number].word, &none, PAIR(line + lines, more))) /* A4 */
        twi_free_map_give(&arena->free_map, line + lines, more * lines); /* another thread has already made a run */
    (void)twi_add_acqrel(&arena->free_map.moves, 1);                     /* A6 */
    return line;
}

/* Frees lines of the runs of sizes, in pieces of at most `most` lines. Returns false if there were no such lines. */
static bool gather(struct twi_arena *arena, uint32_t most) {
    bool any = false;
    for (uint32_t number = 0; number < TWI_SIZES; number++) {
        _Atomic uint64_t *word = &arena->carves[number].word;
        uint64_t found = twi_load_relaxed(word);
        if (found == 0 || LOW32(found) * twi_sizes[number] > most) continue;
        found = twi_swap_acqrel(word, 0); /* A5 */
        if (found == 0) continue;
        twi_free_map_give(&arena->free_map, HIGH32(found), LOW32(found) * twi_sizes[number]);
        (void)twi_add_acqrel(&arena->free_map.moves, 1); /* A6 */
        any = true;
    }
    return any;
}

static uint32_t take_small(struct twi_arena *arena, uint32_t number) {
    uint32_t line = carve(arena, number);
    if (line == 0) line = twi_free_map_take(&arena->free_map, number);
    if (line != 0) return line;
    uint32_t segment = twi_free_map_take_segments(&arena->free_map, 1) / TWI_SEGMENT_LINES;
    if (segment == 0) segment = fresh_segments(arena, 1);
    return segment != 0 ? begin_segment(arena, number, segment) : 0;
}

/* Joins unused segments with the free segments just below them. */
static uint32_t take_large(struct twi_arena *arena, uint32_t count) {
    for (;;) {
        uint32_t line = twi_free_map_take_segments(&arena->free_map, count);
        if (line != 0) return line;
        uint32_t below =
            twi_free_map_whole_below(&arena->free_map, twi_load_relaxed(&arena->segments_taken), count - 1);
        uint32_t fresh = fresh_segments(arena, count - below);
        if (fresh == 0) return 0;
        if (below == 0) return fresh * TWI_SEGMENT_LINES;
        twi_free_map_give(&arena->free_map, fresh * TWI_SEGMENT_LINES, (count - below) * TWI_SEGMENT_LINES);
    }
}

#define LOOKS_MAX 8u /* the most tries, so that no thread waits for a thread that stops while it has lines */

/* Called if there is no run of this size. A request must not fail only because other threads have lines for a
 * moment. So a thread looks again if it sees such a thread, or if lines were given back meanwhile (A6, A7). */
static uint32_t search(struct twi_arena *arena, uint32_t lines) {
    uint32_t line = 0;
    (void)twi_add_acqrel(&arena->busy, 1);                   /* A6, pairs with A7, before this thread has lines */
    if (lines > KEEP_LINES) (void)gather(arena, KEEP_LINES); /* lines that a size keeps may separate two large holes */
    for (uint32_t looks = 0; looks < LOOKS_MAX; looks++) {
        uint32_t moves = twi_load_acquire(&arena->free_map.moves); /* A7 */
        line = lines <= TWI_SEGMENT_LINES ? take_small(arena, twi_size_number(lines))
                                          : take_large(arena, segments_of(lines));
        if (line != 0) break;
        if (gather(arena, TWI_SEGMENT_LINES)) continue;
        twi_fence_seqcst(); /* A7, so a thread that saw that lines were taken also sees `busy` */
        if (twi_load_acquire(&arena->busy) == 1 && twi_load_acquire(&arena->free_map.moves) == moves) break;
    }
    (void)twi_sub_acqrel(&arena->busy, 1); /* A6 */
    if (line == 0 && lines <= TWI_FREE_MAP_RUN) (void)twi_add_relaxed(&arena->refused, 1);
    return line;
}

uint32_t twi_arena_take(struct twi_arena *arena, uint32_t lines) {
    uint32_t line = lines <= TWI_SEGMENT_LINES ? carve(arena, twi_size_number(lines)) : 0;
    if (line == 0) line = search(arena, lines);
    if (line != 0) account(arena, (int64_t)twi_arena_round(lines) * TWI_LINE_BYTES);
    return line;
}

/* ---- giving ---- */

/* The pages of a large piece are given back to the system, which later returns them zeroed. Writing zeroes would
 * commit pages that were never touched. In shared memory MADV_DONTNEED would only make this process forget where the
 * pages are: they keep their contents. */
static void wipe(const struct twi_arena *arena, unsigned char *piece, size_t bytes) {
    int advice = arena->is_shared ? MADV_REMOVE : MADV_DONTNEED;
    if (bytes >= 2 * TWI_SEGMENT_BYTES && madvise(piece, bytes, advice) == 0) return;
    memset(piece, 0, bytes);
}

/* Small windows begin and end often. So the next window finds the pieces of the last one without a search. Returns
 * true if the piece begins or continues the run of its size, while that run is short. */
static bool keep_for_next(struct twi_arena *arena, uint32_t line, uint32_t lines) {
    if (lines > KEEP_LINES / 2) return false;
    _Atomic uint64_t *word = &arena->carves[twi_size_number(lines)].word;
    uint64_t found = twi_load_relaxed(word);
    uint32_t kept = LOW32(found) * lines;
    if (found != 0 && (HIGH32(found) + kept != line || kept + lines > KEEP_LINES)) return false;
    return twi_cas_acqrel(word, &found, found == 0 ? PAIR(line, 1) : found + 1); /* A4 */
}

void twi_arena_give(struct twi_arena *arena, uint32_t line, uint32_t lines) {
    /* It is set before a part hands out its first piece, and cleared after the last piece is back. */
    struct twi_arena *part = line / TWI_SEGMENT_LINES <= arena->segments_max
                                 ? twi_load_relaxed(&arena->parts.owners[line / TWI_SEGMENT_LINES])
                                 : NULL;
    if (part != NULL) {
        line -= part->shift;
        arena = part;
    }
    lines = twi_arena_round(lines);
    wipe(arena, twi_arena_at(arena, line), (size_t)lines * TWI_LINE_BYTES);
    account(arena,
            /* before another thread can take the piece, so that bytes_used never exceeds the bound */
            -(int64_t)lines * TWI_LINE_BYTES);
    if (arena->whole == NULL && give_reserved(arena, line, lines)) return;
    if (!keep_for_next(arena, line, lines)) twi_free_map_give(&arena->free_map, line, lines);
}

uint32_t twi_arena_detach(struct twi_arena *arena, uint32_t segments) {
    return search(arena, segments * TWI_SEGMENT_LINES);
}

void twi_arena_attach(struct twi_arena *arena, uint32_t line, uint32_t segments) {
    wipe(arena, twi_arena_at(arena, line), (size_t)segments * TWI_SEGMENT_BYTES);
    twi_free_map_give(&arena->free_map, line, segments * TWI_SEGMENT_LINES);
}

void twi_arena_touch(struct twi_arena *arena, uint32_t line, uint32_t lines) {
    unsigned char *piece = twi_arena_at(arena, line);
    for (uint64_t at = 0; at < (uint64_t)lines * TWI_LINE_BYTES; at += 4096) {
        /* Stores 0 at a place where a fresh page reads 0. Then the page belongs to the process. Other pages do not
         * change. An atomic "or 0" would not be enough. A compiler may turn it into a load (clang does). A load maps
         * the page of zeroes, and the first write of the thread that takes the page faults. */
        uint8_t untouched = 0;
        (void)twi_cas_relaxed((_Atomic uint8_t *)(piece + at), &untouched, 0);
    }
}

bool twi_arena_stock(struct twi_arena *arena, uint32_t lines, uint32_t pieces, uint32_t *work) {
    uint32_t number = twi_size_number(lines);
    uint32_t wanted = (pieces + pieces_in_segment(number) - 1) / pieces_in_segment(number);
    while (twi_free_map_whole(&arena->free_map) < wanted && *work >= TWI_SEGMENT_LINES) {
        uint32_t segment = fresh_segments(arena, 1);
        if (segment == 0) return false;
        twi_arena_touch(arena, segment * TWI_SEGMENT_LINES, TWI_SEGMENT_LINES);
        twi_free_map_give(&arena->free_map, segment * TWI_SEGMENT_LINES, TWI_SEGMENT_LINES);
        *work -= TWI_SEGMENT_LINES;
    }
    return true;
}

/* ---- memory that is prepared in advance ---- */

/* The kernel populates the memory in advance. A thread that takes it meanwhile may already write there, so this code
 * touches no page. Kernels before 5.14 do not know this advice. There the thread that takes a page touches it first. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define HUGE_SEGMENTS ((uint32_t)(HUGE_BYTES / TWI_SEGMENT_BYTES))

/* Long enough for a thread that the system delays a little, and short enough to follow a burst. */
#define SLICE_MS 50

static void populate_bytes(const void *first, size_t bytes) {
    uintptr_t page = (uintptr_t)first & ~((uintptr_t)getpagesize() - 1);
    (void)madvise((void *)page, (uintptr_t)first - page + bytes, MADV_POPULATE_WRITE);
}

/* Includes the bits and hints of these segments. */
static void populate(struct twi_arena *arena, uint32_t segment, uint32_t count) {
    populate_bytes(twi_arena_at(arena, segment * TWI_SEGMENT_LINES), (size_t)count * TWI_SEGMENT_BYTES);
    populate_bytes(&arena->free_map.bits[segment], count * sizeof arena->free_map.bits[0]);
    populate_bytes((const void *)&arena->free_map.hints[segment], count);
}

void twi_arena_survey(struct twi_arena *arena, int64_t mono_ms) {
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

/* Returns the end of the reserve that is wanted. */
static uint32_t reserve_end(const struct twi_arena *arena, uint32_t taken) {
    uint64_t wanted = arena->segments_rate != 0 ? HUGE_SEGMENTS + 2 * (uint64_t)arena->segments_rate : 0;
    uint64_t most = HUGE_SEGMENTS + taken / 8;
    if (wanted < arena->segments_left) wanted = arena->segments_left;
    uint64_t end = taken + (wanted < most ? wanted : most);
    if (taken < HUGE_SEGMENTS / 2) end = HUGE_SEGMENTS - 1; /* the first huge page is prepared whole or not at all */
    return end < arena->segments_max ? (uint32_t)end : arena->segments_max;
}

/* Called if threads take segments faster than the turn prepares them. These threads fault in the pages that they
 * use. But the rest of each size's present segment may be used much later. */
static void catch_up(struct twi_arena *arena, uint32_t taken) {
    for (uint32_t i = 0; i < TWI_SIZES; i++) {
        uint32_t segment = HIGH32(twi_load_relaxed(&arena->carves[i].word)) / TWI_SEGMENT_LINES;
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

/* No huge pages: a few lines of each part are used. */
void *twi_arena_wiped_pages(size_t bytes, size_t shared_bytes) {
    const int kind = MAP_ANONYMOUS | MAP_NORESERVE;
    unsigned char *map = mmap(NULL, bytes + shared_bytes, PROT_NONE, MAP_PRIVATE | kind, -1, 0), *shared = map + bytes;
    if (map == MAP_FAILED) return NULL;
    if (!twi_wiped_on_fork(map, bytes, twi_arena_unshare_pages) ||
        (shared_bytes != 0 &&
         mmap(shared, shared_bytes, PROT_NONE, MAP_SHARED | MAP_FIXED | kind, -1, 0) == MAP_FAILED)) {
        twi_wiped_forget(map, bytes);
        munmap(map, bytes + shared_bytes);
        return NULL;
    }
    (void)madvise(map, bytes + shared_bytes, MADV_NOHUGEPAGE);
    return map;
}

bool twi_arena_renew_pages(void *pages, size_t bytes, size_t shared_bytes) {
    const int kind = MAP_SHARED | MAP_FIXED | MAP_ANONYMOUS | MAP_NORESERVE;
    char *shared = (char *)pages + bytes;
    if (mmap(shared, shared_bytes, PROT_READ | PROT_WRITE, kind, -1, 0) == MAP_FAILED) return false;
    (void)madvise(shared, shared_bytes, MADV_NOHUGEPAGE);
    return madvise(pages, bytes, MADV_DONTNEED) == 0;
}

bool twi_arena_open_pages(void *pages, size_t bytes) {
    return mprotect(pages, bytes, PROT_READ | PROT_WRITE) == 0;
}

void twi_arena_unshare_pages(void *shared, size_t bytes) {
    (void)mmap(shared, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

void *twi_arena_block(size_t bytes, bool is_shared) {
    const size_t unit = 2 * TWI_LINE_BYTES;
    if (!is_shared) {
        bytes = (bytes + unit - 1) & ~(unit - 1); /* C11 requires a multiple of the alignment */
        void *block = aligned_alloc(unit, bytes);
        return block != NULL ? memset(block, 0, bytes) : NULL;
    }
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) return NULL;
    (void)madvise(map, bytes, MADV_DONTDUMP);
    return map;
}
void twi_arena_give_block(void *block, size_t bytes, bool is_shared) {
    if (!is_shared)
        free(block);
    else if (block != NULL)
        (void)munmap(block, bytes);
}

int64_t twi_arena_bytes_used(const struct twi_arena *arena) {
    return twi_load_relaxed(&arena->bytes_used);
}
int64_t twi_arena_rest_used(const struct twi_arena *arena) {
    int64_t used = twi_load_relaxed(&arena->bytes_used) - twi_load_relaxed(&arena->parts.bytes_used);
    return used > 0 ? used : 0; /* these are two loads, and threads may take or give pieces between them */
}
int64_t twi_arena_rest_max(const struct twi_arena *arena) {
    return (int64_t)arena->bytes_max - twi_load_relaxed(&arena->parts.bytes_aside);
}
int64_t twi_arena_bytes_high(const struct twi_arena *arena) {
    return twi_load_relaxed(&arena->bytes_high);
}
int64_t twi_arena_bytes_committed(const struct twi_arena *arena) {
    return (int64_t)twi_load_relaxed(&arena->segments_taken) * TWI_SEGMENT_BYTES;
}

/* ---- how much is left ---- */

/* Returns the free lines that are not in the free map: unused segments, and the runs of sizes. */
static uint64_t lines_elsewhere(const struct twi_arena *arena) {
    uint64_t lines = (uint64_t)(arena->segments_max - twi_load_relaxed(&arena->segments_taken)) * TWI_SEGMENT_LINES;
    for (uint32_t number = 0; number < TWI_SIZES; number++) {
        lines += (uint64_t)LOW32(twi_load_relaxed(&arena->carves[number].word)) * twi_sizes[number];
    }
    return lines;
}

static uint64_t lines_reserved(const struct twi_arena *arena) {
    return (uint64_t)__builtin_popcountll(twi_load_relaxed(&arena->reserve)) * TWI_SEGMENT_LINES;
}

/* Returns how many bytes of so many lines can be used, with a proportional part of the reserve. The result is the
 * bound if the arena is idle, and 0 if all memory except the reserve is used up. */
static int64_t usable_bytes(const struct twi_arena *arena, uint64_t lines) {
    uint64_t all = (uint64_t)arena->segments_max * TWI_SEGMENT_LINES;
    return (int64_t)((lines + (all != 0 ? lines_reserved(arena) * lines / all : 0)) * TWI_LINE_BYTES);
}

struct twi_arena_usage twi_arena_usage(const struct twi_arena *arena) {
    struct twi_free_map_usage look = twi_free_map_usage(&arena->free_map);
    uint64_t elsewhere = lines_elsewhere(arena);
    uint64_t fresh = arena->segments_max - twi_load_relaxed(&arena->segments_taken);
    int64_t aside = twi_load_relaxed(&arena->parts.bytes_aside) - twi_load_relaxed(&arena->parts.bytes_used);
    if (fresh * TWI_SEGMENT_LINES > look.longest) look.longest = fresh * TWI_SEGMENT_LINES;
    return (struct twi_arena_usage){
        .free_bytes = (int64_t)((look.free + elsewhere + lines_reserved(arena)) * TWI_LINE_BYTES) + aside,
        .usable_bytes = usable_bytes(arena, look.usable + elsewhere),
        .longest_bytes = (int64_t)(look.longest * TWI_LINE_BYTES)};
}

#define ROUND_SEGMENTS 64u /* in each turn: 4 MiB, 1 us, or 8 us if all memory is in small pieces */

int64_t twi_arena_usable(struct twi_arena *arena) {
    twi_free_map_scan(&arena->free_map, &arena->round, ROUND_SEGMENTS);
    uint64_t whole = (uint64_t)twi_free_map_whole(&arena->free_map) * TWI_SEGMENT_LINES, usable = arena->round.usable;
    return usable_bytes(arena, (usable > whole ? usable : whole) + lines_elsewhere(arena));
}

uint64_t twi_arena_refused(const struct twi_arena *arena) {
    return twi_load_relaxed(&arena->refused);
}

/* ---- arena check ---- */

/* The run of lines from which the pieces of a size are carved. */
static bool run_is_valid(const struct twi_arena *arena, uint32_t number) {
    uint64_t word = twi_load_relaxed(&arena->carves[number].word);
    uint64_t first = word >> 32, lines = (uint64_t)(uint32_t)word * twi_sizes[number];
    if (word == 0) return true;
    return lines != 0 && first >= TWI_SEGMENT_LINES && (first + lines - 1) / TWI_SEGMENT_LINES <= arena->segments_max;
}

bool twi_arena_is_valid(const struct twi_arena *arena) {
    int64_t used = twi_arena_bytes_used(arena), high = twi_arena_bytes_high(arena);
    uint64_t segments = (uint64_t)arena->segments_max + arena->segments_reserved;
    if (used < 0 || (arena->whole == NULL && used > high)) return false;
    if (segments * TWI_SEGMENT_BYTES > arena->bytes_max) return false;
    if (twi_load_relaxed(&arena->segments_taken) > arena->segments_max) return false;
    if (twi_load_relaxed(&arena->parts.bytes_used) > twi_load_relaxed(&arena->parts.bytes_aside)) return false;
    for (uint32_t number = 0; number < TWI_SIZES; number++)
        if (!run_is_valid(arena, number)) return false;
    return used + twi_arena_usage(arena).free_bytes == (int64_t)(segments * TWI_SEGMENT_BYTES);
}
