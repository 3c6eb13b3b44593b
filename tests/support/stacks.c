/* stacks.c -- see stacks.h.
 * Method: each thread gets STACKS_SIGNAL, whose handler notes the thread's own stack. `addr2line` then gives the
 * names, if it is installed. musl has no backtrace(): there every thread is one that does not note its stack. */
#include "tests/support/stacks.h"

#include "tests/support/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <dlfcn.h>
#include <execinfo.h>
#endif

#define ANSWER_MS 500
#define NAMES_MS 10000 /* for addr2line */
#define FRAMES_MAX 48
#define ADDRESSES_MAX 1024

static struct {
    uintptr_t bias, begin, end; /* in memory */
    char file[LINE_BYTES];
} program;

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

/* ---- what a thread notes of itself ------------------------------------------------------------------------------- */

struct stack {
    pid_t thread;
    int count;
    void *frames[FRAMES_MAX];
    _Atomic bool is_noted;
};

static struct stack stacks[PROC_THREADS_MAX];
static struct stack *_Atomic asked; /* the one whose thread is to note it */

#ifdef __GLIBC__
/* Where the signal interrupted the thread: frames above it are the handler's. */
static void *interrupted_at(const void *context) {
    const ucontext_t *thread = context;
#if defined(__x86_64__)
    return (void *)thread->uc_mcontext.gregs[REG_RIP]; /* NOLINT(performance-no-int-to-ptr) */
#elif defined(__aarch64__)
    return (void *)thread->uc_mcontext.pc; /* NOLINT(performance-no-int-to-ptr) */
#else
    return thread != NULL ? NULL : NULL;
#endif
}

static void note_stack(struct stack *stack, const void *context) {
    void *frames[FRAMES_MAX];
    int count = backtrace(frames, FRAMES_MAX), first = 0;
    void *interrupted = interrupted_at(context);
    for (int i = 0; i < count && first == 0; i++)
        if (frames[i] == interrupted) first = i;
    /* The others are where a call returns to: the call itself is before it. */
    for (int i = first; i < count; i++)
        stack->frames[i - first] = (char *)frames[i] - (frames[i] == interrupted ? 0 : 1);
    stack->count = count - first;
    atomic_store(&stack->is_noted, true);
}
#else
/* musl has no backtrace(). */
static void note_stack(struct stack *stack, const void *context) {
    (void)context;
    atomic_store(&stack->is_noted, true);
}
#endif

static void await_stack(struct stack *stack) {
    struct timespec nap = {.tv_nsec = 1000000};
    for (int i = 0; i < ANSWER_MS && !atomic_load(&stack->is_noted); i++) nanosleep(&nap, NULL);
}

static size_t note_all(const void *context) {
    pid_t threads[PROC_THREADS_MAX], own = (pid_t)syscall(SYS_gettid);
    size_t count = proc_threads(getpid(), threads, PROC_THREADS_MAX);
    for (size_t i = 0; i < count; i++) {
        stacks[i].thread = threads[i];
        if (threads[i] == own) {
            note_stack(&stacks[i], context);
            continue;
        }
        atomic_store(&asked, &stacks[i]);
        if (syscall(SYS_tgkill, getpid(), threads[i], STACKS_SIGNAL) == 0) await_stack(&stacks[i]);
        atomic_store(&asked, NULL);
    }
    return count;
}

/* ---- names of functions ------------------------------------------------------------------------------------------ */

static struct {
    size_t count;
    char addresses[ADDRESSES_MAX][20]; /* of the program's frames, each once, as addr2line wants them */
    char *arguments[ADDRESSES_MAX + 8];
    char text[1 << 18]; /* its answer: for each address lines, the first of them begins with the address */
} names;

static bool is_of_program(const void *frame) {
    return (uintptr_t)frame >= program.begin && (uintptr_t)frame < program.end;
}

/* With leading zeros, as addr2line repeats it. */
static void write_address(char text[20], const void *frame) {
    uintptr_t offset = (uintptr_t)frame - program.bias;
    for (int i = 17; i >= 2; i--, offset /= 16) text[i] = "0123456789abcdef"[offset % 16];
    text[0] = '0';
    text[1] = 'x';
    text[18] = '\0';
}

static void collect_addresses(size_t threads) {
    for (size_t i = 0; i < threads; i++)
        for (int k = 0; atomic_load(&stacks[i].is_noted) && k < stacks[i].count; k++) {
            size_t at = 0;
            if (!is_of_program(stacks[i].frames[k]) || names.count == ADDRESSES_MAX) continue;
            write_address(names.addresses[names.count], stacks[i].frames[k]);
            while (strcmp(names.addresses[at], names.addresses[names.count]) != 0) at++;
            if (at == names.count) names.count++;
        }
}

static _Noreturn void become_addr2line(int output) {
    size_t used = 0;
    static char command[] = "addr2line", what[] = "-afips", of[] = "-e";
    char *options[] = {command, what, of, program.file};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) names.arguments[used++] = options[i];
    for (size_t i = 0; i < names.count; i++) names.arguments[used++] = names.addresses[i];
    dup2(output, STDOUT_FILENO);
    int null = open("/dev/null", O_RDWR);
    if (null >= 0) dup2(null, STDERR_FILENO);
    execvp("addr2line", names.arguments);
    _exit(127);
}

/* Not fork(): its handlers would wait for locks that a hanging thread has. */
static void ask_names(void) {
    int ends[2];
    if (names.count == 0 || pipe(ends) != 0) return;
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) become_addr2line(ends[1]);
    close(ends[1]);
    size_t used = 0;
    int64_t until_ms = now_ms() + NAMES_MS;
    struct pollfd readable = {.fd = ends[0], .events = POLLIN};
    for (ssize_t got = 1; child > 0 && got > 0 && now_ms() < until_ms;) {
        if (poll(&readable, 1, 100) <= 0) continue;
        got = read(ends[0], names.text + used, sizeof names.text - 1 - used);
        used += got > 0 ? (size_t)got : 0;
    }
    close(ends[0]);
    if (child <= 0) return;
    kill(child, SIGKILL);
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR) continue;
}

/* Prints addr2line's lines about it: one, and one for each function that it was inlined into. */
static bool print_names(const void *frame) {
    char address[20];
    write_address(address, frame);
    const char *at = names.text;
    while (strncmp(at, address, 18) != 0) {
        at = strchr(at, '\n');
        if (at == NULL) return false;
        at++;
    }
    at += 20; /* "0x...: " */
    if (strncmp(at, "??", 2) == 0) return false;
    do {
        struct line line = {0};
        line_put(&line, "#   ");
        while (*at != '\n' && *at != '\0') line_put(&line, (const char[]){*at++, '\0'});
        line_end(&line);
        if (*at == '\n') at++;
    } while (*at == ' '); /* " (inlined by) ..." */
    return true;
}

static void print_frame(const void *frame) {
    struct line line = {0};
    if (is_of_program(frame) && print_names(frame)) return;
    line_put(&line, "#   ");
    const char *file = program.file;
    uintptr_t offset = (uintptr_t)frame - program.bias;
#ifdef __GLIBC__
    Dl_info info;
    if (!is_of_program(frame) && dladdr(frame, &info) != 0 && info.dli_fname != NULL) {
        if (info.dli_sname != NULL) {
            line_put(&line, info.dli_sname);
            line_put(&line, " ");
        }
        file = info.dli_fname;
        offset = (uintptr_t)frame - (uintptr_t)info.dli_fbase;
    }
#endif
    line_put(&line, "(");
    line_put(&line, strrchr(file, '/') != NULL ? strrchr(file, '/') + 1 : file);
    line_put(&line, "+0x");
    line_number(&line, offset, 16);
    line_put(&line, ")");
    line_end(&line);
}

static void print_stacks(size_t threads) {
    for (size_t i = 0; i < threads; i++) {
        const struct stack *stack = &stacks[i];
        bool has_stack = atomic_load(&stack->is_noted) && stack->count > 0;
        proc_print_thread(getpid(), stack->thread, "# thread ", has_stack);
        for (int k = 0; has_stack && k < stack->count; k++) print_frame(stack->frames[k]);
    }
}

void stacks_note(const void *context) {
    struct stack *stack = atomic_load(&asked);
    if (stack != NULL && stack->thread == (pid_t)syscall(SYS_gettid)) note_stack(stack, context);
}

void stacks_print(const void *context, bool with_names) {
    size_t threads = note_all(context);
    collect_addresses(threads);
    if (with_names) ask_names();
    print_stacks(threads);
}

/* ---- begin ------------------------------------------------------------------------------------------------------- */

static int find_program(struct dl_phdr_info *info, size_t size, void *ctx) {
    (void)size;
    (void)ctx;
    program.bias = info->dlpi_addr;
    program.begin = UINTPTR_MAX;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
        uintptr_t begin = program.bias + info->dlpi_phdr[i].p_vaddr, end = begin + info->dlpi_phdr[i].p_memsz;
        if (begin < program.begin) program.begin = begin;
        if (end > program.end) program.end = end;
    }
    return 1; /* the first is the program */
}

void stacks_begin(void) {
    (void)dl_iterate_phdr(find_program, NULL);
    ssize_t size = readlink("/proc/self/exe", program.file, sizeof program.file - 1);
    program.file[size > 0 ? size : 0] = '\0';
#ifdef __GLIBC__
    void *frame;
    (void)backtrace(&frame, 1);
#endif
}
