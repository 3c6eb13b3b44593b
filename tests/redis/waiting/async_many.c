/* async_many.c -- many calls of each kind that answer later, over a real Redis, in the host's own loop. Each of them
 * brings what it should, and in the end Redis has what was given out.
 * Method: 64 slots. Each goes through all kinds of calls, one after the other, on keys of its own, so each answer is
 * known; some of its calls are cancelled.
 * Scale: TW_REQUESTS of each kind (640), or as many as TW_SECONDS allow. `./dev soak` asks for a million. */
#include "tests/redis/waiting/async_support.h"

#define SLOTS 64
#define LIMIT INT64_C(1000000000)

enum kind {
    ACQUIRE,
    SOME,
    ONCE,
    ONCE_CANCEL,
    LOCK,
    EXTEND,
    RELEASE,
    RESERVE,
    SETTLE,
    HOLD,
    HOLD_RELEASE,
    FETCH,
    KINDS
};

static struct slot {
    struct told told;
    enum kind kind;
    int number;
    int64_t rounds, acquired, sold, total;
    uint64_t fence;
    bool is_started, is_unlucky; /* unlucky: this call is cancelled unless its answer is there at once */
    char name[8], token[TW_TOKEN_SIZE];
    tw_key key; /* what is fetched */
} slots[SLOTS];

static tw_family *family;
static int64_t cancelled;

/* Keys of a slot: "a7" is for acquiring. */
static tw_key key_of(struct slot *slot, char what) {
    (void)snprintf(slot->name, sizeof slot->name, "%c%d", what, slot->number);
    return tw_str(slot->name);
}

static tw_status ask(struct slot *slot) {
    tw_request *request = &slot->told.request;
    switch (slot->kind) {
    case ACQUIRE: return tw_acquire_async(request, family, key_of(slot, 'a'), 1, LIMIT);
    case SOME: return tw_acquire_some_async(request, family, key_of(slot, 'a'), 3, LIMIT);
    case ONCE: return tw_once_async(request, family, key_of(slot, 'o'));
    case ONCE_CANCEL: return tw_once_cancel_async(request, family, key_of(slot, 'o'));
    case LOCK: return tw_lock_async(request, family, key_of(slot, 'l'), 600000);
    case EXTEND: return tw_lock_extend_async(request, family, key_of(slot, 'l'), slot->token, 700000);
    case RELEASE: return tw_lock_release_async(request, family, key_of(slot, 'l'), slot->token);
    case RESERVE: return tw_reserve_async(request, family, key_of(slot, 'r'), 2, LIMIT, 600000, tw_str(""));
    case SETTLE:
        return slot->rounds % 2 == 0 ? tw_reserve_confirm_async(request, engine, slot->token)
                                     : tw_reserve_cancel_async(request, engine, slot->token);
    case HOLD: return tw_hold_async(request, family, key_of(slot, 'h'), 1);
    case HOLD_RELEASE: return tw_hold_release_async(request, family, key_of(slot, 'h'));
    case FETCH: slot->key = key_of(slot, 'a'); return tw_fetch_async(request, family, &slot->key, 1, &slot->total);
    case KINDS: break;
    }
    return TW_ERR_MODE;
}

/* An answer is there. */
static void take(struct slot *slot) {
    const tw_request *request = &slot->told.request;
    if (request->status != TW_OK)
        fail_msg("kind %d of slot %d: %s", (int)slot->kind, slot->number, tw_status_name(request->status));
    switch (slot->kind) {
    case ACQUIRE: slot->acquired += 1; break;
    case SOME: slot->acquired += request->taken; break;
    case ONCE: assert_true(request->first); break;
    case LOCK:
        assert_true(request->fence > slot->fence);
        slot->fence = request->fence;
        memcpy(slot->token, request->token, sizeof slot->token);
        break;
    case RESERVE: memcpy(slot->token, request->token, sizeof slot->token); break;
    case SETTLE: slot->sold += slot->rounds % 2 == 0 ? 2 : 0; break;
    case FETCH: assert_i64_equal(slot->total, slot->acquired); break;
    default: break;
    }
    slot->is_started = false;
    slot->kind = (enum kind)((int)slot->kind + 1);
    if (slot->kind == KINDS) slot->rounds++, slot->kind = ACQUIRE;
}

static void start(struct slot *slot, struct test_prng *prng) {
    bool may = slot->kind == ACQUIRE || slot->kind == SOME; /* of others the next answer would not be known */
    prepare(&slot->told);
    slot->told.request.timeout_ms = 60000;
    tw_status status = ask(slot);
    if (status == TW_ERR_BUSY) return; /* lanes of cancelled calls are being settled */
    slot->is_started = true;
    slot->is_unlucky = may && status == TW_STARTED && test_prng_chance(prng, 1, 10);
    if (status == TW_STARTED) return;
    slot->told.request.status = status;
    slot->told.times = 1;
}

/* What it had charged is taken back; it is asked again. */
static void cancel(struct slot *slot) {
    assert_status(tw_request_cancel(&slot->told.request), TW_OK);
    slot->is_started = false;
    cancelled++;
}

static int64_t from_environment(const char *name, int64_t usual) {
    const char *text = getenv(name);
    return text != NULL && *text != '\0' ? atoll(text) : usual;
}

/* Returns how many rounds each slot went through, at least. */
static int64_t play(struct test_prng *prng) {
    int64_t wanted = from_environment("TW_REQUESTS", 640) / SLOTS;
    int64_t end_ms = test_mono_ms() + 1000 * from_environment("TW_SECONDS", 3600), least = 0;
    while (least < wanted && test_mono_ms() < end_ms) {
        least = INT64_MAX;
        for (int i = 0; i < SLOTS; i++) {
            struct slot *slot = &slots[i];
            if (slot->is_started && slot->told.times != 0) take(slot);
            if (slot->is_started && slot->is_unlucky) cancel(slot);
            if (!slot->is_started) start(slot, prng);
            if (slot->rounds < least) least = slot->rounds;
        }
        turn();
    }
    return least;
}

static void settle_all(void) {
    for (int i = 0; i < SLOTS; i++) {
        while (slots[i].is_started && slots[i].told.times == 0) turn();
        if (slots[i].is_started) take(&slots[i]);
    }
    while (test_stat_of(engine, ask_unsettled) != 0) turn();
}

/* Goal: each kind of call brings what it should, a million times if there is time, and Redis has what was given. */
TEST(many_of_each_kind_bring_what_they_should) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    open_async(TW_HOST_DRIVEN);
    tw_family_options options = strict_options("s");
    options.on_outage = TW_OUTAGE_FAIL_CLOSED;
    family = strict_family(engine, &options);
    memset(slots, 0, sizeof slots);
    for (int i = 0; i < SLOTS; i++) slots[i].number = i;
    int64_t rounds = play(&prng);
    settle_all();
    print_message("# at least %lld requests of each kind; %lld cancelled\n", (long long)rounds * SLOTS,
                  (long long)cancelled);
    assert_true(rounds != 0 && cancelled != 0);
    struct told told;
    prepare(&told);
    assert_status(answer_of(&told, tw_flush_async(&told.request, engine)), TW_OK);
    for (int i = 0; i < SLOTS; i++) {
        char name[24];
        int64_t held = slots[i].kind == SETTLE ? 2 : 0; /* a reservation that is still open */
        snprintf(name, sizeof name, "s:a%d", i);
        assert_i64_equal(redis_server_get(&server, name), slots[i].acquired);
        snprintf(name, sizeof name, "s:r%d", i);
        assert_i64_equal(redis_server_get(&server, name), slots[i].sold + held);
    }
    close_async();
}

int main(void) {
    redis_server_require();
    return test_run();
}
