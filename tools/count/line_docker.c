/* line_docker.c -- a JSON object among access logs: a line as Docker keeps it in its own files (the json-file driver),
 * or one of JSON itself, which is read by its members' names if no format was named:
 *
 *     {"log":"10.0.0.1 - - [17/May/2015:10:05:03 +0000] \"GET /a HTTP/1.1\" 200 12\n","stream":"stdout","time":"..."}
 *     {"time_iso8601":"2015-05-17T10:05:03+00:00","remote_addr":"10.0.0.1"}
 *
 * Always true: the key and the element of a line in an object are copied to a place where they last. */
#include "tools/count/line_form.h"

#define INNER_MAX 32768 /* Docker cuts a line at 16 KiB */

/* A text within `inner` goes into `room`. */
static void docker_make_last(const char *inner, size_t inner_size, tw_key *text, char *room) {
    const char *bytes = text->data;
    if (bytes < inner || bytes >= inner + inner_size) return;
    memcpy(room, bytes, text->size);
    text->data = room;
}

static const char *json_read(const struct line_rule *rule, const char *text, size_t size, struct line *line,
                             char *joined) {
    if (!rule->finds_json) return "a JSON object (--format json --key NAME)";
    if (rule->names[0].size == 0) return "a JSON object: --key NAME says which member is the key";
    return line_json(rule, text, size, line, joined);
}

static const char *inner_read(const struct line_rule *rule, const char *text, size_t size, struct line *line,
                              char *joined) {
    if (line_json_begins(text, size)) return json_read(rule, text, size, line, joined);
    return rule->is_json_alone ? line_no_json : line_combined(rule, text, size, line, joined);
}

const char line_not_docker[] = "no line of Docker's";

const char *line_docker(line_reader *read, const struct line_rule *rule, const char *text, size_t size,
                        struct line *line, char *joined) {
    char inner[INNER_MAX];
    tw_key log;
    if (!line_json_docker(text, size, &log)) return line_not_docker;
    if (log.size > INNER_MAX) return "longer than 32 KiB";
    size_t inner_size = line_json_text(log.data, log.size, inner);
    if (inner_size == SIZE_MAX) return "a text has an escape that JSON does not know";
    if (inner_size == 0 || inner[inner_size - 1] != '\n') return "Docker has cut the line: this is a piece of it";
    inner_size--;
    if (inner_size > 0 && inner[inner_size - 1] == '\r') inner_size--;
    if (inner_size == 0) return "empty line";
    const char *wrong = read(rule, inner, inner_size, line, joined);
    if (wrong != NULL) return wrong;
    docker_make_last(inner, sizeof inner, &line->key, joined);
    if (rule->element_count == 0) return NULL;
    if (line->element.size > LINE_ELEMENT_MAX) return "the fields of --distinct are longer than 8192 bytes";
    docker_make_last(inner, sizeof inner, &line->element, joined + TW_KEY_SIZE_MAX);
    return NULL;
}

const char *line_object(const struct line_rule *rule, const char *text, size_t size, struct line *line, char *joined) {
    const char *wrong = line_docker(inner_read, rule, text, size, line, joined);
    return wrong == line_not_docker ? json_read(rule, text, size, line, joined) : wrong;
}
