/* save_process_test.c -- counts that go from process to process through a file: each life is a program of its own, with
 * the engine's own thread, the system's clock, and threads that count at once.
 * Method: this program runs itself for each life. A life checks what it has loaded against what all lives before it
 * have counted, to the unit, counts, and saves. */
#include "tests/support/support.h"

#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LIVES 4
#define THREADS 4
#define KEYS 3000
#define LIMIT 1000

static tw_engine *engine;
static tw_family *forever, *late, *sale;

/* What thread `thread` adds to a key in one life. */
static int64_t delta_of(int life, int thread, int number) {
    return (int64_t)number * 31 + life * 7 - thread * 1000;
}

static int64_t sum_before(int life, int number) {
    int64_t sum = 0;
    for (int before = 0; before < life; before++)
        for (int thread = 0; thread < THREADS; thread++) sum += delta_of(before, thread, number);
    return sum;
}

static tw_key key_of(int number, char text[48]) {
    snprintf(text, 48, number % 2 == 0 ? "%d" : "a longer key with the number %d", number);
    return tw_str(text);
}

struct part {
    int life, thread;
    int64_t moment_ms;
    tw_status worst;
};

static void *count(void *arg) {
    struct part *part = arg;
    char text[48];
    for (int number = 0; number < KEYS; number++) {
        int64_t delta = delta_of(part->life, part->thread, number);
        tw_status status = tw_add(forever, key_of(number, text), delta, NULL);
        if (status == TW_OK) status = tw_add_at(late, key_of(number, text), delta, part->moment_ms, NULL);
        if (status == TW_OK && number % 30 == 0) status = tw_acquire(sale, tw_str("sku"), 1, LIMIT, NULL);
        if (status != TW_OK) part->worst = status;
    }
    return NULL;
}

static tw_family *open_family(const char *name, uint32_t window) {
    tw_family *family = NULL;
    tw_family_options options;
    tw_family_options_init(&options);
    options.name = name;
    options.window = window;
    if (window == TW_WINDOW_ALIGNED) options.lateness_ms = TW_DAY;
    return tw_family_open(engine, &options, &family) == TW_OK ? family : NULL;
}

static const char *check(int life, int64_t moment_ms) {
    char text[48];
    int64_t view, sold = life * THREADS * (KEYS / 30);
    for (int number = 0; number < KEYS; number++) {
        int64_t want = sum_before(life, number);
        if (tw_get(forever, key_of(number, text), &view) != TW_OK || view != want) return "an endless count differs";
        if (tw_get_at(late, key_of(number, text), moment_ms, &view) != TW_OK || view != want)
            return "a count of the window differs";
    }
    if (tw_get(sale, tw_str("sku"), &view) != TW_OK || view != (sold < LIMIT ? sold : LIMIT)) return "units differ";
    return NULL;
}

static const char *live(int life, const char *path, int64_t moment_ms) {
    tw_options options;
    pthread_t threads[THREADS];
    struct part parts[THREADS];
    tw_options_init(&options);
    options.memory_bytes_max = UINT64_C(64) << 20;
    if (tw_open(&options, &engine) != TW_OK) return "not opened";
    forever = open_family("forever", TW_WINDOW_FOREVER);
    late = open_family("late", TW_WINDOW_ALIGNED);
    sale = open_family("sale", TW_WINDOW_FOREVER);
    if (forever == NULL || late == NULL || sale == NULL) return "a family is not open";
    if (life > 0 && tw_load(engine, path) != TW_OK) return tw_error_text();
    const char *wrong = check(life, moment_ms);
    if (wrong != NULL) return wrong;
    for (int i = 0; i < THREADS; i++) {
        parts[i] = (struct part){life, i, moment_ms, TW_OK};
        if (pthread_create(&threads[i], NULL, count, &parts[i]) != 0) return "no thread";
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        if (parts[i].worst != TW_OK && (parts[i].worst != TW_DENIED || (life + 1) * THREADS * (KEYS / 30) <= LIMIT))
            return tw_status_name(parts[i].worst);
    }
    tw_stop(engine);
    if (tw_save(engine, path) != TW_OK) return tw_error_text();
    return tw_close(engine, 1000) == TW_OK ? NULL : "not closed";
}

static int live_as_program(char **argv) {
    const char *wrong = live(atoi(argv[2]), argv[3], strtoll(argv[4], NULL, 10));
    if (wrong != NULL) fprintf(stderr, "# life %s: %s\n", argv[2], wrong);
    return wrong == NULL ? 0 : 1;
}

TEST(each_life_begins_with_all_that_was_counted) {
    if (test_is_emulated()) {
        test_leave_out("an emulator starts no second program of its kind: run it on an ARM64 machine");
        return;
    }
    char folder[] = "/tmp/save-lives-XXXXXX", path[64], number[16], moment[32], program[4096] = "";
    assert_true(readlink("/proc/self/exe", program, sizeof program - 1) > 0);
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/counts", folder);
    snprintf(moment, sizeof moment, "%lld", ((long long)time(NULL) - 3600) * 1000);
    for (int life = 0; life < LIVES; life++) {
        int status;
        snprintf(number, sizeof number, "%d", life);
        pid_t child = test_fork();
        if (child == 0) {
            char *const arguments[] = {(char *)"save_process_test", (char *)"life", number, path, moment, NULL};
            execv(program, arguments);
            _exit(127);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    unlink(path);
    assert_int_equal(rmdir(folder), 0);
}

int main(int argc, char **argv) {
    if (argc == 5 && strcmp(argv[1], "life") == 0) return live_as_program(argv);
    return test_run();
}
