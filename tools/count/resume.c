/* resume.c -- counting into Redis in steps that a later run can continue from. See resume.h. */
#include "tools/count/resume.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/common/moment.h"
#include "tools/count/count_engine.h"
#include "tools/count/feed.h"
#include "tools/count/marks.h"
#include "tools/common/say.h"
#include "tools/count/step.h"
#include "tools/common/stop.h"
#include "tools/common/text.h"
#include "tools/count/text_file.h"
#include "tools/common/tool.h"

#define FAMILY_NAME "count-positions"
#define CONTROL_BYTES (32 * 1024 * 1024)
/* The lock of a run that was killed stays for so long. Its last batch has long arrived when the lock ends. */
#define LOCK_MS 3000
#define LOCK_EXTEND_MS 1000
#define LOCK_WAIT_MS 15000
#define STEP_BYTES (8 * 1024 * 1024) /* the position is written at least this often, also if lines have few counts */
#define FIRST_LINE_BYTES 4096        /* as much of the first line makes the file's identity */
#define VALUE_BITS ((UINT64_C(1) << 52) - 1)
#define KEY_MAX (BATCH_NAME_MAX + 32)

/* How far a file is counted, as Redis has it. */
struct place {
    char at_key[KEY_MAX], tail_key[KEY_MAX];
    int64_t at, tail; /* `tail` is a hash of the bytes before `at` */
};

struct resume {
    const struct plan *plan;
    struct result *result;
    struct windows_shared *windows;
    tw_engine *engine; /* its turns are made only here, so the adds between two of them are one batch */
    tw_family *family, *sums, *positions; /* sums is NULL without --sum */
    tw_engine *control;                   /* for calls that wait for Redis */
    tw_family *marks, *asked;
    char lock_text[MARK_KEY_MAX], token[TW_TOKEN_SIZE];
    int64_t extended_ms;
    uint64_t *identities; /* of the files so far */
    size_t identity_count;
    const struct place *place; /* of the file that is read; NULL means not known yet */
    bool is_over;              /* no further step can be sent */
    bool is_unsettled;         /* the last one may still be on its way */
    struct step *step;
    char *joined;
};

static bool complain(const struct resume *resume, const char *what) {
    tool_complain("--batch %s: %s", resume->plan->batch, what);
    return false;
}

static bool complain_status(const struct resume *resume, const char *what, tw_status status) {
    tool_complain("--batch %s: %s: %s", resume->plan->batch, what, tw_status_text(status));
    return false;
}

/* ---- what Redis has ---- */

bool resume_positions_open(tw_engine *engine, tw_family **positions) {
    tw_family_options options;
    tw_family_options_init(&options);
    options.name = FAMILY_NAME;
    options.window = TW_WINDOW_FOREVER;
    options.on_full = TW_ON_FULL_REJECT;
    tw_status status = tw_family_open(engine, &options, positions);
    if (status != TW_OK) tool_complain("--resume: %s", tw_status_text(status));
    return status == TW_OK;
}

static tw_key options_key(const char *name, char text[KEY_MAX]) {
    snprintf(text, KEY_MAX, "%s:options", name);
    return tw_str(text);
}

tw_status resume_has_begun(tw_family *positions, const char *name, bool *has_begun) {
    char text[KEY_MAX];
    int64_t options = 0;
    tw_key key = options_key(name, text);
    tw_status status = tw_fetch(positions, &key, 1, MARKS_FETCH_MS, &options);
    *has_begun = options != 0;
    return status;
}

static tw_status mark_fetch(const struct resume *resume, enum mark mark, int64_t *total) {
    char text[MARK_KEY_MAX];
    tw_key key = mark_key(mark, resume->plan->batch, text);
    return tw_fetch(resume->marks, &key, 1, MARKS_FETCH_MS, total);
}

static void tear(const struct resume *resume) {
    char text[MARK_KEY_MAX];
    bool first;
    (void)tw_once(resume->marks, mark_key(MARK_TORN, resume->plan->batch, text), &first);
}

static const char torn[] =
    "what Redis holds of it does not agree with its position: Redis was wiped or went back, refused"
    " some counts, or two runs counted at once; nothing more is added under this name";

/* ---- the lock ---- */

static tw_status lock_try(struct resume *resume) {
    uint64_t fence;
    tw_status status = tw_lock(resume->marks, tw_str(resume->lock_text), LOCK_MS, resume->token, &fence);
    if (status == TW_OK) resume->extended_ms = moment_mono_ms();
    return status;
}

static bool lock_take(struct resume *resume) {
    int64_t begun_ms = moment_mono_ms();
    bool said = false;
    mark_key(MARK_LOCK, resume->plan->batch, resume->lock_text);
    for (;;) {
        tw_status status = lock_try(resume);
        if (status == TW_OK) return true;
        if (stop_signal() != 0) return complain(resume, "nothing was counted");
        if (status != TW_DENIED) return complain_status(resume, "nothing was counted, Redis cannot be asked", status);
        if (moment_mono_ms() - begun_ms > LOCK_WAIT_MS)
            return complain(resume, "another run counts under this name; nothing was counted");
        if (!said && moment_mono_ms() - begun_ms > LOCK_MS) {
            (void)complain(resume, "waiting for another run under this name");
            said = true;
        }
        stop_wait(-1, 100);
    }
}

static bool place_is_ours(struct resume *resume, const struct place *place) {
    tw_key key = tw_str(place->at_key);
    int64_t at = 0;
    tw_status status = tw_fetch(resume->asked, &key, 1, MARKS_FETCH_MS, &at);
    if (status != TW_OK) return complain_status(resume, "Redis cannot be asked for the position", status);
    return at == place->at || complain(resume, "another run has gone on under this name; this one stops");
}

/* Keeps the lock. A process that stopped for longer has lost it. It continues only if no other run did. */
static bool lock_try_again(struct resume *resume) {
    tw_status status = tw_lock_extend(resume->marks, tw_str(resume->lock_text), resume->token, LOCK_MS);
    resume->extended_ms = moment_mono_ms();
    if (status != TW_ERR_LATE) return true; /* Redis may be unreachable, and the step waits for it */
    status = lock_try(resume);
    if (status == TW_DENIED) return complain(resume, "another run counts under this name now; this one stops");
    if (status != TW_OK) return complain_status(resume, "Redis cannot be asked for the lock", status);
    return resume->place == NULL || place_is_ours(resume, resume->place);
}

static bool lock_keep(void *ctx) {
    struct resume *resume = ctx;
    if (moment_mono_ms() - resume->extended_ms < LOCK_EXTEND_MS) return true;
    resume->is_over = resume->is_over || !lock_try_again(resume);
    return !resume->is_over;
}

/* ---- a step ---- */

/* Makes turns until Redis has the added counts. A signal ends the wait; then the next run sees whether they arrived. */
static bool step_arrives(struct resume *resume) {
    tw_status status = count_drain(resume->engine);
    if (status == TW_OK) return true;
    resume->is_unsettled = true;
    if (status == TW_ERR_REDIS) {
        tear(resume);
        return complain(resume, torn);
    }
    if (stop_signal() != 0) return false;
    return complain_status(resume, "Redis does not take the next counts; --resume goes on later", status);
}

static tw_status row_add(const struct resume *resume, const struct step_row *row, int64_t delta) {
    tw_key key = tw_bytes(row->key, row->size);
    tw_family *family = row->is_sum ? resume->sums : resume->family;
    return resume->plan->window_ms == WINDOWS_ALL ? tw_add(family, key, delta, NULL)
                                                  : tw_add_at(family, key, delta, row->start_ms, NULL);
}

/* Adds the step's counts. If one of them is refused, those before it are subtracted again, and no counts are sent. */
static tw_status rows_add_all(const struct resume *resume) {
    const struct step *step = resume->step;
    for (size_t i = 0; i < step->count; i++) {
        tw_status status = row_add(resume, &step->row[i], step->row[i].delta);
        if (status == TW_OK) continue;
        while (i-- > 0) (void)row_add(resume, &step->row[i], -step->row[i].delta);
        return status;
    }
    return TW_OK;
}

static void rows_take_back(const struct resume *resume) {
    for (size_t i = 0; i < resume->step->count; i++)
        (void)row_add(resume, &resume->step->row[i], -resume->step->row[i].delta);
}

static tw_status position_add(const struct resume *resume, const struct place *place, int64_t at, int64_t tail) {
    tw_status status = tw_add(resume->positions, tw_str(place->at_key), at - place->at, NULL);
    if (status != TW_OK) return status;
    status = tw_add(resume->positions, tw_str(place->tail_key), tail - place->tail, NULL);
    if (status != TW_OK) (void)tw_add(resume->positions, tw_str(place->at_key), place->at - at, NULL);
    return status;
}

static int64_t tail_hash(const struct text_file *text) {
    size_t size;
    const char *bytes = text_file_tail(text, &size);
    return (int64_t)(text_hash(TEXT_HASH_BEGIN, bytes, size) & VALUE_BITS);
}

static bool step_refused(const struct resume *resume, tw_status status) {
    if (status == TW_ERR_FULL || status == TW_ERR_MEMORY)
        return complain(resume, "memory does not suffice for more keys in one run (--memory); --resume goes on");
    return complain_status(resume, "the next counts are refused", status);
}

static bool step_try(struct resume *resume, struct place *place, const struct text_file *text) {
    int64_t at = text_file_at(text), tail = tail_hash(text);
    if (at == place->at) return true;
    if (!lock_keep(resume)) return false;
    tw_status status = rows_add_all(resume);
    if (status != TW_OK) return step_refused(resume, status);
    status = position_add(resume, place, at, tail);
    if (status != TW_OK) rows_take_back(resume);
    if (status != TW_OK) return step_refused(resume, status);
    for (size_t i = 0; i < resume->step->count; i++) windows_note(resume->windows, resume->step->row[i].start_ms);
    if (!step_arrives(resume)) return false;
    place->at = at;
    place->tail = tail;
    step_clear(resume->step);
    tw_reading reading;
    status = tw_read(resume->positions, tw_str(place->at_key), &reading);
    if (status == TW_OK && reading.known && reading.total == at) return true;
    tear(resume);
    return complain(resume, torn);
}

/* Sends the counts of the text up to the position, and the position, in one batch. */
static bool step_send(struct resume *resume, struct place *place, const struct text_file *text) {
    resume->is_over = resume->is_over || !step_try(resume, place, text);
    return !resume->is_over;
}

/* ---- a line ---- */

/* `bytes` is NULL for a line that is too long. */
static void line_skipped(struct resume *resume, const char *file, uint64_t line, const char *why, const char *bytes,
                         size_t size) {
    struct outcome one;
    memset(&one, 0, sizeof one);
    outcome_skip(&one, 1, why, bytes, size);
    if (outcome_fold(&resume->result->total, &one, line - 1, file)) resume->result->skipped_file = file;
}

/* Counts one line, which is not consumed yet. If the step is full, it is sent up to here first. */
static bool line_count(struct resume *resume, struct place *place, const struct text_file *text, const char *bytes,
                       size_t size, uint64_t number) {
    const struct line_rule *rule = &resume->plan->rule;
    struct line line;
    const char *why = line_parse(rule, NULL, bytes, size, &line, resume->joined);
    resume->result->total.lines++;
    if (why != NULL && why != line_left_out) line_skipped(resume, text->file, number, why, bytes, size);
    if (why != NULL) return true;
    int64_t start_ms = windows_start(line.unix_ms, resume->plan->window_ms, rule->utc_offset_ms);
    if (step_add(resume->step, start_ms, line.key, line.delta, line.sum)) return true;
    if (!step_send(resume, place, text)) return false;
    return step_add(resume->step, start_ms, line.key, line.delta, line.sum);
}

/* ---- a file ---- */

/* Reads the first line, without consuming it, and makes the names of the file's position. */
static enum text_file_state identity_read(struct text_file *text, uint64_t *identity) {
    const char *line;
    size_t size;
    enum text_file_state state = text_file_line(text, &line, &size);
    if (state == TEXT_FILE_LONG) {
        tool_complain("%s: its first line is longer than 1 MiB, and --resume knows a file by it",
                      feed_name(text->file));
        return TEXT_FILE_TROUBLE;
    }
    if (state == TEXT_FILE_LINE)
        *identity = text_hash(TEXT_HASH_BEGIN, line, size < FIRST_LINE_BYTES ? size : FIRST_LINE_BYTES);
    return state;
}

/* Two files with one first line have one position. They could not be distinguished. */
static bool identity_is_new(struct resume *resume, const char *file, uint64_t identity) {
    for (size_t i = 0; i < resume->identity_count; i++) {
        if (resume->identities[i] != identity) continue;
        tool_complain("%s: begins with the same line as a file before it, and --resume knows a file by its first line;"
                      " it was not counted",
                      feed_name(file));
        return false;
    }
    resume->identities[resume->identity_count++] = identity;
    return true;
}

static bool place_fetch(struct resume *resume, uint64_t identity, struct place *place) {
    snprintf(place->at_key, KEY_MAX, "%s:%016" PRIx64 ":at", resume->plan->batch, identity);
    snprintf(place->tail_key, KEY_MAX, "%s:%016" PRIx64 ":tail", resume->plan->batch, identity);
    tw_key keys[] = {tw_str(place->at_key), tw_str(place->tail_key)};
    int64_t totals[2];
    tw_status status = tw_fetch(resume->asked, keys, 2, MARKS_FETCH_MS, totals);
    if (status != TW_OK) return complain_status(resume, "Redis cannot be asked for the position", status);
    place->at = totals[0];
    place->tail = totals[1];
    return true;
}

/* Goes to the place that the last run had reached. */
static enum text_file_state place_find(struct text_file *text, const struct place *place) {
    if (place->at == 0) return TEXT_FILE_LINE;
    enum text_file_state state = place->at > 0 ? text_file_skip(text, place->at) : TEXT_FILE_END;
    if (state == TEXT_FILE_LINE && tail_hash(text) == place->tail) {
        tool_complain("%s: goes on behind byte %" PRId64, feed_name(text->file), place->at);
        return state;
    }
    if (state == TEXT_FILE_STOPPED || state == TEXT_FILE_TROUBLE) return state;
    tool_complain("%s: begins as the file that was counted up to byte %" PRId64
                  ", and has other bytes before that; it was not counted",
                  feed_name(text->file), place->at);
    return TEXT_FILE_TROUBLE;
}

/* Counts from here to the end. Returns the state that ended it. TEXT_FILE_TROUBLE was already reported. */
static enum text_file_state lines_count(struct resume *resume, struct place *place, struct text_file *text) {
    const char *line;
    size_t size;
    uint64_t number = 0;
    for (;;) {
        enum text_file_state state = text_file_line(text, &line, &size);
        number++;
        if (state == TEXT_FILE_LONG) {
            resume->result->total.lines++;
            line_skipped(resume, text->file, number, counter_too_long, NULL, 0);
        } else if (state == TEXT_FILE_LINE) {
            if (!line_count(resume, place, text, line, size, number)) return TEXT_FILE_TROUBLE;
            text_file_take(text, size);
        } else {
            return state;
        }
        progress_step((uint64_t)text_file_at(text));
        if (text_file_at(text) - place->at >= STEP_BYTES && !step_send(resume, place, text)) return TEXT_FILE_TROUBLE;
    }
}

/* `place` is this file's. */
static bool file_count_at(struct resume *resume, struct text_file *text, struct place *place) {
    uint64_t identity;
    enum text_file_state state = identity_read(text, &identity);
    if (state == TEXT_FILE_LINE) {
        if (!identity_is_new(resume, text->file, identity) || !place_fetch(resume, identity, place)) return false;
        resume->place = place;
        state = place_find(text, place);
        step_clear(resume->step);
        if (state == TEXT_FILE_LINE) {
            state = lines_count(resume, place, text);
            if (state == TEXT_FILE_STOPPED) return true; /* the next run sends the unsent counts */
            /* The lines before the damage of a file count. */
            if (!text->skipping && resume->step->count > 0 && state == TEXT_FILE_TROUBLE && text->unpack != NULL)
                return step_send(resume, place, text) && false;
            if (state == TEXT_FILE_END && !text->skipping && !step_send(resume, place, text)) return false;
        }
    }
    if (state == TEXT_FILE_END && text_file_rest(text) > 0)
        tool_complain("%s: its last line has no end yet, and was left for the next run", feed_name(text->file));
    return state == TEXT_FILE_END || state == TEXT_FILE_STOPPED;
}

static bool file_count(struct resume *resume, struct text_file *text) {
    struct place place;
    bool counted = file_count_at(resume, text, &place);
    resume->place = NULL; /* the lock is kept between files, too */
    return counted;
}

/* ---- the whole ---- */

static bool control_open(struct resume *resume, struct count_lost *lost) {
    struct plan plan = *resume->plan;
    plan.resume = false;
    plan.memory_bytes = CONTROL_BYTES;
    return count_engine_open(&plan, lost, &resume->control) == EXIT_DONE &&
           marks_open(resume->control, &resume->marks) && resume_positions_open(resume->control, &resume->asked);
}

/* The first run writes which options it has; later ones must have the same. */
static bool begin_first(struct resume *resume, int64_t options) {
    char text[KEY_MAX];
    int64_t begun = 0;
    tw_key key = options_key(resume->plan->batch, text);
    tw_status status = tw_add(resume->positions, key, options, NULL);
    if (status == TW_OK) status = count_drain(resume->engine);
    if (status == TW_OK) status = mark_fetch(resume, MARK_BEGUN, &begun);
    if (status != TW_OK) return complain_status(resume, "nothing was counted, Redis cannot be asked", status);
    if (begun == 0) return true;
    (void)tw_add(resume->positions, key, -options, NULL);
    (void)count_drain(resume->engine);
    return complain(resume, "was begun without --resume, so its position is not known; nothing was added");
}

static bool resume_begin(struct resume *resume) {
    char text[KEY_MAX];
    int64_t is_torn = 0, options = 0, own = (int64_t)(resume->plan->meaning & VALUE_BITS) | 1;
    if (!lock_take(resume)) return false;
    tw_key key = options_key(resume->plan->batch, text);
    tw_status status = mark_fetch(resume, MARK_TORN, &is_torn);
    if (status == TW_OK) status = tw_fetch(resume->asked, &key, 1, MARKS_FETCH_MS, &options);
    if (status != TW_OK) return complain_status(resume, "nothing was counted, Redis cannot be asked", status);
    if (is_torn != 0) return complain(resume, torn);
    if (options == 0) return begin_first(resume, own);
    return options == own ||
           complain(resume,
                    "was begun with another --format, --log-format, --key, --time, --sum, --where, --since, --until,"
                    " --window, --utc-offset or --redis-key; nothing was added");
}

static bool resume_files_count(struct resume *resume) {
    bool good = true;
    const struct plan *plan = resume->plan;
    for (size_t i = 0; i < plan->file_count && stop_signal() == 0 && !resume->is_over; i++) {
        struct text_file text;
        bool opened = text_file_open(&text, plan->files[i], lock_keep, resume);
        good = opened && file_count(resume, &text) && good;
        resume->place = NULL;
        text_file_close(&text);
    }
    return good;
}

void resume_run(const struct plan *plan, tw_engine *engine, tw_family *family, tw_family *sums,
                struct windows_shared *windows, struct result *result) {
    struct count_lost lost = {0};
    struct resume resume = {.plan = plan, .result = result, .windows = windows, .engine = engine};
    resume.family = family;
    resume.sums = sums;
    resume.step = calloc(1, sizeof *resume.step);
    resume.joined = malloc(TW_KEY_SIZE_MAX + LINE_ELEMENT_MAX);
    resume.identities = calloc(plan->file_count, sizeof *resume.identities);
    bool good = resume.step != NULL && resume.joined != NULL && resume.identities != NULL;
    if (!good) tool_complain("no memory for counting");
    progress_begin(0);
    good = good && resume_positions_open(engine, &resume.positions) && control_open(&resume, &lost) &&
           resume_begin(&resume) && resume_files_count(&resume);
    progress_end();
    if (resume.token[0] != '\0' && !resume.is_unsettled)
        (void)tw_lock_release(resume.marks, tw_str(resume.lock_text), resume.token);
    if (resume.control != NULL) (void)count_engine_close(resume.control, true, &lost);
    if (!good && stop_signal() == 0) result->trouble = true;
    free(resume.identities);
    free(resume.joined);
    free(resume.step);
}
