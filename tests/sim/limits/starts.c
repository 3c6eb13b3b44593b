/* starts.c -- a soft limit that up to 16 engines spend as fast as they can: when they start, and when a key is new. It
 * runs on the world's clock, so the load of the machine does not matter.
 *
 *      build/tests/sim/starts table [SEEDS [LIMIT]]      prints the tables of docs/LIMITS.md
 * Without arguments it tests how far the limit is exceeded. Real engines with the real sync code, default options; each
 * makes its calls at one moment and its turns at another. STARVED: both are late, by up to a twentieth of a second, and
 * one in fifty messages is late by up to four tenths, more than redis_timeout_ms.
 * Always true: each engine stops for that moment at its first denial; the test counts here the admitted units. */
#include "tests/sim/engine_world.h"

#include <inttypes.h>

#define NODES WORLD_NODES
#define LIMIT 20000
#define STEP_MS 1
#define SPENDS_MS 4000
#define LIVED_MS 2500      /* of engines that are no longer new */
#define CALLS_A_MS 2000    /* of one engine */
#define CALM_CALLS_A_MS 10 /* of all */
#define KNOWN_MS 1500      /* how long a key is in use when the others meet it; some calls of each engine */

enum scene { COLD, COLD_EXPECTED, RUSH, RUSH_OF_PART, RUSH_KNOWN, CALM, SCENES };
static const char *const names[SCENES] = {
    "cold", "cold, `engines_expected`", "rush", "rush of three in four", "rush, a known key", "calm"};

struct node {
    tw_engine *engine;
    tw_family *family;
    int64_t calls_at_ms, turns_at_ms;
    int64_t calls;
};

static struct {
    struct world world;
    struct test_prng prng;
    struct node nodes[NODES];
    enum scene scene;
    bool is_starved;
    int count, spenders;
    int64_t limit, admitted;
    int64_t calls, outside; /* verdicts; and those whose bound was false */
} run;

static void open_node(int index) {
    tw_options options;
    tw_family_options family;
    struct node *node = &run.nodes[index];
    engine_world_options(&run.world, &options);
    options.memory_bytes_max = 4 << 20;
    if (run.scene == COLD_EXPECTED) options.engines_expected = (uint32_t)run.count;
    node->engine = engine_world_open(&run.world, index, &options, test_prng_next(&run.prng));
    tw_family_options_init(&family);
    family.name = "f";
    family.window_ms = TW_DAY;
    assert_status(tw_family_open(node->engine, &family, &node->family), TW_OK);
}

/* Compares `used` with what all engines have counted. */
static void check_bound(const tw_verdict *verdict) {
    int64_t off = run.admitted - verdict->used;
    run.outside += verdict->error_bound != TW_UNBOUNDED && (off < 0 ? -off : off) > verdict->error_bound;
}

static void call(struct node *node, int64_t most) {
    tw_verdict verdict;
    for (int64_t i = 0; i < most; i++) {
        tw_status status = tw_acquire(node->family, tw_str("hot"), 1, run.limit, &verdict);
        node->calls++;
        run.calls++;
        if (status == TW_OK) run.admitted++;
        check_bound(&verdict);
        if (status != TW_OK) return;
    }
}

/* How many calls this node may make now, `passed_ms` after the first. */
static int64_t wish(const struct node *node, int64_t passed_ms) {
    if (run.scene == CALM) return passed_ms * CALM_CALLS_A_MS / run.count - node->calls;
    if (run.scene == RUSH_KNOWN && passed_ms < KNOWN_MS) return passed_ms * 2 / KNOWN_MS - node->calls;
    return (int64_t)CALLS_A_MS * (run.is_starved ? 10 : STEP_MS);
}

static int64_t late_ms(void) {
    return run.is_starved ? test_prng_between(&run.prng, 1, 50) : STEP_MS;
}

static void step(int64_t passed_ms) {
    world_step(&run.world);
    for (int i = 0; i < run.count; i++) {
        struct node *node = &run.nodes[i];
        if (passed_ms >= 0 && i < run.spenders && run.world.now_ms >= node->calls_at_ms) {
            node->calls_at_ms = run.world.now_ms + late_ms();
            call(node, wish(node, passed_ms));
        }
        if (run.world.now_ms < node->turns_at_ms) continue;
        node->turns_at_ms = run.world.now_ms + late_ms();
        assert_status(tw_turn(node->engine), TW_OK);
    }
}

/* Returns how many units all engines admitted. */
static int64_t play(enum scene scene, int count, bool is_starved, int64_t limit, uint64_t seed) {
    memset(&run, 0, sizeof run);
    run.scene = scene;
    run.count = run.spenders = count;
    run.is_starved = is_starved;
    run.limit = limit;
    if (scene == RUSH_OF_PART) run.spenders = count - (count + 3) / 4;
    test_prng_seed(&run.prng, seed);
    world_init(&run.world, seed);
    run.world.step_ms = STEP_MS;
    if (is_starved) run.world.faults.slow = 200;
    for (int i = 0; i < count; i++) open_node(i);
    for (int64_t ms = 0; ms < LIVED_MS && scene >= RUSH; ms += STEP_MS) step(-1);
    for (int64_t ms = 0; ms < SPENDS_MS; ms += STEP_MS) step(ms);
    for (int i = 0; i < count; i++) (void)tw_close(run.nodes[i].engine, 0);
    world_free(&run.world);
    return run.admitted;
}

/* ---- the table ---- */

static int by_number(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void print_cell(enum scene scene, int count, bool is_starved, int64_t limit, int seeds) {
    int64_t sums[1000];
    for (int i = 0; i < seeds; i++) sums[i] = play(scene, count, is_starved, limit, (uint64_t)i + 1);
    qsort(sums, (size_t)seeds, sizeof *sums, by_number);
    double one = (double)limit / 100;
    printf(" %+.2f (%+.2f) |", (double)(sums[seeds / 2] - limit) / one, (double)(sums[seeds - 1] - limit) / one);
    fflush(stdout);
}

static int print_tables(int seeds, int64_t limit) {
    if (seeds < 1 || seeds > 1000) return 2;
    for (int is_starved = 0; is_starved < 2; is_starved++) {
        printf("| beyond a limit of %" PRId64 ", in percent%s | 2 | 4 | 8 | 16 |\n| --- | --- | --- | --- | --- |\n",
               limit, is_starved ? ", starved" : "");
        for (enum scene scene = COLD; scene < SCENES; scene++) {
            printf("| %s |", names[scene]);
            for (int count = 2; count <= NODES; count *= 2) print_cell(scene, count, is_starved, limit, seeds);
            printf("\n");
        }
    }
    return 0;
}

/* ---- the test ---- */

/* In thousandths of the limit. Starved engines continue from an old total after a lost reply; in a rush they exceed the
 * limit by up to a fifth. */
static const int64_t most_over[SCENES][2] = {[COLD] = {10, 100},        [COLD_EXPECTED] = {10, 30}, [RUSH] = {10, 250},
                                             [RUSH_OF_PART] = {20, 50}, [RUSH_KNOWN] = {80, 150},   [CALM] = {5, 80}};

static void expect_kept(enum scene scene, int count, bool is_starved, uint64_t seed) {
    int64_t sum = play(scene, count, is_starved, LIMIT, seed);
    if (!is_starved && run.outside > run.calls / 1000)
        fail_msg("%s, seed %d: %" PRId64 " verdicts of %" PRId64 " are outside their bound", names[scene], (int)seed,
                 run.outside, run.calls);
    if (sum <= LIMIT + LIMIT * most_over[scene][is_starved] / 1000 && sum >= LIMIT - LIMIT / 100) return;
    fail_msg("%s%s, seed %d: %d engines admitted %" PRId64 " of %d", names[scene], is_starved ? ", starved" : "",
             (int)seed, count, sum, LIMIT);
}

static void each_scene(bool is_starved, int seeds, int most) {
    for (enum scene scene = COLD; scene < SCENES; scene++)
        for (int count = 2; count <= most; count *= 2)
            for (int seed = 1; seed <= seeds; seed++) expect_kept(scene, count, is_starved, (uint64_t)seed);
}

/* Goal: engines that start together, and engines that meet a key together, keep its limit to 1 %, however fast they
 * spend, and sell it out. A verdict's error bound is true, except in one of a thousand (R13). */
TEST(a_rush_keeps_a_soft_limit) {
    each_scene(false, (int)test_scale(1), 8);
}

/* Goal: the same if no engine gets enough time: within 10 % at a start, and within 3 % if they were told how many
 * engines there are. What others had counted and could not send for longer than an interval is in nobody's bound. */
TEST(a_rush_of_starved_engines_keeps_a_soft_limit) {
    each_scene(true, (int)test_scale(1), 8);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "table") == 0)
        return print_tables(argc > 2 ? atoi(argv[2]) : 9, argc > 3 ? atoll(argv[3]) : LIMIT);
    return test_run();
}
