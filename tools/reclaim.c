/* reclaim.c -- `tallywheel reclaim` frees the units of hard limits that a process had when it died.
 * Always true: units of an engine are freed only if Redis has had no message from it within the last seconds. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tallywheel.h"
#include "tools/common/options.h"
#include "tools/common/redis_flags.h"
#include "tools/common/tool.h"

static const char help[] =
    "Usage: tallywheel reclaim --redis URL [OPTION]... FAMILY INSTANCE\n"
    "Prints how many units of FAMILY's hard limits a dead process holds and may have sold; with --force it frees\n"
    "them. Units that Redis knows to be sold stay sold. But each of the others may have been sold in the process's\n"
    "last moments: the limits may then be passed, by no more than what is freed.\n"
    "INSTANCE is its name in Redis: the 32 digits of a field of a lease (HGETALL tw:lease:...) or of tw:leases.\n"
    "Make sure that it is dead: a process that was only paused, and continues, sells those units twice.\n"
    "\n"
    "  --redis URL         redis://[user:password@]host[:port][/db], unix:///path; rediss: TLS;\n"
    "                      redis+cluster://[user:password@]host:port[,host:port...];\n"
    "                      redis+sentinel://[user:password@]sentinel[:port][,...]/name[/db]\n" REDIS_FLAGS_HELP
    "  --prefix TEXT       the engines' redis_prefix, if they have one\n"
    "  --redis-key TEXT    the family's template up to its stamp, if it is not the default: 'sale:%k'\n"
    "  --force             free the units; without it nothing is changed\n"
    "  --help\n"
    "\n"
    "Prints how many units were freed. Exit status: 0 done; 1 nothing was freed without --force, the engine is\n"
    "alive, Redis did not reply, or not all of a cluster could be looked at: then once more, later; 2 wrong usage,\n"
    "or a family or an instance without leases.\n";

enum { OPTION_REDIS = 1, OPTION_PREFIX, OPTION_KEY, OPTION_FORCE, OPTION_HELP };
static const struct option long_options[] = {{"redis", required_argument, NULL, OPTION_REDIS},
                                             {"prefix", required_argument, NULL, OPTION_PREFIX},
                                             {"redis-key", required_argument, NULL, OPTION_KEY},
                                             REDIS_FLAGS,
                                             {"force", no_argument, NULL, OPTION_FORCE},
                                             {"help", no_argument, NULL, OPTION_HELP},
                                             {NULL, 0, NULL, 0}};

/* Returns -1 to continue, otherwise the exit status. */
static int read_options(int argc, char **argv, tw_options *options, tw_family_options *family, bool *force) {
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
        case OPTION_FORCE: *force = true; break;
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

static bool is_instance(const char *text) {
    return strlen(text) == 32 && strspn(text, "0123456789abcdef") == 32;
}

static int reclaim(tw_engine *engine, const tw_family_options *options, const char *instance, bool force,
                   const char *error) {
    tw_family *family;
    int64_t units = 0;
    tw_status status = tw_family_open(engine, options, &family);
    if (status != TW_OK) {
        tool_complain("%s", error[0] ? error : tw_status_text(status));
        return EXIT_USAGE;
    }
    if (!is_instance(instance)) {
        tool_complain("'%s' is no instance: 32 digits of 0-9a-f are", instance);
        return EXIT_USAGE;
    }
    status = force ? tw_lease_reclaim(family, instance, &units) : tw_lease_stranded(family, instance, &units);
    if (status == TW_ERR_UNKNOWN_TOKEN) {
        tool_complain("%s", tw_error_text());
        return EXIT_USAGE;
    }
    bool held_back = !force && units != 0;
    if (held_back)
        tool_complain("nothing was freed: the process may have sold %" PRId64 " units that Redis does not know of; "
                      "--force frees them, and the limits may then be passed by up to %" PRId64 " units",
                      units, units);
    if (force && units != 0)
        tool_complain("the limits may now be passed by up to %" PRId64 " units: as many as the process had sold "
                      "and not sent",
                      units);
    if (!force) units = 0;
    if (status == TW_DENIED) tool_complain("that engine was heard of within the last seconds: it is alive");
    if (status < 0) tool_complain("%s", *tw_error_text() ? tw_error_text() : tw_status_text(status));
    bool written = printf("%" PRId64 "\n", units) > 0 && fflush(stdout) == 0;
    return status == TW_OK && written && !held_back ? EXIT_DONE : EXIT_TROUBLE;
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
    bool force = false;
    int status = read_options(argc, argv, &options, &family, &force);
    if (status >= 0) return status;
    family.name = argv[optind];
    family.window = TW_WINDOW_FOREVER;
    family.limit_mode = TW_LIMIT_HARD;
    tw_status opened = tw_open(&options, &engine);
    if (opened != TW_OK) {
        tool_complain("%s", error[0] ? error : tw_status_text(opened));
        return opened == TW_ERR_OPTIONS ? EXIT_USAGE : EXIT_TROUBLE;
    }
    status = reclaim(engine, &family, argv[optind + 1], force, error);
    (void)tw_close(engine, 1000);
    return status;
}
