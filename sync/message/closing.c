/* closing.c -- see closing.h. */
#include "sync/message/closing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/check.h"
#include "engine/port/items.h"
#include "engine/port/messages.h"
#include "engine/port/services.h"
#include "sync/message/active.h"
#include "sync/message/message.h"
#include "sync/message/refusal.h"
#include "sync/message/state.h"

#include "close_election.lua.h"
#include "window_names.lua.h"

#define ARGUMENTS_MAX (15 + 3 * TWI_CLOSING_LISTED_MAX + TWI_CLOSING_NAMES_MAX) /* of one message, names included */

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
    twi_check(message->verb < sizeof verbs / sizeof *verbs);
    return message->verb >= TWI_CLOSING_SEND_ADD;
}

/* ---- what the stores still have ---------------------------------------------------------------------------------- */

/* Makes an empty batch due. Its reply shows the state of the ledger. */
static void closing_look_at(struct twi_sync *sync, struct twi_store *store, int64_t now_ms) {
    twi_active_wake(sync, store);
    store->assumed.written_ms = now_ms - 2 * TWI_LEDGER_REFRESH_MS;
    store->assumed.look.is_under_way = true;
    store->assumed.look.written_ms = store->assumed.written_ms;
}

/* The election was forgotten, so Redis, or a whole node of a cluster, may have been wiped. */
static void closing_look_at_all(struct twi_sync *sync, int64_t now_ms) {
    for (uint32_t i = 0; i < sync->store_count; i++)
        if (!sync->by_slot || sync->stores[i]->ledger.name_size != 0) closing_look_at(sync, sync->stores[i], now_ms);
}

/* Whether the store may lack counts that it has acknowledged. */
static bool is_suspect_store(const struct twi_sync *sync, const struct twi_store *store) {
    if (store->assumed.look.is_under_way) return true;
    if (!sync->by_slot || store->ledger.name_size == 0) return false;
    return !store->assumed.is_open || store->assumed.unknown_since_ms != 0 || twi_ledger_is_replaying(&store->ledger) ||
           !store->connection || !twi_connection_takes(store->connection);
}

/* Each store is looked at after a reconnect. Its node may have lost writes. (The only store of one Redis is opened
 * again before any message goes there.) */
static void count_suspects(struct twi_sync *sync, int64_t now_ms) {
    struct twi_closing_sender *closing = &sync->senders.closing;
    uint32_t suspects = 0;
    for (uint32_t i = 0; i < sync->active.count; i++) {
        struct twi_store *store = sync->active.stores[i];
        struct twi_store_look *look = &store->assumed.look;
        if (look->is_under_way && store->assumed.written_ms != look->written_ms) look->is_under_way = false;
        if (sync->by_slot && look->serial != store->route.serial && closing->number != 0 &&
            store->ledger.name_size != 0)
            closing_look_at(sync, store, now_ms);
        look->serial = store->route.serial;
        suspects += is_suspect_store(sync, store);
    }
    twi_check(suspects <= sync->active.count);
    if (suspects > closing->suspects) closing->suspects_ms = now_ms;
    closing->suspects = suspects;
}

/* Returns true if this engine must report that it has drained no window. A store that stays unreachable does not delay
 * windows for ever. */
static bool doubts(const struct twi_sync *sync, int64_t now_ms) {
    twi_check(sync->senders.closing.suspects <= sync->store_count);
    const struct twi_closing_sender *closing = &sync->senders.closing;
    if (closing->suspects == 0) return false;
    return !sync->by_slot || now_ms - closing->suspects_ms < twi_port_tuning(sync->engine)->closing_wait_ms;
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

static enum twi_closing_kind closing_kind_of(const struct twi_node *status) {
    static const struct {
        const char *word;
        enum twi_closing_kind kind;
    } kinds[] = {
        {"OK", TWI_CLOSING_REPLY_OK},       {"WAIT", TWI_CLOSING_REPLY_WAIT},   {"LIST", TWI_CLOSING_REPLY_LIST},
        {"OTHER", TWI_CLOSING_REPLY_OTHER}, {"YOU", TWI_CLOSING_REPLY_YOU},     {"DONE", TWI_CLOSING_REPLY_DONE},
        {"AGAIN", TWI_CLOSING_REPLY_YOU},   {"LATE", TWI_CLOSING_REPLY_LATE},   {"NEW", TWI_CLOSING_REPLY_NEW},
        {"OLD", TWI_CLOSING_REPLY_RESEND},  {"LATER", TWI_CLOSING_REPLY_RESEND}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (twi_node_is(status, kinds[i].word)) return kinds[i].kind;
    return TWI_CLOSING_REPLY_REFUSED; /* CLASH, as engines of another version close these windows */
}

static void closing_refused(struct twi_sync *sync, struct twi_connection *connection,
                            const struct twi_closing_message *message, const struct twi_node *error) {
    twi_check(error->type == TWI_NODE_ERROR);
    struct twi_closing_sender *closing = &sync->senders.closing;
    char keys[TWI_CLOSING_KEYS][TWI_OWN_NAME_MAX], what[160];
    size_t sizes[TWI_CLOSING_KEYS];
    (void)twi_port_closing_keys(message, keys, sizes);
    (void)snprintf(what, sizeof what, "the choice of one engine to close a window (%.*s)",
                   sizes[0] < 100 ? (int)sizes[0] : 100, keys[0]);
    if (!closing->is_logged) twi_refusal_report(connection, what, error);
    closing->is_logged = true;
    twi_port_closing_answered(sync->engine, message, &(struct twi_closing_answer){.kind = TWI_CLOSING_REPLY_REFUSED});
}

/* The figure after the number of others. It is the interval of heartbeats, or the round in which names are added. */
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

/* One member of a set of names. It is a name, or a zero byte and then "size:name" for each of several names
 * (batch.lua). */
static void take_names(struct twi_sync *sync, const struct twi_closing_message *message, const struct twi_node *node) {
    const char *at = node->text, *end = node->text + node->size;
    if (node->size == 0 || *at != '\0') {
        twi_port_closing_name(sync->engine, message, tw_bytes(at, node->size));
        return;
    }
    for (at++; at < end;) {
        size_t size = 0, digits = 0;
        for (; at < end && *at >= '0' && *at <= '9' && digits < 4; at++, digits++)
            size = size * 10 + (size_t)(*at - '0');
        if (digits == 0 || at == end || *at != ':' || size == 0 || size > (size_t)(end - at - 1)) {
            twi_port_closing_name(sync->engine, message, tw_bytes("", 0)); /* no engine wrote it, so names were lost */
            return;
        }
        twi_port_closing_name(sync->engine, message, tw_bytes(at + 1, size));
        at += 1 + size;
    }
}

/* Names of keys, or windows, as they come after the reply's head. */
static void take_list(struct twi_sync *sync, const struct twi_closing_message *message, bool are_names,
                      const struct twi_node *nodes, size_t count) {
    twi_check(nodes->type == TWI_NODE_ARRAY);
    for (size_t i = 5; i < count; i++) {
        if (nodes[i].type != TWI_NODE_STRING) continue;
        if (are_names)
            take_names(sync, message, &nodes[i]);
        else
            twi_port_closing_window(sync->engine, message, strtoll(nodes[i].text, NULL, 10));
    }
}

/* The reply to one message, which is an array and its elements. Returns false if it is no such reply. */
static bool closing_take_reply(struct twi_sync *sync, const struct twi_closing_message *message,
                               const struct twi_node *nodes, size_t count, int64_t now_ms) {
    twi_check(count != 0);
    struct twi_closing_answer result = {.kind = TWI_CLOSING_REPLY_RESEND};
    bool whole = nodes->type == TWI_NODE_ARRAY && count >= 4;
    if (whole) result.kind = closing_kind_of(&nodes[1]);
    result.is_repeat = whole && twi_node_is(&nodes[1], "AGAIN");
    bool fetches = message->verb == TWI_CLOSING_SEND_FETCH;
    bool reads = (fetches || message->verb == TWI_CLOSING_SEND_READ) && result.kind == TWI_CLOSING_REPLY_YOU;
    bool beats = message->verb == TWI_CLOSING_SEND_HEARTBEAT && result.kind == TWI_CLOSING_REPLY_OK;
    if (!whole || (reads && (count < 5 || nodes[4].type != TWI_NODE_STRING))) return false;
    if (result.kind == TWI_CLOSING_REPLY_NEW) closing_look_at_all(sync, now_ms);
    if (reads && fetches) take_age(sync, nodes, now_ms);
    if (result.kind != TWI_CLOSING_REPLY_REFUSED) sync->senders.closing.is_logged = false;
    result.scan = reads ? nodes[4].text : "";
    if (!reads && count > 4) read_figure(message, &nodes[4], &result);
    int64_t died = 0;
    result.reads_all =
        result.kind == TWI_CLOSING_REPLY_YOU && !reads && count > 5 && twi_node_i64(&nodes[5], &died) && died;
    result.lacks_names = result.reads_all && died == 2;
    if (reads || beats) take_list(sync, message, reads, nodes, count);
    twi_port_closing_answered(sync->engine, message, &result);
    return true;
}

/* Where the reply to a message ends, which is before the next node that is not within it. */
static size_t size_of(const struct twi_node *nodes, size_t count) {
    twi_check(count != 0);
    size_t size = 1;
    while (size < count && nodes[size].depth > nodes->depth) size++;
    return size;
}

/* One reply, or an array of as many as there are messages; each message has its answer, whatever comes. */
static bool closing_take(struct twi_sync *sync, struct twi_connection *connection, void *ctx,
                         enum twi_message_outcome outcome, const struct twi_node *nodes, size_t count, int64_t now_ms) {
    twi_check(outcome != TWI_MESSAGE_ANSWERED || count != 0);
    struct twi_closing_sent *slot = ctx;
    bool is_error = outcome != TWI_MESSAGE_ANSWERED && count != 0, is_understood = true;
    bool are_many = slot->count > 1 && outcome == TWI_MESSAGE_ANSWERED;
    const struct twi_node *at = are_many ? nodes + 1 : nodes, *end = count != 0 ? nodes + count : nodes;
    for (uint32_t i = 0; i < slot->count; i++) {
        const struct twi_closing_message *message = &slot->messages[i];
        if (is_error || (at < end && at->type == TWI_NODE_ERROR)) {
            closing_refused(sync, connection, message, at);
        } else if (outcome != TWI_MESSAGE_ANSWERED || at >= end ||
                   !closing_take_reply(sync, message, at, size_of(at, (size_t)(end - at)), now_ms)) {
            twi_port_closing_answered(sync->engine, message,
                                      &(struct twi_closing_answer){.kind = TWI_CLOSING_REPLY_RESEND});
            is_understood = is_understood && outcome != TWI_MESSAGE_ANSWERED;
        }
        if (are_many && at < end) at += size_of(at, (size_t)(end - at));
    }
    slot->busy = false;
    return is_understood;
}

/* ---- out --------------------------------------------------------------------------------------------------------- */

/* Keys and arguments of one message; `text` has the numbers among them. */
struct words {
    struct twi_message_argument at[ARGUMENTS_MAX];
    size_t count, used;
    char text[1024];
};

static void closing_put(struct words *words, const void *data, size_t size) {
    twi_check(words->count < ARGUMENTS_MAX);
    words->at[words->count++] = (struct twi_message_argument){data, size};
}
static void put_text(struct words *words, const char *text) {
    closing_put(words, text, strlen(text));
}
static void put_i64(struct words *words, int64_t number) {
    twi_check(words->used < sizeof words->text);
    char *at = words->text + words->used;
    size_t size = (size_t)snprintf(at, sizeof words->text - words->used, "%lld", (long long)number);
    words->used += size + 1;
    twi_check(words->used <= sizeof words->text);
    closing_put(words, at, size);
}

static void put_ends(struct words *words, const struct twi_closing_message *message, bool holds_all) {
    twi_check(words->used < sizeof words->text);
    char *at = words->text + words->used;
    size_t room = sizeof words->text - words->used, size = 1;
    at[0] = ',';
    for (uint32_t i = 0; i < message->end_count && !holds_all; i++)
        size += (size_t)snprintf(at + size, room - size, "%lld,", (long long)message->ends_ms[i]);
    words->used += size + 1;
    twi_check(words->used <= sizeof words->text);
    closing_put(words, at, size);
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
    twi_check(store->connection != NULL && !is_of_names(message));
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
    bool reads = message->verb == TWI_CLOSING_SEND_READ;
    bool ends = message->verb == TWI_CLOSING_SEND_CLAIM || message->verb == TWI_CLOSING_SEND_LIST;
    if (reads) put_text(words, message->scan);
    if (reads || ends) put_text(words, message->flag ? "1" : "0");
    if (ends) put_text(words, message->through ? "1" : "0");
    if (ends || message->verb == TWI_CLOSING_SEND_PARTIAL || message->verb == TWI_CLOSING_SEND_DONE)
        put_i64(words, message->start_ms);
    if (ends) put_text(words, message->recorded ? "1" : "0");
    if (message->verb == TWI_CLOSING_SEND_PARTIAL) put_i64(words, message->look_ms + offset_ms);
    if (message->verb == TWI_CLOSING_SEND_HEARTBEAT) put_listed(words, message, offset_ms);
}

static bool has_marker(const struct twi_closing_message *message) {
    return message->verb == TWI_CLOSING_SEND_FETCH || message->verb == TWI_CLOSING_SEND_ADD;
}

/* To a set of names. */
static void put_names_message(struct words *words, const struct twi_closing_message *message,
                              const struct twi_store *store) {
    twi_check(store->connection != NULL && is_of_names(message));
    put_text(words, "1");
    put_text(words, verbs[message->verb]);
    if (message->verb == TWI_CLOSING_SEND_FETCH) put_text(words, message->scan);
    if (message->verb != TWI_CLOSING_SEND_ADD) return;
    put_i64(words, message->expiry_ms + store->connection->clock.offset_ms);
    put_i64(words, 4 * message->life_ms);
    put_text(words, message->recorded && store->ledger.marker_known ? store->ledger.marker : "");
}

/* One parcel. It has the keys of all messages, and after them the arguments of each. */
struct parcel {
    struct twi_store *store;
    struct twi_bytes keys, arguments;
    size_t key_count, argument_count;
    size_t begins[TWI_CLOSING_MESSAGES_MAX + 1], counts[TWI_CLOSING_MESSAGES_MAX]; /* of each message's arguments */
};

#define PARCEL_BYTES 8192 /* no further message is put into more than this */

static void put_into(struct twi_sync *sync, struct parcel *parcel, uint32_t number,
                     const struct twi_closing_message *message, int64_t now_ms) {
    char keys[TWI_CLOSING_KEYS][TWI_OWN_NAME_MAX];
    size_t sizes[TWI_CLOSING_KEYS], key_count = twi_port_closing_keys(message, keys, sizes);
    struct words words = {.count = 0};
    parcel->store = twi_sync_store_of(sync, keys[0], sizes[0]);
    parcel->begins[number] = parcel->begins[number + 1] = parcel->arguments.size;
    if (!parcel->store || !twi_message_may_send(sync, parcel->store, TWI_SENDER_CLOSING)) {
        parcel->store = NULL;
        return;
    }
    for (size_t i = 0; i < key_count; i++) twi_wire_put(&parcel->keys, keys[i], sizes[i]);
    if (has_marker(message)) twi_wire_put(&parcel->keys, parcel->store->marker_name, parcel->store->marker_name_size);
    if (is_of_names(message))
        put_names_message(&words, message, parcel->store);
    else
        put_message(sync, &words, message, parcel->store, now_ms);
    for (uint32_t i = 0; i < message->name_count; i++)
        closing_put(&words, message->names[i].data, message->names[i].size);
    for (size_t i = 0; i < words.count; i++) twi_wire_put(&parcel->arguments, words.at[i].data, words.at[i].size);
    parcel->key_count += key_count + has_marker(message);
    parcel->counts[number] = words.count;
    parcel->argument_count += words.count;
    parcel->begins[number + 1] = parcel->arguments.size;
}

/* Takes the memory of the parcel. */
static bool send(struct twi_sync *sync, struct parcel *parcel, struct twi_closing_sent *slot, int64_t now_ms) {
    struct twi_bytes encoded = {0};
    bool are_many = slot->count > 1;
    twi_wire_put_u64(&encoded, parcel->key_count);
    twi_bytes_add(&encoded, parcel->keys.data, parcel->keys.size);
    if (are_many) twi_wire_put_text(&encoded, "many");
    for (uint32_t i = 0; i < slot->count; i++) {
        if (are_many) twi_wire_put_u64(&encoded, parcel->counts[i]);
        twi_bytes_add(&encoded, parcel->arguments.data + parcel->begins[i], parcel->begins[i + 1] - parcel->begins[i]);
    }
    encoded.failed = encoded.failed || parcel->keys.failed || parcel->arguments.failed || parcel->store == NULL;
    const struct twi_message side = {.sender = TWI_SENDER_CLOSING,
                                     .store = parcel->store,
                                     .script = is_of_names(&slot->messages[0]) ? &names_script : &election_script,
                                     .argument_count =
                                         parcel->key_count + parcel->argument_count + (are_many ? 1 + slot->count : 0),
                                     .done = closing_take,
                                     .ctx = slot};
    twi_bytes_free(&parcel->keys);
    twi_bytes_free(&parcel->arguments);
    return twi_message_send_encoded(sync, &side, &encoded, now_ms);
}

/* NULL if all are under way, or there is no memory. */
static struct twi_closing_sent *closing_free_slot(struct twi_closing_sender *closing) {
    for (uint32_t i = 0; i < TWI_CLOSING_SENT_MAX; i++) {
        if (closing->sent[i] == NULL) closing->sent[i] = calloc(1, sizeof *closing->sent[i]);
        if (closing->sent[i] == NULL || !closing->sent[i]->busy) return closing->sent[i];
    }
    return NULL;
}

/* Where there are several stores, a message shows which it goes to, and elections lie in a slot each. They go alone. */
static bool may_begin(const struct twi_sync *sync) {
    return sync->by_slot || twi_message_may_send(sync, NULL, TWI_SENDER_CLOSING);
}

/* Fills the slot, and sends it. Returns false if no more may be sent in this turn. */
static bool closing_send_some(struct twi_sync *sync, struct twi_closing_sent *slot, int64_t now_ms) {
    twi_check(!slot->busy);
    tw_key names[TWI_CLOSING_NAMES_MAX];
    struct parcel parcel = {.store = NULL};
    uint32_t most = sync->by_slot ? 1 : TWI_CLOSING_MESSAGES_MAX;
    slot->count = 0;
    while (slot->count < most && parcel.arguments.size + parcel.keys.size < PARCEL_BYTES) {
        struct twi_closing_message *message = &slot->messages[slot->count];
        message->names = names;
        if (!twi_port_closing(sync->engine, message)) break;
        put_into(sync, &parcel, slot->count++, message, now_ms);
        message->names = NULL;
        message->name_count = 0;
    }
    if (slot->count == 0) return false;
    slot->busy = true;
    if (send(sync, &parcel, slot, now_ms)) return true;
    (void)closing_take(sync, NULL, slot, TWI_MESSAGE_UNKNOWN, NULL, 0, now_ms); /* not at once */
    return sync->by_slot;
}

void twi_closing_sender_step(struct twi_sync *sync, int64_t now_ms) {
    struct twi_closing_sent *slot;
    count_suspects(sync, now_ms);
    while (may_begin(sync) && (slot = closing_free_slot(&sync->senders.closing)) != NULL &&
           closing_send_some(sync, slot, now_ms))
        continue;
}

int64_t twi_closing_sender_due_ms(const struct twi_sync *sync) {
    if (!may_begin(sync)) return INT64_MAX;
    for (uint32_t i = 0; i < TWI_CLOSING_SENT_MAX; i++)
        if (sync->senders.closing.sent[i] == NULL || !sync->senders.closing.sent[i]->busy)
            return twi_port_closing_due(sync->engine);
    return INT64_MAX; /* a reply is awaited */
}

void twi_closing_sender_free(struct twi_closing_sender *closing) {
    for (uint32_t i = 0; i < TWI_CLOSING_SENT_MAX; i++) free(closing->sent[i]);
}
