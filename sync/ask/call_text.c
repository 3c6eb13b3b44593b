/* call_text.c -- see call_text.h. */
#include "sync/ask/call_text.h"

#include <stdlib.h>
#include <string.h>

#include "gcra.lua.h"
#include "gcra.lua.sha1.h"
#include "hold.lua.h"
#include "hold.lua.sha1.h"
#include "lock.lua.h"
#include "lock.lua.sha1.h"
#include "once.lua.h"
#include "once.lua.sha1.h"
#include "reclaim.lua.h"
#include "reclaim.lua.sha1.h"
#include "reserve.lua.h"
#include "reserve.lua.sha1.h"
#include "strict.lua.h"
#include "strict.lua.sha1.h"
#include "totals.lua.h"
#include "totals.lua.sha1.h"

static const struct twi_script_source scripts[TWI_SCRIPTS] = {
    [TWI_SCRIPT_STRICT] = {twi_script_strict, twi_script_strict_sha1},
    [TWI_SCRIPT_GCRA] = {twi_script_gcra, twi_script_gcra_sha1},
    [TWI_SCRIPT_ONCE] = {twi_script_once, twi_script_once_sha1},
    [TWI_SCRIPT_LOCK] = {twi_script_lock, twi_script_lock_sha1},
    [TWI_SCRIPT_RESERVE] = {twi_script_reserve, twi_script_reserve_sha1},
    [TWI_SCRIPT_HOLD] = {twi_script_hold, twi_script_hold_sha1},
    [TWI_SCRIPT_RECLAIM] = {twi_script_reclaim, twi_script_reclaim_sha1},
    [TWI_SCRIPT_TOTALS] = {twi_script_totals, twi_script_totals_sha1},
};

size_t twi_call_put_body(struct twi_bytes *body, const char *who, uint64_t serial, enum twi_call_verb verb,
                         const struct twi_request *request) {
    body->size = 0;
    body->failed = false;
    twi_wire_put_u64(body, request->key_count);
    for (size_t i = 0; i < request->key_count; i++) twi_wire_put(body, request->keys[i].data, request->keys[i].size);
    twi_wire_put_text(body, who);
    twi_wire_put_u64(body, serial);
    twi_wire_put_u64(body, verb);
    for (size_t i = 0; i < request->arg_count; i++) twi_wire_put(body, request->args[i].data, request->args[i].size);
    return 1 + request->key_count + 3 + request->arg_count;
}

void twi_call_put(struct twi_bytes *out, enum twi_script script, bool whole, bool asking, const struct twi_bytes *body,
                  size_t words) {
    out->size = 0;
    out->failed = body->failed;
    if (asking) {
        twi_wire_begin(out, 1);
        twi_wire_put_text(out, "ASKING");
    }
    twi_wire_begin_script(out, &scripts[script], whole, words);
    twi_bytes_add(out, body->data, body->size);
}

/* False: it is no text, or there is no memory. */
static bool keep_long(const struct twi_node *node, struct twi_request *request) {
    char *text = node->type == TWI_NODE_STRING ? malloc(node->size + 1) : NULL;
    if (text == NULL) return false;
    memcpy(text, node->text, node->size);
    free(request->long_text); /* of an earlier try */
    request->long_text = text;
    request->long_size = node->size;
    return true;
}

/* Reads one element of a reply. False: no script replies with such an element. */
static bool read_script_value(const struct twi_node *node, struct twi_script_value *values) {
    *values = (struct twi_script_value){0};
    if (node->depth != 1 || node->type == TWI_NODE_ARRAY || node->type == TWI_NODE_ERROR) return false;
    values->is_nil = node->type == TWI_NODE_NIL;
    values->is_number = twi_node_count(node, &values->number);
    if (node->type == TWI_NODE_INTEGER || node->type == TWI_NODE_NIL) return true;
    if (node->size >= sizeof values->text) return false;
    memcpy(values->text, node->text, node->size);
    values->size = node->size;
    return true;
}

bool twi_call_read(const struct twi_node *nodes, size_t count, const char *serial, struct twi_request *request) {
    if (nodes->type != TWI_NODE_ARRAY || count < 3 || count > 2 + TWI_SCRIPT_VALUES_MAX ||
        !twi_node_is(&nodes[1], serial))
        return false;
    for (size_t i = 2; i < count; i++) {
        bool is_long = request->wants_long && i + 1 == count;
        if (is_long && (nodes[i].depth != 1 || !keep_long(&nodes[i], request))) return false;
        if (!read_script_value(&nodes[i], &request->values[i - 2]) && !is_long) return false;
    }
    request->value_count = count - 2;
    return true;
}
