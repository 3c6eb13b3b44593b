/* grow_test.c -- arrays that grow by doubling (base/grow.h). */
#include "engine/base/grow.h"
#include "tests/support/support.h"

/* Goal: an array keeps its elements while it grows, and its room doubles. Method: appends 1,000 numbers one by one, and
 * looks at all of them after each step that moved the array. */
TEST(an_array_keeps_its_elements_while_it_grows) {
    uint64_t *numbers = NULL;
    uint32_t room = 0;
    for (uint32_t count = 0; count < 1000; count++) {
        uint32_t before = room;
        assert_true(twi_grow(&numbers, sizeof *numbers, &room, count + (size_t)1, 3));
        numbers[count] = count * UINT64_C(7);
        if (room == before) continue;
        assert_int_equal(room, before == 0 ? 3 : 2 * before);
        for (uint32_t i = 0; i <= count; i++) assert_int_equal(numbers[i], i * UINT64_C(7));
    }
    assert_int_equal(room, 1536);
    free(numbers);
}

/* Goal: many elements at once find room in one step; what has room is not touched; what is too much is refused and
 * changes nothing. */
TEST(room_for_many_is_made_at_once) {
    char *text = NULL;
    uint32_t room = 0;
    assert_true(twi_grow(&text, 1, &room, 1000, 64));
    assert_int_equal(room, 1024);
    const char *where = text;
    assert_true(twi_grow(&text, 1, &room, 1024, 64));
    assert_ptr_equal(text, where);
    assert_false(twi_grow(&text, 1, &room, (size_t)UINT32_MAX, 64));
    assert_ptr_equal(text, where);
    assert_int_equal(room, 1024);
    free(text);
}
