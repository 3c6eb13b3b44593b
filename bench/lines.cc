/* lines.cc -- see lines.h. */
#include "bench/lines.h"

#include "bench/stream.h"

#include <cstring>
#include <sys/mman.h>

namespace bench {

Lines map_lines(uint64_t count, bool large) {
    constexpr uint64_t page = 2 * 1024 * 1024;
    uint64_t bytes = count * words_of_line * sizeof(uint64_t);
    void *map = mmap(nullptr, bytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) return {};
    auto at = (reinterpret_cast<uintptr_t>(map) + page - 1) & ~static_cast<uintptr_t>(page - 1);
    (void)madvise(reinterpret_cast<void *>(at), bytes, large ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    std::memset(reinterpret_cast<void *>(at), 0, bytes);
    Lines lines;
    lines.words = reinterpret_cast<std::atomic<uint64_t> *>(at);
    lines.count = count;
    return lines;
}

uint64_t read_dependent(const Lines &lines, uint64_t count) {
    static std::atomic<uint64_t> sink;
    Random random = {1};
    uint64_t last = 0; /* every line holds 0, but the processor does not know that */
    for (uint64_t i = 0; i < count; i++) last = lines.first_of(random.below(lines.count) + last).load();
    sink += last;
    return count;
}

} // namespace bench
