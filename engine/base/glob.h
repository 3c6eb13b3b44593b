/* glob.h -- patterns for the MATCH of SCAN.
 * Always true: a literal byte matches only itself. */
#ifndef TWI_BASE_GLOB_H
#define TWI_BASE_GLOB_H

#include <stddef.h>

/* Writes a literal byte as one byte or two. Returns the place behind them. */
char *twi_glob_put(char *out, char byte);

/* Writes the terminated pattern of all names that begin with `prefix` and continue with `rest`. `rest` is a pattern
 * of less than 40 bytes. A prefix that is too long is cut. */
void twi_glob_names(const char *prefix, const char *rest, char *out, size_t size);

#endif
