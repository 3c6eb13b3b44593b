"""dashboard.py BUILD ROOT -- does each query of monitoring/dashboard.json get an answer from a running system? Prints TAP.

Method: a Redis, two examples/watched that count into it, `tallywheel exporter` for both, and a real Prometheus that scrapes it each
second. The queries are asked with what Grafana puts in place of its variables. A query that divides by
what these programs do not do answers NaN: it is named here.
Always true: nothing is left of a run, no process and no file.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.append(sys.path[0] + "/../support")
import tap
from prometheus import Prometheus
from waits import wait_until

build, root = (os.path.abspath(path) for path in sys.argv[1:])
# No answer without a wait for Redis in the last seconds, and without limits that are near: 0 / 0.
NO_NUMBER = {"Calls that wait for Redis", "Overshoot of soft limits, 99th percentile"}
started = []


def start(*words, **more):
    more.setdefault("stderr", subprocess.DEVNULL)
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, **more)
    started.append(process)
    return process


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
    exporter = start(f"{build}/tools/tallywheel", "exporter", "--listen", "127.0.0.1:0", f"{run}/*.sock", stderr=subprocess.PIPE, text=True)
    address = exporter.stderr.readline().split("//")[-1].split("/")[0]
    prometheus = Prometheus(folder, {"shop": (address, "/metrics")})
    started.append(prometheus.process)
    tap.ok(wait_until(lambda: prometheus.values("sum(tallywheel_exporter_up)") == ["2"]), "Prometheus sees both engines, by the exporter",
           prometheus.values("tallywheel_exporter_up"))
    wrong = []

    def all_answer():
        wrong[:] = unanswered(prometheus)
        return not wrong

    well = wait_until(all_answer) and len(queries()) > 40
    tap.ok(well, f"each of the {len(queries())} queries of the dashboard gets an answer", wrong)


def main():
    for program in ("redis-server", "prometheus"):
        if shutil.which(program) is None:
            tap.skip_all(f"{program} is not installed: apt-get install {program}")
    tap.plan(2)
    with tempfile.TemporaryDirectory() as folder:
        try:
            play(folder)
        finally:
            for process in started:
                process.kill()
            for process in started:
                process.wait()
    tap.end()


main()
