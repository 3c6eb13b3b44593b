/* run.c -- see run.h: the list of this program's tests.
 * Always true: the list is complete before main() begins, because constructors make it. */
#include "tests/support/run.h"

#include "tests/support/side_by_side.h"

#include <errno.h> /* program_invocation_short_name */

#define TESTS_MAX 128

static struct CMUnitTest tests[TESTS_MAX];
static size_t tests_count;

void test_list(struct CMUnitTest test) {
    if (tests_count == TESTS_MAX) abort(); /* before main(): nobody is there to read a message */
    tests[tests_count++] = test;
}

void test_list_each(const char *name, CMUnitTestFunction function, const uintptr_t *states) {
    for (; *states != UINTPTR_MAX; states++)
        test_list((struct CMUnitTest){name, function, NULL, NULL, (void *)*states});
}

int test_run_with(CMFixtureFunction begin, CMFixtureFunction end) {
    return _cmocka_run_group_tests(program_invocation_short_name, tests, tests_count, begin, end);
}

int test_run(void) {
    return test_run_with(NULL, NULL);
}

int test_run_side_by_side(void) {
    return test_run_each_apart(tests, tests_count);
}
