/* memcached.cc -- memcached over a unix socket: `ma` (meta arithmetic), which makes a missing counter at 1. One per
 * round trip, or a hundred at a time. Its protocol needs no library.
 * Always true: each thread has a connection of its own. A reply that is no number ends the child. memcached cannot
 * list its keys: this remembers them while they are loaded (outside of any measurement), and reads them back by
 * name. */
#include "bench/peers/peers.h"
#include "bench/server.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <unordered_set>
#include <vector>

namespace {

constexpr size_t pipeline = 100;

struct Client {
    std::string address;
    uint32_t stride;
    uint64_t keys_expected;
    std::mutex lock;
    std::unordered_set<std::string> keys;
};

struct Connection {
    int fd = -1;
    std::string out;
    char in[65536];
    size_t begin = 0, end = 0;
};
thread_local Connection *here;

[[noreturn]] void fail(const char *what) {
    std::fprintf(stderr, "memcached: %s\n", what);
    std::abort();
}

void *make(const bench_setup *setup) {
    if (setup->address == nullptr) return nullptr;
    return new Client{setup->address, setup->stride, setup->keys_expected, {}, {}};
}

void enter(void *self) {
    here = new Connection;
    here->fd = bench::connect_to(static_cast<Client *>(self)->address);
    if (here->fd < 0) fail("connect");
}

void leave(void *) {
    close(here->fd);
    delete here;
    here = nullptr;
}

void send_out() {
    for (size_t sent = 0; sent < here->out.size();) {
        ssize_t some = send(here->fd, here->out.data() + sent, here->out.size() - sent, MSG_NOSIGNAL);
        if (some <= 0) fail("send");
        sent += static_cast<size_t>(some);
    }
    here->out.clear();
}

/* The next line, without its end. */
std::string_view line() {
    for (;;) {
        void *found = std::memchr(here->in + here->begin, '\n', here->end - here->begin);
        if (found != nullptr) {
            char *begin = here->in + here->begin, *end = static_cast<char *>(found);
            here->begin = static_cast<size_t>(end - here->in) + 1;
            return {begin, static_cast<size_t>(end - begin) - (end > begin && end[-1] == '\r' ? 1 : 0)};
        }
        std::memmove(here->in, here->in + here->begin, here->end - here->begin);
        here->end -= here->begin;
        here->begin = 0;
        if (here->end == sizeof here->in) fail("a line without an end");
        ssize_t some = recv(here->fd, here->in + here->end, sizeof here->in - here->end, 0);
        if (some <= 0) fail("receive");
        here->end += static_cast<size_t>(some);
    }
}

/* "VA <size> ...", then the number. */
int64_t answer() {
    std::string_view head = line();
    if (head.substr(0, 3) != "VA ") fail("an answer that is no number");
    std::string_view digits = line();
    int64_t value = 0;
    for (char digit : digits)
        if (digit >= '0' && digit <= '9') value = value * 10 + (digit - '0');
    return value;
}

void remember(Client &client, const unsigned char *slot) {
    std::lock_guard<std::mutex> guard(client.lock);
    client.keys.emplace(reinterpret_cast<const char *>(slot), bench_slot_size(slot, client.stride));
}

template <size_t Some> int64_t add(void *self, const unsigned char *slots, size_t count) {
    Client &client = *static_cast<Client *>(self);
    int64_t seen = 0;
    bool loading = client.keys.size() < client.keys_expected;
    for (size_t done = 0; done < count; done += Some) {
        size_t some = std::min(Some, count - done);
        for (size_t i = 0; i < some; i++) {
            const unsigned char *slot = slots + (done + i) * client.stride;
            if (loading) remember(client, slot);
            here->out += "ma ";
            here->out.append(reinterpret_cast<const char *>(slot), bench_slot_size(slot, client.stride));
            here->out += " N0 J1 v\r\n";
        }
        send_out();
        for (size_t i = 0; i < some; i++) seen ^= answer();
    }
    return seen;
}

bool total(void *self, bench_total *sums) {
    Client &client = *static_cast<Client *>(self);
    *sums = bench_total{0, 0};
    enter(self);
    for (const std::string &key : client.keys) {
        here->out += "mg " + key + " v\r\n";
        send_out();
        sums->sum += answer();
        sums->counters++;
    }
    leave(self);
    return true;
}

const bench_peer round_trip = {
    "memcached", "round trip", "ma over a unix socket", 0, make, enter, leave, add<1>, nullptr, nullptr, total};
const bench_peer pipelined = {"memcached", "pipelined 100", "ma over a unix socket", 0,       make,
                              enter,       leave,           add<pipeline>,           nullptr, nullptr,
                              total};

} // namespace

const bench_peer *bench_memcached(bool in_pipeline) {
    return in_pipeline ? &pipelined : &round_trip;
}
