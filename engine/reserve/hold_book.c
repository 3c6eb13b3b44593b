/* hold_book.c -- see hold_book.h. Entries are in chains by key, and in one list in the order in which they were sent
 * last. */
#include "engine/reserve/hold_book.h"

#include "engine/core/family.h"
#include "engine/core/presence.h"
#include "engine/base/lock.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define INDEX_LOG2_FIRST 6u

struct entry {
    tw_family *family;
    uint64_t statement;    /* the last statement that contained it; 0: none */
    int64_t sent_ms;       /* monotonic: when it was sent last; INT64_MIN: never */
    uint32_t older, newer; /* the list of all entries */
    uint32_t next;         /* the chain of its hash */
    uint32_t lines;
    uint64_t hash;
    char member[TWI_HOLD_MEMBER_MAX];
    uint16_t key_size;
    unsigned char key[];
};

struct index {
    _Atomic uint64_t reserved;
    uint32_t chains[];
};

static struct entry *entry_at(const struct twi_arena *arena, uint32_t line) {
    return twi_arena_at(arena, line);
}

static uint32_t index_lines(uint32_t log2) {
    size_t bytes = sizeof(struct index) + (sizeof(uint32_t) << log2);
    return (uint32_t)((bytes + TWI_LINE_BYTES - 1) / TWI_LINE_BYTES);
}

static uint32_t *chain_of(tw_engine *engine, uint64_t hash) {
    struct index *index = twi_arena_at(&engine->arena, engine->holds->index);
    return &index->chains[hash & ((UINT64_C(1) << engine->holds->index_log2) - 1)];
}

static void link_chain(tw_engine *engine, struct entry *entry) {
    uint32_t *chain = chain_of(engine, entry->hash);
    entry->next = *chain;
    *chain = twi_arena_line(&engine->arena, entry);
}

/* Doubles the number of chains when there are as many entries as chains. Without memory the chains get longer. */
static bool make_index(tw_engine *engine) {
    struct twi_hold_book *book = engine->holds;
    if (book->index != 0 && book->entries < UINT64_C(1) << book->index_log2) return true;
    uint32_t old = book->index, old_log2 = book->index_log2, log2 = old != 0 ? old_log2 + 1 : INDEX_LOG2_FIRST;
    uint32_t line = twi_arena_take(&engine->arena, index_lines(log2));
    if (line == 0) return old != 0;
    book->index = line;
    book->index_log2 = log2;
    for (uint32_t at = book->first; at != 0; at = entry_at(&engine->arena, at)->newer)
        link_chain(engine, entry_at(&engine->arena, at));
    if (old != 0) twi_arena_give(&engine->arena, old, index_lines(old_log2));
    return true;
}

static void unlink_list(tw_engine *engine, const struct entry *entry) {
    struct twi_hold_book *book = engine->holds;
    *(entry->older != 0 ? &entry_at(&engine->arena, entry->older)->newer : &book->first) = entry->newer;
    *(entry->newer != 0 ? &entry_at(&engine->arena, entry->newer)->older : &book->last) = entry->older;
}

static void link_last(tw_engine *engine, struct entry *entry) {
    struct twi_hold_book *book = engine->holds;
    uint32_t line = twi_arena_line(&engine->arena, entry);
    entry->older = book->last;
    entry->newer = 0;
    *(book->last != 0 ? &entry_at(&engine->arena, book->last)->newer : &book->first) = line;
    book->last = line;
}

static void link_first(tw_engine *engine, struct entry *entry) {
    struct twi_hold_book *book = engine->holds;
    uint32_t line = twi_arena_line(&engine->arena, entry);
    entry->older = 0;
    entry->newer = book->first;
    *(book->first != 0 ? &entry_at(&engine->arena, book->first)->older : &book->last) = line;
    book->first = line;
}

static void free_entry(tw_engine *engine, struct entry *entry) {
    uint32_t *link = chain_of(engine, entry->hash);
    while (entry_at(&engine->arena, *link) != entry) link = &entry_at(&engine->arena, *link)->next;
    *link = entry->next;
    unlink_list(engine, entry);
    engine->holds->entries--;
    twi_arena_give(&engine->arena, twi_arena_line(&engine->arena, entry), entry->lines);
}

static bool is_of(const struct entry *entry, const tw_family *family, tw_key key) {
    return entry->family == family && entry->key_size == key.size && memcmp(entry->key, key.data, key.size) == 0;
}

static uint64_t hash_of(const tw_engine *engine, tw_key key) {
    return engine->hashing.fn(&engine->hashing.secret, key.data, key.size);
}

/* ---- the calls ---- */

size_t twi_hold_book_set(const tw_family *family, tw_key key, char *out) {
    char name[TWI_REDIS_KEY_MAX];
    return twi_key_template_own(&family->template, "hold", name,
                                twi_key_template_render(&family->template, key, 0, name), out);
}

void twi_hold_book_name(tw_engine *engine, char member[TWI_HOLD_MEMBER_MAX]) {
    struct twi_hold_book *book = engine->holds;
    twi_lock(&book->lock);
    (void)snprintf(member, TWI_HOLD_MEMBER_MAX, "%s:%" PRIu64, engine->remote.id, ++book->number);
    twi_unlock(&book->lock);
}

bool twi_hold_book_enter(tw_family *family, tw_key key, const char *member, bool is_known) {
    tw_engine *engine = family->engine;
    uint32_t lines = (uint32_t)((sizeof(struct entry) + key.size + TWI_LINE_BYTES - 1) / TWI_LINE_BYTES);
    twi_lock(&engine->holds->lock);
    uint32_t line = make_index(engine) ? twi_arena_take(&engine->arena, lines) : 0;
    if (line != 0) {
        struct entry *entry = entry_at(&engine->arena, line);
        entry->family = family;
        entry->lines = lines;
        entry->hash = hash_of(engine, key);
        entry->key_size = (uint16_t)key.size;
        entry->sent_ms = is_known ? twi_clock_mono_ms(&engine->clock) : INT64_MIN;
        (void)snprintf(entry->member, sizeof entry->member, "%s", member);
        memcpy(entry->key, key.data, key.size);
        link_chain(engine, entry);
        if (is_known)
            link_last(engine, entry);
        else
            link_first(engine, entry);
        engine->holds->entries++;
    }
    twi_unlock(&engine->holds->lock);
    return line != 0;
}

bool twi_hold_book_leave(tw_family *family, tw_key key, char member[TWI_HOLD_MEMBER_MAX], uint64_t *statement) {
    tw_engine *engine = family->engine;
    twi_lock(&engine->holds->lock);
    uint32_t at = engine->holds->index != 0 ? *chain_of(engine, hash_of(engine, key)) : 0;
    while (at != 0 && !is_of(entry_at(&engine->arena, at), family, key)) at = entry_at(&engine->arena, at)->next;
    if (at != 0) {
        memcpy(member, entry_at(&engine->arena, at)->member, TWI_HOLD_MEMBER_MAX);
        *statement = entry_at(&engine->arena, at)->statement;
        free_entry(engine, entry_at(&engine->arena, at));
    }
    twi_unlock(&engine->holds->lock);
    return at != 0;
}

bool twi_hold_book_is_answered(tw_engine *engine, uint64_t statement) {
    twi_lock(&engine->holds->lock);
    bool answered = engine->holds->answered >= statement;
    twi_unlock(&engine->holds->lock);
    return answered;
}

int64_t twi_hold_book_count(tw_family *family, tw_key key) {
    tw_engine *engine = family->engine;
    int64_t count = 0;
    twi_lock(&engine->holds->lock);
    uint32_t at = engine->holds->index != 0 ? *chain_of(engine, hash_of(engine, key)) : 0;
    for (; at != 0; at = entry_at(&engine->arena, at)->next) count += is_of(entry_at(&engine->arena, at), family, key);
    twi_unlock(&engine->holds->lock);
    return count;
}

void twi_hold_book_forget(tw_engine *engine, const tw_family *family) {
    twi_lock(&engine->holds->lock);
    for (uint32_t at = engine->holds->first, next; at != 0; at = next) {
        next = entry_at(&engine->arena, at)->newer;
        if (entry_at(&engine->arena, at)->family == family) free_entry(engine, entry_at(&engine->arena, at));
    }
    twi_unlock(&engine->holds->lock);
}

/* ---- re-sending (port/messages.h) ---- */

bool twi_port_hold_due(tw_engine *engine, struct twi_hold_member *out) {
    struct twi_hold_book *book = engine->holds;
    int64_t now_ms = twi_clock_mono_ms(&engine->clock);
    twi_lock(&book->lock);
    struct entry *entry = book->first != 0 ? entry_at(&engine->arena, book->first) : NULL;
    bool due = entry != NULL &&
               (entry->sent_ms < book->resend_from_ms || entry->sent_ms <= now_ms - twi_presence_resend_ms(engine));
    if (due) {
        unlink_list(engine, entry);
        entry->sent_ms = now_ms;
        entry->statement = book->sent + 1;
        link_last(engine, entry);
        (void)snprintf(out->member, sizeof out->member, "%s", entry->member);
        out->name_size = twi_hold_book_set(entry->family, tw_bytes(entry->key, entry->key_size), out->name);
    }
    twi_unlock(&book->lock);
    return due;
}

void twi_port_holds_sent(tw_engine *engine) {
    twi_lock(&engine->holds->lock);
    engine->holds->sent++;
    twi_unlock(&engine->holds->lock);
}

void twi_port_holds_answered(tw_engine *engine) {
    twi_lock(&engine->holds->lock);
    engine->holds->answered++;
    twi_unlock(&engine->holds->lock);
}

void twi_hold_book_resend(tw_engine *engine) {
    twi_lock(&engine->holds->lock);
    engine->holds->resend_from_ms = twi_clock_mono_ms(&engine->clock) + 1;
    twi_unlock(&engine->holds->lock);
}

void twi_hold_book_rename(tw_engine *engine, const char id[33]) {
    struct twi_hold_book *book = engine->holds;
    twi_lock(&book->lock);
    memcpy(engine->remote.id, id, sizeof engine->remote.id);
    for (uint32_t at = book->first; at != 0; at = entry_at(&engine->arena, at)->newer) {
        struct entry *entry = entry_at(&engine->arena, at);
        (void)snprintf(entry->member, sizeof entry->member, "%s:%" PRIu64, id, ++book->number);
        entry->sent_ms = INT64_MIN;
        entry->statement = 0;
    }
    twi_unlock(&book->lock);
}

/* ---- the engine's side ---- */

void twi_hold_book_make(tw_engine *engine) {
    struct twi_hold_book *book = engine->holds;
    *book = (struct twi_hold_book){.resend_from_ms = INT64_MIN};
    pthread_mutex_init(&book->lock, NULL);
}

void twi_hold_book_unmake(tw_engine *engine) {
    pthread_mutex_destroy(&engine->holds->lock);
}
