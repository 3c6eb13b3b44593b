/* wire.c -- encodes commands, decodes replies; the one file that includes hiredis (0.14.1, or 1.0 and later).
 *
 * The parser of hiredis calls this file for each element. The elements lie in one flat array and their texts in one
 * block. So a reply of a thousand totals costs no allocation once the reader is warm. Count and depth are checked
 * when an element begins, and an array that announces too many elements is refused at once. hiredis never sees a socket
 * here.
 * Always true: `nodes` has the reply under construction, or the last whole one. Texts are offsets until the reply is
 * whole. */
#include "sync/wire/wire.h"

#include "engine/base/check.h"
#include "engine/base/grow.h"
#include "engine/base/key_slot.h"
#include "engine/port/services.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODES_FIRST 64u
#define TEXT_FIRST 1024u
#define LINE_BYTES_MAX 65536u /* of a header, a status or an error, as Redis bounds them */

/* ---- bytes that grow --------------------------------------------------------------------------------------------- */

static bool bytes_make_room(struct twi_bytes *bytes, size_t size) {
    twi_check(bytes->size <= bytes->room);
    if (bytes->failed) return false;
    if (bytes->room - bytes->size > size) return true;
    size_t room = bytes->room ? bytes->room * 2 : 512;
    while (room - bytes->size <= size) room *= 2;
    char *data = malloc(room); /* not realloc(), because the old block, perhaps with a password, must be wiped */
    if (!data) {
        bytes->failed = true;
        return false;
    }
    if (bytes->size > 0) memcpy(data, bytes->data, bytes->size + 1);
    if (bytes->data) explicit_bzero(bytes->data, bytes->room);
    free(bytes->data);
    bytes->data = data;
    bytes->room = room;
    return true;
}

void twi_bytes_add(struct twi_bytes *bytes, const void *data, size_t size) {
    if (size == 0 || !bytes_make_room(bytes, size)) return;
    memcpy(bytes->data + bytes->size, data, size);
    bytes->size += size;
    bytes->data[bytes->size] = '\0'; /* a parser of numbers stops at it */
}

void twi_bytes_drop_front(struct twi_bytes *bytes, size_t size) {
    twi_check(size <= bytes->size);
    if (size == 0) return;
    memmove(bytes->data, bytes->data + size, bytes->size - size);
    bytes->size -= size;
}

void twi_bytes_wipe(struct twi_bytes *bytes) {
    if (bytes->data) explicit_bzero(bytes->data, bytes->room);
    bytes->size = 0;
}

void twi_bytes_free(struct twi_bytes *bytes) {
    free(bytes->data);
    *bytes = (struct twi_bytes){0};
}

/* ---- commands ---------------------------------------------------------------------------------------------------- */

/* "*3\r\n" or "$12\r\n". */
static void put_length(struct twi_bytes *out, char sign, size_t length) {
    char text[1 + TWI_DECIMAL_MAX + 2], *end = text + sizeof text - 2, *at = twi_decimal_before(end, length);
    *--at = sign;
    memcpy(end, "\r\n", 2);
    twi_bytes_add(out, at, (size_t)(end + 2 - at));
}

void twi_wire_begin(struct twi_bytes *out, size_t argument_count) {
    put_length(out, '*', argument_count);
}

void twi_wire_put(struct twi_bytes *out, const void *data, size_t size) {
    put_length(out, '$', size);
    twi_bytes_add(out, data, size);
    twi_bytes_add(out, "\r\n", 2);
}

void twi_wire_put_text(struct twi_bytes *out, const char *text) {
    twi_wire_put(out, text, strlen(text));
}

void twi_wire_begin_script(struct twi_bytes *out, const struct twi_script_source *script, bool eval, size_t count) {
    twi_wire_begin(out, 2 + count);
    twi_wire_put_text(out, eval ? "EVAL" : "EVALSHA");
    twi_wire_put_text(out, eval ? script->text : script->sha1);
}

void twi_wire_put_i64(struct twi_bytes *out, int64_t value) {
    char text[1 + TWI_DECIMAL_MAX], *end = text + sizeof text;
    char *at = twi_decimal_before(end, value < 0 ? -(uint64_t)value : (uint64_t)value);
    if (value < 0) *--at = '-';
    twi_wire_put(out, at, (size_t)(end - at));
}

void twi_wire_put_u64(struct twi_bytes *out, uint64_t value) {
    char text[TWI_DECIMAL_MAX], *end = text + sizeof text, *at = twi_decimal_before(end, value);
    twi_wire_put(out, at, (size_t)(end - at));
}

/* ---- replies ----------------------------------------------------------------------------------------------------- */

struct twi_reader {
    redisReader *parser;
    struct twi_wire_limits limits;
    struct twi_node *nodes;
    size_t node_count;
    char *text;
    size_t text_size;
    uint32_t node_room, text_room;
    bool bad;
};

static uint32_t depth_of(const redisReadTask *task) {
    uint32_t depth = 0;
    for (const redisReadTask *parent = task->parent; parent; parent = parent->parent) depth++;
    return depth;
}

/* Appends a node. Returns NULL beyond a bound, or without memory; hiredis then reports an error. */
static struct twi_node *node_add(const redisReadTask *task, enum twi_node_type type) {
    struct twi_reader *reader = task->privdata;
    uint32_t depth = depth_of(task);
    if (depth > reader->limits.depth_max || reader->node_count >= reader->limits.nodes_max) return NULL;
    if (!twi_grow(&reader->nodes, sizeof *reader->nodes, &reader->node_room, reader->node_count + 1, NODES_FIRST))
        return NULL;
    struct twi_node *node = &reader->nodes[reader->node_count++];
    *node = (struct twi_node){.type = type, .depth = depth};
    return node;
}

static enum twi_node_type text_type(int type) {
    if (type == REDIS_REPLY_ERROR) return TWI_NODE_ERROR;
    return type == REDIS_REPLY_STATUS ? TWI_NODE_STATUS : TWI_NODE_STRING;
}

/* hiredis needs any pointer except NULL for an element. Each of these functions returns the reader. */
static void *on_string(const redisReadTask *task, char *data, size_t size) {
    struct twi_reader *reader = task->privdata;
    if (task->type != REDIS_REPLY_STRING && task->type != REDIS_REPLY_STATUS && task->type != REDIS_REPLY_ERROR)
        return NULL; /* types of a later protocol, which is never requested */
    if (!twi_grow(&reader->text, 1, &reader->text_room, reader->text_size + size + 1, TEXT_FIRST)) return NULL;
    struct twi_node *node = node_add(task, text_type(task->type));
    if (!node) return NULL;
    node->integer = (int64_t)reader->text_size; /* an offset until the reply is whole, because `text` may still move */
    node->size = size;
    if (size) memcpy(reader->text + reader->text_size, data, size);
    reader->text[reader->text_size + size] = '\0';
    reader->text_size += size + 1;
    return reader;
}

#if HIREDIS_MAJOR >= 1
typedef size_t array_count;
#else
typedef int array_count;
#endif

static void *on_array(const redisReadTask *task, array_count count) {
    struct twi_reader *reader = task->privdata;
    if (task->type != REDIS_REPLY_ARRAY || (int64_t)count < 0) return NULL;
    if ((size_t)count > reader->limits.nodes_max - reader->node_count) return NULL;
    struct twi_node *node = node_add(task, TWI_NODE_ARRAY);
    if (!node) return NULL;
    node->integer = (int64_t)count;
    return reader;
}

static void *on_integer(const redisReadTask *task, long long value) {
    struct twi_node *node = node_add(task, TWI_NODE_INTEGER);
    if (!node) return NULL;
    node->integer = value;
    return task->privdata;
}

static void *on_nil(const redisReadTask *task) {
    return node_add(task, TWI_NODE_NIL) ? task->privdata : NULL;
}

static void on_free(void *object) {
    (void)object; /* the reader owns the nodes */
}

#if HIREDIS_MAJOR >= 1
static void *on_double(const redisReadTask *task, double value, char *text, size_t size) {
    (void)task, (void)value, (void)text, (void)size;
    return NULL;
}

static void *on_bool(const redisReadTask *task, int value) {
    (void)task, (void)value;
    return NULL;
}
#endif

static redisReplyObjectFunctions functions = {
    .createString = on_string,
    .createArray = on_array,
    .createInteger = on_integer,
#if HIREDIS_MAJOR >= 1
    .createDouble = on_double,
    .createBool = on_bool,
#endif
    .createNil = on_nil,
    .freeObject = on_free,
};

struct twi_reader *twi_reader_create(const struct twi_wire_limits *limits) {
    twi_check(limits->bytes_max != 0 && limits->nodes_max != 0);
    struct twi_reader *reader = calloc(1, sizeof *reader);
    if (!reader) return NULL;
    reader->limits = *limits;
    reader->parser = redisReaderCreateWithFunctions(&functions);
    if (!reader->parser) {
        free(reader);
        return NULL;
    }
    reader->parser->privdata = reader;
    reader->parser->maxbuf = 0; /* hiredis asserts that an idle buffer can shrink; without memory it cannot */
    return reader;
}

void twi_reader_free(struct twi_reader *reader) {
    if (!reader) return;
    redisReaderFree(reader->parser);
    free(reader->nodes);
    free(reader->text);
    free(reader);
}

bool twi_reader_feed(struct twi_reader *reader, const void *data, size_t size) {
    twi_check(data != NULL || size == 0);
    if (reader->bad) return false;
    /* One bound for all bytes that wait in the parser, also those of whole replies that were not consumed yet. */
    size_t waiting = reader->parser->len - reader->parser->pos;
    if (size > reader->limits.bytes_max || waiting > reader->limits.bytes_max - size ||
        redisReaderFeed(reader->parser, data, size) != REDIS_OK)
        reader->bad = true;
    return !reader->bad;
}

/* The line that is being received has no end so far, and is longer than any of the protocol's. hiredis looks for its
 * end from its beginning, again with each piece. Without this bound an endless line costs the square of its length. */
static bool is_endless_line(const struct twi_reader *reader) {
    const char *line = reader->parser->buf + reader->parser->pos;
    size_t size = reader->parser->len - reader->parser->pos;
    return size > LINE_BYTES_MAX && memchr(line, '\n', LINE_BYTES_MAX) == NULL;
}

/* Elements are kept before their array is whole, so their texts count against the bound, too. */
static bool within_bounds(const struct twi_reader *reader) {
    twi_check(reader->node_count <= reader->node_room);
    return reader->text_size <= reader->limits.bytes_max;
}

enum twi_wire twi_reader_next(struct twi_reader *reader, const struct twi_node **nodes, size_t *count) {
    if (reader->bad) return TWI_WIRE_BAD;
    if (!reader->parser->reply && reader->parser->ridx == -1) reader->node_count = reader->text_size = 0;
    void *reply = NULL;
    if (redisReaderGetReply(reader->parser, &reply) != REDIS_OK || !within_bounds(reader) || is_endless_line(reader)) {
        reader->bad = true;
        return TWI_WIRE_BAD;
    }
    if (!reply) return TWI_WIRE_MORE;
    for (size_t i = 0; i < reader->node_count; i++) {
        struct twi_node *node = &reader->nodes[i];
        if (node->type != TWI_NODE_STRING && node->type != TWI_NODE_STATUS && node->type != TWI_NODE_ERROR) continue;
        node->text = reader->text + node->integer;
        node->integer = 0;
    }
    *nodes = reader->nodes;
    *count = reader->node_count;
    return TWI_WIRE_DONE;
}

bool twi_node_is(const struct twi_node *node, const char *word) {
    twi_check(node != NULL && word != NULL); /* an empty word is valid, for a marker that is gone */
    size_t size = strlen(word);
    if (node->type != TWI_NODE_STRING && node->type != TWI_NODE_STATUS && node->type != TWI_NODE_ERROR) return false;
    return node->size >= size && memcmp(node->text, word, size) == 0 && (node->size == size || node->text[size] == ' ');
}

bool twi_node_i64(const struct twi_node *node, int64_t *value) {
    if (node->type == TWI_NODE_INTEGER) {
        *value = node->integer;
        return true;
    }
    if (node->type != TWI_NODE_STRING || node->size == 0 || node->size > 20) return false;
    if (node->text[0] != '-' && (node->text[0] < '0' || node->text[0] > '9')) return false;
    char *end = NULL;
    errno = 0;
    int64_t number = strtoll(node->text, &end, 10);
    if (errno || end != node->text + node->size) return false;
    *value = number;
    return true;
}

/* Checks for a text with more digits than a number of 64 bits. */
static bool is_beyond(const struct twi_node *node) {
    if (node->type != TWI_NODE_STRING || node->size < 2) return false;
    size_t digits = node->text[0] == '-';
    while (digits < node->size && node->text[digits] >= '0' && node->text[digits] <= '9') digits++;
    return digits == node->size;
}

static bool read_within(const struct twi_node *node, int64_t least, int64_t most, int64_t *value) {
    twi_check(least <= most);
    if (!twi_node_i64(node, value)) {
        if (!is_beyond(node)) return false;
        *value = node->text[0] == '-' ? INT64_MIN : INT64_MAX;
    }
    if (*value < least) *value = least;
    if (*value > most) *value = most;
    return true;
}

bool twi_node_count(const struct twi_node *node, int64_t *count) {
    return read_within(node, -TWI_NODE_COUNT_MAX, TWI_NODE_COUNT_MAX, count);
}
bool twi_node_time(const struct twi_node *node, int64_t *unix_ms) {
    return read_within(node, 0, TWI_NODE_TIME_MAX_MS, unix_ms);
}
bool twi_node_pause(const struct twi_node *node, int64_t *pause_ms) {
    return read_within(node, 0, TWI_NODE_PAUSE_MAX_MS, pause_ms);
}

bool twi_node_u64(const struct twi_node *node, uint64_t *value) {
    if (node->type != TWI_NODE_STRING || node->size == 0 || node->size > 20) return false;
    if (node->text[0] < '0' || node->text[0] > '9') return false;
    char *end = NULL;
    errno = 0;
    uint64_t number = strtoull(node->text, &end, 10);
    if (errno || end != node->text + node->size) return false;
    *value = number;
    return true;
}

/* ---- login ---- */

static int fetch(const struct twi_login *login, char *password, size_t size) {
    twi_check(size != 0);
    if (login->ask == NULL) return snprintf(password, size, "%s", login->password ? login->password : "");
    return twi_port_ask_password(login->ask, login->ask_ctx, password, size);
}

enum twi_login_put twi_login_put(const struct twi_login *login, struct twi_bytes *out) {
    char password[TWI_PASSWORD_SIZE] = "";
    enum twi_login_put done = TWI_LOGIN_NONE;
    int length = fetch(login, password, sizeof password);
    if (length < 0 || (size_t)length >= sizeof password) {
        done = TWI_LOGIN_FAILED;
    } else if (length > 0) {
        bool has_user = login->user && login->user[0];
        done = TWI_LOGIN_PUT;
        twi_wire_begin(out, has_user ? 3 : 2);
        twi_wire_put_text(out, "AUTH");
        if (has_user) twi_wire_put_text(out, login->user);
        twi_wire_put(out, password, (size_t)length);
    }
    explicit_bzero(password, sizeof password);
    return done;
}
