/* network.c -- tw_key_network(): the network of an IPv4 or IPv6 address, as a key.
 * The C library's inet_pton() wants a NUL behind the text, and inet_pton() and inet_ntop() take four times as many
 * instructions. A server makes such a key for each request.
 * Always true: what is read and written is what these two read and write, and no byte outside of the text is read. All
 * spellings of one address, and all addresses of one network, have one key. */
#include "engine/base/why.h"

#include <string.h>

#define ADDRESS_TEXT_MAX 45 /* "ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255" */
#define BUFFER_MIN 64       /* also room for what later versions may write */
#define NO_GAP 17           /* no byte of an address has this number */

/* ---- text to bytes ---- */

/* Four numbers of 0 to 255 without leading zeros, up to `end`. */
static bool four_read(const char *at, const char *end, unsigned char bytes[4]) {
    for (int part = 0; part < 4; part++) {
        const char *begin = at;
        unsigned value = 0;
        if (part > 0 && (at == end || *at++ != '.')) return false;
        for (begin = at; at < end && at - begin < 3 && *at >= '0' && *at <= '9'; at++)
            value = value * 10 + (unsigned)(*at - '0');
        if (at == begin || value > 255 || (*begin == '0' && at - begin > 1)) return false;
        bytes[part] = (unsigned char)value;
    }
    return at == end;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The groups up to `end`, one behind the other, with `*gap` of their bytes before "::". Returns how many bytes they
 * have, or -1. The last two groups may be an IPv4 address. */
static int groups_read(const char *at, const char *end, unsigned char bytes[16], int *gap) {
    int done = 0;
    *gap = NO_GAP;
    if (end - at >= 2 && at[0] == ':' && at[1] == ':') *gap = 0, at += 2;
    while (at < end) {
        const char *begin = at;
        unsigned value = 0;
        for (int digit; at < end && at - begin < 4 && (digit = hex_digit(*at)) >= 0; at++)
            value = value << 4 | (unsigned)digit;
        if (at == begin || done > 14) return -1;
        if (at < end && *at == '.') return done <= 12 && four_read(begin, end, bytes + done) ? done + 4 : -1;
        bytes[done++] = (unsigned char)(value >> 8);
        bytes[done++] = (unsigned char)value;
        if (at == end) break;
        if (*at++ != ':' || at == end) return -1; /* a colon at the end belongs to "::" */
        if (*at != ':') continue;
        if (*gap != NO_GAP) return -1;
        *gap = done, at++;
    }
    return done;
}

static bool six_read(const char *at, const char *end, unsigned char bytes[16]) {
    int gap, done = groups_read(at, end, bytes, &gap);
    if (done < 0 || gap == NO_GAP) return done == 16;
    if (done == 16) return false; /* "::" stands for a group at least */
    size_t behind = (size_t)(done - gap);
    memmove(bytes + 16 - behind, bytes + gap, behind);
    memset(bytes + gap, 0, (size_t)(16 - done));
    return true;
}

/* The bytes of the address. Returns how many there are: 4, 16, or 0 if the text is no address. */
static size_t address_read(const char *text, size_t size, unsigned char bytes[16]) {
    static const unsigned char mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    if (size <= ADDRESS_TEXT_MAX && four_read(text, text + size, bytes)) return 4;
    const char *scope = memchr(text, '%', size <= ADDRESS_TEXT_MAX ? size : ADDRESS_TEXT_MAX + 1);
    if (scope != NULL) size = (size_t)(scope - text);
    if (size > ADDRESS_TEXT_MAX || !six_read(text, text + size, bytes)) return 0;
    if (memcmp(bytes, mapped, sizeof mapped) != 0) return 16;
    memmove(bytes, bytes + sizeof mapped, 4);
    return 4;
}

/* ---- bytes to text ---- */

static char *number_write(char *out, unsigned value) { /* below 1,000 */
    if (value >= 100) *out++ = (char)('0' + value / 100);
    if (value >= 10) *out++ = (char)('0' + value / 10 % 10);
    *out++ = (char)('0' + value % 10);
    return out;
}

static char *four_write(char *out, const unsigned char bytes[4]) {
    for (int part = 0; part < 4; part++) {
        if (part > 0) *out++ = '.';
        out = number_write(out, bytes[part]);
    }
    return out;
}

static char *group_write(char *out, unsigned value) {
    static const char digits[] = "0123456789abcdef";
    for (int shift = 12; shift >= 0; shift -= 4)
        if (shift == 0 || value >> shift != 0) *out++ = digits[value >> shift & 15];
    return out;
}

/* The first of the longest runs of groups that are 0. A single one stays as it is. Returns its length. */
static int zeros_find(const unsigned groups[8], int *begin) {
    int longest = 1;
    *begin = 8;
    for (int at = 0; at < 8; at++) {
        int length = 0;
        while (at + length < 8 && groups[at + length] == 0) length++;
        if (length > longest) *begin = at, longest = length;
    }
    return *begin < 8 ? longest : 0;
}

/* As RFC 5952 says. Below ::/96 the last two groups are an IPv4 address. One below ::ffff:0:0/96 never comes here. */
static char *six_write(char *out, const unsigned char bytes[16]) {
    unsigned groups[8];
    int gap;
    for (int at = 0; at < 8; at++) groups[at] = (unsigned)bytes[2 * at] << 8 | bytes[2 * at + 1];
    int length = zeros_find(groups, &gap);
    for (int at = 0; at < 8; at++) {
        if (at == gap) {
            *out++ = ':', *out++ = ':';
            at += length - 1;
            continue;
        }
        if (at > 0 && at != gap + length) *out++ = ':';
        if (at == 6 && gap == 0 && length == 6) return four_write(out, bytes + 12);
        out = group_write(out, groups[at]);
    }
    return out;
}

/* ---- the network ---- */

static void mask(unsigned char *bytes, size_t size, unsigned bits) {
    for (size_t at = 0; at < size; at++, bits -= bits < 8 ? bits : 8)
        if (bits < 8) bytes[at] &= (unsigned char)(0xff00u >> bits);
}

tw_status tw_key_network(const char *address, size_t size, unsigned bits4, unsigned bits6, char *buffer,
                         size_t buffer_size, tw_key *key) {
    unsigned char bytes[16];
    if (size != 0) TWI_NEED(address); /* an empty text may be NULL, and is no address */
    TWI_NEED(buffer);
    if (bits4 > 32) return twi_refuse(TW_ERR_OPTIONS, "bits4: an IPv4 address has 32 bits");
    if (bits6 > 128) return twi_refuse(TW_ERR_OPTIONS, "bits6: an IPv6 address has 128 bits");
    if (buffer_size < BUFFER_MIN) return twi_refuse(TW_ERR_OPTIONS, "buffer_size: the buffer has 64 bytes or more");
    size_t found = size != 0 ? address_read(address, size, bytes) : 0;
    if (found == 0) return twi_refuse(TW_ERR_KEY, "address: is no address of IPv4 or IPv6");
    unsigned bits = found == 4 ? bits4 : bits6;
    mask(bytes, found, bits);
    char *out = found == 4 ? four_write(buffer, bytes) : six_write(buffer, bytes);
    *out++ = '/';
    out = number_write(out, bits);
    *out = '\0';
    if (key != NULL) *key = tw_bytes(buffer, (size_t)(out - buffer));
    return TW_OK;
}
