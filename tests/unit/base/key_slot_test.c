/* key_slot_test.c -- CRC16 and hash tags as Redis Cluster has them; tags and shorts as key_slot.h defines them. Method:
 * the slow definition beside the fast code. tests/redis/cluster/key_slot.c compares slots with a server's.
 * Covers: engine/base/key_slot.h. */
#include "tests/support/support.h"

#include "engine/base/key_slot.h"

static uint16_t crc16_by_bits(const unsigned char *bytes, size_t size) {
    uint16_t crc = 0;
    for (size_t i = 0; i < size; i++) {
        crc ^= (uint16_t)(bytes[i] << 8);
        for (int bit = 0; bit < 8; bit++) crc = (uint16_t)(crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1);
    }
    return crc;
}

static uint32_t slot_of(const char *name) {
    return twi_key_slot_of(name, strlen(name));
}

static uint32_t slot_of_number(uint32_t number) {
    char text[16];
    return twi_key_slot_of(text, (size_t)snprintf(text, sizeof text, "%u", number));
}

TEST(crc16_is_that_of_xmodem) {
    unsigned char bytes[80];
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    assert_int_equal(twi_key_slot_crc16("123456789", 9), 0x31c3); /* the check value that catalogues of CRCs give */
    assert_int_equal(twi_key_slot_crc16(NULL, 0), 0);
    for (int round = 0; round < 20000; round++) {
        size_t at = test_prng_below(&prng, 4), size = test_prng_below(&prng, sizeof bytes - 4);
        for (size_t i = 0; i < size; i++) bytes[at + i] = (unsigned char)test_prng_next(&prng);
        assert_int_equal(twi_key_slot_crc16(bytes + at, size), crc16_by_bits(bytes + at, size));
    }
}

TEST(what_stands_in_the_first_braces_is_hashed_alone) {
    assert_int_equal(slot_of("foo"), 12182);
    assert_int_equal(slot_of("{user1000}.following"), slot_of("user1000"));
    assert_int_equal(slot_of("a{user1000}.followers{x}"), slot_of("user1000"));
    assert_int_equal(slot_of("foo{{bar}}zap"), slot_of("{bar"));
    const char *whole[] = {"foo{}{bar}", "foo{", "{foo", "foo}", "}foo{", "foo}{"};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        assert_int_equal(slot_of(whole[i]), crc16_by_bits((const unsigned char *)whole[i], strlen(whole[i])) % 16384);
}

TEST(a_tag_is_the_smallest_number_in_its_groups_slots) {
    for (uint32_t count = 1; count <= TWI_KEY_SLOT_TAGS_MAX; count *= 2) {
        const uint16_t *tags = twi_key_slot_tags(count);
        uint32_t width = TWI_KEY_SLOTS / count;
        for (uint32_t group = 0; group < count; group++) {
            uint32_t number = 0;
            if (count > 128 && group % 37 != 0) continue; /* some of many: the definition is slow */
            while (slot_of_number(number) / width != group) number++;
            assert_int_equal(tags[group], number);
            assert_true(number < 10000); /* TWI_KEY_SLOT_TAG_DIGITS */
        }
    }
    assert_ptr_equal(twi_key_slot_tags(128), twi_key_slot_tags(128));
}

TEST(the_tags_of_fewer_groups_are_among_those_of_more) {
    const uint16_t *few = twi_key_slot_tags(64), *many = twi_key_slot_tags(1024);
    for (uint32_t group = 0; group < 64; group++) {
        uint32_t at = group * 16;
        while (at < group * 16 + 16 && many[at] != few[group]) at++;
        assert_true(at < group * 16 + 16);
    }
}

/* How many tags the busiest master has, by the mean: slots are dealt out as redis-cli does when it makes a cluster. */
static double busiest(uint32_t count, uint32_t masters) {
    const uint16_t *tags = twi_key_slot_tags(count);
    uint32_t most = 0;
    for (uint32_t master = 0; master < masters; master++) {
        uint32_t mine = 0;
        for (uint32_t group = 0; group < count; group++)
            mine += slot_of_number(tags[group]) * masters / TWI_KEY_SLOTS == master;
        if (mine > most) most = mine;
    }
    return (double)most * masters / count;
}

TEST(the_tags_lie_evenly_over_the_masters) {
    const struct {
        uint32_t count, masters;
        double most;
    } cases[] = {{128, 6, 1.04},  {128, 10, 1.02},  {128, 20, 1.26},  {128, 100, 2.35},
                 {256, 20, 1.10}, {1024, 20, 1.02}, {1024, 100, 1.08}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (busiest(cases[i].count, cases[i].masters) > cases[i].most)
            fail_msg("%u tags on %u masters: the busiest has %.3f of the mean", cases[i].count, cases[i].masters,
                     busiest(cases[i].count, cases[i].masters));
}

static const uint32_t *shorts;

TEST(a_short_is_the_smallest_number_of_its_slot) {
    uint32_t largest = 0;
    for (uint32_t slot = 0; slot < TWI_KEY_SLOTS; slot++) {
        assert_int_equal(slot_of_number(shorts[slot]), slot);
        if (shorts[slot] > largest) largest = shorts[slot];
    }
    for (uint32_t number = 0; number <= largest; number++) assert_true(shorts[slot_of_number(number)] <= number);
    assert_int_equal(largest, 109757); /* TWI_KEY_SLOT_BRACE_MAX */
}

/* Goal: whatever a name is, the brace that it asks for puts another name into its slot. */
TEST(a_brace_brings_another_name_into_the_slot) {
    static const char alphabet[] = "ab:{}{}";
    struct test_prng prng;
    size_t tagged = 0;
    test_prng_seed(&prng, test_seed());
    for (int round = 0; round < 20000; round++) {
        char name[12], other[64] = "tw:lease:";
        size_t size = 1 + test_prng_below(&prng, sizeof name - 1), used = strlen(other);
        for (size_t i = 0; i < size; i++) name[i] = alphabet[test_prng_below(&prng, sizeof alphabet - 1)];
        size_t brace = twi_key_slot_brace(shorts, name, size, other + used);
        assert_true(brace <= TWI_KEY_SLOT_BRACE_MAX);
        memcpy(other + used + brace, name, size);
        assert_int_equal(twi_key_slot_of(other, used + brace + size), twi_key_slot_of(name, size));
        assert_int_equal(twi_key_slot_brace(NULL, name, size, other), 0);
        tagged += brace == 0;
    }
    assert_true(tagged > 1000 && tagged < 19000);
}

int main(void) {
    shorts = twi_key_slot_shorts();
    return test_run();
}
