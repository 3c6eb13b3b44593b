/* save_refused_test.c -- what tw_save() and tw_load() refuse, with a sentence that names the reason: kinds of families
 * and engines, states, files. After a refusal the file and all counts are as they were. */
#include "tests/unit/extras/save_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* ---- saving ------------------------------------------------------------------------------------------------------ */

static bool file_exists(void) {
    return access(path, F_OK) == 0;
}

TEST_WITH(saving_comes_after_the_stop, begin, end, NULL) {
    rig_add(hourly(), "k", 1);
    assert_refused(tw_save(rig.engine, path), TW_ERR_MODE, "tw_stop()");
    assert_false(file_exists());
    stop();
    tw_enter(rig.engine);
    assert_refused(tw_save(rig.engine, path), TW_ERR_MODE, "tw_enter()");
    tw_leave(rig.engine);
    assert_status(tw_save(rig.engine, path), TW_OK);
    assert_status(tw_save(rig.engine, path), TW_OK); /* it may be repeated */
    assert_refused(tw_load(rig.engine, path), TW_ERR_CLOSED, "");
}

static void assert_family_is_refused(const tw_family_options *options, const char *what) {
    tw_family *family = rig_family_of(&rig, options);
    stop();
    assert_refused(tw_save(rig.engine, path), TW_ERR_MODE, what);
    assert_refused(tw_save(rig.engine, path), TW_ERR_MODE, options->name);
    assert_false(file_exists());
    assert_status(tw_family_close(family), TW_OK); /* the others can be saved without it */
    assert_status(tw_save(rig.engine, path), TW_OK);
    rig_close(&rig);
    start_again();
    unlink(path);
}

TEST_WITH(families_that_cannot_be_saved_are_named, begin, end, NULL) {
    tw_family_options options = rig_options("lives", TW_WINDOW_FROM_FIRST, TW_MINUTE);
    assert_family_is_refused(&options, "TW_WINDOW_FROM_FIRST");
    options = rig_options("rates", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.limit_shape = TW_SHAPE_GCRA;
    assert_family_is_refused(&options, "TW_SHAPE_GCRA");
    options = rig_options("visitors", TW_WINDOW_DAY, 0);
    options.kind = TW_KIND_DISTINCT;
    assert_family_is_refused(&options, "TW_KIND_DISTINCT");
}

TEST_WITH(an_engine_with_redis_is_refused, begin, end, NULL) {
    rig_add(hourly(), "k", 1);
    save();
    rig.options.redis_url = "redis://127.0.0.1:1";
    if (tw_open(&rig.options, &rig.engine) == TW_ERR_REDIS) {
        test_leave_out("built without Redis: install libhiredis-dev and configure with -Dredis=enabled");
        return;
    }
    is_open = true;
    tw_family *family = hourly();
    assert_refused(tw_load(rig.engine, path), TW_ERR_MODE, "redis_url");
    assert_i64_equal(rig_get(family, "k"), 0);
    stop();
    assert_refused(tw_save(rig.engine, path), TW_ERR_MODE, "redis_url");
    (void)tw_close(rig.engine, 0);
    is_open = false;
}

static tw_status in_hook;
static bool save_in_hook(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    (void)family, (void)start_ms, (void)end_ms, (void)flags;
    in_hook = tw_load(ctx, path);
    return true;
}

TEST_WITH(hooks_cannot_load, begin, end, NULL) {
    rig_add(hourly(), "k", 1);
    save();
    start_again();
    tw_family_options options = rig_options("hourly", TW_WINDOW_ALIGNED, TW_HOUR);
    options.on_window_closed = save_in_hook;
    options.closed_ctx = rig.engine;
    rig_add(rig_family_of(&rig, &options), "k", 1);
    in_hook = TW_OK;
    rig_pass(&rig, TW_HOUR);
    assert_status(in_hook, TW_ERR_MODE);
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

TEST_WITH(only_the_owner_may_read_the_file, begin, end, NULL) {
    struct stat about;
    mode_t before = umask(0);
    rig_add(hourly(), "k", 1);
    stop();
    assert_status(tw_save(rig.engine, path), TW_OK);
    umask(0777);
    assert_status(tw_save(rig.engine, path), TW_OK);
    umask(before);
    assert_int_equal(lstat(path, &about), 0);
    assert_int_equal(about.st_mode & 07777, 0600);
}

TEST_WITH(paths_that_cannot_be_written_are_refused, begin, end, NULL) {
    static char longest[TWI_SAVE_PATH_MAX + 10];
    char other[120];
    rig_add(hourly(), "k", 1);
    stop();
    assert_refused(tw_save(rig.engine, NULL), TW_ERR_OPTIONS, "path");
    assert_refused(tw_save(rig.engine, ""), TW_ERR_OPTIONS, "path");
    memset(longest, 'x', sizeof longest - 1);
    assert_refused(tw_save(rig.engine, longest), TW_ERR_OPTIONS, "too long");
    longest[300] = '\0';
    assert_refused(tw_save(rig.engine, longest), TW_ERR_OPTIONS, strerror(ENAMETOOLONG));
    snprintf(other, sizeof other, "%s/missing/counts", folder);
    assert_refused(tw_save(rig.engine, other), TW_ERR_OPTIONS, strerror(ENOENT));
    assert_refused(tw_save(rig.engine, folder), TW_ERR_OPTIONS, "regular");
    assert_int_equal(symlink("/tmp/nothing", path), 0);
    assert_refused(tw_save(rig.engine, path), TW_ERR_OPTIONS, "regular");
    char target[32];
    assert_int_equal(readlink(path, target, sizeof target), 12); /* the link stays */
    unlink(path);
    if (geteuid() != 0) {
        assert_refused(tw_save(rig.engine, "/etc/passwd"), TW_ERR_OPTIONS, "another user");
        return;
    }
    write_file((const unsigned char *)"", 0);
    assert_int_equal(chown(path, 12345, 12345), 0);
    assert_refused(tw_save(rig.engine, path), TW_ERR_OPTIONS, "another user");
    assert_refused(tw_load(rig.engine, path), TW_ERR_OPTIONS, "another user");
}

/* Goal: a disk that is full costs nothing but the new file. Method: a limit on the size of files, at every block and in
 * the middle of blocks; the old file stays, byte by byte, and no other file is left (end() removes the folder). */
TEST_WITH(a_full_disk_leaves_the_old_file, begin, end, NULL) {
    static unsigned char first[1000], again[1000];
    struct rlimit before, few;
    rig_add(hourly(), "k", 1);
    stop();
    assert_status(tw_save(rig.engine, path), TW_OK);
    size_t size = read_file(first, sizeof first);
    rig_close(&rig);
    start_again();
    tw_family *family = hourly();
    char key[80];
    for (int i = 0; i < 5000; i++) {
        snprintf(key, sizeof key, "a key that fills the file %040d", i);
        rig_add(family, key, 1);
    }
    stop();
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    for (rlim_t bytes = 0; bytes < 5000 * 76; bytes += bytes == 0 ? 1000 : TWI_SAVE_BLOCK / 2) {
        few = (struct rlimit){bytes, before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
        tw_status status = tw_save(rig.engine, path);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_refused(status, TW_ERR_OPTIONS, strerror(EFBIG));
        assert_int_equal(read_file(again, sizeof again), size);
        assert_memory_equal(first, again, size);
    }
    assert_status(tw_save(rig.engine, path), TW_OK);
}

TEST_WITH(files_that_cannot_be_read_are_refused, begin, end, NULL) {
    assert_refused(tw_load(rig.engine, NULL), TW_ERR_OPTIONS, "path");
    assert_refused(tw_load(rig.engine, path), TW_ERR_OPTIONS, strerror(ENOENT));
    assert_refused(tw_load(rig.engine, folder), TW_ERR_OPTIONS, "regular");
    assert_int_equal(symlink("/etc/hostname", path), 0);
    assert_refused(tw_load(rig.engine, path), TW_ERR_OPTIONS, "regular");
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_refused(tw_load(rig.engine, path), TW_ERR_OPTIONS, "regular"); /* and does not wait for a writer */
    unlink(path);
    write_file((const unsigned char *)"", 0);
    assert_refused(tw_load(rig.engine, path), TW_ERR_OPTIONS, "not a file of tw_save()");
    write_file((const unsigned char *)"twcount of something else, long enough", 38);
    assert_refused(tw_load(rig.engine, path), TW_ERR_OPTIONS, "not a file of tw_save()");
}

/* Goal: no damage loads anything. Method: the file cut at every length, and each of its bytes changed. */
TEST_WITH(a_damaged_file_is_refused, begin, end, NULL) {
    static unsigned char bytes[4096];
    rig_add(hourly(), "a key", 12345);
    rig_add(rig_family(&rig, "forever", TW_WINDOW_FOREVER, 0), "another", -1);
    save();
    size_t size = read_file(bytes, sizeof bytes);
    start_again();
    tw_family *family = hourly(), *forever = rig_family(&rig, "forever", TW_WINDOW_FOREVER, 0);
    for (size_t part = 0; part < size; part++) {
        write_file(bytes, part);
        assert_status(tw_load(rig.engine, path), TW_ERR_OPTIONS);
    }
    for (size_t i = 0; i < size; i++) {
        bytes[i] ^= (unsigned char)(1u << i % 8);
        write_file(bytes, size);
        assert_status(tw_load(rig.engine, path), TW_ERR_OPTIONS);
        bytes[i] ^= (unsigned char)(1u << i % 8);
    }
    bytes[8] = TWI_SAVE_FORMAT + 1;
    write_file(bytes, size);
    assert_refused(tw_load(rig.engine, path), TW_ERR_OPTIONS, "a later version");
    bytes[8] = TWI_SAVE_FORMAT;
    assert_i64_equal(rig_each(family, TW_NOW).counters + rig_each(forever, TW_NOW).counters, 0);
    write_file(bytes, size);
    load();
    assert_i64_equal(rig_get(family, "a key"), 12345);
}

/* Goal: records that no engine has written are refused, although their sum is right. */
TEST_WITH(wrong_records_are_refused, begin, end, NULL) {
    static unsigned char good[4096], bytes[4096];
    rig_add(hourly(), "k", 1);
    save();
    size_t size = read_file(good, sizeof good) - TWI_SAVE_SUM_BYTES, head = 16, family = head + 3 + 6 + 72;
    assert_int_equal(size, family + 14 + 10 + 1);
    start_again();
    tw_family *hourly_family = hourly();
    const struct {
        size_t at;
        unsigned char value;
        size_t size;
        const char *what;
    } cases[] = {
        {head + 2, 0, size, "wrong record"},           /* a family without a name */
        {head + 2, 65, size, "wrong record"},          /* or with a longer one than there is */
        {head + 4, '\0', size, "wrong record"},        /* a NUL in it */
        {head + 4, 'x', size, "\"hxurly\""},           /* another name */
        {family + 2, 1, size, "no family"},            /* a window of the second family, of one */
        {family + 6, 1, size, "begins then"},          /* a moment that begins no window */
        {family, 0xfb, size, "wrong record"},          /* an unknown kind of record */
        {family + 14, 2, size, "wrong record"},        /* a key that goes on behind the file */
        {family + 14 + 9, 0x7f, size, "out of range"}, /* a count that no counter has */
        {size - 1, 'k', size - 1, "wrong record"},
        {size - 1, 'k', family + 1, "wrong record"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memcpy(bytes, good, size);
        bytes[cases[i].at] = cases[i].value;
        write_summed(bytes, cases[i].size);
        assert_refused(tw_load(rig.engine, path), TW_ERR_OPTIONS, cases[i].what);
    }
    memcpy(bytes, good, family);
    memcpy(bytes + family, good + family + 14, 11); /* a counter without a window */
    write_summed(bytes, family + 11);
    assert_refused(tw_load(rig.engine, path), TW_ERR_OPTIONS, "no window");
    assert_i64_equal(rig_each(hourly_family, TW_NOW).counters, 0);
}

/* Goal: two counters of one key whose sum no counter can have change nothing. Method: such a file, and a family before
 * it. */
TEST_WITH(a_sum_out_of_range_is_taken_back, begin, end, NULL) {
    static unsigned char bytes[4096];
    tw_family *family = hourly();
    for (int i = 0; i < 200; i++) assert_status(tw_add(family, tw_str("k"), TW_DELTA_MAX, NULL), TW_OK);
    save();
    size_t size = read_file(bytes, sizeof bytes) - TWI_SAVE_SUM_BYTES;
    memcpy(bytes + size, bytes + size - 11, 11);
    write_summed(bytes, size + 11);
    start_again();
    family = hourly();
    assert_status(tw_load(rig.engine, path), TW_ERR_RANGE);
    assert_i64_equal(rig_get(family, "k"), 0);
}

/* ---- families that are not as they were -------------------------------------------------------------------------- */

static void assert_differs(const char *field, const tw_family_options *options) {
    char what[64];
    start_again();
    tw_family *family = rig_family_of(&rig, options);
    snprintf(what, sizeof what, "%s: family \"hourly\"", field);
    assert_refused(tw_load(rig.engine, path), TW_ERR_OPTIONS, what);
    assert_i64_equal(rig_each(family, TW_NOW).counters, 0);
    rig_close(&rig);
    is_open = false;
}

TEST_WITH(a_family_that_differs_is_named_with_the_field, begin, end, NULL) {
    rig_add(hourly(), "k|f", 1);
    save();
#define DIFFERS(field, value) \
    do { \
        tw_family_options options = rig_options("hourly", TW_WINDOW_ALIGNED, TW_HOUR); \
        options.field = (value); \
        assert_differs(#field, &options); \
    } while (0)
    DIFFERS(window_ms, TW_MINUTE);
    DIFFERS(utc_offset_ms, TW_HOUR);
    DIFFERS(limit_shape, TW_SHAPE_SLIDING);
    DIFFERS(limit_shape, TW_SHAPE_GCRA);
    DIFFERS(redis_shape, TW_REDIS_HASH);
    DIFFERS(redis_shape, TW_REDIS_ZSET);
    tw_family_options options = rig_options("hourly", TW_WINDOW_DAY, 0);
    assert_differs("window", &options);
    options = rig_options("hourly", TW_WINDOW_FOREVER, 0);
    options.kind = TW_KIND_GAUGE;
    assert_differs("kind", &options);
    start_again();
    rig_family(&rig, "other", TW_WINDOW_ALIGNED, TW_HOUR);
    assert_refused(tw_load(rig.engine, path), TW_ERR_OPTIONS, "\"hourly\" was saved, and is not open");
    options = rig_options("hourly", TW_WINDOW_ALIGNED, TW_HOUR); /* policies may differ */
    options.limit_mode = TW_LIMIT_HARD;
    options.history_ms = TW_NONE;
    options.lateness_ms = TW_DAY;
    options.keys_max = 10;
    tw_family *family = rig_family_of(&rig, &options);
    load();
    assert_i64_equal(rig_get(family, "k|f"), 1);
}

TEST_WITH(fields_that_a_family_lacks_are_refused, begin, end, NULL) {
    tw_family_options options = rig_options("articles", TW_WINDOW_DAY, 0);
    options.redis_shape = TW_REDIS_HASH;
    rig_add(rig_family_of(&rig, &options), "article|likes", 1);
    save();
    start_again();
    options.fields = "views,shares";
    tw_family *family = rig_family_of(&rig, &options);
    assert_refused(tw_load(rig.engine, path), TW_ERR_KEY, "\"articles\"");
    assert_i64_equal(rig_each(family, TW_NOW).counters, 0);
}

/* Goal: nothing is counted twice, and what was counted before stays. Method: counts in the open window, only in
 * history, only in the overflow counter; a second load; and a file whose other family is untouched. */
TEST_WITH(a_family_that_has_counted_is_refused, begin, end, NULL) {
    rig_add(hourly(), "k", 7);
    rig_add(rig_family(&rig, "forever", TW_WINDOW_FOREVER, 0), "k", 7);
    save();
    start_again();
    tw_family *family = hourly(), *forever = rig_family(&rig, "forever", TW_WINDOW_FOREVER, 0);
    rig_add(forever, "x", 5);
    assert_refused(tw_load(rig.engine, path), TW_ERR_MODE, "\"forever\"");
    assert_i64_equal(rig_each(family, TW_NOW).counters, 0);
    assert_i64_equal(rig_get(forever, "x"), 5);
    rig_close(&rig);
    start_again();
    family = hourly();
    forever = rig_family(&rig, "forever", TW_WINDOW_FOREVER, 0);
    load();
    assert_refused(tw_load(rig.engine, path), TW_ERR_MODE, "has counted");
    assert_i64_equal(rig_get(family, "k"), 7);
    assert_i64_equal(rig_get(forever, "k"), 7);
    rig_pass(&rig, TW_HOUR); /* in history now */
    assert_refused(tw_load(rig.engine, path), TW_ERR_MODE, "has counted");
}

/* ---- processes --------------------------------------------------------------------------------------------------- */

/* Goal: a child that the parent forked after its stop does not put an empty file over the parent's counts. */
TEST_WITH(a_child_of_a_stopped_engine_cannot_save, begin, end, NULL) {
    if (test_misses_wiped_pages()) return;
    rig_add(hourly(), "k", 7);
    stop();
    pid_t child = test_fork();
    if (child == 0) _exit(tw_save(rig.engine, path) == TW_ERR_FORKED ? 0 : 1);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_false(file_exists());
    save();
    start_again();
    tw_family *family = hourly();
    load();
    assert_i64_equal(rig_get(family, "k"), 7);
}

int main(void) {
    return test_run();
}
