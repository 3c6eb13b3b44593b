/* cluster_directory_test.c -- what callers know of a cluster: maps that are published, MOVED that callers meet, and
 * both at once. */
#include "sync/wire/cluster_directory.h"

#include "engine/base/key_slot.h"
#include "tests/support/cluster_reply.h"

#include <pthread.h>

static struct twi_endpoint endpoint(unsigned node) {
    struct twi_endpoint made = {.port = (uint16_t)(7000 + node)};
    snprintf(made.host, sizeof made.host, "10.0.0.%u", node);
    return made;
}

/* A map of two masters: 1 has the lower half. */
static struct twi_cluster_map *make_map(void) {
    struct twi_endpoint seed = endpoint(9), whom;
    struct twi_cluster_map *map = twi_cluster_map_create(&seed, 1);
    twi_cluster_map_ask(map, 0, &whom);
    slots_reply("[[0 8191 ['10.0.0.1' 7001 'a' []]] [8192 16000 ['10.0.0.2' 7002 'b' []]]]");
    assert_true(twi_cluster_map_reply(map, &seed, reply_nodes, reply_count, 0, 0));
    reply_end();
    return map;
}

/* 0: nobody is known. */
static unsigned node_of(struct twi_directory *directory, uint32_t slot) {
    struct twi_endpoint found;
    return twi_directory_find(directory, slot, &found) ? found.port - 7000u : 0;
}

static void note(struct twi_directory *directory, uint32_t slot, unsigned node) {
    struct twi_endpoint to = endpoint(node);
    twi_directory_note_moved(directory, slot, &to);
}

TEST(callers_find_what_the_turn_has_published) {
    struct twi_directory *directory = twi_directory_create();
    struct twi_cluster_map *map = make_map();
    assert_int_equal(node_of(directory, 0), 0);
    assert_true(twi_directory_set(directory, map));
    for (uint32_t slot = 0; slot < TWI_KEY_SLOTS; slot++)
        assert_int_equal(node_of(directory, slot), slot < 8192 ? 1 : slot <= 16000 ? 2 : 0);
    twi_cluster_map_destroy(map);
    twi_directory_destroy(directory);
}

TEST(a_moved_takes_effect_at_once_and_no_older_map_undoes_it) {
    struct twi_directory *directory = twi_directory_create();
    struct twi_cluster_map *map = make_map();
    struct twi_endpoint to;
    uint32_t slot;
    note(directory, 7, 3); /* before there is a map */
    assert_int_equal(node_of(directory, 7), 3);
    assert_true(twi_directory_set(directory, map));
    assert_int_equal(node_of(directory, 7), 3);
    note(directory, 8, 2);
    note(directory, 7, 4); /* the later one counts */
    assert_true(twi_directory_set(directory, map));
    assert_true(node_of(directory, 7) == 4 && node_of(directory, 8) == 2 && node_of(directory, 9) == 1);
    /* The turn takes each once, and its next map says the same. */
    while (twi_directory_take_moved(directory, &slot, &to)) {
        assert_int_equal(to.port, slot == 7 ? 7004 : 7002);
        assert_true(twi_cluster_map_moved(map, slot, &to, 0));
    }
    assert_int_equal(twi_cluster_map_owner(map, 8), twi_cluster_map_owner(map, 9000));
    assert_true(twi_directory_set(directory, map));
    assert_true(node_of(directory, 7) == 4 && node_of(directory, 8) == 2);
    /* What was taken binds no later map. */
    struct twi_cluster_map *later = make_map();
    assert_true(twi_directory_set(directory, later));
    assert_true(node_of(directory, 7) == 1 && node_of(directory, 8) == 1);
    note(directory, 9, 1); /* nothing new: nothing to take */
    assert_false(twi_directory_take_moved(directory, &slot, &to));
    twi_cluster_map_destroy(map);
    twi_cluster_map_destroy(later);
    twi_directory_destroy(directory);
}

/* Goal: a refresh is wanted where notes are lost. Each wish is taken once. */
TEST(more_notes_than_fit_ask_for_a_refresh) {
    struct twi_directory *directory = twi_directory_create();
    struct twi_endpoint to;
    uint32_t slot, taken = 0;
    assert_false(twi_directory_take_wanted(directory));
    for (uint32_t i = 0; i < TWI_DIRECTORY_MOVED_MAX; i++) note(directory, i, 1);
    assert_false(twi_directory_take_wanted(directory));
    note(directory, 100, 1);
    assert_int_equal(node_of(directory, 100), 1);
    assert_true(twi_directory_take_wanted(directory));
    assert_false(twi_directory_take_wanted(directory));
    for (; twi_directory_take_moved(directory, &slot, &to); taken++) assert_int_equal(slot, taken);
    assert_int_equal(taken, TWI_DIRECTORY_MOVED_MAX);
    for (unsigned node = 1; node <= 200; node++) note(directory, 5, node); /* more endpoints than have room */
    assert_true(twi_directory_take_wanted(directory));
    twi_directory_want(directory);
    assert_true(twi_directory_take_wanted(directory));
    twi_directory_destroy(directory);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

#define CALLERS 3
#define ROUNDS 20000

struct caller {
    struct twi_directory *directory;
    unsigned node; /* names no other than its own in MOVED */
};

static void *call(void *ctx) {
    const struct caller *caller = ctx;
    for (uint32_t i = 0; i < test_scale(ROUNDS); i++) {
        uint32_t slot = (i * 37 + caller->node) % TWI_KEY_SLOTS;
        struct twi_endpoint found, want;
        if (twi_directory_find(caller->directory, slot, &found)) {
            want = endpoint(found.port - 7000u);
            if (!twi_endpoint_equals(&found, &want)) return ctx; /* half of one, half of another */
        }
        if (i % 16 == 0) note(caller->directory, slot, caller->node);
        if (i % 64 == 0) twi_directory_want(caller->directory);
    }
    return NULL;
}

/* Goal: a caller never finds half of an endpoint, whatever is published meanwhile. Method: the turn takes notes and
 * publishes while callers look and note. */
TEST(callers_and_the_turn_work_at_once) {
    struct twi_directory *directory = twi_directory_create();
    struct twi_cluster_map *map = make_map();
    struct caller callers[CALLERS];
    pthread_t threads[CALLERS];
    for (unsigned i = 0; i < CALLERS; i++) {
        callers[i] = (struct caller){directory, 11 + i};
        assert_int_equal(pthread_create(&threads[i], NULL, call, &callers[i]), 0);
    }
    for (uint32_t i = 0; i < test_scale(200); i++) {
        struct twi_endpoint to;
        uint32_t slot;
        while (twi_directory_take_moved(directory, &slot, &to)) {
            assert_true(to.port >= 7011 && to.port < 7011 + CALLERS);
            assert_true(twi_cluster_map_moved(map, slot, &to, i));
        }
        (void)twi_directory_take_wanted(directory);
        assert_true(twi_directory_set(directory, map));
    }
    for (unsigned i = 0; i < CALLERS; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
    twi_cluster_map_destroy(map);
    twi_directory_destroy(directory);
}
