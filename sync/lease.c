/* lease.c -- what the engine says of its leases, on the wire: two scripts, one call for each thing to say.
 *
 * The calls go into the pipeline beside the batches, a bounded number of them, and are answered in order; what is on a
 * connection that is lost is of unknown outcome, and the engine says it again. With wait_replicas an answer counts once the
 * replicas have what the script wrote: until then it is held here, so that no unit is spent that a failover could forget.
 * Always true: each ask that the engine handed out is answered exactly once; a reply of another shape than the scripts' is
 * an error, and the connection goes. */
#include "sync/lease.h"

#include <stdio.h>
#include <string.h>

#include "sync/answer.h"
#include "sync/pipeline.h"
#include "sync/replicas.h"
#include "sync/refusal.h"
#include "sync/sync.h"

#include "lease.lua.h"
#include "lease.lua.sha1.h"
#include "leases.lua.h"
#include "leases.lua.sha1.h"

#define VERSION "2"

enum { SCRIPT_LEASES, SCRIPT_LEASE };
static const struct {
    const char *text, *sha1;
    size_t keys, args;
} scripts[] = {[SCRIPT_LEASES] = {twi_script_leases, twi_script_leases_sha1, 2, 10},
               [SCRIPT_LEASE] = {twi_script_lease, twi_script_lease_sha1, 3, 16}};

static struct twi_lease_pending *pending_at(struct twi_lease_link *link, uint32_t i) {
    return &link->ring[(link->first + i) % TWI_LEASES_MAX];
}

/* ---- out --------------------------------------------------------------------------------------------------------- */

static void put_name(struct twi_sync *sync, const char *name) {
    char text[TWI_LEDGER_NAME_MAX];
    int size = snprintf(text, sizeof text, "%s%s", twi_port_prefix(sync->engine), name);
    twi_wire_put(&sync->out, text, (size_t)size);
}

static void begin(struct twi_sync *sync, uint32_t script, size_t more) {
    bool eval = sync->leases.use_eval[script];
    sync->leases.use_eval[script] = false;
    twi_wire_begin(&sync->out, 3 + scripts[script].keys + scripts[script].args + more);
    twi_wire_put_text(&sync->out, eval ? "EVAL" : "EVALSHA");
    twi_wire_put_text(&sync->out, eval ? scripts[script].text : scripts[script].sha1);
    twi_wire_put_u64(&sync->out, scripts[script].keys);
    put_name(sync, "tw:leases");
    put_name(sync, "tw:leases:wanted");
}

static void put_epoch_ask(struct twi_sync *sync, const struct twi_lease_ask *ask) {
    const struct twi_lease_epoch *epoch = twi_port_lease_epoch(sync->engine);
    char fresh[33];
    snprintf(fresh, sizeof fresh, "%016llx%016llx", (unsigned long long)twi_sync_random(sync),
             (unsigned long long)twi_sync_random(sync));
    uint32_t others = ask->tells ? epoch->other_count : 0;
    begin(sync, SCRIPT_LEASES, others);
    twi_wire_put_text(&sync->out, VERSION);
    twi_wire_put_text(&sync->out, epoch->instance);
    twi_wire_put_text(&sync->out, ask->epoch);
    twi_wire_put_text(&sync->out, epoch->run);
    twi_wire_put_text(&sync->out, ask->said);
    twi_wire_put_text(&sync->out, fresh);
    twi_wire_put_i64(&sync->out, ask->wanted_since_ms);
    twi_wire_put_text(&sync->out, ask->leaves ? "1" : "0");
    twi_wire_put_i64(&sync->out, epoch->changes);
    twi_wire_put_i64(&sync->out, epoch->every_ms);
    for (uint32_t i = 0; i < others; i++) twi_wire_put_text(&sync->out, epoch->others[i]);
}

static void put_lease_name(struct twi_sync *sync, const struct twi_lease_ask *ask) {
    char name[TWI_REDIS_KEY_MAX + 16];
    size_t prefix = strlen(twi_port_prefix(sync->engine)), word = sizeof "tw:lease:" - 1;
    size_t size = twi_port_render(&ask->item, name + word); /* prefix and rest; the word goes in between */
    memmove(name, name + word, prefix);
    memcpy(name + prefix, "tw:lease:", word);
    twi_wire_put(&sync->out, name, size + word);
}

static void put_lease_ask(struct twi_sync *sync, const struct twi_lease_ask *ask) {
    const struct twi_lease_epoch *epoch = twi_port_lease_epoch(sync->engine);
    begin(sync, SCRIPT_LEASE, 0);
    put_lease_name(sync, ask);
    twi_wire_put_text(&sync->out, VERSION);
    twi_wire_put_text(&sync->out, epoch->id);
    twi_wire_put_text(&sync->out, epoch->instance);
    twi_wire_put_u64(&sync->out, sync->serial);
    twi_wire_put_i64(&sync->out, ask->item.expiry_ms);
    twi_wire_put_i64(&sync->out, ask->limit);
    twi_wire_put_i64(&sync->out, ask->granted);
    twi_wire_put_i64(&sync->out, ask->target);
    twi_wire_put_i64(&sync->out, ask->need);
    twi_wire_put_i64(&sync->out, ask->returned);
    twi_wire_put_i64(&sync->out, ask->spent);
    twi_wire_put_i64(&sync->out, ask->spent_all);
    twi_wire_put_text(&sync->out, ask->look ? "1" : "0");
    twi_wire_put_text(&sync->out, epoch->life);
    if (ask->base >= 0)
        twi_wire_put_i64(&sync->out, ask->base);
    else
        twi_wire_put_text(&sync->out, "");
    twi_wire_put_i64(&sync->out, ask->risk);
}

void twi_lease_step(struct twi_sync *sync, int64_t now_ms) {
    struct twi_lease_link *link = &sync->leases;
    /* A rewind waits for all answers that are under way. */
    if (sync->rewind || sync->breaker.state != TWI_BREAKER_CLOSED || sync->merge != TW_MERGE_SCRIPT) return;
    struct twi_lease_ask asks[TWI_LEASES_MAX];
    size_t count = twi_port_leases(sync->engine, sync->serial, asks, TWI_LEASES_MAX - link->count);
    if (count == 0) return;
    if (sync->out.size == 0) sync->out_moved_ms = now_ms;
    for (size_t i = 0; i < count; i++) {
        if (asks[i].lease == NULL)
            put_epoch_ask(sync, &asks[i]);
        else
            put_lease_ask(sync, &asks[i]);
        *pending_at(link, link->count++) = (struct twi_lease_pending){.ask = asks[i]};
        (void)twi_pipeline_await(sync, TWI_LEASE, NULL, 1);
    }
    link->waiting += (uint32_t)count;
    if (sync->wait_replicas != 0) {
        twi_replicas_put(sync);
        (void)twi_pipeline_await(sync, TWI_LEASE_WAIT, NULL, 1);
        link->waiting++;
    }
}

/* ---- in ---------------------------------------------------------------------------------------------------------- */

static bool read_lease(const struct twi_node *nodes, size_t count, struct twi_lease_answer *answer) {
    if (twi_node_is(&nodes[1], "EPOCH")) answer->kind = TWI_LEASE_ENDED;
    if (twi_node_is(&nodes[1], "LATE")) answer->kind = TWI_LEASE_TOO_LATE;
    if (!twi_node_is(&nodes[1], "OK")) return true;
    int64_t open;
    if (count != 10 || !twi_node_i64(&nodes[3], &answer->granted) || !twi_node_i64(&nodes[4], &answer->total) ||
        !twi_node_i64(&nodes[5], &answer->spent_all) || !twi_node_i64(&nodes[6], &answer->stranded) ||
        !twi_node_i64(&nodes[7], &answer->risk) || !twi_node_i64(&nodes[8], &open) ||
        !twi_node_i64(&nodes[9], &answer->wait_ms))
        return false;
    answer->kind = TWI_LEASE_TOLD;
    answer->open = open == 1;
    return true;
}

static void take_wanted(struct twi_sync *sync, const struct twi_node *name) {
    size_t skip = strlen(twi_port_prefix(sync->engine)) + sizeof "tw:lease:" - 1;
    if (name->type == TWI_NODE_STRING && name->size > skip)
        twi_port_lease_wanted(sync->engine, name->text + skip, name->size - skip);
}

#define EPOCH_HEAD 11u

static bool is_text(const struct twi_node *node, size_t size_max) {
    return node->type == TWI_NODE_STRING && node->size <= size_max;
}

static bool read_epoch(struct twi_sync *sync, const struct twi_node *nodes, size_t count,
                       struct twi_lease_answer *answer) {
    if (!twi_node_is(&nodes[1], "OK")) return true;
    int64_t open, others;
    if (count < EPOCH_HEAD || !is_text(&nodes[3], 32) || !twi_node_i64(&nodes[4], &open) || !is_text(&nodes[5], 40) ||
        !is_text(&nodes[6], 32) || !twi_node_i64(&nodes[7], &answer->every_ms) ||
        !twi_node_i64(&nodes[8], &answer->changes) || !twi_node_i64(&nodes[10], &others) || others < 0 ||
        others > (int64_t)(count - EPOCH_HEAD))
        return false;
    answer->kind = TWI_LEASE_TOLD;
    answer->open = open == 1;
    answer->id = nodes[3].text;
    answer->run = nodes[5].text;
    answer->life = nodes[6].text;
    answer->whole = twi_node_is(&nodes[9], "1");
    size_t at = EPOCH_HEAD;
    for (; others > 0; others--, at++)
        if (is_text(&nodes[at], 33) && nodes[at].size == 33)
            twi_port_lease_other(sync->engine, nodes[at].text + 1, nodes[at].text[0] == '+');
    for (; at < count; at++) take_wanted(sync, &nodes[at]);
    return true;
}

static bool read_answer(struct twi_sync *sync, const struct twi_lease_ask *ask, const struct twi_node *nodes,
                        size_t count, struct twi_lease_answer *answer) {
    *answer = (struct twi_lease_answer){.kind = TWI_LEASE_AGAIN};
    if (nodes->type == TWI_NODE_ERROR) {
        bool is_new = twi_answer_error(nodes) == TWI_ANSWER_NOSCRIPT;
        if (is_new) sync->leases.use_eval[ask->lease == NULL ? SCRIPT_LEASES : SCRIPT_LEASE] = true;
        if (!is_new) twi_refusal_report(sync, "a lease of a hard limit", nodes);
        answer->refused = !is_new;
        return true;
    }
    if (nodes->type != TWI_NODE_ARRAY || count < 3 || nodes[1].type != TWI_NODE_STRING) return false;
    if (!twi_node_i64(&nodes[2], &answer->redis_ms)) return false;
    return ask->lease == NULL ? read_epoch(sync, nodes, count, answer) : read_lease(nodes, count, answer);
}

static void tell_first(struct twi_sync *sync, const struct twi_lease_answer *answer) {
    struct twi_lease_link *link = &sync->leases;
    struct twi_lease_ask ask = pending_at(link, 0)->ask;
    link->first = (link->first + 1) % TWI_LEASES_MAX;
    link->count--;
    twi_port_lease_told(sync->engine, &ask, answer);
}

void twi_lease_reply(struct twi_sync *sync, const struct twi_pending *awaited, const struct twi_node *nodes,
                     size_t count, int64_t now_ms) {
    (void)awaited, (void)now_ms;
    struct twi_lease_link *link = &sync->leases;
    struct twi_lease_pending *pending = pending_at(link, link->held);
    struct twi_lease_answer answer;
    link->waiting--;
    if (!read_answer(sync, &pending->ask, nodes, count, &answer)) {
        twi_sync_fail(sync, false, "a reply that is not understood");
        return;
    }
    if (sync->wait_replicas == 0) {
        tell_first(sync, &answer);
        return;
    }
    if (answer.id) { /* the reply's texts go with it */
        snprintf(pending->id, sizeof pending->id, "%s", answer.id);
        snprintf(pending->run, sizeof pending->run, "%s", answer.run);
        snprintf(pending->life, sizeof pending->life, "%s", answer.life);
    }
    pending->answer = answer;
    link->held++;
}

void twi_lease_replicated(struct twi_sync *sync, const struct twi_pending *awaited, const struct twi_node *answer,
                          size_t count, int64_t now_ms) {
    (void)awaited, (void)count, (void)now_ms;
    struct twi_lease_link *link = &sync->leases;
    int64_t replicas = 0;
    link->waiting--;
    bool enough = twi_node_i64(answer, &replicas) && replicas >= (int64_t)sync->wait_replicas;
    for (; link->held != 0; link->held--) {
        struct twi_lease_answer said = pending_at(link, 0)->answer;
        if (said.id) {
            said.id = pending_at(link, 0)->id;
            said.run = pending_at(link, 0)->run;
            said.life = pending_at(link, 0)->life;
        }
        if (!enough && said.kind == TWI_LEASE_TOLD) said = (struct twi_lease_answer){.kind = TWI_LEASE_AGAIN};
        tell_first(sync, &said);
    }
}

void twi_lease_dropped(struct twi_sync *sync) {
    struct twi_lease_link *link = &sync->leases;
    struct twi_lease_answer again = {.kind = TWI_LEASE_AGAIN};
    while (link->count != 0) tell_first(sync, &again);
    link->held = link->waiting = 0;
    link->use_eval[SCRIPT_LEASES] = link->use_eval[SCRIPT_LEASE] = false;
}
