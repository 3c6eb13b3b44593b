/* books.c -- the books of several processes: all kinds of calls, their cancels and what gives back, over a network and
 * a Redis with faults. In the end Redis has what the callers were told, to the unit. Redis is read apart from the
 * engine.
 * Method: each process keeps a book in shared memory: before a call what it may charge, after the answer what it has
 * charged. Requests and replies are lost, cut and delayed; Redis stops, drops its clients, lacks memory, and takes
 * rights away; a replica takes over; processes are killed. Of a process that has ended by itself the book is exact; of
 * one that was killed it is from what was answered to what was begun. A replica that takes over may lack what Redis has
 * acknowledged last, and then nobody can say what the books must be. So here it takes over when it has everything, also
 * by a failover of Sentinel.
 * Scale: TW_SECONDS for each seed. `./dev soak SECONDS books` runs it for longer. */
#include "tests/redis/connection/sentinel_stage.h"
#include "tests/redis/waiting/async_support.h"
#include "tests/support/children.h"

#include <signal.h>
#include <sys/wait.h>

enum account { FIXED, SLIDING, PACED, STOCK, ONCE, LOCK, SLOTS_IN_USE, SOFT, ACCOUNTS };
static const char *const account_names[ACCOUNTS] = {"fixed", "sliding", "paced",  "stock",
                                                    "once",  "lock",    "in use", "soft"};

enum world { NETWORK, KILLS, REPLICA, SENTINEL_SET };

#define PROCESSES 3
#define LIVES 32
#define SLOTS 24
#define POOL 40 /* keys of locks and of once */
#define LIMIT 4000
#define WINDOW_MS INT64_C(86400000000) /* a thousand days: next to nothing drains or slides out meanwhile */
#define TTL_MS 3000000
#define FEW 50 /* the limit of claims that are often denied, so that what the call took before goes back */

/* Units that the callers of one process were told to have, and those that it may have in Redis. */
struct book {
    _Atomic int64_t has[ACCOUNTS], may_have[ACCOUNTS];
    _Atomic bool is_exact;
};
struct page {
    struct book books[LIVES];
    _Atomic int64_t owner[POOL]; /* of a lock */
    _Atomic bool stops;
    _Atomic int64_t calls, cancels, kept, take_overs;
};
static struct page *page;
static struct proxy *proxy;  /* NULL behind sentinels, which name the servers themselves */
static const char *redis_at; /* the URL of all processes */

/* ---- one process ------------------------------------------------------------------------------------------------- */

enum step {
    TAKE,
    SOME,
    SLIDE,
    PACE,
    WAIT,
    RESERVE,
    FIRST,
    OWN_FIRST, /* of a key that no other slot asks for, so its cancel may be asked again */
    LOCKS,
    HOLD,
    ALL, /* claims of soft limits */
    TAKES,
    CONFIRM,
    GIVE_BACK,
    RELEASE,
    UNDO_FIRST,
    LET_GO
};

static struct slot {
    struct told told;
    enum step step;
    bool is_busy, is_ending; /* ending: what it has goes back, until that is known */
    int64_t n;
    int key;
    char name[32], token[TW_TOKEN_SIZE];
} slots[SLOTS];
static struct book *book;
static tw_family *families[4]; /* fixed, sliding, paced, soft */
static int life;
static struct redis_server other, *master = &server, *replica; /* NULL: there is none */

static enum account account_of(enum step step) {
    switch (step) {
    case SLIDE: return SLIDING;
    case PACE:
    case WAIT: return PACED;
    case FIRST:
    case OWN_FIRST:
    case UNDO_FIRST: return ONCE;
    case HOLD:
    case LET_GO: return SLOTS_IN_USE;
    case ALL: return SOFT;
    case LOCKS:
    case RELEASE: return LOCK;
    case RESERVE:
    case CONFIRM:
    case GIVE_BACK: return STOCK;
    default: return FIXED;
    }
}

static void add_to(_Atomic int64_t *sum, int64_t n) {
    (void)atomic_fetch_add(sum, n);
}

static tw_key key_of(struct slot *slot, const char *what) {
    (void)snprintf(slot->name, sizeof slot->name, "%s%d", what, slot->key);
    return tw_str(slot->name);
}

static tw_key own_key_of(struct slot *slot) {
    (void)snprintf(slot->name, sizeof slot->name, "p%d-%d", life, (int)(slot - slots));
    return tw_str(slot->name);
}

/* A third of the units by each claim. Two are of one key, so the last one may be denied when the others have their
 * units. It is answered at once. */
static tw_status take_all(struct slot *slot) {
    tw_claim claims[] = {{families[3], tw_str("a"), slot->n / 3, LIMIT},
                         {families[3], tw_str("b"), slot->n / 3, FEW},
                         {families[3], tw_str("b"), slot->n / 3, FEW}};
    return tw_acquire_all(claims, 3, &slot->told.request.verdict);
}

static tw_status ask(struct slot *slot) {
    tw_request *request = &slot->told.request;
    switch (slot->step) {
    case TAKE: return tw_acquire_async(request, families[0], tw_str("k"), slot->n, LIMIT);
    case SOME: return tw_acquire_some_async(request, families[0], tw_str("k"), slot->n, LIMIT);
    case SLIDE: return tw_acquire_async(request, families[1], tw_str("k"), slot->n, LIMIT);
    case PACE: return tw_acquire_async(request, families[2], tw_str("k"), slot->n, LIMIT);
    case WAIT: return tw_acquire_wait_async(request, families[2], tw_str("k"), slot->n, LIMIT);
    case RESERVE: return tw_reserve_async(request, families[0], tw_str("r"), slot->n, LIMIT, TTL_MS, tw_str(""));
    case FIRST: return tw_once_async(request, families[0], key_of(slot, "o"));
    case OWN_FIRST: return tw_once_async(request, families[0], own_key_of(slot));
    case UNDO_FIRST: return tw_once_cancel_async(request, families[0], own_key_of(slot));
    case HOLD: return tw_hold_async(request, families[0], tw_str("h"), LIMIT);
    case LET_GO: return tw_hold_release_async(request, families[0], tw_str("h"));
    case ALL: return take_all(slot);
    case LOCKS: return tw_lock_async(request, families[0], key_of(slot, "l"), TTL_MS);
    case CONFIRM: return tw_reserve_confirm_async(request, engine, slot->token);
    case GIVE_BACK: return tw_reserve_cancel_async(request, engine, slot->token);
    default: return tw_lock_release_async(request, families[0], key_of(slot, "l"), slot->token);
    }
}

/* Gives back at once, and not by a call that waits. The book has it first. */
static void refund(tw_family *family, const char *key, int64_t n, enum account account) {
    add_to(&book->has[account], -n);
    tw_status status = tw_refund(family, tw_str(key), n, 0);
    if (status != TW_OK) _exit(17);
}

/* What follows on a call that took, if anything does. */
static enum step next_of(enum step step, struct test_prng *prng) {
    switch (step) {
    case RESERVE: return test_prng_chance(prng, 1, 6) ? CONFIRM : GIVE_BACK;
    case LOCKS: return RELEASE;
    case HOLD: return LET_GO;
    case OWN_FIRST: return test_prng_chance(prng, 1, 2) ? UNDO_FIRST : TAKES;
    default: return TAKES;
    }
}

/* What was taken is in the book. */
static void take(struct slot *slot, struct test_prng *prng) {
    const tw_request *request = &slot->told.request;
    bool is_any = slot->step != FIRST && slot->step != OWN_FIRST;
    bool took = request->status == TW_OK && (is_any || request->first);
    enum account account = account_of(slot->step);
    if (!took) return;
    add_to(&book->has[account], slot->step == SOME ? request->taken : slot->n);
    if (slot->step == LOCKS && atomic_exchange(&page->owner[slot->key], life + 1) != 0) _exit(11);
    memcpy(slot->token, request->token, sizeof slot->token);
    if (slot->step == TAKE && test_prng_chance(prng, 1, 4)) refund(families[0], "k", slot->n, FIXED);
    if (slot->step == ALL && test_prng_chance(prng, 1, 2)) refund(families[3], "a", slot->n / 3, SOFT);
    if (slot->step == ALL && test_prng_chance(prng, 2, 3)) refund(families[3], "b", slot->n / 3 * 2, SOFT);
    enum step next = next_of(slot->step, prng);
    if (next == TAKES) return;
    slot->is_ending = true;
    slot->step = next;
    /* From here on it may be back. */
    if (slot->step != CONFIRM) add_to(&book->has[account], -slot->n);
}

/* Until Redis answers, whatever becomes of its caller. */
static bool goes_on(enum step step) {
    return step == GIVE_BACK || step == RELEASE || step == LET_GO;
}

/* What gives back goes on by itself, unless it was not begun. Others are asked again until their outcome is known. */
static void end(struct slot *slot) {
    tw_status status = slot->told.request.status;
    bool is_left = status == TW_ERR_TIMEOUT || status == TW_ERR_REDIS;
    if (status == TW_ERR_BUSY || (is_left && !goes_on(slot->step))) return;
    bool is_done = status == TW_OK || (status == TW_ERR_TIMEOUT && goes_on(slot->step));
    if (!is_done && !(slot->step == RELEASE && status == TW_ERR_LATE)) _exit(12);
    slot->is_ending = false;
}

static void start(struct slot *slot, struct test_prng *prng) {
    if (!slot->is_ending) {
        slot->step = (enum step)test_prng_below(prng, TAKES);
        bool is_one = slot->step == FIRST || slot->step == OWN_FIRST || slot->step == LOCKS || slot->step == HOLD;
        slot->n = is_one ? 1 : test_prng_between(prng, 1, 4);
        if (slot->step == ALL) slot->n *= 3;
        slot->key = (int)test_prng_below(prng, POOL);
        add_to(&book->may_have[account_of(slot->step)], slot->n);
        add_to(&page->calls, 1);
    }
    if (slot->step == RELEASE) atomic_store(&page->owner[slot->key], 0);
    prepare(&slot->told);
    slot->told.request.timeout_ms = (uint32_t)test_prng_between(prng, 5, 300);
    tw_status status = ask(slot);
    slot->is_busy = true;
    if (status == TW_STARTED) return;
    slot->told.request.status = status;
    slot->told.times = 1;
}

static void play(struct test_prng *prng, bool stops) {
    for (int i = 0; i < SLOTS; i++) {
        struct slot *slot = &slots[i];
        if (slot->is_busy && slot->told.times != 0) {
            slot->is_busy = false;
            if (slot->is_ending)
                end(slot);
            else
                take(slot, prng);
        }
        /* also calls whose answers wait; and what gives back, which goes on */
        bool may_go = !slot->is_ending || goes_on(slot->step);
        if (slot->is_busy && may_go && test_prng_chance(prng, 1, 40)) {
            if (tw_request_cancel(&slot->told.request) != TW_OK) _exit(13);
            slot->is_busy = slot->is_ending = false;
            add_to(&page->cancels, 1);
        }
        uint32_t waits = slot->is_ending && slot->step == LET_GO ? 30 : 3; /* slots are in use for some time */
        if (!slot->is_busy && (slot->is_ending || !stops) && test_prng_chance(prng, 1, waits)) start(slot, prng);
    }
}

static bool is_at_work(void) {
    for (int i = 0; i < SLOTS; i++)
        if (slots[i].is_busy || slots[i].is_ending) return true;
    return test_stat_of(engine, ask_active) != 0 || test_stat_of(engine, ask_unsettled) != 0;
}

static void work(uint64_t seed) {
    struct test_prng prng;
    tw_options options;
    test_prng_seed(&prng, seed);
    quick_options(&options, redis_at);
    options.threads = TW_HOST_DRIVEN;
    options.redis_timeout_ms = 100;
    options.retry_max_ms = 100; /* or most calls would find the breaker open */
    if (test_open(&options, &engine) != TW_OK) _exit(14);
    for (int i = 0; i < 4; i++) {
        static const char *const names[] = {"s", "l", "g", "a"};
        tw_family_options family = strict_options(names[i]);
        family.on_outage = TW_OUTAGE_FAIL_CLOSED;
        family.limit_shape = i == 1 ? TW_SHAPE_SLIDING : i == 2 ? TW_SHAPE_GCRA : TW_SHAPE_FIXED;
        if (i == 3) family.limit_mode = TW_LIMIT_SOFT, family.on_outage = TW_OUTAGE_LOCAL;
        if (i == 1 || i == 2) family.window = TW_WINDOW_ALIGNED, family.window_ms = WINDOW_MS;
        families[i] = strict_family(engine, &family);
    }
    while (!atomic_load(&page->stops) || is_at_work()) {
        play(&prng, atomic_load(&page->stops));
        turn();
    }
    add_to(&page->kept, test_stat_of(engine, ask_units_kept) + test_stat_of(engine, asks_forgotten));
    if (tw_close(engine, TEST_PATIENCE_MS) != TW_OK) _exit(15);
    atomic_store(&book->is_exact, true);
    _exit(0);
}

/* ---- faults ------------------------------------------------------------------------------------------------------ */

static void ask_admin(const char *const *words, size_t count, const char *last) {
    const char *all[8];
    for (size_t i = 0; i < count; i++) all[i] = words[i];
    all[count] = last;
    (void)redis_server_ask_words(master, all, count + 1);
}

static void without_right(const char *right, int64_t ms) {
    const char *const words[] = {"ACL", "SETUSER", "default"};
    char text[16];
    (void)snprintf(text, sizeof text, "-%s", right);
    ask_admin(words, 3, text);
    test_sleep_ms(ms);
    text[0] = '+';
    ask_admin(words, 3, text);
}

static void lead_to(struct redis_server *follower, const struct redis_server *leader) {
    char port[16];
    (void)snprintf(port, sizeof port, "%d", leader->port);
    redis_server_ask(follower, "REPLICAOF", "127.0.0.1", port, NULL);
}

static bool follows(void *ctx) {
    return strstr(redis_server_ask(ctx, "INFO", "replication", NULL), "master_link_status:up") != NULL;
}

static int64_t offset_of(struct redis_server *of, const char *field) {
    const char *at = strstr(redis_server_ask(of, "INFO", "replication", NULL), field);
    return at != NULL ? atoll(at + strlen(field)) : -1;
}

static bool has_everything(void *ctx) {
    (void)ctx;
    int64_t written = offset_of(master, "master_repl_offset:");
    return written >= 0 && offset_of(replica, "slave_repl_offset:") == written;
}

static struct sentinel_stage stage;

/* A sentinel asks for a failover until all of them name the other server. It may refuse, or give up. */
static bool has_failed_over(void *ctx) {
    (void)ctx;
    char expected[64];
    struct redis_server *sentinel = &stage.sentinels[0];
    if (stage_has_failed_over(&stage)) return true;
    (void)snprintf(expected, sizeof expected, "127.0.0.1\n%d", stage.data[stage.master].port);
    const char *named = redis_server_ask(sentinel, "SENTINEL", "get-master-addr-by-name", MASTER_NAME, NULL);
    if (strcmp(named, expected) == 0) (void)redis_server_ask(sentinel, "SENTINEL", "FAILOVER", MASTER_NAME, NULL);
    test_sleep_ms(100);
    return false;
}

static void fail_over(void) {
    assert_true(test_wait(has_failed_over, NULL, TEST_PATIENCE_MS));
    stage.master = 1 - stage.master;
}

/* First the master takes no more writes. When the replica has all of them, it leads, and the other follows it. */
static void take_over(void) {
    struct redis_server *before = master;
    assert_true(test_wait(follows, replica, TEST_PATIENCE_MS));
    redis_server_ask(master, "CONFIG", "SET", "min-replicas-to-write", "9", NULL);
    assert_true(test_wait(has_everything, NULL, TEST_PATIENCE_MS));
    if (proxy == NULL)
        fail_over();
    else
        redis_server_ask(replica, "REPLICAOF", "NO", "ONE", NULL);
    lead_to(before, replica); /* sentinels wait before they do that */
    master = replica;
    replica = before;
    if (proxy != NULL) proxy_lead_to(proxy, master), proxy_cut_all(proxy);
    redis_server_ask(replica, "CONFIG", "SET", "min-replicas-to-write", "0", NULL);
    add_to(&page->take_overs, 1);
}

static void make_a_fault(struct test_prng *prng) {
    static const char *const rights[] = {"incrby", "decrby", "hset", "hdel", "set", "del", "zadd", "zrem", "pexpire"};
    static const char *const memory[] = {"CONFIG", "SET", "maxmemory"};
    static const char *const killing[] = {"CLIENT", "KILL", "TYPE"};
    int64_t ms = test_prng_between(prng, 5, 250);
    switch (test_prng_below(prng, replica != NULL ? 7 : 6)) {
    case 0: redis_server_pause(master), test_sleep_ms(ms), redis_server_resume(master); return;
    case 1: without_right(rights[test_prng_below(prng, sizeof rights / sizeof *rights)], ms); return;
    case 2: ask_admin(memory, 3, "1"), test_sleep_ms(ms), ask_admin(memory, 3, "0"); return;
    case 3: ask_admin(killing, 3, "normal"); return;
    case 4: proxy != NULL ? proxy_cut_all(proxy) : ask_admin(killing, 3, "normal"); return;
    case 5: test_sleep_ms(ms); return;
    case 6: take_over(); return;
    }
}

static void set_network(uint32_t of_10000) {
    if (proxy == NULL) return;
    static const enum proxy_fault faults[] = {PROXY_DROP_REQUEST, PROXY_DROP_REPLY,  PROXY_LOSE_REQUEST,
                                              PROXY_LOSE_REPLY,   PROXY_CUT_REQUEST, PROXY_CUT_REPLY,
                                              PROXY_HOLD,         PROXY_RESET};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) proxy_chance(proxy, faults[i], of_10000);
}

/* ---- the books --------------------------------------------------------------------------------------------------- */

static int64_t count_keys(const char *pattern) {
    const char *keys = redis_server_ask(master, "KEYS", pattern, NULL);
    int64_t count = *keys != '\0';
    for (; *keys != '\0'; keys++) count += *keys == '\n';
    return count;
}

static const char *name_of(const char *pattern) {
    static char name[128];
    const char *keys = redis_server_ask(master, "KEYS", pattern, NULL);
    (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(keys, "\n"), keys);
    return name;
}

/* What has not drained of a rate: whole units, the last one may be on its way. */
static int64_t paced_in_redis(void) {
    const char *text = redis_server_ask(master, "GET", name_of("tw:bucket:g:k*"), NULL);
    if (*text == '\0') return 0;
    double moment_us = strtod(text, NULL);
    const char *time = redis_server_ask(master, "TIME", NULL);
    double now_us = strtod(time, NULL) * 1e6;
    return (int64_t)((moment_us - now_us) / (WINDOW_MS * 1e3 / LIMIT) + 0.5);
}

static int64_t score_of(const char *log, const char *member) {
    return atoll(redis_server_ask(master, "ZSCORE", log, member, NULL));
}

/* What is in the log, and what the counter has beyond that (strict.lua): calls that could not be logged. */
static int64_t slid_in_redis(void) {
    char log[128], counter[128];
    (void)snprintf(log, sizeof log, "%s", name_of("tw:log:l:k*"));
    (void)snprintf(counter, sizeof counter, "%s", name_of("l:k*"));
    int64_t logged = 0;
    const char *members = redis_server_ask(master, "ZRANGEBYSCORE", log, "-inf", "0", NULL);
    for (const char *line = members; line != NULL; line = strchr(line, '\n'), line = line != NULL ? line + 1 : NULL) {
        char member[64];
        (void)snprintf(member, sizeof member, "%.*s", (int)strcspn(line, "\n"), line);
        if (*member != '=') continue;
        logged = -score_of(log, member);
        break; /* there is one window; the text of the reply is gone */
    }
    return -score_of(log, "+") + redis_server_get(master, counter) - logged;
}

static int64_t in_redis(enum account account) {
    switch (account) {
    case FIXED: return redis_server_get(master, "s:k");
    case SLIDING: return slid_in_redis();
    case PACED: return paced_in_redis();
    case STOCK: return redis_server_get(master, "s:r");
    case ONCE: return count_keys("tw:once:s:*");
    case SLOTS_IN_USE: return atoll(redis_server_ask(master, "ZCOUNT", "tw:hold:s:h", "0", "+inf", NULL));
    case SOFT: return redis_server_get(master, "a:a") + redis_server_get(master, "a:b");
    default: return count_keys("tw:lock:s:*");
    }
}

/* What a killed process has not sent yet, or may not keep, is in no book. */
static bool ends_with_its_process(enum account account) {
    return account == SLOTS_IN_USE || account == SOFT;
}

static void compare(uint64_t seed) {
    for (int account = 0; account < ACCOUNTS; account++) {
        int64_t least = 0, most = 0, has = in_redis((enum account)account);
        for (int i = 0; i < LIVES; i++) {
            struct book *each = &page->books[i];
            bool is_sure = each->is_exact || !ends_with_its_process((enum account)account);
            least += is_sure ? each->has[account] : 0;
            most += each->is_exact ? each->has[account] : each->may_have[account];
        }
        print_message("# %s: %lld to %lld, Redis has %lld\n", account_names[account], (long long)least, (long long)most,
                      (long long)has);
        if (has >= least && has <= most) continue;
        fail_msg("seed 0x%llx: %s: Redis has %lld, not %lld to %lld", (unsigned long long)seed, account_names[account],
                 (long long)has, (long long)least, (long long)most);
    }
}

static pid_t begin_life(int index, uint64_t seed) {
    pid_t pid = child_fork(600);
    if (pid != 0) return pid;
    life = index;
    book = &page->books[index];
    work(seed ^ (uint64_t)(index + 1) * UINT64_C(0x9E3779B97F4A7C15));
    _exit(16);
}

/* No sentinel finds the master down by itself, because then the replica need not have everything. One that has not
 * heard of a failover demotes the new master after four publish-periods: long ones. News are published at once. */
static void begin_sentinels(void) {
    stage_begin(&stage);
    master = &stage.data[0];
    replica = &stage.data[1];
    redis_at = stage.url;
    for (int i = 0; i < SENTINELS; i++) {
        struct redis_server *sentinel = &stage.sentinels[i];
        redis_server_ask(sentinel, "SENTINEL", "SET", MASTER_NAME, "down-after-milliseconds", "3600000", NULL);
        redis_server_ask(sentinel, "SENTINEL", "DEBUG", "info-period", "500", "publish-period", "5000", NULL);
    }
}

static void begin_servers(enum world world) {
    master = &server;
    replica = world == REPLICA ? &other : NULL;
    if (world != REPLICA) {
        redis_server_start(master, NULL);
        return;
    }
    redis_server_start_tcp(master, NULL);
    redis_server_start_tcp(replica, NULL);
    for (int i = 0; i < 2; i++)
        redis_server_ask(i == 0 ? master : replica, "CONFIG", "SET", "repl-diskless-sync-delay", "0", NULL);
    lead_to(replica, master);
    assert_true(test_wait(follows, replica, TEST_PATIENCE_MS));
}

static void begin_world(enum world world, uint64_t seed) {
    proxy = NULL;
    if (world == SENTINEL_SET) {
        begin_sentinels();
        return;
    }
    begin_servers(world);
    proxy = proxy_start(master, seed);
    proxy_only(proxy, "tw:");
    redis_at = proxy_url(proxy);
}

static void end_world(enum world world) {
    if (world == SENTINEL_SET) {
        stage_end(&stage);
        return;
    }
    proxy_stop(proxy);
    redis_server_destroy(&server);
    if (world == REPLICA) redis_server_destroy(&other);
}

static bool is_much_played(void *ctx) {
    return atomic_load(&page->calls) > 100 && atomic_load(&page->cancels) > 0;
}

static void run_books(uint64_t seed, int64_t seconds, enum world world) {
    struct test_prng prng;
    pid_t pids[PROCESSES];
    int lives = 0;
    test_prng_seed(&prng, seed);
    begin_world(world, seed);
    page = children_pages(sizeof *page);
    for (int i = 0; i < PROCESSES; i++) pids[i] = begin_life(lives++, seed);
    set_network((uint32_t)test_prng_between(&prng, 0, 60));
    for (int64_t end_ms = test_mono_ms() + 1000 * seconds; test_mono_ms() < end_ms;) {
        make_a_fault(&prng);
        if (world != KILLS || lives == LIVES || !test_prng_chance(&prng, 1, 8)) continue;
        int i = (int)test_prng_below(&prng, PROCESSES);
        child_kill(pids[i]);
        pids[i] = begin_life(lives++, seed);
    }
    if (world == SENTINEL_SET && page->take_overs == 0) take_over();
    assert_true(test_wait(is_much_played, NULL, TEST_PATIENCE_MS)); /* a slow machine plays little in two seconds */
    set_network(0);
    atomic_store(&page->stops, true);
    for (int i = 0; i < PROCESSES; i++) child_expect_end(pids[i]);
    print_message("# %lld calls, %lld cancelled, %d processes, %lld times another Redis\n", (long long)page->calls,
                  (long long)page->cancels, lives, (long long)page->take_overs);
    assert_i64_equal(page->kept, 0);
    compare(seed);
    end_world(world);
}

static void run_all(const char *name, enum world world) {
    uint64_t seeds[32];
    const char *text = getenv("TW_SECONDS");
    int64_t seconds = text != NULL && *text != '\0' ? atoll(text) : 2;
    size_t count = test_seeds(name, 1, seeds, 32);
    for (size_t i = 0; i < count; i++) {
        test_seed_begins(name, seeds[i]);
        run_books(seeds[i], seconds, world);
        test_seed_ends();
    }
}

/* Goal: whatever happens on the way and in Redis, it has what the callers were told in the end. */
TEST(redis_has_what_the_callers_were_told) {
    run_all("books", NETWORK);
}

/* Goal: the same while processes are killed: what they were told is there, and nothing that they did not begin. */
TEST(killed_processes_leave_no_more_than_they_began) {
    run_all("books_killed", KILLS);
}

/* Goal: the same while a replica that has everything takes over again and again. */
TEST(a_replica_that_takes_over_has_the_books) {
    run_all("books_replica", REPLICA);
}

/* Goal: the same while sentinels fail over to a replica that has everything. */
TEST(a_failover_of_sentinels_has_the_books) {
    run_all("books_sentinel", SENTINEL_SET);
}

int main(void) {
    redis_server_require();
    test_skip_unshared();
    test_tuning.presence_life_ms = TTL_MS; /* no slot becomes free by itself */
    return test_run();
}
