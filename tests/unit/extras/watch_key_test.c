/* watch_key_test.c -- the watch socket's requests about one key: `key` reads it and changes nothing, `reset` sets it to
 * 0 where the host allows that. Goal: each kind of family, any bytes as a key, every refusal. Method: requests are
 * answered without a socket, for a host-driven engine.
 * Covers: extras/watch_answer.c, engine/count/walk.c. */
#include "tests/unit/rig.h"

#include "extras/watch.h"

#include <stdlib.h>

static struct rig rig;
static char answer[8192];

static const char *ask_bytes(const char *request, size_t size, bool writes) {
    struct twi_watch_text text = {.bytes = NULL};
    twi_watch_answer(&(struct twi_watch_scope){.engine = rig.engine, .writes = writes}, request, size, &text);
    assert_false(text.failed);
    assert_in_range(text.size, 1, sizeof answer - 1);
    memcpy(answer, text.bytes, text.size);
    answer[text.size] = '\0';
    free(text.bytes);
    return answer;
}

static const char *ask(const char *request) {
    return ask_bytes(request, strlen(request), true);
}

static void assert_begins(const char *text, const char *with) {
    if (strncmp(text, with, strlen(with)) != 0) fail_msg("\"%s\" does not begin with \"%s\"", text, with);
}

#define NO_WRITE "error\tthis socket does not write\tread_only\n"

/* ---- key --------------------------------------------------------------------------------------------------------- */

RIG_TEST(one_key_is_read_and_no_counter_is_made) {
    tw_family *views = rig_family(&rig, "views", TW_WINDOW_ALIGNED, TW_HOUR);
    rig_add(views, "/a b", 5);
    assert_begins(ask("key views /a b"),
                  "top\tviews\tcounter\nkey\t5\t5\t0\t1700002800000\t1700006400000\t/a b\nend\n");
    int64_t entries = test_stat_of(rig.engine, entries), increments = test_stat_of(rig.engine, increments);
    assert_string_equal(ask("key views /c"), "top\tviews\tcounter\nend\n");
    assert_string_equal(ask("reset views /c"), "reset\tviews\t0\t0\nend\n");
    assert_i64_equal(test_stat_of(rig.engine, entries), entries);
    assert_i64_equal(test_stat_of(rig.engine, increments), increments);
    rig_pass(&rig, TW_HOUR);
    assert_string_equal(ask("key views /a b"), "top\tviews\tcounter\nend\n"); /* the window has ended */
}

RIG_TEST(a_key_of_any_bytes_can_be_named) {
    static const char key[] = "\t\n\r\\ \0\x7f\xff\xc3\xa9 ";
    tw_family *views = rig_family(&rig, "views", TW_WINDOW_FOREVER, 0);
    assert_status(tw_add(views, tw_bytes(key, sizeof key - 1), 3, NULL), TW_OK);
    assert_begins(ask("key views \\t\\n\\r\\\\ \\x00\\x7F\\xff\xc3\xa9 "), "top\tviews\tcounter\nkey\t3\t3\t0\t");
    assert_begins(ask("key views \\x09\\x0a\\x0D\\x5c\\x20\\x00\\x7F\\xff\\xc3\\xa9 \r"),
                  "top\tviews\tcounter\nkey\t3");
    assert_string_equal(ask("reset views \\t\\n\\r\\\\ \\x00\\x7F\\xff\xc3\xa9 "), "reset\tviews\t1\t3\nend\n");
}

RIG_TEST(the_longest_key_can_be_named_with_every_byte_escaped) {
    char key[TW_KEY_SIZE_MAX], request[4 * TW_KEY_SIZE_MAX + 100], longer[TWI_WATCH_REQUEST_MAX + 1];
    tw_family *views = rig_family(&rig, "views", TW_WINDOW_FOREVER, 0);
    size_t size = (size_t)sprintf(request, "reset views ");
    for (size_t i = 0; i < sizeof key; i++) {
        key[i] = (char)(i % 255);
        size += (size_t)sprintf(request + size, "\\x%02X", (unsigned)(i % 255));
    }
    assert_status(tw_add(views, tw_bytes(key, sizeof key), 9, NULL), TW_OK);
    assert_string_equal(ask_bytes(request, size, true), "reset\tviews\t1\t9\nend\n");
    size += (size_t)sprintf(request + size, "a");
    assert_begins(ask_bytes(request, size, true), "error\t");
    memset(longer, 'a', sizeof longer);
    memcpy(longer, "key views ", 10);
    assert_begins(ask_bytes(longer, sizeof longer, true), "error\tunknown request");
}

/* ---- reset ------------------------------------------------------------------------------------------------------- */

RIG_TEST(reset_takes_all_away_and_only_from_that_key) {
    tw_family *logins = rig_family(&rig, "logins", TW_WINDOW_ALIGNED, TW_HOUR);
    for (int i = 0; i < 4; i++) (void)tw_acquire(logins, tw_str("ann"), 1, 3, NULL);
    rig_add(logins, "bob", 2);
    assert_status(tw_acquire(logins, tw_str("ann"), 1, 3, NULL), TW_DENIED);
    assert_string_equal(ask("reset logins ann"), "reset\tlogins\t1\t3\nend\n");
    assert_string_equal(ask("reset logins ann"), "reset\tlogins\t1\t0\nend\n");
    assert_i64_equal(rig_get(logins, "ann"), 0);
    assert_i64_equal(rig_get(logins, "bob"), 2);
    assert_status(tw_acquire(logins, tw_str("ann"), 3, 3, NULL), TW_OK);
}

RIG_TEST(without_writes_every_request_changes_nothing) {
    tw_family *logins = rig_family(&rig, "logins", TW_WINDOW_ALIGNED, TW_HOUR);
    rig_add(logins, "ann", 2);
    assert_string_equal(ask_bytes("reset logins ann", 16, false), NO_WRITE);
    assert_string_equal(ask_bytes("reset nothing ann", 17, false),
                        NO_WRITE); /* which families there are is no matter */
    assert_i64_equal(rig_get(logins, "ann"), 2);
    assert_begins(ask_bytes("key logins ann", 14, false), "top\tlogins\tcounter\nkey\t2\t2\t");
}

RIG_TEST(every_kind_of_family_answers) {
    tw_family *each[3] = {rig_family(&rig, "first", TW_WINDOW_FROM_FIRST, TW_HOUR),
                          rig_family(&rig, "forever", TW_WINDOW_FOREVER, 0),
                          rig_family(&rig, "month", TW_WINDOW_MONTH, 0)};
    tw_family_options options = rig_options("sliding", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.limit_shape = TW_SHAPE_SLIDING;
    tw_family *sliding = rig_family_of(&rig, &options);
    for (int i = 0; i < 3; i++) rig_add(each[i], "k", 7);
    assert_status(tw_acquire(sliding, tw_str("k"), 2, 10, NULL), TW_OK);
    rig_pass(&rig, TW_SECOND);
    assert_begins(ask("key first k"), "top\tfirst\tcounter\nkey\t7\t7\t0\t1700002800000\t1700006400000\tk\nend\n");
    assert_begins(ask("key sliding k"), "top\tsliding\tcounter\nkey\t2\t2\t");
    assert_string_equal(ask("reset first k"), "reset\tfirst\t1\t7\nend\n");
    assert_string_equal(ask("reset forever k"), "reset\tforever\t1\t7\nend\n");
    assert_string_equal(ask("reset month k"), "reset\tmonth\t1\t7\nend\n");
    assert_string_equal(ask("reset sliding k"), "reset\tsliding\t1\t2\nend\n");
    for (int i = 0; i < 3; i++) assert_i64_equal(rig_get(each[i], "k"), 0);
    rig_pass(&rig, TW_HOUR);
    assert_string_equal(ask("key first k"), "top\tfirst\tcounter\nend\n"); /* its own hour is over */
}

/* As docs/WATCH.md warns: slots in use are in the count. */
RIG_TEST(slots_in_use_are_taken_away) {
    tw_family *use = rig_family(&rig, "use", TW_WINDOW_FOREVER, 0);
    assert_status(tw_hold(use, tw_str("k"), 1, NULL), TW_OK);
    assert_status(tw_hold(use, tw_str("k"), 1, NULL), TW_DENIED);
    assert_string_equal(ask("reset use k"), "reset\tuse\t1\t1\nend\n");
    assert_status(tw_hold(use, tw_str("k"), 1, NULL), TW_OK); /* two are in use, one is counted */
    assert_status(tw_hold_release(use, tw_str("k")), TW_OK);
    assert_status(tw_hold_release(use, tw_str("k")), TW_ERR_RANGE); /* the reset has released it */
    assert_i64_equal(rig_get(use, "k"), 0);
}

RIG_TEST(distinct_counts_are_read_and_cannot_be_reset) {
    tw_family_options options = rig_options("visitors", TW_WINDOW_FOREVER, 0);
    options.kind = TW_KIND_DISTINCT;
    tw_family *visitors = rig_family_of(&rig, &options);
    assert_status(tw_distinct_add(visitors, tw_str("/"), tw_str("ann"), NULL), TW_OK);
    assert_status(tw_distinct_add(visitors, tw_str("/"), tw_str("bob"), NULL), TW_OK);
    assert_begins(ask("key visitors /"), "top\tvisitors\tdistinct\nkey\t2\t2\t");
    assert_begins(ask("reset visitors /"), "error\tkind: ");
}

RIG_TEST(what_cannot_be_is_refused_with_a_sentence) {
    static const struct {
        const char *request, *answer;
    } cases[] = {
        {"key", "error\tkey wants a family and a key: key FAMILY KEY\n"},
        {"key views", "error\tkey wants a family and a key: key FAMILY KEY\n"},
        {"key views ", "error\tkey wants a family and a key: key FAMILY KEY\n"},
        {"reset", "error\treset wants a family and a key: reset FAMILY KEY\n"},
        {"reset views ", "error\treset wants a family and a key: reset FAMILY KEY\n"},
        {"reset none k", "error\tno family of that name is open\n"},
        {"key  k", "error\tno family of that name is open\n"},
        {"key views a\\", "error\ta backslash in a key is followed by "},
        {"key views \\q", "error\ta backslash in a key is followed by "},
        {"reset views \\x4", "error\ta backslash in a key is followed by "},
        {"reset views \\xg0", "error\ta backslash in a key is followed by "},
        {"keys views k", "error\tunknown request; help lists those that there are\n"},
        {"resets views k", "error\tunknown request; help lists those that there are\n"},
        {"key rates k", "error\tlimit_shape: "},
        {"reset rates k", "error\tlimit_shape: "},
    };
    char request[200];
    rig_add(rig_family(&rig, "views", TW_WINDOW_FOREVER, 0), "k", 1);
    tw_family_options options = rig_options("rates", TW_WINDOW_ALIGNED, TW_SECOND);
    options.limit_shape = TW_SHAPE_GCRA;
    (void)rig_family_of(&rig, &options);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) assert_begins(ask(cases[i].request), cases[i].answer);
    snprintf(request, sizeof request, "key %0100d k", 0); /* no family has so long a name */
    assert_string_equal(ask(request), "error\tno family of that name is open\n");
    assert_string_equal(ask("key views k"), "top\tviews\tcounter\nkey\t1\t1\t0\t0\t9223372036854775807\tk\nend\n");
}
