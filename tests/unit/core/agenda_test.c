/* agenda_test.c -- the turn examines families that are due and families with news; it searches all others once a
 * second. Many families cost little: their memory is accounted for, and turns do not walk them.
 * Covers: engine/core/agenda.c, engine/base/grow.h. */
#include "tests/unit/rig.h"

#include "engine/core/agenda.h"
#include "engine/core/roster.h"

#define MANY 10000

static struct rig rig;

static tw_family *family_number(int number) {
    char name[16];
    (void)snprintf(name, sizeof name, "f%d", number);
    return rig_family(&rig, name, TW_WINDOW_ALIGNED, TW_MINUTE);
}

/* What is due now, entered again at once. */
static uint32_t round_size(void) {
    uint32_t size = 0;
    rig.engine->turn.now_ms = rig_now(&rig);
    rig.engine->turn.mono_ms = twi_clock_mono_ms(&rig.engine->clock);
    twi_agenda_begin_round(rig.engine);
    for (struct tw_family *family; (family = twi_agenda_take(&rig.engine->agenda)) != NULL; size++)
        twi_agenda_enter(&rig.engine->agenda, family);
    return size;
}

/* Goal: whatever times families set, each is due when the first of them has come, and not before.
 * Method: random times against a walk over all. */
RIG_TEST(each_family_is_due_at_its_own_times) {
    static tw_family *families[300];
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (int i = 0; i < 300; i++) families[i] = family_number(i);
    rig_settle(&rig);
    for (int i = 0; i < 300; i++) families[i]->turn.due_ms = families[i]->turn.look_mono_ms = INT64_MAX;
    (void)round_size();
    tw_engine *engine = rig.engine;
    for (uint64_t step = 0; step < test_scale(3000); step++) {
        fake_clock_advance_ms(&rig.clock, test_prng_between(&prng, 0, 20));
        if (test_prng_chance(&prng, 1, 50)) fake_clock_step_wall_ms(&rig.clock, test_prng_between(&prng, 0, 3000));
        engine->turn.now_ms = twi_clock_read(&engine->clock);
        engine->turn.mono_ms = twi_clock_mono_ms(&engine->clock);
        tw_family *told = families[test_prng_below(&prng, 300)];
        if (test_prng_chance(&prng, 1, 4)) twi_agenda_notify(told);
        int64_t want = 0, got = 0, next_ms = INT64_MAX;
        for (int i = 0; i < 300; i++) {
            bool due = families[i]->turn.due_ms <= engine->turn.now_ms ||
                       families[i]->turn.look_mono_ms <= engine->turn.mono_ms;
            want += due || families[i]->agenda.is_news;
        }
        twi_agenda_begin_round(engine);
        for (tw_family *family; (family = twi_agenda_take(&engine->agenda)) != NULL; got++) {
            family->turn.due_ms =
                test_prng_chance(&prng, 1, 3) ? INT64_MAX : engine->turn.now_ms + test_prng_between(&prng, 1, 900);
            family->turn.look_mono_ms =
                test_prng_chance(&prng, 1, 2) ? INT64_MAX : engine->turn.mono_ms + test_prng_between(&prng, 1, 900);
            twi_agenda_enter(&engine->agenda, family);
        }
        assert_i64_equal(got, want);
        for (int i = 0; i < 300; i++) {
            if (families[i]->turn.due_ms != INT64_MAX &&
                families[i]->turn.due_ms - engine->turn.now_ms < next_ms - engine->turn.mono_ms)
                next_ms = families[i]->turn.due_ms - engine->turn.now_ms + engine->turn.mono_ms;
            if (families[i]->turn.look_mono_ms < next_ms) next_ms = families[i]->turn.look_mono_ms;
        }
        assert_i64_equal(twi_agenda_next_ms(engine), next_ms);
    }
}

/* Goal: a turn does not walk families that have nothing to do; what one of them has to do is done in time. */
RIG_TEST(families_at_rest_are_not_looked_at) {
    for (int i = 0; i < 1000; i++) rig_add(family_number(i), "a", 1);
    rig_settle(&rig);
    fake_clock_advance_ms(&rig.clock, 5);
    assert_int_equal(round_size(), 0);
    rig_add(family_number(1000), "a", 1);
    assert_int_equal(round_size(), 1);
    assert_i64_equal(test_stat_of(rig.engine, generations), 1001);
    rig_pass(&rig, 10 * TW_MINUTE);
    rig_pass(&rig, 1000);
    assert_i64_equal(test_stat_of(rig.engine, windows_closed), 1001);
    rig_pass(&rig, 1000);
    assert_i64_equal(test_stat_of(rig.engine, entries), 0);
}

/* Goal: windows of many families that end together end in bounded pieces: one turn examines some hundred families, and
 * wants the next turn at once. All are examined once, whatever order they come in. */
RIG_TEST(a_turn_examines_a_bounded_number_of_families) {
    int64_t closed = 0;
    for (int i = 0; i < MANY; i++) rig_add(family_number(i), "a", 1);
    rig_settle(&rig);
    fake_clock_advance_ms(&rig.clock, 10 * TW_MINUTE);
    do {
        rig_turn(&rig);
        int64_t now = test_stat_of(rig.engine, windows_closed);
        assert_true(now - closed <= 1024);
        closed = now;
    } while (tw_timeout_ms(rig.engine) == 0);
    rig_pass(&rig, 1000);
    assert_i64_equal(test_stat_of(rig.engine, windows_closed), MANY);
}

/* Goal: many families are found, closed and opened again by name; they are in the account, and leave it. */
RIG_TEST(many_families_are_in_the_account_and_leave_it) {
    static tw_family *families[MANY];
    rig_add(family_number(0), "a", 1);
    int64_t alone = test_stat_of(rig.engine, memory_bytes);
    for (int i = 0; i < MANY; i++) families[i] = family_number(i);
    rig_settle(&rig);
    int64_t bytes = test_stat_of(rig.engine, memory_bytes) - alone;
    assert_true(bytes >= MANY * INT64_C(1000) && bytes <= MANY * INT64_C(1600));
    for (int i = 0; i < MANY; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "f%d", i);
        assert_ptr_equal(tw_family_find(rig.engine, name), families[i]);
    }
    for (int i = 0; i < MANY; i += 2) assert_status(tw_family_close(families[i]), TW_OK);
    assert_status(tw_family_close(families[0]), TW_OK); /* was opened twice */
    assert_null(tw_family_find(rig.engine, "f0"));
    assert_null(tw_family_find(rig.engine, "f9998"));
    assert_non_null(tw_family_find(rig.engine, "f9999"));
    assert_i64_equal(rig_add(family_number(0), "a", 5), 5);
    for (int i = 1; i < MANY; i += 2) assert_status(tw_family_close(families[i]), TW_OK);
    assert_status(tw_family_close(tw_family_find(rig.engine, "f0")), TW_OK);
    for (int i = 0; i < 4; i++) rig_pass(&rig, 1000);
    assert_i64_equal(test_stat_of(rig.engine, memory_bytes), 0);
    assert_null(twi_load_relaxed(&rig.engine->roster.first));
}

/* Goal: families and counters together stay within the bound; who asks for one more is told. */
RIG_TEST(families_beyond_the_bound_are_refused) {
    struct rig small;
    rig_init(&small);
    small.options.memory_bytes_max = 1 << 20;
    rig_start(&small);
    tw_status status = TW_OK;
    int opened = 0;
    for (; status == TW_OK && opened < 2000; opened += status == TW_OK) {
        char name[16];
        (void)snprintf(name, sizeof name, "f%d", opened);
        tw_family_options options = rig_options(name, TW_WINDOW_ALIGNED, TW_MINUTE);
        tw_family *family;
        status = tw_family_open(small.engine, &options, &family);
    }
    assert_status(status, TW_ERR_MEMORY);
    assert_true(opened > (int)TWI_FAMILIES_FREE && opened < 1100);
    assert_true(test_stat_of(small.engine, memory_bytes) <= 1 << 20);
    rig_close(&small);
}
