/* server.h -- a Redis or a memcached of our own, on a unix socket in a folder of its own, for the time of a
 * measurement.
 * Always true: when the object goes, the server and its folder are gone; nothing is written to disk meanwhile. */
#ifndef BENCH_SERVER_H
#define BENCH_SERVER_H

#include <string>
#include <sys/types.h>

namespace bench {

class Server {
  public:
    enum Kind { redis, memcached };
    explicit Server(Kind kind);
    ~Server();
    Server(const Server &) = delete;
    Server &operator=(const Server &) = delete;
    /* The socket; empty: it could not be started, and `why` says why. */
    const std::string &address() const {
        return address_;
    }
    pid_t pid() const {
        return pid_;
    }
    const std::string &why() const {
        return why_;
    }
    /* Resident memory of the server. */
    unsigned long long bytes() const;

  private:
    bool wait_until_up();
    pid_t pid_ = -1;
    std::string folder_, address_, why_;
};

/* Connects to a unix socket; -1: nobody listens. */
int connect_to(const std::string &address);

} // namespace bench
#endif
