/* tls.cc -- `tls`: what TLS costs a batch: the same engine and the same Redis over a unix socket, over TCP, and over
 * TCP with TLS.
 *
 * Each way counts the same keys several times: `first` makes them in Redis, `again` finds them (the median of five). A
 * round is over when Redis has acknowledged all of it.
 *   kops   thousand keys a second, as the program sees it; client and server share the machine
 *   redis  CPU of the server's process, microseconds a key (user and system)
 *   ours   the same of this process, adding and sending
 *   first connect  microseconds from the opening of an engine to the first acknowledged count, handshake included
 * Always true: each run has a server of its own. In the end the counters' sum in Redis must be right. */
#include "bench/bench.h"

#include "bench/peers/peers.h"
#include "bench/server.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

#include "tallywheel.h"

namespace bench {

namespace {

constexpr int again_rounds = 5;

struct Way {
    bench_peer peer;
    std::string (*url)(const Server &server);
};

bench_peer named(const char *form) {
    bench_peer peer = {};
    peer.name = "Tallywheel";
    peer.form = form;
    return peer;
}

std::string local(int port, const char *scheme) {
    return std::string(scheme) + "://127.0.0.1:" + std::to_string(port);
}

const std::vector<Way> &ways() {
    static const std::vector<Way> all = {
        {named("TCP"), [](const Server &server) { return local(server.port(), "redis"); }},
        {named("TLS"), [](const Server &server) { return local(server.tls_port(), "rediss"); }},
        {named("unix socket"), [](const Server &server) { return "unix://" + server.address(); }},
    };
    return all;
}

struct Figures {
    double kops, redis, ours;
};

class Run {
  public:
    Run(Child &child, const Way &way, const Stream &keys, const Server &server)
        : child_(child), way_(way), keys_(keys), server_(server) {
        char error[256] = "";
        std::string url = way.url(server);
        tw_options options;
        tw_options_init(&options);
        options.error_text = error;
        options.error_size = sizeof error;
        options.redis_url = url.c_str();
        options.redis_timeout_ms = 1000;
        options.flush_keys_per_s = 1000000000;
        if (url.compare(0, 6, "rediss") == 0) options.redis_tls_ca_file = server.certificate().c_str();
        double begin = now_s();
        if (tw_open(&options, &engine_) != TW_OK) child.fail("%s", error);
        tw_family_options family;
        tw_family_options_init(&family);
        family.name = "f";
        family.window = TW_WINDOW_FOREVER;
        if (tw_family_open(engine_, &family, &family_) != TW_OK) child.fail("no family");
        if (tw_add(family_, tw_str("first"), 1, nullptr) != TW_OK) child.fail("tw_add");
        if (tw_flush(engine_, 10000) != TW_OK) child.fail("no connection to %s", url.c_str());
        child.put(&way.peer, "tls", "connect", 1, "us", (now_s() - begin) * 1e6);
    }
    ~Run() {
        tw_close(engine_, 1000);
    }
    Run(const Run &) = delete;
    Run &operator=(const Run &) = delete;

    Figures once() {
        double count = static_cast<double>(keys_.count()), redis = server_.cpu_s(), ours = own_cpu_s(), begin = now_s();
        for (size_t i = 0; i < keys_.count(); i++) {
            const unsigned char *slot = keys_.at(i);
            if (tw_add(family_, tw_bytes(slot, bench_slot_size(slot, keys_.stride())), 1, nullptr) != TW_OK)
                child_.fail("tw_add");
        }
        if (tw_flush(engine_, 60000) != TW_OK) child_.fail("not all was acknowledged by Redis within a minute");
        double took = now_s() - begin;
        return {count / took / 1e3, (server_.cpu_s() - redis) * 1e6 / count, (own_cpu_s() - ours) * 1e6 / count};
    }
    void put(const char *variant, std::vector<Figures> all) {
        auto median = [&](double Figures::*of) {
            std::sort(all.begin(), all.end(), [&](const Figures &a, const Figures &b) { return a.*of < b.*of; });
            return all[all.size() / 2].*of;
        };
        child_.put(&way_.peer, "tls", variant, 1, "kops", median(&Figures::kops));
        child_.put(&way_.peer, "tls", variant, 1, "redis", median(&Figures::redis));
        child_.put(&way_.peer, "tls", variant, 1, "ours", median(&Figures::ours));
    }
    void check(int64_t each) {
        for (size_t i = 0; i < keys_.count(); i += 9973) {
            const unsigned char *slot = keys_.at(i);
            int64_t total = 0;
            tw_key key = tw_bytes(slot, bench_slot_size(slot, keys_.stride()));
            if (tw_fetch(family_, &key, 1, 10000, &total) != TW_OK || total != each)
                child_.fail("WRONG COUNT in Redis: %lld, should be %lld", static_cast<long long>(total),
                            static_cast<long long>(each));
        }
    }

  private:
    Child &child_;
    const Way &way_;
    const Stream &keys_;
    const Server &server_;
    tw_engine *engine_ = nullptr;
    tw_family *family_ = nullptr;
};

void measure_way(Child &child, const Way &way, const Stream &keys, const Server &server) {
    Run run(child, way, keys, server);
    run.put("first", {run.once()});
    std::vector<Figures> again;
    for (int round = 0; round < again_rounds; round++) again.push_back(run.once());
    run.put("again", again);
    run.check(1 + again_rounds);
}

} // namespace

void command_tls(Bench &bench) {
    {
        Server probe(Server::redis_tls);
        if (probe.address().empty()) {
            std::printf("left out: TLS (%s)\n", probe.why().c_str());
            return;
        }
    }
    Stream keys = stream_all(natural, bench.options.keys != 0 ? bench.options.keys : 200000);
    rotate<Way>(ways(), bench.rounds(5), [&](int round, const Way &way) {
        Server server(Server::redis_tls);
        if (server.address().empty()) {
            bench.report.fail("tls: " + server.why());
            return;
        }
        bench.measure("tls", natural, round, &way.peer, [&](Child &child) { measure_way(child, way, keys, server); });
    });
    std::vector<Column> columns;
    for (const char *variant : {"first", "again"}) {
        columns.push_back({std::string(variant) + " kops", variant, 1, "kops", true, true, 0});
        columns.push_back({std::string(variant) + " redis", variant, 1, "redis", true, false, 2});
        columns.push_back({std::string(variant) + " ours", variant, 1, "ours", true, false, 2});
    }
    columns.push_back({"first connect", "connect", 1, "us", false, false, 0});
    bench.report.table(std::to_string(keys.count()) +
                           " keys, made and then found in Redis: thousand keys a second, CPU microseconds a key of "
                           "the server and of ours",
                       "tls", "tls", natural, columns, "TCP");
    bench.report.write_csv("tls");
}

} // namespace bench
