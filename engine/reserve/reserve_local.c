/* reserve_local.c -- see reserve_local.h. An entry is in the chain of its serial from its creation until it is
 * forgotten. It is in its buyer's chain while the buyer counts as one who has reserved or bought. It is in the heap
 * until time alone can change nothing more about it.
 * With Redis the book holds no reservations but SWEEP entries: keys for which this engine made reservations. A key is
 * examined when its next reservation expires, so units return although nobody calls. */
#include "engine/reserve/reserve_local.h"

#include "engine/core/family.h"

#include <string.h>

#define TURN_MAX 256u       /* entries that one turn examines */
#define INDEX_LOG2_FIRST 6u /* 64 chains of each kind: a piece of 9 lines */

enum { HELD, SOLD, RETURNED, SWEEP };

struct entry {
    uint64_t serial;
    tw_family *family;
    int64_t n;
    int64_t start_ms, end_ms; /* of its window, in engine time */
    int64_t due_ms;           /* monotonic: when its lease time ends */
    int64_t wake_ms;          /* monotonic: when it is examined; the heap's order. SWEEP: INT64_MAX during that */
    uint32_t child, sibling;  /* links of the heap */
    uint32_t next_by_serial, next_by_buyer;
    uint32_t lines;
    uint32_t state;
    uint64_t buyer_hash;
    uint16_t key_size, buyer_size; /* buyer_size 0: no buyer */
    unsigned char bytes[];         /* key, then buyer */
};

struct index {
    _Atomic uint64_t reserved;
    uint32_t chains[]; /* chains by serial, then as many chains by buyer */
};

static struct entry *entry_at(const struct twi_arena *arena, uint32_t line) {
    return twi_arena_at(arena, line);
}

static tw_key key_of(const struct entry *entry) {
    return tw_bytes(entry->bytes, entry->key_size);
}

static tw_key buyer_of(const struct entry *entry) {
    return tw_bytes(entry->bytes + entry->key_size, entry->buyer_size);
}

/* ---- the heap: a pairing heap of lines, the earliest at the root ---- */

static uint32_t meld(tw_engine *engine, uint32_t a, uint32_t b) {
    if (a == 0 || b == 0) return a != 0 ? a : b;
    if (entry_at(&engine->arena, b)->wake_ms < entry_at(&engine->arena, a)->wake_ms) {
        uint32_t c = a;
        a = b;
        b = c;
    }
    entry_at(&engine->arena, b)->sibling = entry_at(&engine->arena, a)->child;
    entry_at(&engine->arena, a)->child = b;
    return a;
}

static void note_next(struct tw_engine *engine) {
    struct twi_reserve_local *reservations = engine->reservations;
    twi_store_relaxed(&reservations->next_ms, reservations->due != 0
                                                  ? entry_at(&engine->arena, reservations->due)->wake_ms
                                                  : INT64_MAX); /* a hint for the turn */
}

static void push(tw_engine *engine, struct entry *entry) {
    entry->child = entry->sibling = 0;
    engine->reservations->due = meld(engine, engine->reservations->due, twi_arena_line(&engine->arena, entry));
    note_next(engine);
}

/* The children of the old root are melded in pairs, and then all pairs from the last to the first. */
static struct entry *pop(tw_engine *engine) {
    struct entry *root = entry_at(&engine->arena, engine->reservations->due);
    uint32_t pairs = 0;
    for (uint32_t a = root->child; a != 0;) {
        uint32_t b = entry_at(&engine->arena, a)->sibling, rest = b != 0 ? entry_at(&engine->arena, b)->sibling : 0;
        entry_at(&engine->arena, a)->sibling = 0;
        if (b != 0) entry_at(&engine->arena, b)->sibling = 0;
        uint32_t pair = meld(engine, a, b);
        entry_at(&engine->arena, pair)->sibling = pairs;
        pairs = pair;
        a = rest;
    }
    uint32_t whole = 0;
    while (pairs != 0) {
        uint32_t next = entry_at(&engine->arena, pairs)->sibling;
        entry_at(&engine->arena, pairs)->sibling = 0;
        whole = meld(engine, whole, pairs);
        pairs = next;
    }
    engine->reservations->due = whole;
    note_next(engine);
    return root;
}

/* ---- the chains ---- */

static uint32_t index_lines(uint32_t log2) {
    size_t bytes = sizeof(struct index) + (sizeof(uint32_t) << (log2 + 1));
    return (uint32_t)((bytes + TWI_LINE_BYTES - 1) / TWI_LINE_BYTES);
}

static uint32_t *chain_of(tw_engine *engine, uint64_t number, bool by_buyer) {
    struct index *index = twi_arena_at(&engine->arena, engine->reservations->index);
    uint32_t log2 = engine->reservations->index_log2;
    return &index->chains[(number & ((UINT64_C(1) << log2) - 1)) + (by_buyer ? UINT64_C(1) << log2 : 0)];
}

static void link_entry(tw_engine *engine, struct entry *entry) {
    uint32_t line = twi_arena_line(&engine->arena, entry), *chain = chain_of(engine, entry->serial, false);
    entry->next_by_serial = *chain;
    *chain = line;
    if (entry->buyer_size == 0) return;
    chain = chain_of(engine, entry->buyer_hash, true);
    entry->next_by_buyer = *chain;
    *chain = line;
}

static void unlink_serial(tw_engine *engine, const struct entry *entry) {
    uint32_t *link = chain_of(engine, entry->serial, false);
    while (entry_at(&engine->arena, *link) != entry) link = &entry_at(&engine->arena, *link)->next_by_serial;
    *link = entry->next_by_serial;
}

/* The buyer may reserve again. */
static void unlink_buyer(tw_engine *engine, struct entry *entry) {
    if (entry->buyer_size == 0) return;
    uint32_t *link = chain_of(engine, entry->buyer_hash, true);
    while (entry_at(&engine->arena, *link) != entry) link = &entry_at(&engine->arena, *link)->next_by_buyer;
    *link = entry->next_by_buyer;
    entry->buyer_size = 0;
}

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

/* Doubles the number of chains when there are as many entries as chains. Without memory the chains get longer. */
static bool make_index(tw_engine *engine) {
    struct twi_reserve_local *reservations = engine->reservations;
    if (reservations->index != 0 && reservations->entries < UINT64_C(1) << reservations->index_log2) return true;
    uint32_t old = reservations->index, old_log2 = reservations->index_log2,
             log2 = old != 0 ? old_log2 + 1 : INDEX_LOG2_FIRST;
    uint32_t line = take_piece(engine, index_lines(log2));
    if (line == 0) return old != 0;
    reservations->index = line;
    reservations->index_log2 = log2;
    if (old == 0) return true;
    const struct index *before = twi_arena_at(&engine->arena, old);
    for (uint32_t chain = 0; chain < UINT32_C(1) << old_log2; chain++)
        for (uint32_t at = before->chains[chain], next; at != 0; at = next) {
            next = entry_at(&engine->arena, at)->next_by_serial;
            link_entry(engine, entry_at(&engine->arena, at));
        }
    give_piece(engine, old, index_lines(old_log2));
    return true;
}

static struct entry *find_serial(tw_engine *engine, uint64_t serial) {
    if (engine->reservations->index == 0) return NULL;
    uint32_t at = *chain_of(engine, serial, false);
    while (at != 0 && entry_at(&engine->arena, at)->serial != serial) at = entry_at(&engine->arena, at)->next_by_serial;
    return at != 0 ? entry_at(&engine->arena, at) : NULL;
}

static bool same_bytes(tw_key a, tw_key b) {
    return a.size == b.size && memcmp(a.data, b.data, a.size) == 0;
}

static uint64_t hash_buyer(const struct twi_reserve_request *request) {
    const tw_engine *engine = request->family->engine;
    return engine->hashing.fn(&engine->hashing.secret, request->buyer.data, request->buyer.size) +
           engine->hashing.fn(&engine->hashing.secret, request->key.data, request->key.size);
}

static struct entry *find_buyer(const struct twi_reserve_request *request, int64_t start_ms) {
    tw_engine *engine = request->family->engine;
    if (request->buyer.size == 0 || engine->reservations->index == 0) return NULL;
    for (uint32_t at = *chain_of(engine, hash_buyer(request), true); at != 0;
         at = entry_at(&engine->arena, at)->next_by_buyer) {
        struct entry *entry = entry_at(&engine->arena, at);
        if (entry->family == request->family && entry->start_ms == start_ms &&
            same_bytes(key_of(entry), request->key) && same_bytes(buyer_of(entry), request->buyer))
            return entry;
    }
    return NULL;
}

static void forget(tw_engine *engine, struct entry *entry) {
    unlink_buyer(engine, entry);
    unlink_serial(engine, entry);
    engine->reservations->entries--;
    give_piece(engine, twi_arena_line(&engine->arena, entry), entry->lines);
}

/* ---- units that go back ---- */

static void put_back(tw_family *family, tw_key key, int64_t n, int64_t start_ms) {
    if (family->kind.has_starts)
        (void)tw_add_at(family, key, -n, start_ms, NULL); /* if it is late, the window is over, and so are its units */
    else
        (void)tw_add(family, key, -n, NULL);
}

static void take_back(tw_engine *engine, struct entry *entry) {
    entry->state = RETURNED;
    unlink_buyer(engine, entry);
    put_back(entry->family, key_of(entry), entry->n, entry->start_ms);
    twi_stat_add(engine, offsetof(tw_stats, reservations_held), -1);
}

/* Handles an entry that was at the top of the heap and has been taken off it. */
static void wake(tw_engine *engine, struct entry *entry, int64_t mono_ms) {
    if (entry->state == HELD) {
        take_back(engine, entry);
        twi_port_count(engine, reservations_expired, 1);
    }
    if (entry->state == RETURNED) {
        forget(engine, entry);
        return;
    }
    int64_t until_ms = twi_time_add(entry->due_ms, TWI_TOKEN_KEEP_MS);
    int64_t left_ms = entry->end_ms == INT64_MAX ? INT64_MAX : entry->end_ms - twi_clock_now_ms(&engine->clock);
    if (entry->buyer_size != 0 && left_ms > 0 && twi_time_add(mono_ms, left_ms) > until_ms)
        until_ms = twi_time_add(mono_ms, left_ms);
    if (until_ms <= mono_ms) {
        forget(engine, entry);
    } else if (until_ms != INT64_MAX) { /* otherwise the purchase is known as long as the family is open */
        entry->wake_ms = until_ms;
        push(engine, entry);
    }
}

/* True: there may be more entries that are due. */
static bool take_back_due(tw_engine *engine, int64_t mono_ms, uint32_t count_max) {
    struct twi_reserve_local *reservations = engine->reservations;
    for (uint32_t count = 0; count < count_max; count++) {
        if (reservations->due == 0 || entry_at(&engine->arena, reservations->due)->wake_ms > mono_ms) return false;
        wake(engine, pop(engine), mono_ms);
    }
    return true;
}

/* ---- reserving ---- */

static struct entry *make_entry(const struct twi_reserve_request *request) {
    tw_engine *engine = request->family->engine;
    size_t bytes = sizeof(struct entry) + request->key.size + request->buyer.size;
    uint32_t lines = (uint32_t)((bytes + TWI_LINE_BYTES - 1) / TWI_LINE_BYTES);
    uint32_t line = make_index(engine) ? take_piece(engine, lines) : 0;
    if (line == 0) return NULL;
    struct entry *entry = entry_at(&engine->arena, line);
    entry->lines = lines;
    entry->family = request->family;
    entry->n = request->n;
    entry->key_size = (uint16_t)request->key.size;
    entry->buyer_size = (uint16_t)request->buyer.size;
    memcpy(entry->bytes, request->key.data, request->key.size);
    if (request->buyer.size == 0) return entry;
    memcpy(entry->bytes + request->key.size, request->buyer.data, request->buyer.size);
    entry->buyer_hash = hash_buyer(request);
    return entry;
}

static void fill_held(const struct entry *has, int64_t mono_ms, tw_verdict *verdict) {
    verdict->decided_by = TW_BY_BUYER;
    verdict->allowed = 0;
    verdict->retry_after_ms = has->state == SOLD ? -1 : has->due_ms - mono_ms;
}

/* No unit is left. Some may come back when the next reservation expires, of whichever key. */
static void fill_denied(const tw_engine *engine, int64_t mono_ms, tw_verdict *verdict) {
    uint32_t due = engine->reservations->due;
    if (due == 0 || verdict->retry_after_ms < 0) return;
    int64_t left_ms = entry_at(&engine->arena, due)->wake_ms - mono_ms;
    if (left_ms < verdict->retry_after_ms) verdict->retry_after_ms = left_ms;
}

/* Takes the units in the open window, if the buyer has none in it yet. The clock may pass into the next window between
 * the two calls. Then nobody has a reservation in that window: it has only begun, and this call holds the lock. */
static tw_status take_units(const struct twi_reserve_request *request, int64_t mono_ms, tw_verdict *verdict) {
    tw_status status = tw_acquire(request->family, request->key, 0, request->limit, verdict); /* to learn the window */
    if (status < 0) return status;
    const struct entry *has = find_buyer(request, verdict->window_start_ms);
    if (has != NULL) {
        fill_held(has, mono_ms, verdict);
        return TW_DENIED;
    }
    status = tw_acquire(request->family, request->key, request->n, request->limit, verdict);
    if (status == TW_DENIED) fill_denied(request->family->engine, mono_ms, verdict);
    if (status != TW_OK || verdict->decided_by != TW_BY_FULL) return status;
    verdict->allowed = 0; /* nothing was counted: a limit may admit that, a sale must not */
    return twi_full_refuse();
}

static tw_status reserve_locked(const struct twi_reserve_request *request, struct twi_token *token,
                                tw_verdict *verdict) {
    tw_engine *engine = request->family->engine;
    struct twi_reserve_local *reservations = engine->reservations;
    int64_t mono_ms = twi_clock_mono_ms(&engine->clock);
    while (take_back_due(engine, mono_ms, TURN_MAX)) continue; /* expired reservations deny nobody */
    struct entry *entry = make_entry(request);
    if (entry == NULL) return twi_refuse(TW_ERR_FULL, "memory: there is no room for another reservation");
    tw_status status = take_units(request, mono_ms, verdict);
    if (status != TW_OK) {
        give_piece(engine, twi_arena_line(&engine->arena, entry), entry->lines);
        return status;
    }
    entry->start_ms = verdict->window_start_ms;
    entry->end_ms = twi_calendar_span(&request->family->rule, entry->start_ms).end_ms;
    entry->due_ms = entry->wake_ms = mono_ms + request->ttl_ms;
    entry->serial = ++reservations->serial;
    reservations->entries++;
    link_entry(engine, entry);
    push(engine, entry);
    twi_stat_add(engine, offsetof(tw_stats, reservations_held), 1);
    *token =
        (struct twi_token){.local = true, .tag = reservations->tag, .serial = entry->serial, .due_ms = entry->due_ms};
    return TW_OK;
}

tw_status twi_reserve_local_take(const struct twi_reserve_request *request, struct twi_token *token,
                                 tw_verdict *verdict) {
    tw_engine *engine = request->family->engine;
    if (twi_thread_here() == NULL)
        return twi_refuse(TW_ERR_MEMORY, NULL); /* the call also renews the engine in a forked child */
    if (twi_load_relaxed(&engine->life.broken)) return twi_refuse(TW_ERR_FORKED, NULL);
    pthread_mutex_lock(&engine->reservations->lock);
    tw_status status = reserve_locked(request, token, verdict);
    pthread_mutex_unlock(&engine->reservations->lock);
    return status;
}

/* ---- confirming, cancelling ---- */

/* TW_ERR_UNKNOWN_TOKEN: another incarnation of this engine made the token, or it is too old to be known. */
static tw_status begin_with_token(tw_engine *engine, const struct twi_token *token, int64_t *mono_ms) {
    if (twi_thread_here() == NULL) return twi_refuse(TW_ERR_MEMORY, NULL);
    if (twi_load_relaxed(&engine->life.broken)) return twi_refuse(TW_ERR_FORKED, NULL);
    if (twi_load_acquire(&engine->life.stopped)) return twi_refuse(TW_ERR_CLOSED, NULL);
    pthread_mutex_lock(&engine->reservations->lock);
    *mono_ms = twi_clock_mono_ms(&engine->clock);
    bool known = token->tag == engine->reservations->tag && token->serial - 1 < engine->reservations->serial &&
                 *mono_ms - token->due_ms < TWI_TOKEN_KEEP_MS;
    if (!known) pthread_mutex_unlock(&engine->reservations->lock);
    if (known) return TW_OK;
    return twi_refuse(TW_ERR_UNKNOWN_TOKEN,
                      "token: another incarnation of this engine made it, or it expired more than a day ago");
}

tw_status twi_reserve_local_confirm(tw_engine *engine, const struct twi_token *token) {
    int64_t mono_ms;
    tw_status status = begin_with_token(engine, token, &mono_ms);
    if (status != TW_OK) return status;
    struct entry *entry = find_serial(engine, token->serial);
    if (entry != NULL && entry->state == HELD && entry->due_ms <= mono_ms) {
        take_back(engine, entry); /* the turn forgets the entry */
        twi_port_count(engine, reservations_expired, 1);
    } else if (entry != NULL && entry->state == HELD) {
        entry->state = SOLD;
        twi_stat_add(engine, offsetof(tw_stats, reservations_held), -1);
    }
    status = entry != NULL && entry->state == SOLD
                 ? TW_OK
                 : twi_refuse(TW_ERR_LATE, "token: its units have returned: it was cancelled, or it expired");
    pthread_mutex_unlock(&engine->reservations->lock);
    return status;
}

tw_status twi_reserve_local_cancel(tw_engine *engine, const struct twi_token *token) {
    int64_t mono_ms;
    tw_status status = begin_with_token(engine, token, &mono_ms);
    if (status != TW_OK) return status;
    struct entry *entry = find_serial(engine, token->serial);
    if (entry != NULL && entry->state == HELD) take_back(engine, entry);
    status = entry != NULL && entry->state == SOLD
                 ? twi_refuse(TW_ERR_LATE, "token: its units are sold; they go back by tw_add() of a negative delta")
                 : TW_OK;
    pthread_mutex_unlock(&engine->reservations->lock);
    return status;
}

/* ---- with Redis: when to look at which key ---- */

static bool is_awaited(const struct twi_reserve_request *request, int64_t start_ms, int64_t due_ms) {
    tw_engine *engine = request->family->engine;
    if (engine->reservations->index == 0) return false;
    for (uint32_t at = *chain_of(engine, hash_buyer(request), true); at != 0;
         at = entry_at(&engine->arena, at)->next_by_buyer) {
        struct entry *entry = entry_at(&engine->arena, at);
        if (entry->family == request->family && entry->start_ms == start_ms && entry->wake_ms <= due_ms &&
            same_bytes(key_of(entry), request->key))
            return true;
    }
    return false;
}

void twi_reserve_local_await(const struct twi_reserve_request *request, int64_t start_ms) {
    tw_engine *engine = request->family->engine;
    struct twi_reserve_request look = *request;
    look.buyer = look.key; /* one entry per key, found by the key */
    pthread_mutex_lock(&engine->reservations->lock);
    int64_t due_ms = twi_clock_mono_ms(&engine->clock) + request->ttl_ms;
    struct entry *entry = is_awaited(&look, start_ms, due_ms) ? NULL : make_entry(&look);
    if (entry != NULL) { /* without memory another caller's request finds what has expired */
        entry->state = SWEEP;
        entry->start_ms = start_ms;
        entry->wake_ms = due_ms;
        entry->serial = ++engine->reservations->serial;
        engine->reservations->entries++;
        link_entry(engine, entry);
        push(engine, entry);
    }
    pthread_mutex_unlock(&engine->reservations->lock);
}

bool twi_port_sweep_due(tw_engine *engine, struct twi_sweep *sweep) {
    struct twi_reserve_local *reservations = engine->reservations;
    int64_t mono_ms = twi_clock_mono_ms(&engine->clock);
    if (twi_load_relaxed(&reservations->next_ms) > mono_ms) return false;
    pthread_mutex_lock(&reservations->lock);
    bool due = reservations->due != 0 && entry_at(&engine->arena, reservations->due)->wake_ms <= mono_ms;
    if (due) {
        struct entry *entry = pop(engine);
        const struct twi_key_template *template = &entry->family->template;
        entry->wake_ms = INT64_MAX;
        sweep->serial = entry->serial;
        sweep->sizes[0] = twi_key_template_render(template, key_of(entry), entry->start_ms, sweep->names[0]);
        sweep->sizes[1] = twi_key_template_own(template, "stock", sweep->names[0], sweep->sizes[0], sweep->names[1]);
        sweep->sizes[2] = twi_key_template_own(template, "due", sweep->names[0], sweep->sizes[0], sweep->names[2]);
    }
    pthread_mutex_unlock(&reservations->lock);
    return due;
}

#define SWEEP_MS_MIN 20

void twi_port_sweep_answered(tw_engine *engine, uint64_t serial, int64_t wait_ms) {
    pthread_mutex_lock(&engine->reservations->lock);
    struct entry *entry = find_serial(engine, serial);
    if (entry != NULL && wait_ms < 0) {
        forget(engine, entry);
    } else if (entry != NULL) {
        entry->wake_ms =
            twi_time_add(twi_clock_mono_ms(&engine->clock), wait_ms > SWEEP_MS_MIN ? wait_ms : SWEEP_MS_MIN);
        push(engine, entry);
    }
    pthread_mutex_unlock(&engine->reservations->lock);
}

/* ---- the engine's side ---- */

static void begin_anew(tw_engine *engine) {
    struct twi_reserve_local *reservations = engine->reservations;
    *reservations = (struct twi_reserve_local){0};
    pthread_mutex_init(&reservations->lock, NULL);
    twi_port_random(engine, &reservations->tag, sizeof reservations->tag);
    twi_store_relaxed(&reservations->next_ms, INT64_MAX);
}

void twi_reserve_local_make(tw_engine *engine) {
    begin_anew(engine);
}

void twi_reserve_local_renew(tw_engine *engine) {
    begin_anew(engine);
}

void twi_reserve_local_unmake(tw_engine *engine) {
    pthread_mutex_destroy(&engine->reservations->lock);
}

void twi_reserve_local_turn(tw_engine *engine) {
    struct twi_reserve_local *reservations = engine->reservations;
    if (engine->life.has_redis) return; /* sync asks for what is due */
    if (twi_load_relaxed(&reservations->next_ms) > engine->turn.mono_ms ||
        pthread_mutex_trylock(&reservations->lock) != 0)
        return;
    (void)take_back_due(engine, engine->turn.mono_ms, TURN_MAX);
    pthread_mutex_unlock(&reservations->lock);
}

/* The reservations of the family become void. Their units are not given back, because nobody can ask for them any more.
 * An entry cannot be removed from the middle of the heap, so the heap is built again from the entries of other
 * families. */
void twi_reserve_local_forget(tw_engine *engine, const tw_family *family) {
    struct twi_reserve_local *reservations = engine->reservations;
    pthread_mutex_lock(&reservations->lock);
    reservations->due = 0;
    for (uint32_t chain = 0; reservations->index != 0 && chain < UINT32_C(1) << reservations->index_log2; chain++) {
        const struct index *index = twi_arena_at(&engine->arena, reservations->index);
        for (uint32_t at = index->chains[chain], next; at != 0; at = next) {
            struct entry *entry = entry_at(&engine->arena, at);
            next = entry->next_by_serial;
            if (entry->family != family && entry->wake_ms != INT64_MAX)
                push(engine,
                     entry); /* an entry that was outside the heap enters it once more; wake() takes it out again */
            if (entry->family == family && entry->state == HELD)
                twi_stat_add(engine, offsetof(tw_stats, reservations_held), -1);
            if (entry->family == family) forget(engine, entry);
        }
    }
    note_next(engine);
    pthread_mutex_unlock(&reservations->lock);
}
