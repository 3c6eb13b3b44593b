/* limit_results.c -- the results of a limit by mode, shape, outage policy and state of Redis. docs/LIMITS.md has this
 * table; it is printed from here (TW_PRINT=1), and a test compares the two. Each cell runs on a separate family. The
 * limit is 100. Before the calls this engine has taken 20 of the key and knows it; if there has been a Redis, another
 * engine has taken 40, and this engine knows that, too. Then five calls, with no turn between them: one unit; all that
 * is then left; the whole limit; one unit of a new key; 60 of another new key.
 * Always true: nothing here depends on time: a grace is none or an hour, the window is ten years, an outage is older
 * than a second. */
#include "tests/redis/sync_support.h"
#include "tests/support/cause.h"

#define LIMIT 100
#define OWN 20
#define OTHERS 40
#define MUCH 60 /* more than a share, less than the limit */
#define CALLS 5
#define TABLE_MAX 16384

/* ---- the table --------------------------------------------------------------------------------------------------- */

enum state { NONE, UP, AWAY_GRACE, AWAY, NEVER_GRACE, NEVER, STATES };

enum bound { ZERO, KNOWN, UNBOUNDED };
static const char *const bound_names[] = {"0", "known", "`TW_UNBOUNDED`"};
static const char *const by_names[] = {"`TW_BY_LOCAL`", "`TW_BY_VIEW`", "`TW_BY_LEASE`", "`TW_BY_REDIS`",
                                       "`TW_BY_OUTAGE`"};
static const char *const cause_names[] = {"limit", "share", "outage"};

static const struct answer {
    const char *name;
    tw_status calls[CALLS];
    uint32_t by, by_new; /* decided_by; the same for a new key */
    enum bound bound, bound_new;
    uint32_t cause, cause_more; /* of what is not admitted; the same for 100 more */
} answers[] = {
#define OK TW_OK
#define NO TW_DENIED
#define WAIT TW_PENDING
    {"exact", {OK, OK, NO, OK, OK}, TW_BY_LOCAL, TW_BY_LOCAL, ZERO, ZERO, TW_CAUSE_LIMIT, TW_CAUSE_LIMIT},
    {"shares", {OK, NO, NO, OK, NO}, TW_BY_VIEW, TW_BY_OUTAGE, KNOWN, KNOWN, TW_CAUSE_SHARE, TW_CAUSE_LIMIT},
    {"shares of two", {OK, NO, NO, OK, NO}, TW_BY_VIEW, TW_BY_OUTAGE, KNOWN, UNBOUNDED, TW_CAUSE_SHARE, TW_CAUSE_LIMIT},
    {"Redis", {OK, OK, NO, OK, OK}, TW_BY_REDIS, TW_BY_REDIS, ZERO, ZERO, TW_CAUSE_LIMIT, TW_CAUSE_LIMIT},
    {"lease", {OK, WAIT, NO, WAIT, WAIT}, TW_BY_LEASE, TW_BY_LEASE, KNOWN, KNOWN, TW_CAUSE_SHARE, TW_CAUSE_LIMIT},
    {"here", {OK, OK, NO, OK, OK}, TW_BY_OUTAGE, TW_BY_OUTAGE, UNBOUNDED, UNBOUNDED, TW_CAUSE_LIMIT, TW_CAUSE_LIMIT},
    {"open", {OK, OK, OK, OK, OK}, TW_BY_OUTAGE, TW_BY_OUTAGE, UNBOUNDED, UNBOUNDED, TW_CAUSE_LIMIT, TW_CAUSE_LIMIT},
    {"closed",
     {NO, NO, NO, NO, NO},
     TW_BY_OUTAGE,
     TW_BY_OUTAGE,
     UNBOUNDED,
     UNBOUNDED,
     TW_CAUSE_OUTAGE,
     TW_CAUSE_OUTAGE},
    {"share", {OK, NO, NO, OK, NO}, TW_BY_OUTAGE, TW_BY_OUTAGE, KNOWN, KNOWN, TW_CAUSE_OUTAGE, TW_CAUSE_LIMIT},
    {"share of two",
     {OK, NO, NO, OK, NO},
     TW_BY_OUTAGE,
     TW_BY_OUTAGE,
     KNOWN,
     UNBOUNDED,
     TW_CAUSE_OUTAGE,
     TW_CAUSE_LIMIT},
    {"share?", {OK, NO, NO, OK, NO}, TW_BY_OUTAGE, TW_BY_OUTAGE, UNBOUNDED, UNBOUNDED, TW_CAUSE_OUTAGE, TW_CAUSE_LIMIT},
    {"granted", {OK, NO, NO, NO, NO}, TW_BY_LEASE, TW_BY_LEASE, KNOWN, KNOWN, TW_CAUSE_OUTAGE, TW_CAUSE_LIMIT},
    {"shut", {NO, NO, NO, NO, NO}, TW_BY_LEASE, TW_BY_LEASE, KNOWN, KNOWN, TW_CAUSE_OUTAGE, TW_CAUSE_OUTAGE},
    {"pending", {WAIT, WAIT, WAIT, WAIT, WAIT}, TW_BY_LEASE, TW_BY_LEASE, KNOWN, KNOWN, TW_CAUSE_SHARE, TW_CAUSE_SHARE},
};

#define IN(value) (1u << (value))
#define COUNTING (IN(TW_SHAPE_FIXED) | IN(TW_SHAPE_SLIDING))
#define SHAPES (COUNTING | IN(TW_SHAPE_GCRA))
#define ANY 15u
/* NULL: TW_ERR_OPTIONS. */
static const struct row {
    uint32_t mode, shapes, policies; /* the last two as sets */
    const char *answers[STATES];
} rows[] = {
    {TW_LIMIT_SOFT, IN(TW_SHAPE_FIXED), IN(TW_OUTAGE_LOCAL), {"exact", "shares", "shares", "here", "here", "here"}},
    {TW_LIMIT_SOFT, IN(TW_SHAPE_FIXED), IN(TW_OUTAGE_FAIL_OPEN), {"exact", "shares", "shares", "open", "here", "open"}},
    {TW_LIMIT_SOFT,
     IN(TW_SHAPE_FIXED),
     IN(TW_OUTAGE_FAIL_CLOSED),
     {"exact", "shares", "shares", "closed", "here", "closed"}},
    {TW_LIMIT_SOFT, IN(TW_SHAPE_FIXED), IN(TW_OUTAGE_SHARE), {"exact", "shares", "shares", "share", "here", "here"}},
    {TW_LIMIT_SOFT,
     IN(TW_SHAPE_SLIDING),
     IN(TW_OUTAGE_LOCAL),
     {"exact", "shares of two", "shares of two", "here", "here", "here"}},
    {TW_LIMIT_SOFT,
     IN(TW_SHAPE_SLIDING),
     IN(TW_OUTAGE_FAIL_OPEN),
     {"exact", "shares of two", "shares of two", "open", "here", "open"}},
    {TW_LIMIT_SOFT,
     IN(TW_SHAPE_SLIDING),
     IN(TW_OUTAGE_FAIL_CLOSED),
     {"exact", "shares of two", "shares of two", "closed", "here", "closed"}},
    {TW_LIMIT_SOFT,
     IN(TW_SHAPE_SLIDING),
     IN(TW_OUTAGE_SHARE),
     {"exact", "shares of two", "shares of two", "share of two", "here", "here"}},
    {TW_LIMIT_SOFT, IN(TW_SHAPE_GCRA), IN(TW_OUTAGE_LOCAL), {"exact"}},
    {TW_LIMIT_SOFT, IN(TW_SHAPE_GCRA), ANY & ~IN(TW_OUTAGE_LOCAL), {NULL}},
    {TW_LIMIT_HARD, IN(TW_SHAPE_FIXED), IN(TW_OUTAGE_LOCAL), {"exact", "lease", "lease", "granted", "pending", "shut"}},
    {TW_LIMIT_HARD,
     IN(TW_SHAPE_FIXED),
     IN(TW_OUTAGE_FAIL_CLOSED),
     {"exact", "lease", "lease", "shut", "pending", "shut"}},
    {TW_LIMIT_HARD, IN(TW_SHAPE_FIXED), IN(TW_OUTAGE_FAIL_OPEN) | IN(TW_OUTAGE_SHARE), {NULL}},
    {TW_LIMIT_HARD, IN(TW_SHAPE_SLIDING) | IN(TW_SHAPE_GCRA), ANY, {NULL}},
    {TW_LIMIT_STRICT, SHAPES, IN(TW_OUTAGE_LOCAL), {"exact", "Redis", "here", "here", "here", "here"}},
    {TW_LIMIT_STRICT, SHAPES, IN(TW_OUTAGE_FAIL_OPEN), {"exact", "Redis", "here", "open", "here", "open"}},
    {TW_LIMIT_STRICT, SHAPES, IN(TW_OUTAGE_FAIL_CLOSED), {"exact", "Redis", "here", "closed", "here", "closed"}},
    {TW_LIMIT_STRICT, COUNTING, IN(TW_OUTAGE_SHARE), {"exact", "Redis", "share?", "share?", "here", "here"}},
    {TW_LIMIT_STRICT, IN(TW_SHAPE_GCRA), IN(TW_OUTAGE_SHARE), {NULL}},
};
#define ROWS (sizeof rows / sizeof *rows)

static const struct answer *answer_of(const char *name) {
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
        if (strcmp(answers[i].name, name) == 0) return &answers[i];
    fail_msg("no answer is called %s", name);
    return NULL;
}

static const struct row *row_of(uint32_t mode, uint32_t shape, uint32_t policy) {
    const struct row *found = NULL;
    for (size_t i = 0; i < ROWS; i++) {
        if (rows[i].mode != mode || (rows[i].shapes & IN(shape)) == 0 || (rows[i].policies & IN(policy)) == 0) continue;
        assert_null(found);
        found = &rows[i];
    }
    assert_non_null(found);
    return found;
}

/* ---- a cell ------------------------------------------------------------------------------------------------------ */

struct cell {
    uint32_t mode, shape, policy;
    enum state state;
};

static void for_each_cell(enum state state, void (*visit)(void *ctx, const struct cell *cell, const char *answer),
                          void *ctx) {
    for (uint32_t mode = TW_LIMIT_SOFT; mode <= TW_LIMIT_STRICT; mode++)
        for (uint32_t shape = TW_SHAPE_FIXED; shape <= TW_SHAPE_GCRA; shape++)
            for (uint32_t policy = TW_OUTAGE_LOCAL; policy <= TW_OUTAGE_SHARE; policy++) {
                struct cell cell = {mode, shape, policy, state};
                visit(ctx, &cell, row_of(mode, shape, policy)->answers[state]);
            }
}

static void name_of(const struct cell *cell, char *name, size_t size) {
    snprintf(name, size, "mode%u-shape%u-outage%u-state%d", cell->mode, cell->shape, cell->policy, (int)cell->state);
}

static bool has_grace(enum state state) {
    return state == AWAY_GRACE || state == NEVER_GRACE;
}

static tw_status open_cell(tw_engine *engine, const struct cell *cell, tw_family **family) {
    tw_family_options options;
    char name[64];
    name_of(cell, name, sizeof name);
    tw_family_options_init(&options);
    options.name = name;
    options.window_ms = 3650 * TW_DAY;
    options.limit_mode = cell->mode;
    options.limit_shape = cell->shape;
    options.on_outage = cell->policy;
    options.outage_grace_ms = has_grace(cell->state) ? TW_HOUR : 0;
    return tw_family_open(engine, &options, family);
}

/* ---- engines and their Redis ------------------------------------------------------------------------------------- */

/* `driven` turns when the test calls it, and decides soft and hard limits; `waits` has a thread and decides strict
 * ones. Each is the other engine of its fellow. */
struct scene {
    struct redis_server server;
    tw_engine *driven, *waits;
    char live[200]; /* their entries in the registry */
};

static tw_engine *open_engine(const char *url, uint32_t threads, uint32_t timeout_ms) {
    tw_options options;
    tw_engine *engine;
    quick_options(&options, url);
    options.threads = threads;
    if (timeout_ms != 0) options.redis_timeout_ms = timeout_ms;
    assert_status(test_open(&options, &engine), TW_OK);
    return engine;
}

static void open_engines(struct scene *scene, const char *url, uint32_t timeout_ms) {
    scene->driven = open_engine(url, TW_HOST_DRIVEN, timeout_ms);
    scene->waits = open_engine(url, TW_OWN_THREAD, timeout_ms);
}

static tw_engine *decider(const struct scene *scene, const struct cell *cell) {
    return cell->mode == TW_LIMIT_STRICT ? scene->waits : scene->driven;
}

static tw_family *family_in(tw_engine *engine, const struct cell *cell) {
    char name[64];
    name_of(cell, name, sizeof name);
    tw_family *family = tw_family_find(engine, name);
    assert_non_null(family);
    return family;
}

struct wish {
    struct scene *scene;
    bool (*is_true)(void *ctx);
    void *ctx;
};
static bool is_granted(void *ctx) {
    struct wish *wish = ctx;
    assert_status(tw_turn(wish->scene->driven), TW_OK);
    return wish->is_true(wish->ctx);
}
/* Runs turns until it is true. */
static void await(struct scene *scene, bool (*is_true)(void *ctx), void *ctx) {
    struct wish wish = {scene, is_true, ctx};
    assert_true(test_wait(is_granted, &wish, TEST_PATIENCE_MS));
}

/* ---- what is there before a cell is played ----------------------------------------------------------------------- */

static bool both_are_live(void *ctx) {
    struct scene *scene = ctx;
    return test_stat_of(scene->driven, live_engines) == 2 && test_stat_of(scene->waits, live_engines) == 2;
}

static void meet(struct scene *scene) {
    await(scene, both_are_live, scene);
    snprintf(scene->live, sizeof scene->live, "%s",
             redis_server_ask(&scene->server, "ZRANGE", "tw:live", "0", "-1", NULL));
}

/* An engine that was closed counts as live for five seconds, and each live engine makes a share smaller. */
static void forget_closed_engines(struct scene *scene) {
    redis_server_ask(&scene->server, "EVAL",
                     "for _, id in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do "
                     "if not string.find(ARGV[1], id, 1, true) then redis.call('ZREM', KEYS[1], id) end end",
                     "1", "tw:live", scene->live, NULL);
    await(scene, both_are_live, scene);
}

static bool buys_one(void *ctx) {
    tw_status status = tw_acquire(ctx, tw_str("k"), 1, LIMIT, NULL);
    assert_true(status == TW_OK || status == TW_PENDING ||
                status == TW_DENIED); /* the other engines may have the rest in their leases */
    return status == TW_OK;
}

static bool knows_all(void *ctx) {
    tw_reading reading;
    tw_verdict verdict;
    tw_family *family = ctx;
    assert_status(tw_read(family, tw_str("k"), &reading), TW_OK);
    return reading.known && reading.total == OWN + OTHERS && reading.unsent == 0 && reading.view == OWN + OTHERS &&
           tw_acquire(family, tw_str("k"), 0, LIMIT, &verdict) == TW_OK;
}

static bool is_within_a_bound(void *ctx) {
    tw_verdict verdict;
    return knows_all(ctx) && tw_acquire(ctx, tw_str("k"), 0, LIMIT, &verdict) == TW_OK &&
           verdict.decided_by == TW_BY_VIEW && verdict.error_bound != TW_UNBOUNDED && verdict.used == OWN + OTHERS;
}

static bool is_told_that_units_are_spent(void *ctx) {
    return tw_acquire(ctx, tw_str("k"), LIMIT, LIMIT, NULL) == TW_DENIED;
}

/* Only engines that ask Redis have a part of a bucket. */
static void share_a_bucket(struct scene *scene, const struct cell *cell) {
    tw_engine *other = open_engine(scene->server.url, TW_OWN_THREAD, TEST_PATIENCE_MS);
    tw_family *others;
    assert_status(open_cell(other, cell, &others), TW_OK);
    assert_status(tw_acquire(others, tw_str("k"), OTHERS, LIMIT, NULL), TW_OK);
    assert_status(tw_close(other, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_acquire(family_in(scene->waits, cell), tw_str("k"), OWN, LIMIT, NULL), TW_OK);
}

static void share_a_key(void *ctx, const struct cell *cell, const char *answer) {
    struct scene *scene = ctx;
    if (answer == NULL) return;
    if (cell->shape == TW_SHAPE_GCRA) {
        share_a_bucket(scene, cell);
        return;
    }
    tw_family *own = family_in(decider(scene, cell), cell);
    tw_family *others = family_in(cell->mode == TW_LIMIT_STRICT ? scene->driven : scene->waits, cell);
    if (cell->mode == TW_LIMIT_HARD) {
        for (int units = OTHERS; units > 0; units--) await(scene, buys_one, others);
        for (int units = OWN; units > 0; units--) await(scene, buys_one, own);
        await(scene, is_told_that_units_are_spent, own);
        return;
    }
    assert_status(tw_add(others, tw_str("k"), OTHERS, NULL), TW_OK);
    assert_status(tw_acquire(own, tw_str("k"), OWN, LIMIT, NULL), TW_OK);
    if (cell->mode == TW_LIMIT_STRICT)
        assert_status(tw_flush(scene->waits, TEST_PATIENCE_MS), TW_OK); /* and the reply to its request is known */
    await(scene, cell->mode == TW_LIMIT_STRICT ? knows_all : is_within_a_bound, own);
}

/* For a hard limit: one unit is in the lease, because it was just refunded. */
static void put_in_hand(void *ctx, const struct cell *cell, const char *answer) {
    if (answer == NULL || cell->mode != TW_LIMIT_HARD) return;
    tw_family *family = family_in(decider(ctx, cell), cell);
    tw_verdict verdict;
    await(ctx, buys_one, family);
    assert_status(tw_acquire(family, tw_str("k"), 0, LIMIT, &verdict), TW_OK);
    assert_status(tw_refund(family, tw_str("k"), 1, verdict.window_start_ms), TW_OK);
}

static void count_alone(void *ctx, const struct cell *cell, const char *answer) {
    if (answer == NULL) return;
    tw_family *family = family_in(decider(ctx, cell), cell);
    if (cell->shape == TW_SHAPE_GCRA)
        (void)tw_acquire(family, tw_str("k"), OWN, LIMIT, NULL); /* fail-closed, and Redis never reached: denied */
    else
        assert_status(tw_add(family, tw_str("k"), OWN, NULL), TW_OK);
}

static void open_families(void *ctx, const struct cell *cell, const char *answer) {
    struct scene *scene = ctx;
    tw_engine *engines[] = {scene->driven, scene->waits};
    for (int i = 0; i < 2; i++) {
        tw_family *family;
        assert_status(open_cell(engines[i], cell, &family), answer != NULL ? TW_OK : TW_ERR_OPTIONS);
    }
}

/* ---- playing ----------------------------------------------------------------------------------------------------- */

static enum bound bound_of(const tw_verdict *verdict) {
    return verdict->error_bound == TW_UNBOUNDED ? UNBOUNDED : verdict->error_bound == 0 ? ZERO : KNOWN;
}

static void play(void *ctx, const struct cell *cell, const char *name) {
    if (name == NULL) return;
    tw_family *family = family_in(decider(ctx, cell), cell);
    const struct answer *answer = answer_of(name);
    bool shared = cell->state != NONE && cell->state != NEVER && cell->state != NEVER_GRACE;
    int64_t left = LIMIT - OWN - (shared ? OTHERS : 0) - 1;
    const struct {
        const char *key;
        int64_t n;
    } calls[CALLS] = {{"k", 1}, {"k", left}, {"k", LIMIT}, {"new", 1}, {"another", MUCH}};
    for (int i = 0; i < CALLS; i++) {
        tw_verdict verdict;
        memset(&verdict, 0x55, sizeof verdict);
        tw_status status = tw_acquire(family, tw_str(calls[i].key), calls[i].n, LIMIT, &verdict);
        uint32_t by = i < 3 ? answer->by : answer->by_new;
        enum bound bound = bound_of(&verdict), want = i < 3 ? answer->bound : answer->bound_new;
        bool is_bound = bound == want || (want == KNOWN && bound == ZERO); /* the known part may be 0 */
        if (status != answer->calls[i] || verdict.decided_by != by || !is_bound ||
            verdict.allowed != (status == TW_OK)) {
            char cell_name[64];
            name_of(cell, cell_name, sizeof cell_name);
            fail_msg("%s, call %d, \"%s\": answered %s, decided_by %u, error_bound %lld", cell_name, i + 1, name,
                     tw_status_name(status), verdict.decided_by, (long long)verdict.error_bound);
        }
        assert_i64_equal(verdict.limit, LIMIT);
        if (status == TW_OK)
            test_assert_no_cause(&verdict);
        else
            test_assert_cause(&verdict, i == 2 ? answer->cause_more : answer->cause);
    }
}

static void close_scene(struct scene *scene) {
    (void)tw_close(scene->driven, 0); /* unsent counts stay unsent: Redis is gone */
    (void)tw_close(scene->waits, 0);
}

TEST(without_redis) {
    struct scene scene = {0};
    open_engines(&scene, NULL, 0);
    for_each_cell(NONE, open_families, &scene);
    for_each_cell(NONE, count_alone, &scene);
    for_each_cell(NONE, play, &scene);
    close_scene(&scene);
}

/* Redis and this process may get no processor for a while: with a time of 1 s that is an outage, and decided as one. */
TEST(while_redis_is_up) {
    struct scene scene = {0};
    redis_server_start(&scene.server, NULL);
    open_engines(&scene, scene.server.url, TEST_PATIENCE_MS);
    for_each_cell(UP, open_families, &scene);
    meet(&scene);
    for_each_cell(UP, share_a_key, &scene);
    forget_closed_engines(&scene);
    for_each_cell(UP, put_in_hand, &scene);
    for_each_cell(UP, play, &scene);
    close_scene(&scene);
    redis_server_destroy(&scene.server);
}

/* Away for longer than a second: until then TW_OUTAGE_LOCAL leaves shares. */
static bool is_seen_away(void *ctx) {
    struct scene *scene = ctx;
    if (test_stat_of(scene->driven, outage_ms) < 1100) return false;
    struct cell cell = {TW_LIMIT_SOFT, TW_SHAPE_FIXED, TW_OUTAGE_FAIL_CLOSED, AWAY};
    if (scene->server.folder[0] == '\0') cell.state = NEVER;
    return tw_acquire(family_in(scene->driven, &cell), tw_str("another key"), 0, LIMIT, NULL) == TW_DENIED;
}

TEST(while_redis_is_away) {
    struct scene scene = {0};
    redis_server_start(&scene.server, NULL);
    open_engines(&scene, scene.server.url, 0);
    for (int with = AWAY_GRACE; with <= AWAY; with++) for_each_cell((enum state)with, open_families, &scene);
    meet(&scene);
    for (int with = AWAY_GRACE; with <= AWAY; with++) for_each_cell((enum state)with, share_a_key, &scene);
    forget_closed_engines(&scene);
    for (int with = AWAY_GRACE; with <= AWAY; with++) for_each_cell((enum state)with, put_in_hand, &scene);
    redis_server_kill(&scene.server);
    await(&scene, is_seen_away, &scene);
    for (int with = AWAY_GRACE; with <= AWAY; with++) for_each_cell((enum state)with, play, &scene);
    close_scene(&scene);
    redis_server_destroy(&scene.server);
}

TEST(when_redis_was_never_reached) {
    struct scene scene = {0};
    open_engines(&scene, "unix:///nowhere/redis.sock", 0);
    for (int with = NEVER_GRACE; with <= NEVER; with++) for_each_cell((enum state)with, open_families, &scene);
    for (int with = NEVER_GRACE; with <= NEVER; with++) for_each_cell((enum state)with, count_alone, &scene);
    await(&scene, is_seen_away, &scene);
    for (int with = NEVER_GRACE; with <= NEVER; with++) for_each_cell((enum state)with, play, &scene);
    close_scene(&scene);
}

/* ---- the table in the manual ------------------------------------------------------------------------------------- */

static void put(char *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(char *out, const char *format, ...) {
    va_list list;
    size_t used = strlen(out);
    va_start(list, format);
    (void)vsnprintf(out + used, TABLE_MAX - used, format, list);
    va_end(list);
}

static void put_set(char *out, uint32_t set, const char *const *names, uint32_t count) {
    const char *comma = "";
    for (uint32_t i = 0; i < count; i++)
        if ((set & IN(i)) != 0) put(out, "%s%s", comma, names[i]), comma = ", ";
}

static bool is_refused(const struct row *row) {
    for (int state = 0; state < STATES; state++)
        if (row->answers[state] != NULL) return false;
    return true;
}

/* The page leaves out rows that TW_ERR_OPTIONS refuses in every state. */
static void print_cells(char *out) {
    static const char *const modes[] = {"soft", "hard", "strict"};
    static const char *const shapes[] = {"fixed", "sliding", "GCRA"};
    static const char *const policies[] = {"LOCAL", "FAIL_OPEN", "FAIL_CLOSED", "SHARE"};
    put(out,
        "| mode | shape | `on_outage` | no `redis_url` | up | away, in grace | away | never reached, in grace | never "
        "reached |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for (size_t i = 0; i < ROWS; i++) {
        if (is_refused(&rows[i])) continue;
        put(out, "| %s | ", modes[rows[i].mode]);
        put_set(out, rows[i].shapes, shapes, 3);
        put(out, " | ");
        put_set(out, rows[i].policies, policies, 4);
        for (int state = 0; state < STATES; state++)
            put(out, " | %s", rows[i].answers[state] != NULL ? rows[i].answers[state] : "—");
        put(out, " |\n");
    }
}

/* Of the calls that are not admitted. */
static void put_cause(char *out, const struct answer *answer) {
    bool is_denied = false;
    for (int call = 0; call < CALLS; call++) is_denied = is_denied || answer->calls[call] != TW_OK;
    put(out, " | %s", is_denied ? cause_names[answer->cause] : "—");
    if (is_denied && answer->cause != answer->cause_more) put(out, ", 100 more: %s", cause_names[answer->cause_more]);
}

static void print_answers(char *out) {
    static const char *const words[] = {"OK", "DENIED", "PENDING"};
    put(out, "| answer | 1 unit | all that is then left | 100 more | 1 of a new key | 60 of a new key | `decided_by` | "
             "`cause` | `error_bound` |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        const struct answer *answer = &answers[i];
        put(out, "| %s", answer->name);
        for (int call = 0; call < CALLS; call++) put(out, " | %s", words[answer->calls[call]]);
        put(out, " | %s", by_names[answer->by]);
        if (answer->by_new != answer->by) put(out, ", new: %s", by_names[answer->by_new]);
        put_cause(out, answer);
        put(out, " | %s", bound_names[answer->bound]);
        if (answer->bound_new != answer->bound) put(out, ", new: %s", bound_names[answer->bound_new]);
        put(out, " |\n");
    }
}

TEST(the_manual_has_these_tables) {
    static char tables[2][TABLE_MAX], manual[65536];
    print_cells(tables[0]);
    print_answers(tables[1]);
    test_read_source("docs/LIMITS.md", manual, sizeof manual);
    for (int i = 0; i < 2; i++) {
        assert_true(strlen(tables[i]) < TABLE_MAX - 1);
        if (getenv("TW_PRINT") != NULL) printf("%s\n", tables[i]);
        if (strstr(manual, tables[i]) == NULL)
            fail_msg("docs/LIMITS.md has not what TW_PRINT=1 build/tests/redis_limit_results prints");
    }
}

int main(void) {
    redis_server_require();
    return test_run();
}
