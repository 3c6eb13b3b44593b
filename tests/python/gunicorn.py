"""gunicorn.py ROOT LIBRARY -- the example for gunicorn, as its head says, with Debian's gunicorn. Prints TAP.
Method: one client asks by several connections until it is denied, while workers are killed between its requests. It is
admitted exactly as often as the limit says, whichever worker answers."""
import http.client
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

sys.dont_write_bytecode = True
sys.path.append(sys.path[0] + "/../support")
import tap
from waits import wait_until

root = pathlib.Path(sys.argv[1]).resolve()
program = shutil.which("gunicorn")
if not program:
    tap.skip_all("gunicorn is not installed: apt-get install gunicorn")
log = tempfile.NamedTemporaryFile("r")
server = subprocess.Popen(
    [program, "-c", "gunicorn.conf.py", "-b", "127.0.0.1:0", "--log-file", log.name, "limited"], cwd=root / "bindings/python/examples",
    env={**os.environ, "PYTHONPATH": str(root / "bindings/python"), "TALLYWHEEL_LIBRARY": sys.argv[2], "PYTHONDONTWRITEBYTECODE": "1"})


def said() -> str:
    return pathlib.Path(log.name).read_text()


def port() -> int:
    return int((re.findall(r"Listening at: http://127\.0\.0\.1:(\d+)", said()) or ["0"])[0])


def get(path: str):
    connection = http.client.HTTPConnection("127.0.0.1", port(), timeout=100)
    connection.request("GET", path)
    answer = connection.getresponse()
    return answer.status, dict(answer.getheaders()), answer.read().decode()


workers = set()  # that have answered


def ask(times: int) -> list:
    """The status of each request, of eight at once."""
    def one(_):
        status, headers, body = get("/")
        workers.add(int(body.split()[1]))
        return status, headers
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(one, range(times)))


def figure(name: str) -> int:
    return int(re.findall(rf"^tallywheel_{name} (\d+)$", get("/metrics")[2], re.M)[0])


def children() -> list:
    return [int(one) for one in pathlib.Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()]


def kill_a_worker() -> bool:
    """It is replaced, and the others know it. One that has answered: another one may not have joined yet."""
    while not workers & set(children()):
        found.extend(ask(8))
    died, victim = figure("processes_died_total"), min(workers & set(children()))
    os.kill(victim, signal.SIGKILL)
    return wait_until(lambda: victim not in children() and len(children()) == 4) and wait_until(
        lambda: figure("processes_died_total") > died)


tap.plan(5)
try:
    tap.ok(wait_until(lambda: port() and len(children()) == 4), "gunicorn starts four workers", said())
    found = ask(300)
    tap.ok(kill_a_worker() and not [one for one in found if one[0] != 200], "a worker is killed after 300 requests, and replaced", said())
    found += ask(300)
    killed = kill_a_worker() and kill_a_worker()
    found += ask(1300 - len(found))
    statuses = [status for status, _ in found]
    tap.ok(killed and (statuses.count(200), statuses.count(429)) == (1000, 300), "1,000 of 1,300 requests are admitted by all workers together",
           f"{statuses.count(200)} and {statuses.count(429)}: {said()}")
    denied = [headers for status, headers in found if status == 429]
    tap.ok(denied and all(0 < int(one["Retry-After"]) <= 3600 for one in denied) and wait_until(
        lambda: set(children()) <= workers or not ask(8)), "a denied client is told when to come again, by any worker", [denied[:1], workers])
finally:
    server.terminate()
    status = server.wait(60)
tap.ok(status == 0 and "Traceback" not in said() and "tallywheel" not in said(), "gunicorn ends well, and the engine had nothing to say", said())
tap.end()
