/* tool_unpack_test.c -- compressed input of the command: read in any pieces, cut anywhere, damaged anywhere. */
#include "tests/support/support.h"

#include "tools/count/unpack.h"

#if TOOL_WITH_ZLIB
#include <zlib.h>
#endif
#if TOOL_WITH_ZSTD
#include <zstd.h>
#endif

#define TEXT_MAX 20000

/* A text and what it was compressed to: several members, one of them of nothing. */
static struct {
    char text[TEXT_MAX], packed[2 * TEXT_MAX];
    size_t text_size, packed_size;
} made;

static void text_make(struct test_prng *prng) {
    made.text_size = made.packed_size = 0;
    while (made.text_size < TEXT_MAX - 100) {
        made.text_size +=
            (size_t)sprintf(made.text + made.text_size, "10.0.0.%u - %u\n", (unsigned)test_prng_below(prng, 250),
                            (unsigned)test_prng_below(prng, 100000));
    }
}

static void member_add(enum unpack_kind kind, const char *text, size_t size) {
    char *to = made.packed + made.packed_size;
    size_t room = sizeof made.packed - made.packed_size;
#if TOOL_WITH_ZLIB
    if (kind == UNPACK_GZIP) {
        z_stream gzip = {0};
        assert_int_equal(deflateInit2(&gzip, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
        gzip.next_in = (Bytef *)(uintptr_t)text, gzip.avail_in = (uInt)size;
        gzip.next_out = (Bytef *)to, gzip.avail_out = (uInt)room;
        assert_int_equal(deflate(&gzip, Z_FINISH), Z_STREAM_END);
        made.packed_size += gzip.total_out;
        deflateEnd(&gzip);
    }
#endif
#if TOOL_WITH_ZSTD
    if (kind == UNPACK_ZSTD) {
        ZSTD_CCtx *context = ZSTD_createCCtx();
        ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
        size_t used = ZSTD_compress2(context, to, room, text, size);
        assert_false(ZSTD_isError(used));
        made.packed_size += used;
        ZSTD_freeCCtx(context);
    }
#endif
    (void)to, (void)room, (void)text, (void)size, (void)kind;
}

static void pack(enum unpack_kind kind, struct test_prng *prng) {
    text_make(prng);
    size_t first = test_prng_below(prng, made.text_size), second = test_prng_below(prng, made.text_size - first);
    member_add(kind, made.text, first);
    member_add(kind, made.text, 0);
    member_add(kind, made.text + first, second);
    member_add(kind, made.text + first + second, made.text_size - first - second);
}

/* Unpacks in steps of random sizes up to `step`. Returns the size of the text; `*wrong` as the file's end has it. */
static size_t unpack_all(enum unpack_kind kind, const char *packed, size_t size, size_t step, struct test_prng *prng,
                         char *text, const char **wrong) {
    size_t fed = size < UNPACK_MAGIC_BYTES ? size : UNPACK_MAGIC_BYTES, made_size = 0;
    struct unpack *unpack = unpack_new(kind, packed, fed);
    assert_non_null(unpack);
    for (;;) {
        size_t room = 1 + test_prng_below(prng, step);
        if (room > 2 * TEXT_MAX - made_size) room = 2 * TEXT_MAX - made_size;
        ssize_t come = unpack_take(unpack, text + made_size, room);
        if (come < 0) break;
        made_size += (size_t)come;
        assert_true(made_size < 2 * TEXT_MAX);
        if (come > 0) continue;
        size_t piece = 1 + test_prng_below(prng, step);
        if (piece > size - fed) piece = size - fed;
        if (piece == 0) break;
        memcpy(unpack_room(unpack), packed + fed, piece);
        unpack_fed(unpack, piece);
        fed += piece;
    }
    *wrong = unpack_wrong(unpack, fed == size);
    unpack_free(unpack);
    return made_size;
}

static char text[2 * TEXT_MAX];

static void whole_files_give_their_text(enum unpack_kind kind) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (size_t step = 1; step < 200000; step *= 7) {
        const char *wrong;
        pack(kind, &prng);
        assert_int_equal(unpack_kind_of(made.packed, made.packed_size), kind);
        assert_i64_equal(unpack_all(kind, made.packed, made.packed_size, step, &prng, text, &wrong), made.text_size);
        assert_memory_equal(text, made.text, made.text_size);
        assert_null(wrong);
    }
}

/* Goal: a file that was cut is never taken for whole, unless it was cut between two members; what came is right. */
static void cut_files_are_found_out(enum unpack_kind kind) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    text_make(&prng);
    member_add(kind, made.text, made.text_size);
    for (size_t size = 1; size < made.packed_size; size += 1 + (size_t)test_prng_below(&prng, 97)) {
        const char *wrong;
        size_t got = unpack_all(kind, made.packed, size, 5000, &prng, text, &wrong);
        assert_non_null(wrong);
        assert_true(got <= made.text_size);
        assert_memory_equal(text, made.text, got);
    }
}

/* Goal: a wrong byte is found out, unless it changes nothing (the header's time). */
static void damaged_files_are_found_out(enum unpack_kind kind) {
    struct test_prng prng;
    unsigned found = 0;
    test_prng_seed(&prng, test_seed());
    for (int turn = 0; turn < 80; turn++) {
        const char *wrong;
        pack(kind, &prng);
        made.packed[6 + test_prng_below(&prng, made.packed_size - 6)] ^= (char)(1 << test_prng_below(&prng, 8));
        size_t got = unpack_all(kind, made.packed, made.packed_size, 100000, &prng, text, &wrong);
        if (wrong == NULL) assert_true(got == made.text_size && memcmp(text, made.text, got) == 0);
        found += wrong != NULL;
    }
    assert_true(found > 60);
}

static void what_follows_is_looked_at(enum unpack_kind kind) {
    static const char zeros[512], words[] = "10.0.0.1 - - plain text";
    struct test_prng prng;
    const char *wrong;
    test_prng_seed(&prng, test_seed());
    pack(kind, &prng);
    size_t whole = made.packed_size;
    memcpy(made.packed + whole, zeros, sizeof zeros); /* as tar and tapes fill up their blocks */
    size_t got = unpack_all(kind, made.packed, whole + sizeof zeros, 5000, &prng, text, &wrong);
    assert_i64_equal(got, made.text_size);
    if (kind == UNPACK_GZIP) assert_null(wrong);
    memcpy(made.packed + whole, words, sizeof words);
    assert_i64_equal(unpack_all(kind, made.packed, whole + sizeof words, 5000, &prng, text, &wrong), made.text_size);
    assert_non_null(wrong);
    assert_memory_equal(text, made.text, made.text_size);
}

static void each(enum unpack_kind kind) {
    if (!unpack_can(kind)) skip();
    whole_files_give_their_text(kind);
    cut_files_are_found_out(kind);
    damaged_files_are_found_out(kind);
    what_follows_is_looked_at(kind);
}

TEST(gzip_is_read_or_refused) {
    each(UNPACK_GZIP);
}

TEST(zstd_is_read_or_refused) {
    each(UNPACK_ZSTD);
}

TEST(the_first_bytes_tell) {
    assert_int_equal(unpack_kind_of("", 0), UNPACK_PLAIN);
    assert_int_equal(unpack_kind_of("\x1f", 1), UNPACK_PLAIN);
    assert_int_equal(unpack_kind_of("\x1f\x8b", 2), UNPACK_GZIP);
    assert_int_equal(unpack_kind_of("\x28\xb5\x2f", 3), UNPACK_PLAIN);
    assert_int_equal(unpack_kind_of("\x28\xb5\x2f\xfd", 4), UNPACK_ZSTD);
    assert_int_equal(unpack_kind_of("\x5e\x2a\x4d\x18", 4), UNPACK_ZSTD);
    assert_int_equal(unpack_kind_of("BZh91A", 6), UNPACK_BZIP2);
    assert_int_equal(unpack_kind_of("\xfd\x37zXZ\0", 6), UNPACK_XZ);
    assert_int_equal(unpack_kind_of("10.0.0", 6), UNPACK_PLAIN);
    assert_false(unpack_can(UNPACK_XZ));
    assert_true(unpack_can(UNPACK_PLAIN));
}
