/* exporter_page.c -- any bytes as the pages of three engines: a page that is taken for sound joins with others to one
 * page whose lines are all understood, each metric described once, each sample with the label of its socket. */
#include <stdlib.h>
#include <string.h>

#include "tools/watched/exporter_page.h"
#include "tools/watched/exporter_sample.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PAGES 3u

static void check_sample(const char *line, const char *end) {
    struct exporter_sample sample;
    if (!exporter_sample_read(line, end, &sample) || sample.label_count == 0) abort();
    if (!exporter_same(sample.labels[0], (struct exporter_text){"socket", 6})) abort();
}

/* The names of the metrics follow each other in the text, each described once. */
static void check_page(const char *page) {
    struct exporter_text names[64], name;
    size_t count = 0;
    for (const char *line = page, *end; *line != '\0'; line = end + 1) {
        end = strchr(line, '\n');
        if (end == NULL) abort();
        if (*line != '#') check_sample(line, end);
        if (strncmp(line, "# TYPE ", 7) != 0) continue;
        if (!exporter_type_read(line, end, &name)) abort();
        for (size_t i = 0; i < count; i++)
            if (exporter_same(names[i], name)) abort();
        if (count < 64) names[count++] = name;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const sockets[PAGES] = {"a.sock", "b\xff\"\\\n", ""};
    struct exporter_source sources[PAGES];
    char *pages[PAGES] = {NULL};
    size_t count = 0;
    for (size_t i = 0; i < PAGES; i++) {
        const uint8_t *cut = i + 1 < PAGES && size > 0 ? memchr(data, 0, size) : NULL;
        size_t length = cut != NULL ? (size_t)(cut - data) : size;
        pages[i] = malloc(length + 1); /* as long as it is, so that AddressSanitizer sees its end */
        if (pages[i] == NULL) abort();
        memcpy(pages[i], data, length);
        pages[i][length] = '\0';
        if (exporter_page_is_sound(pages[i], length))
            sources[count++] = (struct exporter_source){pages[i], length, sockets[i]};
        data += cut != NULL ? length + 1 : length;
        size -= cut != NULL ? length + 1 : length;
    }
    struct sink out;
    if (!sink_open(&out, -1)) abort();
    exporter_join(sources, count, &out);
    sink_byte(&out, '\0');
    check_page(out.buffer);
    sink_close(&out);
    for (size_t i = 0; i < PAGES; i++) free(pages[i]);
    return 0;
}
