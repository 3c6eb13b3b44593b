/* layout.h -- the form of a log's lines as its server is configured: a log_format of nginx, a LogFormat of Apache, a
 * log-format of HAProxy. layout_read() reads the text, line_layout() reads lines by it.
 *
 * Always true: a layout has one time, and between two fields that do not touch some text says where the first one ends.
 * So what is before the time, and what is in quotes, moves no other field, whoever has chosen it. */
#ifndef TOOL_LAYOUT_H
#define TOOL_LAYOUT_H

#include "tools/count/layout_fields.h"

#define LAYOUT_FIELDS_MAX 64
#define LAYOUT_TEXT_MAX 4096

struct layout_field {
    enum layout_kind kind;
    uint16_t meaning;      /* LINE_FIELD_..., or 0 */
    struct line_name name; /* in the format, without its mark */
    struct line_name time; /* how it is written, as for strftime() (layout_time.c) */
    struct line_name behind;
};

struct line_layout {
    size_t count;
    struct line_name lead; /* the text before the first field */
    struct layout_field field[LAYOUT_FIELDS_MAX];
    bool joins_spaces; /* HAProxy writes one space where a field between two is empty, and none at the start */
    size_t room_used;
    char room[2 * LAYOUT_TEXT_MAX]; /* the texts */
};

/* Returns false after a message on standard error, which names the place in the text. */
bool layout_read(const char *given, struct line_layout *layout);

/* A field by its number, its name in the format, or a name that access logs have. Returns false if there is none. */
bool layout_find(const struct line_layout *layout, const char *name, size_t size, uint16_t *field);
/* The number of the field, from 1 on; `field` is from layout_find(). */
uint16_t layout_place(const struct line_layout *layout, uint16_t field);
/* "remote_addr, remote_user, ..." */
void layout_names(const struct line_layout *layout, char *list, size_t size);

/* ---- times ---- */

/* What a time's fields have said so far. */
struct layout_moment {
    unsigned parts; /* LAYOUT_... */
    unsigned year, month, day, day_of_year, hour, minute, second, ms;
    bool is_afternoon;
    int64_t offset_ms, unix_ms;
};
#define LAYOUT_YEAR 1U
#define LAYOUT_MONTH 2U
#define LAYOUT_DAY 4U
#define LAYOUT_DAY_OF_YEAR 8U
#define LAYOUT_HOUR 16U
#define LAYOUT_HALF_HOUR 32U /* of 12 hours */
#define LAYOUT_HALF 64U      /* AM or PM */
#define LAYOUT_MINUTE 128U
#define LAYOUT_OFFSET 256U
#define LAYOUT_UNIX 512U

/* Adds what such a text would say. Returns NULL, or the conversion that is not known. */
const char *layout_time_check(struct line_name form, struct layout_moment *moment);
/* Reads a text of this form. Returns where it ends, or NULL. */
const char *layout_time_take(struct line_name form, const char *at, const char *end, struct layout_moment *moment);
/* What a moment lacks: "year", "day", "hour", or NULL if it is whole. */
const char *layout_time_lack(const struct layout_moment *moment);
bool layout_time_make(const struct layout_moment *moment, int64_t utc_offset_ms, int64_t *unix_ms);

#endif
