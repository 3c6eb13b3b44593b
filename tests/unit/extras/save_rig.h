/* save_rig.h -- two lives of an engine, for tests of tw_save() and tw_load(): save() ends the first one, start_again()
 * begins the second, which opens its families and calls load(). Each test has a folder of its own. */
#ifndef TEST_SAVE_RIG_H
#define TEST_SAVE_RIG_H

#include "tests/unit/rig.h"

#include "extras/save.h"

#include <sys/stat.h>
#include <unistd.h>

static struct rig rig;
static char folder[64], path[96];
static bool is_open;

static inline int begin(void **state) {
    rig_open(&rig);
    is_open = true;
    strcpy(folder, "/tmp/save-test-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/counts", folder);
    return 0;
}

static inline int end(void **state) {
    if (is_open) rig_close(&rig);
    unlink(path);
    return rmdir(folder); /* fails if a temporary file was left */
}

/* ---- helpers ----------------------------------------------------------------------------------------------------- */

static inline void stop(void) {
    assert_status(tw_stop(rig.engine), TW_OK);
}

/* The first life ends. */
static inline void save(void) {
    stop();
    if (tw_save(rig.engine, path) != TW_OK) fail_msg("%s", tw_error_text());
    (void)tw_close(rig.engine, 0);
    is_open = false;
}

/* The second life begins; its families come next. */
static inline void start_again(void) {
    rig_start(&rig);
    is_open = true;
}

static inline void load(void) {
    if (tw_load(rig.engine, path) != TW_OK) fail_msg("%s", tw_error_text());
}

static inline void assert_refused(tw_status status, tw_status want, const char *what) {
    assert_status(status, want);
    if (strstr(tw_error_text(), what) == NULL) fail_msg("\"%s\" does not say \"%s\"", tw_error_text(), what);
}

static inline int64_t stat_of(size_t offset) {
    tw_stats stats;
    assert_status(tw_stats_read(rig.engine, &stats), TW_OK);
    int64_t value;
    memcpy(&value, (const char *)&stats + offset, sizeof value);
    return value;
}

static inline tw_family *hourly(void) {
    return rig_family(&rig, "hourly", TW_WINDOW_ALIGNED, TW_HOUR);
}

static inline tw_verdict acquire(tw_family *family, const char *key, int64_t n, int64_t limit, tw_status want) {
    tw_verdict verdict;
    assert_status(tw_acquire(family, tw_str(key), n, limit, &verdict), want);
    return verdict;
}

static inline size_t read_file(unsigned char *bytes, size_t room) {
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t size = fread(bytes, 1, room, file);
    fclose(file);
    return size;
}

static inline void write_file(const unsigned char *bytes, size_t size) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* With the right checksum. */
static inline void write_summed(unsigned char *bytes, size_t size) {
    uint64_t sum = twi_save_sum(TWI_SAVE_SUM_FIRST, bytes, size);
    assert_true(size < TWI_SAVE_BLOCK);
    for (size_t i = 0; i < 8; i++) bytes[size + i] = (unsigned char)(sum >> 8 * i);
    write_file(bytes, size + 8);
}

#endif
