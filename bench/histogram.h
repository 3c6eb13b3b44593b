/* histogram.h -- counts of times, log-linear: 32 steps for each power of two. So any figure is within 3.2 % of the
 * truth; the largest time is kept exactly.
 * Always true: recording is a shift, an add and a compare. It touches one cache line of the 16 KiB and never
 * allocates. A histogram has one writer. Times are in ticks of bench_ticks() and become ns when they are read. */
#ifndef BENCH_HISTOGRAM_H
#define BENCH_HISTOGRAM_H

#include <stdint.h>
#include <time.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#define BENCH_STEPS_LOG2 5u
#define BENCH_STEPS (1u << BENCH_STEPS_LOG2)
/* 2^44 ticks are more than an hour: no measured time is longer. */
#define BENCH_CELLS ((44u - BENCH_STEPS_LOG2 + 1) * BENCH_STEPS)

struct bench_histogram {
    uint64_t count;
    uint64_t largest;
    uint64_t last; /* when the last timed call ended: consecutive calls need one reading of the clock each */
    uint64_t cells[BENCH_CELLS];
};

/* Where there is no cheap cycle counter, a tick is a nanosecond. */
static inline uint64_t bench_ticks(void) {
#if defined(__x86_64__)
    return __rdtsc();
#else
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
#endif
}

/* The same, after all that stands before it is done and before anything behind it begins: for a call that is timed by
 * itself. */
static inline uint64_t bench_ticks_fenced(void) {
#if defined(__x86_64__)
    _mm_lfence();
    uint64_t now = __rdtsc();
    _mm_lfence();
    return now;
#else
    return bench_ticks();
#endif
}

static inline uint32_t bench_cell_of(uint64_t ticks) {
    if (ticks < BENCH_STEPS) return (uint32_t)ticks;
    uint32_t shift = 63u - (uint32_t)__builtin_clzll(ticks) - BENCH_STEPS_LOG2;
    uint32_t cell = shift * BENCH_STEPS + (uint32_t)(ticks >> shift);
    return cell < BENCH_CELLS ? cell : BENCH_CELLS - 1;
}

/* The largest value that falls into the cell. */
static inline uint64_t bench_cell_end(uint32_t cell) {
    if (cell < 2 * BENCH_STEPS) return cell;
    uint32_t shift = cell / BENCH_STEPS - 1;
    return ((uint64_t)(cell % BENCH_STEPS + BENCH_STEPS + 1) << shift) - 1;
}

static inline void bench_record(struct bench_histogram *histogram, uint64_t ticks) {
    histogram->count++;
    histogram->cells[bench_cell_of(ticks)]++;
    if (ticks > histogram->largest) histogram->largest = ticks;
}

/* Records the time since the last reading as that of one call. */
static inline void bench_record_since(struct bench_histogram *histogram) {
    uint64_t now = bench_ticks();
    bench_record(histogram, now - histogram->last);
    histogram->last = now;
}

#endif
