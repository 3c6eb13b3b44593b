/* utf8.c -- well-formed UTF-8, by the table of the Unicode standard (the second byte's range decides). See utf8.h. */
#include "tools/common/utf8.h"

static bool is_tail(unsigned char byte) {
    return (byte & 0xC0) == 0x80;
}

size_t utf8_size(const unsigned char *text, size_t size) {
    unsigned char first = text[0];
    if (first < 0x80) return 1;
    if (first < 0xC2) return 0;
    if (first < 0xE0) return size >= 2 && is_tail(text[1]) ? 2 : 0;
    if (first < 0xF0) {
        unsigned char low = first == 0xE0 ? 0xA0 : 0x80, high = first == 0xED ? 0x9F : 0xBF;
        return size >= 3 && text[1] >= low && text[1] <= high && is_tail(text[2]) ? 3 : 0;
    }
    if (first < 0xF5) {
        unsigned char low = first == 0xF0 ? 0x90 : 0x80, high = first == 0xF4 ? 0x8F : 0xBF;
        return size >= 4 && text[1] >= low && text[1] <= high && is_tail(text[2]) && is_tail(text[3]) ? 4 : 0;
    }
    return 0;
}

bool utf8_is_valid(const unsigned char *text, size_t size) {
    while (size > 0) {
        size_t step = utf8_size(text, size);
        if (step == 0) return false;
        text += step;
        size -= step;
    }
    return true;
}

bool utf8_is_control(const unsigned char *text, size_t size) {
    if (size == 1) return text[0] < 0x20 || text[0] == 0x7F;
    return size == 2 && text[0] == 0xC2 && text[1] < 0xA0;
}

bool utf8_moves_text(const unsigned char *text, size_t size) {
    if (size != 3 || text[0] != 0xE2) return false;
    return (text[1] == 0x80 && text[2] >= 0xA8 && text[2] <= 0xAE) ||
           (text[1] == 0x81 && text[2] >= 0xA6 && text[2] <= 0xA9);
}
