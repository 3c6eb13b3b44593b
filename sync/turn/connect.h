/* connect.h -- from DOWN to UP, and back.
 * Always true: see connect.c. */
#ifndef TWI_SYNC_TURN_CONNECT_H
#define TWI_SYNC_TURN_CONNECT_H

#include "sync/message/connection.h"

struct twi_connection;
struct twi_store;

void twi_connect_step(struct twi_sync *sync, struct twi_connection *connection, int64_t now_ms);
twi_taker twi_connect_reply; /* to the greeting, to CONFIG and BGREWRITEAOF */
/* The store's requests go over this connection from now on. It has no request under way elsewhere. */
void twi_connect_attach(struct twi_sync *sync, struct twi_connection *connection, struct twi_store *store);
/* Sends number 0 of a fresh instance to that store. */
void twi_connect_open(struct twi_sync *sync, struct twi_store *store, int64_t now_ms);
/* This Redis is no master, or no longer the master. */
void twi_connect_not_master(struct twi_connection *connection, const char *why);
/* Checks now and then whether Redis is elsewhere by now, if it may move. */
void twi_connect_watch(struct twi_connection *connection, int64_t now_ms);
/* Ends the connection that has failed (twi_connection_fail()). Only the turn calls it, between two steps. */
void twi_connect_end(struct twi_sync *sync, struct twi_connection *connection, int64_t now_ms);
/* The requests under way get no reply. Tells the modules that wait for one. */
void twi_connect_unanswered(struct twi_sync *sync, struct twi_connection *connection, int64_t now_ms);
/* Asks for BGREWRITEAOF after Redis went back. Its append-only file may contain half a transaction, which Redis would
 * apply a second time at its next restart. */
void twi_connect_rewrite(struct twi_connection *connection, int64_t now_ms);

#endif
