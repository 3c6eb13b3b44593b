"""rig.py -- what the tests of the module for nginx share: a real nginx and a real Redis of their own, and clients.
Always true: everything listens on unix sockets in a fresh folder, which is removed at the end, and so is every process."""
import atexit
import http.client
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.append(sys.path[0] + "/../support")
import tap
import waits

NGINX = shutil.which("nginx") or "/usr/sbin/nginx"
WRAPPER = os.environ.get("TW_WRAPPER", "").split()  # for example valgrind and its options


def run(sentence: str, test, *arguments) -> None:
    """A result. A test is a function; it fails by an exception."""
    try:
        test(*arguments)
        tap.ok(True, sentence)
    except Exception as error:  # pylint: disable=broad-except
        why = [f"{type(error).__name__}: {error}"[:3000]]
        trace = error.__traceback__
        while trace:
            why.append(f"  line {trace.tb_lineno} of {os.path.basename(trace.tb_frame.f_code.co_filename)}")
            trace = trace.tb_next
        for server in Nginx.all[-1:]:
            lines = [line for line in server.errors().splitlines() if "closed keepalive connection" not in line]
            why += [line[:300] for line in lines[-15:]]
        tap.ok(False, sentence, why)


def same(found, wanted, of: str = "") -> None:
    if found != wanted:
        raise AssertionError(f"{of}{' is ' if of else ''}{found!r}, not {wanted!r}")


def wait_until(what: str, condition, seconds: float = 60) -> None:
    if not waits.wait_until(condition, seconds):
        raise AssertionError(f"after {seconds} s not yet: {what}")


def read(path: str) -> str:
    """What the file has; nothing if it, or its process, is gone."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


folder = tempfile.mkdtemp(prefix="tw-nginx-")
os.chmod(folder, 0o755)  # a worker may be another user
atexit.register(shutil.rmtree, folder, ignore_errors=True)


def die_with_parent() -> None:
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Unix(http.client.HTTPConnection):
    """A client that keeps its connection. It opens another one if the server has closed it between two requests."""

    def __init__(self, path: str, timeout: float = 20) -> None:
        super().__init__("test", timeout=timeout)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)

    def ask(self, path: str, headers=None) -> http.client.HTTPResponse:
        for again in (True, False):
            try:
                self.request("GET", path, headers=headers or {})
                answer = self.getresponse()
                answer.text = answer.read().decode()
                if answer.getheader("Connection") == "close":
                    self.close()
                return answer
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                # nginx closes idle connections when it reloads: a client of HTTP/1.1 sends that request again
                self.close()
                if not again:
                    raise
        raise AssertionError("not reached")


class Nginx:
    all: list = []
    module = ""

    def __init__(self, name: str, http_block: str, workers: int = 2, main: str = "") -> None:
        self.home = os.path.join(folder, name)
        self.socket = os.path.join(self.home, "http")
        self.workers, self.main = workers, main
        shutil.rmtree(self.home, ignore_errors=True)
        os.makedirs(self.home)
        os.makedirs(os.path.join(self.home, "www"))
        os.chmod(self.home, 0o755)
        # Once, and not with each configuration: workers are reading the page while a test reloads, and would send an empty one.
        with open(self.home + "/www/page", "w", encoding="utf-8") as file:
            file.write("page\n")
        self.write(http_block)
        self.process = None
        Nginx.all.append(self)

    def write(self, http_block: str) -> None:
        paths = "".join(f"{kind}_temp_path {self.home}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        with open(self.home + "/nginx.conf", "w", encoding="utf-8") as file:
            file.write(f"""load_module {self.module};
daemon off; worker_processes {self.workers}; pid {self.home}/pid; error_log {self.home}/error.log info;
worker_shutdown_timeout 20s; {self.main}
events {{ worker_connections 4096; }}
http {{
{paths}access_log {self.home}/access.log; root {self.home}/www; keepalive_requests 1000000;
{http_block}
}}
""")

    def check(self) -> str:
        """What nginx -t says."""
        out = subprocess.run([*WRAPPER, NGINX, "-t", "-c", self.home + "/nginx.conf"], capture_output=True, text=True, check=False)
        return out.stderr.replace(self.home + "/", "")

    def start(self):
        self.process = subprocess.Popen([*WRAPPER, NGINX, "-c", self.home + "/nginx.conf"], preexec_fn=die_with_parent,
            stdout=subprocess.DEVNULL, stderr=open(self.home + "/stderr", "wb"))
        wait_until("nginx listens", lambda: self.answers() or self.process.poll() is not None)
        if self.process.poll() is not None:
            raise AssertionError("nginx ended: " + open(self.home + "/stderr", encoding="utf-8").read())
        self.await_workers(self.worker_ids)
        return self

    def await_workers(self, ids) -> None:
        """Until so many workers have begun. ids() has those that there are."""
        wait_until("all workers run", lambda: sum(map(has_begun, ids())) == self.workers)

    def answers(self) -> bool:
        try:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(self.socket)
            return True
        except OSError:
            return False

    def client(self) -> Unix:
        return Unix(self.socket)

    def ask(self, path: str, headers=None):
        client = self.client()
        try:
            return client.ask(path, headers)
        finally:
            client.close()

    def worker_ids(self) -> list:
        """Of workers that are not shutting down, as the log has them."""
        log = self.errors()
        started = re.findall(r"start worker process (\d+)", log)
        ended = re.findall(r"\] (\d+)#\d+: (?:gracefully shutting down|exiting)|worker process (\d+) exited", log)
        return sorted({int(one) for one in started} - {int(one or other) for one, other in ended})

    def reload(self) -> None:
        before = set(self.worker_ids())
        self.process.send_signal(signal.SIGHUP)
        wait_until("old workers shut down", lambda: not before & set(self.worker_ids()))
        self.await_workers(self.worker_ids)

    def errors(self) -> str:
        return read(self.home + "/error.log")

    def access(self) -> list:
        with open(self.home + "/access.log", encoding="utf-8") as file:
            return file.read().splitlines()

    def stop(self, how: int = signal.SIGQUIT) -> None:
        """Gracefully, and the log has nothing that nobody expects."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(timeout=30)
        self.process = None

    def must_be_clean(self, but: str = "$^") -> None:
        for line in self.errors().splitlines():
            if re.search(r"\[(emerg|alert|crit)\]|core dumped|exited on signal|TW-E028", line) and not re.search(but, line):
                raise AssertionError("the log has: " + line)


class Daemon(Nginx):
    """An nginx that leaves its terminal, as a service does: only such a one makes a binary upgrade. It is known by its pid file."""

    def write(self, http_block: str) -> None:
        super().write(http_block)
        with open(self.home + "/nginx.conf", encoding="utf-8") as file:
            text = file.read().replace("daemon off;", "")
        with open(self.home + "/nginx.conf", "w", encoding="utf-8") as file:
            file.write(text)

    def start(self):
        subprocess.run([*WRAPPER, NGINX, "-c", self.home + "/nginx.conf"], check=True, stderr=subprocess.DEVNULL)
        wait_until("nginx listens", self.answers)
        self.await_workers(self.children)
        return self

    def master(self) -> int:
        """0 if there is none. An upgrade renames the file of the old one before it writes another one."""
        return int(read(self.home + "/pid") or 0)

    def children(self, master: int = 0) -> list:
        master = master or self.master()
        return [int(one) for one in read(f"/proc/{master}/task/{master}/children").split()]

    def upgrade(self) -> tuple:
        """Another nginx takes the same sockets. Returns the old master and the new one; both have workers."""
        old = self.master()
        os.kill(old, signal.SIGUSR2)
        wait_until("another master runs", lambda: self.master() not in (0, old))
        new = self.master()
        self.await_workers(lambda: self.children(new))
        return old, new

    def stop(self, how: int = signal.SIGQUIT, master: int = 0) -> None:
        """All of it, or the old master and its workers during an upgrade."""
        present = self.master()
        master = master or present
        if not master:
            return
        mine = [master, *(one for one in self.children(master) if one != present)]
        os.kill(master, how)
        wait_until("nginx ends", lambda: not any(runs(one) for one in mine), 30)


def runs(process: int) -> bool:
    """Whether the process has not ended. A zombie has."""
    return read(f"/proc/{process}/stat").rpartition(")")[2].split()[:1] not in ([], ["Z"])


def has_begun(worker: int) -> bool:
    """nginx gives a worker its title after all modules have begun in it. The log has a worker when it is forked, and on a
    busy machine the others may serve hundreds of requests in between. Under a wrapper the title is that of the wrapper."""
    return bool(WRAPPER) or read(f"/proc/{worker}/cmdline").startswith("nginx: worker process")


@atexit.register
def stop_all() -> None:
    for server in Nginx.all:
        if isinstance(server, Daemon):
            server.stop(signal.SIGTERM)
        if server.process and server.process.poll() is None:
            server.process.send_signal(signal.SIGTERM)
            try:
                server.process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                server.process.kill()


class Redis:
    """It writes each change to its file before it replies. That survives a kill, and a slow disk delays no reply."""

    def __init__(self, name: str = "redis") -> None:
        self.home = os.path.join(folder, name)
        os.makedirs(self.home, exist_ok=True)
        os.chmod(self.home, 0o755)
        self.socket = self.home + "/socket"
        self.url = f"unix://{self.socket}"
        self.process = None
        atexit.register(self.kill)

    def start(self):
        self.process = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", self.socket, "--unixsocketperm", "777",
            "--dir", self.home, "--appendonly", "yes", "--appendfsync", "no", "--save", ""], preexec_fn=die_with_parent,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until("Redis answers", lambda: self.ask("PING") == "PONG")
        return self

    def ask(self, *words: str) -> str:
        out = subprocess.run(["redis-cli", "-s", self.socket, *words], capture_output=True, text=True, check=False)
        return out.stdout.strip()

    def total(self, pattern: str) -> int:
        """The sum of all counters whose names match."""
        names = self.ask("--scan", "--pattern", pattern).split()
        return sum(int(self.ask("GET", name) or 0) for name in names)

    def kill(self) -> None:
        if self.process:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()
            self.process = None

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)


class Load:
    """Clients that ask as fast as they can, each on its own connection, until they are stopped or have asked `most` times."""

    def __init__(self, server: Nginx, path, clients: int = 8, most: int = 1 << 60) -> None:
        self.server, self.path, self.most = server, path, most
        self.statuses: dict = {}
        self.failures: list = []
        self.lock = threading.Lock()
        self.stopping = False
        self.threads = [threading.Thread(target=self.work, args=(number,), daemon=True) for number in range(clients)]
        for thread in self.threads:
            thread.start()

    def work(self, number: int) -> None:
        client = self.server.client()
        asked = 0
        while not self.stopping and asked < self.most:
            try:
                status = client.ask(self.path(number, asked) if callable(self.path) else self.path).status
                with self.lock:
                    self.statuses[status] = self.statuses.get(status, 0) + 1
            except (OSError, http.client.HTTPException) as error:
                client.close()
                with self.lock:
                    self.failures.append(f"{type(error).__name__}: {error}")
                time.sleep(0.01)
            asked += 1
        client.close()

    def wait(self) -> dict:
        for thread in self.threads:
            thread.join()
        return self.statuses

    def stop(self) -> dict:
        self.stopping = True
        return self.wait()


def begin(arguments: list) -> str:
    """The first lines of a program: module and sources are its arguments. Returns the folder of the sources."""
    if len(arguments) < 3 or not arguments[1] or not os.path.exists(NGINX):
        tap.skip_all("the module was not built: apt-get install nginx nginx-dev")
    Nginx.module = os.path.abspath(arguments[1])
    return arguments[2]
