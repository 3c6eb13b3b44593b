/* wide.h -- the product of two words. ISO C++ has no such type; gcc and clang have. */
#ifndef BENCH_WIDE_H
#define BENCH_WIDE_H

namespace bench {

__extension__ typedef unsigned __int128 Wide;

} // namespace bench

#endif
