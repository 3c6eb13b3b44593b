/* shared.cc -- `shared`: what a call costs in an engine that several processes share, beside one engine for each of
 * them. The engine is opened and its keys are made before the fork, as a server does it; then each of 1, 2, 4 ...
 * processes adds to all keys, in an order of its own, at the same time as the others.
 * Always true: in the end the shared table holds what all processes have added, and each private one what its process
 * has added. */
#include "bench/bench.h"

#include <algorithm>
#include <cstdio>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace bench {

namespace {

/* In memory that all processes share. */
struct Meeting {
    pthread_barrier_t gate;
    double ns[1024];
    bool right[1024];
};

Meeting *make_meeting(Child &child, unsigned processes) {
    void *map = mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) child.fail("no memory");
    auto *meeting = static_cast<Meeting *>(map);
    pthread_barrierattr_t attributes;
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&meeting->gate, &attributes, processes);
    return meeting;
}

/* How often a process goes through the stream: once to warm up, then so often while its time is taken. */
int passes(const Stream &stream, uint64_t ops) {
    return static_cast<int>(std::max<uint64_t>(1, ops / stream.count()));
}

void add_in_process(const bench_peer *peer, void *self, const Stream &keys, const Stream &stream, uint64_t ops,
                    unsigned process, Meeting *meeting) {
    pin_to(process % cores());
    bool is_private = peer == bench_ours();
    /* Its engine begins without counts. */
    if (is_private) peer->add(self, keys.at(0), keys.count());
    size_t first = stream.count() / 64 * process % stream.count(); /* each begins elsewhere */
    auto pass = [&] {
        peer->add(self, stream.at(first), stream.count() - first);
        peer->add(self, stream.at(0), first);
    };
    pass();
    pthread_barrier_wait(&meeting->gate);
    double begin = now_s();
    for (int i = 0; i < passes(stream, ops); i++) pass();
    meeting->ns[process] = (now_s() - begin) * 1e9 / static_cast<double>(stream.count()) / passes(stream, ops);
    pthread_barrier_wait(&meeting->gate); /* nobody checks, and burdens memory, while others are measured */
    bench_total total;
    auto mine = static_cast<int64_t>(keys.count() + stream.count() * (static_cast<uint64_t>(passes(stream, ops)) + 1));
    meeting->right[process] = peer->total(self, &total) && (!is_private || total.sum == mine);
}

void measure_processes(Child &child, const bench_peer *peer, const Stream &keys, const Stream &stream,
                       const char *variant, uint64_t ops, unsigned processes) {
    bench_setup setup = {};
    setup.stride = keys.stride();
    setup.threads = processes;
    void *self = peer->make(&setup);
    if (self == nullptr) child.fail("could not be made");
    peer->add(self, keys.at(0), keys.count());
    Meeting *meeting = make_meeting(child, processes);
    for (unsigned i = 0; i < processes; i++) {
        pid_t pid = fork();
        if (pid < 0) child.fail("no process");
        if (pid != 0) continue;
        add_in_process(peer, self, keys, stream, ops, i, meeting);
        _exit(0);
    }
    for (unsigned i = 0; i < processes; i++) {
        int status;
        if (wait(&status) < 0 || status != 0) child.fail("a process did not end well");
    }
    double ns = 0;
    for (unsigned i = 0; i < processes; i++) {
        if (!meeting->right[i]) child.fail("WRONG SUM, or a wrong answer, in a process");
        ns += meeting->ns[i] / processes;
    }
    auto sum = static_cast<int64_t>(keys.count());
    if (peer != bench_ours()) sum += static_cast<int64_t>(stream.count()) * (passes(stream, ops) + 1) * processes;
    child.check(peer, self, sum, keys.count());
    child.put(peer, "shared", variant, processes, "ns", ns);
}

} // namespace

void command_shared(Bench &bench) {
    uint64_t many = bench.options.keys != 0 ? bench.options.keys : 2000000;
    const struct {
        const char *variant;
        uint64_t keys, ops;
    } cases[] = {{"1000 keys", 1000, 4000000}, {"many keys", many, 2 * many}};
    std::vector<const bench_peer *> everyone = {bench_ours(), bench_ours_shared()};
    std::vector<Column> columns;
    for (const auto &one : cases) {
        Stream keys = stream_all(natural, one.keys), stream = stream_uniform(natural, one.keys, one.keys, 1);
        uint64_t ops = bench.options.ops != 0 ? bench.options.ops : one.ops;
        for (unsigned processes : bench.options.threads) {
            rotate<const bench_peer *>(everyone, bench.rounds(5), [&](int round, const bench_peer *const &peer) {
                bench.measure("shared", natural, round, peer, [&](Child &child) {
                    measure_processes(child, peer, keys, stream, one.variant, ops, processes);
                });
            });
            columns.push_back(
                {std::string(one.variant) + ", " + std::to_string(processes), one.variant, processes, "ns", true});
        }
    }
    bench.report.table("one engine for all processes, beside one for each; ns a call, by processes that add", "shared",
                       "shared", natural, columns);
    bench.report.write_csv("shared");
}

} // namespace bench
