/* all_keys.c -- the keys in Redis: every key that any call leaves there has the name, the type and the life that
 * docs/KEYS.md gives, and no other key is there. Both tables of keys in that page are compared with the table of this
 * file. Method: one engine uses everything once; another one wants what the first has in a lease. */
#include "tests/redis/sync_support.h"

#define MANUAL_MAX 131072
#define DAY_AND_MORE (TW_DAY + TW_MINUTE)

static const struct row {
    const char *manual; /* its name in docs/KEYS.md */
    const char *begins; /* its name in Redis */
    const char *type;
    int64_t life_ms; /* its longest life; 0: no expiry */
} rows[] = {
#define COUNTER "the family's template, as `views:/index.html:2026112014`"
    {COUNTER, "aligned:", "string", TW_HOUR + DAY_AND_MORE},
    {COUNTER, "first:", "string", TW_MINUTE},
    {COUNTER, "endless:", "string", 0},
    {COUNTER, "small:", "string", TW_HOUR + DAY_AND_MORE},
    {COUNTER, "sale:", "string", TW_HOUR + DAY_AND_MORE},
    {COUNTER, "login:", "string", TW_HOUR + DAY_AND_MORE},
    {COUNTER, "slides:", "string", TW_HOUR + DAY_AND_MORE},
    {COUNTER, "once:", "string", TW_HOUR + DAY_AND_MORE},
    {COUNTER, "tv:", "string", TW_HOUR + DAY_AND_MORE},
    {"the name of a hash (`TW_REDIS_HASH`)", "article:", "hash", TW_HOUR + DAY_AND_MORE},
    {"the name of a sorted set (`TW_REDIS_ZSET`)", "ranking:", "zset", TW_HOUR + DAY_AND_MORE},
    {"`tw:overflow:…`", "tw:overflow:small:", "string", TW_HOUR + DAY_AND_MORE},
    {"`tw:stock:COUNTER`", "tw:stock:sale:", "hash", TW_HOUR + DAY_AND_MORE},
    {"`tw:due:COUNTER`", "tw:due:sale:", "zset", TW_HOUR + DAY_AND_MORE},
    {"`tw:token:<32 hex digits>`", "tw:token:", "hash", DAY_AND_MORE},
    {"`tw:hold:COUNTER`", "tw:hold:jobs:", "zset", 15000},
    {"a gauge's name (`TW_KIND_GAUGE`)", "online:", "string", 15000},
    {"`tw:gauge:COUNTER`", "tw:gauge:online:", "hash", 15000},
    {"the name of a distinct count (`TW_KIND_DISTINCT`)", "visitors:", "string", TW_HOUR + DAY_AND_MORE},
    {"`tw:merge:COUNTER`", "tw:merge:", "string", 10000}, /* gone when its script ends: nobody sees it */
    {"`tw:calls:COUNTER`", "tw:calls:", "hash", 660000},
    {"`tw:log:COUNTER0`", "tw:log:slides:", "zset", TW_HOUR},
    {"`tw:bucket:COUNTER0`", "tw:bucket:paced:", "string", TW_HOUR},
    {"`tw:once:COUNTER`", "tw:once:once:", "string", TW_HOUR + DAY_AND_MORE},
    {"`tw:lock:COUNTER0`", "tw:lock:aligned:", "string", TW_MINUTE},
    {"`tw:fence:COUNTER0`", "tw:fence:aligned:", "string", DAY_AND_MORE},
    {"`tw:ledger:<32 hex digits>`", "tw:ledger:", "hash", TW_DAY},
    {"`tw:marker`", "tw:marker", "hash", 0},
    {"`tw:live`", "tw:live", "zset", TW_MINUTE},
    {COUNTER, "hits:", "string", TW_SECOND + DAY_AND_MORE},
    {"`tw:closers:FAMILY0`", "tw:closers:hits:", "hash", TW_SECOND + DAY_AND_MORE},
    {"`tw:closed:FAMILY`", "tw:closed:hits:", "string", TW_SECOND + DAY_AND_MORE},
    {"`tw:windows:FAMILY0`", "tw:windows:hits:", "zset", TW_SECOND + DAY_AND_MORE},
    {"`tw:names:FAMILY`", "tw:names:hits:", "set", TW_SECOND + DAY_AND_MORE},
    {"`tw:lease:COUNTER`", "tw:lease:tv:", "hash", TW_HOUR + DAY_AND_MORE},
    {"`tw:leases`", "tw:leases", "hash", 0},
    {"`tw:leases:wanted`", "tw:leases:wanted", "zset", 5000},
};
#define ROWS (sizeof rows / sizeof *rows)

/* ---- what is there ----------------------------------------------------------------------------------------------- */

/* The row with the longest beginning. */
static size_t row_of(const char *name) {
    size_t best = ROWS, longest = 0;
    for (size_t i = 0; i < ROWS; i++) {
        size_t size = strlen(rows[i].begins);
        if (strncmp(name, rows[i].begins, size) == 0 && size > longest) best = i, longest = size;
    }
    if (best == ROWS) fail_msg("%s stands in Redis, and nothing is said of it", name);
    return best;
}

static void look_at(struct redis_server *server, const char *name, bool *seen) {
    size_t at = row_of(name);
    char type[32];
    snprintf(type, sizeof type, "%s", redis_server_ask(server, "TYPE", name, NULL));
    int64_t left_ms = atoll(redis_server_ask(server, "PTTL", name, NULL));
    if (strcmp(type, "none") == 0 || left_ms == -2) return; /* it expired just now */
    if (strcmp(type, rows[at].type) != 0) fail_msg("%s is a %s, not a %s", name, type, rows[at].type);
    bool is_right = rows[at].life_ms == 0 ? left_ms == -1 : left_ms >= 0 && left_ms <= rows[at].life_ms;
    if (!is_right) fail_msg("%s has a PTTL of %lld", name, (long long)left_ms);
    seen[at] = true;
}

static void look_at_all(struct redis_server *server, bool *seen) {
    char names[8192];
    snprintf(names, sizeof names, "%s", redis_server_ask(server, "KEYS", "*", NULL));
    assert_true(strlen(names) < sizeof names - 1);
    for (char *name = names, *end; *name != '\0'; name = end) {
        end = name + strcspn(name, "\n");
        if (*end != '\0') *end++ = '\0';
        look_at(server, name, seen);
    }
}

/* ---- everything, once -------------------------------------------------------------------------------------------- */

static tw_family *family_with(tw_engine *engine, const char *name, uint32_t mode, uint32_t shape) {
    tw_family_options options;
    tw_family *family;
    tw_family_options_init(&options);
    options.name = name;
    options.limit_mode = mode;
    options.limit_shape = shape;
    assert_status(tw_family_open(engine, &options, &family), TW_OK);
    return family;
}

static void count_everywhere(tw_engine *engine) {
    tw_family_options options;
    tw_family *small;
    tw_family_options_init(&options);
    options.name = "small";
    options.keys_max = 1;
    assert_status(tw_family_open(engine, &options, &small), TW_OK);
    assert_status(tw_add(small, tw_str("a"), 1, NULL), TW_OK);
    assert_status(tw_add(small, tw_str("b"), 1, NULL), TW_OVERFLOWED);
    assert_status(tw_add(family_of(engine, "aligned", TW_WINDOW_ALIGNED, TW_HOUR), tw_str("k"), 1, NULL), TW_OK);
    assert_status(tw_add(family_of(engine, "first", TW_WINDOW_FROM_FIRST, TW_MINUTE), tw_str("k"), 1, NULL), TW_OK);
    assert_status(tw_add(family_of(engine, "endless", TW_WINDOW_FOREVER, 0), tw_str("k"), 1, NULL), TW_OK);
    test_shape = TW_REDIS_HASH;
    assert_status(tw_add(family_of(engine, "article", TW_WINDOW_ALIGNED, TW_HOUR), tw_str("k|views"), 1, NULL), TW_OK);
    test_shape = TW_REDIS_ZSET;
    assert_status(tw_add(family_of(engine, "ranking", TW_WINDOW_ALIGNED, TW_HOUR), tw_str("k"), 1, NULL), TW_OK);
    test_shape = TW_REDIS_STRING;
    tw_family_options_init(&options);
    options.name = "online";
    options.window = TW_WINDOW_FOREVER;
    options.kind = TW_KIND_GAUGE;
    tw_family *online;
    assert_status(tw_family_open(engine, &options, &online), TW_OK);
    assert_status(tw_add(online, tw_str("room"), 3, NULL), TW_OK);
    tw_family_options_init(&options);
    options.name = "visitors";
    options.kind = TW_KIND_DISTINCT;
    tw_family *visitors;
    assert_status(tw_family_open(engine, &options, &visitors), TW_OK);
    assert_status(tw_distinct_add(visitors, tw_str("k"), tw_str("ann"), NULL), TW_OK);
}

static void ask_for_everything(tw_engine *engine) {
    char token[TW_TOKEN_SIZE];
    bool first = false;
    tw_key key = tw_str("k");
    assert_status(tw_acquire(family_with(engine, "login", TW_LIMIT_STRICT, TW_SHAPE_FIXED), key, 1, 10, NULL), TW_OK);
    assert_status(tw_acquire(family_with(engine, "slides", TW_LIMIT_STRICT, TW_SHAPE_SLIDING), key, 1, 10, NULL),
                  TW_OK);
    assert_status(tw_acquire(family_with(engine, "paced", TW_LIMIT_STRICT, TW_SHAPE_GCRA), key, 1, 10, NULL), TW_OK);
    assert_status(tw_once(family_with(engine, "once", TW_LIMIT_STRICT, TW_SHAPE_FIXED), key, &first), TW_OK);
    assert_true(first);
    tw_family *sale = family_with(engine, "sale", TW_LIMIT_SOFT, TW_SHAPE_FIXED);
    assert_status(tw_reserve(sale, key, 2, 10, 60000, tw_str("ann"), token, NULL), TW_OK);
    assert_status(tw_reserve(sale, key, 1, 10, 60000, tw_str("bob"), token, NULL), TW_OK);
    assert_status(tw_reserve_confirm(engine, token), TW_OK);
    assert_status(tw_hold(family_of(engine, "jobs", TW_WINDOW_FOREVER, 0), key, 3, NULL), TW_OK);
    assert_status(tw_lock(tw_family_find(engine, "aligned"), key, 60000, token, NULL), TW_OK);
}

static atomic_bool names_seen; /* these names are deleted when the window is closed */
static bool may_close(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    (void)ctx, (void)family, (void)start_ms, (void)end_ms, (void)flags;
    return atomic_load(&names_seen);
}

static tw_family *closed_by_one(tw_engine *engine) {
    tw_family_options options;
    tw_family *family;
    tw_family_options_init(&options);
    options.name = "hits";
    options.window_ms = TW_SECOND;
    options.closed_by = TW_CLOSED_BY_ONE;
    options.on_window_closed = may_close;
    assert_status(tw_family_open(engine, &options, &family), TW_OK);
    return family;
}

struct everything {
    struct redis_server server;
    tw_engine *a, *b;
    tw_family *tv_a, *tv_b, *hits_a, *hits_b;
    bool seen[ROWS];
};

static bool buys_one(void *ctx) {
    return tw_acquire(ctx, tw_str("k"), 1, 100, NULL) == TW_OK;
}

/* The other engine keeps requesting more than is there; every second a window with a count is closed. */
static bool all_was_seen(void *ctx) {
    struct everything *all = ctx;
    (void)tw_acquire(all->tv_b, tw_str("k"), 99, 100, NULL);
    assert_status(tw_add(all->hits_a, tw_str("k"), 1, NULL), TW_OK);
    assert_status(tw_add(all->hits_b, tw_str("k"), 1, NULL), TW_OK);
    look_at_all(&all->server, all->seen);
    atomic_store(&names_seen, all->seen[row_of("tw:names:hits:")]);
    all->seen[row_of("tw:merge:")] = true;
    for (size_t i = 0; i < ROWS; i++)
        if (!all->seen[i]) return false;
    return true;
}

TEST(every_key_is_what_the_manual_says) {
    struct everything all = {.seen = {false}};
    redis_server_start(&all.server, NULL);
    all.a = quick_engine(all.server.url, NULL);
    all.b = quick_engine(all.server.url, NULL);
    all.tv_a = family_with(all.a, "tv", TW_LIMIT_HARD, TW_SHAPE_FIXED);
    all.tv_b = family_with(all.b, "tv", TW_LIMIT_HARD, TW_SHAPE_FIXED);
    all.hits_a = closed_by_one(all.a);
    all.hits_b = closed_by_one(all.b);
    count_everywhere(all.a);
    ask_for_everything(all.a);
    assert_true(test_wait(buys_one, all.tv_a, TEST_PATIENCE_MS));
    if (!test_wait(all_was_seen, &all, 60000))
        for (size_t i = 0; i < ROWS; i++)
            if (!all.seen[i]) fail_msg("%s… was never there", rows[i].begins);
    assert_status(tw_close(all.a, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_close(all.b, TEST_PATIENCE_MS), TW_OK);
    look_at_all(&all.server, all.seen);
    redis_server_destroy(&all.server);
}

/* ---- the manual -------------------------------------------------------------------------------------------------- */

/* The number of rows in the tables between this heading and the next; the tables' heads, rules and continued rows do
 * not count. */
static size_t rows_below(const char *heading) {
    size_t count = 0, tables = 0;
    for (const char *line = strchr(heading, '\n') + 1; *line != '\0' && *line != '#'; line = strchr(line, '\n') + 1) {
        count += *line == '|' && strncmp(line, "| |", 3) != 0;
        tables += strncmp(line, "| ---", 5) == 0;
    }
    return count - 2 * tables;
}

static bool is_new(size_t at) {
    for (size_t i = 0; i < at; i++)
        if (strcmp(rows[i].manual, rows[at].manual) == 0) return false;
    return true;
}

static const char *type_in_words(const char *type) {
    return strcmp(type, "zset") == 0 ? "sorted set" : type;
}

TEST(the_manual_lists_every_key_in_both_tables) {
    static char manual[MANUAL_MAX];
    test_read_source("docs/KEYS.md", manual, sizeof manual);
    const char *held = strstr(manual, "\n### What each key holds\n"),
               *merged = strstr(manual, "\n### What becomes of it\n");
    assert_true(held != NULL && merged != NULL && held < merged);
    size_t count = 0;
    for (size_t i = 0; i < ROWS; i++) {
        char row[160];
        count += is_new(i);
        snprintf(row, sizeof row, "\n| %s | %s |", rows[i].manual, type_in_words(rows[i].type));
        const char *found = strstr(held, row);
        if (found == NULL || found > merged) fail_msg("docs/KEYS.md has no row %s", row + 1);
        snprintf(row, sizeof row, "\n| %s |", rows[i].manual);
        if (strstr(merged, row) == NULL) fail_msg("docs/KEYS.md does not say what becomes of %s", rows[i].manual);
    }
    assert_int_equal(rows_below(held + 1), count);
    assert_int_equal(rows_below(merged + 1), count);
}

int main(void) {
    redis_server_require();
    return test_run();
}
