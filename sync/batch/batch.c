/* batch.c -- freezes items into the bytes that sync/script/batch.lua reads. That file describes the format.
 * Always true: keys, args and items have the same order. `arg_count`, `key_count` and `name_keys` count the
 * arguments and keys that were encoded. */
#include "sync/batch/batch.h"

#include "batch.lua.h"
#include "engine/base/check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCRIPT_VERSION "1"
#define ITEM_BYTES 24 /* besides its name, an item usually has a length, a delta and the length of the delta */

/* ---- groups ------------------------------------------------------------------------------------------------------ */

/* Returns the shape of the item's group, before its letter: 'h', 'z', or no letter. */
static char batch_shape_of(const struct twi_item *item) {
    if (!(item->flags & (TWI_ITEM_HASH | TWI_ITEM_ZSET))) return '\0';
    return item->flags & TWI_ITEM_HASH ? 'h' : 'z';
}

/* Returns the letter of the item's group; batch.lua defines each letter. */
static char batch_kind_of(const struct twi_item *item, bool look_always) {
    bool from_first = item->flags & TWI_ITEM_FROM_FIRST;
    bool look = look_always || (item->flags & TWI_ITEM_FIRST);
    if (item->delta == 0) return from_first ? 'R' : 'r';
    if (from_first) return look ? 'F' : 'f';
    if (item->expiry_ms == 0) return 'e';
    return look ? 'W' : 'w';
}

/* Only windows share their expiry. The other groups carry no expiry, or one for each item. */
static int64_t group_expiry(char kind, const struct twi_item *item) {
    twi_check(item != NULL);
    twi_check_dear(strchr("rRfFewW", kind) != NULL);
    return kind == 'w' || kind == 'W' ? item->expiry_ms : 0;
}

static int batch_compare(const struct twi_item *a, const struct twi_item *b, bool look_always) {
    char shape_a = batch_shape_of(a), shape_b = batch_shape_of(b);
    if (shape_a != shape_b) return shape_a < shape_b ? -1 : 1;
    char kind_a = batch_kind_of(a, look_always), kind_b = batch_kind_of(b, look_always);
    if (kind_a != kind_b) return kind_a < kind_b ? -1 : 1;
    int64_t expiry_a = group_expiry(kind_a, a), expiry_b = group_expiry(kind_b, b);
    return expiry_a < expiry_b ? -1 : expiry_a > expiry_b;
}

/* Within a group, items whose names are recorded come first, window by window. */
static int order(const void *a, const void *b, bool look_always) {
    const struct twi_item *one = a, *other = b;
    int order = batch_compare(one, other, look_always);
    bool here = one->flags & TWI_ITEM_NAMED, there = other->flags & TWI_ITEM_NAMED;
    if (order != 0 || !(here || there)) return order;
    if (here != there) return here ? -1 : 1;
    uintptr_t mine = (uintptr_t)one->generation, others = (uintptr_t)other->generation;
    return mine < others ? -1 : mine > others;
}

static int compare_merge_plain(const void *a, const void *b) {
    return order(a, b, false);
}

static int compare_look(const void *a, const void *b) {
    return order(a, b, true);
}

void twi_batch_sort(struct twi_item *items, size_t count, bool look_always) {
    twi_check(items != NULL || count == 0);
    qsort(items, count, sizeof *items, look_always ? compare_look : compare_merge_plain);
}

/* ---- freezing ---------------------------------------------------------------------------------------------------- */

static void put_arg_i64(struct twi_batch *batch, int64_t value) {
    twi_wire_put_i64(&batch->args, value);
    batch->arg_count++;
}

static void put_group(struct twi_batch *batch, char shape, char kind, int64_t expiry_ms, size_t count) {
    twi_check(count != 0 && kind != '\0');
    twi_check(shape == '\0' || shape == 'h' || shape == 'z');
    const char letters[] = {shape, kind};
    twi_wire_put(&batch->args, letters + !shape, 2 - !shape);
    batch->arg_count++;
    put_arg_i64(batch, expiry_ms);
    put_arg_i64(batch, (int64_t)count);
}

static void put_delta(struct twi_batch *batch, char kind, const struct twi_item *item, int64_t redis_offset_ms) {
    twi_check(item->delta != INT64_MIN);
    if (item->delta == 0) return;
    put_arg_i64(batch, item->delta);
    if (kind == 'f' || kind == 'F') put_arg_i64(batch, item->expiry_ms + redis_offset_ms);
    if (item->delta > 0)
        batch->plus += (uint64_t)item->delta;
    else
        batch->minus += (uint64_t)-item->delta;
}

static void batch_put_item(struct twi_batch *batch, char shape, char kind, const struct twi_item *item,
                           int64_t redis_offset_ms) {
    put_delta(batch, kind, item, redis_offset_ms);
    if (!shape) return;
    tw_key inner = twi_port_inner(item);
    twi_wire_put(&batch->args, inner.data, inner.size);
    batch->arg_count++;
}

static size_t group_size(const struct twi_item *items, size_t count, bool look_always) {
    twi_check(count != 0);
    size_t size = 1;
    while (size < count && batch_compare(&items[0], &items[size], look_always) == 0) size++;
    return size;
}

/* Returns the name of the item in Redis. `room` has TWI_REDIS_KEY_MAX bytes, for a name that is rendered here. */
static const char *batch_name_of(const struct twi_item *item, const struct twi_batch_names *names, char *room,
                                 size_t *size) {
    twi_check(item->named == 0 || (names != NULL && item->named <= names->count));
    if (item->named == 0) {
        *size = twi_port_render(item, room);
        return room;
    }
    uint32_t from = names->ends[item->named - 1];
    *size = names->ends[item->named] - from;
    return names->bytes.data + from;
}

/* Encodes the keys of as many items as fit into the batch, and returns how many these are. */
static size_t put_keys(struct twi_batch *batch, const struct twi_item *items, size_t count,
                       const struct twi_freeze *how) {
    twi_check(count != 0 && batch->key_count == 0);
    twi_check(how->keys_max >= 1 && how->keys_max <= TWI_BATCH_ITEMS_MAX);
    twi_check(how->bytes_max <= TWI_BATCH_BYTES_MAX);
    char room[TWI_REDIS_KEY_MAX];
    size_t taken = 0, size, inner = 0;
    if (count > how->keys_max) count = how->keys_max;
    for (; taken < count; taken++) {
        const char *name = batch_name_of(&items[taken], how->names, room, &size);
        if (batch_shape_of(&items[taken])) inner += twi_port_inner(&items[taken]).size;
        /* 128 bytes besides the names: the lengths before them, delta and expiry with their lengths, and at worst a
         * group header for each item. */
        if (items[taken].flags & TWI_ITEM_NAMED) inner += twi_port_key(&items[taken]).size + 32;
        size_t names = batch->keys.size + size + inner, bytes = names + (taken + 1) * 128;
        if (taken > 0 && (bytes > TWI_BATCH_BYTES_MAX || names + (taken + 1) * ITEM_BYTES > how->bytes_max)) break;
        twi_check(size != 0 && size <= TWI_REDIS_KEY_MAX);
        twi_wire_put(&batch->keys, name, size);
    }
    batch->key_count = (uint32_t)taken;
    twi_check(taken >= 1 && taken <= count);
    return taken;
}

static void put_args(struct twi_batch *batch, const struct twi_item *items, size_t count,
                     const struct twi_freeze *how) {
    twi_check(count != 0 && batch->arg_count == 0);
    for (size_t at = 0; at < count;) {
        size_t size = group_size(items + at, count - at, how->look_always);
        char shape = batch_shape_of(&items[at]), kind = batch_kind_of(&items[at], how->look_always);
        put_group(batch, shape, kind, group_expiry(kind, &items[at]), size);
        for (size_t end = at + size; at < end; at++)
            batch_put_item(batch, shape, kind, &items[at], how->redis_offset_ms);
    }
}

/* ---- names that the closer of a window needs --------------------------------------------------------------------- */

/* The bounds of one member of a set. The engine that closes the window reads a hundred members at a time. */
#define MEMBER_NAMES_MAX 64u
#define MEMBER_BYTES_MAX 2048u
#define FIRST_ARG 9u   /* of the groups, in ARGV */
#define FIRST_REPLY 9u /* of the items, in the reply */

/* Items in a row whose names are recorded: of one group and one window. */
struct named {
    const struct twi_item *items;
    size_t count, first; /* the index of its first item in the batch */
    uint32_t arg, width; /* where its delta is in ARGV, and how many arguments an item has */
};

static size_t put_member(struct twi_bytes *member, const struct twi_item *items, size_t count) {
    twi_check(count != 0);
    size_t taken = 0;
    char size[24];
    member->size = 0;
    twi_bytes_add(member, "", 1); /* a name that begins with such a byte is recorded in this form, too */
    for (; taken < count && taken < MEMBER_NAMES_MAX && member->size < MEMBER_BYTES_MAX; taken++) {
        tw_key key = twi_port_key(&items[taken]);
        twi_bytes_add(member, size, (size_t)snprintf(size, sizeof size, "%zu:", key.size));
        twi_bytes_add(member, key.data, key.size);
    }
    return taken;
}

/* Encodes the members, and returns how many these are. */
static size_t put_members(struct twi_bytes *wire, const struct twi_item *items, size_t count) {
    twi_check(count != 0);
    struct twi_bytes member = {0};
    size_t members = 0;
    for (size_t at = 0; at < count; members++) {
        at += put_member(&member, items + at, count - at);
        twi_wire_put(wire, member.data, member.size);
    }
    wire->failed = wire->failed || member.failed;
    twi_bytes_free(&member);
    return members;
}

static void put_named(struct twi_batch *batch, const struct named *named) {
    twi_check(named->count != 0 && named->arg >= FIRST_ARG);
    struct twi_window_names names;
    bool is_new = false;
    twi_port_window_names(named->items, &names);
    twi_check(names.key_count >= 1 && names.key_count <= TWI_WINDOW_NAMES_KEYS);
    for (uint32_t i = 0; i < names.key_count; i++) twi_wire_put(&batch->keys, names.keys[i], names.sizes[i]);
    batch->name_keys += names.key_count;
    for (size_t i = 0; i < named->count; i++) is_new = is_new || named->items[i].delta != named->items[i].units;
    put_group(batch, '\0', names.key_count == 1 ? 'N' : 'n', named->items->expiry_ms, named->count);
    put_arg_i64(batch, names.start_ms);
    put_arg_i64(batch, names.due_ms);
    put_arg_i64(batch, names.recorded);
    put_arg_i64(batch, is_new);
    put_arg_i64(batch, (int64_t)(FIRST_REPLY + named->first));
    put_arg_i64(batch, named->arg);
    put_arg_i64(batch, named->width);
    struct twi_bytes members = {0};
    size_t count = put_members(&members, named->items, named->count);
    put_arg_i64(batch, (int64_t)count);
    twi_bytes_add(&batch->args, members.data, members.size);
    batch->arg_count += (uint32_t)count;
    batch->args.failed = batch->args.failed || members.failed;
    twi_bytes_free(&members);
}

static size_t named_size(const struct twi_item *items, size_t count) {
    twi_check(count != 0);
    size_t size = 0;
    while (size < count && (items[size].flags & TWI_ITEM_NAMED) && items[size].generation == items[0].generation)
        size++;
    return size;
}

/* After all items come the names of those keys in which this engine counts for the first time, window by window. */
static void batch_put_names(struct twi_batch *batch, const struct twi_item *items, size_t count, bool look_always) {
    twi_check(count == batch->key_count);
    uint32_t arg = FIRST_ARG;
    for (size_t at = 0; at < count;) {
        size_t end = at + group_size(items + at, count - at, look_always);
        char kind = batch_kind_of(&items[at], look_always);
        uint32_t width = (items[at].delta != 0) + (kind == 'f' || kind == 'F') + (batch_shape_of(&items[at]) != '\0');
        arg += 3; /* the head of the group */
        for (size_t run; at < end; at += run, arg += (uint32_t)run * width) {
            run = named_size(items + at, end - at);
            if (run != 0) put_named(batch, &(struct named){items + at, run, at, arg, width});
            if (run == 0) run = 1;
        }
    }
}

struct twi_batch *twi_batch_empty(int64_t now_ms) {
    struct twi_batch *batch = calloc(1, sizeof *batch);
    if (batch) batch->frozen_ms = now_ms;
    return batch;
}

struct twi_batch *twi_batch_freeze(const struct twi_item *items, size_t count, const struct twi_freeze *how,
                                   size_t *taken) {
    twi_check(items != NULL && count != 0);
    struct twi_batch *batch = twi_batch_empty(how->now_ms);
    if (!batch) return NULL;
    size_t fits = put_keys(batch, items, count, how);
    put_args(batch, items, fits, how);
    twi_check(batch->arg_count >= 3); /* the batch has at least one group */
    batch_put_names(batch, items, fits, how->look_always);
    batch->items = malloc(fits * sizeof *items);
    if (!batch->items || batch->keys.failed || batch->args.failed) {
        twi_batch_free(batch);
        return NULL;
    }
    memcpy(batch->items, items, fits * sizeof *items);
    batch->item_count = (uint32_t)fits;
    *taken = fits;
    return batch;
}

struct twi_batch *twi_batch_gather(const struct twi_item *items, size_t count, const struct twi_freeze *how,
                                   size_t *taken) {
    twi_check(items != NULL && count != 0);
    char name[TWI_REDIS_KEY_MAX];
    size_t fits = 0;
    if (count > TWI_BATCH_ITEMS_MAX) count = TWI_BATCH_ITEMS_MAX;
    /* Usually an item needs three commands, each with the name. */
    for (size_t bytes = 0; fits < count; fits++) {
        bytes += 3 * (twi_port_render(&items[fits], name) + 64);
        if (fits > 0 && bytes > how->bytes_max) break;
    }
    struct twi_batch *batch = twi_batch_empty(how->now_ms);
    if (!batch) return NULL;
    batch->items = malloc(fits * sizeof *items);
    if (!batch->items) {
        twi_batch_free(batch);
        return NULL;
    }
    memcpy(batch->items, items, fits * sizeof *items);
    batch->item_count = (uint32_t)fits;
    *taken = fits;
    return batch;
}

/* ---- striking out ------------------------------------------------------------------------------------------------ */

/* Returns the next argument. On the wire it is "$length" and the text, each with its line end. */
static char *next_arg(char **at, size_t *size) {
    twi_check(**at == '$');
    char *text;
    *size = strtoul(*at + 1, &text, 10);
    text += 2;
    *at = text + *size + 2;
    return text;
}

/* Returns the delta of that item in the encoded arguments, or NULL if the item only requests the total. */
static char *delta_at(struct twi_batch *batch, uint32_t index, size_t *size) {
    twi_check(index < batch->key_count);
    char *at = batch->args.data;
    for (uint32_t item = 0; item < batch->key_count;) {
        char *letters = next_arg(&at, size);
        bool shaped = *size == 2;
        char kind = letters[shaped];
        (void)next_arg(&at, size);
        unsigned long count = strtoul(next_arg(&at, size), NULL, 10);
        uint32_t numbers = kind == 'r' || kind == 'R' ? 0 : kind == 'f' || kind == 'F' ? 2 : 1;
        for (; count > 0; count--, item++) {
            char *delta = NULL;
            for (uint32_t i = 0; i < numbers + shaped; i++) {
                char *text = next_arg(&at, size);
                if (i == 0 && numbers) delta = text;
            }
            if (item == index) return delta;
        }
    }
    return NULL;
}

static bool is_delta(char first) {
    return first == '-' || (first >= '0' && first <= '9');
}

/* Overwrites a delta with letters, because Redis refuses a text that is no number. A delta struck out becomes an x for
 * each character. A delta set aside becomes a letter from a to j for each digit, and m for the sign, so that the amount
 * can be read again. */
static uint64_t strike(struct twi_batch *batch, uint32_t index, bool aside) {
    size_t size;
    char *text = delta_at(batch, index, &size);
    if (!text || !is_delta(*text)) return 0;
    long long delta = strtoll(text, NULL, 10);
    uint64_t units = delta < 0 ? (uint64_t)-delta : (uint64_t)delta;
    batch->struck += units;
    twi_check(batch->struck <= batch->plus + batch->minus);
    for (; is_delta(*text); text++) {
        if (!aside)
            *text = 'x';
        else
            *text = *text == '-' ? 'm' : (char)('a' + (*text - '0'));
    }
    return units;
}

uint64_t twi_batch_strike(struct twi_batch *batch, uint32_t index) {
    return strike(batch, index, false);
}

uint64_t twi_batch_set_aside(struct twi_batch *batch, uint32_t index) {
    return strike(batch, index, true);
}

uint64_t twi_batch_take_aside(struct twi_batch *batch, uint32_t index) {
    size_t size;
    uint64_t units = 0;
    char *text = delta_at(batch, index, &size);
    for (; text && *text >= 'a'; text++) { /* a number ends the loop at once, letters end it at the line end */
        if (*text <= 'j') units = units * 10 + (uint64_t)(*text - 'a');
        *text = 'x';
    }
    return units;
}

/* ---- the envelope ------------------------------------------------------------------------------------------------ */

void twi_batch_encode(const struct twi_batch *batch, const struct twi_envelope *envelope, struct twi_bytes *out) {
    twi_check(envelope->ledger_size != 0 && envelope->marker_name_size != 0);
    twi_check(!batch->keys.failed && !batch->args.failed);
    char nonce[20];
    snprintf(nonce, sizeof nonce, "%016" PRIx64, batch->nonce);
    static const struct twi_script_source script = {twi_script_batch, twi_script_batch_sha1};
    twi_wire_begin_script(out, &script, envelope->eval,
                          1 + 2 + batch->key_count + batch->name_keys + 8 + batch->arg_count);
    twi_wire_put_u64(out, 2 + batch->key_count + batch->name_keys);
    twi_wire_put(out, envelope->ledger_name, envelope->ledger_size);
    twi_wire_put(out, envelope->marker_name, envelope->marker_name_size);
    twi_bytes_add(out, batch->keys.data, batch->keys.size);
    twi_wire_put_text(out, SCRIPT_VERSION);
    twi_wire_put_u64(out, batch->number);
    twi_wire_put_u64(out, batch->before);
    twi_wire_put_text(out, nonce);
    twi_wire_put_i64(out, envelope->ledger_ttl_ms);
    twi_wire_put_u64(out, batch->plus_sum);
    twi_wire_put_u64(out, batch->minus_sum);
    twi_wire_put_text(out, envelope->marker);
    twi_bytes_add(out, batch->args.data, batch->args.size);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

uint64_t twi_batch_size(const struct twi_batch *batch) {
    twi_check(batch->keys.size <= batch->keys.room && batch->args.size <= batch->args.room);
    return batch->keys.size + batch->args.size;
}

size_t twi_batch_bytes(const struct twi_batch *batch) {
    twi_check(batch->items != NULL || batch->struck <= batch->plus + batch->minus);
    size_t items = batch->items ? batch->item_count * sizeof *batch->items : 0;
    return sizeof *batch + batch->keys.room + batch->args.room + items;
}

void twi_batch_items_drop(struct twi_batch *batch) {
    free(batch->items);
    batch->items = NULL;
}

void twi_batch_free(struct twi_batch *batch) {
    if (!batch) return;
    twi_batch_items_drop(batch);
    if (!batch->is_kept) {
        twi_bytes_free(&batch->keys);
        twi_bytes_free(&batch->args);
    }
    free(batch);
}

/* ---- depth ---- */

#define STEP_US \
    256 /* for each such part of the distance, one more small batch is under way; this is half of Redis's own pace */

struct twi_load twi_depth_load(const struct twi_estimate *estimate, uint32_t near_keys) {
    twi_check(near_keys >= 1 && near_keys <= TWI_BATCH_ITEMS_MAX);
    uint32_t near = near_keys, most = TWI_PIPELINE_MAX * TWI_BATCH_ITEMS_MAX;
    int64_t way_us = twi_estimate_distance_us(estimate);
    int64_t far = way_us < most * STEP_US ? way_us * near / STEP_US : most;
    uint32_t under_way = near + far < most ? near + (uint32_t)far : most;
    uint32_t keys = under_way / TWI_PIPELINE_MAX;
    if (keys < near) keys = near;
    if (keys > TWI_BATCH_ITEMS_MAX) keys = TWI_BATCH_ITEMS_MAX;
    twi_check(keys >= near && keys <= under_way);
    uint32_t batches = under_way / keys;
    return (struct twi_load){keys, batches < TWI_PIPELINE_MAX ? batches : TWI_PIPELINE_MAX};
}

uint32_t twi_depth_batch_bytes(const struct twi_estimate *estimate, uint32_t timeout_ms) {
    uint64_t bytes = twi_estimate_bytes(estimate, timeout_ms) / 2;
    if (bytes < TWI_ESTIMATE_BYTES_MIN) bytes = TWI_ESTIMATE_BYTES_MIN;
    return bytes < TWI_BATCH_BYTES_MAX ? (uint32_t)bytes : TWI_BATCH_BYTES_MAX;
}
