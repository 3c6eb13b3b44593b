/* callers.h -- who calls in the world of call_world.h: calls that are begun, forgotten and answered, and what became
 * of them.
 * Always true: a call is answered once or forgotten once, and no later than its deadline and the host's lateness say.
 */
#ifndef TESTS_SIM_WAITING_CALLERS_H
#define TESTS_SIM_WAITING_CALLERS_H

#include "tests/sim/waiting/call_world.h"
#include "sync/ask/window.h"

#define TIMEOUT_MS 100
#define LIMIT INT64_C(1000000)
#define AGAIN_MS 20 /* a caller that was turned away may come again after that time */

/* ---- callers ----------------------------------------------------------------------------------------------------- */

struct call {
    uint64_t number; /* 0: it is over */
    uint64_t kept;   /* the number of a call that was answered, and whose caller may still go */
    bool may_go;
    int64_t began_ms, deadline_ms, late_ms;
    int64_t again_ms; /* the caller may come again */
};

static int64_t begun, answered, forgotten, admitted, unknown, unsent, refused, busy, waited_ms, limit = LIMIT;
static int64_t undone;    /* calls that were admitted, and whose callers went before they had the answer */
static int64_t by_outage; /* of `unknown` and `unsent`: what on_outage decides */

static inline const struct twi_driver *driver(void) {
    return world.engine->here->remote.driver;
}

static inline void hear(void *ctx, struct twi_answer *answer) {
    struct call *call = ctx;
    uint64_t number = call->number;
    assert_true(number != 0);
    call->number = 0;
    answered++;
    waited_ms += world.now_ms - call->began_ms;
    bool is_admitted = answer->outcome == TWI_REQUEST_DONE && strcmp(answer->values[0].text, "OK") == 0;
    assert_int_equal(answer->is_kept, call->may_go && is_admitted);
    if (answer->is_kept) call->kept = number;
    admitted += is_admitted;
    unknown += answer->outcome == TWI_REQUEST_UNKNOWN;
    unsent += answer->outcome == TWI_REQUEST_UNSENT;
    refused += answer->outcome == TWI_REQUEST_REFUSED;
    busy += answer->outcome == TWI_REQUEST_BUSY;
    if (answer->outcome == TWI_REQUEST_BUSY) call->again_ms = world.now_ms + AGAIN_MS;
    by_outage += answer->outcome == TWI_REQUEST_UNSENT || (answer->outcome == TWI_REQUEST_UNKNOWN && !answer->is_crowd);
    /* 40 ms: a turn comes within 20, and a lateness below 20 is none */
    assert_true(world.now_ms <= call->deadline_ms + world.late_ms - call->late_ms + 40);
}

/* False: it was refused at once. */
static inline bool ask(struct call *call, int key, int64_t time_ms) {
    char calls_name[16], name[16], text[24];
    snprintf(calls_name, sizeof calls_name, "c%d", key);
    snprintf(name, sizeof name, "k%d", key);
    snprintf(text, sizeof text, "%" PRId64, limit);
    tw_key keys[] = {tw_str(calls_name), tw_str(name)};
    tw_key args[] = {tw_str("1"), tw_str(text)};
    struct twi_request request = {.script = TWI_SCRIPT_STRICT,
                                  .keys = keys,
                                  .key_count = 2,
                                  .args = args,
                                  .arg_count = 2,
                                  .deadline_ms = world.now_ms + time_ms,
                                  .numbered = true,
                                  .units = 1,
                                  .keeps = call->may_go,
                                  .answered = hear,
                                  .ctx = call};
    enum twi_request_outcome why;
    call->began_ms = world.now_ms;
    call->deadline_ms = request.deadline_ms;
    call->late_ms = world.late_ms;
    call->number = driver()->ask(world.engine->here->remote.sync, &request, &why);
    begun += call->number != 0;
    if (call->number == 0) call->again_ms = world.now_ms + AGAIN_MS;
    if (call->number == 0) assert_true(why == TWI_REQUEST_UNSENT || why == TWI_REQUEST_BUSY);
    return call->number != 0;
}

static inline void forget(struct call *call) {
    if (call->number == 0) return;
    assert_true(driver()->ask_forget(world.engine->here->remote.sync, call->number));
    assert_false(driver()->ask_forget(world.engine->here->remote.sync, call->number));
    call->number = 0;
    forgotten++;
}

/* The caller of a call that was answered has its answer, or has gone. */
static inline void end_kept(struct call *call, bool undo) {
    driver()->ask_end(world.engine->here->remote.sync, call->kept, undo);
    call->kept = 0;
    undone += undo;
    admitted -= undo;
}

static inline uint32_t owed(void) {
    return driver()->ask_owed(world.engine->here->remote.sync);
}

static inline void turn(void) {
    test_turn(world.engine, TEST_TURNS_MAX);
}

/* ---- a world ----------------------------------------------------------------------------------------------------- */

static inline void world_begin_at(const char *url, uint64_t seed) {
    tw_options options;
    for (int i = 0; i < CONNECTIONS; i++) free(world.connections[i].there.bytes), free(world.connections[i].back.bytes);
    memset(&world, 0, sizeof world);
    begun = answered = forgotten = admitted = unknown = unsent = refused = busy = by_outage = waited_ms = undone = 0;
    limit = LIMIT;
    test_prng_seed(&world.prng, seed);
    fake_clock_init(&world.clock, INT64_C(1700002800000));
    tw_options_init(&options);
    options.redis_url = url;
    options.threads = TW_HOST_DRIVEN;
    options.redis_timeout_ms = TIMEOUT_MS;
    options.memory_bytes_max = UINT64_C(64) << 20;
    fake_clock_install(&world.clock, &options);
    world.way_ms = 1;
    struct twi_replacements replacements = {.transport = &transport, .transport_ctx = &nobody, .random_seed = seed | 1};
    assert_status(twi_open_with(&options, &replacements, &world.engine), TW_OK);
    world.now_ms = twi_clock_mono_ms(&world.engine->clock);
}

static inline void world_begin(uint64_t seed) {
    world_begin_at("redis://127.0.0.1", seed);
}

static inline void world_end(void) {
    (void)tw_close(world.engine, 0);
}

/* The link is up, and the server knows the script. */
static inline void warm_up(void) {
    struct call call = {0};
    assert_true(ask(&call, 0, 1000));
    for (int i = 0; i < 20; i++) turn(), world_run(2);
    assert_i64_equal(call.number, 0);
}

static inline void turns(int ms) {
    for (; ms > 0; ms--) world_run(1), turn();
}

#endif
