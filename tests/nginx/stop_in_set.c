/* stop_in_set.c -- preloaded into nginx: one worker stops itself while it sets the policies of a zone.
 * TW_STOP_IN_SET is a path. Whoever removes PATH.before stops before the change of tw_family_set(), and whoever removes
 * PATH.after stops after it. The module has the lock of the policies at both places.
 * Always true: for each file that the test makes, one process stops once. */
#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <tallywheel.h>
#include <unistd.h>

static char path[512];

/* nginx gives its workers another environment, and writes its title where the first one was. */
__attribute__((constructor)) static void begin(void) {
    const char *value = getenv("TW_STOP_IN_SET");
    if (value != NULL) (void)snprintf(path, sizeof path, "%s", value);
}

static void stop_if_asked(const char *when) {
    char name[1024];
    if (path[0] == '\0') return;
    (void)snprintf(name, sizeof name, "%s.%s", path, when);
    if (unlink(name) == 0) (void)raise(SIGSTOP);
}

tw_status tw_family_set(tw_family *family, const tw_family_options *options) {
    tw_status (*set)(tw_family *, const tw_family_options *);
    *(void **)&set = dlsym(RTLD_NEXT, "tw_family_set");
    if (set == NULL) abort();
    stop_if_asked("before");
    tw_status status = set(family, options);
    stop_if_asked("after");
    return status;
}
