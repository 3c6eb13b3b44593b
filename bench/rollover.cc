/* rollover.cc -- `rollover`: one thread adds to the same keys without a pause while windows of two seconds follow
 * each other. Calls near a boundary (from 20 ms before to 200 ms after it) are reported apart from those between
 * boundaries, and so are the page faults of the adding thread. Only Tallywheel has windows: beside it stands the
 * noise of the machine.
 * Always true: the closing hook adds up every window. After tw_close() its sum must be that of all adds. */
#include "bench/bench.h"

#include "bench/peers/peers.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <sys/resource.h>
#include <time.h>

namespace bench {

namespace {

constexpr int64_t window_ms = 2000, before_ms = 20, after_ms = 200;
constexpr size_t run_keys = 256;

struct Phase {
    bench_histogram histogram = {};
    uint64_t faults = 0, switches = 0;
    double seconds = 0;
};

int64_t wall_ms() {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1000000;
}

bool is_near(int64_t at_ms) {
    int64_t in_ms = at_ms % window_ms;
    return in_ms < after_ms || in_ms >= window_ms - before_ms;
}

struct Usage {
    struct rusage usage;
    double at;
    static Usage now() {
        Usage here;
        getrusage(RUSAGE_THREAD, &here.usage);
        here.at = now_s();
        return here;
    }
};

void charge(Phase &phase, const Usage &from, const Usage &to) {
    phase.faults += static_cast<uint64_t>(to.usage.ru_minflt - from.usage.ru_minflt);
    phase.switches += static_cast<uint64_t>(to.usage.ru_nivcsw - from.usage.ru_nivcsw);
    phase.seconds += to.at - from.at;
}

/* Makes runs of 256 calls. A run belongs to the phase in which it began; the phase is determined between runs. */
uint64_t add_through_windows(const bench_peer *peer, void *self, const Stream &stream, int boundaries,
                             Phase phases[2]) {
    int64_t end_ms = (wall_ms() / window_ms + boundaries) * window_ms + window_ms - before_ms;
    uint64_t ops = 0;
    size_t at = 0;
    bool near = is_near(wall_ms());
    Usage since = Usage::now();
    for (int64_t now_ms; (now_ms = wall_ms()) < end_ms;) {
        if (is_near(now_ms) != near) {
            Usage here = Usage::now();
            charge(phases[near], since, here);
            since = here;
            near = !near;
        }
        size_t some = std::min(run_keys, stream.count() - at);
        peer->add_timed(self, stream.at(at), some, &phases[near].histogram);
        ops += some;
        if ((at += some) == stream.count()) at = 0;
    }
    charge(phases[near], since, Usage::now());
    return ops;
}

void roll(Child &child, const bench_peer *peer, const Stream &stream, int boundaries) {
    bench_setup setup = {};
    setup.stride = stream.stride();
    setup.threads = 1;
    setup.window_ms = window_ms;
    pin_to(cores() - 1);
    void *self = peer->make(&setup);
    if (self == nullptr) child.fail("could not be made");
    /* Two windows are not measured: the forecast needs earlier windows. */
    auto phases = std::make_unique<Phase[]>(2);
    uint64_t ops = add_through_windows(peer, self, stream, 2, phases.get());
    phases[0] = phases[1] = Phase();
    ops += add_through_windows(peer, self, stream, boundaries, phases.get());
    for (int near = 0; near < 2; near++) {
        const char *variant = near != 0 ? "near" : "between";
        const Phase &phase = phases[near];
        child.put_latency(peer, "rollover", variant, 1, phase.histogram);
        child.put(peer, "rollover", variant, 1, "ns", phase.seconds * 1e9 / static_cast<double>(phase.histogram.count));
        child.put(peer, "rollover", variant, 1, "faults", static_cast<double>(phase.faults));
        child.put(peer, "rollover", variant, 1, "switches", static_cast<double>(phase.switches));
    }
    child.put(peer, "rollover", "near", 1, "worst x",
              static_cast<double>(phases[1].histogram.largest) / static_cast<double>(phases[0].histogram.largest));
    if (peer == bench_noise()) return;
    int64_t sum;
    uint64_t windows;
    if (!bench_ours_close(self, &sum, &windows)) child.fail("did not close well, or calls had wrong answers");
    if (sum != static_cast<int64_t>(ops))
        child.fail("WRONG SUM: the closing hook saw %lld in %llu windows, added were %llu", static_cast<long long>(sum),
                   static_cast<unsigned long long>(windows), static_cast<unsigned long long>(ops));
    child.put(peer, "rollover", "near", 1, "windows", static_cast<double>(windows));
}

} // namespace

void command_rollover(Bench &bench) {
    uint64_t keys = bench.options.keys != 0 ? bench.options.keys : 100000;
    Stream all = stream_all(natural, keys);
    double seconds = bench.options.seconds != 0 ? bench.options.seconds : 12;
    int boundaries = std::max(1, static_cast<int>(std::lround(seconds * 1000 / static_cast<double>(window_ms))));
    std::vector<const bench_peer *> everyone = {bench_ours(), bench_ours_synced(), bench_noise()};
    rotate<const bench_peer *>(everyone, bench.rounds(2), [&](int round, const bench_peer *const &peer) {
        bench.measure("rollover", natural, round, peer, [&](Child &child) { roll(child, peer, all, boundaries); });
    });
    for (const char *variant : {"between", "near"}) {
        std::vector<Column> columns = {{"ns", variant, 1, "ns"}};
        for (const char *metric : {"p50", "p99", "p99.9", "p99.99", "p99.999", "max"})
            columns.push_back({metric, variant, 1, metric, false, false, 0});
        columns.push_back({"faults", variant, 1, "faults", false, false, 0});
        columns.push_back({"switches", variant, 1, "switches", false, false, 0});
        bool near = variant[0] == 'n';
        if (near) columns.push_back({"worst near/between", variant, 1, "worst x", false, false, 2});
        char title[200];
        std::snprintf(title, sizeof title, "%s, %llu keys, %d boundaries a round; times of calls in ns",
                      near ? "within 20 ms before to 200 ms after a boundary" : "between boundaries",
                      static_cast<unsigned long long>(keys), boundaries);
        bench.report.table(title, "rollover", "rollover", natural, columns);
    }
    bench.report.write_csv("rollover");
    bench.report.plot_latency("rollover", "rollover", "near", 1, natural);
    bench.report.plot_latency("rollover", "rollover", "between", 1, natural);
}

} // namespace bench
