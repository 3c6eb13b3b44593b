/* fields.h -- the fields that a user names: --key, --distinct, --where, by number or by name.
 * Always true: each refusal was reported on standard error, with the names that the format has. */
#ifndef TOOL_FIELDS_H
#define TOOL_FIELDS_H

#include "tools/count/layout.h"
#include "tools/count/line.h"

/* The user's request. NULL or 0 means that a part was not requested. */
struct fields_asked {
    enum line_format format;
    const struct line_layout *layout; /* of LINE_LAYOUT */
    bool is_open; /* no format was named: the line may also be a JSON object, with names of its own */
    const char *key, *element, *time, *sum;
    const char *where[LINE_WHERE_MAX];
    size_t where_count;
};

/* Sets the format, fields and conditions of the rule. Returns false after a message on standard error. `asked`'s texts
 * outlive the rule. */
/* The names that the fields have: "host, client, ...". */
void fields_names(const struct fields_asked *asked, char *list, size_t size);
bool fields_set(struct line_rule *rule, const struct fields_asked *asked);

#endif
