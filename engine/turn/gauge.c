/* gauge.c -- families of kind TW_KIND_GAUGE with Redis. This engine sends full statements of its contributions again
 * and again.
 *
 * In Redis the deltas of a counter stay, but a gauge's contribution must end with the engine that counts it. So a gauge
 * sends no deltas. The items of a gauge (items.h, TWI_ITEM_GAUGE) contain the whole count of this engine for the key.
 * Redis keeps one such contribution for each engine, with a separate expiry, and replies with the sum of the
 * contributions that have not expired. A repeated statement has no effect, so gauges need no batches, ledgers or
 * replays. The engine sends a contribution again before it expires (this file), when it has changed (dirty.c), and
 * after a stall or an outage, because then it is due. An engine that closes sends 0 last.
 * Always true: only the turn runs this file, in bounded pieces. A key is not sent if this engine has no count under
 * it and never had one. Without Redis, a gauge is a counter. */
#include "engine/turn/gauge.h"

#include "engine/count/dirty.h"
#include "engine/core/appointment.h"
#include "engine/core/family.h"
#include "engine/reserve/hold_book.h"
#include "engine/core/presence.h"

bool twi_gauge_leaves(const struct tw_family *family) {
    return family->engine->turn.closing || twi_load_relaxed(&family->requests.close_requested);
}

struct walk {
    tw_engine *engine;
    struct twi_generation *generation;
};

static bool send_again(void *ctx, struct twi_cell *cell, uint64_t meta) {
    struct walk *walk = ctx;
    struct twi_cold *cold = twi_generation_cold(walk->generation, cell, meta);
    if (twi_load_relaxed(&cold->handed) != 0) twi_dirty_owe(walk->engine, walk->generation, cell, meta);
    return true;
}

/* Continues with the family's only window. */
static void send_some(tw_engine *engine, struct tw_family *family, struct twi_generation *generation) {
    twi_check(family->kind.gauge && generation->family == family);
    struct walk walk = {engine, generation};
    family->turn.gauge.cursor.looks = TWI_WORK_TURN;
    twi_table_walk(&engine->arena, generation, &family->turn.gauge.cursor, send_again, &walk);
    if (!family->turn.gauge.cursor.done) return;
    (void)send_again(&walk, &generation->overflow, twi_load_relaxed(&generation->overflow.meta));
    family->turn.gauge.cursor = (struct twi_cursor){0};
    family->turn.gauge.last_ms = engine->turn.mono_ms;
    family->turn.gauge.runs = false;
    engine->collector.hurried = true; /* the interval may be longer than the lifetime of a contribution */
}

void twi_gauge_appoint(struct tw_family *family) {
    twi_check(family->kind.gauge);
    const struct twi_family_gauge *gauge = &family->turn.gauge;
    /* The search does not use `current`, which is set by a thread that finds the window. A gauge may be set only once,
     * by the thread that made the window. */
    bool has_any = family->turn.generations != 0 && !twi_gauge_leaves(family);
    twi_appointment_set(&family->engine->agenda.gauges, &family->agenda.special,
                        !has_any      ? TWI_APPOINTMENT_NEVER
                        : gauge->runs ? family->engine->turn.mono_ms
                                      : twi_time_add(gauge->last_ms, twi_presence_resend_ms(family->engine)));
}

/* If a family is not finished, its next piece follows in the next turn. Meanwhile the family is in no heap, so its
 * appointment can be used for a list. */
void twi_gauge_turn(tw_engine *engine) {
    twi_check(twi_turn_is_owned(engine));
    struct twi_appointment *done = NULL;
    for (struct tw_family *family;
         (family = twi_appointment_take(&engine->agenda.gauges, engine->turn.mono_ms)) != NULL;) {
        family->agenda.special.next = done;
        done = &family->agenda.special;
        if (family->turn.generations == 0 || twi_gauge_leaves(family)) continue;
        family->turn.gauge.runs = true;
        send_some(engine, family, twi_generation_at(&engine->arena, family->turn.generations));
    }
    while (done != NULL) {
        struct tw_family *family = done->family;
        done = done->next;
        family->agenda.special.next = NULL;
        twi_gauge_appoint(family);
    }
}

void twi_port_presence_resend(tw_engine *engine) {
    twi_hold_book_resend(engine);
    for (struct tw_family *family = twi_load_acquire(&engine->roster.first); family != NULL;
         family = twi_load_acquire(&family->entry.next)) {
        if (!family->kind.gauge) continue;
        family->turn.gauge.cursor = (struct twi_cursor){0};
        family->turn.gauge.runs = true;
        twi_gauge_appoint(family);
    }
}
