/* lines.h -- memory as the processor sees it: lines of 64 bytes, to be read, added to and walked over.
 * Always true: every line was written once before it is handed out, so no access faults. Lines live as long as the
 * process that made them. */
#ifndef BENCH_LINES_H
#define BENCH_LINES_H

#include <atomic>
#include <cstdint>

namespace bench {

constexpr unsigned words_of_line = 8;

struct Lines {
    std::atomic<uint64_t> *words = nullptr; /* null: there is no memory */
    uint64_t count = 0;
    std::atomic<uint64_t> &first_of(uint64_t line) const {
        return words[line * words_of_line];
    }
};

/* `large`: on 2 MiB pages, if the machine gives them; else on 4 KiB pages. */
Lines map_lines(uint64_t count, bool large);

/* Reads random lines, each at an address that depends on what was read before. Returns `count`. */
uint64_t read_dependent(const Lines &lines, uint64_t count);

/* Adds to `Spread` words in turn, each on a line of its own: consecutive stores do not meet in one word. */
template <unsigned Spread> uint64_t adds(const Lines &lines, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) lines.first_of(i % Spread).fetch_add(1);
    return count;
}

} // namespace bench
#endif
