/* connect.c -- from nothing to a connection that takes batches, and back.
 *
 * The greeting goes out at once, as one pipeline: AUTH, SELECT, PING, TIME (without a script), ROLE (if Redis may
 * move), INFO. A new instance then sends number 0, the opening, which makes its ledger, unless the ledger of the
 * previous instance is there. An opening whose outcome is unknown is not sent again. The next opening has another
 * identity. So no ledger is made twice, and no batch meets a ledger that we did not expect. The previous instance ends
 * only when an opening was answered (instance.c).
 * Always true: a password is wiped from every buffer as soon as it went out. Of the reply to AUTH, only the first word
 * reaches a log (servers quote arguments that they did not understand). */
#include "sync/turn/connect.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/check.h"
#include "engine/base/probe.h"
#include "engine/port/messages.h"
#include "engine/port/services.h"
#include "sync/ask/dispatcher.h"
#include "sync/batch/reply.h"
#include "sync/message/connection.h"
#include "sync/turn/settle.h"
#include "sync/turn/split.h"
#include "sync/message/active.h"
#include "sync/message/message.h"
#include "sync/message/distinct.h"
#include "sync/message/state.h"
#include "sync/message/presence.h"
#include "sync/message/refusal.h"
#include "sync/wire/cluster_nodes.h"

/* Between two tries to find the master, if the named server is no master. A failover is under way. */
#define OTHER_MASTER_MS 100
#define OTHER_MASTER_SPREAD_MS 900

/* A batch reply: 8 + 1000 items with their ends are some 50 KiB; texts of 1000 errors 100 KiB. INFO has some KiB. */
static const struct twi_wire_limits reply_limits = {.bytes_max = 4u << 20, .nodes_max = 8192, .depth_max = 3};

/* ---- the greeting ------------------------------------------------------------------------------------------------ */

static bool connect_put_auth(struct twi_connection *connection) {
    enum twi_login_put done = twi_login_put(&connection->target.where->login, &connection->pipeline.out);
    if (done == TWI_LOGIN_PUT) (void)twi_pipeline_await(&connection->pipeline, TWI_AUTH, NULL, 1);
    return done != TWI_LOGIN_FAILED;
}

static void put_word(struct twi_connection *connection, enum twi_command command, const char *word) {
    twi_check(command < TWI_COMMANDS && word[0] != '\0');
    twi_wire_begin(&connection->pipeline.out, 1);
    twi_wire_put_text(&connection->pipeline.out, word);
    (void)twi_pipeline_await(&connection->pipeline, command, NULL, 1);
}

static void connect_greet(struct twi_sync *sync, struct twi_connection *connection, int64_t now_ms) {
    twi_check(connection->phase == TWI_CONNECTING && connection->pipeline.count == 0);
    connection->phase = TWI_GREETING;
    connection->server.history[0] = '\0';
    connection->server.role = TWI_ROLE_UNKNOWN;
    connection->pipeline.out_sent = connection->pipeline.out_end = 0;
    connection->replied.at_us = 0;
    connection->replied.bytes = 0;
    connection->pipeline.out_moved_ms = connection->replied.at_ms = now_ms;
    connection->pipeline.reader = twi_reader_create(connection->is_node ? &twi_cluster_slots_limits : &reply_limits);
    if (!connection->pipeline.reader) {
        twi_connection_fail(connection, false, "no memory");
        return;
    }
    if (!connect_put_auth(connection)) {
        twi_connection_fail(connection, true, "the password callback failed");
        return;
    }
    if (connection->target.where->url.db) {
        twi_wire_begin(&connection->pipeline.out, 2);
        twi_wire_put_text(&connection->pipeline.out, "SELECT");
        twi_wire_put_u64(&connection->pipeline.out, connection->target.where->url.db);
        (void)twi_pipeline_await(&connection->pipeline, TWI_SELECT, NULL, 1);
    }
    put_word(connection, TWI_PING, "PING");
    if (!sync->stores[0]->merge->has_script)
        put_word(connection, TWI_TIME, "TIME"); /* without a script this side decides which counts are late */
    if (twi_resolver_may_move(connection->target.resolver)) put_word(connection, TWI_ROLE, "ROLE");
    put_word(connection, TWI_INFO, "INFO");
}

/* How long connecting may take: ten times `timeout_ms` at first. After two failures in a row: half of retry_max_ms, but
 * at least twice and at most ten times `timeout_ms`. If no server answers, this time passes before the next try. */
static int64_t dial_ms(const struct twi_connection *connection) {
    twi_check(connection->timeout_ms != 0);
    int64_t most_ms = 10 * (int64_t)connection->timeout_ms, least_ms = 2 * (int64_t)connection->timeout_ms;
    if (connection->breaker.failures < 2) return most_ms;
    int64_t half_ms =
        (connection->breaker.retry_max_ms ? connection->breaker.retry_max_ms : TWI_BREAKER_RETRY_MAX_MS) / 2;
    if (half_ms < least_ms) half_ms = least_ms;
    return half_ms < most_ms ? half_ms : most_ms;
}

/* Asks the resolver where Redis is. */
static void connect_locate(struct twi_connection *connection, int64_t now_ms) {
    twi_check(connection->phase == TWI_CONNECTING && !connection->is_located);
    struct twi_target *target = &connection->target;
    int64_t again_ms = 0;
    enum twi_resolved where = twi_resolver_ask(target->resolver, now_ms, &target->endpoint, &again_ms);
    connection->resolve_again_ms = now_ms + again_ms;
    if (where == TWI_WHERE_UNKNOWN) twi_connection_fail(connection, false, twi_resolver_why(target->resolver));
    if (where != TWI_WHERE_HERE) return;
    connection->is_located = true;
    connection->phase_deadline_ms = now_ms + dial_ms(connection);
    twi_endpoint_name(&target->endpoint, target->name, sizeof target->name);
}

static void log_tls(struct twi_sync *sync) {
    twi_check(sync->where.tls != NULL);
    struct twi_tls_news news;
    if (twi_tls_news(sync->where.tls, &news))
        twi_port_log(sync->engine, news.is_bad ? TW_LOG_WARNING : TW_LOG_INFO, TW_EVENT_TLS, "%s", news.text);
}

void twi_connect_step(struct twi_sync *sync, struct twi_connection *connection, int64_t now_ms) {
    if (connection->phase == TWI_DOWN) {
        if (!connection->use.is_wanted || !twi_breaker_may_try(&connection->breaker, now_ms)) return;
        connection->phase = TWI_CONNECTING;
        connection->is_located = false;
    }
    if (connection->phase != TWI_CONNECTING) return;
    if (!connection->is_located) connect_locate(connection, now_ms);
    if (!connection->is_located) return;
    int done = connection->target.where->transport->connect(
        connection->target.transport_ctx, &connection->target.endpoint, now_ms, connection->phase_deadline_ms);
    if (done != 0 && sync->where.tls) log_tls(sync);
    if (done > 0)
        connect_greet(sync, connection, now_ms);
    else if (done < 0)
        twi_connection_break(connection);
    else if (now_ms >= connection->phase_deadline_ms)
        twi_connection_fail(connection, false, "connect: no answer in time");
}

/* ---- start-up checks --------------------------------------------------------------------------------------------- */

/* The value of a line "name:value" of INFO; "" if there is none. */
static void info_value(const struct twi_node *info, const char *name, char *out, size_t size) {
    twi_check(size != 0);
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

/* Returns whether another database of that server has keys. It may have changed places with ours (SWAPDB). */
static bool has_other_keys(const struct twi_connection *connection, const struct twi_node *info) {
    for (const char *line = info->text; line && *line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
        char *end;
        if (strncmp(line, "db", 2) != 0 || !isdigit((unsigned char)line[2])) continue;
        if (strtoul(line + 2, &end, 10) != connection->target.where->url.db && *end == ':') return true;
    }
    return false;
}

/* Returns whether Redis may have evicted ledger and marker. The current policy alone does not show it. It may have been
 * allkeys-* for a while. With noeviction no key is evicted, so keys that were evicted since this server was first met
 * left under another policy. (With volatile-* keys are evicted all the time. The marker has no expiry, so it stays.) */
static bool may_restore(struct twi_server *server, const char *policy, const struct twi_node *info) {
    char value[64];
    info_value(info, "evicted_keys", value, sizeof value);
    int64_t evicted = strtoll(value, NULL, 10);
    if (!server->is_checked || evicted < server->evicted) server->evicted = evicted; /* it may have restarted */
    server->evicted_now = evicted;
    if (policy[0] == '\0' || strncmp(policy, "allkeys-", 8) == 0) return false;
    return strcmp(policy, "noeviction") != 0 || evicted == server->evicted;
}

static void check_server(struct twi_sync *sync, struct twi_connection *connection, const struct twi_node *info) {
    twi_check(info->type == TWI_NODE_STRING);
    char value[64];
    bool news = !connection->server.is_checked; /* one line each, at the first connect */
    info_value(info, "maxmemory_policy", value, sizeof value);
    connection->server.may_restore = may_restore(&connection->server, value, info);
    connection->server.is_checked = true;
    if (value[0] && strcmp(value, "noeviction") != 0)
        log_start(sync, news, "Redis may evict counters before their time (maxmemory-policy %s)", value);
    info_value(info, "redis_version", value, sizeof value);
    connection->server.is_seven = atoi(value) >= 7;
    if (value[0] && atoi(value) < 6) log_start(sync, news, "Redis %s is older than 6.0: not supported", value);
    info_value(info, "master_replid", connection->server.history, sizeof connection->server.history);
    connection->server.has_other_keys = has_other_keys(connection, info);
    /* A replica has the history of its master. When it becomes master it has a new one, and may lack data of its former
     * master. */
    if (twi_reply_info_role(info) == TWI_ROLE_REPLICA) connection->server.history[0] = '\0';
    info_value(info, "aof_enabled", value, sizeof value);
    connection->server.has_aof = strcmp(value, "1") == 0;
    /* CONFIG is sent once, and only where it matters. Many users may not send it. */
    if (news && connection->server.has_aof) {
        twi_wire_begin(&connection->pipeline.out, 3);
        twi_wire_put_text(&connection->pipeline.out, "CONFIG");
        twi_wire_put_text(&connection->pipeline.out, "GET");
        twi_wire_put_text(&connection->pipeline.out, "aof-load-truncated");
        (void)twi_pipeline_await(&connection->pipeline, TWI_CONFIG, NULL, 1);
    }
    info_value(info, "redis_mode", value, sizeof value);
    if (strcmp(value, "cluster") == 0 && !connection->is_node)
        log_start(sync, news, "this is a node of a Redis Cluster (mode %s): it is reached by redis+cluster://", value);
    if (value[0] && strcmp(value, "cluster") != 0 && connection->is_node)
        log_start(sync, news, "redis+cluster:// leads to a Redis that is no node of a cluster (mode %s)", value);
}

/* With aof-load-truncated, Redis starts from an append-only file that ends within a transaction. At the restart after
 * that, Redis applies the first half of the transaction again, so a batch, or half of one, counts twice (fault 16). */
static void check_config(struct twi_sync *sync, const struct twi_node *nodes, size_t count) {
    if (count == 3 && twi_node_is(&nodes[2], "yes"))
        twi_port_log(sync->engine, TW_LOG_INFO, TW_EVENT_START,
                     "after a crash Redis itself may apply a torn append-only file twice (aof-load-truncated yes, its "
                     "default; docs/OPERATE.md advises no)");
}

void twi_connect_rewrite(struct twi_connection *connection, int64_t now_ms) {
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
    twi_check(connection->rewrite.is_under_way);
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

/* ---- replies to the greeting ------------------------------------------------------------------------------------- */

static void greeting_refused(struct twi_connection *connection, enum twi_command command,
                             const struct twi_node *error) {
    twi_check(error->type == TWI_NODE_ERROR);
    twi_check(command == TWI_AUTH || command == TWI_SELECT || command == TWI_PING);
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

/* A master is reached. Calls that wait may go to another one. */
static void arrived(struct twi_sync *sync, struct twi_target *target, int64_t now_ms) {
    twi_check(target->endpoint.host[0] != '\0');
    bool has_moved = target->last_master.host[0] && !twi_endpoint_equals(&target->last_master, &target->endpoint);
    target->last_master = target->endpoint;
    twi_resolver_found(target->resolver, now_ms);
    if (has_moved && sync->dispatcher) twi_dispatcher_leave(sync->dispatcher);
}

/* Rises, and is the time where it can. Two lives of one process (engine/turn/remote.c) do not have the same. */
static uint64_t next_serial(struct twi_sync *sync) {
    uint64_t now_ms = (uint64_t)twi_port_wall_ms(sync->engine), of_time = now_ms * 1000;
    of_time += (uint64_t)twi_port_mono_us(sync->engine) % 1000;
    uint64_t before = sync->serials;
    sync->serials = of_time > before ? of_time : before + 1;
    twi_check(sync->serials > before);
    if (sync->sharing.estate) sync->sharing.estate->serials = sync->serials;
    return sync->serials;
}

void twi_connect_attach(struct twi_sync *sync, struct twi_connection *connection, struct twi_store *store) {
    twi_check(connection != NULL);
    if (store->connection != connection) {
        twi_ledger_reset_replicas(&store->ledger);
        twi_split_forget(store);
    }
    store->connection = connection;
    store->route.unserved_ms = 0;
    store->route.serial = next_serial(sync);
    store->rewind = false;
    store->wrote_number = 0;
    if (twi_connection_is_up(connection)) twi_distinct_attached(sync, store);
    if (!store->assumed.is_open) return;
    if (connection->server.history[0] == '\0' || strcmp(connection->server.history, store->assumed.history) != 0)
        twi_ledger_look_back(&store->ledger);
    store->sent_number = store->ledger.confirmed;
}

static void greeted(struct twi_sync *sync, struct twi_connection *connection, int64_t now_ms) {
    twi_check(connection->phase == TWI_GREETING);
    arrived(sync, &connection->target, now_ms);
    twi_port_count(sync->engine, connects, 1);
    twi_port_presence_resend(sync->engine);
    twi_distinct_greeted(sync);
    /* Expiries may have been lost with whatever happened. */
    sync->collecting.look_until_ms = now_ms + 2 * (int64_t)sync->interval_ms;
    connection->clock.at_ms = 0;
    twi_registry_connected(&sync->senders.registry, now_ms);
    connection->phase = TWI_UP;
    connection->use_eval = false;
    for (uint32_t i = 0; i < sync->store_count; i++)
        if (sync->stores[i]->connection == connection) twi_connect_attach(sync, connection, sync->stores[i]);
    if (connection->is_node || sync->stores[0]->assumed.is_open) return;
    connection->phase = TWI_OPENING;
    twi_connect_open(sync, sync->stores[0], now_ms);
}

void twi_connect_not_master(struct twi_connection *connection, const char *why) {
    twi_connection_fail(connection, false, why);
    if (!twi_resolver_may_move(connection->target.resolver)) return;
    connection->failure.again_ms =
        OTHER_MASTER_MS + (int64_t)(twi_sync_random(connection->engine) % OTHER_MASTER_SPREAD_MS);
}

/* A replica may have old data of its master, or no data. A replica that accepts writes loses them again. If Redis may
 * move, ROLE has to show that the server is the master. */
static bool may_stay(struct twi_connection *connection, const struct twi_node *info) {
    enum twi_role role = twi_reply_info_role(info);
    if (connection->is_node) return true;
    if (role == TWI_ROLE_REPLICA || connection->server.role == TWI_ROLE_REPLICA)
        twi_connect_not_master(connection, "this Redis is a replica: nothing is asked of it");
    else if (role != TWI_ROLE_MASTER && connection->server.role != TWI_ROLE_MASTER &&
             twi_resolver_may_move(connection->target.resolver))
        twi_connect_not_master(connection, "ROLE and INFO are refused: it does not say that it is the master");
    return !connection->failure.is_there;
}

/* A slot may move to this node before any batch has measured its clock. Then the ends of lives would be those of our
 * clock. */
static void take_time(struct twi_connection *connection, const struct twi_pending *pending, const struct twi_node *info,
                      int64_t now_ms) {
    char value[64];
    info_value(info, "server_time_usec", value, sizeof value);
    int64_t redis_ms = strtoll(value, NULL, 10) / 1000;
    if (redis_ms > 0) twi_settle_clock(connection, pending, redis_ms, now_ms);
}

static void take_info(struct twi_sync *sync, struct twi_connection *connection, const struct twi_pending *pending,
                      const struct twi_node *info, int64_t now_ms) {
    twi_check(connection->phase == TWI_GREETING);
    /* INFO may be forbidden. Then the server's state is unknown, and no counts are restored after a wipe. */
    connection->server.may_restore = connection->server.is_seven = false;
    if (!may_stay(connection, info)) return;
    if (info->type == TWI_NODE_STRING) {
        check_server(sync, connection, info);
        take_time(connection, pending, info, now_ms);
    }
    greeted(sync, connection, now_ms);
}

void twi_connect_reply(struct twi_sync *sync, struct twi_connection *connection, const struct twi_pending *pending,
                       const struct twi_node *nodes, size_t count, int64_t now_ms) {
    bool error = nodes->type == TWI_NODE_ERROR;
    switch (pending->command) {
    case TWI_PING:
        if (error && twi_node_is(nodes, "NOPERM")) return; /* Redis answers; batches will show its permissions */
        /* fall through */
    case TWI_AUTH:
    case TWI_SELECT:
        if (error) greeting_refused(connection, pending->command, nodes);
        return;
    case TWI_ROLE: connection->server.role = twi_reply_role(nodes, count); return;
    case TWI_INFO: take_info(sync, connection, pending, nodes, now_ms); return;
    case TWI_CONFIG: check_config(sync, nodes, count); return;
    default: rewrite_answered(connection, nodes); return;
    }
}

/* ---- number 0 ---------------------------------------------------------------------------------------------------- */

static void name_former(struct twi_batch *opening, const char *name) {
    twi_check(opening->key_count <= TWI_FORMERS);
    if (name[0] == '\0') return;
    twi_wire_put_text(&opening->keys, name);
    opening->key_count++;
}

/* Number 0 of a candidate identity. Returns NULL if there is no memory. */
static struct twi_batch *make_opening(struct twi_sync *sync, struct twi_store *store, int64_t now_ms) {
    twi_check(store->connection != NULL && store->opening == NULL);
    struct twi_batch *opening = twi_batch_empty(now_ms);
    if (!opening) return NULL;
    twi_identity_make(&store->candidate, twi_port_prefix(sync->engine), store->tag, twi_sync_fill_random, sync->engine);
    opening->nonce = twi_sync_random(sync->engine);
    /* If one of the earlier ledgers exists, Redis makes no new one. */
    if (store->ledger.name_size) name_former(opening, store->ledger.name);
    for (uint32_t i = 1; store->ledger.name_size && i <= TWI_FORMERS; i++)
        name_former(opening, store->formers.names[(store->formers.next - i) % TWI_FORMERS]);
    if (store->connection->is_node) twi_wire_put_u64(&opening->args, store->slot), opening->arg_count++;
    if (!opening->keys.failed && !opening->args.failed) return opening;
    twi_batch_free(opening); /* it lacks names that it counts */
    return NULL;
}

/* The store was found to be wiped, and the opening could not be sent in time. The keys of other masters may have
 * changed. So the store must answer once more whether it has a record of the previous instance. */
static void reopen(struct twi_store *store) {
    twi_batch_free(store->opening);
    store->opening = NULL;
    store->assumed.is_open = true;
    store->rewind = true;
}

void twi_connect_open(struct twi_sync *sync, struct twi_store *store, int64_t now_ms) {
    twi_check(store->connection != NULL && store->awaited == 0);
    if (store->ledger.name_size != 0 && !twi_split_is_ruled_out(sync, store, now_ms)) {
        reopen(store);
        return;
    }
    /* If there is one, the reply meant "not executed". The same identity may be sent again. */
    if (!store->opening) store->opening = make_opening(sync, store, now_ms);
    if (store->opening)
        twi_send_batch(sync, store, store->opening, TWI_OPEN, now_ms);
    else
        twi_connection_fail(store->connection, false, "no memory");
}

/* ---- while it is up ---------------------------------------------------------------------------------------------- */

void twi_connect_watch(struct twi_connection *connection, int64_t now_ms) {
    twi_check(connection->phase == TWI_UP);
    if (!twi_resolver_look(connection->target.resolver, now_ms, &connection->target.endpoint)) return;
    twi_connection_fail(connection, false, "more than half of the sentinels name another master");
    connection->failure.again_ms = TWI_BREAKER_FLOOR_MS;
}

/* ---- the end of a connection ------------------------------------------------------------------------------------- */

void twi_connect_unanswered(struct twi_sync *sync, struct twi_connection *connection, int64_t now_ms) {
    sync->stores[0]->merge->dropped(sync);
    twi_message_dropped(sync, connection, now_ms);
    twi_presence_dropped(sync);
    twi_distinct_dropped(sync);
}

/* The requests of the store under way on the connection get no reply any more. */
static void interrupt(struct twi_sync *sync, const struct twi_connection *connection, struct twi_store *store) {
    if (store->connection != connection && store->route.via != connection && store->route.asking != connection) return;
    twi_active_wake(sync, store);
    if (store->route.asking == connection) store->route.asking = NULL;
    if ((store->awaited != 0 ? store->route.via : store->connection) != connection) {
        /* The connection to the node of an ASK ended. Its batch is sent again, to the master of its slot. */
        if (store->route.via == connection) store->rewind = true;
        return;
    }
    twi_batch_free(store->opening);
    store->opening = NULL;
    twi_split_forget(store);
    store->rewind = store->connection != connection; /* otherwise it is sent again when the connection is up */
    store->awaited = 0;
    store->wrote_number = 0;
}

void twi_connect_end(struct twi_sync *sync, struct twi_connection *connection, int64_t now_ms) {
    twi_check(connection->failure.is_there);
    struct twi_failure failure = connection->failure;
    bool was_up = connection->phase == TWI_UP;
    TWI_PROBE2(connection_ended, connection->target.name, failure.why);
    twi_connect_unanswered(sync, connection, now_ms);
    if (connection->is_located && connection->phase <= TWI_GREETING) twi_resolver_distrust(connection->target.resolver);
    twi_resolver_rest(connection->target.resolver);
    connection->target.where->transport->close(connection->target.transport_ctx);
    connection->phase = TWI_DOWN;
    connection->failure.is_there = false;
    twi_pipeline_clear(&connection->pipeline);
    connection->use_eval = connection->rewrite.is_under_way = false;
    connection->replicas.waits = 0;
    twi_estimate_forget(&connection->estimate);
    connection->room.keys_under_way = 0;
    connection->room.bytes_under_way = 0;
    for (uint32_t i = 0; i < sync->store_count; i++) interrupt(sync, connection, sync->stores[i]);
    twi_check(connection->pipeline.count == 0 && connection->messages.count == 0);
    if (was_up) twi_port_count(sync->engine, disconnects, 1);
    if (failure.is_idle) return;
    if (connection->use.is_wanted) twi_port_connected(sync->engine, false);
    if (failure.why) {
        snprintf(connection->outage.error, sizeof connection->outage.error, "%s", failure.why);
        twi_port_last_error(sync->engine, connection->outage.error);
        if (!connection->outage.is_logged)
            twi_port_log(sync->engine, failure.is_refused ? TW_LOG_ERROR : TW_LOG_WARNING,
                         failure.is_refused ? TW_EVENT_TLS : TW_EVENT_LOST_CONNECTION,
                         "no connection to Redis at %s: %s", connection->target.name, failure.why);
        connection->outage.is_logged = true;
    }
    if (failure.slowly)
        twi_breaker_fail_slowly(&connection->breaker, now_ms, twi_sync_random(sync->engine));
    else
        twi_breaker_fail(&connection->breaker, now_ms, twi_sync_random(sync->engine));
    if (failure.again_ms != 0) connection->breaker.retry_at_ms = now_ms + failure.again_ms;
}
