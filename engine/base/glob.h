/* glob.h -- patterns for the MATCH of SCAN.
 * Always true: literal bytes match only themselves. */
#ifndef TWI_BASE_GLOB_H
#define TWI_BASE_GLOB_H

#include <stddef.h>

/* Puts a literal byte, in one byte or two. Returns the place behind it. */
char *twi_glob_put(char *out, char byte);

/* The terminated pattern of all names that begin with `prefix` and continue with `rest`, a pattern of less than 40
 * bytes. A prefix without enough room is cut. */
void twi_glob_names(const char *prefix, const char *rest, char *out, size_t size);

#endif
