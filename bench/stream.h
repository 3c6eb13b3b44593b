/* stream.h -- the keys of a run. They are made before the run is timed, and read one after the other during it.
 * Always true: a key depends on its number alone, so any stream can be made again. Different numbers give different
 * keys. Slots are as bench/peer.h says. A stream is not written after it was made: children share it. */
#ifndef BENCH_STREAM_H
#define BENCH_STREAM_H

#include "bench/wide.h"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace bench {

constexpr uint64_t numbers_max = 100000000; /* numbers below this give different keys */

/* splitmix64, which takes any seed. */
struct Random {
    uint64_t state;
    uint64_t next() {
        uint64_t z = state += 0x9e3779b97f4a7c15u;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        return z ^ z >> 31;
    }
    uint64_t below(uint64_t end) {
        return static_cast<uint64_t>(static_cast<Wide>(next()) * end >> 64);
    }
    double unit() {
        return static_cast<double>(next() >> 11) * 0x1p-53;
    }
};

/* The shape of a key: `natural` is appN:deviceN:10.0.x.y, 29 bytes on average. Any other value is the size in bytes. */
constexpr unsigned natural = 0;

constexpr uint32_t stride_of(unsigned key_bytes) {
    return key_bytes < 32 ? 32 : key_bytes < 64 ? 64 : 128;
}

class Stream {
  public:
    Stream() = default;
    Stream(unsigned key_bytes, size_t count, unsigned families = 1);
    ~Stream();
    Stream(Stream &&other) noexcept {
        *this = std::move(other);
    }
    Stream &operator=(Stream &&other) noexcept {
        std::swap(slots_, other.slots_);
        std::swap(count_, other.count_);
        std::swap(key_bytes_, other.key_bytes_);
        std::swap(mapped_bytes_, other.mapped_bytes_);
        std::swap(families_, other.families_);
        std::swap(family_, other.family_);
        return *this;
    }
    void set(size_t at, uint64_t number);
    const unsigned char *at(size_t index) const {
        return slots_ + index * stride();
    }
    size_t count() const {
        return count_;
    }
    uint32_t stride() const {
        return stride_of(key_bytes_);
    }
    unsigned key_bytes() const {
        return key_bytes_;
    }
    /* Keys are dealt out to so many families, each key to one of them. */
    unsigned families() const {
        return families_;
    }
    unsigned family(size_t index) const {
        return families_ == 1 ? 0 : family_[index];
    }
    double mean_bytes() const;

  private:
    unsigned char *slots_ = nullptr;
    size_t count_ = 0;
    unsigned key_bytes_ = natural;
    size_t mapped_bytes_ = 0;
    unsigned families_ = 1;
    std::vector<uint16_t> family_; /* empty with one family */
};

/* Every number below `keys` once, in scrambled order. */
Stream stream_all(unsigned key_bytes, uint64_t keys, unsigned families = 1);
/* `count` draws, each equally likely. */
Stream stream_uniform(unsigned key_bytes, uint64_t keys, size_t count, uint64_t seed, unsigned families = 1);
/* `count` draws by Zipf's law with exponent 0.99. Which keys are the frequent ones is scrambled, too. */
Stream stream_zipf(unsigned key_bytes, uint64_t keys, size_t count, uint64_t seed, unsigned families = 1);
/* `count` draws. hit_percent of them are below `keys`; the others are new, each once: *next, *next + 1 ... */
Stream stream_hits(unsigned key_bytes, uint64_t keys, size_t count, unsigned hit_percent, uint64_t seed,
                   uint64_t *next);

} // namespace bench
#endif
