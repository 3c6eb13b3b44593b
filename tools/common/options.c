/* options.c -- help and refusals. See options.h. */
#include "tools/common/options.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tools/common/text.h"
#include "tools/common/tool.h"

#define NAMES_MAX 64

int options_help(const char *help, const char *rest) {
    if (fputs(help, stdout) >= 0 && (rest == NULL || fputs(rest, stdout) >= 0) && fflush(stdout) == 0) return EXIT_DONE;
    tool_complain("cannot write the output");
    return EXIT_TROUBLE;
}

/* getopt_long() is behind the argument that it refuses, except for letters in one argument. Then it is at it. */
static const char *refused_argument(char *const *argv) {
    const char *at = argv[optind];
    bool within = optopt != 0 && at != NULL && at[0] == '-' && at[1] == (char)optopt;
    return within ? at : argv[optind - 1];
}

static const char *nearest_name(const char *bare, const struct option *options) {
    const char *names[NAMES_MAX + 1];
    size_t count = 0;
    for (; options[count].name != NULL && count < NAMES_MAX; count++) names[count] = options[count].name;
    names[count] = NULL;
    return text_nearest(bare, names);
}

static void refuse_unknown(const char *command, const char *given, const struct option *options) {
    char word[64];
    snprintf(word, sizeof word, "%.*s", (int)strcspn(given, "="), given);
    const char *bare = word + strspn(word, "-");
    const char *nearest = nearest_name(bare, options);
    if (nearest != NULL && strcmp(nearest, bare) == 0 && strchr(given, '=') != NULL) {
        tool_complain("--%s takes no value", bare);
    } else if (nearest != NULL) {
        tool_complain("unknown option %s; did you mean --%s?", word, nearest);
    } else {
        tool_complain("unknown option %s; 'tallywheel %s --help' lists them", word, command);
    }
}

int options_refuse(int answer, char *const *argv, const struct option *options) {
    if (answer == ':') {
        tool_complain("%s needs a value", argv[optind - 1]);
    } else {
        refuse_unknown(argv[0], refused_argument(argv), options);
    }
    return EXIT_USAGE;
}
