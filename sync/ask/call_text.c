/* call_text.c -- see call_text.h. */
#include "sync/ask/call_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/check.h"
#include "gcra.lua.h"
#include "hold.lua.h"
#include "lock.lua.h"
#include "once.lua.h"
#include "reclaim.lua.h"
#include "reserve.lua.h"
#include "strict.lua.h"
#include "totals.lua.h"

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

static void set_serial(struct twi_call_text *text, uint64_t number, uint32_t nonce) {
    twi_check(number != 0);
    (void)snprintf(text->serial, sizeof text->serial, "%" PRIu64 ":%08" PRIx32, number, nonce);
}

static void put_head(struct twi_call_text *text, const char *who) {
    twi_check(who[0] != '\0' && text->serial[0] != '\0');
    twi_wire_put_text(&text->body, who);
    twi_wire_put_text(&text->body, text->serial);
    twi_wire_put_u64(&text->body, TWI_CALL_ASK);
}

void twi_call_write(struct twi_call_text *text, const struct twi_request *request, const char *who, uint64_t number,
                    uint32_t nonce) {
    struct twi_bytes *body = &text->body;
    twi_check(request->script < TWI_SCRIPTS && strlen(who) < TWI_CALL_WHO_SIZE);
    body->size = 0;
    body->failed = false;
    text->script = request->script;
    text->wants_long = request->wants_long;
    text->words = 1 + request->key_count + 3 + request->arg_count;
    set_serial(text, number, nonce);
    twi_wire_put_u64(body, request->key_count);
    for (size_t i = 0; i < request->key_count; i++) twi_wire_put(body, request->keys[i].data, request->keys[i].size);
    text->who_at = body->size;
    put_head(text, who);
    text->own_at = body->size;
    for (size_t i = 0; i < request->arg_count; i++) twi_wire_put(body, request->args[i].data, request->args[i].size);
}

void twi_call_rename(struct twi_call_text *text, const char *who, uint64_t number, uint32_t nonce) {
    struct twi_bytes before = text->body;
    twi_check(text->who_at < text->own_at && text->own_at <= before.size);
    text->body = (struct twi_bytes){0};
    set_serial(text, number, nonce);
    twi_bytes_add(&text->body, before.data, text->who_at);
    put_head(text, who);
    size_t own_at = text->body.size;
    twi_bytes_add(&text->body, before.data + text->own_at, before.size - text->own_at);
    text->own_at = own_at;
    twi_bytes_free(&before);
}

void twi_call_put(struct twi_bytes *out, struct twi_call_text *text, enum twi_call_verb verb, bool whole, bool asking) {
    twi_check(verb <= TWI_CALL_RETRY && text->own_at >= 3 && text->own_at <= text->body.size);
    text->body.data[text->own_at - 3] = (char)('0' + verb); /* "$1", and the digit */
    if (asking) {
        twi_wire_begin(out, 1);
        twi_wire_put_text(out, "ASKING");
    }
    twi_wire_begin_script(out, &scripts[text->script], whole, text->words);
    twi_bytes_add(out, text->body.data, text->body.size);
}

/* Returns false if it is no text, or without memory. */
static bool keep_long(const struct twi_node *node, struct twi_answer *answer) {
    char *text = node->type == TWI_NODE_STRING ? malloc(node->size + 1) : NULL;
    if (text == NULL) return false;
    memcpy(text, node->text, node->size);
    answer->long_text = text;
    answer->long_size = node->size;
    return true;
}

/* Reads one element of a reply. Returns false if no script replies with such an element. */
static bool read_script_value(const struct twi_node *node, struct twi_script_value *values) {
    values->is_nil = values->is_number = false;
    values->number = 0;
    values->size = 0;
    values->text[0] = '\0';
    if (node->depth != 1 || node->type == TWI_NODE_ARRAY || node->type == TWI_NODE_ERROR) return false;
    values->is_nil = node->type == TWI_NODE_NIL;
    values->is_number = twi_node_count(node, &values->number);
    if (node->type == TWI_NODE_INTEGER || node->type == TWI_NODE_NIL) return true;
    if (node->size >= sizeof values->text) return false;
    memcpy(values->text, node->text, node->size);
    values->text[node->size] = '\0';
    values->size = node->size;
    return true;
}

bool twi_call_read(const struct twi_node *nodes, size_t count, const struct twi_call_text *text,
                   struct twi_answer *answer) {
    answer->value_count = 0;
    answer->long_text = NULL;
    answer->long_size = 0;
    if (nodes->type != TWI_NODE_ARRAY || count < 3 || count > 2 + TWI_SCRIPT_VALUES_MAX ||
        !twi_node_is(&nodes[1], text->serial))
        return false;
    for (size_t i = 2; i < count; i++) {
        bool is_long = text->wants_long && i + 1 == count;
        if (is_long && (nodes[i].depth != 1 || !keep_long(&nodes[i], answer))) return false;
        if (!read_script_value(&nodes[i], &answer->values[i - 2]) && !is_long) return false;
    }
    answer->value_count = count - 2;
    twi_check(answer->value_count <= TWI_SCRIPT_VALUES_MAX);
    return true;
}

bool twi_call_says(const struct twi_answer *answer, const char *word) {
    twi_check(strlen(word) < sizeof answer->values[0].text);
    return answer->value_count != 0 && strcmp(answer->values[0].text, word) == 0;
}

bool twi_call_charged_nothing(const struct twi_answer *answer) {
    static const char *const words[] = {"DENIED", "LATE", "BAD", "STALE", "SECOND", "HELD", "GONE", "MORE", "BUYER"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (twi_call_says(answer, words[i])) return true;
    return false;
}

size_t twi_call_keys(const struct twi_call_text *text, tw_key *keys, size_t most) {
    size_t count = 0, words = 0;
    for (const char *at = text->body.data, *end = at + text->who_at; at < end; words++) {
        char *data = NULL;
        size_t size = (size_t)strtoull(at + 1, &data, 10);                        /* "$12\r\n", the bytes, "\r\n" */
        twi_check(*at == '$' && data[0] == '\r' && size <= (size_t)(end - data)); /* we wrote it */
        data += 2;
        if (words != 0 && count < most) keys[count++] = tw_bytes(data, size);
        at = data + size + 2;
    }
    return count;
}
