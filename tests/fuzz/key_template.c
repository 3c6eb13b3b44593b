/* key_template.c -- any text as a template of names in Redis. It is refused with a reason, or each name fits, is none
 * of the engine's own, and tells its key and its window apart from all others. The first bytes choose the kind of
 * window, the tags, and a prefix or none; then come this prefix, a family's name and the template, each up to a NUL;
 * what is left are keys. */
#include <stdlib.h>
#include <string.h>

#include "engine/core/key_template.h"

#define HEAD_BYTES 4
#define TEXT_MAX 1024
#define KEYS_MAX 3
#define WINDOWS 3

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The bytes up to the next NUL, as a text. */
static void text_cut(const uint8_t **data, size_t *size, char text[TEXT_MAX]) {
    const uint8_t *nul = memchr(*data, '\0', *size);
    size_t bytes = nul == NULL ? *size : (size_t)(nul - *data), kept = bytes < TEXT_MAX - 1 ? bytes : TEXT_MAX - 1;
    memcpy(text, *data, kept);
    text[kept] = '\0';
    *data += bytes;
    *size -= bytes;
    if (*size > 0) ++*data, --*size;
}

/* The names of some keys in some windows: none is that of another one. */
static void check_names(const struct twi_key_template *pattern, const struct twi_window_rule *rule, const tw_key *keys,
                        size_t key_count) {
    static char names[KEYS_MAX * WINDOWS][TWI_REDIS_KEY_MAX];
    size_t sizes[KEYS_MAX * WINDOWS], count = 0;
    int64_t start_ms = INT64_C(1431857103000);
    for (size_t window = 0; window < WINDOWS; window++) {
        struct twi_span span = twi_calendar_span(rule, start_ms);
        for (size_t i = 0; i < key_count; i++) {
            if (pattern->guard_reserved && twi_key_template_key_is_reserved(pattern, keys[i])) continue;
            sizes[count] = twi_key_template_render(pattern, keys[i], span.start_ms, names[count]);
            if (sizes[count] > TWI_REDIS_KEY_MAX) abort();
            size_t behind = pattern->prefix_size;
            if (sizes[count] >= behind + 3 && memcmp(names[count] + behind, "tw:", 3) == 0) abort();
            for (size_t other = 0; other < count; other++)
                if (sizes[other] == sizes[count] && memcmp(names[other], names[count], sizes[count]) == 0) abort();
            count++;
        }
        if (!twi_calendar_has_starts(rule)) return;
        start_ms = span.end_ms;
    }
}

/* Different keys, as the library takes them. */
static size_t keys_cut(const uint8_t *data, size_t size, tw_key keys[KEYS_MAX]) {
    size_t count = 0;
    for (size_t piece = size / KEYS_MAX; piece > 0 && count < KEYS_MAX; data += piece) {
        tw_key key = tw_bytes(data, piece < TW_KEY_SIZE_MAX ? piece : TW_KEY_SIZE_MAX);
        bool is_new = true;
        for (size_t i = 0; i < count; i++) is_new = is_new && memcmp(keys[i].data, key.data, key.size) != 0;
        if (!is_new) break;
        keys[count++] = key;
    }
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct twi_key_template pattern;
    static const int64_t lengths[] = {TW_SECOND, TW_MINUTE, 25 * TW_MINUTE, TW_HOUR, TW_DAY, 30 * TW_DAY};
    static const uint32_t windows[] = {TW_WINDOW_ALIGNED, TW_WINDOW_DAY,     TW_WINDOW_WEEK,
                                       TW_WINDOW_MONTH,   TW_WINDOW_FOREVER, TW_WINDOW_FROM_FIRST};
    char prefix[TEXT_MAX], family[TEXT_MAX], text[TEXT_MAX], error[200] = "";
    tw_key keys[KEYS_MAX];
    if (size < HEAD_BYTES) return 0;
    struct twi_window_rule rule = {.window = windows[data[0] % 6], .window_ms = lengths[data[1] % 6]};
    rule.utc_offset_ms = ((int64_t)data[2] - 128) / 8 * TW_HOUR;
    if (rule.utc_offset_ms > 14 * TW_HOUR || rule.utc_offset_ms < -14 * TW_HOUR) rule.utc_offset_ms = 0;
    uint32_t tags = 1u << data[3] % 11;
    bool has_prefix = data[3] >= 128;
    data += HEAD_BYTES;
    size -= HEAD_BYTES;
    text_cut(&data, &size, prefix);
    text_cut(&data, &size, family);
    text_cut(&data, &size, text);
    tw_status status = twi_key_template_parse(&pattern, text, family, has_prefix ? prefix : NULL, tags, NULL, &rule,
                                              NULL, error, sizeof error);
    if (status == TW_OK) {
        check_names(&pattern, &rule, keys, keys_cut(data, size, keys));
    } else if (status != TW_ERR_OPTIONS || strncmp(error, "redis_key: ", 11) != 0) {
        abort();
    }
    return 0;
}
