#!/usr/bin/env python3
"""http_servers.py PROGRAM... -- the servers of examples/http_*.c, by real clients, against a real Redis (TAP).

Each is asked as its head says: the limit of a client and its headers; a stock that is sold by many clients at once, to
the unit; clients that leave while they are parked, whose purchase returns to the stock; metrics; the end by SIGTERM.
Always true: servers and Redis end with the test.
"""
import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
sys.path.append(sys.path[0] + "/../support")
import tap
from tap import ok
from waits import wait_until

PATIENCE_S = 30
PHONES = 500


class Redis:
    def __init__(self):
        self.folder = tempfile.mkdtemp()
        self.path = os.path.join(self.folder, "redis.sock")
        self.server = subprocess.Popen(
            ["redis-server", "--port", "0", "--unixsocket", self.path, "--save", "", "--dir", self.folder],
            stdout=subprocess.DEVNULL)
        assert wait_until(lambda: os.path.exists(self.path) and self.ask("PING") == "PONG")

    def ask(self, *words):
        try:
            asked = subprocess.run(["redis-cli", "-s", self.path, *words], capture_output=True, text=True, check=False)
        except OSError:
            return ""
        return asked.stdout.strip()

    def sold(self):
        return sum(int(self.ask("GET", name) or 0) for name in self.ask("--scan", "--pattern", "stock:*").split())

    def end(self):
        self.server.send_signal(signal.SIGCONT)
        self.server.kill()
        self.server.wait()
        shutil.rmtree(self.folder)


class Server:
    def __init__(self, program, redis):
        self.process = subprocess.Popen([program], stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, "TALLYWHEEL_REDIS": f"unix://{redis.path}"})
        self.port = int(self.process.stdout.readline().strip().rstrip("/").rsplit(":", 1)[1])

    def client(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)

    def end(self):
        self.process.terminate()
        status = self.process.wait(PATIENCE_S)
        self.process.stdout.close()
        return status


def get(client, path, name="nobody"):
    client.request("GET", path, headers={"X-Client": name})
    answer = client.getresponse()
    body = answer.read()
    return answer.status, answer.headers, body


def limits(server):
    """In the first moments after a start others may be counting too: then a part of the limit is kept for them."""
    client, admitted, end = server.client(), 0, time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        status, headers, _ = get(client, "/", "ann")
        admitted += status == 200
        if status not in (200, 429) or int(headers["RateLimit-Remaining"]) != 100 - admitted:
            return False
        if status == 429 and admitted == 100:
            return int(headers["Retry-After"]) >= 1 and get(client, "/", "bob")[0] == 200
        if status == 429:
            time.sleep(0.05)
    return False


def buy_many(server, statuses):
    client = server.client()
    for _ in range(25):
        statuses.append(get(client, "/buy")[0])


def sells(server):
    statuses = []
    buyers = [threading.Thread(target=buy_many, args=(server, statuses)) for _ in range(24)]
    for buyer in buyers:
        buyer.start()
    for buyer in buyers:
        buyer.join()
    return statuses


def leave_parked(server, redis):
    """Clients that go while Redis does not answer. Others are served meanwhile."""
    redis.server.send_signal(signal.SIGSTOP)
    gone = []
    for _ in range(20):
        client = socket.create_connection(("127.0.0.1", server.port))
        client.sendall(b"GET /buy HTTP/1.1\r\nHost: x\r\n\r\n")
        gone.append(client)
    served = get(server.client(), "/", "cid")[0] == 200
    for client in gone:
        client.close()
    served = served and get(server.client(), "/", "cid")[0] == 200
    redis.server.send_signal(signal.SIGCONT)
    return served


def play(program):
    name = os.path.basename(program)
    redis = Redis()
    server = None
    try:
        server = Server(program, redis)
        ok(wait_until(lambda: get(server.client(), "/buy")[0] == 200), f"{name}: Redis sells the first phone")
        ok(limits(server), f"{name}: 100 calls of a client are served, and headers count them down")
        ok(leave_parked(server, redis), f"{name}: clients that are parked hold up nobody")
        ok(wait_until(lambda: redis.sold() == 1), f"{name}: what was asked for by clients that left is not sold")
        ok(wait_until(lambda: get(server.client(), "/buy")[0] == 200), f"{name}: then Redis sells again")
        statuses = sells(server)
        sold = 2 + statuses.count(200)
        while sold < PHONES and wait_until(lambda: get(server.client(), "/buy")[0] in (200, 410)):
            sold = redis.sold()
        ok(redis.sold() == PHONES and statuses.count(200) + statuses.count(410) + statuses.count(503) == 600,
           f"{name}: 24 clients at once buy the stock, and no phone more")
        ok(get(server.client(), "/buy")[0] == 410, f"{name}: then it is sold out")
        page = get(server.client(), "/metrics")[2].decode()
        ok("tallywheel_increments_total" in page, f"{name}: a scraper gets its page")
        keeps = server.client()
        get(keeps, "/", "dan")
        ok(server.end() == 0, f"{name}: SIGTERM ends it, and Redis has all counts")
        ok(redis.ask("--scan", "--pattern", "calls:*ann*") != "", f"{name}: those of the soft limit, too")
    finally:
        if server is not None:
            server.process.kill()
            server.process.wait()
        redis.end()


def main():
    programs = sys.argv[1:]
    if shutil.which("redis-server") is None or not programs:
        tap.skip_all("no redis-server, or none of the servers was built: apt-get install redis-server libuv1-dev libevent-dev")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that Redis ends with the test
    tap.plan(10 * len(programs))
    for program in programs:
        play(program)
    tap.end()


if __name__ == "__main__":
    main()
