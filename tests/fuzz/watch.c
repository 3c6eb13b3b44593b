/* watch.c -- any bytes as a request on the watch socket, and any bytes as a key: an answer is whole lines of known
 * kinds, without control characters. Each request is asked of a socket that does not write, where it changes nothing.
 * Then it is asked of one that writes, where a `reset` sets one count to 0 and changes nothing else. The first line of
 * the input is the request, the rest is a key. */
#include <stdlib.h>

#include "extras/watch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static tw_engine *engine;
static tw_family *views, *rates;

static void open_once(void) {
    tw_options options;
    tw_family_options family;
    if (engine != NULL) return;
    tw_options_init(&options);
    options.threads = TW_HOST_DRIVEN;
    options.memory_bytes_max = UINT64_C(4) << 20;
    tw_family_options_init(&family);
    family.name = "views";
    family.window = TW_WINDOW_FOREVER;
    family.keys_max = 100; /* an answer looks at all keys */
    family.on_full = TW_ON_FULL_REJECT;
    if (tw_open(&options, &engine) != TW_OK || tw_family_open(engine, &family, &views) != TW_OK) abort();
    family.name = "rates"; /* tw_top() refuses this one */
    family.window = TW_WINDOW_ALIGNED;
    family.limit_shape = TW_SHAPE_GCRA;
    if (tw_family_open(engine, &family, &rates) != TW_OK) abort();
}

/* What a request may change: the sum of all counts, how many are not 0, how many there are, and the calls. */
struct state {
    int64_t sum, live, keys, increments, entries;
};

static bool add_up(void *ctx, const tw_count *count) {
    struct state *state = ctx;
    state->sum += count->view;
    state->live += count->view != 0;
    state->keys++;
    return true;
}

static struct state look(void) {
    tw_stats stats;
    struct state state = {0};
    (void)tw_stats_read(engine, &stats);
    if (tw_each(views, TW_NOW, add_up, &state) != TW_OK) abort();
    state.increments = stats.increments;
    state.entries = stats.entries;
    return state;
}

static bool begins(const char *line, size_t size, const char *word) {
    return size >= strlen(word) && memcmp(line, word, strlen(word)) == 0;
}

static void check_line(const char *line, size_t size) {
    static const char *const kinds[] = {"tallywheel\t", "now_ms\t", "process\t",   "stat\t",  "last_error\t",
                                        "family\t",     "top\t",    "key\t",       "reset\t", "error\t",
                                        "end",          "#",        "tallywheel_", "status ", "top ",
                                        "key ",         "reset ",   "metrics ",    "openm",   "help"};
    for (size_t i = 0; i < size; i++)
        if (((unsigned char)line[i] < ' ' && line[i] != '\t') || line[i] == 127) abort();
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (begins(line, size, kinds[i])) return;
    abort();
}

static void check(const struct twi_watch_text *text) {
    if (text->failed || text->size == 0 || text->bytes[text->size - 1] != '\n') abort();
    for (size_t at = 0, next; at < text->size; at = next + 1) {
        next = (size_t)((const char *)memchr(text->bytes + at, '\n', text->size - at) - text->bytes);
        check_line(text->bytes + at, next - at);
    }
}

/* An answer to `reset` of a counter that was there, and how much that took away. */
static bool has_reset(const struct twi_watch_text *text, int64_t *taken) {
    static const char head[] = "reset\tviews\t1\t";
    if (!begins(text->bytes, text->size, head)) return false;
    *taken = strtoll(text->bytes + sizeof head - 1, NULL, 10);
    return true;
}

/* `request` is as long as it is, so that AddressSanitizer sees its end. */
static void ask(const char *request, size_t size, bool writes) {
    struct twi_watch_text text = {.bytes = NULL};
    struct state before = look();
    int64_t taken = 0;
    twi_watch_answer(&(struct twi_watch_scope){.engine = engine, .writes = writes}, request, size, &text);
    check(&text);
    struct state after = look();
    bool reset = has_reset(&text, &taken);
    if (reset && !writes) abort();
    if (after.keys != before.keys || after.entries != before.entries || after.sum != before.sum - taken ||
        after.live != before.live - (taken != 0) || after.increments != before.increments + reset)
        abort();
    free(text.bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *end = size > 0 ? memchr(data, '\n', size) : NULL;
    size_t asked = end != NULL ? (size_t)(end - data) : size, key = end != NULL ? size - asked - 1 : 0;
    open_once();
    if (key > 0 && key <= TW_KEY_SIZE_MAX)
        (void)tw_add(views, tw_bytes(end + 1, key), 1, NULL); /* full soon: refused */
    char *request = malloc(asked > 0 ? asked : 1);
    if (request == NULL) return 0;
    memcpy(request, data, asked);
    ask(request, asked, false);
    ask(request, asked, true);
    free(request);
    return 0;
}
