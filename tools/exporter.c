/* exporter.c -- `tallywheel exporter`: the metrics of running engines, for programs that serve no HTTP of their own.
 * It asks the engines' watch sockets each time it is asked itself, joins their pages (exporter_page.c), and serves them
 * by HTTP, or writes them as a file for node_exporter's textfile collector.
 * Always true: an engine that does not answer is left out and named by tallywheel_exporter_up; the others are served. A
 * client that is slow or wrong delays the next one by two seconds at most. */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tallywheel.h"
#include "exporter_page.h"
#include "options.h"
#include "say.h"
#include "stop.h"
#include "text.h"
#include "tool.h"

#define LISTEN_DEFAULT "127.0.0.1:9465"
#define REQUEST_BYTES_MAX 8192
#define CLIENT_MS 2000
#define INTERVAL_MS 15000

static const char help[] =
    "Usage: tallywheel exporter [OPTION]... SOCKET...\n"
    "Serves the metrics of running engines for Prometheus, out of their watch sockets (watch_path).\n"
    "A SOCKET may be a pattern, as '/run/shop/*.sock': it is looked at anew each time.\n"
    "Each sample gets the label socket, the last part of the socket's path.\n"
    "\n"
    "  --listen ADDRESS  where http://ADDRESS/metrics is served (default 127.0.0.1:9465; [::1]:9465; 0.0.0.0:9465)\n"
    "  --textfile FILE   no HTTP: writes FILE at each interval, for node_exporter's textfile collector\n"
    "  --interval SPAN   of --textfile, as 15s or 1m (default 15s)\n"
    "  --once            prints the page, or writes the file, and ends\n"
    "  --help\n"
    "\n"
    "Exit status: 0 done; 1 it cannot listen or write, or with --once no engine answered; 2 wrong usage; 128 and its\n"
    "number after a signal.\n";

enum { OPTION_LISTEN = 1, OPTION_TEXTFILE, OPTION_INTERVAL, OPTION_ONCE, OPTION_HELP };
static const struct option long_options[] = {{"listen", required_argument, NULL, OPTION_LISTEN},
                                             {"textfile", required_argument, NULL, OPTION_TEXTFILE},
                                             {"interval", required_argument, NULL, OPTION_INTERVAL},
                                             {"once", no_argument, NULL, OPTION_ONCE},
                                             {"help", no_argument, NULL, OPTION_HELP},
                                             {NULL, 0, NULL, 0}};

struct request {
    const char *listen, *textfile; /* NULL: not given */
    int64_t interval_ms;
    bool once;
    char *const *patterns;
    size_t pattern_count;
};

/* Returns -1 to go on, else the exit status. */
static int read_options(struct request *request, int argc, char **argv) {
    int option;
    opterr = 0;
    optind = 0;
    while ((option = getopt_long(argc, argv, OPTIONS_SHORT, long_options, NULL)) != -1) {
        switch (option) {
        case 'h':
        case OPTION_HELP: return options_help(help, NULL);
        case OPTION_LISTEN: request->listen = optarg; break;
        case OPTION_TEXTFILE: request->textfile = optarg; break;
        case OPTION_ONCE: request->once = true; break;
        case OPTION_INTERVAL:
            if (text_span(optarg, &request->interval_ms) && request->interval_ms > 0) break;
            tool_complain("--interval is a span such as 15s or 1m, not '%s'", optarg);
            return EXIT_USAGE;
        default: return options_refuse(option, argv, long_options);
        }
    }
    request->patterns = argv + optind;
    request->pattern_count = (size_t)(argc - optind);
    if (request->pattern_count > 0) return -1;
    tool_complain("name the engines' sockets (their watch_path); 'tallywheel exporter --help' says more");
    return EXIT_USAGE;
}

/* ---- a file ---- */

/* node_exporter may read at any time: the file is replaced as a whole. */
static bool write_file(const char *path, const struct sink *page) {
    char temporary[4096];
    if (snprintf(temporary, sizeof temporary, "%s.new", path) >= (int)sizeof temporary) {
        tool_complain("%s: the name is too long", path);
        return false;
    }
    FILE *file = fopen(temporary, "w");
    bool written = file != NULL && fwrite(page->buffer, 1, page->size, file) == page->size;
    if (file != NULL) written = fchmod(fileno(file), 0644) == 0 && fclose(file) == 0 && written;
    if (written && rename(temporary, path) == 0) return true;
    tool_complain("%s: %s", path, strerror(errno));
    return false;
}

static int run_textfile(const struct request *request) {
    struct sink page;
    for (;;) {
        int64_t until_ms = say_mono_ms() + request->interval_ms;
        if (!sink_open(&page, -1)) return EXIT_TROUBLE;
        size_t answered = exporter_page(request->patterns, request->pattern_count, &page);
        bool written = page.error == 0 && write_file(request->textfile, &page);
        sink_close(&page);
        if (request->once) return written && answered > 0 ? EXIT_DONE : EXIT_TROUBLE;
        if (!written) return EXIT_TROUBLE;
        while (stop_signal() == 0 && say_mono_ms() < until_ms) (void)stop_wait(-1, (int)(until_ms - say_mono_ms()));
        if (stop_signal() != 0) return EXIT_SIGNAL + stop_signal();
    }
}

static int print_once(const struct request *request) {
    struct sink page;
    if (!sink_open(&page, STDOUT_FILENO)) return EXIT_TROUBLE;
    size_t answered = exporter_page(request->patterns, request->pattern_count, &page);
    bool written = sink_flush(&page);
    sink_close(&page);
    if (!written) tool_complain("cannot write the output");
    return written && answered > 0 ? EXIT_DONE : EXIT_TROUBLE;
}

/* ---- HTTP ---- */

/* True: all of it was sent within the time. */
static bool send_all(int fd, const char *bytes, size_t size) {
    int64_t until_ms = say_mono_ms() + CLIENT_MS;
    while (size > 0) {
        ssize_t sent = send(fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) {
            bytes += sent;
            size -= (size_t)sent;
            continue;
        }
        struct pollfd ready = {.fd = fd, .events = POLLOUT};
        int64_t left_ms = until_ms - say_mono_ms();
        if ((sent < 0 && errno != EAGAIN && errno != EINTR) || left_ms <= 0) return false;
        (void)poll(&ready, 1, (int)left_ms);
    }
    return true;
}

static void answer(int fd, const char *status, const char *type, const char *body, size_t size) {
    char head[300];
    int head_size = snprintf(head, sizeof head,
                             "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
                             status, type, size);
    if (send_all(fd, head, (size_t)head_size)) (void)send_all(fd, body, size);
}

static void answer_text(int fd, const char *status, const char *body) {
    answer(fd, status, "text/plain; charset=utf-8", body, strlen(body));
}

/* Reads to the end of the request's head. False: it did not come in time, or is too long. */
static bool read_head(int fd, char head[REQUEST_BYTES_MAX + 1]) {
    size_t used = 0;
    int64_t until_ms = say_mono_ms() + CLIENT_MS;
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    for (;;) {
        int64_t left_ms = until_ms - say_mono_ms();
        if (left_ms <= 0 || poll(&ready, 1, (int)left_ms) <= 0) return false;
        ssize_t got = recv(fd, head + used, REQUEST_BYTES_MAX - used, 0);
        if (got <= 0) return false;
        used += (size_t)got;
        head[used] = '\0';
        if (strstr(head, "\r\n\r\n") != NULL || strstr(head, "\n\n") != NULL) return true;
        if (used == REQUEST_BYTES_MAX) return false;
    }
}

static bool is_path(const char *head, const char *path) {
    size_t size = strlen(path);
    return strncmp(head, "GET ", 4) == 0 && strncmp(head + 4, path, size) == 0 &&
           (head[4 + size] == ' ' || head[4 + size] == '?');
}

static void serve_client(const struct request *request, int fd) {
    char head[REQUEST_BYTES_MAX + 1];
    struct sink page;
    if (!read_head(fd, head)) return;
    if (is_path(head, "/")) {
        answer_text(fd, "200 OK", "tallywheel exporter: /metrics\n");
    } else if (strncmp(head, "GET ", 4) != 0) {
        answer_text(fd, "405 Method Not Allowed", "GET alone\n");
    } else if (!is_path(head, "/metrics")) {
        answer_text(fd, "404 Not Found", "there is /metrics\n");
    } else if (sink_open(&page, -1)) {
        (void)exporter_page(request->patterns, request->pattern_count, &page);
        if (page.error == 0)
            answer(fd, "200 OK", TW_METRICS_PROMETHEUS_TYPE, page.buffer, page.size);
        else
            answer_text(fd, "500 Internal Server Error", "no memory\n");
        sink_close(&page);
    }
}

/* HOST:PORT or [HOST]:PORT. -1: complained. */
static int listen_at(const char *address) {
    char host[256];
    const char *colon = strrchr(address, ':');
    size_t size = colon != NULL ? (size_t)(colon - address) : sizeof host;
    bool bracketed = size >= 2 && address[0] == '[' && address[size - 1] == ']';
    if (size >= sizeof host || colon[1] == '\0') {
        tool_complain("--listen is HOST:PORT or [HOST]:PORT, not '%s'", address);
        return -1;
    }
    (void)snprintf(host, sizeof host, "%.*s", (int)(bracketed ? size - 2 : size), bracketed ? address + 1 : address);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
    int error = getaddrinfo(host[0] != '\0' ? host : NULL, colon + 1, &hints, &found), yes = 1;
    int fd = error == 0 ? socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1;
    bool listens = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
                   bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, 64) == 0;
    if (!listens) tool_complain("--listen %s: %s", address, error != 0 ? gai_strerror(error) : strerror(errno));
    if (found != NULL) freeaddrinfo(found);
    if (!listens && fd >= 0) close(fd);
    return listens ? fd : -1;
}

/* Port 0 is whichever is free: so the line says which it is. */
static void say_where(int fd) {
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    char host[128] = "?", port[16] = "?";
    if (getsockname(fd, (struct sockaddr *)&address, &size) == 0)
        (void)getnameinfo((struct sockaddr *)&address, size, host, sizeof host, port, sizeof port,
                          NI_NUMERICHOST | NI_NUMERICSERV);
    fprintf(stderr, TOOL_NAME ": http://%s%s%s:%s/metrics\n", strchr(host, ':') != NULL ? "[" : "", host,
            strchr(host, ':') != NULL ? "]" : "", port);
}

static int run_http(const struct request *request) {
    int listener = listen_at(request->listen != NULL ? request->listen : LISTEN_DEFAULT);
    if (listener < 0) return EXIT_TROUBLE;
    say_where(listener);
    while (stop_signal() == 0) {
        if (!stop_wait(listener, -1)) continue;
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0) {
            serve_client(request, fd);
            close(fd);
        } else if (errno == EMFILE || errno == ENFILE) {
            (void)stop_wait(-1, 100);
        }
    }
    close(listener);
    return EXIT_SIGNAL + stop_signal();
}

int exporter_main(int argc, char **argv) {
    struct request request = {.interval_ms = INTERVAL_MS};
    int status = read_options(&request, argc, argv);
    if (status >= 0) return status;
    if (!stop_begin()) return EXIT_TROUBLE;
    if (request.textfile != NULL) return run_textfile(&request);
    return request.once ? print_once(&request) : run_http(&request);
}
