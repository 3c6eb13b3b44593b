/* refusal.c -- see refusal.h. */
#include "sync/message/refusal.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/check.h"
#include "engine/port/items.h"
#include "engine/port/services.h"
#include "sync/batch/reply.h"
#include "sync/message/state.h"
#include "sync/wire/fnv.h"

#define UNHEALED_LOG_MS (10 * INT64_C(60000)) /* a permission that is missing is missed all the time */

/* Redis 7 ends an error with the digest of the script, which is no news and takes the room of what is. */
static const char *end_of(const char *said) {
    const char *digest = strstr(said, " script: ");
    return digest ? digest : said + strlen(said);
}

void twi_refusal_text(const struct twi_node *error, bool first_word, char *out, size_t size) {
    twi_check(size != 0);
    size_t used = 0;
    const char *said = twi_reply_said(error);
    for (const char *end = end_of(said); said < end && used + 1 < size; said++) {
        if (first_word && *said == ' ') break;
        out[used++] = isprint((unsigned char)*said) ? *said : '?';
    }
    out[used] = '\0';
}

/* True means that the line was logged in this outage. */
static bool was_logged(struct twi_outage_log *outage, const char *line) {
    uint64_t hash = twi_fnv_add(TWI_FNV_BEGIN, line, strlen(line));
    for (size_t i = 0; i < TWI_REFUSALS_LOGGED; i++)
        if (outage->refusals[i] == hash) return true;
    outage->refusals[outage->refusals_next++ % TWI_REFUSALS_LOGGED] = hash;
    return false;
}

/* Returns true if the whole sentence comes from Redis. Other sentences repeat arguments, as Redis does in quotes for an
 * unknown command. */
static bool is_without_secret(const struct twi_login *login, const char *text) {
    twi_check(text != NULL);
    if (login->ask || strpbrk(text, "'`\"")) return false;
    bool has_password = login->password && login->password[0];
    return !has_password || !strstr(text, login->password);
}

static void refusal_report(struct twi_connection *connection, const struct twi_node *error, const char *what,
                           bool of_login) {
    twi_check(error->type == TWI_NODE_ERROR && what != NULL);
    char text[120], line[260];
    twi_refusal_text(error, false, text, sizeof text);
    if (of_login && !is_without_secret(&connection->target.where->login, text))
        twi_refusal_text(error, true, text, sizeof text);
    /* Within a script Redis does not name the command. */
    const char *page = !of_login && twi_reply_is_forbidden(error) ? " (docs/KEYS.md, Permissions)" : "";
    snprintf(line, sizeof line, "%s: %s%s", what, text, page);
    if (!was_logged(&connection->outage, line))
        twi_port_log(connection->engine, TW_LOG_ERROR, TW_EVENT_REFUSED, "Redis at %s refuses %s",
                     connection->target.name, line);
    twi_port_last_error(connection->engine, line);
}

void twi_refusal_report(struct twi_connection *connection, const char *what, const struct twi_node *error) {
    refusal_report(connection, error, what, false);
}

void twi_refusal_unhealed(struct twi_connection *connection, int64_t keys, int64_t now_ms) {
    twi_check(keys >= 0);
    struct twi_unhealed_log *unhealed = &connection->unhealed;
    unhealed->keys += keys;
    if (keys == 0 || (unhealed->logged_ms != 0 && now_ms - unhealed->logged_ms < UNHEALED_LOG_MS)) return;
    unhealed->logged_ms = now_ms ? now_ms : 1;
    twi_port_log(connection->engine, TW_LOG_WARNING, TW_EVENT_REFUSED,
                 "%" PRId64 " keys stay without an expiry in Redis, which refuses PEXPIREAT or PEXPIRE (docs/KEYS.md, "
                 "Permissions)",
                 unhealed->keys);
    unhealed->keys = 0;
}

void twi_refusal_end(struct twi_connection *connection, enum twi_message_outcome outcome,
                     const struct twi_node *error) {
    if (twi_reply_is_replicas(error)) {
        connection->outage.is_logged = true; /* the report of the refusal is the line of this outage */
        twi_connection_fail(connection, true, NULL);
    } else if (outcome == TWI_MESSAGE_UNKNOWN) {
        twi_connection_fail(connection, false, "a reply that is not understood");
    }
}

void twi_refusal_login(struct twi_connection *connection, const char *what, const struct twi_node *error) {
    refusal_report(connection, error, what, true);
}

void twi_refusal_read(struct twi_connection *connection, const struct twi_item *item, const struct twi_node *error) {
    twi_check(item->delta == 0);
    char title[96], what[120];
    twi_port_title(item, title, sizeof title);
    snprintf(what, sizeof what, "the key %s", title);
    twi_refusal_report(connection, what, error);
}

uint32_t twi_refusal_key(struct twi_sync *sync, struct twi_store *store, const struct twi_item *item,
                         const struct twi_node *error, int64_t now_ms) {
    char text[120];
    bool first = false;
    uint32_t wait_ms = twi_rejected_again(&store->rejected, item, store->ledger.last, now_ms, &first);
    if (first) twi_port_count(sync->engine, poison_keys, 1);
    if (first && error && twi_reply_is_forbidden(error)) { /* the key is in order; it needs no line for each key */
        twi_refusal_report(store->connection, "a command on the keys of a batch", error);
    } else if (first) {
        twi_port_title(item, text, sizeof text);
        twi_port_log(sync->engine, TW_LOG_ERROR, TW_EVENT_POISON, "Redis refuses the key %s: %.100s", text,
                     error ? twi_reply_said(error) : "");
    }
    twi_ticket_refused(&sync->tickets);
    return wait_ms;
}
