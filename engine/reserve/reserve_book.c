/* reserve_book.c -- see reserve_book.h. */
#include "engine/reserve/reserve_book.h"

#define MOVES_TURN 2048u
#define SPARSE 8u /* with more chains than this for each entry, the index shrinks */

enum { BY_SERIAL, BY_BUYER, ROWS };

/* ---- the heap ---- */

static struct twi_reservation *at(const tw_engine *engine, uint32_t line) {
    twi_check(line != 0);
    return twi_reservation_at(&engine->arena, line);
}

static uint32_t rank_of(const tw_engine *engine, uint32_t line) {
    return line != 0 ? at(engine, line)->rank : 0;
}

/* The right child is the one of lower rank. So the way down along right children is short. */
static void set_rank(tw_engine *engine, struct twi_reservation *entry) {
    twi_check(entry->rank != 0);
    if (rank_of(engine, entry->left) < rank_of(engine, entry->right)) {
        uint32_t line = entry->left;
        entry->left = entry->right;
        entry->right = line;
    }
    entry->rank = (uint8_t)(rank_of(engine, entry->right) + 1);
}

static uint32_t meld(tw_engine *engine, uint32_t a, uint32_t b) {
    twi_check(a == 0 || a != b);
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
    twi_check(line == 0 || at(engine, line)->rank != 0);
    struct twi_reserve_local *reservations = engine->here->reservations;
    reservations->due = line;
    if (line != 0) at(engine, line)->parent = 0;
    twi_store_relaxed(&reservations->next_ms, line != 0 ? at(engine, line)->wake_ms : INT64_MAX); /* a hint */
}

struct twi_reservation *twi_reserve_first(tw_engine *engine) {
    return engine->here->reservations->due != 0 ? at(engine, engine->here->reservations->due) : NULL;
}

void twi_reserve_push(tw_engine *engine, struct twi_reservation *entry) {
    twi_check(entry->rank == 0);
    entry->left = entry->right = entry->parent = 0;
    entry->rank = 1;
    set_first(engine, meld(engine, engine->here->reservations->due, twi_arena_line(&engine->arena, entry)));
}

/* The entry that comes next: the one below, or else the right child of the nearest one above that still has it to
 * come. */
static uint32_t next_in_heap(const tw_engine *engine, uint32_t line) {
    const struct twi_reservation *entry = at(engine, line);
    if (entry->left != 0) return entry->left; /* there is no right child without a left one */
    for (uint32_t above = entry->parent; above != 0; line = above, above = at(engine, above)->parent)
        if (at(engine, above)->left == line && at(engine, above)->right != 0) return at(engine, above)->right;
    return 0;
}

void twi_reserve_visit(tw_engine *engine, void (*visit)(void *ctx, const struct twi_reservation *entry), void *ctx) {
    for (uint32_t line = engine->here->reservations->due; line != 0; line = next_in_heap(engine, line))
        visit(ctx, at(engine, line));
}

void twi_reserve_take_out(tw_engine *engine, struct twi_reservation *entry) {
    twi_check(entry->rank != 0);
    twi_check(engine->here->reservations->due != 0);
    uint32_t line = twi_arena_line(&engine->arena, entry), parent = entry->parent;
    uint32_t rest = meld(engine, entry->left, entry->right);
    entry->rank = 0;
    if (engine->here->reservations->due == line) {
        set_first(engine, rest);
        return;
    }
    struct twi_reservation *above = at(engine, parent);
    *(above->left == line ? &above->left : &above->right) = rest;
    if (rest != 0) at(engine, rest)->parent = parent;
    for (; parent != 0; parent = at(engine, parent)->parent) { /* ranks fall on the way up, so it ends soon */
        uint8_t before = at(engine, parent)->rank;
        set_rank(engine, at(engine, parent));
        if (at(engine, parent)->rank == before) return;
    }
}

/* ---- memory ---- */

/* Reservations take at most half of the memory, index included, so a flood of them leaves the other half to
 * counters. */
static uint32_t take_piece(tw_engine *engine, uint32_t lines) {
    twi_check(lines != 0);
    struct twi_reserve_local *reservations = engine->here->reservations;
    uint64_t bytes = (uint64_t)twi_arena_round(lines) * TWI_LINE_BYTES;
    if (reservations->bytes + bytes > engine->arena.bytes_max / 2) return 0;
    uint32_t line = twi_arena_take(&engine->arena, lines);
    if (line != 0) reservations->bytes += bytes;
    return line;
}

static void give_piece(tw_engine *engine, uint32_t line, uint32_t lines) {
    twi_check(engine->here->reservations->bytes >= (uint64_t)twi_arena_round(lines) * TWI_LINE_BYTES);
    engine->here->reservations->bytes -= (uint64_t)twi_arena_round(lines) * TWI_LINE_BYTES;
    twi_arena_give(&engine->arena, line, lines);
}

/* ---- the index ---- */

static struct twi_chain_link link_of(tw_engine *engine, uint32_t line, uint32_t row) {
    struct twi_reservation *entry = at(engine, line);
    return row == BY_BUYER ? (struct twi_chain_link){&entry->next_by_buyer, entry->buyer_hash}
                           : (struct twi_chain_link){&entry->next_by_serial, entry->serial};
}

static const struct twi_chains_kind kind = {.rows = ROWS, .link = link_of, .take = take_piece, .give = give_piece};

static struct twi_reservation *first_of(tw_engine *engine, uint64_t hash, uint32_t row) {
    uint32_t line = twi_chain_first(engine, &engine->here->reservations->chains, hash, row);
    return line != 0 ? at(engine, line) : NULL;
}

static void enter(tw_engine *engine, struct twi_reservation *entry, uint32_t row) {
    twi_chain_enter(engine, &engine->here->reservations->chains, &kind, twi_arena_line(&engine->arena, entry), row);
}

static void leave(tw_engine *engine, struct twi_reservation *entry, uint32_t row) {
    twi_chain_leave(engine, &engine->here->reservations->chains, &kind, twi_arena_line(&engine->arena, entry), row);
}

/* Another index than this one has been begun, so a walk begins again. */
static void note_replaced(struct twi_reserve_local *book, uint32_t index) {
    if (book->chains.index != index) book->pass.restarts = true;
}

static bool is_sparse(const struct twi_reserve_local *book) {
    return book->chains.log2 > TWI_CHAINS_LOG2_FIRST && book->entries * SPARSE < UINT64_C(1) << book->chains.log2;
}

/* Returns false if there is no index, and no memory for one. */
static bool make_index(tw_engine *engine) {
    struct twi_reserve_local *book = engine->here->reservations;
    uint32_t index = book->chains.index;
    bool has_index = twi_chains_make(engine, &book->chains, &kind, book->entries);
    note_replaced(book, index);
    return has_index;
}

bool twi_reserve_tidy(tw_engine *engine) {
    struct twi_reserve_local *book = engine->here->reservations;
    uint32_t index = book->chains.index;
    if (index == 0) return false;
    if (book->chains.old_index == 0 && is_sparse(book))
        (void)twi_chains_replace(engine, &book->chains, &kind, book->chains.log2 - 1);
    note_replaced(book, index);
    bool replaces = book->chains.old_index != 0;
    twi_chains_move(engine, &book->chains, &kind, MOVES_TURN);
    return book->chains.old_index != 0 || (replaces && is_sparse(book));
}

bool twi_reserve_walk(tw_engine *engine, uint32_t *work,
                      void (*visit)(tw_engine *engine, struct twi_reservation *entry)) {
    twi_check(visit != NULL);
    struct twi_reserve_local *book = engine->here->reservations;
    if (book->chains.index == 0) return true;
    if (book->pass.restarts) book->pass.cursor = 0;
    book->pass.restarts = false;
    if (book->chains.old_index != 0) return false; /* one index at a time, so the turn moves its chains first */
    for (; book->pass.cursor < UINT32_C(1) << book->chains.log2; book->pass.cursor++) {
        if (*work == 0) return false;
        --*work;
        uint32_t line = twi_chain_first(engine, &book->chains, book->pass.cursor, BY_SERIAL);
        for (uint32_t next; line != 0; line = next) {
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
    twi_check(entry->rank == 0);
    give_piece(engine, twi_arena_line(&engine->arena, entry), entry->lines);
}

void twi_reserve_link(tw_engine *engine, struct twi_reservation *entry) {
    twi_check(entry->serial != 0 && entry->family != NULL);
    engine->here->reservations->entries++;
    enter(engine, entry, BY_SERIAL);
    if (entry->buyer_size != 0) enter(engine, entry, BY_BUYER);
}

void twi_reserve_unlink_buyer(tw_engine *engine, struct twi_reservation *entry) {
    if (entry->buyer_size == 0) return;
    leave(engine, entry, BY_BUYER);
    entry->buyer_size = 0;
}

void twi_reserve_forget(tw_engine *engine, struct twi_reservation *entry) {
    struct twi_reserve_local *book = engine->here->reservations;
    twi_check(book->entries != 0);
    if (entry->rank != 0) twi_reserve_take_out(engine, entry);
    twi_reserve_unlink_buyer(engine, entry);
    leave(engine, entry, BY_SERIAL);
    book->entries--;
    twi_reserve_give(engine, entry);
    twi_chains_move(engine, &book->chains, &kind, TWI_CHAINS_MOVES_CALL);
    if (is_sparse(book)) twi_store_relaxed(&book->tidies, true);
}

struct twi_reservation *twi_reserve_find(tw_engine *engine, uint64_t serial) {
    twi_check(serial != 0);
    struct twi_reservation *entry = first_of(engine, serial, BY_SERIAL);
    while (entry != NULL && entry->serial != serial)
        entry = entry->next_by_serial != 0 ? at(engine, entry->next_by_serial) : NULL;
    return entry;
}

struct twi_reservation *twi_reserve_of_buyer(tw_engine *engine, uint64_t buyer_hash) {
    return first_of(engine, buyer_hash, BY_BUYER);
}
