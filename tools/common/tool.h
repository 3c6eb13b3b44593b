/* tool.h -- the exit codes and the function for complaints, which every part of the `tallywheel` command uses. Always
 * true: standard output has only results; messages to people go to standard error. */
#ifndef TOOL_TOOL_H
#define TOOL_TOOL_H

enum { EXIT_DONE = 0, EXIT_TROUBLE = 1, EXIT_USAGE = 2, EXIT_SIGNAL = 128 /* plus the signal's number */ };

#define TOOL_NAME "tallywheel"

/* Writes "tallywheel: ..." and a newline to standard error, and clears the progress bar if there is one. Any thread. */
void tool_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The subcommands. argv[0] is the subcommand's name. They return an exit code. */
int audit_main(int argc, char **argv);
int reclaim_main(int argc, char **argv);
int reset_main(int argc, char **argv);
int count_main(int argc, char **argv);
int plan_main(int argc, char **argv);
int demo_main(int argc, char **argv);
int exporter_main(int argc, char **argv);
int show_main(int argc, char **argv);
int top_main(int argc, char **argv);
int demo_worker_main(int argc, char **argv); /* hidden; one engine of the demo */

#endif
