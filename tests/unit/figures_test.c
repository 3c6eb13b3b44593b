/* figures_test.c -- what limits have done, by family: in the metrics text, and summed up in tw_stats. */
#include "tests/unit/hand_driver.h"

static struct text {
    char bytes[65536];
    size_t size, pieces, stop_after;
} text;

static bool write_text(void *ctx, const char *bytes, size_t size) {
    (void)ctx;
    assert_true(text.size + size < sizeof text.bytes);
    memcpy(text.bytes + text.size, bytes, size);
    text.size += size;
    text.bytes[text.size] = '\0';
    return ++text.pieces != text.stop_after;
}

static tw_status scrape(struct rig *rig, size_t stop_after) {
    text = (struct text){.stop_after = stop_after};
    return tw_metrics_write(rig->engine, write_text, NULL);
}

/* True: the text has that line. */
static bool has(const char *line) {
    char framed[300];
    snprintf(framed, sizeof framed, "\n%s\n", line);
    return strstr(text.bytes, framed) != NULL;
}

static void take(tw_family *family, int calls, int64_t limit, tw_status last) {
    tw_status status = TW_OK;
    for (int i = 0; i < calls; i++) status = tw_acquire(family, tw_str("k"), 1, limit, NULL);
    assert_status(status, last);
}

static void each_family_has_figures_of_its_own(void **state) {
    (void)state;
    struct rig rig;
    rig_open(&rig);
    tw_family *plain = rig_family(&rig, "plain", TW_ALIGNED, TW_HOUR);
    tw_family_options options = rig_options("a.shadow", TW_ALIGNED, TW_HOUR);
    options.shadow = true;
    tw_family *shadow = rig_family_of(&rig, &options);
    options = rig_options("paced", TW_ALIGNED, TW_HOUR);
    options.limit_shape = TW_SHAPE_GCRA;
    tw_family *paced = rig_family_of(&rig, &options);
    rig_add(rig_family(&rig, "counts-only", TW_ALIGNED, TW_HOUR), "k", 1);
    take(plain, 12, 10, TW_DENIED);
    take(shadow, 13, 10, TW_OK);
    take(paced, 7, 5, TW_DENIED);
    assert_status(tw_acquire(plain, tw_str("k"), 0, 10, NULL), TW_OK); /* a look is no call of a limit */
    assert_status(scrape(&rig, 0), TW_OK);
    assert_true(has("# TYPE tallywheel_family_limit_admitted counter"));
    assert_true(has("tallywheel_family_limit_admitted_total{family=\"a.shadow\"} 10\n"
                    "tallywheel_family_limit_admitted_total{family=\"paced\"} 5\n"
                    "tallywheel_family_limit_admitted_total{family=\"plain\"} 10"));
    assert_true(has("tallywheel_family_limit_denied_total{family=\"a.shadow\"} 3\n"
                    "tallywheel_family_limit_denied_total{family=\"paced\"} 2\n"
                    "tallywheel_family_limit_denied_total{family=\"plain\"} 2"));
    assert_true(has("tallywheel_family_limit_near_total{family=\"a.shadow\"} 3\n"
                    "tallywheel_family_limit_near_total{family=\"paced\"} 2\n"
                    "tallywheel_family_limit_near_total{family=\"plain\"} 3"));
    assert_true(has("tallywheel_family_limit_shadow_denied_total{family=\"a.shadow\"} 3\n"
                    "tallywheel_family_limit_shadow_denied_total{family=\"paced\"} 0\n"
                    "tallywheel_family_limit_shadow_denied_total{family=\"plain\"} 0"));
    assert_null(strstr(text.bytes, "counts-only"));
    assert_i64_equal(test_stat_of(rig.engine, limit_admitted), 25);
    assert_i64_equal(test_stat_of(rig.engine, limit_denied), 7);
    assert_i64_equal(test_stat_of(rig.engine, limit_near), 8);
    assert_i64_equal(test_stat_of(rig.engine, limit_shadow_denied), 3);
    rig_close(&rig);
}

static void the_engine_keeps_the_figures_of_a_family_that_was_closed(void **state) {
    (void)state;
    struct rig rig;
    rig_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_ALIGNED, TW_HOUR);
    take(family, 12, 10, TW_DENIED);
    int64_t increments = test_stat_of(rig.engine, increments);
    assert_i64_equal(increments, 10);
    assert_status(tw_family_close(family), TW_OK);
    assert_i64_equal(test_stat_of(rig.engine, limit_admitted), 10); /* the turn has not yet seen it */
    family = rig_family(&rig, "f", TW_ALIGNED, TW_HOUR);
    take(family, 1, 10, TW_OK);
    assert_status(scrape(&rig, 0), TW_OK);
    assert_true(has("tallywheel_family_limit_admitted_total{family=\"f\"} 1"));
    rig_pass(&rig, TW_SECOND);
    assert_i64_equal(test_stat_of(rig.engine, limit_admitted), 11);
    assert_i64_equal(test_stat_of(rig.engine, limit_denied), 2);
    assert_i64_equal(test_stat_of(rig.engine, limit_near), 3);
    assert_i64_equal(test_stat_of(rig.engine, increments), 11);
    rig_close(&rig);
}

static void a_writer_may_end_the_text_at_any_piece(void **state) {
    (void)state;
    struct rig rig;
    rig_open(&rig);
    take(rig_family(&rig, "f", TW_ALIGNED, TW_HOUR), 1, 10, TW_OK);
    take(rig_family(&rig, "g", TW_ALIGNED, TW_HOUR), 1, 10, TW_OK);
    assert_status(scrape(&rig, 0), TW_OK);
    size_t pieces = text.pieces;
    for (size_t stop = 1; stop <= pieces; stop++) {
        assert_status(scrape(&rig, stop), TW_DENIED);
        assert_i64_equal(text.pieces, stop);
    }
    rig_close(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_family_has_figures_of_its_own),
        cmocka_unit_test(the_engine_keeps_the_figures_of_a_family_that_was_closed),
        cmocka_unit_test(a_writer_may_end_the_text_at_any_piece),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
