/* replay_ring_test.c -- the replay buffer of a shared engine: what the next process finds in it, wherever this one
 * ends.
 * Method: the content of each batch follows from its number, so a reader knows what must be there. Covers:
 * sync/batch/replay_ring.c, and the part of sync/batch/ledger.c that inherits. */
#include "sync/batch/ledger.h"
#include "tests/support/children.h"
#include "tests/support/support.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define GRAIN TWI_REPLAY_RING_GRAIN
#define SIZE_MAX_HERE (4 * GRAIN)

/* What the processes have together. */
static struct shared {
    struct twi_replay_ends ends;
    _Atomic int step; /* how many operations of the child have returned */
} * shared;
static char *bytes;
static struct twi_replay_ring ring;

static int begin(void **state) {
    (void)state;
    shared = children_pages(sizeof *shared);
    uintptr_t pages = (uintptr_t)children_pages(SIZE_MAX_HERE + GRAIN);
    bytes = (char *)((pages + GRAIN - 1) / GRAIN * GRAIN);
    return 0;
}

/* ---- batches by their numbers ---- */

static size_t size_of(uint64_t number, size_t most) {
    return number % 7 == 0 ? 0 : number * 7919 % (most + 1);
}

static void fill(struct twi_bytes *to, uint64_t number, size_t size) {
    for (size_t i = 0; i < size; i++) twi_bytes_add(to, &(char){(char)(number + i * 31)}, 1);
}

static struct twi_batch *batch_of(uint64_t number, size_t most) {
    struct twi_batch *batch = twi_batch_empty((int64_t)number * 10);
    assert_non_null(batch);
    batch->number = number;
    batch->before = number - 1;
    batch->nonce = number * 3;
    batch->plus = number;
    batch->minus = 1;
    batch->plus_sum = number * (number + 1) / 2;
    batch->minus_sum = number;
    fill(&batch->keys, number, size_of(number, most));
    fill(&batch->args, number + 1, size_of(number + 1, most));
    return batch;
}

static bool has(const struct twi_bytes *got, uint64_t number, size_t size) {
    if (got->size != size) return false;
    for (size_t i = 0; i < size; i++)
        if (got->data[i] != (char)(number + i * 31)) return false;
    return true;
}

static bool is_whole(const struct twi_batch *batch, size_t most) {
    uint64_t number = batch->number;
    return batch->before == number - 1 && batch->plus_sum == number * (number + 1) / 2 && batch->minus_sum == number &&
           batch->plus == number && batch->minus == 1 && batch->frozen_ms == (int64_t)number * 10 && batch->is_kept &&
           has(&batch->keys, number, size_of(number, most)) && has(&batch->args, number + 1, size_of(number + 1, most));
}

/* ---- what the next process reads ---- */

struct run {
    uint64_t first, last; /* 0, 0: empty */
    bool is_whole;
};

static struct run read_run(uint64_t size, uint32_t side, size_t most) {
    struct twi_replay_ring next;
    struct twi_batch batch;
    struct run run = {.is_whole = true};
    bool is_damaged;
    twi_replay_ring_begin(&next, &shared->ends, bytes, size, side);
    for (uint64_t at = next.first; twi_replay_ring_read(&next, &at, &batch, &is_damaged);) {
        run.is_whole = run.is_whole && is_whole(&batch, most) && (run.last == 0 || batch.number == run.last + 1);
        if (run.first == 0) run.first = batch.number;
        run.last = batch.number;
    }
    run.is_whole = run.is_whole && !is_damaged;
    return run;
}

static void expect_run(uint64_t size, size_t most, uint64_t first, uint64_t last) {
    struct run run = read_run(size, ring.side, most);
    assert_true(run.is_whole);
    assert_i64_equal(run.first, first);
    assert_i64_equal(run.last, last);
}

static void empty_ring(uint64_t size) {
    memset(shared, 0, sizeof *shared);
    twi_replay_ring_begin(&ring, &shared->ends, bytes, size, 0);
}

/* ---- the ring ---- */

/* Goal: what was kept and not dropped is there, whole and in order, however often the ring wraps and its pages go back;
 * a batch that finds no room changes nothing. */
static void keep_and_drop(uint64_t size, size_t most, uint64_t batches) {
    static struct twi_batch *kept[5000];
    struct test_prng prng;
    uint64_t first = 1, last = 0, refused = 0;
    test_prng_seed(&prng, test_seed());
    empty_ring(size);
    while (last < batches) {
        bool drops = first <= last && test_prng_below(&prng, 100) < 40;
        if (!drops) {
            struct twi_batch *batch = batch_of(last + 1, most);
            assert_true(twi_replay_ring_fits(&ring, batch));
            if (twi_replay_ring_keep(&ring, batch)) {
                kept[++last] = batch;
                assert_int_equal(twi_batch_bytes(batch) % 16, sizeof *batch % 16);
            } else {
                assert_false(batch->is_kept);
                assert_true(has(&batch->keys, last + 1, size_of(last + 1, most)));
                twi_batch_free(batch);
                refused++;
                drops = true;
            }
        }
        if (drops) {
            assert_true(first <= last); /* an empty ring has room for what fits */
            twi_replay_ring_drop(&ring, kept[first]);
            twi_batch_free(kept[first++]);
        }
        expect_run(size, most, first <= last ? first : 0, first <= last ? last : 0);
    }
    assert_true(refused > 0 && ring.end > 3 * size);
    for (; first <= last; first++) twi_batch_free(kept[first]);
}

TEST(a_ring_keeps_what_it_has_however_often_it_wraps) {
    keep_and_drop(GRAIN, 2000, 400);
    keep_and_drop(GRAIN, 20000, 400);
    keep_and_drop(3 * GRAIN, 60000, 400);
    keep_and_drop(4 * GRAIN, 300, test_scale(4000) < 2000 ? 2000 : 4000);
}

/* Goal: a batch larger than the ring is never kept, and a ring of no size keeps nothing. */
TEST(what_never_fits_is_refused) {
    empty_ring(GRAIN);
    struct twi_batch *batch = twi_batch_empty(0);
    batch->number = 1;
    fill(&batch->keys, 1, GRAIN);
    assert_false(twi_replay_ring_fits(&ring, batch));
    assert_false(twi_replay_ring_keep(&ring, batch));
    twi_batch_free(batch);
    empty_ring(0);
    batch = batch_of(7, 0);
    assert_false(twi_replay_ring_keep(&ring, batch));
    twi_batch_free(batch);
    expect_run(0, 0, 0, 0);
}

static uint64_t resident_bytes(void) {
    unsigned char pages[SIZE_MAX_HERE / 4096];
    uint64_t count = 0, page = (uint64_t)sysconf(_SC_PAGESIZE);
    assert_int_equal(mincore(bytes, SIZE_MAX_HERE, pages), 0);
    for (uint64_t i = 0; i < SIZE_MAX_HERE / page; i++) count += pages[i] & 1;
    return count * page;
}

/* Goal: memory that no record needs goes back to the system (P6): after many rounds through the ring it holds little
 * more than its records. */
TEST(pages_go_back) {
    empty_ring(SIZE_MAX_HERE);
    for (uint64_t number = 1; number < 500; number++) {
        struct twi_batch *batch = batch_of(number, 3000);
        assert_true(twi_replay_ring_keep(&ring, batch));
        twi_replay_ring_drop(&ring, batch);
        twi_batch_free(batch);
    }
    assert_true(ring.end > 2 * (uint64_t)SIZE_MAX_HERE);
    assert_true(resident_bytes() <= 2 * GRAIN);
}

/* Goal: a worker may have written anything there. The next process reads nothing beyond the ring, and ends. */
TEST(garbage_is_left_alone) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (uint64_t round = 0; round < 200; round++) {
        empty_ring(GRAIN);
        struct twi_batch *batches[20];
        for (uint64_t i = 0; i < 20; i++) {
            batches[i] = batch_of(i + 1, 1000);
            assert_true(twi_replay_ring_keep(&ring, batches[i]));
        }
        for (int i = 0; i < 40; i++) {
            uint64_t value = round % 4 == 0 ? 0 : round % 4 == 1 ? UINT64_MAX : test_prng_below(&prng, UINT64_MAX);
            uint64_t at = test_prng_below(&prng, round % 2 ? ring.end / 8 : 64) * 8;
            memcpy(bytes + at, &value, sizeof value);
            if (round % 8 == 7) atomic_store(i % 2 ? &shared->ends.end : &shared->ends.first, value);
        }
        (void)read_run(GRAIN, 0, 1000);
        for (uint64_t i = 0; i < 20; i++) twi_batch_free(batches[i]);
    }
}

/* ---- a process that ends ---- */

#define OLD 60u
#define OPERATIONS 24u
#define MOST 1500u
static struct twi_batch *old_batches[OLD + 1], *new_batches[OPERATIONS];

/* What is there after so many operations of the child: each keeps a batch, and makes room for it. */
static struct run after[OPERATIONS + 1];

static void operate(uint32_t n, uint64_t *first) {
    while (!twi_replay_ring_keep(&ring, new_batches[n])) twi_replay_ring_drop(&ring, old_batches[(*first)++]);
}

static uint64_t fill_ring(void) {
    uint64_t first = 1;
    empty_ring(GRAIN);
    for (uint64_t number = 1; number <= OLD; number++) {
        old_batches[number] = batch_of(number, MOST);
        while (!twi_replay_ring_keep(&ring, old_batches[number])) twi_replay_ring_drop(&ring, old_batches[first++]);
    }
    for (uint32_t n = 0; n < OPERATIONS; n++) new_batches[n] = batch_of(OLD + 1 + n, MOST);
    return first;
}

static bool is_between(const struct run *run, const struct run *from, const struct run *to) {
    return run->is_whole && run->first >= from->first && run->first <= to->first &&
           (run->last == from->last || run->last == to->last);
}

/* Goal: a process ends after any instruction. The next one finds whole batches: those that were there before the move,
 * or those that are there after it. Method: a child is stepped, and this process reads after each instruction. */
TEST(a_process_may_end_after_any_instruction) {
    if (test_is_slow()) {
        test_leave_out("it steps through the library's own instructions: a build without a sanitizer runs this");
        return;
    }
    if (test_is_emulated()) {
        test_leave_out("an emulator is not stepped: run it on a machine of this kind");
        return;
    }
    uint64_t first = fill_ring();
    for (uint32_t n = 0; n < OPERATIONS; n++) { /* what the child will do */
        after[n] = read_run(GRAIN, 0, MOST);
        operate(n, &first);
    }
    after[OPERATIONS] = read_run(GRAIN, 0, MOST);
    assert_true(after[OPERATIONS].first > after[0].first && ring.end % GRAIN < ring.first % GRAIN);
    first = fill_ring();
    pid_t pid = child_fork(120);
    if (pid == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(1);
        (void)raise(SIGTRAP);
        for (uint32_t n = 0; n < OPERATIONS; n++) {
            operate(n, &first);
            atomic_store(&shared->step, (int)n + 1);
        }
        for (;;) (void)raise(SIGTRAP);
    }
    uint64_t steps = 0, seen = 0;
    assert_true(WIFSTOPPED(child_await(pid)));
    for (int n; (n = atomic_load(&shared->step)) < (int)OPERATIONS; steps++) {
        struct run run = read_run(GRAIN, 0, MOST);
        if (!is_between(&run, &after[n], &after[n + 1])) fail_msg("after %llu instructions", (unsigned long long)steps);
        seen += run.last == after[n + 1].last;
        assert_int_equal(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
        assert_true(WIFSTOPPED(child_await(pid)));
    }
    child_kill(pid);
    print_message("# %llu instructions\n", (unsigned long long)steps);
    assert_true(steps > 1000 && seen > 0);
}

/* ---- the ledger that is inherited ---- */

static int times_asked;

static void count_up(void *ctx, void *out, size_t size) {
    memset(out, ++*(int *)ctx, size);
}

/* Batches 1 to `last` of the process that ends, all acknowledged. */
static void make_ledger(struct twi_ledger *ledger, uint64_t size, uint64_t last) {
    *ledger = (struct twi_ledger){.replay_bytes_max = 1 << 20, .replay_ms = 30000, .ring = &ring};
    empty_ring(size);
    twi_ledger_identify(ledger, "p:", count_up, &times_asked);
    for (uint64_t number = 1; number <= last; number++) {
        struct twi_batch *batch = batch_of(number, 500);
        twi_ledger_append(ledger, batch, number * 3);
        twi_ledger_confirm(ledger, batch);
        twi_ledger_keep(ledger, batch);
        assert_true(batch->is_kept);
    }
}

/* The next process, by what was saved: the numbers, and the side. The heap of this one is gone. */
static struct twi_ledger inherit(struct twi_ledger *ended, uint64_t confirmed, uint64_t acked, uint32_t side) {
    uint64_t size = ring.size;
    twi_ledger_free(ended);
    struct twi_ledger next = {.replay_bytes_max = 1 << 20, .replay_ms = 30000, .ring = &ring, .name_size = 1};
    next.confirmed = next.acked = next.last = acked;
    next.plus_sum = acked * (acked + 1) / 2;
    next.minus_sum = acked;
    twi_replay_ring_begin(&ring, &shared->ends, bytes, size, side);
    twi_ledger_inherit_kept(&next, confirmed);
    next.replicated = next.confirmed;
    assert_true(twi_ledger_is_valid(&next));
    return next;
}

static void expect_list(const struct twi_ledger *ledger, uint64_t first, uint64_t last) {
    uint64_t number = first;
    for (const struct twi_batch *batch = ledger->head; batch; batch = batch->next, number++)
        assert_i64_equal(batch->number, number);
    assert_i64_equal(number, last + 1);
    assert_i64_equal(ledger->acked, last);
    assert_i64_equal(ledger->last, last);
}

static void end_ledger(struct twi_ledger *ledger) {
    while (ledger->head && ledger->head->number <= ledger->acked) (void)twi_ledger_replay_drop(ledger, 0);
    assert_int_equal(ring.first, ring.end);
    twi_ledger_free(ledger);
}

/* Goal: the next process has the batches, and goes on: it drops old ones and keeps its own. */
TEST(the_next_process_goes_on_with_the_list) {
    struct twi_ledger ledger;
    make_ledger(&ledger, GRAIN, 20);
    struct twi_ledger next = inherit(&ledger, 20, 20, ring.side);
    expect_list(&next, 1, 20);
    assert_int_equal(next.replay_bytes_max, 1 << 20);
    assert_true(next.replay_bytes > 20 * sizeof(struct twi_batch));
    twi_ledger_drop_first(&next);
    for (uint64_t number = 21; number < 300; number++) { /* the ring is full long before */
        struct twi_batch *batch = batch_of(number, 500);
        twi_ledger_append(&next, batch, number);
        twi_ledger_confirm(&next, batch);
        twi_ledger_keep(&next, batch);
        assert_true(batch->is_kept);
    }
    uint64_t first = next.head->number;
    assert_true(first > 20 && first < 280);
    next = inherit(&next, 299, 299, ring.side);
    expect_list(&next, first, 299);
    end_ledger(&next);
}

/* Goal: a process ended between the ring and the saved number: its batch is settled. */
TEST(a_batch_whose_number_was_not_saved_is_settled) {
    struct twi_ledger ledger;
    make_ledger(&ledger, GRAIN, 20);
    struct twi_ledger next = inherit(&ledger, 19, 19, ring.side);
    expect_list(&next, 1, 20);
    assert_i64_equal(next.confirmed, 20);
    assert_i64_equal(next.plus_sum, 210);
    end_ledger(&next);
}

/* Goal: the process before was sending batches again: the next one goes on with the first that was not confirmed. */
TEST(a_replay_goes_on) {
    struct twi_ledger ledger;
    make_ledger(&ledger, GRAIN, 20);
    struct twi_ledger next = inherit(&ledger, 12, 20, ring.side);
    expect_list(&next, 1, 20);
    assert_true(twi_ledger_is_replaying(&next));
    assert_i64_equal(twi_ledger_unconfirmed(&next)->number, 13);
    assert_true(twi_ledger_unconfirmed(&next)->strayed);
    end_ledger(&next);
}

/* Goal: numbers that do not end at the saved one are of no use, as those of another instance: the list is empty, and a
 * loss is counted by the sums. */
TEST(a_run_that_does_not_end_at_the_saved_number_is_dropped) {
    struct twi_ledger ledger;
    make_ledger(&ledger, GRAIN, 20);
    struct twi_ledger next = inherit(&ledger, 22, 22, ring.side);
    assert_null(next.head);
    assert_i64_equal(next.acked, 22);
    struct twi_reply_head head = {.has_last = true, .last = 20, .plus_sum = 210, .minus_sum = 20};
    assert_i64_equal(twi_ledger_roll_back(&next, &head, twi_batch_empty(0), 9), 21 + 22 + 2);
    end_ledger(&next);
}

/* Goal: a batch that finds no room stays with its process. The next one has those after it. */
TEST(only_the_batches_after_a_hole_are_inherited) {
    struct twi_ledger ledger;
    make_ledger(&ledger, GRAIN, 20);
    struct twi_batch *large = batch_of(21, 0);
    fill(&large->keys, 1, 2 * GRAIN);
    twi_ledger_append(&ledger, large, 1);
    twi_ledger_confirm(&ledger, large);
    twi_ledger_keep(&ledger, large);
    assert_false(large->is_kept);
    assert_i64_equal(ledger.head->number, 1); /* what cannot fit makes no room */
    for (uint64_t number = 22; number <= 24; number++) {
        struct twi_batch *batch = batch_of(number, 500);
        twi_ledger_append(&ledger, batch, 1);
        twi_ledger_confirm(&ledger, batch);
        twi_ledger_keep(&ledger, batch);
    }
    struct twi_ledger next = inherit(&ledger, 24, 24, ring.side);
    expect_list(&next, 22, 24);
    end_ledger(&next);
}

/* Goal: a process ended when it had shown a gap before the edge, and not yet the record behind it. */
TEST(a_gap_without_a_record_is_an_empty_ring) {
    struct twi_ledger ledger;
    make_ledger(&ledger, GRAIN, 20);
    (void)twi_ledger_replay_drop(&ledger, 20);
    assert_int_equal(ring.first, ring.end);
    memset(bytes + ring.end, 0, sizeof(uint32_t));
    atomic_store(&shared->ends.end, GRAIN);
    struct twi_ledger next = inherit(&ledger, 20, 20, ring.side);
    assert_null(next.head);
    struct twi_batch *batch = batch_of(21, 500);
    twi_ledger_append(&next, batch, 1);
    twi_ledger_confirm(&next, batch);
    twi_ledger_keep(&next, batch);
    next = inherit(&next, 21, 21, ring.side);
    expect_list(&next, 21, 21);
    end_ledger(&next);
}

/* Goal: batches that go to a new instance have their new numbers when that instance is saved, and not before. */
TEST(new_numbers_count_with_the_new_instance) {
    for (int is_saved = 0; is_saved < 2; is_saved++) {
        struct twi_ledger ledger;
        make_ledger(&ledger, GRAIN, 20);
        for (int i = 0; i < 5; i++) twi_ledger_drop_first(&ledger);
        uint32_t side = ring.side;
        twi_ledger_identify(&ledger, "p:", count_up, &times_asked);
        assert_int_not_equal(ring.side, side);
        uint64_t nonce = ledger.head->nonce;
        uint64_t acked = is_saved ? 15 : 20;
        struct twi_ledger next = inherit(&ledger, is_saved ? 0 : 20, acked, is_saved ? ring.side : side);
        expect_list(&next, is_saved ? 1 : 6, acked);
        assert_i64_equal(next.confirmed, is_saved ? 0 : 20);
        assert_i64_equal(next.head->before, is_saved ? 0 : 5);
        if (is_saved) assert_i64_equal(next.head->nonce, nonce);
        if (!is_saved) assert_i64_equal(next.head->nonce, 18);
        end_ledger(&next);
    }
}

/* Goal: what Redis refuses at a replay stays struck out for the next process. */
TEST(what_was_struck_stays_struck) {
    struct twi_ledger ledger;
    make_ledger(&ledger, GRAIN, 20);
    struct twi_batch *batch = twi_ledger_find(&ledger, 9);
    batch->struck = 9;
    batch->was_short = true;
    twi_replay_ring_note(batch);
    struct twi_ledger next = inherit(&ledger, 20, 20, ring.side);
    assert_i64_equal(twi_ledger_find(&next, 9)->struck, 9);
    assert_true(twi_ledger_find(&next, 9)->was_short);
    assert_i64_equal(twi_ledger_find(&next, 8)->struck, 0);
    end_ledger(&next);
}

/* Goal: a process ended while it settled a batch: the next one keeps it. Without its content the older ones go, too. */
TEST(a_batch_that_was_being_settled_is_kept_by_the_next_process) {
    for (int has_content = 0; has_content < 2; has_content++) {
        struct twi_ledger ledger;
        make_ledger(&ledger, GRAIN, 20);
        struct twi_ledger next = inherit(&ledger, 20, 20, ring.side);
        struct twi_batch *batch = batch_of(21, 500), noted = *batch;
        if (!has_content) twi_batch_free(batch);
        twi_ledger_inherit_settled(&next, has_content ? batch : NULL, &noted);
        next.replicated = next.confirmed;
        assert_true(twi_ledger_is_valid(&next));
        assert_i64_equal(next.acked, 21);
        assert_i64_equal(next.plus_sum, 231);
        next = inherit(&next, 21, 21, ring.side);
        if (has_content)
            expect_list(&next, 1, 21);
        else
            assert_null(next.head);
        end_ledger(&next);
    }
}

int main(void) {
    return test_run_with(begin, NULL);
}
