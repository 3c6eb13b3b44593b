/* lanes.h -- the name and number under which Redis keeps a call. Each call under way has a lane with a separate name.
 *
 *   FREE --ask()--> QUEUED --> SENT --answered--> FREE
 *                               |--answered, but the caller may still go--> KEPT --the caller has it--> FREE
 *                               |                                             '--the caller has gone--> CANCELLING
 *                               '--no thread waits any more--> UNSETTLED --late reply, nothing charged--> FREE
 *                                                             '--> CANCELLING --answered--> FREE
 * A call that gives back has no cancel. In its place, CANCELLING, the same call goes out again (tries.repeats).
 * A call goes out under its lane's name "<16 digits>:<lane>" and a number; the scripts keep the last number of each
 * name (lanes.h). One counter gives the numbers of all lanes. A reply that is one place off can never pass for
 * another's. Free lanes are taken last in, first out, so few names are used.
 * Always true: a lane is not free while its call may have charged units that no caller received. The next call under
 * its name would hide that charge from the cancel. Memory is allocated at the first call, and freed only at the end.
 * Who may touch what: a free lane and the lists here are under the lock; a lane that ask() fills is the caller's; from
 * its submission on it is the driver's, except for `heard`, with which the answer and ask_forget() meet. A lane that is
 * KEPT is its caller's, from the answer on, until the caller frees it or submits it again. */
#ifndef TWI_SYNC_ASK_LANES_H
#define TWI_SYNC_ASK_LANES_H

#include "engine/port/driver.h"
#include "sync/wire/wire.h"
#include "engine/base/atomic.h"
#include "sync/ask/window.h"
#include "sync/wire/cluster_nodes.h"

#include <pthread.h>

/* ---- call text ----
 * calls and their replies as text: the commands of the scripts that callers wait for. Pure.
 *
 * Every script called here gets three arguments before its own:
 *   ARGV[1]  who calls: "<16 digits>:<lane>" (lanes.h)
 *   ARGV[2]  the number of the call and a nonce, "7:1f2e3d4c". Numbers of one lane rise. Two lives of one process,
 *            after a snapshot of its machine, may use the same name and number; their nonces differ
 *   ARGV[3]  "1" a request, "2" a repeated request, "0" a cancel
 * A cancel returns the charge of the call with this number. If that call comes late, it does nothing. The reply is a
 * flat array. Its first element is ARGV[2].
 * Always true: a reply counts only for the call whose number and nonce it has. */

enum twi_call_verb { TWI_CALL_CANCEL, TWI_CALL_ASK, TWI_CALL_RETRY };

#define TWI_CALL_WHO_SIZE 24    /* with its NUL */
#define TWI_CALL_SERIAL_SIZE 32 /* with its NUL */

/* One call, in the form that all its commands use. */
struct twi_call_text {
    enum twi_script script;
    bool wants_long;
    size_t words;          /* the arguments of a command, without the first two (twi_wire_begin_script()) */
    struct twi_bytes body; /* these words, with a verb that is put in last */
    size_t who_at, own_at; /* in the body: the first argument of the script, and the fourth */
    char serial[TWI_CALL_SERIAL_SIZE];
};

/* Writes the text, for a first request. The text's memory is used again. Sets `body.failed` if there is no memory. */
void twi_call_write(struct twi_call_text *text, const struct twi_request *request, const char *who, uint64_t number,
                    uint32_t nonce);
/* Writes the same call under another name and number. */
void twi_call_rename(struct twi_call_text *text, const char *who, uint64_t number, uint32_t nonce);
/* Appends a command to `out`. If `whole` is true, the command contains the script's text. If `asking` is true, ASKING
 * comes first, so there are two replies. */
void twi_call_put(struct twi_bytes *out, struct twi_call_text *text, enum twi_call_verb verb, bool whole, bool asking);
/* Reads a reply. Returns false if it is not a reply to the call. */
bool twi_call_read(const struct twi_node *nodes, size_t count, const struct twi_call_text *text,
                   struct twi_answer *answer);
/* Returns true if the first element of an answer is this word. */
bool twi_call_says(const struct twi_answer *answer, const char *word);
/* Returns true if the reply shows that the request has not charged, and that no copy of it will. */
bool twi_call_charged_nothing(const struct twi_answer *answer);
/* The keys of a call. They are in its text. Returns how many. */
size_t twi_call_keys(const struct twi_call_text *text, tw_key *keys, size_t most);

#define TWI_LANES_MAX 65536u
#define TWI_LANES_SLAB 64u

enum twi_lane_state {
    TWI_LANE_FREE,
    TWI_LANE_QUEUED,
    TWI_LANE_SENT,
    TWI_LANE_KEPT,
    TWI_LANE_UNSETTLED,
    TWI_LANE_CANCELLING
};

struct twi_lane;
struct twi_lane_waiter; /* a caller that waits for one (lanes.c) */
struct twi_link;

/* Who waits for the answer. */
struct twi_lane_caller {
    void (*answered)(void *ctx, struct twi_answer *answer);
    void *ctx;
    uint64_t number;               /* that ask() answers */
    int64_t began_ms, deadline_ms; /* the deadline by the dispatcher's own time (dispatcher.c) */
    int64_t time_ms;               /* from the one to the other */
    uint32_t at;                   /* in the heap of deadlines; TWI_LANES_MAX means not in it */
};

/* Which parts of the call have gone out. */
struct twi_lane_tries {
    uint64_t end_at;             /* the end of the last copy, as a position in the bytes of its link */
    struct twi_window_mark mark; /* of the last copy */
    bool perhaps;                /* a copy before it may have been executed */
    bool whole;                  /* the script's text was sent with it */
    bool asking;                 /* it is or was sent after ASKING */
    bool asked;                  /* ASKING was answered */
    bool numbered;               /* a cancel must be sent, because units may have been charged for nobody */
    int64_t units;               /* so many, at most */
    bool keeps;                  /* after an answer, too, until its caller has it */
    bool settles;                /* it ends what another call has taken */
    bool repeats;                /* it needs no cancel: the same request goes out until it is answered */
    bool unknown;                /* its caller was answered UNKNOWN */
    bool is_new;                 /* nobody tried to send it */
    uint8_t renamed;             /* how often */
    int64_t pause_ms, again_ms;  /* the latest pause before another try, and when it ends */
};

struct twi_lane {
    uint32_t index;
    enum twi_lane_state state;
    _Atomic uint64_t heard; /* the caller's number; 0 means that no thread waits for the answer */
    struct twi_call_text text;
    struct twi_lane_caller caller;
    struct twi_lane_tries tries;
    void (*then)(tw_engine *engine, tw_key key, const struct twi_answer *answer, const struct twi_next *next);
    uint32_t slot; /* in a cluster */
    struct twi_detour detour;
    struct twi_link *link;          /* the link where it waits or was sent; NULL means that it is paused */
    struct twi_lane *next, *before; /* of the list that it is in */
};

/* It was sent before, or ends what another call has taken. */
static inline bool twi_lane_goes_first(const struct twi_lane *lane) {
    return lane->tries.mark.place != 0 || lane->tries.settles;
}

struct twi_lane_list {
    struct twi_lane *first, *last;
    struct twi_lane *last_first; /* the last of the lanes that go first; NULL means that there is none */
    uint32_t count;
};
void twi_lane_list_add(struct twi_lane_list *list, struct twi_lane *lane);
/* Puts a lane that goes first in front of those that do not, and behind the others like it. */
void twi_lane_list_add_first(struct twi_lane_list *list, struct twi_lane *lane);
void twi_lane_list_remove(struct twi_lane_list *list, struct twi_lane *lane);
/* Puts the lanes of `front`, which go first, in front of those of `list`, and empties `front`. */
void twi_lane_list_put_before(struct twi_lane_list *list, struct twi_lane_list *front);

struct twi_lanes {
    tw_engine *engine;
    uint32_t most;
    pthread_mutex_t lock;
    struct twi_lane **slabs;      /* NULL means no call yet. Under the lock, like all fields up to `heap` */
    uint32_t made;                /* lanes */
    struct twi_lane *free_lanes;  /* linked by `next` */
    struct twi_lane_list arrived; /* submitted, and not yet received by the driver */
    struct twi_lane_waiter *first_waiter, *last_waiter;
    char name[17];
    uint64_t numbers;
    struct {
        uint64_t state;
        int64_t random_us; /* when random bytes went into it last; 0 means never */
    } nonce;
    bool is_stopped;
    struct twi_lane **heap; /* callers' deadlines. The driver's */
    uint32_t heap_count;
    _Atomic uint32_t taken; /* lanes that are not free */
    /* those of them whose call gives back and has no caller any more. The driver's; a caller reads it as a hint */
    _Atomic uint32_t giving;
};

void twi_lanes_begin(struct twi_lanes *lanes, tw_engine *engine, uint32_t most);
void twi_lanes_end(struct twi_lanes *lanes); /* no lane is used any more */

/* ---- callers: any thread ---- */

/* Takes a lane and writes the call's text. Returns NULL on failure; *why then has the reason. */
struct twi_lane *twi_lanes_take(struct twi_lanes *lanes, const struct twi_request *request,
                                enum twi_request_outcome *why);
/* Gives it to the driver. From here on the caller does not touch it. Returns true if the driver has to be woken. */
bool twi_lanes_submit(struct twi_lanes *lanes, struct twi_lane *lane);
bool twi_lanes_forget(struct twi_lanes *lanes, uint64_t number);
/* Returns the lane that has or had the call with this number; or NULL. */
struct twi_lane *twi_lanes_of(struct twi_lanes *lanes, uint64_t number);
/* From now on no caller gets a lane. Callers that wait for one wake up. */
void twi_lanes_stop(struct twi_lanes *lanes);

/* ---- the driver ---- */

/* Moves the submitted lanes into an empty list. */
void twi_lanes_arrived(struct twi_lanes *lanes, struct twi_lane_list *list);
/* Makes the lane free. Its memory is as it was after its submission. */
void twi_lanes_release(struct twi_lanes *lanes, struct twi_lane *lane);
/* Gives the call another name, which all later calls of the lane have, too. Returns false if there is no memory. */
bool twi_lanes_rename(struct twi_lanes *lanes, struct twi_lane *lane);
/* The lane has another call from now on, which follows on its own. Returns false if there is no memory. */
bool twi_lanes_rewrite(struct twi_lanes *lanes, struct twi_lane *lane, const struct twi_request *request);
/* Returns true if a caller still waits for the answer. It returns true at most once for a call. The code that called
 * this function must then give that caller the answer. */
bool twi_lanes_claim(struct twi_lanes *lanes, struct twi_lane *lane);
void twi_lanes_time(struct twi_lanes *lanes, struct twi_lane *lane); /* puts the lane into the heap */
/* Returns the lane with the first deadline. Returns NULL if there is no such lane. */
struct twi_lane *twi_lanes_first(const struct twi_lanes *lanes);

#endif
