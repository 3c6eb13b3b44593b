/* walk.cc -- see walk.h. */
#include "bench/walk.h"

#include "bench/peer.h"

#include <cstdlib>

namespace bench {

Walk::Walk(uint64_t lines) : zero_(bench_zero) {
    if (lines == 0) return;
    lines_ = map_lines(lines, false);
    if (lines_.words == nullptr) std::abort();
}

/* Each branch has a place of its own in the code. The empty statements keep it a branch. */
static uint64_t branch(uint64_t bits, uint64_t sum) {
#pragma GCC unroll 32
    for (int i = 0; i < 32; i++) {
        if (bits & 1) {
            sum += bits;
            __asm__ volatile("" : "+r"(sum));
        } else {
            sum ^= static_cast<uint64_t>(i);
            __asm__ volatile("" : "+r"(sum));
        }
        bits >>= 1;
    }
    return sum;
}

uint64_t Walk::go(uint64_t after) {
    if (lines_.count == 0) return after;
    constexpr uint64_t odd = 2654435761u; /* shares no factor with a power of two: each line comes once */
    uint64_t none = after & zero_, sum = after;
    for (uint64_t i = 0; i < lines_.count; i++) {
        std::atomic<uint64_t> &word = lines_.first_of((i * odd + none) & (lines_.count - 1));
        sum += word.load(std::memory_order_relaxed);
        if (i % 4 == 0) word.store(sum, std::memory_order_relaxed);
    }
    uint64_t seldom = random_.next() & random_.next() & random_.next();
    return branch(seldom ^ (sum & zero_), sum);
}

} // namespace bench
