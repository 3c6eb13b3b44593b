/* hash_test.c -- the keyed hashes: right results, no byte read outside the key, and the quality that the table relies
 * on.
 * Method: the AES hash is compared with a simple twin made of tables and loops, SipHash with its published results, and
 * both with what chance gives for structured keys. */
#include "tests/support/support.h"

#include "engine/base/hash_aes.h"
#include "engine/table/cell.h"
#include "engine/base/random.h"

#include <sys/mman.h>
#include <unistd.h>

#define SIZE_MAX_TESTED 1024

static twi_hash_fn *hashes[2];
static size_t hash_count;

static void secret_draw(struct twi_hash_secret *secret, struct test_prng *prng) {
    uint64_t words[4];
    for (size_t index = 0; index < 4; index++) words[index] = test_prng_next(prng);
    twi_hash_secret_make(secret, words);
}

static void bytes_draw(unsigned char *bytes, size_t size, struct test_prng *prng) {
    for (size_t index = 0; index < size; index++) bytes[index] = (unsigned char)test_prng_next(prng);
}

/* ---- right answers ----------------------------------------------------------------------------------------------- */

/* The results that SipHash's authors publish for the key 00 01 .. 0f and the messages "", 00, 00 01 .. 0e. */
TEST(siphash_gives_its_published_answers) {
    unsigned char bytes[32];
    for (size_t index = 0; index < sizeof bytes; index++) bytes[index] = (unsigned char)index;
    struct twi_hash_secret secret;
    twi_hash_secret_make(&secret, bytes);
    assert_true(twi_hash_sip_2_4(&secret, bytes, 0) == UINT64_C(0x726fdb47dd0e0e31));
    assert_true(twi_hash_sip_2_4(&secret, bytes, 1) == UINT64_C(0x74f839c593dc67fd));
    assert_true(twi_hash_sip_2_4(&secret, bytes, 15) == UINT64_C(0xa129ca6149be45e5));
    assert_true(twi_hash_sip(&secret, bytes, 0) == UINT64_C(0xabac0158050fc4dc)); /* 1-3, the empty message */
}

static unsigned char field_times_2(unsigned char x) {
    return (unsigned char)(x << 1 ^ (x & 0x80 ? 0x1b : 0));
}

static unsigned char field_times(unsigned char x, unsigned char y) {
    unsigned char product = 0;
    for (; y != 0; y >>= 1, x = field_times_2(x))
        if (y & 1) product ^= x;
    return product;
}

/* The S-box from its definition: the inverse in the field, then an affine map. */
static unsigned char substitute(unsigned char x) {
    unsigned char inverse = 0;
    for (int guess = 1; guess < 256 && x != 0; guess++)
        if (field_times(x, (unsigned char)guess) == 1) inverse = (unsigned char)guess;
    unsigned char result = 0x63;
    for (int turn = 0; turn < 5; turn++) result ^= (unsigned char)(inverse << turn | inverse >> (8 - turn));
    return result;
}

static unsigned char sbox[256];

/* One AES round as FIPS 197 describes it: columns of four bytes. */
static void plain_round(unsigned char x[16], const unsigned char key[16]) {
    unsigned char shifted[16];
    for (int column = 0; column < 4; column++)
        for (int row = 0; row < 4; row++) shifted[column * 4 + row] = sbox[x[(column + row) % 4 * 4 + row]];
    for (int column = 0; column < 4; column++) {
        const unsigned char *c = shifted + column * 4;
        for (int row = 0; row < 4; row++) {
            x[column * 4 + row] =
                (unsigned char)(field_times_2(c[row]) ^ field_times_2(c[(row + 1) % 4]) ^ c[(row + 1) % 4] ^
                                c[(row + 2) % 4] ^ c[(row + 3) % 4] ^ key[column * 4 + row]);
        }
    }
}

static void plain_xor(unsigned char x[16], const unsigned char *y, size_t size) {
    for (size_t index = 0; index < size; index++) x[index] ^= y[index];
}

static void plain_small(unsigned char block[16], const unsigned char *bytes, size_t size) {
    memset(block, 0, 16);
    if (size >= 8) {
        memcpy(block, bytes, 8);
        memcpy(block + 8, bytes + size - 8, 8);
    } else if (size >= 4) {
        memcpy(block, bytes, 4);
        memcpy(block + 8, bytes + size - 4, 4);
    } else if (size > 0) {
        block[0] = bytes[0];
        block[1] = bytes[size / 2];
        block[2] = bytes[size - 1];
    }
}

static uint64_t plain_hash(const unsigned char secret[32], const unsigned char *bytes, size_t size) {
    const unsigned char *key_a = secret, *key_b = secret + 16, *end = bytes + size;
    unsigned char a[16], b[16], block[16];
    memcpy(a, key_a, 16);
    memcpy(b, key_b, 16);
    if (size <= 16) {
        plain_small(block, bytes, size);
        plain_xor(a, block, 16);
    } else {
        const unsigned char *next = bytes;
        for (; end - next > 32; next += 32) {
            plain_xor(a, next, 16), plain_round(a, key_b), plain_round(a, key_a);
            plain_xor(b, next + 16, 16), plain_round(b, key_a), plain_round(b, key_b);
        }
        plain_xor(a, size > 32 ? end - 32 : bytes, 16);
        plain_xor(b, end - 16, 16);
    }
    unsigned char key_and_size[16];
    memcpy(key_and_size, key_a, 16);
    for (int index = 0; index < 8; index++) key_and_size[index] ^= (unsigned char)((uint64_t)size >> 8 * index);
    plain_round(a, key_b), plain_round(a, key_and_size), plain_round(a, key_b);
    plain_round(b, key_a), plain_round(b, key_b), plain_round(b, key_a);
    plain_xor(a, b, 16);
    plain_round(a, key_a);
    uint64_t lower;
    memcpy(&lower, a, 8);
    return lower;
}

TEST(the_aes_hash_equals_its_plain_twin) {
    twi_hash_fn *aes = twi_hash_aes();
    if (aes == NULL) {
        test_leave_out("no AES rounds on this processor: run it on one that has them, as /proc/cpuinfo says");
        return;
    }
    for (int x = 0; x < 256; x++) sbox[x] = substitute((unsigned char)x);
    assert_int_equal(sbox[0], 0x63);
    assert_int_equal(sbox[0x53], 0xed);
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    unsigned char bytes[SIZE_MAX_TESTED];
    for (size_t size = 0; size <= SIZE_MAX_TESTED; size++) {
        struct twi_hash_secret secret;
        secret_draw(&secret, &prng);
        bytes_draw(bytes, size, &prng);
        assert_true(aes(&secret, bytes, size) == plain_hash((const unsigned char *)secret.words, bytes, size));
    }
}

#if TWI_WITH_AES
TWI_AES_CODE static void assert_fast_forms_agree(const struct twi_hash_secret *secret, const unsigned char *bytes,
                                                 size_t size, uint64_t hash) {
    _Alignas(16) unsigned char copy[SIZE_MAX_TESTED]; /* as in a record */
    memcpy(copy, bytes, size);
    if (size >= 4 && size <= 32) {
        struct twi_short_key key = twi_short_key(bytes, size);
        assert_true(twi_hash_aes_short(secret, key, size) == hash);
        assert_true(twi_short_key_is(key, copy, size));
    } else if (size > 32) {
        assert_true(twi_hash_aes_long(secret, bytes, size) == hash);
        assert_true(twi_long_key_is(bytes, copy, size));
        assert_true(twi_key_equal_long(bytes, copy, size));
    }
    for (size_t at = 0; at < size; at++) {
        copy[at] ^= (unsigned char)(1u << at % 8);
        if (size >= 4 && size <= 32) assert_false(twi_short_key_is(twi_short_key(bytes, size), copy, size));
        if (size > 32) assert_false(twi_long_key_is(bytes, copy, size));
        if (size > 32) assert_false(twi_key_equal_long(bytes, copy, size));
        copy[at] = bytes[at];
    }
}

/* Goal: the forms that the fast paths use hash as the function does, and tell keys apart by every single bit's byte.
 * Method: every size; each byte in turn differs in one bit. */
TEST(the_aes_hash_has_fast_forms_for_short_and_long_keys) {
    twi_hash_fn *aes = twi_hash_aes();
    if (aes == NULL) {
        test_leave_out("no AES rounds on this processor: run it on one that has them, as /proc/cpuinfo says");
        return;
    }
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    unsigned char bytes[SIZE_MAX_TESTED];
    for (size_t size = 0; size <= SIZE_MAX_TESTED; size++) {
        struct twi_hash_secret secret;
        secret_draw(&secret, &prng);
        bytes_draw(bytes, size, &prng);
        assert_fast_forms_agree(&secret, bytes, size, aes(&secret, bytes, size));
    }
}
#endif

TEST(the_choice_is_the_same_every_time) {
    assert_ptr_equal(twi_hash_choose(), twi_hash_choose());
    assert_ptr_equal(twi_hash_choose(), twi_hash_aes() != NULL ? twi_hash_aes() : twi_hash_sip);
}

#if defined(__aarch64__) && TWI_WITH_AES && !defined(__ARM_FEATURE_AES)
/* The library asks this function in place of libc's: what the kernel says, or the same of a processor without AES. */
static bool is_without_aes;
unsigned long getauxval(unsigned long type) {
    unsigned long pair[2] = {0, 0}, value = 0;
    FILE *file = fopen("/proc/self/auxv", "r");
    while (file != NULL && value == 0 && fread(pair, sizeof pair, 1, file) == 1)
        if (pair[0] == type) value = pair[1];
    if (file != NULL) fclose(file);
    return is_without_aes && type == AT_HWCAP ? value & ~(unsigned long)HWCAP_AES : value;
}

/* Goal: a build for all ARM64 processors has the AES hash where there are AES rounds, and else the portable one. */
TEST(the_kernel_says_which_hash_a_processor_has) {
    bool there = (getauxval(AT_HWCAP) & HWCAP_AES) != 0;
    assert_true((twi_hash_choose() == twi_hash_sip) == !there);
    is_without_aes = true;
    assert_null(twi_hash_aes());
    assert_ptr_equal(twi_hash_choose(), twi_hash_sip);
    is_without_aes = false;
}
#define TESTS_THE_KERNEL 1
#endif

/* ---- what is read ------------------------------------------------------------------------------------------------ */

/* Method: keys that end at, and begin at, the border of a page that may not be read. */
TEST(no_byte_outside_the_key_is_read) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *map = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    assert_int_equal(mprotect(map, page, PROT_NONE), 0);
    assert_int_equal(mprotect(map + 2 * page, page, PROT_NONE), 0);
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    struct twi_hash_secret secret;
    secret_draw(&secret, &prng);
    for (size_t index = 0; index < hash_count; index++) {
        for (size_t size = 0; size <= SIZE_MAX_TESTED; size++) {
            unsigned char *first = map + page, *last = map + 2 * page - size;
            bytes_draw(first, size, &prng);
            memcpy(last, first, size);
            assert_true(hashes[index](&secret, first, size) == hashes[index](&secret, last, size));
        }
    }
    munmap(map, 3 * page);
}

/* Goal: every bit of the key matters, and its size, at every size. */
TEST(every_bit_of_the_key_and_its_size_change_the_hash) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    static unsigned char bytes[SIZE_MAX_TESTED + 1];
    for (size_t index = 0; index < hash_count; index++) {
        struct twi_hash_secret secret;
        secret_draw(&secret, &prng);
        size_t large_step = test_is_slow() ? 487 : 61;
        for (size_t size = 1; size <= SIZE_MAX_TESTED; size += size < 130 ? 1 : large_step) {
            memset(bytes, 0, sizeof bytes);
            uint64_t plain = hashes[index](&secret, bytes, size);
            assert_true(plain != hashes[index](&secret, bytes, size - 1)); /* zeros of another size */
            for (size_t bit = 0; bit < 8 * size; bit++) {
                bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
                assert_true(plain != hashes[index](&secret, bytes, size));
                bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
            }
        }
    }
}

/* ---- quality ----------------------------------------------------------------------------------------------------- */

/* Goal: one flipped bit of the key flips each bit of the hash half the time.
 * Method: 512 random keys and secrets for each input bit; no pair of bits is off by more than 8 standard deviations. */
TEST(one_bit_of_the_key_flips_half_of_the_hash) {
    const size_t sizes[] = {1, 3, 4, 8, 16, 17, 29, 32, 48, 100};
    enum { TRIALS = 512 };
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (size_t index = 0; index < hash_count; index++) {
        for (size_t which = 0; which < sizeof sizes / sizeof *sizes; which++) {
            size_t size = sizes[which];
            for (size_t bit = 0; bit < 8 * size; bit++) {
                unsigned flips[64] = {0};
                for (int trial = 0; trial < TRIALS; trial++) {
                    unsigned char bytes[128];
                    struct twi_hash_secret secret;
                    secret_draw(&secret, &prng);
                    bytes_draw(bytes, size, &prng);
                    uint64_t difference = hashes[index](&secret, bytes, size);
                    bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
                    difference ^= hashes[index](&secret, bytes, size);
                    for (int out = 0; out < 64; out++) flips[out] += (unsigned)(difference >> out & 1);
                }
                /* standard deviation sqrt(512) / 2 = 11.3 */
                for (int out = 0; out < 64; out++) assert_in_range(flips[out], TRIALS / 2 - 91, TRIALS / 2 + 91);
            }
        }
    }
}

enum { KEYS = 1 << 17 };
static uint32_t slices[KEYS];

static int compare_slices(const void *left, const void *right) {
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return a < b ? -1 : a > b;
}

static size_t collisions_of_slices(void) {
    size_t collisions = 0;
    qsort(slices, KEYS, sizeof *slices, compare_slices);
    for (size_t index = 1; index < KEYS; index++) collisions += slices[index] == slices[index - 1];
    return collisions;
}

/* Families of keys that look alike, as users make them. */
static size_t structured_key(int kind, uint32_t number, char *out) {
    switch (kind) {
    case 0: return (size_t)sprintf(out, "app1:dev%u:10.0.%u.%u", number / 4096, number >> 6 & 63, number & 63);
    case 1: return (size_t)sprintf(out, "%u", number);
    case 2: /* a counter in four bytes, low byte first */ memcpy(out, &number, 4); return 4;
    case 3: /* the counter at the end of much the same */
        return (size_t)sprintf(out, "https://example.com/a/rather/long/path/to/an/article/with/number/%08x", number);
    case 4: /* a byte in each column of the second block: one column of it behind a round */
        memset(out, 0, 32);
        for (int byte = 0; byte < 3; byte++) out[16 + 5 * byte] = (char)(number >> 8 * byte);
        return 32;
    default: /* blocks that trade places */
        for (int block = 0; block < 8; block++) memset(out + 16 * block, 'a' + (int)(number >> 2 * block & 3), 16);
        return 128 + (number >> 16);
    }
}

/* Goal: structured keys collide no more often than by chance, in the upper and in the lower 32 bits and in sums of
 * both.
 * Method: 2^17 keys make (2^17)^2 / 2 / 2^32 = 2 colliding pairs; more than 14 happen once in 10^8 runs. */
TEST(structured_keys_collide_no_more_than_chance_has_it) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    static char key[2048];
    for (size_t index = 0; index < hash_count; index++) {
        for (int kind = 0; kind < 6; kind++) {
            struct twi_hash_secret secret;
            secret_draw(&secret, &prng);
            for (int shift = 0; shift <= 32; shift += 16) {
                for (uint32_t number = 0; number < KEYS; number++) {
                    size_t size = structured_key(kind, number, key);
                    slices[number] = (uint32_t)(hashes[index](&secret, key, size) >> shift);
                }
                assert_in_range(collisions_of_slices(), 0, 14);
            }
        }
    }
}

/* Goal: keys that differ in few bits fill buckets evenly, by the low bits and by the high ones.
 * Method: chi-square over 4096 buckets; its mean is 4095, its standard deviation sqrt(2 * 4095) = 90. The keys: one
 * or two bits set among 64 bytes, 2^16 of them. */
TEST(sparse_keys_fill_buckets_evenly) {
    enum { BUCKETS = 4096, SPARSE = 1 << 16 };
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (size_t index = 0; index < hash_count; index++) {
        for (int side = 0; side < 2; side++) {
            struct twi_hash_secret secret;
            secret_draw(&secret, &prng);
            static uint32_t filled[BUCKETS];
            memset(filled, 0, sizeof filled);
            unsigned made = 0;
            for (unsigned first = 0; first < 512 && made < SPARSE; first++) {
                for (unsigned second = first; second < 512 && made < SPARSE; second++, made++) {
                    unsigned char bytes[64] = {0};
                    bytes[first / 8] |= (unsigned char)(1 << first % 8);
                    bytes[second / 8] |= (unsigned char)(1 << second % 8);
                    uint64_t hash = hashes[index](&secret, bytes, 64);
                    filled[side == 0 ? hash % BUCKETS : hash >> 52]++;
                }
            }
            double want = (double)made / (double)BUCKETS, chi = 0;
            for (size_t bucket = 0; bucket < BUCKETS; bucket++) {
                chi += ((double)filled[bucket] - want) * ((double)filled[bucket] - want) / want;
            }
            assert_true(chi > 4095 - 8 * 90.0 && chi < 4095 + 8 * 90.0);
        }
    }
}

/* Goal: no pair of keys collides under every secret: an attacker may know the code, but not the secret.
 * Method: pairs with the differences that pass AES rounds most easily (one byte; one byte in two blocks of one lane, of
 * both lanes; trades; paddings), each under many secrets: no collision in 64 bits, and in 32 bits none beyond
 * chance. */
TEST(no_pair_collides_under_many_secrets) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (size_t index = 0; index < hash_count; index++) {
        size_t half_collisions = 0;
        for (uint64_t trial = 0; trial < test_scale(400000); trial++) {
            unsigned char left[160] = {0}, right[160] = {0};
            struct twi_hash_secret secret;
            secret_draw(&secret, &prng);
            size_t size = 1 + (size_t)test_prng_below(&prng, 160), other = size;
            size_t at = (size_t)test_prng_below(&prng, size);
            unsigned char delta = (unsigned char)(1 + test_prng_below(&prng, 255));
            right[at] ^= delta;
            size_t apart = (size_t[]){0, 16, 32, 64}[test_prng_below(&prng, 4)];
            if (apart != 0 && at + apart < size) right[at + apart] ^= (unsigned char)(1 + test_prng_below(&prng, 255));
            if (test_prng_chance(&prng, 1, 8) && size > 1) {
                memcpy(right, left, sizeof right);
                other = size - 1; /* zeros of another size */
            }
            uint64_t difference = hashes[index](&secret, left, size) ^ hashes[index](&secret, right, other);
            assert_true(difference != 0);
            half_collisions += (uint32_t)difference == 0;
        }
        assert_in_range(half_collisions, 0, 2); /* chance: 400000 / 2^32 */
    }
}

TEST(different_secrets_hash_differently) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (size_t index = 0; index < hash_count; index++) {
        struct twi_hash_secret secret;
        secret_draw(&secret, &prng);
        size_t used_words = hashes[index] == twi_hash_sip ? 2 : 4; /* SipHash's key is the first half */
        for (size_t bit = 0; bit < 64 * used_words; bit++) {
            struct twi_hash_secret other = secret;
            other.words[bit / 64] ^= UINT64_C(1) << bit % 64;
            for (size_t size = 0; size < 64; size += 7) {
                static const char zeros[64];
                assert_true(hashes[index](&secret, zeros, size) != hashes[index](&other, zeros, size));
            }
        }
    }
}

TEST(random_bytes_are_not_the_same_twice) {
    unsigned char one[300], other[300];
    memset(one, 0, sizeof one);
    memset(other, 0, sizeof other);
    assert_true(twi_random_bytes(one, sizeof one));
    assert_true(twi_random_bytes(other, sizeof other));
    assert_memory_not_equal(one, other, sizeof one);
    size_t zeros = 0;
    for (size_t index = 0; index < sizeof one; index++) zeros += one[index] == 0;
    assert_in_range(zeros, 0, 30);
    assert_true(twi_random_bytes(NULL, 0));
}

int main(void) {
    hashes[hash_count++] = twi_hash_sip;
    if (twi_hash_aes() != NULL) hashes[hash_count++] = twi_hash_aes();
    return test_run();
}
