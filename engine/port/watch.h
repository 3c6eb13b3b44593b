/* watch.h -- the contract between the engine and the code that answers on its watch socket (tw_options.watch_path,
 * extras/watch.c).
 *
 * Always true: the code only reads, and changes no state, but for tw_reset() where the host allows it. It runs on a
 * separate thread. No caller and no turn waits for this thread. A lock is held only while some families are copied. */
#ifndef TWI_PORT_WATCH_H
#define TWI_PORT_WATCH_H

#include "tallywheel.h"

/* ---- functions that the engine calls ---- */

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

/* ---- functions of the engine that this code calls, also to the public ones; engine/stats.c defines all but
 * twi_watch_read() (engine/count/walk.c) ---- */

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
