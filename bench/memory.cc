/* memory.cc -- `memory`: what a counter costs, by how much the process grew (resident anonymous memory), all
 * included.
 *   presized  the table knows how many keys will come (if it can take that number)
 *   grown     the table does not know it
 *   three     the open window, the next and one of history: only Tallywheel, its own account over that of one window
 * Always true: a table is measured in a process in which nothing else grows. */
#include "bench/bench.h"

#include <algorithm>
#include <cstdio>
#include <thread>
#include <time.h>
#include <unistd.h>

namespace bench {

namespace {

void measure_bytes(Bench &bench, const Stream &all, unsigned key_bytes, const bench_peer *peer, bool presized) {
    bench.measure("memory", key_bytes, 0, peer, [&](Child &child) {
        bench_setup setup = {};
        setup.stride = all.stride();
        setup.keys_expected = presized ? all.count() : 0;
        setup.threads = cores();
        Loaded table(child, peer, setup, all, cores());
        table.check();
        child.put(peer, "memory", presized ? "presized" : "grown", 1, "bytes", table.bytes);
        if (peer == bench_ours() || peer == bench_ours_synced())
            child.put(peer, "memory", presized ? "presized" : "grown", 1, "own bytes",
                      static_cast<double>(bench_ours_memory_bytes(table.self)) / static_cast<double>(all.count()));
    });
}

int64_t wall_ms() {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1000000;
}

/* The engine's own account at the end of one window, and its maximum over the next windows. All are as full as the
 * first. */
void measure_windows(Child &child, const bench_peer *peer, const Stream &all) {
    constexpr int64_t window_ms = 4000;
    bench_setup setup = {};
    setup.stride = all.stride();
    setup.window_ms = window_ms;
    while (wall_ms() % window_ms > 200) usleep(10000);
    void *self = peer->make(&setup);
    if (self == nullptr) child.fail("could not be made");
    int64_t begin_ms = wall_ms() / window_ms * window_ms, one = 0, most = 0;
    int64_t ops = 0;
    for (int window = 0; window < 5; window++) {
        while (wall_ms() < begin_ms + window * window_ms + 50) usleep(1000);
        peer->add(self, all.at(0), all.count());
        ops += static_cast<int64_t>(all.count());
        if (window == 0) one = bench_ours_memory_bytes(self);
        while (wall_ms() < begin_ms + (window + 1) * window_ms - 50) {
            most = std::max(most, bench_ours_memory_bytes(self));
            usleep(1000);
        }
    }
    child.put(peer, "windows", "three", 1, "one MB", static_cast<double>(one) / 1e6);
    child.put(peer, "windows", "three", 1, "most MB", static_cast<double>(most) / 1e6);
    child.put(peer, "windows", "three", 1, "times", static_cast<double>(most) / static_cast<double>(one));
    int64_t sum;
    uint64_t windows;
    if (!bench_ours_close(self, &sum, &windows)) child.fail("did not close well, or calls had wrong answers");
    if (sum != ops)
        child.fail("WRONG SUM: the closing hook saw %lld, added were %lld", static_cast<long long>(sum),
                   static_cast<long long>(ops));
}

} // namespace

void command_memory(Bench &bench) {
    for (unsigned key_bytes : {natural, 8u, 16u, 48u, 100u}) {
        uint64_t keys = key_bytes == natural ? bench.keys_large() : std::min<uint64_t>(bench.keys_large(), 1000000);
        Stream all = stream_all(key_bytes, keys);
        std::vector<const bench_peer *> everyone = {bench_ours(), bench_ours_synced()};
        for (const bench_peer *peer : peers_for(bench, all.stride())) everyone.push_back(peer);
        for (const bench_peer *peer : everyone)
            for (bool presized : {true, false}) {
                measure_bytes(bench, all, key_bytes, peer, presized);
            }
        char title[160];
        std::snprintf(title, sizeof title, "bytes a counter: %llu keys of %.1f bytes",
                      static_cast<unsigned long long>(keys), all.mean_bytes());
        bench.report.table(title, "memory", "memory", key_bytes,
                           {{"presized", "presized", 1, "bytes"},
                            {"grown", "grown", 1, "bytes"},
                            {"own, presized", "presized", 1, "own bytes"},
                            {"own, grown", "grown", 1, "own bytes"}});
    }
    Stream some = stream_all(natural, std::min<uint64_t>(bench.keys_large(), 1000000));
    bench.measure("memory", natural, 0, bench_ours(),
                  [&](Child &child) { measure_windows(child, bench_ours(), some); });
    bench.report.table("open, next and history together, " + std::to_string(some.count()) +
                           " keys in each window, against one window",
                       "memory", "windows", natural,
                       {{"one, MB", "three", 1, "one MB"},
                        {"most, MB", "three", 1, "most MB"},
                        {"times", "three", 1, "times", false, false, 2}});
    bench.report.write_csv("memory");
}

} // namespace bench
