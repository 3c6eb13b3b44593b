/* server.cc -- see server.h. */
#include "bench/server.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

namespace bench {

int connect_to(const std::string &address) {
    struct sockaddr_un name = {};
    name.sun_family = AF_UNIX;
    if (address.size() >= sizeof name.sun_path) return -1;
    std::memcpy(name.sun_path, address.c_str(), address.size());
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, reinterpret_cast<struct sockaddr *>(&name), sizeof name) == 0) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

/* A loopback port that is free now. */
static int free_port() {
    struct sockaddr_in name = {};
    socklen_t size = sizeof name;
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool got = fd >= 0 && bind(fd, reinterpret_cast<struct sockaddr *>(&name), size) == 0 &&
               getsockname(fd, reinterpret_cast<struct sockaddr *>(&name), &size) == 0;
    if (fd >= 0) close(fd);
    return got ? ntohs(name.sin_port) : 0;
}

[[noreturn]] static void become(Server::Kind kind, const char *socket, int port, int other_port) {
    std::string plain = std::to_string(port), tls = std::to_string(other_port), bus = tls;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* the server does not outlive this process, whatever happens to it */
    int null = open("/dev/null", O_RDWR);
    if (null >= 0) {
        dup2(null, 0);
        dup2(null, 1);
        dup2(null, 2);
    }
    if (kind == Server::redis_tls)
        execlp("redis-server", "redis-server", "--port", plain.c_str(), "--tls-port", tls.c_str(), "--bind",
               "127.0.0.1", "--tls-cert-file", "cert.pem", "--tls-key-file", "key.pem", "--tls-ca-cert-file",
               "cert.pem", "--tls-auth-clients", "no", "--unixsocket", socket, "--save", "", "--appendonly", "no",
               static_cast<char *>(nullptr));
    else if (kind == Server::redis_cluster)
        execlp("redis-server", "redis-server", "--port", plain.c_str(), "--bind", "127.0.0.1", "--cluster-enabled",
               "yes", "--cluster-port", bus.c_str(), "--unixsocket", socket, "--save", "", "--appendonly", "no",
               static_cast<char *>(nullptr));
    else if (kind == Server::redis_tcp)
        execlp("redis-server", "redis-server", "--port", plain.c_str(), "--bind", "127.0.0.1", "--unixsocket", socket,
               "--save", "", "--appendonly", "no", static_cast<char *>(nullptr));
    else if (kind == Server::redis)
        execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly",
               "no", static_cast<char *>(nullptr));
    else
        execlp("memcached", "memcached", "-s", socket, "-m", "4096", "-u", geteuid() == 0 ? "root" : "nobody", "-t",
               "2", static_cast<char *>(nullptr));
    _exit(127);
}

Server::Server(Kind kind) {
    const char *parent = std::getenv("TMPDIR");
    std::string pattern =
        std::string(parent != nullptr && *parent != '\0' ? parent : "/tmp") + "/tallywheel-bench-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) {
        why_ = "no folder for its socket";
        return;
    }
    folder_ = pattern;
    address_ = folder_ + "/socket";
    if (kind != redis && kind != memcached) port_ = free_port(), other_port_ = free_port();
    if (kind == redis_tls && !make_certificate()) {
        why_ = "openssl is missing, or cannot make a certificate";
        address_.clear();
        return;
    }
    pid_ = fork();
    if (pid_ == 0) {
        if (chdir(folder_.c_str()) != 0) _exit(126);
        become(kind, address_.c_str(), port_, other_port_);
    }
    if (pid_ < 0 || !wait_until_up()) {
        why_ = kind != memcached ? "redis-server is missing or did not start" : "memcached is missing or did not start";
        address_.clear();
    } else if (kind == redis_cluster && !serves_all_slots()) {
        why_ = "redis-server has no CLUSTER ADDSLOTSRANGE, or does not serve its slots (Redis 7 does)";
        address_.clear();
    }
}

bool Server::make_certificate() {
    certificate_ = folder_ + "/cert.pem";
    std::string command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "
                          "/CN=redis -addext subjectAltName=IP:127.0.0.1 -keyout '" +
                          folder_ + "/key.pem' -out '" + certificate_ + "' >/dev/null 2>&1";
    return std::system(command.c_str()) == 0;
}

double Server::cpu_s() const {
    std::string path = "/proc/" + std::to_string(pid_) + "/schedstat";
    FILE *file = std::fopen(path.c_str(), "r");
    unsigned long long ns = 0; /* of its main thread, which does all of it */
    if (file != nullptr && std::fscanf(file, "%llu", &ns) != 1) ns = 0;
    if (file != nullptr) std::fclose(file);
    return static_cast<double>(ns) / 1e9;
}

bool Server::wait_until_up() {
    for (int tries = 0; tries < 200; tries++) {
        int fd = connect_to(address_);
        if (fd >= 0) {
            close(fd);
            return true;
        }
        if (waitpid(pid_, nullptr, WNOHANG) == pid_) {
            pid_ = -1;
            return false;
        }
        usleep(20000);
    }
    return false;
}

/* What the server replies to a command without arguments that need quoting. */
static std::string ask(const std::string &address, const std::string &command) {
    char reply[1024];
    std::string line = command + "\r\n";
    int fd = connect_to(address);
    ssize_t size = -1;
    if (fd >= 0 && write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size()))
        size = read(fd, reply, sizeof reply);
    if (fd >= 0) close(fd);
    return std::string(reply, size > 0 ? static_cast<size_t>(size) : 0);
}

bool Server::serves_all_slots() {
    if (ask(address_, "CLUSTER ADDSLOTSRANGE 0 16383").compare(0, 3, "+OK") != 0) return false;
    for (int tries = 0; tries < 200; tries++) {
        if (ask(address_, "CLUSTER INFO").find("cluster_state:ok") != std::string::npos) return true;
        usleep(20000);
    }
    return false;
}

Server::~Server() {
    if (pid_ > 0) {
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
    }
    if (!folder_.empty()) {
        for (const char *file : {"/socket", "/cert.pem", "/key.pem", "/nodes.conf"}) unlink((folder_ + file).c_str());
        rmdir(folder_.c_str());
    }
}

unsigned long long Server::bytes() const {
    std::string path = "/proc/" + std::to_string(pid_) + "/statm";
    FILE *file = std::fopen(path.c_str(), "r");
    unsigned long long size, resident = 0;
    if (file != nullptr && std::fscanf(file, "%llu %llu", &size, &resident) != 2) resident = 0;
    if (file != nullptr) std::fclose(file);
    return resident * static_cast<unsigned long long>(sysconf(_SC_PAGESIZE));
}

} // namespace bench
