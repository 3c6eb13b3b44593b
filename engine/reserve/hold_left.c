/* hold_left.c -- tw_hold_notes(): releases the slots that a process has noted and left (hold_notes.h).
 * Always true: such a slot is released with a mark (hold.lua, end), because its request, or a statement about it, may
 * come to Redis after the release. The release is repeated until Redis answers, as every release is. */
#include "engine/ask/redis_call.h"
#include "engine/base/lock.h"
#include "engine/core/calls.h"
#include "engine/core/family.h"
#include "engine/reserve/hold_book.h"

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
