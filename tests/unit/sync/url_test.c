/* url_test.c -- where Redis is: every form that is taken, every one that is refused, and no password in any error. */
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

static void every_part_of_a_tcp_url_is_read(void **state) {
    (void)state;
    struct twi_url url = parse("redis://us%65r:p%40ss%3Aw%2Ford@example.com:7000/12");
    assert_string_equal(url.user, "user");
    assert_string_equal(url.password, "p@ss:w/ord");
    assert_string_equal(url.host, "example.com");
    assert_int_equal(url.port, 7000);
    assert_int_equal(url.db, 12);
    assert_false(url.is_unix);
    url = parse("redis://localhost");
    assert_true(url.port == 6379 && url.db == 0 && !url.has_password);
    url = parse("redis://:only@[::1]:6380/");
    assert_string_equal(url.host, "::1");
    assert_string_equal(url.password, "only");
    assert_true(url.user[0] == '\0' && url.port == 6380);
    assert_string_equal(parse("redis://[fe80::1%25eth0]").host, "fe80::1%eth0");
    assert_string_equal(parse("redis://a:b@c:d@host").password, "b@c:d"); /* the last @ ends the login */
}

static void a_unix_path_is_read(void **state) {
    (void)state;
    struct twi_url url = parse("unix:///run/redis/a%20b.sock");
    assert_true(url.is_unix && url.db == 0);
    assert_string_equal(url.host, "/run/redis/a b.sock");
    url = parse("unix://user:pw@/run/redis.sock?db=3");
    assert_string_equal(url.user, "user");
    assert_string_equal(url.password, "pw");
    assert_string_equal(url.host, "/run/redis.sock");
    assert_int_equal(url.db, 3);
}

static void log_lines_name_the_place_and_nothing_more(void **state) {
    (void)state;
    char name[300];
    struct twi_url url = parse("redis://u:secret@[::1]:7000/2");
    twi_url_name(&url, name, sizeof name);
    assert_string_equal(name, "[::1]:7000");
    url = parse("unix://u:secret@/run/redis.sock");
    twi_url_name(&url, name, sizeof name);
    assert_string_equal(name, "/run/redis.sock");
}

static void whatever_is_not_understood_is_refused_by_name(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "must begin with redis://"},
        {"localhost:6379", "must begin with redis://"},
        {"http://host", "must begin with redis://"},
        {"rediss://u:secret@host", "rediss://"},
        {"redis+cluster://a,b", "redis+cluster://"},
        {"redis+sentinel://a,b/name", "redis+sentinel://"},
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

static void lengths_are_bounded(void **state) {
    (void)state;
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
    assert_false(twi_url_parse(text, &url, NULL, 0)); /* nobody listens: refused all the same */
    assert_int_equal(url.port, 0);                    /* and nothing is left behind */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_part_of_a_tcp_url_is_read),
        cmocka_unit_test(a_unix_path_is_read),
        cmocka_unit_test(log_lines_name_the_place_and_nothing_more),
        cmocka_unit_test(whatever_is_not_understood_is_refused_by_name),
        cmocka_unit_test(lengths_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
