/* options.h -- the common handling of options in every subcommand. It shows the help, and refuses options that
 * getopt_long() refuses.
 * Always true: a refusal names the option as it was given, wherever it is on the command line. */
#ifndef TOOL_OPTIONS_H
#define TOOL_OPTIONS_H

#include <getopt.h>

/* For getopt_long(): -h is --help. A value that is missing is distinguished from an option that is unknown. */
#define OPTIONS_SHORT ":h"

/* Prints the help, in one text (`rest` is NULL) or in two. Returns the exit status. */
int options_help(const char *help, const char *rest);

/* Complains about what getopt_long() has just refused: `answer` is its answer, '?' or ':'. argv[0] is the subcommand.
 * Returns EXIT_USAGE. */
int options_refuse(int answer, char *const *argv, const struct option *options);

#endif
