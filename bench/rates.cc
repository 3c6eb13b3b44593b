/* rates.cc -- `rates`: how exactly a rate is kept whose units are finer than the clock's grain; and what sub-windows of
 * a sliding limit cost.
 *   part      units that one thread got which asked without a pause, over what the rate allows in that time: a rate of
 *             so many a second (TW_SHAPE_GCRA), burst 1
 *   slept     calls that were admitted, of those made after a sleep of retry_after_ms
 *   ns        of a tw_acquire() of a sliding limit that is admitted, one thread, 1,000 keys; each key has counted in
 *             every sub-window. By a clock of the program's own, which moves only between the windows
 *   bytes     of such a key, all its windows together: by how much the process grew
 * Always true: nothing above the rate was admitted. */
#include "bench/bench.h"

#include <cstdio>
#include <ctime>
#include <string>
#include <tallywheel.h>
#include <vector>

namespace bench {

namespace {

constexpr int64_t rates[] = {500, 5000, 50000};
constexpr uint32_t parts[] = {1, 10, 64};
constexpr uint64_t timed_keys = 1000;

/* A clock that stands still until the program moves it. */
int64_t clock_ns = INT64_C(1700002800000) * 1000000;
int64_t own_clock(void *, int) {
    return clock_ns;
}

class Limited {
  public:
    Limited(Child &child, uint32_t shape, int64_t burst, uint32_t sub_windows, int64_t window_ms) {
        tw_options options;
        tw_family_options family;
        tw_options_init(&options);
        tw_family_options_init(&family);
        if (shape == TW_SHAPE_SLIDING) {
            options.clock_now_ns = own_clock;
            options.threads = TW_HOST_DRIVEN;
        }
        family.name = "f";
        family.limit_shape = shape;
        family.burst = burst;
        family.sub_windows = sub_windows;
        family.window_ms = window_ms;
        if (tw_open(&options, &engine_) != TW_OK || tw_family_open(engine_, &family, &family_) != TW_OK)
            child.fail("could not be made: %s", tw_error_text());
    }
    ~Limited() {
        (void)tw_close(engine_, 0);
    }
    Limited(const Limited &) = delete;
    Limited &operator=(const Limited &) = delete;
    tw_family *family() const {
        return family_;
    }
    /* Turns until everything that can be done now is done. */
    void settle() const {
        do {
            (void)tw_turn(engine_);
        } while (tw_timeout_ms(engine_) == 0);
    }

  private:
    tw_engine *engine_ = nullptr;
    tw_family *family_ = nullptr;
};

const tw_key key = tw_str("user:1000");

void measure_rate(Child &child, int64_t rate, double seconds) {
    Limited limited(child, TW_SHAPE_GCRA, 1, 0, 1000);
    int64_t got = 0;
    double from_s = now_s(), s = from_s;
    while (s < from_s + seconds) {
        got += tw_acquire(limited.family(), key, 1, rate, nullptr) == TW_OK;
        s = now_s();
    }
    double allowed = (s - from_s) * static_cast<double>(rate);
    if (static_cast<double>(got) > allowed + 2)
        child.fail("%lld admitted of %.0f", static_cast<long long>(got), allowed);
    child.put(bench_ours(), "rates", std::to_string(rate).c_str(), 1, "part", static_cast<double>(got) / allowed);
}

void measure_sleep(Child &child, int64_t rate, double seconds) {
    Limited limited(child, TW_SHAPE_GCRA, 1, 0, 1000);
    int64_t slept = 0, admitted = 0;
    for (double until_s = now_s() + seconds; now_s() < until_s;) {
        tw_verdict verdict;
        if (tw_acquire(limited.family(), key, 1, rate, &verdict) == TW_OK) continue;
        const struct timespec time = {verdict.retry_after_ms / 1000, verdict.retry_after_ms % 1000 * 1000000};
        (void)nanosleep(&time, nullptr);
        slept++;
        admitted += tw_acquire(limited.family(), key, 1, rate, nullptr) == TW_OK;
    }
    child.put(bench_ours(), "rates", std::to_string(rate).c_str(), 1, "slept",
              static_cast<double>(admitted) / static_cast<double>(slept));
}

/* Counts each key once in every sub-window of a minute. */
void fill(Child &child, const Limited &limited, uint32_t sub_windows, uint64_t keys) {
    for (uint32_t window = 0; window <= sub_windows; window++) {
        for (uint64_t i = 0; i < keys; i++)
            if (tw_acquire(limited.family(), tw_bytes(&i, sizeof i), 1, TW_DELTA_MAX, nullptr) != TW_OK)
                child.fail("a key found no room");
        if (window == sub_windows) break;
        clock_ns += (TW_MINUTE + sub_windows - 1) / sub_windows * INT64_C(1000000);
        limited.settle();
    }
}

void measure_sub_windows(Child &child, uint32_t sub_windows, uint64_t ops, uint64_t keys) {
    const std::string variant = std::to_string(sub_windows);
    {
        Limited limited(child, TW_SHAPE_SLIDING, 0, sub_windows, TW_MINUTE);
        uint64_t before = anonymous_bytes();
        fill(child, limited, sub_windows, keys);
        child.put(bench_ours(), "sub-windows", variant.c_str(), 1, "bytes",
                  static_cast<double>(anonymous_bytes() - before) / static_cast<double>(keys));
    }
    Limited limited(child, TW_SHAPE_SLIDING, 0, sub_windows, TW_MINUTE);
    fill(child, limited, sub_windows, timed_keys);
    double from_s = now_s();
    tw_verdict verdict;
    for (uint64_t i = 0; i < ops; i++) {
        uint64_t number = i % timed_keys;
        (void)tw_acquire(limited.family(), tw_bytes(&number, sizeof number), 1, TW_DELTA_MAX, &verdict);
    }
    child.put(bench_ours(), "sub-windows", variant.c_str(), 1, "ns",
              (now_s() - from_s) * 1e9 / static_cast<double>(ops));
}

} // namespace

void command_rates(Bench &bench) {
    uint64_t ops = bench.options.ops != 0 ? bench.options.ops : 200000;
    uint64_t keys = bench.options.keys != 0 ? bench.options.keys : 20000;
    double seconds = bench.options.seconds != 0 ? bench.options.seconds : 1;
    for (int round = 0; round < bench.rounds(5); round++) {
        for (int64_t rate : rates) {
            bench.measure("rates", natural, round, bench_ours(),
                          [&](Child &child) { measure_rate(child, rate, seconds); });
            bench.measure("rates", natural, round, bench_ours(),
                          [&](Child &child) { measure_sleep(child, rate, seconds); });
        }
        for (uint32_t sub_windows : parts)
            bench.measure("rates", natural, round, bench_ours(),
                          [&](Child &child) { measure_sub_windows(child, sub_windows, ops, keys); });
    }
    std::vector<Column> admitted, slept, cost;
    for (int64_t rate : rates) {
        const std::string name = std::to_string(rate);
        admitted.push_back({name + " a second", name, 1, "part", false, false, 3});
        slept.push_back({name + " a second", name, 1, "slept", false, false, 3});
    }
    for (uint32_t sub_windows : parts) {
        const std::string name = std::to_string(sub_windows);
        cost.push_back({name + ", ns", name, 1, "ns"});
        cost.push_back({name + ", bytes", name, 1, "bytes"});
    }
    bench.report.table("admitted over what the rate allows, burst 1, one thread that asks without a pause", "rates",
                       "rates", natural, admitted);
    bench.report.table("admitted after a sleep of retry_after_ms, over all sleeps, burst 1", "rates", "rates", natural,
                       slept);
    bench.report.table("a sliding limit by its sub_windows: a call, and a key with all its windows (" +
                           std::to_string(keys) + " keys)",
                       "rates", "sub-windows", natural, cost);
    bench.report.write_csv("rates");
}

} // namespace bench
