/* noise.cc -- no table at all: reads the clock as the timed loops do, so that what host and kernel do to a thread
 * stands beside what the tables do to it. Its dearest calls are nobody's fault but the machine's. */
#include "bench/peers/peers.h"
#include "bench/peers/table.h"

namespace {

using namespace bench;

struct Table : Plain {
    static constexpr unsigned stride = 32;
    explicit Table(const bench_setup &) {
    }
    int64_t add(const unsigned char *) {
        return 0;
    }
    template <class F> void each(F) {
    }
};

} // namespace

const bench_peer *bench_noise() {
    return peer<Table>("clock only", "noise", "the machine's own noise: a thread that only reads the clock");
}
