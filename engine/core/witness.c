/* witness.c -- see witness.h. */
#include "engine/core/witness.h"

#include "engine/base/lock.h"
#include "engine/base/own_thread.h"
#include "engine/core/processes.h"
#include "engine/core/state.h"

#include <sys/syscall.h>
#include <unistd.h>

#define WAIT_MS 60000 /* no event is missed. There is a bound nevertheless */

static bool is_main_thread(void) {
    return syscall(SYS_gettid) == getpid();
}

/* The first rise of `stage` says that the thread has tried, the second one that it stops. */
static void *stay(void *arg) {
    tw_engine *engine = arg;
    struct twi_witness *witness = &engine->here->witness;
    if (twi_thread_here() != NULL) twi_process_enter(engine);
    twi_event_count_raise(&witness->stage);
    while (twi_event_count_value(&witness->stage) < 2) twi_event_count_wait(&witness->stage, 1, WAIT_MS);
    return NULL;
}

/* Under the lock. Returns true if the process has the thread. */
static bool start(tw_engine *engine) {
    struct twi_witness *witness = &engine->here->witness;
    if (!witness->runs) witness->runs = twi_own_thread_start(&witness->thread, stay, engine);
    return witness->runs;
}

void twi_witness_begin(tw_engine *engine) {
    struct twi_witness *witness = &engine->here->witness;
    pthread_mutex_init(&witness->lock, NULL);
    twi_event_count_make(&witness->stage);
    witness->runs = false;
    twi_store_relaxed(&engine->here->process, 0);
    engine->here->unread.has_left = NULL;
}

void twi_witness_open(tw_engine *engine) {
    if (twi_thread_here() != NULL && is_main_thread() && twi_thread_is_seen()) twi_process_enter(engine);
}

/* No thread but this one knows the engine here, and the new one waits until this one has joined. */
void twi_witness_join(tw_engine *engine) {
    if (is_main_thread())
        twi_witness_open(engine);
    else
        (void)start(engine);
}

/* Under the lock. */
static tw_status take_place(tw_engine *engine) {
    struct twi_witness *witness = &engine->here->witness;
    bool is_main = is_main_thread();
    if (!is_main && !start(engine))
        return twi_refuse(TW_ERR_MEMORY, "shared: no thread could be started, by which other processes learn that this "
                                         "one has ended");
    while (!is_main && twi_event_count_value(&witness->stage) == 0) twi_event_count_wait(&witness->stage, 0, WAIT_MS);
    if (!twi_process_has_place(engine)) twi_process_enter(engine);
    if (twi_process_has_place(engine)) return TW_OK;
    return twi_refuse(TW_ERR_MEMORY, "shared: more than 1,023 processes share the engine, and this one has no place");
}

tw_status twi_witness_need(tw_engine *engine) {
    struct twi_witness *witness = &engine->here->witness;
    if (twi_thread_here() == NULL) return twi_refuse_for(twi_thread_why()); /* a forked child joins here */
    if (twi_likely(twi_process_has_place(engine))) return TW_OK;
    twi_lock(&witness->lock);
    tw_status status = take_place(engine);
    twi_unlock(&witness->lock);
    return status;
}

void twi_witness_end(tw_engine *engine) {
    struct twi_witness *witness = &engine->here->witness;
    twi_check(twi_load_relaxed(&engine->here->process) == 0);
    if (!witness->runs) return;
    while (twi_event_count_value(&witness->stage) == 0) twi_event_count_wait(&witness->stage, 0, WAIT_MS);
    twi_event_count_raise(&witness->stage);
    pthread_join(witness->thread, NULL);
    witness->runs = false;
}
