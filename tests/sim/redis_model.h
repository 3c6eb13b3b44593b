/* redis_model.h -- a small, obvious Redis: the commands that sync/ sends, and a second implementation of
 * sync/script/batch.lua. tests/redis/scripts/script_model.c runs the same operations on it and on a real server.
 * Always true: the whole state is one flat struct, so a snapshot is a copy, and going back is another copy. */
#ifndef TEST_REDIS_MODEL_H
#define TEST_REDIS_MODEL_H

#include "sync/wire/wire.h"

#define MODEL_KEYS 512
#define MODEL_NAME_MAX 96
#ifndef MODEL_NODES /* another program may have more */
#define MODEL_NODES 16
#define MODEL_LIVE 64
#endif
#define MODEL_SLOTS 8
#define MODEL_LEDGERS 96
#define MODEL_ITEMS 320 /* of a batch, at most */
#define MODEL_BORN 512

/* A hash or a sorted set has its expiry; each of its values is a separate key, without one, that is named by
 * redis_model_inner(). Such a key lives and dies with the hash or sorted set, and is no key of Redis. */
enum model_type { MODEL_NONE, MODEL_INTEGER, MODEL_TEXT, MODEL_LIST, MODEL_LEDGER, MODEL_HASH, MODEL_ZSET };
#define MODEL_INSIDE '\x1f' /* between a name and what is inside */

/* What the script has replied so far. */
enum model_edge {
    MODEL_OK,
    MODEL_DUP,
    MODEL_DUP_NOT_DONE,
    MODEL_GAP,
    MODEL_PAST,
    MODEL_KEPT,
    MODEL_GONE_KNOWN, /* evicted */
    MODEL_GONE_UNBORN,
    MODEL_GONE_NO_MARKER,
    MODEL_CLASH_NONCE,
    MODEL_CLASH_OPENING,
    MODEL_OPENED,
    MODEL_REFUSED,
    MODEL_NOSCRIPT,
    MODEL_EVAL,
    MODEL_ITEM_LATE,
    MODEL_ITEM_FAILED,
    MODEL_ITEM_FAILED_BEFORE,
    MODEL_ITEM_LATE_BEFORE,
    MODEL_ITEM_INSIDE, /* of a hash or a sorted set */
    MODEL_ITEM_HEALED,
    MODEL_MARKER_MADE,
    MODEL_EMPTY_BATCH,
    MODEL_DENIED_NOTHING, /* a refusal instead of GAP, GONE or CLASH */
    MODEL_EDGES
};

struct model_ledger {
    uint64_t number, plus, minus;
    struct {
        uint64_t number;
        char nonce[20];
        bool done;
        char failed[MODEL_ITEMS]; /* one letter an item: '.', 'e', 'l' */
        uint32_t items;
    } slots[MODEL_SLOTS];
};

struct model_key {
    uint32_t hash; /* of the name */
    char name[MODEL_NAME_MAX];
    enum model_type type;
    int64_t value; /* of a ledger: which of the store's ledgers it is; of a marker: when it was made */
    char text[40];
    int64_t expiry_ms; /* 0: none */
    int64_t survivors; /* of a marker: how many keys the slot may have kept, where a slot was given; else -1 */
};

/* What each node's batches did to a key, regardless of its expiry; only the tests look at this. */
struct model_book {
    uint32_t hash; /* of the name */
    char name[MODEL_NAME_MAX];
    int64_t applied[MODEL_NODES];
};

/* One engine in the registry of live engines. */
struct model_live {
    char instance[40];
    int64_t until_ms; /* 0: free */
};

/* The caller that copies this decides what survives. */
struct model_store {
    struct model_book books[MODEL_KEYS];
    struct model_key keys[MODEL_KEYS];
    size_t keys_end; /* all keys are below this index */
    struct model_ledger ledgers[MODEL_LEDGERS];
    struct {
        char id[40];     /* "": free */
        uint32_t marker; /* the hash of the marker's name */
    } born[MODEL_BORN];  /* instances that the markers know */
    struct model_live live[MODEL_LIVE];
};

struct model_word {
    const char *data;
    size_t size;
};

struct redis_model {
    struct model_store store;
    int64_t now_ms; /* TIME */
    bool has_script, has_live_script;
    const char *refuses;  /* NULL, or the error that a script's first write gets ("OOM ...") */
    int run;              /* of INFO's run_id: a different one after each start */
    int history;          /* of INFO's master_replid: a different one after each start and each promotion */
    bool is_replica;      /* INFO reports it, and the script denies nothing */
    bool is_writable;     /* and it accepts writes all the same */
    const char *policy;   /* maxmemory_policy of INFO; NULL: INFO is forbidden */
    const char *password; /* NULL: none is required */
    size_t items_max;     /* the script ends after this many items; SIZE_MAX: never */
    bool was_cut_short;   /* it has */
    int node;             /* the node that the command runs for */
    uint64_t rewrites;    /* rewrites of the append-only file that were requested */
    uint64_t edges[MODEL_EDGES];
    uint64_t applications; /* batches applied, without empty ones */
    /* NULL, or a function that answers some commands first; for all others it returns false and does nothing. */
    bool (*beside)(struct redis_model *model, const struct model_word *words, size_t count, struct twi_bytes *reply);
    void (*on_refusal)(const char *name); /* NULL, or is told of each item that is refused */
};

void redis_model_init(struct redis_model *model);
/* Runs one command; the reply's bytes are added to `reply`. */
void redis_model_run(struct redis_model *model, const struct model_word *words, size_t count, struct twi_bytes *reply);
/* Takes a complete command from the front of `bytes`: returns true, `*count` words that point into it, and its size in
 * bytes. Returns false if it is not complete yet. */
bool redis_model_parse(const char *bytes, size_t size, struct model_word *words, size_t words_max, size_t *count,
                       size_t *used);
struct model_key *redis_model_find(struct redis_model *model, const char *name); /* NULL: missing or expired */
/* The name of a hash's field, or of a sorted set's member: name, MODEL_INSIDE, inner. */
void redis_model_inner(const char *name, const char *inner, char out[MODEL_NAME_MAX]);
bool redis_model_is_inner(const char *name);
/* Of such a name: how long the name of the hash or sorted set is, and that key. Of any other: all of it. */
size_t redis_model_outer(const char *name);
struct model_key *redis_model_find_outer(struct redis_model *model, const char *name);
/* The value there; NULL: none, or the name has another type. */
struct model_key *redis_model_find_inner(struct redis_model *model, const char *name, const char *inner);
/* Makes it, and the hash or sorted set of that type. */
struct model_key *redis_model_make_inner(struct redis_model *model, const char *name, enum model_type type,
                                         const char *inner, enum model_type value_type);
struct model_key *redis_model_make(struct redis_model *model, const char *name, enum model_type type);
int64_t redis_model_applied(const struct redis_model *model, const char *name, int node);
uint64_t redis_model_number(struct redis_model *model, const char *ledger_name); /* 0: no such ledger */
/* The marker forgets the instance of that ledger. */
void redis_model_unborn(struct redis_model *model, const char *ledger_name);
void redis_model_delete_ledgers(struct redis_model *model);
/* The key goes from one Redis to another, as MIGRATE does it: with its expiry, its book, and all that a ledger or a
 * marker holds. False: it is not there. */
bool redis_model_move(struct redis_model *from, struct redis_model *to, const char *name);
/* The books of a slot's keys go along; those of keys that have expired do so last. */
void redis_model_move_books(struct redis_model *from, struct redis_model *to, uint32_t slot);
/* Another engine with the same identity writes the next number, without counts. */
void redis_model_twin(struct redis_model *model, const struct model_key *ledger);
extern const char *const redis_model_edge_names[MODEL_EDGES];
void redis_model_wipe(struct redis_model *model);
/* The same of what lies in one key slot: it is empty, or becomes what it was then, or loses its ledgers. */
void redis_model_wipe_slot(struct redis_model *model, uint32_t slot);
void redis_model_slot_goes_back(struct redis_model *model, const struct model_store *before, uint32_t slot);
void redis_model_slot_loses_ledgers(struct redis_model *model, uint32_t slot);

#endif
