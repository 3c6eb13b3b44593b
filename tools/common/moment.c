/* moment.c -- see moment.h. */
#include "tools/common/moment.h"

#include <stdio.h>

int64_t moment_mono_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void moment_civil(int64_t unix_ms, struct tm *civil) {
    int64_t into = unix_ms % 1000;
    time_t unix_s = (time_t)((unix_ms - (into < 0 ? into + 1000 : into)) / 1000);
    gmtime_r(&unix_s, civil);
}

void moment_text(int64_t unix_ms, char text[MOMENT_TEXT_SIZE]) {
    struct tm civil;
    moment_civil(unix_ms, &civil);
    snprintf(text, MOMENT_TEXT_SIZE, "%04d-%02d-%02dT%02d:%02d:%02dZ", civil.tm_year + 1900, civil.tm_mon + 1,
             civil.tm_mday, civil.tm_hour, civil.tm_min, civil.tm_sec);
}
