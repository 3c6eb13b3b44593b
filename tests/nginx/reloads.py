#!/usr/bin/env python3
"""reloads.py MODULE SOURCES STOP_IN_SET -- what a reload keeps, what begins anew, and what the master has afterwards (TAP).

Method: a real nginx reloads configurations whose zones differ in one parameter. The counts are seen in answers, and the
lines in the error log. Maps and descriptors of the master are counted before and after 25 reloads,
with TW_SCALE a hundred.
With Redis clients ask as fast as they can from the first moment on, and no request is denied while less than half of
its limit is spent, as the access log has it.
Covers: nginx/keep.c, nginx/engine.c, nginx/pause.c.
"""
import os
import re
import signal
import socket
import sys
import time

sys.dont_write_bytecode = True
import rig
from rig import Load, Nginx, Redis, run, same, wait_until

rig.begin(sys.argv)
many = 100 if "TW_SCALE" in os.environ else 25


def block(server: Nginx, zones: str, rules: str) -> str:
    return f"""{zones}
server {{ listen unix:{server.socket}; add_header X-Used $tallywheel_used always; add_header X-Shadow $tallywheel_shadow always;
location /page {{ {rules} }} location = /free {{ try_files /page =404; }} }}"""


def make(name: str, zones: str, rules: str, **options) -> Nginx:
    server = Nginx(name, "", **options)
    server.write(block(server, zones, rules))
    return server.start()


def end(server: Nginx, but: str = "$^") -> None:
    server.stop()
    server.must_be_clean(but)


def reload(server: Nginx, zones: str, rules: str) -> None:
    server.write(block(server, zones, rules))
    server.reload()


def used(server: Nginx, path: str) -> int:
    return int(server.ask(path).getheader("X-Used"))


def begun(server: Nginx) -> list:
    """The lines of zones that began anew."""
    return re.findall(r'\[warn\].* tallywheel_zone "(\w+)" begins (.*)', server.errors())


def policies() -> None:
    rules = "tallywheel_limit z $arg_a 3;"
    server = make("policies", "tallywheel_zone z window=month full=admit;", rules)
    same([server.ask("/page?a=1").status for _ in range(4)], [200, 200, 200, 429])
    for parameters in ("shadow", "shadow outage=closed", "shadow outage=open grace=5s", "shadow keys=1"):
        reload(server, f"tallywheel_zone z window=month full=admit {parameters};", rules)
        answer = server.ask("/page?a=1")
        same((answer.status, answer.getheader("X-Used"), answer.getheader("X-Shadow")), (200, "3", "denied"), parameters)
    same(server.ask("/page?a=2").getheader("X-Used"), "0", "a key more than keys= admits is not counted")
    reload(server, "tallywheel_zone z window=month full=admit;", rules)
    answer = server.ask("/page?a=1")
    same((answer.status, answer.getheader("X-Used")), (429, "3"), "nobody is denied by shadow any more")
    same([server.ask("/page?a=2").getheader("X-Used") for _ in range(2)], ["1", "2"], "keys= bounds nothing any more")
    same(begun(server), [])
    end(server)


def burst() -> None:
    rules = "tallywheel_limit z $arg_a 20;"
    server = make("burst", "tallywheel_zone z window=3660d shape=gcra burst=3;", rules)
    same([server.ask("/page?a=1").status for _ in range(4)], [200, 200, 200, 429])
    reload(server, "tallywheel_zone z window=3660d shape=gcra burst=5;", rules)
    same([server.ask("/page?a=1").status for _ in range(3)], [200, 200, 429], "two units more")
    same(begun(server), [])
    end(server)


def a_killed_worker() -> None:
    """Each worker of the new configuration knows the policies, also one that is forked later."""
    rules = "tallywheel_limit z one 3;"
    server = make("killed", "tallywheel_zone z window=month;", rules, workers=1)
    same([server.ask("/page").status for _ in range(4)], [200, 200, 200, 429])
    reload(server, "tallywheel_zone z window=month shadow;", rules)
    victim = server.worker_ids()[0]
    os.kill(victim, signal.SIGKILL)
    wait_until("another worker runs", lambda: len(server.worker_ids()) == 1 and victim not in server.worker_ids())
    same([server.ask("/page").status, used(server, "/page")], [200, 3])
    end(server, "exited on signal 9|TW-E028")


def a_late_worker() -> None:
    """A worker is stopped while it begins. It continues when workers of a newer configuration serve: it changes nothing."""
    rules = "tallywheel_limit z one 3;"
    server = make("late", "tallywheel_zone z window=month;", rules, workers=1)
    same([server.ask("/page").status for _ in range(4)], [200, 200, 200, 429])
    for _ in range(3):  # one may be stopped too late, or too early to be seen
        first = children(server)
        server.write(block(server, "tallywheel_zone z window=month shadow;", rules))
        server.process.send_signal(signal.SIGHUP)
        give_up = time.monotonic() + 60
        while not children(server) - first and time.monotonic() < give_up:
            pass  # at once, before it comes to its policies
        late = (children(server) - first).pop()
        os.kill(late, signal.SIGSTOP)
        server.write(block(server, "tallywheel_zone z window=month;", rules))
        server.process.send_signal(signal.SIGHUP)
        wait_until("the first worker has ended, and a third one runs",
            lambda late=late, first=first: len(children(server)) == 2 and late in children(server) and not first & children(server))
        answer = server.ask("/page")  # the late one may have been stopped after it had set its policy (a_stopped_worker)
        same(answer.status, 200 if answer.getheader("X-Shadow") else 429, "the third worker")
        os.kill(late, signal.SIGCONT)
        wait_until("the late worker has ended", lambda late=late: late not in children(server))
        wait_until("the policy of the newest configuration", lambda: server.ask("/page").status == 429)
    end(server)


def state(process: int) -> str:
    return rig.read(f"/proc/{process}/stat").rpartition(")")[2].split()[0]


def a_stopped_worker(when: str, then: int) -> None:
    """A worker stops itself while it has the lock of the policies, before or after it has set one. The worker of a newer
    configuration serves meanwhile, by the policies that were set last. Its own ones follow when the lock is free."""
    rules = "tallywheel_limit z one 3;"
    name = f"stopped_{when}_{then}"
    path = f"{rig.folder}/{name}_stop"
    os.makedirs(path)
    os.chmod(path, 0o777)  # a worker removes a file there
    own = rig.WRAPPER[:]
    rig.WRAPPER += ["env", f"LD_PRELOAD={os.path.abspath(sys.argv[3])}", f"TW_STOP_IN_SET={path}/file"]
    server = make(name, "tallywheel_zone z window=month;", rules, workers=1)
    rig.WRAPPER[:] = own
    same([server.ask("/page").status for _ in range(4)], [200, 200, 200, 429])
    first = children(server)
    with open(f"{path}/file.{when}", "w", encoding="utf-8"):
        pass
    server.write(block(server, "tallywheel_zone z window=month shadow;", rules))
    server.process.send_signal(signal.SIGHUP)
    wait_until("the second worker has stopped, and the first one ended",
               lambda: len(children(server)) == 1 and not first & children(server) and state(*children(server)) == "T")
    late = children(server).pop()
    server.write(block(server, "tallywheel_zone z window=month;", rules))
    server.process.send_signal(signal.SIGHUP)
    wait_until("a third worker runs", lambda: len(children(server)) == 2)
    same([server.ask("/page").status for _ in range(3)], 3 * [429 if when == "before" else 200], "while the other one is stopped")
    same(state(late), "T")
    os.kill(late, then)
    wait_until("the late worker has ended", lambda: late not in children(server))
    wait_until("the policy of the newest configuration", lambda: server.ask("/page").status == 429)
    same([server.ask("/page").status for _ in range(3)], [429, 429, 429])
    same(len(re.findall(r"\[warn\].*the worker that sets them is stopped", server.errors())), 1)
    end(server, "exited on signal 9|TW-E028")


def children(server: Nginx) -> set:
    process = server.process.pid
    return {int(one) for one in rig.read(f"/proc/{process}/task/{process}/children").split()}


def refused() -> None:
    """A policy that the library refuses leaves the running configuration as it is."""
    rules = "tallywheel_limit z one 3;"
    server = make("refused", "tallywheel_zone z window=month;", rules)
    same(used(server, "/page"), 1)
    server.write(block(server, "tallywheel_zone z window=month burst=5;", rules))
    server.process.send_signal(signal.SIGHUP)
    wait_until("the reason is in the log", lambda: 'tallywheel_zone "z": burst' in server.errors())
    same(re.search(r'tallywheel_zone "z": burst.* in .*nginx.conf:\d+', server.errors()) is not None, True)
    reload(server, "tallywheel_zone z window=month shadow;", rules)
    same([used(server, "/page") for _ in range(3)], [2, 3, 3])
    end(server, r"\[emerg\].*burst")


def anew() -> None:
    """What begins anew has a line, also a zone that is changed back while its earlier counts are still in memory."""
    rules = "tallywheel_limit kept $arg_k 9; tallywheel_limit z $arg_a 9;"

    def zones(parameters: str, more: str = "") -> str:
        return f"{more} tallywheel_zone kept window=month; tallywheel_zone z {parameters};"

    server = make("anew", zones("window=month"), rules)
    same([used(server, "/page?k=1"), used(server, "/page?a=1"), used(server, "/page?a=1")], [1, 1, 2])
    expected = []
    for parameters, why in (("window=week", "window="), ("window=month", "window="), ("window=month shape=sliding", "shape="),
            ("window=month", "shape="), ("window=month mode=hard", "mode="), ("window=month", "mode=")):
        reload(server, zones(parameters), rules)
        expected.append(("z", f"from 0: {why} has changed"))
        same(begun(server), expected, parameters)
        same(used(server, "/page?a=1"), 1, parameters)
    same(used(server, "/page?k=1"), 2, "the zone that was not changed")
    reload(server, zones("window=month", "tallywheel_memory 32m;"), rules)
    expected += [("kept", "from 0: tallywheel_memory has changed"), ("z", "from 0: tallywheel_memory has changed")]
    same(begun(server), expected)
    same([used(server, "/page?k=1"), used(server, "/page?a=1")], [1, 1])
    reload(server, zones("window=month", "tallywheel_memory 32m;"), rules)
    same(begun(server), expected, "a reload that changes nothing")
    same([used(server, "/page?k=1"), used(server, "/page?a=1")], [2, 2])
    end(server)


def belongings(process: int) -> tuple:
    maps = rig.read(f"/proc/{process}/maps").splitlines()
    return len(maps), len(os.listdir(f"/proc/{process}/fd"))


def master() -> None:
    """Of reloads that change a zone the master keeps nothing."""
    rules = "tallywheel_limit kept one 9; tallywheel_limit z one 9;"
    server = make("master", "tallywheel_zone kept window=month; tallywheel_zone z window=1h;", rules)

    def change(number: int) -> None:
        shadow = "shadow" if number % 2 else ""
        reload(server, f"tallywheel_zone kept window=month {shadow}; tallywheel_zone z window={number + 2}h;", rules)

    def settle() -> None:
        wait_until("the older workers have ended", lambda: len(children(server)) == 2)

    for number in range(5):
        change(number)
    settle()
    before = belongings(server.process.pid)
    kilobytes = resident(server.process.pid)
    for number in range(5, 5 + many):
        change(number)
    settle()
    # As many, or less: it closes those of an ended worker some time after that is no child any more.
    wait_until("the master has no more maps and descriptors than before",
               lambda: all(now <= then for now, then in zip(belongings(server.process.pid), before)))
    grown = resident(server.process.pid) - kilobytes
    if grown > 4 * many + 100:  # the C library keeps pages of what was freed; each engine that stays has 10 KB and more
        raise AssertionError(f"{grown} KB more after {many} reloads, {kilobytes} KB before")
    end(server)


def resident(process: int) -> int:
    """Kilobytes of memory that the process alone has: it maps what workers have written, too."""
    return int(re.search(r"Private_Dirty: +(\d+)", rig.read(f"/proc/{process}/smaps_rollup")).group(1))


# ---- with Redis ----


def hot(name: str, redis: Redis, rules: str, memory: int = 16, **options) -> Nginx:
    server = Nginx(name, "", **options)
    write_hot(server, redis, rules, memory)
    return server


def write_hot(server: Nginx, redis: Redis, rules: str, memory: int) -> None:
    server.write(f"""tallywheel_redis {redis.url}; tallywheel_memory {memory}m;
tallywheel_zone z window=1d; tallywheel_zone other window=3660d;
log_format figures '$status $tallywheel_used $tallywheel_limit $tallywheel_cause'; access_log {server.home}/figures figures;
server {{ listen unix:{server.socket}; location /page {{ {rules} }} location = /free {{ try_files /page =404; }} }}""")


def too_early(server: Nginx) -> list:
    """Denials of requests whose limit was not half spent."""
    lines = [line.split() for line in rig.read(server.home + "/figures").splitlines()]
    return [line for line in lines if line[0] == "429" and 2 * int(line[1]) < int(line[2])]


def drive(server: Nginx, path: str, most: int, meanwhile=None) -> dict:
    """Clients ask until they have got so many answers, or some were denied."""
    load = Load(server, path, clients=8)
    if meanwhile:
        meanwhile()
    wait_until("enough was asked", lambda: sum(dict(load.statuses).values()) >= most, 60)
    found = load.stop()
    same(load.failures, [], "failed requests")
    return found


RULES = {"one limit": "tallywheel_limit z $arg_k 20000;",
    "two limits": "tallywheel_limit z $arg_k 20000; tallywheel_limit other $arg_k 30000;",
    "a limit that waits": "tallywheel_limit z $arg_k 20000 wait=10ms;"}


def starts() -> None:
    for number, (name, rules) in enumerate(RULES.items()):
        redis = Redis(f"redis_starts{number}").start()
        server = hot(f"starts{number}", redis, rules).start()
        drive(server, "/page?k=hot", 4000)
        same(too_early(server), [], name)
        end(server)
        redis.kill()


def reloads_of_all_zones() -> None:
    redis = Redis("redis_reloads").start()
    server = hot("reloads_redis", redis, RULES["one limit"]).start()

    def change() -> None:
        for memory in (17, 18, 19):
            wait_until("some time has passed", lambda end=time.monotonic() + 0.5: time.monotonic() > end)
            write_hot(server, redis, RULES["one limit"], memory)
            server.reload()

    drive(server, "/page?k=hot", 4000, change)
    same(too_early(server), [])
    wait_until("Redis has all", lambda: redis.total("z:hot*") == sum(1 for line in rig.read(server.home + "/figures").splitlines() if line.startswith("200")))
    end(server)
    redis.kill()


def silent_redis() -> None:
    """Redis answers nothing for a while, just when a reload opens an engine. That one stays in its first seconds then."""
    redis = Redis("redis_silent").start()
    server = hot("silent", redis, RULES["one limit"]).start()

    def be_silent() -> None:
        for memory in (17, 18, 19):
            write_hot(server, redis, RULES["one limit"], memory)
            redis.pause()
            server.reload()
            wait_until("some requests have come", lambda end=time.monotonic() + 0.6: time.monotonic() > end)
            redis.resume()
            wait_until("Redis has some", lambda: redis.total("z:hot*") > 0)

    drive(server, "/page?k=hot", 2000, be_silent)
    same(too_early(server), [])
    end(server)
    redis.kill()


def without_redis() -> None:
    """Redis does not run. Until outage= decides, requests wait; afterwards local counts decide, up to the limit."""
    redis = Redis("redis_none")
    server = hot("without", redis, "tallywheel_limit z $arg_k 3000;").start()
    found = drive(server, "/page?k=hot", 3500)
    same(too_early(server), [])
    same(found[200], 3000)
    end(server)


def clients_leave() -> None:
    """A client that leaves while its request waits here costs nothing."""
    redis = Redis("redis_leaves")
    server = hot("leaves", redis, "tallywheel_limit z $arg_k 3000;").start()
    for _ in range(200):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(server.socket)
            client.sendall(b"GET /page?k=hot HTTP/1.1\r\nHost: test\r\n\r\n")
    same(server.ask("/free").status, 200)
    drive(server, "/page?k=hot", 400)
    same(too_early(server), [])
    end(server)


run("policies of a zone change, and its counts stay", policies)
run("a bucket of another size has what it had", burst)
run("a worker that is forked later has the policies, too", a_killed_worker)
run("a worker of an older configuration that begins late changes no policy", a_late_worker)
for moment in ("before", "after"):
    for signal_name, number in (("continues", signal.SIGCONT), ("is killed", signal.SIGKILL)):
        run(f"a worker that is stopped just {moment} it sets a policy, and {signal_name} later, holds up no other one",
            a_stopped_worker, moment, number)
run("a policy that is refused changes nothing", refused)
run("what begins anew has a line, also a zone that is changed back", anew)
run(f"after {many} reloads the master has what it had", master)
run("a start with Redis denies nobody below half of a limit", starts)
run("reloads that begin all zones anew deny nobody below half of a limit, and lose no count", reloads_of_all_zones)
run("nor does a reload while Redis is silent for a moment", silent_redis)
run("a start without Redis denies nobody below half of a limit", without_redis)
run("clients that leave while they wait for Redis's counts cost nothing", clients_leave)
rig.tap.end(plans=True)
