/* crowd_stage.h -- a crowd: an engine that a host drives, and so many strict calls that are always under way. Whoever
 * is answered calls again at once; whoever is turned away comes again after 20 ms.
 * Always true: `admitted` is what Redis has of the key once nothing is under way. */
#ifndef TEST_CROWD_STAGE_H
#define TEST_CROWD_STAGE_H

#include "tests/redis/sync_support.h"
#include "tests/support/thin_link.h"

#include <poll.h>

#define CROWD_MAX 1024
#define CROWD_AGAIN_MS 20

struct crowd;
struct crowd_call {
    tw_request request;
    struct crowd *crowd;
    bool is_under_way;
    int64_t again_ms;
};

struct crowd {
    tw_engine *engine;
    tw_family *family;
    int count;
    int64_t by_redis, by_outage, refused; /* decided; by on_outage; neither */
    int64_t admitted;
    struct crowd_call calls[CROWD_MAX];
};

static inline void crowd_note(struct crowd_call *call) {
    struct crowd *crowd = call->crowd;
    bool is_decided = call->request.status == TW_OK || call->request.status == TW_DENIED;
    call->is_under_way = false;
    crowd->admitted += call->request.status == TW_OK;
    if (!is_decided)
        crowd->refused++;
    else if (call->request.verdict.decided_by == TW_BY_REDIS)
        crowd->by_redis++;
    else
        crowd->by_outage++;
    if (!is_decided) call->again_ms = test_mono_ms() + CROWD_AGAIN_MS;
}

static inline void crowd_done(tw_request *request) {
    crowd_note(request->ctx);
}

/* `timeout_ms` is redis_timeout_ms; 0 means its default. */
static inline void crowd_open(struct crowd *crowd, const char *url, int count, uint32_t timeout_ms, uint32_t outage) {
    tw_options options;
    tw_family_options family;
    memset(crowd, 0, sizeof *crowd);
    crowd->count = count;
    tw_options_init(&options);
    options.redis_url = url;
    options.threads = TW_HOST_DRIVEN;
    options.redis_timeout_ms = timeout_ms;
    options.memory_bytes_max = 64 << 20;
    assert_status(test_open(&options, &crowd->engine), TW_OK);
    tw_family_options_init(&family);
    family.name = "crowd";
    family.window = TW_WINDOW_FOREVER;
    family.limit_mode = TW_LIMIT_STRICT;
    family.on_outage = outage;
    assert_status(tw_family_open(crowd->engine, &family, &crowd->family), TW_OK);
    for (int i = 0; i < count; i++) {
        crowd->calls[i].crowd = crowd;
        tw_request_init(&crowd->calls[i].request);
        crowd->calls[i].request.done = crowd_done;
        crowd->calls[i].request.ctx = &crowd->calls[i];
    }
}

static inline void crowd_turn(struct crowd *crowd) {
    struct pollfd fd = {.fd = tw_fd(crowd->engine), .events = POLLIN};
    uint32_t wait_ms = tw_timeout_ms(crowd->engine);
    (void)poll(&fd, 1, wait_ms < 20 ? (int)wait_ms : 20);
    assert_status(tw_turn(crowd->engine), TW_OK);
}

static inline void crowd_run(struct crowd *crowd, int64_t ms, int64_t limit) {
    for (int64_t end_ms = test_mono_ms() + ms, now_ms; (now_ms = test_mono_ms()) < end_ms;) {
        for (int i = 0; i < crowd->count; i++) {
            struct crowd_call *call = &crowd->calls[i];
            if (call->is_under_way || call->again_ms > now_ms) continue;
            call->is_under_way = true;
            if (tw_acquire_async(&call->request, crowd->family, tw_str("k"), 1, limit) != TW_STARTED) crowd_note(call);
        }
        crowd_turn(crowd);
    }
}

static inline bool crowd_has_answers(const struct crowd *crowd) {
    bool has = true;
    for (int i = 0; i < crowd->count; i++) has = has && !crowd->calls[i].is_under_way;
    return has;
}

/* Until each call has told its answer, and nothing is to be taken back. An answer may wait in the queue for a while. */
static inline void crowd_rest(struct crowd *crowd) {
    for (int64_t end_ms = test_mono_ms() + TEST_PATIENCE_MS; test_mono_ms() < end_ms; crowd_turn(crowd))
        if (crowd_has_answers(crowd) && test_stat_of(crowd->engine, ask_unsettled) == 0) return;
}

#endif
