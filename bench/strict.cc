/* strict.cc -- `strict`: calls that wait for Redis, one strict limit over 1,000 keys.
 *
 *   hiredis     raw: the same script by EVALSHA from one thread, so many calls in flight on one connection. It decides
 *               nothing, repeats nothing and takes nothing back: what is possible
 *   Tallywheel  threads that block in tw_acquire(); and one loop, host-driven, that starts so many tw_acquire_async()
 *   kops        thousand calls a second;  p50, p99: microseconds of a call
 *   ours        CPU of this process, microseconds a call;  redis: the same of the server
 *   away %      calls that Redis did not decide: on_outage did
 * Always true: each run has a server of its own, over TCP. In the end Redis has as many units as were admitted. */
#include "bench/bench.h"

#include "bench/peers/peers.h"
#include "bench/server.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <poll.h>
#include <thread>
#include <unistd.h>

#ifdef BENCH_WITH_HIREDIS
#include <hiredis/hiredis.h>
#endif

#include "strict.lua.h"
#include "tallywheel.h"

namespace bench {

namespace {

constexpr int key_count = 1000;
constexpr int64_t limit = INT64_C(1) << 40; /* never reached */
constexpr double warm_s = 0.3;

struct Way {
    bench_peer peer;
    unsigned many; /* threads, or calls in flight */
    enum { raw, threads, loop } kind;
};

bench_peer named(const char *name, const char *form) {
    bench_peer peer = {};
    peer.name = name;
    peer.form = form;
    return peer;
}

const std::vector<Way> &ways() {
    static const std::vector<Way> all = {
#ifdef BENCH_WITH_HIREDIS
        {named("hiredis", "1 in flight"), 1, Way::raw},
        {named("hiredis", "64 in flight"), 64, Way::raw},
        {named("hiredis", "1,000 in flight"), 1000, Way::raw},
#endif
        {named("Tallywheel", "loop, 1 in flight"), 1, Way::loop},
        {named("Tallywheel", "loop, 64 in flight"), 64, Way::loop},
        {named("Tallywheel", "loop, 1,000 in flight"), 1000, Way::loop},
        {named("Tallywheel", "1 thread"), 1, Way::threads},
        {named("Tallywheel", "8 threads"), 8, Way::threads},
        {named("Tallywheel", "32 threads"), 32, Way::threads},
        {named("Tallywheel", "64 threads"), 64, Way::threads},
        {named("Tallywheel", "250 threads"), 250, Way::threads},
        {named("Tallywheel", "1,000 threads"), 1000, Way::threads},
    };
    return all;
}

/* What several threads measure together. */
struct Tally {
    bench_histogram histogram = {};
    uint64_t calls = 0, away = 0;
    int64_t admitted = 0; /* also while it warmed up */

    void merge(const Tally &other) {
        calls += other.calls;
        away += other.away;
        admitted += other.admitted;
        histogram.count += other.histogram.count;
        if (other.histogram.largest > histogram.largest) histogram.largest = other.histogram.largest;
        for (unsigned i = 0; i < BENCH_CELLS; i++) histogram.cells[i] += other.histogram.cells[i];
    }
};

/* Figures of the time between begin() and end(). */
class Meter {
  public:
    Meter(Child &child, const Way &way, const Server &server) : child_(child), way_(way), server_(server) {
    }
    void begin() {
        ours_ = own_cpu_s();
        redis_ = server_.cpu_s();
        begin_ = now_s();
    }
    void end() {
        seconds_ = now_s() - begin_;
        ours_ = own_cpu_s() - ours_;
        redis_ = server_.cpu_s() - redis_;
    }
    void put(const Tally &tally) {
        double calls = static_cast<double>(tally.calls);
        put("kops", calls / seconds_ / 1e3);
        put("p50", quantile_ns(tally.histogram, 0.5) / 1e3);
        put("p99", quantile_ns(tally.histogram, 0.99) / 1e3);
        put("ours", ours_ * 1e6 / calls);
        put("redis", redis_ * 1e6 / calls);
        put("away", 100 * static_cast<double>(tally.away) / calls);
    }

  private:
    void put(const char *metric, double value) {
        child_.put(&way_.peer, "strict", "plain", 1, metric, value);
    }
    Child &child_;
    const Way &way_;
    const Server &server_;
    double begin_ = 0, seconds_ = 0, ours_ = 0, redis_ = 0;
};

std::string key_of(unsigned number) {
    return "client" + std::to_string(number % key_count);
}

/* ---- raw --------------------------------------------------------------------------------------------------------- */

#ifdef BENCH_WITH_HIREDIS

class Raw {
  public:
    Raw(Child &child, const Server &server) : child_(child) {
        context_ = redisConnect("127.0.0.1", server.port());
        if (context_ == nullptr || context_->err != 0) child.fail("no connection");
        redisReply *reply = static_cast<redisReply *>(redisCommand(context_, "SCRIPT LOAD %s", twi_script_strict));
        if (reply == nullptr || reply->type != REDIS_REPLY_STRING) child.fail("the script is refused");
        sha_ = reply->str;
        freeReplyObject(reply);
        for (unsigned i = 0; i < key_count; i++) {
            std::string counter = "f:{1}:" + key_of(i);
            counters_.push_back(counter);
            calls_.push_back("tw:calls:" + counter);
        }
    }
    ~Raw() {
        redisFree(context_);
    }
    Raw(const Raw &) = delete;
    Raw &operator=(const Raw &) = delete;

    /* As many as were answered go out again together: what lanes over one connection can do at best. */
    void run(unsigned in_flight, double warm_until, double until, Meter &meter, Tally &tally) {
        std::vector<uint64_t> sent(in_flight);
        uint64_t asked = 0, answered = 0;
        bool is_warm = false;
        for (bool goes_on = true; goes_on || answered < asked;) {
            double now = now_s();
            if (!is_warm && now >= warm_until) {
                meter.begin();
                is_warm = true;
            }
            if (goes_on && now >= until) {
                meter.end();
                goes_on = false;
            }
            for (; goes_on && asked - answered < in_flight; asked++) {
                sent[asked % in_flight] = bench_ticks();
                ask(asked, static_cast<unsigned>(asked % in_flight));
            }
            if (answered == asked) break;
            void *reply = nullptr;
            if (redisGetReply(context_, &reply) != REDIS_OK) child_.fail("hiredis: %s", context_->errstr);
            do {
                take(static_cast<redisReply *>(reply), tally);
                if (is_warm && goes_on) {
                    bench_record(&tally.histogram, bench_ticks() - sent[answered % in_flight]);
                    tally.calls++;
                }
                answered++;
                reply = nullptr;
                if (redisGetReplyFromReader(context_, &reply) != REDIS_OK) child_.fail("hiredis: no reply");
            } while (reply != nullptr);
        }
    }
    int64_t sum() {
        int64_t sum = 0;
        for (const std::string &counter : counters_) {
            redisReply *reply = static_cast<redisReply *>(redisCommand(context_, "GET %s", counter.c_str()));
            if (reply != nullptr && reply->type == REDIS_REPLY_STRING) sum += std::atoll(reply->str);
            freeReplyObject(reply);
        }
        return sum;
    }

  private:
    void ask(uint64_t number, unsigned lane) {
        char who[32], serial[40];
        std::snprintf(who, sizeof who, "0123456789abcdef:%u", lane);
        std::snprintf(serial, sizeof serial, "%llu:00000001", static_cast<unsigned long long>(number + 1));
        /* As with ours each key meets every lane in time: Redis keeps the last number of each pair. */
        unsigned at = static_cast<unsigned>((number + number / key_count) % key_count);
        const char *words[] = {"EVALSHA",
                               sha_.c_str(),
                               "2",
                               calls_[at].c_str(),
                               counters_[at].c_str(),
                               who,
                               serial,
                               "1",
                               "1",
                               "1099511627776",
                               "0",
                               "0",
                               "0"};
        if (redisAppendCommandArgv(context_, sizeof words / sizeof *words, words, nullptr) != REDIS_OK)
            child_.fail("hiredis: no memory");
    }
    void take(redisReply *reply, Tally &tally) {
        if (reply == nullptr || reply->type != REDIS_REPLY_ARRAY || reply->elements < 2 ||
            std::strcmp(reply->element[1]->str, "OK") != 0)
            child_.fail("a reply that is none: %s", reply != nullptr && reply->str != nullptr ? reply->str : "");
        tally.admitted++;
        freeReplyObject(reply);
    }
    Child &child_;
    redisContext *context_;
    std::string sha_;
    std::vector<std::string> calls_, counters_;
};

void measure_raw(Child &child, const Way &way, const Server &server, double seconds) {
    Meter meter(child, way, server);
    auto tally = std::make_unique<Tally>();
    Raw raw(child, server);
    double begin = now_s();
    raw.run(way.many, begin + warm_s, begin + warm_s + seconds, meter, *tally);
    meter.put(*tally);
    if (raw.sum() != tally->admitted) child.fail("WRONG SUM in Redis: %lld", static_cast<long long>(raw.sum()));
}

#endif

/* ---- ours -------------------------------------------------------------------------------------------------------- */

class Ours {
  public:
    Ours(Child &child, const Way &way, const Server &server) : child_(child) {
        char error[256] = "";
        std::string url = "redis://127.0.0.1:" + std::to_string(server.port());
        tw_options options;
        tw_options_init(&options);
        options.error_text = error;
        options.error_size = sizeof error;
        options.redis_url = url.c_str();
        options.redis_timeout_ms = 2000; /* a machine that does other work too is no outage */
        options.calls_max = 2048;
        is_driven_ = way.kind == Way::loop;
        options.threads = is_driven_ ? TW_HOST_DRIVEN : TW_OWN_THREAD;
        if (tw_open(&options, &engine_) != TW_OK) child.fail("%s", error);
        tw_family_options family;
        tw_family_options_init(&family);
        family.name = "f";
        family.window = TW_WINDOW_FOREVER;
        family.limit_mode = TW_LIMIT_STRICT;
        if (tw_family_open(engine_, &family, &family_) != TW_OK) child.fail("no family");
        if (tw_ready(engine_, 10000) != TW_OK) child.fail("no connection to %s", url.c_str());
    }
    ~Ours() {
        tw_close(engine_, 1000);
    }
    Ours(const Ours &) = delete;
    Ours &operator=(const Ours &) = delete;

    void run(unsigned threads, double seconds, Meter &meter, Tally &tally) {
        std::atomic<int> phase{0}; /* 0: warms up; 1: is measured; 2: over */
        std::vector<std::unique_ptr<Tally>> tallies;
        std::vector<std::thread> all;
        for (unsigned i = 0; i < threads; i++) tallies.push_back(std::make_unique<Tally>());
        for (unsigned i = 0; i < threads; i++) all.emplace_back([&, i] { call(phase, i * 7919u, *tallies[i]); });
        std::this_thread::sleep_for(std::chrono::duration<double>(warm_s));
        meter.begin();
        phase = 1;
        std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
        phase = 2;
        meter.end();
        for (std::thread &thread : all) thread.join();
        for (const auto &one : tallies) tally.merge(*one);
    }
    /* One thread: each call that was answered is started again, with the next key. */
    void run_loop(unsigned in_flight, double seconds, Meter &meter, Tally &tally) {
        std::vector<Slot> slots(in_flight);
        Loop loop = {this, &tally, 0, false, true, 0};
        double begin = now_s();
        for (Slot &slot : slots) {
            tw_request_init(&slot.call);
            slot.call.done = [](tw_request *call) { static_cast<Slot *>(call->ctx)->loop->self->take(call); };
            slot.call.ctx = &slot;
            slot.loop = &loop;
            start(slot);
        }
        while (loop.under_way != 0) {
            double now = now_s() - begin;
            if (!loop.is_measured && now >= warm_s && loop.goes_on) {
                meter.begin();
                loop.is_measured = true;
            } else if (loop.goes_on && now >= warm_s + seconds) {
                meter.end();
                loop.is_measured = loop.goes_on = false;
            }
            pollfd one = {tw_fd(engine_), POLLIN, 0};
            poll(&one, 1, static_cast<int>(std::min(tw_timeout_ms(engine_), UINT32_C(100))));
            tw_turn(engine_);
        }
    }
    /* All units that Redis has once nothing is on its way. */
    int64_t sum() {
        std::vector<std::string> names;
        std::vector<tw_key> keys;
        std::vector<int64_t> totals(key_count);
        int64_t sum = 0;
        for (unsigned i = 0; i < key_count; i++) names.push_back(key_of(i));
        for (const std::string &name : names) keys.push_back(tw_bytes(name.data(), name.size()));
        if (tw_flush(engine_, 20000) != TW_OK) child_.fail("%s", tw_error_text());
        fetch(keys, totals);
        for (int64_t total : totals) sum += total;
        return sum;
    }

  private:
    struct Loop {
        Ours *self;
        Tally *tally;
        unsigned number; /* of the next key */
        bool is_measured, goes_on;
        unsigned under_way;
    };
    struct Slot {
        tw_request call;
        Loop *loop;
        uint64_t began;
    };
    void fetch(const std::vector<tw_key> &keys, std::vector<int64_t> &totals) {
        tw_request call;
        bool is_done = false;
        tw_request_init(&call);
        call.timeout_ms = 20000;
        call.ctx = &is_done;
        call.done = [](tw_request *of) { *static_cast<bool *>(of->ctx) = true; };
        if (!is_driven_) {
            call.status = tw_fetch(family_, keys.data(), key_count, 20000, totals.data());
        } else if (tw_fetch_async(&call, family_, keys.data(), key_count, totals.data()) == TW_STARTED) {
            for (; !is_done; tw_turn(engine_)) usleep(1000);
        }
        if (call.status != TW_OK) child_.fail("%s", tw_status_name(call.status));
    }
    void start(Slot &slot) {
        std::string key = key_of(slot.loop->number++);
        slot.began = bench_ticks();
        if (tw_acquire_async(&slot.call, family_, tw_bytes(key.data(), key.size()), 1, limit) != TW_STARTED)
            child_.fail("%s: %s", tw_status_name(slot.call.status), tw_error_text());
        slot.loop->under_way++;
    }
    void take(tw_request *call) {
        Slot &slot = *static_cast<Slot *>(call->ctx);
        Loop &loop = *slot.loop;
        loop.under_way--;
        if (call->status != TW_OK) child_.fail("%s", tw_status_name(call->status));
        loop.tally->admitted++;
        if (loop.is_measured) {
            bench_record(&loop.tally->histogram, bench_ticks() - slot.began);
            loop.tally->calls++;
            loop.tally->away += call->verdict.decided_by != TW_BY_REDIS;
        }
        if (loop.goes_on) start(slot);
    }
    void call(const std::atomic<int> &phase, unsigned number, Tally &tally) {
        tw_verdict verdict;
        for (; phase != 2; number++) {
            std::string key = key_of(number);
            bool is_measured = phase == 1;
            uint64_t begin = bench_ticks();
            tw_status status = tw_acquire(family_, tw_bytes(key.data(), key.size()), 1, limit, &verdict);
            uint64_t took = bench_ticks() - begin;
            if (status != TW_OK) child_.fail("%s: %s", tw_status_name(status), tw_error_text());
            tally.admitted++;
            if (!is_measured || phase == 2) continue;
            bench_record(&tally.histogram, took);
            tally.calls++;
            tally.away += verdict.decided_by != TW_BY_REDIS;
        }
    }
    Child &child_;
    bool is_driven_ = false;
    tw_engine *engine_ = nullptr;
    tw_family *family_ = nullptr;
};

void measure_ours(Child &child, const Way &way, const Server &server, double seconds) {
    Meter meter(child, way, server);
    auto tally = std::make_unique<Tally>();
    Ours ours(child, way, server);
    if (way.kind == Way::loop)
        ours.run_loop(way.many, seconds, meter, *tally);
    else
        ours.run(way.many, seconds, meter, *tally);
    meter.put(*tally);
    int64_t sum = ours.sum();
    for (double until = now_s() + 10; sum != tally->admitted && now_s() < until; sum = ours.sum())
        usleep(100000); /* calls of unknown outcome are taken back within moments */
    if (sum != tally->admitted)
        child.fail("WRONG SUM in Redis: %lld, admitted %lld", static_cast<long long>(sum),
                   static_cast<long long>(tally->admitted));
}

void measure_way(Child &child, const Way &way, const Server &server, double seconds) {
#ifdef BENCH_WITH_HIREDIS
    if (way.kind == Way::raw) {
        measure_raw(child, way, server, seconds);
        return;
    }
#endif
    measure_ours(child, way, server, seconds);
}

} // namespace

void command_strict(Bench &bench) {
    {
        Server probe(Server::redis_tcp);
        if (probe.address().empty()) {
            std::printf("left out: Redis (%s)\n", probe.why().c_str());
            return;
        }
    }
    double seconds = bench.options.seconds > 0 ? bench.options.seconds : 2;
    std::vector<Way> wanted;
    for (const Way &way : ways())
        if (bench.wants_case(std::string(way.peer.name) + " " + way.peer.form)) wanted.push_back(way);
    rotate<Way>(wanted, bench.rounds(3), [&](int round, const Way &way) {
        Server server(Server::redis_tcp);
        if (server.address().empty()) {
            bench.report.fail("strict: " + server.why());
            return;
        }
        bench.measure("strict", natural, round, &way.peer,
                      [&](Child &child) { measure_way(child, way, server, seconds); });
    });
    bench.report.table("strict limit over 1,000 keys: thousand calls a second, microseconds of a call, CPU "
                       "microseconds a call of ours and of the server",
                       "strict", "strict", natural,
                       {{"kops", "plain", 1, "kops", false, true, 1},
                        {"p50", "plain", 1, "p50", false, false, 0},
                        {"p99", "plain", 1, "p99", false, false, 0},
                        {"ours", "plain", 1, "ours", false, false, 1},
                        {"redis", "plain", 1, "redis", false, false, 1},
                        {"away %", "plain", 1, "away", false, false, 2}});
    bench.report.write_csv("strict");
}

} // namespace bench
