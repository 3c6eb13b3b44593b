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

struct request {
    tw_options options;
    tw_family_options family;
    struct redis_flags flags;
    bool force;
};

static const struct option_rule rules[] = {OPTION_TEXT("redis", struct request, options.redis_url),
                                           OPTION_TEXT("prefix", struct request, options.redis_prefix),
                                           OPTION_TEXT("redis-key", struct request, family.redis_key),
                                           REDIS_FLAGS(struct request, flags),
                                           OPTION_FLAG("force", struct request, force),
                                           OPTIONS_END};

/* Returns -1 to continue, otherwise the exit status. */
static int reclaim_read_options(int argc, char **argv, struct request *request) {
    int status = options_read(argc, argv, rules, help, NULL, request);
    if (status >= 0) return status;
    redis_flags_apply(&request->flags, &request->options);
    if (!redis_flags_finish(&request->flags, &request->options.redis_url)) return EXIT_USAGE;
    int words = argc - optind;
    if (request->options.redis_url != NULL && words == 2) return -1;
    if (words > 2)
        tool_complain("'%s' is no option; 'tallywheel reclaim --help' lists them", argv[optind + 2]);
    else
        tool_complain("%s wanted; 'tallywheel reclaim --help' says more",
                      request->options.redis_url == NULL ? "--redis URL is"
                      : words == 0                       ? "a family is"
                                                         : "an instance, behind the family, is");
    return EXIT_USAGE;
}

static bool reclaim_is_instance(const char *text) {
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
    if (!reclaim_is_instance(instance)) {
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
    struct request request = {.force = false};
    tw_options_init(&request.options);
    tw_family_options_init(&request.family);
    request.options.error_text = request.family.error_text = error;
    request.options.error_size = request.family.error_size = sizeof error;
    request.options.redis_timeout_ms = 2000;
    int status = reclaim_read_options(argc, argv, &request);
    if (status >= 0) return status;
    request.family.name = argv[optind];
    request.family.window = TW_WINDOW_FOREVER;
    request.family.limit_mode = TW_LIMIT_HARD;
    tw_status opened = tw_open(&request.options, &engine);
    if (opened != TW_OK) {
        tool_complain("%s", error[0] ? error : tw_status_text(opened));
        return opened == TW_ERR_OPTIONS ? EXIT_USAGE : EXIT_TROUBLE;
    }
    status = reclaim(engine, &request.family, argv[optind + 1], request.force, error);
    (void)tw_close(engine, 1000);
    return status;
}
