#!/usr/bin/env python3
"""nginx_instructions.py MODULE -- the user instructions of one request through nginx with each kind of rule, above those of
a location without rules (a table of `./dev bench instructions`). callgrind counts them. A second figure is the bound that
was planned.
Counted is what lies under ngx_http_process_request(): the phases, the answer and the end of a request, not the parser. So
nothing else that a worker does is in a figure: the turns of engines, timers, and nginx's time, which a busy machine has more
often. Requests come in pipelines, and the figure is the difference of a long and a short one, the cheapest of each: the first
request after a pause, whose call of an engine finds the time old and reads the clock, is in both.
Before the first figure the thread has made more than 1,024 calls in each family: so many take a longer way.
A sliding limit whose window is a day has no earlier window here. One of ten seconds is counted when an earlier window has the
key: each call looks at that, too.
In a flood each request has a new key, and its zone of 1 MB was full before the first figure. Those rows are above a
location without rules that has such requests.
Always true: each answer has the status that its row expects."""
import argparse
import glob
import http.client
import itertools
import os
import re
import shutil
import socket
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "nginx"))
import rig
from rig import Nginx

WARM = 1050
FLOOD = 20000 # more keys than a zone of 1 MB has, and as many again as it has places of 8 bytes
BATCHES = 8
SHORT, LONG = 1, 11 # requests of a pipeline; a long one fits into nginx's first buffer, 1 kB
COUNTED = "ngx_http_process_request"
ZONES = """limit_req_zone $binary_remote_addr zone=rate:1m rate=1000000r/s; limit_conn_zone $binary_remote_addr zone=slots:1m;
tallywheel_zone fixed window=1h; tallywheel_zone other window=1h; tallywheel_zone even window=1s shape=gcra;
tallywheel_zone sliding window=1d shape=sliding; tallywheel_zone slides window=10s shape=sliding; tallywheel_zone held window=forever;
limit_req_zone $arg_k zone=flood:1m rate=1r/s; tallywheel_zone flood window=1d full=evict memory=1m;
tallywheel_zone flood_gcra window=1d shape=gcra full=evict memory=1m;"""
ADDRESS = "$binary_remote_addr"
ONE = f"tallywheel_limit fixed {ADDRESS} 1000000000"
TWO = f"tallywheel_limit other {ADDRESS} 1000000000;"
# name of the row: (the rules of its location, the status, the bound if there is one)
ROWS = {
    "no rule": ("", 200, ""),
    "limit_req": ("limit_req zone=rate burst=10000 nodelay;", 200, ""),
    "limit_conn": ("limit_conn slots 10000;", 200, ""),
    "one limit": (ONE + ";", 200, "380"),
    "two limits": (ONE + ";" + TWO, 200, "800"),
    "one limit, refund=": (ONE + " refund=502;", 200, ""),
    "two limits, refund=": (ONE + " refund=502;" + TWO, 200, "1200"),
    "gcra": (f"tallywheel_limit even {ADDRESS} 1000000;", 200, "520"),
    "sliding": (f"tallywheel_limit sliding {ADDRESS} 1000000000;", 200, "700"),
    "sliding, an earlier window": (f"tallywheel_limit slides {ADDRESS} 1000000000;", 200, "700"),
    "hold": (f"tallywheel_hold held {ADDRESS} 10000;", 200, "850"),
    "one limit, a text key": ('tallywheel_limit fixed "a:$remote_addr" 1000000000;', 200, "700"),
    "one limit, three headers": (ONE + "; tallywheel_headers ratelimit;", 200, "980"),
    "one limit, denied": (f"tallywheel_limit fixed {ADDRESS} 0;", 429, "-300"),
    "a count": (f"tallywheel_count other {ADDRESS};", 200, ""),
    "no rule, new keys": ("", 200, ""),
    "a flood": ("tallywheel_limit flood $arg_k 1000000000;", 200, ""),
    "a flood, gcra": ("tallywheel_limit flood_gcra $arg_k 1000000000;", 200, ""),
    "a flood, limit_req": ("limit_req zone=flood burst=10000 nodelay;", 200, ""),
}
BASES = ("no rule", "no rule, new keys") # what the other rows, and those of a flood, are above


def free_ports(count: int) -> list:
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


class Row:
    """A server of its own with one location: so nothing but the rules differs from row to row."""

    def __init__(self, name: str, port: int) -> None:
        self.name, self.port = name, port
        self.rules, self.status, self.bound = ROWS[name]
        self.client = self.answers = None
        self.floods = "flood" in name
        self.base = BASES[self.floods]
        new_keys = (f"/?k={key:08}" for key in itertools.count())
        self.paths = new_keys if self.floods or name == BASES[1] else itertools.repeat("/")

    def block(self) -> str:
        return f"server {{ listen 127.0.0.1:{self.port}; location / {{ {self.rules} empty_gif; }} }}\n"

    def ask(self, requests: int) -> None:
        """In one pipeline."""
        if self.client is None:
            self.client = socket.create_connection(("127.0.0.1", self.port))
            self.answers = self.client.makefile("rb")
        self.client.sendall(b"".join(f"GET {next(self.paths)} HTTP/1.1\r\nHost: a\r\n\r\n".encode() for _ in range(requests)))
        for _ in range(requests):
            status = int(self.answers.readline().split()[1])
            headers = http.client.parse_headers(self.answers)
            self.answers.read(int(headers["Content-Length"]))
            if status != self.status:
                raise AssertionError(f"{self.name}: {status}, not {self.status}")

    def warm(self, requests: int) -> None:
        for _ in range(0, requests, LONG):
            self.ask(LONG)

    def pass_a_window(self) -> None:
        self.ask(LONG)
        time.sleep(10.5 - time.time() % 10)
        self.ask(LONG)

    def counted(self, requests: int, process: int) -> int:
        """Of a pipeline, the cheapest one: what its requests meet now and then, such as a new window, is in the others."""
        found, before = [], counted_by(process)
        for _ in range(BATCHES):
            self.ask(requests)
            after = counted_by(process)
            found.append(after - before)
            before = after
        if min(found) <= 0:
            raise AssertionError("callgrind counted nothing")
        return min(found)

    def instructions(self, process: int) -> float:
        return (self.counted(LONG, process) - self.counted(SHORT, process)) / (LONG - SHORT)


def control(word: str, process: int) -> str:
    return subprocess.run(["callgrind_control", word, str(process)], capture_output=True, text=True, check=True).stdout


def counted_by(process: int) -> int:
    found = re.search(r"^\s*Th\s*\d+\s+([\d,]+)", control("-e", process), re.M)
    if found is None:
        raise AssertionError("callgrind does not answer")
    return int(found[1].replace(",", ""))


def start(rows: list) -> Nginx:
    """One process of nginx under callgrind."""
    server = Nginx("instructions", "", workers=0, main="master_process off;")
    server.write(f"{ZONES} keepalive_timeout 1h; access_log off; error_log /dev/null crit;\nserver {{ listen unix:{server.socket}; }}\n" +
                 "".join(row.block() for row in rows))
    with open(server.home + "/nginx.conf", encoding="utf-8") as file:
        text = file.read().replace("worker_processes 0;", "").replace(f"access_log {server.home}/access.log;", "")
    with open(server.home + "/nginx.conf", "w", encoding="utf-8") as file:
        file.write(text)
    rig.WRAPPER = ["valgrind", "--tool=callgrind", "-q", f"--toggle-collect={COUNTED}",
        f"--callgrind-out-file={server.home}/callgrind"]
    return server.start()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("module")
    parser.add_argument("--only", metavar="ROW;...", default=";".join(ROWS))
    parser.add_argument("--keep", metavar="FOLDER", help="of files for callgrind_annotate, one of each row")
    options = parser.parse_args()
    Nginx.module = os.path.abspath(options.module)
    only = options.only.split(";")
    names = [name for name in ROWS if name in only or name in BASES]
    rows = [Row(name, port) for name, port in zip(names, free_ports(len(names)))]
    server = start(rows)
    for row in rows:
        row.warm(FLOOD if row.floods else WARM)
    bases = {}
    for row in rows:
        if row.name == "sliding, an earlier window":
            row.pass_a_window()
        found = row.instructions(server.process.pid)
        if row.name in BASES:
            bases[row.name] = found
            print(f"{row.name:27}{found:8.0f}", flush=True)
        else:
            print(f"{row.name:27}{found - bases[row.base]:+8.0f}{row.bound:>8}", flush=True)
        if options.keep: # of one pipeline
            control("-z", server.process.pid)
            row.ask(LONG)
            control("-d", server.process.pid)
            os.makedirs(options.keep, exist_ok=True)
            latest = max(glob.glob(server.home + "/callgrind.*"), key=os.path.getmtime)
            shutil.copy(latest, os.path.join(options.keep, re.sub("[ ,]+", "_", row.name)))
    server.stop()


main()
