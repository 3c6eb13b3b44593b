/* cuckoo.cc -- libcuckoo's cuckoohash_map: one upsert, under the locks of two buckets.
 * Always true: with several threads it does not begin below 262,144 slots. Smaller tables of this version (0.3.1)
 * read freed buckets when they grow under two threads (AddressSanitizer shows it in seconds). From that size on its
 * array of locks no longer grows, and neither crashes nor wrong sums were seen. */
#include "bench/peers/peers.h"
#include "bench/peers/table.h"

#include <libcuckoo/cuckoohash_map.hh>

namespace {

using namespace bench;

template <class Form> struct Table : Plain {
    static constexpr unsigned stride = Form::stride;
    libcuckoo::cuckoohash_map<typename Form::key, int64_t, Hash, Equal> map;
    explicit Table(const bench_setup &setup) : map(begin_with(setup)) {
    }
    static size_t begin_with(const bench_setup &setup) {
        constexpr size_t safe = 262144;
        size_t wanted = setup.keys_expected != 0 ? setup.keys_expected : 64;
        return setup.threads > 1 && wanted < safe ? (setup.keys_expected != 0 ? wanted * 2 : safe) : wanted;
    }
    int64_t add(const unsigned char *slot) {
        int64_t view = 1;
        map.upsert(
            Form::of(slot), [&](int64_t &count) { view = ++count; }, 1);
        return view;
    }
    template <class F> void each(F visit) {
        auto locked = map.lock_table();
        for (auto &entry : locked) visit(entry.second);
    }
};

} // namespace

const bench_peer *bench_cuckoo(uint32_t stride, bool string) {
    const char *name = "libcuckoo";
#define INLINE(n) peer<Table<Inline<n>>>(name, "inline", "with several threads it begins at 262,144 slots")
#define STRING(n) peer<Table<String<n>>>(name, "string", "with several threads it begins at 262,144 slots")
    return string ? BENCH_BY_STRIDE(stride, STRING) : BENCH_BY_STRIDE(stride, INLINE);
}
