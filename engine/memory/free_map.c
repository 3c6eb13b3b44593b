/* free_map.c -- see free_map.h. */
#include "engine/memory/free_map.h"

#include <string.h>

#define ALL UINT64_MAX

const uint16_t twi_sizes[TWI_SIZES] = {1,  2,  3,  4,   6,   8,   12,  16,  24,  32,
                                       48, 64, 96, 128, 192, 256, 341, 512, 768, 1024};

uint32_t twi_size_number(uint32_t lines) {
    if (lines <= 4) return lines - 1;
    uint32_t log2 = 32 - (uint32_t)__builtin_clz(lines - 1); /* sizes 2k - 2 and 2k - 1 are in (2^(k-1), 2^k] */
    return 2 * log2 - (lines <= twi_sizes[2 * log2 - 2] ? 2 : 1);
}

size_t twi_free_map_bytes(uint32_t segments) {
    return (size_t)(segments + 1) * sizeof(struct twi_free_map_bits) + segments + 1;
}

void twi_free_map_begin(struct twi_free_map *map, void *memory, uint32_t segments) {
    memset((void *)map, 0, sizeof *map);
    map->bits = memory;
    map->hints = (_Atomic uint8_t *)(map->bits + segments + 1);
    map->segments = segments;
    twi_store_relaxed(&map->end, 1);
    for (uint32_t hint = 0; hint <= TWI_SIZES; hint++) twi_store_relaxed(&map->from[hint], 1);
}

/* ---- runs of bits ---- */

struct run {
    uint32_t at, lines;
};

static uint64_t word_at(const struct twi_free_map_bits *bits, uint32_t at) {
    return twi_load_relaxed(&bits->words[at / 64]) >> at % 64;
}

/* Returns the next run of set bits that begins at `at` or later, reading word after word. If `lines` is 0, there is
 * no such run. */
static struct run next_run(const struct twi_free_map_bits *bits, uint32_t at) {
    uint64_t left = 0;
    while (at < TWI_SEGMENT_LINES && (left = word_at(bits, at)) == 0) at = (at | 63) + 1;
    if (at >= TWI_SEGMENT_LINES) return (struct run){at, 0};
    uint32_t gap = (uint32_t)__builtin_ctzll(left);
    struct run run = {at + gap, 0};
    left >>= gap;
    for (at += gap;;) {
        uint32_t above = 64 - at % 64, ones = ~left == 0 ? 64 : (uint32_t)__builtin_ctzll(~left);
        run.lines += ones;
        at += ones;
        if (ones < above || at == TWI_SEGMENT_LINES) return run;
        left = word_at(bits, at);
        if ((left & 1) == 0) return run;
    }
}

/* Returns the smallest run of at least `lines` lines. */
static struct run best_run(const struct twi_free_map_bits *bits, uint32_t lines) {
    struct run best = {0, 0};
    for (struct run run = next_run(bits, 0); run.lines != 0; run = next_run(bits, run.at + run.lines)) {
        if (run.lines < lines || (best.lines != 0 && run.lines >= best.lines)) continue;
        best = run;
        if (run.lines == lines) break;
    }
    return best;
}

/* Returns the hint of a segment whose longest run has this length. */
static uint8_t hint_of(uint32_t longest) {
    if (longest == 0) return 0;
    uint32_t number = twi_size_number(longest);
    return (uint8_t)(number + (twi_sizes[number] == longest));
}

static uint8_t hint_for(const struct twi_free_map_bits *bits) {
    uint32_t longest = 0;
    for (struct run run = next_run(bits, 0); run.lines != 0; run = next_run(bits, run.at + run.lines))
        if (run.lines > longest) longest = run.lines;
    return hint_of(longest);
}

/* Returns the length of the run that contains the free lines `at` to `end`. */
static uint32_t run_around(const struct twi_free_map_bits *bits, uint32_t at, uint32_t end) {
    while (at > 0) {
        uint32_t below = (at - 1) % 64 + 1; /* how many bits of the word are below `at` */
        uint64_t gap = ~(twi_load_relaxed(&bits->words[(at - 1) / 64]) << (64 - below));
        uint32_t ones = gap == 0 ? 64 : (uint32_t)__builtin_clzll(gap);
        at -= ones < below ? ones : below;
        if (ones < below) break;
    }
    while (end < TWI_SEGMENT_LINES) {
        uint32_t above = 64 - end % 64;
        uint64_t gap = ~(twi_load_relaxed(&bits->words[end / 64]) >> end % 64);
        uint32_t ones = gap == 0 ? 64 : (uint32_t)__builtin_ctzll(gap);
        end += ones < above ? ones : above;
        if (ones < above) break;
    }
    return end - at;
}

/* Returns the bits of lines `at` to `end` in the word of `at`. */
static uint64_t mask_of(uint32_t at, uint32_t end) {
    uint32_t count = end - at < 64 - at % 64 ? end - at : 64 - at % 64;
    return (count == 64 ? ALL : (UINT64_C(1) << count) - 1) << at % 64;
}

/* ---- hints ---- */

static void search_from(struct twi_free_map *map, uint8_t hint, uint32_t segment) {
    uint32_t from = twi_load_relaxed(&map->from[hint]);
    while (segment < from && !twi_cas_relaxed(&map->from[hint], &from, segment)) continue;
}

/* Returns true if the hint was `was` and is now `now`. The count of a hint rises before the hint is stored, and
 * falls after the hint has changed. */
static bool change_hint(struct twi_free_map *map, uint32_t segment, uint8_t *was, uint8_t now) {
    (void)twi_add_relaxed(&map->with[now], 1);
    uint8_t found = *was;
    bool changed = twi_cas_relaxed(&map->hints[segment], &found, now);
    (void)twi_sub_relaxed(&map->with[changed ? *was : now], 1);
    if (changed) search_from(map, now, segment);
    *was = found;
    return changed;
}

/* Called after lines `at` to `end` became free. Raises the hint to the length of the run that contains them. A3,
 * pairs with itself: a full fence lies between the change of the bits and the reading of adjacent bits and the hint
 * here, and between the change of the hint and the reading of the bits in renew_hint(). So of two threads that free
 * adjacent lines at once, one sees both parts. A thread that lowers the hint meanwhile looks at the bits again. */
static void raise_hint(struct twi_free_map *map, uint32_t segment, uint32_t at, uint32_t end) {
    twi_fence_seqcst(); /* A3 */
    uint8_t was = twi_load_relaxed(&map->hints[segment]);
    uint8_t now = hint_of(run_around(&map->bits[segment], at, end));
    while (was < now && !change_hint(map, segment, &was, now)) continue;
}

/* Called after a search that found no run. Sets the hint to the value that the bits require. */
static void renew_hint(struct twi_free_map *map, uint32_t segment) {
    for (;;) {
        twi_fence_seqcst(); /* A3 */
        uint8_t was = twi_load_relaxed(&map->hints[segment]), now = hint_for(&map->bits[segment]);
        if (was == now) return;
        (void)change_hint(map, segment, &was, now);
    }
}

/* Returns a segment with that hint, searching from the last one found. 0 means that there is none, or that other
 * threads were quicker. */
static uint32_t find_hint(struct twi_free_map *map, uint8_t hint) {
    uint32_t end = twi_load_acquire(&map->end), from = twi_load_relaxed(&map->from[hint]), at = from;
    for (uint32_t left = end; left != 0; left--, at++) {
        if (at >= end) at = 1;
        if (twi_load_relaxed(&map->hints[at]) != hint) continue;
        if (at != from) (void)twi_cas_relaxed(&map->from[hint], &from, at);
        return at;
    }
    return 0;
}

/* ---- taking and giving ---- */

static void set_bits(struct twi_free_map *map, uint32_t segment, uint32_t at, uint32_t end) {
    for (; at < end; at = (at | 63) + 1) {
        uint64_t mask = mask_of(at, end);
        uint64_t before = twi_or_acqrel(&map->bits[segment].words[at / 64], mask); /* A2, pairs with A1 */
        twi_check((before & mask) == 0);                                           /* given twice, or never taken */
    }
}

/* If some of the lines are no longer free, returns false and takes no line. */
static bool clear_bits(struct twi_free_map *map, uint32_t segment, uint32_t first, uint32_t end) {
    for (uint32_t at = first; at < end; at = (at | 63) + 1) {
        _Atomic uint64_t *word = &map->bits[segment].words[at / 64];
        uint64_t mask = mask_of(at, end), found = twi_load_relaxed(word);
        while ((found & mask) == mask) /* A1, pairs with A2: the zeroes are visible */
            if (twi_cas_weak_acqrel(word, &found, found & ~mask)) break;
        if ((found & mask) == mask) continue;
        if (at == first) return false;
        set_bits(map, segment, first, at & ~63u);
        raise_hint(map, segment, first, at & ~63u);
        (void)twi_add_acqrel(&map->moves, 1); /* A6 */
        return false;
    }
    return true;
}

uint32_t twi_free_map_take(struct twi_free_map *map, uint32_t number) {
    for (uint8_t hint = (uint8_t)(number + 1); hint < TWI_FREE_MAP_WHOLE;) {
        uint32_t segment = twi_load_relaxed(&map->with[hint]) > 0 ? find_hint(map, hint) : 0;
        if (segment == 0) {
            hint++;
            continue;
        }
        struct run run = best_run(&map->bits[segment], twi_sizes[number]);
        if (run.lines != 0 && clear_bits(map, segment, run.at, run.at + twi_sizes[number]))
            return segment * TWI_SEGMENT_LINES + run.at;
        renew_hint(map, segment);
    }
    return 0;
}

/* Returns the first of `count` adjacent segments that look wholly free. 0 means that there are none. */
static uint32_t find_whole(struct twi_free_map *map, uint32_t count) {
    if (twi_load_relaxed(&map->with[TWI_FREE_MAP_WHOLE]) < (int32_t)count) return 0;
    if (count == 1) return find_hint(map, TWI_FREE_MAP_WHOLE);
    uint32_t end = twi_load_acquire(&map->end), length = 0;
    for (uint32_t at = 1; at < end; at++) {
        length = twi_load_relaxed(&map->hints[at]) == TWI_FREE_MAP_WHOLE ? length + 1 : 0;
        if (length == count) return at + 1 - count;
    }
    return 0;
}

uint32_t twi_free_map_take_segments(struct twi_free_map *map, uint32_t count) {
    uint32_t first;
    while ((first = find_whole(map, count)) != 0) {
        uint32_t taken = 0;
        while (taken < count && clear_bits(map, first + taken, 0, TWI_SEGMENT_LINES))
            renew_hint(map, first + taken++); /* otherwise the hint leads the next search here in vain */
        if (taken == count) return first * TWI_SEGMENT_LINES;
        renew_hint(map, first + taken);
        if (taken != 0) twi_free_map_give(map, first * TWI_SEGMENT_LINES, taken * TWI_SEGMENT_LINES);
        if (taken != 0) (void)twi_add_acqrel(&map->moves, 1); /* A6 */
    }
    return 0;
}

uint32_t twi_free_map_whole(const struct twi_free_map *map) {
    int32_t whole = twi_load_relaxed(&map->with[TWI_FREE_MAP_WHOLE]);
    return whole > 0 ? (uint32_t)whole : 0;
}

uint32_t twi_free_map_whole_below(const struct twi_free_map *map, uint32_t last, uint32_t most) {
    uint32_t count = 0;
    while (count < most && last > count && twi_load_relaxed(&map->hints[last - count]) == TWI_FREE_MAP_WHOLE) count++;
    return count;
}

static void reach(struct twi_free_map *map, uint32_t end) {
    uint32_t known = twi_load_relaxed(&map->end);
    while (known < end && !twi_cas_acqrel(&map->end, &known, end)) continue;
}

void twi_free_map_give(struct twi_free_map *map, uint32_t line, uint32_t lines) {
    while (lines != 0) {
        uint32_t segment = line / TWI_SEGMENT_LINES, at = line % TWI_SEGMENT_LINES;
        uint32_t count = lines < TWI_SEGMENT_LINES - at ? lines : TWI_SEGMENT_LINES - at;
        set_bits(map, segment, at, at + count);
        reach(map, segment + 1);
        raise_hint(map, segment, at, at + count);
        line += count;
        lines -= count;
    }
}

/* ---- looking ---- */

static void look_at(const struct twi_free_map_bits *bits, struct twi_free_map_usage *look) {
    for (struct run run = next_run(bits, 0); run.lines != 0; run = next_run(bits, run.at + run.lines)) {
        look->free += run.lines;
        if (run.lines >= TWI_FREE_MAP_RUN) look->usable += run.lines;
        if (run.lines > look->longest) look->longest = run.lines;
    }
}

struct twi_free_map_usage twi_free_map_usage(const struct twi_free_map *map) {
    struct twi_free_map_usage look = {0, 0, 0};
    uint32_t end = twi_load_acquire(&map->end);
    uint64_t whole = 0; /* lines of adjacent wholly free segments */
    for (uint32_t segment = 1; segment < end; segment++) {
        uint8_t hint = twi_load_relaxed(&map->hints[segment]);
        whole = hint == TWI_FREE_MAP_WHOLE ? whole + TWI_SEGMENT_LINES : 0;
        if (hint != 0) look_at(&map->bits[segment], &look);
        if (whole > look.longest) look.longest = whole;
    }
    return look;
}

void twi_free_map_scan(struct twi_free_map *map, struct twi_free_map_scan_state *round, uint32_t count) {
    uint32_t end = twi_load_acquire(&map->end);
    struct twi_free_map_usage look = {0, 0, 0};
    for (; count != 0 && round->at + 1 < end; count--) {
        renew_hint(map, ++round->at);
        look_at(&map->bits[round->at], &look);
    }
    round->so_far += look.usable;
    if (round->at + 1 < end) return;
    round->usable = round->so_far;
    round->so_far = 0;
    round->at = 0;
}
