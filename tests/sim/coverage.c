/* coverage.c -- see coverage.h. */
#include "tests/sim/coverage.h"

#include <inttypes.h>

static const char *const event_names[SAW_EVENTS] = {
    "new instance: ledger evicted",
    "new instance: clash",
    "new instance: ledger ahead of us",
    "new instance: store unknown",
    "wipe seen",
    "rollback seen",
    "replay finished",
    "Redis from before our ledger",
    "poisoned key",
    "refusal logged",
    "reply not understood",
    "no answer in time",
    "units replayed",
    "units lost beyond the window",
    "units uncertain",
    "units restored",
    "window rolled over",
    "flush done",
    "flush refused",
    "breaker closed",
    "breaker open",
    "breaker trying",
};
static const char *const flight_names[FLIGHTS] = {
    "idle", "frozen", "sent", "applied", "adrift", "adrift+", "replay", "opening",
};

static const struct {
    const char *part; /* of the line */
    enum coverage_event event;
} lines[] = {
    {"the ledger is gone: evicted", SAW_IDENTITY_EVICTED},
    {"two engines use one ledger", SAW_IDENTITY_CLASH},
    {"numbers that were never sent", SAW_IDENTITY_AHEAD},
    {"ledger and marker are gone", SAW_IDENTITY_UNKNOWN_STORE},
    {"from before it was wiped", SAW_IDENTITY_UNKNOWN_STORE},
    {"Redis was wiped", SAW_WIPE},
    {"Redis has forgotten", SAW_ROLLBACK},
    {"has been restored", SAW_REPLAY_DONE},
    {"before this engine's ledger", SAW_UNBORN},
    {"refuses the key", SAW_POISON},
    {"refuses a batch", SAW_REFUSED},
    {"a reply that is not understood", SAW_NOT_UNDERSTOOD},
    {"not the Redis protocol", SAW_NOT_UNDERSTOOD},
    {"no answer in time", SAW_NO_ANSWER_IN_TIME},
};

void coverage_read_log(struct coverage *coverage, const char *line) {
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (strstr(line, lines[i].part)) coverage->events[lines[i].event]++;
}

void coverage_add_world(struct coverage *coverage, const struct world *world) {
    for (int fault = 0; fault < WORLD_FAULTS; fault++) {
        coverage->faults[fault] += world->happened[fault];
        for (int flight = 0; flight < FLIGHTS; flight++) coverage->pairs[flight][fault] += world->pairs[flight][fault];
    }
    for (int edge = 0; edge < MODEL_EDGES; edge++)
        coverage->edges[edge] += world->redis.edges[edge] + world->other.edges[edge];
}

/* Pairs that cannot happen. */
static const char *impossible(enum world_flight flight, enum world_fault fault) {
    bool connecting = fault == WORLD_REFUSED_CONNECT || fault == WORLD_BLACK_HOLE;
    bool carried = flight == FLIGHT_SENT || flight == FLIGHT_APPLIED || flight == FLIGHT_OPENING;
    if (connecting && carried) return "there is a connection";
    bool executed = flight == FLIGHT_APPLIED || flight == FLIGHT_REPLAY; /* by a copy on a dead connection: too rare */
    if (fault == WORLD_CUT_SHORT && !executed) return "what is cut short has been executed";
    if (fault >= WORLD_SAW_OTHER && (flight == FLIGHT_OPENING || flight == FLIGHT_ADRIFT_APPLIED))
        return "it is shown to those who have a store, and the rest is too rare";
    if (fault == WORLD_RUN_TWICE && flight == FLIGHT_FROZEN) return "nothing of it is under way";
    return NULL;
}

void coverage_print(const struct coverage *coverage) {
    printf("# %" PRIu64 " seeds, %" PRIu64 " turns, %" PRId64 " simulated seconds\n", coverage->seeds, coverage->turns,
           coverage->simulated_ms / 1000);
    for (int edge = 0; edge < MODEL_EDGES; edge++)
        printf("# script: %-26s %12" PRIu64 "\n", redis_model_edge_names[edge], coverage->edges[edge]);
    for (int event = 0; event < SAW_EVENTS; event++)
        printf("# engine: %-32s %12" PRIu64 "\n", event_names[event], coverage->events[event]);
    printf("# %-16s %9s |", "fault", "in all");
    for (int flight = 0; flight < FLIGHTS; flight++) printf(" %9s", flight_names[flight]);
    printf("\n");
    for (int fault = 0; fault < WORLD_FAULTS; fault++) {
        printf("# %-16s %9" PRIu64 " |", world_fault_names[fault], coverage->faults[fault]);
        for (int flight = 0; flight < FLIGHTS; flight++) {
            if (impossible((enum world_flight)flight, (enum world_fault)fault))
                printf(" %9s", "-");
            else
                printf(" %9" PRIu64, coverage->pairs[flight][fault]);
        }
        printf("\n");
    }
}

static size_t gap(const char *kind, const char *name, uint64_t count) {
    if (count) return 0;
    printf("# never seen: %s %s\n", kind, name);
    return 1;
}

size_t coverage_gaps(const struct coverage *coverage, bool long_run) {
    size_t gaps = 0;
    for (int edge = 0; edge < MODEL_EDGES; edge++)
        gaps += gap("script:", redis_model_edge_names[edge], coverage->edges[edge]);
    for (int event = 0; long_run && event < SAW_EVENTS; event++)
        gaps += gap("engine:", event_names[event], coverage->events[event]);
    for (int fault = 0; fault < WORLD_FAULTS; fault++) {
        gaps += gap("fault:", world_fault_names[fault], coverage->faults[fault]);
        for (int flight = 0; long_run && flight < FLIGHTS; flight++)
            if (!impossible((enum world_flight)flight, (enum world_fault)fault))
                gaps += gap(flight_names[flight], world_fault_names[fault], coverage->pairs[flight][fault]);
    }
    return gaps;
}
