/* tail_copy.c -- counts the unread lines in the copy of a log that was copied and cut. See tail_file.h.
 *
 * Programs that rotate logs copy a file next to it and cut it then. Lines that came between the last look and the copy
 * are in the copy alone. The copy is known by its content. It begins with the same bytes, and has the same bytes before
 * the place. It was written after the file was last looked at, so an older copy with equal lines does not count.
 * Always true: at most one copy is counted, and only its part after the place. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/common/stop.h"
#include "tools/count/tail_file.h"
#include "tools/count/text_file.h"
#include "tools/count/unpack.h"

#define ENTRIES_MAX 10000u /* of a folder; more are not looked at */
#define PATH_BYTES 4096u

struct search {
    const char *path, *base; /* `base` is within `path` */
    const struct tail_file *file;
    char found[PATH_BYTES];
    struct timespec found_written;
};

/* access.log.1, access.log-20261126, access-20261126.log. They have the same beginning as the name, up to its first
 * dot. */
static bool has_kin_name(const struct search *search, const char *name) {
    return strncmp(name, search->base, strcspn(search->base, ".")) == 0 && strcmp(name, search->base) != 0;
}

static bool is_newer(const struct timespec *a, const struct timespec *b) {
    return a->tv_sec != b->tv_sec ? a->tv_sec > b->tv_sec : a->tv_nsec > b->tv_nsec;
}

/* Returns true if the file at `path` may be the copy, by a quick check of its time and content. Some programs keep only
 * whole seconds. */
static bool may_be_copy(const struct search *search, const char *path, struct timespec *written) {
    const struct tail_file *file = search->file;
    char first[UNPACK_MAGIC_BYTES];
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0) return false;
    bool may = fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
               (status.st_dev != file->device || status.st_ino != file->inode) &&
               status.st_mtim.tv_sec >= file->written.tv_sec;
    ssize_t got = may ? pread(fd, first, sizeof first, 0) : -1;
    enum unpack_kind kind = unpack_kind_of(first, got > 0 ? (size_t)got : 0);
    may = got > 0 && (kind == UNPACK_PLAIN ? tail_file_continues(file, fd) : unpack_can(kind));
    close(fd);
    *written = status.st_mtim;
    return may;
}

static bool go_on(void *ctx) {
    (void)ctx;
    return stop_signal() == 0;
}

/* Returns whether the bytes before the text's place are the last of these. */
static bool tail_is(const struct text_file *text, const char *known, size_t known_size) {
    size_t size;
    const char *tail = text_file_tail(text, &size);
    size_t same = size < known_size ? size : known_size;
    return memcmp(tail + size - same, known + known_size - same, same) == 0;
}

/* Goes to the beginning of the line at the place, and sees on the way whether it is the same text. */
static bool goes_to_line(struct text_file *text, const struct tail_file *file) {
    size_t held = file->skipping ? 0 : file->size, head = file->head_size;
    int64_t line_at = file->at - (int64_t)held;
    if (head > TEXT_FILE_TAIL) head = TEXT_FILE_TAIL;
    if ((int64_t)head > line_at) head = (size_t)line_at;
    return text_file_skip(text, (int64_t)head) == TEXT_FILE_LINE && tail_is(text, file->head, head) &&
           text_file_skip(text, line_at) == TEXT_FILE_LINE &&
           tail_is(text, file->before, held < file->before_size ? file->before_size - held : 0);
}

static bool is_copy(const char *path, const struct tail_file *file) {
    struct text_file text;
    bool is = text_file_open(&text, path, go_on, NULL) && goes_to_line(&text, file);
    text_file_close(&text);
    return is;
}

/* The newest one, should there be two. */
static void search_folder(struct search *search, DIR *folder, size_t folder_size) {
    char path[PATH_BYTES];
    struct timespec written;
    struct dirent *entry;
    for (size_t i = 0; i < ENTRIES_MAX && (entry = readdir(folder)) != NULL && stop_signal() == 0; i++) {
        if (!has_kin_name(search, entry->d_name)) continue;
        int size = snprintf(path, sizeof path, "%.*s%s", (int)folder_size, search->path, entry->d_name);
        if (size < 0 || (size_t)size >= sizeof path || !may_be_copy(search, path, &written)) continue;
        if (search->found[0] != '\0' && !is_newer(&written, &search->found_written)) continue;
        if (!is_copy(path, search->file)) continue;
        memcpy(search->found, path, (size_t)size + 1);
        search->found_written = written;
    }
}

static bool search_run(struct search *search) {
    char name[PATH_BYTES];
    const char *slash = strrchr(search->path, '/');
    size_t folder_size = slash != NULL ? (size_t)(slash + 1 - search->path) : 0;
    search->base = search->path + folder_size;
    if (folder_size >= sizeof name) return false;
    memcpy(name, search->path, folder_size);
    name[folder_size] = '\0';
    DIR *folder = opendir(folder_size > 0 ? name : ".");
    if (folder == NULL) return false;
    search_folder(search, folder, folder_size);
    closedir(folder);
    return search->found[0] != '\0';
}

static void rest_count(struct text_file *text, struct tail_file *file, const struct tail_count *count) {
    const char *line;
    size_t size;
    enum text_file_state state;
    count->counter->head = &file->head_line;
    bool reported = file->skipping; /* the first line is the rest of one that is too long */
    while ((state = text_file_line(text, &line, &size)) == TEXT_FILE_LINE || state == TEXT_FILE_LONG) {
        struct outcome piece;
        outcome_one_skipped(&piece, counter_too_long);
        if (state == TEXT_FILE_LINE && !reported) counter_take(count->counter, line, size + 1, &piece);
        if (!reported) tail_file_fold(file, count, &piece);
        if (state == TEXT_FILE_LINE) text_file_take(text, size);
        reported = false;
    }
}

bool tail_copy_count(const char *path, struct tail_file *file, const struct tail_count *count, char *name,
                     size_t room) {
    struct search search = {.path = path, .file = file};
    struct text_file text;
    if (file->at == 0 || !search_run(&search)) return false;
    bool counts = text_file_open(&text, search.found, go_on, NULL) && goes_to_line(&text, file);
    if (counts) rest_count(&text, file, count);
    text_file_close(&text);
    (void)snprintf(name, room, "%s", search.found);
    return counts;
}
