/* processes.c -- see processes.h. */
#include "engine/core/processes.h"

#include "engine/base/descriptor.h"
#include "engine/base/grow.h"
#include "engine/base/threads.h"
#include "engine/core/family.h"
#include "engine/core/state.h"
#include "engine/memory/part.h"
#include "engine/memory/supervisor.h"

#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- witness ---- */

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

/* ---- engines ---- */

static pthread_mutex_t engines_lock = PTHREAD_MUTEX_INITIALIZER;
static struct twi_here *engines;

void twi_engines_add(tw_engine *engine) {
    struct twi_here *here = engine->here;
    twi_check(here->next == NULL);
    here->engine = engine;
    here->is_shared = engine->life.is_shared;
    here->map = engine->arena.map;
    here->map_bytes = engine->arena.map_bytes;
    twi_lock(&engines_lock);
    here->next = engines;
    engines = here;
    twi_unlock(&engines_lock);
}

void twi_engines_remove(const struct twi_here *here) {
    twi_lock(&engines_lock);
    struct twi_here **link = &engines;
    while (*link != NULL && *link != here) link = &(*link)->next;
    if (*link != NULL) *link = here->next;
    twi_unlock(&engines_lock);
}

struct twi_here *twi_engines_find(const tw_engine *engine) {
    twi_process_begin();
    twi_lock(&engines_lock);
    struct twi_here *here = engines;
    while (here != NULL && here->engine != engine) here = here->next;
    twi_unlock(&engines_lock);
    return here;
}

void twi_engines_renew(void (*renew)(struct twi_here *here)) {
    pthread_mutex_init(&engines_lock, NULL);
    for (struct twi_here *here = engines; here != NULL; here = here->next) renew(here);
}

bool twi_engines_is_alone(const struct twi_here *here) {
    return !here->is_shared || (!here->has_joined && here->lead.forks == twi_epoch_forks());
}

/* ---- supervising ---- */

/* Notes a mapping, or a text of the heap if `bytes` is 0. Without memory it is not given back by leave_unread(). */
static void note_block(struct twi_blocks *blocks, void *at, size_t bytes) {
    if (at == NULL || !twi_grow(&blocks->all, sizeof *blocks->all, &blocks->room, blocks->count + 1u, 16)) return;
    blocks->all[blocks->count++] = (struct twi_block){at, bytes};
}

static void note_family(struct twi_blocks *blocks, struct tw_family *family) {
#define TEXT(field) note_block(blocks, (void *)(uintptr_t)family->options.field, 0);
#define IDENTITY(field)
    TWI_FAMILY_IDENTITY(TEXT, IDENTITY)
#undef TEXT
#undef IDENTITY
    note_block(blocks, family->fields, 0);
    for (struct twi_part *part = twi_load_relaxed(&family->quota.parts); part != NULL; part = part->older)
        note_block(blocks, part, part->bytes);
    note_block(blocks, family, family->entry.block_bytes);
}

/* What this process has of an engine that no other one has yet. From the first fork on no family comes or goes. */
static void note_blocks(struct twi_here *here) {
    tw_engine *engine = here->engine;
    struct twi_blocks *blocks = &here->unread.blocks;
    blocks->count = 0;
    for (struct tw_family *family = twi_load_relaxed(&engine->roster.first); family != NULL;
         family = twi_load_relaxed(&family->entry.next))
        note_family(blocks, family);
#define NOTE(field) note_block(blocks, (void *)(uintptr_t)engine->options.field, 0);
    TWI_ENGINE_TEXTS(NOTE)
#undef NOTE
    note_block(blocks, engine->processes, twi_processes_bytes());
    note_block(blocks, engine->in_redis.left, engine->in_redis.left_bytes);
}

bool twi_engines_may_supervise(bool *has_engines) {
    bool may = true;
    if (!twi_lock_try(&engines_lock)) return false; /* another thread has it, and may not exist any more */
    *has_engines = engines != NULL;
    for (struct twi_here *here = engines; here != NULL; here = here->next) {
        if (!here->is_shared) continue;
        if (twi_load_relaxed(&here->lead.is_candidate) || here->background.runs) may = false;
        if (twi_engines_is_alone(here)) note_blocks(here);
    }
    twi_unlock(&engines_lock);
    return may;
}

bool twi_engines_others_have_none(void) {
    twi_lock(&engines_lock);
    const struct twi_here *here = engines;
    while (here != NULL && twi_engines_is_alone(here)) here = here->next;
    twi_unlock(&engines_lock);
    return here == NULL;
}

void twi_engines_join_all(void (*join)(tw_engine *engine)) {
    for (struct twi_here *here = engines; here != NULL; here = here->next) {
        if (!here->unread.has_to_join) continue;
        here->unread.has_to_join = false;
        join(here->engine);
    }
}

/* ---- leaving ---- */

void twi_engines_free_text(const char *text) {
    if (text != NULL) explicit_bzero((void *)(uintptr_t)text, strlen(text));
    free((void *)(uintptr_t)text);
}

static void give_blocks(const struct twi_blocks *blocks) {
    for (uint32_t i = 0; i < blocks->count; i++) {
        const struct twi_block *block = &blocks->all[i];
        if (block->bytes != 0)
            twi_arena_give_block(block->at, block->bytes, true);
        else
            twi_engines_free_text(block->at);
    }
    free(blocks->all);
}

/* Root that has made calls may have a thread in the engine. Then all of it stays, or all but the counters. */
void twi_engines_leave_unread(tw_engine *engine, struct twi_here *here) {
    if (here->background.runs) return;
    twi_engines_remove(here);
    if (here->unread.has_left != NULL)
        twi_store_seqcst(here->unread.has_left, true); /* PL1, pairs with PL2; PL3, pairs with PL4 */
    twi_leader_call(engine);
    twi_arena_give_block(here->map, here->map_bytes, true);
    twi_socket_set_unmake(&here->waits);
    if (!twi_supervisor_is_here()) return;
    give_blocks(&here->unread.blocks);
    free(here->names.chains);
    twi_arena_give_block(engine, here->unread.engine_bytes, true);
    twi_arena_give_block(here, 0, false);
}

/* ---- turn owner ---- */

#define WITHOUT_SLOT UINT32_MAX /* nobody learns when such a thread ends */

uint32_t twi_turn_own(tw_engine *engine, uint32_t from) {
    struct twi_thread *self = twi_thread_here();
    uint32_t own = self != NULL ? twi_thread_number(self) : WITHOUT_SLOT, found = from;
    /* A thread may make the turn of another engine in a hook of this one. Its slot is kept for the outer one. */
    _Atomic uint32_t *turn_of = self != NULL ? &twi_thread_slot(self)->turn_of : NULL;
    bool is_outer = turn_of != NULL && twi_load_relaxed(turn_of) == 0;
    if (is_outer) twi_store_relaxed(turn_of, TWI_TURN_OF(engine));
    /* E1, pairs with E2. It makes all writes of the previous owner visible here */
    bool owns = twi_cas_acqrel(&engine->turn.owned, &found, own);
    if (!owns && is_outer) twi_store_release(turn_of, 0);
    /* A thread forks at any moment, and its child has the memory of that moment. The child sees what the owner changes
     * after this only together with this. */
    if (owns) (void)twi_swap_acqrel(&engine->here->is_turning, true);
    return found;
}

void twi_turn_disown(tw_engine *engine) {
    twi_check(twi_turn_is_owned(engine));
    struct twi_thread *self = twi_thread_self;
    twi_store_release(&engine->here->is_turning, false); /* before the next owner may set it */
    twi_store_release(&engine->turn.owned, 0);           /* E2 */
    if (!twi_thread_has_slot(self)) return;
    _Atomic uint32_t *turn_of = &twi_thread_slot(self)->turn_of;
    if (twi_load_relaxed(turn_of) == TWI_TURN_OF(engine)) twi_store_release(turn_of, 0);
}

/* ---- leader ---- */

void twi_leader_make(tw_engine *engine) {
    if (!engine->life.is_shared) return;
    twi_lock_make_robust(&engine->leader.held);
    twi_event_count_make(&engine->leader.called);
    engine->here->lead.forks = twi_epoch_forks();
}

void twi_leader_begin_here(tw_engine *engine) {
    struct twi_lead *lead = &engine->here->lead;
    uint32_t forks = lead->forks;
    *lead = (struct twi_lead){.forks = forks};
    pthread_mutex_init(&lead->lock, NULL);
    twi_event_count_make(&lead->tried);
}

/* ---- figures ---- */

/* The first turn after it took over. */
static void note_succession(tw_engine *engine) {
    if (!engine->here->lead.has_succeeded) return;
    engine->here->lead.has_succeeded = false;
    twi_port_count(engine, leaders_died, 1);
    twi_port_log(engine, TW_LOG_WARNING, TW_EVENT_DIED,
                 "the process that led this engine ended without tw_close(); process %ld leads now", (long)getpid());
}

void twi_leader_turn(tw_engine *engine) {
    if (!engine->life.is_shared) return;
    twi_store_relaxed(&engine->leader.turned_ms, engine->turn.mono_ms);
    (void)twi_add_acqrel(&engine->leader.turns, 1); /* PL5, pairs with PL6 */
    note_succession(engine);
}

int64_t twi_leader_age_ms(const tw_engine *engine) {
    int64_t turned_ms = twi_load_relaxed(&engine->leader.turned_ms);
    return turned_ms == 0 ? -1 : twi_clock_mono_ms(&engine->clock) - turned_ms;
}

/* ---- who leads ---- */

bool twi_leader_is_here(const tw_engine *engine) {
    uint64_t thread = twi_load_relaxed(&engine->here->lead.thread);
    return thread != 0 && (!engine->life.host_driven || thread == twi_thread_self->serial);
}

bool twi_leader_leads(const tw_engine *engine) {
    return twi_load_relaxed(&engine->here->lead.thread) != 0 &&
           twi_load_relaxed(&engine->leader.process) == twi_process_number();
}

bool twi_leader_is_due(tw_engine *engine) {
    struct twi_lead *lead = &engine->here->lead;
    int64_t now_ms = twi_clock_mono_ms(&engine->clock);
    uint32_t called = twi_event_count_value(&engine->leader.called);
    if (called == twi_load_relaxed(&lead->called) && now_ms < twi_load_relaxed(&lead->look_ms)) return false;
    twi_store_relaxed(&lead->called, called);
    twi_store_relaxed(&lead->look_ms, now_ms + TWI_LEADER_LOOK_MS);
    return true;
}

void twi_leader_await(tw_engine *engine) {
    const struct twi_lead *lead = &engine->here->lead;
    int64_t left_ms = twi_load_relaxed(&lead->look_ms) - twi_clock_mono_ms(&engine->clock);
    if (left_ms > 0) twi_event_count_wait(&engine->leader.called, twi_load_relaxed(&lead->called), (uint32_t)left_ms);
}

enum twi_leader_try twi_leader_take(tw_engine *engine) {
    struct twi_thread *self = twi_thread_here();
    bool has_died;
    if (self == NULL || !twi_lock_try_after(&engine->leader.held, &has_died)) return TWI_LEADER_NOT;
    twi_store_relaxed(&engine->leader.process, self->process);
    twi_store_relaxed(&engine->leader.place, twi_load_relaxed(&engine->here->process));
    twi_store_relaxed(&engine->here->lead.thread, self->serial);
    engine->here->lead.has_succeeded = has_died;
    return has_died ? TWI_LEADER_AFTER_DEATH : TWI_LEADER_SINCE_NOW;
}

void twi_leader_hand_over(tw_engine *engine) {
    twi_check(twi_leader_is_here(engine));
    twi_store_relaxed(&engine->here->lead.thread, 0);
    twi_unlock(&engine->leader.held);
    twi_leader_call(engine);
}

void twi_leader_call(tw_engine *engine) {
    twi_event_count_raise(&engine->leader.called);
}

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
