/* scripts.cc -- `scripts`: what each script costs Redis by its own account (INFO commandstats), microseconds a call.
 *
 *   strict, rate, once, lock, hold, stock   calls that callers wait for: one call in flight, 100 keys, 64 lanes
 *   batch                                   items of a window that are counted already; and what one item more costs
 *   nothing                                 a script that only returns, with the arguments of a strict call
 *   least, median                           of stretches of 300 calls. The time in which another process had the core
 *                                           is in them, so the least is the steadier of the two
 * Always true: each case begins with an empty Redis, and its first calls are not measured. */
#include "bench/bench.h"

#include "bench/peers/peers.h"
#include "bench/server.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#ifdef BENCH_WITH_HIREDIS
#include <hiredis/hiredis.h>
#endif

#include "batch.lua.h"
#include "gcra.lua.h"
#include "hold.lua.h"
#include "lock.lua.h"
#include "once.lua.h"
#include "reserve.lua.h"
#include "strict.lua.h"

namespace bench {

#ifdef BENCH_WITH_HIREDIS

namespace {

using Words = std::vector<std::string>;

constexpr unsigned key_count = 100, lane_count = 64, warm = 2000, stretch = 300;

std::string text(uint64_t number) {
    return std::to_string(number);
}
std::string key_of(const char *what, uint64_t call) {
    return what + ("app:client" + text(call % key_count));
}
std::string far_ms() {
    return text((static_cast<uint64_t>(std::time(nullptr)) + 3600) * 1000);
}
/* An id of 32 digits. */
std::string id_of(uint64_t number) {
    std::string digits = text(number);
    return std::string(32 - digits.size(), '0') + digits;
}

/* Keys, with their number, and the first three arguments. */
Words head(const Words &keys, uint64_t call) {
    Words words = {text(keys.size())};
    words.insert(words.end(), keys.begin(), keys.end());
    words.insert(words.end(), {"0123456789abcdef:" + text(call % lane_count), text(call + 1) + ":1f2e3d4c", "1"});
    return words;
}
Words with(Words words, const Words &more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

Words strict(uint64_t call, const char *limit, const char *from_first) {
    return with(head({key_of("tw:calls:", call), key_of("", call)}, call), {"1", limit, "0", far_ms(), from_first});
}
Words sliding(uint64_t call) {
    return with(head({key_of("tw:calls:", call), key_of("", call), key_of("tw:log:", call)}, call),
                {"1", "1000000", "0", far_ms(), "0", "60000", "0"});
}
Words rate(uint64_t call, const char *limit) {
    return with(head({key_of("tw:calls:", call), key_of("tw:bucket:", call)}, call),
                {"1", limit, "0", limit, "60000", "0"});
}
/* `other`: which counter. */
Words once(uint64_t call, uint64_t other) {
    std::string name = "app:order" + text(other);
    return with(head({"tw:calls:" + name, "tw:once:" + name, name}, call), {"O", id_of(call), far_ms(), "0"});
}
Words lock(uint64_t call, uint64_t holder, const char *what) {
    return with(head({key_of("tw:calls:", holder), key_of("tw:lock:", holder), key_of("tw:fence:", holder)}, call),
                {what, id_of(holder), "10000", "0"});
}
Words hold(uint64_t call) {
    bool holds = call % 2 == 0;
    return with(head({key_of("tw:hold:", call / 2)}, call),
                {holds ? "hold" : "release", "15000", holds ? "1000" : "0", id_of(7) + ":" + text(call / 2)});
}
Words stock(uint64_t call) {
    uint64_t sale = call / 2;
    Words keys = {key_of("", sale), key_of("tw:stock:", sale), key_of("tw:due:", sale), "tw:token:" + id_of(sale)};
    return with(head(keys, call), {call % 2 == 0 ? "reserve" : "confirm", id_of(sale), "1", "100000000", "60000",
                                   "buyer" + text(sale), far_ms(), "86400000"});
}
/* Number 0 opens the ledger. */
Words batch(uint64_t call, uint64_t items) {
    uint64_t begin = items != 0 ? call % (4000 / items) * items : 0;
    Words words = {text(2 + (call != 0 ? items : 0)), "tw:ledger:" + id_of(1), "tw:marker"};
    for (uint64_t i = 0; call != 0 && i < items; i++) words.push_back("views:/index/" + text(begin + i) + ".html:2026");
    words = with(words, {"1", text(call), text(call != 0 ? call - 1 : 0), "00000000000000aa", "86400000", text(call),
                         "0", id_of(2)});
    if (call == 0 || items == 0) return words;
    words = with(words, {"w", far_ms(), text(items)});
    for (uint64_t i = 0; i < items; i++) words.push_back("1");
    return words;
}

struct Case {
    bench_peer peer; /* its name is the script's, its form the case's */
    const char *script;
    std::function<Words(uint64_t)> words;
    uint64_t items; /* of a batch; 0: it is none */
};

Case named(const char *name, const char *form, const char *script, std::function<Words(uint64_t)> words,
           uint64_t items = 0) {
    Case made = {};
    made.peer.name = name;
    made.peer.form = form;
    made.script = script;
    made.words = std::move(words);
    made.items = items;
    return made;
}

const std::vector<Case> &cases() {
    static const std::vector<Case> all = {
        named("nothing", "", "return 1", [](uint64_t call) { return strict(call, "1000000", "0"); }),
        named("strict", "admitted", twi_script_strict, [](uint64_t call) { return strict(call, "1000000", "0"); }),
        named("strict", "denied", twi_script_strict, [](uint64_t call) { return strict(call, "5", "0"); }),
        named("strict", "from first", twi_script_strict,
              [](uint64_t call) { return strict(call, "1000000", "60000"); }),
        named("strict", "sliding", twi_script_strict, [](uint64_t call) { return sliding(call); }),
        named("rate", "admitted", twi_script_gcra, [](uint64_t call) { return rate(call, "10000000"); }),
        named("rate", "denied", twi_script_gcra, [](uint64_t call) { return rate(call, "5"); }),
        named("once", "first", twi_script_once, [](uint64_t call) { return once(call, call); }),
        named("once", "second", twi_script_once, [](uint64_t call) { return once(call, call % key_count); }),
        named("lock", "lock, unlock", twi_script_lock,
              [](uint64_t call) { return lock(call, call / 2, call % 2 == 0 ? "L" : "U"); }),
        named("lock", "held", twi_script_lock, [](uint64_t call) { return lock(call, call, "L"); }),
        named("hold", "hold, release", twi_script_hold, hold),
        named("stock", "reserve, confirm", twi_script_reserve, stock),
        named(
            "batch", "1 item", twi_script_batch, [](uint64_t call) { return batch(call, 1); }, 1),
        named(
            "batch", "100 items", twi_script_batch, [](uint64_t call) { return batch(call, 100); }, 100),
        named(
            "batch", "500 items", twi_script_batch, [](uint64_t call) { return batch(call, 500); }, 500),
    };
    return all;
}

class Caller {
  public:
    Caller(Child &child, const Server &server, const char *script)
        : child_(child), context_(redisConnectUnix(server.address().c_str())) {
        if (context_ == nullptr || context_->err != 0) child.fail("no connection");
        sha_ = ask({"SCRIPT", "LOAD", script});
    }
    ~Caller() {
        redisFree(context_);
    }
    Caller(const Caller &) = delete;
    Caller &operator=(const Caller &) = delete;

    void call(Words words) {
        words.insert(words.begin(), {"EVALSHA", sha_});
        ask(words);
    }
    void forget() {
        ask({"CONFIG", "RESETSTAT"});
    }
    double us() {
        std::string info = ask({"INFO", "commandstats"});
        size_t at = info.find("cmdstat_evalsha:"), value = info.find("usec_per_call=", at);
        if (at == std::string::npos || value == std::string::npos) child_.fail("INFO has no cmdstat_evalsha");
        return std::atof(info.c_str() + value + std::strlen("usec_per_call="));
    }

  private:
    /* The text of a reply; an error ends the measurement. */
    std::string ask(const Words &words) {
        std::vector<const char *> data;
        std::vector<size_t> sizes;
        for (const std::string &word : words) data.push_back(word.data()), sizes.push_back(word.size());
        auto *reply = static_cast<redisReply *>(
            redisCommandArgv(context_, static_cast<int>(data.size()), data.data(), sizes.data()));
        if (reply == nullptr) child_.fail("hiredis: %s", context_->errstr);
        if (reply->type == REDIS_REPLY_ERROR) child_.fail("%s", reply->str);
        std::string said(reply->str != nullptr ? std::string(reply->str, reply->len) : "");
        freeReplyObject(reply);
        return said;
    }
    Child &child_;
    redisContext *context_;
    std::string sha_;
};

void measure_case(Child &child, const Case &one, const Server &server, uint64_t calls) {
    Caller caller(child, server, one.script);
    uint64_t scale = one.items > 1 ? one.items / 10 : 1, call = 0;
    for (; call < warm / scale + 8000 / (one.items + 1); call++) caller.call(one.words(call));
    std::vector<double> us;
    for (uint64_t done = 0; done < calls / scale; done += std::max<uint64_t>(stretch / scale, 20)) {
        caller.forget();
        for (uint64_t i = 0; i < std::max<uint64_t>(stretch / scale, 20); i++) caller.call(one.words(call++));
        us.push_back(caller.us());
    }
    std::sort(us.begin(), us.end());
    child.put(&one.peer, "scripts", "plain", 1, "least", us.front());
    child.put(&one.peer, "scripts", "plain", 1, "median", us[us.size() / 2]);
}

} // namespace

void command_scripts(Bench &bench) {
    std::vector<Case> wanted;
    for (const Case &one : cases())
        if (bench.wants_case(std::string(one.peer.name) + " " + one.peer.form)) wanted.push_back(one);
    uint64_t calls = bench.options.ops != 0 ? bench.options.ops : 12000;
    rotate<Case>(wanted, bench.rounds(3), [&](int round, const Case &one) {
        Server server(Server::redis);
        if (server.address().empty()) {
            bench.report.fail("scripts: " + server.why());
            return;
        }
        bench.measure("scripts", natural, round, &one.peer,
                      [&](Child &child) { measure_case(child, one, server, calls); });
    });
    Column least = {"least us", "plain", 1, "least", false, false, 2};
    bench.report.table("what a call of a script costs Redis by its own account, microseconds", "scripts", "scripts",
                       natural, {least, {"median us", "plain", 1, "median", false, false, 2}});
    double small = bench.report.median("scripts", "scripts", natural, "batch", "100 items", least);
    double large = bench.report.median("scripts", "scripts", natural, "batch", "500 items", least);
    if (large > small) std::printf("an item of a batch: %.2f us\n", (large - small) / 400);
    bench.report.write_csv("scripts");
}

#else

void command_scripts(Bench &) {
    std::printf("left out: hiredis is missing\n");
}

#endif

} // namespace bench
