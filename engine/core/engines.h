/* engines.h -- the engines of this process, in a list of its own memory.
 *
 * Other processes can write everything that they share, also engine->here. So this list says whether a process has an
 * engine, whether it is alone with it, and how it leaves it without reading it.
 * Always true: nothing here follows a pointer in shared memory, except for an engine that no other process has yet. */
#ifndef TWI_CORE_ENGINES_H
#define TWI_CORE_ENGINES_H

#include "engine/core/state.h"

/* The strings among the options, of which the engine has copies. */
#define TWI_ENGINE_TEXTS(X) \
    X(redis_url) \
    X(redis_prefix) \
    X(metrics_labels) \
    X(watch_path) \
    X(sentinel_user) \
    X(redis_tls_ca_file) X(redis_tls_cert_file) X(redis_tls_key_file) X(redis_tls_server_name)

void twi_engines_add(tw_engine *engine);
void twi_engines_remove(const struct twi_here *here);
/* What this process has of the engine. NULL means that it has no such engine. In a forked child it first begins a new
 * process there. */
struct twi_here *twi_engines_find(const tw_engine *engine);
/* Calls `renew` for each engine, in a forked child, where the list's lock may be taken. */
void twi_engines_renew(void (*renew)(struct twi_here *here));
/* Returns true if no other process has the engine. */
bool twi_engines_is_alone(const struct twi_here *here);

/* For struct twi_supervising (memory/supervisor.h). */
bool twi_engines_may_supervise(void);
bool twi_engines_others_have_none(void);
/* Calls `join` for each engine of others that this process has not joined. */
void twi_engines_join_all(void (*join)(tw_engine *engine));

/* Leaves an engine that others may have written. Its memory is given back, and its descriptors are closed. */
void twi_engines_leave_unread(tw_engine *engine, struct twi_here *here);

/* A text may have a password. */
void twi_engines_free_text(const char *text);

#endif
