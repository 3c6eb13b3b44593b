/* hold_notes.c -- see hold_notes.h. */
#include "engine/reserve/hold_notes.h"

#include "engine/base/check.h"

#include <assert.h>
#include <string.h>

enum state { STATE_FREE, STATE_HELD, STATE_OVER, STATE_LEFT, STATE_ENDING };

#define TRIES 64u /* notes that one look for a free one sees */
#define LIVES 2   /* after so many lives no slot that is over is in Redis */

static_assert(sizeof(struct twi_hold_note) + sizeof(struct twi_hold_note_text) == TW_HOLD_NOTE_BYTES,
              "a note of any process has this size");

static struct twi_hold_memory *memory_of(struct twi_hold_notes *notes, const struct twi_hold_note *note) {
    struct twi_hold_memory *memory = notes->memories;
    while (note < memory->at || note >= memory->at + memory->count) memory++;
    twi_check(memory < notes->memories + TWI_HOLD_NOTES_MAX);
    return memory;
}

struct twi_hold_note_text *twi_hold_notes_text(const struct twi_hold_memory *memory, const struct twi_hold_note *note) {
    return (struct twi_hold_note_text *)(memory->at + memory->count) + (note - memory->at);
}

static bool has_expired(const struct twi_hold_note *note, struct twi_hold_time time) {
    return time.now_ms - note->over_ms > LIVES * time.life_ms;
}

/* ---- slots of this engine ---- */

/* Returns a note that can be used, or NULL. If there is none that is free, it is one that is over. */
static struct twi_hold_note *find(struct twi_hold_memory *memory, struct twi_hold_time time) {
    struct twi_hold_note *over = NULL;
    for (uint32_t left = memory->count < TRIES ? memory->count : TRIES; left != 0; left--) {
        struct twi_hold_note *note = &memory->at[memory->next];
        memory->next = memory->next + 1 < memory->count ? memory->next + 1 : 0;
        uint32_t state = twi_load_relaxed(&note->state);
        if (state == STATE_FREE || (state == STATE_OVER && has_expired(note, time))) return note;
        if (state == STATE_OVER && over == NULL) over = note;
    }
    return over;
}

struct twi_hold_note *twi_hold_notes_add(struct twi_hold_notes *notes, const char *name, size_t size,
                                         const char *member, struct twi_hold_time time) {
    struct twi_hold_memory *memory = notes->memories;
    struct twi_hold_note_text *text;
    struct twi_hold_note *note = memory->at != NULL && size <= sizeof text->name ? find(memory, time) : NULL;
    if (note == NULL) return NULL;
    text = twi_hold_notes_text(memory, note);
    (void)twi_swap_acqrel(&note->state, STATE_FREE); /* before the text is another one */
    memcpy(text->name, name, size);
    note->name_size = (uint32_t)size;
    memcpy(text->member, member, strlen(member) + 1);
    twi_store_release(&note->state, STATE_HELD);
    return note;
}

void twi_hold_notes_end(struct twi_hold_notes *notes, struct twi_hold_note *note, bool is_free, int64_t now_ms) {
    if (note == NULL) return;
    struct twi_hold_memory *memory = memory_of(notes, note);
    uint32_t number = (uint32_t)(note - memory->at);
    note->over_ms = now_ms;
    if (is_free && number < memory->next) memory->next = number; /* so few pages of the memory are used */
    twi_store_release(&note->state, is_free ? STATE_FREE : STATE_OVER);
}

/* ---- slots that were left ---- */

static bool is_whole(const struct twi_hold_note *note, const struct twi_hold_note_text *text) {
    return note->name_size - 1 < sizeof text->name && text->member[0] != '\0' &&
           memchr(text->member, '\0', sizeof text->member) != NULL;
}

static void look_through(struct twi_hold_memory *memory, struct twi_hold_time time) {
    for (uint32_t i = 0; i < memory->count; i++) {
        struct twi_hold_note *note = &memory->at[i];
        uint32_t state = twi_load_acquire(&note->state);
        if (state == STATE_FREE) continue;
        bool is_left =
            is_whole(note, twi_hold_notes_text(memory, note)) && !(state == STATE_OVER && has_expired(note, time));
        twi_store_release(&note->state, is_left ? STATE_LEFT : STATE_FREE);
        memory->left += is_left;
    }
}

struct twi_hold_memory *twi_hold_notes_enter(struct twi_hold_notes *notes, void *at, size_t bytes,
                                             struct twi_hold_time time) {
    struct twi_hold_memory *room = NULL;
    for (uint32_t i = 0; i < TWI_HOLD_NOTES_MAX; i++) {
        struct twi_hold_memory *memory = &notes->memories[i];
        if (memory->at == at) return memory;
        if (memory->at == NULL && room == NULL) room = memory;
    }
    if (room == NULL) return NULL;
    *room = (struct twi_hold_memory){.at = at, .count = (uint32_t)(bytes / TW_HOLD_NOTE_BYTES)};
    look_through(room, time);
    return room;
}

struct twi_hold_note *twi_hold_notes_left(struct twi_hold_memory *memory, uint32_t *at) {
    struct twi_hold_note *note = NULL;
    for (; note == NULL && memory->left != 0 && *at < memory->count; ++*at)
        if (twi_load_relaxed(&memory->at[*at].state) == STATE_LEFT) note = &memory->at[*at];
    if (note != NULL) twi_store_release(&note->state, STATE_ENDING);
    return note;
}

void twi_hold_notes_put_back(struct twi_hold_note *note) {
    twi_check(twi_load_relaxed(&note->state) == STATE_ENDING);
    twi_store_release(&note->state, STATE_LEFT);
}

void twi_hold_notes_ended(struct twi_hold_notes *notes, struct twi_hold_note *note, bool is_free, int64_t now_ms) {
    twi_check(memory_of(notes, note)->left != 0);
    memory_of(notes, note)->left--;
    twi_hold_notes_end(notes, note, is_free, now_ms);
}
