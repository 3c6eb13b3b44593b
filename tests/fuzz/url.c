/* url.c -- any text as a Redis URL: no crash; a refused one leaves nothing behind, and its error repeats nothing of
 * it. */
#include "sync/wire/url.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct twi_url empty;
    char text[2200], error[200] = "", name[300];
    struct twi_url url;
    if (size >= sizeof text) return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    if (twi_url_parse(text, &url, error, sizeof error)) {
        if (url.host[0] == '\0' || url.port == 0 || error[0]) abort();
        twi_url_name(&url, name, sizeof name);
    } else if (memcmp(&url, &empty, sizeof url) != 0 || strncmp(error, "redis_url: ", 11) != 0) {
        abort();
    }
    return 0;
}
