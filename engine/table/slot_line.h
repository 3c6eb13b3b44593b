/* slot_line.h -- one look at a line of a leaf. It finds the words that have a given tag, and the words that are vacant.
 * It uses vectors if the processor has them, because no processor predicts the end of a walk from slot to slot.
 * Always true: each word is loaded once, as a whole. So both results about a slot are from the same moment. The
 * loads are relaxed. If a thread follows a slot, or ends a walk there, it loads the slot again with acquire (T5).
 * ThreadSanitizer does not recognise vector loads as atomic, so for ThreadSanitizer the words are loaded one by one. */
#ifndef TWI_TABLE_SLOT_LINE_H
#define TWI_TABLE_SLOT_LINE_H

#include "engine/memory/epoch.h"
#include "engine/table/layout.h"

#define TWI_LINE_WORDS 8u
static_assert(TWI_LINE_WORDS * sizeof(uint64_t) == TWI_LINE_BYTES && TWI_LINE_WORDS == 1u << TWI_LEAF_LOG2_MIN,
              "the smallest leaf is one line");

/* Each result has one bit for each word of the line. `vacant` has the words that are EMPTY or CLOSED. A vacant word
 * is in `match`, too, if the tag is 0. */
struct twi_line_look {
    uint32_t match, vacant;
};

#if TWI_EPOCH_SEES_FENCES && defined(__SSE2__)
#include <emmintrin.h>
typedef __m128i twi_quad; /* the halves of four words */
TWI_INLINE void twi_quad_load(const _Atomic uint64_t *words, twi_quad *lower, twi_quad *upper) {
    const volatile __m128i *pairs = (const volatile __m128i *)(const volatile void *)(uintptr_t)words;
    /* volatile, so that each word is loaded exactly once */
    __m128 first = _mm_castsi128_ps(pairs[0]), last = _mm_castsi128_ps(pairs[1]);
    *lower = _mm_castps_si128(_mm_shuffle_ps(first, last, _MM_SHUFFLE(2, 0, 2, 0)));
    *upper = _mm_castps_si128(_mm_shuffle_ps(first, last, _MM_SHUFFLE(3, 1, 3, 1)));
}
#define twi_quad_are(x, value) _mm_cmpeq_epi32((x), _mm_set1_epi32((int)(value)))
#define twi_quad_halved(x) _mm_srli_epi32((x), 1)
TWI_INLINE uint32_t twi_quad_bits(twi_quad first, twi_quad last) {
    return (uint32_t)_mm_movemask_ps(_mm_castsi128_ps(first)) | (uint32_t)_mm_movemask_ps(_mm_castsi128_ps(last)) << 4;
}
#define TWI_WITH_QUADS 1
#elif TWI_EPOCH_SEES_FENCES && defined(__aarch64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#include <arm_neon.h>
typedef uint32x4_t twi_quad;
TWI_INLINE void twi_quad_load(const _Atomic uint64_t *words, twi_quad *lower, twi_quad *upper) {
    const uint64_t *pairs = (const uint64_t *)(uintptr_t)words; /* 64 bits each, so a word is loaded as a whole */
    uint32x4_t first = vreinterpretq_u32_u64(vld1q_u64(pairs)), last = vreinterpretq_u32_u64(vld1q_u64(pairs + 2));
    __asm__ volatile("" : "+w"(first), "+w"(last)); /* each loaded once */
    *lower = vuzp1q_u32(first, last);
    *upper = vuzp2q_u32(first, last);
}
#define twi_quad_are(x, value) vceqq_u32((x), vdupq_n_u32(value))
#define twi_quad_halved(x) vshrq_n_u32((x), 1)
TWI_INLINE uint32_t twi_quad_bits(twi_quad first, twi_quad last) {
    static const uint16_t bits[8] = {1, 2, 4, 8, 16, 32, 64, 128};
    return vaddvq_u16(vandq_u16(vcombine_u16(vmovn_u32(first), vmovn_u32(last)), vld1q_u16(bits)));
}
#define TWI_WITH_QUADS 1
#endif

TWI_INLINE struct twi_line_look twi_line_look(const _Atomic uint64_t *words, uint32_t tag) {
#ifdef TWI_WITH_QUADS
    twi_quad lower, upper, lower_last, upper_last;
    twi_quad_load(words, &lower, &upper);
    twi_quad_load(words + 4, &lower_last, &upper_last);
    /* EMPTY is 0, CLOSED is 1, and each cell has a line number of at least 2: a half of it is not 0 */
    return (struct twi_line_look){
        twi_quad_bits(twi_quad_are(upper, tag), twi_quad_are(upper_last, tag)),
        twi_quad_bits(twi_quad_are(twi_quad_halved(lower), 0), twi_quad_are(twi_quad_halved(lower_last), 0))};
#else
    struct twi_line_look look = {0, 0};
    for (uint32_t i = 0; i < TWI_LINE_WORDS; i++) {
        uint64_t word = twi_load_relaxed(&words[i]);
        look.match |= (uint32_t)((uint32_t)(word >> 32) == tag) << i;
        look.vacant |= (uint32_t)(word <= TWI_SLOT_CLOSED) << i;
    }
    return look;
#endif
}

/* Returns true if a word has the upper half of the hash as its tag. *twice becomes two times the number of the first
 * such word. The result is a hint, because such a word may be vacant. */
TWI_INLINE bool twi_line_shows(const _Atomic uint64_t *words, uint64_t hash, size_t *twice) {
#if TWI_EPOCH_SEES_FENCES && defined(__SSE2__)
    /* Gives the same result, but the loads are operands. There is only one result, so a word may be loaded more than
     * once. */
    const __m128 *pairs = (const __m128 *)(const void *)(uintptr_t)words;
    __m128i tag = _mm_shuffle_epi32(_mm_set1_epi64x((long long)hash), _MM_SHUFFLE(1, 1, 1, 1));
    __m128i first = _mm_castps_si128(_mm_shuffle_ps(pairs[0], pairs[1], _MM_SHUFFLE(3, 1, 3, 1)));
    __m128i last = _mm_castps_si128(_mm_shuffle_ps(pairs[2], pairs[3], _MM_SHUFFLE(3, 1, 3, 1)));
    __m128i halves = _mm_packs_epi32(_mm_cmpeq_epi32(first, tag), _mm_cmpeq_epi32(last, tag));
    uint64_t match = (uint32_t)_mm_movemask_epi8(halves); /* there are two bits for each word */
    if (twi_unlikely(match == 0)) return false;
    *twice = (size_t)__builtin_ctzll(match);
#else
    uint32_t match = twi_line_look(words, (uint32_t)(hash >> 32)).match;
    if (twi_unlikely(match == 0)) return false;
    *twice = (size_t)__builtin_ctz(match) * 2;
#endif
    return true;
}

#endif
