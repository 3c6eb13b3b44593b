/* hold_book_test.c -- the book of holds: any number of them, entered, taken out, sent again, and forgotten with their
 * family, in bounded pieces. Method: the book against a plain list; no Redis.
 * Covers: engine/reserve/chains.c, engine/core/peers.h. */
#include "tests/unit/hand_driver.h"

#include "engine/core/family.h"
#include "engine/reserve/hold_book.h"
#include "engine/turn/turn.h"

#define KEYS 50
#define MANY 20000

static struct rig rig;

static tw_family *family_of(const char *name) {
    tw_family_options options = rig_options(name, TW_WINDOW_FOREVER, 0);
    return rig_family_of(&rig, &options);
}

static tw_key key_of(uint64_t number, char text[16]) {
    (void)snprintf(text, 16, "k%u", (unsigned)number);
    return tw_str(text);
}

static void enter(tw_family *family, uint64_t key, char member[TWI_HOLD_MEMBER_MAX]) {
    char text[16];
    twi_hold_book_name(rig.engine, member);
    assert_true(twi_hold_book_enter(family, key_of(key, text), member, true, (struct twi_hold_said){0}));
}

/* Goal: while the index grows, chain by chain, each hold is found, the newest of its key first, and none is counted
 * twice. */
HAND_TEST(the_newest_hold_of_a_key_is_taken_out) {
    static char members[KEYS][1000][TWI_HOLD_MEMBER_MAX];
    static int counts[KEYS];
    tw_family *family = family_of("f");
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    memset(counts, 0, sizeof counts);
    bool was_moving = false;
    for (int i = 0; i < MANY; i++) {
        uint64_t key = test_prng_below(&prng, KEYS);
        char text[16], member[TWI_HOLD_MEMBER_MAX];
        struct twi_hold_said said;
        bool enters = counts[key] == 0 || (counts[key] < 1000 && test_prng_below(&prng, 10) < 7);
        if (enters) {
            enter(family, key, members[key][counts[key]++]);
        } else {
            assert_true(twi_hold_book_leave(family, key_of(key, text), member, &said));
            assert_string_equal(member, members[key][--counts[key]]);
        }
        was_moving = was_moving || rig.engine->here->holds->chains.old_index != 0;
        assert_i64_equal(twi_hold_book_count(family, key_of(key, text)), counts[key]);
    }
    assert_true(was_moving); /* no call moved all */
}

/* Goal: a family that is closed with many holds is forgotten in pieces, by the turn; holds of another family stay, and
 * none of the closed one is sent any more. */
HAND_TEST(a_closed_family_is_forgotten_in_pieces) {
    tw_family *family = family_of("gone"), *other = family_of("stays");
    char member[TWI_HOLD_MEMBER_MAX], text[16];
    for (uint64_t i = 0; i < MANY; i++) {
        enter(family, i, member);
        if (i % 10 == 0) enter(other, i, member);
    }
    assert_i64_equal((int64_t)rig.engine->here->holds->entries, MANY + MANY / 10);
    assert_status(tw_family_close(family), TW_OK);
    assert_true(rig.engine->here->holds->entries > MANY); /* it did not take all out */
    twi_hold_book_resend(rig.engine);
    rig_pass(&rig, 10);
    struct twi_hold_member due;
    int sent = 0;
    for (int i = 0; i < 2 * MANY && rig.engine->here->holds->entries > MANY / 10; i++) {
        while (twi_port_hold_due(rig.engine, &due)) {
            assert_memory_equal(due.name, "tw:hold:stays", 13);
            sent++;
        }
        rig_pass(&rig, 5);
    }
    assert_i64_equal((int64_t)rig.engine->here->holds->entries, MANY / 10);
    while (twi_port_hold_due(rig.engine, &due)) sent++;
    assert_int_equal(sent, MANY / 10);
    for (uint64_t i = 0; i < MANY; i += 10) assert_i64_equal(twi_hold_book_count(other, key_of(i, text)), 1);
}

/* Goal: with another id each hold has another name when it is sent next, and when it is taken out. */
HAND_TEST(with_another_id_each_hold_is_named_anew) {
    static const char id[33] = "0123456789abcdef0123456789abcdef";
    tw_family *family = family_of("f");
    char member[TWI_HOLD_MEMBER_MAX], text[16];
    for (uint64_t i = 0; i < 100; i++) enter(family, i, member);
    twi_hold_book_rename(rig.engine, id);
    rig_pass(&rig, 10);
    struct twi_hold_said said = {.first = 1};
    assert_true(twi_hold_book_leave(family, key_of(99, text), member, &said));
    assert_memory_equal(member, id, 32);
    assert_true(said.first == 0 && said.last == 0 && !said.is_copied);
    struct twi_hold_member due;
    int sent = 0;
    for (; twi_port_hold_due(rig.engine, &due); sent++) assert_memory_equal(due.member, id, 32);
    assert_int_equal(sent, 99);
}

static void state_all(void) {
    struct twi_hold_member due;
    twi_hold_book_resend(rig.engine);
    fake_clock_advance_ms(&rig.clock, 10);
    while (twi_port_hold_due(rig.engine, &due)) continue;
    twi_port_holds_sent(rig.engine);
}

/* Takes out the newest hold of the key. Returns true if something may bring it back. */
static bool may_come(tw_family *family, uint64_t key) {
    struct twi_hold_said said;
    char member[TWI_HOLD_MEMBER_MAX], text[16];
    assert_true(twi_hold_book_leave(family, key_of(key, text), member, &said));
    return twi_hold_book_may_come(rig.engine, &said);
}

/* Goal: a release knows whether a message that contained its hold, or its own request, may still come to Redis. */
HAND_TEST(what_may_bring_a_hold_back_is_known) {
    tw_family *family = family_of("f");
    char member[TWI_HOLD_MEMBER_MAX], text[16];
    for (uint64_t i = 0; i < 5; i++) enter(family, i, member);
    assert_false(may_come(family, 0)); /* no message had it */
    state_all();
    assert_true(may_come(family, 1)); /* a message is under way */
    twi_port_holds_answered(rig.engine);
    assert_false(may_come(family, 2));
    state_all();
    state_all();
    twi_port_holds_unsure(rig.engine); /* the later one is lost first */
    twi_port_holds_answered(rig.engine);
    twi_port_holds_answered(rig.engine);
    enter(family, 5, member);
    state_all();
    twi_port_holds_answered(rig.engine);
    assert_true(may_come(family, 3));
    assert_false(may_come(family, 5)); /* only a later message had it */
    fake_clock_advance_ms(&rig.clock, 660000);
    assert_false(may_come(family, 4));
    twi_hold_book_name(rig.engine, member);
    assert_true(twi_hold_book_enter(family, key_of(6, text), member, true, (struct twi_hold_said){.is_copied = true}));
    assert_true(may_come(family, 6));
}
