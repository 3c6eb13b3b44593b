/* save.h -- what saving (save.c) and loading (load.c) have in common: the families, their windows, and the turn, which
 * both own, so that meanwhile no window ends, no hook runs and no memory of a window is given back. */
#ifndef TWI_SAVE_H
#define TWI_SAVE_H

#include "engine/core/family.h"
#include "engine/port/extras.h"

/* Families that are not freed meanwhile. */
struct twi_held_families {
    tw_family **list;
    uint32_t count, room;
};
/* Adds a family, under the lock of the roster. Returns false if there is no memory. */
bool twi_saved_hold(struct twi_held_families *held, tw_family *family);
void twi_saved_let_go(struct twi_held_families *held);

extern const char *const twi_saved_names[TWI_SAVED_FIELDS];
void twi_saved_describe(const tw_family *family, struct twi_saved_family *saved);

/* TW_OK, or the reason why the engine, or this thread, cannot save or load. */
tw_status twi_saved_may(tw_engine *engine);

enum twi_saved_fate {
    TWI_SAVED_OPEN,     /* the window accepts counts */
    TWI_SAVED_PREVIOUS, /* it accepts none, but a sliding limit still looks at it */
    TWI_SAVED_OVER
};
/* `is_final`: a hook has got it as final, so it accepts no counts after its end. */
enum twi_saved_fate twi_saved_fate(const tw_family *family, int64_t start_ms, bool is_final);

/* A moment of that window with which tw_add_at() and tw_each() name it. */
TWI_INLINE int64_t twi_saved_moment(int64_t start_ms) {
    return start_ms > TWI_CALENDAR_MIN_MS ? start_ms : TWI_CALENDAR_MIN_MS;
}

/* Takes the turn, which may have to wait for the end of a hook. Otherwise it returns a refusal. twi_turn_leave() ends
 * it. */
tw_status twi_saved_take_turn(tw_engine *engine);

/* The windows that the family holds. They stay while this thread owns the turn. */
struct twi_saved_windows {
    struct twi_generation **list;
    uint32_t count, room;
};
/* Returns false if there is no memory. The caller frees the list in any case. */
bool twi_saved_windows(tw_family *family, struct twi_saved_windows *windows);

#endif
