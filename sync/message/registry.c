/* registry.c -- see registry.h. */
#include "sync/message/registry.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/check.h"
#include "engine/port/messages.h"
#include "engine/port/services.h"
#include "sync/message/message.h"
#include "sync/message/refusal.h"
#include "sync/message/state.h"

#include "registry.lua.h"

static const struct twi_script_source script = {twi_script_registry, twi_script_registry_sha1};

static void registry_refused(struct twi_sync *sync, struct twi_connection *connection, const struct twi_node *error,
                             int64_t now_ms) {
    twi_check(error->type == TWI_NODE_ERROR);
    struct twi_registry *registry = &sync->senders.registry;
    registry->at_ms = now_ms + TWI_REGISTRY_REFUSED_MS;
    if (!registry->is_logged) twi_refusal_report(connection, "the registry of live engines (tw:live)", error);
    registry->is_logged = true;
    twi_port_live_engines(sync->engine, 0);
}

static bool reported(struct twi_sync *sync, struct twi_connection *connection, void *ctx,
                     enum twi_message_outcome outcome, const struct twi_node *nodes, size_t count, int64_t now_ms) {
    twi_check(sync->senders.registry.awaiting);
    struct twi_registry *registry = &sync->senders.registry;
    int64_t live, every_ms;
    (void)ctx;
    registry->awaiting = false;
    if (outcome != TWI_MESSAGE_ANSWERED) {
        if (count != 0) registry_refused(sync, connection, nodes, now_ms);
        return true;
    }
    if (nodes->type != TWI_NODE_ARRAY || count < 4 || !twi_node_count(&nodes[3], &live)) return false;
    if (!twi_node_is(&nodes[1], "OK")) return true; /* CLASH, as engines of another version keep the registry */
    if (live < 1 || live > UINT32_MAX || count != 5 || !twi_node_pause(&nodes[4], &every_ms)) return false;
    /* The script requests half a millisecond for each engine. So a longer interval does not come from the script. */
    if (every_ms > 2 * live) every_ms = 2 * live;
    if (every_ms > TWI_REGISTRY_EVERY_MS) registry->at_ms += every_ms - TWI_REGISTRY_EVERY_MS;
    registry->is_logged = false;
    registry->reported = (uint32_t)live;
    if (now_ms < registry->before_until_ms && registry->reported < registry->before) live = registry->before;
    twi_port_live_engines(sync->engine, (uint32_t)live);
    if (registry->reported >= TWI_REGISTRY_MANY) registry->pause_ms = TWI_REGISTRY_EVERY_MS;
    return true;
}

void twi_registry_step(struct twi_sync *sync, int64_t now_ms) {
    struct twi_registry *registry = &sync->senders.registry;
    char name[TWI_LEDGER_NAME_MAX], ttl[16];
    /* An engine that closes takes no part in limits any more. It leaves, so that the others get its share at once. */
    bool leaves = twi_port_is_closing(sync->engine);
    if (registry->awaiting || registry->has_left || (!leaves && now_ms < registry->at_ms)) return;
    const char *id = twi_port_engine_id(sync->engine);
    size_t name_size = (size_t)snprintf(name, sizeof name, "%stw:live", twi_port_prefix(sync->engine));
    size_t ttl_size = (size_t)snprintf(ttl, sizeof ttl, "%d", leaves ? 0 : TWI_REGISTRY_MS);
    const struct twi_message_argument words[] = {{name, name_size}, {"1", 1}, {id, strlen(id)}, {ttl, ttl_size}};
    const struct twi_message side = {.sender = TWI_SENDER_REGISTRY,
                                     .script = &script,
                                     .arguments = words,
                                     .key_count = 1,
                                     .argument_count = 4,
                                     .done = reported,
                                     .ctx = NULL};
    if (!twi_message_send(sync, &side, now_ms)) return;
    registry->awaiting = true;
    twi_check(!leaves || twi_port_is_closing(sync->engine));
    registry->has_left = leaves;
    int64_t pause_ms = registry->pause_ms != 0 ? registry->pause_ms : TWI_REGISTRY_EVERY_MS;
    registry->at_ms = now_ms + pause_ms;
    registry->pause_ms = 2 * pause_ms < TWI_REGISTRY_EVERY_MS ? 2 * pause_ms : TWI_REGISTRY_EVERY_MS;
}

int64_t twi_registry_due_ms(const struct twi_sync *sync) {
    const struct twi_registry *registry = &sync->senders.registry;
    if (registry->awaiting || registry->has_left) return INT64_MAX;
    return twi_message_may_send(sync, NULL, TWI_SENDER_REGISTRY) ? registry->at_ms : INT64_MAX;
}

void twi_registry_connected(struct twi_registry *registry, int64_t now_ms) {
    if (registry->is_logged) return;
    registry->at_ms = now_ms;
    registry->pause_ms = TWI_REGISTRY_FIRST_MS;
    if (now_ms >= registry->before_until_ms || registry->reported > registry->before)
        registry->before = registry->reported;
    registry->before_until_ms = now_ms + TWI_REGISTRY_BACK_MS;
}
