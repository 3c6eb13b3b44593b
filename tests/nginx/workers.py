#!/usr/bin/env python3
"""workers.py MODULE SOURCES -- a limit without Redis is one limit for all workers, whatever becomes of them (TAP).

Method: clients ask a real nginx of two workers as fast as they can, while it reloads, or a worker is killed. They count
the answers themselves. With TW_SCALE the first test starts it 30 times.
Covers: nginx/engine.c, nginx/worker.c.
"""
import os
import signal
import sys
import time

sys.dont_write_bytecode = True
import rig
from rig import Load, Nginx, run, same, wait_until

sources = rig.begin(sys.argv)
starts = 30 if "TW_SCALE" in os.environ else 3


def block(server: Nginx, zones: str, rules: str, more: str = "") -> str:
    return f"""{zones}
server {{ listen unix:{server.socket}; location /page {{ {rules} }} location = /free {{ try_files /page =404; }}
location = /metrics {{ tallywheel_metrics; }} {more} }}"""


def make(name: str, zones: str, rules: str, more: str = "", **options) -> Nginx:
    server = Nginx(name, "", **options)
    server.write(block(server, zones, rules, more))
    return server


def end(server: Nginx, but: str = "$^") -> None:
    server.stop()
    server.must_be_clean(but)


def exact() -> None:
    for number in range(starts):
        server = make(f"exact{number}", "tallywheel_zone all window=month;", "tallywheel_limit all one 100;").start()
        found = Load(server, "/page", clients=8, most=25).wait()
        same(found, {200: 100, 429: 100}, f"start {number}")
        server.reload()
        same(Load(server, "/page", clients=4, most=10).wait(), {429: 40}, "after the reload")
        end(server)


def reloads() -> None:
    server = make("reloads", "tallywheel_zone all window=month;", "tallywheel_limit all one 3000;").start()
    load = Load(server, "/page", clients=6)
    for _ in range(5):
        time.sleep(0.15)
        server.reload()
    wait_until("the limit is reached", lambda: server.ask("/page").status == 429, 60)
    found = load.stop()
    same(load.failures, [], "failed requests")
    same(found.get(200) , 3000 - admitted_by_test(server, found), "admitted")
    same(set(found), {200, 429})
    end(server)


def admitted_by_test(server: Nginx, found: dict) -> int:
    """Requests of the test itself, which the load did not count, as the log has them."""
    return sum(1 for line in server.access() if '"GET /page' in line and '" 200 ' in line) - found[200]


def zones_of_reload() -> None:
    server = make("zones", "tallywheel_zone kept window=month; tallywheel_zone changed window=month;",
        "tallywheel_limit kept $arg_a 3; tallywheel_limit changed $arg_b 3;").start()
    same([server.ask("/page?a=1").status for _ in range(4)], [200, 200, 200, 429])
    same([server.ask("/page?b=1").status for _ in range(4)], [200, 200, 200, 429])
    server.write(block(server, "tallywheel_zone changed window=2h; tallywheel_zone kept window=month; tallywheel_zone new window=month;",
        "tallywheel_limit kept $arg_a 3; tallywheel_limit changed $arg_b 3; tallywheel_limit new $arg_c 1;"))
    server.reload()
    same(server.ask("/page?a=1").status, 429, "a zone that did not change")
    same([server.ask("/page?b=1").status for _ in range(4)], [200, 200, 200, 429], "a zone that changed")
    same([server.ask("/page?c=1").status for _ in range(2)], [200, 429], "a new zone")
    same([server.ask("/page?a=2&b=2&c=2").status for _ in range(2)], [200, 429], "limits of two engines together")
    page = server.ask("/metrics").text
    lines = page.splitlines()
    same(len([line for line in lines if line.startswith("# TYPE")]), len({line for line in lines if line.startswith("# TYPE")}))
    for sample in ('family="kept",engine="1"', 'family="new",engine="2"', 'family="changed",engine="2"'):
        same(f"tallywheel_family_limit_admitted_total{{{sample}}}" in page, True, sample)
    same('tallywheel_entries{engine="1"}' in page and 'tallywheel_entries{engine="2"}' in page, True)
    server.write(block(server, "tallywheel_zone kept window=month;", "tallywheel_limit kept $arg_a 4;"))
    server.reload()
    same([server.ask("/page?a=1").status for _ in range(2)], [200, 429], "a higher limit")
    same('engine="2"' in server.ask("/metrics").text, False, "an engine without zones is gone")
    end(server)


def memory_of_reloads() -> None:
    """Of each engine the master keeps some small pages at most, also if it is root and the workers are not."""
    server = make("memory", "tallywheel_zone z window=1h;", "tallywheel_limit z $arg_a 3;").start()

    def shared_kilobytes() -> int:
        with open(f"/proc/{server.process.pid}/maps", encoding="utf-8") as file:
            spans = [line.split()[0].split("-") for line in file if "/dev/zero" in line]
        return sum(int(end, 16) - int(begin, 16) for begin, end in spans) // 1024

    before = shared_kilobytes()
    for number in range(4):
        same(server.ask(f"/page?a={number}").status, 200)
        server.write(block(server, f"tallywheel_zone z window={number + 2}h;", "tallywheel_limit z $arg_a 3;"))
        server.reload()
    grown = shared_kilobytes() - before
    if grown > before:
        raise AssertionError(f"{grown} KB more after four reloads, {before} KB before")
    end(server)


def wrong_reload() -> None:
    server = make("wrong", "tallywheel_zone kept window=month;", "tallywheel_limit kept one 3;").start()
    same(server.ask("/page").status, 200)
    server.write(block(server, "tallywheel_zone kept window=month; tallywheel_zone other window=1500ms;", "tallywheel_limit kept one 3;"))
    server.process.send_signal(signal.SIGHUP)
    wait_until("the reason is in the log", lambda: 'tallywheel_zone "other": window: 1500 ' in server.errors())
    same([server.ask("/page").status for _ in range(3)], [200, 200, 429])
    server.write(block(server, "tallywheel_zone kept window=month;", "tallywheel_limit kept one 4;"))
    server.reload()
    same([server.ask("/page").status for _ in range(2)], [200, 429])
    end(server, r"\[emerg\].*window: 1500")


def killed() -> None:
    server = make("killed", "tallywheel_zone all window=month; tallywheel_zone second window=1s;",
        "tallywheel_limit all $arg_all 2000;", "location /second { tallywheel_limit second one 5; try_files /page =404; }").start()
    load = Load(server, "/page?all=1", clients=6)
    for _ in range(4):
        time.sleep(0.1)
        victim = server.worker_ids()[0]
        os.kill(victim, signal.SIGKILL)
        wait_until("another worker runs", lambda victim=victim: len(server.worker_ids()) == 2 and victim not in server.worker_ids())
    wait_until("the limit is reached", lambda: server.ask("/free").status == 200 and sum_of(load) == {429}, 60)
    found = load.stop()
    served = sum(1 for line in server.access() if '"GET /page' in line and '" 200 ' in line)
    # a worker that is killed after it has admitted a request may not have answered it, or not have logged it
    same(2000 - 40 <= served <= 2000 and found[200] <= 2000, True, f"{found}, {served} served")
    for _ in range(3):  # windows end
        wait_until("a window of a second begins", lambda: server.ask("/second").status == 200)
        wait_until("it is full", lambda: server.ask("/second").status == 429)
    end(server, "exited on signal 9|TW-E028")


def sum_of(load: Load) -> set:
    """Statuses of a few requests of the test."""
    client = load.server.client()
    try:
        return {client.ask(load.path).status for _ in range(10)}
    finally:
        client.close()


def without_master() -> None:
    server = make("single", "tallywheel_zone all window=month;", "tallywheel_limit all one 3;", main="master_process off;", workers=0)
    server.start()
    same([server.ask("/page").status for _ in range(4)], [200] * 3 + [429])
    server.stop(signal.SIGTERM)
    server.must_be_clean()


def waits() -> None:
    server = make("waits", "tallywheel_zone second window=1s; tallywheel_zone all window=month;",
        "tallywheel_limit second one 6 wait=10s; tallywheel_limit all one 15;").start()
    same(Load(server, "/page", clients=4, most=5).wait(), {200: 15, 429: 5})
    client = server.client()  # one that waits while its worker shuts down is served
    load = Load(server, "/page", clients=8, most=1)
    wait_until("six are answered", lambda: load.statuses.get(429, 0) >= 6)
    server.reload()
    same(load.wait(), {429: 8})
    same(load.failures, [])
    client.close()
    end(server)


def clients_leave() -> None:
    """They leave while they wait for a unit of one limit, and have taken one of another."""
    server = make("leave", "tallywheel_zone gate window=100s shape=gcra burst=1; tallywheel_zone all window=month;",
        "tallywheel_limit all one 5; tallywheel_limit gate one 1 wait=600s;",
        """location = /all { tallywheel_limit all one 5; try_files /page =404; }
        location = /look { tallywheel_limit all one 5 n=0; tallywheel_headers ratelimit; try_files /page =404; }""").start()
    same(server.ask("/page").status, 200)
    clients = [server.client() for _ in range(4)]
    for client in clients:
        client.request("GET", "/page")
    wait_until("all units are taken", lambda: server.ask("/look").getheader("RateLimit-Remaining") == "0")
    for client in clients:
        client.close()
    wait_until("four have left", lambda: sum('"GET /page' in line and " 499 " in line for line in server.access()) == 4)
    same([server.ask("/all").status for _ in range(5)], [200] * 4 + [429])
    end(server)


def slots() -> None:
    server = make("slots", "tallywheel_zone use window=forever;", "tallywheel_hold use one 2;",
        "location /large { tallywheel_hold use one 2; }").start()
    with open(server.home + "/www/large", "wb") as file:
        file.truncate(64 << 20)
    clients = [server.client() for _ in range(2)]

    def has_slot(client) -> bool:
        client.request("GET", "/large")
        answer = client.getresponse()
        if answer.status != 200:
            answer.read()
        return answer.status == 200

    for client in clients:
        same(has_slot(client), True)
    same(server.ask("/page").status, 503)
    clients[0].close()
    wait_until("a slot is free", lambda: server.ask("/page").status == 200)
    clients[1].close()
    wait_until("both slots are free", lambda: [server.ask("/page").status for _ in range(5)] == [200] * 5)
    for client in clients:  # a request ends a little later than its client has the answer
        wait_until("a slot for each", lambda client=client: has_slot(client))
    for victim in server.worker_ids():
        os.kill(victim, signal.SIGKILL)
    wait_until("slots of killed workers are free", lambda: len(server.worker_ids()) == 2 and server.ask("/page").status == 200)
    end(server, "exited on signal 9|TW-E028")


def last_worker() -> None:
    """nginx becomes a daemon by a fork of its own, after the configuration was read."""
    server = rig.Daemon("last", "", workers=1)
    server.write(block(server, "tallywheel_zone all window=month;", "tallywheel_limit all one 10;"))
    server.start()
    same([server.ask("/page").status for _ in range(4)], [200] * 4)
    for how in (signal.SIGQUIT, signal.SIGKILL, signal.SIGTERM):
        old = server.children()
        os.kill(old[0], how)
        wait_until("another worker runs", lambda old=old: server.children() and not set(old) & set(server.children()))
        wait_until("it answers", server.answers)
        same(server.ask("/page").status, 200, f"after signal {how}")
    same([server.ask("/page").status for _ in range(4)], [200] * 3 + [429])
    end(server, "exited on signal 9|TW-E028")


run(f"two workers admit exactly the limit, in each of {starts} starts, and none more after a reload", exact)
run("five reloads under load refuse or lose no request, and the limit is exact", reloads)
run("a reload keeps the counts of zones that did not change, and begins the others from 0", zones_of_reload)
run("reloads that change zones do not add up memory in the master", memory_of_reloads)
run("a configuration that is refused changes nothing", wrong_reload)
run("workers that are killed neither exceed the limit nor stop the windows", killed)
run("without a master process all works, too", without_master)
run("a request waits for the next window, in whichever worker", waits)
run("a client that leaves while it waits gives back what it had of other limits", clients_leave)
run("slots are free when their requests end, or their worker is killed", slots)
run("a worker that comes after the last one has all counts", last_worker)
rig.tap.end(plans=True)
