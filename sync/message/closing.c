/* closing.c -- see closing.h. */
#include "sync/message/closing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/port/items.h"
#include "engine/port/messages.h"
#include "engine/port/services.h"
#include "sync/message/awake.h"
#include "sync/message/message.h"
#include "sync/message/refusal.h"
#include "sync/message/state.h"

#include "close_election.lua.h"
#include "close_election.lua.sha1.h"
#include "window_names.lua.h"
#include "window_names.lua.sha1.h"

#define ARGUMENTS_MAX (TWI_CLOSING_KEYS + 13 + TWI_CLOSING_NAMES_MAX) /* keys, arguments, names */

static const struct twi_script_source election_script = {twi_script_close_election, twi_script_close_election_sha1};
static const struct twi_script_source names_script = {twi_script_window_names, twi_script_window_names_sha1};

static const char *const verbs[] = {
    [TWI_CLOSING_SEND_HEARTBEAT] = "word", [TWI_CLOSING_SEND_LEAVE] = "leave",  [TWI_CLOSING_SEND_LIST] = "list",
    [TWI_CLOSING_SEND_CLAIM] = "ask",      [TWI_CLOSING_SEND_LAST] = "last",    [TWI_CLOSING_SEND_READ] = "read",
    [TWI_CLOSING_SEND_PASS] = "pass",      [TWI_CLOSING_SEND_PARTIAL] = "part", [TWI_CLOSING_SEND_DONE] = "done",
    [TWI_CLOSING_SEND_ADD] = "add",        [TWI_CLOSING_SEND_FETCH] = "read",   [TWI_CLOSING_SEND_DROP] = "drop",
};

/* It goes to a set of names, not to the election. */
static bool is_of_names(const struct twi_closing_message *message) {
    return message->verb >= TWI_CLOSING_SEND_ADD;
}

/* ---- what the stores still have ---------------------------------------------------------------------------------- */

/* Makes an empty batch due: its reply shows how the ledger stands. */
static void look_at(struct twi_sync *sync, struct twi_store *store, int64_t now_ms) {
    twi_awake_wake(sync, store);
    store->belief.written_ms = now_ms - 2 * TWI_LEDGER_REFRESH_MS;
    store->belief.look.is_under_way = true;
    store->belief.look.written_ms = store->belief.written_ms;
}

/* The election was forgotten, so Redis may have been wiped; of a cluster, a whole node. */
static void look_at_all(struct twi_sync *sync, int64_t now_ms) {
    for (uint32_t i = 0; i < sync->store_count; i++)
        if (!sync->by_slot || sync->stores[i]->ledger.name_size != 0) look_at(sync, sync->stores[i], now_ms);
}

/* Whether the store may lack what it has acknowledged. */
static bool is_doubted(const struct twi_sync *sync, const struct twi_store *store) {
    if (store->belief.look.is_under_way) return true;
    if (!sync->by_slot || store->ledger.name_size == 0) return false;
    return !store->belief.is_open || store->belief.doubt_since_ms != 0 || twi_ledger_is_replaying(&store->ledger) ||
           !store->connection || !twi_connection_takes(store->connection);
}

/* Each store is looked at after a reconnect: its node may have lost writes. (The only store of one Redis is opened
 * again before any message goes there.) */
static void count_doubted(struct twi_sync *sync, int64_t now_ms) {
    struct twi_closing_sender *closing = &sync->senders.closing;
    uint32_t doubted = 0;
    for (uint32_t i = 0; i < sync->awake.count; i++) {
        struct twi_store *store = sync->awake.stores[i];
        struct twi_store_look *look = &store->belief.look;
        if (look->is_under_way && store->belief.written_ms != look->written_ms) look->is_under_way = false;
        if (sync->by_slot && look->serial != store->route.serial && closing->number != 0 &&
            store->ledger.name_size != 0)
            look_at(sync, store, now_ms);
        look->serial = store->route.serial;
        doubted += is_doubted(sync, store);
    }
    if (doubted > closing->doubted) closing->doubted_ms = now_ms;
    closing->doubted = doubted;
}

/* True: this engine says that it has drained nothing. A store that stays away does not hold windows up for ever. */
static bool doubts(const struct twi_sync *sync, int64_t now_ms) {
    const struct twi_closing_sender *closing = &sync->senders.closing;
    if (closing->doubted == 0) return false;
    return !sync->by_slot || now_ms - closing->doubted_ms < twi_port_tuning(sync->engine)->closing_wait_ms;
}

/* A store was empty `age_ms` ago. */
static void pause(struct twi_sync *sync, int64_t age_ms, int64_t now_ms) {
    int64_t pause_ms = twi_port_tuning(sync->engine)->closing_pause_ms;
    if (age_ms < pause_ms) twi_port_closing_pause(sync->engine, now_ms + pause_ms - (age_ms > 0 ? age_ms : 0));
}

void twi_closing_sender_met(struct twi_sync *sync, int64_t made_ms, int64_t redis_ms, int64_t now_ms) {
    if (sync->by_slot) pause(sync, made_ms > 0 ? redis_ms - made_ms : 0, now_ms);
}

/* ---- in ---------------------------------------------------------------------------------------------------------- */

static void answer(struct twi_sync *sync, struct twi_closing_sent *slot, const struct twi_closing_answer *answer) {
    slot->busy = false;
    twi_port_closing_answered(sync->engine, &slot->message, answer);
}

static enum twi_closing_kind kind_of(const struct twi_node *status) {
    static const struct {
        const char *word;
        enum twi_closing_kind kind;
    } kinds[] = {{"OK", TWI_CLOSING_REPLY_OK},       {"WAIT", TWI_CLOSING_REPLY_WAIT}, {"LIST", TWI_CLOSING_REPLY_LIST},
                 {"OTHER", TWI_CLOSING_REPLY_OTHER}, {"YOU", TWI_CLOSING_REPLY_YOU},   {"DONE", TWI_CLOSING_REPLY_DONE},
                 {"AGAIN", TWI_CLOSING_REPLY_YOU},   {"LATE", TWI_CLOSING_REPLY_LATE}, {"NEW", TWI_CLOSING_REPLY_NEW},
                 {"OLD", TWI_CLOSING_REPLY_RESEND}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (twi_node_is(status, kinds[i].word)) return kinds[i].kind;
    return TWI_CLOSING_REPLY_REFUSED; /* CLASH: engines of another version close these windows */
}

static void refused(struct twi_sync *sync, struct twi_connection *connection, struct twi_closing_sent *slot,
                    const struct twi_node *error) {
    struct twi_closing_sender *closing = &sync->senders.closing;
    if (!closing->is_logged) twi_refusal_report(connection, "the choice of one engine to close a window", error);
    closing->is_logged = true;
    answer(sync, slot, &(struct twi_closing_answer){.kind = TWI_CLOSING_REPLY_REFUSED});
}

/* The figure behind the number of others: how often heartbeats are to come, or in which round names are added. */
static void read_figure(const struct twi_closing_message *message, const struct twi_node *node,
                        struct twi_closing_answer *result) {
    int64_t figure = 0;
    if (message->verb == TWI_CLOSING_SEND_HEARTBEAT && twi_node_pause(node, &figure)) result->every_ms = figure;
    if (!twi_node_time(node, &figure)) return;
    if (message->by_tag) result->round = (uint32_t)figure;
}

/* The store's marker, as the reply to FETCH has it. */
static void take_age(struct twi_sync *sync, const struct twi_node *nodes, int64_t now_ms) {
    int64_t redis_ms = 0, made_ms = 0;
    if (twi_node_time(&nodes[2], &redis_ms) && twi_node_time(&nodes[3], &made_ms))
        twi_closing_sender_met(sync, made_ms, redis_ms, now_ms);
}

static bool take(struct twi_sync *sync, struct twi_connection *connection, void *ctx, enum twi_message_outcome outcome,
                 const struct twi_node *nodes, size_t count, int64_t now_ms) {
    struct twi_closing_sender *closing = &sync->senders.closing;
    struct twi_closing_sent *slot = ctx;
    struct twi_closing_answer result = {.kind = TWI_CLOSING_REPLY_RESEND};
    if (outcome != TWI_MESSAGE_ANSWERED) {
        if (count != 0)
            refused(sync, connection, slot, nodes);
        else
            answer(sync, slot, &result);
        return true;
    }
    bool whole = nodes->type == TWI_NODE_ARRAY && count >= 4;
    if (whole) result.kind = kind_of(&nodes[1]);
    result.is_repeat = whole && twi_node_is(&nodes[1], "AGAIN");
    bool fetches = slot->message.verb == TWI_CLOSING_SEND_FETCH;
    bool reads = (fetches || slot->message.verb == TWI_CLOSING_SEND_READ) && result.kind == TWI_CLOSING_REPLY_YOU;
    if (!whole || (reads && (count < 5 || nodes[4].type != TWI_NODE_STRING))) {
        result.kind = TWI_CLOSING_REPLY_RESEND;
        answer(sync, slot, &result);
        return false;
    }
    if (result.kind == TWI_CLOSING_REPLY_NEW) look_at_all(sync, now_ms);
    if (reads && fetches) take_age(sync, nodes, now_ms);
    if (result.kind != TWI_CLOSING_REPLY_REFUSED) closing->is_logged = false;
    result.scan = reads ? nodes[4].text : "";
    if (!reads && count > 4) read_figure(&slot->message, &nodes[4], &result);
    int64_t died = 0;
    result.reads_all =
        result.kind == TWI_CLOSING_REPLY_YOU && !reads && count > 5 && twi_node_i64(&nodes[5], &died) && died;
    for (size_t i = 5; reads && i < count; i++)
        if (nodes[i].type == TWI_NODE_STRING)
            twi_port_closing_name(sync->engine, &slot->message, tw_bytes(nodes[i].text, nodes[i].size));
    bool beats = slot->message.verb == TWI_CLOSING_SEND_HEARTBEAT && result.kind == TWI_CLOSING_REPLY_OK;
    for (size_t i = 5; beats && i < count; i++)
        if (nodes[i].type == TWI_NODE_STRING)
            twi_port_closing_window(sync->engine, &slot->message, strtoll(nodes[i].text, NULL, 10));
    answer(sync, slot, &result);
    return true;
}

/* ---- out --------------------------------------------------------------------------------------------------------- */

/* The arguments of a message; `text` holds the numbers among them. */
struct words {
    struct twi_message_argument at[ARGUMENTS_MAX];
    size_t count, used;
    char text[1024];
};

static void put(struct words *words, const void *data, size_t size) {
    words->at[words->count++] = (struct twi_message_argument){data, size};
}
static void put_text(struct words *words, const char *text) {
    put(words, text, strlen(text));
}
static void put_i64(struct words *words, int64_t number) {
    char *at = words->text + words->used;
    size_t size = (size_t)snprintf(at, sizeof words->text - words->used, "%lld", (long long)number);
    words->used += size + 1;
    put(words, at, size);
}

static void put_ends(struct words *words, const struct twi_closing_message *message, bool holds_all) {
    char *at = words->text + words->used;
    size_t room = sizeof words->text - words->used, size = 1;
    at[0] = ',';
    for (uint32_t i = 0; i < message->end_count && !holds_all; i++)
        size += (size_t)snprintf(at + size, room - size, "%lld,", (long long)message->ends_ms[i]);
    words->used += size + 1;
    put(words, at, size);
}

static void put_listed(struct words *words, const struct twi_closing_message *message, int64_t offset_ms) {
    put_i64(words, message->look_ms + offset_ms);
    for (uint32_t i = 0; i < message->announced.count; i++) {
        put_i64(words, message->announced.at[i].start_ms);
        put_i64(words, message->announced.at[i].due_ms + offset_ms);
        put_i64(words, message->announced.at[i].expiry_ms + offset_ms);
    }
}

static void put_message(struct twi_sync *sync, struct words *words, const struct twi_closing_message *message,
                        const struct twi_store *store, int64_t now_ms) {
    bool holds_all = doubts(sync, now_ms);
    put_text(words, message->by_tag ? "2" : "1");
    put_text(words, verbs[message->verb]);
    put_text(words, twi_port_engine_id(sync->engine));
    put_i64(words, (int64_t)++sync->senders.closing.number);
    put_text(words, message->known ? "1" : "0");
    put_i64(words, message->life_ms);
    put_i64(words, holds_all ? -1 : message->floor_ms);
    put_ends(words, message, holds_all);
    int64_t offset_ms = store->connection->clock.offset_ms;
    put_i64(words, message->end_ms);
    put_i64(words, message->expiry_ms + offset_ms);
    bool reads = message->verb == TWI_CLOSING_SEND_READ, asks = message->verb == TWI_CLOSING_SEND_CLAIM;
    if (reads) put_text(words, message->scan);
    if (reads || asks) put_text(words, message->flag ? "1" : "0");
    if (asks || message->verb == TWI_CLOSING_SEND_LIST) put_text(words, message->through ? "1" : "0");
    if (message->verb == TWI_CLOSING_SEND_LIST) put_text(words, message->recorded ? "1" : "0");
    if (message->verb == TWI_CLOSING_SEND_PARTIAL || message->verb == TWI_CLOSING_SEND_DONE)
        put_i64(words, message->start_ms);
    if (message->verb == TWI_CLOSING_SEND_PARTIAL) put_i64(words, message->look_ms + offset_ms);
    if (message->verb == TWI_CLOSING_SEND_HEARTBEAT) put_listed(words, message, offset_ms);
}

static bool has_marker(const struct twi_closing_message *message) {
    return message->verb == TWI_CLOSING_SEND_FETCH || message->verb == TWI_CLOSING_SEND_ADD;
}

/* To a set of names. */
static void put_names_message(struct words *words, const struct twi_closing_message *message,
                              const struct twi_store *store) {
    if (has_marker(message)) put(words, store->marker_name, store->marker_name_size);
    put_text(words, "1");
    put_text(words, verbs[message->verb]);
    if (message->verb == TWI_CLOSING_SEND_FETCH) put_text(words, message->scan);
    if (message->verb != TWI_CLOSING_SEND_ADD) return;
    put_i64(words, message->expiry_ms + store->connection->clock.offset_ms);
    put_i64(words, 4 * message->life_ms);
    put_text(words, message->recorded && store->ledger.marker_known ? store->ledger.marker : "");
}

static struct twi_store *store_of(struct twi_sync *sync, const char *key, size_t size) {
    return sync->by_slot ? sync->by_slot->store_of(sync, twi_key_slot_of(key, size)) : sync->stores[0];
}

static bool send_message(struct twi_sync *sync, struct twi_closing_sent *slot, int64_t now_ms) {
    const struct twi_closing_message *message = &slot->message;
    char keys[TWI_CLOSING_KEYS][TWI_OWN_NAME_MAX];
    size_t sizes[TWI_CLOSING_KEYS], key_count = twi_port_closing_keys(message, keys, sizes);
    struct words words = {.count = 0};
    struct twi_store *store = store_of(sync, keys[0], sizes[0]);
    if (!store || !twi_message_may_send(sync, store, TWI_SENDER_CLOSING)) return false;
    for (size_t i = 0; i < key_count; i++) put(&words, keys[i], sizes[i]);
    if (is_of_names(message))
        put_names_message(&words, message, store);
    else
        put_message(sync, &words, message, store, now_ms);
    for (uint32_t i = 0; i < message->name_count; i++) put(&words, message->names[i].data, message->names[i].size);
    const struct twi_message side = {.sender = TWI_SENDER_CLOSING,
                                     .store = store,
                                     .script = is_of_names(message) ? &names_script : &election_script,
                                     .arguments = words.at,
                                     .key_count = key_count + has_marker(message),
                                     .argument_count = words.count,
                                     .done = take,
                                     .ctx = slot};
    return twi_message_send(sync, &side, now_ms);
}

static struct twi_closing_sent *free_slot(struct twi_closing_sender *closing) {
    for (uint32_t i = 0; i < TWI_CLOSING_SENT_MAX; i++)
        if (!closing->messages[i].busy) return &closing->messages[i];
    return NULL;
}

/* Where there are several stores, a message shows which it goes to. */
static bool may_begin(const struct twi_sync *sync) {
    return sync->by_slot || twi_message_may_send(sync, NULL, TWI_SENDER_CLOSING);
}

void twi_closing_sender_step(struct twi_sync *sync, int64_t now_ms) {
    struct twi_closing_sender *closing = &sync->senders.closing;
    struct twi_closing_sent *slot;
    count_doubted(sync, now_ms);
    while (may_begin(sync) && (slot = free_slot(closing)) != NULL && twi_port_closing(sync->engine, &slot->message)) {
        slot->busy = true;
        bool sent = send_message(sync, slot, now_ms);
        slot->message.name_count = 0;
        if (sent) continue;
        answer(sync, slot, &(struct twi_closing_answer){.kind = TWI_CLOSING_REPLY_RESEND}); /* not at once */
        if (!sync->by_slot) return;
    }
}

int64_t twi_closing_sender_due_ms(const struct twi_sync *sync) {
    for (uint32_t i = 0; i < TWI_CLOSING_SENT_MAX; i++)
        if (!sync->senders.closing.messages[i].busy) return twi_port_closing_due(sync->engine);
    return INT64_MAX; /* a reply is awaited */
}
