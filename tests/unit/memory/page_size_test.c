/* page_size_test.c -- a kernel with pages of 16 or 64 KiB, as ARM64 may have, takes each call of the engine.
 *
 * Method: this program defines mmap, munmap, madvise and getpagesize in front of libc's. They do what such a kernel
 * does: mappings begin at a page and end with one, and an address within a page is refused. Each size has a process of
 * its own, because the first engine of a process maps its threads' records. Skipped under sanitizers, which define the
 * same functions. */
#include "tests/support/support.h"

#include "engine/memory/arena.h"
#include "include/tallywheel.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static uintptr_t page = 4096;
static uint64_t refused, populated;

static uintptr_t whole(uintptr_t bytes) {
    return (bytes + page - 1) & ~(page - 1);
}

int getpagesize(void) {
    return (int)page;
}

static int refuse(void) {
    refused++;
    errno = EINVAL;
    return -1;
}

void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
    if ((flags & MAP_FIXED) != 0) {
        if ((uintptr_t)at % page != 0) return refuse(), MAP_FAILED;
        return (void *)syscall(SYS_mmap, at, whole(size), protection, flags, fd, offset);
    }
    uintptr_t map = (uintptr_t)syscall(SYS_mmap, NULL, whole(size) + page, protection, flags, fd, offset);
    if (map == (uintptr_t)MAP_FAILED) return MAP_FAILED;
    uintptr_t begin = whole(map), end = begin + whole(size);
    if (begin != map) syscall(SYS_munmap, map, begin - map);
    if (end != map + whole(size) + page) syscall(SYS_munmap, end, map + page - begin);
    return (void *)begin;
}

int munmap(void *at, size_t size) {
    if ((uintptr_t)at % page != 0) return refuse();
    return (int)syscall(SYS_munmap, at, whole(size));
}

int madvise(void *at, size_t size, int advice) {
    if ((uintptr_t)at % page != 0) return refuse();
    if (advice == MADV_POPULATE_WRITE) populated += whole(size);
    return (int)syscall(SYS_madvise, at, whole(size), advice);
}

/* ---- in a process of its own ------------------------------------------------------------------------------------- */

static bool arena_works(void) {
    static struct twi_arena arena;
    uint32_t work = 1u << 20;
    if (!twi_arena_make(&arena, UINT64_C(64) << 20)) return false;
    for (uint32_t lines = 1; lines < 20000; lines = lines * 3 / 2 + 1) {
        uint32_t line = twi_arena_take(&arena, lines);
        if (line == 0) return false;
        twi_arena_touch(&arena, line, lines);
        memset(twi_arena_at(&arena, line), 1, (size_t)lines * TWI_LINE_BYTES);
        twi_arena_give(&arena, line, lines);
        uint32_t again = twi_arena_take(&arena, lines);
        const unsigned char *piece = twi_arena_at(&arena, again);
        for (size_t i = 0; i < (size_t)lines * TWI_LINE_BYTES; i++)
            if (piece[i] != 0) return false;
        twi_arena_survey(&arena, lines);
        twi_arena_keep_ahead(&arena, &work);
    }
    twi_arena_unmake(&arena);
    return populated != 0;
}

static bool engine_works(void) {
    tw_options options;
    tw_engine *engine;
    tw_family *family;
    tw_family_options family_options;
    int64_t view = 0;
    char key[16];
    tw_options_init(&options);
    options.threads = TW_HOST_DRIVEN;
    options.memory_bytes_max = UINT64_C(64) << 20;
    if (tw_open(&options, &engine) != TW_OK) return false;
    tw_family_options_init(&family_options);
    family_options.name = "f";
    family_options.window = TW_WINDOW_FOREVER;
    if (tw_family_open(engine, &family_options, &family) != TW_OK) return false;
    for (int i = 0; i < 30000; i++) {
        snprintf(key, sizeof key, "key %d", i);
        if (tw_add(family, tw_str(key), i, NULL) != TW_OK) return false;
        if (i % 100 == 0 && tw_turn(engine) != TW_OK) return false;
    }
    if (tw_get(family, tw_str("key 29999"), &view) != TW_OK || view != 29999) return false;
    return tw_close(engine, 0) == TW_OK;
}

/* The child of a process that counts makes records of its own. */
static bool child_works(void) {
    int status = 0;
    pid_t child = test_fork();
    if (child == 0) _exit(engine_works() ? 0 : 1);
    return waitpid(child, &status, 0) == child && status == 0;
}

static bool all_works(uintptr_t size) {
    int status = 0;
    pid_t child = test_fork();
    if (child == 0) {
        page = size;
        bool works = arena_works() && engine_works() && child_works();
        if (!works || refused != 0)
            print_error("pages of %zu: %d, %zu refused\n", (size_t)size, works, (size_t)refused);
        _exit(works && refused == 0 ? 0 : 1);
    }
    return waitpid(child, &status, 0) == child && status == 0;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

/* Goal: with pages of each size nothing is refused, memory is prepared in advance, and pieces come zeroed. */
TEST(pages_of_each_size_are_used_as_pages) {
    for (uintptr_t size = (uintptr_t)sysconf(_SC_PAGESIZE); size <= 65536; size *= 2) assert_true(all_works(size));
}

int main(void) {
    if (test_is_slow()) test_skip_program("sanitizers define mmap themselves: the build without them runs this");
    return test_run();
}
