/* extras.h -- the contract between the engine and extras/: the counters of a file (extras/save.c), and the code that
 * answers on the engine's watch socket (extras/watch.c).
 * Always true: nothing of the engine opens such a file or socket. The code of extras/ sees the engine only through this
 * header and the public one. */
#ifndef TWI_PORT_EXTRAS_H
#define TWI_PORT_EXTRAS_H

#include "tallywheel.h"

/* ---- saved counters ----
 * the engine shows the counters that belong into a file (tw_save(), tw_load()), and takes those of a file. How the file
 * looks is not its concern.
 * Always true: a family that is shown, or was found for a file, is not freed meanwhile.
 * Threads: any, one at a time for each visit and each loading. */

/* What decides which windows a family has, and what its counts mean. Counters go into a family with the same name and
 * the same values only. engine/save.c has the names of the fields. */
#define TWI_SAVED_FIELDS 9u
struct twi_saved_family {
    char name[65];
    int64_t fields[TWI_SAVED_FIELDS];
};

/* What the closing hook of the process that counted a window has got. */
enum twi_saved_report {
    TWI_UNREPORTED,    /* nothing yet, or a part: who loads the window reports it as final */
    TWI_REPORTED,      /* all of it, as final: the window is saved for a sliding limit alone */
    TWI_REPORT_UNKNOWN /* a file of format 1 does not say it */
};

/* Is called in this order: families, which have numbers from 0 on, then windows, each with its counters, then finish(),
 * if nothing has failed. A window, and a counter of it, may come several times: counts add up. A key of size 0 is the
 * overflow counter. Outside of any section. Each returns false to end the visit. */
struct twi_save_visitor {
    void *ctx;
    bool (*family)(void *ctx, const struct twi_saved_family *family);
    bool (*window)(void *ctx, uint32_t family, int64_t start_ms, enum twi_saved_report report);
    bool (*counter)(void *ctx, tw_key key, int64_t count);
    /* Returns true if the file is whole and at its place. From then on its windows are PARTIAL in this process. */
    bool (*finish)(void *ctx);
};

/* Shows the engine's counters as tw_save() promises. TW_OK also if the visitor ended it. Otherwise it is a refusal with
 * its reason, before the first call of the visitor, or TW_ERR_MEMORY. If all was shown and finish() returned true,
 * tw_error_text() and a line of the log name the families that were left out. */
tw_status twi_save_visit(tw_engine *engine, const struct twi_save_visitor *visitor);

/* Loading: first all families, windows and counters of the file are checked, then its windows and counters come once
 * more and are counted. */

struct twi_loading;
tw_status twi_load_begin(tw_engine *engine, struct twi_loading **loading);
/* The next family. Refused if it is not open, not alike, or has counted. */
tw_status twi_load_family(struct twi_loading *loading, const struct twi_saved_family *saved);
/* The window of the next counters. Refused if there is no such family or window. */
tw_status twi_load_window(struct twi_loading *loading, uint32_t family, int64_t start_ms, enum twi_saved_report report);
/* Refused if the family could not have such a counter, or if its window lies too far ahead. */
tw_status twi_load_check(struct twi_loading *loading, tw_key key, int64_t count);
tw_status twi_load_add(struct twi_loading *loading, tw_key key, int64_t count);
/* Ends it. After an error no count has changed, and it may be repeated. TW_OVERFLOWED if some counts are in an overflow
 * counter because there was no room for their keys; otherwise `status`. */
tw_status twi_load_end(struct twi_loading *loading, tw_status status);

/* ---- the watch socket ----
 * tw_options.watch_path. The engine calls the functions of this struct.
 * Always true: the code only reads, and changes no state, but for tw_reset() where the host allows it. It runs on a
 * separate thread. No caller and no turn waits for this thread. A lock is held only while some families are copied. */

#define TWI_WATCH_PATH_MAX 107u /* the most bytes of the path of a unix socket */

struct twi_watch_server {
    /* Opens the socket and starts the thread. `writes`: clients may reset a key. Returns NULL if the path or the system
     * refuses it. `why` then contains the reason. */
    struct tw_watch *(*open)(tw_engine *engine, const char *path, bool writes, char *why, size_t why_size);
    /* Ends the thread and removes the socket. It waits for a reply that is being made, not for its reader. */
    void (*close)(struct tw_watch *watch);
    /* Called in a forked child, which has no such thread. It frees the inherited memory. fork() has closed the
     * descriptors, and the socket still belongs to the parent. */
    void (*abandon)(struct tw_watch *watch);
};

/* extras/watch.c defines it. The engine finds that file only with this function. */
const struct twi_watch_server *twi_watch_find(void);

/* Functions of the engine that this code calls, besides the public ones. engine/stats.c defines all but
 * twi_watch_read() (engine/count/walk.c). */

struct twi_watch_family {
    char name[65];
    uint32_t kind, window, limit_mode, redis_shape; /* as in tw_family_options */
    int64_t window_ms;                              /* 0 in families with endless and calendar windows */
    int64_t start_ms, end_ms; /* of the current window; 0 and TW_UNBOUNDED if the keys have no common one */
    int64_t windows, keys;    /* held */
    int64_t admitted, denied, near, shadow_denied; /* the calls of its limits */
};

/* Lists the open families, sorted by name. The caller must free the list. Returns false if there is no memory. Then
 * *list is NULL. If a family was held, it is released. */
bool twi_watch_families(tw_engine *engine, struct twi_watch_family **list, size_t *count);
/* Holds the family of that name. It is not freed before twi_watch_let_go(), even if its user closes it meanwhile.
 * Returns NULL if there is no such family. Only one family is held at a time. */
tw_family *twi_watch_hold(tw_engine *engine, const char *name);
void twi_watch_let_go(tw_engine *engine);
uint32_t twi_watch_kind(const tw_family *family); /* as in tw_family_options */
/* Whether the units of its limits are in leases, which tw_reset() leaves as they are: hard limits with Redis. */
bool twi_watch_has_leases(const tw_family *family);
tw_engine *twi_watch_engine(const tw_family *family);
const char *twi_watch_name(const tw_family *family); /* valid as long as the family is open */
/* Describes one family, which stays open meanwhile. Returns false if there is no memory for this thread. */
bool twi_watch_describe(tw_family *family, struct twi_watch_family *out);
/* Reads one key's counter in the open window, as tw_top() shows it, but for count->error. It makes no counter, and asks
 * Redis for nothing. *known is false if there is no counter. Returns the same as tw_get(). */
tw_status twi_watch_read(tw_family *family, tw_key key, tw_count *count, bool *known);
int64_t twi_watch_mono_ms(void); /* the system's clock, for deadlines */
int64_t twi_watch_now_ms(tw_engine *engine);
/* Returns how long ago tw_stats.last_error was noted. -1 means that no error was noted. */
int64_t twi_watch_last_error_age_ms(tw_engine *engine);

#endif
