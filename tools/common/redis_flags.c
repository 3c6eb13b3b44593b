/* redis_flags.c -- see redis_flags.h. */
#include "tools/common/redis_flags.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/common/tool.h"

/* ---- the password in a URL ---- */

/* The text after scheme://. NULL if it is no URL. */
static const char *behind_scheme(const char *url) {
    const char *mark = strstr(url, "://");
    return mark != NULL ? mark + 3 : NULL;
}

/* The @ behind a login. A slash within a password is refused later, and hidden all the same. NULL means that there is
 * no
 * login. */
static const char *end_of_login(const char *url) {
    const char *from = behind_scheme(url);
    if (from == NULL) return NULL;
    const char *at = memrchr(from, '@', strcspn(from, "/"));
    return at != NULL || strncmp(url, "unix", 4) == 0 ? at : strrchr(from, '@');
}

/* [user]:password@. NULL means that there is no password. */
static const char *password_in(const char *url, size_t *size) {
    const char *at = end_of_login(url);
    const char *colon = at != NULL ? memchr(behind_scheme(url), ':', (size_t)(at - behind_scheme(url))) : NULL;
    if (colon == NULL) return NULL;
    *size = (size_t)(at - colon - 1);
    return colon + 1;
}

/* redis, rediss, valkey+sentinel ..., also as --redis=URL. */
static bool is_url(const char *argument) {
    return strncmp(argument, "--redis", 7) == 0 || strncmp(argument, "redis", 5) == 0 ||
           strncmp(argument, "valkey", 6) == 0 || strncmp(argument, "unix:", 5) == 0;
}

bool redis_flags_hide(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        size_t size;
        const char *password = is_url(argv[i]) ? password_in(argv[i], &size) : NULL;
        if (password == NULL) continue;
        char *copy = strdup(argv[i]);
        if (copy == NULL) return false;
        memset(argv[i] + (password - argv[i]), '*', size);
        argv[i] = copy;
    }
    return true;
}

/* ---- the others ---- */

bool redis_flags_any(const struct redis_flags *flags) {
    return flags->ca_file != NULL || flags->cert_file != NULL || flags->key_file != NULL ||
           flags->server_name != NULL || flags->insecure || flags->password_file != NULL;
}

/* Reads its first line. Returns -1 on an error (errno has the reason), and 0 if the line is too long or missing. */
static int flags_file_read(const char *path, char *out, size_t size) {
    FILE *file = fopen(path, "re");
    if (file == NULL) return -1;
    (void)setvbuf(file, NULL, _IONBF, 0); /* no copy of it stays */
    char *line = fgets(out, (int)size, file);
    bool failed = line == NULL && ferror(file) != 0;
    int error = errno;
    (void)fclose(file);
    errno = error;
    if (failed) return -1;
    size_t length = line != NULL ? strcspn(line, "\r\n") : 0;
    bool is_whole = line != NULL && (line[length] != '\0' || length + 1 < size);
    if (is_whole) out[length] = '\0';
    return is_whole ? (int)length : 0;
}

/* Other users who may read the file would learn the password. */
static void warn_of_mode(const char *path) {
    struct stat status;
    if (stat(path, &status) == 0 && S_ISREG(status.st_mode) && (status.st_mode & (S_IRGRP | S_IROTH)) != 0)
        tool_complain("--redis-password-file %s: others may read it (mode %04o)", path,
                      (unsigned)(status.st_mode & 07777));
}

/* scheme://[user@]rest becomes scheme://[user]:password@rest. */
static char *url_with(const char *url, const char *password) {
    static const char hex[] = "0123456789ABCDEF";
    const char *from = behind_scheme(url), *at = end_of_login(url), *user_end = at != NULL ? at : from;
    char *made = malloc(strlen(url) + 3 * strlen(password) + 3), *out = made;
    if (made == NULL) return NULL;
    out += sprintf(out, "%.*s:", (int)(user_end - url), url);
    for (const char *byte = password; *byte != '\0'; byte++) {
        *out++ = '%';
        *out++ = hex[(unsigned char)*byte >> 4];
        *out++ = hex[(unsigned char)*byte & 15];
    }
    (void)sprintf(out, "@%s", at != NULL ? at + 1 : from);
    return made;
}

/* False after a complaint. */
static bool password_read(const char *path, char *password, size_t room) {
    int length = flags_file_read(path, password, room);
    if (length < 0) tool_complain("--redis-password-file %s: %s", path, strerror(errno));
    if (length == 0) tool_complain("--redis-password-file %s: its first line is no password", path);
    if (length > 0) warn_of_mode(path);
    return length > 0;
}

bool redis_flags_finish(const struct redis_flags *flags, const char **url) {
    static char *made; /* for the life of the command, because options point there */
    char password[1024] = "";
    size_t size;
    const char *named = getenv(REDIS_PASSWORD);
    bool has_password = *url != NULL && password_in(*url, &size) != NULL;
    if (has_password && flags->password_file != NULL) {
        tool_complain("--redis-password-file and a password in the URL exclude each other");
        return false;
    }
    if (*url == NULL || has_password || behind_scheme(*url) == NULL) return true;
    if (flags->password_file != NULL && !password_read(flags->password_file, password, sizeof password)) return false;
    if (flags->password_file == NULL && named == NULL) return true;
    made = url_with(*url, flags->password_file != NULL ? password : named);
    explicit_bzero(password, sizeof password);
    if (made == NULL) tool_complain("no memory");
    if (made != NULL) *url = made;
    return made != NULL;
}

int redis_flags_sentinel_password(void *ctx, char *out, size_t size) {
    const char *password = getenv(SENTINEL_PASSWORD);
    (void)ctx;
    return snprintf(out, size, "%s", password != NULL ? password : "");
}
