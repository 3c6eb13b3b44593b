#!/usr/bin/env python3
"""demo.py BUILD OUT [SECONDS] -- what `./dev demo` shows: two counting processes, a Redis that is killed and comes back.

Starts a Redis of its own, two examples/watched with a socket each, `tallywheel exporter` for both, and, where it is
installed, Prometheus with monitoring/alerts.yml. Each second a line says what the processes counted, what waits for Redis
and which alerts there are. After a third of the time Redis is killed (kill -9), after another third it comes back. In
the end the counts of both processes are compared with Redis's. OUT/outage.svg is drawn from what was seen.
Always true: everything that is started ends with this script; exit 0 means that not one count was lost or counted
twice, 77 that Redis is not installed."""
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import outage_picture

root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
build, out = sys.argv[1:3]
seconds = int(sys.argv[3]) if len(sys.argv) > 3 else 45
started = []


def start(*words, **more):
    more.setdefault("stdout", subprocess.DEVNULL)
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL, **more)
    started.append(process)
    return process


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(is_true, what, patience_s=20):
    end = time.monotonic() + patience_s
    while not is_true():
        if time.monotonic() > end:
            sys.exit(f"demo: {what} takes longer than {patience_s} s")
        time.sleep(0.05)


class Redis:
    def __init__(self, folder):
        self.folder, self.path = folder, f"{folder}/redis.sock"
        self.process = None

    def start(self):
        self.process = start("redis-server", "--port", "0", "--unixsocket", self.path, "--dir", self.folder,
                             "--appendonly", "yes", "--save", "")
        wait_until(lambda: self.ask("PING") == "PONG", "Redis")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def ask(self, *words):
        answer = subprocess.run(["redis-cli", "-s", self.path, *words], capture_output=True, text=True, check=False)
        return answer.stdout.strip()

    def sum_of(self, pattern):
        return int(self.ask("EVAL", "local s = 0 for _, k in ipairs(redis.call('KEYS', ARGV[1])) do "
                                    "s = s + redis.call('GET', k) end return s", "0", pattern))


def figures_of(path):
    """The figures of tw_stats, by the watch socket."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(path)
        client.sendall(b"status\n")
        with client.makefile("r", encoding="utf-8", errors="replace") as lines:
            words = [line.rstrip("\n").split("\t") for line in lines]
    return {each[1]: int(each[2]) for each in words if each[0] == "stat"}


class Prometheus:
    """Scrapes each second, and judges by monitoring/alerts.yml. What an alert wants a minute of is pending until then."""

    def __init__(self, folder, exporter):
        self.port = free_port()
        config = {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                  "rule_files": [f"{root}/monitoring/alerts.yml"],
                  "scrape_configs": [{"job_name": "shop", "static_configs": [{"targets": [f"127.0.0.1:{exporter}"]}]}]}
        with open(f"{folder}/prometheus.yml", "w", encoding="utf-8") as file:
            json.dump(config, file)  # JSON is YAML
        start("prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
              f"--web.listen-address=127.0.0.1:{self.port}")

    def alerts(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/alerts", timeout=5) as answer:
                found = json.load(answer)["data"]["alerts"]
        except (urllib.error.URLError, OSError, ValueError):
            return ""
        return ", ".join(sorted({f"{alert['labels']['alertname']} ({alert['state']})" for alert in found}))


def watch_for(seconds_each, sockets, phase, prometheus, samples):
    end = time.monotonic() + seconds_each
    while time.monotonic() < end:
        time.sleep(1)
        now = time.monotonic()
        engines = [figures_of(path) for path in sockets]
        sample = {"at_s": now, "phase": phase}
        for name in ("increments", "unsent_keys", "redis_connected", "outage_ms", "lost"):
            sample[name] = sum(figures[name] for figures in engines)
        before = samples[-1] if samples else None
        sample["per_s"] = (sample["increments"] - before["increments"]) / (now - before["at_s"]) if before else 0
        samples.append(sample)
        state = "answers" if sample["redis_connected"] == len(sockets) else "is away"
        print(f"{now - samples[0]['at_s']:5.0f} s  {sample['per_s']:10,.0f} adds/s  "
              f"{sample['unsent_keys']:8,d} keys wait  Redis {state}  {prometheus.alerts() if prometheus else ''}",
              flush=True)


def compare(servers, redis):
    for server in servers:
        server.send_signal(signal.SIGTERM)
    counted = [int(server.communicate(timeout=60)[0].split()[0]) for server in servers]
    held = redis.sum_of("views:*")
    print(f"\ncounted by the two processes: {counted[0]:,d} + {counted[1]:,d} = {sum(counted):,d} views\n"
          f"held by Redis:                {held:,d}: " + ("equal" if held == sum(counted) else "NOT EQUAL"))
    return sum(counted), held


def play(folder):
    redis = Redis(folder)
    redis.start()
    sockets = [f"{folder}/{name}.sock" for name in ("one", "two")]
    environment = dict(os.environ, TALLYWHEEL_REDIS=f"unix://{redis.path}")
    servers = [start(f"{build}/examples/example_watched", "86400", path, env=environment, stdout=subprocess.PIPE,
                     text=True) for path in sockets]
    wait_until(lambda: all(os.path.exists(path) for path in sockets), "the first count")
    exporter, prometheus = free_port(), None
    start(f"{build}/tools/tallywheel", "exporter", "--listen", f"127.0.0.1:{exporter}", *sockets)
    if shutil.which("prometheus"):
        prometheus = Prometheus(folder, exporter)
        print(f"Prometheus: http://127.0.0.1:{prometheus.port}/alerts")
    print(f"metrics:    http://127.0.0.1:{exporter}/metrics\nlook:       {build}/tools/tallywheel top {sockets[0]}\n")
    samples = []
    watch_for(seconds / 3, sockets, "up", prometheus, samples)
    print("--- kill -9 of Redis", flush=True)
    redis.kill()
    watch_for(seconds / 3, sockets, "away", prometheus, samples)
    print("--- Redis comes back", flush=True)
    redis.start()
    watch_for(seconds / 3, sockets, "back", prometheus, samples)
    counted, held = compare(servers, redis)
    os.makedirs(out, exist_ok=True)
    with open(f"{out}/outage.svg", "w", encoding="utf-8") as file:
        file.write(outage_picture.draw(samples, counted, held))
    print(f"picture:    {out}/outage.svg")
    return counted == held and all(server.returncode == 0 for server in servers)


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    for program in ("redis-server", "redis-cli"):
        if not shutil.which(program):
            print(f"demo: {program} is not installed: apt-get install redis-server")
            return 77
    with tempfile.TemporaryDirectory(prefix="tallywheel-demo-") as folder:
        try:
            return 0 if play(folder) else 1
        except KeyboardInterrupt:
            return 130
        finally:
            for process in started:
                process.kill()
            for process in started:
                process.wait()


if __name__ == "__main__":
    sys.exit(main())
