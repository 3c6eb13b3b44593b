/* closing_windows.c -- see closing_windows.h. */
#include "engine/turn/closing_windows.h"

#include "engine/base/lock.h"
#include "engine/core/appointment.h"
#include "engine/core/window_map.h"
#include "engine/memory/epoch.h"
#include "engine/turn/closing_tags.h"

#define DUE_MS 3000 /* the engines that have counted in a window need less time than this to close it */
#define HOLD_MS 500 /* counts wait for an announcement for at most this time */

bool twi_closing_has_hook(struct tw_family *family) {
    twi_lock(&family->engine->roster.lock);
    bool has = family->options.on_window_closed != NULL;
    twi_unlock(&family->engine->roster.lock);
    return has;
}

static int64_t due_ms(const struct tw_family *family, int64_t end_ms) {
    twi_check(family->kind.has_starts);
    return twi_time_add(twi_family_takes_until(family, end_ms), DUE_MS);
}

int64_t twi_closing_due_ms(const struct twi_generation *generation) {
    twi_check(generation->family->kind.closes_once);
    return due_ms(generation->family, generation->end_ms);
}

/* ---- names that batches record ---- */

void twi_port_window_names(const struct twi_item *item, struct twi_window_names *names) {
    twi_check((item->flags & TWI_ITEM_NAMED) != 0);
    static const char *const what[TWI_WINDOW_NAMES_KEYS] = {"names", "windows", "closed"};
    const struct twi_generation *generation = item->generation;
    const struct twi_key_template *template = &item->family->template;
    bool by_tag = twi_closing_tags_are_used(item->family);
    uint32_t group = by_tag ? twi_key_template_group(template, twi_port_key(item)) : 0;
    char name[TWI_REDIS_KEY_MAX];
    uint32_t count = by_tag ? 1 : TWI_WINDOW_NAMES_KEYS;
    names->key_count = count;
    for (uint32_t i = 0; i < count; i++) {
        int64_t start_ms = i == 1 ? 0 : generation->start_ms;
        size_t size = by_tag ? twi_key_template_render_group(template, group, start_ms, name)
                             : twi_key_template_render(template, tw_bytes("", 0), start_ms, name);
        names->sizes[i] = twi_key_template_own(template, what[i], name, size, names->keys[i]);
    }
    names->start_ms = generation->start_ms;
    names->due_ms = twi_closing_due_ms(generation);
    names->recorded = generation->turn.closing.names_recorded && !by_tag; /* by tag, and not about this group */
}

/* ---- windows that are announced ---- */

/* Returns true for a window of a family whose list of windows is in another store than its counts. */
static bool is_to_announce(const struct twi_generation *generation) {
    return !generation->turn.closing.is_listed && generation->family->kind.closes_once &&
           twi_closing_tags_are_used(generation->family);
}

/* Returns true if no heartbeat was answered for so long that other engines may assume that this engine is dead, and
 * close windows without it. In this case the engine announces its windows again. */
static bool may_be_forgotten(const tw_engine *engine, const struct twi_family_close_state *closing) {
    int64_t silent_ms = engine->turn.now_ms - closing->word_ms, least_ms = 3 * closing->every_ms;
    return silent_ms > least_ms && silent_ms > engine->here->remote.tuning.closing_life_ms / 2;
}

bool twi_closing_may_collect(tw_engine *engine, struct twi_generation *generation) {
    struct twi_family_close_state *closing = &generation->family->turn.closing;
    int64_t now_ms = engine->turn.mono_ms;
    if (generation->turn.closing.is_listed && may_be_forgotten(engine, closing))
        generation->turn.closing.is_listed = generation->turn.closing.is_held = false;
    if (twi_likely(!is_to_announce(generation)) || closing->left) return true;
    if (!generation->turn.closing.is_held) {
        generation->turn.closing.is_held = closing->announces = true;
        closing->at_ms = closing->at_ms < now_ms ? closing->at_ms : now_ms;
        struct twi_appointment *heartbeat = &generation->family->agenda.special;
        if (heartbeat->at_ms > closing->at_ms) twi_appointment_set(&engine->agenda.closings, heartbeat, closing->at_ms);
        if (closing->held_ms == 0) closing->held_ms = now_ms != 0 ? now_ms : 1;
    }
    return closing->held_ms != 0 && now_ms - closing->held_ms >= HOLD_MS;
}

static void announce(void *ctx, struct twi_generation *generation) {
    struct twi_closing_message *message = ctx;
    if (!is_to_announce(generation) || !generation->turn.closing.is_held) return;
    if (message->announced.count == TWI_CLOSING_LISTED_MAX) return;
    uint32_t i = message->announced.count++;
    message->announced.at[i].start_ms = generation->start_ms;
    message->announced.at[i].due_ms = twi_closing_due_ms(generation);
    message->announced.at[i].expiry_ms = generation->expiry_ms;
}

void twi_closing_announce(struct tw_family *family, struct twi_closing_message *message) {
    message->announced.count = 0;
    if (!message->by_tag) return;
    twi_window_visit(family, announce, message);
    family->turn.closing.announces = message->announced.count == TWI_CLOSING_LISTED_MAX;
}

void twi_closing_announced(struct tw_family *family, const struct twi_closing_message *message) {
    twi_check(message->announced.count <= TWI_CLOSING_LISTED_MAX);
    for (uint32_t i = 0; i < message->announced.count; i++) {
        struct twi_generation *generation = twi_window_find(family, message->announced.at[i].start_ms);
        if (generation != NULL) generation->turn.closing.is_listed = true;
    }
    if (message->announced.count == 0) return;
    family->turn.closing.held_ms = family->turn.closing.announces ? family->engine->turn.mono_ms : 0;
    family->engine->collector.hurried = true; /* the counts that waited are collected */
}

/* ---- windows of other engines ---- */

void twi_port_closing_window(tw_engine *engine, const struct twi_closing_message *message, int64_t start_ms) {
    twi_check(message->family != NULL && message->verb == TWI_CLOSING_SEND_HEARTBEAT);
    struct tw_family *family = message->family;
    struct twi_thread *self = twi_thread_here();
    if (self == NULL || !twi_calendar_holds(start_ms) || twi_closing_is_ending(family) || !twi_closing_has_hook(family))
        return;
    struct twi_span span = twi_calendar_span(&family->rule, start_ms);
    if (span.start_ms != start_ms) return; /* the family's windows were different when it was listed */
    if (due_ms(family, span.end_ms) > engine->turn.now_ms) return;
    twi_section_enter(self);
    struct twi_generation *generation = twi_window_open(family, span, 0);
    if (generation != NULL && twi_load_relaxed(&generation->phase) < TWI_HISTORY && !generation->turn.hook_done)
        generation->turn.closing.is_adopted = true;
    twi_section_leave(self);
}

bool twi_closing_awaits_word(const struct twi_generation *generation) {
    struct tw_family *family = generation->family;
    const struct twi_family_close_state *closing = &family->turn.closing;
    if (twi_closing_is_ending(family) || !closing->known || family->engine->turn.hooks_partial) return false;
    if (closing->word_ms >= twi_closing_due_ms(generation)) return false;
    return twi_closing_has_hook(family);
}
