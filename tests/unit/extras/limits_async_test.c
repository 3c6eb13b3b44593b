/* limits_async_test.c -- tw_limits_acquire_async(), tw_limited_acquire_async(): limits from a file, answered later. The
 * line of the moment of the call decides: what needs no Redis is answered at once, the rest by `done`, whatever becomes
 * of the file meanwhile. Method: a driver that answers when the test says so (later_driver.h). */
#include "tests/unit/later_driver.h"

static struct rig rig;
static tw_limits *limits;
static tw_limited *api;
static char folder[64], path[96];

static void write_file(const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void reload(const char *text) {
    char error[400] = "";
    write_file(text);
    if (tw_limits_reload(limits, error, sizeof error) != TW_OK) fail_msg("%s", error);
}

static int begin(void **state) {
    char error[400] = "";
    later_open(&rig);
    strcpy(folder, "/tmp/limits-async-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/limits", folder);
    write_file("api soft:* 2 1h\n"
               "api free:* unlimited\n"
               "api * 10 1d mode=strict outage=closed\n"
               "login * 1 1h\n");
    if (tw_limits_open(rig.engine, path, error, sizeof error, &limits) != TW_OK) fail_msg("%s", error);
    assert_status(tw_limits_family(limits, "api", &api), TW_OK);
    return 0;
}

static int end(void **state) {
    assert_status(tw_limits_close(limits), TW_OK);
    rig_close(&rig);
    unlink(path);
    return rmdir(folder);
}

#define ASYNC_TEST(test) TEST_WITH(test, begin, end, NULL)

struct told {
    tw_request request;
    int times;
};
static void note(tw_request *request) {
    ((struct told *)request->ctx)->times++;
}
static void prepare(struct told *told) {
    tw_request_init(&told->request);
    told->request.done = note;
    told->request.ctx = told;
    told->request.timeout_ms = 60000;
    told->times = 0;
}

/* By name, or by the handle. */
static tw_status acquire(struct told *told, bool by_handle, const char *key, int64_t n) {
    memset(&told->request.verdict, 0x55, sizeof told->request.verdict);
    return by_handle ? tw_limited_acquire_async(&told->request, api, tw_str(key), n)
                     : tw_limits_acquire_async(&told->request, limits, "api", tw_str(key), n);
}

/* Goal: a line of a soft family, and one without a limit, answer at once, as the calls without _async do: `done` is not
 * called, and the request shows the answer. */
ASYNC_TEST(what_needs_no_redis_answers_at_once) {
    static struct told told;
    prepare(&told);
    const tw_request *request = &told.request;
    for (int by_handle = 0; by_handle < 2; by_handle++) {
        const char *soft = by_handle ? "soft:handle" : "soft:name";
        for (int i = 0; i < 3; i++) {
            assert_status(acquire(&told, by_handle, soft, 1), i < 2 ? TW_OK : TW_DENIED);
            assert_status(request->status, i < 2 ? TW_OK : TW_DENIED);
            assert_int_equal(request->verdict.allowed, i < 2);
            assert_i64_equal(request->verdict.limit, 2);
            assert_i64_equal(request->verdict.remaining, i == 0 ? 1 : 0);
        }
        assert_status(acquire(&told, by_handle, "free:x", 1000), TW_OK);
        assert_status(request->status, TW_OK);
        assert_int_equal(request->verdict.allowed, 1);
        assert_i64_equal(request->verdict.limit, TW_UNBOUNDED);
    }
    tw_verdict verdict;
    assert_status(tw_limits_acquire(limits, "api", tw_str("soft:name"), 1, &verdict), TW_DENIED); /* one counter */
    rig_turn(&rig);
    assert_int_equal(later_count(), 0);
    assert_int_equal(told.times, 0);
}

/* Goal: a strict line asks Redis with the file's limit, and its answer comes once, by `done`; the key is copied. */
ASYNC_TEST(a_strict_line_is_answered_by_done) {
    static struct told told;
    prepare(&told);
    for (int by_handle = 0; by_handle < 2; by_handle++) {
        char key[] = "user";
        assert_status(acquire(&told, by_handle, key, 3), TW_STARTED);
        memset(key, 'x', 4);
        assert_int_equal(later_count(), 1);
        assert_string_equal(later_arg(0, 0), "3");
        assert_string_equal(later_arg(0, 1), "10");
        assert_status(acquire(&told, by_handle, "user", 3), TW_ERR_MODE); /* it is under way */
        rig_turn(&rig);
        assert_int_equal(told.times, 2 * by_handle);
        later_answer(0, "OK 3 4 1000 0");
        rig_turn(&rig);
        assert_int_equal(told.times, 2 * by_handle + 1);
        assert_status(told.request.status, TW_OK);
        assert_i64_equal(told.request.verdict.used, 4);
        assert_i64_equal(told.request.verdict.remaining, 6);
        assert_int_equal(told.request.verdict.decided_by, TW_BY_REDIS);
        assert_status(acquire(&told, by_handle, "user", 8), TW_STARTED);
        assert_status(tw_request_cancel(&told.request), TW_OK);
        assert_status(acquire(&told, by_handle, "user", 8), TW_STARTED);
        later_answer(0, "DENIED 0 4 1000 1000");
        rig_turn(&rig);
        assert_int_equal(told.times, 2 * by_handle + 2);
        assert_status(told.request.status, TW_DENIED);
    }
    later.is_away = true;
    assert_status(acquire(&told, false, "user", 1), TW_DENIED); /* outage=closed */
    assert_int_equal(told.request.verdict.decided_by, TW_BY_OUTAGE);
    later.is_away = false;
    assert_int_equal(told.times, 4);
}

/* Goal: what cannot be decided is refused at once, by name; no unit is admitted and `done` is not called. */
ASYNC_TEST(what_cannot_be_decided_is_refused_at_once) {
    static struct told told;
    static char long_key[TW_KEY_SIZE_MAX + 1];
    prepare(&told);
    memset(long_key, 'k', sizeof long_key);
    tw_request *request = &told.request;
    request->verdict.allowed = 1;
    assert_status(tw_limits_acquire_async(request, limits, "nobody", tw_str("user"), 1), TW_ERR_OPTIONS);
    assert_memory_equal(tw_error_text(), "family: ", 8);
    assert_status(request->status, TW_ERR_OPTIONS);
    assert_int_equal(request->verdict.allowed, 0);
    assert_i64_equal(request->verdict.error_bound, TW_UNBOUNDED);
    tw_key too_long = tw_bytes(long_key, sizeof long_key);
    assert_status(tw_limits_acquire_async(request, limits, "api", too_long, 1), TW_ERR_KEY);
    assert_status(tw_limited_acquire_async(request, api, tw_bytes("", 0), 1), TW_ERR_KEY);
    assert_status(request->status, TW_ERR_KEY);
    assert_int_equal(request->verdict.allowed, 0);
    const char *const keys[] = {"soft:x", "free:x", "user"};
    for (int i = 0; i < 6; i++) {
        assert_status(acquire(&told, i % 2, keys[i / 2], -1), TW_ERR_RANGE);
        assert_status(request->status, TW_ERR_RANGE);
        assert_int_equal(request->verdict.allowed, 0);
    }
    request->done = NULL;
    assert_status(acquire(&told, false, "user", 1), TW_ERR_OPTIONS);
    request->done = note;
    rig_turn(&rig);
    assert_int_equal(later_count(), 0);
    assert_int_equal(told.times, 0);
}

/* Goal: a call that is under way while the file is read again is answered by the limit that it was asked with, and the
 * next call has the new one, by name and by the handle of before; a line that becomes soft answers at once. Method: the
 * line's limit changes, then its window and mode, then a family is new. */
ASYNC_TEST(a_reload_leaves_calls_under_way_alone) {
    static struct told before, between, after;
    prepare(&before);
    prepare(&between);
    prepare(&after);
    assert_status(acquire(&before, true, "user", 1), TW_STARTED);
    reload("api * 20 1d mode=strict outage=closed\nlogin * 1 1h\n");
    assert_status(acquire(&between, true, "user", 1), TW_STARTED);
    assert_string_equal(later_arg(0, 1), "10");
    assert_string_equal(later_arg(1, 1), "20");
    reload("api * 5 1h\nlogin * 1 1h\nnew * 7 1d mode=strict\n");
    assert_status(acquire(&after, true, "user", 1), TW_OK);
    assert_i64_equal(after.request.verdict.limit, 5);
    assert_status(tw_limits_acquire_async(&after.request, limits, "new", tw_str("user"), 1), TW_STARTED);
    assert_string_equal(later_arg(2, 1), "7");
    for (size_t i = 3; i-- > 0;) later_answer(i, "OK 1 6 1000 0");
    rig_turn(&rig);
    assert_int_equal(before.times + between.times + after.times, 3);
    assert_i64_equal(before.request.verdict.limit, 10);
    assert_i64_equal(before.request.verdict.remaining, 4);
    assert_i64_equal(between.request.verdict.limit, 20);
    assert_i64_equal(between.request.verdict.remaining, 14);
    assert_i64_equal(after.request.verdict.limit, 7);
    assert_i64_equal(after.request.verdict.remaining, 1);
}

/* Goal: a call is answered also when its limits file is closed meanwhile; its family is freed after that. */
ASYNC_TEST(a_close_leaves_calls_under_way_alone) {
    static struct told told;
    prepare(&told);
    assert_status(acquire(&told, true, "user", 1), TW_STARTED);
    assert_status(tw_limits_close(limits), TW_OK);
    limits = NULL;
    for (int i = 0; i < 20; i++) rig_pass(&rig, 50);
    assert_int_equal(twi_load_relaxed(&rig.engine->roster.count), 1);
    later_answer(0, "OK 1 1 1000 0");
    rig_turn(&rig);
    assert_int_equal(told.times, 1);
    assert_status(told.request.status, TW_OK);
    for (int i = 0; i < 20; i++) rig_pass(&rig, 50);
    assert_int_equal(twi_load_relaxed(&rig.engine->roster.count), 0);
}
