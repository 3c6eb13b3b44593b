/* options.h -- the options of a subcommand, as a table: the name of each, and where its value goes.
 * Always true: a refusal names the option as it was given, wherever it is on the command line. */
#ifndef TOOL_OPTIONS_H
#define TOOL_OPTIONS_H

#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One row of the table, which ends with an empty row. --help and -h are in no table. */
struct option_rule {
    const char *name;
    /* Takes the value into the struct of the subcommand. Returns false after a complaint. */
    bool (*take)(const struct option_rule *rule, void *into, const char *given);
    size_t at, size; /* of the field in the struct */
    bool is_flag;    /* the option has no value; then `given` is NULL */
    uint64_t low, high;
    const char *takes; /* the valid values, in words; NULL means that the words follow from low and high */
};

#define OPTION_TEXT(option, type, field) \
    { .name = option, .take = option_text, .at = offsetof(type, field) }
#define OPTION_FLAG(option, type, field) \
    { .name = option, .take = option_flag, .at = offsetof(type, field), .is_flag = true }
/* A whole number, in a field of 4 or 8 bytes. */
#define OPTION_NUMBER(option, type, field, least, most, words) \
    { \
        .name = option, .take = option_number, .at = offsetof(type, field), .size = sizeof(((type *)0)->field), \
        .low = least, .high = most, .takes = words \
    }
#define OPTION_OTHER(option, function) \
    { .name = option, .take = function }
#define OPTIONS_END \
    { .name = NULL }

bool option_text(const struct option_rule *rule, void *into, const char *given);   /* const char * */
bool option_flag(const struct option_rule *rule, void *into, const char *given);   /* bool */
bool option_number(const struct option_rule *rule, void *into, const char *given); /* uint32_t or uint64_t */

/* Complains that the option takes other values. Returns false. */
bool option_refuse(const struct option_rule *rule, const char *given, const char *takes);

/* Reads the command line into the struct `into`; argv[0] is the subcommand. Then optind is the first argument that is
 * no option. Returns -1 to continue, otherwise the exit status: --help was there, whose text is `help` and then `rest`
 * (or NULL), or an option was refused. */
int options_read(int argc, char **argv, const struct option_rule *rules, const char *help, const char *rest,
                 void *into);

#endif
