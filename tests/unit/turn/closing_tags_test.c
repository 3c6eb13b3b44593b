/* closing_tags_test.c -- TW_CLOSED_BY_ONE where keys lie in several stores: what is sent to the election, what to the
 * sets of names, and in which order. Method: Redis is played by hand, with four tags. */
#include "engine/base/key_slot.h"
#include "engine/turn/closing.h"
#include "engine/turn/closing_election.h"
#include "tests/unit/hand_driver.h"

#define TAGS 4u
#define KEYS 200

static struct rig rig;
static tw_key names_said[TWI_CLOSING_NAMES_MAX];
static struct twi_closing_message say = {.names = names_said};
static int calls;
static uint32_t flags_seen, keys_seen;
static bool answers;

static bool see(void *ctx, const tw_count *count) {
    (void)ctx, (void)count;
    keys_seen++;
    return true;
}

static bool on_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    (void)ctx, (void)end_ms;
    calls++;
    flags_seen = flags;
    keys_seen = 0;
    assert_status(tw_each(family, start_ms, see, NULL), TW_OK);
    return answers;
}

static tw_family_options options_of(void) {
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.redis_key = "{%t}:%n:%k:%Y%m%d%H%M%S";
    options.redis_tags = TAGS;
    options.closed_by = TW_CLOSED_BY_ONE;
    options.on_window_closed = on_closed;
    return options;
}

/* The store of that group. */
static uint32_t meet(uint32_t group) {
    char name[16];
    int size = snprintf(name, sizeof name, "{%u}", twi_key_slot_tags(TAGS)[group]);
    return twi_port_store(rig.engine, twi_key_slot_of(name, (size_t)size));
}

static char logged[1024]; /* the last line about a window that is closed */

static void note_line(void *ctx, int level, int event, const char *text) {
    (void)ctx, (void)level;
    if (event == TW_EVENT_CLOSED) snprintf(logged, sizeof logged, "%s", text);
}

static void open_rig(void) {
    hand_init(&rig);
    rig.options.log_write = note_line;
    rig_start(&rig);
    twi_port_connected(rig.engine, true);
    calls = 0;
    answers = true;
    assert_int_equal(meet(0), 0);
}

static tw_family *open_family(void) {
    open_rig();
    tw_family_options options = options_of();
    return rig_family_of(&rig, &options);
}

static void acknowledge_all(void) {
    do {
        char name[TWI_REDIS_KEY_MAX];
        size_t size;
        for (size_t i = 0; i < hand->count; i++) assert_true(twi_port_assign(&hand->held[i], name, &size));
        while (hand->count != 0) hand_acknowledge(1);
    } while (hand_collect(1000) != 0);
}

static void answer_round(enum twi_closing_kind kind, uint32_t round) {
    twi_port_closing_answered(rig.engine, &say,
                              &(struct twi_closing_answer){.kind = kind, .scan = "0", .round = round});
}

static void answer(enum twi_closing_kind kind) {
    answer_round(kind, 0);
}

/* Counts and drains one window of `count` keys. */
static void drain_window(tw_family *family, int count) {
    char key[16];
    for (int i = 0; i < count; i++) {
        snprintf(key, sizeof key, "%d", i);
        rig_add(family, key, 1);
    }
    acknowledge_all();
    assert_int_equal(hand->count, 0); /* the window is announced first */
    assert_true(twi_port_closing(rig.engine, &say));
    assert_int_equal(say.announced.count, 1);
    answer(TWI_CLOSING_REPLY_OK);
    rig_pass(&rig, TW_MINUTE);
    assert_int_equal(hand_collect(1000), 0); /* silent for so long, it may be forgotten. It is announced again */
    assert_true(twi_port_closing(rig.engine, &say));
    assert_int_equal(say.verb, TWI_CLOSING_SEND_HEARTBEAT);
    assert_int_equal(say.announced.count, 1);
    answer(TWI_CLOSING_REPLY_OK);
    acknowledge_all();
    rig_pass(&rig, 30);
}

/* The next message, heartbeats apart, which are answered; false: none. */
static bool next_say(void) {
    for (int i = 0; i < 100 && twi_port_closing(rig.engine, &say); i++) {
        if (say.verb != TWI_CLOSING_SEND_HEARTBEAT) return true;
        answer(TWI_CLOSING_REPLY_OK);
    }
    return false;
}

static void expect(enum twi_closing_verb verb) {
    rig_pass(&rig, 30);
    assert_true(next_say());
    assert_int_equal(say.verb, verb);
    assert_true(say.by_tag);
}

static uint32_t group_of(tw_key key) {
    return twi_key_slot_crc16(key.data, key.size) % TAGS;
}

/* The names of all keys are added, each to the set of its group, until the index is sent. Returns how many names. */
static int take_names(uint32_t round) {
    int names = 0;
    uint32_t count = 0;
    bool failed = false;
    for (;;) {
        rig_pass(&rig, 30);
        assert_true(next_say());
        assert_int_equal(say.recorded, round == 0); /* batches record names in the sets of the first round */
        if (say.verb == TWI_CLOSING_SEND_LIST) return names;
        assert_int_equal(say.verb, TWI_CLOSING_SEND_ADD);
        assert_int_equal(say.round, round);
        assert_int_not_equal(say.name_count, 0);
        for (uint32_t i = 0; i < say.name_count; i++) assert_int_equal(group_of(say.names[i]), say.group);
        bool fails = !failed; /* every second time: it is sent again, whole */
        failed = fails;
        if (fails) count = say.name_count;
        if (!fails) assert_int_equal(say.name_count, count);
        if (!fails) names += (int)say.name_count;
        answer(fails ? TWI_CLOSING_REPLY_RESEND : TWI_CLOSING_REPLY_OK);
        if (fails) rig_pass(&rig, 200);
    }
}

/* Announces, adds `keys` names, confirms them. */
static void list_names(int keys, uint32_t round) {
    expect(TWI_CLOSING_SEND_LIST);
    assert_int_equal(say.name_count, 0);
    assert_int_equal(say.end_count, 1);
    answer_round(TWI_CLOSING_REPLY_OK, round);
    assert_int_equal(take_names(round), keys);
    assert_int_equal(say.end_count, 1); /* until the index is there it holds the others up */
    assert_int_equal(say.name_count, keys < (int)TAGS ? keys : (int)TAGS);
}

/* Reads an index of these groups, whose sets hold one other name each. */
static void read_names(const char *groups, uint32_t round) {
    expect(TWI_CLOSING_SEND_READ);
    for (const char *group = groups; *group != '\0'; group++)
        twi_port_closing_name(rig.engine, &say, tw_bytes(group, 1));
    twi_port_closing_name(rig.engine, &say, tw_str("4"));
    twi_port_closing_name(rig.engine, &say, tw_str("x"));
    answer(TWI_CLOSING_REPLY_YOU);
    for (const char *group = groups; *group != '\0'; group++) {
        char name[32];
        expect(TWI_CLOSING_SEND_FETCH);
        assert_int_equal(say.group, *group - '0');
        assert_int_equal(say.round, round);
        snprintf(name, sizeof name, "other-%c", *group);
        twi_port_closing_name(rig.engine, &say, tw_str(name));
        answer(TWI_CLOSING_REPLY_YOU);
    }
    rig_pass(&rig, 30);
    acknowledge_all();
    rig_pass(&rig, 30);
}

static void close_rig(void) {
    hand->settle_at_turns = true;
    (void)tw_close(rig.engine, 0);
}

/* ---- the tests ---- */

/* Goal: the whole way. Names go to the sets of their groups, the election gets the groups. The engine that closes reads
 * the groups, then the sets, and removes the sets of all groups when the window is closed. */
TEST(names_go_by_tag) {
    drain_window(open_family(), KEYS);
    expect(TWI_CLOSING_SEND_CLAIM);
    answer(TWI_CLOSING_REPLY_LIST);
    list_names(KEYS, 0);
    answer(TWI_CLOSING_REPLY_OK);
    expect(TWI_CLOSING_SEND_CLAIM);
    assert_true(say.flag);
    assert_int_equal(say.end_count, 0);
    answer(TWI_CLOSING_REPLY_YOU);
    read_names("013", 0);
    assert_i64_equal(calls, 1);
    assert_i64_equal(keys_seen, KEYS + 3 + 1); /* and the overflow counter */
    expect(TWI_CLOSING_SEND_DONE);
    answer_round(TWI_CLOSING_REPLY_DONE, 1);
    for (const char *group = "013"; *group != '\0'; group++) {
        expect(TWI_CLOSING_SEND_DROP);
        assert_int_equal(say.group, *group - '0');
        assert_int_equal(say.round, 0);
        answer(TWI_CLOSING_REPLY_OK);
    }
    rig_pass(&rig, 1000);
    assert_false(next_say());
    assert_i64_equal(calls, 1);
    close_rig();
}

/* Goal: the keys of one message lie in one slot; a set lies in the slot of its counters; each round has sets of its
 * own. */
TEST(the_keys_of_a_message_lie_in_one_slot) {
    tw_family *family = open_family();
    char keys[TWI_CLOSING_KEYS][TWI_OWN_NAME_MAX], other[TWI_CLOSING_KEYS][TWI_OWN_NAME_MAX];
    size_t sizes[TWI_CLOSING_KEYS];
    say = (struct twi_closing_message){
        .verb = TWI_CLOSING_SEND_CLAIM, .family = family, .start_ms = RIG_START_MS, .names = names_said};
    say.by_tag = true;
    assert_int_equal(twi_port_closing_keys(&say, keys, sizes), TWI_CLOSING_KEYS);
    for (int i = 0; i < TWI_CLOSING_KEYS; i++)
        assert_int_equal(twi_key_slot_of(keys[i], sizes[i]), twi_key_slot_of(keys[0], sizes[0]));
    say.verb = TWI_CLOSING_SEND_FETCH;
    for (say.group = 0; say.group < TAGS; say.group++) {
        char tag[16];
        int size = snprintf(tag, sizeof tag, "{%u}", twi_key_slot_tags(TAGS)[say.group]);
        say.round = 0;
        assert_int_equal(twi_port_closing_keys(&say, keys, sizes), 1);
        assert_int_equal(twi_key_slot_of(keys[0], sizes[0]), twi_key_slot_of(tag, (size_t)size));
        size_t first = sizes[0];
        say.round = 12;
        assert_int_equal(twi_port_closing_keys(&say, other, sizes), 1);
        assert_int_equal(sizes[0], first + 2);
        assert_int_equal(twi_key_slot_of(other[0], sizes[0]), twi_key_slot_of(tag, (size_t)size));
    }
    close_rig();
}

/* Goal: the window was closed while names were added. These sets are removed, and the names go to the sets of the next
 * round. */
TEST(names_that_come_too_late_are_added_to_the_next_round) {
    drain_window(open_family(), 1);
    expect(TWI_CLOSING_SEND_CLAIM);
    answer(TWI_CLOSING_REPLY_LIST);
    list_names(1, 0);
    uint32_t group = group_of(tw_str("0"));
    answer_round(TWI_CLOSING_REPLY_LATE, 1);
    expect(TWI_CLOSING_SEND_DROP);
    assert_int_equal(say.group, group);
    assert_int_equal(say.round, 0);
    answer(TWI_CLOSING_REPLY_OK);
    list_names(1, 1);
    answer_round(TWI_CLOSING_REPLY_LATE, 1);
    expect(TWI_CLOSING_SEND_CLAIM);
    assert_true(say.through);
    answer_round(TWI_CLOSING_REPLY_YOU, 1);
    read_names("2", 1);
    assert_i64_equal(calls, 1);
    close_rig();
}

/* Goal: an engine that has died, or that claimed the window before (an empty member of the index), may have recorded
 * names in groups that the index lacks. So all groups are read. */
TEST_EACH(all_groups_are_read_if_the_index_may_lack_some, 0, 1) {
    bool has_died = (uintptr_t)*state == 0;
    drain_window(open_family(), 1);
    expect(TWI_CLOSING_SEND_CLAIM);
    twi_port_closing_answered(
        rig.engine, &say,
        &(struct twi_closing_answer){.kind = TWI_CLOSING_REPLY_YOU, .scan = "0", .reads_all = has_died});
    expect(TWI_CLOSING_SEND_READ);
    twi_port_closing_name(rig.engine, &say, tw_str("2"));
    if (!has_died) twi_port_closing_name(rig.engine, &say, tw_str(""));
    answer(TWI_CLOSING_REPLY_YOU);
    for (uint32_t group = 0; group < TAGS; group++) {
        expect(TWI_CLOSING_SEND_FETCH);
        assert_int_equal(say.group, group);
        answer(TWI_CLOSING_REPLY_YOU);
    }
    rig_pass(&rig, 30);
    acknowledge_all();
    rig_pass(&rig, 30);
    assert_i64_equal(calls, 1);
    close_rig();
}

/* Goal: counts came during the hook. The sets stay, for the second call. */
TEST(the_sets_stay_for_a_second_call) {
    drain_window(open_family(), 1);
    expect(TWI_CLOSING_SEND_CLAIM);
    answer(TWI_CLOSING_REPLY_YOU);
    read_names("2", 0);
    expect(TWI_CLOSING_SEND_DONE);
    answer_round(TWI_CLOSING_REPLY_LATE, 0);
    expect(TWI_CLOSING_SEND_CLAIM);
    answer(TWI_CLOSING_REPLY_YOU);
    read_names("23", 0);
    assert_i64_equal(calls, 2);
    assert_i64_equal(keys_seen, 1 + 2 + 1);
    close_rig();
}

/* Goal: a set that does not answer holds an election up for a minute. Then the hook gets what there is, flagged. */
TEST(a_set_that_does_not_answer_is_left_out_after_a_while) {
    drain_window(open_family(), 2);
    expect(TWI_CLOSING_SEND_CLAIM);
    answer(TWI_CLOSING_REPLY_LIST);
    expect(TWI_CLOSING_SEND_LIST);
    answer(TWI_CLOSING_REPLY_OK);
    int64_t begun_ms = rig.engine->turn.mono_ms;
    uint32_t away = group_of(tw_str("0"));
    for (say.verb = TWI_CLOSING_SEND_ADD; say.verb != TWI_CLOSING_SEND_LIST; rig_pass(&rig, 200))
        while (next_say() && say.verb == TWI_CLOSING_SEND_ADD)
            answer(say.group == away ? TWI_CLOSING_REPLY_RESEND : TWI_CLOSING_REPLY_OK);
    assert_in_range(rig.engine->turn.mono_ms - begun_ms, 59000, 63000);
    assert_int_equal(say.verb, TWI_CLOSING_SEND_LIST);
    answer(TWI_CLOSING_REPLY_OK);
    assert_i64_equal(test_stat_of(rig.engine, windows_untold), 1);
    assert_non_null(strstr(logged, ": a store did not take the names of some of its keys [TW-E023"));
    expect(TWI_CLOSING_SEND_CLAIM);
    answer(TWI_CLOSING_REPLY_YOU);
    expect(TWI_CLOSING_SEND_READ);
    twi_port_closing_name(rig.engine, &say, tw_str("1"));
    answer(TWI_CLOSING_REPLY_YOU);
    begun_ms = rig.engine->turn.mono_ms;
    int renewed = 0;
    for (; rig.engine->turn.mono_ms - begun_ms < 59000; rig_pass(&rig, 200))
        while (next_say()) {
            if (say.verb == TWI_CLOSING_SEND_CLAIM) renewed++;
            answer(say.verb == TWI_CLOSING_SEND_CLAIM ? TWI_CLOSING_REPLY_YOU : TWI_CLOSING_REPLY_RESEND);
        }
    assert_in_range(renewed, 5, 6); /* every ten seconds */
    assert_i64_equal(calls, 0);
    for (int i = 0; i < 20 && calls == 0; i++) {
        rig_pass(&rig, 200);
        acknowledge_all();
        if (next_say()) answer(say.verb == TWI_CLOSING_SEND_CLAIM ? TWI_CLOSING_REPLY_YOU : TWI_CLOSING_REPLY_RESEND);
    }
    assert_i64_equal(calls, 1);
    assert_i64_equal(flags_seen, TW_CLOSED_LOCAL);
    close_rig();
}

/* Goal: a store was empty a while ago. The totals that were read are not used. The claim is given up, and the window is
 * claimed again when all others know. */
TEST(no_window_is_closed_shortly_after_a_store_was_empty) {
    drain_window(open_family(), 1);
    expect(TWI_CLOSING_SEND_CLAIM);
    answer(TWI_CLOSING_REPLY_YOU);
    int64_t until_ms = rig.engine->turn.mono_ms + 20000;
    twi_port_closing_pause(rig.engine, until_ms);
    read_names("2", 0);
    assert_i64_equal(calls, 0);
    expect(TWI_CLOSING_SEND_PASS);
    answer(TWI_CLOSING_REPLY_OK);
    expect(TWI_CLOSING_SEND_LIST); /* it had claimed the window without */
    answer(TWI_CLOSING_REPLY_OK);
    assert_int_equal(take_names(0), 1);
    answer(TWI_CLOSING_REPLY_OK);
    while (rig_pass(&rig, 200), !next_say()) {}
    assert_int_equal(say.verb, TWI_CLOSING_SEND_CLAIM);
    assert_in_range(rig.engine->turn.mono_ms, until_ms, until_ms + 400);
    answer(TWI_CLOSING_REPLY_YOU);
    read_names("2", 0);
    assert_i64_equal(calls, 1);
    assert_i64_equal(flags_seen, 0);
    close_rig();
}

/* Goal: a store of the window is wiped while this engine has claimed it. It gives the claim up, for under a claim Redis
 * does not look at all that the others delay; and it holds the window up until its names are there again. */
TEST(a_store_that_is_wiped_under_a_claim_ends_it) {
    drain_window(open_family(), 1);
    uint32_t store = meet(group_of(tw_str("0")));
    expect(TWI_CLOSING_SEND_CLAIM);
    answer(TWI_CLOSING_REPLY_YOU);
    expect(TWI_CLOSING_SEND_READ);
    (void)twi_port_restore(rig.engine, store);
    answer(TWI_CLOSING_REPLY_YOU);
    while (twi_port_restore_some(rig.engine)) {}
    expect(TWI_CLOSING_SEND_PASS);
    assert_int_equal(say.end_count, 1);
    answer(TWI_CLOSING_REPLY_OK);
    acknowledge_all();
    expect(TWI_CLOSING_SEND_LIST);
    assert_int_equal(say.end_count, 1);
    answer(TWI_CLOSING_REPLY_OK);
    assert_int_equal(take_names(0), 1);
    answer(TWI_CLOSING_REPLY_OK);
    expect(TWI_CLOSING_SEND_CLAIM);
    assert_int_equal(say.end_count, 0);
    answer(TWI_CLOSING_REPLY_YOU);
    read_names("2", 0);
    assert_i64_equal(calls, 1);
    close_rig();
}

/* Goal: names without a tag lie in slots of their own, so nobody could find all of a window. */
TEST(a_template_without_a_tag_is_refused) {
    char error[200] = "";
    tw_family *family = NULL;
    open_rig();
    tw_family_options options = options_of();
    options.redis_key = "%n:%k:%Y%m%d%H%M%S";
    options.error_text = error;
    options.error_size = sizeof error;
    assert_status(tw_family_open(rig.engine, &options, &family), TW_ERR_OPTIONS);
    assert_string_equal(error, "closed_by: in a Redis Cluster, TW_CLOSED_BY_ONE needs a redis_key with {%t}");
    options.closed_by = TW_CLOSED_BY_EACH;
    assert_status(tw_family_open(rig.engine, &options, &family), TW_OK);
    close_rig();
}
