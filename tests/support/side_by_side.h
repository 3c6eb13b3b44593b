/* side_by_side.h -- runs the tests of one program at the same time, if they mostly wait.
 *
 * A test with a real server spends most of its time waiting: for a window's end, a lease, a back-off. Such tests need
 * no processor, so several run at once, each in a separate process. Their output comes in the order of the list.
 * Always true: a test that crashes, hangs until the program's time-out, or ends without a result counts as failed, and
 * affects no other test. The program prints one TAP plan. */
#ifndef TEST_SIDE_BY_SIDE_H
#define TEST_SIDE_BY_SIDE_H

#include "tests/support/support.h"

/* As test_run_side_by_side() of run.h, for a list of the program's own. The tests have no set-up of the group. Call it
 * before the program starts a thread. Returns how many failed. */
int test_run_each_apart(const struct CMUnitTest *tests, size_t count);

#endif
