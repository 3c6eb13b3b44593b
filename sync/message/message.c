/* message.c -- see message.h. */
#include "sync/message/message.h"

#include "sync/batch/reply.h"
#include "sync/message/replicas.h"
#include "sync/message/pipeline.h"
#include "sync/message/state.h"

static struct twi_side_pending *pending_at(struct twi_sides *sides, uint32_t i) {
    return &sides->ring[(sides->first + i) % TWI_SIDES_MAX];
}

bool twi_side_may(const struct twi_sync *sync, enum twi_sender sender) {
    static const uint32_t quotas[TWI_SENDERS] = {[TWI_SENDER_LEASES] = TWI_LEASES_MAX,
                                                 [TWI_SENDER_REGISTRY] = 1,
                                                 [TWI_SENDER_CLOSING] = TWI_CLOSERS_MAX,
                                                 [TWI_SENDER_PRESENCE] = TWI_PARTS_MAX};
    return sync->phase == TWI_UP && !sync->failure.is_there && !sync->rewind &&
           sync->breaker.state == TWI_BREAKER_CLOSED && sync->merge == TW_MERGE_SCRIPT &&
           sync->sides.of[sender] < quotas[sender];
}

/* Should memory fail here, the turn ends the connection, and that tells it. */
static void put(struct twi_sync *sync, const struct twi_side_pending *pending, int64_t now_ms) {
    if (sync->out.size == 0) sync->out_moved_ms = now_ms;
    twi_wire_begin(&sync->out, 3 + pending->word_count);
    twi_wire_put_text(&sync->out, pending->is_eval ? "EVAL" : "EVALSHA");
    twi_wire_put_text(&sync->out, pending->is_eval ? pending->script->text : pending->script->sha1);
    twi_bytes_add(&sync->out, pending->words.data, pending->words.size);
    if (pending->replicated != NULL && sync->wait_replicas != 0) sync->sides.unwaited = true;
    struct twi_pending *awaited = twi_pipeline_await(sync, TWI_SIDE, NULL, 1);
    if (pending->sender == TWI_SENDER_PRESENCE) awaited->alone = false; /* it takes Redis too long to tell the way */
}

bool twi_side_send_encoded(struct twi_sync *sync, const struct twi_side *side, struct twi_bytes *words,
                           int64_t now_ms) {
    struct twi_sides *sides = &sync->sides;
    struct twi_side_pending pending = {.sender = side->sender,
                                       .script = side->script,
                                       .told = side->told,
                                       .replicated = side->replicated,
                                       .ctx = side->ctx,
                                       .words = *words,
                                       .word_count = side->word_count};
    *words = (struct twi_bytes){0};
    if (pending.words.failed || !twi_side_may(sync, side->sender)) {
        twi_bytes_free(&pending.words);
        return false;
    }
    *pending_at(sides, sides->count++) = pending;
    sides->of[side->sender]++;
    put(sync, &pending, now_ms);
    return true;
}

bool twi_side_send(struct twi_sync *sync, const struct twi_side *side, int64_t now_ms) {
    struct twi_bytes words = {0};
    if (!twi_side_may(sync, side->sender)) return false;
    twi_wire_put_u64(&words, side->key_count);
    for (size_t i = 0; i < side->word_count; i++) twi_wire_put(&words, side->words[i].data, side->words[i].size);
    if (words.size > TWI_SIDE_BYTES_MAX) words.failed = true;
    return twi_side_send_encoded(sync, side, &words, now_ms);
}

static struct twi_side_pending take_first(struct twi_sides *sides) {
    struct twi_side_pending pending = *pending_at(sides, 0);
    *pending_at(sides, 0) = (struct twi_side_pending){0};
    sides->first = (sides->first + 1) % TWI_SIDES_MAX;
    sides->count--;
    sides->of[pending.sender]--;
    return pending;
}

static enum twi_side_outcome outcome_of(const struct twi_node *nodes) {
    if (nodes->type != TWI_NODE_ERROR) return TWI_SIDE_ANSWERED;
    return twi_answer_error(nodes) == TWI_ANSWER_UNKNOWN ? TWI_SIDE_UNKNOWN : TWI_SIDE_REFUSED;
}

void twi_side_reply(struct twi_sync *sync, const struct twi_pending *awaited, const struct twi_node *nodes,
                    size_t count, int64_t now_ms) {
    (void)awaited;
    struct twi_sides *sides = &sync->sides;
    struct twi_side_pending pending = take_first(sides);
    bool is_new = nodes->type == TWI_NODE_ERROR && twi_answer_error(nodes) == TWI_ANSWER_NOSCRIPT;
    if (is_new && !pending.is_eval) {
        pending.is_eval = true;
        *pending_at(sides, sides->count++) = pending;
        sides->of[pending.sender]++;
        put(sync, &pending, now_ms);
        return;
    }
    twi_bytes_free(&pending.words);
    enum twi_side_outcome outcome = outcome_of(nodes);
    if (!pending.told(sync, pending.ctx, outcome, nodes, count, now_ms)) {
        twi_sync_fail(sync, false, "a reply that is not understood");
    } else if (pending.replicated != NULL && sync->wait_replicas != 0 && outcome == TWI_SIDE_ANSWERED) {
        sides->held[sides->held_count++] = pending;
        sides->of[pending.sender]++;
    }
}

/* ---- replicas ---------------------------------------------------------------------------------------------------- */

void twi_side_step(struct twi_sync *sync, int64_t now_ms) {
    if (!sync->sides.unwaited) return;
    if (sync->out.size == 0) sync->out_moved_ms = now_ms;
    twi_replicas_put(sync);
    (void)twi_pipeline_await(sync, TWI_SIDE_WAIT, NULL, 1);
    sync->sides.unwaited = false;
    sync->sides.waits++;
}

static void release(struct twi_sync *sync, enum twi_side_outcome outcome) {
    struct twi_sides *sides = &sync->sides;
    for (uint32_t i = 0; i < sides->held_count; i++) {
        sides->of[sides->held[i].sender]--;
        sides->held[i].replicated(sync, sides->held[i].ctx, outcome);
    }
    sides->held_count = 0;
}

void twi_side_wait_reply(struct twi_sync *sync, const struct twi_pending *awaited, const struct twi_node *answer,
                         size_t count, int64_t now_ms) {
    int64_t replicas = 0;
    (void)awaited, (void)count, (void)now_ms;
    sync->sides.waits--;
    bool enough = twi_node_i64(answer, &replicas) && replicas >= (int64_t)sync->wait_replicas;
    release(sync, enough ? TWI_SIDE_ANSWERED : TWI_SIDE_REFUSED);
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

void twi_side_dropped(struct twi_sync *sync, int64_t now_ms) {
    release(sync, TWI_SIDE_UNKNOWN);
    sync->sides.waits = 0;
    sync->sides.unwaited = false;
    while (sync->sides.count != 0) {
        struct twi_side_pending pending = take_first(&sync->sides);
        twi_bytes_free(&pending.words);
        (void)pending.told(sync, pending.ctx, TWI_SIDE_UNKNOWN, NULL, 0, now_ms);
    }
}

void twi_side_free(struct twi_sides *sides) {
    while (sides->count != 0) {
        struct twi_side_pending pending = take_first(sides);
        twi_bytes_free(&pending.words);
    }
}
