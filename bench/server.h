/* server.h -- starts a Redis or a memcached of its own for a measurement, on a unix socket in a folder of its own.
 * Always true: when the object is destroyed, the server and its folder are gone. The server writes nothing to disk. */
#ifndef BENCH_SERVER_H
#define BENCH_SERVER_H

#include <string>
#include <sys/types.h>

namespace bench {

class Server {
  public:
    /* redis_tcp: listens also on a loopback port. redis_tls: on two, one of them with TLS; certificates are made by
     * openssl(1). redis_cluster: as redis_tcp, and it is a cluster of one node, which has all slots. */
    enum Kind { redis, redis_tcp, redis_tls, redis_cluster, memcached };
    explicit Server(Kind kind);
    ~Server();
    Server(const Server &) = delete;
    Server &operator=(const Server &) = delete;
    /* The socket. Empty: the server could not be started, and `why` says why. */
    const std::string &address() const {
        return address_;
    }
    pid_t pid() const {
        return pid_;
    }
    const std::string &why() const {
        return why_;
    }
    int port() const {
        return port_;
    }
    int tls_port() const {
        return other_port_;
    }
    /* The file of the server's certificate, which is self-signed: for clients it is the authority, too. */
    const std::string &certificate() const {
        return certificate_;
    }
    /* What the server's process has used so far, user and system. */
    double cpu_s() const;
    /* Resident memory of the server. */
    unsigned long long bytes() const;

  private:
    bool wait_until_up();
    bool serves_all_slots();
    pid_t pid_ = -1;
    bool make_certificate();
    int port_ = 0, other_port_ = 0; /* the other one: of TLS, or of the bus of the cluster */
    std::string folder_, address_, why_, certificate_;
};

/* Connects to a unix socket. Returns -1 if nothing listens there. */
int connect_to(const std::string &address);

} // namespace bench
#endif
