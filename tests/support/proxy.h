/* proxy.h -- a network that lies, in front of a real redis-server: it understands where a request and a reply end, and
 * does to them what it is told. One thread, loopback TCP towards the client, a unix socket towards Redis.
 *
 * Orders and chances concern batches alone (EVALSHA, EVAL); greetings pass. Always true: bytes of one connection keep
 * their order, and after a fault that loses some of them nothing more passes in that direction, as with TCP. */
#ifndef TEST_PROXY_H
#define TEST_PROXY_H

#include "tests/support/redis_server.h"

enum proxy_fault {
    PROXY_PASS,
    PROXY_DROP_REQUEST, /* never executed; the connection ends */
    PROXY_DROP_REPLY,   /* executed; the connection ends */
    PROXY_LOSE_REQUEST, /* never executed; nobody is told: silence from here on */
    PROXY_LOSE_REPLY,   /* executed; silence from here on */
    PROXY_CUT_REQUEST,  /* `at` bytes of it arrive, then both ends are closed */
    PROXY_CUT_REPLY,    /* executed; `at` bytes of the reply arrive, then the connection ends */
    PROXY_DRIP,         /* executed; the reply comes byte by byte, one every `at` ms */
    PROXY_GARBAGE,      /* executed; `text` comes in place of the reply */
    PROXY_ANSWER,       /* never executed; `text` comes in place of the reply, and the connection goes on */
    PROXY_TWICE,        /* executed; the reply comes twice */
    PROXY_HOLD,      /* the connection ends for the client; executed on the old one once a later batch was answered */
    PROXY_RESET,     /* executed; RST in place of the reply */
    PROXY_RUN_FIRST, /* the inline command `text` runs just before it, unseen */
    PROXY_FAULTS
};

enum proxy_manner {
    PROXY_OPEN,
    PROXY_REFUSE, /* new connections are reset at once */
    PROXY_SILENT, /* new connections are accepted, and nothing more */
};

struct proxy_order {
    enum proxy_fault fault;
    uint32_t skip, times; /* the next `skip` batches pass, the `times` after them have the fault (0: one) */
    size_t at;
    const char *text; /* must outlive the order */
    size_t text_size; /* 0: strlen */
};

/* What it has seen, since its start. */
struct proxy_seen {
    int64_t connections, requests, replies; /* requests and replies: batches only */
    int64_t evals;                          /* requests with the script's text */
    int64_t happened[PROXY_FAULTS];
    int64_t same_again; /* requests equal, from the number of keys on, to the one that last had a fault */
    int64_t late;       /* held requests executed late */
    char late_answer[16];
    int64_t fault_ms, ended_ms;        /* test_mono_ms() of the last fault, and when the client then hung up */
    size_t request_bytes, reply_bytes; /* of the last batch that passed */
    char ledger[200];                  /* KEYS[1] of the last batch */
};

struct proxy; /* opaque; everything below may be called from any thread */

struct proxy *proxy_start(const struct redis_server *server, uint64_t seed);
void proxy_stop(struct proxy *proxy); /* closes every connection and frees it */
const char *proxy_url(const struct proxy *proxy);

void proxy_order(struct proxy *proxy, const struct proxy_order *order); /* in place of the order before it */
void proxy_chance(struct proxy *proxy, enum proxy_fault fault, uint32_t of_10000);
void proxy_manner(struct proxy *proxy, enum proxy_manner manner);
void proxy_lead_to(struct proxy *proxy, const struct redis_server *server); /* new connections go there */
void proxy_cut_all(struct proxy *proxy);                                    /* connections end, without a word */
void proxy_say(struct proxy *proxy, const char *text);                      /* unasked, to every client */
/* From now on requests that name the ledger `from` name `to` (of equal length) instead; NULL: no more of it. */
void proxy_impersonate(struct proxy *proxy, const char *from, const char *to);
/* From now on only requests that contain this are batches, for orders, chances and what is seen; NULL: all. */
void proxy_only(struct proxy *proxy, const char *text);
struct proxy_seen proxy_look(struct proxy *proxy);

#endif
