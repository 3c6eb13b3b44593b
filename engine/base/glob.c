/* glob.c -- see glob.h. */
#include "engine/base/glob.h"

#include <stdio.h>
#include <string.h>

char *twi_glob_put(char *out, char byte) {
    if (strchr("*?[]\\", byte) != NULL) *out++ = '\\';
    *out++ = byte;
    return out;
}

void twi_glob_names(const char *prefix, const char *rest, char *out, size_t size) {
    char *at = out;
    while (*prefix != '\0' && (size_t)(at - out) + 40 < size) at = twi_glob_put(at, *prefix++);
    (void)snprintf(at, size - (size_t)(at - out), "%s", rest);
}
