/* url.c -- any text as a Redis URL: no crash; a refused one leaves nothing behind, and its error repeats nothing of
 * it. Of one that is taken each seed is a whole endpoint, and only sentinels come with the name of a master. */
#include "sync/wire/url.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct twi_url empty;
    char text[2200], error[200] = "", name[TWI_ENDPOINT_NAME_SIZE];
    struct twi_url url;
    if (size >= sizeof text) return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    if (twi_url_parse(text, &url, error, sizeof error)) {
        bool is_list = url.kind != TWI_URL_ONE;
        if (error[0] || url.seed_count == 0 || url.seed_count > (is_list ? TWI_URL_SEEDS_MAX : 1)) abort();
        if ((url.master[0] != '\0') != (url.kind == TWI_URL_SENTINEL)) abort();
        if (url.db != 0 && url.kind == TWI_URL_CLUSTER) abort();
        if (url.has_password != (url.password[0] != '\0')) abort();
        for (uint32_t i = 0; i < url.seed_count; i++) {
            struct twi_endpoint seed = twi_url_seed(&url, i);
            if (seed.host[0] == '\0' || seed.is_unix != (seed.port == 0) || seed.is_tls != url.is_tls) abort();
            if (seed.is_unix != url.is_unix || !twi_endpoint_equals(&seed, &seed)) abort();
            twi_endpoint_name(&seed, name, sizeof name);
        }
    } else if (memcmp(&url, &empty, sizeof url) != 0 || strncmp(error, "redis_url: ", 11) != 0) {
        abort();
    }
    return 0;
}
