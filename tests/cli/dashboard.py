"""dashboard.py BUILD ROOT -- does each query of monitoring/dashboard.json get an answer from a running system? Prints TAP.

Method: a Redis, two examples/watched that count into it, `tallywheel exporter` for both, and a real Prometheus that scrapes it each
second. The queries are asked with what Grafana puts in place of its variables. A query that divides by
what these programs do not do answers NaN: it is named here.
Always true: nothing is left of a run, no process and no file.
"""
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

build, root = (os.path.abspath(path) for path in sys.argv[1:])
# No answer without a wait for Redis in the last seconds, and without limits that are near: 0 / 0.
NO_NUMBER = {"Calls that wait for Redis", "Overshoot of soft limits, 99th percentile"}
PATIENCE_S = 40
started = []


def start(*words, **more):
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **more)
    started.append(process)
    return process


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(is_true):
    end = time.monotonic() + PATIENCE_S
    while not is_true():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def queries():
    """(panel, query), each with what Grafana would put into it."""
    with open(os.path.join(root, "monitoring", "dashboard.json"), encoding="utf-8") as file:
        dashboard = json.load(file)
    found = []
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            query = target["expr"].replace("$__rate_interval", "5s").replace("$instance", ".*")
            found.append((panel["title"], query))
    return found


class Prometheus:
    def __init__(self, folder, exporter):
        self.port = free_port()
        config = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
                  "scrape_configs": [{"job_name": "shop", "static_configs": [{"targets": [f"127.0.0.1:{exporter}"]}]}]}
        with open(f"{folder}/prometheus.yml", "w", encoding="utf-8") as file:
            json.dump(config, file)  # JSON is YAML
        start("prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
              f"--web.listen-address=127.0.0.1:{self.port}")

    def values(self, query):
        """What it answers, as texts; None: it does not take the query."""
        url = f"http://127.0.0.1:{self.port}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return [one["value"][1] for one in json.load(answer)["data"]["result"]]
        except (OSError, ValueError, KeyError):
            return None


def unanswered(prometheus):
    wrong = []
    for panel, query in queries():
        values = prometheus.values(query)
        if not values or panel not in NO_NUMBER and "NaN" in values:
            wrong.append(f"{panel}: {query}: {values}")
    return wrong


def play(folder):
    path, run = f"{folder}/redis.sock", f"{folder}/run"
    os.mkdir(run)
    start("redis-server", "--port", "0", "--unixsocket", path, "--save", "", "--dir", folder)
    wait_until(lambda: os.path.exists(path))
    for name in ("one", "two"):
        start(f"{build}/examples/example_watched", "86400", f"{run}/{name}.sock", env=dict(os.environ, TALLYWHEEL_REDIS=f"unix://{path}"))
    exporter = free_port()
    start(f"{build}/tools/tallywheel", "exporter", "--listen", f"127.0.0.1:{exporter}", f"{run}/*.sock")
    prometheus = Prometheus(folder, exporter)
    both = wait_until(lambda: prometheus.values("sum(tallywheel_exporter_up)") == ["2"])
    print(f"{'ok' if both else 'not ok'} 1 - Prometheus sees both engines, by the exporter")
    wrong = []

    def all_answer():
        wrong[:] = unanswered(prometheus)
        return not wrong

    well = wait_until(all_answer) and len(queries()) > 40
    print(f"{'ok' if well else 'not ok'} 2 - each of the {len(queries())} queries of the dashboard gets an answer")
    for line in wrong[:20]:
        print("#", line)
    return 0 if both and well else 1


def main():
    for program in ("redis-server", "prometheus"):
        if shutil.which(program) is None:
            print(f"1..0 # SKIP {program} is not installed: apt-get install {program}")
            return 0
    print("1..2", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        try:
            return play(folder)
        finally:
            for process in started:
                process.kill()
            for process in started:
                process.wait()


sys.exit(main())
