/* run.h -- runs a peer in a child process of its own, with threads that start together, and checks each sum.
 * Always true: what a child measured reaches the report only if the child ended well and its sums were right. */
#ifndef BENCH_RUN_H
#define BENCH_RUN_H

#include "bench/peer.h"
#include "bench/stream.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace bench {

/* ---- one run of threads over a stream ---- */

enum class Mode { plain, dependent, timed };

struct Plan {
    const bench_peer *peer;
    void *self;
    const Stream *stream;
    unsigned threads = 1;
    Mode mode = Mode::plain;
    uint64_t ops = 0;     /* of all threads together; 0: the stream once, each thread a part of it */
    double seconds = 0;   /* if not 0: runs until this time is up, whatever `ops` says */
    double ops_per_s = 0; /* timed calls only: each thread makes at most so many a second */
    size_t first = 0;     /* the key of the stream with which one thread alone begins */
    /* Calls of the caller's own, in place of `mode`: for `count` keys of the stream, from key `at` on. */
    std::function<void(size_t at, size_t count, bench_histogram &)> calls;
};

struct Outcome {
    double seconds = 0;
    uint64_t ops = 0;
    uint64_t faults = 0;   /* minor page faults of the adding threads */
    uint64_t switches = 0; /* involuntary context switches of the adding threads */
    bench_histogram histogram = {};
    double ns() const { /* per call and thread */
        return seconds * 1e9 * threads / static_cast<double>(ops);
    }
    double mops() const {
        return static_cast<double>(ops) / seconds / 1e6;
    }
    unsigned threads = 1;
};

Outcome run_threads(const Plan &plan);

/* The time of a call in ns at quantile q. */
double quantile_ns(const bench_histogram &histogram, double q);
double ns_per_tick();

/* ---- a child ---- */

struct Metric {
    char peer[24], form[24];
    char workload[16];
    char variant[24];
    unsigned threads;
    char metric[16];
    double value;
};

class Child {
  public:
    /* Puts a figure that was measured. */
    void put(const bench_peer *peer, const char *workload, const char *variant, unsigned threads, const char *metric,
             double value);
    void put_outcome(const bench_peer *peer, const char *workload, const char *variant, const Outcome &outcome);
    void put_quantiles(const bench_peer *peer, const char *workload, const char *variant, unsigned threads,
                       const bench_histogram &histogram);
    /* The quantiles, and a curve of them. */
    void put_latency(const bench_peer *peer, const char *workload, const char *variant, unsigned threads,
                     const bench_histogram &histogram);
    /* Ends the child. Nothing that it measured counts. */
    [[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 2, 3)));
    /* Fails unless the peer has so many counters and they add up to `sum`. */
    void check(const bench_peer *peer, void *self, int64_t sum, uint64_t counters);
    /* The same of all these tables of the peer together. */
    void check_all(const bench_peer *peer, const std::vector<void *> &selves, int64_t sum, uint64_t counters);

    static constexpr size_t metrics_max = 16384;
    struct Shared {
        char failure[256];
        bool done;
        size_t count;
        Metric metrics[metrics_max];
    };
    Shared *shared = nullptr;
};

/* Runs `work` in a forked child. False: it failed, and `failure` says how. If the child was ended after ten minutes,
 * that begins with `gave_up`. */
extern const char gave_up[];
bool run_child(const std::function<void(Child &)> &work, std::vector<Metric> &metrics, std::string &failure);

/* ---- the machine ---- */

double now_s();
double own_cpu_s(); /* of this process, all its threads */
unsigned cores();
uint64_t anonymous_bytes(); /* resident, of this process */
uint64_t available_bytes(); /* of the machine */
void pin_to(unsigned core);

} // namespace bench
#endif
