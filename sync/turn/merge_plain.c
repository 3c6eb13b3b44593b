/* merge_plain.c -- merging with TW_MERGE_MULTI and TW_MERGE_SETNX, for servers without scripts.
 *
 *   TIME  [MULTI]  an item's commands, item by item ...  [EXEC]        one batch under way at a time
 *
 *   SET key 0 PXAT end NX   SETNX only, keys with an end (PX before Redis 7)
 *   INCRBY key delta        or GET key, if only the total is requested
 *   PEXPIREAT key end NX    keys with an end. Before Redis 7: PTTL key, and after the batch PEXPIREAT for each key
 *                           without an end. It expired and INCRBY made it again, or it lost its end
 *   PEXPIRETIME key         TW_WINDOW_FROM_FIRST, Redis 7: the end that another engine may have set (before 7: PTTL)
 *
 * There is no ledger. So a batch whose reply was lost is sent again and may count twice. Its units are `uncertain`.
 * Executed commands are not sent again. An answered item is settled and leaves its batch, and a transaction whose EXEC
 * had not gone out had no effect. Here Redis does not refuse a dead window. So an item whose key ends within
 * BEFORE_END_MS by Redis's clock is late and is not sent.
 * There are no tags without a script. All is in the engine's first store, and that is the only one.
 * Always true: a batch's items are those that are not settled, except those before `item` while replies arrive. */
#include "sync/turn/merge_plain.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/check.h"
#include "engine/port/items.h"
#include "engine/port/services.h"
#include "sync/batch/reply.h"
#include "sync/message/connection.h"
#include "sync/message/refusal.h"
#include "sync/turn/settle.h"
#include "sync/message/state.h"

#define BEFORE_END_MS 100 /* the time from our reading of the clock to the execution, on a server that answers */

enum stage { STAGE_TIME, STAGE_MULTI, STAGE_QUEUE, STAGE_RESULTS, STAGE_EXEC };
enum step { STEP_SET, STEP_COUNT, STEP_END, STEP_LIFE, STEP_NONE };

/* The batch that is under way, and how far its replies have come. */
struct twi_merge_plain {
    uint32_t stage, item, step; /* the stage, the item and its command that the next reply answers */
    uint32_t commands;          /* the units of all its items */
    uint32_t kept;              /* items before `item` that are sent again; they are moved to the front */
    bool in_multi, refused, turned_away;
    bool over; /* this item is settled, or is sent again, so its other replies are ignored */
    struct twi_item_answer result;
    uint32_t unhealed;
    int64_t redis_ms;
    struct twi_bytes repairs;
    uint32_t repair_count;
};

struct twi_merge_plain *twi_merge_plain_create(void) {
    return calloc(1, sizeof(struct twi_merge_plain));
}

void twi_merge_plain_free(struct twi_merge_plain *plain) {
    if (plain) twi_bytes_free(&plain->repairs);
    free(plain);
}

/* ---- the commands of an item ------------------------------------------------------------------------------------- */

static bool is_from_first(const struct twi_item *item) {
    return item->flags & TWI_ITEM_FROM_FIRST;
}

/* Returns when the key must expire, by Redis's clock; 0 if never. */
static int64_t plain_end_of(const struct twi_connection *connection, const struct twi_item *item) {
    if (item->expiry_ms == 0) return 0;
    return is_from_first(item) ? item->expiry_ms + connection->clock.offset_ms : item->expiry_ms;
}

static bool has_step(const struct twi_sync *sync, const struct twi_item *item, enum step step) {
    twi_check(step <= STEP_NONE);
    const struct twi_connection *connection = sync->connections[0];
    bool ends = item->expiry_ms != 0;
    switch (step) {
    case STEP_SET: return !sync->stores[0]->merge->is_multi && ends && item->delta != 0;
    case STEP_COUNT: return true;
    case STEP_END: return ends && (item->delta != 0 || (is_from_first(item) && !connection->server.is_seven));
    case STEP_LIFE: return is_from_first(item) && connection->server.is_seven;
    default: return false;
    }
}

static enum step next_step(const struct twi_sync *sync, const struct twi_item *item, enum step step) {
    while (step < STEP_NONE && !has_step(sync, item, step)) step++;
    return step;
}

/* ---- sending ----------------------------------------------------------------------------------------------------- */

struct name {
    char bytes[TWI_REDIS_KEY_MAX];
    size_t size;
};

static void put_command(struct twi_connection *connection, size_t words, const char *word, const struct name *name) {
    twi_check(words != 0);
    twi_wire_begin(&connection->pipeline.out, words);
    twi_wire_put_text(&connection->pipeline.out, word);
    if (name) twi_wire_put(&connection->pipeline.out, name->bytes, name->size);
}

static void put_set(struct twi_connection *connection, const struct name *name, int64_t end_ms, int64_t redis_ms) {
    put_command(connection, 6, "SET", name);
    twi_wire_put_text(&connection->pipeline.out, "0");
    twi_wire_put_text(&connection->pipeline.out, connection->server.is_seven ? "PXAT" : "PX");
    twi_wire_put_i64(&connection->pipeline.out, connection->server.is_seven ? end_ms : end_ms - redis_ms);
    twi_wire_put_text(&connection->pipeline.out, "NX");
}

static void put_end(struct twi_connection *connection, const struct name *name, int64_t end_ms) {
    if (!connection->server.is_seven) {
        put_command(connection, 2, "PTTL", name);
        return;
    }
    put_command(connection, 4, "PEXPIREAT", name);
    twi_wire_put_i64(&connection->pipeline.out, end_ms);
    twi_wire_put_text(&connection->pipeline.out, "NX");
}

/* Returns the number of commands. */
static uint32_t plain_put_item(struct twi_sync *sync, const struct twi_item *item, int64_t redis_ms) {
    twi_check(!sync->stores[0]->merge->has_script);
    struct twi_connection *connection = sync->connections[0];
    struct name name;
    uint32_t commands = 0;
    name.size = twi_port_render(item, name.bytes);
    for (enum step step = next_step(sync, item, STEP_SET); step != STEP_NONE;
         step = next_step(sync, item, step + 1), commands++) {
        switch (step) {
        case STEP_SET: put_set(connection, &name, plain_end_of(connection, item), redis_ms); break;
        case STEP_COUNT:
            put_command(connection, item->delta ? 3 : 2, item->delta ? "INCRBY" : "GET", &name);
            if (item->delta) twi_wire_put_i64(&connection->pipeline.out, item->delta);
            break;
        case STEP_END: put_end(connection, &name, plain_end_of(connection, item)); break;
        default: put_command(connection, 2, "PEXPIRETIME", &name); break;
        }
    }
    return commands;
}

static bool plain_is_late(const struct twi_connection *connection, const struct twi_item *item, int64_t redis_ms) {
    int64_t end_ms = plain_end_of(connection, item);
    return end_ms != 0 && item->delta != 0 && end_ms <= redis_ms;
}

static void plain_settle(struct twi_sync *sync, const struct twi_batch *batch, uint32_t index,
                         const struct twi_item_answer *result, int64_t now_ms) {
    twi_check(index < batch->item_count);
    twi_settle_item(sync, sync->stores[0], &batch->items[index], batch->number, result, true, now_ms);
}

/* Settles as late the items whose window has ended, or nearly so. */
static void settle_what_is_late(struct twi_sync *sync, struct twi_batch *batch, int64_t redis_ms, int64_t now_ms) {
    const struct twi_item_answer late = {.kind = TWI_ITEM_LATE};
    uint32_t kept = 0;
    for (uint32_t i = 0; i < batch->item_count; i++) {
        if (plain_is_late(sync->connections[0], &batch->items[i], redis_ms + BEFORE_END_MS))
            plain_settle(sync, batch, i, &late, now_ms);
        else
            batch->items[kept++] = batch->items[i];
    }
    batch->item_count = kept;
}

static int64_t units_of(const struct twi_batch *batch) {
    int64_t units = 0;
    for (uint32_t i = 0; i < batch->item_count; i++) units += llabs(batch->items[i].delta);
    return units;
}

/* Earlier copies got no reply. From here on some of the batch may be counted twice. */
static void note_again(struct twi_sync *sync, const struct twi_batch *batch) {
    int64_t units = units_of(batch);
    if (batch->copies_open == 0 || units == 0) return;
    twi_port_count(sync->engine, uncertain, units);
    twi_port_log(sync->engine, TW_LOG_WARNING, TW_EVENT_UNCERTAIN,
                 "%" PRId64 " units are sent again without knowing whether Redis has counted them", units);
}

static void send_plain(struct twi_sync *sync, struct twi_store *store, struct twi_batch *batch, int64_t now_ms) {
    twi_check(store == sync->stores[0] && store->merge_plain != NULL);
    struct twi_connection *connection = sync->connections[0];
    struct twi_merge_plain *merge_plain = store->merge_plain;
    int64_t redis_ms = twi_port_wall_ms(sync->engine) + connection->clock.offset_ms;
    settle_what_is_late(sync, batch, redis_ms, now_ms);
    note_again(sync, batch);
    *merge_plain = (struct twi_merge_plain){.repairs = merge_plain->repairs};
    twi_pipeline_begin(&connection->pipeline, now_ms);
    bool multi = store->merge->is_multi && batch->item_count > 0;
    put_command(connection, 1, "TIME", NULL);
    if (multi) put_command(connection, 1, "MULTI", NULL);
    for (uint32_t i = 0; i < batch->item_count; i++)
        merge_plain->commands += plain_put_item(sync, &batch->items[i], redis_ms);
    if (multi) put_command(connection, 1, "EXEC", NULL);
    if (connection->pipeline.out.failed) {
        twi_connection_fail(connection, false, "no memory");
        return;
    }
    batch->copies_open++;
    batch->sent_ms = now_ms;
    uint32_t replies = 1 + merge_plain->commands + (multi ? 2 : 0);
    struct twi_pending *pending = twi_pipeline_await(&connection->pipeline, TWI_MERGE_PLAIN, batch, replies);
    pending->store = store;
    store->awaited++;
    twi_port_count(sync->engine, batches_sent, 1);
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

/* Returns true if the error concerns only this key. One key may be forbidden while others are not. A forbidden
 * command fails for every key. */
static bool is_of_the_key(const struct twi_node *error) {
    enum twi_reply_kind kind = twi_reply_error(error);
    if (kind == TWI_REPLY_UNKNOWN || kind == TWI_REPLY_SPOILT) return true; /* WRONGTYPE, no number, overflow */
    return twi_node_is(error, "NOPERM") && !strstr(error->text, "to run the");
}

/* The commands of this item were not executed, but its key is not the cause. */
static void note_refusal(struct twi_sync *sync, const struct twi_node *error) {
    struct twi_merge_plain *merge_plain = sync->stores[0]->merge_plain;
    if (!merge_plain->refused) twi_refusal_report(sync->connections[0], "a batch", error);
    merge_plain->refused = true;
    if (twi_reply_error(error) == TWI_REPLY_TURNED_AWAY) merge_plain->turned_away = true;
}

static void need_repair(struct twi_sync *sync, const struct twi_item *item) {
    twi_check(item->expiry_ms != 0);
    struct twi_store *store = sync->stores[0];
    struct name name;
    name.size = twi_port_render(item, name.bytes);
    struct twi_bytes *repairs = &store->merge_plain->repairs;
    twi_wire_begin(repairs, 3);
    twi_wire_put_text(repairs, "PEXPIREAT");
    twi_wire_put(repairs, name.bytes, name.size);
    twi_wire_put_i64(repairs, plain_end_of(sync->connections[0], item));
    store->merge_plain->repair_count++;
}

static void plain_take_count(struct twi_sync *sync, struct twi_batch *batch, const struct twi_node *node,
                             int64_t now_ms) {
    struct twi_merge_plain *merge_plain = sync->stores[0]->merge_plain;
    merge_plain->result = (struct twi_item_answer){.kind = TWI_ITEM_TOTAL};
    if (node->type == TWI_NODE_ERROR) {
        merge_plain->over = true; /* handled now, because the error's text is gone when the next reply is read */
        if (!is_of_the_key(node)) {
            note_refusal(sync, node);
            batch->items[merge_plain->kept++] = batch->items[merge_plain->item];
            return;
        }
        merge_plain->result.kind = TWI_ITEM_FAILED;
        merge_plain->result.error = node;
        plain_settle(sync, batch, merge_plain->item, &merge_plain->result, now_ms);
    } else if (node->type != TWI_NODE_NIL && !twi_node_count(node, &merge_plain->result.total)) {
        merge_plain->result.kind = TWI_ITEM_NO_TOTAL; /* GET of a text */
    }
}

static void take_end(struct twi_sync *sync, const struct twi_item *item, const struct twi_node *node) {
    struct twi_merge_plain *merge_plain = sync->stores[0]->merge_plain;
    if (merge_plain->over) return;
    if (node->type != TWI_NODE_INTEGER) {
        merge_plain->unhealed++;
    } else if (!sync->connections[0]->server.is_seven) { /* PTTL */
        if (node->integer == -1 && item->delta) need_repair(sync, item);
        int64_t left_ms;
        if (node->integer >= 0 && is_from_first(item) && twi_node_time(node, &left_ms))
            merge_plain->result.end_ms = merge_plain->redis_ms + left_ms;
    }
}

/* Called when all commands of an item are answered, or no more answers can come. */
static void finish_item(struct twi_sync *sync, struct twi_batch *batch, int64_t now_ms) {
    twi_check(sync->stores[0]->merge_plain->item < batch->item_count);
    struct twi_merge_plain *merge_plain = sync->stores[0]->merge_plain;
    const struct twi_item *item = &batch->items[merge_plain->item];
    if (!merge_plain->over) {
        if (plain_is_late(sync->connections[0], item, merge_plain->redis_ms))
            merge_plain->result.kind = TWI_ITEM_LATE; /* it was counted in a window that has ended */
        plain_settle(sync, batch, merge_plain->item, &merge_plain->result, now_ms);
    }
    merge_plain->item++;
    merge_plain->over = false;
    merge_plain->step = STEP_SET;
}

static void take_result(struct twi_sync *sync, struct twi_batch *batch, const struct twi_node *node, int64_t now_ms) {
    struct twi_merge_plain *merge_plain = sync->stores[0]->merge_plain;
    const struct twi_item *item = &batch->items[merge_plain->item];
    enum step step = next_step(sync, item, (enum step)merge_plain->step);
    switch (step) {
    case STEP_COUNT: plain_take_count(sync, batch, node, now_ms); break;
    case STEP_END: take_end(sync, item, node); break;
    case STEP_LIFE:
        if (node->type == TWI_NODE_INTEGER && node->integer > 0) merge_plain->result.end_ms = node->integer;
        break;
    default: break; /* for SET; if Redis refused it, it refuses INCRBY, too */
    }
    merge_plain->step = step + 1;
    if (next_step(sync, item, (enum step)merge_plain->step) == STEP_NONE) finish_item(sync, batch, now_ms);
}

/* ---- a transaction ----------------------------------------------------------------------------------------------- */

/* If Redis does not queue a command, it discards the whole transaction. */
static void take_queued(struct twi_sync *sync, struct twi_batch *batch, const struct twi_node *node, int64_t now_ms) {
    struct twi_merge_plain *merge_plain = sync->stores[0]->merge_plain;
    struct twi_item *item = &batch->items[merge_plain->item];
    enum step step = next_step(sync, item, (enum step)merge_plain->step);
    if (node->type == TWI_NODE_ERROR && !is_of_the_key(node)) {
        note_refusal(sync, node);
    } else if (node->type == TWI_NODE_ERROR && item->cell) {
        const struct twi_item_answer failed = {.kind = TWI_ITEM_FAILED, .error = node};
        plain_settle(sync, batch, merge_plain->item, &failed, now_ms);
        item->cell = NULL; /* settled, so it is not sent again */
    }
    merge_plain->step = step + 1;
    if (next_step(sync, item, (enum step)merge_plain->step) != STEP_NONE) return;
    merge_plain->item++;
    merge_plain->step = STEP_SET;
}

/* Items that are not settled stay in the batch for the next sending. */
static void keep_the_rest(struct twi_store *store, struct twi_batch *batch) {
    twi_check(store->merge_plain->kept <= batch->item_count);
    struct twi_merge_plain *merge_plain = store->merge_plain;
    for (; merge_plain->item < batch->item_count; merge_plain->item++)
        if (batch->items[merge_plain->item].cell) batch->items[merge_plain->kept++] = batch->items[merge_plain->item];
}

/* Returns false if it is no reply to EXEC. */
static bool take_exec(struct twi_sync *sync, struct twi_batch *batch, const struct twi_node *nodes, size_t count,
                      int64_t now_ms) {
    twi_check(count != 0);
    struct twi_store *store = sync->stores[0];
    struct twi_merge_plain *merge_plain = store->merge_plain;
    merge_plain->item = merge_plain->step = 0;
    if (nodes->type == TWI_NODE_ARRAY && count == 1 + (size_t)merge_plain->commands) {
        for (size_t i = 1; i < count; i++) take_result(sync, batch, &nodes[i], now_ms);
        return true;
    }
    bool discarded = nodes->type == TWI_NODE_ERROR &&
                     (twi_node_is(nodes, "EXECABORT") || twi_reply_error(nodes) != TWI_REPLY_UNKNOWN);
    keep_the_rest(store, batch);
    if (discarded && !merge_plain->refused && merge_plain->kept == batch->item_count) note_refusal(sync, nodes);
    if (discarded) return true;
    batch->item_count = merge_plain->kept;
    twi_connection_fail(sync->connections[0], false, "an answer to EXEC that is not understood");
    return false;
}

/* ---- replies ----------------------------------------------------------------------------------------------------- */

static bool plain_read_time(const struct twi_node *nodes, size_t count, int64_t *redis_ms) {
    int64_t seconds, microseconds;
    if (count != 3 || !twi_node_time(&nodes[1], &seconds) || !twi_node_time(&nodes[2], &microseconds)) return false;
    *redis_ms = seconds * 1000 + microseconds / 1000;
    return true;
}

void twi_merge_plain_time(struct twi_sync *sync, struct twi_connection *connection, const struct twi_pending *pending,
                          const struct twi_node *nodes, size_t count, int64_t now_ms) {
    struct twi_store *store = sync->stores[0];
    if (plain_read_time(nodes, count, &store->merge_plain->redis_ms))
        twi_settle_clock(connection, pending, store->merge_plain->redis_ms, now_ms);
}

/* Before Redis 7, gives an end to the keys without one. */
static void send_repairs(struct twi_sync *sync, int64_t now_ms) {
    struct twi_connection *connection = sync->connections[0];
    struct twi_merge_plain *merge_plain = sync->stores[0]->merge_plain;
    if (merge_plain->repair_count == 0) return;
    twi_pipeline_begin(&connection->pipeline, now_ms);
    if (merge_plain->repairs.failed) /* PTTL is sent again with their next counts */
        twi_bytes_free(&merge_plain->repairs);
    else {
        twi_bytes_add(&connection->pipeline.out, merge_plain->repairs.data, merge_plain->repairs.size);
        struct twi_store *store = sync->stores[0];
        twi_pipeline_await(&connection->pipeline, TWI_REPAIR, NULL, merge_plain->repair_count)->store = store;
        store->awaited++;
    }
    merge_plain->repairs.size = merge_plain->repair_count = 0;
}

static void finish_batch(struct twi_sync *sync, struct twi_batch *batch, int64_t now_ms) {
    twi_check(sync->stores[0]->merge_plain->kept <= batch->item_count);
    struct twi_store *store = sync->stores[0];
    struct twi_merge_plain *merge_plain = store->merge_plain;
    batch->item_count = merge_plain->kept;
    batch->copies_open = 0;
    merge_plain->stage = STAGE_TIME;
    merge_plain->item = merge_plain->kept = 0;
    twi_refusal_unhealed(store->connection, merge_plain->unhealed, now_ms);
    send_repairs(sync, now_ms);
    if (merge_plain->refused) {
        twi_settle_refusal(sync, store->connection, store, merge_plain->turned_away, now_ms);
        return;
    }
    if (batch->item_count) { /* some items had to leave the transaction; the others are sent at once */
        store->rewind = true;
        return;
    }
    twi_batch_items_drop(batch);
    twi_port_count(sync->engine, batches_ok, 1);
    twi_ledger_confirm(&store->ledger, batch);
    twi_ledger_trim(&store->ledger, now_ms);
    store->assumed.written_ms = now_ms;
    twi_settle_success(sync, store->connection, now_ms);
    twi_ticket_acknowledged(&sync->tickets, &store->flush, store->ledger.acked);
}

static enum stage after_queue(const struct twi_batch *batch, const struct twi_merge_plain *merge_plain) {
    return merge_plain->item == batch->item_count ? STAGE_EXEC : (enum stage)merge_plain->stage;
}

void twi_merge_plain_reply(struct twi_sync *sync, struct twi_connection *connection, const struct twi_pending *pending,
                           const struct twi_node *nodes, size_t count, int64_t now_ms) {
    twi_check(pending->command == TWI_MERGE_PLAIN || pending->command == TWI_REPAIR);
    struct twi_store *store = sync->stores[0];
    struct twi_merge_plain *merge_plain = store->merge_plain;
    struct twi_batch *batch = pending->batch;
    if (pending->command == TWI_REPAIR) {
        twi_refusal_unhealed(connection, nodes->type == TWI_NODE_ERROR, now_ms);
        return;
    }
    switch ((enum stage)merge_plain->stage) {
    case STAGE_TIME:
        if (nodes->type == TWI_NODE_ERROR) note_refusal(sync, nodes);
        twi_merge_plain_time(sync, connection, pending, nodes, count, now_ms);
        merge_plain->stage = store->merge->is_multi ? STAGE_MULTI : STAGE_RESULTS;
        break;
    case STAGE_MULTI: /* refused, so the commands after it are executed one by one, or refused as well */
        merge_plain->in_multi = nodes->type != TWI_NODE_ERROR;
        if (!merge_plain->in_multi) note_refusal(sync, nodes);
        merge_plain->stage = merge_plain->in_multi ? STAGE_QUEUE : STAGE_RESULTS;
        break;
    case STAGE_QUEUE:
        take_queued(sync, batch, nodes, now_ms);
        merge_plain->stage = after_queue(batch, merge_plain);
        break;
    case STAGE_RESULTS:
        take_result(sync, batch, nodes, now_ms);
        merge_plain->stage = store->merge->is_multi ? after_queue(batch, merge_plain) : STAGE_RESULTS;
        break;
    case STAGE_EXEC:
        if (merge_plain->in_multi && !take_exec(sync, batch, nodes, count, now_ms)) return;
        break;
    }
    if (pending->replies == 1) finish_batch(sync, batch, now_ms);
}

/* ---- the end of a connection, or of the engine ------------------------------------------------------------------- */

static void drop_plain(struct twi_sync *sync) {
    twi_check(!sync->stores[0]->merge->has_script);
    struct twi_store *store = sync->stores[0];
    struct twi_connection *connection = sync->connections[0];
    struct twi_merge_plain *merge_plain = store->merge_plain;
    if (connection->pipeline.count == 0) return;
    const struct twi_pending *pending = &connection->pipeline.pending[connection->pipeline.first];
    struct twi_batch *batch = pending->batch;
    if (pending->command != TWI_MERGE_PLAIN) return;
    bool whole = pending->out_end <= connection->pipeline.out_sent,
         none = connection->pipeline.out_sent <= pending->out_begin;
    if (none || (merge_plain->in_multi && !whole)) batch->copies_open--; /* EXEC never went out, so it had no effect */
    if (merge_plain->in_multi) /* EXEC got no reply, so only items that left the transaction are settled */
        merge_plain->item = 0;
    else if (merge_plain->stage == STAGE_RESULTS && merge_plain->step > STEP_COUNT)
        finish_item(sync, batch, connection->replied.at_ms); /* its count was answered before */
    keep_the_rest(store, batch);
    batch->item_count = merge_plain->kept;
    merge_plain->stage = STAGE_TIME;
    merge_plain->item = merge_plain->kept = merge_plain->repair_count = 0;
    merge_plain->repairs.size = 0;
}

/* ---- the three ways ---------------------------------------------------------------------------------------------- */

static void send_script(struct twi_sync *sync, struct twi_store *store, struct twi_batch *batch, int64_t now_ms) {
    twi_send_batch(sync, store, batch, TWI_BATCH, now_ms);
}

static void drop_nothing(struct twi_sync *sync) {
    (void)sync; /* the ledger keeps the batches */
}

const struct twi_merge *twi_merge_of(uint32_t option) {
    static const struct twi_merge ways[] = {
        [TW_MERGE_SCRIPT] = {true, false, twi_batch_freeze, send_script, drop_nothing},
        [TW_MERGE_MULTI] = {false, true, twi_batch_gather, send_plain, drop_plain},
        [TW_MERGE_SETNX] = {false, false, twi_batch_gather, send_plain, drop_plain},
    };
    twi_check(option < sizeof ways / sizeof *ways);
    return &ways[option];
}
