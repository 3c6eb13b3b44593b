/* bench.cc -- what the commands share: the choice of peers, and loading. */
#include "bench/bench.h"

#include "bench/peers/peers.h"

#include <algorithm>
#include <cstdio>
#include <unistd.h>

namespace bench {

uint64_t Bench::keys_large() const {
    if (options.keys != 0) return options.keys;
    /* The largest peer takes about 350 bytes a counter; streams and the rest of this process take 150. */
    static const uint64_t fit = available_bytes() / 500;
    return std::min<uint64_t>(10000000, std::max<uint64_t>(fit, 100000));
}

unsigned Bench::threads_most() const {
    return *std::max_element(options.threads.begin(), options.threads.end());
}

static bool contains_one_of(const std::string &name, const std::vector<std::string> &wanted) {
    return wanted.empty() || std::any_of(wanted.begin(), wanted.end(),
                                         [&](const std::string &one) { return name.find(one) != std::string::npos; });
}

bool Bench::wants(const bench_peer *peer) const {
    return contains_one_of(peer->name, options.peers);
}

bool Bench::wants_case(const std::string &name) const {
    return contains_one_of(name, options.cases);
}

void Bench::measure(const std::string &command, unsigned key_bytes, int round, const bench_peer *peer,
                    const std::function<void(Child &)> &work) {
    std::vector<Metric> metrics;
    std::string failure;
    bool watched = isatty(STDERR_FILENO) != 0;
    if (watched)
        std::fprintf(stderr, "\r%-60s\r%s, round %d: %s %s", "", command.c_str(), round + 1, peer->name, peer->form);
    bool well = run_child(work, metrics, failure);
    if (watched) std::fprintf(stderr, "\r%-60s\r", "");
    if (well)
        report.add(command, key_bytes, round, metrics);
    else if (failure.rfind(gave_up, 0) == 0 && std::string(peer->name) != ours_name)
        std::printf("left out of round %d: %s %s %s\n", round + 1, peer->name, peer->form, failure.c_str());
    else
        report.fail(command + ", " + peer->name + " " + peer->form + ": " + failure);
}

uint64_t keys_expected_by(const bench_peer *peer, uint64_t keys) {
    return std::string(peer->name) == ours_name && peer != bench_ours_sized() ? 0 : keys;
}

std::vector<const bench_peer *> peers_for(const Bench &bench, uint32_t stride) {
    std::vector<const bench_peer *> all;
    (void)stride; /* unused where no peer was built */
#ifdef BENCH_WITH_TBB
    all.push_back(bench_tbb(stride, false));
    all.push_back(bench_tbb(stride, true));
#endif
#ifdef BENCH_WITH_CUCKOO
    all.push_back(bench_cuckoo(stride, false));
    all.push_back(bench_cuckoo(stride, true));
#endif
#ifdef BENCH_WITH_ABSL
    all.push_back(bench_absl(stride, false));
    all.push_back(bench_absl(stride, true));
#endif
#ifdef BENCH_WITH_GLIB
    all.push_back(bench_glib(stride, false));
    all.push_back(bench_glib(stride, true));
#endif
#ifdef BENCH_WITH_URCU
    all.push_back(bench_urcu(stride));
#endif
#ifdef BENCH_WITH_CK
    all.push_back(bench_ck(stride));
#endif
    all.erase(std::remove_if(all.begin(), all.end(), [&](const bench_peer *peer) { return !bench.wants(peer); }),
              all.end());
    return all;
}

void print_left_out() {
#ifndef BENCH_WITH_TBB
    std::printf("left out: oneTBB (libtbb-dev was not installed when this was built)\n");
#endif
#ifndef BENCH_WITH_CUCKOO
    std::printf("left out: libcuckoo (libcuckoo-dev was not installed when this was built)\n");
#endif
#ifndef BENCH_WITH_ABSL
    std::printf("left out: Abseil (libabsl-dev was not installed when this was built)\n");
#endif
#ifndef BENCH_WITH_GLIB
    std::printf("left out: GLib (libglib2.0-dev was not installed when this was built)\n");
#endif
#ifndef BENCH_WITH_URCU
    std::printf("left out: liburcu (liburcu-dev was not installed when this was built)\n");
#endif
#ifndef BENCH_WITH_CK
    std::printf("left out: ck_ht (libck-dev was not installed when this was built)\n");
#endif
#ifndef BENCH_WITH_HIREDIS
    std::printf("left out: Redis (libhiredis-dev was not installed when this was built)\n");
#endif
}

Loaded::Loaded(Child &to, const bench_peer *of, const bench_setup &setup, const Stream &all, unsigned threads)
    : child(to), peer(of) {
    uint64_t before = anonymous_bytes();
    bench_setup one = setup;
    for (unsigned i = 0; i < all.families(); i++) {
        selves.push_back(peer->make(&one));
        if (selves[i] == nullptr) child.fail("could not be made");
        one.beside = selves[0];
    }
    self = selves[0];
    Plan plan;
    plan.peer = peer;
    plan.self = self;
    plan.stream = &all;
    plan.threads = threads;
    if (all.families() != 1)
        plan.calls = [&](size_t at, size_t count, bench_histogram &) {
            for (size_t i = at; i < at + count; i++) peer->add(selves[all.family(i)], all.at(i), 1);
        };
    run_threads(plan);
    sum = static_cast<int64_t>(all.count());
    counters = all.count();
    bytes = static_cast<double>(anonymous_bytes() - before) / static_cast<double>(counters);
}

/* False: its calls are denied. */
static bool counts(const bench_peer *form) {
    return form != bench_ours_denied() && form != bench_ours_denied_silent();
}

Outcome Loaded::run(const bench_peer *form, const char *workload, const char *variant, Plan plan, uint64_t fresh) {
    if (form->add == nullptr || (plan.mode == Mode::dependent && form->add_dependent == nullptr)) return {};
    plan.peer = form;
    plan.self = self;
    if (fresh == 0 && plan.ops != 0) {
        Plan warm = plan;
        warm.ops = plan.ops / 10;
        warm.seconds = 0;
        uint64_t ops = run_threads(warm).ops;
        if (counts(form)) sum += static_cast<int64_t>(ops);
    }
    Outcome outcome = run_threads(plan);
    if (counts(form)) sum += static_cast<int64_t>(outcome.ops);
    counters += fresh;
    child.put_outcome(form, workload, variant, outcome);
    return outcome;
}

} // namespace bench
