/* walk.h -- the other work of a thread, between two calls of a table: it walks some lines of its own data, each once,
 * out of order, and writes to each fourth; then it takes 32 branches, of which one in eight goes the other way than
 * usual (some 200 instructions), by what it read.
 * Always true: a walk begins no sooner than the value that it is given is known, and what it returns is known no sooner
 * than all of it is done. So no call overlaps with a walk. All walks of one number of lines are alike. */
#ifndef BENCH_WALK_H
#define BENCH_WALK_H

#include "bench/lines.h"
#include "bench/stream.h"

namespace bench {

class Walk {
  public:
    /* `lines` is a power of two; 0: there is no work, and go() returns at once. */
    explicit Walk(uint64_t lines);
    uint64_t go(uint64_t after);

  private:
    Lines lines_;
    Random random_ = {7};
    uint64_t zero_;
};

} // namespace bench
#endif
