/* reset.c -- `tallywheel reset` sets the count of one key of a running engine to 0, through its watch socket.
 * Always true: nothing but that key is changed, and only if the program allows it. */
#include <inttypes.h>
#include <stdio.h>

#include "tools/common/options.h"
#include "tools/common/stop.h"
#include "tools/common/tool.h"
#include "tools/watched/watched.h"

/* Exit statuses of this command alone. */
enum { RESET_NO_KEY = 1, RESET_READ_ONLY = 3, RESET_REFUSED = 4 };

static const char help[] =
    "Usage: tallywheel reset SOCKET FAMILY KEY\n"
    "Sets the count of one key of a running engine to 0, in the window of now, and prints what it was.\n"
    "SOCKET is the engine's watch_path. The program allows it by watch_writes, nginx by tallywheel_watch PATH write.\n"
    "KEY is as 'tallywheel show' prints it: \\t, \\n, \\r, \\\\ and \\xHH are bytes.\n"
    "Units that are reserved or in use are taken away, too: others may get them meanwhile.\n"
    "\n"
    "  --help\n"
    "\n"
    "Exit status: 0 done; 1 no such key; 2 wrong usage; 3 the socket does not write; 4 no engine answers there, or it\n"
    "refuses; 128 and its number after a signal.\n";

static const struct option_rule reset_rules[] = {OPTIONS_END};

int reset_main(int argc, char **argv) {
    char why[400] = "";
    int64_t taken = 0;
    int status = options_read(argc, argv, reset_rules, help, NULL, NULL);
    if (status >= 0) return status;
    if (argc - optind != 3) {
        tool_complain("a socket, a family and a key are wanted; 'tallywheel reset --help' says more");
        return EXIT_USAGE;
    }
    if (!stop_begin()) return RESET_REFUSED;
    enum watched_reset done = watched_reset(argv[optind], argv[optind + 1], argv[optind + 2], &taken, why, sizeof why);
    if (stop_signal() != 0) return EXIT_SIGNAL + stop_signal();
    if (done != WATCHED_RESET) tool_complain("%s", why);
    switch (done) {
    case WATCHED_RESET: break;
    case WATCHED_NO_KEY: return RESET_NO_KEY;
    case WATCHED_READ_ONLY: return RESET_READ_ONLY;
    default: return RESET_REFUSED;
    }
    if (printf("%" PRId64 "\n", taken) > 0 && fflush(stdout) == 0) return EXIT_DONE;
    tool_complain("cannot write the output; the count is 0 now, and was %" PRId64, taken);
    return RESET_REFUSED;
}
