/* floor_section.c -- what entering and leaving a read section costs: the engine's own (epoch.h), the same with the
 * fence that the engine leaves to the turn, and libck's ck_epoch. In C, because their headers are in C. Always true:
 * between entering and leaving a word is loaded, which neither the compiler nor the processor may load earlier. */
#include "bench/floor.h"

#include "engine/memory/epoch.h"

#include <ck_epoch.h>

static _Atomic uint64_t word;

uint64_t bench_floor_section(uint64_t count) {
    struct twi_thread *self = twi_thread_here();
    for (uint64_t i = 0; i < count; i++) {
        twi_section_enter(self);
        (void)twi_load_acquire(&word);
        twi_section_leave(self);
    }
    return count;
}

uint64_t bench_floor_section_fence(uint64_t count) {
    struct twi_thread *self = twi_thread_here();
    for (uint64_t i = 0; i < count; i++) {
        twi_section_enter(self);
        twi_fence_seqcst();
        (void)twi_load_acquire(&word);
        twi_section_leave(self);
    }
    return count;
}

uint64_t bench_floor_section_ck(uint64_t count) {
    static ck_epoch_t epoch;
    static ck_epoch_record_t record;
    ck_epoch_init(&epoch);
    ck_epoch_register(&epoch, &record, NULL);
    for (uint64_t i = 0; i < count; i++) {
        ck_epoch_begin(&record, NULL);
        (void)twi_load_acquire(&word);
        ck_epoch_end(&record, NULL);
    }
    return count;
}
