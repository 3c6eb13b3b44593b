/* engines.c -- see engines.h. */
#include "engine/core/engines.h"

#include "engine/base/grow.h"
#include "engine/base/lock.h"
#include "engine/base/socket_set.h"
#include "engine/core/family.h"
#include "engine/core/family_options.h"
#include "engine/core/leader.h"
#include "engine/core/processes.h"
#include "engine/memory/part.h"
#include "engine/memory/supervisor.h"

#include <stdlib.h>

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

bool twi_engines_may_supervise(void) {
    bool may = true;
    if (!twi_lock_try(&engines_lock)) return false; /* another thread has it, and may not exist any more */
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
    twi_arena_give_block(engine, here->unread.engine_bytes, true);
    twi_arena_give_block(here, 0, false);
}
