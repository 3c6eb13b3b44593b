/* closing.h -- windows that one engine closes for all (TW_CLOSED_BY_ONE): what this engine says of them, and what it is told.
 *
 *   drained ─▶ ASK ◀─wait─▶ Redis ─list▶ LIST: the names of its keys ─▶ ASK ─you▶ READ: the names of others' keys ─▶ TOTALS: all are
 *   asked for ─▶ TELL: the hook ─true▶ DONE: Redis is told ─▶ OVER            ASK ─it is closed▶ OVER
 *   no answer for a minute: the hook gets what is known here (TW_CLOSED_LOCAL)                     script: sync/script/close_election.lua
 *   TELL, before its time ─true▶ PART: Redis is told ─▶ OVER      DONE ─what came too late is not in it▶ ASK      it is closed, and this
 *   engine still owes of it ─▶ OWES ─drained▶ ASK: it is closed again, with all (TW_CLOSED_AGAIN)
 *
 * Every second, and with all that is said of a window, an engine says which windows it holds up: all that it may still count in, and those
 * that it has counted in and that Redis has not acknowledged, or whose names it has not listed. A window that nobody holds up may be
 * claimed. A claim ends by itself, and is renewed as long as the hook is to be called: should its engine die, another follows.
 * Always true: the hook is called only under a claim that holds for half of its life from then on, and, once that was had, after every
 * total was asked for anew; a window that was told is not told again, whatever Redis forgets, unless counts
 * came after that. A window that the last engine told before its time, because it left, is closed by the next that comes. A closer goes with its window, or before;
 * one that is over touches nothing. By the turn alone. */
#ifndef TWI_TURN_CLOSING_H
#define TWI_TURN_CLOSING_H

#include "engine/core/closing_keys.h"
#include "engine/core/family.h"

enum twi_close_election_state {
    TWI_ELECTION_CLAIM,
    TWI_ELECTION_LIST,
    TWI_ELECTION_READ,
    TWI_ELECTION_TOTALS,
    TWI_ELECTION_CALL_HOOK,
    TWI_ELECTION_PASS,    /* the hook has refused it for a minute: another's may not */
    TWI_ELECTION_PARTIAL, /* it was told before its time */
    TWI_ELECTION_DONE,
    TWI_ELECTION_UNSENT, /* it was closed without what this engine still owes of it */
    TWI_ELECTION_OVER
};

struct twi_close_election {
    struct twi_close_election *next; /* of the family */
    struct twi_generation *generation;
    int64_t start_ms;
    enum twi_close_election_state state;
    bool in_flight;
    bool partial;    /* it is given up here while it takes counts elsewhere: others go on with it, if there are any */
    bool lists_only; /* it has no hook here */
    bool listed;     /* its names are */
    bool through;    /* it holds nobody up */
    bool is_repeat;  /* it was told before */
    bool left_to_others; /* another engine has claimed it, as last told */
    bool is_noted;       /* that nobody will be told of what came too late */
    bool is_short;       /* the hook will not get all: no memory for others' keys, or totals that did not come */
    struct twi_cursor cursor, page;  /* a walk; where the page that is under way began */
    char scan[24];                   /* how far others' names are read */
    int64_t at_ms;                   /* monotonic, as all here: there is something to say */
    int64_t claim_ms;                /* the claim holds until then */
    int64_t chosen_ms, totals_ms;    /* since when */
    uint64_t acked_units;            /* OWES: what Redis had acknowledged when it was closed */
    struct twi_closing_keys foreign; /* that only others counted; read by the hook as well */
};

/* The window's; NULL: none yet, or none any more. */
struct twi_close_election *twi_close_election_of(const struct twi_generation *generation);

/* Tests shorten them. How long a word is good for, and a claim; how long the hook waits for Redis. */
extern _Atomic int64_t twi_closing_life_ms, twi_closing_wait_ms;

enum twi_closing {
    TWI_CLOSING_WAIT,
    TWI_CLOSING_CALL_HOOK, /* call the hook, then twi_closing_hook_answered() */
    TWI_CLOSING_LOCAL,     /* the same, with TW_CLOSED_LOCAL */
    TWI_CLOSING_OVER       /* it is closed, by whomever */
};
/* Goes on with a window that takes no more counts and has counted something. `drained`: it owes Redis nothing. */
enum twi_closing twi_closing_step(tw_engine *engine, struct twi_generation *generation, bool drained, uint32_t *work);
/* Whether it was told before, here or elsewhere. */
bool twi_closing_is_repeat(const struct twi_generation *generation);
/* The hook has answered true, or false. */
void twi_closing_hook_answered(tw_engine *engine, struct twi_generation *generation, bool called);
/* It has answered false until its family had to go: another engine's may have the window. */
void twi_closing_refused(tw_engine *engine, struct twi_generation *generation);
/* No hook was told of it, or of all of it: counted and logged. */
void twi_closing_note_unreported(struct twi_generation *generation, const char *why);
/* Something that is sealed and still owes has held others up for long enough. */
bool twi_closing_gives_up(const tw_engine *engine, const struct twi_generation *generation);
/* Redis has lost what it had: nothing that was said of the window counts any more. */
void twi_closing_restart(struct twi_generation *generation);

/* Something that was said of the family is not answered yet. */
bool twi_closing_is_busy(const struct tw_family *family);
/* Closing: Redis knows that this engine holds nothing up any more, or does not answer. */
bool twi_closing_is_over(tw_engine *engine);
void twi_closing_free(struct tw_family *family);

#endif
