/* batch_test.c -- what the arguments of a batch say to the script (sync/script/batch.lua): what one window has in
 * common is sent once, and each number that names another argument is the right one. */
#include "tests/unit/hand_driver.h"

#define twi_node twi_wire_node /* the engine's index has nodes, too */
#include "sync/batch/batch.h"
#undef twi_node

#define KEYS 3
#define FIRST_ARG 9u /* of the groups, in ARGV */
#define ARGS_MAX 64

static struct rig rig;
static char args[ARGS_MAX][64];
static uint32_t arg_count;

static void read_args(const struct twi_batch *batch) {
    const char *at = batch->args.data, *end = at + batch->args.size;
    for (arg_count = 0; at < end; arg_count++) {
        char *text;
        assert_true(*at == '$' && arg_count < ARGS_MAX);
        size_t size = strtoul(at + 1, &text, 10);
        assert_true(size < sizeof args[0]);
        memset(args[arg_count], 0, sizeof args[0]);
        memcpy(args[arg_count], text + 2, size);
        at = text + 2 + size + 2;
    }
    assert_int_equal(arg_count, batch->arg_count);
}

/* Freezes all that the family counted, in one batch, which acknowledges nothing. */
static void freeze(tw_family *family, const char *const keys[KEYS], int64_t delta) {
    const struct twi_freeze how = {.keys_max = TWI_BATCH_ITEMS_MAX, .bytes_max = TWI_BATCH_BYTES_MAX};
    size_t taken;
    for (int i = 0; i < KEYS; i++) rig_add(family, keys[i], delta);
    assert_int_equal(hand_collect(100), KEYS);
    twi_batch_sort(hand->held, KEYS, false);
    struct twi_batch *batch = twi_batch_freeze(hand->held, KEYS, &how, &taken);
    assert_int_equal(taken, KEYS);
    read_args(batch);
    twi_batch_free(batch);
}

/* Goal: the expiry of a window is sent once for all of its keys. */
TEST(keys_of_one_window_are_one_group) {
    hand_open(&rig);
    freeze(rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR), (const char *const[]){"a", "b", "c"}, 7);
    assert_int_equal(arg_count, 3 + KEYS);
    assert_string_equal(args[0], "W");
    assert_string_equal(args[2], "3");
    for (int i = 0; i < KEYS; i++) assert_string_equal(args[3 + i], "7");
    hand_close(&rig);
}

/* Goal: where names of keys are recorded, the script finds the delta of each, whatever stands between the deltas.
 * Method: strings, which have a delta each, and hashes, which have a delta and a field. */
TEST(recorded_names_say_where_the_deltas_are) {
    for (uint32_t shaped = 0; shaped < 2; shaped++) {
        const char *amount = shaped != 0 ? "7" : "1";
        hand_open(&rig);
        tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_HOUR);
        options.closed_by = TW_CLOSED_BY_ONE;
        options.redis_shape = shaped != 0 ? TW_REDIS_HASH : TW_REDIS_STRING;
        freeze(rig_family_of(&rig, &options), (const char *const[]){"h|a", "h|b", "h|c"}, atoi(amount));
        uint32_t width = 1 + shaped, named = 3 + KEYS * width, delta = (uint32_t)atoi(args[named + 8]);
        assert_string_equal(args[0], shaped != 0 ? "hW" : "W");
        assert_string_equal(args[named], "n");
        assert_int_equal(atoi(args[named + 2]), KEYS);
        assert_int_equal(atoi(args[named + 9]), width);
        for (uint32_t i = 0; i < KEYS; i++) assert_string_equal(args[delta - FIRST_ARG + i * width], amount);
        hand->settle_at_turns = true;
        (void)tw_close(rig.engine, 0);
    }
}
