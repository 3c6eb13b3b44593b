/* audit_names.h -- a page of names of an audit: those of one reply to SCAN, or of some hundred lines of a file.
 *
 * In a cluster a key whose slot is moving may be met at two nodes, and again in a second SCAN. Such names are
 * remembered by 64-bit hashes. Two names with one hash, of which the second would be missed, are too unlikely to
 * expect.
 * Always true: names lie in the memory of their page until it is emptied. */
#ifndef TWI_SYNC_AUDIT_NAMES_H
#define TWI_SYNC_AUDIT_NAMES_H

#include "sync/wire/wire.h"
#include "tallywheel.h"

#define TWI_AUDIT_PAGE 500u                        /* keys in one SCAN or one pipeline: some 100 us of Redis's time */
#define TWI_AUDIT_NAMES_MAX (TWI_AUDIT_PAGE * 20u) /* SCAN may return more names than requested */

struct twi_audit_names {
    struct twi_bytes bytes; /* one after the other: */
    size_t ends[TWI_AUDIT_NAMES_MAX];
    size_t count;
    uint16_t where[TWI_AUDIT_NAMES_MAX]; /* for audit_servers.c, the server to ask */
    bool asking[TWI_AUDIT_NAMES_MAX];    /* for audit_servers.c, whether ASKING comes first */

    uint64_t *met; /* hashes of names, by open addressing; 0 means an empty place */
    size_t met_count, met_room;
};

struct twi_audit_names *twi_audit_names_create(void); /* NULL means no memory */
void twi_audit_names_destroy(struct twi_audit_names *names);

tw_key twi_audit_names_at(const struct twi_audit_names *names, size_t i);
void twi_audit_names_add(struct twi_audit_names *names, const char *text, size_t size);
/* Ends the name whose bytes were appended to `bytes`. */
void twi_audit_names_end(struct twi_audit_names *names);
void twi_audit_names_empty(struct twi_audit_names *names);
/* Keeps the names for which `is_kept` is true. */
void twi_audit_names_keep(struct twi_audit_names *names, bool (*is_kept)(void *ctx, tw_key name), void *ctx);

/* Returns whether the name is met for the first time. If there is no memory, `bytes.failed` is set. */
bool twi_audit_names_meet(struct twi_audit_names *names, const void *name, size_t size);
void twi_audit_names_forget_met(struct twi_audit_names *names);

#endif
