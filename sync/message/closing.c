/* closing.c -- see closing.h. */
#include "sync/message/closing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sync/message/refusal.h"
#include "sync/message/state.h"

#include "closers.lua.h"
#include "closers.lua.sha1.h"

#define WORDS_MAX (3 + 12 + TWI_CLOSING_NAMES_MAX) /* keys, and what is said */

static const struct twi_side_script script = {twi_script_closers, twi_script_closers_sha1};

static const char *const verbs[] = {
    [TWI_CLOSING_SAY_WORD] = "word", [TWI_CLOSING_SAY_COME] = "come", [TWI_CLOSING_SAY_LEAVE] = "leave",
    [TWI_CLOSING_SAY_LIST] = "list", [TWI_CLOSING_SAY_ASK] = "ask",   [TWI_CLOSING_SAY_LAST] = "last",
    [TWI_CLOSING_SAY_READ] = "read", [TWI_CLOSING_SAY_PASS] = "pass", [TWI_CLOSING_SAY_PART] = "part",
    [TWI_CLOSING_SAY_DONE] = "done",
};

/* ---- in ---------------------------------------------------------------------------------------------------------- */

static void answer(struct twi_sync *sync, struct twi_closers_say *slot, const struct twi_closing_answer *answer) {
    slot->busy = false;
    twi_port_closing_told(sync->engine, &slot->say, answer);
}

static enum twi_closing_kind kind_of(const struct twi_node *status) {
    static const struct {
        const char *word;
        enum twi_closing_kind kind;
    } kinds[] = {{"OK", TWI_CLOSING_TOLD_OK},       {"WAIT", TWI_CLOSING_TOLD_WAIT}, {"LIST", TWI_CLOSING_TOLD_LIST},
                 {"OTHER", TWI_CLOSING_TOLD_OTHER}, {"YOU", TWI_CLOSING_TOLD_YOU},   {"DONE", TWI_CLOSING_TOLD_DONE},
                 {"AGAIN", TWI_CLOSING_TOLD_YOU},   {"LATE", TWI_CLOSING_TOLD_LATE}, {"NEW", TWI_CLOSING_TOLD_NEW},
                 {"OLD", TWI_CLOSING_TOLD_AGAIN}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (twi_node_is(status, kinds[i].word)) return kinds[i].kind;
    return TWI_CLOSING_TOLD_REFUSED; /* engines of another version close them */
}

static void refused(struct twi_sync *sync, struct twi_closers_say *slot, const struct twi_node *error) {
    if (!sync->closers.is_logged) twi_refusal_report(sync, "the choice of one engine to close a window", error);
    sync->closers.is_logged = true;
    answer(sync, slot, &(struct twi_closing_answer){.kind = TWI_CLOSING_TOLD_REFUSED});
}

/* Has the ledger looked at, for Redis may have been wiped: an empty batch is due. */
static void doubt(struct twi_sync *sync, int64_t now_ms) {
    sync->ledger_ms = now_ms - 2 * TWI_LEDGER_REFRESH_MS;
    sync->closers.doubts = true;
    sync->closers.doubts_ms = sync->ledger_ms;
}

static bool told(struct twi_sync *sync, void *ctx, enum twi_side_outcome outcome, const struct twi_node *nodes,
                 size_t count, int64_t now_ms) {
    struct twi_closers_say *slot = ctx;
    struct twi_closing_answer said = {.kind = TWI_CLOSING_TOLD_AGAIN};
    if (outcome != TWI_SIDE_ANSWERED) {
        if (count != 0)
            refused(sync, slot, nodes);
        else
            answer(sync, slot, &said);
        return true;
    }
    bool whole = nodes->type == TWI_NODE_ARRAY && count >= 4;
    if (whole) said.kind = kind_of(&nodes[1]);
    said.again = whole && twi_node_is(&nodes[1], "AGAIN");
    bool reads = slot->say.verb == TWI_CLOSING_SAY_READ && said.kind == TWI_CLOSING_TOLD_YOU;
    if (!whole || (reads && (count < 5 || nodes[4].type != TWI_NODE_STRING))) {
        said.kind = TWI_CLOSING_TOLD_AGAIN;
        answer(sync, slot, &said);
        return false;
    }
    if (said.kind == TWI_CLOSING_TOLD_NEW) doubt(sync, now_ms);
    if (said.kind != TWI_CLOSING_TOLD_REFUSED) sync->closers.is_logged = false;
    said.scan = reads ? nodes[4].text : "";
    if (slot->say.verb == TWI_CLOSING_SAY_WORD && count > 4) (void)twi_node_i64(&nodes[4], &said.every_ms);
    for (size_t i = 5; reads && i < count; i++)
        if (nodes[i].type == TWI_NODE_STRING)
            twi_port_closing_name(sync->engine, &slot->say, tw_bytes(nodes[i].text, nodes[i].size));
    for (size_t i = 4; slot->say.verb == TWI_CLOSING_SAY_COME && said.kind == TWI_CLOSING_TOLD_OK && i < count; i++)
        if (nodes[i].type == TWI_NODE_STRING)
            twi_port_closing_part(sync->engine, &slot->say, strtoll(nodes[i].text, NULL, 10));
    answer(sync, slot, &said);
    return true;
}

/* ---- out --------------------------------------------------------------------------------------------------------- */

/* Numbers as text, and the words that point to them. */
struct words {
    struct twi_side_word at[WORDS_MAX];
    size_t count, used;
    char text[512];
};

static void put(struct words *words, const void *data, size_t size) {
    words->at[words->count++] = (struct twi_side_word){data, size};
}
static void put_text(struct words *words, const char *text) {
    put(words, text, strlen(text));
}
static void put_i64(struct words *words, int64_t number) {
    char *at = words->text + words->used;
    size_t size = (size_t)snprintf(at, sizeof words->text - words->used, "%lld", (long long)number);
    words->used += size + 1;
    put(words, at, size);
}

static void put_ends(struct words *words, const struct twi_closing_say *say, bool doubts) {
    char *at = words->text + words->used;
    size_t room = sizeof words->text - words->used, size = 1;
    at[0] = ',';
    for (uint32_t i = 0; i < say->end_count && !doubts; i++)
        size += (size_t)snprintf(at + size, room - size, "%lld,", (long long)say->ends_ms[i]);
    words->used += size + 1;
    put(words, at, size);
}

static void put_say(struct twi_sync *sync, struct words *words, const struct twi_closing_say *say) {
    put_text(words, "1");
    put_text(words, verbs[say->verb]);
    put_text(words, twi_port_engine_id(sync->engine));
    put_i64(words, (int64_t)++sync->closers.number);
    put_text(words, say->known ? "1" : "0");
    put_i64(words, say->life_ms);
    put_i64(words, sync->closers.doubts ? -1 : say->floor_ms);
    put_ends(words, say, sync->closers.doubts);
    put_i64(words, say->end_ms);
    put_i64(words, say->expiry_ms + sync->offset_ms);
    bool reads = say->verb == TWI_CLOSING_SAY_READ, asks = say->verb == TWI_CLOSING_SAY_ASK;
    if (reads) put_text(words, say->scan);
    if (reads || asks) put_text(words, say->flag ? "1" : "0");
    if (asks || say->verb == TWI_CLOSING_SAY_LIST) put_text(words, say->through ? "1" : "0");
    if (say->verb == TWI_CLOSING_SAY_PART || say->verb == TWI_CLOSING_SAY_DONE) put_i64(words, say->start_ms);
    for (uint32_t i = 0; i < say->name_count; i++) put(words, say->names[i].data, say->names[i].size);
}

static bool send(struct twi_sync *sync, struct twi_closers_say *slot, int64_t now_ms) {
    char keys[3][TWI_OWN_NAME_MAX];
    size_t sizes[3];
    struct words words = {.count = 0};
    twi_port_closing_keys(&slot->say, keys, sizes);
    for (int i = 0; i < 3; i++) put(&words, keys[i], sizes[i]);
    put_say(sync, &words, &slot->say);
    const struct twi_side side = {.sender = TWI_SENDER_CLOSING,
                                  .script = &script,
                                  .words = words.at,
                                  .key_count = 3,
                                  .word_count = words.count,
                                  .told = told,
                                  .ctx = slot};
    return twi_side_send(sync, &side, now_ms);
}

static struct twi_closers_say *free_slot(struct twi_closers *closers) {
    for (uint32_t i = 0; i < TWI_CLOSERS_MAX; i++)
        if (!closers->says[i].busy) return &closers->says[i];
    return NULL;
}

void twi_closers_step(struct twi_sync *sync, int64_t now_ms) {
    struct twi_closers *closers = &sync->closers;
    struct twi_closers_say *slot;
    if (closers->doubts && sync->ledger_ms != closers->doubts_ms) closers->doubts = false;
    while (twi_side_may(sync, TWI_SENDER_CLOSING) && (slot = free_slot(closers)) != NULL &&
           twi_port_closing(sync->engine, &slot->say)) {
        slot->busy = true;
        bool sent = send(sync, slot, now_ms);
        slot->say.name_count = 0;
        if (sent) continue;
        answer(sync, slot, &(struct twi_closing_answer){.kind = TWI_CLOSING_TOLD_AGAIN});
        return;
    }
}

int64_t twi_closers_due_ms(const struct twi_sync *sync) {
    for (uint32_t i = 0; i < TWI_CLOSERS_MAX; i++)
        if (!sync->closers.says[i].busy) return twi_port_closing_due(sync->engine);
    return INT64_MAX; /* an answer is awaited */
}
