#!/usr/bin/env python3
"""watch.py MODULE SOURCES TALLYWHEEL -- `tallywheel top`, `show` and `reset` look at the zones of a real nginx (TAP).

Method: the command itself asks. What it says is compared with what clients of nginx get, before and after reloads, binary
upgrades, killed workers and killed masters, with several engines and with Redis.
Covers: nginx/watch.c, extras/watch.c, extras/watch_answer.c.
"""
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys

sys.dont_write_bytecode = True
import rig
from rig import Daemon, Nginx, Redis, run, same, wait_until

sources = rig.begin(sys.argv)
if len(sys.argv) < 4:
    rig.tap.skip_all("the command was not built: meson configure build -Dtools=true")
tool = os.path.abspath(sys.argv[3])


def block(server, zones: str, locations: str, watch: str) -> str:
    return f"""{watch} {zones} server {{ listen unix:{server.socket}; {locations} location = /free {{ try_files /page =404; }} }}"""


ZONES = "tallywheel_zone one window=1d; tallywheel_zone two window=1d;"
LOCATIONS = """location /one { tallywheel_limit one $arg_key 3; try_files /page =404; }
    location /two { tallywheel_limit two $arg_key 3; try_files /page =404; }"""


def make(name: str, zones: str = ZONES, locations: str = LOCATIONS, kind=Nginx, write: str = "write", workers: int = 2, before: str = ""):
    server = kind(name, "", workers)
    server.watched = server.home + "/watch"
    server.write(block(server, before + zones, locations, f"tallywheel_watch {server.watched} {write};"))
    return server.start()


def tallywheel(*words: str) -> tuple:
    """The exit status, and what it prints; of a failure what it complains of."""
    out = subprocess.run([tool, *words], capture_output=True, text=True, check=False, timeout=60)
    return out.returncode, (out.stdout if out.returncode == 0 else out.stderr).strip()


def top(server) -> dict:
    status, text = tallywheel("top", "--once", "--json", server.watched)
    same(status, 0, text)
    return json.loads(text)


def zones_of(server) -> dict:
    """Each zone that is shown, with its keys."""
    return {one["name"]: one["keys"] for one in top(server)["families"]}


def count_of(server, zone: str, key: str):
    """None if there is none."""
    status, text = tallywheel("show", "--json", server.watched, zone, key)
    return json.loads(text)["top"]["keys"][0]["view"] if status == 0 else None


def reset(server, zone: str, key: str) -> tuple:
    status, text = tallywheel("reset", server.watched, zone, key)
    return status, (int(text) if status == 0 else text)


def statuses(server, path: str, count: int) -> list:
    return [server.ask(path).status for _ in range(count)]


def end(server) -> None:
    server.stop()
    same(os.path.exists(server.watched), False, "the socket after nginx")
    server.must_be_clean()


# ---- what is shown, what is changed ----


def shown() -> None:
    server = make("shown")
    same(statuses(server, "/one?key=ann", 5), [200, 200, 200, 429, 429])
    same(statuses(server, "/one?key=bob", 2), [200, 200])
    same(statuses(server, "/two?key=%41%20b", 1), [200])
    same(zones_of(server), {"one": 2, "two": 1})
    page = top(server)
    same(page["process"] in server.worker_ids(), True, "a worker answers")
    same(page["stats"]["limit_denied"], 2, "of all workers")
    same([line.split() for line in tallywheel("show", server.watched, "one")[1].splitlines()[-2:]], [["3", "ann"], ["2", "bob"]])
    same([count_of(server, "one", key) for key in ("ann", "bob", "eve")], [3, 2, None])
    same(tallywheel("show", server.watched, "three")[0], 1)
    with socket.socket(socket.AF_UNIX) as asks:
        asks.connect(server.watched)
        asks.sendall(b"metrics\n")
        same(asks.recv(100)[:40], b"error\tthis socket has no page of metrics", "a page of metrics")
    end(server)


def resets() -> None:
    server = make("resets")
    same(statuses(server, "/one?key=ann", 4), [200, 200, 200, 429])
    same(statuses(server, "/one?key=bob", 1), [200])
    same(reset(server, "one", "ann"), (0, 3))
    same((count_of(server, "one", "ann"), count_of(server, "one", "bob")), (0, 1), "ann and bob")
    same(statuses(server, "/one?key=ann", 4), [200, 200, 200, 429], "by all workers")
    same([reset(server, "one", "eve")[0], reset(server, "none", "ann")[0], tallywheel("reset", server.watched)[0]], [1, 4, 2])
    same(count_of(server, "one", "eve"), None)
    end(server)
    same(reset(server, "one", "ann")[0], 4, "nginx is gone")


def reads_only() -> None:
    server = make("reads_only", write="")
    same(statuses(server, "/one?key=ann", 4), [200, 200, 200, 429])
    same(reset(server, "one", "ann"), (3, "tallywheel: this socket does not write"))
    same((count_of(server, "one", "ann"), statuses(server, "/one?key=ann", 1)), (3, [429]))
    end(server)


def every_byte() -> None:
    server = make("bytes", "tallywheel_zone raw window=1d; ", """location /raw { tallywheel_limit raw $binary_remote_addr$http_x 1;
        try_files /page =404; }""")
    client = server.client()
    same([client.ask("/raw", {"X": "\xff\\a b"}).status for _ in range(2)], [200, 429])
    line = tallywheel("show", server.watched, "raw")[1].splitlines()[-1]
    key = line.split(None, 1)[1]
    same(key.endswith("\\xFF\\\\a b"), True, key)
    same(reset(server, "raw", key), (0, 1))
    same(client.ask("/raw", {"X": "\xff\\a b"}).status, 200)
    client.close()
    end(server)


# ---- who may connect ----


def only_the_owner() -> None:
    before = os.umask(0)
    server = make("owner")
    os.umask(before)
    info = os.lstat(server.watched)
    same((stat.S_ISSOCK(info.st_mode), stat.S_IMODE(info.st_mode), info.st_uid), (True, 0o600, os.geteuid()))
    end(server)


def others_get_no_answer() -> None:
    server = make("others")
    os.chmod(server.watched, 0o777)
    for user, wanted in ((65534, b""), (0, b"error\tunknown")):
        said, mine = os.pipe()
        child = os.fork()
        if child == 0:
            os.setuid(user)
            with socket.socket(socket.AF_UNIX) as asks:
                asks.connect(server.watched)
                try:
                    asks.sendall(b"what\n")
                    os.write(mine, asks.recv(100))
                except (BrokenPipeError, ConnectionResetError):
                    pass
            os._exit(0)
        os.close(mine)
        os.waitpid(child, 0)
        same(os.read(said, 13), wanted, f"the answer to user {user}")
        os.close(said)
    end(server)


# ---- reload, upgrade, killed processes ----


def reloads() -> None:
    server = make("reloads")
    same(statuses(server, "/one?key=ann", 2), [200, 200])
    same(statuses(server, "/two?key=ann", 1), [200])
    inode, old = os.lstat(server.watched).st_ino, set(server.worker_ids())
    server.write(block(server, "tallywheel_zone one window=1d; tallywheel_zone two window=1h; tallywheel_zone three window=1d;",
        LOCATIONS + " location /three { tallywheel_limit three $arg_key 3; try_files /page =404; }", f"tallywheel_watch {server.watched};"))
    server.reload()
    wait_until("a new worker answers", lambda: top(server)["process"] not in old)
    same(os.lstat(server.watched).st_ino, inode, "the same socket")
    same(statuses(server, "/three?key=ann", 1), [200])
    same(zones_of(server), {"one": 1, "two": 0, "three": 1}, "each zone of the configuration once, of whichever engine")
    same([count_of(server, zone, "ann") for zone in ("one", "two", "three")], [2, None, 1])
    same(reset(server, "one", "ann")[0], 3, "it does not write any more")
    server.write(block(server, ZONES, LOCATIONS, f"tallywheel_watch {server.watched}2 write;"))
    server.reload()
    same((os.path.exists(server.watched), stat.S_IMODE(os.lstat(server.watched + "2").st_mode)), (False, 0o600), "another path")
    server.watched += "2"
    wait_until("the new socket answers", lambda: count_of(server, "one", "ann") == 2)
    same(count_of(server, "two", "ann"), None, "a zone that was changed and changed back")
    same(reset(server, "one", "ann"), (0, 2), "the counts of before")
    server.write(block(server, ZONES, LOCATIONS, ""))
    server.reload()
    same(os.path.exists(server.watched), False, "without the directive")
    end(server)


def killed_worker() -> None:
    server = make("killed")
    same(statuses(server, "/one?key=ann", 2), [200, 200])
    for _ in range(3):
        answers = top(server)["process"]
        os.kill(answers, signal.SIGKILL)
        wait_until("another worker answers", lambda killed=answers: tallywheel("top", "--once", server.watched)[0] == 0
            and top(server)["process"] != killed)
        same(count_of(server, "one", "ann"), 2)
        wait_until("the worker is replaced", lambda: len(server.worker_ids()) == 2)
    server.stop()
    server.must_be_clean("exited on signal 9|TW-E028")


def killed_master() -> None:
    server = make("stale")
    workers = server.worker_ids()
    server.process.kill()
    server.process.wait()
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
    wait_until("all are gone", lambda: not any(rig.runs(worker) for worker in workers))
    same((os.path.exists(server.watched), tallywheel("top", "--once", server.watched)[0]), (True, 1), "a file without a listener")
    same("test is successful" in server.check(), True, server.check())
    same(os.path.exists(server.watched), True, "nginx -t removes nothing")
    os.remove(server.socket)  # nginx refuses to start with a file of its own of that kind
    os.remove(server.home + "/error.log")
    server.start()
    same(zones_of(server), {"one": 0, "two": 0})
    end(server)


def another_file() -> None:
    server = Nginx("file", "")
    server.watched = server.home + "/watch"
    server.write(block(server, ZONES, LOCATIONS, f"tallywheel_watch {server.watched};"))
    with open(server.watched, "w", encoding="utf-8") as file:
        file.write("mine")
    out = subprocess.run([*rig.WRAPPER, rig.NGINX, "-c", server.home + "/nginx.conf"], capture_output=True, text=True, check=False)
    same((out.returncode, f"bind() to unix:{server.watched} failed" in out.stderr), (1, True), out.stderr)
    same(rig.read(server.watched), "mine")


def upgrade() -> None:
    server = make("upgrade", kind=Daemon)
    same(statuses(server, "/one?key=ann", 2), [200, 200])
    inode = os.lstat(server.watched).st_ino
    old, new = server.upgrade()
    same({tallywheel("top", "--once", server.watched)[0] for _ in range(10)}, {0}, "while both run")
    server.stop(master=new)
    wait_until("the old one writes its pid file again", lambda: server.master() == old)
    same((os.lstat(server.watched).st_ino, count_of(server, "one", "ann")), (inode, 2), "called back")
    old, new = server.upgrade()
    server.stop(master=old)
    same(top(server)["process"] in server.children(new), True, "a worker of the new one answers")
    same((stat.S_IMODE(os.lstat(server.watched).st_mode), zones_of(server)), (0o600, {"one": 0, "two": 0}))
    server.stop()
    server.must_be_clean()


# ---- Redis ----


def with_redis() -> None:
    redis = Redis().start()
    zones = "".join(f"tallywheel_zone {mode} window=1d mode={mode}; " for mode in ("soft", "hard", "strict"))
    locations = "".join(f"location /{mode} {{ tallywheel_limit {mode} $arg_key 5 wait=2s; try_files /page =404; }} " for mode in ("hard", "strict"))
    locations += "location /soft { tallywheel_limit soft $arg_key 5; try_files /page =404; }"
    server = make("shared", zones, locations, before=f"tallywheel_redis {redis.url} interval=20ms; ")
    for mode in ("soft", "hard", "strict"):
        same(server.ask(f"/{mode}?key=first").status, 200)
        wait_until(f"{mode}: Redis knows it", lambda mode=mode: redis.total(f"{mode}:first*") > 0)
        found = statuses(server, f"/{mode}?key=ann", 6)
        same(found, [200] * 5 + [429], mode)
        wait_until(f"{mode}: Redis has them", lambda mode=mode: redis.total(f"{mode}:ann*") == 5)
        if mode == "hard":
            same([reset(server, mode, "ann")[0], count_of(server, mode, "ann"), redis.total("hard:ann*")], [4, 5, 5], "what leases have sold")
            continue
        same(reset(server, mode, "ann"), (0, 5), mode)
        wait_until(f"{mode}: Redis has none", lambda mode=mode: redis.total(f"{mode}:ann*") == 0)
        same(statuses(server, f"/{mode}?key=ann", 6), [200] * 5 + [429], mode)
    server.stop()
    server.start()
    same((reset(server, "soft", "ann")[0], redis.total("soft:ann*")), (1, 5), "nginx has begun, and counted nothing of that key yet")
    end(server)


run("top and show: the zones, the heaviest keys, one key's count", shown)
run("reset: one key is 0 for all workers, each failure has its status", resets)
run("without write nothing is changed", reads_only)
run("a key of any bytes is named as it is shown", every_byte)
run("the socket is its master's, with mode 0600, whatever the umask is", only_the_owner)
if os.geteuid() == 0:
    run("another user gets no answer, also if the mode lets it in", others_get_no_answer)
run("reload: the same socket, new workers, the zones of the new configuration; another path; none", reloads)
run("a killed worker: another one answers", killed_worker)
run("a killed nginx: its file is replaced by the next one", killed_master)
run("a file that is no socket stays, and nginx does not start", another_file)
if not rig.WRAPPER:
    run("a binary upgrade inherits the socket, also back", upgrade)
if shutil.which("redis-server"):
    run("with Redis: a reset is what the library promises", with_redis)
rig.tap.end(plans=True)
