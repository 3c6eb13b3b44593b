/* feed.c -- files to counts, in parallel. See feed.h.
 * One lock guards the queue, the free pieces and the sums. It is taken twice per piece, that is, per thousand lines. */
#include "feed.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "say.h"
#include "stop.h"
#include "tool.h"

#define PIECE_BYTES (256 * 1024)
#define PIECES_PER_THREAD 3
#define PIECES_MIN 3 /* the reader holds at most two while it waits: one is always on its way back */
#define RING 1024    /* how many pieces a slow worker may lag behind; more than there are pieces would be useless */

struct piece {
    struct piece *next;
    char *text;
    size_t size, capacity;
    uint64_t number;
    size_t file;
    bool too_long; /* replaces one line that was left out */
};

struct done {
    struct outcome outcome;
    size_t file;
    bool is_done;
};

struct crew {
    struct feed *feed;
    pthread_mutex_t lock;
    pthread_cond_t work_came, room_came;
    struct piece *queue_head, **queue_tail;
    struct piece *free_pieces;
    size_t pieces, pieces_max;
    bool ended;
    /* outcomes, by piece number */
    struct done ring[RING];
    uint64_t folded;       /* pieces added up so far: all before this number */
    uint64_t sent;         /* pieces numbered so far */
    size_t folded_file;    /* the file of the last one */
    uint64_t folded_lines; /* of that file */
};

/* ---- workers ---- */

static void fold_in_order(struct crew *crew) {
    for (; crew->ring[crew->folded % RING].is_done; crew->folded++) {
        struct done *done = &crew->ring[crew->folded % RING];
        if (done->file != crew->folded_file) crew->folded_lines = 0;
        crew->folded_file = done->file;
        if (outcome_fold(&crew->feed->total, &done->outcome, crew->folded_lines)) {
            crew->feed->skipped_file = crew->feed->files[done->file];
        }
        crew->folded_lines += done->outcome.lines;
        done->is_done = false;
    }
}

/* The next piece to count; NULL: no more will come. */
static struct piece *work_take(struct crew *crew) {
    pthread_mutex_lock(&crew->lock);
    while (crew->queue_head == NULL && !crew->ended) pthread_cond_wait(&crew->work_came, &crew->lock);
    struct piece *piece = crew->queue_head;
    if (piece != NULL) {
        crew->queue_head = piece->next;
        if (crew->queue_head == NULL) crew->queue_tail = &crew->queue_head;
    }
    pthread_mutex_unlock(&crew->lock);
    return piece;
}

static void work_done(struct crew *crew, struct piece *piece, const struct outcome *outcome) {
    pthread_mutex_lock(&crew->lock);
    crew->ring[piece->number % RING] = (struct done){*outcome, piece->file, true};
    fold_in_order(crew);
    piece->next = crew->free_pieces;
    crew->free_pieces = piece;
    pthread_cond_signal(&crew->room_came);
    pthread_mutex_unlock(&crew->lock);
}

struct worker {
    struct crew *crew;
    struct counter *counter;
    pthread_t thread;
};

static void *worker_run(void *argument) {
    struct worker *worker = argument;
    struct piece *piece;
    while ((piece = work_take(worker->crew)) != NULL) {
        struct outcome outcome;
        if (piece->too_long) {
            outcome = (struct outcome){.lines = 1, .skipped = 1, .skipped_line = 1, .skipped_why = "longer than 1 MiB"};
        } else {
            counter_take(worker->counter, piece->text, piece->size, &outcome);
        }
        work_done(worker->crew, piece, &outcome);
    }
    counter_free(worker->counter);
    return NULL;
}

/* Starts as many workers as the system allows; returns how many. */
static unsigned workers_start(struct crew *crew, struct worker *workers) {
    unsigned started = 0;
    for (; started < crew->feed->threads; started++) {
        struct worker *worker = &workers[started];
        worker->crew = crew;
        worker->counter = counter_new(crew->feed->family, crew->feed->rule, crew->feed->window_ms, crew->feed->windows);
        if (worker->counter == NULL) break;
        if (pthread_create(&worker->thread, NULL, worker_run, worker) != 0) {
            counter_free(worker->counter);
            break;
        }
    }
    return started;
}

/* ---- reader ---- */

static struct piece *piece_new(void) {
    struct piece *piece = malloc(sizeof *piece);
    if (piece == NULL) return NULL;
    piece->text = malloc(PIECE_BYTES);
    piece->capacity = PIECE_BYTES;
    if (piece->text != NULL) return piece;
    free(piece);
    return NULL;
}

/* Returns an empty piece: a new one while more are allowed, else one that comes back. */
static struct piece *piece_get(struct crew *crew) {
    struct piece *piece = NULL;
    pthread_mutex_lock(&crew->lock);
    while (piece == NULL) {
        if (crew->free_pieces != NULL) {
            piece = crew->free_pieces;
            crew->free_pieces = piece->next;
        } else if (crew->pieces < crew->pieces_max && (piece = piece_new()) != NULL) {
            crew->pieces++;
        } else {
            pthread_cond_wait(&crew->room_came, &crew->lock);
        }
    }
    pthread_mutex_unlock(&crew->lock);
    piece->size = 0;
    piece->too_long = false;
    return piece;
}

/* Makes the first pieces. Returns false if there is no memory. */
static bool pieces_prepare(struct crew *crew, unsigned workers) {
    crew->pieces_max = (size_t)PIECES_PER_THREAD * workers + PIECES_MIN;
    for (; crew->pieces < PIECES_MIN; crew->pieces++) {
        struct piece *piece = piece_new();
        if (piece == NULL) return false;
        piece->next = crew->free_pieces;
        crew->free_pieces = piece;
    }
    return true;
}

static void piece_free(struct piece *piece) {
    free(piece->text);
    free(piece);
}

static void piece_send(struct crew *crew, struct piece *piece, size_t file) {
    pthread_mutex_lock(&crew->lock);
    while (crew->sent - crew->folded >= RING) pthread_cond_wait(&crew->room_came, &crew->lock);
    piece->number = crew->sent++;
    piece->file = file;
    piece->next = NULL;
    *crew->queue_tail = piece;
    crew->queue_tail = &piece->next;
    pthread_cond_signal(&crew->work_came);
    pthread_mutex_unlock(&crew->lock);
}

static void piece_put_back(struct crew *crew, struct piece *piece) {
    pthread_mutex_lock(&crew->lock);
    piece->next = crew->free_pieces;
    crew->free_pieces = piece;
    pthread_mutex_unlock(&crew->lock);
}

/* One file being read. `piece` holds what was read and not sent yet: usually the beginning of a line. */
struct source {
    struct crew *crew;
    size_t file;
    int fd;
    bool may_block; /* a pipe or a terminal: wait where a signal can interrupt */
    bool skipping;  /* inside a line that is too long */
    bool looked;    /* the first bytes were checked */
    struct piece *piece;
    uint64_t *bytes_done;
};

/* Reads once into the piece. Returns 1 if something came, 0 at the end or after a signal, -1 after an error. */
static int source_read(struct source *source) {
    struct piece *piece = source->piece;
    for (;;) {
        if (stop_signal() != 0) return 0;
        if (source->may_block && !stop_wait(source->fd, -1)) continue;
        ssize_t got = read(source->fd, piece->text + piece->size, piece->capacity - piece->size);
        if (got > 0) {
            piece->size += (size_t)got;
            *source->bytes_done += (uint64_t)got;
            progress_step(*source->bytes_done);
            return 1;
        }
        if (got == 0) return 0;
        if (errno != EINTR && errno != EAGAIN) return -1;
        if (errno == EAGAIN) source->may_block = true;
    }
}

/* Drops the rest of a line that is too long, with its newline. */
static void skip_long_line(struct source *source) {
    struct piece *piece = source->piece;
    char *newline = memchr(piece->text, '\n', piece->size);
    size_t drop = newline == NULL ? piece->size : (size_t)(newline + 1 - piece->text);
    memmove(piece->text, piece->text + drop, piece->size - drop);
    piece->size -= drop;
    source->skipping = newline == NULL;
}

/* A full piece without a line end: makes more room, or drops the line. Returns false if there is no memory. */
static bool grow_or_skip(struct source *source) {
    struct piece *piece = source->piece;
    if (piece->capacity < FEED_LINE_MAX) {
        char *text = realloc(piece->text, piece->capacity * 2);
        if (text == NULL) return false;
        piece->text = text;
        piece->capacity *= 2;
        return true;
    }
    source->piece = piece_get(source->crew);
    piece->too_long = true;
    piece_send(source->crew, piece, source->file);
    source->skipping = true;
    return true;
}

/* Sends the whole lines of a full piece; what follows the last of them begins the next piece. Returns false if there is
 * no memory. */
static bool send_lines(struct source *source) {
    struct piece *piece = source->piece;
    char *newline = memrchr(piece->text, '\n', piece->size);
    if (newline == NULL) return grow_or_skip(source);
    size_t whole = (size_t)(newline + 1 - piece->text);
    struct piece *next = piece_get(source->crew);
    size_t rest = piece->size - whole;
    if (rest > next->capacity) { /* the beginning of a long line, for which the piece was grown */
        char *text = realloc(next->text, piece->capacity);
        if (text == NULL) {
            piece_put_back(source->crew, next);
            return false;
        }
        next->text = text;
        next->capacity = piece->capacity;
    }
    memcpy(next->text, piece->text + whole, rest);
    next->size = rest;
    piece->size = whole;
    source->piece = next;
    piece_send(source->crew, piece, source->file);
    return true;
}

/* At the end of a file, a last line without newline is a line. If a signal or an error cut the reading short, it is
 * half of one. */
static void source_finish(struct source *source, bool at_end) {
    struct piece *piece = source->piece;
    if (!at_end && piece->size > 0) {
        char *newline = memrchr(piece->text, '\n', piece->size);
        piece->size = newline == NULL ? 0 : (size_t)(newline + 1 - piece->text);
    }
    if (piece->size > 0) {
        piece_send(source->crew, piece, source->file);
    } else {
        piece_put_back(source->crew, piece);
    }
}

/* Returns false after a message on standard error. */
static bool source_run(struct source *source) {
    source->piece = piece_get(source->crew);
    for (;;) {
        int got = source_read(source);
        int error = errno;
        if (got > 0 && !source->looked && source->piece->size >= FEED_MAGIC_BYTES) {
            source->looked = true;
            if (feed_is_compressed(source->crew->feed->files[source->file], source->piece->text)) {
                piece_put_back(source->crew, source->piece);
                return false;
            }
        }
        if (got > 0 && source->skipping) skip_long_line(source);
        if (got > 0 && source->piece->size == source->piece->capacity && !send_lines(source)) {
            got = -1;
            error = ENOMEM;
        }
        if (got > 0) continue;
        source_finish(source, got == 0 && stop_signal() == 0);
        if (got == 0) return true;
        tool_complain("%s: %s", feed_name(source->crew->feed->files[source->file]), strerror(error));
        return false;
    }
}

/* ---- files ---- */

const char *feed_name(const char *file) {
    return strcmp(file, "-") == 0 ? "(standard input)" : file;
}

int feed_open(const char *file) {
    struct stat status;
    /* Non-blocking: opening a named pipe must not wait for its writer where a signal cannot interrupt it; poll() waits
     * later. */
    int flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
    int fd = strcmp(file, "-") == 0 ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0) : open(file, flags);
    if (fd < 0) {
        tool_complain("%s: %s", feed_name(file), strerror(errno));
        return -1;
    }
    if (fstat(fd, &status) == 0 && S_ISDIR(status.st_mode)) {
        tool_complain("%s: is a directory, not a file", feed_name(file));
        close(fd);
        return -1;
    }
    return fd;
}

bool feed_is_compressed(const char *file, const char *text) {
    static const struct {
        const char *magic, *name, *tool;
    } kinds[] = {{"\x1f\x8b", "gzip", "zcat"},
                 {"BZh", "bzip2", "bzcat"},
                 {"\xfd"
                  "7zXZ",
                  "xz", "xzcat"},
                 {"\x28\xb5\x2f\xfd", "zstd", "zstdcat"}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (memcmp(text, kinds[i].magic, strlen(kinds[i].magic)) != 0) continue;
        tool_complain("%s: is compressed (%s); decompress it first: %s FILE | tallywheel count ... -", feed_name(file),
                      kinds[i].name, kinds[i].tool);
        return true;
    }
    return false;
}

bool feed_may_block(int fd) {
    struct stat status;
    return fstat(fd, &status) != 0 || !S_ISREG(status.st_mode);
}

/* The sum of the files' sizes, for the progress bar; 0 if it is unknown. */
static uint64_t bytes_expected(const struct feed *feed) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < feed->file_count; i++) {
        struct stat status;
        bool is_input = strcmp(feed->files[i], "-") == 0;
        int answer = is_input ? fstat(STDIN_FILENO, &status) : stat(feed->files[i], &status);
        if (answer != 0 || !S_ISREG(status.st_mode)) return 0;
        bytes += (uint64_t)status.st_size;
    }
    return bytes;
}

static void read_all(struct crew *crew) {
    struct feed *feed = crew->feed;
    uint64_t bytes_done = 0;
    progress_begin(bytes_expected(feed));
    for (size_t i = 0; i < feed->file_count && stop_signal() == 0; i++) {
        int fd = feed_open(feed->files[i]);
        struct source source = {.crew = crew, .file = i, .fd = fd, .bytes_done = &bytes_done};
        source.may_block = fd >= 0 && feed_may_block(fd);
        if (fd < 0 || !source_run(&source)) {
            pthread_mutex_lock(&crew->lock);
            feed->trouble = true;
            pthread_mutex_unlock(&crew->lock);
        }
        if (fd >= 0) close(fd);
    }
    progress_end();
}

static void crew_end(struct crew *crew, struct worker *workers, unsigned started) {
    pthread_mutex_lock(&crew->lock);
    crew->ended = true;
    pthread_cond_broadcast(&crew->work_came);
    pthread_mutex_unlock(&crew->lock);
    for (unsigned i = 0; i < started; i++) pthread_join(workers[i].thread, NULL);
    while (crew->free_pieces != NULL) {
        struct piece *piece = crew->free_pieces;
        crew->free_pieces = piece->next;
        piece_free(piece);
    }
    pthread_cond_destroy(&crew->work_came);
    pthread_cond_destroy(&crew->room_came);
    pthread_mutex_destroy(&crew->lock);
}

void feed_run(struct feed *feed) {
    struct crew *crew = calloc(1, sizeof *crew);
    struct worker *workers = calloc(feed->threads, sizeof *workers);
    feed->total = (struct outcome){0};
    feed->skipped_file = NULL;
    feed->trouble = crew == NULL || workers == NULL;
    if (!feed->trouble) {
        crew->feed = feed;
        crew->queue_tail = &crew->queue_head;
        pthread_mutex_init(&crew->lock, NULL);
        pthread_cond_init(&crew->work_came, NULL);
        pthread_cond_init(&crew->room_came, NULL);
        unsigned started = workers_start(crew, workers);
        feed->trouble = started == 0 || !pieces_prepare(crew, started);
        if (feed->trouble) {
            tool_complain("no memory, or no thread could be started");
        } else {
            read_all(crew);
        }
        crew_end(crew, workers, started);
    } else {
        tool_complain("no memory for counting");
    }
    free(workers);
    free(crew);
}
