/* run.cc -- see run.h. */
#include "bench/run.h"

#include <algorithm>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <time.h>
#include <unistd.h>

namespace bench {

/* ---- the machine ---- */

double now_s() {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

static double seconds(const struct timeval &time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

double own_cpu_s() {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

unsigned cores() {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    return static_cast<unsigned>(CPU_COUNT(&set));
}

void pin_to(unsigned core) {
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof all, &all) != 0) return;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &all) || core-- != 0) continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        (void)sched_setaffinity(0, sizeof one, &one);
        return;
    }
}

static uint64_t kilobytes_of(const char *file, const char *field) {
    FILE *lines = std::fopen(file, "r");
    char line[256];
    uint64_t value = 0;
    while (lines != nullptr && std::fgets(line, sizeof line, lines) != nullptr)
        if (std::strncmp(line, field, std::strlen(field)) == 0)
            value = std::strtoull(line + std::strlen(field), nullptr, 10);
    if (lines != nullptr) std::fclose(lines);
    return value * 1024;
}

uint64_t anonymous_bytes() {
    return kilobytes_of("/proc/self/status", "RssAnon:");
}

uint64_t available_bytes() {
    return kilobytes_of("/proc/meminfo", "MemAvailable:");
}

double ns_per_tick() {
    static const double known = [] {
        uint64_t first = bench_ticks();
        double begin = now_s(), end;
        while ((end = now_s()) - begin < 0.05) {}
        return (end - begin) * 1e9 / static_cast<double>(bench_ticks() - first);
    }();
    return known;
}

double quantile_ns(const bench_histogram &histogram, double q) {
    if (histogram.count == 0) return 0;
    uint64_t rank = static_cast<uint64_t>(q * static_cast<double>(histogram.count)), seen = 0;
    for (uint32_t cell = 0; cell < BENCH_CELLS; cell++) {
        seen += histogram.cells[cell];
        if (seen > rank) return static_cast<double>(std::min(bench_cell_end(cell), histogram.largest)) * ns_per_tick();
    }
    return static_cast<double>(histogram.largest) * ns_per_tick();
}

/* ---- threads ---- */

namespace {

constexpr size_t run_keys = 1024; /* keys of one call through the peer's pointers */

struct Adder {
    const Plan *plan;
    unsigned index;
    pthread_barrier_t *gate;
    double begin = 0, end = 0;
    uint64_t ops = 0, faults = 0, switches = 0;
    int64_t seen = 0;
    bench_histogram histogram = {};
};

void step(Adder &adder, size_t at, size_t count) {
    const Plan &plan = *adder.plan;
    const unsigned char *slots = plan.stream->at(at);
    if (plan.calls)
        plan.calls(at, count, adder.histogram);
    else if (plan.mode == Mode::timed)
        plan.peer->add_timed(plan.self, slots, count, &adder.histogram);
    else if (plan.mode == Mode::dependent)
        adder.seen ^= plan.peer->add_dependent(plan.self, slots, count);
    else
        adder.seen ^= plan.peer->add(plan.self, slots, count);
    adder.ops += count;
}

/* Makes small runs at even distances. Between them the thread spins, as a busy server would. */
void step_paced(Adder &adder, size_t at, size_t count) {
    constexpr size_t some = 16;
    for (size_t done = 0; done < count; done += some) {
        double due = adder.begin + static_cast<double>(adder.ops) / adder.plan->ops_per_s;
        while (now_s() < due) {}
        step(adder, at + done, std::min(some, count - done));
    }
}

void add_all(Adder &adder) {
    const Plan &plan = *adder.plan;
    size_t count = plan.stream->count();
    size_t first = count * adder.index / plan.threads, next = count * (adder.index + 1) / plan.threads;
    bool once = plan.ops == 0 && plan.seconds == 0;
    /* Once: each thread runs its own part. Else each goes round and round, from a place of its own. */
    uint64_t most = once ? next - first : plan.seconds != 0 ? UINT64_MAX : plan.ops / plan.threads;
    size_t at = (first + plan.first) % count;
    while (adder.ops < most) {
        size_t some = static_cast<size_t>(std::min<uint64_t>({run_keys, count - at, most - adder.ops}));
        if (plan.ops_per_s != 0)
            step_paced(adder, at, some);
        else
            step(adder, at, some);
        if ((at += some) == count) at = 0;
        if (plan.seconds != 0 && now_s() - adder.begin >= plan.seconds) break;
    }
}

void *adder_main(void *arg) {
    Adder &adder = *static_cast<Adder *>(arg);
    const Plan &plan = *adder.plan;
    if (plan.threads <= cores()) pin_to(adder.index);
    if (plan.peer->enter != nullptr) plan.peer->enter(plan.self);
    struct rusage before, after;
    pthread_barrier_wait(adder.gate);
    getrusage(RUSAGE_THREAD, &before);
    adder.begin = now_s();
    add_all(adder);
    adder.end = now_s();
    getrusage(RUSAGE_THREAD, &after);
    adder.faults = static_cast<uint64_t>(after.ru_minflt - before.ru_minflt);
    adder.switches = static_cast<uint64_t>(after.ru_nivcsw - before.ru_nivcsw);
    if (plan.peer->leave != nullptr) plan.peer->leave(plan.self);
    return nullptr;
}

void merge(Outcome &outcome, const Adder &adder) {
    outcome.ops += adder.ops;
    outcome.faults += adder.faults;
    outcome.switches += adder.switches;
    outcome.histogram.count += adder.histogram.count;
    outcome.histogram.largest = std::max(outcome.histogram.largest, adder.histogram.largest);
    for (uint32_t cell = 0; cell < BENCH_CELLS; cell++) outcome.histogram.cells[cell] += adder.histogram.cells[cell];
}

} // namespace

Outcome run_threads(const Plan &plan) {
    pthread_barrier_t gate;
    pthread_barrier_init(&gate, nullptr, plan.threads);
    std::vector<Adder> adders(plan.threads);
    std::vector<pthread_t> threads(plan.threads);
    for (unsigned i = 0; i < plan.threads; i++) {
        adders[i].plan = &plan;
        adders[i].index = i;
        adders[i].gate = &gate;
        if (pthread_create(&threads[i], nullptr, adder_main, &adders[i]) != 0) std::abort();
    }
    Outcome outcome;
    double begin = 1e300, end = 0;
    for (unsigned i = 0; i < plan.threads; i++) {
        pthread_join(threads[i], nullptr);
        merge(outcome, adders[i]);
        begin = std::min(begin, adders[i].begin);
        end = std::max(end, adders[i].end);
    }
    pthread_barrier_destroy(&gate);
    outcome.seconds = end - begin;
    outcome.threads = plan.threads;
    return outcome;
}

/* ---- a child ---- */

void Child::put(const bench_peer *peer, const char *workload, const char *variant, unsigned threads, const char *metric,
                double value) {
    if (shared->count == metrics_max) fail("too many figures");
    Metric &at = shared->metrics[shared->count++];
    std::snprintf(at.peer, sizeof at.peer, "%s", peer->name);
    std::snprintf(at.form, sizeof at.form, "%s", peer->form);
    std::snprintf(at.workload, sizeof at.workload, "%s", workload);
    std::snprintf(at.variant, sizeof at.variant, "%s", variant);
    at.threads = threads;
    std::snprintf(at.metric, sizeof at.metric, "%s", metric);
    at.value = value;
}

void Child::put_outcome(const bench_peer *peer, const char *workload, const char *variant, const Outcome &outcome) {
    put(peer, workload, variant, outcome.threads, "ns", outcome.ns());
    put(peer, workload, variant, outcome.threads, "mops", outcome.mops());
}

void Child::put_quantiles(const bench_peer *peer, const char *workload, const char *variant, unsigned threads,
                          const bench_histogram &histogram) {
    static const struct {
        const char *name;
        double q;
    } points[] = {{"p50", 0.5}, {"p99", 0.99}, {"p99.9", 0.999}, {"p99.99", 0.9999}, {"p99.999", 0.99999}};
    for (auto &point : points) put(peer, workload, variant, threads, point.name, quantile_ns(histogram, point.q));
    put(peer, workload, variant, threads, "max", static_cast<double>(histogram.largest) * ns_per_tick());
}

void Child::put_latency(const bench_peer *peer, const char *workload, const char *variant, unsigned threads,
                        const bench_histogram &histogram) {
    put_quantiles(peer, workload, variant, threads, histogram);
    /* For the curve: ten points for each further nine (90 %, 99 %, 99.9 % ...), while enough calls are left. */
    char name[16];
    double beyond = 1;
    for (int i = 0; i <= 70 && beyond * static_cast<double>(histogram.count) >= 1; i++, beyond *= 0.7943282347) {
        std::snprintf(name, sizeof name, "curve %.3g", beyond);
        put(peer, workload, variant, threads, name, quantile_ns(histogram, 1 - beyond));
    }
}

void Child::fail(const char *format, ...) {
    va_list args;
    va_start(args, format);
    std::vsnprintf(shared->failure, sizeof shared->failure, format, args);
    va_end(args);
    _exit(1);
}

void Child::check(const bench_peer *peer, void *self, int64_t sum, uint64_t counters) {
    check_all(peer, {self}, sum, counters);
}

void Child::check_all(const bench_peer *peer, const std::vector<void *> &selves, int64_t sum, uint64_t counters) {
    bench_total total = {};
    for (void *self : selves) {
        bench_total part;
        if (!peer->total(self, &part)) fail("the counters could not be read, or calls had wrong answers");
        total.sum += part.sum;
        total.counters += part.counters;
    }
    if (total.sum != sum || total.counters != counters)
        fail("WRONG SUM: %lld in %llu counters, should be %lld in %llu", static_cast<long long>(total.sum),
             static_cast<unsigned long long>(total.counters), static_cast<long long>(sum),
             static_cast<unsigned long long>(counters));
}

const char gave_up[] = "was not done";
constexpr unsigned child_seconds_max = 600;

bool run_child(const std::function<void(Child &)> &work, std::vector<Metric> &metrics, std::string &failure) {
    void *map = mmap(nullptr, sizeof(Child::Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) {
        failure = "no memory";
        return false;
    }
    Child child;
    child.shared = static_cast<Child::Shared *>(map);
    (void)ns_per_tick(); /* once for all children */
    std::fflush(nullptr);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(child_seconds_max);         /* ends a peer that hangs */
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* so no child outlives this process */
        malloc_trim(0);
        work(child);
        child.shared->done = true;
        _exit(0);
    }
    int status = 0;
    bool ended = pid > 0 && waitpid(pid, &status, 0) == pid;
    bool well = ended && WIFEXITED(status) && WEXITSTATUS(status) == 0 && child.shared->done;
    if (well)
        metrics.assign(child.shared->metrics, child.shared->metrics + child.shared->count);
    else if (child.shared->failure[0] != '\0')
        failure = child.shared->failure;
    else if (ended && WIFSIGNALED(status))
        failure = WTERMSIG(status) == SIGALRM ? gave_up + (" after " + std::to_string(child_seconds_max) + " s")
                                              : std::string("ended by signal: ") + strsignal(WTERMSIG(status));
    else
        failure = "its process did not end well";
    munmap(map, sizeof(Child::Shared));
    return well;
}

} // namespace bench
