/* limits.h -- limits from a file (tw_limits_open). It has the meaning of a line, and the table that is made from a
 * file.
 *
 *     file ─▶ lines (limits_line.c) ─▶ table, sorted (limits_table.c) ─▶ families opened, table swapped in (limits.c)
 *
 * Always true: a table never changes once it is built. Its rules are sorted by family, then by key. So one binary
 * search and a walk along `parent` find the longest pattern that matches a key.
 * These files use only the public header of the library. */
#ifndef TWI_LIMITS_H
#define TWI_LIMITS_H

#include "tallywheel.h"

#define TWI_LIMITS_FILE_BYTES_MAX (4u << 20)
#define TWI_LIMITS_RULES_MAX 100000u
#define TWI_LIMITS_BUDGETS_MAX 256u   /* families of the engine that one tw_limits may open in its life */
#define TWI_LIMITS_NAME_BYTES_MAX 48u /* with "." and a window it stays within a family's 64 */
#define TWI_LIMITS_NONE UINT32_MAX

/* How a family of the engine is opened. */
struct twi_limits_policy {
    uint32_t window, mode, shape, outage, busy;
    int64_t window_ms, burst;
    bool shadow;
    uint32_t sub_windows; /* 0 means not named */
};

/* The contents of one line. Pointers point into the line, in which escapes were decoded in place. */
struct twi_limits_line {
    const char *family; /* ends with a NUL */
    const char *key;
    uint32_t key_size;
    bool is_prefix;
    int64_t limit; /* TW_UNBOUNDED means unlimited, without a policy */
    struct twi_limits_policy policy;
};

enum { TWI_LIMITS_EMPTY = 0, TWI_LIMITS_GOOD = 1, TWI_LIMITS_BAD = 2 };

/* Reads a line and splits it in place. TWI_LIMITS_BAD means that `error` has the reason. */
int twi_limits_line_read(char *text, size_t size, struct twi_limits_line *line, char *error, size_t error_size);

/* One family and window of the file. It is one family of the engine, named NAME.WINDOW. */
struct twi_limits_budget {
    char name[65];
    uint32_t line; /* the line that named it first */
    struct twi_limits_policy policy;
    tw_family *family;
};

struct twi_limits_rule {
    const char *family, *key;
    uint32_t key_size, line;
    uint32_t parent; /* the longest pattern that is a prefix of this key, or TWI_LIMITS_NONE */
    uint32_t budget; /* TWI_LIMITS_NONE means unlimited */
    int64_t limit;
    bool is_prefix;
};

/* The rules of one family: [first, first + count). */
struct twi_limits_name {
    const char *family;
    uint32_t first, count;
    struct tw_limited *handle; /* the same in every table of one tw_limits */
};

struct twi_limits_table {
    char *text; /* the file, split in place */
    struct twi_limits_rule *rules;
    struct twi_limits_name *names;
    struct twi_limits_budget *budgets;
    uint32_t *places; /* handle number -> index in `names` */
    uint32_t rule_count, name_count, budget_count;
};

/* The place for an error text, "PATH:LINE: reason". */
struct twi_limits_error {
    const char *path;
    char *text;
    size_t size;
};
/* Writes the error of a line; 0 means that it is of no line. Returns TW_ERR_OPTIONS. */
__attribute__((format(printf, 3, 4))) tw_status twi_limits_complain(const struct twi_limits_error *error, uint32_t line,
                                                                    const char *format, ...);

/* Takes over `text` (malloc'ed, `size` bytes), whatever it answers. TW_ERR_OPTIONS, TW_ERR_MEMORY: *table is
 * unchanged. */
tw_status twi_limits_build(char *text, size_t size, const struct twi_limits_error *error,
                           struct twi_limits_table **table);
void twi_limits_table_free(struct twi_limits_table *table);

/* Returns NULL if no line names the family. */
const struct twi_limits_name *twi_limits_name_find(const struct twi_limits_table *table, const char *family);
/* Returns NULL if no line matches the key. */
const struct twi_limits_rule *twi_limits_rule_find(const struct twi_limits_table *table,
                                                   const struct twi_limits_name *name, tw_key key);

#endif
