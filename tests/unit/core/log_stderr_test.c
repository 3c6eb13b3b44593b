/* log_stderr_test.c -- lines on standard error: they come, they never wait, and they harm no program.
 * Method: each test gives this process another standard error for a moment: a pipe, a full one, one that nobody reads,
 * a socket, a file, none.
 * Covers: engine/core/log_stderr.c, engine/base/descriptor.c. */
#include "tests/support/support.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/descriptor.h"
#include "engine/port/driver.h"
#include "tallywheel.h"

enum { SECOND_MS = 1100 };

static int saved = -1;
static char got[1 << 16];

/* Standard error is `fd` from here on. */
static void begin(int fd) {
    saved = dup(STDERR_FILENO);
    assert_int_equal(dup2(fd, STDERR_FILENO), STDERR_FILENO);
}

static void end(void) {
    assert_int_equal(dup2(saved, STDERR_FILENO), STDERR_FILENO);
    close(saved);
}

/* What there is to read now. */
static const char *read_all(int fd) {
    ssize_t size = 0, more;
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    while ((more = read(fd, got + size, sizeof got - 1 - (size_t)size)) > 0) size += more;
    got[size] = '\0';
    return got;
}

static int count_of(const char *text, const char *part) {
    int count = 0;
    for (; (text = strstr(text, part)) != NULL; text += strlen(part)) count++;
    return count;
}

static void say(const char *text) {
    tw_log_stderr(NULL, TW_LOG_WARNING, TW_EVENT_START, text);
}

/* Goal: one line for each text, whatever is in it, and however long it is. */
TEST(a_text_is_one_line) {
    int ends[2];
    char longest[3000];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_int_equal(pipe(ends), 0);
    test_sleep_ms(SECOND_MS);
    begin(ends[1]);
    say("first");
    tw_log_stderr(ends, TW_LOG_ERROR, TW_EVENT_START, "two\nlines");
    tw_log_stderr(NULL, TW_LOG_INFO, TW_EVENT_START, longest);
    tw_log_stderr(NULL, TW_LOG_DEBUG, TW_EVENT_START, "");
    tw_log_stderr(NULL, TW_LOG_DEBUG, TW_EVENT_START, NULL);
    end();
    const char *text = read_all(ends[0]);
    const char *begins = "tallywheel warning: first\ntallywheel error: two lines\ntallywheel info: xxxxx";
    assert_memory_equal(text, begins, strlen(begins));
    assert_int_equal(count_of(text, "\n"), 4);
    assert_true(strlen(text) < 1400);
    close(ends[0]), close(ends[1]);
}

/* Goal: a pipe that nobody empties costs lines and no time. Its flags stay: other processes write to it, too. */
TEST(a_full_pipe_loses_lines) {
    int ends[2];
    static char fill[1 << 16];
    assert_int_equal(pipe(ends), 0);
    int flags = fcntl(ends[1], F_GETFL);
    assert_int_equal(fcntl(ends[1], F_SETFL, flags | O_NONBLOCK), 0);
    memset(fill, 'f', sizeof fill);
    while (write(ends[1], fill, sizeof fill) > 0 || write(ends[1], fill, 1) > 0) continue;
    assert_int_equal(fcntl(ends[1], F_SETFL, flags), 0);
    test_sleep_ms(SECOND_MS);
    begin(ends[1]);
    for (int i = 0; i < 10; i++) say("nobody reads this");
    end();
    assert_int_equal(fcntl(ends[1], F_GETFL), flags);
    assert_null(strstr(read_all(ends[0]), "nobody"));
    close(ends[0]), close(ends[1]);
}

/* Goal: a pipe whose reader has gone ends no program, and a signal that the program had blocked and awaits stays. */
TEST(a_closed_pipe_sends_no_signal) {
    int ends[2];
    sigset_t broken, before, waiting;
    sigemptyset(&broken);
    sigaddset(&broken, SIGPIPE);
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    test_sleep_ms(SECOND_MS);
    begin(ends[1]);
    for (int i = 0; i < 3; i++) say("nobody is there");
    pthread_sigmask(SIG_BLOCK, &broken, &before);
    say("nobody is there");
    sigpending(&waiting);
    assert_int_equal(sigismember(&waiting, SIGPIPE), 0);
    pthread_kill(pthread_self(), SIGPIPE);
    say("nobody is there");
    sigpending(&waiting);
    assert_int_equal(sigismember(&waiting, SIGPIPE), 1);
    const struct timespec at_once = {0, 0};
    assert_int_equal(sigtimedwait(&broken, NULL, &at_once), SIGPIPE);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    end();
    close(ends[1]);
}

/* Goal: the journal's way (a socket), and a file, which grows at its end. */
TEST(sockets_and_files_get_lines) {
    int pair[2], sizes = 1;
    char path[] = "/tmp/tw-log-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    unlink(path);
    assert_int_equal(write(file, "before\n", 7), 7);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    (void)setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &sizes, sizeof sizes);
    test_sleep_ms(SECOND_MS);
    begin(pair[1]);
    say("by a socket");
    end();
    assert_string_equal(read_all(pair[0]), "tallywheel warning: by a socket\n");
    begin(pair[1]);
    for (int i = 0; i < 15; i++) say("until its memory is full, and nobody waits then");
    end();
    close(pair[0]), close(pair[1]);
    begin(file);
    say("into a file");
    end();
    assert_int_equal(lseek(file, 0, SEEK_SET), 0);
    assert_string_equal(read_all(file), "before\ntallywheel warning: into a file\n");
    close(file);
}

/* Goal: at most 20 lines a second; the first line after that says how many were left out. */
TEST(a_flood_is_cut) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    test_sleep_ms(SECOND_MS);
    begin(ends[1]);
    for (int i = 0; i < 1000; i++) say("again");
    test_sleep_ms(SECOND_MS);
    say("later");
    end();
    const char *text = read_all(ends[0]);
    int lines = count_of(text, "again"); /* a second may end in the middle */
    assert_in_range(lines, 20, 40);
    assert_non_null(strstr(text, "later ("));
    assert_non_null(strstr(text, " lines left out before)\n"));
    close(ends[0]), close(ends[1]);
}

/* Goal: a program without standard error. The first descriptor of the engine has its number then, and gets no line. */
TEST(a_descriptor_of_the_engine_gets_no_line) {
    tw_engine *engine;
    tw_options options;
    tw_options_init(&options);
    options.threads = TW_HOST_DRIVEN;
    options.memory_bytes_max = 16 << 20;
    saved = dup(STDERR_FILENO);
    close(STDERR_FILENO);
    say("there is none");
    tw_status status = tw_open(&options, &engine);
    bool has_it = twi_descriptor_has(STDERR_FILENO);
    struct stat before, after;
    (void)fstat(STDERR_FILENO, &before);
    say("this is an epoll's or an eventfd's number");
    (void)fstat(STDERR_FILENO, &after);
    if (status == TW_OK) status = tw_close(engine, 1000);
    end();
    assert_int_equal(status, TW_OK);
    assert_true(has_it);
    assert_true(before.st_ino == after.st_ino);
}

/* ---- the environment --------------------------------------------------------------------------------------------- */

/* An engine that cannot reach its Redis has something to say. */
#define misses_redis() \
    (twi_driver_find() == NULL && \
     (test_leave_out("built without Redis: install libhiredis-dev and configure with -Dredis=enabled"), true))

static const char *own_path; /* not /proc/self/exe, which may be valgrind's */

/* What an engine writes that cannot reach its Redis, with this word. */
static const char *lines_with(const char *word, const char *program) {
    int ends[2], status = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = test_fork();
    if (pid == 0) {
        if (word) setenv("TALLYWHEEL_LOG", word, 1);
        dup2(ends[1], STDERR_FILENO);
        execl(program ? program : own_path, "log_stderr_test", "engine", (char *)NULL);
        _exit(9);
    }
    close(ends[1]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    (void)read_all(ends[0]);
    close(ends[0]);
    return got;
}

/* Goal: each word means lines up to that level; none means silence; a wrong one is said, and means warn. */
TEST(the_environment_makes_engines_speak) {
    if (misses_redis()) return;
    assert_string_equal(lines_with(NULL, NULL), "");
    assert_string_equal(lines_with("", NULL), "");
    assert_string_equal(lines_with("error", NULL), "");
    const char *text = lines_with("warn", NULL);
    assert_non_null(strstr(text, "tallywheel warning: "));
    assert_null(strstr(text, "tallywheel info: "));
    assert_non_null(strstr(lines_with("info", NULL), "tallywheel warning: "));
    text = lines_with("loud", NULL);
    assert_non_null(strstr(text, "tallywheel warning: TALLYWHEEL_LOG is none of error, warn and info"));
    assert_int_equal(count_of(text, "none of error"), 1);
    assert_true(count_of(text, "tallywheel warning: ") >= 2);
}

/* Goal: where the program has rights that its user has not, its user's environment decides nothing. */
TEST(a_setuid_program_ignores_the_environment) {
    char folder[] = "/tmp/tw-log-XXXXXX", path[64], command[1000];
    if (misses_redis()) return;
    if (test_is_slow()) {
        test_leave_out("a sanitizer's runtime does not start in a setuid program: a build without one runs this");
        return;
    }
    if (geteuid() != 0) {
        test_leave_out("who is not root cannot make a setuid program: run it as root");
        return;
    }
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/program", folder);
    snprintf(command, sizeof command, "cp '%s' %s && chown 65534 %s && chmod 4755 %s && chmod 755 %s", own_path, path,
             path, path, folder);
    bool made = system(command) == 0;
    bool is_silent = made && strcmp(lines_with("info", path), "") == 0;
    unlink(path), rmdir(folder);
    assert_true(made);
    assert_true(is_silent);
}

static int play_engine(void) {
    tw_engine *engine;
    tw_options options;
    tw_options_init(&options);
    options.threads = TW_HOST_DRIVEN;
    options.memory_bytes_max = 16 << 20;
    options.redis_url = "unix:///nowhere/redis.sock";
    tw_status status = tw_open(&options, &engine);
    if (status != TW_OK) return 1;
    for (int i = 0; i < 20; i++) {
        if (tw_turn(engine) != TW_OK) return 2;
        test_sleep_ms(5);
    }
    return tw_close(engine, 100) == TW_OK ? 0 : 3;
}

int main(int argc, char **argv) {
    own_path = argv[0];
    if (argc == 2 && strcmp(argv[1], "engine") == 0) return play_engine();
    return test_run();
}
