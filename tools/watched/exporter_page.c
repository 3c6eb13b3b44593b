/* exporter_page.c -- see exporter_page.h. A page is a row of blocks. A block has the lines that describe a metric, then
 * its samples. Blocks of one metric are found by the name in their TYPE line; engines of other versions may have other
 * blocks. */
#include "tools/watched/exporter_page.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/watched/exporter_sample.h"
#include "tools/common/stop.h"
#include "tools/common/text.h"
#include "tools/common/utf8.h"

#define NONE SIZE_MAX

static const char type_line[] = "# TYPE ", help_line[] = "# HELP ";

struct block {
    struct exporter_text name; /* of the metric */
    const char *head, *samples, *end;
    size_t source;
    size_t next; /* the next block of the same metric; NONE */
    size_t last; /* in the first block, the last one of its metric */
    bool is_first;
};

/* A sound page ends with a line. memchr() reads no further; strchr() under a sanitizer reads the whole rest. */
static const char *end_of_line(const char *line) {
    return memchr(line, '\n', EXPORTER_PAGE_BYTES_MAX);
}

static bool begins(const char *line, const char *with) {
    return strncmp(line, with, strlen(with)) == 0;
}

/* ---- taking pages apart ---- */

/* The block at or behind `*at`, which continues behind it. Returns false if there are no more. The library writes TYPE
 * first. */
static bool block_take(const char **at, struct block *block) {
    const char *line = *at;
    while (*line != '\0' && !begins(line, type_line)) line = end_of_line(line) + 1;
    *at = line;
    if (*line == '\0') return false;
    *block = (struct block){.head = line, .next = NONE};
    block->name.at = line + sizeof type_line - 1;
    const char *end = end_of_line(line), *space = memchr(block->name.at, ' ', (size_t)(end - block->name.at));
    block->name.size = (size_t)((space != NULL ? space : end) - block->name.at);
    for (line = end + 1; *line == '#' && !begins(line, type_line);) line = end_of_line(line) + 1;
    block->samples = line;
    while (*line != '\0' && *line != '#') line = end_of_line(line) + 1;
    *at = block->end = line;
    return true;
}

/* The samples of a histogram have suffixes. */
static bool page_is_of(struct exporter_text sample, struct exporter_text metric) {
    static const char *const suffixes[] = {"", "_bucket", "_count", "_sum"};
    if (sample.size < metric.size || memcmp(sample.at, metric.at, metric.size) != 0) return false;
    struct exporter_text rest = {sample.at + metric.size, sample.size - metric.size};
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
        if (exporter_same(rest, (struct exporter_text){suffixes[i], strlen(suffixes[i])})) return true;
    return false;
}

/* Returns whether it is one of the library's metrics, and not another program's, or one that the exporter adds. */
static bool is_own(struct exporter_text metric) {
    static const char prefix[] = "tallywheel_", ours[] = "tallywheel_exporter_";
    return metric.size > sizeof prefix - 1 && memcmp(metric.at, prefix, sizeof prefix - 1) == 0 &&
           (metric.size < sizeof ours - 1 || memcmp(metric.at, ours, sizeof ours - 1) != 0);
}

static bool block_is_sound(const struct block *block, size_t *lines) {
    struct exporter_sample sample;
    struct exporter_text name;
    if (!exporter_type_read(block->head, end_of_line(block->head), &name) || !is_own(name)) return false;
    for (const char *at = block->samples; at < block->end; at = end_of_line(at) + 1) {
        if (++*lines > EXPORTER_LINES_MAX || !exporter_sample_read(at, end_of_line(at), &sample)) return false;
        if (!page_is_of(sample.name, name)) return false;
    }
    return true;
}

/* A whole page ends with the build. */
bool exporter_page_is_sound(const char *page, size_t size) {
    struct block block;
    size_t lines = 0, blocks = 0;
    const char *at = page;
    bool sound = size > 0 && size <= EXPORTER_PAGE_BYTES_MAX && page[size - 1] == '\n' && strlen(page) == size &&
                 strstr(page, "\ntallywheel_build_info{") != NULL && utf8_is_valid((const unsigned char *)page, size);
    while (sound && block_take(&at, &block))
        sound = stop_signal() == 0 && ++blocks <= EXPORTER_METRICS_MAX && block_is_sound(&block, &lines);
    return sound;
}

/* ---- blocks by the names of their metrics ---- */

struct blocks {
    struct block *all;
    size_t count, room;
    size_t *slots; /* first blocks by a hash of the name; NONE means a free slot */
    size_t slot_count;
    bool failed;
};

static size_t page_hash_of(struct exporter_text name) {
    uint64_t hash = text_hash(TEXT_HASH_BEGIN, name.at, name.size);
    return (size_t)(hash ^ hash >> 32);
}

/* The slot of a name. It has the first block, or is free. A quarter of the slots is free, at least. */
static size_t *page_slot_of(const struct blocks *blocks, struct exporter_text name) {
    size_t at = page_hash_of(name) & (blocks->slot_count - 1);
    while (blocks->slots[at] != NONE && !exporter_same(blocks->all[blocks->slots[at]].name, name))
        at = (at + 1) & (blocks->slot_count - 1);
    return &blocks->slots[at];
}

static void slots_fill(struct blocks *blocks) {
    blocks->slot_count = blocks->room * 2;
    blocks->slots = realloc(blocks->slots, blocks->slot_count * sizeof *blocks->slots);
    blocks->failed = blocks->failed || blocks->slots == NULL;
    for (size_t i = 0; !blocks->failed && i < blocks->slot_count; i++) blocks->slots[i] = NONE;
    for (size_t i = 0; !blocks->failed && i < blocks->count; i++)
        if (blocks->all[i].is_first) *page_slot_of(blocks, blocks->all[i].name) = i;
}

static void blocks_grow(struct blocks *blocks) {
    size_t room = blocks->room != 0 ? blocks->room * 2 : 512;
    struct block *all = realloc(blocks->all, room * sizeof *all);
    blocks->failed = blocks->failed || all == NULL;
    if (all == NULL) return;
    blocks->all = all;
    blocks->room = room;
    slots_fill(blocks);
}

static void block_add(struct blocks *blocks, const struct block *block) {
    if (blocks->count == blocks->room) blocks_grow(blocks);
    if (blocks->failed) return;
    size_t *slot = page_slot_of(blocks, block->name), number = blocks->count++;
    struct block *added = &blocks->all[number];
    *added = *block;
    added->last = number;
    added->is_first = *slot == NONE;
    if (added->is_first) {
        *slot = number;
    } else {
        struct block *first = &blocks->all[*slot];
        blocks->all[first->last].next = number;
        first->last = number;
    }
}

/* ---- joining them ---- */

/* A label's value. Backslashes, quotes and line ends are escaped. Prometheus accepts no page that is not UTF-8. A byte
 * that is not becomes \xHH. */
void exporter_put_label(struct sink *out, const char *socket) {
    char escape[8];
    sink_text(out, "socket=\"");
    for (size_t left = strlen(socket); left > 0;) {
        size_t step = utf8_size((const unsigned char *)socket, left);
        if (step == 0) (void)snprintf(escape, sizeof escape, "\\\\x%02X", (unsigned char)*socket);
        if (*socket == '\\' || *socket == '"') sink_byte(out, '\\');
        if (*socket == '\n' || step == 0)
            sink_text(out, step == 0 ? escape : "\\n");
        else
            sink_bytes(out, socket, step);
        socket += step == 0 ? 1 : step;
        left -= step == 0 ? 1 : step;
    }
    sink_byte(out, '"');
}

/* A label of the program's own that is called socket is exported_socket here, as Prometheus does with labels that it
 * sets itself; and so on, should the program have that one, too. */
static void put_label_name(struct sink *out, const struct exporter_sample *sample, struct exporter_text name) {
    static const char more[] = "exported_", own[] = "socket";
    size_t size = name.size;
    bool is_chain = size >= sizeof own - 1 && (size - (sizeof own - 1)) % (sizeof more - 1) == 0 &&
                    memcmp(name.at + size - (sizeof own - 1), own, sizeof own - 1) == 0;
    for (size_t at = 0; is_chain && at < size - (sizeof own - 1); at += sizeof more - 1)
        is_chain = memcmp(name.at + at, more, sizeof more - 1) == 0;
    bool has_own = false;
    for (size_t i = 0; i < sample->label_count; i++)
        has_own = has_own || exporter_same(sample->labels[i], (struct exporter_text){own, sizeof own - 1});
    if (is_chain && has_own) sink_text(out, more);
    sink_bytes(out, name.at, size);
}

/* The label of the socket comes before the others. */
static void put_sample(struct sink *out, const char *line, const char *socket) {
    struct exporter_sample sample;
    if (!exporter_sample_read(line, end_of_line(line), &sample)) return;
    sink_bytes(out, sample.name.at, sample.name.size);
    sink_byte(out, '{');
    exporter_put_label(out, socket);
    for (size_t i = 0; i < sample.label_count; i++) {
        sink_byte(out, ',');
        put_label_name(out, &sample, sample.labels[i]);
        sink_byte(out, '=');
        sink_bytes(out, sample.values[i].at, sample.values[i].size);
    }
    sink_text(out, "} ");
    sink_bytes(out, sample.value.at, sample.value.size);
    sink_byte(out, '\n');
}

/* TYPE, and the text of HELP of this metric. */
static void page_put_head(struct sink *out, const struct block *block) {
    const char *end = end_of_line(block->head) + 1;
    sink_bytes(out, block->head, (size_t)(end - block->head));
    for (const char *at = end; at < block->samples; at = end) {
        const char *name = at + sizeof help_line - 1;
        end = end_of_line(at) + 1;
        if (!begins(at, help_line) || strncmp(name, block->name.at, block->name.size) != 0) continue;
        if (name[block->name.size] != ' ') continue;
        sink_bytes(out, at, (size_t)(end - at));
        return;
    }
}

void exporter_join(const struct exporter_source *sources, size_t count, struct sink *out) {
    struct blocks blocks = {0};
    struct block block;
    for (size_t i = 0; i < count; i++)
        for (const char *at = sources[i].page; !blocks.failed && block_take(&at, &block);) {
            block.source = i;
            block_add(&blocks, &block);
        }
    if (blocks.failed) out->error = ENOMEM;
    for (size_t i = 0; i < blocks.count && !blocks.failed; i++) {
        if (!blocks.all[i].is_first) continue;
        page_put_head(out, &blocks.all[i]);
        for (size_t one = i; one != NONE && stop_signal() == 0; one = blocks.all[one].next) {
            const struct block *part = &blocks.all[one];
            for (const char *at = part->samples; at < part->end; at = end_of_line(at) + 1)
                put_sample(out, at, sources[part->source].socket);
        }
    }
    free(blocks.slots);
    free(blocks.all);
}
