/* distinct.cc -- `distinct`: what adding an element to a distinct count costs, beside an add to a counter; and what
 * many small sketches cost.
 *   counter   tw_add() to one key
 *   small     tw_distinct_add() to one key that has ten elements
 *   large     tw_distinct_add() to one key that has some 400,000: the elements were all there before
 *   growing   the same while each element is new
 *   ns        of a call, one thread; ratio: over `counter`
 *   bytes     of a key with ten elements, a million of them: by how much the process grew
 * Always true: the estimates are within 3 % of what was added. */
#include "bench/bench.h"

#include <cmath>
#include <cstdio>
#include <string>
#include <tallywheel.h>
#include <vector>

namespace bench {

namespace {

constexpr size_t elements_most = 400000;

class Counted {
  public:
    Counted(Child &child, uint32_t kind, uint64_t keys) : child_(child) {
        tw_options options;
        tw_family_options family;
        tw_options_init(&options);
        tw_family_options_init(&family);
        family.name = "f";
        family.kind = kind;
        family.window = TW_WINDOW_FOREVER;
        family.keys_expected = keys;
        if (tw_open(&options, &engine_) != TW_OK || tw_family_open(engine_, &family, &family_) != TW_OK)
            child.fail("could not be made");
    }
    ~Counted() {
        (void)tw_close(engine_, 0);
    }
    Counted(const Counted &) = delete;
    Counted &operator=(const Counted &) = delete;
    tw_family *family() const {
        return family_;
    }
    void expect(tw_key key, double elements) const {
        int64_t estimate = 0;
        if (tw_distinct_get(family_, key, &estimate) != TW_OK ||
            std::fabs(static_cast<double>(estimate) / elements - 1) > 0.03)
            child_.fail("WRONG ESTIMATE: %lld of %.0f", static_cast<long long>(estimate), elements);
    }

  private:
    Child &child_;
    tw_engine *engine_ = nullptr;
    tw_family *family_ = nullptr;
};

const std::vector<std::string> &elements() {
    static const std::vector<std::string> all = [] {
        std::vector<std::string> made;
        char text[32];
        for (size_t i = 0; i < elements_most; i++) {
            std::snprintf(text, sizeof text, "visitor:%08zu", i);
            made.emplace_back(text);
        }
        return made;
    }();
    return all;
}

template <class Call> void time_calls(Child &child, const char *variant, uint64_t ops, const Call &call) {
    double from_s = now_s();
    for (uint64_t i = 0; i < ops; i++) call(i);
    child.put(bench_ours(), "distinct", variant, 1, "ns", (now_s() - from_s) * 1e9 / static_cast<double>(ops));
}

void measure_calls(Child &child, uint64_t ops) {
    const tw_key key = tw_str("page:/index.html");
    const std::vector<std::string> &all = elements();
    auto element = [&](uint64_t i) { return tw_bytes(all[i].data(), all[i].size()); };
    Counted counters(child, TW_KIND_COUNTER, 1000);
    Counted sketches(child, TW_KIND_DISTINCT, 1000);
    int64_t view;
    bool changed;
    if (tw_add(counters.family(), key, 1, &view) != TW_OK) child.fail("no add");
    time_calls(child, "counter", ops, [&](uint64_t) { (void)tw_add(counters.family(), key, 1, &view); });
    time_calls(child, "small", ops,
               [&](uint64_t i) { (void)tw_distinct_add(sketches.family(), key, element(i % 10), &changed); });
    sketches.expect(key, 10);
    time_calls(child, "growing", elements_most,
               [&](uint64_t i) { (void)tw_distinct_add(sketches.family(), key, element(i), &changed); });
    sketches.expect(key, elements_most);
    time_calls(child, "large", ops,
               [&](uint64_t i) { (void)tw_distinct_add(sketches.family(), key, element(i % 1000), &changed); });
    sketches.expect(key, elements_most);
}

void measure_bytes(Child &child, uint64_t keys) {
    Counted sketches(child, TW_KIND_DISTINCT, 0);
    uint64_t before = anonymous_bytes();
    for (uint64_t i = 0; i < keys; i++)
        for (uint64_t j = 0; j < 10; j++) {
            uint64_t element = i * 10 + j;
            if (tw_distinct_add(sketches.family(), tw_bytes(&i, sizeof i), tw_bytes(&element, sizeof element),
                                nullptr) != TW_OK)
                child.fail("an element found no room");
        }
    child.put(bench_ours(), "bytes", "ten", 1, "bytes",
              static_cast<double>(anonymous_bytes() - before) / static_cast<double>(keys));
}

} // namespace

void command_distinct(Bench &bench) {
    uint64_t ops = bench.options.ops != 0 ? bench.options.ops : 5000000;
    uint64_t keys = bench.options.keys != 0 ? bench.options.keys : 1000000;
    for (int round = 0; round < bench.rounds(5); round++)
        bench.measure("distinct", natural, round, bench_ours(), [&](Child &child) { measure_calls(child, ops); });
    bench.measure("distinct", natural, 0, bench_ours(), [&](Child &child) { measure_bytes(child, keys); });
    bench.report.table("an element added to a distinct count, ns, one thread", "distinct", "distinct", natural,
                       {{"counter", "counter", 1, "ns"},
                        {"small", "small", 1, "ns"},
                        {"large", "large", 1, "ns"},
                        {"growing", "growing", 1, "ns"}});
    bench.report.table("a key of ten elements, " + std::to_string(keys) + " of them", "distinct", "bytes", natural,
                       {{"bytes", "ten", 1, "bytes"}});
    bench.report.write_csv("distinct");
}

} // namespace bench
