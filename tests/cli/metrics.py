"""metrics.py PROGRAM -- what promtool and a real Prometheus say of the pages of metrics. Prints TAP.

Method: the program (metrics_page.c) joins the engine's page with one of its own, in both formats. promtool reads the one that it
knows; a little server here serves both, each under its Content-Type, and Prometheus, started here on a free port with its data in a
folder of its own, scrapes them and is asked what it holds.
"""
import http.server
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request

sys.path.append(sys.path[0] + "/../support")
import tap
from tap import ok

FORMATS = ("prometheus", "openmetrics")
program = sys.argv[1]


def page(*arguments):
    return subprocess.run([program, *arguments], stdout=subprocess.PIPE, check=True, timeout=30).stdout


class Responder(http.server.BaseHTTPRequestHandler):
    """GET /prometheus, /openmetrics: each page under the Content-Type that the header names."""

    types = {}

    def do_GET(self):
        name = self.path.strip("/")
        text = page(name)
        self.send_response(200)
        self.send_header("Content-Type", self.types[name])
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *arguments):
        pass


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ask(port, path, **query):
    url = f"http://127.0.0.1:{port}{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=5) as answer:
        return json.load(answer)["data"]


def value_of(port, query):
    """The one value of a query, as a float; None: there is none (yet), or the server does not answer."""
    try:
        result = ask(port, "/api/v1/query", query=query)["result"]
    except (OSError, ValueError, KeyError):
        return None
    return float(result[0]["value"][1]) if len(result) == 1 else None


def wait_for(port, query, want, seconds=40):
    until = time.monotonic() + seconds
    while (value := value_of(port, query)) != want and time.monotonic() < until:
        time.sleep(0.1)
    return value


def samples(text):
    return sum(1 for line in text.decode().splitlines() if line and not line.startswith("#"))


def scrape(folder):
    Responder.types = {name: page("type", name).decode().strip() for name in FORMATS}
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Responder)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    target = f"127.0.0.1:{server.server_address[1]}"
    jobs = "".join(f"- {{job_name: {name}, metrics_path: /{name}, static_configs: [{{targets: ['{target}']}}]}}\n"
                   for name in FORMATS)
    config = os.path.join(folder, "prometheus.yml")
    with open(config, "w", encoding="utf-8") as out:
        out.write(f"global: {{scrape_interval: 1s, scrape_timeout: 1s}}\nscrape_configs:\n{jobs}")
    port = free_port()
    with open(os.path.join(folder, "log"), "wb") as log:
        prometheus = subprocess.Popen(
            ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
    try:
        look(port)
    finally:
        prometheus.kill()
        prometheus.wait()
        server.shutdown()


def look(port):
    """What Prometheus holds of each page."""
    for name in FORMATS:
        up = wait_for(port, f'up{{job="{name}"}}', 1)
        detail = ""
        if up != 1:
            try:
                detail = [target["lastError"] for target in ask(port, "/api/v1/targets")["activeTargets"]]
            except (OSError, ValueError, KeyError) as error:
                detail = error
        ok(up == 1, f"Prometheus takes the page of {name}", detail)
        job = f'job="{name}"'
        labels = 'service="shop",zone="caf\u00e9 \\"a\\""'
        taken = value_of(port, f"scrape_samples_scraped{{{job}}}")
        ok(taken == samples(page(name)), f"and every sample of it ({name})", taken)
        adds = value_of(port, f"tallywheel_increments_total{{{job},{labels}}}")
        ok(adds == 42, f"counters are there, under the program's labels ({name})", adds)
        denied = value_of(port, f'tallywheel_family_limit_denied_total{{{job},{labels},family="logins"}}')
        ok(denied == 2, f"so are those of a family ({name})", denied)
        orders = value_of(port, f"shop_orders{{{job}}}")
        ok(orders == 3, f"and the program's own, on the same page ({name})", orders)


def main():
    if shutil.which("promtool") is None or shutil.which("prometheus") is None:
        tap.skip_all("prometheus is not installed: apt-get install prometheus")
    tap.plan(11)
    said = subprocess.run(["promtool", "check", "metrics"], input=page("prometheus"), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False, timeout=60)
    ok(said.returncode == 0 and not said.stdout, "promtool finds nothing to say of the page", said.stdout.decode())
    with tempfile.TemporaryDirectory() as folder:
        scrape(folder)
    tap.end()


main()
