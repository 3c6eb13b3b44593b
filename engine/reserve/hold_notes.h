/* hold_notes.h -- tw_hold_notes(): with Redis, the slots of this process are noted in memory that outlives it, so that
 * another process can release them at once when this one was killed.
 *
 *   free ──▶ held ──the release was answered──▶ free
 *              └──the outcome of its request, or of its release, is unknown──▶ over ──after two lives──▶ free
 *   what an engine finds in memory that it is given:  held, over ──▶ left ──▶ ending ──answered──▶ free
 *                                                                     ▲──not begun──┘
 * The notes lie at the beginning of their memory, and their texts behind them. So a look for notes reads few pages, and
 * pages for texts that were never written are not made.
 * Always true: a slot is noted before its request is sent, unless there is no room, and the note stays while Redis may
 * have the slot. The state of a note is written last, so a process that is killed leaves each note whole or free. A
 * note is written by one process at a time: the host promises that. What is read there is checked, because another
 * process has written it.
 * Threads: the caller has the lock of the hold book. */
#ifndef TWI_RESERVE_HOLD_NOTES_H
#define TWI_RESERVE_HOLD_NOTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/atomic.h"
#include "tallywheel.h"

#define TWI_HOLD_MEMBER_MAX 56u /* 32 digits, a colon, 20 digits, a NUL */
#define TWI_HOLD_NOTES_MAX 16u  /* memories of an engine at a time */

struct twi_hold_note {
    _Atomic uint32_t state;
    uint32_t name_size;
    int64_t over_ms; /* monotonic time; of those that are over */
};

struct twi_hold_note_text {
    char member[TWI_HOLD_MEMBER_MAX];
    char name[TW_HOLD_NOTE_BYTES - 72]; /* of the set in Redis */
};

/* A memory that the engine was given. */
struct twi_hold_memory {
    struct twi_hold_note *at; /* NULL means none */
    uint32_t count;
    uint32_t next; /* where the next look for a note begins */
    uint32_t left; /* notes of earlier processes that are not released yet */
};

struct twi_hold_notes {
    struct twi_hold_memory memories[TWI_HOLD_NOTES_MAX]; /* the first one is for slots of this engine */
};

/* The monotonic time of a call, and how long a slot lives in Redis without being stated again. */
struct twi_hold_time {
    int64_t now_ms, life_ms;
};

/* Notes a slot. Returns NULL if there is no room. */
struct twi_hold_note *twi_hold_notes_add(struct twi_hold_notes *notes, const char *name, size_t size,
                                         const char *member, struct twi_hold_time time);
/* The slot is in Redis no more, and never will be (`is_free`); or this process no longer cares for it. NULL does
 * nothing. */
void twi_hold_notes_end(struct twi_hold_notes *notes, struct twi_hold_note *note, bool is_free, int64_t now_ms);

/* The memory belongs to this engine. What is noted there, if it is new, was left. Returns NULL if it has too many. */
struct twi_hold_memory *twi_hold_notes_enter(struct twi_hold_notes *notes, void *at, size_t bytes,
                                             struct twi_hold_time time);
/* Returns the next note from *at on that was left, or NULL. It is ending from now on. */
struct twi_hold_note *twi_hold_notes_left(struct twi_hold_memory *memory, uint32_t *at);
/* Its release was not begun. */
void twi_hold_notes_put_back(struct twi_hold_note *note);
/* Its release needs nobody any more: it was answered, or continues alone until it is. */
void twi_hold_notes_ended(struct twi_hold_notes *notes, struct twi_hold_note *note, bool is_free, int64_t now_ms);

struct twi_hold_note_text *twi_hold_notes_text(const struct twi_hold_memory *memory, const struct twi_hold_note *note);

#endif
