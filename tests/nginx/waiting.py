#!/usr/bin/env python3
"""waiting.py MODULE SOURCES -- requests that wait: how many, in which order, and what becomes of them (TAP).

Method: clients ask a real nginx all at once. What limit_req does with the same clients is compared, in the same nginx.
The numbers must be the same; the times are printed. Where the test needs to see who waits, the rate is one in some
minutes, so that a request is denied while others wait, or nobody ever is.
Covers: nginx/places.c, nginx/queue.c, nginx/wait.c.
"""
import asyncio
import collections
import contextlib
import os
import signal
import socket
import sys
import threading
import time

sys.dont_write_bytecode = True
import rig
from rig import Nginx, run, same, wait_until

sources = rig.begin(sys.argv)


def make(name: str, http_block: str, workers: int = 2, connections: int = 4096) -> Nginx:
    server = Nginx(name, "", workers=workers)
    server.write(http_block.replace("LISTEN", f"listen unix:{server.socket} backlog=4096;"))
    with open(server.home + "/nginx.conf", encoding="utf-8") as file:
        text = file.read().replace("worker_connections 4096;", f"worker_connections {connections};")
    with open(server.home + "/nginx.conf", "w", encoding="utf-8") as file:
        file.write(text)
    return server


def end(server: Nginx, but: str = "$^") -> None:
    server.stop()
    server.must_be_clean(but)


# ---- the rows of the table -------------------------------------------------------------------------------------------

# Two a second: all clients ask within one step, also on a machine that is busy.
ROWS = """
limit_req_zone $arg_k zone=now:1m rate=2r/s; limit_req_zone $arg_k zone=late:1m rate=2r/s; limit_req_zone $arg_k zone=two:1m rate=2r/s;
limit_req_status 429;
tallywheel_zone now window=5s shape=gcra burst=9;
tallywheel_zone late window=1s shape=gcra burst=1;
tallywheel_zone two window=2s shape=gcra burst=4;
server { LISTEN
    location = /now/theirs { limit_req zone=now burst=8 nodelay; try_files /page =404; }
    location = /now/ours { tallywheel_limit now $arg_k 10; try_files /page =404; }
    location = /late/theirs { limit_req zone=late burst=8; try_files /page =404; }
    location = /late/ours { tallywheel_limit late $arg_k 2 wait=4s; try_files /page =404; }
    location = /two/theirs { limit_req zone=two burst=8 delay=3; try_files /page =404; }
    location = /two/ours { tallywheel_limit two $arg_k 4 wait=2500ms; try_files /page =404; }
}
"""


async def ask(server: Nginx, path: str, start: float, due: float, found: list) -> float:
    """Returns how long after the moment at which it was due a denial came: nginx had the request by then."""
    reader, writer = await asyncio.open_unix_connection(server.socket)
    writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    found.append((int(answer[9:12]), time.monotonic() - start))
    return time.monotonic() - due if found[-1][0] == 429 else 0


async def at_once(server: Nginx, paths: list, count: int, pause: float) -> tuple:
    """So many clients of each path, and as many again after the pause. Returns (status, seconds) of each, and how late a
    denial came at most."""
    found: dict = {path: [] for path in paths}
    start = time.monotonic()
    tasks = []
    for due in (start, start + pause):
        await asyncio.sleep(max(0, due - time.monotonic()))
        tasks += [asyncio.create_task(ask(server, path, start, due, found[path])) for path in paths for _ in range(count)]
    return found, max(await asyncio.gather(*tasks))


def rows(workers: int) -> None:
    """The second clients come when a unit and a half have come back. If nginx has served some of the first ones, or gets some
    of the second, half a unit late, that says nothing: another try."""
    server = make(f"rows{workers}", ROWS, workers).start()
    names = ("now", "late", "two")
    for key in "123456":
        paths = [f"/{name}/{whose}?k={key}" for name in names for whose in ("theirs", "ours")]
        found, latest = asyncio.run(at_once(server, paths, 20, 0.75))
        is_quick = latest < 0.24
        if is_quick:
            break
    for name in names:
        theirs, ours = (sorted(found[f"/{name}/{whose}?k={key}"], key=lambda one: one[1]) for whose in ("theirs", "ours"))
        numbers = [collections.Counter(status for status, _ in one) for one in (theirs, ours)]
        if is_quick:
            same(numbers[0], {200: 10, 429: 30}, f"{name}, limit_req")
        if is_quick or abs(numbers[1][200] - numbers[0][200]) > 2:
            same(numbers[1], numbers[0], name)
        times = [[when for status, when in one if status == 200] for one in (theirs, ours)]
        print(f"# {workers} workers, {name}: admitted after " + ", ".join(f"{one:.3f}/{other:.3f}" for one, other in zip(*times))
            + f" s (limit_req/here), at most {1000 * max(abs(one - other) for one, other in zip(*times)):.0f} ms apart; the last denial "
            + "/".join(f"{max(when for status, when in one if status == 429):.3f}" for one in (theirs, ours)) + " s", flush=True)
    end(server)


# ---- who may wait ----------------------------------------------------------------------------------------------------

# A unit in 100 s: nobody is served while a test runs, and of each key six can be served in 600 s.
SLOW = """
tallywheel_zone slow window=100s shape=gcra burst=1; tallywheel_zone fixed window=1h;
server { LISTEN
    location = /slow { tallywheel_limit slow $arg_k 1 wait=600s; try_files /page =404; }
    location = /three { tallywheel_limit slow $arg_k 1 wait=600s queue=3; try_files /page =404; }
    location = /never { tallywheel_limit fixed $arg_k 1 wait=1s; try_files /page =404; }
    location = /free { try_files /page =404; }
    location = /metrics { tallywheel_metrics; }
}
"""


class Crowd:
    """Clients that have asked, and may have their answers or not."""

    def __init__(self, server: Nginx, paths: list) -> None:
        self.statuses: list = []
        self.socks: list = []
        for path in paths:
            sock = socket.socket(socket.AF_UNIX)
            sock.settimeout(60)
            sock.connect(server.socket)
            sock.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            sock.setblocking(False)
            self.socks.append(sock)

    def look(self) -> list:
        """Answers so far. Only a client without one is left in `socks`."""
        for sock in self.socks[:]:
            try:
                head = sock.recv(12)
            except BlockingIOError:
                continue
            self.statuses.append(int(head[9:12]) if len(head) == 12 else 0)
            sock.close()
            self.socks.remove(sock)
        return self.statuses

    def await_answers(self, count: int) -> collections.Counter:
        wait_until(f"{count} answers", lambda: len(self.look()) >= count)
        return collections.Counter(self.statuses)

    def leave(self) -> None:
        for sock in self.socks:
            sock.close()
        self.socks = []


def waiting(server: Nginx, name: str = "tallywheel_waiting_requests") -> int:
    for line in server.ask("/metrics").text.splitlines():
        if line.startswith(name + " "):
            return int(line.split()[1])
    raise AssertionError("the page has no " + name)


def at_once_denied() -> None:
    server = make("denied", SLOW).start()
    crowd = Crowd(server, ["/slow?k=1"] * 20)
    same(crowd.await_answers(14), {200: 1, 429: 13})
    same(waiting(server), 6)
    same(len(crowd.look()), 14, "answers while six wait")
    crowd.leave()
    wait_until("their places are free", lambda: waiting(server) == 0)
    again = Crowd(server, ["/slow?k=1"] * 20)
    same(again.await_answers(14), {429: 14})
    same(waiting(server), 6, "as many as before")
    same(waiting(server, "tallywheel_waiting_denied_total"), 13 + 14)
    again.leave()
    same(collections.Counter(server.ask("/never?k=1").status for _ in range(3)), {200: 1, 429: 2}, "the window ends too late")
    wait_until("nobody waits", lambda: waiting(server) == 0)
    end(server)


def queue_length() -> None:
    server = make("length", SLOW).start()
    crowd = Crowd(server, [f"/three?k={key}" for key in (1, 2)] * 20)
    same(crowd.await_answers(34), {200: 2, 429: 32})
    same(waiting(server), 6, "three of each key")
    crowd.leave()
    wait_until("nobody waits", lambda: waiting(server) == 0)
    end(server)


def killed() -> None:
    server = make("killed", SLOW).start()
    crowd = Crowd(server, ["/slow?k=1"] * 20)
    same(crowd.await_answers(14), {200: 1, 429: 13})
    for victim in server.worker_ids():
        os.kill(victim, signal.SIGKILL)
    wait_until("other workers run", lambda: len(server.worker_ids()) == 2 and server.ask("/free").status == 200)
    wait_until("places of killed workers are free", lambda: waiting(server) == 0)
    again = Crowd(server, ["/slow?k=1"] * 20)
    same(again.await_answers(14), {429: 14}, "six wait again")
    crowd.leave()
    old = server.worker_ids()
    server.reload()
    same(server.ask("/slow?k=1").status, 429, "those that wait in workers that shut down have their places")
    same(waiting(server), 6)
    for victim in old:  # nobody takes the number of such a worker; one in which nobody waited has ended by itself
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
    wait_until("places of killed workers that were shutting down are free", lambda: waiting(server) == 0)
    again.leave()
    end(server, "exited on signal 9|TW-E028")


def quarter() -> None:
    """Of 64 connections: 16 may wait, whatever their keys are. The log says so once."""
    server = make("quarter", SLOW, 1, 64).start()
    first = [server.ask(f"/slow?k={key}").status for key in range(30)]
    same(first, [200] * 30)
    crowd = Crowd(server, [f"/slow?k={key}" for key in range(30)])
    same(crowd.await_answers(14), {429: 14})
    same(waiting(server), 16)
    same(server.errors().count("a quarter of worker_connections"), 1)
    crowd.leave()
    wait_until("nobody waits", lambda: waiting(server) == 0)
    end(server)


def flood(name: str, path) -> None:
    """New requests as fast as they come, whose clients leave after some seconds. Another location is asked all the time."""
    server = make("flood-" + name, SLOW, 1, 1024).start()
    stopping, asked, refused = threading.Event(), [0], [0]

    def work() -> None:
        open_ones: collections.deque = collections.deque()
        while not stopping.is_set():
            try:
                sock = socket.socket(socket.AF_UNIX)
                sock.settimeout(5)
                sock.connect(server.socket)
                sock.sendall(f"GET {path(asked[0])} HTTP/1.0\r\n\r\n".encode())
                open_ones.append(sock)
            except OSError:
                refused[0] += 1
                time.sleep(0.05)  # nginx gets too little of the processors for more
            if len(open_ones) > 3000:
                open_ones.popleft().close()
            asked[0] += 1
            if asked[0] % 20 == 0:
                time.sleep(0.01)
        for sock in open_ones:
            sock.close()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    wait_until("2,000 requests came, or cannot come", lambda: asked[0] + 100 * refused[0] >= 2000)
    found: collections.Counter = collections.Counter()
    until = time.monotonic() + 60
    while sum(found.values()) < 100:
        client = rig.Unix(server.socket)
        try:
            found[client.ask("/free").status] += 1
        except OSError as error:
            if not isinstance(error, BlockingIOError) or time.monotonic() > until:  # that one has not come to nginx
                found[type(error).__name__] += 1
        client.close()
    stopping.set()
    thread.join()
    same(found, {200: 100}, "the other location")
    same("worker_connections are not enough" in server.errors(), False)
    end(server)


# ---- those who wait --------------------------------------------------------------------------------------------------

QUICK = """
log_format who '$arg_i $status';
tallywheel_zone even window=1s shape=gcra burst=1; tallywheel_zone fixed window=3s; tallywheel_zone slide window=2s shape=sliding;
server { LISTEN access_log ACCESS who;
    location = /even { tallywheel_limit even one 4 wait=5s; try_files /page =404; }
    location = /line { tallywheel_limit even two 4 wait=30s queue=12; try_files /page =404; }
    location = /fixed { tallywheel_limit fixed one 4 wait=20s; try_files /page =404; }
    location = /slide { tallywheel_limit slide one 4 wait=10s; try_files /page =404; }
    location = /free { try_files /page =404; }
}
"""


def make_quick(name: str, workers: int) -> Nginx:
    return make(name, QUICK.replace("ACCESS", f"{rig.folder}/{name}/access.log"), workers)


def in_order() -> None:
    server = make_quick("order", 1).start()
    for path in ("/even", "/fixed", "/slide"):
        before = len(server.access())
        crowd = Crowd(server, [f"{path}?i={number}" for number in range(12)])
        same(crowd.await_answers(12), {200: 12}, path)
        wait_until("the log has all", lambda before=before: len(server.access()) == before + 12)
        same(server.access()[before:], [f"{number} 200" for number in range(12)], path)
    end(server)


def no_overtaking() -> None:
    """Requests that come later, in both workers, take no units of those that wait. Most of the load is denied, and asks again
    at once, also when a unit is free. Two of the later ones may be logged first, by a worker that took its unit later."""
    server = make_quick("overtaking", 2).start()
    crowd = Crowd(server, ["/line"] * 13)
    wait_until("one is served", lambda: crowd.look() == [200])
    load = rig.Load(server, "/line?i=late", clients=16)
    same(crowd.await_answers(13), {200: 13})
    load.stop()
    same(load.failures, [])
    served = [line for line in server.access() if line.endswith(" 200")][:13]
    print(f"# {served.count('late 200')} of the first 13 came later", flush=True)
    same(served.count("late 200") <= 2, True, "those that waited were served first")
    end(server)


def reloaded() -> None:
    """Each is answered by the worker that it waits in, while that worker shuts down."""
    server = make_quick("reloaded", 2).start()
    crowd = Crowd(server, ["/even"] * 12 + ["/fixed"] * 12)
    wait_until("one is served", lambda: 200 in crowd.look())
    server.reload()
    same(server.ask("/free").status, 200)
    same(crowd.await_answers(24), {200: 24})
    end(server)


# ---- words -----------------------------------------------------------------------------------------------------------

WRONG = [
    ("tallywheel_zone a; tallywheel_limit a $uri 3 queue=5;", '"tallywheel_limit" directive has queue= without wait=, so nobody waits'),
    ("tallywheel_zone a; tallywheel_limit a $uri 3 wait=1s queue=0;", 'invalid parameter "queue=0" of "tallywheel_limit": the queue is a number from 1 to 1000000'),
    ("tallywheel_zone a; tallywheel_limit a $uri 3 wait=1s queue=many;", 'invalid parameter "queue=many" of "tallywheel_limit": the queue is a number from 1 to 1000000'),
    ("tallywheel_zone a; tallywheel_limit a $uri 3 wait=0 queue=3;", 'invalid parameter "wait=0" of "tallywheel_limit": the wait is a time of at most 10m, such as 200ms'),
    ("tallywheel_zone a window=forever; tallywheel_hold a $uri 3 queue=3;", 'invalid parameter "queue=3" of "tallywheel_hold": the parameters are status=, outage_status= and invalid='),
]


def refused() -> None:
    for words, wanted in WRONG:
        server = Nginx("refused", words)
        said = server.check()
        Nginx.all.remove(server)
        lines = [line for line in said.splitlines() if "[emerg]" in line]
        same(len(lines) == 1 and wanted in lines[0] and lines[0].endswith(" in nginx.conf:12"), True, f"{words} {said}")


for number in (1, 2):
    run(f"{number} workers: burst= with nodelay, with delay= and without admits and denies as many as limit_req", rows, number)
run("who cannot be served in time is denied while others wait, and who leaves gives the place back", at_once_denied)
run("queue= bounds the requests of a key that wait, in all workers together", queue_length)
run("places of killed workers are free", killed)
run("a quarter of worker_connections waits at most, whatever the keys are", quarter)
run("a flood of one key on a waiting location does not touch another location", flood, "one", lambda number: "/slow?k=1")
run("a flood of 100,000 keys does not, either", flood, "many", lambda number: f"/slow?k={number // 2 % 100000}")
run("requests are served in the order in which they came", in_order)
run("requests that come later do not overtake those that wait", no_overtaking)
run("a reload answers each request that waits", reloaded)
run("nginx -t names what is wrong with queue=", refused)
rig.tap.end(plans=True)
