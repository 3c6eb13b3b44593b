/* each_field.c -- tw_each_field() shows the counters of one subject in this process, field by field (redis_shape.h). If
 * the family declares its fields, the call looks up each of them. Otherwise the call looks at all counters of the
 * window, as tw_each() does, because there is no index of subjects.
 * Always true: both ways show the same fields with the same views. A view of 0 is not shown. Such a counter may only
 * have been requested, and a packed window has no such counter. */
#include "engine/count/each_field.h"

#include "engine/core/family.h"
#include "engine/count/each.h"

tw_status twi_hash_check(const tw_family *family, tw_key subject) {
    if (family->template.shape.kind != TW_REDIS_HASH)
        return twi_refuse(TW_ERR_MODE, "redis_shape: fields are of families of TW_REDIS_HASH");
    if (subject.data == NULL || subject.size == 0) return twi_refuse(TW_ERR_KEY, "subject: it is empty");
    if (subject.size > TW_KEY_SIZE_MAX - 2)
        return twi_refuse(TW_ERR_KEY, "subject: it leaves no room for a field in a key");
    return TW_OK;
}

bool twi_hash_key(const tw_family *family, tw_key subject, tw_key field, unsigned char bytes[TW_KEY_SIZE_MAX],
                  tw_key *key) {
    if (subject.size + 1 + field.size > TW_KEY_SIZE_MAX) return false;
    memcpy(bytes, subject.data, subject.size);
    bytes[subject.size] = (unsigned char)family->template.shape.separator;
    memcpy(bytes + subject.size + 1, field.data, field.size);
    *key = tw_bytes(bytes, subject.size + 1 + field.size);
    return true;
}

struct each_field {
    tw_family *family;
    tw_key subject;
    bool (*visit)(void *ctx, tw_key field, int64_t view);
    void *ctx;
};

static bool is_of_subject(void *ctx, tw_key key) {
    const struct each_field *each = ctx;
    tw_key subject, field;
    return key.size > each->subject.size && memcmp(key.data, each->subject.data, each->subject.size) == 0 &&
           twi_redis_shape_split(each->family->template.shape, key, &subject, &field) &&
           subject.size == each->subject.size;
}

static bool show(void *ctx, const tw_count *count) {
    const struct each_field *each = ctx;
    tw_key subject, field;
    if (count->view == 0 || !twi_redis_shape_split(each->family->template.shape, count->key, &subject, &field))
        return true;
    return each->visit(each->ctx, field, count->view);
}

static tw_status look_up(const struct each_field *each, tw_key field, int64_t unix_ms, int64_t *view) {
    unsigned char bytes[TW_KEY_SIZE_MAX];
    tw_key key;
    tw_family *family = each->family;
    *view = 0;
    if (!twi_hash_key(family, each->subject, field, bytes, &key)) return TW_OK; /* too long, so it was never counted */
    bool is_open = unix_ms == TW_NOW || !family->kind.has_starts;               /* an endless window is always open */
    return is_open ? tw_get(family, key, view) : tw_get_at(family, key, unix_ms, view);
}

static tw_status look_each_up(const struct each_field *each, int64_t unix_ms) {
    const struct twi_fields *fields = each->family->fields;
    const struct twi_thread *self = twi_thread_here();
    uint32_t process = self != NULL ? self->process : 0;
    for (uint32_t i = 0; i < fields->count; i++) {
        int64_t view;
        tw_status status = look_up(each, fields->each[i], unix_ms, &view);
        if (status != TW_OK) return status;
        if (view == 0) continue;
        if (!each->visit(each->ctx, fields->each[i], view)) return TW_OK;
        self = twi_thread_here(); /* in the process that forked, too, the thread may have another record */
        if (self == NULL || self->process != process)
            return twi_refuse(TW_ERR_FORKED, "visit: it has forked; what was visited is the parent's");
    }
    return TW_OK;
}

tw_status tw_each_field(tw_family *family, tw_key subject, int64_t unix_ms,
                        bool (*visit)(void *ctx, tw_key field, int64_t view), void *ctx) {
    twi_check(family != NULL && visit != NULL);
    tw_status status = twi_hash_check(family, subject);
    if (status != TW_OK) return status;
    if (unix_ms != TW_NOW && !twi_calendar_holds(unix_ms)) return twi_refuse_for(TWI_WHY_TIME);
    struct each_field each = {.family = family, .subject = subject, .visit = visit, .ctx = ctx};
    if (family->fields != NULL) return look_each_up(&each, unix_ms);
    return twi_each_wanted(family, unix_ms, is_of_subject, show, &each);
}
