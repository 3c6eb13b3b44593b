/* later_driver.h -- a driver whose requests are answered when the test says so: calls that wait, without Redis and
 * without time. To be included by the one file of a test program; it takes the place of the driver in sync/.
 * Always true: an engine opened with redis_url "later:" is synced; each turn acknowledges the counted units. answered()
 * is called by ask_step() alone, without the lock, as the contract says (engine/port/driver.h). */
#ifndef TEST_LATER_DRIVER_H
#define TEST_LATER_DRIVER_H

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/unit/rig.h"

#define LATER_MAX 2048

/* One request that the engine has sent. */
struct later_request {
    uint64_t number;
    enum twi_script script;
    char args[10][80];
    int64_t deadline_ms;
    void (*answered)(void *ctx, struct twi_answer *answer);
    void *ctx;
    bool is_answered; /* the next step tells */
    bool wants_long, keeps;
    void (*then)(tw_engine *engine, tw_key key, const struct twi_answer *answer, const struct twi_next *next);
    char key[200]; /* the first one */
    struct twi_answer answer;
};

struct twi_sync {
    tw_engine *engine;
    pthread_mutex_t lock;
    struct later_request *requests; /* under way, oldest first */
    size_t count;
    uint64_t numbers;
    int fd;
    bool is_stopped;
    int64_t owed;
};

static struct {
    struct twi_sync *sync;
    bool is_away, is_busy;
    _Atomic bool answers_all; /* each step answers OK to all, one unit taken */
    _Atomic uint64_t forgotten, asked;
    _Atomic int64_t kept, undone; /* answers that can still be taken back; those that were */
    uint64_t ticket;              /* up to which tickets are done */
    uint64_t tickets;
    int64_t total; /* what each key is acknowledged with */
    bool has_total;
} later;

static tw_status later_create(tw_engine *engine, const tw_options *options, const struct twi_transport *transport,
                              void *ctx, struct twi_sync **out) {
    (void)transport, (void)ctx;
    if (strcmp(options->redis_url, "later:") != 0) return TW_ERR_OPTIONS;
    struct twi_sync *sync = calloc(1, sizeof *sync);
    sync->requests = calloc(LATER_MAX, sizeof *sync->requests);
    sync->engine = engine;
    sync->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&sync->lock, NULL);
    later.sync = *out = sync;
    return TW_OK;
}

/* Whatever is counted is acknowledged at once. */
static void later_turn(struct twi_sync *sync) {
    static struct twi_item items[1000];
    const struct twi_reply reply = {.total = later.total, .has_total = later.has_total};
    size_t count = twi_port_collect(sync->engine, items, 1000);
    for (size_t i = 0; i < count; i++) twi_port_acknowledge(&items[i], &reply);
}
static int64_t later_wake_ms(const struct twi_sync *sync) {
    return INT64_MAX;
}
static uint64_t later_ticket(struct twi_sync *sync) {
    return ++later.tickets;
}
static enum twi_ticket later_ticket_state(struct twi_sync *sync, uint64_t ticket) {
    return ticket <= later.ticket ? TWI_TICKET_DONE : TWI_TICKET_OPEN;
}
static void later_stats(const struct twi_sync *sync, tw_stats *stats) {
    stats->redis_connected = 1;
}
static void later_free(struct twi_sync *sync) {
    (void)close(sync->fd);
    free(sync->requests);
    free(sync);
}
static void later_destroy(struct twi_sync *sync) {
    assert_int_equal(sync->count, 0); /* each was answered, or forgotten */
    assert_i64_equal(later.kept, 0);  /* each has its answer, or was undone */
    later_free(sync);
}

static void later_ring(const struct twi_sync *sync) {
    uint64_t one = 1;
    assert_int_equal(write(sync->fd, &one, sizeof one), sizeof one);
}

/* What the request says. */
static void later_write(struct later_request *made, const struct twi_request *request) {
    made->then = request->then;
    snprintf(made->key, sizeof made->key, "%.*s", (int)request->keys[0].size, (const char *)request->keys[0].data);
    for (size_t i = 0; i < request->arg_count && i < 10; i++)
        snprintf(made->args[i], sizeof made->args[i], "%.*s", (int)request->args[i].size,
                 (const char *)request->args[i].data);
}

static uint64_t later_ask(struct twi_sync *sync, const struct twi_request *request, enum twi_request_outcome *why) {
    pthread_mutex_lock(&sync->lock);
    *why = later.is_busy ? TWI_REQUEST_BUSY : TWI_REQUEST_UNSENT;
    if (later.is_busy || later.is_away || sync->is_stopped || sync->count == LATER_MAX) {
        pthread_mutex_unlock(&sync->lock);
        return 0;
    }
    struct later_request *made = &sync->requests[sync->count++];
    memset(made, 0, sizeof *made);
    made->number = ++sync->numbers;
    made->script = request->script;
    made->deadline_ms = request->deadline_ms;
    made->answered = request->answered;
    made->ctx = request->ctx;
    made->wants_long = request->wants_long;
    made->keeps = request->keeps;
    later_write(made, request);
    if (request->number != NULL) twi_store_relaxed(request->number, made->number);
    uint64_t number = made->number;
    twi_add_relaxed(&later.asked, 1);
    pthread_mutex_unlock(&sync->lock);
    later_ring(sync);
    return number; /* the request may be answered by now */
}

static void later_remove(struct twi_sync *sync, size_t i) {
    memmove(&sync->requests[i], &sync->requests[i + 1], (--sync->count - i) * sizeof *sync->requests);
}

static bool later_forget(struct twi_sync *sync, uint64_t number) {
    pthread_mutex_lock(&sync->lock);
    size_t i = 0;
    while (i < sync->count && sync->requests[i].number != number) i++;
    bool found = i < sync->count;
    if (found) later_remove(sync, i);
    pthread_mutex_unlock(&sync->lock);
    if (found) twi_add_relaxed(&later.forgotten, 1);
    return found;
}

static void later_end(struct twi_sync *sync, uint64_t number, bool undo) {
    (void)sync;
    assert_true(number != 0);
    assert_true(twi_sub_relaxed(&later.kept, 1) > 0);
    if (undo) twi_add_relaxed(&later.undone, 1);
}

static void later_value(struct twi_answer *answer, const char *text) {
    struct twi_script_value *value = &answer->values[answer->value_count++];
    char *end;
    value->size = strlen(text);
    snprintf(value->text, sizeof value->text, "%s", text);
    value->number = strtoll(text, &end, 10);
    value->is_number = *text != '\0' && *end == '\0';
}

/* "OK 1 1 0" as a reply has it. */
static void later_say(struct twi_answer *answer, const char *words) {
    char text[200], *rest = text;
    answer->outcome = TWI_REQUEST_DONE;
    snprintf(text, sizeof text, "%s", words);
    for (char *word = strtok_r(rest, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest))
        later_value(answer, word);
}

/* The request that follows takes the place of the answered one. */
static void later_follow(void *ctx, const struct twi_request *request) {
    struct later_request *told = ctx;
    later_write(told, request); /* it may name what the answer names */
    free(told->answer.long_text);
    told->is_answered = false;
    told->answer = (struct twi_answer){0};
}

static bool later_goes_on(struct twi_sync *sync, struct later_request *told) {
    struct twi_next next = {.put = later_follow, .ctx = told};
    if (told->answer.outcome != TWI_REQUEST_DONE || told->then == NULL) return false;
    told->then(sync->engine, tw_str(told->key), &told->answer, &next);
    if (told->is_answered) return false;
    pthread_mutex_lock(&sync->lock);
    sync->requests[sync->count++] = *told;
    pthread_mutex_unlock(&sync->lock);
    return true;
}

static void later_step(struct twi_sync *sync) {
    uint64_t value;
    (void)!read(sync->fd, &value, sizeof value);
    int64_t now_ms = twi_port_mono_ms(sync->engine);
    for (;;) {
        struct later_request told = {0};
        pthread_mutex_lock(&sync->lock);
        for (size_t i = 0; i < sync->count && told.number == 0; i++) {
            struct later_request *each = &sync->requests[i];
            if (twi_load_relaxed(&later.answers_all) && !each->is_answered) {
                later_say(&each->answer, "OK 1 1 0 0");
                each->is_answered = true;
            }
            if (!each->is_answered && each->deadline_ms > now_ms) continue;
            if (!each->is_answered) each->answer.outcome = TWI_REQUEST_UNKNOWN;
            told = *each;
            later_remove(sync, i);
        }
        pthread_mutex_unlock(&sync->lock);
        if (told.number == 0) return;
        if (told.is_answered && later_goes_on(sync, &told)) continue;
        bool has_charged =
            told.answer.outcome == TWI_REQUEST_DONE &&
            (strcmp(told.answer.values[0].text, "OK") == 0 || strcmp(told.answer.values[0].text, "FIRST") == 0);
        told.answer.is_kept = told.keeps && has_charged;
        twi_add_relaxed(&later.kept, told.answer.is_kept);
        told.answered(told.ctx, &told.answer);
        free(told.answer.long_text);
    }
}

static int later_ask_fd(const struct twi_sync *sync) {
    return sync->fd;
}
static int64_t later_ask_wake_ms(const struct twi_sync *sync) {
    return INT64_MAX;
}
/* The second half of them was not sent yet. */
static void later_stop(struct twi_sync *sync) {
    pthread_mutex_lock(&sync->lock);
    sync->is_stopped = true;
    for (size_t i = 0; i < sync->count; i++) {
        if (sync->requests[i].is_answered) continue;
        sync->requests[i].is_answered = true;
        sync->requests[i].answer.outcome = i < (sync->count + 1) / 2 ? TWI_REQUEST_UNKNOWN : TWI_REQUEST_UNSENT;
    }
    pthread_mutex_unlock(&sync->lock);
    later_ring(sync);
}
static uint32_t later_owed(const struct twi_sync *sync) {
    return 0;
}

static void later_abandon(struct twi_sync *sync, bool is_torn) {
    later_free(sync);
}

const struct twi_driver *twi_driver_find(void) {
    static const struct twi_driver driver = {.create = later_create,
                                             .turn = later_turn,
                                             .wake_ms = later_wake_ms,
                                             .ticket_take = later_ticket,
                                             .ticket_state = later_ticket_state,
                                             .stats = later_stats,
                                             .destroy = later_destroy,
                                             .abandon = later_abandon,
                                             .ask = later_ask,
                                             .ask_forget = later_forget,
                                             .ask_end = later_end,
                                             .ask_step = later_step,
                                             .ask_fd = later_ask_fd,
                                             .ask_wake_ms = later_ask_wake_ms,
                                             .ask_stop = later_stop,
                                             .ask_owed = later_owed};
    return &driver;
}

/* ---- what tests say ---- */

static inline size_t later_count(void) {
    pthread_mutex_lock(&later.sync->lock);
    size_t count = later.sync->count;
    pthread_mutex_unlock(&later.sync->lock);
    return count;
}

/* Request i (0: the oldest that is under way) is answered so, at the next step. */
static inline void later_answer(size_t i, const char *words) {
    pthread_mutex_lock(&later.sync->lock);
    bool is_there = i < later.sync->count && !later.sync->requests[i].is_answered;
    if (is_there) later_say(&later.sync->requests[i].answer, words);
    if (is_there) later.sync->requests[i].is_answered = true;
    pthread_mutex_unlock(&later.sync->lock);
    assert_true(is_there);
    later_ring(later.sync);
}

static inline const char *later_arg(size_t i, size_t arg) {
    return later.sync->requests[i].args[arg];
}

static inline void later_init(struct rig *rig) {
    rig_init(rig);
    memset(&later, 0, sizeof later);
    rig->options.redis_url = "later:";
}
static inline void later_open(struct rig *rig) {
    later_init(rig);
    rig_start(rig);
    twi_port_connected(rig->engine, true);
}

#endif
