/* atomic.h -- the only file that spells memory orders. The order is part of each operation's name.
 * Always true: words that threads share are C11 atomics, so ThreadSanitizer and model checkers see every access.
 * Elsewhere: docs/CONCURRENCY.md has the table of which operation pairs with which, and each call has its label. */
#ifndef TWI_BASE_ATOMIC_H
#define TWI_BASE_ATOMIC_H

#include <stdatomic.h>
#include <stdint.h>

#define twi_load_relaxed(p) atomic_load_explicit((p), memory_order_relaxed)
#define twi_load_acquire(p) atomic_load_explicit((p), memory_order_acquire)
#define twi_load_seqcst(p) atomic_load_explicit((p), memory_order_seq_cst)
#define twi_store_relaxed(p, v) atomic_store_explicit((p), (v), memory_order_relaxed)
#define twi_store_release(p, v) atomic_store_explicit((p), (v), memory_order_release)
#define twi_store_seqcst(p, v) atomic_store_explicit((p), (v), memory_order_seq_cst)
#define twi_swap_relaxed(p, v) atomic_exchange_explicit((p), (v), memory_order_relaxed)
#define twi_swap_acquire(p, v) atomic_exchange_explicit((p), (v), memory_order_acquire)
#define twi_swap_acqrel(p, v) atomic_exchange_explicit((p), (v), memory_order_acq_rel)
#define twi_swap_seqcst(p, v) atomic_exchange_explicit((p), (v), memory_order_seq_cst)
#define twi_add_relaxed(p, v) atomic_fetch_add_explicit((p), (v), memory_order_relaxed)
#define twi_add_acqrel(p, v) atomic_fetch_add_explicit((p), (v), memory_order_acq_rel)
#define twi_add_seqcst(p, v) atomic_fetch_add_explicit((p), (v), memory_order_seq_cst)
#define twi_sub_relaxed(p, v) atomic_fetch_sub_explicit((p), (v), memory_order_relaxed)
#define twi_sub_acqrel(p, v) atomic_fetch_sub_explicit((p), (v), memory_order_acq_rel)
#define twi_or_relaxed(p, v) atomic_fetch_or_explicit((p), (v), memory_order_relaxed)
#define twi_or_acqrel(p, v) atomic_fetch_or_explicit((p), (v), memory_order_acq_rel)
#define twi_and_acqrel(p, v) atomic_fetch_and_explicit((p), (v), memory_order_acq_rel)

/* Compare-and-swap. `expected` is a pointer. If the exchange fails, it contains the value that was found. */
#define twi_cas_relaxed(p, expected, v) \
    atomic_compare_exchange_strong_explicit((p), (expected), (v), memory_order_relaxed, memory_order_relaxed)
#define twi_cas_acqrel(p, expected, v) \
    atomic_compare_exchange_strong_explicit((p), (expected), (v), memory_order_acq_rel, memory_order_acquire)
#define twi_cas_weak_acqrel(p, expected, v) \
    atomic_compare_exchange_weak_explicit((p), (expected), (v), memory_order_acq_rel, memory_order_acquire)
#define twi_cas_seqcst(p, expected, v) \
    atomic_compare_exchange_strong_explicit((p), (expected), (v), memory_order_seq_cst, memory_order_seq_cst)

#define twi_fence_seqcst() atomic_thread_fence(memory_order_seq_cst)
/* Orders memory operations for the compiler, not for the processor. This is the cheap half of an asymmetric fence. */
#define twi_fence_compiler() atomic_signal_fence(memory_order_seq_cst)

#endif
