/* instructions.cc -- instructions KEYS KEY_BYTES TOLD: adds each of KEYS new keys, then hits each of them ten times. It is
 * run by instructions.sh under callgrind, which counts what is executed within tw_add(). KEY_BYTES: 0 for natural keys.
 * TOLD: 1 if the family knows how many keys will come.
 * Always true: one thread adds. All inserts come before bench_hit_all(), all hits within it. The sum is checked in the
 * end: no figure stands for calls that did not count. */
#include "bench/peer.h"
#include "bench/stream.h"

#include <cstdio>
#include <cstdlib>

using namespace bench;

constexpr unsigned hits = 10; /* of each key */

/* callgrind writes down the inserts before it. It is found by its name. */
extern "C" __attribute__((noinline)) void bench_hit_all(const bench_peer *peer, void *self, const Stream *keys) {
    for (unsigned i = 0; i < hits; i++) peer->add(self, keys->at(0), keys->count());
}

int main(int argc, char **argv) {
    if (argc != 4) {
        std::fprintf(stderr, "usage: instructions KEYS KEY_BYTES TOLD\n");
        return 2;
    }
    Stream keys = stream_all(static_cast<unsigned>(std::atoi(argv[2])), std::strtoull(argv[1], nullptr, 10));
    bench_setup setup = {};
    setup.stride = keys.stride();
    setup.threads = 1;
    setup.memory_bytes = uint64_t{1} << 30; /* valgrind has no room for 64 GiB */
    setup.keys_expected = std::atoi(argv[3]) != 0 ? keys.count() : 0;
    const bench_peer *peer = bench_ours();
    void *self = peer->make(&setup);
    if (self == nullptr) return 1;
    peer->add(self, keys.at(0), keys.count());
    bench_hit_all(peer, self, &keys);
    bench_total total;
    bool right = peer->total(self, &total) && total.counters == keys.count() &&
                 total.sum == static_cast<int64_t>(keys.count() * (1 + hits));
    if (!right) std::fprintf(stderr, "instructions: WRONG SUM\n");
    return right ? 0 : 1;
}
