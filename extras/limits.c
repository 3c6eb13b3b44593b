/* limits.c -- tw_limits_open() and the calls on an open set of limits. See limits.h.
 *
 * A reader raises a count in its own slot, loads the table, looks up, and lowers the count. It never waits. A reload
 * first swaps the table. Then it waits until it has seen both counts of each slot at 0, and frees the old table. Each
 * slot has two counts so that readers that come during the wait use the other one (`side`). They cannot keep a count
 * above 0 for ever.
 *
 *                   find, acquire   reload   close      x = the caller must prevent it, ~ = answers TW_PENDING
 * find, acquire           -           -       x
 * reload                  -           ~       x
 *
 * Always true: a family, once opened, stays open until tw_limits_close(), so a handle that was found stays valid. A
 * load or reload that fails leaves the limits unchanged. A family's handle (tw_limited) is made with the first table
 * that names the family. Every later table names the family too, perhaps at another index: the table's `places` maps
 * the handle's number to it. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/atomic.h"
#include "engine/base/check.h"
#include "engine/base/why.h"
#include "engine/base/random.h"
#include "extras/limits.h"

#define SLOTS 62u

struct slot {
    alignas(TWI_LINE_BYTES) _Atomic(uint64_t) inside[2];
};

/* This part must be empty in a forked child, because the threads that wrote it do not exist there. The kernel wipes
 * it. */
struct gate {
    struct slot slots[SLOTS];
    alignas(TWI_LINE_BYTES) _Atomic(uint32_t) side;
    alignas(TWI_LINE_BYTES) _Atomic(uint32_t) reloading;
};
static_assert(sizeof(struct gate) == 4096, "the smallest page");

struct tw_limits {
    _Atomic(struct twi_limits_table *) current;
    struct gate *gate;
    size_t gate_bytes;
    tw_engine *engine;
    char *path;
    /* used only by the thread that reloads */
    struct twi_limits_budget opened[TWI_LIMITS_BUDGETS_MAX];
    uint32_t opened_count;
};

struct tw_limited {
    tw_limits *limits;
    uint32_t number; /* in the order in which tables first named the families */
};

/* ---- readers ---- */

static tw_status refuse_family(void) {
    return twi_refuse(TW_ERR_OPTIONS, "family: no line of the limits file names it");
}

/* The thread-locals of threads lie far apart. The multiplication mixes their differences into the upper bits. */
static struct slot *slot_here(const struct tw_limits *limits) {
    static _Thread_local char here;
    uint64_t mixed = (uint64_t)(uintptr_t)&here * UINT64_C(0x9e3779b97f4a7c15);
    return &limits->gate->slots[(mixed >> 32) % SLOTS];
}

/* The family that a call names, by its handle, or, if that is NULL, by its name. */
struct subject {
    const struct tw_limited *handle;
    const char *name;
};

static const struct twi_limits_name *name_of(const struct twi_limits_table *table, struct subject subject) {
    if (subject.handle != NULL) return &table->names[table->places[subject.handle->number]];
    return twi_limits_name_find(table, subject.name);
}

/* The rule of the current table for the key. It is copied out while the table cannot be freed. */
struct found {
    tw_family *family; /* NULL if the key is unlimited or unknown */
    int64_t limit;
    struct tw_limited *handle; /* NULL means that no line names the family */
};

static struct found look_up(const tw_limits *limits, struct subject subject, const tw_key *key) {
    struct found found = {NULL, TW_UNBOUNDED, NULL};
    struct slot *slot = slot_here(limits);
    uint32_t side = twi_load_relaxed(&limits->gate->side); /* either side is right, because a reload waits for both */
    /* V1, with V4. In the one order of both, either V4 sees this count, or V2 loads the new table. */
    (void)twi_add_seqcst(&slot->inside[side], 1);
    const struct twi_limits_table *table = twi_load_seqcst(&limits->current); /* V2, with V3 */
    TWI_RACE_POINT(limits_table_loaded);
    const struct twi_limits_name *name = name_of(table, subject);
    const struct twi_limits_rule *rule = name != NULL && key != NULL ? twi_limits_rule_find(table, name, *key) : NULL;
    if (name != NULL) found.handle = name->handle;
    if (rule != NULL && rule->budget != TWI_LIMITS_NONE) {
        found.family = table->budgets[rule->budget].family;
        found.limit = rule->limit;
    }
    (void)twi_sub_acqrel(&slot->inside[side], 1); /* V5, with V4, so that all reads come before the table is freed */
    return found;
}

static tw_status limits_find(const tw_limits *limits, struct subject subject, tw_key key, struct found *found) {
    if (key.size == 0 || key.size > TW_KEY_SIZE_MAX || key.data == NULL) return twi_key_refuse(key);
    *found = look_up(limits, subject, &key);
    return found->handle != NULL ? TW_OK : refuse_family();
}

static tw_status find_parts(const tw_limits *limits, struct subject subject, tw_key key, tw_family **family,
                            int64_t *limit) {
    struct found found;
    tw_status status = limits_find(limits, subject, key, &found);
    if (status != TW_OK) return status;
    if (family != NULL) *family = found.family;
    if (limit != NULL) *limit = found.limit;
    return TW_OK;
}

tw_status tw_limits_find(tw_limits *limits, const char *family, tw_key key, tw_family **found, int64_t *limit) {
    TWI_NEED(limits);
    TWI_NEED(family);
    return find_parts(limits, (struct subject){.name = family}, key, found, limit);
}

tw_status tw_limited_find(tw_limited *limited, tw_key key, tw_family **found, int64_t *limit) {
    TWI_NEED(limited);
    return find_parts(limited->limits, (struct subject){.handle = limited}, key, found, limit);
}

tw_status tw_limits_family(tw_limits *limits, const char *family, tw_limited **limited) {
    TWI_NEED(limits);
    TWI_NEED(family);
    TWI_NEED(limited);
    struct tw_limited *handle = look_up(limits, (struct subject){.name = family}, NULL).handle;
    if (handle == NULL) return refuse_family();
    *limited = handle;
    return TW_OK;
}

/* Fills the verdict for the case that no family decides. */
static void fill_default(tw_verdict *verdict, tw_status status) {
    if (verdict == NULL) return;
    memset(verdict, 0, sizeof *verdict);
    if (status != TW_OK) {
        verdict->error_bound = TW_UNBOUNDED;
        return;
    }
    verdict->limit = verdict->remaining = TW_UNBOUNDED;
    verdict->allowed = 1;
}

static tw_status limits_acquire(const tw_limits *limits, struct subject subject, tw_key key, int64_t n,
                                tw_verdict *verdict) {
    struct found found;
    tw_status status = limits_find(limits, subject, key, &found);
    if (status == TW_OK && found.family != NULL) return tw_acquire(found.family, key, n, found.limit, verdict);
    if (status == TW_OK && (n < 0 || n > TW_DELTA_MAX))
        status = twi_refuse(TW_ERR_RANGE, "n: not within 0..TW_DELTA_MAX");
    fill_default(verdict, status);
    return status;
}

tw_status tw_limits_acquire(tw_limits *limits, const char *family, tw_key key, int64_t n, tw_verdict *verdict) {
    TWI_NEED(limits);
    TWI_NEED(family);
    return limits_acquire(limits, (struct subject){.name = family}, key, n, verdict);
}

tw_status tw_limited_acquire(tw_limited *limited, tw_key key, int64_t n, tw_verdict *verdict) {
    TWI_NEED(limited);
    return limits_acquire(limited->limits, (struct subject){.handle = limited}, key, n, verdict);
}

/* ---- the same, answered later ---- */

static tw_status acquire_async(tw_request *request, const tw_limits *limits, struct subject subject, tw_key key,
                               int64_t n) {
    struct found found;
    tw_status status = limits_find(limits, subject, key, &found);
    if (status == TW_OK && found.family != NULL) return tw_acquire_async(request, found.family, key, n, found.limit);
    if (status == TW_OK && (n < 0 || n > TW_DELTA_MAX))
        status = twi_refuse(TW_ERR_RANGE, "n: not within 0..TW_DELTA_MAX");
    fill_default(&request->verdict, status);
    request->status = status;
    return status;
}

tw_status tw_limits_acquire_async(tw_request *request, tw_limits *limits, const char *family, tw_key key, int64_t n) {
    TWI_NEED(request);
    TWI_NEED(limits);
    TWI_NEED(family);
    return acquire_async(request, limits, (struct subject){.name = family}, key, n);
}

tw_status tw_limited_acquire_async(tw_request *request, tw_limited *limited, tw_key key, int64_t n) {
    TWI_NEED(request);
    TWI_NEED(limited);
    return acquire_async(request, limited->limits, (struct subject){.handle = limited}, key, n);
}

/* ---- reading the file ---- */

/* Reads the whole file; the result is malloc'ed. Only regular files are allowed, because a pipe could block a
 * reload. */
static char *limits_file_read(const struct twi_limits_error *error, size_t *size) {
    struct stat about;
    char *text = NULL;
    int fd = open(error->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &about) != 0) {
        twi_limits_complain(error, 0, "%s", strerror(errno));
    } else if (!S_ISREG(about.st_mode)) {
        twi_limits_complain(error, 0, "not a regular file");
    } else if (about.st_size > TWI_LIMITS_FILE_BYTES_MAX) {
        twi_limits_complain(error, 0, "larger than %u MiB", TWI_LIMITS_FILE_BYTES_MAX >> 20);
    } else if ((text = malloc(TWI_LIMITS_FILE_BYTES_MAX + 1)) == NULL) {
        twi_limits_complain(error, 0, "no memory to read it");
    }
    *size = 0;
    while (text != NULL) {
        ssize_t got = read(fd, text + *size, TWI_LIMITS_FILE_BYTES_MAX + 1 - *size);
        if (got < 0 && errno == EINTR) continue;
        if (got > 0) *size += (size_t)got;
        if (got > 0 && *size <= TWI_LIMITS_FILE_BYTES_MAX) continue;
        if (got == 0) break;
        twi_limits_complain(error, 0, "%s", got < 0 ? strerror(errno) : "grows while it is read");
        free(text);
        text = NULL;
    }
    if (fd >= 0) close(fd);
    return text;
}

static tw_status table_read(const struct twi_limits_error *error, struct twi_limits_table **table) {
    size_t size;
    char *text = limits_file_read(error, &size);
    if (text == NULL) return TW_ERR_OPTIONS;
    char *fitting = realloc(text, size + 1);
    tw_status status = twi_limits_build(fitting != NULL ? fitting : text, size, error, table);
    if (status == TW_ERR_MEMORY) twi_limits_complain(error, 0, "no memory for its limits");
    return status;
}

/* ---- families ---- */

static void family_options_fill(tw_family_options *options, const struct twi_limits_budget *budget, char *error_text,
                                size_t error_size) {
    const struct twi_limits_policy *policy = &budget->policy;
    tw_family_options_init(options);
    options->error_text = error_text;
    options->error_size = error_size;
    options->name = budget->name;
    options->window = policy->window;
    options->window_ms = policy->window_ms;
    options->limit_mode = policy->mode;
    options->limit_shape = policy->shape;
    options->burst = policy->burst;
    options->sub_windows = policy->sub_windows;
    options->on_outage = policy->outage;
    options->on_busy = policy->busy;
    options->shadow = policy->shadow;
}

static struct twi_limits_budget *opened_find(tw_limits *limits, const char *name) {
    for (uint32_t i = 0; i < limits->opened_count; i++)
        if (strcmp(limits->opened[i].name, name) == 0) return &limits->opened[i];
    return NULL;
}

/* Opens the budget's family, or gives the open family the new policy. `before` keeps the old state, to go back. */
static tw_status budget_apply(tw_limits *limits, struct twi_limits_budget *budget, struct twi_limits_budget *before,
                              const struct twi_limits_error *error) {
    char what[300] = "";
    tw_family_options options;
    struct twi_limits_budget *opened = opened_find(limits, budget->name);
    tw_status status;
    family_options_fill(&options, budget, what, sizeof what);
    if (opened != NULL) {
        *before = *opened;
        status = tw_family_set(opened->family, &options);
        budget->family = opened->family;
        if (status == TW_OK) opened->policy = budget->policy;
    } else if (limits->opened_count == TWI_LIMITS_BUDGETS_MAX) {
        return twi_limits_complain(error, budget->line, "%s: more than %u families and windows since tw_limits_open()",
                                   budget->name, TWI_LIMITS_BUDGETS_MAX);
    } else {
        before->family = NULL;
        status = tw_family_open(limits->engine, &options, &budget->family);
        if (status == TW_OK) limits->opened[limits->opened_count++] = *budget;
    }
    if (status != TW_OK) {
        twi_limits_complain(error, budget->line, "%s: %s", budget->name, *what ? what : tw_status_text(status));
    }
    return status;
}

/* Undoes the changes to the first `count` budgets. Budgets that were accepted once are accepted again. */
static void budgets_go_back(tw_limits *limits, const struct twi_limits_budget *before, uint32_t count) {
    while (count-- > 0) {
        if (before[count].family == NULL) {
            (void)tw_family_close(limits->opened[--limits->opened_count].family);
            continue;
        }
        tw_family_options options;
        family_options_fill(&options, &before[count], NULL, 0);
        (void)tw_family_set(before[count].family, &options);
        opened_find(limits, before[count].name)->policy = before[count].policy;
    }
}

static tw_status budgets_apply(tw_limits *limits, const struct twi_limits_table *table,
                               const struct twi_limits_error *error) {
    struct twi_limits_budget *before = calloc(table->budget_count + 1, sizeof *before);
    tw_status status = before != NULL ? TW_OK : twi_refuse(TW_ERR_MEMORY, NULL);
    for (uint32_t i = 0; status == TW_OK && i < table->budget_count; i++) {
        status = budget_apply(limits, &table->budgets[i], &before[i], error);
        if (status != TW_OK) budgets_go_back(limits, before, i);
    }
    free(before);
    return status;
}

/* A family whose lines are all gone would answer errors, or be unlimited. As a rule both would be a mistake, so it is
 * refused. */
static tw_status check_families(const struct twi_limits_table *old, const struct twi_limits_table *table,
                                const struct twi_limits_error *error) {
    for (uint32_t i = 0; old != NULL && i < old->name_count; i++) {
        const char *family = old->names[i].family;
        if (twi_limits_name_find(table, family) != NULL) continue;
        return twi_limits_complain(
            error, 0, "family %s has no line any more; to lift its limits, write: %s * unlimited", family, family);
    }
    return TW_OK;
}

/* ---- handles ---- */

/* Frees the handles that `table` was the first to name. Their numbers begin at `from`. */
static void handles_free(const struct twi_limits_table *table, uint32_t from) {
    for (uint32_t i = 0; table != NULL && i < table->name_count; i++)
        if (table->names[i].handle != NULL && table->names[i].handle->number >= from) free(table->names[i].handle);
}

static bool handle_make(tw_limits *limits, struct twi_limits_name *name, uint32_t number) {
    name->handle = malloc(sizeof *name->handle);
    if (name->handle != NULL) *name->handle = (struct tw_limited){limits, number};
    return name->handle != NULL;
}

/* Names in `old` keep their handles; new names get one. `table` has all names of `old` (check_families()). */
static tw_status handles_carry(tw_limits *limits, const struct twi_limits_table *old, struct twi_limits_table *table) {
    uint32_t number = 0;
    table->places = malloc((table->name_count + 1) * sizeof *table->places);
    if (table->places == NULL) return twi_refuse(TW_ERR_MEMORY, NULL);
    for (uint32_t i = 0; i < table->name_count; i++) {
        struct twi_limits_name *name = &table->names[i];
        const struct twi_limits_name *before = old != NULL ? twi_limits_name_find(old, name->family) : NULL;
        if (before != NULL) name->handle = before->handle;
    }
    if (old != NULL) number = old->name_count;
    for (uint32_t i = 0; i < table->name_count; i++) {
        struct twi_limits_name *name = &table->names[i];
        if (name->handle == NULL && !handle_make(limits, name, number++)) return twi_refuse(TW_ERR_MEMORY, NULL);
        table->places[name->handle->number] = i;
    }
    return TW_OK;
}

/* ---- swapping tables ---- */

static void wait_for_readers(struct gate *gate) {
    for (int turn = 0; turn < 2; turn++) {
        uint32_t side = twi_load_relaxed(&gate->side);
        twi_store_relaxed(&gate->side, 1 - side); /* so that the other side comes down to 0 */
        for (uint32_t i = 0; i < SLOTS; i++)
            while (twi_load_seqcst(&gate->slots[i].inside[side]) != 0) sched_yield(); /* V4, with V1 and V5 */
    }
}

static tw_status reload(tw_limits *limits, const struct twi_limits_error *error) {
    struct twi_limits_table *table, *old = twi_load_relaxed(&limits->current); /* only the reloading thread writes it */
    tw_status status = table_read(error, &table);
    if (status != TW_OK) return status;
    status = check_families(old, table, error);
    if (status == TW_OK) status = handles_carry(limits, old, table);
    if (status == TW_OK) status = budgets_apply(limits, table, error);
    if (status != TW_OK) {
        handles_free(table, old != NULL ? old->name_count : 0);
        twi_limits_table_free(table);
        return status;
    }
    twi_store_seqcst(&limits->current, table); /* V3, with V2 */
    wait_for_readers(limits->gate);
    twi_limits_table_free(old);
    return TW_OK;
}

tw_status tw_limits_reload(tw_limits *limits, char *error_text, size_t error_size) {
    TWI_NEED(limits);
    struct twi_limits_error error = {limits->path, error_text, error_size};
    uint32_t nobody = 0;
    if (!twi_cas_acqrel(&limits->gate->reloading, &nobody, 1))
        return TW_PENDING; /* V6, with V7, so that the previous reload is complete */
    tw_status status = reload(limits, &error);
    twi_store_release(&limits->gate->reloading, 0); /* V7 */
    return status;
}

/* ---- life ---- */

static void gate_clear(void *pages, size_t bytes) {
    memset(pages, 0, bytes);
}

static bool gate_make(tw_limits *limits) {
    void *pages;
    long page_bytes = sysconf(_SC_PAGESIZE);
    limits->gate_bytes = page_bytes > (long)sizeof(struct gate) ? (size_t)page_bytes : sizeof(struct gate);
    if (posix_memalign(&pages, limits->gate_bytes, limits->gate_bytes) != 0) return false;
    memset(pages, 0, limits->gate_bytes);
    limits->gate = pages;
    return twi_wiped_on_fork(pages, limits->gate_bytes, gate_clear);
}

static void limits_drop(tw_limits *limits) {
    if (limits->gate != NULL) twi_wiped_forget(limits->gate, limits->gate_bytes); /* the memory goes back to malloc */
    free(limits->gate);
    struct twi_limits_table *table = twi_load_relaxed(&limits->current);
    handles_free(table, 0);
    twi_limits_table_free(table);
    free(limits->path);
    free(limits);
}

tw_status tw_limits_open(tw_engine *engine, const char *path, char *error_text, size_t error_size, tw_limits **out) {
    TWI_NEED(engine);
    TWI_NEED(path);
    TWI_NEED_AS(out, "limits");
    struct twi_limits_error error = {path, error_text, error_size};
    tw_limits *limits = calloc(1, sizeof *limits);
    if (limits == NULL) return twi_refuse(TW_ERR_MEMORY, NULL);
    limits->engine = engine;
    limits->path = strdup(path);
    tw_status status =
        limits->path != NULL && gate_make(limits) ? reload(limits, &error) : twi_refuse(TW_ERR_MEMORY, NULL);
    if (status == TW_OK) {
        *out = limits;
    } else {
        limits_drop(limits);
    }
    return status;
}

tw_status tw_limits_close(tw_limits *limits) {
    for (uint32_t i = 0; limits != NULL && i < limits->opened_count; i++) {
        tw_status status = tw_family_close(limits->opened[i].family);
        if (status != TW_OK) return status; /* in a hook, in which the first such call returns that status */
    }
    if (limits != NULL) limits_drop(limits);
    return TW_OK;
}
