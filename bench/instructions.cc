/* instructions.cc -- instructions FORM KEYS KEY_BYTES SIZED [SHAPE]: calls one function for each of KEYS new keys,
 * then ten times more for each of them, or 10,240 times for a single key. It is run by instructions.sh under
 * callgrind, which counts what is executed within that function. The FORMs are named in the table below. `denied`
 * begins with the one unit of a limit of 1. KEY_BYTES: 0 for natural keys. TOLD: 1 if the family knows how many
 * keys will come. The forms with Redis need the socket of one in BENCH_REDIS. SHAPE: of the limit: fixed, sliding
 * or gcra.
 * Always true: one thread calls. All first calls come before bench_hit_all(), all others within it. Answers and
 * sums are checked in the end: no figure stands for calls that did not count. GCRA and slots that are released keep
 * no sums. */
#include "bench/peer.h"
#include "bench/stream.h"

#include "tallywheel.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

using namespace bench;

/* Time stands while calls are counted. Under callgrind the engine's thread hardly runs, so callers would notice that
 * nobody keeps the time, and read the clocks: another path than that of a machine on which it runs. */
static std::atomic<bool> time_stands;
static timespec stood_at[8];

extern "C" __attribute__((visibility("default"))) int clock_gettime(clockid_t id, timespec *now) noexcept {
    if (!time_stands || id < 0 || id >= 8) return static_cast<int>(syscall(SYS_clock_gettime, id, now));
    *now = stood_at[id];
    return 0;
}

static void let_time_stand(bool stands) {
    for (clockid_t id = 0; stands && id < 8; id++) syscall(SYS_clock_gettime, id, &stood_at[id]);
    time_stands = stands;
}

/* The engine's thread finds that time stands. After that the first calls read the clocks, and no others. */
static void begin_to_count(void *self, const Stream &keys) {
    let_time_stand(true);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    bench_ours_settle(self, keys.at(0));
}

static const struct Form {
    const char *name;
    const bench_peer *(*first)(); /* of a new key */
    const bench_peer *(*hit)();
    bool counts; /* a hit counts */
} forms[] = {{"add", bench_ours, bench_ours, true},
             {"blind", bench_ours, bench_ours_blind, true},
             {"add_shared", bench_ours_shared, bench_ours_shared, true},
             {"many", bench_ours_many, bench_ours_many, true},
             {"pin", bench_ours, bench_ours_pinned, true},
             {"pin_blind", bench_ours, bench_ours_pinned_blind, true},
             {"acquire", bench_ours_acquire, bench_ours_acquire, true},
             {"acquire_shared", bench_ours_acquire_shared, bench_ours_acquire_shared, true},
             {"add_hosted", bench_ours_hosted, bench_ours_hosted, true},
             {"acquire_hosted", bench_ours_acquire_hosted, bench_ours_acquire_hosted, true},
             {"denied_hosted", bench_ours_acquire_last_hosted, bench_ours_denied_hosted, false},
             {"denied_shared", bench_ours_acquire_last_shared, bench_ours_denied_shared, false},
             {"hold", bench_ours_hold, bench_ours_hold, true},
             {"hold_shared", bench_ours_hold_shared, bench_ours_hold_shared, true},
             {"hold_hosted", bench_ours_hold_hosted, bench_ours_hold_hosted, true},
             {"add_synced", bench_ours_synced, bench_ours_synced, true},
             {"acquire_synced", bench_ours_acquire_synced, bench_ours_acquire_synced, true},
             {"all_two", bench_ours_acquire_two, bench_ours_acquire_two, true},
             {"all_four", bench_ours_acquire_four, bench_ours_acquire_four, true},
             {"acquire_silent", bench_ours_acquire_silent, bench_ours_acquire_silent, true},
             {"denied", bench_ours_acquire_last, bench_ours_denied, false},
             {"denied_silent", bench_ours_acquire_last, bench_ours_denied_silent, false}};

static const struct {
    const char *name;
    uint32_t shape;
} shapes[] = {{"fixed", TW_SHAPE_FIXED}, {"sliding", TW_SHAPE_SLIDING}, {"gcra", TW_SHAPE_GCRA}};

/* callgrind writes down the first calls before it. It is found by its name. */
extern "C" __attribute__((noinline)) void bench_hit_all(const bench_peer *peer, void *self, const Stream *keys,
                                                        unsigned hits) {
    for (unsigned i = 0; i < hits; i++) peer->add(self, keys->at(0), keys->count());
}

int main(int argc, char **argv) {
    const Form *form = nullptr;
    uint32_t shape = UINT32_MAX;
    for (auto &each : forms)
        if (argc > 1 && std::strcmp(argv[1], each.name) == 0) form = &each;
    for (auto &each : shapes)
        if (std::strcmp(argc == 6 ? argv[5] : "fixed", each.name) == 0) shape = each.shape;
    if ((argc != 5 && argc != 6) || form == nullptr || shape == UINT32_MAX) {
        std::fprintf(stderr, "usage: instructions FORM KEYS KEY_BYTES SIZED [fixed|sliding|gcra]\nFORM:");
        for (auto &each : forms) std::fprintf(stderr, " %s", each.name);
        std::fprintf(stderr, "\n");
        return 2;
    }
    Stream keys = stream_all(static_cast<unsigned>(std::atoi(argv[3])), std::strtoull(argv[2], nullptr, 10));
    bench_setup setup = {};
    setup.stride = keys.stride();
    setup.threads = 1;
    setup.memory_bytes = uint64_t{1} << 30; /* valgrind has no room for 64 GiB */
    setup.keys_expected = std::atoi(argv[4]) != 0 ? keys.count() : 0;
    setup.limit_shape = shape;
    setup.address = std::getenv("BENCH_REDIS"); /* a socket; before the hits Redis has reported all totals */
    bench_many_count = 32;
    const bench_peer *first = form->first(), *hit = form->hit();
    void *self = first->make(&setup);
    if (self == nullptr) return 1;
    /* Before the first call the engine's thread keeps the time. Before the hits the turn has given this thread a line
     * of its own for the statistics of limits. Both take some ms. */
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    begin_to_count(self, keys);
    first->add(self, keys.at(0), keys.count());
    let_time_stand(false);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    for (int i = 0; setup.address != nullptr && i < 8; i++) { /* later calls ask for later totals */
        first->add(self, keys.at(0), keys.count());
        if (!bench_ours_flush(self, 60000)) return 1;
        std::this_thread::sleep_for(std::chrono::milliseconds(400));
    }
    unsigned more = setup.address != nullptr ? 8 : 0;
    unsigned hits = keys.count() == 1 ? 10240 : 10; /* of each key */
    begin_to_count(self, keys);
    bench_hit_all(hit, self, &keys, hits);
    let_time_stand(false);
    if (hit->leave != nullptr) hit->leave(self);
    bench_total total, expected = {0, 0};
    if (shape != TW_SHAPE_GCRA && std::strncmp(form->name, "hold", 4) != 0)
        expected = {static_cast<int64_t>(keys.count() * (form->counts ? 1 + more + hits : 1)), keys.count()};
    bool right = first->total(self, &total) && total.counters == expected.counters && total.sum == expected.sum;
    if (!right) std::fprintf(stderr, "instructions: WRONG SUM\n");
    return right ? 0 : 1;
}
