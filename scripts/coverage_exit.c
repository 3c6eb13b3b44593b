/* coverage_exit.c -- in a build that counts what is executed, _exit() writes the counters, as exit() does.
 * Children of tests end by _exit(), and what they have executed would be lost. Linked in by ./dev check coverage, with
 * --wrap=_exit. */
void __gcov_dump(void);
_Noreturn void __real__exit(int status);
_Noreturn void __wrap__exit(int status);

void __wrap__exit(int status) {
    __gcov_dump();
    __real__exit(status);
}
