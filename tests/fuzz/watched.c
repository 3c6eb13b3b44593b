/* watched.c -- any bytes as what a watch socket answers. It is refused, or the look that comes of it is shown, as a
 * page and as JSON, without a control character and with its quotes in pairs. What is before the first NUL is the
 * status, the rest the keys, and also the answer to a reset. */
#include <stdlib.h>
#include <string.h>

#include "tools/top/top.h"
#include "tools/common/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *copy(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1); /* as long as it is, so that AddressSanitizer sees its end */
    if (text == NULL) abort();
    memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

static void check_text(const char *text, size_t size) {
    for (size_t at = 0, step; at < size; at += step) {
        const unsigned char *byte = (const unsigned char *)text + at;
        step = utf8_size(byte, size - at);
        if (step == 0 || utf8_moves_text(byte, step)) abort();
        if (utf8_is_control(byte, step) && *byte != '\n') abort();
    }
}

/* Outside of strings JSON has no quote, within them each is escaped. */
static void check_json(const char *text, size_t size) {
    bool quoted = false;
    int depth = 0;
    check_text(text, size);
    for (size_t i = 0; i < size; i++) {
        if (quoted && text[i] == '\\')
            i++;
        else if (text[i] == '"')
            quoted = !quoted;
        else if (!quoted)
            depth += text[i] == '{' || text[i] == '[' ? 1 : text[i] == '}' || text[i] == ']' ? -1 : 0;
    }
    if (quoted || depth != 0) abort();
}

static void show(const struct watched *look) {
    struct top_view view = {look, NULL, look->family_count > 0 ? look->families[0].name : NULL, NULL};
    struct page page;
    struct sink sink;
    if (!page_begin(&page, 80, 24) || !sink_open(&sink, -1)) abort();
    top_draw(&page, &view);
    for (size_t i = 0; i < page.count; i++) {
        check_text(page.lines[i].text, strlen(page.lines[i].text));
        if (page_columns(page.lines[i].text, strlen(page.lines[i].text)) > 80) abort();
    }
    top_json(&sink, &view, true);
    check_json(sink.buffer, sink.size);
    sink_close(&sink);
    page_free(&page);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *cut = size > 0 ? memchr(data, 0, size) : NULL;
    size_t first = cut != NULL ? (size_t)(cut - data) : size;
    struct watched look = {.last_error = ""};
    look.status = copy(data, first);
    look.top = copy(data + first + (cut != NULL), size - first - (cut != NULL));
    bool good = watched_read_status(&look, look.status);
    if (good && watched_read_top(&look, look.top)) show(&look);
    watched_free(&look);
    char why[80] = "", *reset = copy(data + first + (cut != NULL), size - first - (cut != NULL));
    int64_t taken = 0;
    if ((watched_read_reset(reset, &taken, why, sizeof why) == WATCHED_RESET) != (why[0] == '\0')) abort();
    free(reset);
    return 0;
}
