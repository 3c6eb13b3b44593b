/* processes.c -- see processes.h. */
#include "engine/core/processes.h"

#include "engine/core/leader.h"
#include "engine/core/state.h"

#include <unistd.h>

#define CLEARING UINT64_C(1) /* no process has this number and id */

struct place {
    /* number of the process (twi_thread.process) << 32 | process id; 0 means that the place is free. The other fields
     * are written after it, and 0 until then. */
    alignas(TWI_LINE_BYTES) _Atomic uint64_t who;
    _Atomic uint32_t thread; /* the number of a thread of it that lived at the last look; a hint */
    _Atomic bool has_left;
    _Atomic bool may_lead; /* tw_lead() */
    _Atomic bool has_opened;
};

struct twi_processes {
    _Atomic uint32_t most; /* places above this number were never taken */
    struct place places[TWI_PROCESSES_MAX + 1];
};

static struct place *place_at(const tw_engine *engine, uint32_t place) {
    twi_check(place != 0 && place <= TWI_PROCESSES_MAX);
    return &engine->processes->places[place];
}

static uint32_t id_of(uint64_t who) {
    return (uint32_t)who;
}
static uint32_t number_of(uint64_t who) {
    return (uint32_t)(who >> 32);
}

/* ---- the table ---- */

bool twi_processes_make(tw_engine *engine) {
    twi_check(engine->processes == NULL);
    engine->processes = twi_arena_block(sizeof *engine->processes, true);
    return engine->processes != NULL;
}

size_t twi_processes_bytes(void) {
    return sizeof(struct twi_processes);
}

void twi_processes_unmake(tw_engine *engine) {
    twi_arena_give_block(engine->processes, sizeof *engine->processes, true);
}

static void raise_most(struct twi_processes *processes, uint32_t number) {
    uint32_t most = twi_load_relaxed(&processes->most);
    while (most < number && !twi_cas_weak_acqrel(&processes->most, &most, number)) {}
}

/* Takes the lowest place that is free, because a key's slots are found by place (hold_shared.c). */
void twi_process_enter(tw_engine *engine) {
    twi_check(twi_thread_has_slot(twi_thread_self));
    uint64_t who = (uint64_t)twi_process_number() << 32 | (uint32_t)getpid();
    for (uint32_t number = 1; number <= TWI_PROCESSES_MAX; number++) {
        struct place *place = place_at(engine, number);
        uint64_t free = 0;
        if (twi_load_relaxed(&place->who) != 0 || !twi_cas_acqrel(&place->who, &free, who)) continue;
        raise_most(engine->processes, number);
        if (!engine->here->has_joined) twi_store_relaxed(&place->has_opened, true);
        engine->here->unread.has_left = &place->has_left;
        twi_store_release(&engine->here->process, number);
        return;
    }
}

/* The main thread may have ended, and with it all threads that were known of this process. Then others have cleared
 * its place. */
bool twi_process_has_place(const tw_engine *engine) {
    uint32_t place = twi_load_acquire(&engine->here->process);
    return place != 0 && number_of(twi_load_relaxed(&place_at(engine, place)->who)) == twi_process_number();
}

void twi_process_leave(tw_engine *engine) {
    bool has_place = twi_process_has_place(engine);
    uint32_t place = twi_load_relaxed(&engine->here->process);
    twi_store_relaxed(&engine->here->process, 0);
    if (!has_place) return;
    twi_store_seqcst(&place_at(engine, place)->has_left, true); /* PL1, pairs with PL2; PL3, pairs with PL4 */
    twi_leader_call(engine);                                    /* who gives back what it has left */
}

bool twi_processes_live(tw_engine *engine) {
    uint32_t most = twi_load_acquire(&engine->processes->most);
    for (uint32_t place = 1; place <= most; place++)
        if (twi_process_is_alive(engine, place)) return true;
    return false;
}

void twi_process_note_candidate(tw_engine *engine) {
    twi_check(twi_load_relaxed(&engine->here->process) != 0);
    twi_store_relaxed(&place_at(engine, engine->here->process)->may_lead, true);
}

bool twi_processes_may_lead(tw_engine *engine) {
    uint32_t most = twi_load_acquire(&engine->processes->most);
    for (uint32_t place = 1; place <= most; place++)
        if (place != engine->here->process && twi_load_relaxed(&place_at(engine, place)->may_lead) &&
            twi_process_is_alive(engine, place))
            return true;
    return false;
}

uint32_t twi_processes_count(const tw_engine *engine) {
    uint32_t count = 0, most = twi_load_relaxed(&engine->processes->most);
    for (uint32_t place = 1; place <= most; place++)
        count += twi_load_relaxed(&place_at(engine, place)->who) != 0 && !twi_process_has_left(engine, place);
    return count + (twi_load_relaxed(&engine->here->process) == 0);
}

bool twi_process_has_left(const tw_engine *engine, uint32_t place) {
    return twi_load_acquire(&place_at(engine, place)->has_left); /* PL2 */
}

bool twi_process_ended_early(const tw_engine *engine, uint32_t place) {
    const struct place *of = place_at(engine, place);
    if (twi_process_has_left(engine, place)) return false;
    return !twi_load_relaxed(&of->has_opened) || twi_load_relaxed(&of->may_lead);
}

bool twi_process_is_alive(tw_engine *engine, uint32_t number) {
    struct place *place = place_at(engine, number);
    uint64_t who = twi_load_acquire(&place->who);
    /* PL2, pairs with PL1: the last steps of a process that has left are seen. PL4, pairs with PL3: of two candidates
     * that leave at once, the second one finds that the first one has left, and leads at last (lead.c). */
    if (who <= CLEARING || twi_load_seqcst(&place->has_left)) return false;
    if (number == twi_load_relaxed(&engine->here->process)) return true;
    uint32_t thread = twi_load_relaxed(&place->thread);
    bool lives = twi_process_lives(number_of(who), &thread);
    twi_store_relaxed(&place->thread, thread);
    return lives;
}

uint32_t twi_process_id(const tw_engine *engine, uint32_t place) {
    return id_of(twi_load_relaxed(&place_at(engine, place)->who));
}

uint32_t twi_process_next_gone(tw_engine *engine, uint32_t place) {
    uint32_t most = twi_load_acquire(&engine->processes->most);
    while (++place <= most)
        if (twi_load_acquire(&place_at(engine, place)->who) != 0 && !twi_process_is_alive(engine, place)) return place;
    return 0;
}

/* While it clears, the place belongs to nobody, so a process that ends here leaves it to the next look. */
void twi_process_clear(tw_engine *engine, uint32_t number) {
    struct place *place = place_at(engine, number);
    twi_store_release(&place->who, CLEARING);
    twi_store_relaxed(&place->thread, 0);
    twi_store_relaxed(&place->has_left, false);
    twi_store_relaxed(&place->may_lead, false);
    twi_store_relaxed(&place->has_opened, false);
    twi_store_release(&place->who, 0);
}
