/* thread_slots_test.c -- slots of threads: the end of a thread is found however it ends, its slot serves another
 * thread, and robust mutexes of the host continue to work. */
#include "tests/support/support.h"

#include "engine/base/threads.h"
#include "engine/core/family.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static uint32_t slots(void) {
    return twi_load_relaxed(&twi_domain->slots);
}

static bool reaches(void) {
    return twi_epoch_stamp() < twi_epoch_reached();
}

/* ---- ends -------------------------------------------------------------------------------------------------------- */

enum end { BY_RETURN, BY_EXIT, BY_CANCEL, INSIDE_TW_ENTER, ENDS };

struct mortal {
    enum end end;
    tw_engine *engine;
    struct twi_thread *self;
};

static void *live(void *ctx) {
    struct mortal *mortal = ctx;
    mortal->self = twi_thread_here();
    if (mortal->self == NULL) return NULL;
    if (mortal->end == INSIDE_TW_ENTER)
        tw_enter(mortal->engine);
    else
        twi_section_enter(mortal->self);
    if (mortal->end == BY_EXIT) pthread_exit(NULL);
    if (mortal->end == BY_CANCEL) {
        (void)pthread_cancel(pthread_self());
        for (;;) pthread_testcancel();
    }
    return NULL;
}

static void run(void *(*function)(void *), void *ctx) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, function, ctx), 0);
    pthread_join(thread, NULL);
}

/* Goal: a thread that ends inside a section leaves it, and its slot serves the next thread. */
TEST(a_slot_is_found_again_however_its_thread_ends) {
    tw_options options;
    tw_options_init(&options);
    options.threads = TW_HOST_DRIVEN;
    struct mortal mortal = {0};
    assert_status(tw_open(&options, &mortal.engine), TW_OK);
    struct twi_thread *first = NULL;
    for (mortal.end = 0; mortal.end < ENDS; mortal.end++) {
        run(live, &mortal);
        assert_non_null(mortal.self);
        if (first == NULL) first = mortal.self;
        assert_ptr_equal(mortal.self, first);
        assert_true(reaches());
    }
    /* the next one finds no open section either, though nobody has looked meanwhile */
    mortal.end = BY_RETURN;
    run(live, &mortal);
    run(live, &mortal);
    assert_ptr_equal(mortal.self, first);
    assert_true(reaches());
    assert_status(tw_close(mortal.engine, 0), TW_OK);
}

static int owner; /* an engine */

static void *end_before_a_step(void *ctx) {
    struct mortal *mortal = ctx;
    mortal->self = twi_thread_here();
    if (mortal->self == NULL) return NULL;
    twi_section_enter(mortal->self);
    (void)twi_marking_begin(mortal->self, &owner, NULL, &owner);
    return NULL;
}

/* Goal: a thread that ends before a step that it has said keeps its number, and the memory that its section needs,
 * until the step is finished, although other threads look for a slot and turns look for memory. Then both are free. */
TEST(an_unfinished_step_keeps_slot_and_memory) {
    struct mortal left = {0}, next = {.end = BY_RETURN};
    run(end_before_a_step, &left);
    assert_non_null(left.self);
    for (int i = 0; i < 3; i++) {
        assert_false(reaches());
        run(live, &next);
        assert_ptr_not_equal(next.self, left.self);
    }
    uint32_t number = 0;
    struct twi_thread_slot *slot = twi_thread_next_ended(&owner, 0, &number);
    assert_ptr_equal(slot, twi_thread_slot(left.self));
    assert_int_equal(number, twi_thread_number(left.self));
    assert_false(reaches());
    twi_thread_let_go(&owner, slot);
    assert_true(reaches());
    run(live, &next);
    assert_ptr_equal(next.self, left.self);
    assert_null(twi_thread_next_ended(&owner, 0, &(uint32_t){0}));
}

TEST(short_lived_threads_use_few_slots) {
    struct mortal mortal = {.end = BY_RETURN};
    run(live, &mortal);
    uint32_t before = slots();
    uint64_t threads = test_scale(20000);
    for (uint64_t i = 0; i < threads; i++) run(live, &mortal);
    assert_int_equal(slots(), before);
    assert_true(reaches());
}

/* ---- many at once ------------------------------------------------------------------------------------------------ */

#define CROWD 1100

struct crowd {
    pthread_t threads[CROWD];
    struct twi_thread *records[CROWD];
    pthread_barrier_t step;
};
static struct crowd crowd;

static void *stand_in_a_section(void *ctx) {
    struct twi_thread *self = *(struct twi_thread **)ctx = twi_thread_here();
    if (self != NULL) twi_section_enter(self);
    pthread_barrier_wait(&crowd.step);
    pthread_barrier_wait(&crowd.step);
    if (self != NULL) twi_section_leave(self);
    pthread_barrier_wait(&crowd.step);
    pthread_barrier_wait(&crowd.step);
    return NULL;
}

static int compare(const void *a, const void *b) {
    const char *one = *(char *const *)a, *two = *(char *const *)b;
    return (one > two) - (one < two);
}

static void *add_one(void *ctx) {
    tw_family *family = ctx;
    tw_status status = tw_add(family, tw_str("a"), 1, NULL);
    if (status != TW_ERR_MEMORY) return NULL;
    return strstr(tw_error_text(), "65,535") != NULL ? ctx : NULL;
}

/* Goal: without a slot left a thread is refused with the reason; a slot whose thread has ended is found even then.
 * Method: the table says that all slots have been handed out; those above the real ones were never made ready. */
TEST(a_thread_without_a_slot_is_refused) {
    tw_options options;
    tw_family_options family_options;
    tw_engine *engine;
    tw_family *family;
    tw_options_init(&options);
    options.threads = TW_HOST_DRIVEN;
    assert_status(tw_open(&options, &engine), TW_OK);
    tw_family_options_init(&family_options);
    family_options.name = "f";
    assert_status(tw_family_open(engine, &family_options, &family), TW_OK);
    uint32_t made = slots();
    static struct twi_thread_slot *free_ones[CROWD + 100];
    uint32_t count = 0;
    for (uint32_t number = 1; number <= made; number++) { /* as if each had a thread that lives */
        struct twi_thread_slot *slot = (struct twi_thread_slot *)(void *)twi_domain + number;
        if (twi_lock_try(&slot->alive)) free_ones[count++] = slot;
    }
    assert_true(twi_arena_open_pages((char *)twi_domain - TWI_SLOTS_BEHIND, 2 * TWI_SLOTS_BEHIND));
    twi_store_relaxed(&twi_domain->slots, TWI_THREADS_MAX);
    pthread_t thread;
    void *answer;
    assert_int_equal(pthread_create(&thread, NULL, add_one, family), 0);
    pthread_join(thread, &answer);
    assert_ptr_equal(answer, family);
    for (uint32_t i = 0; i < count; i++) twi_unlock(&free_ones[i]->alive);
    struct mortal mortal = {.end = BY_RETURN};
    if (count != 0) { /* one that has ended serves it */
        run(live, &mortal);
        assert_non_null(mortal.self);
    }
    twi_store_relaxed(&twi_domain->slots, made);
    assert_status(tw_close(engine, 0), TW_OK);
}

/* ---- kernels that do not tell ------------------------------------------------------------------------------------ */

struct hermit {
    struct twi_thread *self;
    pthread_barrier_t step;
    bool works; /* there is seccomp here */
    int lines;  /* of the log */
};

static void count_line(void *ctx, int level, int event, const char *text) {
    struct hermit *hermit = ctx;
    if (event == TW_EVENT_START && strstr(text, "the kernel refuses robust lists (get_robust_list)") == text)
        hermit->lines++;
}

static void *live_unwatched(void *ctx) {
    struct hermit *hermit = ctx;
    hermit->works = test_answer_call(SYS_get_robust_list, SECCOMP_RET_ERRNO | ENOSYS); /* no robust lists */
    tw_options options;
    tw_engine *engine;
    tw_options_init(&options);
    options.threads = TW_HOST_DRIVEN;
    options.log_write = count_line;
    options.log_ctx = hermit;
    tw_status status = tw_open(&options, &engine);
    hermit->self = status == TW_OK ? twi_thread_here() : NULL;
    if (hermit->self != NULL) twi_section_enter(hermit->self);
    pthread_barrier_wait(&hermit->step);
    pthread_barrier_wait(&hermit->step);
    if (hermit->self != NULL) {
        twi_section_leave(hermit->self);
        (void)tw_close(engine, 0);
        twi_section_enter(hermit->self);
    }
    return NULL;
}

/* Goal: where the kernel does not tell of a thread's end, an engine works and says so in its log; a thread that lives
 * keeps its slot, and one that has ended is found all the same. */
TEST(a_kernel_that_tells_nothing_is_asked) {
    static struct hermit hermit;
    pthread_barrier_init(&hermit.step, NULL, 2);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, live_unwatched, &hermit), 0);
    pthread_barrier_wait(&hermit.step);
    bool watched = hermit.self == NULL || twi_thread_is_watched(hermit.self);
    uint64_t stamp = twi_epoch_stamp();
    bool kept = !(stamp < twi_epoch_reached());
    struct mortal mortal = {.end = BY_RETURN};
    run(live, &mortal); /* does not take its slot */
    pthread_barrier_wait(&hermit.step);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&hermit.step);
    if (!hermit.works) {
        test_leave_out("no seccomp here: run it with a kernel and a container that allow it");
        return;
    }
    assert_non_null(hermit.self);
    assert_false(watched);
    assert_int_equal(hermit.lines, 1);
    assert_true(kept);
    assert_ptr_not_equal(mortal.self, hermit.self);
    int64_t deadline = test_mono_ms() + 10000; /* its number lives a moment longer than the thread */
    while (!(stamp = twi_epoch_stamp(), stamp < twi_epoch_reached())) {
        assert_true(test_mono_ms() < deadline);
        sched_yield();
    }
}

/* ---- beside the host's own --------------------------------------------------------------------------------------- */

static pthread_mutex_t hosts[2]; /* robust mutexes, locked before the first call and after it */

static void *lock_and_end(void *ctx) {
    pthread_mutex_lock(&hosts[0]);
    struct twi_thread *self = twi_thread_here();
    pthread_mutex_lock(&hosts[1]);
    *(struct twi_thread **)ctx = self;
    return NULL;
}

TEST(robust_mutexes_of_the_host_work) {
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    for (int round = 0; round < 10; round++) {
        struct twi_thread *self = NULL, *next = NULL;
        for (int i = 0; i < 2; i++) pthread_mutex_init(&hosts[i], &kind);
        run(lock_and_end, &self);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(pthread_mutex_trylock(&hosts[i]), EOWNERDEAD);
            pthread_mutex_consistent(&hosts[i]);
            pthread_mutex_unlock(&hosts[i]);
        }
        run(lock_and_end, &next);
        assert_ptr_equal(self, next);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(pthread_mutex_lock(&hosts[i]), EOWNERDEAD);
            pthread_mutex_consistent(&hosts[i]);
            pthread_mutex_unlock(&hosts[i]);
            pthread_mutex_destroy(&hosts[i]);
        }
    }
    pthread_mutexattr_destroy(&kind);
}

/* ---- fork -------------------------------------------------------------------------------------------------------- */

/* Goal: a child has slots of its own. Neither its calls nor its end change what the parent's slots show. */
TEST(a_child_leaves_the_parents_slots_alone) {
    struct twi_thread *self = twi_thread_here();
    twi_section_enter(self);
    uint64_t stamp = twi_epoch_stamp();
    uint32_t before = slots();
    for (int round = 0; round < 3; round++) {
        fflush(NULL);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            struct twi_thread *own = twi_thread_here();
            bool is_own = own != NULL && own != self && slots() == 1 && stamp < twi_epoch_reached();
            if (own != NULL) twi_section_enter(own);
            _exit(is_own ? 0 : 1);
        }
        int status;
        while (waitpid(pid, &status, 0) < 0) assert_int_equal(errno, EINTR);
        assert_int_equal(status, 0);
        assert_false(stamp < twi_epoch_reached());
        assert_int_equal(slots(), before);
    }
    twi_section_leave(self);
    assert_true(stamp < twi_epoch_reached());
}

/* Goal: more threads than a search looks at have slots of their own; when they have ended, others take them over. */
TEST(a_thousand_threads_have_slots_of_their_own) {
    if (test_is_slow()) {
        test_leave_out("so many threads take too long under valgrind and sanitizers: a build without them runs this");
        return;
    }
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 65536);
    for (int round = 0; round < 2; round++) {
        pthread_barrier_init(&crowd.step, NULL, CROWD + 1);
        for (int i = 0; i < CROWD; i++)
            assert_int_equal(pthread_create(&crowd.threads[i], &attributes, stand_in_a_section, &crowd.records[i]), 0);
        pthread_barrier_wait(&crowd.step);
        uint64_t stamp = twi_epoch_stamp();
        assert_false(stamp < twi_epoch_reached());
        pthread_barrier_wait(&crowd.step);
        pthread_barrier_wait(&crowd.step);
        assert_true(stamp < twi_epoch_reached());
        pthread_barrier_wait(&crowd.step);
        for (int i = 0; i < CROWD; i++) pthread_join(crowd.threads[i], NULL);
        pthread_barrier_destroy(&crowd.step);
        qsort(crowd.records, CROWD, sizeof crowd.records[0], compare);
        for (int i = 0; i < CROWD; i++) assert_non_null(crowd.records[i]);
        for (int i = 1; i < CROWD; i++) assert_ptr_not_equal(crowd.records[i], crowd.records[i - 1]);
    }
    pthread_attr_destroy(&attributes);
    assert_true(slots() < 2 * CROWD); /* the second crowd has those of the first one, nearly all */
}

int main(void) {
    if (test_is_emulated()) test_skip_program("qemu-user has no robust lists: run it on an ARM64 machine");
    return test_run();
}
