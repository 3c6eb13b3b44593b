/* url_test.c -- where Redis is: every form that is taken, every one that is refused, and no password in any error.
 * Covers: sync/wire/sentinel.c. */
#include "sync/wire/url.h"
#include "tests/support/support.h"

static struct twi_url parse(const char *text) {
    struct twi_url url;
    char error[256] = "";
    if (!twi_url_parse(text, &url, error, sizeof error)) {
        print_error("%s: %s\n", text, error);
        fail();
    }
    return url;
}

/* The seed number `i` as "host:port" or a path. */
static const char *seed(const struct twi_url *url, uint32_t i) {
    static char name[TWI_ENDPOINT_NAME_SIZE];
    struct twi_endpoint endpoint = twi_url_seed(url, i);
    twi_endpoint_name(&endpoint, name, sizeof name);
    return name;
}

TEST(every_part_of_a_tcp_url_is_read) {
    struct twi_url url = parse("redis://us%65r:p%40ss%3Aw%2Ford@example.com:7000/12");
    assert_string_equal(url.user, "user");
    assert_string_equal(url.password, "p@ss:w/ord");
    assert_string_equal(seed(&url, 0), "example.com:7000");
    assert_int_equal(url.db, 12);
    assert_false(url.is_unix || url.is_tls);
    assert_true(url.kind == TWI_URL_ONE && url.seed_count == 1);
    url = parse("redis://localhost");
    assert_string_equal(seed(&url, 0), "localhost:6379");
    assert_true(url.db == 0 && !url.has_password);
    url = parse("redis://:only@[::1]:6380/");
    assert_string_equal(twi_url_seed(&url, 0).host, "::1");
    assert_string_equal(url.password, "only");
    assert_true(url.user[0] == '\0' && twi_url_seed(&url, 0).port == 6380);
    url = parse("redis://[fe80::1%25eth0]");
    assert_string_equal(twi_url_seed(&url, 0).host, "fe80::1%eth0");
    assert_string_equal(parse("redis://a:b@c:d@host").password, "b@c:d"); /* the last @ ends the login */
}

TEST(a_unix_path_is_read) {
    struct twi_url url = parse("unix:///run/redis/a%20b.sock");
    assert_true(url.is_unix && url.db == 0);
    assert_true(twi_url_seed(&url, 0).is_unix);
    assert_string_equal(seed(&url, 0), "/run/redis/a b.sock");
    url = parse("unix://user:pw@/run/redis.sock?db=3");
    assert_string_equal(url.user, "user");
    assert_string_equal(url.password, "pw");
    assert_string_equal(seed(&url, 0), "/run/redis.sock");
    assert_int_equal(url.db, 3);
}

TEST(nodes_of_a_cluster_are_a_list) {
    struct twi_url url = parse("redis+cluster://user:pw@a:7000,b,[::1]:7002");
    assert_true(url.kind == TWI_URL_CLUSTER && url.seed_count == 3 && !url.is_tls);
    assert_string_equal(url.user, "user");
    assert_string_equal(seed(&url, 0), "a:7000");
    assert_string_equal(seed(&url, 1), "b:6379");
    assert_string_equal(seed(&url, 2), "[::1]:7002");
    url = parse("rediss+cluster://one/");
    assert_true(url.kind == TWI_URL_CLUSTER && url.seed_count == 1 && url.is_tls && twi_url_seed(&url, 0).is_tls);
}

TEST(sentinels_are_a_list_and_know_a_name) {
    struct twi_url url = parse("redis+sentinel://user:pw@a,b:5000,[::1]/my%20master/3");
    assert_true(url.kind == TWI_URL_SENTINEL && url.seed_count == 3 && url.db == 3 && !url.is_tls);
    assert_string_equal(url.master, "my master");
    assert_string_equal(url.password, "pw");
    assert_string_equal(seed(&url, 0), "a:26379");
    assert_string_equal(seed(&url, 1), "b:5000");
    assert_string_equal(seed(&url, 2), "[::1]:26379");
    url = parse("rediss+sentinel://a/name/");
    assert_true(url.is_tls && url.db == 0);
    assert_string_equal(url.master, "name");
}

TEST(valkey_is_another_word_for_redis) {
    static const struct {
        const char *text;
        enum twi_url_kind kind;
        bool is_tls;
    } cases[] = {
        {"valkey://host/1", TWI_URL_ONE, false},
        {"valkeys://host", TWI_URL_ONE, true},
        {"rediss://host", TWI_URL_ONE, true},
        {"valkey+cluster://a,b", TWI_URL_CLUSTER, false},
        {"valkeys+cluster://a,b", TWI_URL_CLUSTER, true},
        {"valkey+sentinel://a,b/name", TWI_URL_SENTINEL, false},
        {"valkeys+sentinel://a,b/name", TWI_URL_SENTINEL, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct twi_url url = parse(cases[i].text);
        assert_int_equal(url.kind, cases[i].kind);
        assert_int_equal(url.is_tls, cases[i].is_tls);
    }
}

TEST(log_lines_name_the_place_and_nothing_more) {
    struct twi_url url = parse("redis://u:secret@[::1]:7000/2");
    assert_string_equal(seed(&url, 0), "[::1]:7000");
    url = parse("unix://u:secret@/run/redis.sock");
    assert_string_equal(seed(&url, 0), "/run/redis.sock");
}

TEST(whatever_is_not_understood_is_refused_by_name) {
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "must begin with redis://"},
        {"localhost:6379", "must begin with redis://"},
        {"http://host", "must begin with redis://"},
        {"redis+unix:///path", "must begin with redis://"},
        {"redisss://host", "must begin with redis://"},
        {"redis+cluster://", "empty"},
        {"redis+cluster:///", "empty"},
        {"redis+cluster://u:secret@", "empty"},
        {"redis+cluster://a,", "host is missing"},
        {"redis+cluster://,a", "host is missing"},
        {"redis+cluster://a,,b", "host is missing"},
        {"redis+cluster://a,b:0", "port"},
        {"redis+cluster://a,b:", "port"},
        {"redis+cluster://a,::1", "brackets"},
        {"redis+cluster://a/0", "no databases"},
        {"redis+cluster://u:secret@a/3", "no databases"},
        {"redis+cluster://a,b?addr=c", "?"},
        {"redis+sentinel://", "empty"},
        {"redis+sentinel:///name", "empty"},
        {"redis+sentinel://a", "name of the master is missing"},
        {"redis+sentinel://u:secret@a/", "name of the master is missing"},
        {"redis+sentinel://a//1", "name of the master is missing"},
        {"redis+sentinel://a/na%me", "name of the master is wrongly"},
        {"redis+sentinel://a/name/x", "database"},
        {"redis+sentinel://a/name/1/2", "database"},
        {"redis+sentinel://a/name?db=1", "?"},
        {"redis+sentinel://a/name#x", "#"},
        {"redis://", "host is missing"},
        {"redis:///0", "host is missing"},
        {"redis://u:secret@", "host is missing"},
        {"redis://host:0", "port"},
        {"redis://host:65536", "port"},
        {"redis://host:", "port"},
        {"redis://host:12a", "port"},
        {"redis://host/x", "database"},
        {"redis://host/-1", "database"},
        {"redis://host/1/2", "database"},
        {"redis://host/9999999999", "database"},
        {"redis://::1", "brackets"},
        {"redis://[::1", "must end with ]"},
        {"redis://[::1]x", "may follow ]"},
        {"redis://[host]", "brackets are for"},
        {"redis://user@host", "needs a password"},
        {"redis://u:a/b@host", "written %2F"}, /* not: port "a" */
        {"rediss://u:1/2@host", "written %2F"},
        {"redis+cluster://:a/b@host", "written %2F"},
        {"redis://user:@host", "password is empty"},
        {"redis://a,b", "character"},
        {"redis://host name", "character"},
        {"redis://host?db=1", "?"},
        {"redis://u:secret%2@host", "password is wrongly encoded"},
        {"redis://u:secret%zz@host", "password is wrongly encoded"},
        {"redis://u:secret%00@host", "password is wrongly encoded"},
        {"redis://u%:secret@host", "user name is wrongly encoded"},
        {"unix://", "absolute"},
        {"unix://run/redis.sock", "absolute"},
        {"unix:///run/redis.sock?database=1", "?db=N"},
        {"unix:///run/redis.sock?db=", "db must"},
        {"unix:///run/redis.sock?db=1x", "db must"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct twi_url url;
        char error[256] = "";
        bool taken = twi_url_parse(cases[i].text, &url, error, sizeof error);
        if (taken || !strstr(error, cases[i].says)) print_error("%s: %s\n", cases[i].text, error);
        assert_false(taken);
        assert_non_null(strstr(error, "redis_url: "));
        assert_non_null(strstr(error, cases[i].says));
        assert_null(strstr(error, "secret"));
    }
}

TEST(lengths_are_bounded) {
    struct twi_url url;
    char text[4096], error[256];
    snprintf(text, sizeof text, "unix:///%0107d", 0); /* 108 bytes of path: one too many */
    assert_false(twi_url_parse(text, &url, error, sizeof error));
    snprintf(text, sizeof text, "unix:///%0106d", 0);
    assert_true(twi_url_parse(text, &url, error, sizeof error));
    snprintf(text, sizeof text, "redis://%0256d", 0);
    assert_false(twi_url_parse(text, &url, error, sizeof error));
    snprintf(text, sizeof text, "redis://u:%01100d@host", 0);
    assert_false(twi_url_parse(text, &url, error, sizeof error));
    snprintf(text, sizeof text, "redis://%03000d", 0);
    assert_false(twi_url_parse(text, &url, error, sizeof error));
    size_t used = (size_t)snprintf(text, sizeof text, "redis+cluster://h00");
    for (int i = 1; i < 64; i++) used += (size_t)snprintf(text + used, sizeof text - used, ",h%02d", i);
    assert_true(twi_url_parse(text, &url, error, sizeof error));
    assert_int_equal(url.seed_count, 64);
    assert_string_equal(seed(&url, 63), "h63:6379");
    snprintf(text + used, sizeof text - used, ",u:secret");
    assert_false(twi_url_parse(text, &url, error, sizeof error));
    assert_non_null(strstr(error, "more than 64 hosts"));
    assert_null(strstr(error, "secret"));
    snprintf(text, sizeof text, "redis+sentinel://a/%0256d", 0);
    assert_false(twi_url_parse(text, &url, error, sizeof error));
    assert_false(twi_url_parse(text, &url, NULL, 0)); /* no process listens: refused all the same */
    assert_int_equal(url.seed_count, 0);              /* and nothing is left behind */
}
