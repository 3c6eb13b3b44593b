"""prometheus.py -- a real Prometheus for a test in Python. Its data are in the test's folder, and it scrapes each second.
Always true: the one that answers is the one that was started. Another program may take its port before it does, then it
is started on another one."""
import json
import socket
import subprocess
import urllib.parse
import urllib.request

from waits import wait_until


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Prometheus:
    """jobs: name -> (address, path of the page)"""

    def __init__(self, folder: str, jobs: dict) -> None:
        self.folder = folder
        config = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
                  "scrape_configs": [{"job_name": name, "metrics_path": path, "static_configs": [{"targets": [address]}]}
                                     for name, (address, path) in jobs.items()]}
        with open(f"{folder}/prometheus.yml", "w", encoding="utf-8") as file:
            json.dump(config, file)  # JSON is YAML
        for _ in range(5):
            self.begin()
            wait_until(lambda: self.process.poll() is not None or self.answers())
            if self.answers():
                return
            self.end()
        with open(f"{folder}/log", encoding="utf-8") as log:
            raise RuntimeError("no Prometheus: " + log.read()[-2000:])

    def begin(self) -> None:
        self.port = free_port()
        with open(f"{self.folder}/log", "wb") as log:
            self.process = subprocess.Popen(
                ["prometheus", f"--config.file={self.folder}/prometheus.yml", f"--storage.tsdb.path={self.folder}/data",
                 f"--web.listen-address=127.0.0.1:{self.port}"], stdout=log, stderr=log)

    def answers(self) -> bool:
        return (self.ask("/api/v1/status/flags") or {}).get("storage.tsdb.path") == f"{self.folder}/data"

    def ask(self, path: str, **query):
        """Its data; None if there is no answer."""
        try:
            url = f"http://127.0.0.1:{self.port}{path}?{urllib.parse.urlencode(query)}"
            with urllib.request.urlopen(url, timeout=20) as answer:
                return json.load(answer)["data"]
        except (OSError, ValueError, KeyError):
            return None

    def values(self, query: str):
        """What it answers to a query, as texts; None if it does not take it."""
        data = self.ask("/api/v1/query", query=query)
        return None if data is None else [one["value"][1] for one in data["result"]]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
