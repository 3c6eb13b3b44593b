/* log_events_test.c -- each log event has a remedy, which stands in its line; docs/WATCH.md has the same table. */
#include "tests/unit/rig.h"

#include "engine/core/report.h"

static const struct {
    int number;
    const char *name, *remedy;
} events[] = {
#define EVENT(name, remedy) {TW_EVENT_##name, #name, remedy},
    TWI_LOG_EVENTS(EVENT)
#undef EVENT
};
#define EVENT_COUNT (sizeof events / sizeof *events)

static size_t count_of(const char *text, const char *what) {
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at += strlen(what)) count++;
    return count;
}

/* The list is as long as the enum of the header, and names each of its numbers once. */
TEST(every_event_has_a_remedy) {
    static char header[200000];
    char line[80];
    test_read_source("include/tallywheel.h", header, sizeof header);
    char *first = strstr(header, "enum tw_event {"), *last = strchr(first, '}');
    *last = '\0';
    assert_int_equal(count_of(first, "\n    TW_EVENT_"), EVENT_COUNT);
    for (size_t i = 0; i < EVENT_COUNT; i++) {
        snprintf(line, sizeof line, "\n    TW_EVENT_%s = %d", events[i].name, events[i].number);
        assert_int_equal(count_of(first, line), 1);
        assert_in_range(strlen(events[i].remedy), 5, 80);
    }
}

TEST(the_page_has_the_same_table) {
    static char page[200000];
    char row[80], remedy[120];
    test_read_source("docs/WATCH.md", page, sizeof page);
    assert_int_equal(count_of(page, "\n| TW-E"), EVENT_COUNT);
    for (size_t i = 0; i < EVENT_COUNT; i++) {
        snprintf(row, sizeof row, "\n| TW-E%03d | `TW_EVENT_%s` | ", events[i].number, events[i].name);
        snprintf(remedy, sizeof remedy, " | %s.", events[i].remedy);
        char *at = strstr(page, row);
        if (at == NULL) {
            fail_msg("docs/WATCH.md has no row that begins with \"%s\"", row + 1);
            return;
        }
        char *end = strchr(at + 1, '\n');
        assert_non_null(end);
        *end = '\0';
        if (strstr(at, remedy) == NULL) fail_msg("\"%s\" lacks \"%s\"", at + 1, remedy);
        *end = '\n';
    }
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

struct lines {
    int count;
    char last[800];
};

static void take_line(void *ctx, int level, int event, const char *text) {
    struct lines *lines = ctx;
    (void)level, (void)event;
    lines->count++;
    snprintf(lines->last, sizeof lines->last, "%s", text);
}

static void log_a_line(struct rig *rig, int level, int event, const char *text) {
    twi_port_log(rig->engine, level, event, "%s", text);
}

TEST(a_line_ends_with_its_event_and_what_to_do) {
    struct rig rig;
    struct lines lines = {.count = 0};
    char text[600], want[800];
    rig_init(&rig);
    rig.options.log_write = take_line;
    rig.options.log_ctx = &lines;
    rig_start(&rig);
    for (size_t i = 0; i < EVENT_COUNT; i++) {
        snprintf(want, sizeof want, "something [TW-E%03d: %s]", events[i].number, events[i].remedy);
        log_a_line(&rig, TW_LOG_WARNING, events[i].number, "something");
        assert_string_equal(lines.last, want);
    }
    fake_clock_advance_ms(&rig.clock, 2000);
    log_a_line(&rig, TW_LOG_INFO, TW_EVENT_CONNECTED, "it answers");
    assert_string_equal(lines.last, "it answers [TW-E010]");
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0'; /* the text is cut off, and never the event */
    fake_clock_advance_ms(&rig.clock, 1500);
    log_a_line(&rig, TW_LOG_ERROR, TW_EVENT_TLS, text);
    snprintf(want, sizeof want, "x [TW-E025: %s]",
             "correct the certificate, the name or the option that the line names");
    assert_string_equal(lines.last + strlen(lines.last) - strlen(want), want);
    assert_in_range(strlen(lines.last), 512, 700);
    rig_close(&rig);
}

/* Goal: what happens at the same time is heard, a flood is cut, and no line is left out in silence. Method: more lines
 * than an event may have at once; then a second, then the end of the flood, then the end of the engine. */
TEST(a_flood_is_cut_and_the_number_of_its_lines_is_told) {
    struct rig rig;
    struct lines lines = {.count = 0};
    rig_init(&rig);
    rig.options.log_write = take_line;
    rig.options.log_ctx = &lines;
    rig_start(&rig);
    lines.count = 0;
    for (int i = 0; i < TWI_REPORT_AT_ONCE + 3; i++) log_a_line(&rig, TW_LOG_ERROR, TW_EVENT_SPLIT, "apart");
    assert_int_equal(lines.count, TWI_REPORT_AT_ONCE);
    log_a_line(&rig, TW_LOG_WARNING, TW_EVENT_LATE, "another event"); /* has its own bound */
    assert_int_equal(lines.count, TWI_REPORT_AT_ONCE + 1);
    fake_clock_advance_ms(&rig.clock, 999);
    log_a_line(&rig, TW_LOG_ERROR, TW_EVENT_SPLIT, "apart");
    assert_int_equal(lines.count, TWI_REPORT_AT_ONCE + 1);
    fake_clock_advance_ms(&rig.clock, 1);
    log_a_line(&rig, TW_LOG_ERROR, TW_EVENT_SPLIT, "apart");
    assert_string_equal(lines.last, "apart (4 more like this left out) [TW-E026: repair the slots as the line says]");
    log_a_line(&rig, TW_LOG_INFO, TW_EVENT_SPLIT, "a little");
    log_a_line(&rig, TW_LOG_ERROR, TW_EVENT_SPLIT, "apart");
    log_a_line(&rig, TW_LOG_INFO, TW_EVENT_SPLIT, "a little");
    lines.count = 0;
    rig_turn(&rig);
    assert_int_equal(lines.count, 0); /* the flood may go on, and its next line would have the number */
    fake_clock_advance_ms(&rig.clock, TWI_REPORT_AT_ONCE * 1000);
    rig_turn(&rig);
    assert_int_equal(lines.count, 1);
    assert_string_equal(lines.last,
                        "3 lines like the last of this kind were left out [TW-E026: repair the slots as the "
                        "line says]");
    rig_turn(&rig);
    assert_int_equal(lines.count, 1);
    for (int i = 0; i < TWI_REPORT_AT_ONCE + 2; i++) log_a_line(&rig, TW_LOG_INFO, TW_EVENT_TLS, "read again");
    rig_close(&rig);
    assert_string_equal(lines.last, "2 lines like the last of this kind were left out [TW-E025]");
}

/* Goal: what Redis says can neither begin a line of its own in a log nor move the cursor of a terminal; an error that
 * is over is known again. */
TEST(no_line_has_a_control_character) {
    static const char *const said = "ERR \x1b[2J\r\nroot logged in\x7f\t\xc3\xa9";
    struct rig rig;
    struct lines lines = {.count = 0};
    rig_init(&rig);
    rig.options.log_write = take_line;
    rig.options.log_ctx = &lines;
    rig_start(&rig);
    log_a_line(&rig, TW_LOG_INFO, TW_EVENT_REFUSED, said);
    assert_string_equal(lines.last, "ERR ?[2J??root logged in??\xc3\xa9 [TW-E012]");
    tw_stats stats;
    twi_port_last_error(rig.engine, said);
    assert_status(tw_stats_read(rig.engine, &stats), TW_OK);
    assert_string_equal(stats.last_error, "ERR ?[2J??root logged in??\xc3\xa9");
    twi_port_error_over(rig.engine, said);
    assert_status(tw_stats_read(rig.engine, &stats), TW_OK);
    assert_string_equal(stats.last_error, "");
    rig_close(&rig);
}
