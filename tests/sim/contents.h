/* contents.h -- what a batch may be. The names of its keys lie in one key slot, and the content of a number of a ledger
 * never changes. For worlds with hash tags; included once, after play.h.
 *
 * contents_look() stands next to a model of Redis (redis_model.h: `beside`). Always true: it answers nothing. */
#ifndef TEST_CONTENTS_H
#define TEST_CONTENTS_H

#include "sync/wire/fnv.h"
#include "tests/sim/play.h"

#define CONTENTS 8192u

static struct {
    uint64_t name, content; /* hashes of a ledger with a number, and of what was sent under it */
} contents[CONTENTS];

static uint64_t contents_hash(uint64_t hash, const struct model_word *word) {
    static const unsigned char end = 255;
    return twi_fnv_add(twi_fnv_add(hash, word->data, word->size), &end, 1);
}

/* Looks at each batch that arrives, and answers nothing. */
static bool contents_look(struct redis_model *model, const struct model_word *words, size_t count,
                          struct twi_bytes *reply) {
    (void)model, (void)reply;
    if (words[0].size < 4 || memcmp(words[0].data, "EVAL", 4) != 0) return false;
    size_t keys = strtoul(words[2].data, NULL, 10);
    if (keys < 2 || count < 3 + keys + 8) return false;
    uint32_t slot = twi_key_slot_of(words[3].data, words[3].size);
    for (size_t i = 1; i < keys; i++)
        if (twi_key_slot_of(words[3 + i].data, words[3 + i].size) != slot)
            note_failure("the keys of a script lie in several slots", 0, &sim.engines[0].cells[0]);
    const struct model_word *args = words + 3 + keys;
    uint64_t name = contents_hash(contents_hash(1469598103934665603u, &words[3]), &args[1]);
    uint64_t content = contents_hash(1469598103934665603u, &args[3]); /* the nonce */
    if (args[1].size == 1 && args[1].data[0] == '0') return false;    /* an opening */
    for (size_t i = 2; i < keys; i++) content = contents_hash(content, &words[3 + i]);
    for (uint64_t at = name % CONTENTS;; at = (at + 1) % CONTENTS) {
        if (contents[at].name == 0) {
            contents[at].name = name;
            contents[at].content = content;
        }
        if (contents[at].name != name) continue;
        if (contents[at].content != content)
            note_failure("a number of a ledger has two contents", 0, &sim.engines[0].cells[0]);
        return false;
    }
}

static void contents_forget(void) {
    memset(contents, 0, sizeof contents);
}

#endif
