/* arm64_hits.c -- single hits, for scripts/arm64_hits.py, which counts the instructions of each under an emulator.
 *
 * 1,024 keys of 29 bytes are there, in two families without Redis. A hundred are added to, then acquired, then read.
 * Always true: each measured call lies between two calls of mark(); a wrong answer ends the program with 1. */
#include "tallywheel.h"

#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define KEYS 1024

/* Time stands during the hits: under an emulator the thread that keeps it is late, and callers would read the clock. */
static bool time_stands;
static struct timespec stood_at[8];
int clock_gettime(clockid_t id, struct timespec *now) {
    if (time_stands && id >= 0 && id < 8) return *now = stood_at[id], 0;
    return (int)syscall(SYS_clock_gettime, id, now);
}
static void let_time_stand(void) {
    for (clockid_t id = 0; id < 8; id++) syscall(SYS_clock_gettime, id, &stood_at[id]);
    time_stands = true;
}

__attribute__((noinline)) static void mark(void) {
    __asm__ volatile("");
}

static char names[KEYS][32];

static bool family(tw_engine *engine, const char *name, tw_family **made) {
    tw_family_options options;
    tw_family_options_init(&options);
    options.name = name;
    options.window_ms = TW_DAY;
    return tw_family_open(engine, &options, made) == TW_OK;
}

int main(void) {
    tw_options options;
    tw_engine *engine;
    tw_family *counts, *limits;
    int64_t view = 0;
    tw_options_init(&options);
    if (tw_open(&options, &engine) != TW_OK || !family(engine, "counts", &counts) || !family(engine, "limits", &limits))
        return 1;
    for (int i = 0; i < KEYS; i++) {
        snprintf(names[i], sizeof names[i], "user:%04d:/shop/basket/%06d", i, i * 7);
        tw_key key = tw_str(names[i]);
        if (tw_add(counts, key, 1, NULL) != TW_OK || tw_acquire(limits, key, 1, 1000, NULL) != TW_OK) return 1;
    }
    usleep(300000); /* the turn gives this thread a line of its own for the statistics of limits */
    let_time_stand();
    for (int i = 0; i < KEYS; i++) { /* the first hits: none of the keys is new any more */
        tw_key key = tw_str(names[i]);
        if (tw_add(counts, key, 1, &view) != TW_OK || tw_acquire(limits, key, 1, 1000, NULL) != TW_OK || view != 2)
            return 1;
    }
    for (int call = 0; call < 3; call++)
        for (int i = 0; i < 100; i++) {
            tw_key key = tw_str(names[i]);
            tw_status status;
            mark();
            if (call == 0)
                status = tw_add(counts, key, 1, &view);
            else if (call == 1)
                status = tw_acquire(limits, key, 1, 1000, NULL);
            else
                status = tw_get(counts, key, &view);
            mark();
            if (status != TW_OK || view != 3) return 1;
        }
    return tw_close(engine, 0) == TW_OK ? 0 : 1;
}
