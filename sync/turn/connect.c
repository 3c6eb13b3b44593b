/* connect.c -- from nothing to a connection that takes batches, and back.
 *
 * The greeting goes out at once, as one pipeline: AUTH, SELECT, PING, INFO; then, for a new instance, number 0, which
 * makes its ledger, unless the one of before is there. An opening is sent under one identity once: if its outcome is
 * not known, the next one has another identity, so a ledger is never made twice and a batch never meets one that was
 * made behind its back. The identity of before is given up when an opening was answered, and not earlier (instance.c).
 * Always true: passwords are wiped from every buffer as soon as they went out, and no line of AUTH's answer but its
 * first word reaches a log (servers quote what they did not understand). */
#include "sync/turn/connect.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/port/messages.h"
#include "engine/port/services.h"
#include "sync/batch/reply.h"
#include "sync/message/pipeline.h"
#include "sync/turn/merge_plain.h"
#include "sync/turn/send.h"
#include "sync/message/message.h"
#include "sync/message/presence.h"
#include "sync/message/refusal.h"
#include "sync/message/registry.h"
#include "sync/message/state.h"

/* A batch reply: 8 + 1000 items with their ends are some 50 KiB; texts of 1000 errors 100 KiB. INFO has some KiB. */
static const struct twi_wire_limits reply_limits = {.bytes_max = 4u << 20, .nodes_max = 8192, .depth_max = 3};

/* ---- the greeting ------------------------------------------------------------------------------------------------ */

/* The password of this connection, or -1. */
static int fetch_password(struct twi_connection *connection, char *out, size_t size) {
    if (!connection->endpoint.password)
        return snprintf(out, size, "%s",
                        connection->endpoint.url.has_password ? connection->endpoint.url.password : "");
    int length = connection->endpoint.password(connection->endpoint.password_ctx, out, size);
    return length < 0 || (size_t)length >= size ? -1 : length;
}

static bool put_auth(struct twi_connection *connection) {
    char password[1024];
    int length = fetch_password(connection, password, sizeof password);
    if (length > 0) {
        bool has_user = connection->endpoint.url.user[0] != '\0';
        twi_wire_begin(&connection->pipeline.out, has_user ? 3 : 2);
        twi_wire_put_text(&connection->pipeline.out, "AUTH");
        if (has_user) twi_wire_put_text(&connection->pipeline.out, connection->endpoint.url.user);
        twi_wire_put(&connection->pipeline.out, password, (size_t)length);
        (void)twi_pipeline_await(&connection->pipeline, TWI_AUTH, NULL, 1);
    }
    explicit_bzero(password, sizeof password);
    return length >= 0;
}

static void put_word(struct twi_connection *connection, enum twi_command command, const char *word) {
    twi_wire_begin(&connection->pipeline.out, 1);
    twi_wire_put_text(&connection->pipeline.out, word);
    (void)twi_pipeline_await(&connection->pipeline, command, NULL, 1);
}

static void greet(struct twi_sync *sync, int64_t now_ms) {
    struct twi_connection *connection = &sync->connection;
    connection->phase = TWI_GREETING;
    connection->serial++;
    connection->server.run[0] = '\0';
    connection->pipeline.out_sent = 0;
    connection->pipeline.out_moved_ms = connection->reply_ms = now_ms;
    connection->pipeline.reader = twi_reader_create(&reply_limits);
    if (!connection->pipeline.reader) {
        twi_connection_fail(connection, false, "no memory");
        return;
    }
    if (!put_auth(connection)) {
        twi_connection_fail(connection, true, "the password callback failed");
        return;
    }
    if (connection->endpoint.url.db) {
        twi_wire_begin(&connection->pipeline.out, 2);
        twi_wire_put_text(&connection->pipeline.out, "SELECT");
        twi_wire_put_u64(&connection->pipeline.out, connection->endpoint.url.db);
        (void)twi_pipeline_await(&connection->pipeline, TWI_SELECT, NULL, 1);
    }
    put_word(connection, TWI_PING, "PING");
    if (sync->store.merge != TW_MERGE_SCRIPT)
        put_word(connection, TWI_TIME, "TIME"); /* what is late is told by us then */
    put_word(connection, TWI_INFO, "INFO");
}

/* How long a connection may take to stand. The first one has ten times the time of a reply; once tries have failed,
 * half of retry_max_ms will do, and twice that of a reply: where nobody answers at all, that time passes before the
 * next try. */
static int64_t dial_ms(const struct twi_connection *connection) {
    int64_t most_ms = 10 * (int64_t)connection->timeout_ms, least_ms = 2 * (int64_t)connection->timeout_ms;
    if (connection->breaker.failures < 2) return most_ms;
    int64_t half_ms =
        (connection->breaker.retry_max_ms ? connection->breaker.retry_max_ms : TWI_BREAKER_RETRY_MAX_MS) / 2;
    if (half_ms < least_ms) half_ms = least_ms;
    return half_ms < most_ms ? half_ms : most_ms;
}

void twi_connect_step(struct twi_sync *sync, int64_t now_ms) {
    struct twi_connection *connection = &sync->connection;
    if (connection->phase == TWI_DOWN) {
        if (!twi_breaker_may_try(&connection->breaker, now_ms)) return;
        connection->phase = TWI_CONNECTING;
        connection->phase_deadline_ms = now_ms + dial_ms(connection);
    }
    if (connection->phase != TWI_CONNECTING) return;
    int done = connection->endpoint.transport->connect(connection->endpoint.transport_ctx, &connection->endpoint.url,
                                                       now_ms, connection->phase_deadline_ms);
    if (done > 0)
        greet(sync, now_ms);
    else if (done < 0)
        twi_connection_fail(connection, false, connection->endpoint.transport->why(connection->endpoint.transport_ctx));
    else if (now_ms >= connection->phase_deadline_ms)
        twi_connection_fail(connection, false, "connect: no answer in time");
}

/* ---- start-up checks --------------------------------------------------------------------------------------------- */

/* The value of a line "name:value" of INFO; "" if there is none. */
static void info_value(const struct twi_node *info, const char *name, char *out, size_t size) {
    size_t length = strlen(name);
    out[0] = '\0';
    for (const char *line = info->text; line && *line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
        if (strncmp(line, name, length) != 0 || line[length] != ':') continue;
        const char *value = line + length + 1;
        snprintf(out, size, "%.*s", (int)strcspn(value, "\r\n"), value);
        return;
    }
}

static void log_start(struct twi_sync *sync, bool news, const char *text, const char *detail) {
    if (news) twi_port_log(sync->engine, TW_LOG_WARNING, TW_EVENT_START, text, detail);
}

/* A replica would tell of what its master had a while ago, or of nothing; one that takes writes forgets them. */
static bool is_replica(const struct twi_node *info) {
    char role[16];
    info_value(info, "role", role, sizeof role);
    return strcmp(role, "slave") == 0 || strcmp(role, "replica") == 0;
}

/* Another database of that server holds keys: ours may have changed places with it. */
static bool has_other_keys(const struct twi_sync *sync, const struct twi_node *info) {
    for (const char *line = info->text; line && *line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
        char *end;
        if (strncmp(line, "db", 2) != 0 || !isdigit((unsigned char)line[2])) continue;
        if (strtoul(line + 2, &end, 10) != sync->connection.endpoint.url.db && *end == ':') return true;
    }
    return false;
}

static void check_server(struct twi_sync *sync, const struct twi_node *info) {
    struct twi_connection *connection = &sync->connection;
    char value[64];
    bool news = !connection->server.is_checked; /* one line each, at the first connect */
    connection->server.is_checked = true;
    info_value(info, "maxmemory_policy", value, sizeof value);
    connection->server.may_restore = value[0] != '\0' && strncmp(value, "allkeys-", 8) != 0;
    if (value[0] && strcmp(value, "noeviction") != 0)
        log_start(sync, news, "Redis may evict counters before their time (maxmemory-policy %s)", value);
    info_value(info, "redis_version", value, sizeof value);
    connection->server.is_seven = atoi(value) >= 7;
    if (value[0] && atoi(value) < 6) log_start(sync, news, "Redis %s is older than 6.0: not supported", value);
    info_value(info, "run_id", connection->server.run, sizeof connection->server.run);
    connection->server.has_other_keys = has_other_keys(sync, info);
    info_value(info, "aof_enabled", value, sizeof value);
    connection->server.has_aof = strcmp(value, "1") == 0;
    if (news && connection->server.has_aof) { /* asked once, and only where it matters: many users may not ask */
        twi_wire_begin(&connection->pipeline.out, 3);
        twi_wire_put_text(&connection->pipeline.out, "CONFIG");
        twi_wire_put_text(&connection->pipeline.out, "GET");
        twi_wire_put_text(&connection->pipeline.out, "aof-load-truncated");
        (void)twi_pipeline_await(&connection->pipeline, TWI_CONFIG, NULL, 1);
    }
    info_value(info, "redis_mode", value, sizeof value);
    if (strcmp(value, "cluster") == 0)
        log_start(sync, news, "Redis Cluster is not supported by this version (mode %s)", value);
}

/* With it, Redis starts from a file whose tail was torn within a transaction, and applies the first half of that
 * transaction at the restart after: a batch, or half of one, a second time (fault 16). */
static void check_config(struct twi_sync *sync, const struct twi_node *nodes, size_t count) {
    if (count == 3 && twi_node_is(&nodes[2], "yes"))
        log_start(sync, true, "a torn append-only file may be applied twice by Redis itself (aof-load-truncated %s)",
                  "yes");
}

void twi_connect_rewrite(struct twi_sync *sync, int64_t now_ms) {
    struct twi_connection *connection = &sync->connection;
    if (!connection->rewrite.tries_left || connection->rewrite.is_under_way ||
        connection->breaker.state != TWI_BREAKER_CLOSED)
        return;
    if (!connection->server.has_aof) {
        connection->rewrite.tries_left = 0;
        return;
    }
    connection->rewrite.tries_left--;
    connection->rewrite.is_under_way = true;
    twi_pipeline_begin(&connection->pipeline, now_ms);
    put_word(connection, TWI_REWRITE, "BGREWRITEAOF");
}

static void rewrite_answered(struct twi_connection *connection, const struct twi_node *answer) {
    char text[120];
    connection->rewrite.is_under_way = false;
    connection->rewrite.tries_left = 0;
    twi_refusal_text(answer, false, text, sizeof text);
    if (answer->type == TWI_NODE_ERROR && !strstr(text, "in progress"))
        twi_port_log(connection->engine, TW_LOG_ERROR, TW_EVENT_REWRITE,
                     "Redis went back and refuses BGREWRITEAOF; rewrite its append-only file by hand before it is "
                     "restarted, or counts may double: %s",
                     text);
    else
        twi_port_log(connection->engine, TW_LOG_WARNING, TW_EVENT_REWRITE, "Redis writes its append-only file anew: %s",
                     text);
}

/* ---- answers to the greeting ------------------------------------------------------------------------------------- */

static void greeting_refused(struct twi_connection *connection, enum twi_command command,
                             const struct twi_node *error) {
    static const char *const words[] = {
        [TWI_AUTH] = "the login", [TWI_SELECT] = "the database", [TWI_PING] = "to answer"};
    bool slowly = command != TWI_PING || twi_reply_error(error) != TWI_REPLY_REFUSED;
    if (command == TWI_AUTH)
        twi_refusal_login(connection, words[command], error);
    else
        twi_refusal_report(connection, words[command], error);
    connection->outage.is_logged = true; /* the outage has its line */
    twi_connection_fail(connection, slowly, NULL);
}

static void greeted(struct twi_sync *sync, int64_t now_ms) {
    struct twi_store *store = &sync->store;
    struct twi_connection *connection = &sync->connection;
    twi_port_count(sync->engine, connects, 1);
    twi_port_presence_resend(sync->engine);
    sync->collecting.look_until_ms =
        now_ms + 2 * (int64_t)sync->interval_ms; /* expiries may have been lost with whatever happened */
    connection->clock.at_ms = 0;
    twi_registry_connected(&store->registry, now_ms);
    if (!store->belief.is_open) {
        connection->phase = TWI_OPENING;
        twi_connect_open(sync, now_ms);
        return;
    }
    connection->phase = TWI_UP;
    store->rewind = connection->use_eval = false;
    if (connection->server.run[0] == '\0' || strcmp(connection->server.run, store->belief.run) != 0)
        twi_ledger_look_back(&store->ledger);
    store->sent_number = store->ledger.confirmed;
}

static void take_info(struct twi_sync *sync, const struct twi_node *info, int64_t now_ms) {
    struct twi_connection *connection = &sync->connection;
    /* It may be forbidden: then nothing is known of the server, and nothing is restored after a wipe. */
    connection->server.may_restore = connection->server.is_seven = false;
    if (info->type == TWI_NODE_STRING && is_replica(info)) {
        twi_connection_fail(connection, false, "this Redis is a replica: nothing is asked of it");
        return;
    }
    if (info->type == TWI_NODE_STRING) check_server(sync, info);
    greeted(sync, now_ms);
}

void twi_connect_reply(struct twi_sync *sync, const struct twi_pending *pending, const struct twi_node *nodes,
                       size_t count, int64_t now_ms) {
    struct twi_connection *connection = &sync->connection;
    bool error = nodes->type == TWI_NODE_ERROR;
    switch (pending->command) {
    case TWI_PING:
        if (error && twi_node_is(nodes, "NOPERM")) return; /* it answers; what it permits, the batches will show */
        /* fall through */
    case TWI_AUTH:
    case TWI_SELECT:
        if (error) greeting_refused(connection, pending->command, nodes);
        return;
    case TWI_INFO: take_info(sync, nodes, now_ms); return;
    case TWI_CONFIG: check_config(sync, nodes, count); return;
    default: rewrite_answered(connection, nodes); return;
    }
}

/* ---- number 0 ---------------------------------------------------------------------------------------------------- */

static void name_former(struct twi_batch *opening, const char *name) {
    if (name[0] == '\0') return;
    twi_wire_put_text(&opening->keys, name);
    opening->key_count++;
}

void twi_connect_open(struct twi_sync *sync, int64_t now_ms) {
    struct twi_store *store = &sync->store;
    bool again = store->opening != NULL; /* answered "nothing was done": the same identity may be sent again */
    if (!again) {
        store->opening = twi_batch_empty(now_ms);
        if (!store->opening) {
            twi_connection_fail(&sync->connection, false, "no memory");
            return;
        }
        twi_identity_make(&store->candidate, twi_port_prefix(sync->engine), twi_sync_fill_random, sync->engine);
        store->opening->nonce = twi_sync_random(sync->engine);
        if (store->ledger.name_size) name_former(store->opening, store->ledger.name); /* if it is there, none is made */
        for (uint32_t i = 1; store->ledger.name_size && i <= TWI_FORMERS; i++)
            name_former(store->opening, store->formers.names[(store->formers.next - i) % TWI_FORMERS]);
    }
    twi_send_batch(sync, store->opening, TWI_OPEN, now_ms);
}

/* ---- the end of a connection ------------------------------------------------------------------------------------- */

void twi_connect_unanswered(struct twi_sync *sync, int64_t now_ms) {
    twi_merge_plain_dropped(sync);
    twi_message_dropped(sync, now_ms);
    twi_presence_dropped(sync);
}

void twi_connect_end(struct twi_sync *sync, int64_t now_ms) {
    struct twi_store *store = &sync->store;
    struct twi_connection *connection = &sync->connection;
    struct twi_failure failure = connection->failure;
    bool was_up = connection->phase == TWI_UP;
    twi_connect_unanswered(sync, now_ms);
    connection->endpoint.transport->close(connection->endpoint.transport_ctx);
    connection->phase = TWI_DOWN;
    connection->failure.is_there = false;
    twi_pipeline_clear(&connection->pipeline);
    twi_batch_free(store->opening);
    store->opening = NULL;
    store->rewind = connection->use_eval = connection->rewrite.is_under_way = false;
    connection->replicas.waits = 0;
    twi_depth_forget(&connection->depth);
    store->wrote_number = 0;
    if (was_up) twi_port_count(sync->engine, disconnects, 1);
    twi_port_connected(sync->engine, false);
    if (failure.why) {
        twi_port_last_error(sync->engine, failure.why);
        if (!connection->outage.is_logged)
            twi_port_log(sync->engine, TW_LOG_WARNING, TW_EVENT_LOST_CONNECTION, "no connection to Redis at %s: %s",
                         connection->endpoint.name, failure.why);
        connection->outage.is_logged = true;
    }
    if (failure.slowly)
        twi_breaker_fail_slowly(&connection->breaker, now_ms, twi_sync_random(sync->engine));
    else
        twi_breaker_fail(&connection->breaker, now_ms, twi_sync_random(sync->engine));
    if (failure.again_ms != 0) connection->breaker.retry_at_ms = now_ms + failure.again_ms;
}
