/* redis.cc -- `redis`: what one would use without Tallywheel, a Redis or a memcached on the same machine over a unix
 * socket. Beside it Tallywheel counts the same keys locally, and with that Redis behind it.
 * Always true: each run has a server of its own, started for it and gone after it. The totals are read from the
 * server. With Redis behind Tallywheel, Redis must hold the sum of all adds after a flush. */
#include "bench/bench.h"

#include "bench/peers/peers.h"
#include "bench/server.h"

#include <algorithm>
#include <cstdio>

namespace bench {

namespace {

struct Ground {
    const Stream &all, &uniform;
    const std::vector<unsigned> &threads;
};

void measure_server(Child &child, const bench_peer *peer, const Ground &ground, const Server &server, uint64_t ops) {
    bench_setup setup = {};
    setup.stride = ground.all.stride();
    setup.keys_expected = ground.all.count();
    setup.address = server.address().c_str();
    unsigned long long before = server.bytes();
    Loaded table(child, peer, setup, ground.all, 1);
    child.put(peer, "redis", "plain", 1, "bytes",
              static_cast<double>(server.bytes() - before) / static_cast<double>(ground.all.count()));
    for (unsigned threads : ground.threads) {
        Plan plan;
        plan.stream = &ground.uniform;
        plan.threads = threads;
        plan.ops = ops;
        table.run(peer, "redis", "plain", plan);
    }
    table.check();
}

void measure_ours(Child &child, const bench_peer *peer, const Ground &ground, const Server *server, uint64_t ops) {
    bench_setup setup = {};
    setup.stride = ground.all.stride();
    if (server != nullptr) setup.address = server->address().c_str();
    Loaded table(child, peer, setup, ground.all, 1);
    child.put(peer, "redis", "plain", 1, "bytes", table.bytes);
    for (unsigned threads : ground.threads) {
        Plan plan;
        plan.stream = &ground.uniform;
        plan.threads = threads;
        plan.ops = ops;
        table.run(peer, "redis", "plain", plan);
        if (peer == bench_ours()) table.run(bench_ours_many(), "redis", "plain", plan);
    }
    table.check();
    if (server == nullptr) return;
    double begin = now_s();
    if (!bench_ours_flush(table.self, 60000)) child.fail("not all was acknowledged by Redis within a minute");
    child.put(peer, "redis", "plain", 1, "flush ms", (now_s() - begin) * 1000);
    int64_t sum;
    if (!bench_ours_fetch(table.self, ground.all.at(0), ground.all.count(), &sum))
        child.fail("Redis's totals could not be read");
    if (sum != table.sum)
        child.fail("WRONG SUM in Redis: %lld, should be %lld", static_cast<long long>(sum),
                   static_cast<long long>(table.sum));
}

struct Entry {
    const bench_peer *peer;
    int server; /* Server::Kind, or -1 */
    uint64_t ops;
};

} // namespace

void command_redis(Bench &bench) {
    uint64_t keys = bench.options.keys != 0 ? bench.options.keys : 65536;
    Stream all = stream_all(natural, keys), uniform = stream_uniform(natural, keys, 262144, 1);
    Ground ground = {all, uniform, bench.options.threads};
    std::vector<Entry> everyone = {{bench_ours(), -1, 4000000}};
    bool up = false;
    {
        Server probe(Server::redis);
        up = !probe.address().empty();
        if (!up) std::printf("left out: Redis (%s)\n", probe.why().c_str());
    }
#ifdef BENCH_WITH_HIREDIS
    if (up) {
        everyone.push_back({bench_ours_synced(), Server::redis, 4000000});
        everyone.push_back({bench_redis(false), Server::redis, 40000});
        everyone.push_back({bench_redis(true), Server::redis, 400000});
    }
#endif
    {
        Server probe(Server::memcached);
        if (probe.address().empty()) {
            std::printf("left out: memcached (%s)\n", probe.why().c_str());
        } else {
            everyone.push_back({bench_memcached(false), Server::memcached, 40000});
            everyone.push_back({bench_memcached(true), Server::memcached, 400000});
        }
    }
    rotate<Entry>(everyone, bench.rounds(3), [&](int round, const Entry &entry) {
        uint64_t ops = bench.options.ops != 0 ? bench.options.ops : entry.ops;
        if (entry.server < 0) {
            bench.measure("redis", natural, round, entry.peer,
                          [&](Child &child) { measure_ours(child, entry.peer, ground, nullptr, ops); });
            return;
        }
        Server server(static_cast<Server::Kind>(entry.server));
        if (server.address().empty()) {
            bench.report.fail("redis: " + server.why());
            return;
        }
        bench.measure("redis", natural, round, entry.peer, [&](Child &child) {
            if (entry.peer == bench_ours_synced())
                measure_ours(child, entry.peer, ground, &server, ops);
            else
                measure_server(child, entry.peer, ground, server, ops);
        });
    });
    std::vector<Column> columns;
    for (unsigned threads : bench.options.threads) {
        std::string title = std::to_string(threads) + "T";
        columns.push_back({"ns " + title, "plain", threads, "ns", true});
        columns.push_back({"Mops " + title, "plain", threads, "mops", false, true, 3});
    }
    columns.push_back({"flush ms", "plain", 1, "flush ms"});
    columns.push_back({"bytes", "plain", 1, "bytes"});
    bench.report.table(std::to_string(keys) +
                           " keys; `synced` sends to Redis while it counts, `flush` is what was left to send",
                       "redis", "redis", natural, columns);
    bench.report.write_csv("redis");
}

} // namespace bench
