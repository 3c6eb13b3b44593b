/* recover_test.c -- a thread ends in the middle of a turn, in a hook: the next one takes over, and nothing is lost.
 * Leaders that are killed elsewhere in a turn are in fault/takeover.
 * Covers: engine/turn/recover.c. */
#include "tests/unit/hand_driver.h"

#include "engine/core/processes.h"
#include "engine/core/window_map.h"
#include "engine/turn/lease_stores.h"
#include "engine/turn/recover.h"
#include "engine/turn/turn_check.h"

#include <pthread.h>

static struct rig rig;

static struct told {
    int calls, ends; /* `ends`: in so many calls its thread ends */
    int64_t sum;
    uint32_t flags;
} told;

static bool tell(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    (void)ctx, (void)end_ms;
    told.calls++;
    told.flags = flags;
    if (told.ends-- > 0) pthread_exit(NULL);
    told.sum += rig_each(family, start_ms).sum;
    return true;
}

static void *make_turns(void *engine) {
    for (int i = 0; i < 10; i++) (void)tw_turn(engine);
    return engine;
}

static void let_a_turn_end_its_thread(void) {
    pthread_t thread;
    void *answer;
    assert_int_equal(pthread_create(&thread, NULL, make_turns, rig.engine), 0);
    pthread_join(thread, &answer);
    assert_null(answer);
}

static tw_family *open_telling(void) {
    memset(&told, 0, sizeof told);
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.on_window_closed = tell;
    options.history_ms = TW_NONE;
    return rig_family_of(&rig, &options);
}

static int open_synced(void **state) {
    struct rig *own = *state;
    rig_init(own);
    own->options.redis_url = "hand:";
    rig_start(own);
    return 0;
}

/* Goal: the hook is called again and says so, later windows and other families go their way, and the memory returns. */
RIG_TEST(the_next_thread_takes_over_a_turn_whose_thread_ended) {
    if (test_misses_robust_lists()) return;
    tw_family *family = open_telling();
    tw_family *other = rig_family(&rig, "other", TW_WINDOW_ALIGNED, TW_MINUTE);
    for (int window = 1; window <= 3; window++) {
        rig_add(family, "a", 5);
        rig_add(other, "b", 1);
        fake_clock_advance_ms(&rig.clock, TW_MINUTE);
        told.ends = window;
        for (int end = 0; end < window; end++) let_a_turn_end_its_thread();
        rig_settle(&rig);
        assert_int_equal(told.flags, TW_CLOSED_AGAIN);
        assert_i64_equal(told.sum, 5 * window);
    }
    assert_int_equal(told.calls, 3 + 1 + 2 + 3);
    rig_add(family, "a", 5);
    rig_pass(&rig, TW_MINUTE);
    assert_int_equal(told.flags, 0);
    assert_int_equal(told.calls, 10);
    rig_pass(&rig, 10 * TW_MINUTE);
    for (int i = 0; i < 10; i++) rig_pass(&rig, 20);
    assert_int_equal(family->turn.held, 0);
    assert_int_equal(rig.engine->unlinked.generations, 0);
    assert_true(twi_turn_take(rig.engine));
    assert_true(twi_turn_is_valid(rig.engine));
    twi_turn_leave(rig.engine);
    assert_status(tw_family_close(family), TW_OK);
    rig_settle(&rig);
    assert_null(tw_family_find(rig.engine, "f"));
}

/* Goal: what was collected for Redis by this process is still out, and comes back; marked counters are sent once. */
TEST_WITH(what_is_out_stays_out, open_synced, rig_teardown, &rig) {
    if (test_misses_robust_lists()) return;
    tw_family *family = open_telling();
    tw_family_options options = rig_options("synced", TW_WINDOW_ALIGNED, TW_HOUR);
    tw_family *synced = rig_family_of(&rig, &options);
    rig_add(synced, "out", 7);
    assert_int_equal(hand_collect(10), 1);
    rig_add(synced, "marked", 9);
    rig_add(synced, "out", 2);
    rig_add(family, "a", 5);
    fake_clock_advance_ms(&rig.clock, TW_MINUTE);
    hand->settle_at_turns = false;
    told.ends = 1;
    rig.engine->here->remote.tuning.closing_wait_ms = 0; /* the hook does not wait for what is unsent */
    let_a_turn_end_its_thread();
    rig_turn(&rig);
    hand_acknowledge(7);
    assert_int_equal(hand_collect(10), 3);
    assert_i64_equal(hand_settle(), 9 + 2 + 5);
    assert_int_equal(hand_collect(10), 0);
}

/* What the last owner had taken off a list when it ended. */
enum taken { WINDOWS, CHUNKS, CHUNKS_IN_HAND, BITS, NEWS, ARRIVALS, TAKEN };

static void take(tw_family *family, enum taken taken) {
    struct twi_generation *generation = twi_window_find(family, RIG_START_MS);
    struct twi_chunk *chunk = twi_arena_at(&rig.engine->arena, twi_load_relaxed(&generation->marks.chunks));
    switch (taken) {
    case WINDOWS: assert_int_not_equal(twi_swap_acqrel(&rig.engine->collector.marked, 0), 0); break;
    case CHUNKS: assert_int_not_equal(twi_swap_acqrel(&generation->marks.chunks, 0), 0); break;
    case CHUNKS_IN_HAND: generation->turn.taken = twi_swap_acqrel(&generation->marks.chunks, 0); break;
    case BITS:
        twi_store_relaxed(&generation->marks.chunks, 0);
        for (uint32_t i = 0; i < TWI_CHUNK_MARKS; i++) twi_store_relaxed(&chunk->marks[i], 0);
        break;
    case NEWS: assert_non_null(twi_swap_acqrel(&rig.engine->agenda.news, NULL)); break;
    default: assert_int_not_equal(twi_swap_acqrel(&family->arrivals, 0), 0);
    }
}

static void recover(void) {
    assert_true(twi_turn_take(rig.engine));
    twi_recover(rig.engine);
    assert_true(twi_turn_is_valid(rig.engine));
    twi_turn_leave(rig.engine);
}

/* Goal: members of a list that the last owner had taken are found again, although their flags say that they are listed,
 * and so are later ones: counts are sent once, the window ends, and its memory returns. */
TEST_WITH(what_the_last_owner_had_taken_is_found_again, NULL, NULL, &rig) {
    for (enum taken taken = 0; taken < TAKEN; taken++) {
        (void)open_synced(state);
        tw_family *family = open_telling();
        if (taken < NEWS) rig_settle(&rig); /* the window is known */
        rig_add(family, "a", 1);
        if (taken < NEWS) rig_settle(&rig);
        rig_add(family, "b", 2);
        take(family, taken);
        recover();
        recover(); /* also the second time */
        rig_add(family, "a", 4);
        rig_add(family, "b", 8);
        rig_add(family, "c", 16);
        rig_settle(&rig);
        assert_i64_equal(hand_collected(), 31);
        rig_add(family, "a", 32);
        rig_add(family, "c", 64);
        assert_i64_equal(hand_collected(), 96);
        assert_i64_equal(hand_collected(), 0);
        hand->settle_at_turns = true;
        rig_pass(&rig, TW_MINUTE);
        for (int i = 0; i < 10; i++) rig_pass(&rig, 20);
        assert_int_equal(told.calls, 1);
        assert_int_equal(told.flags, 0);
        assert_i64_equal(told.sum, 127);
        assert_int_equal(family->turn.held, 0);
        (void)rig_teardown(state);
    }
}

/* A thread that is about to mark a counter. */
static struct slow {
    pthread_t thread;
    pthread_barrier_t step;
    struct twi_generation *generation;
    struct twi_cell *cell;
} slow;

static void *say_slowly(void *arg) {
    struct twi_thread *self = twi_thread_here();
    (void)twi_marking_begin(self, rig.engine, slow.generation, slow.cell);
    pthread_barrier_wait(&slow.step);
    pthread_barrier_wait(&slow.step);
    twi_marking_end(self, NULL);
    return arg;
}
static void begin_slowly(void) {
    assert_int_equal(pthread_barrier_init(&slow.step, NULL, 2), 0);
    assert_int_equal(pthread_create(&slow.thread, NULL, say_slowly, NULL), 0);
    pthread_barrier_wait(&slow.step);
}
static void end_slowly(void) {
    pthread_barrier_wait(&slow.step);
    pthread_join(slow.thread, NULL);
    pthread_barrier_destroy(&slow.step);
}

/* Goal: a thread that says at the takeover what it marks leaves the flags in doubt for a turn. What others mark
 * meanwhile has no push, because the flags are set, and is sent all the same. A family's news is looked at, too.
 * Method: a thread says that it marks a counter while the turn is taken over, and ends without having done so. */
TEST_WITH(what_was_marked_under_a_doubtful_flag_is_sent, NULL, NULL, &rig) {
    for (enum taken taken = WINDOWS; taken <= NEWS; taken++) {
        (void)open_synced(state);
        tw_family *family = open_telling();
        if (taken < NEWS) rig_settle(&rig);
        rig_add(family, "a", 1);
        struct twi_generation *generation = twi_window_find(family, RIG_START_MS);
        struct twi_chunk *chunk = twi_arena_at(&rig.engine->arena, twi_load_relaxed(&generation->marks.chunks));
        take(family, taken);
        slow.generation = generation;
        slow.cell = taken == NEWS ? &generation->overflow : twi_chunk_cell(chunk, 0, true);
        begin_slowly();
        recover();
        rig_turn(&rig);
        assert_true(rig.engine->turn.has_doubts);
        int64_t sum = hand_collected();
        end_slowly();
        rig_add(family, "a", 2);
        assert_status(tw_close_until(family, RIG_START_MS + TW_MINUTE), TW_OK);
        rig_turn(&rig);
        assert_false(rig.engine->turn.has_doubts);
        assert_i64_equal(sum + hand_collected(), 3);
        assert_false(twi_load_relaxed(&family->requests.changed)); /* the turn has looked at the family */
        hand->settle_at_turns = true;
        (void)rig_teardown(state);
    }
}

static void *begin_and_end(void *arg) {
    (void)twi_marking_begin(twi_thread_here(), rig.engine, slow.generation, slow.cell);
    return arg;
}

/* Goal: each counter whose thread ended while it marked it is counted once, and the overflow counter is none of them.
 * Method: a thread says what it marks and ends. */
TEST_WITH(counters_of_threads_that_ended_are_counted, open_synced, rig_teardown, &rig) {
    if (test_misses_robust_lists()) return;
    tw_family *family = open_telling();
    rig_add(family, "a", 1);
    slow.generation = twi_window_find(family, RIG_START_MS);
    struct twi_chunk *chunk = twi_arena_at(&rig.engine->arena, twi_load_relaxed(&slow.generation->marks.chunks));
    for (int ended = 0; ended <= 3; ended++) {
        slow.cell = ended == 3 ? &slow.generation->overflow : twi_chunk_cell(chunk, 0, true);
        assert_i64_equal(test_stat_of(rig.engine, recovered_keys), ended);
        assert_int_equal(pthread_create(&slow.thread, NULL, begin_and_end, NULL), 0);
        pthread_join(slow.thread, NULL);
        rig_turn(&rig);
        rig_turn(&rig);
    }
    assert_i64_equal(test_stat_of(rig.engine, recovered_keys), 3);
    hand->settle_at_turns = true;
}

/* Goal: a lease that the last owner had taken off the callers' list is looked at again. What a caller asked for while
 * its flag was set had no push. */
TEST_WITH(a_lease_that_the_last_owner_had_taken_is_listed_again, open_synced, rig_teardown, &rig) {
    tw_family_options options = rig_options("hard", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.limit_mode = TW_LIMIT_HARD;
    tw_family *family = rig_family_of(&rig, &options);
    assert_status(tw_acquire(family, tw_str("a"), 1, 100, NULL), TW_PENDING);
    struct twi_leases *leases = &rig.engine->leases;
    uint32_t line = twi_swap_acqrel(&leases->requested, 0);
    assert_int_not_equal(line, 0);
    recover();
    struct twi_lease *lease = twi_lease_at(&rig.engine->arena, line);
    assert_int_equal(twi_load_relaxed(&lease->listed), 0);
    assert_int_equal(twi_load_relaxed(&leases->requested), 0);
    assert_int_equal(twi_lease_store_of(rig.engine, lease)->listed, line);
    lease->turn.raised = TWI_LEASE_RAISING; /* `drawn` may be raised, and sections that began before are not known */
    struct twi_thread *self = twi_thread_here();
    twi_section_enter(self);
    twi_leases_inherit(rig.engine);
    assert_false(lease->turn.raised < twi_epoch_reached());
    twi_section_leave(self);
    assert_true(lease->turn.raised < twi_epoch_reached());
    hand->settle_at_turns = true;
}

/* Goal: a thread that does not own the turn never takes it from one that lives, and a hook may make turns of another
 * engine. */
RIG_TEST(a_turn_is_not_taken_from_a_thread_that_lives) {
    assert_true(twi_turn_take(rig.engine));
    assert_int_equal(twi_turn_own(rig.engine, 0), twi_thread_number(twi_thread_self));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, make_turns, rig.engine), 0);
    pthread_join(thread, NULL);
    struct rig other;
    rig_open(&other);
    rig_turn(&other);
    rig_close(&other);
    assert_int_equal(twi_thread_slot(twi_thread_self)->turn_of, TWI_TURN_OF(rig.engine));
    twi_turn_leave(rig.engine);
    assert_int_equal(twi_thread_slot(twi_thread_self)->turn_of, 0);
    rig_turn(&rig);
}
