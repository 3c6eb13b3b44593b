/* network.c -- any text as an address: what tw_key_network() takes and what it writes is what inet_pton() and
 * inet_ntop() take and write. The first two bytes of the input are the bits. */
#include "tallywheel.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The twin. Returns whether the text is an address. */
static bool twin(const char *text, size_t size, unsigned bits4, unsigned bits6, char out[64]) {
    unsigned char bytes[16];
    char whole[256], *scope;
    memcpy(whole, text, size);
    whole[size] = '\0';
    if (strcspn(whole, "%") < size && whole[strcspn(whole, "%")] == '\0') return false; /* a NUL, not in a scope */
    int family = AF_INET;
    unsigned bits = bits4, most = 32;
    if (inet_pton(AF_INET, whole, bytes) != 1) {
        if ((scope = strchr(whole, '%')) != NULL) *scope = '\0';
        if (inet_pton(AF_INET6, whole, bytes) != 1) return false;
        if (memcmp(bytes, "\0\0\0\0\0\0\0\0\0\0\xff\xff", 12) == 0) {
            memmove(bytes, bytes + 12, 4);
        } else {
            family = AF_INET6, bits = bits6, most = 128;
        }
    }
    for (unsigned at = bits; at < most; at++) bytes[at / 8] &= (unsigned char)~(0x80u >> at % 8);
    if (inet_ntop(family, bytes, out, 64) == NULL) abort();
    (void)snprintf(out + strlen(out), 64 - strlen(out), "/%u", bits);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char mine[64] = "as before", its[64];
    tw_key key = tw_str("as before");
    if (size < 2 || size > 250) return 0;
    unsigned bits4 = data[0] % 33, bits6 = data[1] % 129;
    char *text = malloc(size > 2 ? size - 2 : 1); /* nothing lies behind the address */
    if (text == NULL) return 0;
    memcpy(text, data + 2, size - 2);
    bool wanted = twin(text, size - 2, bits4, bits6, its);
    tw_status status = tw_key_network(text, size - 2, bits4, bits6, mine, sizeof mine, &key);
    if (status != (wanted ? TW_OK : TW_ERR_KEY)) abort();
    if (strcmp(mine, wanted ? its : "as before") != 0 || key.size != strlen(mine)) abort();
    free(text);
    return 0;
}
