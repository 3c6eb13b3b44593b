/* exporter_page.c -- see exporter_page.h. A page is a row of blocks: the lines that describe a metric, then its
 * samples. Blocks of one metric are found by the name in their TYPE line; engines of other versions may have other
 * blocks. */
#include "exporter_page.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "say.h"
#include "utf8.h"
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

/* A label's value: backslashes, quotes and line ends are escaped. Prometheus takes no page that is not UTF-8: a byte
 * that is not becomes \xHH. */
static void put_label(struct sink *out, const char *name) {
    char escape[8];
    sink_text(out, "socket=\"");
    for (size_t left = strlen(name); left > 0;) {
        size_t step = utf8_size((const unsigned char *)name, left);
        if (step == 0) (void)snprintf(escape, sizeof escape, "\\\\x%02X", (unsigned char)*name);
        if (*name == '\\' || *name == '"') sink_byte(out, '\\');
        if (*name == '\n' || step == 0)
            sink_text(out, step == 0 ? escape : "\\n");
        else
            sink_bytes(out, name, step);
        name += step == 0 ? 1 : step;
        left -= step == 0 ? 1 : step;
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

/* The sockets, and the folder that all patterns have in common: it depends on the patterns alone, so that a label stays
 * as it is whichever sockets there are. */
struct sockets {
    glob_t found;
    char **paths; /* each once */
    size_t count, folder;
    const char *pattern; /* begins with that folder */
};

/* The length of what stands before the last slash, with it. */
static size_t folder_of(const char *text, size_t size) {
    while (size > 0 && text[size - 1] != '/') size--;
    return size;
}

static size_t common_folder(char *const *patterns, size_t count) {
    size_t common = count > 0 ? strlen(patterns[0]) : 0;
    for (size_t i = 0; i < count; i++) {
        size_t same = 0, plain = strcspn(patterns[i], "*?[\\");
        while (same < common && same < plain && patterns[i][same] == patterns[0][same]) same++;
        common = folder_of(patterns[0], same);
    }
    return common;
}

static void find_all(struct sockets *sockets, char *const *patterns, size_t count) {
    *sockets = (struct sockets){.folder = common_folder(patterns, count), .pattern = patterns[0]};
    for (size_t i = 0; i < count; i++) {
        int flags = i > 0 ? GLOB_APPEND : 0;
        if (strpbrk(patterns[i], "*?[") == NULL) flags |= GLOB_NOCHECK; /* it is wanted, whether it is there or not */
        (void)glob(patterns[i], flags, NULL, &sockets->found);
    }
    sockets->paths = sockets->found.gl_pathv;
    for (size_t i = 0; i < sockets->found.gl_pathc; i++) {
        size_t before = 0;
        while (before < sockets->count && strcmp(sockets->paths[before], sockets->paths[i]) != 0) before++;
        if (before < sockets->count) continue;
        char *path = sockets->paths[i]; /* swapped: glob's list keeps all of them, to be freed */
        sockets->paths[i] = sockets->paths[sockets->count];
        sockets->paths[sockets->count++] = path;
    }
}

static const char *label_of(const struct sockets *sockets, size_t number) {
    const char *path = sockets->paths[number];
    return strncmp(path, sockets->pattern, sockets->folder) == 0 ? path + sockets->folder : path;
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

static size_t ask_all(const struct sockets *sockets, char **pages, const char **names, bool *up) {
    size_t answered = 0;
    int64_t until_ms = say_mono_ms() + ALL_MS;
    for (size_t i = 0; i < sockets->count; i++) {
        char why[400];
        size_t size = 0;
        char *page = watched_ask(sockets->paths[i], "metrics", patience_of(until_ms), &size, why, sizeof why);
        up[i] = page != NULL && is_whole(page, size);
        if (up[i]) {
            pages[answered] = page;
            names[answered++] = label_of(sockets, i);
        } else {
            free(page);
        }
    }
    return answered;
}

static void put_up(struct sink *out, const struct sockets *sockets, const bool *up) {
    sink_text(out, "# TYPE tallywheel_exporter_up gauge\n"
                   "# HELP tallywheel_exporter_up 1: the engine behind this socket answered\n");
    for (size_t i = 0; i < sockets->count; i++) {
        sink_text(out, "tallywheel_exporter_up{");
        put_label(out, label_of(sockets, i));
        sink_text(out, up[i] ? "} 1\n" : "} 0\n");
    }
}

size_t exporter_page(char *const *patterns, size_t count, struct sink *out) {
    struct sockets sockets;
    size_t answered = 0;
    find_all(&sockets, patterns, count);
    size_t room = sockets.count + 1;
    char **pages = calloc(room, sizeof *pages);
    const char **names = calloc(room, sizeof *names);
    bool *up = calloc(room, sizeof *up);
    if (pages != NULL && names != NULL && up != NULL) {
        answered = ask_all(&sockets, pages, names, up);
        exporter_join(pages, names, answered, out);
        put_up(out, &sockets, up);
    }
    for (size_t i = 0; i < answered; i++) free(pages[i]);
    free(pages);
    free(names);
    free(up);
    globfree(&sockets.found);
    return answered;
}
