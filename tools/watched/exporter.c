/* exporter.c -- `tallywheel exporter`: the metrics of running engines, for programs that serve no HTTP. For each
 * request it fetches the pages of the engines' watch sockets, joins them (exporter_page.c), and serves them by HTTP
 * (exporter_http.c), or writes them as a file for node_exporter's textfile collector.
 * Always true: an engine that does not answer is left out and named by tallywheel_exporter_up. The others are
 * served. */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/common/moment.h"
#include "tools/watched/exporter_http.h"
#include "tools/watched/exporter_round.h"
#include "tools/common/file_new.h"
#include "tools/common/options.h"
#include "tools/common/stop.h"
#include "tools/common/text.h"
#include "tools/common/tool.h"

#define LISTEN_DEFAULT "127.0.0.1:9465"
#define INTERVAL_MS 15000

static const char help[] =
    "Usage: tallywheel exporter [OPTION]... SOCKET...\n"
    "Serves the metrics of running engines for Prometheus, from their watch sockets (watch_path).\n"
    "A SOCKET may be a pattern, such as '/run/shop/*.sock', which is read again at each scrape.\n"
    "Each sample gets the label socket: the socket's path, without the folder that all arguments have in common.\n"
    "\n"
    "  --listen ADDRESS  where http://ADDRESS/metrics is served (default 127.0.0.1:9465; [::1]:9465; 0.0.0.0:9465)\n"
    "  --textfile FILE   no HTTP: writes FILE at each interval, for node_exporter's textfile collector\n"
    "  --interval SPAN   of --textfile, such as 15s or 1m (default 15s)\n"
    "  --once            prints the page, or writes the file, and ends\n"
    "  --help\n"
    "\n"
    "Exit status: 0 done; 1 it cannot listen or write, or with --once no engine answered; 2 wrong usage; 128 and its\n"
    "number after a signal.\n";

struct request {
    const char *listen, *textfile; /* NULL if not given */
    int64_t interval_ms;
    bool once;
    char *const *patterns;
    size_t pattern_count;
};

static bool exporter_take_interval(const struct option_rule *rule, void *into, const char *given) {
    struct request *request = into;
    (void)rule;
    if (text_span(given, &request->interval_ms) && request->interval_ms > 0) return true;
    tool_complain("--interval is a span such as 15s or 1m, not '%s'", given);
    return false;
}

static const struct option_rule rules[] = {
    OPTION_TEXT("listen", struct request, listen), OPTION_TEXT("textfile", struct request, textfile),
    OPTION_OTHER("interval", exporter_take_interval), OPTION_FLAG("once", struct request, once), OPTIONS_END};

/* Returns -1 to continue, otherwise the exit status. */
static int exporter_read_options(struct request *request, int argc, char **argv) {
    int status = options_read(argc, argv, rules, help, NULL, request);
    if (status >= 0) return status;
    request->patterns = argv + optind;
    request->pattern_count = (size_t)(argc - optind);
    if (request->textfile != NULL && request->listen != NULL) {
        tool_complain("--textfile and --listen exclude each other");
        return EXIT_USAGE;
    }
    if (request->pattern_count > 0) return -1;
    tool_complain("name the engines' sockets (their watch_path); 'tallywheel exporter --help' says more");
    return EXIT_USAGE;
}

/* ---- a file ---- */

/* node_exporter may read at any time. The file is replaced as a whole. */
static bool write_file(const char *path, const struct sink *page) {
    struct file_new made;
    if (file_new_begin(&made, path)) {
        bool is_whole = file_new_write(&made, page->buffer, page->size) && fchmod(made.fd, 0644) == 0;
        if (file_new_end(&made, is_whole)) return true;
    }
    tool_complain("%s: %s", path, strerror(errno));
    return false;
}

/* One page into the file. False means a signal, or the file could not be written; then it stays as it was. */
static bool exporter_write_page(const struct request *request, struct exporter *exporter, size_t *answered) {
    struct sink page;
    if (!sink_open(&page, -1)) return false;
    *answered = exporter_run(exporter, &page);
    bool written = stop_signal() == 0 && page.error == 0 && write_file(request->textfile, &page);
    sink_close(&page);
    return written;
}

static int run_textfile(const struct request *request) {
    struct exporter exporter = {request->patterns, request->pattern_count, .is_patient = true};
    size_t answered = 0;
    bool goes_on = true, written = true;
    while (goes_on) {
        int64_t until_ms = moment_mono_ms() + request->interval_ms;
        written = exporter_write_page(request, &exporter, &answered);
        goes_on = written && !request->once && stop_sleep_until(until_ms);
    }
    exporter_free(&exporter);
    if (stop_signal() != 0) return EXIT_SIGNAL + stop_signal();
    return written && answered > 0 ? EXIT_DONE : EXIT_TROUBLE;
}

static int print_once(const struct request *request) {
    struct sink page;
    struct exporter exporter = {request->patterns, request->pattern_count, .is_patient = true};
    if (!sink_open(&page, STDOUT_FILENO)) return EXIT_TROUBLE;
    size_t answered = exporter_run(&exporter, &page);
    exporter_free(&exporter);
    if (stop_signal() != 0) {
        sink_close(&page);
        return EXIT_SIGNAL + stop_signal();
    }
    bool written = sink_flush(&page);
    sink_close(&page);
    if (!written) tool_complain("cannot write the output");
    return written && answered > 0 ? EXIT_DONE : EXIT_TROUBLE;
}

/* ---- HTTP ---- */

/* HOST:PORT or [HOST]:PORT. -1 means complained. */
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
                   bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0;
    if (!listens) tool_complain("--listen %s: %s", address, error != 0 ? gai_strerror(error) : strerror(errno));
    if (found != NULL) freeaddrinfo(found);
    if (!listens && fd >= 0) close(fd);
    return listens ? fd : -1;
}

/* Port 0 means any free port, so the line names the port. */
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
    struct exporter exporter = {.patterns = request->patterns, .pattern_count = request->pattern_count};
    bool served = exporter_http_serve(listener, &exporter);
    exporter_free(&exporter);
    if (!served) tool_complain("cannot serve: %s", strerror(errno));
    close(listener);
    return served ? EXIT_SIGNAL + stop_signal() : EXIT_TROUBLE;
}

int exporter_main(int argc, char **argv) {
    struct request request = {.interval_ms = INTERVAL_MS};
    int status = exporter_read_options(&request, argc, argv);
    if (status >= 0) return status;
    if (!stop_begin()) return EXIT_TROUBLE;
    if (request.textfile != NULL) return run_textfile(&request);
    return request.once ? print_once(&request) : run_http(&request);
}
