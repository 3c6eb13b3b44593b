/* exporter_page.c -- see exporter_page.h. A page is a row of blocks: the lines that describe a metric, then its
 * samples. Blocks of one metric are found by the name in their TYPE line; engines of other versions may have other
 * blocks. */
#include "exporter_page.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "say.h"
#include "watched.h"

#define ENGINE_MS 2000 /* for the answer of one engine: its page takes it milliseconds */
#define ALL_MS 5000    /* for all of them */
#define LEAST_MS 100   /* but each gets so much */

struct block {
    const char *name; /* of the metric; ended by a space, not by a NUL */
    size_t name_size;
    const char *head, *samples, *end;
    size_t page;
};

struct blocks {
    struct block *all;
    size_t count;
    bool failed;
};

/* ---- taking pages apart ---- */

static void add_block(struct blocks *blocks, const struct block *block) {
    struct block *all = blocks->all;
    if ((blocks->count & (blocks->count - 1)) == 0)
        all = realloc(all, (blocks->count != 0 ? blocks->count * 2 : 1) * sizeof *all);
    if (all == NULL) {
        blocks->failed = true;
        return;
    }
    blocks->all = all;
    all[blocks->count++] = *block;
}

static const char *line_after(const char *line) {
    const char *end = strchr(line, '\n');
    return end != NULL ? end + 1 : line + strlen(line);
}

/* The library writes TYPE first. */
static void take_page(struct blocks *blocks, const char *at, size_t page) {
    static const char type[] = "# TYPE ";
    while (*at != '\0' && !blocks->failed) {
        if (strncmp(at, type, sizeof type - 1) != 0) {
            at = line_after(at);
            continue;
        }
        struct block block = {.name = at + sizeof type - 1, .head = at, .page = page};
        block.name_size = strcspn(block.name, " \n");
        for (at = line_after(at); *at == '#' && strncmp(at, type, sizeof type - 1) != 0;) at = line_after(at);
        block.samples = at;
        while (*at != '\0' && *at != '#') at = line_after(at);
        block.end = at;
        add_block(blocks, &block);
    }
}

/* ---- joining them ---- */

/* A label's value: backslashes, quotes and line ends are escaped. */
static void put_label(struct sink *out, const char *name) {
    sink_text(out, "socket=\"");
    for (const char *at = name; *at != '\0'; at++) {
        if (*at == '\\' || *at == '"') sink_byte(out, '\\');
        sink_text(out, *at == '\n' ? "\\n" : (char[]){*at, '\0'});
    }
    sink_byte(out, '"');
}

/* "name{labels} value" and "name value" get one label more, before the others. */
static void put_sample(struct sink *out, const char *line, const char *end, const char *name) {
    size_t head = strcspn(line, "{ \n");
    sink_bytes(out, line, head);
    sink_byte(out, '{');
    put_label(out, name);
    bool has_labels = line[head] == '{';
    if (has_labels && line[head + 1] != '}') sink_byte(out, ',');
    if (!has_labels) sink_byte(out, '}');
    if (has_labels) head++;
    sink_bytes(out, line + head, (size_t)(end - line) - head);
}

static void put_samples(struct sink *out, const struct block *block, const char *name) {
    for (const char *at = block->samples; at < block->end;) {
        const char *next = line_after(at);
        put_sample(out, at, next, name);
        at = next;
    }
}

static bool is_same(const struct block *a, const struct block *b) {
    return a->name_size == b->name_size && memcmp(a->name, b->name, a->name_size) == 0;
}

void exporter_join(char *const *pages, const char *const *names, size_t count, struct sink *out) {
    struct blocks blocks = {0};
    for (size_t i = 0; i < count; i++) take_page(&blocks, pages[i], i);
    for (size_t i = 0; i < blocks.count && !blocks.failed; i++) {
        const struct block *first = &blocks.all[i];
        bool is_new = true;
        for (size_t other = 0; other < i && is_new; other++) is_new = !is_same(first, &blocks.all[other]);
        if (!is_new) continue;
        sink_bytes(out, first->head, (size_t)(first->samples - first->head));
        for (size_t other = i; other < blocks.count; other++)
            if (is_same(first, &blocks.all[other])) put_samples(out, &blocks.all[other], names[blocks.all[other].page]);
    }
    free(blocks.all);
}

/* ---- asking ---- */

static const char *last_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* A whole page ends with the build. */
static bool is_whole(const char *page, size_t size) {
    const char *build = size > 0 && page[size - 1] == '\n' ? strstr(page, "\ntallywheel_build_info{") : NULL;
    return build != NULL && strlen(page) == size;
}

/* A program that stands still (stopped, or another's socket among ours) holds up the others for less than a scrape may
 * take: Prometheus gives up after ten seconds, and would know nothing of any of them. */
static int64_t patience_of(int64_t until_ms) {
    int64_t left_ms = until_ms - say_mono_ms();
    return left_ms > ENGINE_MS ? ENGINE_MS : left_ms > LEAST_MS ? left_ms : LEAST_MS;
}

static size_t ask_all(char **paths, size_t count, char **pages, const char **names, bool *up) {
    size_t answered = 0;
    int64_t until_ms = say_mono_ms() + ALL_MS;
    for (size_t i = 0; i < count; i++) {
        char why[400];
        size_t size = 0;
        char *page = watched_ask(paths[i], "metrics", patience_of(until_ms), &size, why, sizeof why);
        up[i] = page != NULL && is_whole(page, size);
        if (up[i]) {
            pages[answered] = page;
            names[answered++] = last_part(paths[i]);
        } else {
            free(page);
        }
    }
    return answered;
}

static void put_up(struct sink *out, char **paths, size_t count, const bool *up) {
    sink_text(out, "# TYPE tallywheel_exporter_up gauge\n"
                   "# HELP tallywheel_exporter_up 1: the engine behind this socket answered\n");
    for (size_t i = 0; i < count; i++) {
        sink_text(out, "tallywheel_exporter_up{");
        put_label(out, last_part(paths[i]));
        sink_text(out, up[i] ? "} 1\n" : "} 0\n");
    }
}

size_t exporter_page(char *const *patterns, size_t count, struct sink *out) {
    glob_t found = {0};
    size_t answered = 0;
    for (size_t i = 0; i < count; i++) {
        int flags = i > 0 ? GLOB_APPEND : 0;
        if (strpbrk(patterns[i], "*?[") == NULL) flags |= GLOB_NOCHECK; /* it is wanted, whether it is there or not */
        (void)glob(patterns[i], flags, NULL, &found);
    }
    size_t room = found.gl_pathc + 1;
    char **pages = calloc(room, sizeof *pages);
    const char **names = calloc(room, sizeof *names);
    bool *up = calloc(room, sizeof *up);
    if (pages != NULL && names != NULL && up != NULL) {
        answered = ask_all(found.gl_pathv, found.gl_pathc, pages, names, up);
        exporter_join(pages, names, answered, out);
        put_up(out, found.gl_pathv, found.gl_pathc, up);
    }
    for (size_t i = 0; i < answered; i++) free(pages[i]);
    free(pages);
    free(names);
    free(up);
    globfree(&found);
    return answered;
}
