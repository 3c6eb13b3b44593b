/* thin_link.h -- a network that is far, or thin, or both: a unix socket in front of a server's. All connections share
 * the link, as those of one office share a line.
 * Always true: no byte is lost, and the bytes of one connection keep their order. Each direction carries `bytes_per_s`
 * of all connections together, and every byte comes half of `way_ms` after it has left. The link takes what it is
 * given at once, as the buffers of a network do. One thread. */
#ifndef TEST_THIN_LINK_H
#define TEST_THIN_LINK_H

#include <stdint.h>

struct thin_link;

struct thin_link *thin_link_start(const char *folder, const char *socket, int64_t bytes_per_s, int64_t way_ms);
/* From now on each connection has a line of its own, with so many bytes a second. */
void thin_link_apart(struct thin_link *link);
void thin_link_stop(struct thin_link *link);
const char *thin_link_url(const struct thin_link *link);

#endif
