/* registry.c -- see registry.h. */
#include "sync/message/registry.h"

#include <stdio.h>
#include <string.h>

#include "sync/message/refusal.h"
#include "sync/message/state.h"

#include "live.lua.h"
#include "live.lua.sha1.h"

static const struct twi_side_script script = {twi_script_live, twi_script_live_sha1};

static void refused(struct twi_sync *sync, const struct twi_node *error, int64_t now_ms) {
    sync->live.at_ms = now_ms + TWI_LIVE_REFUSED_MS;
    if (!sync->live.is_logged) twi_refusal_report(sync, "the registry of live engines", error);
    sync->live.is_logged = true;
    twi_port_live(sync->engine, 0);
}

static bool told(struct twi_sync *sync, void *ctx, enum twi_side_outcome outcome, const struct twi_node *nodes,
                 size_t count, int64_t now_ms) {
    int64_t live, every_ms;
    (void)ctx;
    sync->live.asking = false;
    if (outcome != TWI_SIDE_ANSWERED) {
        if (count != 0) refused(sync, nodes, now_ms);
        return true;
    }
    if (nodes->type != TWI_NODE_ARRAY || count < 4 || !twi_node_i64(&nodes[3], &live)) return false;
    if (!twi_node_is(&nodes[1], "OK")) return true; /* engines of another version keep it */
    if (live < 1 || live > UINT32_MAX || count != 5 || !twi_node_i64(&nodes[4], &every_ms)) return false;
    if (every_ms > TWI_LIVE_EVERY_MS) sync->live.at_ms += every_ms - TWI_LIVE_EVERY_MS;
    sync->live.is_logged = false;
    sync->live.told = (uint32_t)live;
    if (now_ms < sync->live.before_until_ms && sync->live.told < sync->live.before) live = sync->live.before;
    twi_port_live(sync->engine, (uint32_t)live);
    if (sync->live.told >= TWI_LIVE_MANY) sync->live.pause_ms = TWI_LIVE_EVERY_MS;
    return true;
}

void twi_live_step(struct twi_sync *sync, int64_t now_ms) {
    char name[TWI_LEDGER_NAME_MAX], ttl[16];
    if (sync->live.asking || now_ms < sync->live.at_ms) return;
    const char *id = twi_port_engine_id(sync->engine);
    size_t name_size = (size_t)snprintf(name, sizeof name, "%stw:live", twi_port_prefix(sync->engine));
    size_t ttl_size = (size_t)snprintf(ttl, sizeof ttl, "%d", TWI_LIVE_MS);
    const struct twi_side_word words[] = {{name, name_size}, {"1", 1}, {id, strlen(id)}, {ttl, ttl_size}};
    const struct twi_side side = {.sender = TWI_SENDER_REGISTRY,
                                  .script = &script,
                                  .words = words,
                                  .key_count = 1,
                                  .word_count = 4,
                                  .told = told,
                                  .ctx = NULL};
    if (!twi_side_send(sync, &side, now_ms)) return;
    sync->live.asking = true;
    int64_t pause_ms = sync->live.pause_ms != 0 ? sync->live.pause_ms : TWI_LIVE_EVERY_MS;
    sync->live.at_ms = now_ms + pause_ms;
    sync->live.pause_ms = 2 * pause_ms < TWI_LIVE_EVERY_MS ? 2 * pause_ms : TWI_LIVE_EVERY_MS;
}

int64_t twi_live_due_ms(const struct twi_sync *sync) {
    return sync->live.asking || sync->merge != TW_MERGE_SCRIPT ? INT64_MAX : sync->live.at_ms;
}

void twi_live_connected(struct twi_sync *sync, int64_t now_ms) {
    if (sync->live.is_logged) return;
    sync->live.at_ms = now_ms;
    sync->live.pause_ms = TWI_LIVE_FIRST_MS;
    if (now_ms >= sync->live.before_until_ms || sync->live.told > sync->live.before)
        sync->live.before = sync->live.told;
    sync->live.before_until_ms = now_ms + TWI_LIVE_BACK_MS;
}
