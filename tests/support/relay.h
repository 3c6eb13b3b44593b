/* relay.h -- a network that knows nothing of what it carries: loopback TCP to a port, in pieces, and cut where the test
 * wants it, in the middle of a TLS record too. For what is to be cut between requests and replies: proxy.h.
 * Always true: the bytes of one connection keep their order; after a cut both ends are closed. One thread. */
#ifndef TEST_RELAY_H
#define TEST_RELAY_H

#include <stddef.h>
#include <stdint.h>

struct relay; /* any thread may call what follows */

struct relay *relay_start(int port, uint64_t seed);
void relay_stop(struct relay *relay);
int relay_port(const struct relay *relay);
/* Pieces of 1 to this many bytes. */
void relay_pieces(struct relay *relay, size_t most);
/* Each connection ends after 1 to this many bytes, of both directions together; 0: never. */
void relay_cuts(struct relay *relay, size_t most);
int64_t relay_cut_count(struct relay *relay); /* so far */

#endif
