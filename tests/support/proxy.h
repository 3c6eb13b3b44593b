/* proxy.h -- a faulty network in front of a real redis-server. It recognizes requests and replies, and applies the
 * faults that a test orders. One thread, loopback TCP towards the client, a unix socket towards Redis.
 *
 * Orders and random faults affect only batches (EVALSHA, EVAL); the handshake passes. Always true: the bytes of one
 * connection keep their order. After a fault that loses bytes, nothing more passes in that direction, as with TCP. */
#ifndef TEST_PROXY_H
#define TEST_PROXY_H

#include "tests/support/redis_server.h"

#define PROXY_SERIAL "\1"

enum proxy_fault {
    PROXY_PASS,
    PROXY_DROP_REQUEST, /* never executed; the connection ends */
    PROXY_DROP_REPLY,   /* executed; the connection ends */
    PROXY_LOSE_REQUEST, /* never executed; nothing is closed: silence from here on */
    PROXY_LOSE_REPLY,   /* executed; silence from here on */
    PROXY_CUT_REQUEST,  /* `at` bytes of it arrive, then both ends are closed */
    PROXY_CUT_REPLY,    /* executed; `at` bytes of the reply arrive, then the connection ends */
    PROXY_DRIP,         /* executed; the reply comes byte by byte, one every `at` ms */
    PROXY_GARBAGE,      /* executed; `text` comes in place of the reply */
    PROXY_ANSWER,       /* never executed; `text` comes as the reply, and the connection goes on. PROXY_SERIAL in it
                           is the number of the call that it replies to, as it was sent */
    PROXY_TWICE,        /* executed; the reply comes twice */
    /* the connection ends for the client; the request is executed on the old one after a later batch was answered */
    PROXY_HOLD,
    PROXY_RESET,     /* executed; RST in place of the reply */
    PROXY_RUN_FIRST, /* the inline command `text` runs just before it, unnoticed */
    /* never executed; the error `text` comes as the reply, with the key slot of the request's first key for the first
     * "%u" in it; and the connection continues. NULL: one of proxy_redirects(), by chance */
    PROXY_REDIRECT,
    PROXY_FAULTS
};

enum proxy_manner {
    PROXY_OPEN,
    PROXY_REFUSE, /* new connections are reset at once */
    PROXY_SILENT, /* new connections are accepted, and get no replies */
};

struct proxy_order {
    enum proxy_fault fault;
    uint32_t skip, times; /* the next `skip` batches pass, the `times` after them have the fault (0: one) */
    size_t at;
    const char *text; /* must outlive the order */
    size_t text_size; /* 0: strlen(text) */
};

/* What the proxy has seen since its start. */
struct proxy_seen {
    int64_t connections, requests, replies; /* requests and replies: batches only */
    int64_t evals;                          /* requests with the script's text */
    int64_t happened[PROXY_FAULTS];
    int64_t same_again; /* requests equal to the last one that had a fault, from the number of keys on */
    int64_t late;       /* held requests executed late */
    char late_answer[16];
    int64_t fault_ms, ended_ms;        /* test_mono_ms() of the last fault, and of the client's close after it */
    size_t request_bytes, reply_bytes; /* of the last batch that passed */
    char ledger[200];                  /* KEYS[1] of the last batch */
    int64_t maps;                      /* CLUSTER SLOTS, also those that were answered here */
};

struct proxy; /* opaque; everything below may be called from any thread */

struct proxy *proxy_start(const struct redis_server *server, uint64_t seed);
void proxy_stop(struct proxy *proxy); /* closes every connection and frees it */
const char *proxy_url(const struct proxy *proxy);

void proxy_order(struct proxy *proxy, const struct proxy_order *order); /* replaces the order before it */
void proxy_chance(struct proxy *proxy, enum proxy_fault fault, uint32_t of_10000);
void proxy_manner(struct proxy *proxy, enum proxy_manner manner);
void proxy_lead_to(struct proxy *proxy, const struct redis_server *server); /* new connections go there */
/* Closes all connections without a message; returns when they are closed. */
void proxy_cut_all(struct proxy *proxy);
/* sends this to every client, unrequested */
void proxy_say(struct proxy *proxy, const char *text);
/* From now on, requests that name the ledger `from` name `to` (of equal length) instead; NULL: stops this. */
void proxy_impersonate(struct proxy *proxy, const char *from, const char *to);
/* From now on, only requests that contain this text count as batches, for orders, random faults and proxy_seen; NULL:
 * all. */
void proxy_only(struct proxy *proxy, const char *text);
/* From now on CLUSTER SLOTS is not executed. These bytes are the reply. They must outlive that. NULL: stops this. */
void proxy_map(struct proxy *proxy, const char *reply, size_t size);
/* What PROXY_REDIRECT draws from. The array must outlive the proxy. */
void proxy_redirects(struct proxy *proxy, const char *const *texts, size_t count);
struct proxy_seen proxy_look(struct proxy *proxy);

#endif
