#!/usr/bin/env python3
"""hostile.py MODULE SOURCES -- a worker that writes garbage over what it shares with its master harms no master (TAP).

Method: a real nginx as a daemon, and if the test is root, its workers are of another user. Through /proc/PID/mem of a worker
the test writes zeros, ones, random words or valid addresses over all shared mappings of Tallywheel. Then nginx is reloaded and stopped. Workers
may crash meanwhile, and the master starts others. Nginx shares small mappings of its own, which are spared.
Covers: nginx/engine.c.
"""
import os
import random
import signal
import struct
import sys
import time

sys.dont_write_bytecode = True
import rig
from rig import Daemon, run, same, wait_until

rig.begin(sys.argv)
if rig.WRAPPER:
    rig.tap.skip_all("a wrapper changes what is mapped: run it without TW_WRAPPER")

OWN_BYTES = 4096 * 16  # of nginx itself, at most


def addresses(process: int) -> bytes:
    """A page of addresses where the process, and so the master, has something."""
    spans = [line.split()[0].split("-") for line in rig.read(f"/proc/{process}/maps").splitlines() if " r" in line]
    chosen = (random.choice(spans) for _ in range(512))
    return b"".join(struct.pack("<Q", random.randrange(int(first, 16), int(end, 16)) & ~7) for first, end in chosen)


GARBAGE = {"zeros": lambda process: bytes(4096), "ones": lambda process: b"\xff" * 4096,
    "random words": lambda process: random.randbytes(4096), "addresses": addresses}


def shared_spans(process: int) -> list:
    lines = [line.split() for line in rig.read(f"/proc/{process}/maps").splitlines()]
    spans = [tuple(int(end, 16) for end in words[0].split("-")) for words in lines if words[1].startswith("rw-s")]
    return [(first, end) for first, end in spans if end - first > OWN_BYTES]


def hit(process: int, make) -> int:
    """Returns how many bytes were written."""
    written = 0
    with open(f"/proc/{process}/mem", "r+b", buffering=0) as memory:
        for first, end in shared_spans(process):
            page = make(process) * 256
            for at in range(first, end, len(page)):
                memory.seek(at)
                written += memory.write(page[:end - at])
    return written


def block(server: Daemon, window: str) -> str:
    return f"""tallywheel_memory 2m; tallywheel_zone all window={window};
        server {{ listen unix:{server.socket}; location /page {{ tallywheel_limit all $arg_key 5; }} location = /free {{ try_files /page =404; }} }}"""


def reload_after(name: str) -> None:
    """A zone that changes gets another engine, and the previous one is closed in the master."""
    server = Daemon("hostile-" + name.replace(" ", "-"), "")
    server.write(block(server, "1m"))
    server.start()
    master = server.master()
    same(server.ask("/page?key=1").status, 200)
    same(hit(server.children(master)[0], GARBAGE[name]) > 1 << 20, True, "bytes were written")
    for number in range(3):
        server.write(block(server, f"{number + 2}m"))
        os.kill(master, signal.SIGHUP)
        wait_until("it was reloaded", lambda number=number: server.errors().count("reconfiguring") > number)
        time.sleep(0.3)
        same(rig.runs(master), True, f"the master lives after a reload with {name}")
    os.kill(master, signal.SIGTERM)
    wait_until("the master has ended", lambda: not rig.runs(master), 20)
    ends = [line for line in server.errors().splitlines() if f" {master}#" in line and ": exit" in line]
    same(len(ends), 1, f"how often the master has ended as it should: {server.errors()[-600:]}")


for garbage in GARBAGE:
    run(f"a master lives through reloads after a worker wrote {garbage} over all that it shares", reload_after, garbage)
rig.tap.end()
