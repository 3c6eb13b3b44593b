/* connection.c -- see connection.h. */
#include "sync/message/connection.h"

#include "engine/base/check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

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
