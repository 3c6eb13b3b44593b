/* connection.c -- see connection.h. */
#include "sync/message/connection.h"

#include "engine/base/check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- pipeline ---- */

void twi_pipeline_begin(struct twi_pipeline *pipeline, int64_t now_ms) {
    if (pipeline->out.size == 0) pipeline->out_moved_ms = now_ms;
}

struct twi_pending *twi_pipeline_at(struct twi_pipeline *pipeline, uint32_t i) {
    twi_check(i < TWI_PENDING_MAX);
    return &pipeline->pending[(pipeline->first + i) % TWI_PENDING_MAX];
}

struct twi_pending *twi_pipeline_await(struct twi_pipeline *pipeline, enum twi_command command, struct twi_batch *batch,
                                       uint32_t replies) {
    twi_check(replies != 0 && command < TWI_COMMANDS);
    twi_check(pipeline->count < TWI_PENDING_MAX);
    bool alone = pipeline->count == 0;
    struct twi_pending *pending = twi_pipeline_at(pipeline, pipeline->count++);
    *pending = (struct twi_pending){.command = command, .batch = batch, .replies = replies, .alone = alone};
    pending->out_begin = pipeline->out_end;
    pending->out_end = pipeline->out_end = twi_pipeline_end(pipeline);
    return pending;
}

struct twi_pending twi_pipeline_take(struct twi_pipeline *pipeline) {
    twi_check(pipeline->count != 0 && pipeline->pending[pipeline->first].replies != 0);
    struct twi_pending *oldest = twi_pipeline_at(pipeline, 0), taken = *oldest;
    if (--oldest->replies == 0) {
        pipeline->first = (pipeline->first + 1) % TWI_PENDING_MAX;
        pipeline->count--;
    }
    return taken;
}

int64_t twi_pipeline_awaited_since_ms(const struct twi_pipeline *pipeline) {
    twi_check(pipeline->first < TWI_PENDING_MAX);
    return pipeline->count == 0 ? 0 : pipeline->pending[pipeline->first].sent_ms;
}

uint64_t twi_pipeline_end(const struct twi_pipeline *pipeline) {
    twi_check(pipeline->out_at <= pipeline->out.size);
    return pipeline->out_sent + (pipeline->out.size - pipeline->out_at);
}

uint64_t twi_pending_bytes(const struct twi_pending *pending) {
    twi_check(pending->out_begin <= pending->out_end);
    return pending->out_end - pending->out_begin;
}

bool twi_pipeline_is_sent(const struct twi_pipeline *pipeline) {
    twi_check(pipeline->out_at <= pipeline->out.size);
    return pipeline->out_at == pipeline->out.size;
}

void twi_pipeline_clear(struct twi_pipeline *pipeline) {
    twi_check(pipeline->count <= TWI_PENDING_MAX);
    pipeline->count = 0;
    twi_bytes_wipe(&pipeline->out);
    pipeline->out.failed = false;
    pipeline->out_at = 0;
    twi_reader_free(pipeline->reader);
    pipeline->reader = NULL;
}

void twi_connection_fail(struct twi_connection *connection, bool slowly, const char *why) {
    twi_check(connection->target.where != NULL);
    if (connection->failure.is_there) return;
    connection->failure = (struct twi_failure){.is_there = true, .slowly = slowly, .why = why};
}

void twi_connection_time_out(struct twi_connection *connection, int64_t waited_ms) {
    if (connection->failure.is_there) return;
    twi_connection_fail(connection, false, connection->failure.text);
    snprintf(connection->failure.text, sizeof connection->failure.text,
             "no answer in time: waited %" PRId64 " ms (redis_timeout_ms: %" PRIu32 ")", waited_ms,
             connection->timeout_ms);
}

void twi_connection_break(struct twi_connection *connection) {
    twi_check(connection->phase != TWI_DOWN);
    const struct twi_target *target = &connection->target;
    bool is_refused =
        target->where->transport->is_refused && target->where->transport->is_refused(target->transport_ctx);
    if (connection->failure.is_there) return;
    twi_connection_fail(connection, is_refused, target->where->transport->why(target->transport_ctx));
    connection->failure.is_refused = is_refused;
}

void twi_connection_rest(struct twi_connection *connection) {
    twi_check(connection->phase != TWI_DOWN);
    if (connection->failure.is_there) return;
    connection->failure = (struct twi_failure){.is_there = true, .is_idle = true};
}

void twi_connection_destroy(struct twi_connection *connection) {
    if (!connection) return;
    struct twi_target *target = &connection->target;
    const struct twi_messages *messages = &connection->messages;
    if (target->owns_transport) target->where->transport->destroy(target->transport_ctx);
    for (uint32_t i = 0; i < messages->count; i++)
        twi_bytes_free(&connection->messages.ring[(messages->first + i) % TWI_MESSAGES_MAX].arguments);
    twi_reader_free(connection->pipeline.reader);
    twi_bytes_wipe(&connection->pipeline.out);
    twi_bytes_free(&connection->pipeline.out);
    twi_resolver_destroy(target->resolver);
    free(connection);
}
