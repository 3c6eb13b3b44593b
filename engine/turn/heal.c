/* heal.c -- finishes what threads that have ended left unfinished: flags that they set, and that promise a step which
 * nobody else makes.
 *
 *   flag                     promises                                             finished by
 *   DIRTY, `listed`          the other marks, and a push of chunk and window      count/dirty.c
 *   in the map of windows    the announcement of the window                       core/window_map.c
 *   `is_news`                a push of the family                                 core/agenda.c
 *   `listed` of a lease      a push of the lease                                  lease_stores.c
 *   a request for stripes    the request's content                                count/contention.c
 *   a note                   the note's content                                   limit/overshoot.c
 * A thread says in its slot for which counter it sets such flags, before it sets one (twi_marking_begin). Each flag has
 * the number of that thread. So the turn looks at a few words, and at no other counter.
 * Always true: the slot of a thread that has ended serves no other thread before this is done, because the number would
 * mean another thread, and because the memory that is named here must stay. */
#include "engine/turn/heal.h"

#include "engine/core/agenda.h"
#include "engine/core/window_map.h"
#include "engine/count/contention.h"
#include "engine/count/dirty.h"
#include "engine/limit/overshoot.h"
#include "engine/turn/lease_stores.h"

static void heal_counter(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell, uint32_t number) {
    struct tw_family *family = generation->family;
    /* If the thread made a window and did not enter it, nobody else has seen that window. */
    if (cell == &generation->overflow && !twi_window_heal(family, generation)) return;
    twi_agenda_heal(family, number);
    twi_contention_heal(engine, number);
    if (twi_overshoot_is_measured(family)) twi_overshoot_heal(engine, generation, cell, number);
    if (family->kind.is_hard && generation->synced && cell != &generation->overflow)
        twi_lease_stores_heal(engine, cell, number);
    twi_dirty_heal(engine, generation, cell, number);
    twi_port_count(engine, recovered_keys, cell != &generation->overflow);
}

void twi_heal(tw_engine *engine) {
    twi_check(twi_turn_is_owned(engine));
    struct twi_thread_slot *slot;
    for (uint32_t number = 0; (slot = twi_thread_next_ended(engine, twi_engine_process(engine), &number)) != NULL;
         twi_thread_let_go(engine, slot)) {
        struct twi_generation *generation = twi_load_relaxed(&slot->marking.generation);
        void *of = twi_load_relaxed(&slot->marking.cell);
        if (of == NULL || twi_load_relaxed(&slot->marking.engine) != engine) continue; /* it only made a turn */
        if (generation == NULL)
            twi_agenda_heal(of, number);
        else
            heal_counter(engine, generation, of, number);
    }
}
