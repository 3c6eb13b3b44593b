/* main.c -- `tallywheel` chooses the subcommand.
 * Always true: wrong usage exits with 2 and a sentence with the correct usage. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tallywheel.h"
#include "tools/common/redis_flags.h"
#include "tools/common/text.h"
#include "tools/common/tool.h"

static const char help[] = "Usage: tallywheel COMMAND [OPTION]...\n"
                           "\n"
                           "  audit     compare what a Redis holds with ledgers, expiries and a file of totals\n"
                           "  count     count the lines of logs by key and window, by each line's own time\n"
                           "  demo      watch several processes count the same keys, with Redis cut off in the middle\n"
                           "  exporter  serve the metrics of running engines for Prometheus\n"
                           "  plan      print how much memory so many keys need\n"
                           "  reclaim   free the units of hard limits that a dead process held\n"
                           "  reset     set the count of one key of a running engine to 0\n"
                           "  show      print the heaviest keys of a family of a running engine, or one key's count\n"
                           "  top       show a running engine: rates, Redis, families, the heaviest keys\n"
                           "\n"
                           "tallywheel COMMAND --help lists its options. tallywheel --version prints the version.\n";

struct command {
    const char *name;
    int (*run)(int argc, char **argv);
};

static const struct command commands[] = {
    {"audit", audit_main},       {"count", count_main}, {"demo", demo_main},       {"demo-worker", demo_worker_main},
    {"exporter", exporter_main}, {"plan", plan_main},   {"reclaim", reclaim_main}, {"reset", reset_main},
    {"show", show_main},         {"top", top_main}};

static int main_show(const char *text) {
    if (fputs(text, stdout) >= 0 && fflush(stdout) == 0) return EXIT_DONE;
    tool_complain("cannot write the output");
    return EXIT_TROUBLE;
}

static int unknown(const char *word) {
    static const char *const words[] = {"audit", "count", "demo", "exporter", "plan",      "reclaim",
                                        "reset", "show",  "top",  "--help",   "--version", NULL};
    const char *nearest = text_nearest(word, words);
    if (nearest != NULL) {
        tool_complain("unknown command '%s'; did you mean %s?", word, nearest);
    } else {
        tool_complain("unknown command '%s'; there are audit, count, demo, exporter, plan, reclaim, reset, show and "
                      "top "
                      "('tallywheel --help')",
                      word);
    }
    return EXIT_USAGE;
}

/* The next file opened would get the number of a closed standard descriptor, and output would go there. So /dev/null is
 * opened in its place, with the wrong access mode, so that reading or writing fails with EBADF, as it should. */
static void descriptors_hold(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd) return;
    }
}

int main(int argc, char **argv) {
    descriptors_hold();
    if (argc < 2) {
        tool_complain(
            "name a command: audit, count, demo, exporter, plan, reclaim, reset, show or top ('tallywheel --help')");
        return EXIT_USAGE;
    }
    if (!redis_flags_hide(argc, argv)) {
        tool_complain("no memory");
        return EXIT_TROUBLE;
    }
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(argv[1], commands[i].name) == 0) return commands[i].run(argc - 1, argv + 1);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0)
        return main_show(help);
    if (strcmp(argv[1], "--version") == 0) {
        char text[64];
        snprintf(text, sizeof text, "tallywheel %s\n", tw_version());
        return main_show(text);
    }
    return unknown(argv[1]);
}
