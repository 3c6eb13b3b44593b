/* message.c -- see message.h. */
#include "sync/message/message.h"

#include "sync/batch/reply.h"
#include "sync/message/replicas.h"
#include "sync/message/pipeline.h"
#include "sync/message/state.h"

static struct twi_message_pending *pending_at(struct twi_messages *messages, uint32_t i) {
    return &messages->ring[(messages->first + i) % TWI_MESSAGES_MAX];
}

bool twi_message_may_send(const struct twi_sync *sync, enum twi_sender sender) {
    static const uint32_t quotas[TWI_SENDERS] = {[TWI_SENDER_LEASES] = TWI_LEASES_MAX,
                                                 [TWI_SENDER_REGISTRY] = 1,
                                                 [TWI_SENDER_CLOSING] = TWI_CLOSING_SENT_MAX,
                                                 [TWI_SENDER_PRESENCE] = TWI_PRESENCE_MAX};
    return sync->phase == TWI_UP && !sync->failure.is_there && !sync->rewind &&
           sync->breaker.state == TWI_BREAKER_CLOSED && sync->merge == TW_MERGE_SCRIPT &&
           sync->messages.of[sender] < quotas[sender];
}

/* Should memory fail here, the turn ends the connection, and that tells it. */
static void put(struct twi_sync *sync, const struct twi_message_pending *pending, int64_t now_ms) {
    if (sync->out.size == 0) sync->out_moved_ms = now_ms;
    twi_wire_begin(&sync->out, 3 + pending->word_count);
    twi_wire_put_text(&sync->out, pending->is_eval ? "EVAL" : "EVALSHA");
    twi_wire_put_text(&sync->out, pending->is_eval ? pending->script->text : pending->script->sha1);
    twi_bytes_add(&sync->out, pending->words.data, pending->words.size);
    if (pending->replicated != NULL && sync->wait_replicas != 0) sync->messages.unwaited = true;
    struct twi_pending *awaited = twi_pipeline_await(sync, TWI_MESSAGE, NULL, 1);
    if (pending->sender == TWI_SENDER_PRESENCE) awaited->alone = false; /* it takes Redis too long to tell the way */
}

bool twi_message_send_encoded(struct twi_sync *sync, const struct twi_message *message, struct twi_bytes *words,
                              int64_t now_ms) {
    struct twi_messages *messages = &sync->messages;
    struct twi_message_pending pending = {.sender = message->sender,
                                          .script = message->script,
                                          .done = message->done,
                                          .replicated = message->replicated,
                                          .ctx = message->ctx,
                                          .words = *words,
                                          .word_count = message->word_count};
    *words = (struct twi_bytes){0};
    if (pending.words.failed || !twi_message_may_send(sync, message->sender)) {
        twi_bytes_free(&pending.words);
        return false;
    }
    *pending_at(messages, messages->count++) = pending;
    messages->of[message->sender]++;
    put(sync, &pending, now_ms);
    return true;
}

bool twi_message_send(struct twi_sync *sync, const struct twi_message *message, int64_t now_ms) {
    struct twi_bytes words = {0};
    if (!twi_message_may_send(sync, message->sender)) return false;
    twi_wire_put_u64(&words, message->key_count);
    for (size_t i = 0; i < message->word_count; i++)
        twi_wire_put(&words, message->words[i].data, message->words[i].size);
    if (words.size > TWI_MESSAGE_BYTES_MAX) words.failed = true;
    return twi_message_send_encoded(sync, message, &words, now_ms);
}

static struct twi_message_pending take_first(struct twi_messages *messages) {
    struct twi_message_pending pending = *pending_at(messages, 0);
    *pending_at(messages, 0) = (struct twi_message_pending){0};
    messages->first = (messages->first + 1) % TWI_MESSAGES_MAX;
    messages->count--;
    messages->of[pending.sender]--;
    return pending;
}

static enum twi_message_outcome outcome_of(const struct twi_node *nodes) {
    if (nodes->type != TWI_NODE_ERROR) return TWI_MESSAGE_ANSWERED;
    return twi_reply_error(nodes) == TWI_REPLY_UNKNOWN ? TWI_MESSAGE_UNKNOWN : TWI_MESSAGE_REFUSED;
}

void twi_message_reply(struct twi_sync *sync, const struct twi_pending *awaited, const struct twi_node *nodes,
                       size_t count, int64_t now_ms) {
    (void)awaited;
    struct twi_messages *messages = &sync->messages;
    struct twi_message_pending pending = take_first(messages);
    bool is_new = nodes->type == TWI_NODE_ERROR && twi_reply_error(nodes) == TWI_REPLY_NOSCRIPT;
    if (is_new && !pending.is_eval) {
        pending.is_eval = true;
        *pending_at(messages, messages->count++) = pending;
        messages->of[pending.sender]++;
        put(sync, &pending, now_ms);
        return;
    }
    twi_bytes_free(&pending.words);
    enum twi_message_outcome outcome = outcome_of(nodes);
    if (!pending.done(sync, pending.ctx, outcome, nodes, count, now_ms)) {
        twi_sync_fail(sync, false, "a reply that is not understood");
    } else if (pending.replicated != NULL && sync->wait_replicas != 0 && outcome == TWI_MESSAGE_ANSWERED) {
        messages->held[messages->held_count++] = pending;
        messages->of[pending.sender]++;
    }
}

/* ---- replicas ---------------------------------------------------------------------------------------------------- */

void twi_message_step(struct twi_sync *sync, int64_t now_ms) {
    if (!sync->messages.unwaited) return;
    if (sync->out.size == 0) sync->out_moved_ms = now_ms;
    twi_replicas_put(sync);
    (void)twi_pipeline_await(sync, TWI_MESSAGE_WAIT, NULL, 1);
    sync->messages.unwaited = false;
    sync->messages.waits++;
}

static void release(struct twi_sync *sync, enum twi_message_outcome outcome) {
    struct twi_messages *messages = &sync->messages;
    for (uint32_t i = 0; i < messages->held_count; i++) {
        messages->of[messages->held[i].sender]--;
        messages->held[i].replicated(sync, messages->held[i].ctx, outcome);
    }
    messages->held_count = 0;
}

void twi_message_wait_reply(struct twi_sync *sync, const struct twi_pending *awaited, const struct twi_node *answer,
                            size_t count, int64_t now_ms) {
    int64_t replicas = 0;
    (void)awaited, (void)count, (void)now_ms;
    sync->messages.waits--;
    bool enough = twi_node_i64(answer, &replicas) && replicas >= (int64_t)sync->wait_replicas;
    release(sync, enough ? TWI_MESSAGE_ANSWERED : TWI_MESSAGE_REFUSED);
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

void twi_message_dropped(struct twi_sync *sync, int64_t now_ms) {
    release(sync, TWI_MESSAGE_UNKNOWN);
    sync->messages.waits = 0;
    sync->messages.unwaited = false;
    while (sync->messages.count != 0) {
        struct twi_message_pending pending = take_first(&sync->messages);
        twi_bytes_free(&pending.words);
        (void)pending.done(sync, pending.ctx, TWI_MESSAGE_UNKNOWN, NULL, 0, now_ms);
    }
}

void twi_message_free(struct twi_messages *messages) {
    while (messages->count != 0) {
        struct twi_message_pending pending = take_first(messages);
        twi_bytes_free(&pending.words);
    }
}
