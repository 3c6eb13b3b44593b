/* grow.cc -- `grow` (W5): only new keys, into tables that begin small. Measures how long the calls take, above all
 * the longest. Every call is timed, so the throughput here includes one reading of the clock per call (about 10 ns),
 * for every peer alike. `paced` is an inserting thread that does not outrun background work: it makes so many
 * inserts a second and no more.
 * Always true: the noise of the machine is measured in the same rounds, as a peer that only reads the clock. */
#include "bench/bench.h"

#include "bench/peers/peers.h"

#include <cstdio>

namespace bench {

namespace {

constexpr double paced_per_s = 200000;
constexpr size_t paced_keys = 1000000;

void put_timed(Child &child, const bench_peer *peer, const char *variant, const Outcome &outcome) {
    child.put_outcome(peer, "W5", variant, outcome);
    child.put_latency(peer, "W5", variant, outcome.threads, outcome.histogram);
    child.put(peer, "W5", variant, outcome.threads, "faults", static_cast<double>(outcome.faults));
    child.put(peer, "W5", variant, outcome.threads, "switches", static_cast<double>(outcome.switches));
}

void grow(Child &child, const bench_peer *peer, const char *variant, const Plan &how) {
    bench_setup setup = {};
    setup.stride = how.stream->stride();
    setup.threads = how.threads;
    uint64_t before = anonymous_bytes();
    Plan plan = how;
    plan.peer = peer;
    plan.self = peer->make(&setup);
    if (plan.self == nullptr) child.fail("could not be made");
    Outcome outcome = run_threads(plan);
    put_timed(child, peer, variant, outcome);
    if (peer == bench_noise()) return;
    uint64_t keys = how.stream->count();
    child.put(peer, "W5", variant, how.threads, "bytes",
              static_cast<double>(anonymous_bytes() - before) / static_cast<double>(keys));
    child.check(peer, plan.self, static_cast<int64_t>(keys), keys);
}

std::vector<Column> columns_of(const char *variant, unsigned threads) {
    std::vector<Column> columns = {{"ns", variant, threads, "ns", true},
                                   {"Mops", variant, threads, "mops", false, true, 2}};
    for (const char *metric : {"p50", "p99", "p99.9", "p99.99", "p99.999", "max"})
        columns.push_back({metric, variant, threads, metric, false, false, 0});
    columns.push_back({"faults", variant, threads, "faults", false, false, 0});
    columns.push_back({"switches", variant, threads, "switches", false, false, 0});
    columns.push_back({"bytes", variant, threads, "bytes"});
    return columns;
}

} // namespace

void command_grow(Bench &bench) {
    Stream all = stream_all(natural, bench.keys_large());
    Stream few = stream_all(natural, paced_keys);
    std::vector<const bench_peer *> everyone = {bench_ours(), bench_ours_synced(), bench_noise()};
    for (const bench_peer *peer : peers_for(bench, all.stride())) everyone.push_back(peer);
    for (unsigned threads : bench.options.threads) {
        rotate<const bench_peer *>(everyone, bench.rounds(3), [&](int round, const bench_peer *const &peer) {
            Plan plan;
            plan.stream = &all;
            plan.threads = threads;
            plan.mode = Mode::timed;
            if (peer == bench_noise()) plan.seconds = 3;
            bench.measure("grow", natural, round, peer, [&](Child &child) { grow(child, peer, "full speed", plan); });
        });
        char title[160];
        std::snprintf(title, sizeof title, "W5: %zu new keys, growing from small, %u thread(s); times of calls in ns",
                      all.count(), threads);
        bench.report.table(title, "grow", "W5", natural, columns_of("full speed", threads));
    }
    std::vector<const bench_peer *> patient = {bench_ours(), bench_ours_synced(), bench_noise()};
    rotate<const bench_peer *>(patient, bench.rounds(3), [&](int round, const bench_peer *const &peer) {
        Plan plan;
        plan.stream = &few;
        plan.mode = Mode::timed;
        plan.ops_per_s = paced_per_s;
        bench.measure("grow", natural, round, peer, [&](Child &child) { grow(child, peer, "paced", plan); });
    });
    char title[160];
    std::snprintf(title, sizeof title, "W5 paced: %zu new keys at %.0f a second, 1 thread; times of calls in ns",
                  paced_keys, paced_per_s);
    bench.report.table(title, "grow", "W5", natural, columns_of("paced", 1));
    bench.report.write_csv("grow");
    for (unsigned threads : bench.options.threads)
        bench.report.plot_latency("grow", "W5", "full speed", threads, natural);
    bench.report.plot_latency("grow", "W5", "paced", 1, natural);
}

} // namespace bench
