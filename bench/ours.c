/* ours.c -- Tallywheel as one of the peers: the real engine, through the public header, with its own thread.
 * Always true: any result but the expected one makes the total fail, so no figure stands for calls that did not
 * count. Windows are those of the wall clock. A run over the full hour has its counts in two windows, and both are
 * read. */
#include "bench/peer.h"

#include "tallywheel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

volatile uint64_t bench_zero;
size_t bench_many_count = 128;

#define LIMITS_MAX 4

struct ours {
    tw_engine *engine;
    tw_family *family;
    tw_family *more[LIMITS_MAX - 1]; /* for several limits */
    unsigned families;               /* of the engine: counted by the one that opened it */
    uint32_t stride;
    bool is_alone; /* a family with Redis, but no Redis is there */
    bool has_lease;
    bool keeps_no_counts; /* GCRA, and slots that are released */
    int64_t window_ms;
    int64_t opened_ms;
    _Atomic uint64_t wrong; /* results that were not the expected one */
    /* set by the closing hook */
    int64_t closed_sum;
    uint64_t closed_windows;
};

static int64_t wall_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static bool add_up_closed(void *ctx, const tw_count *count) {
    struct ours *ours = ctx;
    ours->closed_sum += count->local;
    return true;
}

static bool on_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    struct ours *ours = ctx;
    (void)end_ms;
    (void)flags;
    ours->closed_windows++;
    return tw_each(family, start_ms, add_up_closed, ours) == TW_OK;
}

static void *fail(struct ours *ours, const char *what, const char *text) {
    fprintf(stderr, "tallywheel: %s: %s\n", what, text);
    free(ours);
    return NULL;
}

static void *make_with(const struct bench_setup *setup, const char *url, uint32_t merge, uint32_t mode) {
    struct ours *ours = calloc(1, sizeof *ours);
    if (ours == NULL) return NULL;
    char error[256] = "";
    tw_options options;
    tw_family_options family;
    tw_options_init(&options);
    tw_family_options_init(&family);
    /* This reserves addresses only. Memory is committed as it is used, and the report has what was used. */
    options.memory_bytes_max = setup->memory_bytes != 0 ? setup->memory_bytes : UINT64_C(1) << 36;
    options.error_text = family.error_text = error;
    options.error_size = family.error_size = sizeof error;
    options.redis_url = url;
    /* An earlier engine counts as alive for some seconds. So each engine has a registry of its own. */
    char prefix[32];
    snprintf(prefix, sizeof prefix, "%ld:", (long)getpid());
    if (url != NULL) options.redis_prefix = prefix;
    options.merge = merge;
    options.redis_timeout_ms = 2000;
    options.threads = setup->is_host_driven ? TW_HOST_DRIVEN : TW_OWN_THREAD;
    options.shared = setup->is_shared ? TW_SHARED_BY_FORK : TW_SHARED_NO;
    family.limit_mode = mode;
    family.keys_expected = setup->keys_expected;
    family.limit_shape = setup->limit_shape;
    ours->keeps_no_counts = setup->limit_shape == TW_SHAPE_GCRA || setup->holds;
    if (setup->holds) family.window = TW_WINDOW_FOREVER;
    ours->stride = setup->stride;
    ours->is_alone = url != NULL && setup->address == NULL;
    ours->window_ms = TW_HOUR;
    if (setup->window_ms != 0) {
        ours->window_ms = family.window_ms = setup->window_ms;
        family.on_window_closed = on_closed;
        family.closed_ctx = ours;
    }
    struct ours *first = setup->beside != NULL ? setup->beside : ours;
    char name[24];
    snprintf(name, sizeof name, first == ours ? "bench" : "bench%u", first->families++);
    family.name = name;
    ours->engine = first->engine;
    if (first == ours && tw_open(&options, &ours->engine) != TW_OK) return fail(ours, "tw_open", error);
    if (tw_family_open(ours->engine, &family, &ours->family) != TW_OK) return fail(ours, "tw_family_open", error);
    if (setup->is_shared && tw_lead(ours->engine) != TW_OK) return fail(ours, "tw_lead", tw_error_text());
    ours->opened_ms = wall_ms();
    return ours;
}

static void *make_local(const struct bench_setup *setup) {
    return make_with(setup, NULL, TW_MERGE_SCRIPT, TW_LIMIT_SOFT);
}

static void *make_several(const struct bench_setup *setup) {
    struct ours *ours = make_local(setup);
    for (int i = 0; ours != NULL && i < LIMITS_MAX - 1; i++) {
        char name[24];
        tw_family_options family;
        tw_family_options_init(&family);
        snprintf(name, sizeof name, "more%d", i);
        family.name = name;
        family.keys_expected = setup->keys_expected;
        if (tw_family_open(ours->engine, &family, &ours->more[i]) != TW_OK)
            return fail(ours, "tw_family_open", tw_error_text());
    }
    return ours;
}

/* make_local() with these flags of the setup raised. */
static void *make_as(const struct bench_setup *setup, bool holds, bool is_shared, bool is_host_driven) {
    struct bench_setup as = *setup;
    as.holds |= holds;
    as.is_shared |= is_shared;
    as.is_host_driven |= is_host_driven;
    return make_local(&as);
}

static void *make_shared(const struct bench_setup *setup) {
    return make_as(setup, false, true, false);
}

static void *make_hosted(const struct bench_setup *setup) {
    return make_as(setup, false, false, true);
}

static void *make_holding(const struct bench_setup *setup) {
    return make_as(setup, true, false, false);
}

static void *make_holding_shared(const struct bench_setup *setup) {
    return make_as(setup, true, true, false);
}

static void *make_holding_hosted(const struct bench_setup *setup) {
    return make_as(setup, true, false, true);
}

static void *make_merging(const struct bench_setup *setup, uint32_t merge, uint32_t mode) {
    char url[512];
    /* Without an address no Redis replies: the marks and the larger records are there, the traffic is not. */
    snprintf(url, sizeof url, "unix://%s", setup->address != NULL ? setup->address : "/nonexistent/tallywheel-bench");
    return make_with(setup, url, merge, mode);
}

static void *make_synced(const struct bench_setup *setup) {
    return make_merging(setup, TW_MERGE_SCRIPT, TW_LIMIT_SOFT);
}

static void *make_hard(const struct bench_setup *setup) {
    return make_merging(setup, TW_MERGE_SCRIPT, TW_LIMIT_HARD);
}

static void *make_multi(const struct bench_setup *setup) {
    return make_merging(setup, TW_MERGE_MULTI, TW_LIMIT_SOFT);
}

static void *make_setnx(const struct bench_setup *setup) {
    return make_merging(setup, TW_MERGE_SETNX, TW_LIMIT_SOFT);
}

static inline tw_key key_at(const unsigned char *slot, uint32_t stride) {
    return tw_bytes(slot, bench_slot_size(slot, stride));
}

static void count_wrong(struct ours *ours, uint64_t wrong) {
    if (wrong != 0) ours->wrong += wrong;
}

static int64_t add(void *self, const unsigned char *slots, size_t count) {
    struct ours *ours = self;
    int64_t view = 0, seen = 0;
    uint64_t wrong = 0;
    for (size_t i = 0; i < count; i++) {
        wrong += tw_add(ours->family, key_at(slots + i * ours->stride, ours->stride), 1, &view) != TW_OK;
        seen ^= view;
    }
    count_wrong(ours, wrong);
    return seen;
}

static int64_t add_blind(void *self, const unsigned char *slots, size_t count) {
    struct ours *ours = self;
    uint64_t wrong = 0;
    for (size_t i = 0; i < count; i++)
        wrong += tw_add(ours->family, key_at(slots + i * ours->stride, ours->stride), 1, NULL) != TW_OK;
    count_wrong(ours, wrong);
    return (int64_t)wrong;
}

static int64_t add_dependent(void *self, const unsigned char *slots, size_t count) {
    struct ours *ours = self;
    int64_t view = 0;
    uint64_t wrong = 0, zero = bench_zero;
    for (size_t i = 0; i < count; i++) {
        const unsigned char *slot = slots + i * ours->stride + ((uint64_t)view & zero);
        wrong += tw_add(ours->family, key_at(slot, ours->stride), 1, &view) != TW_OK;
    }
    count_wrong(ours, wrong);
    return view;
}

static void add_timed(void *self, const unsigned char *slots, size_t count, struct bench_histogram *histogram) {
    struct ours *ours = self;
    int64_t view;
    uint64_t wrong = 0;
    histogram->last = bench_ticks();
    for (size_t i = 0; i < count; i++) {
        wrong += tw_add(ours->family, key_at(slots + i * ours->stride, ours->stride), 1, &view) != TW_OK;
        bench_record_since(histogram);
    }
    count_wrong(ours, wrong);
}

/* Does what a caller with its own keys does: names them in an array, then makes one call. The naming is timed, too. */
static int64_t add_many(void *self, const unsigned char *slots, size_t count) {
    struct ours *ours = self;
    tw_key keys[BENCH_MANY_MAX];
    int64_t views[BENCH_MANY_MAX], seen = 0;
    uint64_t wrong = 0;
    for (size_t done = 0; done < count;) {
        size_t some = count - done < bench_many_count ? count - done : bench_many_count;
        for (size_t i = 0; i < some; i++) keys[i] = key_at(slots + (done + i) * ours->stride, ours->stride);
        wrong += tw_add_many(ours->family, keys, NULL, some, views, NULL) != TW_OK;
        seen ^= views[0] ^ views[some - 1];
        done += some;
    }
    count_wrong(ours, wrong);
    return seen;
}

/* A pin of this thread for the first key that it meets: only for streams of one key. */
static _Thread_local tw_pin *pin;

static void leave_pin(void *self) {
    (void)self;
    if (pin != NULL) tw_pin_close(pin);
    pin = NULL;
}

/* False: all `count` calls are wrong. */
#define SETTLE_CALLS 4096

void bench_ours_settle(void *self, const unsigned char *slot) {
    const struct ours *ours = self;
    int64_t view;
    for (int i = 0; i < SETTLE_CALLS; i++) (void)tw_get(ours->family, key_at(slot, ours->stride), &view);
}

static bool has_pin(struct ours *ours, const unsigned char *slots, size_t count) {
    if (pin != NULL || tw_pin_open(ours->family, key_at(slots, ours->stride), &pin) == TW_OK) return true;
    count_wrong(ours, count);
    return false;
}

static int64_t add_pinned(void *self, const unsigned char *slots, size_t count) {
    struct ours *ours = self;
    int64_t view = 0, seen = 0;
    uint64_t wrong = 0;
    if (!has_pin(ours, slots, count)) return 0;
    for (size_t i = 0; i < count; i++) {
        wrong += tw_pin_add(pin, 1, &view) != TW_OK;
        seen ^= view;
    }
    count_wrong(ours, wrong);
    return seen;
}

static int64_t add_pinned_blind(void *self, const unsigned char *slots, size_t count) {
    struct ours *ours = self;
    uint64_t wrong = 0;
    if (!has_pin(ours, slots, count)) return 0;
    for (size_t i = 0; i < count; i++) wrong += tw_pin_add(pin, 1, NULL) != TW_OK;
    count_wrong(ours, wrong);
    return (int64_t)wrong;
}

/* `varies`: 1, or the limit is the same for each call. */
static inline int64_t acquire_with(void *self, const unsigned char *slots, size_t count, int64_t limit, size_t varies,
                                   tw_status expected) {
    struct ours *ours = self;
    tw_verdict verdict;
    int64_t seen = 0;
    uint64_t wrong = 0;
    for (size_t i = 0; i < count; i++) {
        wrong += tw_acquire(ours->family, key_at(slots + i * ours->stride, ours->stride), 1,
                            limit - (int64_t)(i & varies), &verdict) != expected;
        seen ^= verdict.used;
    }
    count_wrong(ours, wrong);
    return seen;
}

static int64_t acquire(void *self, const unsigned char *slots, size_t count) {
    return acquire_with(self, slots, count, TW_DELTA_MAX, 0, TW_OK);
}

/* What a family without Redis decides is answered at once. */
static int64_t acquire_async(void *self, const unsigned char *slots, size_t count) {
    struct ours *ours = self;
    tw_request request;
    int64_t seen = 0;
    uint64_t wrong = 0;
    tw_request_init(&request);
    for (size_t i = 0; i < count; i++) {
        tw_key key = key_at(slots + i * ours->stride, ours->stride);
        wrong += tw_acquire_async(&request, ours->family, key, 1, TW_DELTA_MAX) != TW_OK;
        seen ^= request.verdict.used;
    }
    count_wrong(ours, wrong);
    return seen;
}

#define LEASE_UNITS (INT64_C(1) << 45) /* more than any run spends */

/* Gets a lease that does not run out: so many units are acquired at once, and given back to the lease. */
static bool fill_lease(struct ours *ours, tw_key key) {
    tw_verdict verdict;
    if (tw_acquire_wait(ours->family, key, LEASE_UNITS, TW_DELTA_MAX, 20000, &verdict) != TW_OK) return false;
    return tw_refund(ours->family, key, LEASE_UNITS, verdict.window_start_ms) == TW_OK;
}

static int64_t acquire_hard(void *self, const unsigned char *slots, size_t count) {
    struct ours *ours = self;
    if (!ours->has_lease) { /* while the one key is loaded, by one thread */
        ours->has_lease = true;
        count_wrong(ours, !fill_lease(ours, key_at(slots, ours->stride)));
    }
    return acquire(self, slots, count);
}

/* The limit changes from call to call: slices of one limit do not serve the other, so every call decides by
 * compare-and-swap. */
static int64_t acquire_exactly(void *self, const unsigned char *slots, size_t count) {
    return acquire_with(self, slots, count, TW_DELTA_MAX, 1, TW_OK);
}

/* Every key was counted at least once before, so a limit of 1 denies. */
static int64_t acquire_denied(void *self, const unsigned char *slots, size_t count) {
    return acquire_with(self, slots, count, 1, 0, TW_DENIED);
}

static int64_t acquire_without_verdict(struct ours *ours, const unsigned char *slots, size_t count, int64_t limit,
                                       tw_status expected) {
    uint64_t wrong = 0;
    for (size_t i = 0; i < count; i++)
        wrong += tw_acquire(ours->family, key_at(slots + i * ours->stride, ours->stride), 1, limit, NULL) != expected;
    count_wrong(ours, wrong);
    return (int64_t)wrong;
}

static int64_t acquire_silent(void *self, const unsigned char *slots, size_t count) {
    return acquire_without_verdict(self, slots, count, TW_DELTA_MAX, TW_OK);
}

static int64_t acquire_denied_silent(void *self, const unsigned char *slots, size_t count) {
    return acquire_without_verdict(self, slots, count, 1, TW_DENIED);
}

static int64_t acquire_last(void *self, const unsigned char *slots, size_t count) {
    return acquire_without_verdict(self, slots, count, 1, TW_OK);
}

/* The same key in so many families, of which the first one counts. */
static int64_t acquire_all(struct ours *ours, const unsigned char *slots, size_t count, size_t claimed) {
    tw_claim claims[LIMITS_MAX];
    tw_verdict verdict;
    int64_t seen = 0;
    uint64_t wrong = 0;
    for (size_t i = 0; i < claimed; i++) claims[i] = (tw_claim){.n = 1, .limit = TW_DELTA_MAX};
    for (size_t i = 0; i < claimed; i++) claims[i].family = i == 0 ? ours->family : ours->more[i - 1];
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < claimed; j++) claims[j].key = key_at(slots + i * ours->stride, ours->stride);
        wrong += tw_acquire_all(claims, claimed, &verdict) != TW_OK;
        seen ^= verdict.used;
    }
    count_wrong(ours, wrong);
    return seen;
}

static int64_t acquire_two(void *self, const unsigned char *slots, size_t count) {
    return acquire_all(self, slots, count, 2);
}

static int64_t acquire_four(void *self, const unsigned char *slots, size_t count) {
    return acquire_all(self, slots, count, LIMITS_MAX);
}

/* Holds a slot of each key, and releases it. */
static int64_t hold(void *self, const unsigned char *slots, size_t count) {
    struct ours *ours = self;
    tw_verdict verdict;
    int64_t seen = 0;
    uint64_t wrong = 0;
    for (size_t i = 0; i < count; i++) {
        tw_key key = key_at(slots + i * ours->stride, ours->stride);
        wrong += tw_hold(ours->family, key, 10, &verdict) != TW_OK;
        wrong += tw_hold_release(ours->family, key) != TW_OK;
        seen ^= verdict.used;
    }
    count_wrong(ours, wrong);
    return seen;
}

/* A host with a loop: between two of its turns it makes so many calls. */
#define CALLS_OF_A_TURN 512

static int64_t with_turns(bench_run *run, void *self, const unsigned char *slots, size_t count) {
    struct ours *ours = self;
    int64_t seen = 0;
    for (size_t done = 0; done < count; done += CALLS_OF_A_TURN) {
        size_t some = count - done < CALLS_OF_A_TURN ? count - done : CALLS_OF_A_TURN;
        count_wrong(ours, tw_turn(ours->engine) != TW_OK);
        seen ^= run(self, slots + done * ours->stride, some);
    }
    return seen;
}

static int64_t add_hosted(void *self, const unsigned char *slots, size_t count) {
    return with_turns(add, self, slots, count);
}

static int64_t acquire_hosted(void *self, const unsigned char *slots, size_t count) {
    return with_turns(acquire, self, slots, count);
}

static int64_t acquire_last_hosted(void *self, const unsigned char *slots, size_t count) {
    return with_turns(acquire_last, self, slots, count);
}

static int64_t acquire_denied_hosted(void *self, const unsigned char *slots, size_t count) {
    return with_turns(acquire_denied, self, slots, count);
}

static int64_t hold_hosted(void *self, const unsigned char *slots, size_t count) {
    return with_turns(hold, self, slots, count);
}

static bool add_up(void *ctx, const tw_count *count) {
    struct bench_total *total = ctx;
    total->sum += count->local;
    total->counters++;
    return true;
}

/* The caller compares the sum of the deltas. This checks only the results of the calls themselves. */
static bool total(void *self, struct bench_total *sums) {
    struct ours *ours = self;
    *sums = (struct bench_total){0, 0};
    if (ours->wrong != 0) {
        fprintf(stderr, "tallywheel: %llu answers were not the expected one\n", (unsigned long long)ours->wrong);
        return false;
    }
    if (ours->keeps_no_counts) return true;
    int64_t first_ms = ours->opened_ms - ours->opened_ms % ours->window_ms;
    for (int64_t start_ms = first_ms; start_ms <= wall_ms(); start_ms += ours->window_ms)
        if (tw_each(ours->family, start_ms, add_up, sums) != TW_OK) return false;
    return true;
}

static const struct bench_peer local = {
    .name = "tallywheel",
    .form = "view",
    .make = make_local,
    .add = add,
    .add_dependent = add_dependent,
    .add_timed = add_timed,
    .total = total,
};
static const struct bench_peer sized = {
    .name = "tallywheel",
    .form = "sized",
    .make = make_local,
    .note = "with keys_expected",
    .add = add,
    .add_dependent = add_dependent,
    .add_timed = add_timed,
    .total = total,
};
static const struct bench_peer shared = {
    .name = "tallywheel",
    .form = "shared",
    .make = make_shared,
    .note = "one engine for all processes",
    .add = add,
    .total = total,
};
static const struct bench_peer hosted = {
    .name = "tallywheel",
    .form = "hosted",
    .make = make_hosted,
    .note = "a host-driven engine",
    .add = add_hosted,
    .total = total,
};
static const struct bench_peer blind = {
    .name = "tallywheel",
    .form = "no view",
    .make = make_local,
    .add = add_blind,
    .total = total,
};
static const struct bench_peer synced = {
    .name = "tallywheel",
    .form = "synced",
    .make = make_synced,
    .note = "a family with Redis: marks for the collector, larger records",
    .add = add,
    .add_dependent = add_dependent,
    .add_timed = add_timed,
    .total = total,
};
static const struct bench_peer script = {
    .name = "tallywheel",
    .form = "script",
    .make = make_synced,
    .add = add,
    .total = total,
};
static const struct bench_peer multi = {
    .name = "tallywheel",
    .form = "multi",
    .make = make_multi,
    .add = add,
    .total = total,
};
static const struct bench_peer setnx = {
    .name = "tallywheel",
    .form = "setnx",
    .make = make_setnx,
    .add = add,
    .total = total,
};
static const struct bench_peer many = {
    .name = "tallywheel",
    .form = "many",
    .make = make_local,
    .note = "tw_add_many",
    .add = add_many,
    .total = total,
};
static const struct bench_peer pinned = {
    .name = "tallywheel",
    .form = "pin",
    .make = make_local,
    .note = "tw_pin_add",
    .leave = leave_pin,
    .add = add_pinned,
    .total = total,
};
static const struct bench_peer pinned_blind = {
    .name = "tallywheel",
    .form = "pin no view",
    .make = make_local,
    .note = "tw_pin_add without a view",
    .leave = leave_pin,
    .add = add_pinned_blind,
    .total = total,
};
static const struct bench_peer acquiring = {
    .name = "tallywheel", .form = "acquire", .make = make_local, .add = acquire, .total = total};
static const struct bench_peer acquiring_shared = {
    .name = "tallywheel", .form = "acquire", .make = make_shared, .add = acquire, .total = total};
static const struct bench_peer acquiring_hosted = {
    .name = "tallywheel", .form = "acquire", .make = make_hosted, .add = acquire_hosted, .total = total};
static const struct bench_peer acquiring_last_hosted = {
    .name = "tallywheel", .form = "acquire last", .make = make_hosted, .add = acquire_last_hosted, .total = total};
static const struct bench_peer denied_hosted = {
    .name = "tallywheel", .form = "denied", .make = make_hosted, .add = acquire_denied_hosted, .total = total};
static const struct bench_peer acquiring_last_shared = {
    .name = "tallywheel", .form = "acquire last", .make = make_shared, .add = acquire_last, .total = total};
static const struct bench_peer denied_shared = {
    .name = "tallywheel", .form = "denied", .make = make_shared, .add = acquire_denied, .total = total};
static const struct bench_peer holding = {
    .name = "tallywheel", .form = "hold", .make = make_holding, .add = hold, .total = total};
static const struct bench_peer holding_shared = {
    .name = "tallywheel", .form = "hold", .make = make_holding_shared, .add = hold, .total = total};
static const struct bench_peer holding_hosted = {
    .name = "tallywheel", .form = "hold", .make = make_holding_hosted, .add = hold_hosted, .total = total};
static const struct bench_peer acquiring_two = {
    .name = "tallywheel", .form = "acquire two", .make = make_several, .add = acquire_two, .total = total};
static const struct bench_peer acquiring_four = {
    .name = "tallywheel", .form = "acquire four", .make = make_several, .add = acquire_four, .total = total};
static const struct bench_peer acquiring_async = {
    .name = "tallywheel",
    .form = "acquire async",
    .make = make_local,
    .note = "tw_acquire_async, answered at once",
    .add = acquire_async,
    .total = total,
};
static const struct bench_peer acquiring_synced = {
    .name = "tallywheel",
    .form = "acquire synced",
    .make = make_synced,
    .note = "tw_acquire of a family with Redis, soft",
    .add = acquire,
    .total = total,
};
static const struct bench_peer acquiring_hard = {
    .name = "tallywheel",
    .form = "acquire hard",
    .make = make_hard,
    .note = "tw_acquire from a lease",
    .add = acquire_hard,
    .total = total,
};
static const struct bench_peer acquiring_exactly = {
    .name = "tallywheel",
    .form = "exact",
    .make = make_local,
    .note = "tw_acquire with limits that vary: by compare-and-swap alone",
    .add = acquire_exactly,
    .total = total,
};
static const struct bench_peer denied = {
    .name = "tallywheel",
    .form = "denied",
    .make = make_local,
    .note = "tw_acquire at the limit",
    .add = acquire_denied,
    .total = total,
};

static const struct bench_peer acquiring_silently = {
    .name = "tallywheel",
    .form = "acquire silent",
    .make = make_local,
    .note = "tw_acquire without a verdict",
    .add = acquire_silent,
    .total = total,
};
static const struct bench_peer denied_silently = {
    .name = "tallywheel",
    .form = "denied silent",
    .make = make_local,
    .note = "tw_acquire at the limit, without a verdict",
    .add = acquire_denied_silent,
    .total = total,
};
static const struct bench_peer acquiring_last = {
    .name = "tallywheel", .form = "acquire last", .make = make_local, .add = acquire_last, .total = total};

#define OFFER(function, peer) \
    const struct bench_peer *function(void) { \
        return &(peer); \
    }
OFFER(bench_ours, local)
OFFER(bench_ours_sized, sized)
OFFER(bench_ours_hosted, hosted)
OFFER(bench_ours_acquire_two, acquiring_two)
OFFER(bench_ours_acquire_four, acquiring_four)
OFFER(bench_ours_acquire_hosted, acquiring_hosted)
OFFER(bench_ours_acquire_last_hosted, acquiring_last_hosted)
OFFER(bench_ours_denied_hosted, denied_hosted)
OFFER(bench_ours_acquire_last_shared, acquiring_last_shared)
OFFER(bench_ours_denied_shared, denied_shared)
OFFER(bench_ours_hold, holding)
OFFER(bench_ours_hold_shared, holding_shared)
OFFER(bench_ours_hold_hosted, holding_hosted)
OFFER(bench_ours_shared, shared)
OFFER(bench_ours_blind, blind)
OFFER(bench_ours_synced, synced)
OFFER(bench_ours_script, script)
OFFER(bench_ours_multi, multi)
OFFER(bench_ours_setnx, setnx)
OFFER(bench_ours_many, many)
OFFER(bench_ours_pinned, pinned)
OFFER(bench_ours_pinned_blind, pinned_blind)
OFFER(bench_ours_acquire, acquiring)
OFFER(bench_ours_acquire_shared, acquiring_shared)
OFFER(bench_ours_acquire_async, acquiring_async)
OFFER(bench_ours_acquire_synced, acquiring_synced)
OFFER(bench_ours_acquire_hard, acquiring_hard)
OFFER(bench_ours_acquire_exactly, acquiring_exactly)
OFFER(bench_ours_denied, denied)
OFFER(bench_ours_acquire_silent, acquiring_silently)
OFFER(bench_ours_denied_silent, denied_silently)
OFFER(bench_ours_acquire_last, acquiring_last)

int64_t bench_ours_memory_bytes(void *self) {
    struct ours *ours = self;
    tw_stats stats;
    return tw_stats_read(ours->engine, &stats) == TW_OK ? stats.memory_bytes : -1;
}

bool bench_ours_flush(void *self, uint32_t timeout_ms) {
    struct ours *ours = self;
    return tw_flush(ours->engine, timeout_ms) == TW_OK;
}

bool bench_ours_fetch(void *self, const unsigned char *slots, size_t count, int64_t *sum) {
    struct ours *ours = self;
    enum { SOME = 512 };
    tw_key keys[SOME];
    int64_t totals[SOME];
    *sum = 0;
    for (size_t done = 0; done < count;) {
        size_t some = count - done < SOME ? count - done : SOME;
        for (size_t i = 0; i < some; i++) keys[i] = key_at(slots + (done + i) * ours->stride, ours->stride);
        tw_status status = tw_fetch(ours->family, keys, some, 30000, totals);
        if (status != TW_OK) {
            fprintf(stderr, "tallywheel: tw_fetch: %s\n", tw_status_name(status));
            return false;
        }
        for (size_t i = 0; i < some; i++) *sum += totals[i];
        done += some;
    }
    return true;
}

bool bench_ours_close(void *self, int64_t *sum, uint64_t *windows) {
    struct ours *ours = self;
    /* With Redis away nothing is ever acknowledged, but the hook sees the counts all the same. */
    tw_status status = tw_close(ours->engine, ours->is_alone ? 100 : 10000);
    if (status != TW_OK && !(ours->is_alone && status == TW_ERR_TIMEOUT)) return false;
    *sum = ours->closed_sum;
    *windows = ours->closed_windows;
    bool right = ours->wrong == 0;
    free(ours);
    return right;
}
