/* wire.h -- the bytes of the Redis protocol, commands out and replies in.  Steps 4 and 6 of the flow.
 * No sockets, no clock, no globals. wire.c is the one file that includes hiredis.
 *
 * Always true: a command is made of counted arguments, never of a format. Bounds on bytes, elements and depth apply
 * before a reply is complete, so a hostile server costs a dropped connection and no more. */
#ifndef TWI_SYNC_WIRE_WIRE_H
#define TWI_SYNC_WIRE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- bytes that grow --------------------------------------------------------------------------------------------- */

/* A buffer that grows. If it cannot grow, `failed` stays set, so the caller checks once after several appends. A NUL
 * follows the bytes that were added last. */
struct twi_bytes {
    char *data;
    size_t size, room;
    bool failed;
};

void twi_bytes_add(struct twi_bytes *bytes, const void *data, size_t size);
void twi_bytes_drop_front(struct twi_bytes *bytes, size_t size);
void twi_bytes_free(struct twi_bytes *bytes);
/* Empties the buffer and overwrites all of its memory, because passwords pass through it. The buffer stays usable. */
void twi_bytes_wipe(struct twi_bytes *bytes);

/* The text and the SHA-1 of a script. A Redis that has the script cached runs it by the SHA-1. */
struct twi_script_source {
    const char *text, *sha1;
};

/* ---- commands ---------------------------------------------------------------------------------------------------- */

void twi_wire_begin(struct twi_bytes *out, size_t argument_count); /* then exactly that many calls of: */
void twi_wire_put(struct twi_bytes *out, const void *data, size_t size);
void twi_wire_put_text(struct twi_bytes *out, const char *text);
/* Begins a call of a script by its SHA-1, or with its text if Redis may not have it cached (`eval`). Exactly `count`
 * puts must follow: the number of keys, the keys, the arguments. */
void twi_wire_begin_script(struct twi_bytes *out, const struct twi_script_source *script, bool eval, size_t count);
void twi_wire_put_i64(struct twi_bytes *out, int64_t value);
void twi_wire_put_u64(struct twi_bytes *out, uint64_t value);

/* ---- replies ----------------------------------------------------------------------------------------------------- */

enum twi_wire {
    TWI_WIRE_DONE, /* a whole reply */
    TWI_WIRE_MORE, /* the bytes are kept; read more */
    TWI_WIRE_BAD   /* not the protocol, or past a bound; drop the connection, the outcome of its requests is unknown */
};

enum twi_node_type { TWI_NODE_NIL, TWI_NODE_INTEGER, TWI_NODE_STRING, TWI_NODE_STATUS, TWI_NODE_ERROR, TWI_NODE_ARRAY };

/* One element of a reply. The nodes have the order of the wire. An array comes first, then its elements, to any
 * depth. */
struct twi_node {
    enum twi_node_type type;
    uint32_t depth;   /* 0 for the reply itself */
    int64_t integer;  /* the value of an INTEGER; the number of elements of an ARRAY */
    const char *text; /* for STRING, STATUS and ERROR, `size` bytes and a NUL */
    size_t size;
};

struct twi_wire_limits {
    size_t bytes_max;   /* of one reply, on the wire */
    size_t nodes_max;   /* elements of one reply, of all depths */
    uint32_t depth_max; /* arrays within arrays */
};

struct twi_reader;
struct twi_reader *twi_reader_create(const struct twi_wire_limits *limits); /* NULL if there is no memory */
void twi_reader_free(struct twi_reader *reader);
/* Takes bytes that were received. Returns false if there is no memory, or more bytes are waiting than `bytes_max`. */
bool twi_reader_feed(struct twi_reader *reader, const void *data, size_t size);
/* Returns the next reply. Its nodes are valid until the next call with this reader. After BAD it always returns BAD. */
enum twi_wire twi_reader_next(struct twi_reader *reader, const struct twi_node **nodes, size_t *count);

/* Returns true if the text of the node is this word, or begins with this word and a space. */
bool twi_node_is(const struct twi_node *node, const char *word);
/* Reads an INTEGER, or a STRING of digits, as a whole number. Returns false if the node is neither. The unsigned form
 * reads a STRING only. */
bool twi_node_i64(const struct twi_node *node, int64_t *value);
bool twi_node_u64(const struct twi_node *node, uint64_t *value);
/* Does the same, but a number beyond a bound becomes the bound. Every number with which the engine computes is read
 * by one of these, because a reply may contain any number. The sum of three counts fits in 64 bits. */
#define TWI_NODE_COUNT_MAX ((INT64_C(1) << 61) - 1) /* TW_COUNT_MAX */
#define TWI_NODE_TIME_MAX_MS (INT64_C(1) << 50)     /* some 35,000 years since 1970 */
#define TWI_NODE_PAUSE_MAX_MS INT64_C(60000)        /* bound on a wrong value; only 60,000 engines need more */
bool twi_node_count(const struct twi_node *node, int64_t *count);  /* a number of units, within +-TWI_NODE_COUNT_MAX */
bool twi_node_time(const struct twi_node *node, int64_t *unix_ms); /* a moment: 0 .. TWI_NODE_TIME_MAX_MS */
/* Until the next try: 0 .. TWI_NODE_PAUSE_MAX_MS. */
bool twi_node_pause(const struct twi_node *node, int64_t *pause_ms);

/* ---- login ----
 * the user and password for a server, and the AUTH command with them.
 * Always true: a password is in no other memory than the caller's and `out`, which the caller wipes
 * once it was sent. */

#define TWI_PASSWORD_SIZE 1024 /* with its NUL */

/* The texts have another owner. All zero means that there is no login. */
struct twi_login {
    const char *user;                                   /* NULL or "": the default user */
    const char *password;                               /* NULL or "" if there is none, or if ask() gives it */
    int (*ask)(void *ctx, char *password, size_t size); /* writes a C string; returns its length, or -1. May be NULL */
    void *ask_ctx;
};

enum twi_login_put { TWI_LOGIN_FAILED = -1, TWI_LOGIN_NONE = 0, TWI_LOGIN_PUT = 1 };

/* FAILED means that the callback failed, or that its text is too long. NONE means that there is no password, so no
 * command was put. */
enum twi_login_put twi_login_put(const struct twi_login *login, struct twi_bytes *out);

#endif
