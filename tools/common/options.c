/* options.c -- help and refusals. See options.h. */
#include "tools/common/options.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/common/text.h"
#include "tools/common/tool.h"

#define NAMES_MAX 64
#define HELP 0x100 /* what getopt_long() answers, above each letter; then the rows of the table */

static int show_help(const char *help, const char *rest) {
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

static void options_refuse_unknown(const char *command, const char *given, const struct option *options) {
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

/* `answer` is that of getopt_long(), '?' or ':'. A value that is missing is distinguished from an unknown option. */
static int options_refuse(int answer, char *const *argv, const struct option *options) {
    if (answer == ':')
        tool_complain("%s needs a value", argv[optind - 1]);
    else
        options_refuse_unknown(argv[0], refused_argument(argv), options);
    return EXIT_USAGE;
}

bool option_refuse(const struct option_rule *rule, const char *given, const char *takes) {
    tool_complain("--%s '%s': %s", rule->name, given, takes);
    return false;
}

static void *field_of(const struct option_rule *rule, void *into) {
    return (char *)into + rule->at;
}

bool option_text(const struct option_rule *rule, void *into, const char *given) {
    *(const char **)field_of(rule, into) = given;
    return true;
}

bool option_flag(const struct option_rule *rule, void *into, const char *given) {
    (void)given;
    return *(bool *)field_of(rule, into) = true;
}

bool option_number(const struct option_rule *rule, void *into, const char *given) {
    char takes[128];
    uint64_t number;
    if (text_number(given, rule->low, rule->high, &number)) {
        if (rule->size == sizeof number)
            *(uint64_t *)field_of(rule, into) = number;
        else
            *(uint32_t *)field_of(rule, into) = (uint32_t)number;
        return true;
    }
    snprintf(takes, sizeof takes, "a whole number from %" PRIu64 " to %" PRIu64 " is wanted%s", rule->low, rule->high,
             rule->high < 1000 ? "" : ", and K, M or G may follow");
    return option_refuse(rule, given, rule->takes != NULL ? rule->takes : takes);
}

int options_read(int argc, char **argv, const struct option_rule *rules, const char *help, const char *rest,
                 void *into) {
    struct option options[NAMES_MAX + 2] = {{0}};
    size_t count = 0;
    for (; rules[count].name != NULL && count < NAMES_MAX; count++)
        options[count] = (struct option){rules[count].name, rules[count].is_flag ? no_argument : required_argument,
                                         NULL, HELP + 1 + (int)count};
    options[count] = (struct option){"help", no_argument, NULL, HELP};
    opterr = 0;
    optind = 0;
    for (int answer; (answer = getopt_long(argc, argv, ":h", options, NULL)) != -1;) {
        if (answer == HELP || answer == 'h') return show_help(help, rest);
        if (answer < HELP) return options_refuse(answer, argv, options);
        const struct option_rule *rule = &rules[answer - HELP - 1];
        if (!rule->take(rule, into, optarg)) return EXIT_USAGE;
    }
    return -1;
}
