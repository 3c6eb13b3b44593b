/* run.c -- see run.h: the list of this program's tests.
 * Method: cmocka calls a set-up before each test. That one tells the watchdog its name, and then makes the test's own.
 * Always true: the list is complete before main() begins, because constructors make it. A line leaves the process when
 * it is whole: processes that share a stream tear no line, and a child has none of its parent to print again. */
#include "tests/support/run.h"

#include "tests/support/side_by_side.h"
#include "tests/support/watchdog.h"

#include <assert.h>
#include <errno.h> /* program_invocation_short_name */
#include <stdio.h>

#define TESTS_MAX 128

static struct CMUnitTest tests[TESTS_MAX];
static size_t tests_count;

__attribute__((constructor)) static void write_whole_lines(void) {
    (void)setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
}

void test_list(struct CMUnitTest test) {
    if (tests_count == TESTS_MAX) abort(); /* before main(): nobody is there to read a message */
    tests[tests_count++] = test;
}

void test_list_each(const char *name, CMUnitTestFunction function, const uintptr_t *states) {
    for (; *states != UINTPTR_MAX; states++)
        test_list((struct CMUnitTest){name, function, NULL, NULL, (void *)*states});
}

static const struct CMUnitTest *next; /* cmocka runs them in order */

static int begin_test(void **state) {
    const struct CMUnitTest *test = next++;
    test_watchdog_test_begins(test->name);
    return test->setup_func != NULL ? test->setup_func(state) : 0;
}

static int run(const struct CMUnitTest *list, size_t count, CMFixtureFunction begin, CMFixtureFunction end) {
    static struct CMUnitTest named[TESTS_MAX];
    assert(count <= TESTS_MAX);
    for (size_t i = 0; i < count; i++) {
        named[i] = list[i];
        named[i].setup_func = begin_test;
    }
    next = list;
    test_watchdog_begin();
    int failed = _cmocka_run_group_tests(program_invocation_short_name, named, count, begin, end);
    test_watchdog_test_ends();
    return failed;
}

int test_run_with(CMFixtureFunction begin, CMFixtureFunction end) {
    return run(tests, tests_count, begin, end);
}

int test_run_these(const struct CMUnitTest *list, size_t count) {
    return run(list, count, NULL, NULL);
}

int test_run(void) {
    return test_run_with(NULL, NULL);
}

int test_run_side_by_side(void) {
    return test_run_each_apart(tests, tests_count);
}
