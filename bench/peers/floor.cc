/* floor.cc -- no table: what no table of counters can do without. The engine's keyed hash of the key, a read of the
 * line that the hash names (of two lines for slots of 128 bytes), and an atomic add to it. No key is compared: keys
 * that meet on a line share its count.
 * Always true: the sum is right. The number of counters is not that of the keys. */
#include "bench/floor.h"
#include "bench/lines.h"
#include "bench/peers/peers.h"
#include "bench/peers/table.h"
#include "bench/report.h"

#include <algorithm>
#include <cstdlib>

namespace {

using namespace bench;

template <unsigned Stride> struct Table : Plain {
    static constexpr unsigned stride = Stride;
    static constexpr unsigned lines_each = Stride > 64 ? 2 : 1;
    uint64_t records;
    Lines lines;
    explicit Table(const bench_setup &setup)
        : records(std::max<uint64_t>(setup.keys_expected, 1)), lines(map_lines(records * lines_each, true)) {
        if (lines.words == nullptr) std::abort();
        bench_floor_hash_init();
    }
    std::atomic<uint64_t> *record(const unsigned char *slot) {
        auto product = static_cast<Wide>(bench_floor_hash(slot, 1, Stride)) * records;
        return &lines.first_of(static_cast<uint64_t>(product >> 64) * lines_each);
    }
    int64_t add(const unsigned char *slot) {
        std::atomic<uint64_t> *words = record(slot);
        uint64_t rest = lines_each == 2 ? words[words_of_line].load() : 0; /* 0 as well */
        return static_cast<int64_t>(words->fetch_add(1) + 1 + rest);
    }
    template <class F> void each(F visit) {
        for (uint64_t i = 0; i < records; i++) {
            uint64_t count = lines.first_of(i * lines_each).load();
            if (count != 0) visit(static_cast<int64_t>(count));
        }
    }
};

} // namespace

const bench_peer *bench_floor(uint32_t stride) {
#define FLOOR(n) peer<Table<n>>(floor_name, "as one", "hash, read and atomic add; it compares no key")
    return BENCH_BY_STRIDE(stride, FLOOR);
}
