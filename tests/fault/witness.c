/* witness.c -- other processes learn that a process has ended, wherever they look from: from another namespace of
 * process ids, as another user, after exec, where its id is used again, and when its threads come and go.
 * Method: real processes, in real namespaces. A worker in a namespace of its own is process 1 there, so two such
 * workers have equal thread numbers. Each worker holds some slots, and the leader says how many are in use.
 * What the system refuses here is left out by name. Skipped under sanitizers and valgrind: their own locks do not
 * survive the fork of a process with several threads.
 * Covers: engine/core/processes.c, engine/base/threads.c. */
#include "tests/support/children.h"
#include "tests/support/support.h"

#include "engine/base/threads.h"
#include "engine/core/processes.h"
#include "engine/core/state.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORKERS 8u
#define SECONDS 60
#define NO_NAMESPACE "the system refuses a namespace of process ids: run it as root, or allow user namespaces"

static struct common {
    struct worker {
        _Atomic bool is_ready, ends;
        _Atomic pid_t id; /* outside of its namespace */
        _Atomic int leads;
    } workers[WORKERS];
    _Atomic int64_t used; /* slots, as the leader of another user sees them */
    _Atomic bool is_held;
    pthread_mutex_t mutex;
} * common;
static tw_engine *engine;
static tw_family *family;

static int open_shared(void **state) {
    tw_options options;
    tw_options_init(&options);
    options.memory_bytes_max = UINT64_C(64) << 20;
    options.shared = TW_SHARED_BY_FORK;
    assert_status(tw_open(&options, &engine), TW_OK);
    tw_family_options one;
    tw_family_options_init(&one);
    one.name = "jobs";
    one.window = TW_WINDOW_FOREVER;
    assert_status(tw_family_open(engine, &one, &family), TW_OK);
    common = children_pages(sizeof *common);
    return 0;
}

static int close_shared(void **state) {
    munmap(common, sizeof *common);
    assert_status(tw_close(engine, 1000), TW_OK);
    return 0;
}

/* ---- workers ----------------------------------------------------------------------------------------------------- */

static bool enter_namespace(void) {
    return unshare(geteuid() == 0 ? CLONE_NEWPID : CLONE_NEWUSER | CLONE_NEWPID) == 0;
}

static bool has_no_namespaces(const char *test) {
    pid_t pid = child_fork(SECONDS);
    if (pid == 0) _exit(enter_namespace() ? 0 : 1);
    bool has_none = child_await(pid) != 0;
    if (has_none) test_left_out(test, NO_NAMESPACE);
    return has_none;
}

static void say_ready(struct worker *worker) {
    twi_store_release(&worker->is_ready, true);
}

static void await_flag(_Atomic bool *flag) {
    for (int i = 0; !twi_load_acquire(flag) && i < 20000; i++) usleep(1000);
    assert_true(twi_load_acquire(flag));
}

static void hold(uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        if (tw_hold(family, tw_str("all"), 1000, NULL) != TW_OK) _exit(2);
}

static void hold_and_wait(struct worker *worker, uint32_t count) {
    hold(count);
    say_ready(worker);
    for (;;) pause();
}

typedef void work(struct worker *worker, uint32_t number);

/* Returns a process that waits for the worker. The worker is process 1 of a namespace. */
static pid_t begin_inside(work *do_work, uint32_t number) {
    struct worker *worker = &common->workers[number];
    *worker = (struct worker){.is_ready = false};
    pid_t keeper = child_fork(SECONDS);
    if (keeper != 0) return keeper;
    if (!enter_namespace()) _exit(8);
    pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        do_work(worker, number + 1);
        _exit(0);
    }
    twi_store_release(&worker->id, pid);
    (void)child_await(pid);
    _exit(0);
}

static void end_worker(uint32_t number, pid_t keeper) {
    pid_t id; /* the worker may be ready before its keeper has noted its number; and 0 would be this test's group */
    for (int i = 0; (id = twi_load_acquire(&common->workers[number].id)) == 0 && i < TEST_PATIENCE_MS; i++)
        usleep(1000);
    assert_true(id > 0);
    assert_int_equal(kill(id, SIGKILL), 0);
    child_expect_end(keeper);
}

static int64_t used(void) {
    tw_verdict verdict;
    assert_status(tw_hold(family, tw_str("all"), 0, &verdict), TW_DENIED);
    return verdict.used;
}

/* The leader looks once a second, and if it is called. */
static void expect_used(int64_t wanted) {
    for (int i = 0; used() != wanted && i < TEST_PATIENCE_MS / 10; i++) {
        assert_status(tw_process_died(engine), TW_OK);
        usleep(10000);
    }
    assert_i64_equal(used(), wanted);
}

static bool is_alone(void *ctx) {
    return twi_processes_count(engine) == 1;
}

/* ---- other users, and exec --------------------------------------------------------------------------------------- */

static void become(uid_t user) {
    if (setgid(user) != 0 || setuid(user) != 0) _exit(4);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* after the change, which clears it */
    alarm(4 * SECONDS);
}

static void lead_as_other_user(void) {
    become(65533);
    if (tw_lead(engine) != TW_OK) _exit(2);
    for (tw_verdict verdict;; usleep(1000)) {
        if (tw_hold(family, tw_str("all"), 0, &verdict) != TW_DENIED) _exit(3);
        twi_store_release(&common->used, verdict.used);
    }
}

static void hold_and_exec(void) {
    become(65534);
    hold(3);
    await_flag(&common->workers[0].ends);
    alarm(0); /* it outlives the patience of the test, and ends with its parent */
    (void)execl("/bin/sleep", "sleep", "1000", (char *)NULL);
    _exit(127);
}

static void expect_seen(int64_t wanted) {
    for (int i = 0; common->used != wanted && i < TEST_PATIENCE_MS; i++) usleep(1000);
    if (common->used != wanted) _exit(5);
}

/* Root, which only supervises. */
static void supervise_two_users(void) {
    void *state = NULL;
    (void)open_shared(&state);
    common->used = -1;
    pid_t leader = fork();
    if (leader == 0) lead_as_other_user();
    expect_seen(0);
    pid_t worker = fork();
    if (worker == 0) hold_and_exec();
    expect_seen(3);
    twi_store_release(&common->workers[0].ends, true);
    expect_seen(0);
    (void)kill(leader, SIGKILL);
    (void)kill(worker, SIGKILL);
}

/* Goal: a worker becomes another program. A leader of another user, who may not look into it, gives its slots back.
 * This test is the first one: root makes no call once a process of another user shares its threads. */
TEST(a_worker_of_another_user_becomes_another_program) {
    if (geteuid() != 0) {
        test_leave_out("only root can change its user: run it as root");
        return;
    }
    pid_t pid = child_fork(4 * SECONDS);
    if (pid == 0) {
        supervise_two_users();
        _exit(0);
    }
    child_expect_end(pid);
}

static void lead_and_look(struct worker *worker) {
    become(65533);
    if (tw_lead(engine) != TW_OK) _exit(2);
    for (int i = 0; i < 100; i++) { /* the place of a process that seems to have ended becomes free */
        (void)tw_process_died(engine);
        usleep(1000);
    }
    say_ready(worker);
    await_flag(&worker->ends);
    for (int i = 0; i < 100; i++) {
        (void)tw_process_died(engine);
        usleep(1000);
    }
    _exit(used() == 3 ? 0 : 6);
}

static void hold_as_other_user(struct worker *worker) {
    become(65533);
    hold_and_wait(worker, 3);
}

/* It is root, made no call, and forked: no thread of it is known to others. It opens an engine and closes it. */
static void open_as_manager(void) {
    pid_t pid = fork();
    if (pid == 0) _exit(0);
    (void)child_await(pid);
    void *state = NULL;
    (void)open_shared(&state);
    struct worker *workers = common->workers;
    pid_t leader = fork();
    if (leader == 0) lead_and_look(&workers[0]);
    await_flag(&workers[0].is_ready);
    pid_t holder = fork();
    if (holder == 0) hold_as_other_user(&workers[1]);
    await_flag(&workers[1].is_ready);
    if (tw_close(engine, 1000) != TW_OK) _exit(3);
    twi_store_release(&workers[0].ends, true);
    if (child_await(leader) != 0) _exit(6);
    (void)kill(holder, SIGKILL);
}

/* Goal: where others cannot see the process that opens an engine, it has no place. If it had one, a worker would get
 * the same place, and lose its slots when the opener closes. */
TEST(an_opener_that_nobody_sees_has_no_place) {
    if (geteuid() != 0) {
        test_leave_out("only root has threads that others do not see: run it as root");
        return;
    }
    pid_t pid = child_fork(4 * SECONDS);
    if (pid == 0) {
        (void)open_shared(state);
        pid_t manager = fork();
        if (manager == 0) {
            open_as_manager();
            _exit(0);
        }
        _exit(child_await(manager) == 0 ? 0 : 7);
    }
    child_expect_end(pid);
}

/* ---- namespaces of process ids ----------------------------------------------------------------------------------- */

/* Goal: slots and places of workers with equal numbers return when their own one ends, and no sooner. */
TEST_WITH(each_namespace_has_a_process_one, open_shared, close_shared, NULL) {
    if (has_no_namespaces(__func__)) return;
    assert_status(tw_lead(engine), TW_OK);
    pid_t keepers[4];
    int64_t wanted = 0;
    for (uint32_t i = 0; i < 4; i++) {
        keepers[i] = begin_inside(hold_and_wait, i);
        await_flag(&common->workers[i].is_ready);
        expect_used(wanted += i + 1);
    }
    for (uint32_t i = 0; i < 4; i++) {
        end_worker(i, keepers[i]);
        expect_used(wanted -= i + 1);
    }
    assert_true(test_wait(is_alone, NULL, TEST_PATIENCE_MS)); /* a place is free just after its slots are */
}

/* The first process of the namespace. Its second one holds slots, is killed, and another one has its number. */
static void use_a_number_again(struct worker *worker, uint32_t number) {
    pid_t before = fork();
    if (before == 0) hold_and_wait(worker, 1);
    while (!twi_load_acquire(&worker->is_ready)) usleep(1000);
    (void)kill(before, SIGKILL);
    if (waitpid(before, NULL, 0) != before) _exit(3);
    int last = open("/proc/sys/kernel/ns_last_pid", O_WRONLY | O_CLOEXEC);
    char text[16];
    int bytes = snprintf(text, sizeof text, "%d", before - 1);
    bool is_set = last >= 0 && write(last, text, (size_t)bytes) == bytes;
    pid_t after = fork();
    if (after == 0)
        for (;;) pause();
    twi_store_release(&worker->leads, !is_set || after != before ? -1 : 1);
    for (;;) pause();
}

/* Goal: that another process has the number does not keep the slots. */
TEST_WITH(a_number_is_used_again, open_shared, close_shared, NULL) {
    if (has_no_namespaces(__func__)) return;
    assert_status(tw_lead(engine), TW_OK);
    pid_t keeper = begin_inside(use_a_number_again, 0);
    for (int i = 0; common->workers[0].leads == 0 && i < 20000; i++) usleep(1000);
    if (common->workers[0].leads < 0) test_leave_out("ns_last_pid is not written here: run it as root");
    expect_used(0);
    end_worker(0, keeper);
}

static void lead_and_wait(struct worker *worker, uint32_t number) {
    tw_status status = tw_lead(engine);
    twi_store_release(&worker->leads, status == TW_OK ? 1 : status == TW_PENDING ? 2 : -1);
    while (status == TW_PENDING) {
        usleep(1000);
        if ((status = tw_lead(engine)) == TW_OK) twi_store_release(&worker->leads, 1);
    }
    for (;;) pause();
}

static void await_lead(uint32_t number, int wanted) {
    for (int i = 0; common->workers[number].leads != wanted && i < TEST_PATIENCE_MS; i++) usleep(1000);
    assert_int_equal(common->workers[number].leads, wanted);
}

/* Goal: the leader's seat goes to a candidate of another namespace. */
TEST_WITH(a_leader_is_replaced_from_another_namespace, open_shared, close_shared, NULL) {
    if (has_no_namespaces(__func__)) return;
    pid_t first = begin_inside(lead_and_wait, 0);
    await_lead(0, 1);
    pid_t second = begin_inside(lead_and_wait, 1);
    await_lead(1, 2);
    end_worker(0, first);
    await_lead(1, 1);
    end_worker(1, second);
}

/* ---- equal numbers and one lock ---------------------------------------------------------------------------------- */

static void keep_mutex(struct worker *worker, uint32_t number) {
    twi_lock(&common->mutex);
    say_ready(worker);
    for (;;) pause();
}

static void wait_for_mutex(struct worker *worker, uint32_t number) {
    say_ready(worker);
    twi_lock(&common->mutex);
    common->is_held = true;
    for (;;) pause();
}

static void try_mutex(struct worker *worker, uint32_t number) {
    say_ready(worker);
    while (!twi_lock_try(&common->mutex)) {}
    common->is_held = true;
    for (;;) pause();
}

/* Goal: a thread that ends while it waits for a mutex, or tries it, takes nothing from the one that has it, although
 * both have the same number: the kernel would take the one for the other. The mutex is free when its owner ends. */
TEST_WITH(a_thread_that_ends_takes_no_mutex_of_another_one, open_shared, close_shared, NULL) {
    if (has_no_namespaces(__func__)) return;
    twi_lock_make_robust(&common->mutex);
    pid_t owner = begin_inside(keep_mutex, 0);
    await_flag(&common->workers[0].is_ready);
    for (uint64_t i = 0; i < 20; i++) {
        pid_t other = begin_inside(i % 2 == 0 ? wait_for_mutex : try_mutex, 1);
        await_flag(&common->workers[1].is_ready);
        usleep(5000); /* it waits or tries now; if it does not yet, the test finds less */
        end_worker(1, other);
        assert_false(twi_lock_try(&common->mutex));
        assert_false(common->is_held);
    }
    pid_t last = begin_inside(wait_for_mutex, 2);
    await_flag(&common->workers[2].is_ready);
    end_worker(0, owner);
    await_flag(&common->is_held);
    end_worker(2, last);
}

/* ---- threads that come and go ------------------------------------------------------------------------------------ */

static void *hold_two(void *ctx) {
    hold(2);
    return ctx;
}

static void hold_by_a_thread_that_ends(struct worker *worker, uint32_t number) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, hold_two, NULL) != 0) _exit(3);
    pthread_join(thread, NULL);
    say_ready(worker);
    for (;;) pause();
}

/* Goal: the slots stay while the process lives, though no thread of it that ever called lives. Then they return. */
TEST_WITH(slots_outlive_the_thread_that_took_them, open_shared, close_shared, NULL) {
    assert_status(tw_lead(engine), TW_OK);
    pid_t pid = child_fork(SECONDS);
    if (pid == 0) hold_by_a_thread_that_ends(&common->workers[0], 1);
    await_flag(&common->workers[0].is_ready);
    for (int i = 0; i < 100; i++) {
        assert_status(tw_process_died(engine), TW_OK); /* so the leader looks */
        usleep(1000);
    }
    assert_i64_equal(used(), 2);
    child_kill(pid);
    expect_used(0);
}

static void *hold_without_threads(void *ctx) {
    if (!test_answer_call(SYS_clone, SECCOMP_RET_ERRNO | EAGAIN) ||
        !test_answer_call(SYS_clone3, SECCOMP_RET_ERRNO | EAGAIN))
        _exit(7);
    if (tw_add(family, tw_str("one"), 1, NULL) != TW_OK) _exit(2);
    if (tw_hold(family, tw_str("all"), 1000, NULL) != TW_ERR_MEMORY) _exit(3);
    if (strstr(tw_error_text(), "no thread could be started") == NULL) _exit(4);
    if (tw_lead(engine) != TW_ERR_MEMORY) _exit(5);
    return ctx;
}

/* Goal: where no thread can be the witness, the calls that need one are refused by name, and others work. The main
 * thread is a witness itself. */
TEST_WITH(without_a_witness_no_slot_is_taken, open_shared, close_shared, NULL) {
    pid_t pid = child_fork(SECONDS);
    if (pid == 0) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, hold_without_threads, NULL) != 0) _exit(8);
        pthread_join(thread, NULL);
        hold(1);
        _exit(tw_close(engine, 0) == TW_OK ? 0 : 9);
    }
    int status = child_await(pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 7)
        test_leave_out("there is no seccomp here: run it with a kernel that has it");
    else
        assert_int_equal(status, 0);
}

/* ---- a child of clone() ------------------------------------------------------------------------------------------ */

/* Goal: such a child has no list of robust mutexes. It is refused by name. Before, another thread could get its record
 * while it used it. */
TEST_WITH(a_child_of_clone_is_refused, open_shared, close_shared, NULL) {
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        bool is_refused = tw_add(family, tw_str("one"), 1, NULL) == TW_ERR_MEMORY;
        _exit(is_refused && strstr(tw_error_text(), "clone()") != NULL ? 0 : 2);
    }
    child_expect_end(pid);
    assert_status(tw_add(family, tw_str("one"), 1, NULL), TW_OK);
}

int main(void) {
    test_skip_unshared();
    return test_run();
}
