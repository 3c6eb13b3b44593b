#!/usr/bin/env python3
"""heirs.py MODULE SOURCES -- with Redis, slots of a worker that is killed return at once, and no other slot does (TAP).

Method: clients that do not read hold slots in a real nginx with several workers and a real Redis. Workers are killed with
SIGKILL: one, two at once, the one that took a row over, one that shuts down. Redis is asked what is in use.
Covers: nginx/heirs.c.
"""
import os
import signal
import sys
import time

sys.dont_write_bytecode = True
import rig
from rig import Nginx, run, same, wait_until

sources = rig.begin(sys.argv)
redis = rig.Redis().start()
WORKERS = 3


def make(name: str) -> Nginx:
    server = Nginx(name, "", workers=WORKERS)
    write(server)
    with open(server.home + "/www/large", "wb") as file:
        file.truncate(64 << 20)
    return server


def write(server: Nginx, more: str = "") -> None:
    server.write(f"""tallywheel_redis {redis.url}; tallywheel_zone use window=forever {more};
server {{ listen unix:{server.socket}; location /large {{ add_header Worker $pid; tallywheel_hold use one 1000; }}
location = /free {{ try_files /page =404; }} }}""")


def in_use() -> int:
    return int(redis.ask("ZCOUNT", "tw:hold:use:one", "0", "+inf") or 0)


def take(server: Nginx, count: int) -> list:
    """Slots: pairs of a worker, and the client whose request has the slot."""
    slots = []
    for _ in range(count):
        client = server.client()
        client.request("GET", "/large")
        answer = client.getresponse()
        same(answer.status, 200)
        slots.append((int(answer.getheader("Worker")), client, answer))
    return slots


def must_have(slots: list, but: set, what: str) -> None:
    """Exactly the slots of workers that live are in use. How long that took is a comment."""
    living = sum(worker not in but for worker, _, _ in slots)
    began = time.monotonic()
    wait_until(what, lambda: in_use() == living, 12)
    print(f"# {len(slots) - living} slots of {len(slots)} returned after {time.monotonic() - began:.2f} s", flush=True)
    time.sleep(1.2)  # two more looks for workers that were killed
    same(in_use(), living, "slots of workers that live")


def take_of_all(server: Nginx) -> list:
    slots = []
    while len({worker for worker, _, _ in slots}) < WORKERS:
        slots += take(server, 4)
    same(in_use(), len(slots))
    return slots


def kill(*victims: int) -> None:
    for victim in victims:
        os.kill(victim, signal.SIGKILL)


def all_run(server: Nginx, *victims: int) -> bool:
    ids = server.worker_ids()
    return len(ids) == WORKERS and not set(victims) & set(ids)


def end(server: Nginx, slots: list) -> None:
    for _, client, _ in slots:
        client.close()
    wait_until("all slots are free", lambda: in_use() == 0)
    server.stop()
    server.must_be_clean("exited on signal 9|TW-E")


def killed() -> None:
    server = make("killed").start()
    slots = take_of_all(server)
    dead = set()
    for victims in ([slots[0][0]], sorted({worker for worker, _, _ in slots} - {slots[0][0]})[:2]):
        kill(*victims)
        dead |= set(victims)
        must_have(slots, dead, f"slots of {len(victims)} killed workers are free")
        wait_until("other workers run", lambda victims=victims: all_run(server, *victims))
    end(server, slots)


def again_and_again() -> None:
    """The worker that has come in place of a killed one is killed at once, while it releases."""
    server = make("again").start()
    slots = take_of_all(server)
    dead = set()
    for pause in (0, 0.003, 0.01, 0.03, 0.1):
        victim = next(worker for worker in server.worker_ids())
        kill(victim)
        dead.add(victim)
        wait_until("another worker runs", lambda victim=victim: all_run(server, victim))
        time.sleep(pause)
        heir = max(server.worker_ids())
        kill(heir)
        dead.add(heir)
        wait_until("another worker runs", lambda heir=heir: all_run(server, heir))
        must_have(slots, dead, "slots of both are free")
        slots = [slot for slot in slots if slot[0] not in dead] + take(server, 6)
    end(server, slots)


def while_it_shuts_down() -> None:
    """Nobody comes in its place. The workers of the new configuration give its slots back."""
    server = make("shuts").start()
    slots = take_of_all(server)
    server.reload()
    slots += take(server, 3)
    victim = slots[0][0]
    kill(victim)
    must_have(slots, {victim}, "slots of a worker of the earlier configuration are free")
    end(server, slots)


def without_redis() -> None:
    """Redis is away when the worker is killed."""
    server = make("away").start()
    slots = take_of_all(server)
    redis.pause()
    victim = slots[0][0]
    kill(victim)
    wait_until("another worker runs", lambda: all_run(server, victim))
    time.sleep(1)
    redis.resume()
    must_have(slots, {victim}, "slots are free when Redis is back")
    end(server, slots)


def memory() -> None:
    """The notes of an engine that is closed are unmapped in the master."""
    server = make("memory").start()
    same(server.ask("/free").status, 200)

    def shared_megabytes() -> int:
        with open(f"/proc/{server.process.pid}/maps", encoding="utf-8") as file:
            spans = [line.split()[0].split("-") for line in file if "/dev/zero" in line]
        return sum(int(end, 16) - int(begin, 16) for begin, end in spans) >> 20

    before = shared_megabytes()
    for number in range(4):
        write(server, f"outage={('closed', 'local')[number % 2]}")
        server.reload()
        same(server.ask("/free").status, 200)
    grown = shared_megabytes() - before
    if grown > before:  # the notes are most of that
        raise AssertionError(f"{grown} MB more after four reloads, {before} MB before")
    end(server, [])


run("slots of killed workers return, of one and of two at once, and no slot of another worker", killed)
run("the worker that gives them back is killed, too", again_and_again)
run("a worker is killed while it shuts down", while_it_shuts_down)
run("a worker is killed while Redis does not answer", without_redis)
run("the notes of closed engines do not stay in the master", memory)
rig.tap.end(plans=True)
