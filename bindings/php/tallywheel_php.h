#define FFI_SCOPE "TALLYWHEEL"
#define FFI_LIB "libtallywheel_php.so"
/* tallywheel_php.h -- what tallywheel_php.c gives to tallywheel.php. ffi.preload names this file: then PHP loads the
 * library in the master of PHP-FPM, before it forks, and the library opens the engine.
 * Always true: both PHP's FFI and the C compiler read it as it stands. */
typedef struct tallywheel_verdict {
    int64_t limit, used, remaining, retry_after_ms, reset_after_ms, window_start_ms;
    int admitted, allowed, pending, cause;
} tallywheel_verdict;
int tallywheel_acquire(const char *family, const char *key, size_t size, int64_t n, tallywheel_verdict *verdict);
int tallywheel_refund(const char *family, const char *key, size_t size, int64_t n, int64_t window_start_ms);
int tallywheel_add(const char *family, const char *key, size_t size, int64_t delta, int64_t *count);
int tallywheel_get(const char *family, const char *key, size_t size, int64_t *count);
int tallywheel_metrics(char *page, size_t size, size_t *used);
const char *tallywheel_why(void);
