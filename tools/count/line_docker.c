/* line_docker.c -- an access log's line as Docker keeps it in its own files (the json-file driver):
 *
 *     {"log":"10.0.0.1 - - [17/May/2015:10:05:03 +0000] \"GET /a HTTP/1.1\" 200 12\n","stream":"stdout","time":"..."}
 *
 * Always true: the key and the element of the line are copied to a place where they last. */
#include "tools/count/line_form.h"

#define INNER_MAX 32768 /* Docker cuts a line at 16 KiB */

static const char begins[] = "{\"log\":\"", goes_on[] = ",\"stream\":\"";

/* A text within `inner` goes into `room`. */
static void docker_make_last(const char *inner, size_t inner_size, tw_key *text, char *room) {
    const char *bytes = text->data;
    if (bytes < inner || bytes >= inner + inner_size) return;
    memcpy(room, bytes, text->size);
    text->data = room;
}

const char *line_docker(const struct line_rule *rule, const char *text, size_t size, struct line *line, char *joined) {
    static const char *const other = "a JSON object (--format json --key NAME)";
    char inner[INNER_MAX];
    const char *end = text + size, *log = text + sizeof begins - 1;
    if (size < sizeof begins || memcmp(text, begins, sizeof begins - 1) != 0) return other;
    const char *close = line_quote_end(log, end);
    if (close == NULL || (size_t)(end - close) < sizeof goes_on || memcmp(close + 1, goes_on, sizeof goes_on - 1) != 0)
        return other;
    if (close - log > INNER_MAX) return "longer than 32 KiB";
    size_t inner_size = line_json_text(log, (size_t)(close - log), inner);
    if (inner_size == SIZE_MAX) return "a text has an escape that JSON does not know";
    if (inner_size == 0 || inner[inner_size - 1] != '\n') return "Docker has cut the line: this is a piece of it";
    inner_size--;
    if (inner_size > 0 && inner[inner_size - 1] == '\r') inner_size--;
    if (inner_size == 0) return "empty line";
    if (*inner == '{') return "a JSON object in a JSON object";
    const char *wrong = line_combined(rule, inner, inner_size, line, joined);
    if (wrong != NULL) return wrong;
    docker_make_last(inner, sizeof inner, &line->key, joined);
    if (rule->element_count == 0) return NULL;
    if (line->element.size > LINE_ELEMENT_MAX) return "the fields of --distinct are longer than 8192 bytes";
    docker_make_last(inner, sizeof inner, &line->element, joined + TW_KEY_SIZE_MAX);
    return NULL;
}
