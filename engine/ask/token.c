/* token.c -- see token.h. */
#include "engine/ask/token.h"

#include "engine/base/check.h"
#include "engine/base/key_slot.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PREFIX_SIZE 4u /* "twl-" */
#define TAG_DIGITS 16u
#define SERIAL_DIGITS 16u
#define DUE_DIGITS 12u
#define CHECK_DIGITS 8u
#define SLOT_DIGITS 4u
#define LOCAL_DIGITS (TAG_DIGITS + SERIAL_DIGITS + DUE_DIGITS)

_Static_assert(PREFIX_SIZE + LOCAL_DIGITS + 1 + CHECK_DIGITS < TW_TOKEN_SIZE, "a token and its NUL fit");

/* This is FNV-1a. Any single wrong letter changes the result. */
static uint32_t check_of(const char *text, size_t size) {
    twi_check(text != NULL);
    uint32_t check = 2166136261u;
    for (size_t i = 0; i < size; i++) check = (check ^ (unsigned char)text[i]) * 16777619u;
    return check;
}

void twi_token_id(const unsigned char random[16], char out[TWI_TOKEN_ID_DIGITS + 1]) {
    for (size_t i = 0; i < 16; i++) (void)snprintf(out + 2 * i, 3, "%02x", random[i]);
}

void twi_token_write(const struct twi_token *token, char out[TW_TOKEN_SIZE]) {
    twi_check(token->local || token->id[0] != '\0');
    int size = token->local ? snprintf(out, TW_TOKEN_SIZE, "twl-%016" PRIx64 "%016" PRIx64 "%012" PRIx64, token->tag,
                                       token->serial, (uint64_t)token->due_ms & ((UINT64_C(1) << 48) - 1))
               : token->has_slot ? snprintf(out, TW_TOKEN_SIZE, "twr-%s%04" PRIx32, token->id, token->slot)
                                 : snprintf(out, TW_TOKEN_SIZE, "twr-%s", token->id);
    (void)snprintf(out + size, TW_TOKEN_SIZE - (size_t)size, "-%08" PRIx32, check_of(out, (size_t)size));
}

/* Reads exactly `count` digits. */
static bool read_digits(const char *text, size_t count, uint64_t *value) {
    twi_check(count <= 16); /* 64 bits */
    *value = 0;
    for (size_t i = 0; i < count; i++) {
        const char *digits = "0123456789abcdef", *at = text[i] != '\0' ? strchr(digits, text[i]) : NULL;
        if (at == NULL) return false;
        *value = *value << 4 | (uint64_t)(at - digits);
    }
    return true;
}

static bool check_is_right(const char *text, size_t digits) {
    twi_check(PREFIX_SIZE + digits + 1 + CHECK_DIGITS < TW_TOKEN_SIZE);
    size_t size = PREFIX_SIZE + digits;
    uint64_t check;
    return text[size] == '-' && read_digits(text + size + 1, CHECK_DIGITS, &check) && check == check_of(text, size);
}

static bool read_local(const char *text, struct twi_token *token) {
    const char *at = text + PREFIX_SIZE;
    uint64_t due;
    token->local = true;
    if (!read_digits(at, TAG_DIGITS, &token->tag) || !read_digits(at + TAG_DIGITS, SERIAL_DIGITS, &token->serial) ||
        !read_digits(at + TAG_DIGITS + SERIAL_DIGITS, DUE_DIGITS, &due))
        return false;
    token->due_ms = (int64_t)due;
    return check_is_right(text, LOCAL_DIGITS);
}

static bool read_of_redis(const char *text, size_t digits, struct twi_token *token) {
    twi_check(digits == TWI_TOKEN_ID_DIGITS || digits == TWI_TOKEN_ID_DIGITS + SLOT_DIGITS);
    uint64_t half, slot = 0;
    const char *at = text + PREFIX_SIZE;
    if (!read_digits(at, 16, &half) || !read_digits(at + 16, 16, &half)) return false;
    if (!read_digits(at + TWI_TOKEN_ID_DIGITS, digits - TWI_TOKEN_ID_DIGITS, &slot) || slot >= TWI_KEY_SLOTS)
        return false;
    memcpy(token->id, at, TWI_TOKEN_ID_DIGITS);
    token->has_slot = digits > TWI_TOKEN_ID_DIGITS;
    token->slot = (uint32_t)slot;
    return check_is_right(text, digits);
}

bool twi_token_read(const char *text, struct twi_token *token) {
    *token = (struct twi_token){0};
    size_t size = text != NULL ? strnlen(text, TW_TOKEN_SIZE) : 0;
    if (size == PREFIX_SIZE + LOCAL_DIGITS + 1 + CHECK_DIGITS && memcmp(text, "twl-", PREFIX_SIZE) == 0)
        return read_local(text, token);
    if (size < PREFIX_SIZE || memcmp(text, "twr-", PREFIX_SIZE) != 0) return false;
    size_t digits = size - PREFIX_SIZE - 1 - CHECK_DIGITS; /* the number is very large if the text is too short */
    return (digits == TWI_TOKEN_ID_DIGITS || digits == TWI_TOKEN_ID_DIGITS + SLOT_DIGITS) &&
           read_of_redis(text, digits, token);
}
