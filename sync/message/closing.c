/* closing.c -- see closing.h. */
#include "sync/message/closing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/port/items.h"
#include "engine/port/messages.h"
#include "engine/port/services.h"
#include "sync/message/message.h"
#include "sync/message/refusal.h"
#include "sync/message/state.h"

#include "close_election.lua.h"
#include "close_election.lua.sha1.h"

#define ARGUMENTS_MAX (3 + 12 + TWI_CLOSING_NAMES_MAX) /* keys, and what is said */

static const struct twi_script_source script = {twi_script_close_election, twi_script_close_election_sha1};

static const char *const verbs[] = {
    [TWI_CLOSING_SEND_HEARTBEAT] = "word", [TWI_CLOSING_SEND_JOIN] = "come", [TWI_CLOSING_SEND_LEAVE] = "leave",
    [TWI_CLOSING_SEND_LIST] = "list",      [TWI_CLOSING_SEND_CLAIM] = "ask", [TWI_CLOSING_SEND_LAST] = "last",
    [TWI_CLOSING_SEND_READ] = "read",      [TWI_CLOSING_SEND_PASS] = "pass", [TWI_CLOSING_SEND_PARTIAL] = "part",
    [TWI_CLOSING_SEND_DONE] = "done",
};

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
    return TWI_CLOSING_REPLY_REFUSED; /* engines of another version close them */
}

static void refused(struct twi_sync *sync, struct twi_closing_sent *slot, const struct twi_node *error) {
    struct twi_store *store = &sync->store;
    if (!store->closing.is_logged)
        twi_refusal_report(&sync->connection, "the choice of one engine to close a window", error);
    store->closing.is_logged = true;
    answer(sync, slot, &(struct twi_closing_answer){.kind = TWI_CLOSING_REPLY_REFUSED});
}

/* Has the ledger looked at, for Redis may have been wiped: an empty batch is due. */
static void doubt(struct twi_store *store, int64_t now_ms) {
    store->belief.written_ms = now_ms - 2 * TWI_LEDGER_REFRESH_MS;
    store->closing.doubts = true;
    store->closing.doubts_ms = store->belief.written_ms;
}

static bool take(struct twi_sync *sync, void *ctx, enum twi_message_outcome outcome, const struct twi_node *nodes,
                 size_t count, int64_t now_ms) {
    struct twi_store *store = &sync->store;
    struct twi_closing_sent *slot = ctx;
    struct twi_closing_answer result = {.kind = TWI_CLOSING_REPLY_RESEND};
    if (outcome != TWI_MESSAGE_ANSWERED) {
        if (count != 0)
            refused(sync, slot, nodes);
        else
            answer(sync, slot, &result);
        return true;
    }
    bool whole = nodes->type == TWI_NODE_ARRAY && count >= 4;
    if (whole) result.kind = kind_of(&nodes[1]);
    result.is_repeat = whole && twi_node_is(&nodes[1], "AGAIN");
    bool reads = slot->message.verb == TWI_CLOSING_SEND_READ && result.kind == TWI_CLOSING_REPLY_YOU;
    if (!whole || (reads && (count < 5 || nodes[4].type != TWI_NODE_STRING))) {
        result.kind = TWI_CLOSING_REPLY_RESEND;
        answer(sync, slot, &result);
        return false;
    }
    if (result.kind == TWI_CLOSING_REPLY_NEW) doubt(store, now_ms);
    if (result.kind != TWI_CLOSING_REPLY_REFUSED) store->closing.is_logged = false;
    result.scan = reads ? nodes[4].text : "";
    if (slot->message.verb == TWI_CLOSING_SEND_HEARTBEAT && count > 4) (void)twi_node_i64(&nodes[4], &result.every_ms);
    for (size_t i = 5; reads && i < count; i++)
        if (nodes[i].type == TWI_NODE_STRING)
            twi_port_closing_name(sync->engine, &slot->message, tw_bytes(nodes[i].text, nodes[i].size));
    for (size_t i = 4; slot->message.verb == TWI_CLOSING_SEND_JOIN && result.kind == TWI_CLOSING_REPLY_OK && i < count;
         i++)
        if (nodes[i].type == TWI_NODE_STRING)
            twi_port_closing_partial(sync->engine, &slot->message, strtoll(nodes[i].text, NULL, 10));
    answer(sync, slot, &result);
    return true;
}

/* ---- out --------------------------------------------------------------------------------------------------------- */

/* Numbers as text, and the words that point to them. */
struct words {
    struct twi_message_argument at[ARGUMENTS_MAX];
    size_t count, used;
    char text[512];
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

static void put_ends(struct words *words, const struct twi_closing_message *message, bool doubts) {
    char *at = words->text + words->used;
    size_t room = sizeof words->text - words->used, size = 1;
    at[0] = ',';
    for (uint32_t i = 0; i < message->end_count && !doubts; i++)
        size += (size_t)snprintf(at + size, room - size, "%lld,", (long long)message->ends_ms[i]);
    words->used += size + 1;
    put(words, at, size);
}

static void put_message(struct twi_sync *sync, struct words *words, const struct twi_closing_message *message) {
    struct twi_store *store = &sync->store;
    put_text(words, "1");
    put_text(words, verbs[message->verb]);
    put_text(words, twi_port_engine_id(sync->engine));
    put_i64(words, (int64_t)++store->closing.number);
    put_text(words, message->known ? "1" : "0");
    put_i64(words, message->life_ms);
    put_i64(words, store->closing.doubts ? -1 : message->floor_ms);
    put_ends(words, message, store->closing.doubts);
    put_i64(words, message->end_ms);
    put_i64(words, message->expiry_ms + sync->connection.clock.offset_ms);
    bool reads = message->verb == TWI_CLOSING_SEND_READ, asks = message->verb == TWI_CLOSING_SEND_CLAIM;
    if (reads) put_text(words, message->scan);
    if (reads || asks) put_text(words, message->flag ? "1" : "0");
    if (asks || message->verb == TWI_CLOSING_SEND_LIST) put_text(words, message->through ? "1" : "0");
    if (message->verb == TWI_CLOSING_SEND_PARTIAL || message->verb == TWI_CLOSING_SEND_DONE)
        put_i64(words, message->start_ms);
    for (uint32_t i = 0; i < message->name_count; i++) put(words, message->names[i].data, message->names[i].size);
}

static bool send_message(struct twi_sync *sync, struct twi_closing_sent *slot, int64_t now_ms) {
    char keys[3][TWI_OWN_NAME_MAX];
    size_t sizes[3];
    struct words words = {.count = 0};
    twi_port_closing_keys(&slot->message, keys, sizes);
    for (int i = 0; i < 3; i++) put(&words, keys[i], sizes[i]);
    put_message(sync, &words, &slot->message);
    const struct twi_message side = {.sender = TWI_SENDER_CLOSING,
                                     .script = &script,
                                     .arguments = words.at,
                                     .key_count = 3,
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

void twi_closing_sender_step(struct twi_sync *sync, int64_t now_ms) {
    struct twi_store *store = &sync->store;
    struct twi_closing_sender *closing = &store->closing;
    struct twi_closing_sent *slot;
    if (closing->doubts && store->belief.written_ms != closing->doubts_ms) closing->doubts = false;
    while (twi_message_may_send(sync, TWI_SENDER_CLOSING) && (slot = free_slot(closing)) != NULL &&
           twi_port_closing(sync->engine, &slot->message)) {
        slot->busy = true;
        bool sent = send_message(sync, slot, now_ms);
        slot->message.name_count = 0;
        if (sent) continue;
        answer(sync, slot, &(struct twi_closing_answer){.kind = TWI_CLOSING_REPLY_RESEND});
        return;
    }
}

int64_t twi_closing_sender_due_ms(const struct twi_store *store) {
    for (uint32_t i = 0; i < TWI_CLOSING_SENT_MAX; i++)
        if (!store->closing.messages[i].busy) return twi_port_closing_due(store->engine);
    return INT64_MAX; /* an answer is awaited */
}
