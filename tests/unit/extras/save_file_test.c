/* save_file_test.c -- the file of tw_save() and its system: one temporary name beside the target, that is locked and
 * used again; limits on file sizes; savers that are killed. The file at the path is a whole one at all times. */
#include "tests/unit/extras/save_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>

static char temporary[112];

static int begin_file(void **state) {
    int result = begin(state);
    snprintf(temporary, sizeof temporary, "%s.new", path);
    return result;
}

static void fill(tw_family *family, int keys) {
    char key[80];
    for (int i = 0; i < keys; i++) {
        snprintf(key, sizeof key, "a key that fills the file %040d", i);
        rig_add(family, key, 1);
    }
}

static void assert_loads(int64_t counters) {
    rig_close(&rig);
    start_again();
    tw_family *family = hourly();
    load();
    assert_i64_equal(rig_each(family, TW_NOW).counters, counters);
}

/* Goal: a limit on the size of files is an error, and no signal. Method: a child in which SIGXFSZ would end the
 * program; after the refusal no such signal is pending. One that was pending before, and blocked, stays. */
TEST_WITH(a_limit_on_file_sizes_ends_no_program, begin_file, end, NULL) {
    if (test_misses_wiped_pages()) return;
    fill(hourly(), 5000);
    stop();
    for (int pends = 0; pends < 2; pends++) {
        pid_t child = test_fork();
        if (child == 0) {
            struct rlimit few = {100000, RLIM_INFINITY};
            sigset_t set;
            rig_start(&rig);
            fill(hourly(), 5000);
            stop();
            sigemptyset(&set);
            sigaddset(&set, SIGXFSZ);
            if (pends) (void)sigprocmask(SIG_BLOCK, &set, NULL), (void)raise(SIGXFSZ);
            if (setrlimit(RLIMIT_FSIZE, &few) != 0) _exit(2);
            if (tw_save(rig.engine, path) != TW_ERR_OPTIONS || strstr(tw_error_text(), strerror(EFBIG)) == NULL)
                _exit(3);
            (void)sigpending(&set);
            _exit(sigismember(&set, SIGXFSZ) == pends ? 0 : 4);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    assert_int_equal(access(temporary, F_OK), -1);
    assert_status(tw_save(rig.engine, path), TW_OK);
}

/* Goal: a killed tw_save() leaves nothing that stays. Method: what one leaves, its temporary file, of any size; the
 * next one uses it. */
TEST_WITH(the_file_of_a_killed_saver_is_used_again, begin_file, end, NULL) {
    fill(hourly(), 3);
    stop();
    FILE *left = fopen(temporary, "w");
    assert_non_null(left);
    for (int i = 0; i < 100000; i++) fputc('x', left);
    assert_int_equal(fclose(left), 0);
    assert_int_equal(chmod(temporary, 0666), 0);
    assert_status(tw_save(rig.engine, path), TW_OK);
    struct stat about;
    assert_int_equal(lstat(path, &about), 0);
    assert_int_equal(about.st_mode & 07777, 0600);
    assert_int_equal(access(temporary, F_OK), -1);
    assert_loads(3);
}

/* Goal: the same with a saver that is killed at any moment. */
TEST_WITH(killed_savers_leave_at_most_one_file, begin_file, end, NULL) {
    if (test_misses_wiped_pages()) return;
    for (int round = 0; round < 12; round++) {
        pid_t child = test_fork();
        if (child == 0) {
            rig_start(&rig);
            fill(hourly(), 2000);
            stop();
            for (;;) (void)tw_save(rig.engine, path);
        }
        usleep(20000 + (unsigned)round * 3001);
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, NULL, 0), child);
    }
    fill(hourly(), 2);
    stop();
    assert_status(tw_save(rig.engine, path), TW_OK);
    assert_loads(2); /* end() removes the folder, which is then empty */
}

/* Goal: two savers of one path do not write into one file. Method: one holds the lock; the other waits, and then has a
 * file of its own, though the first one has renamed the one that it waited for. */
TEST_WITH(a_saver_waits_for_another_one, begin_file, end, NULL) {
    if (test_misses_wiped_pages()) return;
    fill(hourly(), 3);
    stop();
    int ready[2];
    char byte = 0;
    assert_int_equal(pipe(ready), 0);
    pid_t child = test_fork();
    if (child == 0) {
        int fd = open(temporary, O_CREAT | O_RDWR, 0600);
        if (fd < 0 || flock(fd, LOCK_EX) != 0 || write(ready[1], &byte, 1) != 1) _exit(1);
        usleep(300000);
        if (rename(temporary, path) != 0) _exit(2);
        usleep(100000);
        struct stat about;
        if (fstat(fd, &about) != 0 || about.st_size != 0) _exit(3);
        _exit(0);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_status(tw_save(rig.engine, path), TW_OK);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(ready[0]);
    close(ready[1]);
    assert_int_equal(access(temporary, F_OK), -1);
    assert_loads(3);
}

/* Goal: nobody can make the saver write elsewhere. Method: a link, a second name of another file, a folder, a file of
 * another user at the temporary name. */
TEST_WITH(a_trap_at_the_temporary_name_is_refused, begin_file, end, NULL) {
    char other[112];
    snprintf(other, sizeof other, "%s.other", path);
    fill(hourly(), 3);
    stop();
    int fd = open(other, O_CREAT | O_WRONLY, 0600);
    assert_int_equal(write(fd, "kept", 4), 4);
    close(fd);
    assert_int_equal(symlink(other, temporary), 0);
    assert_refused(tw_save(rig.engine, path), TW_ERR_OPTIONS, temporary);
    unlink(temporary);
    assert_int_equal(link(other, temporary), 0);
    assert_refused(tw_save(rig.engine, path), TW_ERR_OPTIONS, temporary);
    unlink(temporary);
    assert_int_equal(mkdir(temporary, 0700), 0);
    assert_refused(tw_save(rig.engine, path), TW_ERR_OPTIONS, temporary);
    rmdir(temporary);
    if (geteuid() == 0) {
        fd = open(temporary, O_CREAT | O_WRONLY, 0600);
        close(fd);
        assert_int_equal(chown(temporary, 12345, 12345), 0);
        assert_refused(tw_save(rig.engine, path), TW_ERR_OPTIONS, "another user");
        unlink(temporary);
    }
    struct stat about;
    assert_int_equal(stat(other, &about), 0);
    assert_int_equal(about.st_size, 4);
    unlink(other);
    assert_status(tw_save(rig.engine, path), TW_OK);
    assert_loads(3);
}

int main(void) {
    return test_run();
}
