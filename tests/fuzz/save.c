/* save.c -- any bytes as the records of a file of tw_save(), behind a right head: nothing is read past their end, and
 * records that are refused leave no count. What was accepted is saved, and loads again to the same.
 * Always true: no counter has a count before an input. Refused ones share an engine, some hundred of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "extras/save.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FAMILIES 3
static tw_engine *engine;
static tw_family *families[FAMILIES];

static int64_t stands_still(void *ctx, int kind) {
    (void)ctx, (void)kind;
    return INT64_C(1700002800000000000);
}

static void open_engine(void) {
    static const char *const names[FAMILIES] = {"a", "b", "c"};
    tw_options options;
    tw_options_init(&options);
    options.threads = TW_HOST_DRIVEN;
    options.memory_bytes_max = UINT64_C(1) << 20;
    options.clock_now_ns = stands_still;
    if (tw_open(&options, &engine) != TW_OK) abort();
    for (size_t i = 0; i < FAMILIES; i++) {
        tw_family_options family;
        tw_family_options_init(&family);
        family.name = names[i];
        family.window = i == 1 ? TW_WINDOW_FOREVER : TW_WINDOW_ALIGNED;
        family.keys_max = i == 1 ? 4 : 0;
        family.on_full = i == 1 ? TW_ON_FULL_REJECT : TW_ON_FULL_OVERFLOW;
        family.limit_shape = i == 2 ? TW_SHAPE_SLIDING : TW_SHAPE_FIXED;
        if (tw_family_open(engine, &family, &families[i]) != TW_OK) abort();
    }
}

/* A sum over all counters, in whatever order; 0 if there is no count. */
static bool see(void *ctx, const tw_count *count) {
    if (count->local != 0)
        *(uint64_t *)ctx += twi_save_sum((uint64_t)count->local + 1, count->key.data, count->key.size);
    return true;
}

static uint64_t see_all(void) {
    uint64_t seen = 0;
    for (size_t i = 0; i < FAMILIES; i++)
        if (tw_each(families[i], TW_NOW, see, &seen) != TW_OK) abort();
    return seen;
}

/* As tw_load(), without the sum, which no input would have. */
static tw_status load(const uint8_t *data, size_t size) {
    static struct twi_save_in in;
    static const unsigned char head[16] = "twcounts\2";
    struct twi_loading *loading;
    in.path = "fuzz";
    in.format = TWI_SAVE_FORMAT;
    in.size = sizeof head + size;
    in.fd = memfd_create("fuzz", 0);
    if (write(in.fd, head, sizeof head) != sizeof head || write(in.fd, data, size) != (ssize_t)size) abort();
    if (twi_load_begin(engine, &loading) != TW_OK) abort();
    tw_status status = twi_save_check_all(&in, loading);
    if (status == TW_OK) status = twi_save_count_all(&in, loading);
    status = twi_load_end(loading, status);
    close(in.fd);
    return status;
}

static void check_round_trip(uint64_t seen) {
    char path[64];
    (void)snprintf(path, sizeof path, "/dev/shm/fuzz-save-%ld", (long)getpid());
    if (tw_stop(engine) != TW_OK || tw_save(engine, path) != TW_OK || tw_close(engine, 0) != TW_OK) abort();
    open_engine();
    if (tw_load(engine, path) != TW_OK || see_all() != seen) abort();
    unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int refused;
    if (engine == NULL) open_engine();
    tw_status status = load(data, size);
    uint64_t seen = see_all();
    if (status < 0 && (seen != 0 || strlen(tw_error_text()) == 0)) abort();
    if (status == TW_OK) check_round_trip(seen);
    if (status < 0 && ++refused % 256 != 0) return 0;
    (void)tw_close(engine, 0);
    engine = NULL;
    return 0;
}
