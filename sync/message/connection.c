/* connection.c -- see connection.h: what every file here may do to a connection. */
#include "sync/message/connection.h"

void twi_connection_fail(struct twi_connection *connection, bool slowly, const char *why) {
    if (connection->failure.is_there) return;
    connection->failure = (struct twi_failure){.is_there = true, .slowly = slowly, .why = why};
}
