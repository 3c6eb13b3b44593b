/* reply.c -- reads the replies of sync/script/batch.lua, and errors. See reply.h. */
#include "sync/batch/reply.h"

#include "engine/base/atomic.h"
#include "engine/base/check.h"

#include <stdlib.h>
#include <string.h>

/* ---- inflight ---- */

static struct twi_inflight *free_place(struct twi_inflight *places) {
    for (uint32_t i = 0; i < TWI_INFLIGHT_PLACES; i++)
        if (twi_load_relaxed(&places[i].state) == TWI_INFLIGHT_FREE) return &places[i];
    return NULL;
}

/* A batch without arguments has no data. */
static void put_bytes(void *to, const void *from, size_t size) {
    if (size != 0) memcpy(to, from, size);
}

bool twi_inflight_note(struct twi_inflight *places, struct twi_batch *batch) {
    if (!places || batch->place) return true;
    struct twi_inflight *place = free_place(places);
    if (!place) return false;
    twi_check(batch->item_count <= TWI_BATCH_ITEMS_MAX);
    place->batch = *batch;
    place->batch.item_count = batch->items ? batch->item_count : 0;
    place->key_bytes = batch->keys.size;
    place->arg_bytes = batch->args.size;
    if (batch->items) memcpy(place->items, batch->items, batch->item_count * sizeof *batch->items);
    if (place->key_bytes + place->arg_bytes <= sizeof place->bytes) {
        put_bytes(place->bytes, batch->keys.data, place->key_bytes);
        put_bytes(place->bytes + place->key_bytes, batch->args.data, place->arg_bytes);
    }
    twi_store_relaxed(&place->settled, 0);
    batch->place = place;
    twi_store_release(&place->state, TWI_INFLIGHT_SENT); /* after all the rest: the order within this process counts */
    return true;
}

void twi_inflight_outcome(struct twi_batch *batch, uint32_t item, enum twi_inflight_outcome outcome) {
    if (batch->place) batch->place->outcomes[item] = (unsigned char)outcome;
}

void twi_inflight_outcome_of_all(struct twi_batch *batch, enum twi_inflight_outcome outcome) {
    if (batch->place) memset(batch->place->outcomes, (int)outcome, batch->place->batch.item_count);
}

static void note_next(struct twi_inflight *place, uint32_t item) {
    if (item < place->batch.item_count) place->acked_before[item] = twi_port_acked(&place->items[item]);
    twi_store_release(&place->settled, item); /* after that number, which the next process may need */
}

void twi_inflight_settle(struct twi_batch *batch) {
    if (!batch->place || !batch->items) return;
    note_next(batch->place, 0);
    twi_store_release(&batch->place->state, TWI_INFLIGHT_SETTLING);
}

/* If this process ends before the number is written, an item is noted twice. Then more units count as uncertain if that
 * store is back, and none is sent twice. */
void twi_inflight_note_adrift(struct twi_inflight *place) {
    uint32_t state = twi_load_relaxed(&place->state);
    if (state == TWI_INFLIGHT_SENT) {
        twi_store_relaxed(&place->settled, 0);
        twi_store_release(&place->state, TWI_INFLIGHT_ADRIFT);
    } else if (state != TWI_INFLIGHT_ADRIFT) {
        return; /* settled: by its outcome, or because all are noted and were given back */
    }
    for (uint32_t i = twi_load_relaxed(&place->settled); i < place->batch.item_count; i++) {
        twi_port_adrift(&place->items[i]);
        twi_store_release(&place->settled, i + 1); /* after the note */
    }
}

void twi_inflight_next(struct twi_batch *batch, uint32_t item) {
    if (batch->place) note_next(batch->place, item);
}

void twi_inflight_forget(struct twi_batch *batch) {
    if (batch->place) twi_inflight_free(batch->place);
    batch->place = NULL;
}

void twi_inflight_free(struct twi_inflight *place) {
    twi_store_release(&place->state, TWI_INFLIGHT_FREE);
}

/* ---- in the next process ------------------------------------------------------------------------------------- */

static bool is_begun(const struct twi_inflight *place) {
    uint32_t state = twi_load_relaxed(&place->state);
    return state == TWI_INFLIGHT_SETTLING || state == TWI_INFLIGHT_GIVING_UP;
}

void twi_inflight_undo(struct twi_inflight *place) {
    if (!is_begun(place)) return;
    uint32_t item = twi_load_relaxed(&place->settled);
    if (item < place->batch.item_count) twi_port_undo_acked(&place->items[item], place->acked_before[item]);
}

static void settle(const struct twi_item *item, enum twi_inflight_outcome outcome) {
    static const struct twi_reply applied = {0};
    switch (outcome) {
    case TWI_OUTCOME_APPLIED: twi_port_acknowledge(item, &applied); return;
    case TWI_OUTCOME_RETURNS: twi_port_return(item, 0); return;
    case TWI_OUTCOME_LATE:
    case TWI_OUTCOME_UNCERTAIN: break;
    }
    if (item->delta == 0)
        twi_port_return(item, 0);
    else
        twi_port_give_up(item, outcome == TWI_OUTCOME_LATE ? TW_LOST_LATE : TW_LOST_UNCERTAIN);
}

/* Returns false if there is no memory, or if the place had no room for the bytes. */
static bool copy_bytes(const struct twi_inflight *place, struct twi_batch *batch) {
    *batch = place->batch;
    batch->next = NULL;
    batch->keys = batch->args = (struct twi_bytes){0};
    batch->items = NULL;
    if (place->key_bytes + place->arg_bytes > sizeof place->bytes) return false;
    twi_bytes_add(&batch->keys, place->bytes, place->key_bytes);
    twi_bytes_add(&batch->args, place->bytes + place->key_bytes, place->arg_bytes);
    return !batch->keys.failed && !batch->args.failed;
}

static bool copy(const struct twi_inflight *place, struct twi_batch *batch) {
    if (!copy_bytes(place, batch)) return false;
    batch->copies_open = 1; /* how the one ended that the process before has sent is not known */
    batch->strayed = true;
    if (place->batch.item_count == 0) return true;
    batch->items = malloc(place->batch.item_count * sizeof *batch->items);
    if (batch->items) memcpy(batch->items, place->items, place->batch.item_count * sizeof *batch->items);
    return batch->items != NULL;
}

static struct twi_batch *batch_of(struct twi_inflight *place) {
    struct twi_batch *batch = malloc(sizeof *batch);
    if (!batch || copy(place, batch)) return batch;
    batch->place = NULL;
    twi_batch_free(batch);
    return NULL;
}

struct twi_batch *twi_inflight_settled(const struct twi_inflight *place) {
    struct twi_batch *batch = malloc(sizeof *batch);
    bool is_whole = batch && copy_bytes(place, batch);
    if (batch) {
        batch->place = NULL;
        batch->copies_open = 0;
    }
    for (uint32_t i = 0; is_whole && i < place->batch.item_count; i++) {
        if (place->outcomes[i] == TWI_OUTCOME_RETURNS) (void)twi_batch_set_aside(batch, i);
        if (place->outcomes[i] == TWI_OUTCOME_LATE) (void)twi_batch_strike(batch, i);
        if (place->outcomes[i] == TWI_OUTCOME_UNCERTAIN) batch->was_short = true;
    }
    if (is_whole) return batch;
    twi_batch_free(batch);
    return NULL;
}

/* This process may end, too, and leave the rest to the next one. */
static void settle_from(struct twi_inflight *place, uint32_t first) {
    bool was_answered = twi_load_relaxed(&place->state) == TWI_INFLIGHT_SETTLING;
    for (uint32_t i = first; i < place->batch.item_count; i++) {
        note_next(place, i);
        settle(&place->items[i], was_answered ? place->outcomes[i] : TWI_OUTCOME_UNCERTAIN);
    }
    note_next(place, place->batch.item_count);
}

struct twi_batch *twi_inflight_inherit(struct twi_inflight *place, bool has_memory) {
    twi_check(twi_load_relaxed(&place->state) != TWI_INFLIGHT_FREE);
    uint32_t first = is_begun(place) ? twi_load_relaxed(&place->settled) : 0;
    for (uint32_t i = first; i < place->batch.item_count; i++) twi_port_inherit(&place->items[i]);
    if (!is_begun(place)) {
        struct twi_batch *batch = has_memory ? batch_of(place) : NULL;
        if (batch) {
            batch->place = place;
            return batch;
        }
        note_next(place, 0);
        twi_store_release(&place->state, TWI_INFLIGHT_GIVING_UP);
    }
    settle_from(place, first);
    return NULL;
}

/* Errors that come before a script's first write, or before the script starts. Waiting helps. */
static const char *const refused[] = {"LOADING",    "BUSY",     "OOM",         "MISCONF",
                                      "NOREPLICAS", "TRYAGAIN", "CLUSTERDOWN", NULL};
/* The same, but only another login, server or configuration helps. MOVED and ASK come from a cluster, which
 * redis:// does not name. With redis+cluster:// they are read before this list (wire/cluster_nodes.h). */
static const char *const turned_away[] = {"NOAUTH",    "NOPERM", "WRONGPASS", "READONLY", "MASTERDOWN",
                                          "CROSSSLOT", "DENIED", "MOVED",     "ASK",      NULL};

static bool on_list(const char *code, size_t size, const char *const *list) {
    twi_check(code != NULL);
    for (; *list; list++)
        if (strlen(*list) == size && memcmp(*list, code, size) == 0) return true;
    return false;
}

/* Up to Redis 6 an error within a script arrives as "ERR Error running script (call to f_..): @user_script:19:
 * @user_script: 19: -OOM command not allowed ...". The inner error comes after the last ": -" or ": ". Our scripts let
 * out only errors of calls up to their first write, so the inner code can be relied on. */
const char *twi_reply_said(const struct twi_node *error) {
    static const char wrapped[] = "ERR Error running script";
    const char *said = error->text;
    if (error->size <= sizeof wrapped || memcmp(error->text, wrapped, sizeof wrapped - 1) != 0) return said;
    for (size_t i = 0; i + 2 < error->size; i++) {
        bool found = error->text[i] == ':' && error->text[i + 1] == ' ';
        size_t at = i + 2 + (found && error->text[i + 2] == '-');
        if (found && at < error->size && error->text[at] >= 'A' && error->text[at] <= 'Z') said = error->text + at;
    }
    twi_check(said >= error->text && said < error->text + error->size);
    return said;
}

static void inner_code(const struct twi_node *error, const char **code, size_t *size) {
    twi_check(error->type == TWI_NODE_ERROR);
    *code = twi_reply_said(error);
    *size = error->size - (size_t)(*code - error->text);
    const char *space = memchr(*code, ' ', *size);
    if (space) *size = (size_t)(space - *code);
    twi_check(*code >= error->text && *code + *size <= error->text + error->size);
}

bool twi_reply_is_replicas(const struct twi_node *error) {
    static const char *const theirs[] = {"READONLY", "MASTERDOWN", NULL};
    const char *code;
    size_t size;
    inner_code(error, &code, &size);
    return on_list(code, size, theirs);
}

enum twi_role twi_reply_role(const struct twi_node *nodes, size_t count) {
    twi_check(count >= 1);
    if (nodes[0].type != TWI_NODE_ARRAY || count < 2) return TWI_ROLE_UNKNOWN;
    return twi_node_is(&nodes[1], "master") ? TWI_ROLE_MASTER : TWI_ROLE_REPLICA;
}

enum twi_role twi_reply_info_role(const struct twi_node *info) {
    static const char line[] = "\nrole:";
    const char *role = info->type == TWI_NODE_STRING ? memmem(info->text, info->size, line, sizeof line - 1) : NULL;
    if (!role) return TWI_ROLE_UNKNOWN;
    role += sizeof line - 1;
    if (strncmp(role, "master", 6) == 0) return TWI_ROLE_MASTER;
    return strncmp(role, "slave", 5) == 0 || strncmp(role, "replica", 7) == 0 ? TWI_ROLE_REPLICA : TWI_ROLE_UNKNOWN;
}

bool twi_reply_is_forbidden(const struct twi_node *error) {
    /* A script that stopped there: Redis up to 7.0 says "can't run", later ones and Valkey "no permissions to run". */
    return strstr(error->text, "can't run") || strstr(error->text, "can't access") ||
           strstr(error->text, "permissions to");
}

/* Redis refuses a command because of the value of its key, or a script met a value with which it cannot compute. A
 * script that stopped at a key of another node (cluster_nodes.h), or at a command that the user may not run, is no such
 * case. */
static bool is_of_a_key(const struct twi_node *error, const char *code, size_t size) {
    twi_check(size <= error->size);
    if (size == 9 && memcmp(code, "WRONGTYPE", 9) == 0) return true;
    return size == 3 && memcmp(code, "ERR", 3) == 0 && strstr(error->text, "user_script") &&
           !strstr(error->text, "non local") && !strstr(error->text, "can't run") &&
           !strstr(error->text, "permissions to run");
}

enum twi_reply_kind twi_reply_error(const struct twi_node *error) {
    const char *code;
    size_t size;
    inner_code(error, &code, &size);
    if (size == 8 && memcmp(code, "NOSCRIPT", 8) == 0) return TWI_REPLY_NOSCRIPT;
    if (is_of_a_key(error, code, size)) return TWI_REPLY_SPOILT;
    if (on_list(code, size, refused)) return TWI_REPLY_REFUSED;
    if (on_list(code, size, turned_away)) return TWI_REPLY_TURNED_AWAY;
    return TWI_REPLY_UNKNOWN;
}

bool twi_reply_needs_script(const struct twi_node *reply) {
    return reply->type == TWI_NODE_ERROR && twi_reply_error(reply) == TWI_REPLY_NOSCRIPT;
}

static bool read_kind(const struct twi_node *node, enum twi_reply_kind *kind) {
    static const struct {
        const char *word;
        enum twi_reply_kind kind;
    } words[] = {{"OK", TWI_REPLY_OK},      {"DUP", TWI_REPLY_DUP},   {"GAP", TWI_REPLY_GAP},
                 {"PAST", TWI_REPLY_PAST},  {"GONE", TWI_REPLY_GONE}, {"KEPT", TWI_REPLY_KEPT},
                 {"CLASH", TWI_REPLY_CLASH}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (!twi_node_is(node, words[i].word)) continue;
        *kind = words[i].kind;
        return true;
    }
    return false;
}

#define HEAD_SIZE 8 /* status, time, number, marker, plus, minus, done, unhealed */

/* GONE and the reply to an opening also state whether the store has a record of our instance. A reply without that
 * counts as "it has". */
static void read_gone(const struct twi_node *nodes, size_t count, struct twi_reply_head *head) {
    twi_check(count > HEAD_SIZE);
    int64_t registered = 1;
    if (count >= 1 + HEAD_SIZE + 2 && !twi_node_count(&nodes[1 + HEAD_SIZE], &registered)) registered = 1;
    if (count >= 1 + HEAD_SIZE + 2 && !twi_node_time(&nodes[2 + HEAD_SIZE], &head->marker_made_ms)) registered = 1;
    if (count >= 1 + HEAD_SIZE + 3) (void)twi_node_count(&nodes[3 + HEAD_SIZE], &head->survivors);
    head->registered = registered != 0 && registered != 2;
    head->has_older = registered == 2;
}

bool twi_reply_read(const struct twi_node *nodes, size_t count, struct twi_reply_head *head) {
    twi_check(count >= 1);
    *head = (struct twi_reply_head){.items_at = 1 + HEAD_SIZE};
    if (nodes[0].type == TWI_NODE_ERROR) {
        head->kind = twi_reply_error(&nodes[0]);
        if (head->kind == TWI_REPLY_SPOILT) head->kind = TWI_REPLY_UNKNOWN; /* it concerns one key, not the batch */
        head->error = &nodes[0];
        return true;
    }
    if (nodes[0].type != TWI_NODE_ARRAY || nodes[0].integer < HEAD_SIZE || count < 1 + HEAD_SIZE) return false;
    for (size_t i = 1; i <= HEAD_SIZE; i++)
        if (nodes[i].depth != 1 || nodes[i].type == TWI_NODE_ARRAY) return false;
    int64_t done = 0;
    if (!read_kind(&nodes[1], &head->kind) || !twi_node_time(&nodes[2], &head->redis_ms) ||
        !twi_node_count(&nodes[7], &done) || !twi_node_count(&nodes[8], &head->unhealed))
        return false;
    head->done = done == 1;
    head->has_last = twi_node_u64(&nodes[3], &head->last);
    if (nodes[4].type == TWI_NODE_STRING) head->marker = nodes[4].text, head->marker_size = nodes[4].size;
    (void)twi_node_u64(&nodes[5], &head->plus_sum);
    (void)twi_node_u64(&nodes[6], &head->minus_sum);
    bool opened = head->kind == TWI_REPLY_OK && head->last == 0;
    if (head->kind == TWI_REPLY_GONE || opened) read_gone(nodes, count, head);
    return head->has_last || head->kind == TWI_REPLY_GONE || head->kind == TWI_REPLY_CLASH;
}

/* A text beyond 64 bits is a value to which Redis cannot add. */
static bool is_total(const struct twi_node *node, int64_t *total) {
    return twi_node_i64(node, total) && twi_node_count(node, total);
}

static void read_value(const struct twi_node *node, struct twi_item_answer *answer) {
    answer->kind = TWI_ITEM_NO_TOTAL;
    if (node->type == TWI_NODE_ERROR) {
        answer->kind = TWI_ITEM_FAILED;
        answer->error = node;
    } else if (node->type == TWI_NODE_STATUS) {
        answer->kind = TWI_ITEM_LATE;
    } else if (node->type == TWI_NODE_NIL || is_total(node, &answer->total)) {
        answer->kind = TWI_ITEM_TOTAL; /* a missing key counts 0; a text that is no number has no total */
    }
}

bool twi_reply_item(const struct twi_node *nodes, size_t count, size_t *at, struct twi_item_answer *answer) {
    twi_check(*at >= 1);
    *answer = (struct twi_item_answer){0};
    if (*at >= count || nodes[*at].depth != 1) return false;
    const struct twi_node *node = &nodes[(*at)++];
    if (node->type != TWI_NODE_ARRAY) {
        read_value(node, answer);
        return true;
    }
    if (node->integer != 2 || count - *at < 2 || nodes[*at].depth != 2 || nodes[*at + 1].depth != 2) return false;
    read_value(&nodes[*at], answer);
    (void)twi_node_time(&nodes[*at + 1], &answer->end_ms);
    *at += 2;
    twi_check(*at <= count);
    return true;
}
