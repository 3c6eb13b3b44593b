/* password_memory.c -- a password is nowhere in the memory of the process once it was sent: a core dump has none.
 * Method: all memory that the process may write is searched, through /proc/self/mem. The password is masked in the
 * program; a child sets it in Redis. While the password is in use the search must find it, or it would prove nothing.
 * */
#include "tests/redis/sync_support.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECRET_BYTES 40
#define REGION_MAX (UINT64_C(256) << 20) /* a sanitizer's own regions are larger */

/* A letter for each byte, but for its highest bit. */
static const unsigned char masked[SECRET_BYTES + 1] =
    "\xce\xf1\xd6\xf7\xd9\xd3\xb8\xb1\xd6\xd0\xb7\xc8\xe2\xb1\xc4\xd8\xb8\xf0\xd0\xe4"
    "\xb5\xeb\xe8\xf8\xc5\xb3\xf0\xf9\xc9\xe7\xcb\xf0\xe1\xd5\xee\xc1\xf2\xec\xb6\xb3";

static int unmask(void *ctx, char *out, size_t size) {
    assert_true(size > SECRET_BYTES);
    for (size_t i = 0; i < SECRET_BYTES; i++) out[i] = (char)(masked[i] & 127);
    out[SECRET_BYTES] = '\0';
    return SECRET_BYTES;
}

static void wipe(volatile char *at, size_t size) {
    while (size-- > 0) at[size] = '\0';
}

/* ---- the search -------------------------------------------------------------------------------------------------- */

static char chunk[(1 << 16) + SECRET_BYTES];

static bool is_secret(const char *at) {
    for (size_t i = 0; i < SECRET_BYTES; i++)
        if (((unsigned char)at[i] | 128) != masked[i]) return false;
    return true;
}

static int places_between(int memory, uint64_t first, uint64_t last) {
    int found = 0;
    for (uint64_t at = first; at < last; at += sizeof chunk - SECRET_BYTES) {
        size_t wanted = last - at < sizeof chunk ? (size_t)(last - at) : sizeof chunk;
        ssize_t got = pread(memory, chunk, wanted, (off_t)at);
        for (ssize_t i = 0; i + SECRET_BYTES <= got; i++) {
            uint64_t place = at + (uint64_t)i;
            bool is_own =
                place + SECRET_BYTES > (uint64_t)(uintptr_t)chunk && place < (uint64_t)(uintptr_t)chunk + sizeof chunk;
            found += !is_own && is_secret(chunk + i);
        }
    }
    wipe(chunk, sizeof chunk);
    return found;
}

/* In how many places the password is. */
static int places(void) {
    char line[512], rights[8];
    uint64_t first, last;
    int found = 0, memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    FILE *maps = fopen("/proc/self/maps", "re");
    assert_true(memory >= 0 && maps != NULL);
    while (fgets(line, sizeof line, maps) != NULL)
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s", &first, &last, rights) == 3 && rights[0] == 'r' &&
            rights[1] == 'w' && last - first <= REGION_MAX)
            found += places_between(memory, first, last);
    fclose(maps);
    close(memory);
    return found;
}

/* ---- the tests --------------------------------------------------------------------------------------------------- */

static int found_in_hook;

static int unmask_and_search(void *ctx, char *out, size_t size) {
    int length = unmask(ctx, out, size);
    found_in_hook = places();
    return length;
}

static void start_with_secret(struct redis_server *server) {
    redis_server_start(server, NULL);
    pid_t child = fork();
    if (child == 0) {
        char secret[SECRET_BYTES + 1];
        (void)unmask(NULL, secret, sizeof secret);
        redis_server_ask(server, "CONFIG", "SET", "requirepass", secret, NULL);
        _exit(0);
    }
    int status = 1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* Opens an engine that logs in, counts one, and waits until Redis has it. */
static tw_engine *count_one(tw_options *options) {
    tw_engine *engine;
    options->memory_bytes_max = UINT64_C(8) << 20;
    assert_status(test_open(options, &engine), TW_OK);
    assert_status(tw_add(family_of(engine, "f", TW_WINDOW_FOREVER, 0), tw_str("k"), 1, NULL), TW_OK);
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    return engine;
}

/* Goal: of a password from the hook nothing is left when it was sent, while the engine lives and works. */
TEST(a_password_from_the_hook_is_gone_once_it_was_sent) {
    struct redis_server server;
    tw_options options;
    start_with_secret(&server);
    quick_options(&options, server.url);
    options.redis_password = unmask_and_search;
    tw_engine *engine = count_one(&options);
    assert_true(found_in_hook > 0);
    assert_int_equal(places(), 0);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    assert_int_equal(places(), 0);
    redis_server_destroy(&server);
}

/* Goal: a password of the URL is there as long as the engine, and no longer. */
TEST(a_password_of_the_url_ends_with_the_engine) {
    struct redis_server server;
    tw_options options;
    char url[256], secret[SECRET_BYTES + 1];
    start_with_secret(&server);
    (void)unmask(NULL, secret, sizeof secret);
    snprintf(url, sizeof url, "unix://:%s@%s", secret, server.socket);
    wipe(secret, sizeof secret);
    quick_options(&options, url);
    tw_engine *engine = count_one(&options);
    wipe(url, sizeof url);
    assert_true(places() > 0);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    assert_int_equal(places(), 0);
    redis_server_destroy(&server);
}

int main(void) {
    redis_server_require();
    return test_run();
}
