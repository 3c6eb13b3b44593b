/* wire.c -- encodes commands, decodes replies; the one file that includes hiredis (0.14.1, or 1.0 and later).
 *
 * hiredis' parser calls us for each element; we keep the elements in one flat array and their texts in one block, so
 * that a reply of a thousand totals costs no allocation once the reader is warm, and every bound is checked as the
 * element begins, before anything is reserved for it. hiredis never sees a socket here.
 * Always true: `nodes` hold the reply under construction or the last whole one; texts are offsets until it is whole. */
#include "sync/wire/wire.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hiredis/hiredis.h>

/* ---- bytes that grow --------------------------------------------------------------------------------------------- */

static bool bytes_make_room(struct twi_bytes *bytes, size_t size) {
    if (bytes->failed) return false;
    if (bytes->room - bytes->size > size) return true;
    size_t room = bytes->room ? bytes->room * 2 : 512;
    while (room - bytes->size <= size) room *= 2;
    char *data = realloc(bytes->data, room);
    if (!data) {
        bytes->failed = true;
        return false;
    }
    bytes->data = data;
    bytes->room = room;
    return true;
}

void twi_bytes_add(struct twi_bytes *bytes, const void *data, size_t size) {
    if (size == 0 || !bytes_make_room(bytes, size)) return;
    memcpy(bytes->data + bytes->size, data, size);
    bytes->size += size;
    bytes->data[bytes->size] = '\0'; /* whoever reads a number in it stops at the end */
}

void twi_bytes_drop_front(struct twi_bytes *bytes, size_t size) {
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

/* "*3\r\n", "$12\r\n": a sign, a length, the end of a line. */
static void put_length(struct twi_bytes *out, char sign, size_t length) {
    char text[32];
    int size = snprintf(text, sizeof text, "%c%zu\r\n", sign, length);
    twi_bytes_add(out, text, (size_t)size);
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
    char text[24];
    twi_wire_put(out, text, (size_t)snprintf(text, sizeof text, "%" PRId64, value));
}

void twi_wire_put_u64(struct twi_bytes *out, uint64_t value) {
    char text[24];
    twi_wire_put(out, text, (size_t)snprintf(text, sizeof text, "%" PRIu64, value));
}

/* ---- replies ----------------------------------------------------------------------------------------------------- */

struct twi_reader {
    redisReader *parser;
    struct twi_wire_limits limits;
    struct twi_node *nodes;
    size_t node_count, node_room;
    char *text;
    size_t text_size, text_room;
    bool bad;
};

static uint32_t depth_of(const redisReadTask *task) {
    uint32_t depth = 0;
    for (const redisReadTask *parent = task->parent; parent; parent = parent->parent) depth++;
    return depth;
}

/* A new node at the end; NULL past a bound or without memory, which hiredis turns into a broken parser. */
static struct twi_node *node_add(const redisReadTask *task, enum twi_node_type type) {
    struct twi_reader *reader = task->privdata;
    uint32_t depth = depth_of(task);
    if (depth > reader->limits.depth_max || reader->node_count >= reader->limits.nodes_max) return NULL;
    if (reader->node_count == reader->node_room) {
        size_t room = reader->node_room ? reader->node_room * 2 : 64;
        struct twi_node *nodes = realloc(reader->nodes, room * sizeof *nodes);
        if (!nodes) return NULL;
        reader->nodes = nodes;
        reader->node_room = room;
    }
    struct twi_node *node = &reader->nodes[reader->node_count++];
    *node = (struct twi_node){.type = type, .depth = depth};
    return node;
}

static enum twi_node_type text_type(int type) {
    if (type == REDIS_REPLY_ERROR) return TWI_NODE_ERROR;
    return type == REDIS_REPLY_STATUS ? TWI_NODE_STATUS : TWI_NODE_STRING;
}

/* hiredis only asks that what we return is not NULL; the reader itself will do for every element. */
static void *on_string(const redisReadTask *task, char *data, size_t size) {
    struct twi_reader *reader = task->privdata;
    if (task->type != REDIS_REPLY_STRING && task->type != REDIS_REPLY_STATUS && task->type != REDIS_REPLY_ERROR)
        return NULL; /* types of a later protocol, which we never asked for */
    if (reader->text_room - reader->text_size < size + 1) {
        size_t room = reader->text_room ? reader->text_room * 2 : 1024;
        while (room - reader->text_size < size + 1) room *= 2;
        char *text = realloc(reader->text, room);
        if (!text) return NULL;
        reader->text = text;
        reader->text_room = room;
    }
    struct twi_node *node = node_add(task, text_type(task->type));
    if (!node) return NULL;
    node->integer = (int64_t)reader->text_size; /* an offset until the reply is whole: the block may still move */
    node->size = size;
    if (size) memcpy(reader->text + reader->text_size, data, size);
    reader->text[reader->text_size + size] = '\0';
    reader->text_size += size + 1;
    return reader;
}

#if HIREDIS_MAJOR >= 1
static void *on_array(const redisReadTask *task, size_t count) {
#else
static void *on_array(const redisReadTask *task, int count) {
#endif
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
    (void)object; /* the nodes are the reader's */
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
    struct twi_reader *reader = calloc(1, sizeof *reader);
    if (!reader) return NULL;
    reader->limits = *limits;
    reader->parser = redisReaderCreateWithFunctions(&functions);
    if (!reader->parser) {
        free(reader);
        return NULL;
    }
    reader->parser->privdata = reader;
    reader->parser->maxbuf = 0; /* hiredis asserts that shrinking an idle buffer cannot fail; without memory it can */
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
    if (reader->bad) return false;
    /* Bytes that wait within the parser, those of earlier, whole replies among them: one bound for all of it. */
    size_t waiting = reader->parser->len - reader->parser->pos;
    if (size > reader->limits.bytes_max || waiting > reader->limits.bytes_max - size ||
        redisReaderFeed(reader->parser, data, size) != REDIS_OK)
        reader->bad = true;
    return !reader->bad;
}

/* Elements arrive before their array is whole, so their texts count against the bound, too. */
static bool within_bounds(const struct twi_reader *reader) {
    return reader->text_size <= reader->limits.bytes_max;
}

enum twi_wire twi_reader_next(struct twi_reader *reader, const struct twi_node **nodes, size_t *count) {
    if (reader->bad) return TWI_WIRE_BAD;
    if (!reader->parser->reply && reader->parser->ridx == -1) reader->node_count = reader->text_size = 0;
    void *reply = NULL;
    if (redisReaderGetReply(reader->parser, &reply) != REDIS_OK || !within_bounds(reader)) {
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
