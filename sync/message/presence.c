/* presence.c -- see presence.h. The scripts gauge.lua and hold.lua have the format. */
#include "sync/message/presence.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/atomic.h"
#include "engine/base/check.h"
#include "engine/port/items.h"
#include "engine/port/messages.h"
#include "engine/port/services.h"
#include "sync/batch/reply.h"
#include "sync/message/message.h"
#include "sync/message/refusal.h"
#include "sync/message/state.h"

#include "gauge.lua.h"
#include "gauge.lua.sha1.h"
#include "hold.lua.h"
#include "hold.lua.sha1.h"
#include "reserve.lua.h"
#include "reserve.lua.sha1.h"

#define REFUSED_MS 1000 /* Redis will hardly think better of it sooner */

bool twi_presence_take(struct twi_presence *presence, const struct twi_item *items, size_t count) {
    size_t waiting = presence->end - presence->at;
    if (presence->at != 0) {
        memmove(presence->waiting, presence->waiting + presence->at, waiting * sizeof *presence->waiting);
        presence->at = 0;
        presence->end = (uint32_t)waiting;
    }
    if (waiting + count > presence->room) {
        size_t room = (waiting + count) * 2;
        struct twi_item *more = realloc(presence->waiting, room * sizeof *more);
        if (!more) return false;
        presence->waiting = more;
        presence->room = (uint32_t)room;
    }
    memcpy(presence->waiting + presence->end, items, count * sizeof *items);
    presence->end += (uint32_t)count;
    presence->taken += count;
    return true;
}

static struct twi_statement *free_slot(struct twi_presence *presence) {
    uint32_t i = 0;
    while (presence->statements[i].is_under_way) i++;
    return &presence->statements[i];
}

static bool answered(struct twi_sync *sync, void *ctx, enum twi_message_outcome outcome, const struct twi_node *nodes,
                     size_t count, int64_t now_ms);

/* ---- out --------------------------------------------------------------------------------------------------------- */

/* False: no memory; nobody will be told. */
static bool send_statement(struct twi_sync *sync, struct twi_statement statement, size_t keys, size_t args,
                           struct twi_bytes *words, int64_t now_ms) {
    struct twi_store *store = &sync->store;
    static const struct twi_script_source scripts[TWI_STATEMENTS] = {
        [TWI_STATEMENT_GAUGES] = {twi_script_gauge, twi_script_gauge_sha1},
        [TWI_STATEMENT_HOLDS] = {twi_script_hold, twi_script_hold_sha1},
        [TWI_STATEMENT_SWEEP] = {twi_script_reserve, twi_script_reserve_sha1},
    };
    struct twi_statement *slot = free_slot(&store->presence);
    const struct twi_message side = {.sender = TWI_SENDER_PRESENCE,
                                     .script = &scripts[statement.what],
                                     .key_count = keys,
                                     .argument_count = keys + args,
                                     .done = answered,
                                     .ctx = slot};
    if (!twi_message_send_encoded(sync, &side, words, now_ms)) return false;
    *slot = statement;
    slot->is_under_way = true;
    store->presence.count++;
    return true;
}

static int64_t life_ms(void) {
    return twi_load_relaxed(&twi_presence_life_ms);
}

/* Of scripts that callers ask, too (pool.h): nobody in particular asks. */
static void put_nobody(struct twi_bytes *words) {
    twi_wire_put_text(words, "");
    twi_wire_put_text(words, "0");
    twi_wire_put_text(words, "1");
}

static bool send_gauges(struct twi_sync *sync, int64_t now_ms) {
    struct twi_presence *presence = &sync->store.presence;
    uint32_t count = presence->end - presence->at;
    char name[TWI_OWN_NAME_MAX];
    struct twi_bytes words = {0};
    if (count > TWI_PRESENCE_KEYS_MAX) count = TWI_PRESENCE_KEYS_MAX;
    struct twi_item *items = malloc(count * sizeof *items);
    if (!items) return false; /* later */
    memcpy(items, presence->waiting + presence->at, count * sizeof *items);
    twi_wire_put_u64(&words, 2 * (uint64_t)count);
    for (uint32_t i = 0; i < count; i++) {
        twi_wire_put(&words, name, twi_port_render(&items[i], name));
        twi_wire_put(&words, name, twi_port_render_own(&items[i], "gauge", name));
    }
    twi_wire_put_text(&words, twi_port_engine_id(sync->engine));
    twi_wire_put_i64(&words, life_ms());
    twi_wire_put_u64(&words, presence->number + 1);
    for (uint32_t i = 0; i < count; i++) twi_wire_put_i64(&words, items[i].units);
    struct twi_statement statement = {.what = TWI_STATEMENT_GAUGES, .items = items, .count = count};
    if (!send_statement(sync, statement, 2 * (size_t)count, 3 + (size_t)count, &words, now_ms)) {
        free(items);
        return false; /* later */
    }
    presence->at += count;
    presence->number++;
    return true;
}

static void holds_answered(struct twi_sync *sync, uint64_t serial) {
    struct twi_presence *presence = &sync->store.presence;
    presence->holds_done |= 1u << (serial - presence->holds_answered - 1);
    for (; presence->holds_done & 1; presence->holds_done >>= 1, presence->holds_answered++)
        twi_port_holds_answered(sync->engine);
}

static bool send_holds(struct twi_sync *sync, int64_t now_ms) {
    static const struct twi_hold_member none;
    struct twi_bytes keys = {0}, members = {0}, words = {0};
    uint32_t count = 0;
    for (struct twi_hold_member part = none; count < TWI_PRESENCE_KEYS_MAX && twi_port_hold_due(sync->engine, &part);
         count++) {
        twi_wire_put(&keys, part.name, part.name_size);
        twi_wire_put_text(&members, part.member);
    }
    if (count != 0) {
        twi_port_holds_sent(sync->engine);
        struct twi_statement statement = {
            .what = TWI_STATEMENT_HOLDS, .count = count, .serial = ++sync->store.presence.holds_sent};
        twi_wire_put_u64(&words, count);
        twi_bytes_add(&words, keys.data, keys.size);
        put_nobody(&words);
        twi_wire_put_text(&words, "state");
        twi_wire_put_i64(&words, life_ms());
        twi_wire_put_text(&words, "0");
        twi_bytes_add(&words, members.data, members.size);
        if (keys.failed || members.failed) words.failed = true;
        if (!send_statement(sync, statement, count, 6 + (size_t)count, &words, now_ms))
            holds_answered(sync, statement.serial); /* they come again when a third of their life is over */
    }
    twi_bytes_free(&keys);
    twi_bytes_free(&members);
    return count != 0;
}

static bool send_sweep(struct twi_sync *sync, int64_t now_ms) {
    struct twi_sweep sweep;
    struct twi_bytes words = {0};
    if (!twi_port_sweep_due(sync->engine, &sweep)) return false;
    twi_wire_put_u64(&words, 3);
    for (int i = 0; i < 3; i++) twi_wire_put(&words, sweep.names[i], sweep.sizes[i]);
    put_nobody(&words);
    twi_wire_put_text(&words, "sweep");
    twi_wire_put_text(&words, "");
    struct twi_statement statement = {.what = TWI_STATEMENT_SWEEP, .count = 1, .serial = sweep.serial};
    if (!send_statement(sync, statement, 3, 5, &words, now_ms))
        twi_port_sweep_answered(sync->engine, sweep.serial, REFUSED_MS);
    return true;
}

void twi_presence_step(struct twi_sync *sync, int64_t now_ms) {
    while (twi_presence_wait(&sync->store.presence) && twi_message_may_send(sync, TWI_SENDER_PRESENCE) &&
           send_gauges(sync, now_ms))
        continue;
    while (twi_message_may_send(sync, TWI_SENDER_PRESENCE) && send_holds(sync, now_ms)) continue;
    while (twi_message_may_send(sync, TWI_SENDER_PRESENCE) && send_sweep(sync, now_ms)) continue;
}

/* ---- in ---------------------------------------------------------------------------------------------------------- */

/* Not told: gauges go back to their counters, which know the whole by then, and a flush begins its round anew; the
 * others are said again in a while. */
static void give_back(struct twi_sync *sync, const struct twi_statement *statement, uint32_t after_ms) {
    struct twi_store *store = &sync->store;
    if (statement->what == TWI_STATEMENT_SWEEP) twi_port_sweep_answered(sync->engine, statement->serial, after_ms);
    if (statement->what != TWI_STATEMENT_GAUGES) return;
    for (uint32_t i = 0; i < statement->count; i++) twi_port_return(&statement->items[i], after_ms);
    store->presence.answered += statement->count;
    if (after_ms != 0) {
        twi_ticket_refused(&sync->tickets);
    } else if (twi_ticket_renew(&sync->tickets)) {
        sync->collecting.begin_again = true;
        store->presence.until = 0;
    }
}

/* One that is refused is said again like the others, before its life is over; until then flushes know that it is not
 * there. */
static void report_gauge(struct twi_sync *sync, const struct twi_item *item, const struct twi_node *node,
                         int64_t now_ms) {
    struct twi_store *store = &sync->store;
    struct twi_reply answer = {0};
    answer.has_total = node->type != TWI_NODE_ERROR && twi_node_i64(node, &answer.total);
    if (node->type == TWI_NODE_ERROR)
        (void)twi_refusal_key(sync, item, node, now_ms + life_ms());
    else if (store->poison.count)
        twi_poison_remove(&store->poison, item, UINT64_MAX);
    twi_port_acknowledge(item, &answer);
}

/* False: the reply is not one of the script's. */
static bool report_gauges(struct twi_sync *sync, const struct twi_statement *acked, const struct twi_node *nodes,
                          size_t count, int64_t now_ms) {
    if (nodes->type != TWI_NODE_ARRAY || count != acked->count + (size_t)1) return false;
    for (uint32_t i = 1; i <= acked->count; i++)
        if (nodes[i].depth != 1 || nodes[i].type == TWI_NODE_ARRAY) return false;
    for (uint32_t i = 0; i < acked->count; i++) report_gauge(sync, &acked->items[i], &nodes[i + 1], now_ms);
    sync->store.presence.answered += acked->count;
    return true;
}

/* An error instead of an answer. Where it was perhaps done, or a replica's, it is for a new connection to say it
 * again. */
static void take_error(struct twi_sync *sync, const struct twi_statement *acked, enum twi_message_outcome outcome,
                       const struct twi_node *error) {
    struct twi_connection *connection = &sync->connection;
    static const char *const words[TWI_STATEMENTS] = {"gauges", "what is held", "to take back what is over"};
    twi_refusal_report(connection, words[acked->what], error);
    give_back(sync, acked, REFUSED_MS);
    if (twi_reply_is_replicas(error)) {
        connection->outage.is_logged = true; /* the outage has its line */
        twi_connection_fail(connection, true, NULL);
    } else if (outcome == TWI_MESSAGE_UNKNOWN) {
        twi_connection_fail(connection, false, "a reply that is not understood");
    }
}

/* False: the reply is not one of the script's. */
static bool take_answer(struct twi_sync *sync, const struct twi_statement *acked, const struct twi_node *nodes,
                        size_t count, int64_t now_ms) {
    int64_t wait_ms = -1;
    if (acked->what == TWI_STATEMENT_GAUGES) return report_gauges(sync, acked, nodes, count, now_ms);
    if (acked->what == TWI_STATEMENT_HOLDS) return true;
    if (nodes->type != TWI_NODE_ARRAY || count != 6 || !twi_node_i64(&nodes[5], &wait_ms)) return false;
    twi_port_sweep_answered(sync->engine, acked->serial, wait_ms);
    return true;
}

static bool answered(struct twi_sync *sync, void *ctx, enum twi_message_outcome outcome, const struct twi_node *nodes,
                     size_t count, int64_t now_ms) {
    struct twi_statement *slot = ctx, acked = *slot;
    bool well = true;
    *slot = (struct twi_statement){.is_under_way = false};
    sync->store.presence.count--;
    if (acked.what == TWI_STATEMENT_HOLDS) holds_answered(sync, acked.serial);
    if (outcome == TWI_MESSAGE_ANSWERED)
        well = take_answer(sync, &acked, nodes, count, now_ms);
    else if (count != 0)
        take_error(sync, &acked, outcome, nodes);
    if (!well || (outcome != TWI_MESSAGE_ANSWERED && count == 0)) give_back(sync, &acked, 0);
    free(acked.items);
    return well;
}

void twi_presence_dropped(struct twi_sync *sync) {
    struct twi_presence *presence = &sync->store.presence;
    struct twi_statement waiting = {
        .what = TWI_STATEMENT_GAUGES, .items = presence->waiting + presence->at, .count = presence->end - presence->at};
    if (waiting.count != 0) give_back(sync, &waiting, 0);
    presence->at = presence->end = 0;
}

void twi_presence_free(struct twi_presence *presence) {
    for (uint32_t i = 0; i < TWI_PRESENCE_MAX; i++) free(presence->statements[i].items);
    free(presence->waiting);
}
