/* stats_test.c -- pages of metrics: well-formed by a small validator of our own, complete, in base units, in both
 * formats. The validator knows the part of OpenMetrics 1.0 and of Prometheus's text that is used: metadata lines before
 * samples, one block per metric, names, types, units, labels, numbers, "# EOF" as OpenMetrics' last line.
 * Elsewhere: what promtool and a real Prometheus say (tests/cli/metrics.py). */
#include "tests/support/support.h"

#include "engine/core/metric_labels.h"
#include "engine/core/options.h"
#include "engine/stats.h"

#include <ctype.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

struct text {
    char bytes[1 << 17];
    size_t size;
    size_t pieces;
    size_t pieces_max;
};

static bool text_write(void *ctx, const char *bytes, size_t size) {
    struct text *text = ctx;
    if (text->pieces == text->pieces_max) return false;
    assert_true(text->size + size < sizeof text->bytes);
    memcpy(text->bytes + text->size, bytes, size);
    text->size += size;
    text->bytes[text->size] = '\0';
    text->pieces++;
    return true;
}

/* As tw_metrics_write() does it. */
static tw_status write_page(const tw_stats *stats, const struct twi_family_limit_stats *families, size_t count,
                            uint32_t format, const char *labels, struct text *text) {
    struct twi_metrics_page page = {.labels = labels, .write = text_write, .ctx = text};
    assert_true(twi_metrics_page_of(format, &page));
    return twi_stats_write(stats, families, count, &page);
}

static struct text text_of(const tw_stats *stats, uint32_t format) {
    static struct text text;
    text = (struct text){.pieces_max = SIZE_MAX};
    assert_status(write_page(stats, NULL, 0, format, NULL, &text), TW_OK);
    return text;
}

/* ---- the validator ----------------------------------------------------------------------------------------------- */

struct block {
    char name[100], type[300], unit[300];
    bool has_help, has_sample, is_by_family, is_open;
};

static size_t name_size(const char *text) {
    size_t size = 0;
    while (isalnum((unsigned char)text[size]) || text[size] == '_') size++;
    return isdigit((unsigned char)text[0]) ? 0 : size;
}

static bool ends_with(const char *text, const char *end) {
    return strlen(text) >= strlen(end) && strcmp(text + strlen(text) - strlen(end), end) == 0;
}

static void block_check_whole(const struct block *block) {
    if (block->name[0] == '\0') return;
    if (!block->has_sample || !block->has_help) fail_msg("%s: no sample or no HELP", block->name);
    bool named =
        ends_with(block->name, "_seconds") || ends_with(block->name, "_bytes") || ends_with(block->name, "_ratio");
    assert_int_equal(block->is_open && named, block->unit[0] != '\0');
    if (block->is_open && (ends_with(block->name, "_total") || ends_with(block->name, "_info")))
        fail_msg("%s: the suffix is the sample's", block->name);
    if (!block->is_open && (strcmp(block->type, "counter") == 0) != ends_with(block->name, "_total"))
        fail_msg("%s: counters, and no others, end in _total", block->name);
}

static void metadata_line(struct block *block, const char *line) {
    char kind[10], name[100], rest[300];
    if (sscanf(line, "# %9[A-Z] %99s %299[^\n]", kind, name, rest) != 3) fail_msg("no metadata: %s", line);
    if (strcmp(kind, "TYPE") == 0) {
        block_check_whole(block);
        *block = (struct block){.is_open = block->is_open};
        snprintf(block->name, sizeof block->name, "%s", name);
        snprintf(block->type, sizeof block->type, "%s", rest);
        assert_true(strcmp(rest, "gauge") == 0 || strcmp(rest, "counter") == 0 ||
                    (block->is_open && strcmp(rest, "info") == 0) || strcmp(rest, "histogram") == 0);
        block->is_by_family = strncmp(name, "tallywheel_family_", strlen("tallywheel_family_")) == 0;
        return;
    }
    assert_string_equal(name, block->name);
    assert_false(block->has_sample);
    if (strcmp(kind, "UNIT") == 0) {
        assert_string_equal(block->unit, "");
        snprintf(block->unit, sizeof block->unit, "%s", rest);
        assert_true(ends_with(name, rest) && name[strlen(name) - strlen(rest) - 1] == '_');
    } else {
        assert_string_equal(kind, "HELP");
        assert_false(block->has_help);
        assert_null(strpbrk(rest, "\"\\"));
        block->has_help = true;
    }
}

/* Behind the braces. `labels`: what must are at their beginning or behind a comma; NULL: nothing in particular. */
static const char *labels_end(const char *at, const char *labels) {
    bool quoted = false, found = labels == NULL;
    for (const char *begin = at; quoted || *at != '}'; at++) {
        assert_true(*at != '\n' && *at != '\0');
        if (!quoted && (*at == '{' || *at == ',') && labels != NULL && strncmp(at + 1, labels, strlen(labels)) == 0)
            found = at[1 + strlen(labels)] == '}';
        if (at > begin && *at == '"' && at[-1] != '\\') quoted = !quoted;
    }
    if (!found) fail_msg("no %s", labels);
    return at + 1;
}

static void sample_line(struct block *block, const char *line, const char *labels) {
    char want[120];
    const char *suffix = !block->is_open                       ? ""
                         : strcmp(block->type, "counter") == 0 ? "_total"
                         : strcmp(block->type, "info") == 0    ? "_info"
                                                               : "";
    if (strcmp(block->type, "histogram") == 0) {
        const char *rest = strncmp(line, block->name, strlen(block->name)) == 0 ? line + strlen(block->name) : line;
        suffix = strncmp(rest, "_bucket", 7) == 0 ? "_bucket" : strncmp(rest, "_count", 6) == 0 ? "_count" : "_sum";
    }
    snprintf(want, sizeof want, "%s%s", block->name, suffix);
    size_t size = name_size(line);
    if (size != strlen(want) || memcmp(line, want, size) != 0) fail_msg("%s does not belong to %s", line, block->name);
    const char *value = line + size;
    if (*value == '{') value = labels_end(value, labels);
    assert_int_equal(*value, ' ');
    char *end;
    double number = strtod(value + 1, &end);
    assert_int_equal(*end, '\n');
    assert_false(isnan(number));
    assert_true(block->is_by_family || !block->has_sample);
    block->has_sample = true;
}

/* Returns how many metrics the text has. `labels`: what each sample must bear, or NULL. */
static size_t validate_as(const struct text *text, uint32_t format, const char *labels) {
    size_t count = 0;
    struct block block = {.is_open = format != TW_METRICS_PROMETHEUS};
    const char *line = text->bytes, *last = format == TW_METRICS_OPENMETRICS ? "# EOF\n" : "";
    while (strcmp(line, last) != 0) {
        const char *end = strchr(line, '\n');
        if (end == NULL) fail_msg("ends in \"%s\", not in # EOF", line);
        assert_true(end > line);
        if (*line == '#') {
            count += strncmp(line, "# TYPE ", 7) == 0;
            metadata_line(&block, line);
        } else {
            if (labels != NULL) assert_int_equal(line[strcspn(line, " {")], '{');
            sample_line(&block, line, labels);
        }
        line = end + 1;
    }
    block_check_whole(&block);
    return count;
}

static size_t validate(const struct text *text) {
    return validate_as(text, TW_METRICS_OPENMETRICS, NULL);
}

static const uint32_t formats[] = {TW_METRICS_PROMETHEUS, TW_METRICS_OPENMETRICS,
                                   TW_METRICS_OPENMETRICS | TW_METRICS_NO_EOF};

/* ---- tests ------------------------------------------------------------------------------------------------------- */

#define COUNT_ONE(name, kind, text) +1
enum { FIELDS = 0 TW_STATS(COUNT_ONE), OF_FAMILIES = 5 };

static void assert_has_line(const struct text *text, const char *line) {
    char framed[300];
    snprintf(framed, sizeof framed, "\n%s\n", line);
    if (strstr(text->bytes, framed) == NULL && strncmp(text->bytes, framed + 1, strlen(framed) - 1) != 0) {
        fail_msg("no line \"%s\"", line);
    }
}

TEST(the_text_is_well_formed_whatever_the_values) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (size_t round = 0; round < test_scale(200); round++) {
        tw_stats stats = {0};
        int64_t *fields = (int64_t *)(void *)&stats;
        for (size_t index = 0; index < FIELDS; index++) {
            const int64_t edges[] = {0, -1, 1, 999, 1000, INT64_MAX, INT64_MIN, -999};
            fields[index] =
                test_prng_chance(&prng, 1, 2) ? edges[test_prng_below(&prng, 8)] : (int64_t)test_prng_next(&prng);
        }
        strcpy(stats.last_error, "password\n# EOF\"}");
        uint32_t format = formats[round % 3];
        struct text text = text_of(&stats, format);
        assert_int_equal(validate_as(&text, format, NULL), FIELDS + 1);
        assert_null(strstr(text.bytes, "password"));
        assert_int_equal(text.pieces, FIELDS + 1 + (format == TW_METRICS_OPENMETRICS));
    }
}

TEST(no_private_unit_is_left_and_eof_comes_once_and_last) {
    tw_stats stats = {0};
    for (size_t i = 0; i < 3; i++) {
        struct text page = text_of(&stats, formats[i]);
        assert_null(strstr(page.bytes, "_ms"));
        assert_null(strstr(page.bytes, "_total_total"));
        if (formats[i] != TW_METRICS_OPENMETRICS) assert_null(strstr(page.bytes, "# EOF"));
    }
    struct text text = text_of(&stats, TW_METRICS_OPENMETRICS);
    assert_null(strstr(text.bytes, "_ms"));
    assert_null(strstr(text.bytes, "_total_total"));
    assert_string_equal(text.bytes + text.size - 6, "# EOF\n");
    assert_ptr_equal(strstr(text.bytes, "# EOF"), text.bytes + text.size - 6);
}

TEST(values_are_in_base_units) {
    tw_stats stats = {.increments = 5,
                      .memory_bytes = 1,
                      .memory_bytes_high = 2,
                      .memory_bytes_max = 3,
                      .clock_held_ms = 1250,
                      .clock_lag_max_ms = 7,
                      .sync_age_ms = -1,
                      .redis_clock_offset_ms = -1,
                      .unsent_keys = 4,
                      .lost = 6};
    struct text plain = text_of(&stats, TW_METRICS_PROMETHEUS);
    assert_has_line(&plain, "# TYPE tallywheel_increments_total counter");
    assert_has_line(&plain, "# HELP tallywheel_increments_total adds that returned TW_OK or TW_OVERFLOWED, and calls "
                            "whose units a limit counted here");
    assert_has_line(&plain, "tallywheel_increments_total 5");
    assert_has_line(&plain, "# TYPE tallywheel_build_info gauge");
    assert_null(strstr(plain.bytes, "# UNIT"));
    struct text text = text_of(&stats, TW_METRICS_OPENMETRICS);
    assert_has_line(&text, "# TYPE tallywheel_increments counter");
    assert_has_line(&text, "# HELP tallywheel_increments adds that returned TW_OK or TW_OVERFLOWED, and calls "
                           "whose units a limit counted here");
    assert_has_line(&text, "tallywheel_increments_total 5");
    assert_has_line(&text, "# UNIT tallywheel_memory_bytes bytes");
    assert_has_line(&text, "tallywheel_memory_bytes 1");
    assert_has_line(&text, "tallywheel_memory_high_bytes 2");
    assert_has_line(&text, "tallywheel_memory_max_bytes 3");
    assert_has_line(&text, "# TYPE tallywheel_clock_held_seconds gauge");
    assert_has_line(&text, "# UNIT tallywheel_clock_held_seconds seconds");
    assert_has_line(&text, "tallywheel_clock_held_seconds 1.250");
    assert_has_line(&text, "tallywheel_clock_lag_max_seconds 0.007");
    assert_has_line(&text, "tallywheel_sync_age_seconds -1"); /* none yet, as its HELP says */
    assert_has_line(&text, "tallywheel_redis_clock_offset_seconds -0.001");
    assert_has_line(&text, "tallywheel_unsent_keys 4");
    assert_has_line(&text, "tallywheel_lost_total 6");
    char build[100];
    snprintf(build, sizeof build, "tallywheel_build_info{version=\"%s\"} 1", tw_version());
    assert_has_line(&text, build);
}

TEST(families_have_samples_of_their_own) {
    static struct text text;
    tw_stats stats = {0};
    struct twi_family_limit_stats families[3] = {
        {.name = "a", .limits = {.admitted = 1, .denied = {[TW_CAUSE_LIMIT] = 2, [TW_CAUSE_BUYER] = 5}}},
        {.name = "b.c-d_e",
         .is_measured = true,
         .limits = {.near = INT64_MAX, .overshoots = {3, 0, 0, 0, 2, 0, 0, 0, 1}, .overshoot_ppm = 1000020001}},
        {.is_measured = true}};
    memset(families[2].name, 'x', 64);
    text = (struct text){.pieces_max = SIZE_MAX};
    assert_status(write_page(&stats, families, 3, TW_METRICS_OPENMETRICS, NULL, &text), TW_OK);
    assert_int_equal(validate(&text), FIELDS + 5 + 1 + 1);
    assert_has_line(&text, "tallywheel_family_limit_denied_total{family=\"a\",cause=\"limit\"} 2");
    assert_has_line(&text, "tallywheel_family_limit_denied_total{family=\"a\",cause=\"outage\"} 0");
    assert_has_line(&text, "tallywheel_family_limit_denied_total{family=\"a\",cause=\"buyer\"} 5");
    assert_has_line(&text, "tallywheel_family_limit_near_total{family=\"b.c-d_e\"} 9223372036854775807");
    assert_has_line(&text, "# UNIT tallywheel_family_limit_overshoot_ratio ratio");
    const char *name = "tallywheel_family_limit_overshoot_ratio";
    const struct {
        const char *rest;
        int value;
    } buckets[] = {{"le=\"0.0\"", 3}, {"le=\"0.01\"", 3}, {"le=\"0.03\"", 5}, {"le=\"1.0\"", 5}, {"le=\"+Inf\"", 6}};
    for (size_t i = 0; i < sizeof buckets / sizeof *buckets; i++) {
        char line[200];
        snprintf(line, sizeof line, "%s_bucket{family=\"b.c-d_e\",%s} %d", name, buckets[i].rest, buckets[i].value);
        assert_has_line(&text, line);
    }
    assert_has_line(&text, "tallywheel_family_limit_overshoot_ratio_count{family=\"b.c-d_e\"} 6");
    assert_has_line(&text, "tallywheel_family_limit_overshoot_ratio_sum{family=\"b.c-d_e\"} 1000.020001");
    assert_null(strstr(text.bytes, "ratio_sum{family=\"a\""));
}

TEST(every_sample_bears_the_labels_of_the_program) {
    char longest[TWI_LABELS_BYTES_MAX + 1];
    memset(longest, 'v', sizeof longest - 1);
    memcpy(longest, "long=\"", 6);
    longest[sizeof longest - 2] = '"';
    longest[sizeof longest - 1] = '\0';
    const char *const labels[] = {"a=\"1\"", "service=\"shop\",zone=\"a \\\"b\\\\\\n}\"", longest};
    tw_stats stats = {0};
    struct twi_family_limit_stats families[2] = {{.name = "a", .limits = {.admitted = 1}},
                                                 {.is_measured = true, .limits = {.overshoots = {3}}}};
    memset(families[1].name, 'x', 64);
    for (size_t i = 0; i < 9; i++) {
        static struct text text;
        text = (struct text){.pieces_max = SIZE_MAX};
        assert_status(write_page(&stats, families, 2, formats[i % 3], labels[i / 3], &text), TW_OK);
        assert_int_equal(validate_as(&text, formats[i % 3], labels[i / 3]), FIELDS + 5 + 1 + 1);
    }
}

/* Goal: what comes back is our page and the program's own as one that is well-formed.
 * Method: the two ways that the header names, the program's own metrics before and behind. */
TEST(pages_can_be_joined_with_the_programs_own) {
    static struct text text;
    tw_stats stats = {0};
    const char *own = "# TYPE shop_orders gauge\n# HELP shop_orders orders\nshop_orders 3\n", *end = "# EOF\n";
    for (size_t i = 0; i < 3; i++) {
        text = (struct text){.pieces_max = SIZE_MAX};
        assert_true(text_write(&text, own, strlen(own)));
        assert_status(write_page(&stats, NULL, 0, formats[i], NULL, &text), TW_OK);
        assert_int_equal(validate_as(&text, formats[i], NULL), 1 + FIELDS + 1);
        if (formats[i] == TW_METRICS_OPENMETRICS) continue;
        text = (struct text){.pieces_max = SIZE_MAX};
        assert_status(write_page(&stats, NULL, 0, formats[i], NULL, &text), TW_OK);
        assert_true(text_write(&text, own, strlen(own)));
        if (formats[i] != TW_METRICS_PROMETHEUS) assert_true(text_write(&text, end, strlen(end)));
        uint32_t as = formats[i] == TW_METRICS_PROMETHEUS ? TW_METRICS_PROMETHEUS : TW_METRICS_OPENMETRICS;
        assert_int_equal(validate_as(&text, as, NULL), 1 + FIELDS + 1);
    }
}

TEST(a_format_that_is_none_is_refused) {
    tw_options options;
    tw_engine *engine;
    struct text text = {.pieces_max = SIZE_MAX};
    tw_options_init(&options);
    options.threads = TW_HOST_DRIVEN;
    options.memory_bytes_max = 1 << 20;
    assert_status(tw_open(&options, &engine), TW_OK);
    const uint32_t none[] = {2, TW_METRICS_NO_EOF, TW_METRICS_NO_EOF | 2, 0x80000000u, UINT32_MAX};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        assert_status(tw_metrics_write(engine, none[i], text_write, &text), TW_ERR_OPTIONS);
        assert_memory_equal(tw_error_text(), "format: ", 8);
    }
    assert_int_equal(text.pieces, 0);
    assert_status(tw_close(engine, 0), TW_OK);
}

/* ---- labels ------------------------------------------------------------------------------------------------------ */

TEST(labels_that_no_scraper_would_take_are_refused_by_name) {
    static const struct {
        const char *labels, *why; /* NULL: they are good */
    } cases[] = {
        {"", NULL},
        {"a=\"\"", NULL},
        {"service=\"shop\",zone=\"a\"", NULL},
        {"_a1=\"caf\xc3\xa9 \xf0\x9f\x8d\xb5\",b=\"\\\\ \\\" \\n\"", NULL},
        {"family_of=\"1\",lee=\"2\"", NULL},
        {"a", "byte 2: ="},
        {"a=", "byte 3: a label's value must be in quotes"},
        {"a=1", "byte 3: "},
        {"a=\"1", "byte 5: the quote is not closed"},
        {"a=\"1\\", "byte 5: unknown escape"},
        {"a=\"\\t\"", "byte 4: unknown escape"},
        {"a=\"1\n\"", "byte 5: the end of a line"},
        {"a=\"\xff\"", "byte 4: not UTF-8"},
        {"a=\"\xc3\"", "byte 4: not UTF-8"},
        {"a=\"\xc0\xaf\"", "byte 4: not UTF-8"},
        {"a=\"\xed\xa0\x80\"", "byte 4: not UTF-8"},
        {"1a=\"1\"", "byte 1: a label's name"},
        {"a-b=\"1\"", "byte 2: ="},
        {"=\"1\"", "byte 1: a label's name"},
        {"a=\"1\",", "byte 7: a label's name"},
        {",a=\"1\"", "byte 1: a label's name"},
        {"a=\"1\" b=\"2\"", "byte 6: labels are separated"},
        {"a=\"1\", b=\"2\"", "byte 7: a label's name"},
        {"{a=\"1\"}", "byte 1: a label's name"},
        {"__a=\"1\"", "__a is reserved"},
        {"b=\"1\",family=\"x\"", "family is a label of the library"},
        {"le=\"1\"", "le is"},
        {"version=\"1\"", "version is"},
        {"ab=\"1,a=\\\"\",a=\"2\",ab=\"3\"", "ab comes twice"},
    };
    char error[200], long_text[600];
    tw_options options, out;
    tw_options_init(&options);
    options.error_text = error;
    options.error_size = sizeof error;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char want[200];
        options.metrics_labels = cases[i].labels;
        tw_status status = twi_options_check(&options, &out);
        snprintf(want, sizeof want, "metrics_labels: %s", cases[i].why != NULL ? cases[i].why : "");
        if (status != (cases[i].why != NULL ? TW_ERR_OPTIONS : TW_OK)) fail_msg("%s: %s", cases[i].labels, error);
        if (cases[i].why != NULL && strncmp(error, want, strlen(want)) != 0)
            fail_msg("%s: \"%s\" is not \"%s...\"", cases[i].labels, error, want);
    }
    memset(long_text, 'a', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    options.metrics_labels = long_text;
    assert_status(twi_options_check(&options, &out), TW_ERR_OPTIONS);
    assert_string_equal(error, "metrics_labels: longer than 512 bytes");
}

TEST(a_writer_that_answers_false_is_not_called_again) {
    tw_stats stats = {0};
    for (size_t pieces = 0; pieces <= FIELDS; pieces++) {
        static struct text text;
        text = (struct text){.pieces_max = pieces};
        assert_status(write_page(&stats, NULL, 0, TW_METRICS_OPENMETRICS, NULL, &text), TW_DENIED);
        assert_int_equal(text.pieces, pieces);
    }
}

struct adder {
    tw_family *family;
    _Atomic bool stop;
};

/* Changes what is scraped: adds, refused keys, windows that are too late. */
static void *add_until_stopped(void *argument) {
    struct adder *adder = argument;
    char key[32];
    for (int64_t i = 0; !atomic_load(&adder->stop); i++) {
        snprintf(key, sizeof key, "key %lld", (long long)(i % 500));
        (void)tw_add(adder->family, tw_str(key), 1, NULL);
        (void)tw_add_at(adder->family, tw_str(key), 1, 1000, NULL);
        (void)tw_acquire(adder->family, tw_str("limited"), 1, 1000, NULL);
    }
    return NULL;
}

/* The samples of counters, in their order. Returns how many. */
static size_t counters_of(const struct text *text, double *values, size_t room) {
    size_t count = 0;
    for (const char *line = text->bytes; *line != '\0'; line = strchr(line, '\n') + 1) {
        const char *space = strchr(line, ' '), *label = strchr(line, '{');
        if (*line == '#' || space == NULL) continue;
        if (strncmp((label != NULL && label < space ? label : space) - 6, "_total", 6) != 0) continue;
        assert_true(count < room);
        values[count++] = strtod(space + 1, NULL);
    }
    return count;
}

/* Goal: what is scraped in the middle of change parses to the last line, and no counter falls (fault 63).
 * Method: three threads change what there is to tell; 300 scrapes next to them. */
TEST(scraped_during_change_it_parses_and_no_counter_falls) {
    static struct text text;
    double before[FIELDS + OF_FAMILIES] = {0}, now[FIELDS + OF_FAMILIES];
    tw_options options;
    tw_family_options family;
    tw_engine *engine;
    struct adder adder = {.family = NULL};
    pthread_t threads[3];
    tw_options_init(&options);
    options.memory_bytes_max = 16 << 20;
    char labels[] = "service=\"a}b\"";
    options.metrics_labels = labels;
    assert_status(tw_open(&options, &engine), TW_OK);
    memset(labels, 'x', sizeof labels - 1); /* it was copied */
    tw_family_options_init(&family);
    family.name = "scraped";
    family.window_ms = TW_SECOND;
    family.keys_max = 100; /* the others are refused, or go to the overflow counter */
    assert_status(tw_family_open(engine, &family, &adder.family), TW_OK);
    assert_status(tw_acquire(adder.family, tw_str("limited"), 1, 1000, NULL),
                  TW_OK); /* its limits are shown from now on */
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&threads[i], NULL, add_until_stopped, &adder), 0);
    size_t counters = 0;
    for (size_t scrape = 0; scrape < test_scale(300); scrape++) {
        text = (struct text){.pieces_max = SIZE_MAX};
        assert_status(tw_metrics_write(engine, formats[scrape % 2], text_write, &text), TW_OK);
        assert_int_equal(validate_as(&text, formats[scrape % 2], "service=\"a}b\""),
                         FIELDS + OF_FAMILIES + 1); /* and which build it is */
        size_t count = counters_of(&text, now, FIELDS + OF_FAMILIES);
        assert_true(scrape == 0 || count == counters);
        for (size_t i = 0; i < count; i++) assert_true(now[i] >= before[i]);
        memcpy(before, now, sizeof before);
        counters = count;
        test_sleep_ms(scrape % 10 == 0);
    }
    assert_true(counters > 10 && before[0] > 0);
    atomic_store(&adder.stop, true);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    assert_status(tw_close(engine, 1000), TW_OK);
}
