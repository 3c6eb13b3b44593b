/* cluster.cc -- `cluster`: what Redis Cluster costs a batch: the same engine and the same keys over one plain Redis,
 * over the same with the names of a cluster, and over a cluster of one node.
 *
 * A round adds one to each of 10,000 keys and is over when Redis has acknowledged all of it. Each figure is the median
 * of several rounds, after one that made the keys.
 *   keys/batch  keys of a batch, in the mean (tw_stats.batches_sent)
 *   redis       CPU of the server's process, microseconds a key (user and system)
 *   ours        the same of this process, adding and sending
 *   kops        thousand keys a second, as the program sees it; client and server share the machine
 * Two rows differ in the names alone (`names of a cluster`), or in cluster mode and its 128 ledgers alone (`cluster`).
 * Always true: each run has a server of its own. In the end the counters in Redis must be right. */
#include "bench/bench.h"

#include "bench/peers/peers.h"
#include "bench/server.h"

#include <algorithm>
#include <cstdio>

#include "tallywheel.h"

namespace bench {

namespace {

constexpr uint64_t keys_usual = 10000;
constexpr int again_rounds = 15;

struct Way {
    bench_peer peer;
    Server::Kind kind;
    const char *scheme, *redis_key;
};

bench_peer named(const char *form) {
    bench_peer peer = {};
    peer.name = "Tallywheel";
    peer.form = form;
    return peer;
}

const std::vector<Way> &ways() {
    static const std::vector<Way> all = {
        {named("one Redis"), Server::redis_tcp, "redis", nullptr},
        {named("names of a cluster"), Server::redis_tcp, "redis", "%n:{%t}:%k"},
        {named("cluster, 128 tags"), Server::redis_cluster, "redis+cluster", nullptr},
    };
    return all;
}

struct Figures {
    double keys_a_batch, redis, ours, kops;
};

class Run {
  public:
    Run(Child &child, const Way &way, const Stream &keys, const Server &server)
        : child_(child), way_(way), keys_(keys), server_(server) {
        char error[256] = "";
        std::string url = std::string(way.scheme) + "://127.0.0.1:" + std::to_string(server.port());
        tw_options options;
        tw_options_init(&options);
        options.error_text = error;
        options.error_size = sizeof error;
        options.redis_url = url.c_str();
        options.redis_timeout_ms = 1000;
        options.flush_keys_per_s = 1000000000;
        if (tw_open(&options, &engine_) != TW_OK) child.fail("%s", error);
        tw_family_options family;
        tw_family_options_init(&family);
        family.name = "f";
        family.window = TW_WINDOW_FOREVER;
        family.redis_key = way.redis_key;
        family.redis_tags = 128;
        if (tw_family_open(engine_, &family, &family_) != TW_OK) child.fail("no family");
    }
    ~Run() {
        tw_close(engine_, 1000);
    }
    Run(const Run &) = delete;
    Run &operator=(const Run &) = delete;

    Figures once() {
        double count = static_cast<double>(keys_.count()), sent = batches(), redis = server_.cpu_s(),
               ours = own_cpu_s(), begin = now_s();
        for (size_t i = 0; i < keys_.count(); i++)
            if (tw_add(family_, key(i), 1, nullptr) != TW_OK) child_.fail("tw_add");
        if (tw_flush(engine_, 60000) != TW_OK) child_.fail("not all was acknowledged by Redis within a minute");
        double took = now_s() - begin;
        return {count / (batches() - sent), (server_.cpu_s() - redis) * 1e6 / count, (own_cpu_s() - ours) * 1e6 / count,
                count / took / 1e3};
    }
    void put(std::vector<Figures> all) {
        auto median = [&](const char *metric, double Figures::*of) {
            std::sort(all.begin(), all.end(), [&](const Figures &a, const Figures &b) { return a.*of < b.*of; });
            child_.put(&way_.peer, "cluster", "again", 1, metric, all[all.size() / 2].*of);
        };
        median("keys_a_batch", &Figures::keys_a_batch);
        median("redis", &Figures::redis);
        median("ours", &Figures::ours);
        median("kops", &Figures::kops);
    }
    void check(int64_t each) {
        for (size_t i = 0; i < keys_.count(); i += 97) {
            int64_t total = 0;
            tw_key one = key(i);
            if (tw_fetch(family_, &one, 1, 10000, &total) != TW_OK || total != each)
                child_.fail("WRONG COUNT in Redis: %lld, should be %lld", static_cast<long long>(total),
                            static_cast<long long>(each));
        }
    }

  private:
    tw_key key(size_t i) const {
        const unsigned char *slot = keys_.at(i);
        return tw_bytes(slot, bench_slot_size(slot, keys_.stride()));
    }
    double batches() {
        tw_stats stats;
        if (tw_stats_read(engine_, &stats) != TW_OK) child_.fail("tw_stats_read");
        return static_cast<double>(stats.batches_sent);
    }
    Child &child_;
    const Way &way_;
    const Stream &keys_;
    const Server &server_;
    tw_engine *engine_ = nullptr;
    tw_family *family_ = nullptr;
};

void measure_way(Child &child, const Way &way, const Stream &keys, const Server &server) {
    Run run(child, way, keys, server);
    (void)run.once(); /* makes the keys, and opens the ledgers */
    std::vector<Figures> again;
    for (int round = 0; round < again_rounds; round++) again.push_back(run.once());
    run.put(again);
    run.check(1 + again_rounds);
}

} // namespace

void command_cluster(Bench &bench) {
    {
        Server probe(Server::redis_cluster);
        if (probe.address().empty()) {
            std::printf("left out: Redis Cluster (%s)\n", probe.why().c_str());
            return;
        }
    }
    Stream keys = stream_all(natural, bench.options.keys != 0 ? bench.options.keys : keys_usual);
    rotate<Way>(ways(), bench.rounds(5), [&](int round, const Way &way) {
        Server server(way.kind);
        if (server.address().empty()) {
            bench.report.fail("cluster: " + server.why());
            return;
        }
        bench.measure("cluster", natural, round, &way.peer,
                      [&](Child &child) { measure_way(child, way, keys, server); });
    });
    const std::vector<Column> columns = {{"keys/batch", "again", 1, "keys_a_batch", false, true, 1},
                                         {"redis", "again", 1, "redis", true, false, 2},
                                         {"ours", "again", 1, "ours", true, false, 2},
                                         {"kops", "again", 1, "kops", true, true, 0}};
    bench.report.table(std::to_string(keys.count()) + " keys that are in Redis, again and again: keys of a batch, CPU "
                                                      "microseconds a key of the server and of ours, thousand keys a "
                                                      "second",
                       "cluster", "cluster", natural, columns, "one Redis");
    bench.report.write_csv("cluster");
}

} // namespace bench
