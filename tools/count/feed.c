/* feed.c -- files to counts, in parallel. See feed.h.
 * One lock guards the queue, the free pieces and the sums. It is locked twice per piece, that is, per thousand
 * lines. */
#include "tools/count/feed.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/common/say.h"
#include "tools/common/stop.h"
#include "tools/common/tool.h"

#define PIECE_BYTES (256 * 1024)
#define PIECES_PER_THREAD 3
#define PIECES_PER_READER 2 /* a reader has at most two while it waits; one more is always on its way back */
#define RING 1024 /* how many pieces a slow worker may lag behind; more than there are pieces would be useless */

struct piece {
    struct piece *next;
    struct lane *lane;
    char *text;
    size_t size, capacity;
    uint64_t number;
    size_t file;
    struct line_head head; /* the columns as described by earlier lines */
    bool too_long;         /* replaces one line that was left out */
};

struct done {
    struct outcome outcome;
    size_t file;
    bool is_done;
};

/* The pieces of one reader. Their outcomes, by number, are added up in order. */
struct lane {
    struct done ring[RING];
    uint64_t folded;       /* pieces added up so far, which are all before this number */
    uint64_t sent;         /* pieces numbered so far */
    size_t folded_file;    /* the file of the last one */
    uint64_t folded_lines; /* of that file */
};

struct crew {
    struct feed *feed;
    pthread_mutex_t lock;
    pthread_cond_t work_came, room_came;
    struct piece *queue_head, **queue_tail;
    struct piece *free_pieces;
    size_t pieces, pieces_max;
    bool ended;
    struct outcome *outcomes; /* of each file */
    struct claim *claims;     /* of each file */
    uint64_t bytes_done;
};

/* A helper reads only compressed files. These cannot block, and need long. */
struct claim {
    bool is_taken, is_packed;
};

/* ---- workers ---- */

static void fold_in_order(struct crew *crew, struct lane *lane) {
    for (; lane->ring[lane->folded % RING].is_done; lane->folded++) {
        struct done *done = &lane->ring[lane->folded % RING];
        if (done->file != lane->folded_file) lane->folded_lines = 0;
        lane->folded_file = done->file;
        (void)outcome_fold(&crew->outcomes[done->file], &done->outcome, lane->folded_lines,
                           crew->feed->files[done->file]);
        lane->folded_lines += done->outcome.lines;
        done->is_done = false;
    }
}

static void fold_files(struct crew *crew) {
    struct feed *feed = crew->feed;
    for (size_t i = 0; i < feed->file_count; i++)
        if (outcome_fold(&feed->total, &crew->outcomes[i], 0, feed->files[i])) feed->skipped_file = feed->files[i];
}

/* The next piece to count; NULL means that no more will come. */
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
    piece->lane->ring[piece->number % RING] = (struct done){*outcome, piece->file, true};
    fold_in_order(crew, piece->lane);
    piece->next = crew->free_pieces;
    crew->free_pieces = piece;
    pthread_cond_broadcast(&crew->room_came);
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
            outcome_one_skipped(&outcome, counter_too_long);
        } else {
            worker->counter->head = &piece->head;
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
        worker->counter = counter_new(crew->feed->family, crew->feed->sums, crew->feed->rule, crew->feed->window_ms,
                                      crew->feed->windows);
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

/* Returns an empty piece. It is a new one while more are allowed, otherwise one that comes back. */
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
static bool pieces_prepare(struct crew *crew, unsigned workers, unsigned readers) {
    size_t least = (size_t)PIECES_PER_READER * readers + 1;
    crew->pieces_max = (size_t)PIECES_PER_THREAD * workers + least;
    for (; crew->pieces < least; crew->pieces++) {
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

static void piece_send(struct crew *crew, struct lane *lane, struct piece *piece, size_t file) {
    pthread_mutex_lock(&crew->lock);
    while (lane->sent - lane->folded >= RING) pthread_cond_wait(&crew->room_came, &crew->lock);
    piece->lane = lane;
    piece->number = lane->sent++;
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
    pthread_cond_broadcast(&crew->room_came);
    pthread_mutex_unlock(&crew->lock);
}

/* One file being read. `piece` has the bytes that were read and not sent yet, usually the beginning of a line. */
struct source {
    struct crew *crew;
    struct lane *lane;
    bool is_helper; /* not the main thread, which alone sees signals and draws */
    size_t file;
    int fd;
    bool may_block; /* a pipe or a terminal; wait where a signal can interrupt */
    bool skipping;  /* inside a line that is too long */
    bool looked;    /* the first bytes were checked */
    bool sent;      /* its first lines were */
    bool has_head;  /* some lines describe the columns of the others */
    struct line_head head;
    struct piece *piece;
    struct unpack *unpack; /* NULL if the file is not compressed */
    const char *wrong;     /* the error of the compressed data; NULL if there is none */
};

static const char *source_name(const struct source *source) {
    return feed_name(source->crew->feed->files[source->file]);
}

static bool is_stopped(const struct source *source) {
    return source->is_helper ? stop_came() : stop_signal() != 0;
}

static void bytes_note(const struct source *source, size_t size) {
    struct crew *crew = source->crew;
    pthread_mutex_lock(&crew->lock);
    uint64_t done = crew->bytes_done += size;
    pthread_mutex_unlock(&crew->lock);
    if (!source->is_helper) progress_step(done);
}

/* Decompresses into the piece. Returns 1 if something came, 0 if more of the file is needed, -1 after an error. */
static int source_unpack(struct source *source) {
    struct piece *piece = source->piece;
    ssize_t made = unpack_take(source->unpack, piece->text + piece->size, piece->capacity - piece->size);
    if (made < 0) source->wrong = unpack_wrong(source->unpack, false);
    if (made > 0) piece->size += (size_t)made;
    return made > 0 ? 1 : (int)made;
}

/* The bytes read go into the piece, or are first decompressed. Returns 1 if the piece has bytes. */
static int source_got(struct source *source, size_t size) {
    bytes_note(source, size);
    if (source->unpack != NULL) {
        unpack_fed(source->unpack, size);
        return 0;
    }
    source->piece->size += size;
    return 1;
}

/* The end of the file. Returns 0, or -1 if its compressed data lack their end. */
static int source_ended(struct source *source) {
    if (source->unpack != NULL) source->wrong = unpack_wrong(source->unpack, true);
    return source->wrong == NULL ? 0 : -1;
}

/* Reads until something is in the piece. Returns 1 then, 0 at the end or after a signal, -1 after an error. */
static int source_read(struct source *source) {
    struct piece *piece = source->piece;
    for (;;) {
        int come;
        if (is_stopped(source)) return 0;
        if (source->unpack != NULL && (come = source_unpack(source)) != 0) return come;
        if (source->may_block && !stop_wait(source->fd, -1)) continue;
        char *room = source->unpack != NULL ? unpack_room(source->unpack) : piece->text + piece->size;
        ssize_t got =
            read(source->fd, room, source->unpack != NULL ? UNPACK_BUFFER_BYTES : piece->capacity - piece->size);
        if (got > 0 && source_got(source, (size_t)got) != 0) return 1;
        if (got > 0) continue;
        if (got == 0) return source_ended(source);
        if (errno != EINTR && errno != EAGAIN) return -1;
        if (errno == EAGAIN) source->may_block = true;
    }
}

/* Sends whole lines, with the columns as described by earlier lines. These lines may describe other columns. */
static void source_send(struct source *source) {
    struct piece *piece = source->piece;
    if (!source->sent) source->has_head = line_has_head(source->crew->feed->rule, piece->text, piece->size);
    source->sent = true;
    piece->head = source->head;
    if (source->has_head) (void)line_head_take(source->crew->feed->rule, &source->head, piece->text, piece->size);
    piece_send(source->crew, source->lane, piece, source->file);
}

/* Looks at the first bytes of a file, when they are there or will not come. If they are compressed, they are removed
 * from the piece. Returns false after a message on standard error. */
static bool source_look(struct source *source, bool at_end) {
    struct piece *piece = source->piece;
    if (source->looked || (piece->size < UNPACK_MAGIC_BYTES && !at_end)) return true;
    source->looked = true;
    enum unpack_kind kind = unpack_kind_of(piece->text, piece->size);
    if (kind == UNPACK_PLAIN) return true;
    if (!unpack_can(kind)) {
        feed_refuse_packed(source_name(source), kind);
        return false;
    }
    source->unpack = unpack_new(kind, piece->text, piece->size);
    if (source->unpack == NULL) tool_complain("%s: no memory to decompress it", source_name(source));
    piece->size = 0;
    return source->unpack != NULL;
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

/* For a full piece without a line end. Drops a hole, or makes more room, or drops the line. Returns false if there is
 * no memory. */
static bool grow_or_skip(struct source *source) {
    struct piece *piece = source->piece;
    size_t hole = feed_hole(piece->text, piece->size);
    piece->size -= hole;
    if (hole > 0) return true;
    size_t capacity = feed_grown(piece->capacity);
    if (capacity > 0) {
        char *text = realloc(piece->text, capacity);
        if (text == NULL) return false;
        piece->text = text;
        piece->capacity = capacity;
        return true;
    }
    source->piece = piece_get(source->crew);
    piece->too_long = true;
    piece_send(source->crew, source->lane, piece, source->file);
    source->skipping = true;
    return true;
}

/* Sends the whole lines of a full piece. The bytes after the last of them begin the next piece. Returns false if there
 * is no memory. */
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
    source_send(source);
    source->piece = next;
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
        source_send(source);
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
        if (got > 0 || (got == 0 && !is_stopped(source))) {
            bool was_plain = source->unpack == NULL;
            if (!source_look(source, got == 0)) {
                piece_put_back(source->crew, source->piece);
                return false;
            }
            if (was_plain && source->unpack != NULL) continue; /* even at the end: it has the bytes read */
        }
        if (got > 0 && source->skipping) skip_long_line(source);
        if (got > 0 && source->piece->size == source->piece->capacity && !send_lines(source)) {
            got = -1;
            error = ENOMEM;
        }
        if (got > 0) continue;
        source_finish(source, got == 0 && !is_stopped(source));
        if (got == 0) return true;
        tool_complain("%s: %s", source_name(source), source->wrong != NULL ? source->wrong : strerror(error));
        return false;
    }
}

/* ---- files ---- */

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

/* ---- readers ---- */

/* A regular file that this command decompresses. */
static bool is_packed(const char *file) {
    char first[UNPACK_MAGIC_BYTES];
    struct stat status;
    if (strcmp(file, "-") == 0 || stat(file, &status) != 0 || !S_ISREG(status.st_mode)) return false;
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    ssize_t got = fd < 0 ? 0 : read(fd, first, sizeof first);
    if (fd >= 0) close(fd);
    enum unpack_kind kind = got > 0 ? unpack_kind_of(first, (size_t)got) : UNPACK_PLAIN;
    return kind != UNPACK_PLAIN && unpack_can(kind);
}

/* The files that helpers may read. Returns how many helpers are useful. */
static unsigned claims_make(struct crew *crew) {
    const struct feed *feed = crew->feed;
    unsigned packed = 0;
    if (feed->file_count < 2) return 0;
    for (size_t i = 0; i < feed->file_count; i++) {
        crew->claims[i].is_packed = is_packed(feed->files[i]);
        if (crew->claims[i].is_packed && packed < feed->threads) packed++;
    }
    return packed > 0 ? packed - 1 : 0; /* the main thread reads, too */
}

/* The next file for this reader. Returns false if there is none. */
static bool file_claim(struct crew *crew, bool is_helper, size_t *file) {
    bool found = false;
    pthread_mutex_lock(&crew->lock);
    for (*file = 0; *file < crew->feed->file_count; (*file)++) {
        found = !crew->claims[*file].is_taken && (!is_helper || crew->claims[*file].is_packed);
        if (found) break;
    }
    if (found) crew->claims[*file].is_taken = true;
    pthread_mutex_unlock(&crew->lock);
    return found;
}

static void files_read(struct crew *crew, struct lane *lane, bool is_helper) {
    struct source source = {.crew = crew, .lane = lane, .is_helper = is_helper};
    while (!is_stopped(&source) && file_claim(crew, is_helper, &source.file)) {
        const char *file = crew->feed->files[source.file];
        source = (struct source){.crew = crew, .lane = lane, .is_helper = is_helper, .file = source.file};
        source.fd = feed_open(file);
        source.may_block = source.fd >= 0 && feed_may_block(source.fd);
        if (source.fd < 0 || !source_run(&source)) {
            pthread_mutex_lock(&crew->lock);
            crew->feed->trouble = true;
            pthread_mutex_unlock(&crew->lock);
        }
        unpack_free(source.unpack);
        if (source.fd >= 0) close(source.fd);
    }
}

/* A thread that reads at the same time as the main one. Its end is a byte in a pipe. There the main thread can also see
 * signals. */
struct helper {
    struct crew *crew;
    struct lane *lane;
    int ended_fd;
    pthread_t thread;
};

static void *helper_run(void *argument) {
    struct helper *helper = argument;
    files_read(helper->crew, helper->lane, true);
    while (write(helper->ended_fd, "", 1) < 0 && errno == EINTR) {}
    return NULL;
}

static void helpers_await(struct helper *helpers, unsigned count, int ended_fd) {
    char byte;
    for (unsigned ended = 0; ended < count;)
        if (stop_wait(ended_fd, -1) && read(ended_fd, &byte, 1) == 1) ended++;
    for (unsigned i = 0; i < count; i++) pthread_join(helpers[i].thread, NULL);
}

/* lanes[0] is the main thread's. A helper that cannot be had is done without. */
static void feed_read_all(struct crew *crew, struct lane *lanes, unsigned wanted) {
    struct helper *helpers = wanted > 0 ? calloc(wanted, sizeof *helpers) : NULL;
    unsigned count = 0;
    int ends[2] = {-1, -1};
    progress_begin(bytes_expected(crew->feed));
    bool can = helpers != NULL && pipe2(ends, O_CLOEXEC) == 0;
    for (; can && count < wanted; count++) {
        helpers[count] = (struct helper){.crew = crew, .lane = &lanes[count + 1], .ended_fd = ends[1]};
        if (pthread_create(&helpers[count].thread, NULL, helper_run, &helpers[count]) != 0) break;
    }
    files_read(crew, &lanes[0], false);
    if (can) helpers_await(helpers, count, ends[0]);
    if (ends[0] >= 0) close(ends[0]);
    if (ends[1] >= 0) close(ends[1]);
    free(helpers);
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

static bool crew_make(struct crew *crew, struct feed *feed) {
    *crew = (struct crew){.feed = feed, .queue_tail = &crew->queue_head};
    crew->outcomes = calloc(feed->file_count, sizeof *crew->outcomes);
    crew->claims = calloc(feed->file_count, sizeof *crew->claims);
    pthread_mutex_init(&crew->lock, NULL);
    pthread_cond_init(&crew->work_came, NULL);
    pthread_cond_init(&crew->room_came, NULL);
    return crew->outcomes != NULL && crew->claims != NULL;
}

void feed_run(struct feed *feed) {
    struct crew crew;
    struct worker *workers = calloc(feed->threads, sizeof *workers);
    struct lane *lanes = NULL;
    unsigned started = 0, helpers = 0;
    feed->total = (struct outcome){0};
    feed->skipped_file = NULL;
    bool good = crew_make(&crew, feed) && workers != NULL;
    if (good) helpers = claims_make(&crew);
    if (good) lanes = calloc(helpers + 1, sizeof *lanes);
    if (lanes != NULL) started = workers_start(&crew, workers);
    feed->trouble = started == 0 || !pieces_prepare(&crew, started, helpers + 1);
    if (feed->trouble) {
        tool_complain("no memory for counting, or no thread could be started");
    } else {
        feed_read_all(&crew, lanes, helpers);
    }
    crew_end(&crew, workers, started);
    if (crew.outcomes != NULL) fold_files(&crew);
    free(crew.outcomes);
    free(crew.claims);
    free(lanes);
    free(workers);
}
