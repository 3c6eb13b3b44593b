/* parts.c -- see parts.h. The scripts gauge.lua and hold.lua have the format. */
#include "sync/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/atomic.h"
#include "engine/check.h"
#include "sync/answer.h"
#include "sync/pipeline.h"
#include "sync/refusal.h"
#include "sync/sync.h"

#include "gauge.lua.h"
#include "gauge.lua.sha1.h"
#include "hold.lua.h"
#include "hold.lua.sha1.h"
#include "stock.lua.h"
#include "stock.lua.sha1.h"

#define REFUSED_MS 1000 /* Redis will hardly think better of it sooner */

bool twi_parts_take(struct twi_sync *sync, const struct twi_item *items, size_t count) {
    struct twi_parts *parts = &sync->parts;
    size_t waiting = parts->end - parts->at;
    if (parts->at != 0) {
        memmove(parts->waiting, parts->waiting + parts->at, waiting * sizeof *parts->waiting);
        parts->at = 0;
        parts->end = (uint32_t)waiting;
    }
    if (waiting + count > parts->room) {
        size_t room = (waiting + count) * 2;
        struct twi_item *more = realloc(parts->waiting, room * sizeof *more);
        if (!more) return false;
        parts->waiting = more;
        parts->room = (uint32_t)room;
    }
    memcpy(parts->waiting + parts->end, items, count * sizeof *items);
    parts->end += (uint32_t)count;
    parts->taken += count;
    return true;
}

/* ---- out --------------------------------------------------------------------------------------------------------- */

static void begin(struct twi_sync *sync, uint32_t what, size_t keys, size_t args) {
    static const struct {
        const char *text, *sha1;
    } scripts[TWI_SAYS] = {
        [TWI_SAYS_GAUGES] = {twi_script_gauge, twi_script_gauge_sha1},
        [TWI_SAYS_HOLDS] = {twi_script_hold, twi_script_hold_sha1},
        [TWI_SAYS_SWEEP] = {twi_script_stock, twi_script_stock_sha1},
    };
    bool eval = sync->parts.use_eval[what];
    sync->parts.use_eval[what] = false;
    twi_wire_begin(&sync->out, 3 + keys + args);
    twi_wire_put_text(&sync->out, eval ? "EVAL" : "EVALSHA");
    twi_wire_put_text(&sync->out, eval ? scripts[what].text : scripts[what].sha1);
    twi_wire_put_u64(&sync->out, keys);
}

static int64_t life_ms(void) {
    return twi_load_relaxed(&twi_part_life_ms);
}

static void await(struct twi_sync *sync, struct twi_statement statement) {
    struct twi_parts *parts = &sync->parts;
    parts->ring[(parts->first + parts->count++) % TWI_PARTS_MAX] = statement;
    twi_pipeline_await(sync, TWI_PARTS_SAID, NULL, 1);
}

/* Of scripts that callers ask, too (ask.h): nobody in particular asks. */
static void put_nobody(struct twi_sync *sync) {
    twi_wire_put_text(&sync->out, "");
    twi_wire_put_text(&sync->out, "0");
    twi_wire_put_text(&sync->out, "1");
}

/* Which engine counts: random, and kept for its life, whatever becomes of the ledger's. */
static const char *instance_of(struct twi_sync *sync) {
    struct twi_parts *parts = &sync->parts;
    if (parts->instance[0] == '\0')
        snprintf(parts->instance, sizeof parts->instance, "%016llx%016llx", (unsigned long long)twi_sync_random(sync),
                 (unsigned long long)twi_sync_random(sync));
    return parts->instance;
}

static bool say_gauges(struct twi_sync *sync) {
    struct twi_parts *parts = &sync->parts;
    uint32_t count = parts->end - parts->at;
    char name[TWI_OWN_NAME_MAX];
    if (count > TWI_PARTS_KEYS_MAX) count = TWI_PARTS_KEYS_MAX;
    struct twi_item *items = malloc(count * sizeof *items);
    if (!items) return false; /* later */
    memcpy(items, parts->waiting + parts->at, count * sizeof *items);
    parts->at += count;
    begin(sync, TWI_SAYS_GAUGES, 2 * (size_t)count, 3 + (size_t)count);
    for (uint32_t i = 0; i < count; i++) {
        twi_wire_put(&sync->out, name, twi_port_render(&items[i], name));
        twi_wire_put(&sync->out, name, twi_port_render_own(&items[i], "gauge", name));
    }
    twi_wire_put_text(&sync->out, instance_of(sync));
    twi_wire_put_i64(&sync->out, life_ms());
    twi_wire_put_u64(&sync->out, ++parts->number);
    for (uint32_t i = 0; i < count; i++) twi_wire_put_i64(&sync->out, items[i].units);
    await(sync, (struct twi_statement){TWI_SAYS_GAUGES, items, count, 0});
    return true;
}

static bool say_holds(struct twi_sync *sync) {
    static const struct twi_hold_part none;
    struct twi_bytes keys = {0}, members = {0};
    uint32_t count = 0;
    for (struct twi_hold_part part = none; count < TWI_PARTS_KEYS_MAX && twi_port_hold_due(sync->engine, &part);
         count++) {
        twi_wire_put(&keys, part.name, part.name_size);
        twi_wire_put_text(&members, part.member);
    }
    if (count != 0) twi_port_holds_sent(sync->engine);
    if (count != 0 && !keys.failed &&
        !members.failed) { /* without memory they come again when a third of their life is over */
        begin(sync, TWI_SAYS_HOLDS, count, 6 + (size_t)count);
        twi_bytes_add(&sync->out, keys.data, keys.size);
        put_nobody(sync);
        twi_wire_put_text(&sync->out, "state");
        twi_wire_put_i64(&sync->out, life_ms());
        twi_wire_put_text(&sync->out, "0");
        twi_bytes_add(&sync->out, members.data, members.size);
        await(sync, (struct twi_statement){TWI_SAYS_HOLDS, NULL, count, 0});
    } else if (count != 0) {
        twi_port_holds_told(sync->engine);
    }
    twi_bytes_free(&keys);
    twi_bytes_free(&members);
    return count != 0;
}

static bool say_sweep(struct twi_sync *sync) {
    struct twi_sweep sweep;
    if (!twi_port_sweep_due(sync->engine, &sweep)) return false;
    begin(sync, TWI_SAYS_SWEEP, 3, 5);
    for (int i = 0; i < 3; i++) twi_wire_put(&sync->out, sweep.names[i], sweep.sizes[i]);
    put_nobody(sync);
    twi_wire_put_text(&sync->out, "sweep");
    twi_wire_put_text(&sync->out, "");
    await(sync, (struct twi_statement){TWI_SAYS_SWEEP, NULL, 1, sweep.serial});
    return true;
}

void twi_parts_step(struct twi_sync *sync, int64_t now_ms) {
    struct twi_parts *parts = &sync->parts;
    /* A rewind waits for all answers that are under way. */
    if (sync->rewind || sync->breaker.state != TWI_BREAKER_CLOSED || sync->merge != TW_MERGE_SCRIPT) return;
    bool was_empty = sync->out.size == 0;
    while (twi_parts_wait(parts) && say_gauges(sync)) continue;
    while (parts->count < TWI_PARTS_MAX && say_holds(sync)) continue;
    while (parts->count < TWI_PARTS_MAX && say_sweep(sync)) continue;
    if (was_empty && sync->out.size != 0) sync->out_moved_ms = now_ms;
}

/* ---- in ---------------------------------------------------------------------------------------------------------- */

/* Not told: gauges go back to their counters, which know the whole by then, and a flush begins its round anew; the others are
 * said again in a while. */
static void give_back(struct twi_sync *sync, const struct twi_statement *statement, uint32_t after_ms) {
    if (statement->what == TWI_SAYS_SWEEP) twi_port_sweep_told(sync->engine, statement->serial, after_ms);
    if (statement->what != TWI_SAYS_GAUGES) return;
    for (uint32_t i = 0; i < statement->count; i++) twi_port_return(&statement->items[i], after_ms);
    sync->parts.told += statement->count;
    if (after_ms != 0) {
        twi_ticket_refused(&sync->tickets);
    } else if (twi_ticket_again(&sync->tickets)) {
        sync->begin_again = true;
        sync->parts.until = 0;
    }
}

static struct twi_statement take_first(struct twi_sync *sync) {
    struct twi_parts *parts = &sync->parts;
    struct twi_statement first = parts->ring[parts->first];
    parts->first = (parts->first + 1) % TWI_PARTS_MAX;
    parts->count--;
    if (first.what == TWI_SAYS_HOLDS) twi_port_holds_told(sync->engine);
    return first;
}

/* One that is refused is said again like the others, before its life is over; until then flushes know that it is not there. */
static void tell_gauge(struct twi_sync *sync, const struct twi_item *item, const struct twi_node *node,
                       int64_t now_ms) {
    struct twi_answer answer = {0};
    answer.has_total = node->type != TWI_NODE_ERROR && twi_node_i64(node, &answer.total);
    if (node->type == TWI_NODE_ERROR)
        (void)twi_refusal_key(sync, item, node, now_ms + life_ms());
    else if (sync->poison.count)
        twi_poison_remove(&sync->poison, item, UINT64_MAX);
    twi_port_acknowledge(item, &answer);
}

/* False: the reply is not one of the script's. */
static bool tell_gauges(struct twi_sync *sync, const struct twi_statement *said, const struct twi_node *nodes,
                        size_t count, int64_t now_ms) {
    if (nodes->type != TWI_NODE_ARRAY || count != said->count + (size_t)1) return false;
    for (uint32_t i = 1; i <= said->count; i++)
        if (nodes[i].depth != 1 || nodes[i].type == TWI_NODE_ARRAY) return false;
    for (uint32_t i = 0; i < said->count; i++) tell_gauge(sync, &said->items[i], &nodes[i + 1], now_ms);
    sync->parts.told += said->count;
    return true;
}

/* An error instead of an answer. False: perhaps done, or a replica's: that is for a new connection to say again. */
static bool take_error(struct twi_sync *sync, const struct twi_statement *said, const struct twi_node *error) {
    static const char *const words[TWI_SAYS] = {"gauges", "what is held", "to take back what is over"};
    enum twi_answer_kind kind = twi_answer_error(error);
    if (kind == TWI_ANSWER_NOSCRIPT) {
        sync->parts.use_eval[said->what] = true;
        give_back(sync, said, 0);
        if (said->what == TWI_SAYS_HOLDS) twi_port_parts_again(sync->engine);
        return true;
    }
    twi_refusal_report(sync, words[said->what], error);
    give_back(sync, said, REFUSED_MS);
    return kind != TWI_ANSWER_UNKNOWN && !twi_answer_is_replicas(error);
}

/* False: the reply is not one of the script's. */
static bool take_answer(struct twi_sync *sync, const struct twi_statement *said, const struct twi_node *nodes,
                        size_t count, int64_t now_ms) {
    int64_t wait_ms = -1;
    if (said->what == TWI_SAYS_GAUGES) return tell_gauges(sync, said, nodes, count, now_ms);
    if (said->what == TWI_SAYS_HOLDS) return true;
    if (nodes->type != TWI_NODE_ARRAY || count != 6 || !twi_node_i64(&nodes[5], &wait_ms)) return false;
    twi_port_sweep_told(sync->engine, said->serial, wait_ms);
    return true;
}

void twi_parts_reply(struct twi_sync *sync, const struct twi_pending *pending, const struct twi_node *nodes,
                     size_t count, int64_t now_ms) {
    (void)pending;
    struct twi_statement said = take_first(sync);
    bool well = true, is_replicas = nodes->type == TWI_NODE_ERROR && twi_answer_is_replicas(nodes);
    if (nodes->type == TWI_NODE_ERROR) {
        well = take_error(sync, &said, nodes);
    } else if (!take_answer(sync, &said, nodes, count, now_ms)) {
        give_back(sync, &said, 0);
        well = false;
    }
    free(said.items);
    if (is_replicas) sync->lost_logged = true; /* the outage has its line */
    if (!well) twi_sync_fail(sync, is_replicas, is_replicas ? NULL : "a reply that is not understood");
}

void twi_parts_dropped(struct twi_sync *sync) {
    struct twi_parts *parts = &sync->parts;
    while (parts->count != 0) {
        struct twi_statement lost = take_first(sync);
        give_back(sync, &lost, 0);
        free(lost.items);
    }
    struct twi_statement waiting = {TWI_SAYS_GAUGES, parts->waiting + parts->at, parts->end - parts->at, 0};
    if (waiting.count != 0) give_back(sync, &waiting, 0);
    parts->at = parts->end = 0;
}

void twi_parts_free(struct twi_sync *sync) {
    struct twi_parts *parts = &sync->parts;
    for (uint32_t i = 0; i < parts->count; i++) free(parts->ring[(parts->first + i) % TWI_PARTS_MAX].items);
    free(parts->waiting);
}
