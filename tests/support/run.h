/* run.h -- a test registers itself, and the program runs what has registered.
 *
 *     TEST(a_sentence_about_behaviour) {
 *         assert_true(...);
 *     }
 *
 * A program needs no main() of its own. One that has something to do before or after defines main(), which calls
 * test_run().
 * Always true: tests run in the order of the file. The program is one cmocka group with one TAP plan. */
#ifndef TEST_RUN_H
#define TEST_RUN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* A test without a frame. Its body may use `state`. */
#define TEST(name) TEST_WITH(name, NULL, NULL, NULL)
/* A test between two functions of cmocka's kind, each of which may be NULL. `state` points to `initial`. */
#define TEST_WITH(name, setup, teardown, initial) \
    TEST_LISTED(name, test_list((struct CMUnitTest){#name, name, (setup), (teardown), (initial)}))
/* A test that runs once for each of the numbers, which `*state` has. */
#define TEST_EACH(name, ...) \
    TEST_LISTED(name, test_list_each(#name, name, (const uintptr_t[]){__VA_ARGS__, UINTPTR_MAX}))
#define TEST_LISTED(name, list) \
    static void name(void **state); \
    __attribute__((constructor)) static void name##_is_listed(void) { \
        list; \
    } \
    static void name(__attribute__((unused)) void **state)

void test_list(struct CMUnitTest test);
void test_list_each(const char *name, CMUnitTestFunction function, const uintptr_t *states); /* UINTPTR_MAX ends them */

/* Run what has registered, and return how many tests failed. The second one begins and ends the whole group by two
 * functions of cmocka's kind. */
int test_run(void);
int test_run_with(CMFixtureFunction begin, CMFixtureFunction end);
/* A list of the program's own, where it has several. */
#define test_run_list(list) test_run_these((list), sizeof(list) / sizeof *(list))
int test_run_these(const struct CMUnitTest *list, size_t count);
/* At the same time: side_by_side.h says when. */
int test_run_side_by_side(void);

#endif
