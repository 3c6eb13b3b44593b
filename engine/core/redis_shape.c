/* redis_shape.c -- see redis_shape.h. */
#include "engine/core/redis_shape.h"

#include "engine/base/check.h"
bool twi_redis_shape_split(struct twi_redis_shape shape, tw_key key, tw_key *subject, tw_key *inner) {
    twi_check(shape.kind <= TW_REDIS_ZSET);
    twi_check(key.size <= TW_KEY_SIZE_MAX);
    const char *bytes = key.data;
    *subject = key;
    *inner = tw_bytes(bytes, 0);
    if (shape.kind == TW_REDIS_STRING) return true;
    if (shape.kind == TW_REDIS_ZSET) {
        *subject = tw_bytes(bytes, 0);
        *inner = key;
        return true;
    }
    for (size_t at = key.size; at-- > 0;) {
        if (bytes[at] != shape.separator) continue;
        if (at == 0 || at + 1 == key.size) return false;
        *subject = tw_bytes(bytes, at);
        *inner = tw_bytes(bytes + at + 1, key.size - at - 1);
        return true;
    }
    return false;
}

const char *twi_fields_read(const char *text, char separator, struct twi_fields *fields) {
    twi_check(text != NULL && separator != '\0');
    fields->count = 0;
    for (;;) {
        size_t size = strcspn(text, ",");
        if (size == 0) return "one of them is empty";
        if (size > TW_KEY_SIZE_MAX - 2) return "one of them leaves no room for a subject in a key";
        if (memchr(text, separator, size) != NULL) return "one of them has key_separator in it";
        if (fields->count == TWI_FIELDS_MAX) return "more than 64 of them";
        tw_key field = tw_bytes(text, size);
        if (twi_fields_have(fields, field)) return "one of them is there twice";
        fields->each[fields->count++] = field;
        if (text[size] == '\0') return NULL;
        text += size + 1;
    }
}

bool twi_fields_have(const struct twi_fields *fields, tw_key field) {
    twi_check(fields->count <= TWI_FIELDS_MAX);
    for (uint32_t i = 0; i < fields->count; i++)
        if (fields->each[i].size == field.size && memcmp(fields->each[i].data, field.data, field.size) == 0)
            return true;
    return false;
}
