/* token.c -- any text as a token of a lock or a reservation: it is refused, or written again it is the same text. Then
 * once more with the check that belongs to the text, so that other digits are reached, too. */
#include <stdlib.h>

#include "engine/ask/redis_call.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_token(const char *text) {
    struct twi_token token;
    char again[TW_TOKEN_SIZE];
    if (!twi_token_read(text, &token)) return;
    twi_token_write(&token, again);
    if (strcmp(text, again) != 0 || (token.has_slot && token.slot >= TWI_KEY_SLOTS)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1); /* as long as it is, so that AddressSanitizer sees its end */
    if (text == NULL) abort();
    memcpy(text, data, size);
    text[size] = '\0';
    read_token(text);
    size_t used = strlen(text), digits = used - CHECK_DIGITS - 1;
    if (used > CHECK_DIGITS + 1 && used < TW_TOKEN_SIZE) {
        (void)snprintf(text + digits, CHECK_DIGITS + 2, "-%08" PRIx32, check_of(text, digits));
        read_token(text);
    }
    free(text);
    return 0;
}
