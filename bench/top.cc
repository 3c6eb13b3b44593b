/* top.cc -- `top`: how long tw_top() takes over many keys, and how much it slows threads that add meanwhile.
 * One table of --keys keys (10 million), counted by Zipf's law. Then threads add to it without a pause (two, or one by
 * --threads 1), for spans of a quarter of a second. In every third span another thread asks for the heaviest 100 keys,
 * again and again; in every third one it reads memory of its own instead, as much as the counters have: the floor of
 * any scan.
 *   ms          one tw_top(), while nobody adds; while the threads do
 *   ns alone    an add of these threads, in spans in which nobody asks
 *   ns asked    the same where somebody asks; `slower`: by how many percent
 *   ns read     the same where somebody reads other memory; `read slower`: by how many percent
 * All ns are processor time of the adding thread, so that a machine with two cores does not count the third thread's
 * turns. They are medians over all spans.
 * Always true: after each run the sum over all keys is what was added. */
#include "bench/bench.h"

#include "bench/peers/peers.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <tallywheel.h>
#include <thread>
#include <time.h>
#include <vector>

namespace bench {

namespace {

constexpr double span_s = 0.25;
constexpr size_t asked_for = 100;
enum { alone, asked_top, read_other, kinds };
constexpr size_t bytes_a_key = 80; /* of the table, about */

struct Table {
    tw_engine *engine = nullptr;
    tw_family *family = nullptr;
    std::atomic<uint64_t> adds{0};
};

bool open_table(Table &table, uint64_t keys) {
    tw_options options;
    tw_family_options family_options;
    tw_options_init(&options);
    tw_family_options_init(&family_options);
    options.memory_bytes_max = keys * 256 + (UINT64_C(256) << 20);
    family_options.name = "top";
    family_options.window = TW_WINDOW_FOREVER;
    family_options.keys_expected = keys;
    return tw_open(&options, &table.engine) == TW_OK &&
           tw_family_open(table.engine, &family_options, &table.family) == TW_OK;
}

void add_some(Table &table, const Stream &stream, size_t from, size_t count) {
    for (size_t i = from; i < from + count; i++) {
        const unsigned char *slot = stream.at(i);
        (void)tw_add(table.family, tw_bytes(slot, bench_slot_size(slot, stream.stride())), 1, nullptr);
    }
    table.adds.fetch_add(count);
}

struct Asked {
    int64_t last = INT64_MAX;
    size_t shown = 0;
    bool sorted = true;
};
bool look(void *ctx, const tw_count *count) {
    auto *asked = static_cast<Asked *>(ctx);
    asked->sorted = asked->sorted && count->view <= asked->last;
    asked->last = count->view;
    asked->shown++;
    return true;
}

/* Milliseconds of one call. */
double ask(Child &child, Table &table) {
    Asked asked;
    double begin = now_s();
    tw_status status = tw_top(table.family, asked_for, TW_NOW, look, &asked);
    double ms = (now_s() - begin) * 1e3;
    if (status != TW_OK || !asked.sorted || asked.shown != asked_for) child.fail("tw_top() answered wrongly");
    return ms;
}

double thread_s() {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

double median_of(std::vector<double> all) {
    if (all.empty()) return NAN;
    std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2), all.end());
    return all[all.size() / 2];
}

struct Spans {
    std::vector<double> ns[kinds];
};

/* Adds until the end. Each span of one kind is one figure. */
void add_in_spans(Table &table, const Stream &stream, const std::atomic<int> &kind, size_t begin, Spans &spans) {
    constexpr size_t some = 512;
    size_t at = begin;
    for (int now; (now = kind.load()) >= 0;) {
        double since = thread_s();
        uint64_t ops = 0;
        while (kind.load() == now) {
            if (at + some > stream.count()) at = 0;
            add_some(table, stream, at, some);
            at += some;
            ops += some;
        }
        if (ops != 0) spans.ns[now % kinds].push_back((thread_s() - since) * 1e9 / static_cast<double>(ops));
    }
}

/* One MiB of memory that no counter is in. */
uint64_t read_some(const std::vector<uint64_t> &other, size_t &at) {
    constexpr size_t words = (1 << 20) / sizeof(uint64_t);
    uint64_t sum = 0;
    if (at + words > other.size()) at = 0;
    for (size_t i = at; i < at + words; i += 8) sum += other[i];
    at += words;
    return sum;
}

bool add_up(void *ctx, const tw_count *count) {
    *static_cast<int64_t *>(ctx) += count->view;
    return true;
}

void run(Child &child, const bench_peer *ours, const Stream &all, const Stream &zipf, double seconds, unsigned adders) {
    Table table;
    std::vector<uint64_t> other(all.count() * bytes_a_key / sizeof(uint64_t) + (1 << 17), 1);
    size_t other_at = 0;
    uint64_t other_sum = 0;
    if (!open_table(table, all.count())) child.fail("could not be made");
    add_some(table, all, 0, all.count());
    std::vector<double> quiet, busy;
    for (int i = 0; i < 5; i++) quiet.push_back(ask(child, table));
    std::atomic<int> kind{0};
    std::vector<Spans> spans(adders);
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < adders; i++)
        threads.emplace_back([&, i] { add_in_spans(table, zipf, kind, i * (zipf.count() / adders), spans[i]); });
    double end = now_s() + seconds;
    for (int number = 0; now_s() < end; number++) {
        kind.store(number);
        double until = now_s() + span_s;
        while (now_s() < until) {
            if (number % kinds == asked_top)
                busy.push_back(ask(child, table));
            else if (number % kinds == read_other)
                other_sum += read_some(other, other_at);
            else
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
    kind.store(-1);
    for (std::thread &thread : threads) thread.join();
    if (other_sum == 0) child.fail("nothing was read");
    int64_t sum = 0;
    if (tw_each(table.family, TW_NOW, add_up, &sum) != TW_OK || sum != static_cast<int64_t>(table.adds.load()))
        child.fail("WRONG SUM: %lld, added were %llu", static_cast<long long>(sum),
                   static_cast<unsigned long long>(table.adds.load()));
    std::vector<double> ns[kinds];
    for (const Spans &one : spans)
        for (int kind_of = 0; kind_of < kinds; kind_of++)
            ns[kind_of].insert(ns[kind_of].end(), one.ns[kind_of].begin(), one.ns[kind_of].end());
    child.put(ours, "top", "", adders, "ms quiet", median_of(quiet));
    child.put(ours, "top", "", adders, "ms busy", median_of(busy));
    child.put(ours, "top", "", adders, "ns alone", median_of(ns[alone]));
    child.put(ours, "top", "", adders, "ns asked", median_of(ns[asked_top]));
    child.put(ours, "top", "", adders, "slower %", (median_of(ns[asked_top]) / median_of(ns[alone]) - 1) * 100);
    child.put(ours, "top", "", adders, "ns read", median_of(ns[read_other]));
    child.put(ours, "top", "", adders, "read slower %", (median_of(ns[read_other]) / median_of(ns[alone]) - 1) * 100);
    tw_close(table.engine, 0);
}

} // namespace

void command_top(Bench &bench) {
    uint64_t keys = bench.keys_large();
    double seconds = bench.options.seconds != 0 ? bench.options.seconds : 20;
    unsigned adders = std::min(2u, bench.threads_most());
    Stream all = stream_all(natural, keys);
    Stream zipf = stream_zipf(natural, keys, 4000000, 12);
    for (int round = 0; round < bench.rounds(3); round++)
        bench.measure("top", natural, round, bench_ours(),
                      [&](Child &child) { run(child, bench_ours(), all, zipf, seconds, adders); });
    std::vector<Column> columns;
    for (const char *metric : {"ms quiet", "ms busy", "ns alone", "ns asked", "slower %", "ns read", "read slower %"})
        columns.push_back({metric, "", adders, metric, false, false, 1});
    char title[160];
    std::snprintf(title, sizeof title, "tw_top() of the heaviest %zu of %llu keys; adds of %u threads", asked_for,
                  static_cast<unsigned long long>(keys), adders);
    bench.report.table(title, "top", "top", natural, columns);
    bench.report.write_csv("top");
}

} // namespace bench
