/* async_fetch.c -- tw_fetch_fields_async(), tw_fetch_top_async(), tw_fetch_rank_async() over a real Redis: they bring
 * what their blocking forms bring, and the visitor belongs to the answer. It is called just before `done`, by the same
 * thread, and never for a call whose cancel answered TW_OK.
 * Method: hashes and sorted sets written by hand, some of many pages; cancels after each number of pages, with the
 * visitor's memory overwritten at once. */
#include "tests/redis/waiting/async_support.h"

#include <pthread.h>

static tw_family *subjects, *ranks;

static void open_shapes(uint32_t threads) {
    open_async(threads);
    test_shape = TW_REDIS_HASH;
    subjects = family_of(engine, "subjects", TW_WINDOW_FOREVER, 0);
    test_shape = TW_REDIS_ZSET;
    ranks = family_of(engine, "ranks", TW_WINDOW_FOREVER, 0);
}

/* What a visitor was shown, and what `done` found of it. Atomic: another thread may be the one that shows. */
struct shown {
    tw_request request;
    char text[1024], error[256];
    int calls, most;  /* most 0: no end */
    tw_status inside; /* of a turn that the visitor tried */
    pthread_t visited_by;
    bool visited_by_another, is_late;
    _Atomic int done;
};

static bool show(void *ctx, tw_key name, int64_t total) {
    struct shown *shown = ctx;
    size_t used = strlen(shown->text);
    shown->is_late = shown->is_late || atomic_load(&shown->done) != 0;
    shown->visited_by = pthread_self();
    shown->inside = tw_flush(engine, 0);
    if (used < sizeof shown->text - 1)
        snprintf(shown->text + used, sizeof shown->text - used, "%.*s=%lld ", (int)name.size, (const char *)name.data,
                 (long long)total);
    return ++shown->calls != shown->most;
}

static void note_shown(tw_request *request) {
    struct shown *shown = request->ctx;
    shown->visited_by_another = shown->calls != 0 && !pthread_equal(shown->visited_by, pthread_self());
    snprintf(shown->error, sizeof shown->error, "%s", request->status == TW_OK ? "" : tw_error_text());
    (void)atomic_fetch_add(&shown->done, 1);
}

static void begin(struct shown *shown, tw_queue *queue) {
    memset((void *)shown, 0, sizeof *shown);
    shown->request.done = note_shown;
    shown->request.ctx = shown;
    shown->request.queue = queue;
    shown->request.timeout_ms = 60000;
}

/* ---- the same as the blocking forms ------------------------------------------------------------------------------ */

/* One question, in both forms. */
struct question {
    tw_family *const *family;
    const char *key; /* of fields and rank */
    size_t n;        /* of a ranking; 0: a rank, or fields */
    int most;        /* the visitor ends it; 0: it does not */
};
static const struct question questions[] = {
    {&subjects, "a:7", 0, 0}, {&subjects, "a:7", 0, 2}, {&subjects, "none", 0, 0}, {&subjects, "wrong", 0, 0},
    {&ranks, NULL, 10, 0},    {&ranks, NULL, 3, 0},     {&ranks, NULL, 10000, 2},  {&ranks, "nine", 0, 0},
    {&ranks, "less", 0, 0},   {&ranks, "nobody", 0, 0}, {&ranks, "half", 0, 0},
};

static tw_status ask_blocking(const struct question *question, struct shown *shown, int64_t *rank, int64_t *total) {
    tw_family *family = *question->family;
    if (family == subjects) return tw_fetch_fields(family, tw_str(question->key), TW_NOW, 60000, show, shown);
    if (question->n != 0) return tw_fetch_top(family, TW_NOW, question->n, 60000, show, shown);
    return tw_fetch_rank(family, tw_str(question->key), TW_NOW, 60000, rank, total);
}

/* The key's bytes are overwritten as soon as the call has returned. */
static tw_status ask_later(const struct question *question, struct shown *shown) {
    tw_family *family = *question->family;
    char key[16];
    snprintf(key, sizeof key, "%s", question->key != NULL ? question->key : "");
    tw_status status =
        family == subjects ? tw_fetch_fields_async(&shown->request, family, tw_str(key), TW_NOW, show, shown)
        : question->n != 0 ? tw_fetch_top_async(&shown->request, family, TW_NOW, question->n, show, shown)
                           : tw_fetch_rank_async(&shown->request, family, tw_str(key), TW_NOW);
    memset(key, 'x', sizeof key);
    return status;
}

static bool is_done(void *ctx) {
    return atomic_load(&((struct shown *)ctx)->done) != 0;
}

static void compare(const struct question *question, tw_queue *queue) {
    static struct shown blocking, later;
    int64_t rank = 0, total = 0;
    begin(&blocking, NULL);
    begin(&later, queue);
    blocking.most = later.most = question->most;
    tw_status status = ask_blocking(question, &blocking, &rank, &total);
    if (status != TW_OK) snprintf(blocking.error, sizeof blocking.error, "%s", tw_error_text());
    assert_status(ask_later(question, &later), TW_STARTED);
    if (queue == NULL)
        assert_true(test_wait(is_done, &later, TEST_PATIENCE_MS));
    else
        while (!is_done(&later)) (void)tw_queue_run(queue, 1);
    assert_int_equal(later.done, 1);
    assert_false(later.visited_by_another);
    assert_false(later.is_late);
    assert_int_equal(later.calls != 0 && pthread_equal(later.visited_by, pthread_self()), later.calls && queue != NULL);
    assert_status(later.request.status, status);
    assert_string_equal(later.text, blocking.text);
    assert_int_equal(later.calls, blocking.calls);
    assert_string_equal(later.error, blocking.error);
    if (later.calls != 0) assert_status(later.inside, TW_ERR_MODE); /* a visitor is called as `done` is */
    if (status == TW_OK) assert_i64_equal(later.request.rank, rank);
    if (status == TW_OK) assert_i64_equal(later.request.total, total);
}

/* Goal: answers, what is shown and in which order, error texts: all as of the blocking form. Method: an engine with
 * threads of its own has both; without a queue its second thread shows, with one the thread that runs the queue. */
TEST(a_fetch_brings_what_its_blocking_form_brings) {
    tw_queue *queue;
    open_shapes(TW_OWN_THREAD);
    redis_server_ask(&server, "HSET", "subjects:a:7", "views", "30", "likes", "2", "shares", "-1", "none", "0", "title",
                     "Hello", NULL);
    redis_server_ask(&server, "SET", "subjects:wrong", "5", NULL);
    redis_server_ask(&server, "ZADD", "ranks", "5", "b", "5", "a", "5", "ab", "9", "nine", "0", "zero", "-4", "less",
                     "1.5", "half", NULL);
    assert_status(tw_queue_open(engine, &queue), TW_OK);
    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++) {
        compare(&questions[i], NULL);
        compare(&questions[i], queue);
    }
    assert_status(tw_queue_close(queue), TW_OK);
    close_async();
}

/* ---- what is refused --------------------------------------------------------------------------------------------- */

#define REFUSED(call, want, what) \
    do { \
        assert_status(call, want); \
        assert_status(shown.request.status, want); \
        assert_memory_equal(tw_error_text(), what, strlen(what)); \
    } while (0)

/* Goal: what cannot be asked is answered at once, by name; neither the visitor nor `done` is called. Also of a request
 * that has no `done`, of one that is under way, and after tw_stop(). */
TEST(what_cannot_be_asked_is_refused_at_once) {
    static char long_key[TW_KEY_SIZE_MAX + 1];
    static struct shown shown, under_way;
    open_shapes(TW_HOST_DRIVEN);
    memset(long_key, 'k', sizeof long_key);
    begin(&shown, NULL);
    begin(&under_way, NULL);
    tw_request *request = &shown.request;
    tw_key too_long = tw_bytes(long_key, sizeof long_key);
    REFUSED(tw_fetch_fields_async(request, ranks, tw_str("a"), TW_NOW, show, &shown), TW_ERR_MODE, "redis_shape: ");
    REFUSED(tw_fetch_top_async(request, subjects, TW_NOW, 10, show, &shown), TW_ERR_MODE, "redis_shape: ");
    REFUSED(tw_fetch_rank_async(request, subjects, tw_str("a"), TW_NOW), TW_ERR_MODE, "redis_shape: ");
    REFUSED(tw_fetch_fields_async(request, subjects, tw_bytes("", 0), TW_NOW, show, &shown), TW_ERR_KEY, "subject: ");
    REFUSED(tw_fetch_fields_async(request, subjects, too_long, TW_NOW, show, &shown), TW_ERR_KEY, "");
    REFUSED(tw_fetch_rank_async(request, ranks, too_long, TW_NOW), TW_ERR_KEY, "");
    REFUSED(tw_fetch_top_async(request, ranks, TW_NOW, 0, show, &shown), TW_ERR_RANGE, "n: ");
    REFUSED(tw_fetch_top_async(request, ranks, TW_NOW, 10001, show, &shown), TW_ERR_RANGE, "n: ");
    REFUSED(tw_fetch_fields_async(request, subjects, tw_str("a"), INT64_MAX, show, &shown), TW_ERR_RANGE, "");
    REFUSED(tw_fetch_rank_async(request, ranks, tw_str("a"), INT64_MAX), TW_ERR_RANGE, "");
    request->done = NULL;
    REFUSED(tw_fetch_top_async(request, ranks, TW_NOW, 10, show, &shown), TW_ERR_OPTIONS, "request: ");
    request->done = note_shown;
    assert_status(tw_fetch_top_async(&under_way.request, ranks, TW_NOW, 10, show, &under_way), TW_STARTED);
    assert_status(tw_fetch_rank_async(&under_way.request, ranks, tw_str("a"), TW_NOW), TW_ERR_MODE);
    while (!is_done(&under_way)) turn();
    assert_status(under_way.request.status, TW_OK);
    for (int i = 0; i < 10; i++) turn();
    assert_status(tw_stop(engine), TW_OK);
    REFUSED(tw_fetch_fields_async(request, subjects, tw_str("a"), TW_NOW, show, &shown), TW_ERR_CLOSED, "");
    REFUSED(tw_fetch_rank_async(request, ranks, tw_str("a"), TW_NOW), TW_ERR_CLOSED, "");
    close_async();
    assert_int_equal(shown.calls, 0);
    assert_int_equal(shown.done, 0);
    assert_int_equal(under_way.done, 1);
}

/* Goal: a server that does not reply is answered as of the blocking form, and nothing is shown. */
TEST(a_silent_server_shows_nothing) {
    static struct shown shown;
    open_shapes(TW_HOST_DRIVEN);
    redis_server_ask(&server, "ZADD", "ranks", "5", "b", NULL);
    begin(&shown, NULL);
    assert_status(tw_fetch_top_async(&shown.request, ranks, TW_NOW, 10, show, &shown), TW_STARTED);
    while (!is_done(&shown)) turn();
    assert_string_equal(shown.text, "b=5 ");
    redis_server_pause(&server);
    begin(&shown, NULL);
    shown.request.timeout_ms = 200;
    assert_status(tw_fetch_top_async(&shown.request, ranks, TW_NOW, 10, show, &shown), TW_STARTED);
    while (!is_done(&shown)) turn();
    redis_server_resume(&server);
    assert_status(shown.request.status, TW_ERR_TIMEOUT);
    assert_memory_equal(shown.error, "timeout_ms: ", 12);
    assert_int_equal(shown.calls, 0);
    close_async();
}

/* ---- cancelled --------------------------------------------------------------------------------------------------- */

#define FIELDS 2000
#define LONG_MEMBERS 2500

/* A hash of many pages, and a ranking of long names, which takes several replies. */
static void fill_many(void) {
    static const char fields[] = "for i = 1, ARGV[1] do redis.call('HSET', KEYS[1], 'field' .. i, i) end";
    static const char members[] = "for i = 1, ARGV[1] do redis.call('ZADD', KEYS[1], i, "
                                  "string.format('%06d', i) .. string.rep('x', 994)) end";
    char count[16];
    snprintf(count, sizeof count, "%d", FIELDS);
    redis_server_ask(&server, "EVAL", fields, "1", "subjects:many", count, NULL);
    snprintf(count, sizeof count, "%d", LONG_MEMBERS);
    redis_server_ask(&server, "EVAL", members, "1", "ranks", count, NULL);
}

static tw_status ask_many(struct shown *shown, bool is_ranking) {
    return is_ranking ? tw_fetch_top_async(&shown->request, ranks, TW_NOW, 10000, show, shown)
                      : tw_fetch_fields_async(&shown->request, subjects, tw_str("many"), TW_NOW, show, shown);
}

/* Answers how many pages there are. */
static int64_t fetch_whole(bool is_ranking) {
    static struct shown whole;
    int64_t before = test_stat_of(engine, ask_calls);
    begin(&whole, NULL);
    assert_status(ask_many(&whole, is_ranking), TW_STARTED);
    while (!is_done(&whole)) turn();
    assert_status(whole.request.status, TW_OK);
    assert_int_equal(whole.calls, is_ranking ? LONG_MEMBERS : FIELDS);
    return test_stat_of(engine, ask_calls) - before;
}

static int visits_of_the_gone;
static bool show_to_nobody(void *ctx, tw_key name, int64_t total) {
    (void)ctx, (void)name, (void)total;
    visits_of_the_gone++;
    return true;
}
static void done_of_nobody(tw_request *request) {
    visits_of_the_gone++;
}

/* Is cancelled when so many pages have been asked for. */
static void cancel_after(int64_t pages, bool is_ranking) {
    tw_request *gone = malloc(sizeof *gone);
    assert_non_null(gone);
    tw_request_init(gone);
    gone->done = done_of_nobody;
    gone->timeout_ms = 60000;
    int64_t before = test_stat_of(engine, ask_calls);
    assert_status(is_ranking ? tw_fetch_top_async(gone, ranks, TW_NOW, 10000, show_to_nobody, gone)
                             : tw_fetch_fields_async(gone, subjects, tw_str("many"), TW_NOW, show_to_nobody, gone),
                  TW_STARTED);
    while (test_stat_of(engine, ask_calls) - before < pages) turn();
    assert_status(tw_request_cancel(gone), TW_OK);
    memset(gone, 0x5a, sizeof *gone);
    free(gone);
    while (test_stat_of(engine, ask_active) != 0 || test_stat_of(engine, ask_unsettled) != 0) turn();
    assert_int_equal(visits_of_the_gone, 0);
    assert_true(test_stat_of(engine, ask_calls) - before <= pages + 1); /* no thread reads on for it */
}

/* Goal: a fetch that is cancelled between two of its pages shows nothing and reads no further; the next one is whole.
 * Method: a cancel after each number of pages up to the last. */
TEST(a_cancel_between_pages_shows_nothing) {
    open_shapes(TW_HOST_DRIVEN);
    fill_many();
    visits_of_the_gone = 0;
    for (int ranking = 0; ranking < 2; ranking++) {
        int64_t pages = fetch_whole(ranking);
        assert_true(pages >= 3);
        for (int64_t after = 1; after <= pages; after++) cancel_after(after, ranking);
        assert_i64_equal(fetch_whole(ranking), pages);
    }
    close_async();
}

/* Goal: a fetch that is cancelled while its answer waits in the queue shows nothing. Inside a visitor another one may
 * be cancelled as well. */
static struct shown next;
static bool cancel_next(void *ctx, tw_key name, int64_t total) {
    (void)name, (void)total;
    *(tw_status *)ctx = tw_request_cancel(&next.request);
    return false;
}
TEST(a_cancel_before_the_delivery_shows_nothing) {
    static struct shown first, last;
    tw_status status = TW_ERR_MODE;
    tw_queue *queue;
    open_shapes(TW_HOST_DRIVEN);
    fill_many();
    assert_status(tw_queue_open(engine, &queue), TW_OK);
    begin(&first, queue);
    begin(&next, queue);
    begin(&last, queue);
    assert_status(tw_fetch_top_async(&first.request, ranks, TW_NOW, 3, cancel_next, &status), TW_STARTED);
    assert_status(ask_many(&next, false), TW_STARTED);
    assert_status(ask_many(&last, true), TW_STARTED);
    while (test_stat_of(engine, ask_active) != 0) turn();
    assert_status(tw_request_cancel(&last.request), TW_OK);
    memset(&last.request, 0x5a, sizeof last.request);
    assert_int_equal(tw_queue_run(queue, 10), 1);
    assert_status(first.request.status, TW_OK);
    assert_int_equal(first.done, 1);
    assert_status(status, TW_OK);
    assert_int_equal(next.calls + last.calls + next.done + last.done, 0);
    assert_i64_equal(test_stat_of(engine, ask_cancelled), 2);
    assert_status(tw_queue_close(queue), TW_OK);
    close_async();
}

int main(void) {
    redis_server_require();
    return test_run();
}
