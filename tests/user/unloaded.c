/* unloaded.c -- modules are unloaded while threads that have counted in them live on.
 * Usage: unloaded LIBRARY PLUGIN */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tallywheel.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#define THREADS 8

static const char *library, *plugin;

struct module {
    void *handle;
    tw_status (*add)(tw_family *family, tw_key key, int64_t delta, int64_t *view);
    tw_status (*close)(tw_engine *engine, uint32_t timeout_ms);
    tw_engine *engine;
    tw_family *family;
};

static void *find(struct module *module, const char *name) {
    void *found = dlsym(module->handle, name);
    if (found == NULL) fail_msg("%s: %s", name, dlerror());
    return found;
}

static void load(struct module *module, const char *path) {
    module->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (module->handle == NULL) fail_msg("%s", dlerror());
    void (*options_init)(tw_options *, size_t), (*family_init)(tw_family_options *, size_t);
    tw_status (*open)(const tw_options *, tw_engine **);
    tw_status (*family_open)(tw_engine *, const tw_family_options *, tw_family **);
    *(void **)&options_init = find(module, "tw_options_init_sized");
    *(void **)&family_init = find(module, "tw_family_options_init_sized");
    *(void **)&open = find(module, "tw_open");
    *(void **)&family_open = find(module, "tw_family_open");
    *(void **)&module->add = find(module, "tw_add");
    *(void **)&module->close = find(module, "tw_close");
    tw_options options;
    tw_family_options family_options;
    options_init(&options, sizeof options);
    options.memory_bytes_max = 8 << 20;
    assert_int_equal(open(&options, &module->engine), TW_OK);
    family_init(&family_options, sizeof family_options);
    family_options.name = "f";
    assert_int_equal(family_open(module->engine, &family_options, &module->family), TW_OK);
}

static struct module loaded;
static atomic_int counted;
static atomic_bool may_end;

static void *count_and_live_on(void *ctx) {
    (void)ctx;
    if (loaded.add(loaded.family, tw_str("k"), 1, NULL) == TW_OK) atomic_fetch_add(&counted, 1);
    while (!atomic_load(&may_end)) sched_yield();
    return NULL;
}

/* Goal: a thread that has counted ends well, though the module was closed before it. Twice, as a server's reload
 * does. */
static void check(const char *path) {
    for (int round = 0; round < 2; round++) {
        pthread_t threads[THREADS];
        load(&loaded, path);
        atomic_store(&counted, 0);
        atomic_store(&may_end, false);
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, count_and_live_on, NULL), 0);
        while (atomic_load(&counted) != THREADS) sched_yield();
        assert_int_equal(loaded.close(loaded.engine, 1000), TW_OK);
        assert_int_equal(dlclose(loaded.handle), 0);
        atomic_store(&may_end, true);
        for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    }
}

static void threads_outlive_the_shared_library(void **state) {
    (void)state;
    check(library);
}

static void threads_outlive_a_module_that_the_static_library_is_in(void **state) {
    (void)state;
    check(plugin);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_outlive_the_shared_library),
        cmocka_unit_test(threads_outlive_a_module_that_the_static_library_is_in),
    };
    if (argc != 3) return 2;
    library = argv[1];
    plugin = argv[2];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
