/* floor.cc -- `floor`: what the machine allows. Measures the hash alone, an atomic add alone, and random reads and
 * atomic adds in memory.
 * Always true: one thread runs, unless the row says two. `4K` and `2M` say which pages were requested; a note says
 * so if the large ones were not given. */
#include "bench/bench.h"

#include "bench/floor.h"
#include "bench/lines.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace bench {

namespace {

/* The floors are reported as forms of a peer that does not exist. They live as long as the process that made them. */
const bench_peer *floor_row(const char *form) {
    auto *peer = static_cast<bench_peer *>(std::calloc(1, sizeof(bench_peer)));
    peer->name = floor_name;
    peer->form = form;
    return peer;
}

std::atomic<uint64_t> sink;

template <class Work> void put(Child &child, const char *workload, const bench_peer *row, const Work &work) {
    child.put(row, workload, "plain", 1, "ns", ns_of(work));
}

void hashes(Child &child) {
    static const struct {
        unsigned key_bytes;
        const bench_peer *throughput, *latency;
    } sizes[] = {{8, floor_row("hash 8 B"), floor_row("dependent 8 B")},
                 {16, floor_row("hash 16 B"), floor_row("dependent 16 B")},
                 {natural, floor_row("hash 29 B"), floor_row("dependent 29 B")},
                 {48, floor_row("hash 48 B"), floor_row("dependent 48 B")},
                 {100, floor_row("hash 100 B"), floor_row("dependent 100 B")}};
    bench_floor_hash_init();
    for (auto &size : sizes) {
        Stream keys = stream_uniform(size.key_bytes, 1024, 4096, 1);
        auto repeat = [&](auto hash) {
            return [&keys, hash] {
                for (int pass = 0; pass < 500; pass++) sink += hash(keys.at(0), keys.count(), keys.stride());
                return 500 * keys.count();
            };
        };
        put(child, "hash", size.throughput, repeat(bench_floor_hash));
        put(child, "hash", size.latency, repeat(bench_floor_hash_dependent));
    }
}

uint64_t exchanges(std::atomic<uint64_t> *word) {
    constexpr uint64_t count = 10000000;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t seen = word->load();
        while (!word->compare_exchange_weak(seen, seen + 1)) {}
    }
    return count;
}

void sections(Child &child) {
    put(child, "section", floor_row("ours"), [] { return bench_floor_section(20000000); });
    put(child, "section", floor_row("ours, fence"), [] { return bench_floor_section_fence(20000000); });
    put(child, "section", floor_row("ck_epoch"), [] { return bench_floor_section_ck(20000000); });
}

void clocks(Child &child) {
    put(child, "clock", floor_row("clock"), [] {
        for (int i = 0; i < 1000000; i++) sink += static_cast<uint64_t>(now_s());
        return 1000000;
    });
    put(child, "clock", floor_row("tick counter"), [] {
        for (int i = 0; i < 1000000; i++) sink += bench_ticks();
        return 1000000;
    });
}

void in_cache(Child &child, unsigned all_cores) {
    constexpr uint64_t count = 20000000;
    Lines lines = map_lines(64, false);
    if (lines.words == nullptr) child.fail("no memory");
    put(child, "cache", floor_row("plain add"),
        [&] { /* by the only thread that writes the word: a load and a store */
              for (uint64_t i = 0; i < count; i++)
                  lines.words->store(lines.words->load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
              return count;
        });
    put(child, "cache", floor_row("xadd one word"), [&] { return adds<1>(lines, count); });
    put(child, "cache", floor_row("xadd 64 words"), [&] { return adds<64>(lines, count); });
    put(child, "cache", floor_row("cas one word"), [&] { return exchanges(lines.words); });
    if (all_cores < 2) return;
    /* two threads, on one word, and each on a line of its own: that is what stripes can gain */
    for (unsigned apart : {0u, 32u})
        put(child, "cache", floor_row(apart == 0 ? "xadd, 2 thr." : "own, 2 thr."), [&] {
            std::thread other([&] {
                pin_to(1);
                adds<1>({&lines.first_of(apart), 1}, count);
            });
            uint64_t done = adds<1>(lines, count);
            other.join();
            return done;
        });
}

void in_memory(Child &child, uint64_t bytes, bool large) {
    constexpr uint64_t count = 2000000;
    Lines lines = map_lines(bytes / 64, large);
    if (lines.words == nullptr) child.fail("no memory");
    const char *pages = large ? "memory 2M" : "memory 4K";
    put(child, pages, floor_row("read, dep."), [&] { return read_dependent(lines, count); });
    put(child, pages, floor_row("read, indep."), [&] {
        Random random = {2};
        uint64_t sum = 0;
        for (uint64_t i = 0; i < count; i++) sum += lines.first_of(random.below(lines.count)).load();
        sink += sum;
        return count;
    });
    put(child, pages, floor_row("xadd, indep."), [&] {
        Random random = {3};
        for (uint64_t i = 0; i < count; i++) lines.first_of(random.below(lines.count)).fetch_add(0);
        return count;
    });
}

} // namespace

void command_floor(Bench &bench) {
    static const bench_peer *row = floor_row("");
    uint64_t bytes = std::min<uint64_t>(uint64_t{1} << 30, available_bytes() / 4) & ~uint64_t{(2 << 20) - 1};
    for (int round = 0; round < bench.rounds(5); round++) {
        unsigned all_cores = cores(); /* a pinned thread sees one */
        bench.measure("floor", natural, round, row, [all_cores](Child &child) {
            pin_to(0);
            hashes(child);
            sections(child);
            clocks(child);
            in_cache(child, all_cores);
        });
        for (bool large : {false, true})
            bench.measure("floor", natural, round, row, [&](Child &child) {
                pin_to(0);
                in_memory(child, bytes, large);
            });
    }
    std::vector<Column> columns = {{"ns", "plain", 1, "ns", false, false, 2}};
    bench.report.table("hash of the engine, keyed, by size of the key; dependent: its latency", "floor", "hash",
                       natural, columns);
    bench.report.table("atomic add and compare-and-swap in the first cache, ns a call and thread", "floor", "cache",
                       natural, columns);
    bench.report.table("entering and leaving a read section, ns", "floor", "section", natural, columns);
    bench.report.table("reading a clock", "floor", "clock", natural, columns);
    std::string size = std::to_string(bytes >> 20) + " MiB, random lines";
    bench.report.table("memory, " + size + ", 4 KiB pages", "floor", "memory 4K", natural, columns);
    bench.report.table("memory, " + size + ", 2 MiB pages asked for", "floor", "memory 2M", natural, columns);
    bench.report.write_csv("floor");
}

} // namespace bench
