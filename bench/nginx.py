#!/usr/bin/env python3
"""nginx.py MODULE OUT [--seconds N] [--rounds N] [--connections N] [--redis] [--only "NAME;..."]
-- the module for nginx beside no module, limit_req, limit_conn, a round trip to Redis by Lua for each request, and what
HAProxy and Varnish have for this (`./dev bench nginx`). What is not installed is left out and named.

Each round starts every server once, in another order, and wrk asks it for some seconds. The table has the medians of the
rounds, and the smallest and largest number of requests:
    requests/s  as wrk counts answers
    CPU         user and system time of the workers, for one request. HAProxy and Varnish make the answer themselves
                and read no file: compare them with their own rows without a limit
    p99         of wrk's latencies
    Redis       how busy Redis is: at 100 % no module could have asked it for more
    calls       system calls of the workers for one request, by strace, in a second of its own of the first round
Instructions of a request are counted by nginx_instructions.py (`./dev bench instructions`).
--redis: strict limits beside what a Redis can do that is the bottleneck, in place of all that (nginx_redis.py).
Always true: keys are 1,000 different ones, no limit is reached, and each answer is the same small page.
"""
import argparse
import csv
import http.client
import os
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "nginx"))
import nginx_redis
import rig
from rig import Nginx, Redis, wait_until

TICKS = os.sysconf("SC_CLK_TCK")
LUA = 'request = function() return wrk.format("GET", "/page?k=" .. math.random(1000)) end\n'
REDIS = "tallywheel_redis {url} timeout=5s;" # a Redis that is bound is slow, and decides nevertheless
# As it is usually written: INCR of the key, and the answer compared with the limit.
ROUND_TRIP = """access_by_lua_block {
    local redis, key = ngx.socket.tcp(), "bench:" .. ngx.var.arg_k
    if not redis:connect("unix:{socket}") then return ngx.exit(500) end
    redis:send("*2\\r\\n$4\\r\\nINCR\\r\\n$" .. #key .. "\\r\\n" .. key .. "\\r\\n")
    local answer = redis:receive()
    redis:setkeepalive(60000, 256)
    if tonumber(answer:sub(2)) > 100000000 then return ngx.exit(429) end
}"""
# name: (http block, rules of the location); {url} is the Redis, {socket} its path
SERVERS = {
    "none": ("", ""),
    "limit_req": ("limit_req_zone $arg_k zone=a:10m rate=1000000r/s;", "limit_req zone=a burst=1000000 nodelay;"),
    "limit_conn": ("limit_conn_zone $arg_k zone=a:10m;", "limit_conn a 1000;"),
    "soft": ("tallywheel_zone a window=1h;", "tallywheel_limit a $arg_k 100000000;"),
    "gcra": ("tallywheel_zone a window=1h shape=gcra;", "tallywheel_limit a $arg_k 100000000;"),
    "hold": ("tallywheel_zone a window=forever;", "tallywheel_hold a $arg_k 1000;"),
    "soft, Redis": (REDIS + "tallywheel_zone a window=1h;", "tallywheel_limit a $arg_k 100000000;"),
    "hard, Redis": (REDIS + "tallywheel_zone a window=1h mode=hard;", "tallywheel_limit a $arg_k 100000000 wait=1s;"),
    "strict, Redis": (REDIS + "tallywheel_zone a window=1h mode=strict;", "tallywheel_limit a $arg_k 100000000;"),
    "INCR, Redis": ("", ROUND_TRIP),
}
MODULES = "/usr/lib/nginx/modules/"
LUA_MODULES = ["ndk_http_module.so", "ngx_http_lua_module.so"]
HAPROXY = """global
    nbthread 2
defaults
    mode http
    timeout client 1m
    timeout server 1m
    timeout connect 1m
backend counts
    stick-table type string len 32 size 100k expire 1h store http_req_rate(1h)
frontend page
    bind 127.0.0.1:{port}
    {rules}
    http-request return status 200 content-type text/plain string "page\\n"
"""
HAPROXY_RULES = """http-request track-sc0 url_param(k) table counts
    http-request deny deny_status 429 if { sc_http_req_rate(0) gt 100000000 }"""
VARNISH = """vcl 4.1;
import vsthrottle;
backend default none;
sub vcl_recv { {rules} return (synth(200, "OK")); }
sub vcl_synth { synthetic("page"); return (deliver); }
"""
VARNISH_RULES = 'if (vsthrottle.is_denied(regsub(req.url, "^.*k=", ""), 100000000, 1h)) { return (synth(429, "No")); }'
# name: (program, its configuration, rules)
PEERS = {
    "HAProxy": ("haproxy", HAPROXY, ""),
    "HAProxy, table": ("haproxy", HAPROXY, HAPROXY_RULES),
    "Varnish": ("varnishd", VARNISH, ""),
    "Varnish, throttle": ("varnishd", VARNISH, VARNISH_RULES),
}
COMMANDS = {
    "haproxy": "haproxy -db -f {file}",
    "varnishd": "varnishd -F -a 127.0.0.1:{port} -f {file} -n {home} -s malloc,16m",
}


def block(name: str, listen: str, redis: Redis) -> str:
    zones, rules = (text.replace("{url}", redis.url).replace("{socket}", redis.socket) for text in SERVERS[name])
    return f"""{zones}
server {{ listen {listen}; access_log off; error_log /dev/null crit; location /page {{ {rules} }} }}"""


class Started:
    """A server of that name which listens on a port."""

    def __init__(self, name: str, redis: Redis) -> None:
        self.port = free_port()
        if name in PEERS:
            self.nginx = None
            self.start_peer(*PEERS[name])
        else:
            main = "".join(f"load_module {MODULES}{file}; " for file in LUA_MODULES) if SERVERS[name][1] == ROUND_TRIP else ""
            self.nginx = Nginx(f"bench-{abs(hash(name))}", block(name, f"127.0.0.1:{self.port}", redis), main=main)
            self.nginx.answers = self.answers
            self.process = self.nginx.start().process

    def start_peer(self, program: str, text: str, rules: str) -> None:
        home = os.path.join(rig.folder, program)
        os.makedirs(home, exist_ok=True)
        with open(home + "/file", "w", encoding="utf-8") as file:
            file.write(text.replace("{rules}", rules).replace("{port}", str(self.port)))
        words = COMMANDS[program].format(port=self.port, file=home + "/file", home=home).split()
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=rig.die_with_parent)
        wait_until(program + " listens", self.answers)

    def answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port)).close()
            return True
        except OSError:
            return False

    def ask(self, path: str) -> int:
        client = http.client.HTTPConnection("127.0.0.1", self.port)
        client.request("GET", path)
        status = client.getresponse().status
        client.close()
        return status

    def admits(self) -> bool:
        return self.ask("/page?k=0") == 200

    def workers(self) -> list:
        """All processes that answer requests."""
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children", encoding="utf-8") as file:
            return [int(word) for word in file.read().split()] or [self.process.pid]

    def stop(self) -> None:
        if self.nginx:
            self.nginx.stop()
            Nginx.all.remove(self.nginx)
        else:
            self.process.terminate()
            self.process.wait(timeout=30)


def processor_time(pids: list) -> float:
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS


def ask_by_wrk(port: int, script: str, connections: int, seconds: int) -> tuple:
    """Requests, requests a second, p99 and median in ms."""
    said = subprocess.run(["wrk", "-t", str(min(2, connections)), "-c", str(connections), "-d", f"{seconds}s", "--latency", "-s", script,
        f"http://127.0.0.1:{port}/page"], capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in said:
        raise AssertionError(said)
    p99, median = (float(number) * {"us": 0.001, "ms": 1, "s": 1000}[unit] for number, unit in
                   (re.search(part + r"% +([\d.]+)(us|ms|s)", said).groups() for part in ("99", "50")))
    return (int(re.search(r"(\d+) requests in", said).group(1)), float(re.search(r"Requests/sec: +([\d.]+)", said).group(1)),
            p99, median)


def count_calls(pids: list, port: int, script: str, connections: int) -> float:
    command = ["strace", "-f", "-c", "-q"] + [word for pid in pids for word in ("-p", str(pid))]
    tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    time.sleep(0.3)
    requests = ask_by_wrk(port, script, connections, 1)[0]
    tracer.send_signal(2)
    said = tracer.communicate()[1]
    total = re.search(r"^100\.00 +\S+ +(?:\S+ +)?(\d+) .*total", said, re.M)
    return int(total.group(1)) / requests if total else float("nan")


def measure(name: str, redis: Redis, script: str, options, calls: bool) -> dict:
    server = Started(name, redis)
    wait_until("it admits", server.admits) # a hard limit needs a second in a Redis that it has never met
    pids, port = server.workers(), server.port
    ask_by_wrk(port, script, options.connections, 1)
    begin, before, redis_before = time.monotonic(), processor_time(pids), processor_time([redis.process.pid])
    requests, rate, p99, _ = ask_by_wrk(port, script, options.connections, options.seconds)
    seconds = time.monotonic() - begin
    found = {"requests/s": rate, "CPU us": 1e6 * (processor_time(pids) - before) / requests, "p99 ms": p99,
             "Redis %": 100 * (processor_time([redis.process.pid]) - redis_before) / seconds}
    if calls and shutil.which("strace"):
        found["calls"] = count_calls(pids, port, script, options.connections)
    server.stop()
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def is_there(name: str) -> bool:
    """Says so if not."""
    missing = ""
    if name in PEERS:
        missing = "" if shutil.which(PEERS[name][0]) else PEERS[name][0]
    elif SERVERS[name][1] == ROUND_TRIP:
        missing = "" if os.path.exists(MODULES + LUA_MODULES[1]) else "nginx's module for Lua"
    if missing:
        print(f"without {name}: {missing} is not installed", file=sys.stderr)
    return not missing


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("module")
    parser.add_argument("out")
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--redis", action="store_true")
    parser.add_argument("--only", metavar="NAME;...", default=";".join([*SERVERS, *PEERS]))
    options = parser.parse_args()
    Nginx.module = os.path.abspath(options.module)
    names = [name for name in options.only.split(";") if is_there(name)]
    redis = Redis().start()
    redis.ask("CONFIG", "SET", "appendonly", "no")
    os.makedirs(options.out, exist_ok=True)
    script = os.path.join(rig.folder, "keys.lua")
    with open(script, "w", encoding="utf-8") as file:
        file.write(LUA)
    if options.redis:
        nginx_redis.compare(redis, options.seconds, options.rounds, lambda name: Started(name, redis),
                            lambda port, connections, seconds: ask_by_wrk(port, script, connections, seconds))
        return
    results: dict = {name: [] for name in names}
    for number in range(options.rounds):
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
        for name in random.Random(number).sample(names, len(names)):
            results[name].append(measure(name, redis, script, options, number == 0))
    columns = list(results[names[0]][0])
    with open(os.path.join(options.out, "nginx.csv"), "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["server", "round", *columns])
        for name, rounds in results.items():
            writer.writerows([name, number, *map(found.get, columns)] for number, found in enumerate(rounds, 1))
    print(f"{'':17}" + "".join(f"{column:>14}" for column in columns) + "   from ... to")
    for name, rounds in results.items():
        rates = [found["requests/s"] for found in rounds]
        medians = [statistics.median(found[column] for found in rounds if column in found) for column in columns]
        print(f"{name:17}" + "".join(f"{median:14,.2f}" for median in medians) +
              f"   {min(rates):,.0f} ... {max(rates):,.0f}")


main()
