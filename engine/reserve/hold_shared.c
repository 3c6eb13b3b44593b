/* hold_shared.c -- see hold_shared.h. */
#include "engine/reserve/hold_shared.h"

#include "engine/core/processes.h"
#include "engine/count/lookup.h"
#include "engine/limit/limit_stats.h"
#include "engine/reserve/reserve.h"
#include "engine/table/area.h"
#include "engine/table/table.h"

#define RECOVER_TURN 4096u /* keys that one call of twi_hold_shared_recover() looks at */

/* ---- the words ---- */

enum step { STEP_NONE, STEP_TAKE, STEP_GIVE, STEP_GIVE_ALL };

#define VERSION_MASK ((UINT64_C(1) << 28) - 1)
#define STEP_SHIFT 28
#define PLACE_SHIFT 30
#define USED_SHIFT 40
#define HELD_SHIFT 32
static_assert(TWI_PROCESSES_MAX < 1u << (USED_SHIFT - PLACE_SHIFT), "a place has 10 bits");

static uint64_t version_of(uint64_t word) {
    return word & VERSION_MASK;
}
static enum step step_of(uint64_t word) {
    return (enum step)(word >> STEP_SHIFT & 3);
}
static uint32_t place_of(uint64_t word) {
    return (uint32_t)(word >> PLACE_SHIFT & TWI_PROCESSES_MAX);
}
static uint32_t used_of(uint64_t word) {
    return (uint32_t)(word >> USED_SHIFT);
}
static uint32_t held_of(uint64_t account) {
    return (uint32_t)(account >> HELD_SHIFT);
}

/* The word with which a step begins, after the word `before`. A version wraps after 2^28 steps of the key, so the one
 * that the account has is passed over: it would say that the step has been done. */
static uint64_t begin_step(uint64_t before, enum step step, uint32_t place, uint64_t account, uint32_t used) {
    uint64_t version = (version_of(before) + 1) & VERSION_MASK;
    if (version == version_of(account)) version = (version + 1) & VERSION_MASK;
    return (uint64_t)used << USED_SHIFT | (uint64_t)place << PLACE_SHIFT | (uint64_t)step << STEP_SHIFT | version;
}

static uint64_t end_step(uint64_t word) {
    return word & ~((uint64_t)3 << STEP_SHIFT);
}

/* The account after the step. */
static uint64_t settle(uint64_t account, uint64_t word) {
    uint64_t held = held_of(account);
    twi_check(step_of(word) == STEP_TAKE || held != 0);
    held = step_of(word) == STEP_TAKE ? held + 1 : step_of(word) == STEP_GIVE ? held - 1 : 0;
    return held << HELD_SHIFT | version_of(word);
}

/* ---- the table ---- */

/* What a family has for its slots, in the arena. */
struct twi_slots {
    alignas(TWI_LINE_BYTES) _Atomic uint64_t reserved; /* used by the arena */
    struct twi_generation *table;                      /* set before sharing */
    struct twi_quota quota;
};
#define SLOTS_LINES ((uint32_t)(sizeof(struct twi_slots) / TWI_LINE_BYTES))

#define ACCOUNTS 7u /* in a line */
struct accounts {
    _Atomic uint64_t words[ACCOUNTS];
    _Atomic int64_t next; /* the line with the accounts of the next places; 0 means that there is none yet */
};
static_assert(sizeof(struct accounts) == TWI_LINE_BYTES, "accounts fill a line");

static void give_slots(tw_engine *engine, struct twi_slots *slots) {
    uint32_t work = UINT32_MAX;
    while (!twi_table_unmake(&engine->arena, slots->table, &work)) work = UINT32_MAX;
    twi_arena_give(&engine->arena, twi_arena_line(&engine->arena, slots), SLOTS_LINES);
}

/* Returns NULL if there is no memory. Inside a section. */
static struct twi_slots *slots_of(tw_family *family) {
    struct twi_slots *slots = twi_load_acquire(&family->slots), *none = NULL; /* HS2, pairs with HS1 */
    if (twi_likely(slots != NULL)) return slots;
    struct twi_arena *arena = &family->engine->arena;
    uint32_t line = twi_arena_take(arena, SLOTS_LINES);
    if (line == 0) return NULL;
    slots = twi_arena_at(arena, line);
    twi_store_relaxed(&slots->quota.keys_max, twi_load_relaxed(&family->quota.keys_max));
    slots->table = twi_table_make(arena, &slots->quota, 0, false);
    if (slots->table == NULL) {
        twi_arena_give(arena, line, SLOTS_LINES);
        return NULL;
    }
    slots->table->family = family;
    slots->table->end_ms = INT64_MAX;
    if (twi_cas_acqrel(&family->slots, &none, slots)) return slots; /* HS1 */
    give_slots(family->engine, slots);
    return none;
}

static bool always(void *ctx) {
    (void)ctx;
    return true;
}

/* Returns the cell of the call's key. If there is none, it makes one, or returns NULL: no memory, or keys_max. */
static struct twi_cell *cell_of(const struct twi_call *call, const struct twi_slots *slots, bool makes) {
    struct twi_cell *cell = twi_table_find(&call->engine->arena, slots->table, &call->lookup);
    if (cell == NULL && makes) {
        struct twi_insert insert = {.arena = &call->engine->arena,
                                    .generation = slots->table,
                                    .self = call->self,
                                    .lookup = call->lookup,
                                    .vacancy = TWI_NO_VACANCY};
        enum twi_found found = twi_table_insert(&insert, always, NULL, &cell);
        if (found != TWI_FOUND && found != TWI_INSERTED) return NULL;
    }
    if (cell != NULL) (void)twi_cell_publish(cell);
    return cell;
}

/* Returns the line to which a link leads. If there is none, it makes one, or returns NULL. */
static struct accounts *follow(tw_engine *engine, struct twi_generation *table, _Atomic int64_t *link, bool makes) {
    int64_t line = twi_load_acquire(link); /* HS4, pairs with HS3 */
    if (line == 0 && makes) {
        uint32_t made = twi_piece_take(&engine->arena, table, 1);
        if (made == 0) return NULL;
        if (twi_cas_acqrel(link, &line, made)) /* HS3 */
            line = made;
        else
            twi_piece_give(&engine->arena, table, made, 1);
    }
    return line != 0 ? twi_arena_at(&engine->arena, (uint32_t)line) : NULL;
}

/* Returns the account of that process in the cell of a key, wherever it is, or NULL. */
static __attribute__((noinline)) _Atomic uint64_t *account_at(tw_engine *engine, struct twi_generation *table,
                                                              struct twi_cell *cell, uint32_t place, bool makes) {
    struct accounts *accounts = follow(engine, table, &cell->base, makes);
    for (uint32_t left = (place - 1) / ACCOUNTS; left != 0 && accounts != NULL; left--)
        accounts = follow(engine, table, &accounts->next, makes);
    return accounts != NULL ? &accounts->words[(place - 1) % ACCOUNTS] : NULL;
}

/* The same. The first processes have theirs in the first line. */
static _Atomic uint64_t *account_of(tw_engine *engine, struct twi_generation *table, struct twi_cell *cell,
                                    uint32_t place, bool makes) {
    twi_check(place != 0);
    int64_t line = twi_load_acquire(&cell->base); /* HS4 */
    if (twi_unlikely(line == 0) || place > ACCOUNTS) return account_at(engine, table, cell, place, makes);
    struct accounts *first = twi_arena_at(&engine->arena, (uint32_t)line);
    return &first->words[place - 1];
}

/* ---- steps ---- */

/* A key, and the account of the process whose slots are taken or given. */
struct slot_key {
    tw_engine *engine;
    struct twi_generation *table;
    struct twi_cell *cell;
    uint32_t place;
    _Atomic uint64_t *account;
};

/* Does the rest of the step that `word` shows. Any process does that. */
static void finish_step(const struct slot_key *key, uint64_t word) {
    _Atomic uint64_t *account = key->account; /* of most steps */
    if (twi_unlikely(place_of(word) != key->place))
        account = account_of(key->engine, key->table, key->cell, place_of(word), false);
    twi_check(account != NULL); /* it was there before the step began */
    uint64_t now = twi_load_acquire(account);
    /* HS6, pairs with HS5. If the step is over, the account may have had further ones, and must not be changed. If
     * not, `now` is from before the exchange of the account, or shows that it was made. */
    if (twi_load_acquire(&key->cell->local) != word) return;
    TWI_RACE_POINT(slot_step_seen_not_settled);
    if (version_of(now) != version_of(word)) (void)twi_cas_acqrel(account, &now, settle(now, word)); /* HS5 */
    TWI_RACE_POINT(slot_step_settled_not_ended);
    (void)twi_cas_acqrel(&key->cell->local, &word, end_step(word)); /* HS5 */
}

/* Returns the cell word without a step under way. */
TWI_INLINE uint64_t quiet_word(const struct slot_key *key) {
    for (;;) {
        uint64_t word = twi_load_acquire(&key->cell->local); /* HS6, so the account is not older than the word */
        if (twi_likely(step_of(word) == STEP_NONE)) return word;
        finish_step(key, word);
    }
}

/* Makes a step of `key->place`. Returns false if the word has changed. If it has not, there was no step since it was
 * read, so the account, which was read after it, has not changed either. If its exchange fails nevertheless, another
 * caller does the rest, or has done it. */
TWI_INLINE bool make_step(const struct slot_key *key, uint64_t before, uint64_t account, uint64_t begun) {
    twi_check(step_of(before) == STEP_NONE && step_of(begun) != STEP_NONE);
    TWI_RACE_POINT(slot_seen_not_begun);
    if (!twi_cas_acqrel(&key->cell->local, &before, begun)) return false; /* HS5 */
    TWI_RACE_POINT(slot_step_begun_not_settled);
    if (twi_likely(twi_cas_acqrel(key->account, &account, settle(account, begun)))) { /* HS5 */
        TWI_RACE_POINT(slot_own_settled_not_ended);
        (void)twi_cas_acqrel(&key->cell->local, &begun, end_step(begun)); /* HS5 */
    } else {
        finish_step(key, begun);
    }
    return true;
}

/* Returns the slots in use after a slot was taken, or those in use before that did not suffice (*taken is false). */
TWI_INLINE uint32_t take_slot(const struct slot_key *key, int64_t limit, bool *taken) {
    for (;;) {
        uint64_t word = quiet_word(key);
        uint32_t used = used_of(word);
        *taken = used < limit && used < TWI_SLOTS_MAX;
        if (!*taken) return used;
        uint64_t account = twi_load_acquire(key->account);
        uint64_t begun = begin_step(word, STEP_TAKE, key->place, account, used + 1);
        if (make_step(key, word, account, begun)) return used + 1;
    }
}

/* If the word is the same in the exchange, there was no step since it was read, so the account has not changed. */
TWI_INLINE bool give_slots_back(const struct slot_key *key, bool all) {
    for (;;) {
        uint64_t word = quiet_word(key), account = twi_load_acquire(key->account);
        uint32_t held = held_of(account);
        if (held == 0) return false;
        uint32_t count = all ? held : 1, used = used_of(word);
        if (used < count) { /* the account is a later one */
            twi_check(twi_load_acquire(&key->cell->local) != word);
            continue;
        }
        uint64_t begun = begin_step(word, all ? STEP_GIVE_ALL : STEP_GIVE, key->place, account, used - count);
        if (make_step(key, word, account, begun)) return true;
    }
}

/* ---- the calls ---- */

/* Finds a key that has a cell and an account. Returns false if the complete way is needed; *hash is 0, or the hash of
 * the key. If it returns true, a section is open. */
TWI_INLINE bool find_known(tw_family *family, tw_key name, bool makes, struct slot_key *key, uint64_t *hash) {
    tw_engine *engine = family->engine;
    struct twi_thread *self = twi_thread_self;
    twi_hot_cell *find = family->kind.limit->cell;
    *hash = 0;
    if (twi_unlikely(self->mark != TWI_THREAD_MARK) || twi_unlikely(twi_load_relaxed(&engine->life.gate))) return false;
    uint32_t place = twi_load_acquire(&engine->here->process);
    if (twi_unlikely(place == 0) || twi_unlikely(find == NULL)) return false;
    twi_section_enter(self);
    struct twi_slots *slots = twi_load_acquire(&family->slots); /* HS2 */
    struct twi_cell *cell = slots != NULL ? find(engine, slots->table, name, hash) : NULL;
    _Atomic uint64_t *account = cell != NULL ? account_of(engine, slots->table, cell, place, makes) : NULL;
    if (twi_likely(account != NULL)) {
        *key = (struct slot_key){engine, slots->table, cell, place, account};
        twi_call_looks(engine, self);
        return true;
    }
    twi_section_leave(self);
    return false;
}

/* Finds or makes the key of the call. TW_ERR_FULL: no memory, or keys_max. TW_ERR_RANGE: there is none. */
static tw_status find_key(const struct twi_call *call, bool makes, struct slot_key *key) {
    tw_family *family = call->family;
    *key = (struct slot_key){.engine = call->engine, .place = twi_load_acquire(&call->engine->here->process)};
    if (key->place == 0) return twi_refuse_for(TWI_WHY_HOLD);
    struct twi_slots *slots = makes ? slots_of(family) : twi_load_acquire(&family->slots); /* HS2 */
    if (slots != NULL) {
        key->table = slots->table;
        key->cell = cell_of(call, slots, makes);
    }
    if (key->cell != NULL) key->account = account_of(key->engine, key->table, key->cell, key->place, makes);
    if (key->account != NULL) return TW_OK;
    return makes ? twi_refuse_for(TWI_WHY_FULL) : twi_refuse_for(TWI_WHY_HOLD);
}

static tw_status refuse_take(tw_family *family, int64_t limit, tw_status status, tw_verdict *verdict) {
    twi_reserve_verdict(verdict, family, limit);
    return twi_limit_stats_answered(family, 1, status, verdict);
}

/* Slots have no windows, so neither the decision nor the verdict needs a time. */
TWI_INLINE tw_status take(tw_family *family, const struct twi_thread *self, const struct slot_key *key, int64_t limit,
                          tw_verdict *verdict) {
    bool taken;
    uint32_t used = take_slot(key, limit, &taken);
    if (twi_likely(taken)) {
        twi_verdict_fill_plain(verdict, limit, used, 0, TW_UNBOUNDED, 0);
        twi_limit_stats_count(family, self, admitted_there);
        return TW_OK;
    }
    if (used < limit)
        return refuse_take(family, limit,
                           twi_refuse(TW_ERR_FULL, "key: 16,777,215 slots are in use, and no more are kept"), verdict);
    twi_verdict_fill_denied(verdict, 1, limit, used, 0, 0, TW_UNBOUNDED, 0);
    twi_limit_stats_count_denied(family, self, verdict->cause);
    return TW_DENIED;
}

static __attribute__((noinline)) tw_status take_anyhow(tw_family *family, tw_key name, int64_t limit,
                                                       tw_verdict *verdict, uint64_t hash) {
    struct twi_call call;
    struct slot_key key;
    tw_status status = twi_call_begin_hashed(&call, family, name, hash);
    if (twi_unlikely(status != TW_OK)) {
        twi_reserve_verdict(verdict, family, limit);
        return status;
    }
    status = twi_call_goes_on(&call);
    if (status != TW_OK) {
        twi_reserve_verdict(verdict, family, limit);
    } else {
        status = find_key(&call, true, &key);
        status = status == TW_OK ? take(family, call.self, &key, limit, verdict)
                                 : refuse_take(family, limit, status, verdict);
    }
    twi_call_end(&call);
    return status;
}

tw_status twi_hold_shared_take(tw_family *family, tw_key key, int64_t limit, tw_verdict *verdict) {
    twi_check(family->engine->life.is_shared && !family->kind.synced);
    struct slot_key slot_key;
    uint64_t hash;
    tw_status status = twi_witness_need(family->engine);
    if (twi_unlikely(status != TW_OK)) {
        twi_reserve_verdict(verdict, family, limit);
        return status;
    }
    if (!find_known(family, key, true, &slot_key, &hash)) return take_anyhow(family, key, limit, verdict, hash);
    status = take(family, twi_thread_self, &slot_key, limit, verdict);
    twi_section_leave(twi_thread_self);
    return status;
}

TWI_INLINE tw_status give(const struct slot_key *key) {
    return twi_likely(give_slots_back(key, false)) ? TW_OK : twi_refuse_for(TWI_WHY_HOLD);
}

static __attribute__((noinline)) tw_status give_anyhow(tw_family *family, tw_key name, uint64_t hash) {
    struct twi_call call;
    struct slot_key key;
    tw_status status = twi_call_begin_hashed(&call, family, name, hash);
    if (status != TW_OK) return status;
    status = twi_call_goes_on(&call);
    if (status == TW_OK) status = find_key(&call, false, &key);
    if (status == TW_OK) status = give(&key);
    twi_call_end(&call);
    return status;
}

tw_status twi_hold_shared_give(tw_family *family, tw_key key) {
    twi_check(family->engine->life.is_shared && !family->kind.synced);
    struct slot_key slot_key;
    uint64_t hash;
    if (!find_known(family, key, false, &slot_key, &hash)) return give_anyhow(family, key, hash);
    tw_status status = give(&slot_key);
    twi_section_leave(twi_thread_self);
    return status;
}

/* ---- processes that have gone ---- */

static bool recover_key(void *ctx, struct twi_cell *cell, uint64_t meta) {
    struct slot_key key = *(const struct slot_key *)ctx;
    (void)meta;
    key.cell = cell;
    key.account = account_of(key.engine, key.table, cell, key.place, false);
    if (key.account != NULL) (void)give_slots_back(&key, true);
    return true;
}

bool twi_hold_shared_recover(tw_engine *engine, uint32_t place) {
    twi_check(twi_turn_is_owned(engine));
    struct twi_slot_recovery *recovery = &engine->here->recovery;
    if (recovery->place != place)
        *recovery = (struct twi_slot_recovery){.place = place, .family = twi_load_acquire(&engine->roster.first)};
    uint32_t looks = RECOVER_TURN;
    for (; recovery->family != NULL && looks != 0; recovery->cursor = (struct twi_cursor){0}) {
        struct twi_slots *slots = twi_load_acquire(&recovery->family->slots); /* HS2 */
        if (slots != NULL) {
            struct slot_key key = {.engine = engine, .table = slots->table, .place = place};
            recovery->cursor.looks = looks;
            twi_table_walk(&engine->arena, slots->table, &recovery->cursor, recover_key, &key);
            looks = recovery->cursor.looks;
            if (!recovery->cursor.done) return false;
        }
        recovery->family = twi_load_acquire(&recovery->family->entry.next);
    }
    bool is_done = recovery->family == NULL;
    if (is_done) recovery->place = 0;
    return is_done;
}

static bool give_accounts(void *ctx, struct twi_cell *cell, uint64_t meta) {
    const struct slot_key *key = ctx;
    (void)meta;
    for (int64_t line = twi_load_relaxed(&cell->base), next; line != 0; line = next) {
        struct accounts *accounts = twi_arena_at(&key->engine->arena, (uint32_t)line);
        next = twi_load_relaxed(&accounts->next);
        twi_piece_give(&key->engine->arena, key->table, (uint32_t)line, 1);
    }
    return true;
}

void twi_hold_shared_forget(tw_family *family) {
    struct twi_slots *slots = twi_load_acquire(&family->slots); /* HS2 */
    if (slots == NULL) return;
    struct slot_key key = {.engine = family->engine, .table = slots->table};
    struct twi_cursor cursor = {0};
    twi_table_walk(&family->engine->arena, slots->table, &cursor, give_accounts, &key);
    give_slots(family->engine, slots);
    twi_store_relaxed(&family->slots, NULL);
}
