/* bench.h -- the options that every command of the benchmark takes, and the commands.
 * Always true: no command asserts speed; a wrong sum fails. */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include "bench/peer.h"
#include "bench/report.h"
#include "bench/run.h"
#include "bench/stream.h"

#include <string>
#include <vector>

namespace bench {

struct Options {
    int rounds = 0;                 /* 0: the command's own number */
    double seconds = 0;             /* of one measurement; 0: by calls */
    uint64_t ops = 0;               /* calls of one measurement; 0: the workload's own number */
    uint64_t keys = 0;              /* of the large workloads; 0: 10 million, fewer where memory is short */
    std::vector<unsigned> threads;  /* 1, 2, 4 ... cores */
    std::vector<std::string> peers; /* only those whose name contains one of these; empty: all */
    std::vector<std::string> cases; /* the same of the cases of `alone` */
    std::string csv, folder = ".";
};

struct Bench {
    Options options;
    Report report;

    int rounds(int usual) const {
        return options.rounds != 0 ? options.rounds : usual;
    }
    uint64_t keys_large() const;
    unsigned threads_most() const;
    bool wants(const bench_peer *peer) const;
    bool wants_case(const std::string &name) const;
    /* Runs one child. Its figures, or its failure, go into the report. */
    void measure(const std::string &command, unsigned key_bytes, int round, const bench_peer *peer,
                 const std::function<void(Child &)> &work);
};

/* All tables to compare Tallywheel with, for slots of `stride` bytes, as far as --peers names them. */
std::vector<const bench_peer *> peers_for(const Bench &bench, uint32_t stride);
/* How many keys `peer` is made for. Ours grows, as it does for users who set no keys_expected; every peer that can be
 * sized, and our form "sized", gets the number. */
uint64_t keys_expected_by(const bench_peer *peer, uint64_t keys);
/* Prints a line for each peer that was left out of the build. */
void print_left_out();

/* Calls `work` for each of `all`, once per round. Each round begins with another one. */
template <class T> void rotate(const std::vector<T> &all, int rounds, const std::function<void(int, const T &)> &work) {
    for (int round = 0; round < rounds; round++)
        for (size_t i = 0; i < all.size(); i++) work(round, all[(i + static_cast<size_t>(round)) % all.size()]);
}

/* The time of one operation, in ns. `work` returns how many it did; it is called once before, to warm up. */
template <class Work> double ns_of(const Work &work) {
    work();
    double begin = now_s();
    uint64_t ops = work();
    return (now_s() - begin) * 1e9 / static_cast<double>(ops);
}

/* A loaded table, with the sum and the number of counters that must come out in the end. If the stream deals its keys
 * out to several families, there is a table for each. */
struct Loaded {
    Child &child;
    const bench_peer *peer;
    void *self = nullptr; /* the first of `selves` */
    std::vector<void *> selves;
    int64_t sum = 0;
    uint64_t counters = 0;
    double bytes = 0; /* per counter: by how much the process grew */

    Loaded(Child &to, const bench_peer *of, const bench_setup &setup, const Stream &all, unsigned threads);
    /* A measured run with this peer or another form of it. It warms up with a tenth of the run, unless keys are new. */
    Outcome run(const bench_peer *form, const char *workload, const char *variant, Plan plan, uint64_t fresh = 0);
    void check() {
        child.check_all(peer, selves, sum, counters);
    }
};

void command_add(Bench &bench);
void command_alone(Bench &bench);
void command_many(Bench &bench);
void command_hot(Bench &bench);
void command_grow(Bench &bench);
void command_rollover(Bench &bench);
void command_shared(Bench &bench);
void command_acquire(Bench &bench);
void command_memory(Bench &bench);
void command_top(Bench &bench);
void command_redis(Bench &bench);
void command_sync(Bench &bench);
void command_tls(Bench &bench);
void command_cluster(Bench &bench);
void command_engines(Bench &bench);
void command_strict(Bench &bench);
void command_scripts(Bench &bench);
void command_neighbour(Bench &bench);
void command_distinct(Bench &bench);
void command_rates(Bench &bench);
void command_floor(Bench &bench);

} // namespace bench
#endif
