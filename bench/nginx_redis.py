"""nginx_redis.py -- strict limits through nginx beside what Redis can do (`./dev bench nginx --redis`).

A cgroup gives Redis a small part of a processor, so that Redis is the bottleneck, and not the machine that it shares
with nginx and the client. redis-benchmark measures what it can do, by the call that the module sends: over as many
connections as workers have, with as many calls in flight as there are requests (`same`), and with more (`most`).
    requests/s  as wrk counts answers; calls a second of redis-benchmark
    of same, of most  the median of the rounds' quotients. Each round measures all three, in another order
    Redis %     how much of its part Redis used. Near 100 it was the bottleneck
Without that bound: the median latency over one connection of a request without the module, of one with a strict limit,
and of a call by redis-benchmark.
Always true: Redis is empty before each measurement, and has the same number of keys and calls behind it when it begins.
"""
import os
import random
import re
import statistics
import subprocess
import sys
import time

import rig
from rig import Redis, wait_until

GROUPS = "/sys/fs/cgroup/cpu"
QUOTA_US = 1000  # the least that the kernel accepts
PARTS = (5, 10, 20)  # percent of a processor
CONNECTIONS = 256
WORKERS = 2
PIPELINES = {"same": CONNECTIONS // WORKERS, "most": 512}
WARM_S = 2
FIRST_RATE = 5000  # calls a second, until one was measured


class Group:
    """A cgroup of version 1. Raises OSError if there can be none."""

    def __init__(self) -> None:
        self.path = f"{GROUPS}/tallywheel-bench-{os.getpid()}"
        if not os.path.exists(GROUPS + "/cpu.cfs_quota_us"):
            raise OSError(f"no cgroup of version 1 at {GROUPS}")
        os.mkdir(self.path)

    def write(self, name: str, value: int) -> None:
        with open(f"{self.path}/{name}", "w", encoding="utf-8") as file:
            file.write(str(value))

    def bind(self, percent: int) -> None:
        self.write("cpu.cfs_quota_us", -1)
        self.write("cpu.cfs_period_us", QUOTA_US * 100 // percent)
        self.write("cpu.cfs_quota_us", QUOTA_US)

    def free(self) -> None:
        self.write("cpu.cfs_quota_us", -1)

    def remove(self) -> None:
        def is_empty() -> bool:
            with open(self.path + "/cgroup.procs", encoding="utf-8") as file:
                return not file.read()

        wait_until("the cgroup is empty", is_empty)
        os.rmdir(self.path)


class Meter:
    """The part of a processor that Redis uses from now on."""

    def __init__(self, redis: Redis) -> None:
        self.redis, self.begin, self.before = redis, time.monotonic(), self.used(redis)

    @staticmethod
    def used(redis: Redis) -> float:
        with open(f"/proc/{redis.process.pid}/schedstat", encoding="utf-8") as file:
            return int(file.read().split()[0]) / 1e9

    def percent(self) -> float:
        return 100 * (self.used(self.redis) - self.before) / (time.monotonic() - self.begin)


def learn_call(server, redis: Redis) -> list:
    """The words of a call that the module sends for a key of redis-benchmark."""
    monitor = subprocess.Popen(["redis-cli", "-s", redis.socket, "MONITOR"], stdout=subprocess.PIPE, text=True)
    try:
        monitor.stdout.readline()
        for _ in range(4):  # the first of each worker may come with the text of the script
            server.ask("/page?k=__rand_int__")
        for line in monitor.stdout:
            words = re.findall(r'"((?:[^"\\]|\\.)*)"', line)
            if words[:1] == ["EVALSHA"] and words[3].startswith("tw:calls:"):
                return words
    finally:
        monitor.kill()
        monitor.wait()
    raise AssertionError("the module sent no call")


def call_by_benchmark(redis: Redis, call: list, clients: int, pipeline: int, count: int, number: int) -> tuple:
    """Calls a second, and the median latency in ms. Each call has one of 1,000 keys and of 1,000 lanes by chance. A lane
    that meets a key again with no greater number gets a short answer: few do, and a later run has a greater `number`."""
    words = [*call[:5], "0123456789abcdef:__rand_int__", f"{number}:1f2e3d4c", *call[7:]]
    said = subprocess.run(["redis-benchmark", "-s", redis.socket, "-c", str(clients), "-P", str(pipeline), "-n", str(count),
        "-r", "1000", "--csv", *words], capture_output=True, text=True, check=True)
    if "rror" in said.stdout + said.stderr:
        raise AssertionError(said.stdout + said.stderr)
    numbers = said.stdout.splitlines()[-1].rsplit(",", 7)[1:]  # rps, and latencies: average, least, median, ...
    return tuple(float(numbers[i].strip('"')) for i in (0, 3))


class Comparison:
    """`start`: starts the server of that name of nginx.py. `ask`: wrk."""

    def __init__(self, group: Group, redis: Redis, seconds: int, start, ask) -> None:
        self.group, self.redis, self.seconds, self.start, self.ask = group, redis, seconds, start, ask
        self.rate = FIRST_RATE
        server = start("strict, Redis")
        self.call = learn_call(server, redis)
        server.stop()

    def by_nginx(self) -> tuple:
        """Requests a second; percent of a processor."""
        server = self.start("strict, Redis")
        self.ask(server.port, CONNECTIONS, WARM_S)
        meter = Meter(self.redis)
        rate = self.ask(server.port, CONNECTIONS, self.seconds)[1]
        percent = meter.percent()
        server.stop()
        return rate, percent

    def by_benchmark(self, pipeline: int) -> tuple:
        self.rate = call_by_benchmark(self.redis, self.call, WORKERS, pipeline, int(self.rate * WARM_S), 1)[0]
        meter = Meter(self.redis)
        rate = call_by_benchmark(self.redis, self.call, WORKERS, pipeline, int(self.rate * self.seconds), 2)[0]
        return rate, meter.percent()

    def measure(self, name: str) -> tuple:
        self.redis.ask("FLUSHALL")
        return self.by_nginx() if name == "nginx" else self.by_benchmark(PIPELINES[name])

    def compare(self, percent: int, rounds: int) -> None:
        names = [*PIPELINES, "nginx"]
        found: list = []
        self.group.bind(percent)
        for number in range(rounds):
            print(f"{percent} %: round {number + 1} of {rounds}", file=sys.stderr)
            found.append({name: self.measure(name) for name in random.Random(number).sample(names, len(names))})
        self.group.free()
        quotients = {name: [100 * one["nginx"][0] / one[name][0] for one in found] for name in PIPELINES}
        for name in names:
            rates = [one[name][0] for one in found]
            used = statistics.median(one[name][1] for one in found)
            print(f"{percent:3} %  {name:8}{statistics.median(rates):10,.0f}{100 * used / percent:9.1f}   "
                  f"{min(rates):,.0f} ... {max(rates):,.0f}")
        for name, parts in quotients.items():
            print(f"       nginx of {name}: {statistics.median(parts):.1f} %   {min(parts):.1f} ... {max(parts):.1f}", flush=True)

    def latencies(self, rounds: int) -> None:
        found: dict = {"none": [], "strict, Redis": [], "redis-benchmark": []}
        for number in range(rounds):
            for name in random.Random(number).sample(list(found), len(found)):
                self.redis.ask("FLUSHALL")
                if name in ("none", "strict, Redis"):
                    server = self.start(name)
                    self.ask(server.port, 1, 1)
                    found[name].append(1000 * self.ask(server.port, 1, self.seconds)[3])
                    server.stop()
                else:
                    found[name].append(1000 * call_by_benchmark(self.redis, self.call, 1, 1, FIRST_RATE, 2)[1])
        print("\nmedian latency over one connection, us")
        for name, values in found.items():
            print(f"{name:17}{statistics.median(values):8.0f}   {min(values):.0f} ... {max(values):.0f}")
        added = [one - other for one, other in zip(found["strict, Redis"], found["none"])]
        print(f"{'strict adds':17}{statistics.median(added):8.0f}   {min(added):.0f} ... {max(added):.0f}")


def compare(redis: Redis, seconds: int, rounds: int, start, ask) -> None:
    """`redis` runs, and is in the cgroup from here on."""
    try:
        group = Group()
    except OSError as error:
        print(f"left out: what strict limits reach of a Redis ({error})")
        return
    try:
        group.write("cgroup.procs", redis.process.pid)
        comparison = Comparison(group, redis, seconds, start, ask)
        print(f"Redis has  {'':8}{'requests/s':>10}{'Redis %':>9}   from ... to")
        for percent in PARTS:
            comparison.compare(percent, rounds)
        comparison.latencies(rounds)
    finally:
        redis.kill()
        group.remove()
