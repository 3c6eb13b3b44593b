/* noise.cc -- no table: reads the clock as the timed loops do. So what host and kernel do to a thread stands beside
 * what the tables do to it. Its longest calls come from the machine alone. */
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
