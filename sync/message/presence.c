/* presence.c -- see presence.h. The scripts gauge.lua, hold.lua and reserve.lua define the format. */
#include "sync/message/presence.h"

#include "engine/base/check.h"
#include "engine/port/items.h"
#include "engine/port/messages.h"
#include "engine/port/services.h"
#include "gauge.lua.h"
#include "hold.lua.h"
#include "registry.lua.h"
#include "reserve.lua.h"
#include "sync/batch/reply.h"
#include "sync/message/message.h"
#include "sync/message/refusal.h"
#include "sync/message/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REFUSED_MS 1000  /* after a refusal; an earlier retry is pointless */
#define SWEEP_MS 3600000 /* Redis names the next end of a reservation; the next sweep comes no later than this */

static struct twi_statement *presence_free_slot(struct twi_presence *presence) {
    twi_check(presence->count < TWI_PRESENCE_MAX);
    uint32_t i = 0;
    while (presence->statements[i].is_under_way) i++;
    return &presence->statements[i];
}

static bool presence_answered(struct twi_sync *sync, struct twi_connection *connection, void *ctx,
                              enum twi_message_outcome outcome, const struct twi_node *nodes, size_t count,
                              int64_t now_ms);

/* ---- out --------------------------------------------------------------------------------------------------------- */

/* False if it was not sent (no memory); presence_answered() is not called. */
static bool send_statement(struct twi_sync *sync, struct twi_store *store, struct twi_statement statement, size_t keys,
                           size_t args, struct twi_bytes *words, int64_t now_ms) {
    twi_check(statement.what < TWI_STATEMENTS && keys != 0);
    static const struct twi_script_source scripts[TWI_STATEMENTS] = {
        [TWI_STATEMENT_GAUGES] = {twi_script_gauge, twi_script_gauge_sha1},
        [TWI_STATEMENT_HOLDS] = {twi_script_hold, twi_script_hold_sha1},
        [TWI_STATEMENT_SWEEP] = {twi_script_reserve, twi_script_reserve_sha1},
    };
    struct twi_statement *slot = presence_free_slot(&sync->senders.presence);
    const struct twi_message side = {.sender = TWI_SENDER_PRESENCE,
                                     .store = store,
                                     .script = &scripts[statement.what],
                                     .key_count = keys,
                                     .argument_count = keys + args,
                                     .done = presence_answered,
                                     .ctx = slot};
    if (!twi_message_send_encoded(sync, &side, words, now_ms)) return false;
    *slot = statement;
    slot->is_under_way = true;
    sync->senders.presence.count++;
    return true;
}

static int64_t life_ms(const struct twi_sync *sync) {
    return twi_port_tuning(sync->engine)->presence_life_ms;
}

/* The first three arguments, which the scripts of waiting calls also have (ask/lanes.h). They mean no caller,
 * number 0, a request. */
static void put_nobody(struct twi_bytes *words) {
    twi_wire_put_text(words, "");
    twi_wire_put_text(words, "0");
    twi_wire_put_text(words, "1");
}

static bool send_gauges(struct twi_sync *sync, int64_t now_ms) {
    struct twi_presence *presence = &sync->senders.presence;
    char name[TWI_OWN_NAME_MAX];
    struct twi_bytes words = {0};
    struct twi_store *store;
    uint32_t count = twi_waiting_choose(sync, &presence->waiting, TWI_SENDER_PRESENCE, TWI_PRESENCE_KEYS_MAX, &store);
    if (count == 0) return false;
    struct twi_item *items = malloc(count * sizeof *items);
    if (!items) return false; /* later */
    memcpy(items, presence->waiting.items + presence->waiting.at, count * sizeof *items);
    twi_wire_put_u64(&words, 2 * (uint64_t)count);
    for (uint32_t i = 0; i < count; i++) {
        twi_wire_put(&words, name, twi_port_render(&items[i], name));
        twi_wire_put(&words, name, twi_port_render_own(&items[i], "gauge", name));
    }
    twi_wire_put_text(&words, twi_port_engine_id(sync->engine));
    twi_wire_put_i64(&words, life_ms(sync));
    twi_wire_put_u64(&words, presence->number + 1);
    for (uint32_t i = 0; i < count; i++) twi_wire_put_i64(&words, items[i].units);
    struct twi_statement statement = {.what = TWI_STATEMENT_GAUGES, .items = items, .count = count};
    if (!send_statement(sync, store, statement, 2 * (size_t)count, 3 + (size_t)count, &words, now_ms)) {
        free(items);
        return false; /* later */
    }
    presence->waiting.at += count;
    twi_check(presence->waiting.at <= presence->waiting.end);
    presence->number++;
    return true;
}

static void holds_answered(struct twi_sync *sync, uint64_t serial) {
    twi_check(serial > sync->senders.presence.holds_answered);
    twi_check(serial <= sync->senders.presence.holds_sent && serial - sync->senders.presence.holds_answered <= 32);
    struct twi_presence *presence = &sync->senders.presence;
    presence->holds_done |= 1u << (serial - presence->holds_answered - 1);
    for (; presence->holds_done & 1; presence->holds_done >>= 1, presence->holds_answered++)
        twi_port_holds_answered(sync->engine);
}

/* If there are several stores, each hold has a separate statement. */
static bool send_holds(struct twi_sync *sync, int64_t now_ms) {
    static const struct twi_hold_member none;
    struct twi_bytes keys = {0}, members = {0}, words = {0};
    struct twi_hold_member part = none;
    uint32_t count = 0, most = sync->by_slot ? 1 : TWI_PRESENCE_KEYS_MAX;
    for (; count < most && twi_port_hold_due(sync->engine, &part); count++) {
        twi_wire_put(&keys, part.name, part.name_size);
        twi_wire_put_text(&members, part.member);
    }
    if (count != 0) {
        twi_port_holds_sent(sync->engine);
        struct twi_statement statement = {
            .what = TWI_STATEMENT_HOLDS, .count = count, .serial = ++sync->senders.presence.holds_sent};
        twi_wire_put_u64(&words, count);
        twi_bytes_add(&words, keys.data, keys.size);
        put_nobody(&words);
        twi_wire_put_text(&words, "state");
        twi_wire_put_i64(&words, life_ms(sync));
        twi_wire_put_text(&words, "0");
        twi_bytes_add(&words, members.data, members.size);
        struct twi_store *store = twi_sync_store_of(sync, part.name, part.name_size);
        if (keys.failed || members.failed || !store) words.failed = true;
        if (!send_statement(sync, store, statement, count, 6 + (size_t)count, &words, now_ms))
            holds_answered(sync, statement.serial); /* the engine re-sends them after a third of their lifetime */
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
    struct twi_store *store = twi_sync_store_of(sync, sweep.names[0], sweep.sizes[0]);
    if (!store) words.failed = true;
    if (!send_statement(sync, store, statement, 3, 5, &words, now_ms))
        twi_port_sweep_answered(sync->engine, sweep.serial, REFUSED_MS);
    return true;
}

/* Where there are several stores, a statement shows to which it goes. */
static bool presence_may_send(const struct twi_sync *sync) {
    if (!sync->by_slot) return twi_message_may_send(sync, NULL, TWI_SENDER_PRESENCE);
    return sync->senders.presence.count < TWI_PRESENCE_MAX;
}

/* Gauges of stores that accept no message now wait for the next turns. Too many would keep counters from being
 * collected. */
static void hold_back(struct twi_sync *sync) {
    struct twi_waiting *waiting = &sync->senders.presence.waiting;
    waiting->is_held = sync->by_slot && twi_presence_wait(&sync->senders.presence);
    if (waiting->is_held && twi_waiting_is_full(waiting)) twi_waiting_return_all(sync, waiting, REFUSED_MS);
}

void twi_presence_step(struct twi_sync *sync, int64_t now_ms) {
    sync->senders.presence.waiting.is_held = false;
    while (twi_presence_wait(&sync->senders.presence) && presence_may_send(sync) && send_gauges(sync, now_ms)) continue;
    hold_back(sync);
    while (presence_may_send(sync) && send_holds(sync, now_ms)) continue;
    while (presence_may_send(sync) && send_sweep(sync, now_ms)) continue;
}

/* ---- in ---------------------------------------------------------------------------------------------------------- */

/* The statement was not acknowledged. Items of gauges go back to their counters. Holds and sweeps are sent again later.
 */
static void presence_give_back(struct twi_sync *sync, const struct twi_statement *statement, uint32_t after_ms) {
    twi_check(statement->what < TWI_STATEMENTS);
    if (statement->what == TWI_STATEMENT_SWEEP) twi_port_sweep_answered(sync->engine, statement->serial, after_ms);
    if (statement->what == TWI_STATEMENT_GAUGES)
        twi_waiting_return(sync, &sync->senders.presence.waiting, statement->items, statement->count, after_ms);
}

/* A refused gauge is re-sent as all gauges are, before its lifetime is over. Until then flushes count it as refused. */
static void report_gauge(struct twi_sync *sync, const struct twi_item *item, const struct twi_node *node,
                         int64_t now_ms) {
    twi_check((item->flags & TWI_ITEM_GAUGE) != 0);
    struct twi_store *store = sync->stores[item->store];
    struct twi_reply answer = {0};
    answer.has_total = node->type != TWI_NODE_ERROR && twi_node_count(node, &answer.total);
    if (node->type == TWI_NODE_ERROR)
        (void)twi_refusal_key(sync, store, item, node, now_ms + life_ms(sync));
    else if (store->rejected.count)
        twi_rejected_settled(&store->rejected, item, UINT64_MAX);
    twi_port_acknowledge(item, &answer);
}

/* False means that the reply is not one of the script's. */
static bool report_gauges(struct twi_sync *sync, const struct twi_statement *acked, const struct twi_node *nodes,
                          size_t count, int64_t now_ms) {
    twi_check(acked->what == TWI_STATEMENT_GAUGES && count != 0);
    if (nodes->type != TWI_NODE_ARRAY || count != acked->count + (size_t)1) return false;
    for (uint32_t i = 1; i <= acked->count; i++)
        if (nodes[i].depth != 1 || nodes[i].type == TWI_NODE_ARRAY) return false;
    for (uint32_t i = 0; i < acked->count; i++) report_gauge(sync, &acked->items[i], &nodes[i + 1], now_ms);
    sync->senders.presence.waiting.answered += acked->count;
    return true;
}

/* Takes an error reply. If the statement was perhaps done, or if a replica refused it, the connection ends, and the
 * next one sends it again. */
static void presence_take_error(struct twi_sync *sync, struct twi_connection *connection,
                                const struct twi_statement *acked, enum twi_message_outcome outcome,
                                const struct twi_node *error) {
    twi_check(error->type == TWI_NODE_ERROR && acked->what < TWI_STATEMENTS);
    static const char *const words[TWI_STATEMENTS] = {"gauges", "what is held", "to take back what is over"};
    twi_refusal_report(connection, words[acked->what], error);
    presence_give_back(sync, acked, REFUSED_MS);
    twi_refusal_end(connection, outcome, error);
}

/* False means that the reply is not one of the script's. */
static bool presence_take_answer(struct twi_sync *sync, const struct twi_statement *acked, const struct twi_node *nodes,
                                 size_t count, int64_t now_ms) {
    twi_check(count != 0);
    int64_t wait_ms = -1;
    if (acked->what == TWI_STATEMENT_GAUGES) return report_gauges(sync, acked, nodes, count, now_ms);
    if (acked->what == TWI_STATEMENT_HOLDS) return true;
    bool is_bad = count == 3 && twi_node_is(&nodes[2], "BAD"); /* the counter's value is no number */
    if (is_bad) wait_ms = REFUSED_MS;
    if (!is_bad && (nodes->type != TWI_NODE_ARRAY || count != 6 || !twi_node_count(&nodes[5], &wait_ms))) return false;
    if (wait_ms > SWEEP_MS) wait_ms = SWEEP_MS;
    twi_port_sweep_answered(sync->engine, acked->serial, wait_ms);
    return true;
}

static bool presence_answered(struct twi_sync *sync, struct twi_connection *connection, void *ctx,
                              enum twi_message_outcome outcome, const struct twi_node *nodes, size_t count,
                              int64_t now_ms) {
    twi_check(sync->senders.presence.count != 0);
    struct twi_statement *slot = ctx, acked = *slot;
    bool well = true;
    *slot = (struct twi_statement){.is_under_way = false};
    sync->senders.presence.count--;
    if (acked.what == TWI_STATEMENT_HOLDS && count == 0) twi_port_holds_unsure(sync->engine);
    if (acked.what == TWI_STATEMENT_HOLDS) holds_answered(sync, acked.serial);
    if (outcome == TWI_MESSAGE_ANSWERED)
        well = presence_take_answer(sync, &acked, nodes, count, now_ms);
    else if (count != 0)
        presence_take_error(sync, connection, &acked, outcome, nodes);
    if (!well || (outcome != TWI_MESSAGE_ANSWERED && count == 0)) presence_give_back(sync, &acked, 0);
    free(acked.items);
    return well;
}

void twi_presence_dropped(struct twi_sync *sync) {
    twi_waiting_return_all(sync, &sync->senders.presence.waiting, 0);
}

void twi_presence_free(struct twi_presence *presence) {
    for (uint32_t i = 0; i < TWI_PRESENCE_MAX; i++) free(presence->statements[i].items);
    free(presence->waiting.items);
}

/* ---- registry ---- */

static const struct twi_script_source script = {twi_script_registry, twi_script_registry_sha1};

static void registry_refused(struct twi_sync *sync, struct twi_connection *connection, const struct twi_node *error,
                             int64_t now_ms) {
    twi_check(error->type == TWI_NODE_ERROR);
    struct twi_registry *registry = &sync->senders.registry;
    registry->at_ms = now_ms + TWI_REGISTRY_REFUSED_MS;
    if (!registry->is_logged) twi_refusal_report(connection, "the registry of live engines (tw:live)", error);
    registry->is_logged = true;
    twi_port_live_engines(sync->engine, 0);
}

static bool reported(struct twi_sync *sync, struct twi_connection *connection, void *ctx,
                     enum twi_message_outcome outcome, const struct twi_node *nodes, size_t count, int64_t now_ms) {
    twi_check(sync->senders.registry.awaiting);
    struct twi_registry *registry = &sync->senders.registry;
    int64_t live, every_ms;
    (void)ctx;
    registry->awaiting = false;
    if (outcome != TWI_MESSAGE_ANSWERED) {
        if (count != 0) registry_refused(sync, connection, nodes, now_ms);
        return true;
    }
    if (nodes->type != TWI_NODE_ARRAY || count < 4 || !twi_node_count(&nodes[3], &live)) return false;
    if (!twi_node_is(&nodes[1], "OK")) return true; /* CLASH, as engines of another version keep the registry */
    if (live < 1 || live > UINT32_MAX || count != 5 || !twi_node_pause(&nodes[4], &every_ms)) return false;
    /* The script requests half a millisecond for each engine. So a longer interval does not come from the script. */
    if (every_ms > 2 * live) every_ms = 2 * live;
    if (every_ms > TWI_REGISTRY_EVERY_MS) registry->at_ms += every_ms - TWI_REGISTRY_EVERY_MS;
    registry->is_logged = false;
    registry->reported = (uint32_t)live;
    if (now_ms < registry->before_until_ms && registry->reported < registry->before) live = registry->before;
    twi_port_live_engines(sync->engine, (uint32_t)live);
    if (registry->reported >= TWI_REGISTRY_MANY) registry->pause_ms = TWI_REGISTRY_EVERY_MS;
    return true;
}

void twi_registry_step(struct twi_sync *sync, int64_t now_ms) {
    struct twi_registry *registry = &sync->senders.registry;
    char name[TWI_LEDGER_NAME_MAX], ttl[16];
    /* An engine that closes takes no part in limits any more. It leaves, so that the others get its share at once. */
    bool leaves = twi_port_is_closing(sync->engine);
    if (registry->awaiting || registry->has_left || (!leaves && now_ms < registry->at_ms)) return;
    const char *id = twi_port_engine_id(sync->engine);
    size_t name_size = (size_t)snprintf(name, sizeof name, "%stw:live", twi_port_prefix(sync->engine));
    size_t ttl_size = (size_t)snprintf(ttl, sizeof ttl, "%d", leaves ? 0 : TWI_REGISTRY_MS);
    const struct twi_message_argument words[] = {{name, name_size}, {"1", 1}, {id, strlen(id)}, {ttl, ttl_size}};
    const struct twi_message side = {.sender = TWI_SENDER_REGISTRY,
                                     .script = &script,
                                     .arguments = words,
                                     .key_count = 1,
                                     .argument_count = 4,
                                     .done = reported,
                                     .ctx = NULL};
    if (!twi_message_send(sync, &side, now_ms)) return;
    registry->awaiting = true;
    twi_check(!leaves || twi_port_is_closing(sync->engine));
    registry->has_left = leaves;
    int64_t pause_ms = registry->pause_ms != 0 ? registry->pause_ms : TWI_REGISTRY_EVERY_MS;
    registry->at_ms = now_ms + pause_ms;
    registry->pause_ms = 2 * pause_ms < TWI_REGISTRY_EVERY_MS ? 2 * pause_ms : TWI_REGISTRY_EVERY_MS;
}

int64_t twi_registry_due_ms(const struct twi_sync *sync) {
    const struct twi_registry *registry = &sync->senders.registry;
    if (registry->awaiting || registry->has_left) return INT64_MAX;
    return twi_message_may_send(sync, NULL, TWI_SENDER_REGISTRY) ? registry->at_ms : INT64_MAX;
}

void twi_registry_connected(struct twi_registry *registry, int64_t now_ms) {
    if (registry->is_logged) return;
    registry->at_ms = now_ms;
    registry->pause_ms = TWI_REGISTRY_FIRST_MS;
    if (now_ms >= registry->before_until_ms || registry->reported > registry->before)
        registry->before = registry->reported;
    registry->before_until_ms = now_ms + TWI_REGISTRY_BACK_MS;
}
