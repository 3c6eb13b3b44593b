/* alone.cc -- `alone`: what a call costs that stands alone, as in a server, which waits for its answer.
 *   in a row    the processor overlaps calls, as in `add`
 *   dependent   the address of each key depends on the answer before it
 *   among N     the thread walks N lines of its own data between two calls and takes branches (walk.h): the walk waits
 *               for the answer, the next key for the walk
 * The workloads are those of `add`, with keys of 8 to 100 bytes, dealt out to one family or to a thousand. Peers have a
 * table for each family.
 * Always true: calls are timed in blocks (of 16 among work, else of 1,024). Between two blocks the same loop runs
 * without calls of the table, its walks included; the median of those blocks is taken off the median of these. (With
 * one family and no walk the loop is the peer's own, as in `add`, and nothing is taken off.) The means of all are in
 * the CSV file. Each run begins where the one before it ended in the stream, so what is in no cache stays so. Quantiles
 * are of calls that were timed one by one, or in blocks of 16 where the clock costs as much as a call; nothing is taken
 * off them, and the row of the clock alone stands beside them. */
#include "bench/bench.h"
#include "bench/floor.h"
#include "bench/lines.h"
#include "bench/peers/peers.h"
#include "bench/walk.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <unistd.h>

namespace bench {

namespace {

struct Variant {
    const char *name;
    uint64_t lines;
    bool is_dependent;
    uint64_t share; /* of a case's calls: one in so many, for a walk takes longer than a call */
};

constexpr Variant variants[] = {{"in a row", 0, false, 1},
                                {"dependent", 0, true, 1},
                                {"among 64", 64, true, 10},
                                {"among 512", 512, true, 20},
                                {"among 4096", 4096, true, 100}};

struct Case {
    std::string workload;
    uint64_t keys;
    bool is_zipf;
    unsigned key_bytes;
    unsigned families;
    size_t draws;
    uint64_t ops;

    bool is_large() const {
        return workload == "W2" || workload == "W3";
    }
    /* Calls that are timed at a time where they wait for nothing else: in cache the clock costs as much as a call. */
    size_t block() const {
        return is_large() ? 1 : 16;
    }
    std::string name() const {
        return workload + " " + std::to_string(key_bytes == natural ? 29 : key_bytes) + " " + std::to_string(families) +
               (families == 1 ? " family" : " families");
    }
    /* In the report. */
    std::string row() const {
        return families == 1 ? workload : workload + "/" + std::to_string(families);
    }
    Stream all() const {
        return stream_all(key_bytes, keys, families);
    }
    Stream drawn() const {
        return is_zipf ? stream_zipf(key_bytes, keys, draws, 2, families)
                       : stream_uniform(key_bytes, keys, draws, 1, families);
    }
};

std::vector<Case> all_cases(const Bench &bench) {
    std::vector<Case> cases;
    for (unsigned families : {1u, 1000u})
        for (unsigned key_bytes : {natural, 8u, 48u, 100u}) {
            /* A key takes a slot in streams and inline tables: long ones are fewer. */
            uint64_t large = std::max<uint64_t>(bench.keys_large() * 32 / stride_of(key_bytes), 1000);
            cases.push_back({"W0", 1024, false, key_bytes, families, 65536, 2000000});
            cases.push_back({"W1", 65536, false, key_bytes, families, 262144, 2000000});
            cases.push_back({"W2", large, false, key_bytes, families, 2000000, 1000000});
            cases.push_back({"W3", large, true, key_bytes, families, 2000000, 1000000});
        }
    for (Case &one : cases) {
        if (bench.options.ops == 0) continue;
        one.ops = bench.options.ops;
        one.draws = std::min<size_t>(one.draws, 2 * one.ops);
    }
    std::vector<Case> wanted;
    for (const Case &one : cases)
        if (bench.wants_case(one.name())) wanted.push_back(one);
    return wanted;
}

/* One thread's calls for the keys of one stream, each through the peer's pointers as far as it stands alone. */
class Calls {
  public:
    Calls(const std::vector<void *> &selves, const Stream &keys) : first_(selves[0]), keys_(keys), zero_(bench_zero) {
        if (selves.size() == 1) return;
        for (size_t i = 0; i < keys.count(); i++) self_of_.push_back(selves[keys.family(i)]);
    }
    uint64_t one(const bench_peer *peer, size_t at, uint64_t before) const {
        uint64_t none = before & zero_;
        void *self = self_of_.empty() ? first_ : self_of_[at + none];
        return static_cast<uint64_t>(peer->add(self, keys_.at(at) + none, 1));
    }
    void in_a_row(const bench_peer *peer, size_t at, size_t count) const {
        if (self_of_.empty())
            peer->add(first_, keys_.at(at), count);
        else
            for (size_t i = at; i < at + count; i++) one(peer, i, 0);
    }
    uint64_t dependent(const bench_peer *peer, size_t at, size_t count, uint64_t before) const {
        if (self_of_.empty())
            return static_cast<uint64_t>(peer->add_dependent(first_, keys_.at(at) + (before & zero_), count));
        for (size_t i = at; i < at + count; i++) before = one(peer, i, before);
        return before;
    }
    uint64_t among(const bench_peer *peer, size_t at, size_t count, uint64_t before, Walk &walk) const {
        for (size_t i = at; i < at + count; i++) before = walk.go(before + (one(peer, i, before) & zero_));
        return before;
    }
    /* The same, with the calls timed and the walks not. */
    uint64_t among_timed(const bench_peer *peer, size_t at, size_t count, uint64_t before, Walk &walk,
                         bench_histogram &histogram) const {
        for (size_t i = at; i < at + count; i++) {
            uint64_t begin = bench_ticks_fenced(), answer = one(peer, i, before);
            bench_record(&histogram, bench_ticks_fenced() - begin);
            before = walk.go(before + (answer & zero_));
        }
        return before;
    }
    uint64_t dependent_timed(const bench_peer *peer, size_t at, size_t count, uint64_t before, size_t block,
                             bench_histogram &histogram) const {
        for (size_t i = at; i < at + count; i += block) {
            size_t some = std::min(block, at + count - i);
            uint64_t begin = bench_ticks_fenced();
            before = dependent(peer, i, some, before);
            bench_record(&histogram, (bench_ticks_fenced() - begin + some / 2) / some);
        }
        return before;
    }

  private:
    void *first_;
    const Stream &keys_;
    std::vector<void *> self_of_; /* by key of the stream; empty with one family */
    uint64_t zero_;
};

bench_setup setup_for(const bench_peer *peer, const Case &one, const Stream &all) {
    bench_setup setup = {};
    setup.stride = all.stride();
    setup.keys_expected = keys_expected_by(peer, (one.keys + one.families - 1) / one.families);
    setup.families = one.families;
    setup.threads = one.is_large() && one.families == 1 ? cores() : 1; /* they load it */
    return setup;
}

/* How long blocks of calls took, in ticks. */
struct Blocks {
    std::vector<double> of_call;
    double sum = 0;
    void put(uint64_t ticks, size_t calls) {
        of_call.push_back(static_cast<double>(ticks) / static_cast<double>(calls));
        sum += static_cast<double>(ticks);
    }
    double median() {
        auto middle = of_call.begin() + static_cast<ptrdiff_t>(of_call.size() / 2);
        std::nth_element(of_call.begin(), middle, of_call.end());
        return *middle;
    }
};

/* All variants of one peer, on one load. */
class Measurement {
  public:
    Measurement(Child &child, const Bench &bench, const Case &one, const bench_peer *peer, const Stream &all,
                const Stream &drawn)
        : child_(child), bench_(bench), case_(one), peer_(peer), drawn_(drawn),
          table_(child, peer, setup_for(peer, one, all), all, setup_for(peer, one, all).threads),
          calls_(table_.selves, drawn) {
    }
    void run() {
        for (const Variant &variant : variants) {
            Walk walk(variant.lines);
            if (peer_ != bench_noise()) put_time(variant, walk);
            if (variant.is_dependent) put_quantiles(variant, walk);
        }
        check();
    }

  private:
    Plan plan_for(const Variant &variant) const {
        Plan plan;
        plan.peer = peer_;
        plan.self = table_.self;
        plan.stream = &drawn_;
        plan.ops = std::max<uint64_t>(case_.ops / variant.share, 200);
        plan.seconds = bench_.options.seconds;
        return plan;
    }
    Outcome run(Plan plan) {
        plan.first = next_;
        Outcome outcome = run_threads(plan);
        table_.sum += static_cast<int64_t>(outcome.ops);
        next_ = (next_ + outcome.ops) % drawn_.count();
        return outcome;
    }
    void warm(Plan plan) {
        plan.ops /= 10;
        plan.seconds = 0;
        run(plan);
    }
    void call(const bench_peer *peer, const Variant &variant, Walk &walk, size_t at, size_t count) {
        if (!variant.is_dependent)
            calls_.in_a_row(peer, at, count);
        else if (variant.lines == 0)
            last_ = calls_.dependent(peer, at, count, last_);
        else
            last_ = calls_.among(peer, at, count, last_, walk);
    }
    /* Blocks of calls, and by turns the same loop without calls of the table: what slows one down hits both. */
    void put_time(const Variant &variant, Walk &walk) {
        bool has_loop = variant.lines != 0 || case_.families != 1;
        size_t block = variant.lines != 0 ? 16 : 1024;
        Blocks whole, loop;
        Plan plan = plan_for(variant);
        plan.calls = [&](size_t at, size_t count, bench_histogram &) {
            for (size_t end = at + count, some; at < end; at += some) {
                some = std::min(block, end - at);
                uint64_t begin = bench_ticks_fenced();
                call(peer_, variant, walk, at, some);
                uint64_t middle = bench_ticks_fenced();
                whole.put(middle - begin, some);
                if (!has_loop) continue;
                call(bench_noise(), variant, walk, at, some);
                loop.put(bench_ticks_fenced() - middle, some);
            }
        };
        warm(plan);
        whole = loop = {};
        double ops = static_cast<double>(run(plan).ops), loop_ticks = has_loop ? loop.median() : 0;
        auto put = [&](const char *metric, double ticks) {
            child_.put(peer_, case_.row().c_str(), variant.name, 1, metric, ticks * ns_per_tick());
        };
        put("ns", whole.median() - loop_ticks);
        put("mean ns", (whole.sum - loop.sum) / ops);
        put("loop ns", loop_ticks);
    }
    void put_quantiles(const Variant &variant, Walk &walk) {
        Plan plan = plan_for(variant);
        plan.calls = [&](size_t at, size_t count, bench_histogram &histogram) {
            last_ = variant.lines == 0 ? calls_.dependent_timed(peer_, at, count, last_, case_.block(), histogram)
                                       : calls_.among_timed(peer_, at, count, last_, walk, histogram);
        };
        warm(plan);
        child_.put_quantiles(peer_, case_.row().c_str(), variant.name, 1, run(plan).histogram);
    }
    /* The clock counts nothing; the floor has no counter for each key. */
    void check() {
        if (peer_ == bench_noise()) return;
        if (peer_ != bench_floor(drawn_.stride())) return table_.check();
        int64_t sum = 0;
        for (void *self : table_.selves) {
            bench_total total;
            peer_->total(self, &total);
            sum += total.sum;
        }
        if (sum != table_.sum) child_.fail("WRONG SUM of the floor");
    }

    Child &child_;
    const Bench &bench_;
    const Case &case_;
    const bench_peer *peer_;
    const Stream &drawn_;
    Loaded table_;
    Calls calls_;
    size_t next_ = 0;   /* where in the stream the next run begins */
    uint64_t last_ = 0; /* the answer on which the next key depends */
};

/* The floor once more, by its parts. */
void put_parts(Child &child, const Bench &bench, const Case &one, const Stream &drawn) {
    uint64_t count = bench.options.ops != 0 ? bench.options.ops : 2000000;
    Lines lines = map_lines(one.keys * (drawn.stride() > 64 ? 2 : 1), true);
    if (lines.words == nullptr) child.fail("no memory");
    bench_floor_hash_init();
    pin_to(0);
    auto put = [&](const char *part, const auto &work) {
        child.put(bench_floor(drawn.stride()), one.row().c_str(), "parts", 1, part, ns_of(work));
    };
    volatile uint64_t sink = 0;
    put("hash", [&] {
        sink = bench_floor_hash_dependent(drawn.at(0), drawn.count(), drawn.stride());
        return drawn.count();
    });
    put("read", [&] { return read_dependent(lines, count); });
    put("atomic add", [&] { return adds<64>(lines, count); });
}

void print_parts(const Bench &bench, const Case &one) {
    auto part = [&](const char *metric) {
        return bench.report.median("alone", one.row(), one.key_bytes, floor_name, "as one", {"", "parts", 1, metric});
    };
    double hash = part("hash"), read = part("read"), add = part("atomic add");
    std::printf("the floor by its parts: hash %.1f + read %.1f + atomic add %.1f = %.1f ns\n", hash, read, add,
                hash + read + add);
}

void print_tables(const Bench &bench, const Case &one, double mean_bytes) {
    std::vector<Column> means, quantiles;
    for (const Variant &variant : variants) {
        means.push_back({variant.name, variant.name, 1, "ns", true});
        if (!variant.is_dependent) continue;
        quantiles.push_back({std::string(variant.name) + ": p50", variant.name, 1, "p50", false, false, 0});
        for (const char *metric : {"p99", "p99.9"})
            quantiles.push_back({metric, variant.name, 1, metric, false, false, 0});
    }
    std::string families = one.families == 1 ? "" : " in " + std::to_string(one.families) + " families";
    std::string taken_off = one.families == 1 ? "" : "the loop, ";
    for (const Variant &variant : variants) {
        char text[64];
        Column column = {"", variant.name, 1, "loop ns"};
        if (variant.lines == 0) continue;
        std::snprintf(text, sizeof text, "%s%.0f", variant.lines == 64 ? "" : " / ",
                      bench.report.median("alone", one.row(), one.key_bytes, ours_name, ours_form, column));
        taken_off += text;
    }
    char title[240];
    std::snprintf(title, sizeof title,
                  "%s: %llu keys of %.1f bytes%s%s; ns of a call, median of blocks (taken off: %s for the walk)",
                  one.name().c_str(), static_cast<unsigned long long>(one.keys), mean_bytes, families.c_str(),
                  one.is_zipf ? ", Zipf 0.99" : "", taken_off.c_str());
    bench.report.table(title, "alone", one.row(), one.key_bytes, means);
    print_parts(bench, one);
    std::snprintf(title, sizeof title, "%s: ns of single calls, the clock included; dependent ones %s",
                  one.name().c_str(), one.block() == 1 ? "one by one" : "are means over blocks of 16 calls");
    bench.report.table(title, "alone", one.row(), one.key_bytes, quantiles);
}

/* The counts of a call over the full hour would be in two windows: so none is begun in the last minute. */
void wait_for_hour() {
    unsigned left_s = 3600 - static_cast<unsigned>(time(nullptr) % 3600);
    if (left_s <= 60) sleep(left_s + 1);
}

void measure(Bench &bench, const Case &one) {
    Stream all = one.all(), drawn = one.drawn();
    std::vector<const bench_peer *> everyone = {bench_ours(), bench_ours_sized(), bench_floor(all.stride()),
                                                bench_noise()};
    for (const bench_peer *peer : peers_for(bench, all.stride())) everyone.push_back(peer);
    rotate<const bench_peer *>(everyone, bench.rounds(3), [&](int round, const bench_peer *const &peer) {
        wait_for_hour();
        bench.measure("alone", one.key_bytes, round, peer, [&](Child &child) {
            if (peer == bench_floor(all.stride())) put_parts(child, bench, one, drawn);
            Measurement(child, bench, one, peer, all, drawn).run();
        });
    });
    print_tables(bench, one, all.mean_bytes());
}

/* Every case beside the best peer of each form, a table for each variant. */
void print_summary(const Bench &bench, const std::vector<Case> &cases) {
    for (const Variant &variant : variants) {
        std::printf(
            "\n%s: ours, ns; over it the best inline peer, the best string or node peer, ours with keys_expected, the "
            "floor\n%-24s %9s %8s %8s %8s %8s\n",
            variant.name, "", "ours", "inline", "string", "sized", "floor");
        for (const Case &one : cases) {
            Column column = {"", variant.name, 1, "ns"};
            auto median = [&](const char *peer, const char *form) {
                return bench.report.median("alone", one.row(), one.key_bytes, peer, form, column);
            };
            auto best = [&](const std::vector<std::string> &forms) {
                return bench.report.best("alone", one.row(), one.key_bytes, column, forms);
            };
            double ours = median(ours_name, ours_form);
            std::printf("%-24s %9.1f", one.name().c_str(), ours);
            for (double other :
                 {best({"inline"}), best({"string", "node"}), median(ours_name, "sized"), median(floor_name, "as one")})
                std::isnan(other) ? std::printf(" %8s", "-") : std::printf(" %8.2f", other / ours);
            std::printf("\n");
        }
    }
}

} // namespace

void command_alone(Bench &bench) {
    std::vector<Case> cases = all_cases(bench);
    if (cases.empty()) bench.report.fail("alone: --cases names none");
    for (const Case &one : cases) measure(bench, one);
    print_summary(bench, cases);
    bench.report.write_csv("alone");
}

} // namespace bench
