/* redis_model.c -- see redis_model.h. Written to be read, not to be fast: every search is a loop over all keys.
 * Always true: a refused or unknown command changes nothing. */
#include "tests/sim/redis_model.h"

#include "engine/base/key_slot.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXACT INT64_C(9007199254740991)
#define SCORE_MAX INT64_C(9007199254740992)
#define READONLY "READONLY You can't write against a read only replica."

const char *const redis_model_edge_names[MODEL_EDGES] = {"OK",
                                                         "DUP",
                                                         "DUP, cut short",
                                                         "GAP",
                                                         "PAST",
                                                         "KEPT",
                                                         "GONE, known",
                                                         "GONE, unborn",
                                                         "GONE, no marker",
                                                         "CLASH of nonces",
                                                         "CLASH at opening",
                                                         "opened",
                                                         "refused",
                                                         "NOSCRIPT",
                                                         "sent as EVAL",
                                                         "item LATE",
                                                         "item refused",
                                                         "item refused, told again",
                                                         "item LATE, told again",
                                                         "item of a hash or set",
                                                         "expiry set",
                                                         "marker made",
                                                         "empty batch",
                                                         "denied nothing"};

static void see(struct redis_model *model, enum model_edge edge) {
    model->edges[edge]++;
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

void redis_model_init(struct redis_model *model) {
    memset(model, 0, sizeof *model);
    model->policy = "noeviction";
    model->items_max = SIZE_MAX;
}

/* Most names differ only at their ends, so a hash of the whole name is compared first. */
static uint32_t name_hash(const char *name) {
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (; *name; name++) hash = (hash ^ (uint8_t)*name) * 16777619u;
    return hash;
}

static bool has_insides(const struct model_key *key) {
    return key != NULL && (key->type == MODEL_HASH || key->type == MODEL_ZSET);
}

static bool is_inside(const char *inner, const char *name) {
    size_t size = strlen(name);
    return strncmp(inner, name, size) == 0 && inner[size] == MODEL_INSIDE;
}

static void drop_insides(struct redis_model *model, const char *name) {
    for (size_t i = 0; i < model->store.keys_end; i++)
        if (is_inside(model->store.keys[i].name, name)) memset(&model->store.keys[i], 0, sizeof(struct model_key));
}

struct model_key *redis_model_find(struct redis_model *model, const char *name) {
    uint32_t hash = name_hash(name);
    for (size_t i = 0; i < model->store.keys_end; i++) {
        struct model_key *key = &model->store.keys[i];
        if (key->type == MODEL_NONE || key->hash != hash || strcmp(key->name, name) != 0) continue;
        if (key->expiry_ms && key->expiry_ms <= model->now_ms) {
            if (has_insides(key)) drop_insides(model, name);
            memset(key, 0, sizeof *key);
            return NULL;
        }
        return key;
    }
    return NULL;
}

static void drop_expired(struct redis_model *model) {
    for (size_t i = 0; i < model->store.keys_end; i++) {
        char name[MODEL_NAME_MAX];
        memcpy(name, model->store.keys[i].name, sizeof name);
        if (model->store.keys[i].type != MODEL_NONE) (void)redis_model_find(model, name);
    }
}

static struct model_key *free_key(struct redis_model *model) {
    for (int again = 0; again < 2; again++) {
        for (size_t i = 0; i < MODEL_KEYS; i++) {
            if (model->store.keys[i].type != MODEL_NONE) continue;
            if (i >= model->store.keys_end) model->store.keys_end = i + 1;
            return &model->store.keys[i];
        }
        drop_expired(model);
    }
    abort(); /* this test needs more room */
}

struct model_key *redis_model_make(struct redis_model *model, const char *name, enum model_type type) {
    struct model_key *key = redis_model_find(model, name);
    if (!key) {
        key = free_key(model);
        memset(key, 0, sizeof *key);
        if (strlen(name) >= sizeof key->name) abort();
        snprintf(key->name, sizeof key->name, "%s", name);
        key->hash = name_hash(name);
    }
    key->type = type;
    return key;
}

/* ---- hashes and sorted sets ---- */

void redis_model_inner(const char *name, const char *inner, char out[MODEL_NAME_MAX]) {
    if (snprintf(out, MODEL_NAME_MAX, "%s%c%s", name, MODEL_INSIDE, inner) >= MODEL_NAME_MAX) abort();
}

bool redis_model_is_inner(const char *name) {
    return strchr(name, MODEL_INSIDE) != NULL;
}

size_t redis_model_outer(const char *name) {
    static const char inside[] = {MODEL_INSIDE, '\0'};
    return strcspn(name, inside);
}

struct model_key *redis_model_find_outer(struct redis_model *model, const char *name) {
    char outer[MODEL_NAME_MAX];
    snprintf(outer, sizeof outer, "%.*s", (int)redis_model_outer(name), name);
    return redis_model_find(model, outer);
}

struct model_key *redis_model_find_inner(struct redis_model *model, const char *name, const char *inner) {
    char full[MODEL_NAME_MAX];
    redis_model_inner(name, inner, full);
    return has_insides(redis_model_find(model, name)) ? redis_model_find(model, full) : NULL;
}

struct model_key *redis_model_make_inner(struct redis_model *model, const char *name, enum model_type type,
                                         const char *inner, enum model_type value_type) {
    char full[MODEL_NAME_MAX];
    const struct model_key *key = redis_model_find(model, name);
    if (!key || key->type != type) {
        drop_insides(model, name); /* of one that was deleted */
        (void)redis_model_make(model, name, type);
    }
    redis_model_inner(name, inner, full);
    return redis_model_make(model, full, value_type);
}

static struct model_book *book_of(struct redis_model *model, const char *name) {
    uint32_t hash = name_hash(name);
    for (size_t i = 0; i < MODEL_KEYS; i++) {
        struct model_book *book = &model->store.books[i];
        if (book->name[0] == '\0') {
            snprintf(book->name, sizeof book->name, "%s", name);
            book->hash = hash;
        }
        if (book->hash == hash && strcmp(book->name, name) == 0) return book;
    }
    abort(); /* this test needs more room */
}

int64_t redis_model_applied(const struct redis_model *model, const char *name, int node) {
    uint32_t hash = name_hash(name);
    for (size_t i = 0; i < MODEL_KEYS && model->store.books[i].name[0]; i++) {
        const struct model_book *book = &model->store.books[i];
        if (book->hash == hash && strcmp(book->name, name) == 0) return book->applied[node];
    }
    return 0;
}

static struct model_ledger *ledger_of(struct redis_model *model, const struct model_key *key) {
    return &model->store.ledgers[key->value];
}

static bool is_ledger_taken(const struct redis_model *model, size_t ledger) {
    for (size_t i = 0; i < model->store.keys_end; i++) {
        const struct model_key *key = &model->store.keys[i];
        if (key->type == MODEL_LEDGER && key->value == (int64_t)ledger) return true;
    }
    return false;
}

/* Makes an empty ledger; it replaces one that had the name. */
static struct model_key *make_ledger(struct redis_model *model, const char *name) {
    size_t ledger = 0;
    while (is_ledger_taken(model, ledger))
        if (++ledger == MODEL_LEDGERS) abort(); /* this test needs more room */
    struct model_key *key = redis_model_make(model, name, MODEL_LEDGER);
    key->value = (int64_t)ledger;
    memset(ledger_of(model, key), 0, sizeof(struct model_ledger));
    return key;
}

uint64_t redis_model_number(struct redis_model *model, const char *ledger_name) {
    const struct model_key *key = redis_model_find(model, ledger_name);
    return key && key->type == MODEL_LEDGER ? ledger_of(model, key)->number : 0;
}

void redis_model_delete_ledgers(struct redis_model *model) {
    for (size_t i = 0; i < MODEL_KEYS; i++)
        if (model->store.keys[i].type == MODEL_LEDGER) memset(&model->store.keys[i], 0, sizeof model->store.keys[i]);
}

void redis_model_twin(struct redis_model *model, const struct model_key *key) {
    struct model_ledger *ledger = ledger_of(model, key);
    size_t slot = ++ledger->number % MODEL_SLOTS;
    ledger->slots[slot].number = ledger->number;
    ledger->slots[slot].done = true;
    ledger->slots[slot].items = 0;
    snprintf(ledger->slots[slot].nonce, sizeof ledger->slots[slot].nonce, "twin");
}

void redis_model_wipe(struct redis_model *model) {
    memset(&model->store, 0, sizeof model->store);
}

/* ---- one key slot ---- */

static bool is_in_slot(const char *name, uint32_t slot) {
    return name[0] != '\0' && twi_key_slot_of(name, redis_model_outer(name)) == slot;
}

void redis_model_wipe_slot(struct redis_model *model, uint32_t slot) {
    for (size_t i = 0; i < MODEL_KEYS; i++) {
        struct model_key *key = &model->store.keys[i];
        if (key->type != MODEL_NONE && is_in_slot(key->name, slot)) memset(key, 0, sizeof *key);
        struct model_book *book = &model->store.books[i];
        if (is_in_slot(book->name, slot)) memset(book->applied, 0, sizeof book->applied);
    }
}

/* Names of markers are those that instances were born under. */
static void take_born(struct model_store *store, const struct model_store *before, uint32_t marker) {
    for (size_t i = 0; i < MODEL_BORN; i++)
        if (store->born[i].marker == marker) store->born[i].id[0] = '\0';
    for (size_t i = 0, to = 0; i < MODEL_BORN; i++) {
        if (before->born[i].marker != marker || before->born[i].id[0] == '\0') continue;
        while (to < MODEL_BORN && store->born[to].id[0] != '\0') to++;
        if (to == MODEL_BORN) abort(); /* this test needs more room */
        store->born[to] = before->born[i];
    }
}

void redis_model_slot_goes_back(struct redis_model *model, const struct model_store *before, uint32_t slot) {
    redis_model_wipe_slot(model, slot);
    for (size_t i = 0; i < MODEL_KEYS; i++) {
        const struct model_key *was = &before->keys[i];
        if (was->type == MODEL_NONE || !is_in_slot(was->name, slot)) continue;
        struct model_key *key =
            was->type == MODEL_LEDGER ? make_ledger(model, was->name) : redis_model_make(model, was->name, was->type);
        int64_t ledger = key->value;
        *key = *was;
        if (was->type == MODEL_TEXT) take_born(&model->store, before, was->hash);
        if (was->type != MODEL_LEDGER) continue;
        key->value = ledger;
        model->store.ledgers[ledger] = before->ledgers[was->value];
    }
    for (size_t i = 0; i < MODEL_KEYS && before->books[i].name[0]; i++)
        if (is_in_slot(before->books[i].name, slot)) *book_of(model, before->books[i].name) = before->books[i];
}

void redis_model_slot_loses_ledgers(struct redis_model *model, uint32_t slot) {
    for (size_t i = 0; i < MODEL_KEYS; i++) {
        struct model_key *key = &model->store.keys[i];
        if (key->type == MODEL_LEDGER && is_in_slot(key->name, slot)) memset(key, 0, sizeof *key);
    }
}

void redis_model_move_books(struct redis_model *from, struct redis_model *to, uint32_t slot) {
    for (size_t i = 0; i < MODEL_KEYS && from->store.books[i].name[0]; i++) {
        struct model_book *book = &from->store.books[i];
        if (!is_in_slot(book->name, slot)) continue;
        for (size_t node = 0; node < MODEL_NODES; node++) {
            if (book->applied[node] == 0) continue;
            book_of(to, book->name)->applied[node] += book->applied[node];
            book->applied[node] = 0;
        }
    }
}

/* ---- replies ----------------------------------------------------------------------------------------------------- */

static void say(struct twi_bytes *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(struct twi_bytes *out, const char *format, ...) {
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    twi_bytes_add(out, text, (size_t)size);
}

static void say_bulk(struct twi_bytes *out, const char *text) {
    say(out, "$%zu\r\n", strlen(text));
    twi_bytes_add(out, text, strlen(text));
    say(out, "\r\n");
}

static void say_value(struct twi_bytes *out, const struct model_key *key) { /* as the script replies it */
    char number[24];
    if (!key) {
        say(out, "$-1\r\n");
    } else if (key->type == MODEL_INTEGER) {
        snprintf(number, sizeof number, "%" PRId64, key->value);
        say_bulk(out, number);
    } else if (key->type == MODEL_TEXT) {
        say_bulk(out, key->text);
    } else {
        say_bulk(out, "?");
    }
}

/* The reply to a script's write; NULL: it succeeds. A replica that accepts writes knows that it is one. */
static const char *refusal(const struct redis_model *model, bool is_batch) {
    if (model->refuses) return model->refuses;
    return model->is_replica && (!model->is_writable || !is_batch) ? READONLY : NULL;
}

/* ---- the script -------------------------------------------------------------------------------------------------- */

struct run {
    struct redis_model *model;
    const struct model_word *keys, *args;
    size_t key_count, arg_count;
    char shape;                     /* of the item: 'h', 'z'; '\0': a string */
    const struct model_word *inner; /* with a shape: the field or member */
    struct twi_bytes items;         /* the items of the reply */
    size_t item_count;
    char failed[MODEL_ITEMS];
    bool tells_known;       /* the reply has the state of the earlier instance */
    bool tells_survivors;   /* and what the marker says of the slot */
    int64_t survivors;      /* what a marker that is made now says of it */
    struct twi_bytes known; /* so */
};

static void word_text(const struct model_word *word, char *out, size_t room) {
    snprintf(out, room, "%.*s", (int)word->size, word->data);
}

static int64_t word_i64(const struct model_word *word) {
    char text[32];
    word_text(word, text, sizeof text);
    return strtoll(text, NULL, 10);
}

static uint64_t word_u64(const struct model_word *word) {
    char text[32];
    word_text(word, text, sizeof text);
    return strtoull(text, NULL, 10);
}

/* The item's value, and the key that has its expiry. */
struct spot {
    char name[MODEL_NAME_MAX], inner[MODEL_NAME_MAX];
    struct model_key *key, *value; /* NULL: none */
    bool is_other;                 /* the name has another type */
};

static enum model_type type_of(const struct run *run) {
    return run->shape == 'h' ? MODEL_HASH : run->shape == 'z' ? MODEL_ZSET : MODEL_INTEGER;
}

static void spot_at(struct run *run, struct spot *spot) {
    word_text(&run->keys[2 + run->item_count], spot->name, sizeof spot->name);
    spot->key = spot->value = redis_model_find(run->model, spot->name);
    spot->inner[0] = '\0';
    bool is_string = spot->key && (spot->key->type == MODEL_INTEGER || spot->key->type == MODEL_TEXT);
    spot->is_other = spot->key && (run->shape ? spot->key->type != type_of(run) : !is_string);
    if (!run->shape) return;
    word_text(run->inner, spot->inner, sizeof spot->inner);
    spot->value = spot->is_other ? NULL : redis_model_find_inner(run->model, spot->name, spot->inner);
}

static void fail(struct run *run, char why) {
    run->failed[run->item_count] = why;
}

static void item_late(struct run *run) {
    fail(run, 'l');
    see(run->model, MODEL_ITEM_LATE);
    say(&run->items, "+LATE\r\n");
}

/* A score that is no whole number within 2^53 cannot be told. */
static void item_say_score(struct run *run, const struct model_key *score) {
    bool fits = score && score->type == MODEL_INTEGER && score->value <= SCORE_MAX && score->value >= -SCORE_MAX;
    if (!score)
        say(&run->items, "$-1\r\n");
    else if (fits)
        say(&run->items, ":%" PRId64 "\r\n", score->value);
    else
        say_bulk(&run->items, "?");
}

static void item_look(struct run *run, bool with_end) {
    struct spot spot;
    spot_at(run, &spot);
    if (run->shape && spot.is_other) {
        say_bulk(&run->items, "?");
    } else if (run->shape == 'z') {
        item_say_score(run, spot.value);
    } else if (with_end && spot.key && spot.key->expiry_ms) {
        say(&run->items, "*2\r\n");
        say_value(&run->items, spot.value);
        say(&run->items, ":%" PRId64 "\r\n", spot.key->expiry_ms);
    } else {
        say_value(&run->items, spot.value);
    }
}

static bool is_beyond(int64_t value, int64_t most) {
    return value > most || value < -most;
}

/* What INCRBY, HINCRBY or the script would refuse; else NULL, and the sum. */
static const char *item_error(const struct run *run, const struct spot *spot, const struct model_word *word,
                              int64_t *sum) {
    int64_t before = spot->value ? spot->value->value : 0, delta = word_i64(word);
    bool struck = word->data[0] >= 'a';
    if (spot->is_other && !(struck && run->shape != 'z'))
        return "WRONGTYPE Operation against a key holding the wrong kind of value";
    if (struck || (spot->value && spot->value->type == MODEL_TEXT))
        return "ERR value is not an integer or out of range";
    if (__builtin_add_overflow(before, delta, sum)) return "ERR increment or decrement would overflow";
    if (run->shape == 'z' &&
        (is_beyond(before, SCORE_MAX) || is_beyond(delta, SCORE_MAX) || is_beyond(*sum, SCORE_MAX)))
        return "ERR increment or decrement would overflow 2^53";
    return NULL;
}

/* What INCRBY would reply: false: an error was added to the reply. */
static bool item_add(struct run *run, const struct model_word *word, struct spot *spot) {
    int64_t sum = 0;
    spot_at(run, spot);
    const char *error = item_error(run, spot, word, &sum);
    if (error) {
        fail(run, 'e');
        see(run->model, MODEL_ITEM_FAILED);
        if (run->model->on_refusal != NULL) run->model->on_refusal(spot->name);
        say(&run->items, "-%s\r\n", error);
        return false;
    }
    char full[MODEL_NAME_MAX];
    if (run->shape) {
        spot->value = redis_model_make_inner(run->model, spot->name, type_of(run), spot->inner, MODEL_INTEGER);
        spot->key = redis_model_find(run->model, spot->name);
        redis_model_inner(spot->name, spot->inner, full);
        see(run->model, MODEL_ITEM_INSIDE);
    } else {
        if (!spot->key) spot->key = spot->value = redis_model_make(run->model, spot->name, MODEL_INTEGER);
        memcpy(full, spot->name, sizeof full);
    }
    spot->value->value = sum;
    int64_t *applied = &book_of(run->model, full)->applied[run->model->node];
    *applied = (int64_t)((uint64_t)*applied + (uint64_t)word_i64(word)); /* huge deltas of random tests may wrap */
    return true;
}

static void item_say_sum(struct run *run, const struct model_key *value) {
    if (run->shape != 'z' && is_beyond(value->value, EXACT))
        say_value(&run->items, value);
    else
        say(&run->items, ":%" PRId64 "\r\n", value->value);
}

/* Lua has doubles: beyond 2^53 it takes adjacent numbers for equal, and looks once too often. */
static bool is_newborn(int64_t value, int64_t delta) {
    return (double)value == (double)delta;
}

static void heal(struct run *run, struct model_key *key, int64_t expiry_ms) {
    if (key->expiry_ms) return;
    see(run->model, MODEL_ITEM_HEALED);
    key->expiry_ms = expiry_ms;
}

static void item_window(struct run *run, char kind, int64_t expiry_ms, const struct model_word *delta) {
    if (kind != 'e' && expiry_ms <= run->model->now_ms) {
        item_late(run);
        return;
    }
    struct spot spot;
    spot_at(run, &spot);
    bool is_new = spot.value == NULL;
    if (!item_add(run, delta, &spot)) return;
    if (run->shape != 'z') is_new = is_newborn(spot.value->value, word_i64(delta));
    if (kind == 'W' || (kind == 'w' && is_new)) heal(run, spot.key, expiry_ms);
    item_say_sum(run, spot.value);
}

static void item_from_first(struct run *run, char kind, const struct model_word *delta, int64_t end_ms) {
    if (end_ms <= run->model->now_ms) {
        item_late(run);
        return;
    }
    struct spot spot;
    if (!item_add(run, delta, &spot)) return;
    if (kind == 'f' && !is_newborn(spot.value->value, word_i64(delta))) {
        item_say_sum(run, spot.value);
        return;
    }
    heal(run, spot.key, end_ms);
    say(&run->items, "*2\r\n");
    item_say_sum(run, spot.value);
    say(&run->items, ":%" PRId64 "\r\n", spot.key->expiry_ms);
}

static void item_again(struct run *run, char why, bool with_end) {
    if (why != '.') see(run->model, why == 'l' ? MODEL_ITEM_LATE_BEFORE : MODEL_ITEM_FAILED_BEFORE);
    if (why == 'l')
        say(&run->items, "+LATE\r\n");
    else if (why == 'e')
        say(&run->items, "-ERR refused when it was first applied\r\n");
    else
        item_look(run, with_end);
}

static void run_items(struct run *run, const char *failed_before) {
    for (size_t at = 8; at + 2 < run->arg_count;) {
        bool shaped = run->args[at].size == 2;
        char kind = run->args[at].data[shaped];
        run->shape = shaped ? run->args[at].data[0] : '\0';
        int64_t expiry_ms = word_i64(&run->args[at + 1]);
        int64_t count = word_i64(&run->args[at + 2]);
        size_t width = kind == 'r' || kind == 'R' ? 0 : kind == 'f' || kind == 'F' ? 2 : 1;
        at += 3;
        for (; count > 0; count--, at += width + shaped, run->item_count++) {
            run->inner = &run->args[at + width];
            if (!failed_before && run->item_count >= run->model->items_max) {
                run->model->was_cut_short = true;
                return;
            }
            if (width == 0)
                item_look(run, kind == 'R');
            else if (failed_before)
                item_again(run, failed_before[run->item_count], width == 2);
            else if (width == 2)
                item_from_first(run, kind, &run->args[at], word_i64(&run->args[at + 1]));
            else
                item_window(run, kind, expiry_ms, &run->args[at]);
        }
    }
}

/* The instance of a ledger's name is its last 32 bytes. */
static const char *id_of(const char *name) {
    size_t size = strlen(name);
    return size > 32 ? name + size - 32 : name;
}

static bool is_born(const struct redis_model *model, const char *marker_name, const char *ledger_name) {
    uint32_t marker = name_hash(marker_name);
    for (size_t i = 0; i < MODEL_BORN; i++)
        if (model->store.born[i].marker == marker && strcmp(model->store.born[i].id, id_of(ledger_name)) == 0)
            return true;
    return false;
}

/* Without its marker, nobody knows any more who was born under it. */
static void forget_born(struct model_store *store, uint32_t marker) {
    for (size_t i = 0; i < MODEL_BORN; i++)
        if (store->born[i].marker == marker) store->born[i].id[0] = '\0';
}

void redis_model_unborn(struct redis_model *model, const char *ledger_name) {
    for (size_t i = 0; i < MODEL_BORN; i++)
        if (strcmp(model->store.born[i].id, id_of(ledger_name)) == 0) model->store.born[i].id[0] = '\0';
}

/* A key that may be left of a state that was lost in part. Here no call waits, so all names with "tw:" are those of
 * stores; and counters have no prefix, so the script's look at the prefix is left out. */
static bool may_be_left(const struct redis_model *model, const struct model_key *key) {
    if (redis_model_is_inner(key->name)) return false;
    if (strstr(key->name, "tw:") != NULL) return true;
    for (size_t i = 0; has_insides(key) && i < model->store.keys_end; i++) {
        const struct model_key *inner = &model->store.keys[i];
        if (inner->type == MODEL_INTEGER && is_inside(inner->name, key->name)) return true;
    }
    return key->type == MODEL_INTEGER || (key->type == MODEL_TEXT && strspn(key->text, "-0123456789") != 0);
}

/* In a cluster, an opening gives the slot; what may be left there is noted by a marker that is made then. */
static int64_t count_survivors(struct run *run) {
    int64_t keys = 0;
    if (!run->tells_survivors) return -1;
    uint32_t slot = (uint32_t)word_u64(&run->args[8]);
    for (size_t i = 0; i < run->model->store.keys_end; i++) {
        const struct model_key *key = &run->model->store.keys[i];
        bool lives = key->expiry_ms == 0 || key->expiry_ms > run->model->now_ms;
        keys += key->type != MODEL_NONE && lives && is_in_slot(key->name, slot) && may_be_left(run->model, key);
    }
    return keys;
}

static void enter(struct run *run) {
    char name[MODEL_NAME_MAX], marker_name[MODEL_NAME_MAX];
    struct model_store *store = &run->model->store;
    word_text(&run->keys[1], marker_name, sizeof marker_name);
    if (!redis_model_find(run->model, marker_name)) {
        see(run->model, MODEL_MARKER_MADE);
        struct model_key *marker = redis_model_make(run->model, marker_name, MODEL_TEXT);
        word_text(&run->args[7], marker->text, sizeof marker->text);
        forget_born(store, marker->hash); /* the marker held them */
        marker->value = run->model->now_ms;
        marker->survivors = run->survivors;
    }
    word_text(&run->keys[0], name, sizeof name);
    if (is_born(run->model, marker_name, name)) return;
    size_t i = 0;
    while (i < MODEL_BORN && store->born[i].id[0]) i++;
    if (i == MODEL_BORN) abort();                                    /* this test needs more room */
    memcpy(store->born[i].id, id_of(name), strlen(id_of(name)) + 1); /* at most 32 and a NUL */
    store->born[i].marker = name_hash(marker_name);
}

/* What is in a hash or a sorted set goes with it. */
static void move_insides(struct redis_model *from, struct redis_model *to, const char *name) {
    for (size_t i = 0; i < from->store.keys_end; i++) {
        char inner[MODEL_NAME_MAX];
        memcpy(inner, from->store.keys[i].name, sizeof inner);
        if (is_inside(inner, name)) (void)redis_model_move(from, to, inner);
    }
}

bool redis_model_move(struct redis_model *from, struct redis_model *to, const char *name) {
    struct model_key *key = redis_model_find(from, name);
    if (!key) return false;
    if (has_insides(key)) move_insides(from, to, name);
    struct model_key *moved = key->type == MODEL_LEDGER ? make_ledger(to, name) : redis_model_make(to, name, key->type);
    moved->expiry_ms = key->expiry_ms;
    if (key->type == MODEL_LEDGER) {
        *ledger_of(to, moved) = *ledger_of(from, key);
    } else {
        moved->value = key->value;
        moved->survivors = key->survivors;
        memcpy(moved->text, key->text, sizeof moved->text);
    }
    struct model_book *book = book_of(from, name);
    memcpy(book_of(to, name)->applied, book->applied, sizeof book->applied);
    memset(book->applied, 0, sizeof book->applied);
    take_born(&to->store, &from->store, key->hash);
    forget_born(&from->store, key->hash);
    memset(key, 0, sizeof *key);
    return true;
}

/* Adds what the marker knows of that ledger's instance (NULL: none is named), and when it was made. An opening names
 * older ledgers, which show that the engine is known. */
static void say_known(struct run *run, const char *ledger_name, struct twi_bytes *reply) {
    char name[MODEL_NAME_MAX];
    word_text(&run->keys[1], name, sizeof name);
    const struct model_key *marker = redis_model_find(run->model, name);
    int64_t made_ms = marker ? marker->value : 0;
    int known = marker && ledger_name && is_born(run->model, name, ledger_name);
    for (size_t i = 3; run->tells_known && i < run->key_count; i++) {
        word_text(&run->keys[i], name, sizeof name);
        if (!known && redis_model_find(run->model, name)) known = 2;
    }
    say(reply, ":%d\r\n:%" PRId64 "\r\n", known, made_ms);
}

static void answer(struct run *run, const char *status, const struct model_ledger *ledger, bool done,
                   struct twi_bytes *reply) {
    char name[MODEL_NAME_MAX], number[24];
    word_text(&run->keys[1], name, sizeof name);
    const struct model_key *marker = redis_model_find(run->model, name);
    bool gone = strcmp(status, "GONE") == 0;
    say(reply, "*%zu\r\n", 8 + run->item_count + (gone || run->tells_known ? 2 : 0) + run->tells_survivors);
    say_bulk(reply, status);
    say(reply, ":%" PRId64 "\r\n", run->model->now_ms);
    uint64_t figures[] = {ledger ? ledger->number : 0, ledger ? ledger->plus : 0, ledger ? ledger->minus : 0};
    for (size_t i = 0; i < 3; i++) {
        if (i == 1) say_value(reply, marker);
        snprintf(number, sizeof number, "%" PRIu64, figures[i]);
        if (ledger && !(i > 0 && strcmp(status, "OK") == 0 && figures[0] == 0))
            say_bulk(reply, number);
        else
            say(reply, "$-1\r\n"); /* number 0 is answered before the sums exist */
    }
    say(reply, ":%d\r\n:0\r\n", done);
    twi_bytes_add(reply, run->items.data, run->items.size);
    twi_bytes_free(&run->items);
    word_text(&run->keys[0], name, sizeof name);
    if (gone) say_known(run, name, reply);
    if (run->tells_known) twi_bytes_add(reply, run->known.data, run->known.size);
    if (run->tells_survivors) say(reply, ":%" PRId64 "\r\n", marker ? marker->survivors : -1);
    twi_bytes_free(&run->known);
}

/* Only a master that accepts writes denies anything. Without a ledger, the script tries a write that needs no
 * memory. */
static bool may_deny(struct run *run, bool has_ledger, struct twi_bytes *reply) {
    const char *error = refusal(run->model, false);
    if (!error || (!has_ledger && strncmp(error, "OOM", 3) == 0)) return true;
    see(run->model, MODEL_DENIED_NOTHING);
    say(reply, "-%s\r\n", error);
    return false;
}

static void run_open(struct run *run, const char *name, struct twi_bytes *reply) {
    struct model_key *key = redis_model_find(run->model, name);
    if (key) {
        if (!may_deny(run, true, reply)) return;
        see(run->model, MODEL_CLASH_OPENING);
        answer(run, "CLASH", ledger_of(run->model, key), true, reply);
        return;
    }
    const char *error = refusal(run->model, false);
    if (error) {
        see(run->model, MODEL_REFUSED);
        say(reply, "-%s\r\n", error);
        return;
    }
    char before[MODEL_NAME_MAX];
    if (run->key_count > 2) {
        word_text(&run->keys[2], before, sizeof before);
        key = redis_model_find(run->model, before);
        if (key && key->type == MODEL_LEDGER) {
            see(run->model, MODEL_KEPT);
            answer(run, "KEPT", ledger_of(run->model, key), true, reply);
            return;
        }
    }
    run->tells_known = true;
    say_known(run, run->key_count > 2 ? before : NULL, &run->known);
    see(run->model, MODEL_OPENED);
    run->tells_survivors = run->arg_count > 8;
    run->survivors = count_survivors(run);
    key = make_ledger(run->model, name);
    key->expiry_ms = run->model->now_ms + word_i64(&run->args[4]);
    enter(run);
    answer(run, "OK", ledger_of(run->model, key), true, reply);
}

static void run_next(struct run *run, struct model_key *key, uint64_t number, struct twi_bytes *reply) {
    struct model_ledger *ledger = ledger_of(run->model, key);
    const char *error = refusal(run->model, true);
    if (error) {
        see(run->model, MODEL_REFUSED);
        say(reply, "-%s\r\n", error);
        return;
    }
    see(run->model, MODEL_OK);
    size_t slot = number % MODEL_SLOTS;
    ledger->number = number;
    ledger->plus = word_u64(&run->args[5]);
    ledger->minus = word_u64(&run->args[6]);
    ledger->slots[slot].number = number;
    ledger->slots[slot].done = false;
    word_text(&run->args[3], ledger->slots[slot].nonce, sizeof ledger->slots[slot].nonce);
    memset(ledger->slots[slot].failed, '.', sizeof ledger->slots[slot].failed);
    key->expiry_ms = run->model->now_ms + word_i64(&run->args[4]);
    enter(run);
    run_items(run, NULL);
    if (run->item_count == 0) see(run->model, MODEL_EMPTY_BATCH);
    if (run->item_count) run->model->applications++;
    ledger->slots[slot].items = (uint32_t)run->item_count;
    if (!run->model->was_cut_short) {
        ledger->slots[slot].done = true;
        memcpy(ledger->slots[slot].failed, run->failed, sizeof run->failed);
    }
    answer(run, "OK", ledger, true, reply);
}

static void run_script(struct redis_model *model, const struct model_word *words, size_t count,
                       struct twi_bytes *reply) {
    size_t key_count = (size_t)word_u64(&words[2]);
    struct run run = {.model = model,
                      .keys = words + 3,
                      .key_count = key_count,
                      .args = words + 3 + key_count,
                      .arg_count = count - 3 - key_count,
                      .survivors = -1};
    char name[MODEL_NAME_MAX], nonce[20];
    memset(run.failed, '.', sizeof run.failed);
    word_text(&run.keys[0], name, sizeof name);
    word_text(&run.args[3], nonce, sizeof nonce);
    uint64_t number = word_u64(&run.args[1]);
    if (number == 0) {
        run_open(&run, name, reply);
        return;
    }
    struct model_key *key = redis_model_find(model, name);
    if (!key) {
        if (!may_deny(&run, false, reply)) return;
        char marker_name[MODEL_NAME_MAX];
        word_text(&run.keys[1], marker_name, sizeof marker_name);
        see(model, !redis_model_find(model, marker_name) ? MODEL_GONE_NO_MARKER
                   : is_born(model, marker_name, name)   ? MODEL_GONE_KNOWN
                                                         : MODEL_GONE_UNBORN);
        answer(&run, "GONE", NULL, true, reply);
        return;
    }
    struct model_ledger *ledger = ledger_of(model, key);
    if (ledger->number < number) {
        uint64_t before = word_u64(&run.args[2]);
        if (ledger->number == before) {
            run_next(&run, key, number, reply);
            return;
        }
        if (!may_deny(&run, true, reply)) return;
        see(model, MODEL_GAP);
        answer(&run, "GAP", ledger, true, reply);
        return;
    }
    size_t slot = number % MODEL_SLOTS;
    if (ledger->slots[slot].number > number) {
        if (!may_deny(&run, true, reply)) return;
        see(model, MODEL_PAST);
        answer(&run, "PAST", ledger, true, reply);
        return;
    }
    if (ledger->slots[slot].number != number || strcmp(ledger->slots[slot].nonce, nonce) != 0) {
        if (!may_deny(&run, true, reply)) return;
        see(model, MODEL_CLASH_NONCE);
        answer(&run, "CLASH", ledger, true, reply);
        return;
    }
    see(model, ledger->slots[slot].done ? MODEL_DUP : MODEL_DUP_NOT_DONE);
    run_items(&run, ledger->slots[slot].failed);
    answer(&run, "DUP", ledger, ledger->slots[slot].done, reply);
}

/* ---- the registry of live engines (registry.lua)
 * --------------------------------------------------------------------- */

static void run_live(struct redis_model *model, const struct model_word *words, struct twi_bytes *reply) {
    char instance[40];
    size_t own = MODEL_LIVE, free = MODEL_LIVE, count = 0;
    word_text(&words[5], instance, sizeof instance);
    const char *error = refusal(model, true);
    if (error) {
        say(reply, "-%s\r\n", error);
        return;
    }
    for (size_t i = 0; i < MODEL_LIVE; i++) {
        struct model_live *live = &model->store.live[i];
        if (live->until_ms <= model->now_ms) *live = (struct model_live){0};
        if (live->until_ms == 0)
            free = i;
        else if (strcmp(live->instance, instance) == 0)
            own = i;
        count += live->until_ms != 0;
    }
    if (own == MODEL_LIVE && free == MODEL_LIVE) abort(); /* this test needs more room */
    if (own == MODEL_LIVE) count++;
    struct model_live *live = &model->store.live[own != MODEL_LIVE ? own : free];
    memcpy(live->instance, instance, sizeof live->instance);
    live->until_ms = model->now_ms + word_i64(&words[6]);
    say(reply, "*4\r\n$2\r\nOK\r\n:%" PRId64 "\r\n:%zu\r\n:1000\r\n", model->now_ms, count);
}

/* ---- commands ---------------------------------------------------------------------------------------------------- */

static bool is(const struct model_word *word, const char *text) {
    return word->size == strlen(text) && memcmp(word->data, text, word->size) == 0;
}

/* It is the only script with one key, which is the registry. */
static bool is_live(const struct model_word *words, size_t count) {
    static const char name[] = "tw:live";
    size_t size = sizeof name - 1;
    return count == 7 && is(&words[2], "1") && words[3].size >= size &&
           memcmp(words[3].data + words[3].size - size, name, size) == 0;
}

static void say_info(struct redis_model *model, struct twi_bytes *reply) {
    char info[400];
    if (!model->policy) {
        say(reply, "-NOPERM this user has no permissions to run the 'info' command\r\n");
        return;
    }
    snprintf(info, sizeof info,
             "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\nmaxmemory_policy:%s\r\nrole:%s\r\n"
             "aof_enabled:1\r\nrun_id:%040d\r\nmaster_replid:%040d\r\nserver_time_usec:%lld\r\n",
             model->policy, model->is_replica ? "slave" : "master", model->run, model->history,
             (long long)model->now_ms * 1000);
    say_bulk(reply, info);
}

void redis_model_run(struct redis_model *model, const struct model_word *words, size_t count, struct twi_bytes *reply) {
    if (model->beside && model->beside(model, words, count, reply)) return;
    if (is(&words[0], "PING")) {
        say(reply, "+PONG\r\n");
    } else if (is(&words[0], "INFO")) {
        say_info(model, reply);
    } else if (is(&words[0], "ROLE")) {
        say(reply, "*3\r\n");
        say_bulk(reply, model->is_replica ? "slave" : "master");
        say(reply, ":0\r\n*0\r\n");
    } else if (is(&words[0], "CONFIG")) {
        say(reply, "*2\r\n");
        say_bulk(reply, "aof-load-truncated");
        say_bulk(reply, "yes");
    } else if (is(&words[0], "BGREWRITEAOF")) {
        model->rewrites++;
        say(reply, "+Background append only file rewriting started\r\n");
    } else if (is(&words[0], "SELECT") || is(&words[0], "AUTH")) {
        say(reply, "+OK\r\n");
    } else if (is_live(words, count) && is(&words[0], "EVALSHA") && !model->has_live_script) {
        say(reply, "-NOSCRIPT No matching script. Please use EVAL.\r\n");
    } else if (is_live(words, count)) {
        model->has_live_script = true;
        run_live(model, words, reply);
    } else if (is(&words[0], "EVALSHA") && !model->has_script) {
        see(model, MODEL_NOSCRIPT);
        say(reply, "-NOSCRIPT No matching script. Please use EVAL.\r\n");
    } else if (is(&words[0], "EVALSHA") || is(&words[0], "EVAL")) {
        if (words[0].size == 4) see(model, MODEL_EVAL);
        model->has_script = true;
        run_script(model, words, count, reply);
    } else {
        say(reply, "-ERR unknown command\r\n");
    }
}

static bool parse_length(const char *bytes, size_t size, size_t *at, char sign, size_t *length) {
    const char *end = *at < size ? memchr(bytes + *at, '\n', size - *at) : NULL;
    if (!end) return false;
    if (bytes[*at] != sign) abort(); /* sync/ always sends well-formed requests */
    *length = strtoull(bytes + *at + 1, NULL, 10);
    *at = (size_t)(end - bytes) + 1;
    return true;
}

bool redis_model_parse(const char *bytes, size_t size, struct model_word *words, size_t words_max, size_t *count,
                       size_t *used) {
    size_t at = 0, length;
    if (!parse_length(bytes, size, &at, '*', count)) return false;
    if (*count > words_max) abort();
    for (size_t i = 0; i < *count; i++) {
        if (!parse_length(bytes, size, &at, '$', &length) || size - at < length + 2) return false;
        words[i] = (struct model_word){bytes + at, length};
        at += length + 2;
    }
    *used = at;
    return true;
}
