/* table.h -- turns a class with one method, add(slot) -> new count, into a peer, with the same three loops for all.
 *
 * All peers share one hash, a multiply-fold. It is written here, inlined and not keyed, so it is cheaper than a hash
 * that guards against floods. For inline keys it covers the whole slot (no branch on the size), for strings the
 * key's own bytes. It is as good as the usual multiply-fold hashes, so a table with a hash of its own loses nothing
 * by it.
 * Always true: a key is never copied to be looked up. Strings are looked up by view where the library can. */
#ifndef BENCH_PEERS_TABLE_H
#define BENCH_PEERS_TABLE_H

#include "bench/peer.h"
#include "bench/wide.h"

#include <cstring>
#include <string>
#include <string_view>

namespace bench {

inline uint64_t word(const void *at) {
    uint64_t value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

inline uint64_t fold(uint64_t a, uint64_t b) {
    auto product = static_cast<Wide>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

constexpr uint64_t odd[4] = {0xd6e8feb86659fd93u, 0xa5a3564e27f8d1a7u, 0xc2b2ae3d27d4eb4fu, 0x9e6c63d0676a9a99u};

/* Takes any size and reads no byte outside: the last 16 bytes overlap those before. */
inline uint64_t hash_bytes(const unsigned char *data, size_t size) {
    uint64_t sum = size * odd[0];
    if (size >= 16) {
        for (size_t at = 0; at + 16 < size; at += 16) sum = fold(word(data + at) ^ odd[1], word(data + at + 8) ^ sum);
        return fold(fold(word(data + size - 16) ^ odd[2], word(data + size - 8) ^ sum), odd[3]);
    }
    uint64_t low = 0, high = 0;
    if (size >= 8) {
        low = word(data);
        high = word(data + size - 8);
    } else {
        std::memcpy(&low, data, size);
    }
    return fold(fold(low ^ odd[1], high ^ sum ^ odd[2]), odd[3]);
}

/* The inline key that a careful user would make by hand: a slot. */
template <unsigned Stride> struct alignas(8) Pod {
    unsigned char bytes[Stride];
    bool operator==(const Pod &other) const {
        return std::memcmp(bytes, other.bytes, Stride) == 0;
    }
};

/* No branch: Stride is known. */
template <unsigned Stride> uint64_t hash_pod(const Pod<Stride> &key) {
    uint64_t sum = odd[0];
    for (unsigned at = 0; at < Stride; at += 32)
        sum ^= fold(word(key.bytes + at) ^ odd[1] ^ sum, word(key.bytes + at + 8) ^ odd[2]) ^
               fold(word(key.bytes + at + 16) ^ odd[3], word(key.bytes + at + 24) ^ odd[0] ^ sum);
    return fold(sum, odd[3]);
}

/* How a table takes a key: `Inline` as a slot, `String` as std::string looked up by view. */
template <unsigned Stride> struct Inline {
    using key = Pod<Stride>;
    static constexpr unsigned stride = Stride;
    static const key &of(const unsigned char *slot) {
        return *reinterpret_cast<const key *>(slot);
    }
};
template <unsigned Stride> struct String {
    using key = std::string;
    static constexpr unsigned stride = Stride;
    static std::string_view of(const unsigned char *slot) {
        return {reinterpret_cast<const char *>(slot), bench_slot_size(slot, Stride)};
    }
};

struct Hash {
    using is_transparent = void;
    template <unsigned Stride> size_t operator()(const Pod<Stride> &key) const {
        return hash_pod(key);
    }
    size_t operator()(std::string_view key) const {
        return hash_bytes(reinterpret_cast<const unsigned char *>(key.data()), key.size());
    }
};
struct Equal {
    using is_transparent = void;
    template <class A, class B> bool operator()(const A &a, const B &b) const {
        return a == b;
    }
};

/* The loops. */
template <class Table> struct Loops {
    static int64_t add(void *self, const unsigned char *slots, size_t count) {
        Table &table = *static_cast<Table *>(self);
        int64_t seen = 0;
        for (size_t i = 0; i < count; i++) seen ^= table.add(slots + i * Table::stride);
        return seen;
    }
    static int64_t add_dependent(void *self, const unsigned char *slots, size_t count) {
        Table &table = *static_cast<Table *>(self);
        uint64_t view = 0, zero = bench_zero;
        for (size_t i = 0; i < count; i++)
            view = static_cast<uint64_t>(table.add(slots + i * Table::stride + (view & zero)));
        return static_cast<int64_t>(view);
    }
    static void add_timed(void *self, const unsigned char *slots, size_t count, bench_histogram *histogram) {
        Table &table = *static_cast<Table *>(self);
        histogram->last = bench_ticks();
        for (size_t i = 0; i < count; i++) {
            table.add(slots + i * Table::stride);
            bench_record_since(histogram);
        }
    }
    static void *make(const bench_setup *setup) {
        return new Table(*setup);
    }
    static void enter(void *self) {
        static_cast<Table *>(self)->enter();
    }
    static void leave(void *self) {
        static_cast<Table *>(self)->leave();
    }
    static bool total(void *self, bench_total *sums) {
        *sums = bench_total{0, 0};
        static_cast<Table *>(self)->each([&](int64_t count) {
            sums->sum += count;
            sums->counters++;
        });
        return true;
    }
};

/* What most tables do not need. */
struct Plain {
    void enter() {
    }
    void leave() {
    }
};

template <class Table> const bench_peer *peer(const char *name, const char *form, const char *note) {
    using L = Loops<Table>;
    static const bench_peer made = {
        name, form, note, Table::stride, L::make, L::enter, L::leave, L::add, L::add_dependent, L::add_timed, L::total};
    return &made;
}

/* Calls `make` with the stride as a constant. */
#define BENCH_BY_STRIDE(stride, make) ((stride) == 32 ? make(32) : (stride) == 64 ? make(64) : make(128))

} // namespace bench
#endif
