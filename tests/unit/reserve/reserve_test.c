/* reserve_test.c -- tw_reserve(), tw_reserve_confirm(), tw_reserve_cancel(), tw_hold(), tw_hold_release() without
 * Redis: the number of units is exact, in whichever order reservations are confirmed, cancelled or expire.
 * Covers: engine/reserve/reserve_book.c, engine/reserve/reserve_local.c, engine/reserve/hold.c. */
#include "tests/unit/rig.h"

#include "engine/ask/redis_call.h"
#include "engine/reserve/reserve_local.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static struct rig rig;

static const tw_key nobody = {NULL, 0};

static tw_status reserve(tw_family *family, const char *key, int64_t n, int64_t limit, uint32_t ttl_ms, char *token) {
    return tw_reserve(family, tw_str(key), n, limit, ttl_ms, nobody, token, NULL);
}

/* Goal: confirmed units stay sold; cancelled and expired units go back; each answer can be had again. */
RIG_TEST(a_reservation_is_sold_cancelled_or_over) {
    tw_family *sale = rig_family(&rig, "sale", TW_WINDOW_FOREVER, 0);
    char sold[TW_TOKEN_SIZE], cancelled[TW_TOKEN_SIZE], over[TW_TOKEN_SIZE], none[TW_TOKEN_SIZE];
    assert_status(reserve(sale, "a", 3, 10, 1000, sold), TW_OK);
    assert_status(reserve(sale, "a", 4, 10, 1000, cancelled), TW_OK);
    assert_status(reserve(sale, "a", 3, 10, 1000, over), TW_OK);
    tw_verdict verdict;
    assert_status(tw_reserve(sale, tw_str("a"), 1, 10, 1000, nobody, none, &verdict), TW_DENIED);
    assert_i64_equal(strlen(none), 0);
    assert_i64_equal(verdict.used, 10);
    assert_i64_equal(verdict.final, 0);
    assert_i64_equal(verdict.retry_after_ms, 1000);
    assert_i64_equal(test_stat_of(rig.engine, reservations_held), 3);
    for (int again = 0; again < 3; again++) {
        assert_status(tw_reserve_confirm(rig.engine, sold), TW_OK);
        assert_status(tw_reserve_cancel(rig.engine, sold), TW_ERR_LATE);
        assert_status(tw_reserve_cancel(rig.engine, cancelled), TW_OK);
        assert_status(tw_reserve_confirm(rig.engine, cancelled), TW_ERR_LATE);
        assert_i64_equal(rig_get(sale, "a"), 6);
    }
    rig_pass(&rig, 999);
    assert_i64_equal(rig_get(sale, "a"), 6);
    rig_pass(&rig, 1);
    assert_i64_equal(rig_get(sale, "a"), 3); /* by itself: no call was made */
    assert_status(tw_reserve_confirm(rig.engine, over), TW_ERR_LATE);
    assert_status(tw_reserve_cancel(rig.engine, over), TW_OK);
    assert_status(tw_reserve_confirm(rig.engine, sold), TW_OK);
    assert_i64_equal(test_stat_of(rig.engine, reservations_held), 0);
    assert_i64_equal(test_stat_of(rig.engine, reservations_expired), 1);
    assert_i64_equal(rig_get(sale, "a"), 3);
}

/* Goal: at the very end of the lease time either confirm or expiry wins, also if no turn has run yet (trap L12). */
RIG_TEST(confirming_at_the_end_of_the_hold_is_late) {
    tw_family *sale = rig_family(&rig, "sale", TW_WINDOW_FOREVER, 0);
    char token[TW_TOKEN_SIZE], next[TW_TOKEN_SIZE];
    assert_status(reserve(sale, "a", 1, 1, 100, token), TW_OK);
    fake_clock_advance_ms(&rig.clock, 100);
    assert_status(tw_reserve_confirm(rig.engine, token), TW_ERR_LATE);
    assert_i64_equal(rig_get(sale, "a"), 0);
    assert_status(reserve(sale, "a", 1, 1, 100, next), TW_OK);
    fake_clock_advance_ms(&rig.clock, 99);
    assert_status(tw_reserve_confirm(rig.engine, next), TW_OK);
    rig_pass(&rig, 1000);
    assert_i64_equal(rig_get(sale, "a"), 1);
    /* Expired units deny nobody, though no turn has run. */
    assert_status(reserve(sale, "b", 5, 5, 100, token), TW_OK);
    fake_clock_advance_ms(&rig.clock, 100);
    assert_status(reserve(sale, "b", 5, 5, 100, next), TW_OK);
    assert_status(tw_reserve_confirm(rig.engine, token), TW_ERR_LATE);
    assert_i64_equal(rig_get(sale, "b"), 5);
}

/* Goal: a host that sleeps as long as tw_timeout_ms() says is there when a reservation ends, also one that was made
 * after the last turn. */
RIG_TEST(a_host_wakes_for_a_reservation_that_is_younger_than_its_turn) {
    tw_family *sale = rig_family(&rig, "sale", TW_WINDOW_FOREVER, 0);
    char token[TW_TOKEN_SIZE];
    assert_status(reserve(sale, "a", 1, 9, 60000, token), TW_OK);
    rig_settle(&rig);
    assert_status(reserve(sale, "a", 1, 9, 100, token), TW_OK);
    uint32_t timeout_ms = tw_timeout_ms(rig.engine);
    assert_true(timeout_ms > 0 && timeout_ms <= 100);
    for (int64_t passed_ms = 0; passed_ms < 100; passed_ms += timeout_ms, timeout_ms = tw_timeout_ms(rig.engine))
        rig_pass(&rig, timeout_ms);
    assert_i64_equal(rig_get(sale, "a"), 1);
}

/* Goal: the wall clock has no influence on the lease time. */
RIG_TEST(the_end_of_a_hold_goes_by_the_monotonic_clock) {
    tw_family *sale = rig_family(&rig, "sale", TW_WINDOW_FOREVER, 0);
    char token[TW_TOKEN_SIZE];
    assert_status(reserve(sale, "a", 1, 1, 60000, token), TW_OK);
    fake_clock_step_wall_ms(&rig.clock, 3 * TW_HOUR);
    rig_pass(&rig, 10000);
    fake_clock_step_wall_ms(&rig.clock, -9 * TW_HOUR);
    rig_pass(&rig, 49999);
    assert_i64_equal(rig_get(sale, "a"), 1);
    rig_pass(&rig, 1);
    assert_i64_equal(rig_get(sale, "a"), 0);
}

/* Goal: a buyer has at most one reservation, checked before anything is deducted. After a cancel the buyer may come
 * again. */
RIG_TEST(a_buyer_buys_once) {
    tw_family *sale = rig_family(&rig, "sale", TW_WINDOW_ALIGNED, TW_HOUR);
    char token[TW_TOKEN_SIZE], other[TW_TOKEN_SIZE];
    tw_verdict verdict;
    tw_key ann = tw_str("ann"), bob = tw_bytes("b\0b", 3);
    assert_status(tw_reserve(sale, tw_str("a"), 1, 9, 5000, ann, token, NULL), TW_OK);
    assert_status(tw_reserve(sale, tw_str("a"), 1, 9, 5000, ann, other, &verdict), TW_DENIED);
    assert_i64_equal(verdict.decided_by, TW_BY_BUYER);
    assert_i64_equal(verdict.retry_after_ms, 5000);
    assert_i64_equal(verdict.used, 1);
    assert_i64_equal(strlen(other), 0);
    assert_status(tw_reserve(sale, tw_str("b"), 1, 9, 5000, ann, other, NULL), TW_OK); /* another key */
    assert_status(tw_reserve(sale, tw_str("a"), 1, 9, 5000, bob, other, NULL), TW_OK);
    assert_status(tw_reserve(sale, tw_str("a"), 1, 9, 5000, bob, other, NULL), TW_DENIED);
    assert_status(tw_reserve_cancel(rig.engine, token), TW_OK);
    assert_status(tw_reserve(sale, tw_str("a"), 1, 9, 5000, ann, token, NULL), TW_OK);
    rig_pass(&rig, 5000);
    assert_status(tw_reserve(sale, tw_str("a"), 1, 9, 5000, ann, token, NULL), TW_OK);
    assert_status(tw_reserve_confirm(rig.engine, token), TW_OK);
    rig_pass(&rig, 600000);
    assert_status(tw_reserve(sale, tw_str("a"), 1, 9, 5000, ann, other, &verdict), TW_DENIED);
    assert_i64_equal(verdict.decided_by, TW_BY_BUYER);
    assert_i64_equal(verdict.retry_after_ms, -1);
    rig_pass(&rig, TW_HOUR); /* another window, another chance */
    assert_status(tw_reserve(sale, tw_str("a"), 1, 9, 5000, ann, other, NULL), TW_OK);
    assert_status(tw_reserve_confirm(rig.engine, token),
                  TW_OK); /* a reservation of the previous window: still the same answer */
}

/* Goal: units that return after the end of their window return to no other window (trap L7). */
RIG_TEST(units_return_to_their_own_window) {
    tw_family *sale = rig_family(&rig, "sale", TW_WINDOW_ALIGNED, TW_MINUTE);
    char token[TW_TOKEN_SIZE], kept[TW_TOKEN_SIZE];
    fake_clock_advance_ms(&rig.clock, 59000);
    assert_status(reserve(sale, "a", 4, 9, 2000, token), TW_OK);
    assert_status(reserve(sale, "a", 5, 9, 30000, kept), TW_OK);
    rig_pass(&rig, 1500);
    assert_status(tw_acquire(sale, tw_str("a"), 2, 9, NULL), TW_OK);
    rig_pass(&rig, 1500);
    assert_status(tw_reserve_confirm(rig.engine, token), TW_ERR_LATE);
    assert_status(tw_reserve_confirm(rig.engine, kept), TW_OK); /* a sale of the previous minute */
    assert_i64_equal(rig_get(sale, "a"), 2);
    assert_i64_equal(test_stat_of(rig.engine, late_increments), 0); /* no count came late: lateness_ms is no remedy */
    rig_pass(&rig, TW_MINUTE);
    assert_i64_equal(test_stat_of(rig.engine, late_increments), 0);
}

RIG_TEST(wrong_input_changes_nothing) {
    tw_family *sale = rig_family(&rig, "sale", TW_WINDOW_FOREVER, 0);
    tw_family *lives = rig_family(&rig, "lives", TW_WINDOW_FROM_FIRST, TW_MINUTE);
    char token[TW_TOKEN_SIZE] = "left", wrong[TW_TOKEN_SIZE + 2];
    static const char long_buyer[TW_KEY_SIZE_MAX + 1];
    assert_status(reserve(sale, "a", 0, 10, 1000, token), TW_ERR_RANGE);
    assert_i64_equal(strlen(token), 0);
    assert_status(reserve(sale, "a", -1, 10, 1000, token), TW_ERR_RANGE);
    assert_status(reserve(sale, "a", 1, -1, 1000, token), TW_ERR_RANGE);
    assert_status(reserve(sale, "a", TW_DELTA_MAX + 1, TW_DELTA_MAX, 1000, token), TW_ERR_RANGE);
    assert_status(reserve(sale, "a", 1, TW_DELTA_MAX + 1, 1000, token), TW_ERR_RANGE);
    assert_status(reserve(sale, "a", 1, 10, 0, token), TW_ERR_RANGE);
    assert_status(reserve(sale, "", 1, 10, 1000, token), TW_ERR_KEY);
    assert_status(tw_reserve(sale, tw_str("a"), 1, 10, 1000, tw_bytes(long_buyer, sizeof long_buyer), token, NULL),
                  TW_ERR_KEY);
    tw_verdict verdict;
    memset(&verdict, 0x55, sizeof verdict);
    assert_status(tw_reserve(lives, tw_str("a"), 1, 10, 1000, nobody, token, &verdict), TW_ERR_MODE);
    assert_i64_equal(verdict.allowed, 0);
    assert_i64_equal(verdict.limit, 10);
    for (size_t i = 0; i < 7; i++) assert_i64_equal(verdict.reserved[i], 0);
    assert_status(reserve(sale, "a", 11, 10, 1000, token), TW_DENIED); /* never */
    assert_i64_equal(test_stat_of(rig.engine, entries), 0);
    /* Tokens: one wrong letter anywhere, too short, too long, none. */
    assert_status(reserve(sale, "a", 1, 10, 1000, token), TW_OK);
    for (size_t i = 0; i < strlen(token); i++) {
        memcpy(wrong, token, sizeof token);
        wrong[i] = token[i] == '7' ? '8' : '7';
        assert_status(tw_reserve_confirm(rig.engine, wrong), TW_ERR_UNKNOWN_TOKEN);
        assert_status(tw_reserve_cancel(rig.engine, wrong), TW_ERR_UNKNOWN_TOKEN);
        wrong[i] = '\0';
        assert_status(tw_reserve_cancel(rig.engine, wrong), TW_ERR_UNKNOWN_TOKEN);
    }
    snprintf(wrong, sizeof wrong, "%s0", token);
    assert_status(tw_reserve_confirm(rig.engine, wrong), TW_ERR_UNKNOWN_TOKEN);
    assert_status(tw_reserve_confirm(rig.engine, NULL), TW_ERR_OPTIONS);
    assert_status(tw_reserve_confirm(rig.engine, "twr-0123456789abcdef0123456789abcdef-00000000"),
                  TW_ERR_UNKNOWN_TOKEN);
    assert_i64_equal(rig_get(sale, "a"), 1);
    assert_status(tw_reserve_confirm(rig.engine, token), TW_OK);
}

/* Goal: a token of Redis Cluster carries its slot; no wrong letter and no missing one goes unseen. */
RIG_TEST(a_token_of_a_cluster_carries_its_slot) {
    static const uint32_t slots[] = {0, 1, 0x0abc, 16383};
    struct twi_token made = {.id = "0123456789abcdef0123456789abcdef"}, read;
    char text[TW_TOKEN_SIZE], wrong[TW_TOKEN_SIZE];
    twi_token_write(&made, text);
    assert_int_equal(strlen(text), 45);
    assert_true(twi_token_read(text, &read) && !read.has_slot);
    made.has_slot = true;
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++) {
        made.slot = slots[i];
        twi_token_write(&made, text);
        assert_int_equal(strlen(text), 49);
        assert_true(twi_token_read(text, &read) && read.has_slot && !read.local);
        assert_int_equal(read.slot, slots[i]);
        assert_string_equal(read.id, made.id);
        for (size_t at = 0; at < strlen(text); at++) {
            strcpy(wrong, text);
            wrong[at] = wrong[at] == '0' ? '1' : '0';
            assert_false(twi_token_read(wrong, &read));
            wrong[at] = '\0';
            assert_false(twi_token_read(wrong, &read));
        }
    }
    made.slot = 16384; /* there is none */
    twi_token_write(&made, text);
    assert_false(twi_token_read(text, &read));
}

/* Goal: tokens of Redis, of another engine, and tokens that never existed are unknown here. A well-formed token that is
 * too old is unknown as well. */
RIG_TEST(tokens_of_elsewhere_are_unknown) {
    tw_family *sale = rig_family(&rig, "sale", TW_WINDOW_FOREVER, 0);
    char token[TW_TOKEN_SIZE], made[TW_TOKEN_SIZE];
    assert_status(reserve(sale, "a", 1, 10, 1000, token), TW_OK);
    struct twi_token read, of_redis = {.id = "0123456789abcdef0123456789abcdef"};
    assert_true(twi_token_read(token, &read));
    twi_token_write(&of_redis, made);
    assert_true(twi_token_read(made, &of_redis));
    assert_status(tw_reserve_confirm(rig.engine, made), TW_ERR_UNKNOWN_TOKEN);
    struct twi_token other = read;
    other.tag++;
    twi_token_write(&other, made);
    assert_status(tw_reserve_confirm(rig.engine, made), TW_ERR_UNKNOWN_TOKEN);
    other = read;
    other.serial++;
    twi_token_write(&other, made);
    assert_status(tw_reserve_confirm(rig.engine, made), TW_ERR_UNKNOWN_TOKEN);
    assert_status(tw_reserve_confirm(rig.engine, token), TW_OK);
    rig_pass(&rig, TW_DAY);
    assert_status(tw_reserve_confirm(rig.engine, token), TW_OK);
    rig_pass(&rig, 1000);
    assert_status(tw_reserve_confirm(rig.engine, token), TW_ERR_UNKNOWN_TOKEN);
    assert_i64_equal(rig_get(sale, "a"), 1);
}

/* Goal: S5. Reservations take at most half of the engine's memory, give all of it back, and are refused when there is
 * none. Counters find the other half, whatever is reserved. */
RIG_TEST(reservations_stay_within_the_memory) {
    rig_close(&rig);
    rig_init(&rig);
    rig.options.memory_bytes_max = 1 << 20;
    rig_start(&rig);
    tw_family *sale = rig_family(&rig, "sale", TW_WINDOW_FOREVER, 0);
    char token[TW_TOKEN_SIZE];
    int64_t made = 0;
    tw_status status;
    for (int round = 0; round < 3; round++) {
        int64_t now = 0;
        while ((status = reserve(sale, "a", 1, 1 << 20, 1000, token)) == TW_OK) now++;
        assert_status(status, TW_ERR_FULL);
        assert_true(now > 1000);
        assert_true(made == 0 || now == made);
        made = now;
        assert_i64_equal(rig_get(sale, "a"), made);
        assert_true(test_memory_bytes(rig.engine) <= 1 << 20);
        int64_t most = 1 << 19,
                own = test_memory_bytes(rig.engine); /* half is for reservations, the rest for counters */
        assert_true(own <= most + 4096 && own >= most * 3 / 4);
        tw_family *hits = rig_family(&rig, "hits", TW_WINDOW_FOREVER, 0);
        for (int i = 0; i < 3000; i++) {
            char key[16];
            assert_status(tw_add(hits, tw_bytes(key, (size_t)snprintf(key, sizeof key, "%d", i)), 1, NULL), TW_OK);
        }
        assert_status(tw_family_close(hits), TW_OK);
        rig_pass(&rig, 1000);
        assert_i64_equal(rig_get(sale, "a"), 0);
    }
}

RIG_TEST(a_closed_family_takes_its_reservations_along) {
    tw_family *sale = rig_family(&rig, "sale", TW_WINDOW_FOREVER, 0),
              *other = rig_family(&rig, "other", TW_WINDOW_FOREVER, 0);
    char token[TW_TOKEN_SIZE], kept[TW_TOKEN_SIZE], sold[TW_TOKEN_SIZE];
    assert_status(reserve(sale, "a", 1, 10, 1000, token), TW_OK);
    assert_status(reserve(other, "a", 2, 10, 1000, kept), TW_OK);
    assert_status(tw_reserve(other, tw_str("a"), 3, 10, 1000, tw_str("ann"), sold, NULL), TW_OK);
    assert_status(tw_reserve_confirm(rig.engine, sold), TW_OK);
    assert_status(tw_family_close(sale), TW_OK);
    assert_status(tw_reserve_confirm(rig.engine, token), TW_ERR_LATE); /* at once */
    rig_turn(&rig);
    assert_i64_equal(test_stat_of(rig.engine, reservations_held), 1);
    assert_status(tw_reserve_confirm(rig.engine, token), TW_ERR_LATE);
    rig_pass(&rig, 1000);
    assert_i64_equal(rig_get(other, "a"), 3);
    assert_status(tw_reserve_confirm(rig.engine, kept), TW_ERR_LATE);
    assert_status(tw_reserve_confirm(rig.engine, sold), TW_OK);
}

/* Goal: a forked child begins with an empty store. The parent's tokens are unknown there, and the parent is not
 * affected. */
RIG_TEST(a_forked_child_holds_nothing) {
    if (test_misses_wiped_pages()) return;
    tw_family *sale = rig_family(&rig, "sale", TW_WINDOW_FOREVER, 0);
    char token[TW_TOKEN_SIZE], own[TW_TOKEN_SIZE];
    assert_status(reserve(sale, "a", 10, 10, 1000, token), TW_OK);
    pid_t pid = fork();
    if (pid == 0) {
        bool well = reserve(sale, "a", 10, 10, 1000, own) == TW_OK &&
                    tw_reserve_confirm(rig.engine, token) == TW_ERR_UNKNOWN_TOKEN &&
                    tw_reserve_confirm(rig.engine, own) == TW_OK;
        _exit(well ? 0 : 1);
    }
    int status;
    waitpid(pid, &status, 0);
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_status(tw_reserve_confirm(rig.engine, token), TW_OK);
}

/* ---- against a slow model ---- */

#define MODEL_MAX 4000
struct kept {
    char token[TW_TOKEN_SIZE];
    int64_t n, due_ms;
    int key, buyer; /* buyer -1: nobody */
    enum { KEPT_HELD, KEPT_SOLD, KEPT_BACK } state;
};
struct stock_model {
    struct kept kept[MODEL_MAX];
    int count;
    int64_t mono_ms;
};

static void model_pass(struct stock_model *model) {
    for (int i = 0; i < model->count; i++)
        if (model->kept[i].state == KEPT_HELD && model->kept[i].due_ms <= model->mono_ms)
            model->kept[i].state = KEPT_BACK;
}
static int64_t model_used(const struct stock_model *model, int key) {
    int64_t used = 0;
    for (int i = 0; i < model->count; i++)
        if (model->kept[i].key == key && model->kept[i].state != KEPT_BACK) used += model->kept[i].n;
    return used;
}
static bool model_has_bought(const struct stock_model *model, int key, int buyer) {
    for (int i = 0; i < model->count; i++)
        if (model->kept[i].key == key && model->kept[i].buyer == buyer && model->kept[i].state != KEPT_BACK)
            return true;
    return false;
}

static void step_reserve(struct stock_model *model, struct test_prng *prng, tw_family *sale) {
    char key[8], buyer[16], token[TW_TOKEN_SIZE];
    int which = (int)test_prng_below(prng, 3), who = (int)test_prng_below(prng, 30) - 15;
    int64_t n = test_prng_between(prng, 1, 5), limit = 20 + 10 * which;
    uint32_t ttl_ms = (uint32_t)test_prng_between(prng, 1, 3000);
    snprintf(key, sizeof key, "key%d", which);
    snprintf(buyer, sizeof buyer, "ann%d", who);
    if (who < 0) who = -1;
    bool bought = who >= 0 && model_has_bought(model, which, who);
    tw_status want = bought || model_used(model, which) + n > limit ? TW_DENIED : TW_OK;
    assert_status(tw_reserve(sale, tw_str(key), n, limit, ttl_ms, who < 0 ? nobody : tw_str(buyer), token, NULL), want);
    if (want != TW_OK) return;
    struct kept *kept = &model->kept[model->count++];
    *kept = (struct kept){.n = n, .due_ms = model->mono_ms + ttl_ms, .key = which, .buyer = who};
    memcpy(kept->token, token, sizeof token);
}

static void step_settle(struct stock_model *model, struct test_prng *prng) {
    if (model->count == 0) return;
    int recent = model->count < 40 ? model->count : 40; /* mostly the reservations that still live */
    int back = (int)test_prng_below(prng, (uint64_t)(test_prng_chance(prng, 1, 4) ? model->count : recent));
    struct kept *kept = &model->kept[model->count - 1 - back];
    bool confirm = test_prng_chance(prng, 1, 3);
    if (kept->state == KEPT_HELD) kept->state = confirm ? KEPT_SOLD : KEPT_BACK;
    if (confirm)
        assert_status(tw_reserve_confirm(rig.engine, kept->token), kept->state == KEPT_SOLD ? TW_OK : TW_ERR_LATE);
    else
        assert_status(tw_reserve_cancel(rig.engine, kept->token), kept->state == KEPT_SOLD ? TW_ERR_LATE : TW_OK);
}

/* Goal: thousands of random calls answer as a slow list of reservations does. */
RIG_TEST(random_calls_agree_with_a_slow_model) {
    static struct stock_model model;
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (uint64_t round = 0; round < test_scale(10) && round < 100; round++) {
        char name[16];
        snprintf(name, sizeof name, "sale%d", (int)round);
        tw_family *sale = rig_family(&rig, name, TW_WINDOW_FOREVER, 0);
        model.count = 0;
        for (int step = 0; step < 3000 && model.count < MODEL_MAX; step++) {
            int64_t pass_ms = test_prng_chance(&prng, 1, 2) ? 0 : test_prng_between(&prng, 0, 400);
            model.mono_ms += pass_ms;
            fake_clock_advance_ms(&rig.clock, pass_ms);
            model_pass(&model);
            if (test_prng_chance(&prng, 1, 3)) rig_settle(&rig);
            if (test_prng_chance(&prng, 1, 2))
                step_reserve(&model, &prng, sale);
            else
                step_settle(&model, &prng);
        }
        for (int key = 0; key < 3; key++) {
            char text[8];
            rig_settle(&rig);
            snprintf(text, sizeof text, "key%d", key);
            assert_i64_equal(rig_get(sale, text), model_used(&model, key));
        }
        assert_status(tw_family_close(sale), TW_OK);
        rig_settle(&rig);
    }
}

/* ---- threads ---- */

struct worker {
    tw_family *sale;
    uint64_t seed;
    int64_t sold;
    _Atomic int64_t *out; /* units acquired besides, and never returned */
};

static void *work(void *arg) {
    struct worker *worker = arg;
    struct test_prng prng;
    char token[TW_TOKEN_SIZE];
    test_prng_seed(&prng, worker->seed);
    for (uint64_t i = 0; i < test_scale(3000); i++) {
        int64_t n = test_prng_between(&prng, 1, 3);
        if (test_prng_chance(&prng, 1, 10)) {
            if (tw_acquire(worker->sale, tw_str("a"), n, 500, NULL) == TW_OK) atomic_fetch_add(worker->out, n);
            continue;
        }
        if (reserve(worker->sale, "a", n, 500, 1 + (uint32_t)test_prng_below(&prng, 3), token) != TW_OK) continue;
        if (test_prng_chance(&prng, 1, 20)) {
            if (tw_reserve_confirm(worker->sale->engine, token) == TW_OK) worker->sold += n;
        } else if (test_prng_chance(&prng, 2, 3)) {
            (void)tw_reserve_cancel(worker->sale->engine, token);
        }
    }
    return NULL;
}

static bool is_nothing_held(void *engine) {
    return test_stat_of(engine, reservations_held) == 0;
}

/* Goal: with the real clock and several threads, the final count is the sold units, to the unit. Each reservation was
 * either confirmed or given back, never both. */
TEST(threads_and_time_outs_conserve_the_stock) {
    enum { WORKERS = 4 };
    tw_options options;
    tw_options_init(&options);
    tw_engine *engine;
    assert_status(tw_open(&options, &engine), TW_OK);
    tw_family_options family_options = rig_options("sale", TW_WINDOW_FOREVER, 0);
    tw_family *sale;
    assert_status(tw_family_open(engine, &family_options, &sale), TW_OK);
    struct worker workers[WORKERS];
    pthread_t threads[WORKERS];
    _Atomic int64_t out = 0;
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = (struct worker){sale, test_seed() ^ (uint64_t)i, 0, &out};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    int64_t sold = 0;
    for (int i = 0; i < WORKERS; i++) {
        pthread_join(threads[i], NULL);
        sold += workers[i].sold;
    }
    assert_true(test_wait(is_nothing_held, engine, TEST_PATIENCE_MS));
    int64_t used;
    assert_status(tw_get(sale, tw_str("a"), &used), TW_OK);
    assert_i64_equal(used, sold + out);
    assert_true(used <= 500);
    assert_status(tw_close(engine, 0), TW_OK);
}

/* ---- holds ---- */

RIG_TEST(at_most_so_many_are_held) {
    tw_family *jobs = rig_family(&rig, "jobs", TW_WINDOW_FOREVER, 0);
    tw_verdict verdict;
    for (int i = 1; i <= 3; i++) {
        assert_status(tw_hold(jobs, tw_str("a"), 3, &verdict), TW_OK);
        assert_i64_equal(verdict.used, i);
    }
    assert_status(tw_hold(jobs, tw_str("a"), 3, &verdict), TW_DENIED);
    assert_i64_equal(verdict.used, 3);
    assert_status(tw_hold(jobs, tw_str("b"), 3, NULL), TW_OK);
    assert_status(tw_hold_release(jobs, tw_str("a")), TW_OK);
    assert_status(tw_hold(jobs, tw_str("a"), 3, NULL), TW_OK);
    for (int i = 0; i < 3; i++) assert_status(tw_hold_release(jobs, tw_str("a")), TW_OK);
    assert_status(tw_hold_release(jobs, tw_str("a")), TW_ERR_RANGE); /* never below 0 */
    assert_status(tw_hold_release(jobs, tw_str("never held")), TW_ERR_RANGE);
    assert_i64_equal(rig_get(jobs, "a"), 0);
    assert_status(tw_hold(jobs, tw_str("a"), 0, NULL), TW_DENIED);
    assert_status(tw_hold(jobs, tw_str("a"), -1, NULL), TW_ERR_RANGE);
    assert_status(tw_hold(jobs, tw_str(""), 1, NULL), TW_ERR_KEY);
    assert_status(tw_hold_release(jobs, tw_str("")), TW_ERR_KEY);
    assert_status(tw_hold(jobs, tw_str("a"), 3, NULL), TW_OK);
    tw_family_options options = rig_options("jobs", TW_WINDOW_FOREVER, 0);
    options.shadow = true;
    assert_status(tw_family_set(jobs, &options), TW_OK);
    assert_status(tw_hold(jobs, tw_str("a"), 3, NULL), TW_ERR_MODE);
    assert_status(tw_hold_release(jobs, tw_str("a")), TW_OK); /* what was held before shadow mode */
    tw_family *hours = rig_family(&rig, "hours", TW_WINDOW_ALIGNED, TW_HOUR);
    assert_status(tw_hold(hours, tw_str("a"), 3, NULL), TW_ERR_MODE);
    assert_status(tw_hold_release(hours, tw_str("a")), TW_ERR_MODE);
}

struct holder {
    tw_family *jobs;
    _Atomic int64_t *inside, *most;
    int64_t held;
};

static void *hold_and_release(void *arg) {
    struct holder *holder = arg;
    for (uint64_t i = 0; i < test_scale(50000); i++) {
        if (tw_hold(holder->jobs, tw_str("a"), 5, NULL) != TW_OK) continue;
        int64_t now = atomic_fetch_add(holder->inside, 1) + 1, most = atomic_load(holder->most);
        while (now > most && !atomic_compare_exchange_weak(holder->most, &most, now)) continue;
        holder->held++;
        atomic_fetch_sub(holder->inside, 1);
        assert_status(tw_hold_release(holder->jobs, tw_str("a")), TW_OK);
    }
    return NULL;
}

/* Goal: never more threads than the limit are inside together, on a hot key or not, and none stays inside. */
RIG_TEST(threads_never_pass_the_limit_in_flight) {
    enum { HOLDERS = 8 };
    tw_family *jobs = rig_family(&rig, "jobs", TW_WINDOW_FOREVER, 0);
    _Atomic int64_t inside = 0, most = 0;
    struct holder holders[HOLDERS];
    pthread_t threads[HOLDERS];
    for (int i = 0; i < HOLDERS; i++) {
        holders[i] = (struct holder){jobs, &inside, &most, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, hold_and_release, &holders[i]), 0);
    }
    int64_t held = 0;
    for (int i = 0; i < HOLDERS; i++) {
        pthread_join(threads[i], NULL);
        held += holders[i].held;
    }
    assert_true(most <= 5);
    assert_true(held > 0);
    assert_i64_equal(rig_get(jobs, "a"), 0);
}

#define CROWD 5000

/* So many reservations of one unit each, for 1,000 keys; they end at the same moment. */
static void reserve_crowd(tw_family *sale, uint32_t ttl_ms) {
    char token[TW_TOKEN_SIZE], key[16];
    for (uint32_t i = 0; i < CROWD; i++) {
        snprintf(key, sizeof key, "sku %u", i % 1000);
        assert_status(reserve(sale, key, 1, CROWD, ttl_ms, token), TW_OK);
    }
}

/* Goal: L2. What ends together is taken back by the turn in bounded pieces; a call takes back a few, and a denied one
 * some hundred before it is denied. None is lost, and at the end the index has given its memory back. */
RIG_TEST(what_ends_together_is_taken_back_in_pieces) {
    tw_family *sale = rig_family(&rig, "sale", TW_WINDOW_FOREVER, 0),
              *one = rig_family(&rig, "one", TW_WINDOW_FOREVER, 0);
    char token[TW_TOKEN_SIZE];
    reserve_crowd(sale, 1000);
    assert_status(reserve(one, "last", 1, 1, 1001, token), TW_OK); /* the last one to end */
    assert_i64_equal(test_stat_of(rig.engine, reservations_held), CROWD + 1);
    fake_clock_advance_ms(&rig.clock, 2000);
    assert_status(reserve(sale, "sku 1", 1, CROWD, 60000, token), TW_OK);
    int64_t expired = test_stat_of(rig.engine, reservations_expired);
    assert_true(expired > 0 && expired <= 64);
    tw_verdict verdict;
    assert_status(tw_reserve(one, tw_str("last"), 1, 1, 60000, nobody, token, &verdict), TW_DENIED);
    assert_true(verdict.retry_after_ms > 0 && verdict.retry_after_ms <= 20); /* the turn is about to take it back */
    expired = test_stat_of(rig.engine, reservations_expired);
    assert_true(expired > 64 && expired <= 1024);
    for (uint32_t turn = 0; test_stat_of(rig.engine, reservations_held) > 1; turn++) {
        int64_t last = test_stat_of(rig.engine, reservations_expired);
        assert_int_equal(tw_timeout_ms(rig.engine), 0);
        rig_turn(&rig);
        assert_true(test_stat_of(rig.engine, reservations_expired) - last <= 1024 && turn < CROWD);
    }
    assert_i64_equal(test_stat_of(rig.engine, reservations_expired), CROWD + 1);
    assert_status(reserve(one, "last", 1, 1, 60000, token), TW_OK);
    assert_status(tw_reserve_confirm(rig.engine, token), TW_OK);
    for (int turn = 0; turn < 200; turn++) rig_turn(&rig);
    assert_true(tw_timeout_ms(rig.engine) > 0);
    assert_int_equal(rig.engine->here->reservations->chains.log2, 6);
    assert_int_equal(rig.engine->here->reservations->chains.old_index, 0);
}

/* Goal: closing a family takes no longer with many reservations, of others or of its own, and neither is mixed up; its
 * tokens are late at once; the family is freed once the turn has forgotten them. */
RIG_TEST(a_family_of_many_reservations_is_closed_in_pieces) {
    tw_family *sale = rig_family(&rig, "sale", TW_WINDOW_FOREVER, 0),
              *kept = rig_family(&rig, "kept", TW_WINDOW_FOREVER, 0);
    tw_family *idle = rig_family(&rig, "idle", TW_WINDOW_FOREVER, 0);
    char token[TW_TOKEN_SIZE], late[TW_TOKEN_SIZE];
    assert_status(reserve(sale, "a", 1, 10, 60000, late), TW_OK);
    assert_status(reserve(kept, "a", 1, 10, 60000, token), TW_OK);
    reserve_crowd(sale, 60000);
    reserve_crowd(kept, 60000);
    assert_status(tw_family_close(idle), TW_OK);
    assert_status(tw_family_close(sale), TW_OK);
    assert_i64_equal(test_stat_of(rig.engine, reservations_held), 2 * CROWD + 2); /* nothing was walked */
    assert_status(tw_reserve_confirm(rig.engine, late), TW_ERR_LATE);
    tw_family *again = rig_family(&rig, "sale", TW_WINDOW_FOREVER, 0);
    reserve_crowd(again, 60000); /* while the turn walks, the index grows */
    for (int turn = 0; turn < 400; turn++) rig_turn(&rig);
    assert_i64_equal(test_stat_of(rig.engine, reservations_held), 2 * CROWD + 1);
    assert_i64_equal(twi_load_relaxed(&rig.engine->roster.count), 2);
    assert_status(tw_reserve_confirm(rig.engine, late), TW_ERR_LATE);
    assert_status(tw_reserve_confirm(rig.engine, token), TW_OK);
    fake_clock_advance_ms(&rig.clock, 60000);
    for (int turn = 0; turn < 400; turn++) rig_turn(&rig);
    assert_i64_equal(test_stat_of(rig.engine, reservations_held), 0);
    assert_i64_equal(rig_get(kept, "a"), 1);
    assert_i64_equal(rig_get(again, "sku 1"), 0);
}
