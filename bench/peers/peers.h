/* peers.h -- every peer that can be built here: one function for each file of this folder. */
#ifndef BENCH_PEERS_PEERS_H
#define BENCH_PEERS_PEERS_H

#include "bench/peer.h"

const bench_peer *bench_tbb(uint32_t stride, bool string);
const bench_peer *bench_cuckoo(uint32_t stride, bool string);
const bench_peer *bench_absl(uint32_t stride, bool string);
const bench_peer *bench_glib(uint32_t stride, bool string);
const bench_peer *bench_urcu(uint32_t stride);
const bench_peer *bench_ck(uint32_t stride);
const bench_peer *bench_redis(bool pipelined);
const bench_peer *bench_memcached(bool pipelined);
/* Hash, read and atomic add, without a table: what the machine allows. */
const bench_peer *bench_floor(uint32_t stride);
/* Only the clock: what the machine itself does to consecutive timed calls. */
const bench_peer *bench_noise();

#endif
