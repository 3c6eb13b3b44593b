/* redis_server.h -- a real redis-server of the test's own, on a unix socket in a fresh folder. It is the first
 * `redis-server` of PATH: scripts/servers.sh makes folders with others.
 * Always true: it ends with the test (PR_SET_PDEATHSIG, and atexit), and its folder is removed with it. */
#ifndef TEST_REDIS_SERVER_H
#define TEST_REDIS_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct redis_server {
    char folder[64]; /* data, log and socket live here */
    char socket[96];
    char url[128];            /* unix://... for tw_options.redis_url */
    int port;                 /* 0: unix socket only */
    int tls_port;             /* 0: none */
    pid_t pid;                /* 0: not running */
    bool asking;              /* redis_server_ask() sends ASKING first: a slot that is on its way here is served */
    char config[128];         /* a sentinel: its configuration file; "": no sentinel */
    const char *const *extra; /* further arguments of redis-server, NULL-terminated; kept for restarts */
};

/* Ends the program as skipped if redis-server is not installed; call it first in main(). */
void redis_server_require(void);
/* Valkey counts with its own number. For what older servers do not have, or do in another way. */
bool redis_server_is_at_least(int major, int minor);
/* For ACL SETUSER: "resetchannels", or where there are no permissions for channels a word that changes nothing. */
const char *redis_server_no_channels(void);
/* Starts it and waits until it replies; fails the test if it does not within 10 s. `extra`: NULL, or arguments such as
 * "--appendonly", "yes", NULL (they must outlive the server). */
void redis_server_start(struct redis_server *server, const char *const *extra);
/* The same, listening also on a free loopback port (server->port). */
void redis_server_start_tcp(struct redis_server *server, const char *const *extra);
/* The same with another port where TLS is spoken (server->tls_port): `extra` has "--tls-cert-file" and its kin. */
void redis_server_start_tls(struct redis_server *server, const char *const *extra);
/* A sentinel on that loopback port, with these lines of configuration. False: it does not answer, for example because
 * the port is in use. */
bool redis_server_start_sentinel(struct redis_server *server, int port, const char *lines);
int redis_server_free_port(void); /* a loopback port that is free now */
/* The same on these ports (tls_port 0: no TLS). False: it does not come up there, so a port may be in use; nothing is
 * left of it. */
bool redis_server_start_at(struct redis_server *server, int port, int tls_port, const char *const *extra);
void redis_server_stop(struct redis_server *server);    /* SHUTDOWN (saves if it is configured to); data stays */
void redis_server_kill(struct redis_server *server);    /* kill -9; data stays */
void redis_server_restart(struct redis_server *server); /* starts again over the same data, same socket and port */
void redis_server_pause(struct redis_server *server);   /* SIGSTOP: the socket stays open, but gets no replies */
void redis_server_resume(struct redis_server *server);
void redis_server_destroy(struct redis_server *server); /* kills it and removes the folder */

/* Runs one command (words, NULL-terminated) on a connection of its own. Returns the reply as text: lines for array
 * elements, "" for nil, "ERR ..." for errors. Static storage, valid until the next call; not for several threads. */
const char *redis_server_ask(struct redis_server *server, ...) __attribute__((sentinel));
/* The same with the words in an array. */
const char *redis_server_ask_words(struct redis_server *server, const char *const *words, size_t count);
int64_t redis_server_get(struct redis_server *server, const char *key);    /* GET as a number; 0 for a missing key */
int64_t redis_server_expiry(struct redis_server *server, const char *key); /* ms; -1: none; -2: no such key */

#endif
