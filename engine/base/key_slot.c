/* key_slot.c -- see key_slot.h. */
#include "engine/base/key_slot.h"

#include "engine/base/check.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* ---- CRC16 -------------------------------------------------------------------------------------------------------- A
 * CRC is linear. The CRC of a byte is the exclusive or of the CRCs of its bits. So eight constants make a table of
 * 256. Four tables process four bytes in one step. Table k has the CRCs of a byte and k zero bytes behind it. */

#define ENTRY(i, b0, b1, b2, b3, b4, b5, b6, b7) \
    ((i)&1 ? (b0) : 0) ^ ((i)&2 ? (b1) : 0) ^ ((i)&4 ? (b2) : 0) ^ ((i)&8 ? (b3) : 0) ^ ((i)&16 ? (b4) : 0) ^ \
        ((i)&32 ? (b5) : 0) ^ ((i)&64 ? (b6) : 0) ^ ((i)&128 ? (b7) : 0)
#define ENTRIES_4(i, ...) \
    ENTRY(i, __VA_ARGS__), ENTRY((i) + 1, __VA_ARGS__), ENTRY((i) + 2, __VA_ARGS__), ENTRY((i) + 3, __VA_ARGS__)
#define ENTRIES_16(i, ...) \
    ENTRIES_4(i, __VA_ARGS__), ENTRIES_4((i) + 4, __VA_ARGS__), ENTRIES_4((i) + 8, __VA_ARGS__), \
        ENTRIES_4((i) + 12, __VA_ARGS__)
#define ENTRIES_64(i, ...) \
    ENTRIES_16(i, __VA_ARGS__), ENTRIES_16((i) + 16, __VA_ARGS__), ENTRIES_16((i) + 32, __VA_ARGS__), \
        ENTRIES_16((i) + 48, __VA_ARGS__)
#define TABLE(...) \
    { \
        ENTRIES_64(0, __VA_ARGS__), ENTRIES_64(64, __VA_ARGS__), ENTRIES_64(128, __VA_ARGS__), \
            ENTRIES_64(192, __VA_ARGS__) \
    }

static const uint16_t table[4][256] = {
    TABLE(0x1021, 0x2042, 0x4084, 0x8108, 0x1231, 0x2462, 0x48c4, 0x9188),
    TABLE(0x3331, 0x6662, 0xccc4, 0x89a9, 0x0373, 0x06e6, 0x0dcc, 0x1b98),
    TABLE(0x3730, 0x6e60, 0xdcc0, 0xa9a1, 0x4363, 0x86c6, 0x1dad, 0x3b5a),
    TABLE(0x76b4, 0xed68, 0xcaf1, 0x85c3, 0x1ba7, 0x374e, 0x6e9c, 0xdd38),
};

static uint16_t crc16_step(uint16_t crc, unsigned char byte) {
    return (uint16_t)(crc << 8 ^ table[0][crc >> 8 ^ byte]);
}

uint16_t twi_key_slot_crc16(const void *data, size_t size) {
    const unsigned char *bytes = data;
    uint16_t crc = 0;
    for (; size >= 4; size -= 4, bytes += 4)
        crc =
            table[3][crc >> 8 ^ bytes[0]] ^ table[2][(crc & 0xff) ^ bytes[1]] ^ table[1][bytes[2]] ^ table[0][bytes[3]];
    for (; size != 0; size--) crc = crc16_step(crc, *bytes++);
    return crc;
}

/* ---- slots ------------------------------------------------------------------------------------------------------ */

/* Returns the hash tag of a name, or NULL. */
static const char *hash_tag(const char *name, size_t size, size_t *tag_size) {
    const char *open = size != 0 ? memchr(name, '{', size) : NULL;
    if (open == NULL) return NULL;
    const char *close = memchr(open + 1, '}', size - (size_t)(open + 1 - name));
    if (close == NULL || close == open + 1) return NULL;
    *tag_size = (size_t)(close - open - 1);
    return open + 1;
}

uint32_t twi_key_slot_of(const void *name, size_t size) {
    const char *tag = hash_tag(name, size, &size);
    return twi_key_slot_crc16(tag != NULL ? tag : name, size) % TWI_KEY_SLOTS;
}

size_t twi_key_slot_decimal(uint32_t number, char *out) {
    char digits[TWI_DECIMAL_MAX], *end = digits + sizeof digits, *at = twi_decimal_before(end, number);
    memcpy(out, at, (size_t)(end - at));
    return (size_t)(end - at);
}

static uint32_t slot_of_number(uint32_t number) {
    char text[10];
    return twi_key_slot_crc16(text, twi_key_slot_decimal(number, text)) % TWI_KEY_SLOTS;
}

/* ---- tags and shorts -------------------------------------------------------------------------------------------- */

/* The tags for each number of groups T, at [T, 2T). One group of T is two groups of 2T; it has the smaller tag. */
static uint16_t tags[2 * TWI_KEY_SLOT_TAGS_MAX];
static pthread_once_t tags_made = PTHREAD_ONCE_INIT;

static void make_tags(void) {
    uint16_t *last = tags + TWI_KEY_SLOT_TAGS_MAX;
    uint32_t missing = TWI_KEY_SLOT_TAGS_MAX;
    memset(tags, 0xff, sizeof tags);
    for (uint32_t number = 0; missing != 0; number++) {
        uint32_t group = slot_of_number(number) / (TWI_KEY_SLOTS / TWI_KEY_SLOT_TAGS_MAX);
        if (last[group] != UINT16_MAX) continue;
        last[group] = (uint16_t)number;
        missing--;
    }
    for (uint32_t at = TWI_KEY_SLOT_TAGS_MAX - 1; at != 0; at--)
        tags[at] = tags[2 * at] < tags[2 * at + 1] ? tags[2 * at] : tags[2 * at + 1];
}

const uint16_t *twi_key_slot_tags(uint32_t count) {
    twi_check(count != 0 && count <= TWI_KEY_SLOT_TAGS_MAX && (count & (count - 1)) == 0);
    (void)pthread_once(&tags_made, make_tags);
    return tags + count;
}

static uint32_t shorts[TWI_KEY_SLOTS];
static pthread_once_t shorts_made = PTHREAD_ONCE_INIT;

static void make_shorts(void) {
    uint32_t missing = TWI_KEY_SLOTS;
    memset(shorts, 0xff, sizeof shorts);
    for (uint32_t number = 0; missing != 0; number++) {
        uint32_t slot = slot_of_number(number);
        if (shorts[slot] != UINT32_MAX) continue;
        shorts[slot] = number;
        missing--;
    }
}

const uint32_t *twi_key_slot_shorts(void) {
    (void)pthread_once(&shorts_made, make_shorts);
    return shorts;
}

size_t twi_key_slot_brace(const uint32_t *of_slots, const void *name, size_t size, char out[TWI_KEY_SLOT_BRACE_MAX]) {
    size_t tag_size, digits;
    if (of_slots == NULL || hash_tag(name, size, &tag_size) != NULL) return 0;
    out[0] = '{';
    digits = twi_key_slot_decimal(of_slots[twi_key_slot_of(name, size)], out + 1);
    out[1 + digits] = '}';
    return digits + 2;
}

/* ---- glob ---- */

char *twi_glob_put(char *out, char byte) {
    if (strchr("*?[]\\", byte) != NULL) *out++ = '\\';
    *out++ = byte;
    return out;
}

void twi_glob_names(const char *prefix, const char *rest, char *out, size_t size) {
    char *at = out;
    while (*prefix != '\0' && (size_t)(at - out) + 40 < size) at = twi_glob_put(at, *prefix++);
    (void)snprintf(at, size - (size_t)(at - out), "%s", rest);
}
