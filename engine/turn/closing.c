/* closing.c -- see closing.h. What is said, and what the answers do to a window, in two halves; sync/message/closing.c puts it on the wire.
 * An answer that comes when its closer has moved on does nothing: each is taken only in the state that asked. */
#include "engine/turn/closing.h"

#include "engine/count/dirty.h"
#include "engine/core/window_map.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORD_MS 1000 /* or less often, as Redis says; the script takes a pause of 2.5 times this for an outage */
#define AGAIN_MS 200
#define OTHER_MS 1000
#define REFUSED_MS 5000
#define PASSED_MS 5000 /* how long others have the first choice */
#define FLOOR_ALL (INT64_C(1) << 52)

_Atomic int64_t twi_close_life_ms =
    30000; /* engines are back 10 s at most after Redis is; a hook may take half of this */
_Atomic int64_t twi_close_wait_ms = 60000;

static bool is_ending(const struct tw_family *family) {
    return family->engine->closing || twi_load_relaxed(&family->close_asked);
}
static bool is_connected(tw_engine *engine) {
    return twi_stat_get(engine, offsetof(tw_stats, redis_connected)) != 0;
}

/* ---- a closer's life ---- */

static bool has_hook(struct tw_family *family) {
    pthread_mutex_lock(&family->engine->lock);
    bool has = family->options.on_window_closed != NULL;
    pthread_mutex_unlock(&family->engine->lock);
    return has;
}

static void enter(struct twi_closer *closer, enum twi_closer_state state, int64_t at_ms) {
    closer->state = state;
    closer->at_ms = at_ms;
    closer->cursor = (struct twi_cursor){0};
}

static struct twi_closer *make_closer(tw_engine *engine, struct twi_generation *generation) {
    struct tw_family *family = generation->family;
    struct twi_closer *closer = calloc(1, sizeof *closer);
    if (closer == NULL) return NULL;
    closer->generation = generation;
    twi_closing_keys_begin(&closer->foreign, generation);
    closer->start_ms = generation->start_ms;
    closer->lists_only = !has_hook(family);
    closer->partial = engine->turn_ms < twi_family_takes_until(family, generation->end_ms);
    /* Who leaves before its time, or has no hook, cannot know whether others will want the names. */
    enter(closer, closer->lists_only || closer->partial ? TWI_CLOSER_LIST : TWI_CLOSER_ASK, engine->turn_mono_ms);
    closer->next = family->closing.closers;
    family->closing.closers = closer;
    return closer;
}

/* They are few: windows that are over, and not yet closed. */
struct twi_closer *twi_closer_of(const struct twi_generation *generation) {
    struct twi_closer *closer = generation->family->closing.closers;
    while (closer != NULL && closer->generation != generation) closer = closer->next;
    return closer;
}

/* An answer that is under way finds it over, and frees it. */
static void end(struct twi_closer *closer) {
    struct twi_closer **link = &closer->generation->family->closing.closers;
    while (*link != closer) link = &(*link)->next;
    *link = closer->next;
    twi_closing_keys_end(&closer->foreign);
    closer->state = TWI_CLOSER_OVER;
    if (!closer->in_flight) free(closer);
}

static void keep(struct tw_family *family, int64_t start_ms) {
    family->closing.kept[family->closing.kept_count++ % TWI_CLOSED_KEPT] = start_ms;
}

/* It is closed, by whomever. */
static void end_closed(struct twi_closer *closer) {
    keep(closer->generation->family, closer->start_ms);
    closer->generation->hook_done = true;
    end(closer);
}

static void begin_again(struct twi_closer *closer) {
    closer->listed = closer->through = false;
    enter(closer, closer->lists_only || closer->partial ? TWI_CLOSER_LIST : TWI_CLOSER_ASK, closer->at_ms);
}

void twi_closing_again(struct twi_generation *generation) {
    struct twi_closer *closer = twi_closer_of(generation);
    if (closer == NULL || closer->state == TWI_CLOSER_DONE || closer->state == TWI_CLOSER_PART ||
        closer->state == TWI_CLOSER_OWES)
        return;
    begin_again(closer);
}

bool twi_closing_is_again(const struct twi_generation *generation) {
    const struct twi_closer *closer = twi_closer_of(generation);
    return closer != NULL && closer->again;
}

void twi_closing_note_untold(struct twi_generation *generation, const char *why) {
    struct tw_family *family = generation->family;
    twi_port_count(family->engine, windows_untold, 1);
    twi_port_log(family->engine, TW_LOG_WARNING, TW_EVENT_CLOSED, "no hook was told of a window of family \"%s\": %s",
                 family->options.name, why);
}

/* Another has closed it without what is counted here, and there is no hook to tell of that. */
static void note_late(struct twi_closer *closer) {
    if (closer->is_noted) return;
    closer->is_noted = true;
    twi_closing_note_untold(closer->generation,
                            "counts came after another engine had closed it, and there is none here");
}

/* Others have closed it, or go on with it. What it still owes comes too late for them, and is told again when it is there. */
static void end_by_others(struct twi_closer *closer) {
    if (twi_generation_is_drained(closer->generation)) {
        end_closed(closer);
        return;
    }
    closer->acked_units = closer->generation->acked_units;
    closer->through = true;
    enter(closer, TWI_CLOSER_OWES, 0);
}

/* Nothing is owed any more. True: and nothing of it has come since it was closed. */
static bool is_paid(struct twi_closer *closer) {
    if (closer->generation->acked_units == closer->acked_units) {
        end_closed(closer);
        return true;
    }
    closer->at_ms = closer->generation->family->engine->turn_mono_ms;
    begin_again(closer);
    return false;
}

void twi_closing_free(struct tw_family *family) {
    while (family->closing.closers != NULL) {
        struct twi_closer *closer = family->closing.closers;
        family->closing.closers = closer->next;
        twi_closing_keys_end(&closer->foreign);
        free(closer);
    }
}

/* ---- keys that only others counted ---- */

void twi_port_closing_name(tw_engine *engine, const struct twi_closing_say *say, tw_key name) {
    struct twi_closer *closer = say->closer;
    if (closer == NULL || closer->state != TWI_CLOSER_READ || name.size == 0 || name.size > TW_KEY_SIZE_MAX) return;
    if (twi_closing_keys_add(engine, &closer->foreign, name) || closer->is_short) return;
    closer->is_short = true;
    twi_port_log(engine, TW_LOG_ERROR, TW_EVENT_MEMORY,
                 "no memory for all keys that other engines counted in a window of family \"%s\"",
                 closer->generation->family->options.name);
}

/* Nobody is there any more who would close it in the end: we do. */
void twi_port_closing_part(tw_engine *engine, const struct twi_closing_say *say, int64_t start_ms) {
    struct tw_family *family = say->family;
    struct twi_thread *self = twi_thread_here();
    if (self == NULL || !twi_calendar_holds(start_ms) || is_ending(family) || !has_hook(family)) return;
    struct twi_span span = twi_calendar_span(&family->rule, start_ms);
    if (span.start_ms != start_ms) return; /* of a family with other windows */
    twi_section_enter(self);
    struct twi_generation *generation = twi_window_open(family, span, 0);
    if (generation != NULL && twi_load_relaxed(&generation->phase) < TWI_SEALED) generation->is_adopted = true;
    twi_section_leave(self);
    (void)engine; /* its turn */
}

/* ---- the window's steps ---- */

/* For how long nothing was heard from Redis of a family whose window waits. */
static bool is_away(const tw_engine *engine, const struct twi_generation *generation) {
    int64_t since_ms = generation->sealed_mono_ms, heard_ms = generation->family->closing.heard_ms;
    return engine->turn_mono_ms - (heard_ms > since_ms ? heard_ms : since_ms) >= twi_load_relaxed(&twi_close_wait_ms);
}

/* Redis has answered for long enough since the window was sealed, and it still owes. */
static bool had_its_time(const tw_engine *engine, const struct twi_generation *generation) {
    int64_t wait_ms = twi_load_relaxed(&twi_close_wait_ms), now_ms = engine->turn_mono_ms;
    return !is_away(engine, generation) && now_ms - generation->sealed_mono_ms >= wait_ms &&
           now_ms - generation->family->closing.since_ms >= wait_ms;
}

bool twi_closing_gives_up(const tw_engine *engine, const struct twi_generation *generation) {
    return is_away(engine, generation) || had_its_time(engine, generation);
}

static bool owe_total(void *ctx, struct twi_cell *cell, uint64_t meta) {
    struct twi_generation *generation = ctx;
    twi_dirty_owe(generation->family->engine, generation, cell, meta);
    return true;
}

/* True when every total was asked for and has come. */
static bool has_totals(tw_engine *engine, struct twi_closer *closer, bool drained, uint32_t *work) {
    struct twi_generation *generation = closer->generation;
    if (closer->cursor.done) return drained;
    if (*work == 0) return false;
    twi_store_relaxed(&generation->asks_totals, true);
    closer->cursor.looks = *work;
    twi_table_walk(&engine->arena, generation, &closer->cursor, owe_total, generation);
    *work = closer->cursor.looks;
    if (closer->cursor.done)
        (void)owe_total(generation, &generation->overflow, twi_load_relaxed(&generation->overflow.meta));
    return false;
}

static enum twi_closing tell(const tw_engine *engine, const struct twi_closer *closer) {
    int64_t left_ms = closer->claim_ms - engine->turn_mono_ms;
    if (!closer->partial && left_ms < twi_load_relaxed(&twi_close_life_ms) / 2) return TWI_CLOSING_WAIT;
    return closer->is_short ? TWI_CLOSING_LOCAL : TWI_CLOSING_TELL;
}

static enum twi_closing await_totals(tw_engine *engine, struct twi_closer *closer, bool drained, uint32_t *work) {
    bool late = engine->turn_mono_ms - closer->totals_ms >= twi_load_relaxed(&twi_close_wait_ms);
    if (!has_totals(engine, closer, drained, work) && !late) return TWI_CLOSING_WAIT;
    closer->state = TWI_CLOSER_TELL; /* the claim goes on being renewed as it was */
    closer->is_short = closer->is_short || !drained;
    return tell(engine, closer);
}

/* Nothing more will be heard in time. */
static enum twi_closing give_up(struct twi_closer *closer, bool left_to_others) {
    if (!closer->lists_only && !left_to_others && !closer->generation->hook_done) return TWI_CLOSING_LOCAL;
    closer->generation->hook_done = true;
    end(closer);
    return TWI_CLOSING_OVER;
}

enum twi_closing twi_closing_step(tw_engine *engine, struct twi_generation *generation, bool drained, uint32_t *work) {
    struct twi_closer *closer = twi_closer_of(generation);
    if (closer == NULL && generation->hook_done) return TWI_CLOSING_OVER;
    if (closer == NULL && (closer = make_closer(engine, generation)) == NULL) return TWI_CLOSING_WAIT;
    if (closer->state == TWI_CLOSER_OWES) {
        if (engine->hooks_partial) return give_up(closer, true);
        return drained && is_paid(closer) ? TWI_CLOSING_OVER : TWI_CLOSING_WAIT;
    }
    if (engine->hooks_partial) return give_up(closer, closer->left_to_others);
    if (is_away(engine, generation)) return give_up(closer, false);
    if (closer->state == TWI_CLOSER_TOTALS) return await_totals(engine, closer, drained, work);
    return closer->state == TWI_CLOSER_TELL ? tell(engine, closer) : TWI_CLOSING_WAIT;
}

void twi_closing_was_told(tw_engine *engine, struct twi_generation *generation, bool told) {
    struct twi_closer *closer = twi_closer_of(generation);
    bool claimed = closer->state == TWI_CLOSER_TELL && !closer->partial;
    if (told) {
        generation->hook_done = true;
        if (claimed || (closer->state == TWI_CLOSER_TELL && !engine->hooks_partial))
            enter(closer, claimed ? TWI_CLOSER_DONE : TWI_CLOSER_PART, engine->turn_mono_ms);
        else
            end(closer);
    } else if (claimed && engine->turn_mono_ms - closer->chosen_ms >= twi_load_relaxed(&twi_close_wait_ms)) {
        enter(closer, TWI_CLOSER_PASS, engine->turn_mono_ms);
    }
}

void twi_closing_refused(tw_engine *engine, struct twi_generation *generation) {
    struct twi_closer *closer = twi_closer_of(generation);
    if (closer->state == TWI_CLOSER_TELL && !closer->partial && !is_away(engine, generation)) {
        enter(closer, TWI_CLOSER_PASS, engine->turn_mono_ms);
        return;
    }
    twi_closing_note_untold(generation, "its hook answered false until the family had to go");
    generation->hook_done = true;
    end(closer);
}

/* It is claimed no more. */
static void told_pass(struct twi_closer *closer, int64_t now_ms) {
    struct twi_generation *generation = closer->generation;
    enter(closer, TWI_CLOSER_ASK, now_ms + PASSED_MS);
    if (!twi_load_relaxed(&generation->family->close_asked)) return;
    twi_closing_note_untold(generation,
                            "its hook answered false until the family had to go; another engine's may do better");
    generation->hook_done = true;
    end(closer);
}

/* ---- what is said ---- */

static bool holds_up(struct twi_generation *generation) {
    uint32_t phase = twi_load_relaxed(&generation->phase);
    const struct twi_closer *closer = twi_closer_of(generation);
    if (phase >= TWI_HISTORY) return false;
    if (closer != NULL) return !closer->through;
    if (generation->hook_done) return phase != TWI_DRAINED && !had_its_time(generation->family->engine, generation);
    return phase != TWI_DRAINED || twi_generation_has_counted(generation);
}

/* The earliest ends, in order, and one more: where there are too many, everything from that one on is held up. */
struct ends {
    int64_t floor_ms, at_ms[TWI_CLOSING_ENDS_MAX + 1];
    uint32_t count;
};

static void note_end(void *ctx, struct twi_generation *generation) {
    struct ends *ends = ctx;
    int64_t end_ms = generation->end_ms;
    if (end_ms > ends->floor_ms || !holds_up(generation)) return;
    uint32_t at = ends->count;
    if (at > TWI_CLOSING_ENDS_MAX) { /* full: the last one makes room */
        at = TWI_CLOSING_ENDS_MAX;
        if (ends->at_ms[at] <= end_ms) return;
    } else {
        ends->count++;
    }
    for (; at > 0 && ends->at_ms[at - 1] > end_ms; at--) ends->at_ms[at] = ends->at_ms[at - 1];
    ends->at_ms[at] = end_ms;
}

/* A window that somebody may yet open ends after the floor; and who opened one before time, or the watermark, came to the floor is seen
 * here, for he looks at both again before he counts in it (lookup.c). */
static void fill_word(struct tw_family *family, struct twi_closing_say *say) {
    tw_engine *engine = family->engine;
    struct ends ends = {.floor_ms = is_ending(family) ? FLOOR_ALL : twi_family_over_by(family, engine->turn_ms)};
    if (ends.floor_ms < 0) ends.floor_ms = 0;
    twi_fence_seqcst(); /* N5, pairs with N2: see above */
    twi_window_visit(family, note_end, &ends);
    say->floor_ms = ends.floor_ms;
    if (ends.count > TWI_CLOSING_ENDS_MAX) {
        say->floor_ms = ends.at_ms[TWI_CLOSING_ENDS_MAX] - 1;
        ends.count = TWI_CLOSING_ENDS_MAX;
    }
    memcpy(say->ends_ms, ends.at_ms, ends.count * sizeof *say->ends_ms);
    say->end_count = ends.count;
    say->family = family;
    say->known = family->closing.known;
    say->life_ms = twi_load_relaxed(&twi_close_life_ms);
    say->said_ms = engine->turn_mono_ms;
}

struct page {
    struct twi_closing_say *say;
    struct twi_cursor *cursor;
    size_t bytes;
};

static bool list_name(void *ctx, struct twi_cell *cell, uint64_t meta) {
    struct page *page = ctx;
    struct twi_cold *cold = twi_cell_cold(cell, meta);
    size_t size = meta & TWI_META_SIZE;
    if (twi_cell_local(cell, meta) == 0 && twi_load_relaxed(&cold->acked) == 0) return true; /* it was only read here */
    if (page->say->name_count == TWI_CLOSING_NAMES_MAX || page->bytes + size > TWI_CLOSING_NAMES_BYTES_MAX) {
        page->cursor->index--; /* it comes first next time */
        return false;
    }
    page->say->names[page->say->name_count++] = tw_bytes(cell->key, size);
    page->bytes += size;
    return true;
}

/* All names of this engine's keys are in Redis. */
static void end_list(struct twi_closer *closer) {
    closer->listed = closer->through = true;
    if (!closer->lists_only) {
        enter(closer, TWI_CLOSER_ASK, closer->generation->family->engine->turn_mono_ms);
        return;
    }
    closer->generation->hook_done = true;
    if (twi_generation_is_drained(closer->generation))
        end(closer);
    else
        end_by_others(closer);
}

/* False: there is no page to be sent now. */
static bool fill_page(tw_engine *engine, struct twi_closer *closer, struct twi_closing_say *say) {
    struct page page = {say, &closer->cursor, 0};
    closer->page = closer->cursor;
    closer->cursor.looks = TWI_WORK_TURN;
    if (!closer->cursor.done) twi_table_walk(&engine->arena, closer->generation, &closer->cursor, list_name, &page);
    if (say->name_count == 0 && closer->cursor.done) end_list(closer);
    return say->name_count != 0;
}

static enum twi_closing_verb verb_of(const struct twi_closer *closer) {
    switch (closer->state) {
    case TWI_CLOSER_LIST: return TWI_CLOSING_SAY_LIST;
    case TWI_CLOSER_READ: return TWI_CLOSING_SAY_READ;
    case TWI_CLOSER_PASS: return TWI_CLOSING_SAY_PASS;
    case TWI_CLOSER_PART: return TWI_CLOSING_SAY_PART;
    case TWI_CLOSER_DONE: return TWI_CLOSING_SAY_DONE;
    default: return closer->partial ? TWI_CLOSING_SAY_LAST : TWI_CLOSING_SAY_ASK;
    }
}

/* Of a partial window nothing is claimed that would have to be renewed. */
static bool is_silent(const struct twi_closer *closer) {
    bool holds = closer->state == TWI_CLOSER_TOTALS || closer->state == TWI_CLOSER_TELL;
    return (holds && closer->partial) || closer->state == TWI_CLOSER_OWES;
}

static bool is_due(const tw_engine *engine, const struct twi_closer *closer) {
    return !closer->in_flight && closer->at_ms <= engine->turn_mono_ms && !is_silent(closer);
}

static bool say_of(tw_engine *engine, struct twi_closer *closer, struct twi_closing_say *say) {
    const struct twi_generation *generation = closer->generation;
    say->name_count = 0;
    say->verb = verb_of(closer);
    if (say->verb == TWI_CLOSING_SAY_LIST && !fill_page(engine, closer, say)) return false;
    say->closer = closer;
    say->start_ms = generation->start_ms;
    say->end_ms = generation->end_ms;
    say->expiry_ms = generation->expiry_ms;
    say->flag = say->verb == TWI_CLOSING_SAY_READ ? !closer->partial : closer->listed;
    say->through = closer->through;
    memcpy(say->scan, closer->scan, sizeof say->scan);
    fill_word(generation->family, say);
    closer->in_flight = true;
    return true;
}

/* Closed windows that a Redis which forgot is told of again. */
static bool say_kept(struct tw_family *family, struct twi_closing_say *say) {
    struct twi_family_closing *closing = &family->closing;
    if (closing->kept_again == 0 || closing->kept_in_flight) return false;
    say->verb = TWI_CLOSING_SAY_DONE;
    say->closer = NULL;
    say->start_ms = closing->kept[(closing->kept_count - closing->kept_again) % TWI_CLOSED_KEPT];
    say->end_ms = say->start_ms;
    say->expiry_ms = twi_time_add(family->engine->turn_ms, twi_load_relaxed(&family->retention_ms));
    fill_word(family, say);
    closing->kept_in_flight = true;
    return true;
}

static bool all_is_over(const struct tw_family *family) {
    for (uint32_t line = family->generations; line != 0;) {
        const struct twi_generation *generation = twi_generation_at(&family->engine->arena, line);
        if (twi_load_relaxed(&((struct twi_generation *)generation)->phase) < TWI_HISTORY) return false;
        line = generation->next_all;
    }
    return true;
}

static bool say_word(struct tw_family *family, struct twi_closing_say *say) {
    struct twi_family_closing *closing = &family->closing;
    bool leaves = is_ending(family) && closing->known && all_is_over(family);
    if (closing->in_flight || closing->left) return false;
    if (!leaves && family->engine->turn_mono_ms < closing->at_ms) return false;
    bool comes = !closing->came && !is_ending(family);
    say->verb = leaves ? TWI_CLOSING_SAY_LEAVE : comes ? TWI_CLOSING_SAY_COME : TWI_CLOSING_SAY_WORD;
    say->closer = NULL;
    say->start_ms = say->end_ms = say->expiry_ms = 0;
    fill_word(family, say);
    closing->in_flight = true;
    return true;
}

static bool say_for(tw_engine *engine, struct tw_family *family, struct twi_closing_say *say) {
    for (struct twi_closer *closer = family->closing.closers, *next; closer != NULL; closer = next) {
        next = closer->next;
        if (is_due(engine, closer) && say_of(engine, closer, say)) return true;
    }
    return say_kept(family, say) || say_word(family, say);
}

bool twi_port_closing(tw_engine *engine, struct twi_closing_say *say) {
    for (struct tw_family *family = twi_load_acquire(&engine->specials); family != NULL;
         family = twi_load_acquire(&family->next_special))
        if (family->closes_once && say_for(engine, family, say)) return true;
    return false;
}

void twi_port_closing_keys(const struct twi_closing_say *say, char (*keys)[TWI_OWN_NAME_MAX], size_t *sizes) {
    static const char *const what[] = {"closers", "closed", "names"};
    const struct twi_template *template = &say->family->template;
    char name[TWI_REDIS_KEY_MAX];
    for (int i = 0; i < 3; i++) {
        size_t size = twi_template_render(template, tw_bytes("", 0), i == 0 ? 0 : say->start_ms, name);
        sizes[i] = twi_template_own(template, what[i], name, size, keys[i]);
    }
}

int64_t twi_port_closing_due(tw_engine *engine) {
    int64_t due_ms = INT64_MAX;
    for (struct tw_family *family = twi_load_acquire(&engine->specials); family != NULL;
         family = twi_load_acquire(&family->next_special)) {
        const struct twi_family_closing *closing = &family->closing;
        if (!family->closes_once) continue;
        if (!closing->in_flight && !closing->left && closing->at_ms < due_ms) due_ms = closing->at_ms;
        for (const struct twi_closer *closer = closing->closers; closer != NULL; closer = closer->next)
            if (!closer->in_flight && !is_silent(closer) && closer->at_ms < due_ms) due_ms = closer->at_ms;
    }
    return due_ms;
}

/* ---- what is answered ---- */

/* In a crowd all is said less often. */
static int64_t word_ms(const struct tw_family *family) {
    return family->closing.every_ms > WORD_MS ? family->closing.every_ms : WORD_MS;
}
static int64_t in_a_crowd(const struct tw_family *family, int64_t ms) {
    return word_ms(family) > WORD_MS && ms < word_ms(family) / 2 ? word_ms(family) / 2 : ms;
}

static void hear(struct tw_family *family, const struct twi_closing_answer *answer) {
    struct twi_family_closing *closing = &family->closing;
    int64_t now_ms = family->engine->turn_mono_ms;
    if (closing->heard_ms == 0 || now_ms - closing->heard_ms > 5 * word_ms(family)) closing->since_ms = now_ms;
    closing->heard_ms = now_ms != 0 ? now_ms : 1;
    closing->known = true;
    if (answer->every_ms > 0) closing->every_ms = answer->every_ms;
    if (answer->kind != TWI_CLOSING_TOLD_NEW) return;
    closing->kept_again = closing->kept_count < TWI_CLOSED_KEPT ? closing->kept_count : TWI_CLOSED_KEPT;
    closing->at_ms = now_ms;
    for (struct twi_closer *closer = closing->closers; closer != NULL; closer = closer->next)
        twi_closing_again(closer->generation);
}

static void told_family(struct tw_family *family, const struct twi_closing_say *say, bool heard) {
    struct twi_family_closing *closing = &family->closing;
    int64_t now_ms = family->engine->turn_mono_ms;
    if (say->verb == TWI_CLOSING_SAY_DONE) {
        closing->kept_in_flight = false;
        if (heard && closing->kept_again != 0) closing->kept_again--;
        return;
    }
    closing->in_flight = false;
    closing->came = closing->came || (heard && say->verb == TWI_CLOSING_SAY_COME);
    closing->at_ms = now_ms + (heard ? word_ms(family) : AGAIN_MS);
    if (say->verb == TWI_CLOSING_SAY_LEAVE && heard) {
        closing->left = true;
        closing->known = false;
    }
}

static void chosen(struct twi_closer *closer, const struct twi_closing_say *say, int64_t now_ms) {
    closer->claim_ms = say->said_ms + say->life_ms;
    if (closer->state != TWI_CLOSER_ASK) { /* renewed */
        closer->at_ms = now_ms + say->life_ms / 3;
        return;
    }
    closer->chosen_ms = now_ms;
    closer->through = true;
    enter(closer, TWI_CLOSER_READ, now_ms);
    (void)snprintf(closer->scan, sizeof closer->scan, "0");
}

static void told_ask(struct twi_closer *closer, const struct twi_closing_say *say, enum twi_closing_kind kind,
                     int64_t now_ms) {
    closer->left_to_others = kind == TWI_CLOSING_TOLD_OTHER;
    if (kind == TWI_CLOSING_TOLD_YOU)
        chosen(closer, say, now_ms);
    else if (kind == TWI_CLOSING_TOLD_LIST)
        enter(closer, TWI_CLOSER_LIST, now_ms);
    else
        enter(closer, TWI_CLOSER_ASK,
              now_ms + in_a_crowd(closer->generation->family, kind == TWI_CLOSING_TOLD_OTHER ? OTHER_MS : AGAIN_MS));
}

static void told_last(struct twi_closer *closer, enum twi_closing_kind kind, int64_t now_ms) {
    if (kind == TWI_CLOSING_TOLD_YOU) {
        enter(closer, TWI_CLOSER_READ, now_ms);
        (void)snprintf(closer->scan, sizeof closer->scan, "0");
    } else {
        closer->generation->hook_done = true; /* others go on with the window */
        end(closer);
    }
}

static void told_read(struct twi_closer *closer, const struct twi_closing_answer *answer, int64_t now_ms) {
    if (answer->kind != TWI_CLOSING_TOLD_YOU) {
        enter(closer, TWI_CLOSER_ASK, now_ms);
    } else if (strcmp(answer->scan, "0") != 0) {
        (void)snprintf(closer->scan, sizeof closer->scan, "%s", answer->scan);
        closer->at_ms = now_ms;
    } else {
        closer->totals_ms = now_ms;
        enter(closer, TWI_CLOSER_TOTALS, now_ms);
    }
}

/* The states that say such a thing. */
static bool has_said(const struct twi_closer *closer, const struct twi_closing_say *say) {
    return verb_of(closer) == say->verb && !is_silent(closer);
}

/* Redis knows that it was told. Unless something came meanwhile: then it is told again, by whoever is chosen. */
static void told_done(struct twi_closer *closer, enum twi_closing_kind kind, int64_t now_ms) {
    if (kind != TWI_CLOSING_TOLD_LATE) {
        end_closed(closer);
        return;
    }
    closer->generation->hook_done = false;
    enter(closer, TWI_CLOSER_ASK, now_ms);
}

static void told_list(struct twi_closer *closer, enum twi_closing_kind kind, int64_t now_ms) {
    closer->at_ms = now_ms; /* the next page */
    if (kind == TWI_CLOSING_TOLD_LATE && closer->lists_only) note_late(closer);
    if (closer->cursor.done) end_list(closer);
}

static void told_closer(struct twi_closer *closer, const struct twi_closing_say *say,
                        const struct twi_closing_answer *answer, int64_t now_ms) {
    if (!has_said(closer, say) || answer->kind == TWI_CLOSING_TOLD_NEW) return;
    if (say->verb == TWI_CLOSING_SAY_DONE) {
        told_done(closer, answer->kind, now_ms);
        return;
    }
    if (answer->kind == TWI_CLOSING_TOLD_DONE) {
        end_by_others(closer);
        return;
    }
    if (answer->kind == TWI_CLOSING_TOLD_YOU && say->verb != TWI_CLOSING_SAY_READ) closer->again = answer->again;
    switch (say->verb) {
    case TWI_CLOSING_SAY_ASK: told_ask(closer, say, answer->kind, now_ms); break;
    case TWI_CLOSING_SAY_LAST: told_last(closer, answer->kind, now_ms); break;
    case TWI_CLOSING_SAY_READ: told_read(closer, answer, now_ms); break;
    case TWI_CLOSING_SAY_LIST: told_list(closer, answer->kind, now_ms); break;
    case TWI_CLOSING_SAY_PART: end(closer); break;
    case TWI_CLOSING_SAY_PASS: told_pass(closer, now_ms); break;
    default: break;
    }
}

void twi_port_closing_told(tw_engine *engine, const struct twi_closing_say *say,
                           const struct twi_closing_answer *answer) {
    struct twi_closer *closer = say->closer;
    bool heard = answer->kind != TWI_CLOSING_TOLD_AGAIN && answer->kind != TWI_CLOSING_TOLD_REFUSED;
    int64_t now_ms = engine->turn_mono_ms;
    if (closer != NULL) closer->in_flight = false;
    if (closer != NULL && closer->state == TWI_CLOSER_OVER) {
        free(closer);
        closer = NULL;
    }
    if (heard) hear(say->family, answer);
    if (say->closer == NULL) {
        told_family(say->family, say, heard);
    } else if (closer != NULL && heard) {
        told_closer(closer, say, answer, now_ms);
    } else if (closer != NULL) {
        closer->at_ms = now_ms + (answer->kind == TWI_CLOSING_TOLD_REFUSED ? REFUSED_MS : AGAIN_MS);
        if (say->verb == TWI_CLOSING_SAY_LIST && closer->state == TWI_CLOSER_LIST) closer->cursor = closer->page;
    }
    if (answer->kind == TWI_CLOSING_TOLD_REFUSED) say->family->closing.at_ms = now_ms + REFUSED_MS;
}

/* ---- the end ---- */

bool twi_closing_is_busy(const struct tw_family *family) {
    const struct twi_family_closing *closing = &family->closing;
    if (closing->in_flight || closing->kept_in_flight || closing->closers != NULL) return true;
    return closing->known && !closing->left && is_connected(family->engine);
}

bool twi_closing_is_over(tw_engine *engine) {
    if (engine->sync == NULL || !is_connected(engine)) return true;
    for (struct tw_family *family = twi_load_acquire(&engine->specials); family != NULL;
         family = twi_load_acquire(&family->next_special))
        if (family->closes_once && !family->closing.left && (family->closing.known || family->closing.in_flight))
            return false;
    return true;
}
