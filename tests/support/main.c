/* main.c -- the main() of a test program that has none.
 * Always true: the linker takes this file from the library of tests only if the program does not define main(). */
#include "tests/support/run.h"

int main(void) {
    return test_run();
}
