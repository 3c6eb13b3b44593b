/* server.cc -- see server.h. */
#include "bench/server.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
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

[[noreturn]] static void become(Server::Kind kind, const char *socket) {
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* it does not outlive us, whatever happens to us */
    int null = open("/dev/null", O_RDWR);
    if (null >= 0) {
        dup2(null, 0);
        dup2(null, 1);
        dup2(null, 2);
    }
    if (kind == Server::redis)
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
    pid_ = fork();
    if (pid_ == 0) {
        if (chdir(folder_.c_str()) != 0) _exit(126);
        become(kind, address_.c_str());
    }
    if (pid_ < 0 || !wait_until_up()) {
        why_ = kind == redis ? "redis-server is missing or did not start" : "memcached is missing or did not start";
        address_.clear();
    }
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

Server::~Server() {
    if (pid_ > 0) {
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
    }
    if (!folder_.empty()) {
        unlink((folder_ + "/socket").c_str());
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
