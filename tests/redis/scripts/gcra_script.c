/* gcra_script.c -- gcra.lua against a slow bucket in whole numbers of 128 bits: every reply and every stored moment is
 * right to the last fraction of a microsecond. Whatever is lost and repeated, no stretch of time admits more than the
 * burst and the rate.
 * Method: the script gets the time from the test, not from Redis; random calls of four connections for each bucket,
 * with windows from a second to ten years and limits from 1 to 2^53. */
#include "tests/support/redis_server.h"
#include "tests/support/support.h"

#include "gcra.lua.h"

__extension__ typedef __int128 wide;

#define LINES 4
#define CALLS_MAX 4000
#define FAR_US INT64_C(3000000000000000)  /* nothing expires by the server's clock meanwhile */
#define LAST_US INT64_C(6000000000000000) /* the last moment that can be stored, less some windows */
#define NOTE_MS 600000

static struct redis_server server;
static struct test_prng prng;
static char script[16384];

/* The last call of a connection. */
struct line {
    int64_t serial, n, limit, burst, given;
    bool some, dead; /* dead: the call was cancelled */
    bool noted;      /* its outcome is final */
    wide after;      /* 1/limit us */
    size_t entry;    /* in `admitted`; CALLS_MAX: none */
};

#define BACKS_MAX 500 /* the script knows some more */

/* The reference bucket: empty at `moment`, in 1/of us. */
struct bucket {
    wide moment;
    int64_t of;
    bool there;
    int64_t window_us, taken_back_us, now_us;
    struct {
        int64_t came_us, us;
    } backs[BACKS_MAX]; /* calls that were taken back since the bucket was empty */
    int back_count;
    struct line lines[LINES];
};

struct answer {
    char status[8];
    int64_t taken, left, reset_ms, retry_ms;
};

struct admitted {
    int64_t at_us, n;
};
static struct admitted admitted[CALLS_MAX];
static size_t admitted_count;

/* ---- what should be ---- */

static wide down(wide a, wide b) {
    return a >= 0 ? a / b : -((-a + b - 1) / b);
}
static wide up(wide a, wide b) {
    return -down(-a, b);
}
static int64_t ms_of(wide parts, wide of) {
    return parts <= 0 ? 0 : (int64_t)up(parts, of * 1000);
}

/* The moment under another limit. The units that are in the bucket stay the same. Each of them is a window's length of
 * 1/of us. */
static wide moment_in(const struct bucket *bucket, wide moment, int64_t of) {
    wide ahead = moment - (wide)bucket->now_us * bucket->of;
    return ahead > 0 ? (wide)bucket->now_us * of + ahead : moment / bucket->of * of;
}

static void keep(struct bucket *bucket, wide moment, int64_t of) {
    bucket->moment = moment;
    bucket->of = of;
    bucket->there = true;
}

static int64_t left_at(const struct bucket *bucket, wide moment, int64_t of, int64_t limit, int64_t burst) {
    wide ahead = moment - (wide)bucket->now_us * of;
    int64_t used = ahead <= 0 || limit == 0 ? 0 : (int64_t)up(ahead, bucket->window_us);
    return used < burst ? burst - used : 0;
}

static int64_t retry_ms(const struct bucket *bucket, const struct line *line, wide moment, int64_t of) {
    int64_t least = line->some && line->n > 1 ? 1 : line->n;
    if (least > line->burst) return -1;
    return ms_of(moment - (wide)bucket->now_us * of - (wide)(line->burst - least) * bucket->window_us, of);
}

/* *later: it is not the stored one, because the clock was set back. */
static wide moment_now(const struct bucket *bucket, int64_t of, bool *later) {
    wide window_end = (wide)bucket->now_us + bucket->window_us;
    wide moment = bucket->there ? bucket->moment : 0;
    *later = moment > window_end * bucket->of;
    if (*later) moment = window_end * bucket->of;
    if (bucket->there && of != bucket->of) moment = moment_in(bucket, moment, of);
    return moment < window_end * of ? moment : window_end * of;
}

/* A call that adopts another limit moves the moment. From then on nothing of earlier calls is taken back. */
/* Of calls that came later than that moment, and were taken back. */
static int64_t later_back(const struct bucket *bucket, int64_t came_us) {
    int64_t sum = 0;
    for (int i = 0; i < bucket->back_count; i++)
        if (bucket->backs[i].came_us > came_us) sum += bucket->backs[i].us;
    return sum;
}

static void adopt(struct bucket *bucket, int64_t of) {
    wide at_us = bucket->moment / bucket->of, most_us = (wide)bucket->now_us + bucket->window_us;
    if (!bucket->there || of == bucket->of || at_us < bucket->now_us) return;
    bucket->taken_back_us += (int64_t)(at_us < most_us ? at_us : most_us) - bucket->now_us + 1;
    bucket->back_count = 0;
}

static struct answer decide(struct bucket *bucket, struct line *line, bool again, int64_t ahead_ms) {
    int64_t of = line->limit > 1 ? line->limit : 1;
    bool later;
    wide moment = moment_now(bucket, of, &later), now = (wide)bucket->now_us * of;
    wide theirs = now + (wide)(ahead_ms * 1000 < bucket->window_us ? ahead_ms * 1000 : bucket->window_us) * of;
    struct answer answer = {.status = "DENIED"};
    if (line->limit == 0) { /* such a call has no rate */
        moment = up(moment_now(bucket, bucket->of, &later), bucket->of);
        later = false;
    }
    if (!again && line->limit > 0 && theirs > now && theirs / of > moment / of) moment = theirs, later = true;
    answer.left = left_at(bucket, moment, of, line->limit, line->burst);
    if (!again && line->n <= answer.left)
        line->given = line->n;
    else if (!again)
        line->given = line->some ? answer.left : 0;
    answer.taken = line->given;
    if (line->given > 0 || line->n == 0) snprintf(answer.status, sizeof answer.status, "OK");
    int64_t least = line->some && line->n > 1 ? 1 : line->n;
    bool other = bucket->there && bucket->of != of && bucket->moment / bucket->of >= bucket->now_us;
    if (line->limit > 0 && other && line->n > 0 && least <= line->burst) later = true;
    if (!again && (line->given > 0 || later)) adopt(bucket, of);
    if (!again && line->given > 0) {
        moment = (moment > now ? moment : now) + (wide)line->given * bucket->window_us;
        line->after = moment + (wide)bucket->taken_back_us * of;
        answer.left -= line->given;
    }
    answer.reset_ms = ms_of(moment - now, of);
    answer.retry_ms = answer.status[0] == 'O' ? 0 : retry_ms(bucket, line, moment, of);
    if (!again && (line->given > 0 || later)) keep(bucket, moment, of);
    return answer;
}

static struct answer never_mind(struct bucket *bucket, struct line *line) {
    int64_t of = line->limit > 1 ? line->limit : 1;
    bool later;
    wide moment = moment_now(bucket, of, &later), now = (wide)bucket->now_us * of;
    bool is_known = bucket->of == of && line->after / of + bucket->window_us <= TW_DELTA_MAX;
    wide back = (wide)line->given * bucket->window_us, ahead = line->after - (wide)bucket->taken_back_us * of - now;
    struct answer answer = {.status = "OK", .taken = line->given};
    ahead += (wide)later_back(bucket, (int64_t)(line->after / of)) * of;
    if (ahead < back) back = ahead;
    if (line->given > 0 && bucket->there && is_known && back >= 0 && back / of <= down(moment, of) - bucket->now_us) {
        keep(bucket, moment - back, of);
        bucket->taken_back_us += (int64_t)(back / of) + 1;
        assert_true(bucket->back_count < BACKS_MAX);
        bucket->backs[bucket->back_count].came_us = (int64_t)(line->after / of);
        bucket->backs[bucket->back_count++].us = (int64_t)(back / of) + 1;
        if ((moment - back) / of <= bucket->now_us) bucket->back_count = 0;
    }
    line->given = 0;
    return answer;
}

/* ---- what is ---- */

static const char *text_of(int64_t number) {
    static char texts[16][24];
    static unsigned next;
    char *text = texts[next++ % 16];
    snprintf(text, sizeof texts[0], "%lld", (long long)number);
    return text;
}

static struct answer ask(const struct bucket *bucket, int which, const char *verb, int64_t ahead_ms) {
    const struct line *line = &bucket->lines[which];
    struct answer answer = {.status = ""};
    char who[8];
    long long serial, numbers[4] = {0}; /* those at the end may be missing */
    snprintf(who, sizeof who, "me:%d", which);
    const char *reply = redis_server_ask(&server, "EVAL", script, "2", "calls", "bucket", who, text_of(line->serial),
                                         verb, text_of(line->n), text_of(line->limit), line->some ? "1" : "0",
                                         text_of(line->burst), text_of(bucket->window_us / 1000), text_of(ahead_ms),
                                         text_of(bucket->now_us / 1000000), text_of(bucket->now_us % 1000000), NULL);
    int read = sscanf(reply, "%lld\n%7s\n%lld\n%lld\n%lld\n%lld", &serial, answer.status, &numbers[0], &numbers[1],
                      &numbers[2], &numbers[3]);
    if (read < 2) fail_msg("%s", reply);
    assert_i64_equal(serial, line->serial);
    answer.taken = numbers[0], answer.left = numbers[1], answer.reset_ms = numbers[2], answer.retry_ms = numbers[3];
    return answer;
}

static void compare(const struct answer *got, const struct answer *want) {
    assert_string_equal(got->status, want->status);
    assert_i64_equal(got->taken, want->taken);
    assert_i64_equal(got->left, want->left);
    assert_i64_equal(got->reset_ms, want->reset_ms);
    assert_i64_equal(got->retry_ms, want->retry_ms);
}

/* Compares the stored moment and its expiry. */
static void compare_word(const struct bucket *bucket) {
    char want[80] = "";
    int64_t us = (int64_t)down(bucket->moment, bucket->of);
    int64_t part = (int64_t)(bucket->moment - (wide)us * bucket->of);
    if (bucket->there)
        snprintf(want, sizeof want, "%lld+%lld/%lld", (long long)us, (long long)part, (long long)bucket->of);
    assert_string_equal(redis_server_ask(&server, "GET", "bucket", NULL), want);
    if (bucket->there) assert_i64_equal(redis_server_expiry(&server, "bucket"), (us + (part != 0) + 999) / 1000);
}

/* ---- a play ---- */

static const int64_t windows_us[] = {1000000, 7000000, 60000000, 86400000000, 3650 * 86400000000};
static const int64_t limits[] = {
    1, 2, 3, 7, 60, 97, 99991, 10000000, 72057594037, TW_DELTA_MAX, TW_DELTA_MAX - 1, (TW_DELTA_MAX >> 1) + 1};

static void draw_limit(struct line *line) {
    line->limit = test_prng_chance(&prng, 1, 30) ? 0 : limits[test_prng_below(&prng, 12)];
    line->burst = line->limit;
    if (test_prng_chance(&prng, 1, 2) && line->limit > 1)
        line->burst = test_prng_between(&prng, 1, line->limit < 20 ? line->limit : 20);
}

static void draw_call(struct line *line) {
    int64_t most = test_prng_chance(&prng, 1, 5) ? line->burst : line->burst / 6 + 1;
    if (test_prng_chance(&prng, 1, 20)) most = TW_DELTA_MAX;
    line->serial++;
    line->n = test_prng_chance(&prng, 1, 12) ? 0 : test_prng_between(&prng, 1, most > 0 ? most : 1);
    line->some = test_prng_chance(&prng, 1, 4);
    line->given = 0;
    line->dead = line->noted = false;
    line->entry = CALLS_MAX;
}

static void pass(struct bucket *bucket, bool steps) {
    if (test_prng_chance(&prng, 1, 3)) return;
    int64_t most_us = test_prng_chance(&prng, 1, 15)  ? 2 * bucket->window_us
                      : test_prng_chance(&prng, 1, 4) ? 3
                                                      : bucket->window_us / 8;
    bucket->now_us += test_prng_between(&prng, 0, most_us);
    if (steps && test_prng_chance(&prng, 1, 40)) bucket->now_us -= test_prng_between(&prng, 0, 2 * bucket->window_us);
    if (!bucket->there || (wide)bucket->now_us * bucket->of < bucket->moment || test_prng_chance(&prng, 1, 2)) return;
    redis_server_ask(&server, "DEL", "bucket", NULL); /* as it would have expired */
    bucket->there = false;
}

/* Sends one copy of a call, and compares what it leaves. */
static void say(struct bucket *bucket, int which, bool again, int64_t ahead_ms) {
    struct line *line = &bucket->lines[which];
    struct answer got = ask(bucket, which, again ? "2" : "1", ahead_ms);
    bool was_noted = line->noted;
    struct answer want = decide(bucket, line, was_noted, ahead_ms);
    compare(&got, &want);
    line->noted = was_noted || again || line->given > 0;
    if (was_noted || line->given == 0) return;
    line->entry = admitted_count;
    admitted[admitted_count++] = (struct admitted){bucket->now_us, line->given};
}

/* What Redis receives of a call: nothing, one copy or more; and later perhaps its cancel. */
static void play_call(struct bucket *bucket, int which, bool steps) {
    struct line *line = &bucket->lines[which];
    bool knows = steps && test_prng_chance(&prng, 1, 8);
    int64_t ahead_ms = knows ? test_prng_between(&prng, 1, bucket->window_us / 800) : 0;
    int64_t words = test_prng_chance(&prng, 1, 10) ? 0 : test_prng_chance(&prng, 1, 4) ? 2 : 1;
    for (; words > 0; words--) {
        say(bucket, which, test_prng_chance(&prng, 1, 4), ahead_ms);
        compare_word(bucket);
        if (test_prng_chance(&prng, 1, 2)) pass(bucket, steps);
    }
    line->dead = test_prng_chance(&prng, 1, 4);
}

static void settle(struct bucket *bucket, int which) {
    struct line *line = &bucket->lines[which];
    if (!line->dead) return;
    line->dead = false;
    struct answer got = ask(bucket, which, "0", 0), want = never_mind(bucket, line);
    compare(&got, &want);
    if (line->entry < CALLS_MAX) admitted[line->entry].n = 0;
    line->noted = true;
    compare_word(bucket);
    if (test_prng_chance(&prng, 1, 2)) say(bucket, which, test_prng_chance(&prng, 1, 2), 0); /* a copy of the call */
    compare_word(bucket);
}

/* No stretch of time has more than the burst and what the rate gives. */
static void check_stretches(const struct bucket *bucket, int64_t limit, int64_t burst) {
    for (size_t first = 0; first < admitted_count; first++) {
        wide sum = 0;
        for (size_t i = first; i < admitted_count; i++) {
            sum += admitted[i].n;
            wide time = admitted[i].at_us - admitted[first].at_us;
            assert_true(sum * bucket->window_us <= (wide)burst * bucket->window_us + time * limit);
        }
    }
}

static void play(uint64_t seed, bool steps) {
    struct bucket bucket = {.of = 1, .now_us = FAR_US};
    struct line named = {.serial = 0};
    test_prng_seed(&prng, seed);
    redis_server_ask(&server, "DEL", "calls", "bucket", NULL);
    bucket.window_us = windows_us[test_prng_below(&prng, 5)];
    bucket.now_us += test_prng_between(&prng, 0, 1000000);
    admitted_count = 0;
    draw_limit(&named);
    for (int i = 0; i < 150 && bucket.now_us < LAST_US; i++) {
        int which = (int)test_prng_below(&prng, LINES);
        struct line *line = &bucket.lines[which];
        if (test_prng_chance(&prng, 1, 3)) settle(&bucket, (int)test_prng_below(&prng, LINES));
        settle(&bucket, which); /* at the latest before the connection's next call */
        if (steps && test_prng_chance(&prng, 1, 4)) draw_limit(&named);
        line->limit = named.limit, line->burst = named.burst;
        draw_call(line);
        play_call(&bucket, which, steps);
        pass(&bucket, steps);
    }
    for (int which = 0; which < LINES; which++) settle(&bucket, which);
    if (!steps) check_stretches(&bucket, named.limit, named.burst);
}

static void play_seeds(const char *name, bool steps, uint64_t plays) {
    uint64_t seeds[1024];
    size_t count = test_seeds(name, test_scale(plays), seeds, 1024);
    for (size_t i = 0; i < count; i++) {
        test_seed_begins(name, seeds[i]);
        play(seeds[i], steps);
        test_seed_ends();
    }
}

/* Goal: replies are exact, and never more than the burst and the rate is admitted, with lost messages of all kinds. */
TEST(a_bucket_is_exact) {
    play_seeds("gcra_script", false, 60);
}

/* Goal: the same while limits change, the clock is set back, and engines report what they admitted by themselves. */
TEST(a_bucket_under_changing_limits_is_exact) {
    play_seeds("gcra_script_steps", true, 50);
}

/* Goal: a value that is no moment is left alone, and reported as an error. */
TEST(a_value_that_is_no_moment_is_left_alone) {
    static const char *const words[] = {
        "", "x", "-5", "1.5", "1+2", "1+1/0", "1+3/3", "1+1/2 ", "1e3", "99999999999999999999", "5+1/9007199254740994"};
    struct bucket bucket = {.of = 1, .now_us = FAR_US, .window_us = 1000000};
    bucket.lines[0] = (struct line){.serial = 1, .n = 1, .limit = 10, .burst = 10};
    redis_server_ask(&server, "DEL", "calls", NULL);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        redis_server_ask(&server, "SET", "bucket", words[i], NULL);
        assert_string_equal(ask(&bucket, 0, "1", 0).status, "BAD");
        assert_string_equal(ask(&bucket, 0, "1", 500).status, "BAD");
        assert_string_equal(redis_server_ask(&server, "GET", "bucket", NULL), words[i]);
    }
    redis_server_ask(&server, "DEL", "bucket", NULL);
    redis_server_ask(&server, "RPUSH", "bucket", "1", NULL);
    assert_string_equal(ask(&bucket, 0, "1", 0).status, "BAD");
    assert_string_equal(redis_server_ask(&server, "TYPE", "bucket", NULL), "list");
    assert_string_equal(ask(&bucket, 0, "0", 0).status, "OK");
    assert_string_equal(redis_server_ask(&server, "TYPE", "bucket", NULL), "list");
    redis_server_ask(&server, "DEL", "bucket", "calls", NULL);
    assert_string_equal(ask(&bucket, 0, "1", 0).status, "OK");
    bucket.lines[0].serial = 0;
    assert_string_equal(ask(&bucket, 0, "1", 0).status, "STALE");
}

/* Goal: a moment that an earlier version wrote without its limit counts as one of the call's limit, and gets it. */
TEST(a_moment_without_a_limit_is_read) {
    struct bucket bucket = {.of = 10, .now_us = FAR_US, .window_us = 1000000};
    redis_server_ask(&server, "DEL", "calls", NULL);
    redis_server_ask(&server, "SET", "bucket", text_of(FAR_US + 500000), NULL);
    bucket.lines[0] = (struct line){.serial = 1, .n = 2, .limit = 10, .burst = 10};
    assert_i64_equal(ask(&bucket, 0, "1", 0).left, 3);
    keep(&bucket, ((wide)FAR_US + 700000) * 10, 10);
    compare_word(&bucket);
}

static void replace(const char *what, const char *by) {
    static char copy[sizeof script];
    const char *at = strstr(script, what);
    assert_non_null(at);
    assert_null(strstr(at + 1, what));
    snprintf(copy, sizeof copy, "%.*s%s%s", (int)(at - script), script, by, at + strlen(what));
    memcpy(script, copy, sizeof script);
}

/* The script, with a time from the test. With such times it forgets no call (requests_script.c tests forgetting). */
static void write_script(void) {
    snprintf(script, sizeof script, "%s", twi_script_gcra);
    replace("redis.call('TIME')", "{ARGV[10], ARGV[11]}");
    replace("now_s - at > 600", "now_s - at > 300000000000");
}

/* Goal: Redis before 6.2, which refuses PXAT, keeps the same moments with the same expiry. */
TEST(a_redis_without_pxat_keeps_the_same_moments) {
    replace("'PXAT'", "'PXNO'"); /* a syntax error, as PXAT is there */
    play_seeds("gcra_script_old", false, 10);
    write_script();
}

static int begin(void **state) {
    redis_server_start(&server, NULL);
    write_script();
    return 0;
}

static int end(void **state) {
    redis_server_destroy(&server);
    return 0;
}

int main(void) {
    redis_server_require();
    return test_run_with(begin, end);
}
