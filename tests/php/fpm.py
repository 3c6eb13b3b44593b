"""fpm.py ROOT LIBRARY CC... -- bindings/php in a real PHP-FPM of Debian, started as root, as its example does. Prints TAP.
Method: clients speak FastCGI to four workers, and ask until they are denied, while workers are killed. They are admitted
exactly as often as the limit says, whichever worker answers. Then what a wrong preload file or user says."""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

sys.dont_write_bytecode = True
sys.path.append(sys.path[0] + "/../support")
import tap
from waits import wait_until

root, library, compiler = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve(), sys.argv[3:]
program = shutil.which("php-fpm8.2", path="/usr/sbin:" + os.environ.get("PATH", ""))
modules = subprocess.run([program, "-m"], capture_output=True, text=True, check=False).stdout if program else ""
if "FFI" not in modules or "Zend OPcache" not in modules:
    tap.skip_all("PHP-FPM with opcache and FFI is not installed: apt-get install php-fpm (of Debian 12)")
if os.geteuid() != 0:
    tap.skip_all("PHP-FPM is started by root: run this test as root")
folder = tempfile.TemporaryDirectory(prefix="tw-php-")
home = pathlib.Path(folder.name)
home.chmod(0o755)
for name in ("tallywheel.php", "tallywheel_php.h", "examples/tallywheel.ini", "examples/php.limits", "examples/limited.php"):
    shutil.copy(root / "bindings/php" / name, home)  # where workers of another user can read them
shutil.copy(library, home / "libtallywheel.so.0")
subprocess.run([*compiler, "-std=gnu99", "-Wall", "-Wextra", "-Werror", "-O2", "-shared", "-fPIC", "-I", root / "include", "-o",
                home / "libtallywheel_php.so", root / "bindings/php/tallywheel_php.c", home / "libtallywheel.so.0"], check=True)
example = (home / "tallywheel.ini").read_text().replace("/usr/local/share/php", str(home))


class Fpm:
    """A master with four workers, and with these lines of php.ini."""

    def __init__(self, name: str, settings: str = example, limits: pathlib.Path = home / "php.limits"):
        self.log, self.socket = home / f"{name}.log", str(home / f"{name}.sock")
        configuration = home / f"{name}.conf"
        configuration.write_text(f"[global]\nerror_log = {self.log}\ndaemonize = no\n[www]\nuser = www-data\ngroup = www-data\n"
                                 f"listen = {self.socket}\npm = static\npm.max_children = 4\n")
        lines = [line.replace(" = ", "=") for line in settings.splitlines() if " = " in line]
        self.process = subprocess.Popen(
            [program, "-F", "-y", configuration, *(part for line in lines for part in ("-d", line))],
            env={**os.environ, "LD_LIBRARY_PATH": str(home), "TALLYWHEEL_LIMITS": str(limits)}, stdout=subprocess.DEVNULL,
            stderr=open(self.log.with_suffix(".err"), "wb"))

    def said(self) -> str:
        return "".join(path.read_text() for path in (self.log, self.log.with_suffix(".err")) if path.exists())

    def children(self) -> list:
        return [int(one) for one in pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()]

    def runs(self) -> bool:
        return self.process.poll() is None and "ready to handle connections" in self.said() and len(self.children()) == 4

    def get(self, uri: str, script: str = "limited.php"):
        """The status, the headers and the body of one request."""
        def name_value(name, value):
            name, value = name.encode(), str(value).encode()
            return struct.pack(">II", len(name) | 1 << 31, len(value) | 1 << 31) + name + value

        def record(kind, content):
            return struct.pack(">BBHHBB", 1, kind, 1, len(content), 0, 0) + content
        parameters = {"REQUEST_METHOD": "GET", "SCRIPT_FILENAME": home / script, "SCRIPT_NAME": "/", "REQUEST_URI": uri,
                      "QUERY_STRING": "", "REMOTE_ADDR": "192.0.2.1", "SERVER_PROTOCOL": "HTTP/1.1", "GATEWAY_INTERFACE": "CGI/1.1"}
        begin, stream, out = struct.pack(">HB5x", 1, 0), b"".join(name_value(*one) for one in parameters.items()), b""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(100)
            client.connect(self.socket)
            client.sendall(record(1, begin) + record(4, stream) + record(4, b"") + record(5, b""))
            with client.makefile("rb") as replies:
                while len(head := replies.read(8)) == 8:
                    _, kind, _, size, padding, _ = struct.unpack(">BBHHBB", head)
                    content = replies.read(size + padding)[:size]
                    if kind == 6:
                        out += content
                    if kind == 3:
                        break
        head, _, body = out.decode().partition("\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.split("\r\n") if ": " in line)
        return int(headers.get("Status", "200").split()[0]), headers, body

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(60)


workers = set()  # that have answered


def ask(server: Fpm, times: int) -> list:
    """The status of each request, of eight at once."""
    def one(_):
        status, headers, body = server.get("/")
        workers.add(int((re.findall(r"worker (\d+)", body) or [0])[0]))
        return status, headers, body
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(one, range(times)))


def figure(server: Fpm, name: str) -> int:
    return int((re.findall(rf"^tallywheel_{name} (\d+)$", server.get("/metrics")[2], re.M) or [-1])[0])


def kill_a_worker(server: Fpm) -> bool:
    """It is replaced, and the others know it. One that has answered, because a worker joins with its first request."""
    while not workers & set(server.children()):
        found.extend(ask(server, 8))
    died, victim = figure(server, "processes_died_total"), min(workers & set(server.children()))
    os.kill(victim, signal.SIGKILL)
    return wait_until(lambda: victim not in server.children() and len(server.children()) == 4) and wait_until(
        lambda: figure(server, "processes_died_total") > died)


tap.plan(7)
server = Fpm("shared")
try:
    tap.ok(wait_until(server.runs), "PHP-FPM starts four workers", server.said())
    found = ask(server, 300)
    tap.ok(kill_a_worker(server) and not [one for one in found if one[0] != 200], "a worker is killed after 300 requests, and replaced",
           [found[:1], server.said()])
    found += ask(server, 300)
    killed = kill_a_worker(server) and kill_a_worker(server)
    found += ask(server, 1300 - len(found))
    statuses = [status for status, _, _ in found]
    tap.ok(killed and (statuses.count(200), statuses.count(429)) == (1000, 300), "1,000 of 1,300 requests are admitted by all workers together",
           [statuses.count(200), statuses.count(429), server.said()])
    denied = [headers for status, headers, _ in found if status == 429]
    views = sorted(int(re.findall(r"view (\d+)", body)[0]) for _, _, body in found if "view" in body)
    tap.ok(denied and all(0 < int(one["Retry-After"]) <= 3600 for one in denied) and views == list(range(1, 1301)) and wait_until(
        lambda: set(server.children()) <= workers or not ask(server, 8)), "a denied client is told when to come again, each view is counted once, any worker answers",
        [denied[:1], views[-3:], workers])
finally:
    status = server.stop()
tap.ok(status == 0 and "Fatal" not in server.said() and "tallywheel" not in server.said(), "PHP-FPM ends well, and the engine had nothing to say", server.said())

# What is wrong is said where it is used.
(home / "wrong.limits").write_text("requests * 5 1h windo=1\n")
server = Fpm("wrong", limits=home / "wrong.limits")
wait_until(server.runs)
status, _, body = server.get("/")
server.stop()
tap.ok(status == 500 and all("wrong.limits:1: " in text for text in (body + server.said(), server.said())), "limits that cannot be read are named, at the start and in a request",
       [status, body, server.said()])

(home / "calls.php").write_text("""<?php
$one = Tallywheel\\acquire('requests', 'buyer', 990);
$none = Tallywheel\\acquire('requests', 'buyer', 20);
Tallywheel\\refund('requests', 'buyer', 980, $one);
$said = [$one->allowed, $one->cause, $none->allowed, $none->cause, $none->remaining, Tallywheel\\get('requests', 'buyer')];
foreach ([fn () => Tallywheel\\get('nowhere', 'x'), fn () => Tallywheel\\add('views', ''), fn () => Tallywheel\\acquire('views', str_repeat('x', 1025))] as $wrong) {
    try { $wrong(); $said[] = 'nothing'; } catch (Tallywheel\\Error $e) { $said[] = $e->getMessage(); }
}
echo json_encode($said);
""")
server = Fpm("calls")
wait_until(server.runs)
status, _, body = server.get("/", "calls.php")
server.stop()
said = json.loads(body) if body.startswith("[") else []
tap.ok(said[:6] == [True, None, False, "limit", 10, 10] and len(said) == 9 and not [text for text in said[6:] if len(text) < 8],
       "units are given back, and an error has the text of the library", [status, body, server.said()])
tap.end()
