/* distinct.c -- see distinct.h. The script distinct.lua defines the format. */
#include "sync/message/distinct.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/check.h"
#include "engine/port/services.h"
#include "sync/batch/reply.h"
#include "sync/message/active.h"
#include "sync/message/message.h"
#include "sync/message/refusal.h"
#include "sync/message/state.h"

#include "distinct.lua.h"

#define KEYS_MAX 64u          /* the most in one message: some 3 ms of Redis's one thread */
#define BYTES_MAX (96u << 10) /* the most registers in one message: eight dense keys have more */
#define REFUSED_MS 1000       /* the pause after a refusal; an earlier retry would be useless */
#define AGAIN_MS 1000         /* between two walks over all keys, because slots may move one after the other */

static struct twi_distinct_sent *distinct_free_slot(struct twi_distinct_sender *sender) {
    twi_check(sender->count < TWI_DISTINCT_SENT_MAX);
    uint32_t i = 0;
    while (sender->sent[i].is_under_way) i++;
    return &sender->sent[i];
}

/* ---- out --------------------------------------------------------------------------------------------------------- */

static const char *wish_of(const struct twi_item *item) {
    twi_check((item->flags & TWI_ITEM_DISTINCT) != 0);
    return (item->flags & TWI_ITEM_SEALED) != 0 ? "c" : (item->flags & TWI_ITEM_ASKED) != 0 ? "r" : "";
}

/* Puts at most `most` of the first items that wait. Returns how many. */
static uint32_t put_items(const struct twi_store *store, const struct twi_waiting *waiting, uint32_t most,
                          struct twi_bytes *keys, struct twi_bytes *arguments) {
    twi_check(most != 0 && store->connection != NULL);
    int64_t offset_ms = store->connection->clock.offset_ms;
    uint32_t count = 0;
    for (; count < most && arguments->size < BYTES_MAX; count++) {
        const struct twi_item *item = &waiting->items[waiting->at + count];
        char name[TWI_OWN_NAME_MAX];
        unsigned char bytes[TWI_DISTINCT_BYTES_MAX];
        twi_wire_put(keys, name, twi_port_render(item, name));
        twi_wire_put(keys, name, twi_port_render_own(item, "merge", name));
        twi_wire_put(arguments, bytes, item->delta != 0 ? twi_port_distinct_bytes(item, bytes) : 0);
        twi_wire_put_i64(arguments, item->expiry_ms != 0 ? item->expiry_ms + offset_ms : 0);
        twi_wire_put_text(arguments, wish_of(item));
    }
    return count;
}

static twi_message_done distinct_answered;

/* Sends some of the first `most` items, which belong to the store. Returns false if there is no memory. */
static bool distinct_send_some(struct twi_sync *sync, struct twi_store *store, uint32_t most, int64_t now_ms) {
    twi_check(most != 0 && most <= KEYS_MAX && store != NULL);
    static const struct twi_script_source script = {twi_script_distinct, twi_script_distinct_sha1};
    struct twi_distinct_sender *sender = &sync->senders.distinct;
    struct twi_waiting *waiting = &sender->waiting;
    struct twi_bytes keys = {0}, arguments = {0}, words = {0};
    uint32_t count = put_items(store, waiting, most, &keys, &arguments);
    struct twi_item *items = malloc(count * sizeof *items);
    if (items) memcpy(items, waiting->items + waiting->at, count * sizeof *items);
    twi_wire_put_u64(&words, 1 + 2 * (uint64_t)count);
    twi_wire_put(&words, store->marker_name, store->marker_name_size);
    twi_bytes_add(&words, keys.data, keys.size);
    twi_bytes_add(&words, arguments.data, arguments.size);
    if (keys.failed || arguments.failed || !items) words.failed = true;
    twi_bytes_free(&keys);
    twi_bytes_free(&arguments);
    struct twi_distinct_sent *slot = distinct_free_slot(sender);
    const struct twi_message message = {.sender = TWI_SENDER_DISTINCT,
                                        .store = store,
                                        .script = &script,
                                        .key_count = 1 + 2 * (size_t)count,
                                        .argument_count = 1 + 5 * (size_t)count,
                                        .done = distinct_answered,
                                        .ctx = slot};
    if (!twi_message_send_encoded(sync, &message, &words, now_ms)) {
        free(items);
        return false;
    }
    *slot = (struct twi_distinct_sent){store, items, count, true};
    sender->count++;
    waiting->at += count;
    twi_check(count <= most && waiting->at <= waiting->end);
    return true;
}

static bool distinct_may_send(const struct twi_distinct_sender *sender) {
    twi_check(sender->count <= TWI_DISTINCT_SENT_MAX);
    return twi_waiting_may_go(&sender->waiting) && sender->count < TWI_DISTINCT_SENT_MAX;
}

/* If there are several stores, items whose store accepts no messages now go back. When its unsent registers are
 * collected, they are deferred with their store, so that they delay no other store. */
static void return_away(struct twi_sync *sync) {
    struct twi_waiting *waiting = &sync->senders.distinct.waiting;
    uint32_t end = waiting->end;
    waiting->end = waiting->at;
    for (uint32_t i = waiting->at; i < end; i++) {
        struct twi_item item = waiting->items[i];
        if (twi_message_store_takes(sync, sync->stores[item.store]))
            waiting->items[waiting->end++] = item;
        else
            twi_waiting_return(sync, waiting, &item, 1, 0);
    }
}

void twi_distinct_step(struct twi_sync *sync, int64_t now_ms) {
    struct twi_distinct_sender *sender = &sync->senders.distinct;
    sender->waiting.is_held = false;
    while (distinct_may_send(sender)) {
        struct twi_store *store;
        uint32_t count = twi_waiting_choose(sync, &sender->waiting, TWI_SENDER_DISTINCT, KEYS_MAX, &store);
        sender->waiting.is_held = count == 0;
        if (count != 0 && !distinct_send_some(sync, store, count, now_ms)) break; /* the next turn tries again */
    }
    if (sync->by_slot) return_away(sync);
}

/* ---- in ---------------------------------------------------------------------------------------------------------- */

/* Its window is over in Redis, and no engine merges or reads it there any more. One log line in an outage names a key,
 * and on_lost names all. */
static void distinct_settle_late(struct twi_sync *sync, const struct twi_item *item) {
    twi_check((item->flags & TWI_ITEM_DISTINCT) != 0);
    struct twi_distinct_sender *sender = &sync->senders.distinct;
    char key[120];
    if (item->delta == 0) {
        (void)twi_port_distinct_merged(item, &(struct twi_merged){.is_missing = true});
        return;
    }
    twi_ticket_refused(&sync->tickets);
    twi_port_title(item, key, sizeof key);
    if (!sender->is_late_logged)
        twi_port_log(sync->engine, TW_LOG_WARNING, TW_EVENT_LATE,
                     "distinct counts came to Redis after the end of their keys: Redis lacks them (%s and others)",
                     key);
    sender->is_late_logged = true;
    twi_port_give_up(item, twi_port_wall_ms(sync->engine) >= item->expiry_ms ? TW_LOST_EXPIRED : TW_LOST_LATE);
}

/* Called if the key is refused, or its value cannot be read. It waits alone, and one line names it. A key that a
 * caller only reads is not requested again until its next reading. */
static void settle_refused(struct twi_sync *sync, struct twi_store *store, const struct twi_item *item,
                           const struct twi_node *error, int64_t now_ms) {
    twi_check(error->type == TWI_NODE_ERROR && (item->flags & TWI_ITEM_DISTINCT) != 0);
    if (item->delta == 0 && (item->flags & TWI_ITEM_SEALED) == 0) {
        twi_refusal_read(store->connection, item, error);
        (void)twi_port_distinct_merged(item, &(struct twi_merged){.size = 0});
        return;
    }
    uint32_t wait_ms = twi_refusal_key(sync, store, item, error, now_ms);
    twi_port_return(item, wait_ms + (uint32_t)(twi_sync_random(sync->engine) % (wait_ms / 4 + 1)));
}

static void distinct_settle(struct twi_sync *sync, struct twi_store *store, const struct twi_item *item,
                            const struct twi_node *node, int64_t now_ms) {
    twi_check((item->flags & TWI_ITEM_DISTINCT) != 0);
    static const char unreadable[] = "its registers cannot be read";
    static const struct twi_node no_sketch = {
        .type = TWI_NODE_ERROR, .text = unreadable, .size = sizeof unreadable - 1};
    struct twi_merged merged = {0};
    if (node->type == TWI_NODE_INTEGER) (void)twi_node_count(node, &merged.estimate);
    if (node->type == TWI_NODE_STRING) merged.bytes = node->text, merged.size = node->size;
    if (node->type == TWI_NODE_STATUS)
        distinct_settle_late(sync, item);
    else if (node->type == TWI_NODE_ERROR)
        settle_refused(sync, store, item, node, now_ms);
    else if (!twi_port_distinct_merged(item, &merged))
        settle_refused(sync, store, item, &no_sketch, now_ms);
    else if (store->rejected.count)
        twi_rejected_settled(&store->rejected, item, UINT64_MAX);
}

static bool distinct_is_whole(const struct twi_distinct_sent *sent, const struct twi_node *nodes, size_t count) {
    twi_check(sent->count != 0 && count != 0);
    if (nodes->type != TWI_NODE_ARRAY || count != sent->count + (size_t)2) return false;
    for (uint32_t i = 1; i <= sent->count + 1; i++)
        if (nodes[i].depth != 1 || nodes[i].type == TWI_NODE_ARRAY) return false;
    return true;
}

/* Called for another marker: the store was wiped, or is another one. An empty batch becomes due. Its reply shows it. */
static void look_at_marker(struct twi_sync *sync, struct twi_store *store, const struct twi_node *marker,
                           int64_t now_ms) {
    if (store->assumed.lacks_marker && marker->type == TWI_NODE_NIL) return;
    if (!store->ledger.marker_known || twi_node_is(marker, store->ledger.marker)) return;
    twi_active_wake(sync, store);
    store->assumed.written_ms = now_ms - 2 * TWI_LEDGER_REFRESH_MS;
}

static void distinct_take_answer(struct twi_sync *sync, const struct twi_connection *connection,
                                 const struct twi_distinct_sent *sent, const struct twi_node *nodes, int64_t now_ms) {
    twi_check(sent->count != 0 && sent->store != NULL);
    struct twi_store *store = sent->store;
    look_at_marker(sync, store, &nodes[1], now_ms);
    for (uint32_t i = 0; i < sent->count; i++) distinct_settle(sync, store, &sent->items[i], &nodes[i + 2], now_ms);
    store->assumed.merged.is_there = true;
    memcpy(store->assumed.merged.history, connection->server.history, sizeof store->assumed.merged.history);
    sync->senders.distinct.waiting.answered += sent->count;
    sync->senders.distinct.is_refusal_logged = false;
}

/* A server that refuses as a replica is the wrong one, so the connection ends. */
static void distinct_take_error(struct twi_sync *sync, struct twi_connection *connection,
                                enum twi_message_outcome outcome, const struct twi_node *error) {
    twi_check(error->type == TWI_NODE_ERROR && outcome != TWI_MESSAGE_ANSWERED);
    struct twi_distinct_sender *sender = &sync->senders.distinct;
    if (!sender->is_refusal_logged) twi_refusal_report(connection, "distinct counts", error);
    sender->is_refusal_logged = true;
    twi_refusal_end(connection, outcome, error);
}

static bool distinct_answered(struct twi_sync *sync, struct twi_connection *connection, void *ctx,
                              enum twi_message_outcome outcome, const struct twi_node *nodes, size_t count,
                              int64_t now_ms) {
    twi_check(sync->senders.distinct.count != 0);
    struct twi_distinct_sent *slot = ctx, sent = *slot;
    struct twi_waiting *waiting = &sync->senders.distinct.waiting;
    *slot = (struct twi_distinct_sent){.is_under_way = false};
    sync->senders.distinct.count--;
    bool is_answer = outcome == TWI_MESSAGE_ANSWERED, well = !is_answer || distinct_is_whole(&sent, nodes, count);
    if (is_answer && well) {
        distinct_take_answer(sync, connection, &sent, nodes, now_ms);
    } else {
        bool is_refused = !is_answer && count != 0;
        if (is_refused) distinct_take_error(sync, connection, outcome, nodes);
        twi_waiting_return(sync, waiting, sent.items, sent.count, is_refused ? REFUSED_MS : 0);
    }
    free(sent.items);
    return well;
}

/* ---- what Redis may have lost ------------------------------------------------------------------------------------ */

/* The history is another one than that of the server that answered, or is not known: the server was restarted or
 * promoted, or is another one. It may lack acknowledged registers. */
void twi_distinct_attached(struct twi_sync *sync, struct twi_store *store) {
    twi_check(store->connection != NULL);
    struct twi_store_merged *merged = &store->assumed.merged;
    const char *history = store->connection->server.history;
    if (!merged->is_there || (history[0] != '\0' && strcmp(history, merged->history) == 0)) return;
    merged->is_there = false;
    merged->is_suspect = sync->senders.distinct.has_suspects = true;
}

static bool may_restate(const struct twi_sync *sync, int64_t now_ms) {
    return now_ms >= sync->senders.distinct.again_ms || twi_ticket_waits(&sync->tickets);
}

void twi_distinct_restate(struct twi_sync *sync, int64_t now_ms) {
    struct twi_distinct_sender *sender = &sync->senders.distinct;
    if (!sender->has_suspects || !may_restate(sync, now_ms)) return;
    for (uint32_t i = 0; i < sync->store_count; i++) {
        struct twi_store *store = sync->stores[i];
        if (store->assumed.merged.is_suspect) twi_port_distinct_again(sync->engine, store->index);
        store->assumed.merged.is_suspect = false;
    }
    sender->has_suspects = false;
    sender->again_ms = now_ms + AGAIN_MS;
}

int64_t twi_distinct_due_ms(const struct twi_sync *sync, int64_t now_ms) {
    const struct twi_distinct_sender *sender = &sync->senders.distinct;
    if (distinct_may_send(sender)) return now_ms;
    if (!sender->has_suspects) return INT64_MAX;
    return may_restate(sync, now_ms) ? now_ms : sender->again_ms;
}

void twi_distinct_greeted(struct twi_sync *sync) {
    sync->senders.distinct.is_late_logged = false;
}

void twi_distinct_dropped(struct twi_sync *sync) {
    twi_waiting_return_all(sync, &sync->senders.distinct.waiting, 0);
}

void twi_distinct_free(struct twi_distinct_sender *sender) {
    for (uint32_t i = 0; i < TWI_DISTINCT_SENT_MAX; i++) free(sender->sent[i].items);
    free(sender->waiting.items);
}
