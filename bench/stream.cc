/* stream.cc -- see stream.h. */
#include "bench/stream.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

namespace bench {

namespace {

constexpr uint64_t device_end = 10000000; /* seven digits */

unsigned char *put_text(unsigned char *at, const char *text) {
    size_t size = std::strlen(text);
    std::memcpy(at, text, size);
    return at + size;
}

unsigned char *put_number(unsigned char *at, uint64_t value) {
    unsigned char digits[20];
    unsigned used = 0;
    do digits[used++] = static_cast<unsigned char>('0' + value % 10);
    while ((value /= 10) != 0);
    while (used != 0) *at++ = digits[--used];
    return at;
}

/* At most 31 bytes: app has 2 digits, device 7, x 2, y 3. Devices are spread (by a prime that shares no factor with
 * their number), so a few keys are as long as many. */
unsigned char *put_natural(unsigned char *at, uint64_t number) {
    uint64_t device = number % device_end * 7368787 % device_end;
    at = put_number(put_text(at, "app"), device % 7 + number / device_end * 7);
    at = put_number(put_text(at, ":device"), device);
    at = put_number(put_text(at, ":10.0."), device / 256 % 100);
    return put_number(put_text(at, "."), device % 256);
}

/* A short key is the number in hexadecimal. A long key is the natural key and a tail that all long keys have. */
void put_sized(unsigned char *slot, uint64_t number, unsigned size) {
    static const char tail[] =
        "/catalogue/summer-collection/shoes/running/men/list?sort=price&page=2&view=grid&currency=EUR&x=1";
    if (size < 32) {
        for (unsigned i = size; i-- != 0; number >>= 4)
            slot[i] = static_cast<unsigned char>("0123456789abcdef"[number & 15]);
        return;
    }
    unsigned char *at = put_natural(slot, number);
    std::memcpy(at, tail, static_cast<size_t>(slot + size - at));
}

/* Spreads numbers over [0, end), multiplying by a prime that does not divide `end`. */
uint64_t spread(uint64_t index, uint64_t end) {
    return static_cast<uint64_t>(static_cast<Wide>(index) * 2654435761u % end);
}

} // namespace

Stream::Stream(unsigned key_bytes, size_t count, unsigned families)
    : count_(count), key_bytes_(key_bytes), families_(families), family_(families == 1 ? 0 : count) {
    mapped_bytes_ = count * stride() + 2 * 1024 * 1024;
    void *map = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) {
        std::fprintf(stderr, "bench: no memory for a stream of %zu keys\n", count);
        std::exit(1);
    }
    /* Large pages, where there are any: reading keys is to cost no peer anything. */
    (void)madvise(map, mapped_bytes_, MADV_HUGEPAGE);
    slots_ = static_cast<unsigned char *>(map);
}

Stream::~Stream() {
    if (slots_ != nullptr) munmap(slots_, mapped_bytes_);
}

void Stream::set(size_t index, uint64_t number) {
    unsigned char *slot = slots_ + index * stride();
    unsigned size = key_bytes_;
    if (key_bytes_ == natural)
        size = static_cast<unsigned>(put_natural(slot, number) - slot);
    else
        put_sized(slot, number, key_bytes_);
    slot[stride() - 1] = static_cast<unsigned char>(size);
    if (families_ != 1) family_[index] = static_cast<uint16_t>(number % families_);
}

double Stream::mean_bytes() const {
    size_t sum = 0, some = count_ < 100000 ? count_ : 100000;
    for (size_t i = 0; i < some; i++) sum += at(i)[stride() - 1];
    return some == 0 ? 0 : static_cast<double>(sum) / static_cast<double>(some);
}

Stream stream_all(unsigned key_bytes, uint64_t keys, unsigned families) {
    Stream stream(key_bytes, keys, families);
    for (uint64_t i = 0; i < keys; i++) stream.set(i, spread(i, keys));
    return stream;
}

Stream stream_uniform(unsigned key_bytes, uint64_t keys, size_t count, uint64_t seed, unsigned families) {
    Stream stream(key_bytes, count, families);
    Random random = {seed};
    for (size_t i = 0; i < count; i++) stream.set(i, random.below(keys));
    return stream;
}

/* Gray et al., "Quickly generating billion-record synthetic databases": the usual approximation. */
Stream stream_zipf(unsigned key_bytes, uint64_t keys, size_t count, uint64_t seed, unsigned families) {
    constexpr double theta = 0.99;
    double zeta = 0;
    for (uint64_t rank = 1; rank <= keys; rank++) zeta += std::pow(static_cast<double>(rank), -theta);
    double n = static_cast<double>(keys), zeta_two = 1 + std::pow(2.0, -theta), alpha = 1 / (1 - theta);
    double eta = (1 - std::pow(2 / n, 1 - theta)) / (1 - zeta_two / zeta);
    Stream stream(key_bytes, count, families);
    Random random = {seed};
    for (size_t i = 0; i < count; i++) {
        double u = random.unit(), uz = u * zeta;
        double rank = uz < 1 ? 0 : uz < zeta_two ? 1 : n * std::pow(eta * u - eta + 1, alpha);
        uint64_t index = rank < n ? static_cast<uint64_t>(rank) : keys - 1;
        stream.set(i, spread(index, keys));
    }
    return stream;
}

Stream stream_hits(unsigned key_bytes, uint64_t keys, size_t count, unsigned hit_percent, uint64_t seed,
                   uint64_t *next) {
    Stream stream(key_bytes, count);
    Random random = {seed};
    for (size_t i = 0; i < count; i++) stream.set(i, random.below(100) < hit_percent ? random.below(keys) : (*next)++);
    return stream;
}

} // namespace bench
