/* sync.cc -- `sync`: what it costs a Redis to receive counts, from Tallywheel and by the ways that one would write
 * by hand.
 *
 * Every way counts the same keys twice: `first` makes the keys, `again` finds them. Commands are encoded before the
 * time runs and sent in pipelines of 512 keys. (Tallywheel: its own batches; `round trip`: each command waits for
 * the reply to the one before.)
 *   us    what Redis says of its commands (INFO commandstats): execution alone. Commands within a script or a
 *         transaction are a part of it, so only the outer ones are added up
 *   cpu   what the server's process took, user and system: with reading, parsing and replying
 *   kops  thousand keys a second, as the client sees it; client and server share the machine
 * Always true: each run has a server of its own. In the end every counter must hold exactly two, and have an expiry
 * if its way keeps one. */
#include "bench/bench.h"

#include "bench/peers/peers.h"
#include "bench/server.h"

#ifdef BENCH_WITH_HIREDIS

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <hiredis/hiredis.h>
#include <unistd.h>

namespace bench {

namespace {

constexpr size_t pipeline = 512;
constexpr uint64_t round_trip_keys = 10000; /* a round trip of three commands: one second of these is enough */

using Words = std::vector<std::string>;

std::string encode(const Words &words) {
    std::string out = "*" + std::to_string(words.size()) + "\r\n";
    for (const std::string &word : words) out += "$" + std::to_string(word.size()) + "\r\n" + word + "\r\n";
    return out;
}

/* ---- a connection ---- */

class Client {
  public:
    Client(Child &child, const Server &server) : child_(child), context_(redisConnectUnix(server.address().c_str())) {
        if (context_ == nullptr || context_->err != 0) child.fail("connect");
    }
    ~Client() {
        redisFree(context_);
    }
    Client(const Client &) = delete;
    Client &operator=(const Client &) = delete;

    void send(const std::string &bytes) {
        for (size_t sent = 0; sent < bytes.size();) {
            ssize_t some = write(context_->fd, bytes.data() + sent, bytes.size() - sent);
            if (some <= 0) child_.fail("write");
            sent += static_cast<size_t>(some);
        }
    }
    redisReply *receive() {
        void *reply = nullptr;
        if (redisGetReply(context_, &reply) != REDIS_OK || reply == nullptr) child_.fail("reply: %s", context_->errstr);
        auto *got = static_cast<redisReply *>(reply);
        if (got->type == REDIS_REPLY_ERROR) child_.fail("an error: %s", got->str);
        return got;
    }
    void skip(size_t replies) {
        for (; replies > 0; replies--) freeReplyObject(receive());
    }
    std::string ask(const Words &words) {
        send(encode(words));
        redisReply *reply = receive();
        std::string text;
        if (reply->type == REDIS_REPLY_INTEGER)
            text = std::to_string(reply->integer);
        else if (reply->str != nullptr)
            text.assign(reply->str, reply->len);
        freeReplyObject(reply);
        return text;
    }

  private:
    Child &child_;
    redisContext *context_;
};

/* ---- what the server spent ---- */

struct Spent {
    double us = 0;  /* by INFO commandstats */
    double cpu = 0; /* CPU seconds of its process */
};

double field(const std::string &info, const std::string &name) {
    size_t at = info.find(name);
    return at == std::string::npos ? 0 : std::atof(info.c_str() + at + name.size());
}

Spent spent(Client &client, const Words &outer) {
    std::string info = client.ask({"INFO", "everything"});
    Spent sum;
    for (const std::string &name : outer) {
        size_t at = info.find("cmdstat_" + name + ":");
        if (at != std::string::npos) sum.us += field(info.substr(at, info.find('\n', at) - at), "usec=");
    }
    sum.cpu = field(info, "used_cpu_sys:") + field(info, "used_cpu_user:");
    return sum;
}

class Meter {
  public:
    Meter(Child &child, const bench_peer *peer, Client &client, const Words &outer)
        : child_(child), peer_(peer), client_(client), outer_(outer), before_(spent(client, outer)), begin_(now_s()) {
    }
    void stop(const char *variant, uint64_t keys) {
        double seconds = now_s() - begin_, count = static_cast<double>(keys);
        Spent after = spent(client_, outer_);
        child_.put(peer_, "sync", variant, 1, "kops", count / seconds / 1e3);
        child_.put(peer_, "sync", variant, 1, "us", (after.us - before_.us) / count);
        child_.put(peer_, "sync", variant, 1, "cpu", (after.cpu - before_.cpu) * 1e6 / count);
    }

  private:
    Child &child_;
    const bench_peer *peer_;
    Client &client_;
    const Words &outer_;
    Spent before_;
    double begin_;
};

/* ---- the ways ---- */

/* The commands for one key. `sha`: the SHA-1 of the way's script, if it has one. */
using Commands = std::vector<Words> (*)(const std::string &key, const std::string &sha);

std::vector<Words> plain(const std::string &key, const std::string &) {
    return {{"INCRBY", key, "1"}};
}
std::vector<Words> expire_nx(const std::string &key, const std::string &) {
    return {{"INCRBY", key, "1"}, {"EXPIRE", key, "3600", "NX"}};
}
std::vector<Words> set_nx(const std::string &key, const std::string &) {
    return {{"SET", key, "0", "EX", "3600", "NX"}, {"INCRBY", key, "1"}};
}
std::vector<Words> multi(const std::string &key, const std::string &) {
    return {{"MULTI"}, {"INCRBY", key, "1"}, {"EXPIRE", key, "3600"}, {"EXEC"}};
}
std::vector<Words> lua(const std::string &key, const std::string &sha) {
    return {{"EVALSHA", sha, "1", key, "1", "3600"}};
}
std::vector<Words> lock_in_pipeline(const std::string &key, const std::string &) {
    return {
        {"SETNX", key + ":lock", "1"}, {"EXPIRE", key + ":lock", "10"}, {"INCRBY", key, "1"}, {"DEL", key + ":lock"}};
}
std::vector<Words> lock_by_turns(const std::string &key, const std::string &sha) {
    return {{"SET", key + ":lock", "me", "PX", "10000", "NX"},
            {"INCRBY", key, "1"},
            {"EVALSHA", sha, "1", key + ":lock", "me"}};
}

const char lua_incr[] = "local n = redis.call('INCRBY', KEYS[1], ARGV[1]) "
                        "if n == tonumber(ARGV[1]) then redis.call('EXPIRE', KEYS[1], ARGV[2]) end return n";
const char lua_unlock[] =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

constexpr bench_peer named(const char *name, const char *form) {
    return {name, form, nullptr, 0, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr};
}

struct Way {
    bench_peer peer;
    Commands commands;
    const char *script;
    bool by_turns, keeps_ttl;
    Words outer;
};

const std::vector<Way> &ways() {
    static const std::vector<Way> all = {
        {named("Redis", "INCRBY"), plain, nullptr, false, false, {"incrby"}},
        {named("Redis", "EXPIRE NX"), expire_nx, nullptr, false, true, {"incrby", "expire"}},
        {named("Redis", "SET NX EX"), set_nx, nullptr, false, true, {"set", "incrby"}},
        {named("Redis", "MULTI EXEC"), multi, nullptr, false, true, {"multi", "exec"}},
        {named("Redis", "Lua per key"), lua, lua_incr, false, true, {"evalsha"}},
        {named("Redis", "SETNX lock"), lock_in_pipeline, nullptr, false, false, {"setnx", "expire", "incrby", "del"}},
        {named("Redis", "lock, in turn"), lock_by_turns, lua_unlock, true, false, {"set", "incrby", "evalsha"}},
        {named("Redis", "round trip"), plain, nullptr, true, false, {"incrby"}},
    };
    return all;
}

struct Piece {
    std::string bytes;
    size_t replies = 0;
};

std::vector<Piece> encode_all(const Way &way, const Stream &keys, const std::string &sha, uint64_t count) {
    std::vector<Piece> pieces;
    size_t in_piece = way.by_turns ? 1 : pipeline;
    for (size_t i = 0; i < count; i++) {
        const unsigned char *slot = keys.at(i);
        std::string key(reinterpret_cast<const char *>(slot), bench_slot_size(slot, keys.stride()));
        if (i % in_piece == 0) pieces.emplace_back();
        for (const Words &words : way.commands(key, sha)) {
            if (way.by_turns && pieces.back().replies != 0) pieces.emplace_back();
            pieces.back().bytes += encode(words);
            pieces.back().replies++;
        }
    }
    return pieces;
}

void check_counters(Child &child, Client &client, const Way &way, const Stream &keys, uint64_t count) {
    for (size_t i = 0; i < count; i++) {
        const unsigned char *slot = keys.at(i);
        std::string key(reinterpret_cast<const char *>(slot), bench_slot_size(slot, keys.stride()));
        if (i % 97 != 0) continue;
        if (client.ask({"GET", key}) != "2") child.fail("WRONG COUNT of %s, should be 2", key.c_str());
        if (way.keeps_ttl && std::atoll(client.ask({"TTL", key}).c_str()) <= 0)
            child.fail("%s never ends", key.c_str());
    }
    if (std::strtoull(client.ask({"DBSIZE"}).c_str(), nullptr, 10) != count) child.fail("WRONG NUMBER of counters");
}

void measure_way(Child &child, const Way &way, const Stream &keys, const Server &server) {
    Client client(child, server);
    uint64_t count = way.by_turns ? std::min<uint64_t>(round_trip_keys, keys.count()) : keys.count();
    std::string sha = way.script != nullptr ? client.ask({"SCRIPT", "LOAD", way.script}) : "";
    std::vector<Piece> pieces = encode_all(way, keys, sha, count);
    for (const char *variant : {"first", "again"}) {
        Meter meter(child, &way.peer, client, way.outer);
        for (const Piece &piece : pieces) {
            client.send(piece.bytes);
            client.skip(piece.replies);
        }
        meter.stop(variant, count);
    }
    check_counters(child, client, way, keys, count);
}

/* ---- Tallywheel ---- */

void measure_ours(Child &child, const bench_peer *peer, const Stream &keys, const Server &server) {
    Client client(child, server);
    bench_setup setup = {};
    setup.stride = keys.stride();
    setup.address = server.address().c_str();
    void *self = peer->make(&setup);
    if (self == nullptr) child.fail("could not be made");
    if (!bench_ours_flush(self, 10000)) child.fail("no connection");
    const Words outer = {"eval", "evalsha", "time", "multi", "exec"}; /* in pipelines: */
    const Words outer_setnx = {"time", "set", "incrby", "pexpireat"};
    const Words &counted = peer == bench_ours_setnx() ? outer_setnx : outer;
    for (const char *variant : {"first", "again"}) {
        Meter meter(child, peer, client, counted);
        (void)peer->add(self, keys.at(0), keys.count());
        if (!bench_ours_flush(self, 60000)) child.fail("not all was acknowledged by Redis within a minute");
        meter.stop(variant, keys.count());
    }
    int64_t sum = 0;
    if (!bench_ours_fetch(self, keys.at(0), keys.count(), &sum)) child.fail("Redis's totals could not be read");
    if (sum != static_cast<int64_t>(2 * keys.count()))
        child.fail("WRONG SUM in Redis: %lld", static_cast<long long>(sum));
}

void run_one(Bench &bench, int round, const bench_peer *peer,
             const std::function<void(Child &, const Server &)> &work) {
    Server server(Server::redis);
    if (server.address().empty()) {
        bench.report.fail("sync: " + server.why());
        return;
    }
    bench.measure("sync", natural, round, peer, [&](Child &child) { work(child, server); });
}

} // namespace

void command_sync(Bench &bench) {
    {
        Server probe(Server::redis);
        if (probe.address().empty()) {
            std::printf("left out: Redis (%s)\n", probe.why().c_str());
            return;
        }
    }
    Stream keys = stream_all(natural, bench.options.keys != 0 ? bench.options.keys : 200000);
    struct Entry {
        const bench_peer *peer;
        const Way *way; /* NULL: ours */
    };
    std::vector<Entry> everyone = {
        {bench_ours_script(), nullptr}, {bench_ours_multi(), nullptr}, {bench_ours_setnx(), nullptr}};
    for (const Way &way : ways())
        if (bench.wants(&way.peer)) everyone.push_back({&way.peer, &way});
    rotate<Entry>(everyone, bench.rounds(5), [&](int round, const Entry &entry) {
        run_one(bench, round, entry.peer, [&](Child &child, const Server &server) {
            if (entry.way == nullptr)
                measure_ours(child, entry.peer, keys, server);
            else
                measure_way(child, *entry.way, keys, server);
        });
    });
    std::vector<Column> columns;
    for (const char *variant : {"first", "again"}) {
        columns.push_back({std::string(variant) + " us", variant, 1, "us", true, false, 2});
        columns.push_back({std::string(variant) + " cpu", variant, 1, "cpu", true, false, 2});
        columns.push_back({std::string(variant) + " kops", variant, 1, "kops", true, true, 0});
    }
    bench.report.table(std::to_string(keys.count()) +
                           " keys, first writes and existing keys: microseconds a key of the server's "
                           "commands and of its process, thousand keys a second",
                       "sync", "sync", natural, columns, bench_ours_script()->form);
    bench.report.write_csv("sync");
}

} // namespace bench

#else

#include <cstdio>

namespace bench {

void command_sync(Bench &) {
    std::printf("left out: it was built without hiredis\n");
}

} // namespace bench

#endif
