/* save_format.c -- the records of a file of tw_save(). See save.h.
 * Always true: a record that is not as save.h says ends the reading with a refusal. */
#include "extras/save.h"

#include "engine/base/why.h"

#include <string.h>

#define MAGIC "twcounts"
#define MAGIC_BYTES (sizeof MAGIC - 1)
#define HEAD_BYTES (MAGIC_BYTES + 8)
#define IS_FAMILY 0xfffeu
#define IS_WINDOW 0xfffdu
#define IS_REPORTED_WINDOW 0xfffcu
#define NAME_MAX_BYTES (sizeof((struct twi_saved_family *)0)->name - 1)

static unsigned char *put_number(unsigned char *to, uint64_t number, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) to[i] = (unsigned char)(number >> 8 * i);
    return to + bytes;
}

static uint64_t number_at(const unsigned char *from, size_t bytes) {
    uint64_t number = 0;
    for (size_t i = 0; i < bytes; i++) number |= (uint64_t)from[i] << 8 * i;
    return number;
}

/* ---- writing ---- */

bool twi_save_put_head(struct twi_save_out *out) {
    unsigned char head[HEAD_BYTES];
    memcpy(head, MAGIC, MAGIC_BYTES);
    (void)put_number(put_number(head + MAGIC_BYTES, TWI_SAVE_FORMAT, 4), 0, 4);
    return twi_save_put(out, head, sizeof head);
}

static bool put_family(void *ctx, const struct twi_saved_family *family) {
    unsigned char record[3 + NAME_MAX_BYTES + 8 * TWI_SAVED_FIELDS];
    size_t size = strlen(family->name);
    unsigned char *to = put_number(put_number(record, IS_FAMILY, 2), size, 1);
    memcpy(to, family->name, size);
    to += size;
    for (size_t i = 0; i < TWI_SAVED_FIELDS; i++) to = put_number(to, (uint64_t)family->fields[i], 8);
    return twi_save_put(ctx, record, (size_t)(to - record));
}

static bool put_window(void *ctx, uint32_t family, int64_t start_ms, enum twi_saved_report report) {
    unsigned char record[14];
    unsigned char *to = put_number(record, report == TWI_REPORTED ? IS_REPORTED_WINDOW : IS_WINDOW, 2);
    (void)put_number(put_number(to, family, 4), (uint64_t)start_ms, 8);
    return twi_save_put(ctx, record, sizeof record);
}

static bool put_counter(void *ctx, tw_key key, int64_t count) {
    unsigned char record[10];
    (void)put_number(put_number(record, key.size, 2), (uint64_t)count, 8);
    return twi_save_put(ctx, record, sizeof record) && (key.size == 0 || twi_save_put(ctx, key.data, key.size));
}

static bool finish(void *ctx) {
    return twi_save_finish(ctx);
}

const struct twi_save_visitor twi_save_writer = {NULL, put_family, put_window, put_counter, finish};

/* ---- reading ---- */

tw_status twi_save_read_head(struct twi_save_in *in) {
    const unsigned char *head = twi_save_take(in, HEAD_BYTES);
    if (head == NULL || memcmp(head, MAGIC, MAGIC_BYTES) != 0)
        return twi_save_refuse(in->path, "not a file of tw_save()");
    in->format = (uint32_t)number_at(head + MAGIC_BYTES, 4);
    if (in->format > TWI_SAVE_FORMAT) return twi_save_refuse(in->path, "a later version of the library has written it");
    return TW_OK;
}

static tw_status refuse_record(const struct twi_save_in *in) {
    return twi_save_refuse(in->path, "it cannot be read, or has a wrong record");
}

/* What is done with the records. */
struct handler {
    tw_status (*family)(struct twi_loading *loading, const struct twi_saved_family *saved);
    tw_status (*counter)(struct twi_loading *loading, tw_key key, int64_t count);
};

static tw_status read_family(struct twi_save_in *in, struct twi_loading *loading, const struct handler *handler) {
    struct twi_saved_family saved = {.name = ""};
    const unsigned char *at = twi_save_take(in, 1);
    size_t size = at != NULL ? at[0] : 0;
    if (size == 0 || size > NAME_MAX_BYTES) return refuse_record(in);
    at = twi_save_take(in, size + sizeof saved.fields);
    if (at == NULL || memchr(at, '\0', size) != NULL) return refuse_record(in);
    memcpy(saved.name, at, size);
    for (size_t i = 0; i < TWI_SAVED_FIELDS; i++) saved.fields[i] = (int64_t)number_at(at + size + 8 * i, 8);
    return handler->family(loading, &saved);
}

static tw_status read_window(struct twi_save_in *in, struct twi_loading *loading, enum twi_saved_report report) {
    const unsigned char *at = twi_save_take(in, 12);
    if (at == NULL) return refuse_record(in);
    return twi_load_window(loading, (uint32_t)number_at(at, 4), (int64_t)number_at(at + 4, 8), report);
}

static tw_status read_counter(struct twi_save_in *in, size_t size, struct twi_loading *loading,
                              const struct handler *handler) {
    const unsigned char *at = size <= TW_KEY_SIZE_MAX ? twi_save_take(in, 8 + size) : NULL;
    if (at == NULL) return refuse_record(in);
    return handler->counter(loading, tw_bytes(at + 8, size), (int64_t)number_at(at, 8));
}

static tw_status read_all(struct twi_save_in *in, struct twi_loading *loading, const struct handler *handler) {
    twi_save_rewind(in);
    tw_status status = twi_save_read_head(in);
    while (status == TW_OK && !twi_save_is_at_end(in)) {
        const unsigned char *at = twi_save_take(in, 2);
        if (at == NULL) return refuse_record(in);
        size_t kind = (size_t)number_at(at, 2);
        if (kind == IS_FAMILY)
            status = read_family(in, loading, handler);
        else if (kind == IS_WINDOW)
            status = read_window(in, loading, in->format == 1 ? TWI_REPORT_UNKNOWN : TWI_UNREPORTED);
        else if (kind == IS_REPORTED_WINDOW && in->format > 1)
            status = read_window(in, loading, TWI_REPORTED);
        else
            status = read_counter(in, kind, loading, handler);
    }
    return status;
}

tw_status twi_save_check_all(struct twi_save_in *in, struct twi_loading *loading) {
    static const struct handler checks = {twi_load_family, twi_load_check};
    return read_all(in, loading, &checks);
}

static tw_status has_family(struct twi_loading *loading, const struct twi_saved_family *saved) {
    (void)loading, (void)saved;
    return TW_OK;
}

tw_status twi_save_count_all(struct twi_save_in *in, struct twi_loading *loading) {
    static const struct handler counts = {has_family, twi_load_add};
    return read_all(in, loading, &counts);
}
