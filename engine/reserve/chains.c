/* chains.c -- see chains.h. */
#include "engine/reserve/chains.h"

#include "engine/core/state.h"

struct index {
    _Atomic uint64_t reserved; /* used by the arena */
    uint32_t chains[];         /* row by row */
};

static uint32_t index_lines(const struct twi_chains_kind *kind, uint32_t log2) {
    size_t bytes = sizeof(struct index) + (size_t)kind->rows * (sizeof(uint32_t) << log2);
    return (uint32_t)((bytes + TWI_LINE_BYTES - 1) / TWI_LINE_BYTES);
}

static uint32_t *chain_in(tw_engine *engine, uint32_t line, uint32_t log2, uint64_t hash, uint32_t row) {
    twi_check(line != 0 && log2 >= TWI_CHAINS_LOG2_FIRST && log2 < 32);
    struct index *index = twi_arena_at(&engine->arena, line);
    return &index->chains[(hash & ((UINT64_C(1) << log2) - 1)) + ((uint64_t)row << log2)];
}

static uint32_t *chain_of(tw_engine *engine, const struct twi_chains *chains, uint64_t hash, uint32_t row) {
    if (chains->old_index != 0 && (hash & ((UINT64_C(1) << chains->old_log2) - 1)) >= chains->moved)
        return chain_in(engine, chains->old_index, chains->old_log2, hash, row);
    return chain_in(engine, chains->index, chains->log2, hash, row);
}

uint32_t twi_chain_first(tw_engine *engine, const struct twi_chains *chains, uint64_t hash, uint32_t row) {
    return chains->index != 0 ? *chain_of(engine, chains, hash, row) : 0;
}

void twi_chain_enter(tw_engine *engine, const struct twi_chains *chains, const struct twi_chains_kind *kind,
                     uint32_t line, uint32_t row) {
    twi_check(line != 0 && row < kind->rows);
    struct twi_chain_link link = kind->link(engine, line, row);
    uint32_t *chain = chain_of(engine, chains, link.hash, row);
    twi_check(*chain != line);
    *link.next = *chain;
    *chain = line;
}

void twi_chain_leave(tw_engine *engine, const struct twi_chains *chains, const struct twi_chains_kind *kind,
                     uint32_t line, uint32_t row) {
    struct twi_chain_link link = kind->link(engine, line, row);
    uint32_t *at = chain_of(engine, chains, link.hash, row);
    while (*at != line) {
        twi_check(*at != 0); /* the entry is in this chain */
        at = kind->link(engine, *at, row).next;
    }
    *at = *link.next;
    *link.next = 0;
}

/* The newest entry stays the first one: the chain is reversed, and then moved from its end. */
static void move_chain(tw_engine *engine, const struct twi_chains *chains, const struct twi_chains_kind *kind,
                       uint32_t line, uint32_t row) {
    uint32_t last = 0;
    while (line != 0) {
        uint32_t *next = kind->link(engine, line, row).next, after = *next;
        *next = last;
        last = line;
        line = after;
    }
    while (last != 0) {
        uint32_t after = *kind->link(engine, last, row).next;
        twi_chain_enter(engine, chains, kind, last, row);
        last = after;
    }
}

void twi_chains_move(tw_engine *engine, struct twi_chains *chains, const struct twi_chains_kind *kind, uint32_t count) {
    for (; chains->old_index != 0 && count != 0; count--) {
        uint32_t number = chains->moved++;
        for (uint32_t row = 0; row < kind->rows; row++)
            move_chain(engine, chains, kind, *chain_in(engine, chains->old_index, chains->old_log2, number, row), row);
        if (chains->moved < UINT32_C(1) << chains->old_log2) continue;
        kind->give(engine, chains->old_index, index_lines(kind, chains->old_log2));
        chains->old_index = 0;
    }
}

bool twi_chains_replace(tw_engine *engine, struct twi_chains *chains, const struct twi_chains_kind *kind,
                        uint32_t log2) {
    twi_check(chains->old_index == 0 && log2 >= TWI_CHAINS_LOG2_FIRST);
    uint32_t line = kind->take(engine, index_lines(kind, log2));
    if (line == 0) return false;
    *chains = (struct twi_chains){
        .index = line, .log2 = log2, .old_index = chains->index, .old_log2 = chains->log2, .moved = 0};
    return true;
}

/* If there is no memory, the chains get longer. */
bool twi_chains_make(tw_engine *engine, struct twi_chains *chains, const struct twi_chains_kind *kind,
                     uint64_t entries) {
    twi_chains_move(engine, chains, kind, TWI_CHAINS_MOVES_CALL);
    if (chains->index == 0) return twi_chains_replace(engine, chains, kind, TWI_CHAINS_LOG2_FIRST);
    if (chains->old_index == 0 && entries >= UINT64_C(1) << chains->log2)
        (void)twi_chains_replace(engine, chains, kind, chains->log2 + 1);
    return true;
}
