/* neighbour.cc -- `neighbour`: how long another client of the same Redis waits while an engine merges 175,000 keys a
 * second.
 *
 * The neighbour sends PING, some two thousand times a second. Beside it runs one of these:
 *   nobody        the server is idle
 *   busy process  two processes use the machine as an engine does, a quarter of the time each, but not Redis
 *   Tallywheel    a real engine; its counts are added 1,750 at a time
 *   N keys        the engine's batches alone, of that size, one under way at a time: played with the real script,
 *                 17,500 keys every 100 ms
 *   N keys x D    the same with D under way
 * Each is measured twice. `served`: server and neighbour have real-time priority, so no process takes the core from
 * them; what is left is the order in which Redis serves. `shared`: with usual priorities, so waiting for a core is
 * included.
 *   p50, p99   of the neighbour's PING, in microseconds; ratio: over those of `nobody`
 *   us         what Redis says of the script (INFO commandstats), for one key
 *   kops       thousand keys a second that were merged
 * Always true: each run has a server of its own. All played batches are applied, once: the sum in the ledger says
 * so. */
#include "bench/bench.h"

#include "bench/peers/peers.h"
#include "bench/server.h"

#ifdef BENCH_WITH_HIREDIS

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <hiredis/hiredis.h>
#include <memory>
#include <pthread.h>
#include <random>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "batch.lua.h"

namespace bench {

namespace {

constexpr uint64_t keys_a_second = 175000;
constexpr double tick_s = 0.1; /* an engine's sync interval */
constexpr size_t keys_usual = 100000;
const char ledger[] = "tw:ledger:0123456789abcdef0123456789abcdef", marker[] = "tw:marker";

struct Who {
    std::string name;
    enum { nobody, busy, engine, played } kind;
    unsigned keys, depth;
};

const std::vector<Who> &everybody() {
    static const std::vector<Who> all = {
        {"nobody", Who::nobody, 0, 0},         {"busy process", Who::busy, 0, 0},
        {"Tallywheel", Who::engine, 0, 0},     {"1000 keys x 4", Who::played, 1000, 4},
        {"1000 keys", Who::played, 1000, 1},   {"256 keys", Who::played, 256, 1},
        {"128 keys x 4", Who::played, 128, 4}, {"128 keys", Who::played, 128, 1},
        {"64 keys x 4", Who::played, 64, 4},   {"64 keys x 2", Who::played, 64, 2},
        {"64 keys", Who::played, 64, 1},       {"32 keys", Who::played, 32, 1},
    };
    return all;
}

/* ---- a process beside ours, until it is told to end -------------------------------------------------------------- */

volatile std::sig_atomic_t ended;

class Beside {
  public:
    explicit Beside(const std::function<int()> &work) : pid_(fork()) {
        if (pid_ != 0) return;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        std::signal(SIGTERM, [](int) { ended = 1; });
        _exit(work());
    }
    ~Beside() {
        (void)end();
    }
    Beside(const Beside &) = delete;
    Beside &operator=(const Beside &) = delete;
    bool end() {
        int status = 1;
        if (pid_ <= 0) return false;
        kill(pid_, SIGTERM);
        waitpid(pid_, &status, 0);
        pid_ = -1;
        return status == 0;
    }

  private:
    pid_t pid_;
};

/* The time of the next beat. Missed beats are not made up for. */
double next_beat(double at_s, double every_s) {
    double left_s = at_s + every_s - now_s();
    if (left_s <= 0) return now_s();
    usleep(static_cast<useconds_t>(left_s * 1e6));
    return at_s + every_s;
}

int be_busy() {
    for (double at_s = now_s(); !ended; at_s = next_beat(at_s, 0.01))
        while (now_s() < at_s + 0.0025) continue;
    return 0;
}

int count_with_engine(const Stream &keys, const std::string &address) {
    bench_setup setup = {};
    setup.stride = keys.stride();
    setup.address = address.c_str();
    void *self = bench_ours_script()->make(&setup);
    if (self == nullptr) return 1;
    constexpr size_t burst = keys_a_second / 100;
    size_t at = 0;
    for (double at_s = now_s(); !ended; at_s = next_beat(at_s, 0.01)) {
        if (at + burst > keys.count()) at = 0;
        (void)bench_ours_script()->add(self, keys.at(at), burst);
        at += burst;
    }
    return bench_ours_flush(self, 10000) ? 0 : 1;
}

/* ---- batches, as an engine's ---- */

std::string bulk(const std::string &word) {
    return "$" + std::to_string(word.size()) + "\r\n" + word + "\r\n";
}

class Player {
  public:
    Player(const Stream &keys, const std::string &address) : self_(redisConnectUnix(address.c_str())) {
        for (size_t i = 0; i < keys.count(); i++) {
            const unsigned char *slot = keys.at(i);
            keys_.push_back(
                bulk("f:" + std::string(reinterpret_cast<const char *>(slot), bench_slot_size(slot, keys.stride()))));
        }
        std::shuffle(keys_.begin(), keys_.end(), std::mt19937(1));
        auto *loaded = static_cast<redisReply *>(redisCommand(self_, "SCRIPT LOAD %s", twi_script_batch));
        if (loaded != nullptr && loaded->str != nullptr) sha_ = loaded->str;
        freeReplyObject(loaded);
        put(0);
        good_ = take();
    }
    ~Player() {
        redisFree(self_);
    }
    Player(const Player &) = delete;
    Player &operator=(const Player &) = delete;
    /* Merges so many keys in batches of `size`, `depth` under way. */
    void merge(size_t count, size_t size, size_t depth) {
        size_t under_way = 0;
        for (; count >= size || under_way > 0; under_way--) {
            for (; count >= size && under_way < depth; under_way++, count -= size) put(size);
            good_ = take() && good_;
        }
    }
    bool is_sound() {
        auto *sum = static_cast<redisReply *>(redisCommand(self_, "HGET %s p", ledger));
        bool same = sum != nullptr && sum->str != nullptr && std::strtoull(sum->str, nullptr, 10) == sum_;
        freeReplyObject(sum);
        return good_ && same;
    }
    size_t count() const {
        return keys_.size();
    }

  private:
    void put(size_t size) {
        bool opens = !is_open_;
        std::string all = "*" + std::to_string(5 + size + 8 + (size != 0 ? 3 + size : 0)) + "\r\n";
        all += bulk("EVALSHA") + bulk(sha_) + bulk(std::to_string(2 + size)) + bulk(ledger) + bulk(marker);
        for (size_t i = 0; i < size; i++) all += keys_[(next_ + i) % keys_.size()];
        next_ += size;
        uint64_t before = number_;
        if (!opens) number_++;
        is_open_ = true;
        sum_ += size;
        char nonce[20];
        std::snprintf(nonce, sizeof nonce, "%016llx", static_cast<unsigned long long>(number_ * 2654435761u));
        all += bulk("1") + bulk(std::to_string(number_)) + bulk(std::to_string(before)) + bulk(nonce) +
               bulk("86400000") + bulk(std::to_string(sum_)) + bulk("0") + bulk("fedcba9876543210fedcba9876543210");
        if (size != 0) all += bulk("w") + bulk(expiry_) + bulk(std::to_string(size));
        for (size_t i = 0; i < size; i++) all += "$1\r\n1\r\n";
        redisAppendFormattedCommand(self_, all.data(), all.size());
        for (int done = 0; done == 0;)
            if (redisBufferWrite(self_, &done) != REDIS_OK) break;
    }
    bool take() {
        void *reply = nullptr;
        if (redisGetReply(self_, &reply) != REDIS_OK || reply == nullptr) return false;
        auto *got = static_cast<redisReply *>(reply);
        bool good = got->type == REDIS_REPLY_ARRAY && got->elements >= 8 && got->element[0]->str != nullptr &&
                    std::strcmp(got->element[0]->str, "OK") == 0;
        freeReplyObject(got);
        return good;
    }
    redisContext *self_;
    std::vector<std::string> keys_;
    std::string sha_, expiry_ = std::to_string((static_cast<long long>(time(nullptr)) + 7200) * 1000);
    size_t next_ = 0;
    uint64_t number_ = 0, sum_ = 0;
    bool good_ = true, is_open_ = false;
};

int play(const Stream &keys, const std::string &address, const Who &who) {
    Player player(keys, address);
    player.merge(player.count() / 1000 * 1000, 1000, 1); /* now the keys exist */
    size_t owed = 0;
    for (double at_s = now_s(); !ended; at_s = next_beat(at_s, tick_s)) {
        owed += static_cast<size_t>(keys_a_second * tick_s);
        player.merge(owed, who.keys, who.depth);
        owed %= who.keys;
    }
    return player.is_sound() ? 0 : 1;
}

/* ---- the neighbour ---- */

bool be_real_time(pid_t pid, bool wanted) {
    struct sched_param param = {};
    param.sched_priority = wanted ? 1 : 0;
    return sched_setscheduler(pid, wanted ? SCHED_FIFO : SCHED_OTHER, &param) == 0;
}

void ask_for_a_while(int fd, double seconds, bench_histogram &histogram) {
    std::mt19937 random(7);
    char answer[64];
    for (double until_s = now_s() + seconds; now_s() < until_s;) {
        usleep(200 + random() % 600);
        histogram.last = bench_ticks();
        if (write(fd, "PING\r\n", 6) != 6 || read(fd, answer, sizeof answer) <= 0) return;
        bench_record_since(&histogram);
    }
}

struct Spent {
    double us = 0, keys = 0;
};

Spent spent(redisContext *context) {
    Spent all;
    auto *info = static_cast<redisReply *>(redisCommand(context, "INFO commandstats"));
    auto field = [&](const char *command, const char *name) {
        const char *at = info != nullptr && info->str != nullptr ? std::strstr(info->str, command) : nullptr;
        at = at != nullptr ? std::strstr(at, name) : nullptr;
        return at != nullptr ? std::atof(at + std::strlen(name)) : 0;
    };
    all.us = field("cmdstat_evalsha:", ",usec=");
    all.keys = field("cmdstat_incrby:", "calls=");
    freeReplyObject(info);
    return all;
}

class Neighbour {
  public:
    Neighbour(Bench &bench, const Server &server) : bench_(bench), server_(server), fd_(connect_to(server.address())) {
        info_ = redisConnectUnix(server.address().c_str());
    }
    ~Neighbour() {
        close(fd_);
        redisFree(info_);
    }
    Neighbour(const Neighbour &) = delete;
    Neighbour &operator=(const Neighbour &) = delete;
    void measure(const Who &who, int round, bool served) {
        auto histogram = std::make_unique<bench_histogram>();
        double seconds = bench_.options.seconds != 0 ? bench_.options.seconds : 2;
        bool may = !served || be_real_time(server_.pid(), true);
        Spent before = spent(info_);
        double begin_s = now_s();
        std::thread([&] {
            if (served) may = be_real_time(0, true) && may;
            ask_for_a_while(fd_, seconds, *histogram);
        }).join();
        double took_s = now_s() - begin_s;
        Spent after = spent(info_);
        if (served) (void)be_real_time(server_.pid(), false);
        if (!may) return; /* not permitted: no figures and no row */
        double keys = after.keys - before.keys;
        std::vector<Metric> metrics;
        auto add = [&](const char *metric, double value) {
            Metric one = {};
            std::snprintf(one.peer, sizeof one.peer, "%s", who.name.c_str());
            std::snprintf(one.form, sizeof one.form, "%s", ours_form);
            std::snprintf(one.workload, sizeof one.workload, "neighbour");
            std::snprintf(one.variant, sizeof one.variant, "%s", served ? "served" : "shared");
            one.threads = 1;
            std::snprintf(one.metric, sizeof one.metric, "%s", metric);
            one.value = value;
            metrics.push_back(one);
        };
        add("p50", quantile_ns(*histogram, 0.5) / 1e3);
        add("p99", quantile_ns(*histogram, 0.99) / 1e3);
        if (keys > 0) add("us", (after.us - before.us) / keys);
        if (keys > 0) add("kops", keys / took_s / 1e3);
        bench_.report.add("neighbour", natural, round, metrics);
    }

  private:
    Bench &bench_;
    const Server &server_;
    int fd_;
    redisContext *info_;
};

void measure(Bench &bench, const Stream &keys, int round, const Who &who) {
    Server server(Server::redis);
    if (server.address().empty()) {
        bench.report.fail("neighbour: " + server.why());
        return;
    }
    std::vector<std::unique_ptr<Beside>> beside;
    auto start = [&](const std::function<int()> &work) { beside.push_back(std::make_unique<Beside>(work)); };
    if (who.kind == Who::busy) start(be_busy);
    if (who.kind == Who::busy) start(be_busy);
    if (who.kind == Who::engine) start([&] { return count_with_engine(keys, server.address()); });
    if (who.kind == Who::played) start([&] { return play(keys, server.address(), who); });
    usleep(who.kind == Who::nobody ? 100000 : 2000000); /* the keys are made in this time */
    {
        Neighbour neighbour(bench, server);
        neighbour.measure(who, round, true);
        neighbour.measure(who, round, false);
    }
    for (auto &process : beside)
        if (!process->end()) bench.report.fail("neighbour: " + who.name + ": WRONG SUM, or no answer");
}

} // namespace

void command_neighbour(Bench &bench) {
    Stream keys = stream_all(natural, bench.options.keys != 0 ? bench.options.keys : keys_usual);
    const std::vector<Who> &all = everybody();
    rotate<Who>(all, bench.rounds(3), [&](int round, const Who &who) { measure(bench, keys, round, who); });
    std::printf(
        "\nPING of another client while %llu keys a second are merged, us: as Redis serves (server and neighbour at "
        "real-time\n"
        "priority), and as processes share the machine\n%14s | %8s %8s %6s %8s %8s | %8s %8s %6s\n",
        static_cast<unsigned long long>(keys_a_second), "beside it", "p50", "p99", "ratio", "us/key", "kops", "p50",
        "p99", "ratio");
    for (const Who &who : all) {
        auto figure = [&](const std::string &name, const char *variant, const char *metric) {
            Column column = {"", variant, 1, metric};
            return bench.report.median("neighbour", "neighbour", natural, name, ours_form, column);
        };
        auto ratio = [&](const char *variant) {
            return figure(who.name, variant, "p99") / figure("nobody", variant, "p99");
        };
        std::printf("%14s | %8.0f %8.0f %6.1f %8.2f %8.0f | %8.0f %8.0f %6.1f\n", who.name.c_str(),
                    figure(who.name, "served", "p50"), figure(who.name, "served", "p99"), ratio("served"),
                    figure(who.name, "served", "us"), figure(who.name, "served", "kops"),
                    figure(who.name, "shared", "p50"), figure(who.name, "shared", "p99"), ratio("shared"));
    }
    bench.report.write_csv("neighbour");
}

} // namespace bench

#else

#include <cstdio>

namespace bench {
void command_neighbour(Bench &) {
    std::printf("left out: hiredis is missing\n");
}
} // namespace bench

#endif
