/* redis.cc -- Redis over a unix socket: INCR, one per round trip, or a hundred at a time. hiredis encodes and
 * decodes.
 * Always true: each thread has a connection of its own. A reply that is no number ends the child. */
#include "bench/peers/peers.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <hiredis/hiredis.h>
#include <string>

namespace {

constexpr size_t pipeline = 100;

struct Client {
    std::string address;
    uint32_t stride;
};
thread_local redisContext *context;

void *make(const bench_setup *setup) {
    if (setup->address == nullptr) return nullptr;
    return new Client{setup->address, setup->stride};
}

[[noreturn]] void fail(const char *what) {
    std::fprintf(stderr, "redis: %s: %s\n", what, context != nullptr ? context->errstr : "");
    std::abort();
}

void enter(void *self) {
    context = redisConnectUnix(static_cast<Client *>(self)->address.c_str());
    if (context == nullptr || context->err != 0) fail("connect");
}

void leave(void *) {
    redisFree(context);
    context = nullptr;
}

int64_t answer() {
    void *got = nullptr;
    if (redisGetReply(context, &got) != REDIS_OK || got == nullptr) fail("reply");
    auto *reply = static_cast<redisReply *>(got);
    int64_t value = reply->integer;
    if (reply->type == REDIS_REPLY_STRING)
        value = std::strtoll(reply->str, nullptr, 10);
    else if (reply->type != REDIS_REPLY_INTEGER)
        fail("an answer that is no number");
    freeReplyObject(reply);
    return value;
}

template <size_t Some> int64_t add(void *self, const unsigned char *slots, size_t count) {
    uint32_t stride = static_cast<Client *>(self)->stride;
    int64_t seen = 0;
    for (size_t done = 0; done < count; done += Some) {
        size_t some = std::min(Some, count - done);
        for (size_t i = 0; i < some; i++) {
            const unsigned char *slot = slots + (done + i) * stride;
            const char *words[] = {"INCR", reinterpret_cast<const char *>(slot)};
            size_t sizes[] = {4, bench_slot_size(slot, stride)};
            redisAppendCommandArgv(context, 2, words, sizes);
        }
        for (size_t i = 0; i < some; i++) seen ^= answer();
    }
    return seen;
}

/* Reads all keys of the server: no other client uses it. */
bool total(void *self, bench_total *sums) {
    *sums = bench_total{0, 0};
    enter(self);
    std::string cursor = "0";
    do {
        auto *reply = static_cast<redisReply *>(redisCommand(context, "SCAN %s COUNT 1000", cursor.c_str()));
        if (reply == nullptr || reply->type != REDIS_REPLY_ARRAY || reply->elements != 2) fail("SCAN");
        cursor = reply->element[0]->str;
        redisReply *keys = reply->element[1];
        for (size_t i = 0; i < keys->elements; i++)
            redisAppendCommand(context, "GET %b", keys->element[i]->str, keys->element[i]->len);
        for (size_t i = 0; i < keys->elements; i++) sums->sum += answer();
        sums->counters += keys->elements;
        freeReplyObject(reply);
    } while (cursor != "0");
    leave(self);
    return true;
}

const bench_peer round_trip = {"Redis", "round trip", "INCR over a unix socket", 0, make, enter, leave, add<1>, nullptr,
                               nullptr, total};
const bench_peer pipelined = {
    "Redis", "pipelined 100", "INCR over a unix socket", 0, make, enter, leave, add<pipeline>, nullptr, nullptr, total};

} // namespace

const bench_peer *bench_redis(bool in_pipeline) {
    return in_pipeline ? &pipelined : &round_trip;
}
