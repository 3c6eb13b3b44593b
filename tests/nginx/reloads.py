#!/usr/bin/env python3
"""reloads.py MODULE SOURCES -- what a reload keeps, what begins anew, and what the master has afterwards (TAP).

Method: a real nginx reloads configurations whose zones differ in one parameter. The counts are seen in answers, and the
lines in the error log. Maps and descriptors of the master are counted before and after a hundred reloads.
Covers: nginx/keep.c, nginx/engine.c.
"""
import os
import re
import sys

sys.dont_write_bytecode = True
import rig
from rig import Nginx, run, same, wait_until

rig.begin(sys.argv)


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
    server = make("policies", "tallywheel_zone z window=month;", rules)
    same([server.ask("/page?a=1").status for _ in range(4)], [200, 200, 200, 429])
    for parameters in ("shadow", "shadow outage=closed", "shadow outage=open grace=5s", "shadow keys=1"):
        reload(server, f"tallywheel_zone z window=month {parameters};", rules)
        answer = server.ask("/page?a=1")
        same((answer.status, answer.getheader("X-Used"), answer.getheader("X-Shadow")), (200, "3", "denied"), parameters)
    same(server.ask("/page?a=2").getheader("X-Used"), "0", "a key more than keys= admits is not counted")
    reload(server, "tallywheel_zone z window=month;", rules)
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
    os.kill(victim, 9)
    wait_until("another worker runs", lambda: len(server.worker_ids()) == 1 and victim not in server.worker_ids())
    same([server.ask("/page").status, used(server, "/page")], [200, 3])
    end(server, "exited on signal 9|TW-E028")


def refused() -> None:
    """A policy that the library refuses leaves the running configuration as it is."""
    rules = "tallywheel_limit z one 3;"
    server = make("refused", "tallywheel_zone z window=month;", rules)
    same(used(server, "/page"), 1)
    server.write(block(server, "tallywheel_zone z window=month burst=5;", rules))
    server.process.send_signal(rig.signal.SIGHUP)
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

    for number in range(5):
        change(number)
    before = belongings(server.process.pid)
    kilobytes = resident(server.process.pid)
    for number in range(5, 105):
        change(number)
    wait_until("the older workers have ended", lambda: len(rig.read(f"/proc/{server.process.pid}/task/{server.process.pid}/children").split()) == 2)
    same(belongings(server.process.pid), before, "maps and descriptors")
    grown = resident(server.process.pid) - kilobytes
    if grown > 512:  # the C library keeps pages of what was freed; a hundred tables would be 1,000 KB and more
        raise AssertionError(f"{grown} KB more after a hundred reloads, {kilobytes} KB before")
    end(server)


def resident(process: int) -> int:
    """Kilobytes of memory that the process alone has: it maps what workers have written, too."""
    return int(re.search(r"Private_Dirty: +(\d+)", rig.read(f"/proc/{process}/smaps_rollup")).group(1))


run("policies of a zone change, and its counts stay", policies)
run("a bucket of another size has what it had", burst)
run("a worker that is forked later has the policies, too", a_killed_worker)
run("a policy that is refused changes nothing", refused)
run("what begins anew has a line, also a zone that is changed back", anew)
run("after a hundred reloads the master has what it had", master)
rig.tap.end(plans=True)
