/* reserve_book.c -- see reserve_book.h. */
#include "engine/reserve/reserve_book.h"

#define INDEX_LOG2_FIRST 6u /* 64 chains of each kind: a piece of 9 lines */
#define MOVES_CALL 8u       /* chains that a call moves; while one is added, more than one must be moved */
#define MOVES_TURN 2048u
#define SPARSE 8u /* chains for each entry: then the index shrinks */

struct index {
    _Atomic uint64_t reserved;
    uint32_t chains[]; /* chains by serial, then as many chains by buyer */
};

/* ---- the heap ---- */

static struct twi_reservation *at(const tw_engine *engine, uint32_t line) {
    return twi_reservation_at(&engine->arena, line);
}

static uint32_t rank_of(const tw_engine *engine, uint32_t line) {
    return line != 0 ? at(engine, line)->rank : 0;
}

/* The right child is the one of lower rank. So the way down along right children is short. */
static void set_rank(tw_engine *engine, struct twi_reservation *entry) {
    if (rank_of(engine, entry->left) < rank_of(engine, entry->right)) {
        uint32_t line = entry->left;
        entry->left = entry->right;
        entry->right = line;
    }
    entry->rank = (uint8_t)(rank_of(engine, entry->right) + 1);
}

static uint32_t meld(tw_engine *engine, uint32_t a, uint32_t b) {
    if (a == 0 || b == 0) return a != 0 ? a : b;
    if (at(engine, b)->wake_ms < at(engine, a)->wake_ms) {
        uint32_t c = a;
        a = b;
        b = c;
    }
    struct twi_reservation *first = at(engine, a);
    first->right = meld(engine, first->right, b);
    at(engine, first->right)->parent = a;
    set_rank(engine, first);
    return a;
}

static void set_first(tw_engine *engine, uint32_t line) {
    struct twi_reserve_local *reservations = engine->reservations;
    reservations->due = line;
    if (line != 0) at(engine, line)->parent = 0;
    twi_store_relaxed(&reservations->next_ms, line != 0 ? at(engine, line)->wake_ms : INT64_MAX); /* a hint */
}

struct twi_reservation *twi_reserve_first(tw_engine *engine) {
    return engine->reservations->due != 0 ? at(engine, engine->reservations->due) : NULL;
}

void twi_reserve_push(tw_engine *engine, struct twi_reservation *entry) {
    twi_check(entry->rank == 0);
    entry->left = entry->right = entry->parent = 0;
    entry->rank = 1;
    set_first(engine, meld(engine, engine->reservations->due, twi_arena_line(&engine->arena, entry)));
}

void twi_reserve_take_out(tw_engine *engine, struct twi_reservation *entry) {
    uint32_t line = twi_arena_line(&engine->arena, entry), parent = entry->parent;
    uint32_t rest = meld(engine, entry->left, entry->right);
    entry->rank = 0;
    if (engine->reservations->due == line) {
        set_first(engine, rest);
        return;
    }
    struct twi_reservation *above = at(engine, parent);
    *(above->left == line ? &above->left : &above->right) = rest;
    if (rest != 0) at(engine, rest)->parent = parent;
    for (; parent != 0; parent = at(engine, parent)->parent) { /* ranks fall on the way up: it ends soon */
        uint8_t before = at(engine, parent)->rank;
        set_rank(engine, at(engine, parent));
        if (at(engine, parent)->rank == before) return;
    }
}

/* ---- memory ---- */

/* Reservations take at most half of the memory, index included: a flood of them leaves the other half to counters. */
static uint32_t take_piece(tw_engine *engine, uint32_t lines) {
    struct twi_reserve_local *reservations = engine->reservations;
    uint64_t bytes = (uint64_t)twi_arena_round(lines) * TWI_LINE_BYTES;
    if (reservations->bytes + bytes > engine->arena.bytes_max / 2) return 0;
    uint32_t line = twi_arena_take(&engine->arena, lines);
    if (line != 0) reservations->bytes += bytes;
    return line;
}

static void give_piece(tw_engine *engine, uint32_t line, uint32_t lines) {
    engine->reservations->bytes -= (uint64_t)twi_arena_round(lines) * TWI_LINE_BYTES;
    twi_arena_give(&engine->arena, line, lines);
}

/* ---- the index ---- */

static uint32_t index_lines(uint32_t log2) {
    size_t bytes = sizeof(struct index) + (sizeof(uint32_t) << (log2 + 1));
    return (uint32_t)((bytes + TWI_LINE_BYTES - 1) / TWI_LINE_BYTES);
}

static uint32_t *chain_in(tw_engine *engine, uint32_t index, uint32_t log2, uint64_t number, bool by_buyer) {
    struct index *chains = twi_arena_at(&engine->arena, index);
    return &chains->chains[(number & ((UINT64_C(1) << log2) - 1)) + (by_buyer ? UINT64_C(1) << log2 : 0)];
}

/* While an index is replaced, its first chains are in the new one already. */
static uint32_t *chain_of(tw_engine *engine, uint64_t number, bool by_buyer) {
    const struct twi_reserve_local *book = engine->reservations;
    if (book->old_index != 0 && (number & ((UINT64_C(1) << book->old_log2) - 1)) >= book->moved)
        return chain_in(engine, book->old_index, book->old_log2, number, by_buyer);
    return chain_in(engine, book->index, book->index_log2, number, by_buyer);
}

static void enter(tw_engine *engine, struct twi_reservation *entry, bool by_buyer) {
    uint32_t *chain = chain_of(engine, by_buyer ? entry->buyer_hash : entry->serial, by_buyer);
    *(by_buyer ? &entry->next_by_buyer : &entry->next_by_serial) = *chain;
    *chain = twi_arena_line(&engine->arena, entry);
}

static void move_chain(tw_engine *engine, uint32_t first, bool by_buyer) {
    for (uint32_t line = first, next; line != 0; line = next) {
        struct twi_reservation *entry = at(engine, line);
        next = by_buyer ? entry->next_by_buyer : entry->next_by_serial;
        enter(engine, entry, by_buyer);
    }
}

static void move_chains(tw_engine *engine, uint32_t count) {
    struct twi_reserve_local *book = engine->reservations;
    for (; book->old_index != 0 && count != 0; count--) {
        uint32_t number = book->moved++;
        move_chain(engine, *chain_in(engine, book->old_index, book->old_log2, number, false), false);
        move_chain(engine, *chain_in(engine, book->old_index, book->old_log2, number, true), true);
        if (book->moved < UINT32_C(1) << book->old_log2) continue;
        give_piece(engine, book->old_index, index_lines(book->old_log2));
        book->old_index = 0;
    }
}

/* Without memory the chains get longer. */
static void replace_index(tw_engine *engine, uint32_t log2) {
    struct twi_reserve_local *book = engine->reservations;
    uint32_t line = take_piece(engine, index_lines(log2));
    if (line == 0) return;
    book->old_index = book->index;
    book->old_log2 = book->index_log2;
    book->moved = 0;
    book->index = line;
    book->index_log2 = log2;
    book->pass.restarts = true;
}

static bool is_sparse(const struct twi_reserve_local *book) {
    return book->index_log2 > INDEX_LOG2_FIRST && book->entries * SPARSE < UINT64_C(1) << book->index_log2;
}

/* False: there is no index, and no memory for one. */
static bool make_index(tw_engine *engine) {
    struct twi_reserve_local *book = engine->reservations;
    move_chains(engine, MOVES_CALL);
    if (book->index == 0)
        replace_index(engine, INDEX_LOG2_FIRST);
    else if (book->old_index == 0 && book->entries >= UINT64_C(1) << book->index_log2)
        replace_index(engine, book->index_log2 + 1);
    return book->index != 0;
}

bool twi_reserve_tidy(tw_engine *engine) {
    struct twi_reserve_local *book = engine->reservations;
    if (book->index == 0) return false;
    if (book->old_index == 0 && is_sparse(book)) replace_index(engine, book->index_log2 - 1);
    bool replaces = book->old_index != 0;
    move_chains(engine, MOVES_TURN);
    return book->old_index != 0 || (replaces && is_sparse(book));
}

bool twi_reserve_walk(tw_engine *engine, uint32_t *work,
                      void (*visit)(tw_engine *engine, struct twi_reservation *entry)) {
    struct twi_reserve_local *book = engine->reservations;
    if (book->index == 0) return true;
    if (book->pass.restarts) book->pass.cursor = 0;
    book->pass.restarts = false;
    if (book->old_index != 0) return false; /* one index at a time: the turn moves its chains first */
    for (; book->pass.cursor < UINT32_C(1) << book->index_log2; book->pass.cursor++) {
        if (*work == 0) return false;
        --*work;
        for (uint32_t line = *chain_of(engine, book->pass.cursor, false), next; line != 0; line = next) {
            next = at(engine, line)->next_by_serial;
            visit(engine, at(engine, line));
        }
    }
    return true;
}

/* ---- entries ---- */

struct twi_reservation *twi_reserve_make(tw_engine *engine, size_t bytes) {
    uint32_t lines = (uint32_t)((sizeof(struct twi_reservation) + bytes + TWI_LINE_BYTES - 1) / TWI_LINE_BYTES);
    uint32_t line = make_index(engine) ? take_piece(engine, lines) : 0;
    if (line == 0) return NULL;
    at(engine, line)->lines = lines;
    return at(engine, line);
}

void twi_reserve_give(tw_engine *engine, struct twi_reservation *entry) {
    give_piece(engine, twi_arena_line(&engine->arena, entry), entry->lines);
}

void twi_reserve_link(tw_engine *engine, struct twi_reservation *entry) {
    engine->reservations->entries++;
    enter(engine, entry, false);
    if (entry->buyer_size != 0) enter(engine, entry, true);
}

void twi_reserve_unlink_buyer(tw_engine *engine, struct twi_reservation *entry) {
    if (entry->buyer_size == 0) return;
    uint32_t *link = chain_of(engine, entry->buyer_hash, true);
    while (at(engine, *link) != entry) link = &at(engine, *link)->next_by_buyer;
    *link = entry->next_by_buyer;
    entry->buyer_size = 0;
}

void twi_reserve_forget(tw_engine *engine, struct twi_reservation *entry) {
    if (entry->rank != 0) twi_reserve_take_out(engine, entry);
    twi_reserve_unlink_buyer(engine, entry);
    uint32_t *link = chain_of(engine, entry->serial, false);
    while (at(engine, *link) != entry) link = &at(engine, *link)->next_by_serial;
    *link = entry->next_by_serial;
    engine->reservations->entries--;
    twi_reserve_give(engine, entry);
    move_chains(engine, MOVES_CALL);
    if (is_sparse(engine->reservations)) twi_store_relaxed(&engine->reservations->tidies, true);
}

struct twi_reservation *twi_reserve_find(tw_engine *engine, uint64_t serial) {
    if (engine->reservations->index == 0) return NULL;
    uint32_t line = *chain_of(engine, serial, false);
    while (line != 0 && at(engine, line)->serial != serial) line = at(engine, line)->next_by_serial;
    return line != 0 ? at(engine, line) : NULL;
}

struct twi_reservation *twi_reserve_of_buyer(tw_engine *engine, uint64_t buyer_hash) {
    if (engine->reservations->index == 0) return NULL;
    uint32_t line = *chain_of(engine, buyer_hash, true);
    return line != 0 ? at(engine, line) : NULL;
}
