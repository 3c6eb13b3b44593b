/* prefork.c -- a pre-fork HTTP server: worker processes share one engine, and so one limit for each client.
 *
 *     prefork 8080 [WORKERS]     serves until SIGTERM
 *     prefork                    serves itself: asks 120 times, and kills a worker in between
 *
 * The master opens the engine and its family, forks the workers, and makes no other call that counts. It replaces a
 * worker that ends, and says so with tw_process_died(). Each worker calls tw_lead(), and one of them leads. Counts of a
 * killed worker stay, because they are in memory that all processes share. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <tallywheel.h>
#include <unistd.h>

#define REQUESTS_PER_MINUTE 100 /* of one client, counted by all workers together */
#define WORKERS_MAX 64

static tw_engine *engine;
static tw_family *requests;
static volatile sig_atomic_t ends;

static void note(int signal) {
    if (signal != SIGCHLD) ends = 1;
}

/* ---- a worker ---- */

static long long seconds(int64_t ms) {
    return ms / 1000 + (ms % 1000 > 0);
}

static void answer(int client, const struct sockaddr_in *from) {
    char text[4096], body[64];
    tw_verdict verdict;
    if (recv(client, text, sizeof text, 0) <= 0) return; /* a real server reads until the empty line */
    tw_status status =
        tw_acquire(requests, tw_bytes(&from->sin_addr, sizeof from->sin_addr), 1, REQUESTS_PER_MINUTE, &verdict);
    bool admitted = status == TW_OK || (status != TW_DENIED && verdict.allowed); /* an error: the family's policy */
    const char *denied = verdict.cause == TW_CAUSE_LIMIT ? "429 Too Many Requests" : "503 Service Unavailable";
    int size = snprintf(body, sizeof body, "worker %ld\n", (long)getpid());
    size = snprintf(text, sizeof text,
                    "HTTP/1.1 %s\r\nRateLimit-Remaining: %lld\r\nRetry-After: %lld\r\nContent-Length: %d\r\n"
                    "Connection: close\r\n\r\n%s",
                    admitted ? "200 OK" : denied, (long long)verdict.remaining, seconds(verdict.retry_after_ms), size,
                    body);
    (void)send(client, text, (size_t)size, MSG_NOSIGNAL);
}

/* SIGTERM and SIGINT are blocked, except while the worker waits. So none is missed, and no request is cut off. */
static int work(int listener, const sigset_t *unblocked) {
    struct pollfd waits = {.fd = listener, .events = POLLIN};
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM); /* a worker does not outlive its master */
    if (tw_lead(engine) < TW_OK) return 1;  /* TW_OK: it leads; TW_PENDING: it leads after the one that does */
    while (!ends) {
        struct sockaddr_in from;
        socklen_t size = sizeof from;
        if (ppoll(&waits, 1, NULL, unblocked) <= 0) continue;
        int client = accept4(listener, (struct sockaddr *)&from, &size, SOCK_CLOEXEC);
        if (client < 0) continue; /* another worker was faster */
        answer(client, &from);
        close(client);
    }
    return tw_close(engine, 1000) == TW_OK ? 0 : 1; /* hands over, if this worker leads */
}

/* ---- the master ---- */

static pid_t start(int listener, const sigset_t *unblocked) {
    pid_t pid = fork();
    if (pid == 0) _exit(work(listener, unblocked));
    return pid;
}

static void serve(int listener, int workers, const sigset_t *unblocked) {
    pid_t pids[WORKERS_MAX];
    for (int i = 0; i < workers; i++) pids[i] = start(listener, unblocked);
    while (!ends) {
        (void)ppoll(NULL, 0, NULL, unblocked); /* until a signal comes: SIGCHLD, too */
        for (pid_t pid; (pid = waitpid(-1, NULL, WNOHANG)) > 0;) {
            tw_process_died(engine); /* if it led, another worker leads at once */
            for (int i = 0; i < workers && !ends; i++)
                if (pids[i] == pid) pids[i] = start(listener, unblocked);
        }
    }
    for (int i = 0; i < workers; i++) kill(pids[i], SIGTERM);
    while (wait(NULL) > 0 || errno == EINTR) {}
}

static bool open_engine(void) {
    char error[200] = "";
    tw_options options;
    tw_family_options family;
    tw_options_init(&options);
    options.log_write = tw_log_stderr;
    options.shared = TW_SHARED_BY_FORK;
    options.memory_bytes_max = 64 << 20; /* of all processes together */
    options.error_text = error;
    options.error_size = sizeof error;
    tw_family_options_init(&family);
    family.name = "requests";
    family.window = TW_WINDOW_FROM_FIRST; /* each client's minute begins with its first request */
    family.window_ms = TW_MINUTE;
    if (tw_open(&options, &engine) == TW_OK && tw_family_open(engine, &family, &requests) == TW_OK) return true;
    fprintf(stderr, "%s\n", error[0] != '\0' ? error : tw_error_text());
    return false;
}

static int listen_at(int port) {
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    (void)setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) == 0 && listen(listener, 128) == 0) return listener;
    perror("prefork");
    exit(1);
}

static int run_master(int listener, int workers) {
    static const int signals[] = {SIGTERM, SIGINT, SIGCHLD};
    sigset_t blocked, unblocked;
    sigemptyset(&blocked);
    for (int i = 0; i < 3; i++) {
        (void)sigaddset(&blocked, signals[i]);
        (void)sigaction(signals[i], &(struct sigaction){.sa_handler = note}, NULL);
    }
    (void)sigprocmask(SIG_BLOCK, &blocked, &unblocked);
    if (!open_engine()) return 1;
    serve(listener, workers, &unblocked);
    return tw_close(engine, 1000) == TW_OK ? 0 : 1;
}

/* ---- it serves itself ---- */

/* Returns the HTTP status, and which worker answered. */
static int ask(const struct sockaddr_in *at, long *worker) {
    char text[4096] = "";
    int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(server, (const struct sockaddr *)at, sizeof *at) != 0) exit(1);
    (void)send(server, "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL);
    ssize_t got = 0, more;
    while ((more = recv(server, text + got, sizeof text - 1 - (size_t)got, 0)) > 0) got += more;
    close(server);
    const char *body = strstr(text, "worker ");
    *worker = body != NULL ? strtol(body + 7, NULL, 10) : 0;
    return (int)strtol(text + 9 * (strncmp(text, "HTTP/1.1 ", 9) == 0), NULL, 10);
}

static int serve_itself(void) {
    struct sockaddr_in at;
    socklen_t size = sizeof at;
    int listener = listen_at(0), status, served = 0, refused = 0;
    (void)getsockname(listener, (struct sockaddr *)&at, &size);
    pid_t master = fork();
    if (master == 0) _exit(run_master(listener, 4));
    for (int i = 0; i < 120; i++) {
        long worker;
        int answered = ask(&at, &worker);
        served += answered == 200;
        refused += answered == 429;
        if (i == 60 && worker > 0) (void)kill((pid_t)worker, SIGKILL); /* it has answered, and waits */
    }
    (void)kill(master, SIGTERM);
    bool ended = waitpid(master, &status, 0) == master && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    printf("of 120 requests %d were served and %d refused, by 4 workers, one of which was killed\n", served, refused);
    return ended && served == REQUESTS_PER_MINUTE && refused == 120 - REQUESTS_PER_MINUTE ? 0 : 1;
}

int main(int count, char **arguments) {
    if (count < 2) return serve_itself();
    int workers = count > 2 ? atoi(arguments[2]) : 4;
    return run_master(listen_at(atoi(arguments[1])), workers < 1 || workers > WORKERS_MAX ? 4 : workers);
}
