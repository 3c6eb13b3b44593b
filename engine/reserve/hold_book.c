/* hold_book.c -- see hold_book.h. Entries are in chains by key, in one list in the order in which they were sent last,
 * and in a list of their family. */
#include "engine/reserve/hold_book.h"

#include "engine/ask/redis_call.h"
#include "engine/base/threads.h"
#include "engine/core/calls.h"
#include "engine/core/family.h"
#include "engine/core/peers.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FORGET_TURN 4096u  /* entries of a closed family that a turn forgets */
#define LATE_MS 660000     /* no copy of a statement comes later; hold.lua, MARK_MS */
#define PASS_OVER_MAX 256u /* entries of closed families that one look for a due one forgets */

struct entry {
    tw_family *family;
    uint32_t elder, younger; /* the list of its family */
    uint32_t lives;          /* the number of the engine's lives when its member was named (rename) */
    struct twi_hold_said said;
    int64_t sent_ms;       /* monotonic time when it was sent last; INT64_MIN means never */
    uint32_t older, newer; /* the list of all entries */
    uint32_t next;         /* the chain of its hash */
    uint32_t lines;
    uint64_t hash;
    char member[TWI_HOLD_MEMBER_MAX];
    uint16_t key_size;
    unsigned char key[];
};

static struct entry *entry_at(const struct twi_arena *arena, uint32_t line) {
    twi_check(line != 0);
    return twi_arena_at(arena, line);
}

static struct twi_chain_link link_of(tw_engine *engine, uint32_t line, uint32_t row) {
    struct entry *entry = entry_at(&engine->arena, line);
    twi_check(row == 0);
    return (struct twi_chain_link){&entry->next, entry->hash};
}

static uint32_t take_piece(tw_engine *engine, uint32_t lines) {
    return twi_arena_take(&engine->arena, lines);
}

static void give_piece(tw_engine *engine, uint32_t line, uint32_t lines) {
    twi_arena_give(&engine->arena, line, lines);
}

/* The newest hold of a key is the first one of its chain. */
static const struct twi_chains_kind kind = {.rows = 1, .link = link_of, .take = take_piece, .give = give_piece};

static void unlink_list(tw_engine *engine, const struct entry *entry) {
    twi_check(engine->here->holds->first != 0 && engine->here->holds->last != 0);
    struct twi_hold_book *book = engine->here->holds;
    *(entry->older != 0 ? &entry_at(&engine->arena, entry->older)->newer : &book->first) = entry->newer;
    *(entry->newer != 0 ? &entry_at(&engine->arena, entry->newer)->older : &book->last) = entry->older;
}

static void link_last(tw_engine *engine, struct entry *entry) {
    twi_check((engine->here->holds->first == 0) == (engine->here->holds->last == 0));
    struct twi_hold_book *book = engine->here->holds;
    uint32_t line = twi_arena_line(&engine->arena, entry);
    entry->older = book->last;
    entry->newer = 0;
    *(book->last != 0 ? &entry_at(&engine->arena, book->last)->newer : &book->first) = line;
    book->last = line;
}

static void link_first(tw_engine *engine, struct entry *entry) {
    twi_check((engine->here->holds->first == 0) == (engine->here->holds->last == 0));
    struct twi_hold_book *book = engine->here->holds;
    uint32_t line = twi_arena_line(&engine->arena, entry);
    entry->older = 0;
    entry->newer = book->first;
    *(book->first != 0 ? &entry_at(&engine->arena, book->first)->older : &book->last) = line;
    book->first = line;
}

static void link_family(tw_engine *engine, struct entry *entry) {
    twi_check(entry->family != NULL);
    uint32_t line = twi_arena_line(&engine->arena, entry);
    entry->younger = 0;
    entry->elder = entry->family->entry.holds;
    if (entry->elder != 0) entry_at(&engine->arena, entry->elder)->younger = line;
    entry->family->entry.holds = line;
}

static void unlink_family(tw_engine *engine, const struct entry *entry) {
    twi_check(entry->family->entry.holds != 0);
    if (entry->elder != 0) entry_at(&engine->arena, entry->elder)->younger = entry->younger;
    *(entry->younger != 0 ? &entry_at(&engine->arena, entry->younger)->elder : &entry->family->entry.holds) =
        entry->elder;
}

static void free_entry(tw_engine *engine, struct entry *entry) {
    twi_check(engine->here->holds->entries != 0);
    twi_chain_leave(engine, &engine->here->holds->chains, &kind, twi_arena_line(&engine->arena, entry), 0);
    unlink_list(engine, entry);
    unlink_family(engine, entry);
    engine->here->holds->entries--;
    twi_arena_give(&engine->arena, twi_arena_line(&engine->arena, entry), entry->lines);
}

/* ---- notes ---- */

struct twi_hold_time twi_hold_book_time(const tw_engine *engine) {
    return (struct twi_hold_time){.now_ms = twi_clock_mono_ms(&engine->clock),
                                  .life_ms = engine->here->remote.tuning.presence_life_ms};
}

static struct twi_hold_note *note(tw_family *family, tw_key key, const char *member) {
    struct twi_hold_notes *notes = &family->engine->here->holds->notes;
    char name[TWI_OWN_NAME_MAX];
    if (notes->memories->at == NULL) return NULL;
    size_t size = twi_hold_book_set(family, key, name);
    return twi_hold_notes_add(notes, name, size, member, twi_hold_book_time(family->engine));
}

static void end_note(tw_engine *engine, struct twi_hold_note *ended, bool is_free) {
    twi_hold_notes_end(&engine->here->holds->notes, ended, is_free, twi_clock_mono_ms(&engine->clock));
}

struct twi_hold_note *twi_hold_book_note(tw_family *family, tw_key key, const char *member) {
    struct twi_hold_book *book = family->engine->here->holds;
    twi_lock(&book->lock);
    struct twi_hold_note *made = note(family, key, member);
    twi_unlock(&book->lock);
    return made;
}

void twi_hold_book_unnote(tw_engine *engine, struct twi_hold_note *ended, bool is_free) {
    if (ended == NULL) return;
    twi_lock(&engine->here->holds->lock);
    end_note(engine, ended, is_free);
    twi_unlock(&engine->here->holds->lock);
}

/* The engine may have another id since the entry was named. */
static void renew_name(tw_engine *engine, struct entry *entry) {
    struct twi_hold_book *book = engine->here->holds;
    if (entry->lives == book->lives) return;
    (void)snprintf(entry->member, sizeof entry->member, "%s:%" PRIu64, engine->in_redis.id, ++book->number);
    entry->lives = book->lives;
    end_note(engine, entry->said.note, true); /* the other copy of this process has it */
    entry->said = (struct twi_hold_said){0};
    entry->said.note = note(entry->family, tw_bytes(entry->key, entry->key_size), entry->member);
}

static bool is_closed(const struct entry *entry) {
    return twi_load_relaxed(&entry->family->requests.close_requested);
}

static bool is_of(const struct entry *entry, const tw_family *family, tw_key key) {
    return entry->family == family && entry->key_size == key.size && memcmp(entry->key, key.data, key.size) == 0;
}

static uint64_t hash_of(const tw_engine *engine, tw_key key) {
    return engine->hashing.fn(&engine->hashing.secret, key.data, key.size);
}

/* ---- the calls ---- */

size_t twi_hold_book_set(const tw_family *family, tw_key key, char *out) {
    twi_check(key.size - 1 < TW_KEY_SIZE_MAX);
    char name[TWI_REDIS_KEY_MAX];
    return twi_key_template_own(&family->template, "hold", name,
                                twi_key_template_render(&family->template, key, 0, name), out);
}

void twi_hold_book_name(tw_engine *engine, char member[TWI_HOLD_MEMBER_MAX]) {
    struct twi_hold_book *book = engine->here->holds;
    twi_lock(&book->lock);
    (void)snprintf(member, TWI_HOLD_MEMBER_MAX, "%s:%" PRIu64, engine->in_redis.id, ++book->number);
    twi_unlock(&book->lock);
}

bool twi_hold_book_enter(tw_family *family, tw_key key, const char *member, bool is_known, struct twi_hold_said said) {
    twi_check(family->kind.synced);
    twi_check(key.size - 1 < TW_KEY_SIZE_MAX);
    twi_check(strlen(member) < TWI_HOLD_MEMBER_MAX);
    tw_engine *engine = family->engine;
    uint32_t lines = (uint32_t)((sizeof(struct entry) + key.size + TWI_LINE_BYTES - 1) / TWI_LINE_BYTES);
    twi_lock(&engine->here->holds->lock);
    struct twi_hold_book *book = engine->here->holds;
    bool has_index = twi_chains_make(engine, &book->chains, &kind, book->entries);
    uint32_t line = has_index ? twi_arena_take(&engine->arena, lines) : 0;
    if (line != 0) {
        struct entry *entry = entry_at(&engine->arena, line);
        entry->family = family;
        entry->lines = lines;
        entry->hash = hash_of(engine, key);
        entry->key_size = (uint16_t)key.size;
        entry->sent_ms = is_known ? twi_clock_mono_ms(&engine->clock) : INT64_MIN;
        entry->lives = engine->here->holds->lives;
        entry->said = said;
        (void)snprintf(entry->member, sizeof entry->member, "%s", member);
        memcpy(entry->key, key.data, key.size);
        twi_chain_enter(engine, &book->chains, &kind, line, 0);
        link_family(engine, entry);
        if (is_known)
            link_last(engine, entry);
        else
            link_first(engine, entry);
        engine->here->holds->entries++;
    }
    twi_unlock(&engine->here->holds->lock);
    return line != 0;
}

bool twi_hold_book_leave(tw_family *family, tw_key key, char member[TWI_HOLD_MEMBER_MAX], struct twi_hold_said *said) {
    twi_check(family->kind.synced);
    tw_engine *engine = family->engine;
    twi_lock(&engine->here->holds->lock);
    twi_chains_move(engine, &engine->here->holds->chains, &kind, TWI_CHAINS_MOVES_CALL);
    uint32_t at = twi_chain_first(engine, &engine->here->holds->chains, hash_of(engine, key), 0);
    while (at != 0 && !is_of(entry_at(&engine->arena, at), family, key)) at = entry_at(&engine->arena, at)->next;
    if (at != 0) {
        renew_name(engine, entry_at(&engine->arena, at));
        memcpy(member, entry_at(&engine->arena, at)->member, TWI_HOLD_MEMBER_MAX);
        *said = entry_at(&engine->arena, at)->said;
        free_entry(engine, entry_at(&engine->arena, at));
    }
    twi_unlock(&engine->here->holds->lock);
    return at != 0;
}

bool twi_hold_book_is_answered(tw_engine *engine, const struct twi_hold_said *said) {
    twi_check(said->first <= said->last);
    twi_lock(&engine->here->holds->lock);
    twi_check(said->last <= engine->here->holds->sent + 1);
    bool answered = engine->here->holds->answered >= said->last;
    twi_unlock(&engine->here->holds->lock);
    return answered;
}

bool twi_hold_book_may_come(tw_engine *engine, const struct twi_hold_said *said) {
    if (said->is_copied) return true;
    if (said->first == 0) return false;
    int64_t now_ms = twi_clock_mono_ms(&engine->clock);
    twi_lock(&engine->here->holds->lock);
    const struct twi_hold_book *book = engine->here->holds;
    bool was_lost = said->first <= book->unsure && now_ms - book->unsure_ms < LATE_MS;
    bool may_come = was_lost || book->answered < said->last;
    twi_unlock(&engine->here->holds->lock);
    return may_come;
}

int64_t twi_hold_book_count(tw_family *family, tw_key key) {
    tw_engine *engine = family->engine;
    int64_t count = 0;
    twi_lock(&engine->here->holds->lock);
    uint32_t at = twi_chain_first(engine, &engine->here->holds->chains, hash_of(engine, key), 0);
    for (; at != 0; at = entry_at(&engine->arena, at)->next) count += is_of(entry_at(&engine->arena, at), family, key);
    twi_unlock(&engine->here->holds->lock);
    return count;
}

bool twi_hold_book_forget(tw_family *family) {
    twi_check(twi_load_relaxed(&family->requests.close_requested));
    tw_engine *engine = family->engine;
    twi_lock(&engine->here->holds->lock);
    for (uint32_t left = FORGET_TURN; left != 0 && family->entry.holds != 0; left--) {
        end_note(engine, entry_at(&engine->arena, family->entry.holds)->said.note, false);
        free_entry(engine, entry_at(&engine->arena, family->entry.holds));
    }
    bool is_done = family->entry.holds == 0;
    twi_unlock(&engine->here->holds->lock);
    return is_done;
}

/* ---- re-sending (port/messages.h) ---- */

/* Returns the entry that was sent longest ago, or NULL. Entries of closed families are no holds any more. */
static struct entry *oldest(tw_engine *engine) {
    const struct twi_hold_book *book = engine->here->holds;
    for (uint32_t left = PASS_OVER_MAX; left != 0 && book->first != 0; left--) {
        struct entry *entry = entry_at(&engine->arena, book->first);
        if (!is_closed(entry)) return entry;
        end_note(engine, entry->said.note, false);
        free_entry(engine, entry);
    }
    return NULL;
}

bool twi_port_hold_due(tw_engine *engine, struct twi_hold_member *out) {
    struct twi_hold_book *book = engine->here->holds;
    int64_t now_ms = twi_clock_mono_ms(&engine->clock);
    twi_lock(&book->lock);
    struct entry *entry = oldest(engine);
    bool due = entry != NULL &&
               (entry->sent_ms < book->resend_from_ms || entry->sent_ms <= now_ms - twi_presence_resend_ms(engine));
    if (due) {
        renew_name(engine, entry);
        unlink_list(engine, entry);
        entry->sent_ms = now_ms;
        entry->said.last = book->sent + 1;
        if (entry->said.first == 0) entry->said.first = entry->said.last;
        link_last(engine, entry);
        (void)snprintf(out->member, sizeof out->member, "%s", entry->member);
        out->name_size = twi_hold_book_set(entry->family, tw_bytes(entry->key, entry->key_size), out->name);
    }
    twi_unlock(&book->lock);
    return due;
}

void twi_port_holds_sent(tw_engine *engine) {
    twi_lock(&engine->here->holds->lock);
    engine->here->holds->sent++;
    twi_unlock(&engine->here->holds->lock);
}

void twi_port_holds_unsure(tw_engine *engine) {
    int64_t now_ms = twi_clock_mono_ms(&engine->clock);
    twi_lock(&engine->here->holds->lock);
    engine->here->holds->unsure = engine->here->holds->sent; /* of several in flight, it may be any */
    engine->here->holds->unsure_ms = now_ms;
    twi_unlock(&engine->here->holds->lock);
}

void twi_port_holds_answered(tw_engine *engine) {
    twi_lock(&engine->here->holds->lock);
    twi_check(engine->here->holds->answered < engine->here->holds->sent);
    engine->here->holds->answered++;
    twi_unlock(&engine->here->holds->lock);
}

void twi_hold_book_resend(tw_engine *engine) {
    twi_lock(&engine->here->holds->lock);
    engine->here->holds->resend_from_ms = twi_clock_mono_ms(&engine->clock) + 1;
    twi_unlock(&engine->here->holds->lock);
}

void twi_hold_book_rename(tw_engine *engine, const char id[33]) {
    twi_check(strlen(id) == 32);
    struct twi_hold_book *book = engine->here->holds;
    twi_lock(&book->lock);
    memcpy(engine->in_redis.id, id, sizeof engine->in_redis.id);
    book->lives++; /* each entry gets its new name when it is sent, or taken out */
    book->resend_from_ms = twi_clock_mono_ms(&engine->clock) + 1;
    twi_unlock(&book->lock);
}

/* ---- what another process has left ----
 * tw_hold_notes() releases the slots that a process has noted and left (hold_notes.h).
 * Always true: such a slot is released with a mark (hold.lua, end), because its request, or a statement about it, may
 * come to Redis after the release. The release is repeated until Redis answers, as every release is. */

struct ending {
    struct twi_operation operation;
    struct twi_hold_note *note;
    const struct twi_hold_note_text *text;
};
static_assert(sizeof(struct ending) <= TWI_OPERATION_BYTES, "operation.h");

static bool ask_end(struct twi_operation *operation) {
    const struct ending *ending = (const struct ending *)operation;
    struct twi_redis_call redis_call;
    twi_redis_call_begin(&redis_call, TWI_SCRIPT_HOLD);
    redis_call.keys[redis_call.request.key_count++] = tw_bytes(ending->text->name, ending->note->name_size);
    twi_redis_call_text(&redis_call, "end");
    twi_redis_call_number(&redis_call, operation->engine->here->remote.tuning.presence_life_ms);
    twi_redis_call_number(&redis_call, 0);
    twi_redis_call_text(&redis_call, ending->text->member);
    redis_call.request.repeats = true;
    return twi_redis_call_send(&redis_call, operation);
}

/* After UNKNOWN the release continues without this operation. If it was not begun, it begins later. */
static void drop_ending(struct twi_operation *operation) {
    struct twi_hold_book *book = operation->engine->here->holds;
    struct twi_hold_note *note = ((struct ending *)operation)->note;
    enum twi_request_outcome outcome = operation->result.outcome;
    int64_t now_ms = twi_clock_mono_ms(&operation->engine->clock);
    twi_lock(&book->lock);
    if (outcome == TWI_REQUEST_DONE || outcome == TWI_REQUEST_UNKNOWN)
        twi_hold_notes_ended(&book->notes, note, outcome == TWI_REQUEST_DONE, now_ms);
    else
        twi_hold_notes_put_back(note);
    twi_unlock(&book->lock);
}

static const struct twi_operation_kind end_kind = {.send = ask_end, .drop = drop_ending, .settles = true};

static struct twi_hold_note *next_left(struct twi_hold_book *book, struct twi_hold_memory *memory, uint32_t *at) {
    twi_lock(&book->lock);
    struct twi_hold_note *note = twi_hold_notes_left(memory, at);
    twi_unlock(&book->lock);
    return note;
}

/* Releases what was left, as far as there is room for calls. */
static tw_status end_left(tw_engine *engine, struct twi_hold_memory *memory) {
    tw_status status;
    uint32_t at = 0;
    for (struct twi_hold_note *note; (note = next_left(engine->here->holds, memory, &at)) != NULL;) {
        struct ending *ending = (struct ending *)twi_operation_make(engine, &end_kind, NULL, NULL, &status);
        if (ending == NULL) {
            twi_hold_notes_put_back(note);
            return status;
        }
        ending->note = note;
        ending->text = twi_hold_notes_text(memory, note);
        if (ask_end(&ending->operation)) continue;
        twi_operation_give(&ending->operation);
        break; /* the others later */
    }
    return TW_OK;
}

static tw_status check_memory(const tw_engine *engine, const void *memory, size_t bytes) {
    if (engine->life.is_shared)
        return twi_refuse(TW_ERR_MODE, "shared: with Redis, tw_hold() is not for shared engines");
    if (memory == NULL || (uintptr_t)memory % 8 != 0)
        return twi_refuse(TW_ERR_OPTIONS, "memory: not at a multiple of 8");
    if (bytes < TW_HOLD_NOTE_BYTES || bytes / TW_HOLD_NOTE_BYTES > UINT32_MAX)
        return twi_refuse(TW_ERR_OPTIONS, "bytes: less than TW_HOLD_NOTE_BYTES, or too many");
    return TW_OK;
}

tw_status tw_hold_notes(tw_engine *engine, void *memory, size_t bytes) {
    TWI_NEED(engine);
    tw_status status = check_memory(engine, memory, bytes);
    if (status == TW_OK) status = twi_redis_call_may(engine, NULL);
    if (status != TW_OK) return status;
    struct twi_hold_book *book = engine->here->holds;
    twi_lock(&book->lock);
    struct twi_hold_memory *entered = twi_hold_notes_enter(&book->notes, memory, bytes, twi_hold_book_time(engine));
    twi_unlock(&book->lock);
    if (entered == NULL) return twi_refuse(TW_ERR_FULL, "memory: sixteen memories have slots that are being released");
    status = end_left(engine, entered);
    twi_lock(&book->lock);
    bool is_clear = entered->left == 0;
    if (is_clear && entered != book->notes.memories) *entered = (struct twi_hold_memory){0};
    twi_unlock(&book->lock);
    return status != TW_OK ? status : is_clear ? TW_OK : TW_PENDING;
}

/* ---- the engine's side ---- */

void twi_hold_book_begin(tw_engine *engine) {
    struct twi_hold_book *book = engine->here->holds;
    *book = (struct twi_hold_book){.resend_from_ms = INT64_MIN};
    pthread_mutex_init(&book->lock, NULL);
}

void twi_hold_book_end(tw_engine *engine) {
    pthread_mutex_destroy(&engine->here->holds->lock);
}
