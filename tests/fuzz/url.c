/* url.c -- fuzz target: any text is either a URL or refused by name, and never repeated in the error.
 * Goal: no crash, no read outside; what was accepted can be named. Method: the input as a C string. */
#include "sync/url.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1);
    if (text == NULL) return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    struct twi_url url;
    char error[128] = "", name[300];
    if (twi_url_parse(text, &url, error, sizeof error)) {
        twi_url_name(&url, name, sizeof name);
        if (strlen(name) == 0 || strlen(url.host) == 0) abort();
    } else if (error[0] == '\0' || memchr(error, '\0', sizeof error) == NULL) {
        abort();
    }
    twi_url_wipe(&url);
    free(text);
    return 0;
}
