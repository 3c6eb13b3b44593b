/* engines.cc -- `engines`: what many idle engines cost the Redis that they share. Measured are the registry of live
 * engines, the epoch of hard limits, and the heartbeat for windows that one engine closes. Also a draw on a hard
 * limit that all engines draw on.
 *
 * One process plays all engines, with the scripts and their arguments: 10, 100, 1,000 and 10,000 engines.
 *   us       what Redis says of a script (INFO commandstats): from its beginning to its end, with the time
 *            in which others had the core
 *   cpu      what the server's process took for it, reading, parsing and replying included: the steadier of the two
 *   every    how often Redis tells an engine to send this message
 *   scripts  how many of them all engines together send in a second
 *   core     how much of one core of Redis that takes, by cpu
 * Always true: each number of engines has a server of its own. Redis must count all of the engines, and the units
 * that were drawn. */
#include "bench/bench.h"

#include "bench/server.h"

#ifdef BENCH_WITH_HIREDIS

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <hiredis/hiredis.h>
#include <unistd.h>

#include "close_election.lua.h"
#include "lease.lua.h"
#include "leases.lua.h"
#include "registry.lua.h"

namespace bench {

namespace {

constexpr size_t pipeline = 100;
/* Parts of a measurement. The median of them counts: in some of them others had the core. */
constexpr size_t parts = 10;
constexpr size_t words_least = 20000;
constexpr int64_t every_draw_ms = 500;

using Words = std::vector<std::string>;

struct Reply {
    redisReply *self;
    explicit Reply(redisReply *reply) : self(reply) {
    }
    ~Reply() {
        if (self != nullptr) freeReplyObject(self);
    }
    Reply(const Reply &) = delete;
    Reply &operator=(const Reply &) = delete;
    std::string text(size_t i) const {
        if (self == nullptr || self->type != REDIS_REPLY_ARRAY || i >= self->elements) return "";
        const redisReply *element = self->element[i];
        return element->type == REDIS_REPLY_INTEGER ? std::to_string(element->integer)
               : element->str != nullptr            ? std::string(element->str, element->len)
                                                    : "";
    }
};

class Connection {
  public:
    explicit Connection(const std::string &address) : self_(redisConnectUnix(address.c_str())) {
    }
    ~Connection() {
        if (self_ != nullptr) redisFree(self_);
    }
    Connection(const Connection &) = delete;
    Connection &operator=(const Connection &) = delete;
    void put(const Words &words) {
        std::vector<const char *> texts;
        std::vector<size_t> sizes;
        for (const std::string &word : words) {
            texts.push_back(word.data());
            sizes.push_back(word.size());
        }
        redisAppendCommandArgv(self_, static_cast<int>(words.size()), texts.data(), sizes.data());
    }
    redisReply *get() {
        void *reply = nullptr;
        return redisGetReply(self_, &reply) == REDIS_OK ? static_cast<redisReply *>(reply) : nullptr;
    }
    redisReply *ask(const Words &words) {
        put(words);
        return get();
    }
    /* The figure that stands behind `name` in INFO, in the part behind `after`. */
    double info(const char *section, const char *after, const char *name) {
        Reply reply(ask({"INFO", section}));
        const char *at =
            reply.self != nullptr && reply.self->str != nullptr ? std::strstr(reply.self->str, after) : nullptr;
        at = at != nullptr ? std::strstr(at, name) : nullptr;
        return at != nullptr ? std::atof(at + std::strlen(name)) : 0;
    }
    double script_us() {
        return info("commandstats", "cmdstat_evalsha:", "usec_per_call=");
    }
    double cpu_us() {
        return 1e6 * (info("cpu", "used_cpu_sys:", "used_cpu_sys:") + info("cpu", "used_cpu_user:", "used_cpu_user:"));
    }

  private:
    redisContext *self_;
};

/* What Redis sees of an engine. */
struct Engine {
    std::string instance, epoch, run, life, changes = "-1", every = "150";
    int64_t number = 0, granted = 0;
    bool said = false;
};

/* A kind of message: what one engine sends, and what it learns from the reply. */
struct Kind {
    const char *name, *script;
    std::function<Words(Engine &)> say; /* keys and arguments; their number first */
    std::function<bool(Engine &, const Reply &)> learn;
    size_t every_at; /* where the reply says how often; 0: it does not say */
};

struct Figures {
    double us = 0, cpu_us = 0, every_ms = 0;
};

std::vector<Kind> kinds() {
    Kind live = {"registry", twi_script_registry,
                 [](Engine &engine) {
                     return Words{"1", "tw:live", "1", engine.instance, "5000"};
                 },
                 [](Engine &, const Reply &reply) { return reply.text(0) == "OK"; }, 3};
    Kind epoch = {"epochs", twi_script_leases,
                  [](Engine &engine) {
                      return Words{"2",
                                   "tw:leases",
                                   "tw:leases:wanted",
                                   "2",
                                   engine.instance,
                                   engine.epoch,
                                   engine.run,
                                   engine.said ? engine.epoch : "",
                                   "an epoch",
                                   "0",
                                   "0",
                                   engine.changes,
                                   engine.every};
                  },
                  [](Engine &engine, const Reply &reply) {
                      engine.said = engine.epoch == reply.text(2);
                      engine.epoch = reply.text(2);
                      engine.run = reply.text(4);
                      engine.life = reply.text(5);
                      engine.every = reply.text(6);
                      engine.changes = engine.said ? reply.text(7) : "-1";
                      return reply.text(0) == "OK";
                  },
                  6};
    Kind word = {"closers", twi_script_close_election,
                 [](Engine &engine) {
                     return Words{"3",
                                  "tw:closers:f::0",
                                  "tw:closed:f::1000",
                                  "tw:names:f::1000",
                                  "1",
                                  "word",
                                  engine.instance,
                                  std::to_string(++engine.number),
                                  engine.number > 1 ? "1" : "0",
                                  "30000",
                                  "1000",
                                  ",",
                                  "0",
                                  "0"};
                 },
                 [](Engine &, const Reply &reply) { return reply.text(0) == "OK"; }, 3};
    Kind draw = {"draws", twi_script_lease,
                 [](Engine &engine) {
                     return Words{"3",
                                  "tw:leases",
                                  "tw:leases:wanted",
                                  "tw:lease:f:k:0",
                                  "2",
                                  engine.epoch,
                                  engine.instance,
                                  "1",
                                  "0",
                                  "1000000000000",
                                  std::to_string(engine.granted),
                                  std::to_string(engine.granted + 1),
                                  "1",
                                  "0",
                                  std::to_string(engine.granted),
                                  "0",
                                  "0",
                                  engine.life,
                                  ""};
                 },
                 [](Engine &engine, const Reply &reply) {
                     int64_t granted = std::atoll(reply.text(2).c_str());
                     bool given = reply.text(0) == "OK" && granted == engine.granted + 1;
                     engine.granted = granted;
                     return given;
                 },
                 0};
    return {live, epoch, word, draw};
}

double median_of(std::vector<double> all) {
    std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2), all.end());
    return all[all.size() / 2];
}

/* The next so many engines send it in turn. False: a reply was not the expected one. */
bool say(Connection &connection, const std::string &sha, const Kind &kind, std::vector<Engine> &engines, size_t words,
         Figures &figures) {
    static size_t next;
    bool good = true;
    for (size_t said = 0, count; said < words; said += count) {
        count = std::min({words - said, pipeline, engines.size()});
        for (size_t i = 0; i < count; i++) {
            Words all = kind.say(engines[(next + i) % engines.size()]);
            all.insert(all.begin(), {"EVALSHA", sha});
            connection.put(all);
        }
        for (size_t i = 0; i < count; i++) {
            Reply reply(connection.get());
            good = kind.learn(engines[(next + i) % engines.size()], reply) && good;
            if (kind.every_at != 0) figures.every_ms = std::atof(reply.text(kind.every_at).c_str());
        }
        next += count;
    }
    return good;
}

void measure(Bench &bench, size_t count, int round) {
    Server server(Server::redis);
    if (server.address().empty()) {
        bench.report.fail("engines: " + server.why());
        return;
    }
    Connection connection(server.address());
    std::vector<Engine> engines(count);
    for (size_t i = 0; i < count; i++) {
        char name[40];
        std::snprintf(name, sizeof name, "%08zx%024x", i * 2654435761u % 4294967296u, 0u);
        engines[i].instance = name;
    }
    for (const Kind &kind : kinds()) {
        Figures figures;
        Reply loaded(connection.ask({"SCRIPT", "LOAD", kind.script}));
        std::string sha = loaded.self != nullptr && loaded.self->str != nullptr ? loaded.self->str : "";
        bool draws = kind.every_at == 0;
        if (draws) usleep(1300000); /* a new engine is granted nothing at first */
        bool good = say(connection, sha, kind, engines, draws ? count : 3 * count, figures);
        std::vector<double> us, cpu_us;
        size_t words = std::max(words_least, 2 * count) / parts;
        for (size_t part = 0; part < parts; part++) {
            Reply(connection.ask({"CONFIG", "RESETSTAT"}));
            double before = connection.cpu_us();
            good = say(connection, sha, kind, engines, words, figures) && good;
            cpu_us.push_back((connection.cpu_us() - before) / static_cast<double>(words));
            us.push_back(connection.script_us());
        }
        figures.us = median_of(us);
        figures.cpu_us = median_of(cpu_us);
        if (draws) figures.every_ms = every_draw_ms;
        if (!good) bench.report.fail(std::string("engines: Redis answered ") + kind.name + " otherwise than it should");
        double scripts = 1000.0 * static_cast<double>(count) / figures.every_ms;
        std::vector<Metric> metrics;
        auto add = [&](const char *metric, double value) {
            Metric one = {};
            std::snprintf(one.peer, sizeof one.peer, "%u engines", static_cast<unsigned>(count));
            std::snprintf(one.form, sizeof one.form, "%s", ours_form);
            std::snprintf(one.workload, sizeof one.workload, "engines");
            std::snprintf(one.variant, sizeof one.variant, "%s", kind.name);
            one.threads = 1;
            std::snprintf(one.metric, sizeof one.metric, "%s", metric);
            one.value = value;
            metrics.push_back(one);
        };
        add("us", figures.us);
        add("cpu", figures.cpu_us);
        add("every", figures.every_ms);
        add("scripts", scripts);
        add("core", scripts * figures.cpu_us / 1e4);
        bench.report.add("engines", natural, round, metrics);
    }
    Reply live(connection.ask({"ZCARD", "tw:live"}));
    Reply drawn(connection.ask({"HGET", "tw:lease:f:k:0", "t"}));
    int64_t units = 0;
    for (const Engine &engine : engines) units += engine.granted;
    if (live.self == nullptr || live.self->integer != static_cast<long long>(count))
        bench.report.fail("engines: the registry has lost some");
    if (drawn.self == nullptr || drawn.self->str == nullptr || std::atoll(drawn.self->str) != units)
        bench.report.fail("engines: WRONG SUM of units drawn");
}

} // namespace

void command_engines(Bench &bench) {
    static const size_t counts[] = {10, 100, 1000, 10000};
    std::vector<size_t> all(counts, counts + sizeof counts / sizeof *counts);
    rotate<size_t>(all, bench.rounds(5), [&](int round, const size_t &count) { measure(bench, count, round); });
    for (const Kind &kind : kinds()) {
        std::printf("\n%s%s\n%10s %10s %10s %10s %12s %10s\n", kind.name,
                    kind.every_at == 0 ? " (one every 500 ms and engine, all on one key)" : "", "engines", "us",
                    "cpu us", "every ms", "scripts/s", "core %");
        for (size_t count : all) {
            std::string peer = std::to_string(count) + " engines";
            auto figure = [&](const char *metric) {
                Column column = {"", kind.name, 1, metric};
                return bench.report.median("engines", "engines", natural, peer, ours_form, column);
            };
            std::printf("%10zu %10.1f %10.1f %10.0f %12.0f %10.2f\n", count, figure("us"), figure("cpu"),
                        figure("every"), figure("scripts"), figure("core"));
        }
    }
    bench.report.write_csv("engines");
}

} // namespace bench

#else

namespace bench {
void command_engines(Bench &) {
    std::printf("left out: hiredis is missing\n");
}
} // namespace bench

#endif
