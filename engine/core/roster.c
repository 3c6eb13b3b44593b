/* roster.c -- see roster.h. A hash table of chains holds the names. A chain has up to two names on average. */
#include "engine/core/roster.h"

#include "engine/core/agenda.h"
#include "engine/base/threads.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define NAMES_LOG2_MIN 4u
#define BLOCK_BYTES (2 * TWI_SEGMENT_BYTES) /* the size that the arena returns to the system when it is given back */
#define BLOCK_LINES (BLOCK_BYTES / TWI_LINE_BYTES)

/* ---- by name ---- */

static struct tw_family **chain_of(tw_engine *engine, const char *name) {
    const struct twi_family_names *names = &engine->here->names;
    return &names->chains[engine->hashing.fn(&engine->hashing.secret, name, strlen(name)) >> (64 - names->log2)];
}

/* Without memory the table stays as it is, and its chains get longer. Returns false if there is no table yet. */
static bool grow_names(tw_engine *engine) {
    struct twi_family_names *names = &engine->here->names;
    if (names->chains != NULL && names->count < UINT32_C(2) << names->log2) return true;
    uint32_t log2 = names->chains != NULL ? names->log2 + 1 : NAMES_LOG2_MIN;
    struct tw_family **old = names->chains, **chains = calloc((size_t)1 << log2, sizeof(void *));
    if (chains == NULL) return old != NULL;
    size_t count = old != NULL ? (size_t)1 << names->log2 : 0;
    names->chains = chains;
    names->log2 = log2;
    for (size_t i = 0; i < count; i++) {
        for (struct tw_family *family = old[i], *next; family != NULL; family = next) {
            struct tw_family **chain = chain_of(engine, family->options.name);
            next = family->entry.next_named;
            family->entry.next_named = *chain;
            *chain = family;
        }
    }
    free(old);
    return true;
}

struct tw_family *twi_roster_find(tw_engine *engine, const char *name) {
    twi_check(name != NULL);
    struct tw_family *family = engine->here->names.chains != NULL ? *chain_of(engine, name) : NULL;
    while (family != NULL && strcmp(family->options.name, name) != 0) family = family->entry.next_named;
    return family;
}

tw_family *tw_family_find(tw_engine *engine, const char *name) {
    if (engine == NULL) return NULL;
    if (name == NULL || twi_thread_here() == NULL || !twi_epoch_look_at_users()) return NULL;
    twi_lock(&engine->roster.lock);
    tw_family *family = twi_roster_find(engine, name);
    twi_unlock(&engine->roster.lock);
    return family;
}

void twi_roster_forget(tw_engine *engine, struct tw_family *family) {
    twi_check(engine->here->names.count != 0);
    struct tw_family **link = chain_of(engine, family->options.name);
    while (*link != family) link = &(*link)->entry.next_named;
    *link = family->entry.next_named;
    engine->here->names.count--;
}

/* ---- the account ---- */

static uint32_t families(const struct twi_roster *roster) {
    return twi_load_relaxed(&roster->count); /* relaxed: under the lock */
}

static uint32_t blocks_for(const struct twi_roster *roster) {
    twi_check(roster->bytes != 0 || families(roster) == 0);
    uint64_t count = families(roster);
    if (count <= TWI_FAMILIES_FREE) return 0;
    uint64_t bytes = roster->bytes / count * (count - TWI_FAMILIES_FREE);
    return (uint32_t)((bytes + BLOCK_BYTES - 1) / BLOCK_BYTES);
}

/* A block holds one word, the link to the next block. The system keeps its other pages. */
static bool take_block(tw_engine *engine) {
    twi_check(twi_load_relaxed(&engine->roster.count) > TWI_FAMILIES_FREE);
    uint32_t line = twi_arena_take(&engine->arena, BLOCK_LINES);
    if (line == 0) return false;
    (void)madvise(twi_arena_at(&engine->arena, line), BLOCK_BYTES, MADV_DONTNEED);
    twi_store_relaxed((_Atomic uint64_t *)twi_arena_at(&engine->arena, line), engine->roster.blocks);
    engine->roster.blocks = line;
    engine->roster.block_count++;
    return true;
}

static void give_blocks(tw_engine *engine, uint32_t keep) {
    twi_check((engine->roster.blocks == 0) == (engine->roster.block_count == 0));
    struct twi_roster *roster = &engine->roster;
    while (roster->block_count > keep) {
        uint32_t line = roster->blocks;
        roster->blocks = (uint32_t)twi_load_relaxed((_Atomic uint64_t *)twi_arena_at(&engine->arena, line));
        roster->block_count--;
        twi_arena_give(&engine->arena, line, BLOCK_LINES);
    }
}

static bool charge(tw_engine *engine, const struct tw_family *family) {
    twi_check(family->entry.bytes >= offsetof(struct tw_family, template));
    struct twi_roster *roster = &engine->roster;
    twi_store_relaxed(&roster->count, families(roster) + 1);
    roster->bytes += family->entry.bytes;
    while (roster->block_count < blocks_for(roster)) {
        if (take_block(engine)) continue;
        twi_store_relaxed(&roster->count, families(roster) - 1);
        roster->bytes -= family->entry.bytes;
        return false;
    }
    return true;
}

/* One block more than needed is kept, so families that come and go do not take and return a block each time. */
static void discharge(tw_engine *engine, const struct tw_family *family) {
    twi_check(families(&engine->roster) != 0);
    twi_check(engine->roster.bytes >= family->entry.bytes);
    struct twi_roster *roster = &engine->roster;
    twi_store_relaxed(&roster->count, families(roster) - 1);
    roster->bytes -= family->entry.bytes;
    uint32_t needed = blocks_for(roster);
    give_blocks(engine, needed == 0 ? 0 : needed + 1);
}

/* ---- the list ---- */

bool twi_roster_add(tw_engine *engine, struct tw_family *family) {
    twi_check(family->engine == engine);
    twi_check(family->entry.opened == 1);
    if (!grow_names(engine) || !charge(engine, family)) return false;
    struct tw_family **chain = chain_of(engine, family->options.name);
    family->entry.next_named = *chain;
    *chain = family;
    engine->here->names.count++;
    struct tw_family *first = twi_load_relaxed(&engine->roster.first);
    family->entry.before = NULL;
    if (first != NULL) first->entry.before = family;
    twi_store_relaxed(&family->entry.next, first);
    twi_store_release(&engine->roster.first, family);
    twi_agenda_notify(family);
    return true;
}

void twi_roster_remove(tw_engine *engine, struct tw_family *family) {
    twi_check(family->entry.opened == 0);
    twi_check(family->engine == engine);
    struct tw_family *next = twi_load_relaxed(&family->entry.next);
    twi_store_release(family->entry.before != NULL ? &family->entry.before->entry.next : &engine->roster.first, next);
    if (next != NULL) next->entry.before = family->entry.before;
    discharge(engine, family);
}

void twi_roster_begin(tw_engine *engine) {
    bool has_arena = engine->arena.base != NULL;
    twi_lock_make(&engine->roster.lock, engine->life.is_shared);
    engine->roster.blocks = engine->roster.block_count = 0;
    while (has_arena && engine->roster.block_count < blocks_for(&engine->roster) && take_block(engine)) continue;
}

void twi_roster_end(tw_engine *engine) {
    twi_check(engine->here->names.chains != NULL || engine->here->names.count == 0);
    free(engine->here->names.chains);
    if (!engine->life.is_shared) pthread_mutex_destroy(&engine->roster.lock);
}

/* ---- checks ---- */

/* Each name is found by its hash. */
static bool names_are_valid(tw_engine *engine) {
    const struct twi_family_names *names = &engine->here->names;
    uint32_t count = 0;
    for (size_t i = 0; names->chains != NULL && i < (size_t)1 << names->log2; i++)
        for (struct tw_family *family = names->chains[i]; family != NULL; family = family->entry.next_named, count++)
            if (chain_of(engine, family->options.name) != &names->chains[i] || family->entry.opened == 0) return false;
    return count == names->count;
}

bool twi_roster_is_valid(tw_engine *engine) {
    struct twi_roster *roster = &engine->roster;
    twi_lock(&roster->lock);
    uint32_t count = 0, open = 0, blocks = 0;
    uint64_t bytes = 0;
    const struct tw_family *before = NULL;
    bool is_linked = names_are_valid(engine);
    for (struct tw_family *family = twi_load_relaxed(&roster->first); family != NULL;
         before = family, family = twi_load_relaxed(&family->entry.next)) {
        is_linked = is_linked && family->entry.before == before && family->engine == engine;
        count++;
        open += family->entry.opened != 0;
        bytes += family->entry.bytes;
    }
    for (uint32_t line = roster->blocks; line != 0; blocks++)
        line = (uint32_t)twi_load_relaxed((_Atomic uint64_t *)twi_arena_at(&engine->arena, line));
    bool is_counted = count == families(roster) && open == engine->here->names.count && bytes == roster->bytes &&
                      blocks == roster->block_count && blocks >= blocks_for(roster);
    twi_unlock(&roster->lock);
    return is_linked && is_counted;
}
