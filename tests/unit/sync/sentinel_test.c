/* sentinel_test.c -- asking sentinels: what their answers mean, however hostile; in which order and for how long they
 * are asked; and when a connection that stands is left for what they say.
 * Always true: sentinels are rows of a table here (struct fake), and time is a number. */
#include "sync/wire/sentinel.h"
#include "tests/support/support.h"

#define SEEDS 3
#define TIMEOUT_MS 100

/* One sentinel, by its port: 1, 2, 3. */
struct fake {
    bool refuses; /* connections */
    bool hangs;   /* while connecting */
    const char *reply;
    size_t piece; /* how many bytes come at once; 0: all */
    /* what happened */
    bool is_open;
    size_t taken;
    int dials;
    char heard[512];
    size_t heard_size;
};

static struct fake fakes[SEEDS + 1];
static int made, gone;

/* ---- the transport ----------------------------------------------------------------------------------------------- */

struct link {
    struct fake *fake;
};

static int fake_connect(void *ctx, const struct twi_endpoint *endpoint, int64_t now_ms, int64_t deadline_ms) {
    struct link *link = ctx;
    (void)now_ms, (void)deadline_ms;
    link->fake = &fakes[endpoint->port];
    if (link->fake->refuses) return -1;
    if (!link->fake->is_open) link->fake->dials++;
    link->fake->is_open = true;
    if (link->fake->hangs) return 0;
    return 1;
}

static ssize_t fake_send(void *ctx, const void *data, size_t size) {
    struct fake *fake = ((struct link *)ctx)->fake;
    assert_true(fake->is_open && fake->heard_size + size < sizeof fake->heard);
    memcpy(fake->heard + fake->heard_size, data, size);
    fake->heard_size += size;
    return (ssize_t)size;
}

static ssize_t fake_recv(void *ctx, void *data, size_t size) {
    struct fake *fake = ((struct link *)ctx)->fake;
    size_t left = fake->reply ? strlen(fake->reply) - fake->taken : 0;
    if (fake->piece && left > fake->piece) left = fake->piece;
    if (left > size) left = size;
    if (left) memcpy(data, fake->reply + fake->taken, left);
    fake->taken += left;
    return (ssize_t)left;
}

static void fake_close(void *ctx) {
    struct fake *fake = ((struct link *)ctx)->fake;
    if (!fake) return;
    fake->is_open = false;
    fake->taken = 0;
}

static int fake_fd(void *ctx, bool *wants_write) {
    *wants_write = false;
    return 7;
}

static const char *fake_why(void *ctx) {
    return "connect: refused";
}

static void *fake_create(void *ctx, int set) {
    (void)ctx, (void)set;
    made++;
    struct link *link = calloc(1, sizeof *link);
    assert_non_null(link);
    return link;
}

static void fake_destroy(void *ctx) {
    gone++;
    free(ctx);
}

static const struct twi_transport transport = {
    .connect = fake_connect,
    .send = fake_send,
    .recv = fake_recv,
    .close = fake_close,
    .fd = fake_fd,
    .why = fake_why,
    .create = fake_create,
    .destroy = fake_destroy,
    .abandon = fake_destroy,
};

/* ---- sentinels --------------------------------------------------------------------------------------------------- */

static struct twi_where sentinels_at;
static const char a[] = "*2\r\n$1\r\na\r\n$4\r\n6379\r\n", b[] = "*2\r\n$1\r\nb\r\n$4\r\n6380\r\n";
static const char nobody[] = "*-1\r\n";

static int give_password(void *ctx, char *out, size_t size) {
    return snprintf(out, size, "%s", (const char *)ctx);
}

/* The sentinel that is asked first is the first of them, whatever chance says. */
static struct twi_sentinels *sentinels_with(struct twi_login login) {
    char error[TWI_URL_ERROR_MAX];
    struct twi_endpoint endpoint;
    int64_t again_ms;
    memset(fakes, 0, sizeof fakes);
    sentinels_at = (struct twi_where){.transport = &transport, .sentinel_login = login};
    assert_true(twi_url_parse("redis+sentinel://s:1,s:2,s:3/shop", &sentinels_at.url, error, sizeof error));
    struct twi_resolver_rules rules = {.where = &sentinels_at, .timeout_ms = TIMEOUT_MS};
    struct twi_sentinels *sentinels = twi_sentinels_create(&rules);
    assert_non_null(sentinels);
    for (int i = 1; i <= SEEDS; i++) fakes[i].refuses = i != 1, fakes[i].reply = login.ask ? "+OK\r\n*-1\r\n" : nobody;
    fakes[1].reply = login.ask ? "+OK\r\n*2\r\n$1\r\nx\r\n$1\r\n1\r\n" : "*2\r\n$1\r\nx\r\n$1\r\n1\r\n";
    assert_int_equal(twi_sentinels_ask(sentinels, 0, &endpoint, &again_ms), TWI_WHERE_HERE);
    memset(fakes, 0, sizeof fakes);
    return sentinels;
}

static struct twi_sentinels *sentinels_of(const char *first, const char *second, const char *third) {
    struct twi_sentinels *sentinels = sentinels_with((struct twi_login){0});
    fakes[1].reply = first, fakes[2].reply = second, fakes[3].reply = third;
    return sentinels;
}

/* Asks every `step_ms` until there is an answer; *now_ms moves on. */
static enum twi_resolved ask_until(struct twi_sentinels *sentinels, int64_t *now_ms, int64_t step_ms,
                                   struct twi_endpoint *endpoint) {
    for (;;) {
        int64_t again_ms = -1;
        enum twi_resolved where = twi_sentinels_ask(sentinels, *now_ms, endpoint, &again_ms);
        if (where != TWI_WHERE_NOT_YET) return where;
        assert_true(again_ms >= 0);
        *now_ms += again_ms < step_ms ? again_ms : step_ms;
        assert_true(*now_ms < 1000000);
    }
}

static const char *asked(struct twi_sentinels *sentinels) {
    static struct twi_endpoint endpoint;
    int64_t now_ms = 1000;
    enum twi_resolved where = ask_until(sentinels, &now_ms, 1, &endpoint);
    return where == TWI_WHERE_HERE ? endpoint.host : "";
}

static bool looked(struct twi_sentinels *sentinels, int64_t *now_ms, const char *host, uint16_t port) {
    struct twi_endpoint here = {.port = port};
    snprintf(here.host, sizeof here.host, "%s", host);
    *now_ms = twi_sentinels_look_due_ms(sentinels, *now_ms);
    for (;;) {
        if (twi_sentinels_look(sentinels, *now_ms, &here)) return true;
        int64_t due_ms = twi_sentinels_look_due_ms(sentinels, *now_ms);
        if (due_ms > *now_ms + 100) return false; /* the round is over */
        *now_ms = due_ms;
    }
}

/* ---- what an answer means ---------------------------------------------------------------------------------------- */

TEST(an_answer_is_a_place_or_it_is_none) {
    static const struct {
        const char *reply;
        enum twi_sentinel_says says;
    } cases[] = {
        {"*2\r\n$9\r\n127.0.0.1\r\n$4\r\n6379\r\n", TWI_SENTINEL_MASTER},
        {"*2\r\n$3\r\n::1\r\n:6379\r\n", TWI_SENTINEL_MASTER},
        {"*2\r\n$14\r\nredis-1.shop.x\r\n$5\r\n65535\r\n", TWI_SENTINEL_MASTER},
        {"*-1\r\n", TWI_SENTINEL_UNKNOWN_NAME},
        {"$-1\r\n", TWI_SENTINEL_UNKNOWN_NAME},
        {"-NOAUTH Authentication required.\r\n", TWI_SENTINEL_REFUSES},
        {"-IDONTKNOW\r\n", TWI_SENTINEL_REFUSES},
        {"+OK\r\n", TWI_SENTINEL_NONSENSE},
        {":1\r\n", TWI_SENTINEL_NONSENSE},
        {"$4\r\nhost\r\n", TWI_SENTINEL_NONSENSE},
        {"*0\r\n", TWI_SENTINEL_NONSENSE},
        {"*1\r\n$1\r\na\r\n", TWI_SENTINEL_NONSENSE},
        {"*3\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\n1\r\n", TWI_SENTINEL_NONSENSE},
        {"*2\r\n$0\r\n\r\n$4\r\n6379\r\n", TWI_SENTINEL_NONSENSE},
        {"*2\r\n$-1\r\n$4\r\n6379\r\n", TWI_SENTINEL_NONSENSE},
        {"*2\r\n$1\r\na\r\n$-1\r\n", TWI_SENTINEL_NONSENSE},
        {"*2\r\n$1\r\na\r\n$1\r\n0\r\n", TWI_SENTINEL_NONSENSE},
        {"*2\r\n$1\r\na\r\n$5\r\n65536\r\n", TWI_SENTINEL_NONSENSE},
        {"*2\r\n$1\r\na\r\n$2\r\n-1\r\n", TWI_SENTINEL_NONSENSE},
        {"*2\r\n$1\r\na\r\n$20\r\n18446744073709551617\r\n", TWI_SENTINEL_NONSENSE},
        {"*2\r\n$1\r\na\r\n$5\r\n6379x\r\n", TWI_SENTINEL_NONSENSE},
        {"*2\r\n$3\r\na b\r\n$4\r\n6379\r\n", TWI_SENTINEL_NONSENSE},
        {"*2\r\n$3\r\na\nb\r\n$4\r\n6379\r\n", TWI_SENTINEL_NONSENSE},
        {"*2\r\n*1\r\n$1\r\na\r\n$4\r\n6379\r\n", TWI_SENTINEL_NONSENSE},
        {"*2\r\n$1\r\na\r\n*1\r\n:1\r\n", TWI_SENTINEL_NONSENSE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct twi_reader *reader = twi_reader_create(&twi_sentinel_limits);
        struct twi_endpoint endpoint = {0};
        const struct twi_node *nodes;
        size_t count;
        assert_true(twi_reader_feed(reader, cases[i].reply, strlen(cases[i].reply)));
        assert_int_equal(twi_reader_next(reader, &nodes, &count), TWI_WIRE_DONE);
        if (twi_sentinel_read(nodes, count, &endpoint) != cases[i].says) fail_msg("%s", cases[i].reply);
        twi_reader_free(reader);
    }
}

TEST(a_host_that_is_too_long_is_no_place) {
    char reply[400];
    struct twi_endpoint endpoint = {0};
    const struct twi_node *nodes;
    size_t count;
    for (int size = 255; size <= 256; size++) {
        struct twi_reader *reader = twi_reader_create(&twi_sentinel_limits);
        snprintf(reply, sizeof reply, "*2\r\n$%d\r\n%0*d\r\n$4\r\n6379\r\n", size, size, 0);
        assert_true(twi_reader_feed(reader, reply, strlen(reply)));
        assert_int_equal(twi_reader_next(reader, &nodes, &count), TWI_WIRE_DONE);
        assert_int_equal(twi_sentinel_read(nodes, count, &endpoint),
                         size == 255 ? TWI_SENTINEL_MASTER : TWI_SENTINEL_NONSENSE);
        twi_reader_free(reader);
    }
}

/* ---- before a connection ----------------------------------------------------------------------------------------- */

TEST(the_first_that_names_the_master_is_believed) {
    struct twi_sentinels *sentinels = sentinels_of(a, b, b);
    assert_string_equal(asked(sentinels), "a");
    assert_true(fakes[1].dials == 1 && fakes[2].dials == 0 && !fakes[1].is_open);
    assert_non_null(strstr(fakes[1].heard, "*3\r\n$8\r\nSENTINEL\r\n$23\r\nget-master-addr-by-name\r\n$4\r\nshop\r\n"));
    twi_sentinels_destroy(sentinels);
}

TEST(an_answer_is_the_same_in_single_bytes) {
    struct twi_sentinels *sentinels = sentinels_of(b, NULL, NULL);
    fakes[1].piece = 1;
    assert_string_equal(asked(sentinels), "b");
    twi_sentinels_destroy(sentinels);
}

TEST(who_does_not_say_is_passed_over) {
    static const char *const unsaid[] = {"*-1\r\n", "-NOAUTH no\r\n", "+OK\r\n", "?\r\n", "*2\r\n*2\r\n*2\r\n*2\r\n"};
    for (size_t i = 0; i < sizeof unsaid / sizeof *unsaid; i++) {
        struct twi_sentinels *sentinels = sentinels_of(unsaid[i], b, a);
        assert_string_equal(asked(sentinels), "b");
        assert_string_equal(asked(sentinels), "b"); /* who answered is asked first from then on */
        assert_int_equal(fakes[1].dials, 1);
        twi_sentinels_destroy(sentinels);
    }
}

/* Goal: silent sentinels cost at most three times the timeout in all, and leave time for the one that answers. */
TEST(all_of_them_have_three_times_the_timeout) {
    struct twi_endpoint endpoint;
    int64_t now_ms = 5000;
    struct twi_sentinels *sentinels = sentinels_of(NULL, NULL, b);
    fakes[2].hangs = true;
    assert_int_equal(ask_until(sentinels, &now_ms, 1, &endpoint), TWI_WHERE_HERE);
    assert_true(now_ms <= 5000 + 2 * TIMEOUT_MS);
    fakes[3].reply = NULL;
    now_ms = 8000;
    assert_int_equal(ask_until(sentinels, &now_ms, 1, &endpoint), TWI_WHERE_UNKNOWN);
    assert_i64_equal(now_ms, 8000 + 3 * TIMEOUT_MS);
    assert_non_null(strstr(twi_sentinels_why(sentinels), "no answer in time"));
    for (int i = 1; i <= SEEDS; i++) assert_false(fakes[i].is_open);
    twi_sentinels_destroy(sentinels);
}

/* Goal: time in which nobody looked is not held against a sentinel, and a silent one is left all the same by who
 * always looks too late. */
TEST(time_in_which_nobody_looked_is_forgiven_but_not_for_ever) {
    struct twi_endpoint endpoint;
    int64_t again_ms, now_ms = 1000;
    struct twi_sentinels *sentinels = sentinels_of(NULL, b, b);
    assert_int_equal(twi_sentinels_ask(sentinels, now_ms, &endpoint, &again_ms), TWI_WHERE_NOT_YET);
    fakes[1].hangs = true;
    now_ms += 500; /* and the answer came meanwhile */
    fakes[1].hangs = false;
    fakes[1].reply = a;
    assert_int_equal(twi_sentinels_ask(sentinels, now_ms, &endpoint, &again_ms), TWI_WHERE_HERE);
    assert_string_equal(endpoint.host, "a");
    for (int i = 1; i <= SEEDS; i++) fakes[i].reply = NULL;
    int turns = 0;
    for (now_ms = 10000; twi_sentinels_ask(sentinels, now_ms, &endpoint, &again_ms) == TWI_WHERE_NOT_YET;
         now_ms += 1000)
        assert_true(++turns < 20);
    twi_sentinels_destroy(sentinels);
}

/* Goal: looks that are all a bit late, as on a busy machine, do not make the round of silent sentinels longer than the
 * lateness and one more look. */
TEST(many_slightly_late_looks_do_not_push_the_deadline_away) {
    struct twi_endpoint endpoint;
    int64_t again_ms, now_ms = 1000, late_ms = 0;
    struct twi_sentinels *sentinels = sentinels_of(NULL, NULL, NULL);
    while (twi_sentinels_ask(sentinels, now_ms, &endpoint, &again_ms) == TWI_WHERE_NOT_YET) {
        now_ms += again_ms + 6;
        late_ms += 6;
        assert_true(late_ms < 1000);
    }
    assert_true(now_ms - 1000 <= 3 * TIMEOUT_MS + TIMEOUT_MS / 4 + late_ms);
    twi_sentinels_destroy(sentinels);
}

TEST(who_named_the_wrong_one_is_not_asked_first_again) {
    struct twi_sentinels *sentinels = sentinels_of(a, b, NULL);
    assert_string_equal(asked(sentinels), "a");
    twi_sentinels_distrust(sentinels);
    assert_string_equal(asked(sentinels), "b");
    assert_string_equal(asked(sentinels), "b");
    twi_sentinels_destroy(sentinels);
}

TEST(why_nobody_says_names_the_sentinel_and_the_reason) {
    struct twi_sentinels *sentinels = sentinels_of(nobody, nobody, nobody);
    assert_string_equal(asked(sentinels), "");
    assert_string_equal(twi_sentinels_why(sentinels), "sentinel s:3 knows no master of that name");
    fakes[3].refuses = true;
    assert_string_equal(asked(sentinels), "");
    assert_string_equal(twi_sentinels_why(sentinels), "sentinel s:3 connect: refused");
    twi_sentinels_destroy(sentinels);
}

/* ---- their login ------------------------------------------------------------------------------------------------- */

TEST(the_sentinels_have_a_login_of_their_own) {
    char password[] = "se\tcret";
    struct twi_sentinels *sentinels =
        sentinels_with((struct twi_login){.user = "watcher", .ask = give_password, .ask_ctx = password});
    fakes[1].reply = "+OK\r\n*2\r\n$1\r\na\r\n$4\r\n6379\r\n";
    assert_string_equal(asked(sentinels), "a");
    static const char auth[] = "*3\r\n$4\r\nAUTH\r\n$7\r\nwatcher\r\n$7\r\nse\tcret\r\n*3\r\n$8\r\nSENTINEL\r\n";
    assert_memory_equal(fakes[1].heard, auth, sizeof auth - 1);
    twi_sentinels_destroy(sentinels);
}

TEST(of_a_refused_login_the_first_word_is_kept) {
    char password[] = "secret";
    struct twi_sentinels *sentinels = sentinels_with((struct twi_login){.ask = give_password, .ask_ctx = password});
    for (int i = 1; i <= SEEDS; i++) fakes[i].reply = "-WRONGPASS you said secret\r\n-NOAUTH x\r\n";
    assert_string_equal(asked(sentinels), "");
    assert_string_equal(twi_sentinels_why(sentinels), "sentinel s:3 refuses the login: WRONGPASS");
    twi_sentinels_destroy(sentinels);
}

/* ---- beside a connection ----------------------------------------------------------------------------------------- */

TEST(a_connection_is_left_only_where_more_than_half_name_another) {
    static const struct {
        const char *said[SEEDS];
        bool leaves; /* a, for b */
    } cases[] = {
        {{a, a, a}, false},
        {{b, a, a}, false},
        {{a, b, a}, false},
        {{b, NULL, NULL}, false},
        {{b, b, a}, true},
        {{a, b, b}, true},
        {{b, NULL, b}, true},
        {{b, b, b}, true},
        {{b, a, b}, true},
        {{nobody, b, b}, true},
        {{nobody, nobody, b}, false},
        {{NULL, NULL, NULL}, false},
        {{b, "?", "?"}, false},
        {{nobody, nobody, nobody}, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t now_ms = 1000;
        struct twi_sentinels *sentinels = sentinels_of(cases[i].said[0], cases[i].said[1], cases[i].said[2]);
        twi_sentinels_found(sentinels, now_ms);
        assert_int_equal(looked(sentinels, &now_ms, "a", 6379), cases[i].leaves);
        if (cases[i].leaves) assert_string_equal(asked(sentinels), "b"); /* of one that said so */
        for (int seed = 1; seed <= SEEDS; seed++) assert_false(fakes[seed].is_open);
        twi_sentinels_destroy(sentinels);
    }
}

TEST(they_are_asked_soon_after_a_connection_and_then_every_ten_seconds) {
    int64_t now_ms = 1000, before_ms = 1000;
    struct twi_sentinels *sentinels = sentinels_of(a, a, a);
    twi_sentinels_found(sentinels, now_ms);
    for (int round = 0; round < 5; round++) {
        assert_false(looked(sentinels, &now_ms, "a", 6379));
        if (round == 0) assert_true(now_ms - before_ms >= 500 && now_ms - before_ms <= 1000);
        if (round != 0) assert_true(now_ms - before_ms >= 9000 && now_ms - before_ms <= 11010);
        before_ms = now_ms;
        assert_int_equal(fakes[2].dials, round + 1);
    }
    twi_sentinels_destroy(sentinels);
}

/* Goal: a look that is under way when the connection ends does not disturb the question for the next one. */
TEST(a_look_ends_where_a_connection_is_to_be_made) {
    struct twi_endpoint here = {.host = "a", .port = 6379};
    struct twi_sentinels *sentinels = sentinels_of(a, NULL, b);
    twi_sentinels_found(sentinels, 0);
    assert_false(twi_sentinels_look(sentinels, 2000, &here));
    assert_true(fakes[2].is_open);
    assert_string_equal(asked(sentinels), "a");
    assert_false(fakes[2].is_open);
    twi_sentinels_destroy(sentinels);
}

TEST(what_was_made_is_freed) {
    made = gone = 0;
    struct twi_sentinels *sentinels = sentinels_of(NULL, NULL, NULL);
    struct twi_endpoint endpoint;
    int64_t again_ms;
    assert_int_equal(twi_sentinels_ask(sentinels, 0, &endpoint, &again_ms), TWI_WHERE_NOT_YET);
    twi_sentinels_abandon(sentinels); /* in the middle of a question */
    assert_true(made == SEEDS && gone == SEEDS);
}
