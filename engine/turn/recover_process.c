/* recover_process.c -- see recover_process.h. Once a second, or at once if a process says that one has gone, the leader
 * looks at the places (core/processes.h). */
#include "engine/turn/recover_process.h"

#include "engine/core/leader.h"
#include "engine/core/processes.h"
#include "engine/core/state.h"
#include "engine/reserve/hold_shared.h"

static void note_death(tw_engine *engine, uint32_t place) {
    twi_port_count(engine, processes_died, 1);
    twi_port_log(engine, TW_LOG_WARNING, TW_EVENT_DIED,
                 "process %u, which shared this engine, ended without tw_close()", twi_process_id(engine, place));
}

void twi_recover_processes(tw_engine *engine) {
    twi_check(twi_turn_is_owned(engine));
    uint32_t place = engine->here->recovery.place;
    if (!engine->life.is_shared || (place == 0 && !twi_leader_is_due(engine))) return;
    if (place == 0) place = twi_process_next_gone(engine, 0);
    for (; place != 0; place = twi_process_next_gone(engine, place)) {
        if (!twi_hold_shared_recover(engine, place)) return; /* the next turn continues */
        if (twi_process_ended_early(engine, place)) note_death(engine, place);
        twi_process_clear(engine, place);
    }
}
