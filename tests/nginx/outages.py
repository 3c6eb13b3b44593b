#!/usr/bin/env python3
"""outages.py MODULE SOURCES -- limits with Redis, over two nginx, while Redis, workers or clients go (TAP).

Method: real nginx of two workers each, and a real Redis that writes each change to its file. It is stopped, killed and
started again. Clients count the answers themselves, and in the end Redis must have as many units as there were 200s. With TW_SCALE
the program is longer.
Covers: nginx/admit.c, nginx/request.c, nginx/wait.c, nginx/worker.c.
"""
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import rig
from rig import Load, Nginx, Redis, run, same, wait_until

sources = rig.begin(sys.argv)
if not shutil.which("redis-server"):
    rig.tap.skip_all("redis-server is not installed: apt-get install redis-server")
is_long = "TW_SCALE" in os.environ
redis = Redis().start()

ZONES = """tallywheel_redis {url} interval=20ms {words};
tallywheel_zone soft window=1d; tallywheel_zone hard window=1d mode=hard; tallywheel_zone strict window=1d mode=strict;
tallywheel_zone closed window=1d mode=strict outage=closed; tallywheel_zone use window=forever;
log_format tw '$status $tallywheel_status $tallywheel_decided_by $uri?$args $tallywheel_cause';
"""
PLACES = """access_log {home}/access.log tw;
location /soft {{ tallywheel_limit soft $arg_key 1000000; try_files /page =404; }}
location /hard {{ tallywheel_limit hard $arg_key 300 wait=3s; try_files /page =404; }}
location /strict {{ tallywheel_limit strict $arg_key $arg_limit; try_files /page =404; }}
location /patient {{ tallywheel_limit strict $arg_key $arg_limit wait=3s; try_files /page =404; }}
location /closed {{ tallywheel_limit closed $arg_key 1000000; try_files /page =404; }}
location /both {{ tallywheel_limit soft $arg_key 1000000; tallywheel_limit strict $arg_key $arg_limit; try_files /page =404; }}
location /use {{ tallywheel_hold use $arg_key 2; }}
location /free {{ try_files /page =404; }}
"""
# Where each answer must be Redis's: a server without a processor for a second must not look like an outage.
PATIENT = "timeout=30s"


def serve(name: str, also: str = "", url: str = "", words: str = "", **options) -> Nginx:
    server = Nginx(name, "", **options)
    listen = f"listen unix:{server.socket};" + (f"listen unix:{server.socket}2 http2;" if also else "")
    server.write(ZONES.format(url=url or redis.url, words=words) + f"server {{ {listen} {PLACES.format(home=server.home)} }}")
    os.makedirs(server.home + "/www/use")
    with open(server.home + "/www/use/large", "wb") as file:
        file.truncate(64 << 20)
    server.start()
    wait_until("Redis decides", lambda: server.ask(f"/strict?key=first-{name}&limit=1000000").status == 200 and
        any(" redis " in line for line in server.access()), 30)
    return server


def end(*servers: Nginx, but: str = "$^") -> None:
    for server in servers:
        server.stop()
    for server in servers:
        server.must_be_clean(but)


def over_both(path: str, clients: int, most: int) -> dict:
    loads = [Load(server, path, clients, most) for server in exact]
    found: dict = {}
    for load in loads:
        for status, count in load.wait().items():
            found[status] = found.get(status, 0) + count
        same(load.failures, [])
    return found


def strict() -> None:
    found = over_both("/strict?key=s1&limit=300", 6, 40)
    same(found, {200: 300, 429: 180})
    same(redis.total("strict:s1:*"), 300)


def hard() -> None:
    found = over_both("/hard?key=h1", 6, 40)
    same(found, {200: 300, 429: 180})
    wait_until("the books agree", lambda: redis.total("hard:h1*") == 300)


def use_both_slots(first: Nginx, second: Nginx, key: str) -> None:
    """A third request is refused until one of the two has ended. A page that is not there needs a slot, too."""
    clients = [server.client() for server in (first, second)]
    for client in clients:
        client.request("GET", f"/use/large?key={key}")
        same(client.getresponse().status, 200)
    same(first.ask(f"/use/none?key={key}").status, 503)
    clients[1].close()
    wait_until("the slot is free", lambda: first.ask(f"/use/none?key={key}").status == 404)
    clients[0].close()


def slots() -> None:
    use_both_slots(*exact, "u1")


def first_denied_takes_nothing() -> None:
    same([exact[0].ask("/both?key=b1&limit=2").status for _ in range(5)], [200, 200, 429, 429, 429])
    wait_until("two units", lambda: redis.total("soft:b1:*") == 2)
    same(redis.total("strict:b1:*"), 2)


def clients_leave() -> None:
    """They leave while they wait for Redis, and all others are served. If nginx has not noticed that a client left, it
    serves it, too: its log says so."""
    answered = 0
    for number in range(3):
        redis.pause()
        sockets = []
        for _ in range(20):
            client = socket.socket(socket.AF_UNIX)
            client.connect(one.socket)
            client.sendall(b"GET /both?key=l1&limit=1000000 HTTP/1.1\r\nHost: test\r\n\r\n")
            sockets.append(client)
        time.sleep(0.02)
        for client in sockets[number % 2 :: 2]:
            client.close()
        time.sleep(0.02)
        redis.resume()
        for client in sockets:
            if client.fileno() >= 0:
                client.settimeout(20)
                answered += b" 200 " in client.recv(4096)
                client.close()
    same(answered, 30)
    wait_until("60 requests are over", lambda: len([line for line in one.access() if "key=l1" in line]) == 60)
    served = len([line for line in one.access() if "key=l1" in line and line.startswith("200 ")])
    wait_until(f"Redis has {served} that were served", lambda: redis.total("strict:l1:*") == served)
    wait_until("the other limit has them, too", lambda: redis.total("soft:l1:*") == served)


class Http2:
    """One connection of HTTP/2: as much of it as a test of streams needs."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(20)
        self.socket.connect(path)
        self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        self.frame(4, 0, 0, b"")
        self.file = self.socket.makefile("rb")

    def frame(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        self.socket.sendall(len(body).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + body)

    def ask(self, stream: int, path: bytes) -> None:
        """HEADERS that end the stream: GET, http, the path and the authority, without compression."""
        self.frame(1, 5, stream, b"\x82\x86\x04" + bytes((len(path),)) + path + b"\x01\x04test")

    def leave(self, stream: int) -> None:
        self.frame(3, 0, stream, (8).to_bytes(4, "big"))

    def statuses(self, count: int) -> dict:
        """The first byte of the answers' headers says :status 200."""
        found: dict = {}
        while len(found) < count:
            head = self.file.read(9)
            body = self.file.read(int.from_bytes(head[:3], "big"))
            if head[3] == 1:
                found[int.from_bytes(head[5:], "big")] = 200 if body[0] == 0x88 else body[0]
        return found


def http2() -> None:
    """Streams of one connection wait for Redis. One ends before it answers, the others are served."""
    server = serve("http2", "http2")
    client = Http2(server.socket + "2")
    redis.pause()
    for stream, key in ((1, b"w1"), (3, b"w2"), (5, b"w1"), (7, b"w1")):
        client.ask(stream, b"/both?limit=1000000&key=" + key)
    time.sleep(0.02)
    client.leave(3)
    time.sleep(0.02)
    redis.resume()
    same(client.statuses(3), {1: 200, 5: 200, 7: 200})
    wait_until("all are over", lambda: len([line for line in server.access() if "key=w" in line]) == 4)
    served = len([line for line in server.access() if "key=w2" in line and line.startswith("200 ")])
    for kind in ("strict", "soft"):
        wait_until("the books agree", lambda kind=kind: redis.total(f"{kind}:w1:*") == 3 and redis.total(f"{kind}:w2:*") == served)
    client.socket.close()
    end(server)


def reloads() -> None:
    loads = [Load(one, path, 3) for path in ("/soft?key=r1", "/strict?key=r1&limit=1000000", "/both?key=r2&limit=1000000")]
    for _ in range(5):
        time.sleep(0.1)
        one.reload()
    found = [load.stop() for load in loads]
    same([load.failures for load in loads], [[], [], []])
    same([set(each) for each in found], [{200}] * 3)
    wait_until("the books agree", lambda: [redis.total("soft:r1:*"), redis.total("strict:r1:*"), redis.total("strict:r2:*"),
        redis.total("soft:r2:*")] == [found[0][200], found[1][200], found[2][200], found[2][200]])


def goes_and_comes(how: str, number: int) -> None:
    key = f"o{number}"
    loads = [Load(one, path, 3) for path in (f"/soft?key={key}", f"/strict?key={key}&limit=1000000")]
    closed = Load(one, f"/closed?key={key}", 2)
    all_served = [*loads, closed]
    wait_until("all are served", lambda: all(load.statuses.get(200) for load in all_served))
    if how == "stopped":
        redis.pause()
        time.sleep(1.2)
        redis.resume()
    else:
        redis.kill()
        wait_until("somebody is refused", lambda: closed.statuses.get(503))
        redis.start()
    wait_until("Redis decides again", lambda: one.ask(f"/strict?key=again{number}&limit=1000000").status == 200 and
        any(" redis /page" in line for line in one.access()[-12:]))
    found = [load.stop() for load in loads]
    found_closed = closed.stop()
    same([load.failures for load in loads + [closed]], [[], [], []])
    same([set(each) for each in found], [{200}] * 2, "nobody is refused")
    same(found_closed.get(503, 0) > 0 and found_closed.get(200, 0) > 0, True, f"outage=closed: {found_closed}")
    causes = {(line[:3], line.split()[-1]) for line in one.access() if f"key={key}" in line and "limit=" not in line}
    # A request that began just before may still see a connection that answered after that.
    same(causes - {("503", "busy")}, {("200", "-"), ("503", "outage")})
    wait_until(f"the books agree: {found} {found_closed} {redis.total(f'soft:{key}:*')} {redis.total(f'strict:{key}:*')}",
        lambda: [redis.total(f"soft:{key}:*"), redis.total(f"strict:{key}:*"), redis.total(f"closed:{key}:*")] ==
        [found[0][200], found[1][200], found_closed[200]], 15)


def busy() -> None:
    """More requests wait at once than calls_max allows (1,024), because Redis is stopped."""
    most = 1500
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(allowed, 4 * most), allowed))
    server = serve("busy", workers=1)
    redis.pause()
    clients = []
    try:
        for i in range(most):
            clients.append(socket.socket(socket.AF_UNIX))
            clients[-1].connect(server.socket)
            path = "patient" if i % 2 else "strict"
            clients[-1].sendall(f"GET /{path}?key=busy{i % 7}&limit=1000000 HTTP/1.0\r\n\r\n".encode())
        statuses = [client.recv(4096).split(b" ")[1] for client in clients]
    finally:
        redis.resume()
    for client in clients:
        client.close()
    same({status: statuses.count(status) for status in statuses}, {b"200": most}, "nobody is refused")
    wait_until("the books agree", lambda: redis.total("strict:busy*") == most, 30)
    end(server)


def killed() -> None:
    load = Load(one, "/soft?key=k1", 4)
    exact = Load(one, "/strict?key=k1&limit=500", 2)
    for _ in range(3):
        time.sleep(0.15)
        victim = one.worker_ids()[0]
        os.kill(victim, signal.SIGKILL)
        wait_until("another worker runs", lambda victim=victim: len(one.worker_ids()) == 2 and victim not in one.worker_ids())
    wait_until("the limit is reached", lambda: one.ask("/strict?key=k1&limit=500").status == 429, 60)
    found, found_exact = load.stop(), exact.stop()
    same(set(found), {200})
    total = redis.total("strict:k1:*")
    by_outage = any(" outage " in line and "limit=500" in line and "key=k1" in line for line in one.access())  # a busy machine
    same(by_outage or (found_exact[200] <= 500 and total == 500), True, f"{found_exact}, in Redis {total}")
    time.sleep(0.5)
    again = 3 * len(load.threads)  # a request that was counted, and whose worker was killed, is asked again by its client
    same(redis.total("soft:k1:*") <= found[200] + len(load.failures) + again, True)


class Cluster:
    """Three masters, which have a third of the slots each."""

    def __init__(self) -> None:
        self.ports = [self.free_port() for _ in range(3)]
        self.nodes = []
        for port in self.ports:
            home = os.path.join(rig.folder, f"node{port}")
            os.makedirs(home)
            self.nodes.append(subprocess.Popen(["redis-server", "--port", str(port), "--cluster-enabled", "yes", "--dir", home, "--save",
                "", "--bind", "127.0.0.1"], preexec_fn=rig.die_with_parent, stdout=subprocess.DEVNULL))
        for number, port in enumerate(self.ports):
            wait_until("the node answers", lambda port=port: "PONG" in self.ask(port, "PING"))
            self.ask(port, "CLUSTER", "ADDSLOTSRANGE", str(number * 16384 // 3), str((number + 1) * 16384 // 3 - 1))
            self.ask(self.ports[0], "CLUSTER", "MEET", "127.0.0.1", str(port))
        for port in self.ports:
            wait_until("the cluster is up", lambda port=port: "cluster_state:ok" in self.ask(port, "CLUSTER", "INFO"), 60)

    @staticmethod
    def free_port() -> int:
        """Its bus has the port that is greater by 10,000."""
        while True:
            with socket.socket() as probe, socket.socket() as bus:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1] - 12000
                try:
                    bus.bind(("127.0.0.1", port + 10000))
                    return port
                except OSError:
                    continue

    @staticmethod
    def ask(port: int, *words: str) -> str:
        return subprocess.run(["redis-cli", "-p", str(port), *words], capture_output=True, text=True, check=False).stdout.strip()

    def total(self, pattern: str) -> int:
        return sum(int(self.ask(port, "GET", name)) for port in self.ports for name in self.ask(port, "--scan", "--pattern", pattern).split())

    def end(self) -> None:
        for node in self.nodes:
            node.kill()
            node.wait()


def cluster() -> None:
    """Each worker has an engine of its own. nginx says so at its start."""
    nodes = Cluster()
    try:
        server = serve("cluster", url=f"redis+cluster://127.0.0.1:{nodes.ports[0]}", words=PATIENT)
        same("each of the 2 workers has an engine of its own, and Redis adds up their counts" in server.check(), True)
        keys = 12  # on all nodes
        found = Load(server, lambda number, asked: f"/strict?key=c{asked % keys}&limit=20", 4, 10 * keys).wait()
        same(found, {200: 20 * keys, 429: 20 * keys})
        same(Load(server, lambda number, asked: f"/hard?key=c{asked % 3}", 8, 150).wait(), {200: 900, 429: 300})
        same(Load(server, lambda number, asked: f"/soft?key=c{asked % keys}", 4, 5 * keys).wait(), {200: 20 * keys})
        use_both_slots(server, server, "c1")
        server.reload()
        same(server.ask("/strict?key=c1&limit=20").status, 429)
        server.stop()
        same([nodes.total("strict:*c[0-9]*"), nodes.total("hard:*"), nodes.total("soft:*c[0-9]*")], [20 * keys, 900, 20 * keys])
        server.must_be_clean()
    finally:
        nodes.end()


def password() -> None:
    """Root reads the file; the workers are another user, and may not."""
    redis.ask("CONFIG", "SET", "requirepass", "secret")
    path = os.path.join(rig.folder, "redis-password")
    with open(path, "w", encoding="utf-8") as file:
        file.write("secret\n")
    os.chmod(path, 0o600)
    try:
        server = serve("password", words=f"password_file={path}")
        same(server.ask("/strict?key=p1&limit=1").status, 200)
        same(server.ask("/strict?key=p1&limit=1").status, 429)
        end(server)
    finally:
        subprocess.run(["redis-cli", "-s", redis.socket, "--no-auth-warning", "-a", "secret", "CONFIG", "SET", "requirepass", ""],
            stdout=subprocess.DEVNULL, check=False)


one = serve("one")
exact = serve("exact1", words=PATIENT), serve("exact2", words=PATIENT)
run("a strict limit is exact over two nginx of two workers", strict)
run("a hard limit is sold to the last unit over two nginx, by requests that wait", hard)
run("slots are one number over two nginx", slots)
run("a request that one limit denies takes nothing of the others", first_denied_takes_nothing)
run("clients that leave while they wait give back what was taken for them", clients_leave)
run("HTTP/2: streams wait, and end, each for itself", http2)
run("five reloads under load refuse or lose no request, and the books agree", reloads)
if is_long:
    run("Redis is stopped for a second: nobody is refused, and the books agree", goes_and_comes, "stopped", 1)
run("Redis is killed and comes again: nobody is refused, and the books agree", goes_and_comes, "killed", 2)
run("more requests wait for a stopped Redis than may: nobody is refused, and the books agree", busy)
run("workers that are killed double nothing", killed)
end(*exact)
end(one, but="exited on signal 9|TW-E028")
if is_long:
    run("a cluster", cluster)
run("a password from a file that only root can read", password)
rig.tap.end(plans=True)
