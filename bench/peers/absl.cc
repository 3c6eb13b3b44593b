/* absl.cc -- Abseil's flat_hash_map, in 256 shards with a mutex each: what one writes without a concurrent map. Where
 * there are many tables, all of them together have 256 shards, and each has one at least. */
#include "bench/peers/peers.h"
#include "bench/peers/table.h"

#include <absl/container/flat_hash_map.h>
#include <memory>
#include <mutex>

namespace {

using namespace bench;

template <class Form> struct Table : Plain {
    static constexpr unsigned stride = Form::stride;
    struct alignas(64) Shard {
        std::mutex lock;
        absl::flat_hash_map<typename Form::key, int64_t, Hash, Equal> map;
    };
    unsigned shards = 256;
    std::unique_ptr<Shard[]> shard;
    explicit Table(const bench_setup &setup) {
        for (unsigned tables = 1; tables < setup.families && shards > 1; tables *= 2) shards /= 2;
        shard.reset(new Shard[shards]);
        /* Shards differ by chance: room for four standard deviations more than an even part. */
        double part = static_cast<double>(setup.keys_expected) / shards;
        if (setup.keys_expected != 0)
            for (unsigned i = 0; i < shards; i++)
                shard[i].map.reserve(static_cast<size_t>(part + 4 * __builtin_sqrt(part)));
    }
    int64_t add(const unsigned char *slot) {
        decltype(auto) key = Form::of(slot);
        size_t hash = Hash()(key);
        /* Bits from the middle of the hash: the map uses those at both ends. */
        Shard &mine = shard[hash >> 40 & (shards - 1)];
        std::lock_guard<std::mutex> guard(mine.lock);
        return ++mine.map.try_emplace(key, 0).first->second;
    }
    template <class F> void each(F visit) {
        for (unsigned i = 0; i < shards; i++)
            for (auto &entry : shard[i].map) visit(entry.second);
    }
};

} // namespace

const bench_peer *bench_absl(uint32_t stride, bool string) {
    const char *name = "Abseil";
#define INLINE(n) peer<Table<Inline<n>>>(name, "inline", "flat_hash_map, 256 shards with a mutex each")
#define STRING(n) peer<Table<String<n>>>(name, "string", "flat_hash_map, 256 shards with a mutex each")
    return string ? BENCH_BY_STRIDE(stride, STRING) : BENCH_BY_STRIDE(stride, INLINE);
}
