/* glob.h -- patterns for the MATCH of SCAN.
 * Always true: what is put literally matches itself alone. */
#ifndef TWI_BASE_GLOB_H
#define TWI_BASE_GLOB_H

#include <stddef.h>

/* Puts a byte that stands for itself: one byte or two. Returns where the pattern goes on. */
char *twi_glob_put(char *out, char byte);

/* The pattern of all names that begin with `prefix` and go on as `rest`, itself a pattern of less than 40 bytes, says;
 * terminated. A prefix for which there is no room is cut. */
void twi_glob_names(const char *prefix, const char *rest, char *out, size_t size);

#endif
