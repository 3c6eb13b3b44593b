/* text_file.c -- any bytes as a file, plain, gzip or zstd: its lines are those of its text, however it is compressed,
 * and a reader that goes to a place finds there what the one that read up to it has left. Lines are too long above 4 KB
 * here, so that short inputs have some, and no input needs a megabyte of memory.
 * Covers: tools/count/text_file.c. */
#define FEED_LINE_MAX 4096
#define READ_BYTES 4096
#include "tools/count/text_file.c"

#include <stdio.h>
#include <sys/mman.h>

#define LINES_MAX 10000
#define TEXT_BYTES_MAX (256 * 1024)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool go_on(void *ctx) {
    (void)ctx;
    return true;
}

/* Where a reader stood, and what was before that. */
struct mark {
    int64_t at;
    size_t size;
    char tail[TEXT_FILE_TAIL];
};

static void mark_set(struct mark *mark, const struct text_file *text) {
    const char *tail = text_file_tail(text, &mark->size);
    mark->at = text_file_at(text);
    memcpy(mark->tail, tail, mark->size);
}

/* Reads all lines, and marks the place behind the fourth. */
static void lines_read(const char *path, struct mark *mark) {
    struct text_file text;
    int64_t total = 0;
    bool good = text_file_open(&text, path, go_on, NULL);
    for (int i = 0; good && i < LINES_MAX && total < TEXT_BYTES_MAX; i++) {
        const char *line;
        size_t size;
        enum text_file_state state = text_file_line(&text, &line, &size);
        if (state == TEXT_FILE_LONG) {
            total = text_file_at(&text);
            continue;
        }
        if (state != TEXT_FILE_LINE) break;
        if (memchr(line, '\n', size) != NULL) abort();
        text_file_take(&text, size);
        total += (int64_t)size + 1;
        if (text_file_at(&text) != total) abort();
        if (i == 3) mark_set(mark, &text);
    }
    text_file_close(&text);
}

static void place_find(const char *path, const struct mark *mark) {
    struct text_file text;
    struct mark found = {.at = 0};
    if (text_file_open(&text, path, go_on, NULL)) {
        if (text_file_skip(&text, mark->at) != TEXT_FILE_LINE) abort();
        mark_set(&found, &text);
        if (found.at != mark->at || found.size != mark->size || memcmp(found.tail, mark->tail, mark->size) != 0)
            abort();
    }
    text_file_close(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static FILE *nowhere;
    struct mark mark = {.at = 0};
    char path[64];
    if (nowhere == NULL && (nowhere = fopen("/dev/null", "we")) == NULL) abort();
    stderr = nowhere; /* what the command says of damaged files; the fuzzer has kept its own */
    int fd = memfd_create("text", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    lines_read(path, &mark);
    if (mark.at > 0) place_find(path, &mark);
    close(fd);
    return 0;
}
