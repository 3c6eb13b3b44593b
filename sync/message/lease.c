/* lease.c -- sends the engine's messages about leases: two scripts (the epoch, one lease), one call for each message.
 *
 * The calls go into the pipeline together with the batches, a bounded number at a time. If the connection is lost,
 * the outcome of its messages is unknown, and the engine sends them again. With wait_replicas a reply counts when
 * the replicas have the script's writes. Until then it waits here (message.h), so that no unit is spent that a
 * failover could forget. Always true: each message from the engine is answered exactly once. A reply that has not
 * the form of the scripts ends the connection. */
#include "sync/message/lease.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/check.h"
#include "engine/port/items.h"
#include "engine/port/messages.h"
#include "engine/port/services.h"
#include "sync/message/message.h"
#include "sync/message/refusal.h"
#include "sync/message/state.h"

#include "lease.lua.h"
#include "leases.lua.h"

#define VERSION "2"

enum { SCRIPT_LEASES, SCRIPT_LEASE };
static const struct {
    struct twi_script_source script;
    size_t keys, args;
} scripts[] = {[SCRIPT_LEASES] = {{twi_script_leases, twi_script_leases_sha1}, 2, 10},
               [SCRIPT_LEASE] = {{twi_script_lease, twi_script_lease_sha1}, 3, 16}};

/* ---- out --------------------------------------------------------------------------------------------------------- */

static void put_name(struct twi_sync *sync, struct twi_bytes *words, const char *name) {
    twi_check(name != NULL && name[0] != '\0');
    char text[TWI_LEDGER_NAME_MAX];
    int size = snprintf(text, sizeof text, "%s%s", twi_port_prefix(sync->engine), name);
    twi_wire_put(words, text, (size_t)size);
}

/* If there are several stores, each has separate names in its slot. */
static void lease_begin(struct twi_sync *sync, const struct twi_store *store, struct twi_bytes *words,
                        uint32_t script) {
    twi_check(script < sizeof scripts / sizeof *scripts);
    char text[48];
    const char *colon = store->tag[0] != '\0' ? ":" : "";
    twi_wire_put_u64(words, scripts[script].keys);
    (void)snprintf(text, sizeof text, "tw:leases%s%s", colon, store->tag);
    put_name(sync, words, text);
    (void)snprintf(text, sizeof text, "tw:leases:wanted%s%s", colon, store->tag);
    put_name(sync, words, text);
}

/* Returns how many names of other engines follow the script's arguments. */
static size_t put_epoch_message(struct twi_sync *sync, const struct twi_store *store, struct twi_bytes *words,
                                const struct twi_lease_message *message) {
    twi_check(message->lease == NULL);
    const struct twi_lease_epoch *epoch = twi_port_lease_epoch(sync->engine, store->index);
    /* If an engine may come back, a departure names the incarnation that ends. */
    bool names_life = store->tag[0] != '\0' && epoch->incarnation[0] != '\0';
    const char *leaves = names_life ? epoch->incarnation : "1";
    char fresh[33];
    snprintf(fresh, sizeof fresh, "%016llx%016llx", (unsigned long long)twi_sync_random(sync->engine),
             (unsigned long long)twi_sync_random(sync->engine));
    uint32_t others = message->wants_members ? epoch->other_count : 0;
    lease_begin(sync, store, words, SCRIPT_LEASES);
    twi_wire_put_text(words, VERSION);
    twi_wire_put_text(words, epoch->instance);
    twi_wire_put_text(words, message->epoch);
    twi_wire_put_text(words, epoch->run);
    twi_wire_put_text(words, message->resent_in);
    twi_wire_put_text(words, fresh);
    twi_wire_put_i64(words, message->requested_since_ms);
    twi_wire_put_text(words, message->leaves ? leaves : "0");
    twi_wire_put_i64(words, epoch->changes);
    twi_wire_put_i64(words, epoch->every_ms);
    for (uint32_t i = 0; i < others; i++) twi_wire_put_text(words, epoch->others[i]);
    return others;
}

static void put_lease_name(struct twi_bytes *words, const struct twi_lease_message *message) {
    char name[TWI_OWN_NAME_MAX];
    twi_wire_put(words, name, twi_port_render_own(&message->item, "lease", name));
}

static void put_lease_message(struct twi_sync *sync, const struct twi_store *store, struct twi_bytes *words,
                              const struct twi_lease_message *message) {
    twi_check(message->lease != NULL);
    const struct twi_lease_epoch *epoch = twi_port_lease_epoch(sync->engine, store->index);
    lease_begin(sync, store, words, SCRIPT_LEASE);
    put_lease_name(words, message);
    twi_wire_put_text(words, VERSION);
    twi_wire_put_text(words, epoch->id);
    twi_wire_put_text(words, epoch->instance);
    twi_wire_put_u64(words, store->route.serial);
    twi_wire_put_i64(words, message->item.expiry_ms);
    twi_wire_put_i64(words, message->limit);
    twi_wire_put_i64(words, message->granted);
    twi_wire_put_i64(words, message->target);
    twi_wire_put_i64(words, message->need);
    twi_wire_put_i64(words, message->returned);
    twi_wire_put_i64(words, message->spent);
    twi_wire_put_i64(words, message->spent_all);
    twi_wire_put_text(words, message->look ? "1" : "0");
    twi_wire_put_text(words, epoch->incarnation);
    if (message->base >= 0)
        twi_wire_put_i64(words, message->base);
    else
        twi_wire_put_text(words, "");
    twi_wire_put_i64(words, message->risk);
}

/* ---- in ---------------------------------------------------------------------------------------------------------- */

static void lease_report(struct twi_sync *sync, struct twi_lease_pending *slot, const struct twi_lease_answer *answer) {
    twi_check(slot->is_under_way);
    struct twi_lease_message message = slot->message;
    slot->is_under_way = false;
    twi_port_lease_answered(sync->engine, &message, answer);
}

static bool read_lease(const struct twi_lease_message *message, const struct twi_node *nodes, size_t count,
                       struct twi_lease_answer *answer) {
    twi_check(message->lease != NULL && count >= 3);
    if (twi_node_is(&nodes[1], "EPOCH")) answer->kind = TWI_LEASE_ENDED;
    if (twi_node_is(&nodes[1], "LATE")) answer->kind = TWI_LEASE_TOO_LATE;
    if (twi_node_is(&nodes[1], "STALE") || twi_node_is(&nodes[1], "TWIN")) answer->kind = TWI_LEASE_TWIN;
    if (!twi_node_is(&nodes[1], "OK")) return true;
    int64_t open;
    if (count != 10 || !twi_node_count(&nodes[3], &answer->granted) || !twi_node_count(&nodes[4], &answer->total) ||
        !twi_node_count(&nodes[5], &answer->spent_all) || !twi_node_count(&nodes[6], &answer->stranded) ||
        !twi_node_count(&nodes[7], &answer->risk) || !twi_node_count(&nodes[8], &open) ||
        !twi_node_pause(&nodes[9], &answer->wait_ms))
        return false;
    /* The script grants no more than was requested, and never withdraws a grant. */
    int64_t most = message->target > message->granted ? message->target : message->granted;
    if (answer->granted > most) answer->granted = most;
    if (answer->risk < 0) answer->risk = 0;
    answer->kind = TWI_LEASE_NUMBERS;
    answer->open = open == 1;
    return true;
}

static void take_requested(struct twi_sync *sync, uint32_t store, const struct twi_node *name) {
    if (name->type == TWI_NODE_STRING) twi_port_lease_requested(sync->engine, store, name->text, name->size);
}

#define EPOCH_HEAD 11u

static bool is_text(const struct twi_node *node, size_t size_max) {
    twi_check(size_max != 0);
    return node->type == TWI_NODE_STRING && node->size <= size_max;
}

static bool read_epoch(struct twi_sync *sync, uint32_t store, const struct twi_node *nodes, size_t count,
                       struct twi_lease_answer *answer) {
    twi_check(count >= 3);
    if (!twi_node_is(&nodes[1], "OK")) return true;
    int64_t open, others;
    if (count < EPOCH_HEAD || !is_text(&nodes[3], 32) || !twi_node_count(&nodes[4], &open) || !is_text(&nodes[5], 40) ||
        !is_text(&nodes[6], 32) || !twi_node_pause(&nodes[7], &answer->every_ms) ||
        !twi_node_count(&nodes[8], &answer->changes) || !twi_node_count(&nodes[10], &others) || others < 0 ||
        others > (int64_t)(count - EPOCH_HEAD))
        return false;
    answer->kind = TWI_LEASE_NUMBERS;
    answer->open = open == 1;
    answer->id = nodes[3].text;
    answer->run = nodes[5].text;
    answer->incarnation = nodes[6].text;
    answer->whole = twi_node_is(&nodes[9], "1");
    size_t at = EPOCH_HEAD;
    for (; others > 0; others--, at++)
        if (is_text(&nodes[at], 33) && nodes[at].size == 33)
            twi_port_lease_other(sync->engine, store, nodes[at].text + 1, nodes[at].text[0] == '+');
    for (; at < count; at++) take_requested(sync, store, &nodes[at]);
    return true;
}

static bool lease_read_answer(struct twi_sync *sync, const struct twi_lease_message *message,
                              const struct twi_node *nodes, size_t count, struct twi_lease_answer *answer) {
    twi_check(count != 0);
    *answer = (struct twi_lease_answer){.kind = TWI_LEASE_RESEND};
    if (nodes->type != TWI_NODE_ARRAY || count < 3 || nodes[1].type != TWI_NODE_STRING) return false;
    if (!twi_node_time(&nodes[2], &answer->redis_ms)) return false;
    if (message->lease != NULL) return read_lease(message, nodes, count, answer);
    return read_epoch(sync, message->store, nodes, count, answer);
}

/* Keeps the answer in the slot, with copies of its texts, because the reply is freed. */
static void lease_keep(struct twi_lease_pending *slot, const struct twi_lease_answer *answer) {
    twi_check(slot->is_under_way);
    slot->answer = *answer;
    if (!answer->id) return;
    snprintf(slot->id, sizeof slot->id, "%s", answer->id);
    snprintf(slot->run, sizeof slot->run, "%s", answer->run);
    snprintf(slot->incarnation, sizeof slot->incarnation, "%s", answer->incarnation);
    slot->answer.id = slot->id;
    slot->answer.run = slot->run;
    slot->answer.incarnation = slot->incarnation;
}

/* Names the key of the lease's counter, or of the epoch of all leases. */
static void report_refusal(struct twi_connection *connection, const struct twi_lease_message *message,
                           const struct twi_node *error) {
    twi_check(error->type == TWI_NODE_ERROR);
    char what[160] = "leases of hard limits (tw:leases)";
    if (message->lease != NULL) {
        char name[96];
        twi_port_title(&message->item, name, sizeof name);
        snprintf(what, sizeof what, "the lease of %s (tw:leases or tw:lease:...)", name);
    }
    twi_refusal_report(connection, what, error);
}

static bool lease_take_reply(struct twi_sync *sync, struct twi_connection *connection, void *ctx,
                             enum twi_message_outcome outcome, const struct twi_node *nodes, size_t count,
                             int64_t now_ms) {
    struct twi_lease_pending *slot = ctx;
    struct twi_lease_answer answer = {.kind = TWI_LEASE_RESEND};
    (void)now_ms;
    if (outcome != TWI_MESSAGE_ANSWERED) {
        answer.refused = count != 0;
        if (answer.refused) report_refusal(connection, &slot->message, nodes);
        lease_report(sync, slot, &answer);
        return true;
    }
    bool well = lease_read_answer(sync, &slot->message, nodes, count, &answer);
    if (!well) answer = (struct twi_lease_answer){.kind = TWI_LEASE_RESEND};
    if (well && connection->replicas.wanted != 0)
        lease_keep(slot, &answer);
    else
        lease_report(sync, slot, &answer);
    return well;
}

static void replicated(struct twi_sync *sync, void *ctx, enum twi_message_outcome outcome) {
    struct twi_lease_pending *slot = ctx;
    struct twi_lease_answer answer = slot->answer;
    bool counts =
        outcome == TWI_MESSAGE_ANSWERED || (outcome == TWI_MESSAGE_REFUSED && answer.kind != TWI_LEASE_NUMBERS);
    if (!counts) answer = (struct twi_lease_answer){.kind = TWI_LEASE_RESEND};
    lease_report(sync, slot, &answer);
}

/* ---- a turn ------------------------------------------------------------------------------------------------------ */

/* Returns a place for one more message. Returns NULL if there is no memory, with several connections. */
static struct twi_lease_pending *lease_free_slot(struct twi_lease_sender *sender) {
    struct twi_lease_block *block = &sender->first;
    for (;; block = block->next) {
        for (uint32_t i = 0; i < TWI_LEASES_MAX; i++)
            if (!block->sent[i].is_under_way) return &block->sent[i];
        if (!block->next) block->next = calloc(1, sizeof *block->next);
        if (!block->next) return NULL;
    }
}

static void send_message(struct twi_sync *sync, struct twi_store *store, const struct twi_lease_message *message,
                         int64_t now_ms) {
    twi_check(store->connection != NULL);
    static const struct twi_lease_answer again = {.kind = TWI_LEASE_RESEND};
    struct twi_lease_pending *slot = lease_free_slot(&sync->senders.leases);
    if (!slot) {
        twi_port_lease_answered(sync->engine, message, &again);
        return;
    }
    uint32_t script = message->lease == NULL ? SCRIPT_LEASES : SCRIPT_LEASE;
    struct twi_bytes words = {0};
    size_t more = 0;
    slot->message = *message;
    slot->is_under_way = true;
    if (message->lease == NULL)
        more = put_epoch_message(sync, store, &words, message);
    else
        put_lease_message(sync, store, &words, message);
    const struct twi_message side = {.sender = TWI_SENDER_LEASES,
                                     .store = store,
                                     .script = &scripts[script].script,
                                     .key_count = scripts[script].keys,
                                     .argument_count = scripts[script].keys + scripts[script].args + more,
                                     .done = lease_take_reply,
                                     .replicated = replicated,
                                     .ctx = slot};
    if (twi_message_send_encoded(sync, &side, &words, now_ms)) return;
    lease_report(sync, slot, &again);
}

static void lease_send_of(struct twi_sync *sync, struct twi_store *store, int64_t now_ms) {
    struct twi_lease_message messages[TWI_LEASES_MAX];
    if (!twi_message_may_send(sync, store, TWI_SENDER_LEASES)) return;
    twi_check(store->connection->messages.of[TWI_SENDER_LEASES] <= TWI_LEASES_MAX);
    size_t room = TWI_LEASES_MAX - store->connection->messages.of[TWI_SENDER_LEASES];
    size_t count = twi_port_leases(sync->engine, store->index, store->route.serial, messages, room);
    twi_check(count <= room);
    for (size_t i = 0; i < count; i++) send_message(sync, store, &messages[i], now_ms);
}

/* Returns the next store that has leases. */
static uint32_t next_store(const struct twi_sync *sync, uint32_t from) {
    return twi_port_lease_next_store(sync->engine, from);
}

/* Another store begins in each turn, so that a store with many messages does not delay the others of its connection. */
void twi_lease_step(struct twi_sync *sync, int64_t now_ms) {
    twi_check(sync->store_count != 0);
    uint32_t first = sync->senders.leases.turns++ % sync->store_count, at;
    for (at = next_store(sync, first); at < sync->store_count; at = next_store(sync, at + 1))
        lease_send_of(sync, sync->stores[at], now_ms);
    for (at = next_store(sync, 0); at < first; at = next_store(sync, at + 1))
        lease_send_of(sync, sync->stores[at], now_ms);
}

int64_t twi_lease_due_ms(const struct twi_sync *sync) {
    int64_t due_ms = INT64_MAX;
    uint32_t i;
    for (i = next_store(sync, 0); i < sync->store_count; i = next_store(sync, i + 1)) {
        if (!twi_message_may_send(sync, sync->stores[i], TWI_SENDER_LEASES)) continue;
        int64_t of_store_ms = twi_port_lease_due(sync->engine, i);
        if (of_store_ms < due_ms) due_ms = of_store_ms;
    }
    return i == UINT32_MAX ? due_ms : sync->turned_ms; /* the next turn makes that store */
}

void twi_lease_free(struct twi_lease_sender *sender) {
    while (sender->first.next) {
        struct twi_lease_block *block = sender->first.next;
        sender->first.next = block->next;
        free(block);
    }
}
