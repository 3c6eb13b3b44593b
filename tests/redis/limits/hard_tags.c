/* hard_tags.c -- hard limits over several stores on one real Redis: names have hash tags, and each tag has a separate
 * epoch. tests/model/leases.c has every order of events. */
#include "tests/redis/limits/hard_support.h"
#include "tests/support/side_by_side.h"

#include "engine/base/key_slot.h"

#define TAGS 4u
#define LIMIT 100

static tw_family *tagged_family(tw_engine *engine) {
    tw_family_options options = plain_family_options("sale", TW_WINDOW_FOREVER, 0);
    options.limit_mode = TW_LIMIT_HARD;
    options.redis_tags = TAGS;
    options.redis_key = "{%t}:%n:%k";
    return opened_family(engine, options);
}

/* A key that lies in that group. */
static void key_in(char text[16], uint32_t group) {
    for (int number = 0;; number++) {
        int size = snprintf(text, 16, "k%d", number);
        if (twi_key_slot_crc16(text, (size_t)size) % TAGS == group) return;
    }
}

static const char *ask_tagged(struct redis_server *server, const char *command, const char *name, uint32_t group,
                              const char *field) {
    char text[64];
    snprintf(text, sizeof text, "%s{%u}", name, twi_key_slot_tags(TAGS)[group]);
    return redis_server_ask(server, command, text, field, NULL);
}

static int64_t sell_in(tw_family *family, uint32_t group, int64_t count) {
    char key[16];
    key_in(key, group);
    return sell_some(family, tw_str(key), count, LIMIT, 5000);
}

static void open_both(struct redis_server *server, tw_engine **engines, tw_family **families) {
    test_tuning.stores_by_tag = true;
    redis_server_start(server, NULL);
    for (int i = 0; i < 2; i++) {
        engines[i] = quick_engine(server->url, NULL);
        families[i] = tagged_family(engines[i]);
    }
}

/* Sells out; then all of each limit is sold, and no unit is at risk. */
static void close_both(struct redis_server *server, tw_engine **engines, tw_family **families, const int64_t *sold) {
    tw_verdict verdict;
    for (uint32_t group = 0; group < TAGS; group++) {
        char key[16], name[48];
        key_in(key, group);
        int64_t all = sold[group] + sell(families[1], tw_str(key), 1, LIMIT, 10000, &verdict);
        all += sell(families[0], tw_str(key), 1, LIMIT, 10000, &verdict);
        assert_i64_equal(all, LIMIT);
        assert_int_equal(verdict.final, 1);
        snprintf(name, sizeof name, "{%u}:sale:%s", twi_key_slot_tags(TAGS)[group], key);
        for (int i = 0; i < 2; i++) assert_status(tw_flush(engines[i], TEST_PATIENCE_MS), TW_OK);
        assert_i64_equal(redis_server_get(server, name), LIMIT);
    }
    int64_t at_risk = 0;
    for (int i = 0; i < 2; i++) at_risk += test_stat_of(engines[i], limit_at_risk);
    assert_i64_equal(at_risk, 0);
    for (int i = 0; i < 2; i++) assert_status(tw_close(engines[i], TEST_PATIENCE_MS), TW_OK);
    for (uint32_t group = 0; group < TAGS; group++) /* both have left, everywhere */
        assert_string_equal(ask_tagged(server, "HGET", "tw:leases:", group, "n"), "0");
    redis_server_destroy(server);
}

/* Goal: each tag has a separate epoch under a separate name; only tags with leases have one. */
TEST(each_tag_sells_exactly_its_limit) {
    struct redis_server server;
    tw_engine *engines[2];
    tw_family *families[2];
    int64_t sold[TAGS] = {0};
    open_both(&server, engines, families);
    for (int i = 0; i < 2; i++) sold[0] += sell_in(families[i], 0, 20);
    assert_i64_equal(sold[0], 40);
    assert_string_equal(ask_tagged(&server, "HGET", "tw:leases:", 0, "n"), "2");
    assert_string_equal(redis_server_ask(&server, "EXISTS", "tw:leases", NULL), "0");
    assert_string_equal(ask_tagged(&server, "EXISTS", "tw:leases:", 1, NULL), "0");
    for (uint32_t group = 1; group < TAGS; group++) sold[group] += sell_in(families[group % 2], group, 20);
    close_both(&server, engines, families, sold);
}

/* Goal: a tag whose leases were forgotten grants nothing before all engines have restated. Meanwhile the others sell,
 * in the earlier epoch. */
TEST(a_tag_that_forgets_stops_no_other) {
    struct redis_server server;
    tw_engine *engines[2];
    tw_family *families[2];
    int64_t sold[TAGS] = {0};
    char key[16], name[64], before[TAGS][64];
    open_both(&server, engines, families);
    for (uint32_t group = 0; group < TAGS; group++)
        for (int i = 0; i < 2; i++) sold[group] += sell_in(families[i], group, 10);
    for (uint32_t group = 0; group < TAGS; group++)
        snprintf(before[group], sizeof before[group], "%s", ask_tagged(&server, "HGET", "tw:leases:", group, "id"));
    key_in(key, 0);
    snprintf(name, sizeof name, "tw:lease:{%u}:sale:%s", twi_key_slot_tags(TAGS)[0], key);
    redis_server_ask(&server, "DEL", name, NULL);
    ask_tagged(&server, "DEL", "tw:leases:wanted:", 0, NULL);
    ask_tagged(&server, "DEL", "tw:leases:", 0, NULL);
    for (uint32_t group = 1; group < TAGS; group++)
        for (int i = 0; i < 2; i++) sold[group] += sell_in(families[i], group, 20);
    for (uint32_t group = 1; group < TAGS; group++) {
        assert_i64_equal(sold[group], 60);
        assert_string_equal(ask_tagged(&server, "HGET", "tw:leases:", group, "id"), before[group]);
    }
    for (int i = 0; i < 2; i++) sold[0] += sell_in(families[i], 0, 15);
    assert_string_not_equal(ask_tagged(&server, "HGET", "tw:leases:", 0, "id"), before[0]);
    close_both(&server, engines, families, sold);
}

int main(void) {
    redis_server_require();
    return test_run_side_by_side();
}
