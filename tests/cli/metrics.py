"""metrics.py PROGRAM -- what promtool and a real Prometheus say of the pages of metrics. Prints TAP.

Method: the program (metrics_page.c) joins the engine's page with one of its own, in both formats. promtool reads the one that it
knows; a little server here serves both, each under its Content-Type, and Prometheus, started here on a free port with its data in a
folder of its own, scrapes them and is asked what it holds.
"""
import http.server
import shutil
import subprocess
import sys
import tempfile
import threading

sys.dont_write_bytecode = True
sys.path.append(sys.path[0] + "/../support")
import tap
from prometheus import Prometheus
from tap import ok
from waits import wait_until

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


def samples(text):
    return sum(1 for line in text.decode().splitlines() if line and not line.startswith("#"))


def scrape(folder):
    Responder.types = {name: page("type", name).decode().strip() for name in FORMATS}
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Responder)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    target = f"127.0.0.1:{server.server_address[1]}"
    prometheus = Prometheus(folder, {name: (target, "/" + name) for name in FORMATS})
    try:
        look(prometheus)
    finally:
        prometheus.end()
        server.shutdown()


def look(prometheus):
    """What Prometheus holds of each page."""
    def has(value, query):
        return wait_until(lambda: [float(one) for one in prometheus.values(query) or []] == [value])

    for name in FORMATS:
        job = f'job="{name}"'
        ok(has(1, f"up{{{job}}}"), f"Prometheus takes the page of {name}",
           [target["lastError"] for target in (prometheus.ask("/api/v1/targets") or {}).get("activeTargets", [])])
        labels = 'service="shop",zone="caf\u00e9 \\"a\\""'
        for sentence, value, query in [
                ("and every sample of it", samples(page(name)), f"scrape_samples_scraped{{{job}}}"),
                ("counters are there, under the program's labels", 42, f"tallywheel_increments_total{{{job},{labels}}}"),
                ("so are those of a family", 2, f'tallywheel_family_limit_denied_total{{{job},{labels},family="logins",cause="limit"}}'),
                ("and the program's own, on the same page", 3, f"shop_orders{{{job}}}")]:
            ok(has(value, query), f"{sentence} ({name})", prometheus.values(query))


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
