/* reclaim.c -- `tallywheel reclaim`: frees the units of hard limits that a process held when it died.
 * Always true: nothing of an engine is freed if Redis has heard of it within the last seconds. */
#include <inttypes.h>
#include <stdio.h>

#include "tallywheel.h"
#include "options.h"
#include "redis_flags.h"
#include "text.h"
#include "tool.h"

static const char help[] =
    "Usage: tallywheel reclaim --redis URL [OPTION]... FAMILY INSTANCE\n"
    "Frees units of FAMILY's hard limits that a dead process was granted and had not reported as spent.\n"
    "INSTANCE is its name in Redis: the 32 digits of a field of a lease (HGETALL tw:lease:...) or of tw:leases.\n"
    "Make sure that it is dead: a process that was only paused, and continues, sells those units twice.\n"
    "\n"
    "  --redis URL         redis://[user:password@]host[:port][/db], unix:///path; rediss: TLS;\n"
    "                      redis+cluster://[user:password@]host:port[,host:port...];\n"
    "                      redis+sentinel://[user:password@]sentinel[:port][,...]/name[/db]\n" REDIS_FLAGS_HELP
    "  --prefix TEXT       the engines' redis_prefix, if they have one\n"
    "  --redis-key TEXT    the family's template up to its stamp, if it is not the default: 'sale:%k'\n"
    "  --help\n"
    "\n"
    "Prints how many units were freed. Exit status: 0 done; 1 the engine is alive, or Redis did not reply, or not\n"
    "all of a cluster could be looked at: then once more, later; 2 wrong usage.\n";

enum { OPTION_REDIS = 1, OPTION_PREFIX, OPTION_KEY, OPTION_HELP };
static const struct option long_options[] = {
    {"redis", required_argument, NULL, OPTION_REDIS},   {"prefix", required_argument, NULL, OPTION_PREFIX},
    {"redis-key", required_argument, NULL, OPTION_KEY}, REDIS_FLAGS,
    {"help", no_argument, NULL, OPTION_HELP},           {NULL, 0, NULL, 0}};

/* Returns -1 to go on, else the exit status. */
static int read_options(int argc, char **argv, tw_options *options, tw_family_options *family) {
    int option;
    struct redis_flags flags = {0};
    opterr = 0;
    optind = 0;
    while ((option = getopt_long(argc, argv, OPTIONS_SHORT, long_options, NULL)) != -1) {
        switch (option) {
        case 'h':
        case OPTION_HELP: return options_help(help, NULL);
        case OPTION_REDIS: options->redis_url = optarg; break;
        case OPTION_PREFIX: options->redis_prefix = optarg; break;
        case OPTION_KEY: family->redis_key = optarg; break;
        default:
            if (redis_flags_take(&flags, option, optarg)) break;
            return options_refuse(option, argv, long_options);
        }
    }
    redis_flags_apply(&flags, options);
    if (!redis_flags_finish(&flags, &options->redis_url)) return EXIT_USAGE;
    if (options->redis_url != NULL && argc - optind == 2) return -1;
    tool_complain("--redis, a family and an instance are wanted; 'tallywheel reclaim --help' says more");
    return EXIT_USAGE;
}

static int reclaim(tw_engine *engine, const tw_family_options *options, const char *instance, const char *error) {
    tw_family *family;
    int64_t units = 0;
    tw_status status = tw_family_open(engine, options, &family);
    if (status != TW_OK) {
        tool_complain("%s", error[0] ? error : tw_status_text(status));
        return EXIT_USAGE;
    }
    status = tw_lease_reclaim(family, instance, &units);
    if (status == TW_ERR_UNKNOWN_TOKEN) {
        tool_complain("'%s' is no instance: 32 digits of 0-9a-f are", instance);
        return EXIT_USAGE;
    }
    if (status == TW_DENIED) tool_complain("that engine was heard of within the last seconds: it is alive");
    if (status < 0) tool_complain("%s", *tw_error_text() ? tw_error_text() : tw_status_text(status));
    bool written = printf("%" PRId64 "\n", units) > 0 && fflush(stdout) == 0;
    return status == TW_OK && written ? EXIT_DONE : EXIT_TROUBLE;
}

int reclaim_main(int argc, char **argv) {
    char error[256] = "";
    tw_engine *engine;
    tw_options options;
    tw_family_options family;
    tw_options_init(&options);
    tw_family_options_init(&family);
    options.error_text = family.error_text = error;
    options.error_size = family.error_size = sizeof error;
    options.redis_timeout_ms = 2000;
    int status = read_options(argc, argv, &options, &family);
    if (status >= 0) return status;
    family.name = argv[optind];
    family.window = TW_WINDOW_FOREVER;
    family.limit_mode = TW_LIMIT_HARD;
    tw_status opened = tw_open(&options, &engine);
    if (opened != TW_OK) {
        tool_complain("%s", error[0] ? error : tw_status_text(opened));
        return opened == TW_ERR_OPTIONS ? EXIT_USAGE : EXIT_TROUBLE;
    }
    status = reclaim(engine, &family, argv[optind + 1], error);
    (void)tw_close(engine, 1000);
    return status;
}
