/* line_prefix.h -- finds the prefix that a container's runtime, syslog, Docker Compose or kubectl writes in front of a
 * line.
 * Always true: only a text with exactly such a form is skipped, so that no line loses a part of its content. */
#ifndef TOOL_LINE_PREFIX_H
#define TOOL_LINE_PREFIX_H

#include "tools/count/line_rule.h"

/* Kubernetes's log files: "2015-05-17T10:05:03.123456789Z stdout F ". Returns its size, or 0 if it is not there.
 * `*is_piece` becomes true if the runtime has cut the line (P). Then the rest of it follows in another one. */
size_t line_prefix_cri(const char *text, size_t size, bool *is_piece);

/* Returns whether line_prefix_cri() is worth a look. */
static inline bool line_prefix_may_be_cri(const char *text, size_t size) {
    return size > 30 && text[4] == '-' && text[10] == 'T';
}

/* All of these, several behind each other:
 *     <190>May 17 10:05:03 web-1 nginx[12]:            syslog, with or without its priority, host or number
 *     <190>1 2015-05-17T10:05:03Z web-1 nginx 12 - -   syslog, RFC 5424
 *     2015-05-17T10:05:03.123456+00:00 web-1 nginx:    rsyslog, journalctl -o short-iso
 *     2015-05-17T10:05:03.123456789Z                   docker logs -t, kubectl logs --timestamps; `with_bare_time`
 *     web-1  |                                         docker compose logs
 *     [pod/web-7d4b9/nginx]                            kubectl logs --prefix
 * Returns their size. */
size_t line_prefix(const char *text, size_t size, bool with_bare_time);

/* Skips bytes at the start of a file or of a line that are not part of its text. These are a byte order mark, the NULs
 * of a hole that a rotation has left, and the prefix that Kubernetes's runtimes write before each line. Returns NULL on
 * success; then there is some text. */
const char *line_lead_pass(const struct line_rule *rule, const char **text, size_t *size);

#endif
