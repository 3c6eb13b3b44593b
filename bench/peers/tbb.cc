/* tbb.cc -- oneTBB's concurrent_hash_map. One lookup serves hit and insert; the accessor's lock guards the count. */
#include "bench/peers/peers.h"
#include "bench/peers/table.h"

#include <oneapi/tbb/concurrent_hash_map.h>

namespace {

using namespace bench;

struct Compare {
    using is_transparent = void;
    template <class K> size_t hash(const K &key) const {
        return Hash()(key);
    }
    template <class A, class B> bool equal(const A &a, const B &b) const {
        return a == b;
    }
};

template <class Form> struct Table : Plain {
    static constexpr unsigned stride = Form::stride;
    using Map = tbb::concurrent_hash_map<typename Form::key, int64_t, Compare>;
    Map map;
    explicit Table(const bench_setup &setup) {
        if (setup.keys_expected != 0) map.rehash(setup.keys_expected);
    }
    int64_t add(const unsigned char *slot) {
        typename Map::accessor at;
        map.insert(at, Form::of(slot));
        return ++at->second;
    }
    template <class F> void each(F visit) {
        for (auto &entry : map) visit(entry.second);
    }
};

} // namespace

const bench_peer *bench_tbb(uint32_t stride, bool string) {
    const char *name = "oneTBB";
#define INLINE(n) peer<Table<Inline<n>>>(name, "inline", "concurrent_hash_map")
#define STRING(n) peer<Table<String<n>>>(name, "string", "concurrent_hash_map")
    return string ? BENCH_BY_STRIDE(stride, STRING) : BENCH_BY_STRIDE(stride, INLINE);
}
