#!/usr/bin/env python3
"""upgrades.py MODULE SOURCES -- a binary upgrade (USR2, then QUIT of the old master) loses no request (TAP).

Method: a real nginx as a daemon takes its own place while clients ask it. Clients count the answers themselves. With
Redis, in the end Redis has as many units as there were 200s. Afterwards the new processes have as many descriptors and
shared mappings as the old ones had.
Covers: nginx/engine.c, nginx/worker.c.
"""
import os
import shutil
import signal
import sys

sys.dont_write_bytecode = True
import rig
from rig import Daemon, Load, Redis, run, same, wait_until

sources = rig.begin(sys.argv)
if rig.WRAPPER:
    rig.tap.skip_all("nginx starts its successor itself, without the words of TW_WRAPPER: run it without them")


def make(name: str, zones: str, rules: str) -> Daemon:
    server = Daemon(name, "")
    server.write(f"""{zones} server {{ listen unix:{server.socket}; {rules} location = /free {{ try_files /page =404; }} }}""")
    return server.start()


def names_in(folder: str) -> list:
    try:
        return os.listdir(folder)
    except OSError:
        return []  # the process has ended


def target_of(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""  # it was closed since


def kept_by(master: int, server: Daemon) -> list:
    """How many descriptors without a name (of event loops), and mappings of shared memory, the master and its workers have."""
    found = []
    for process in [master, *server.children(master)]:
        files = [target_of(f"/proc/{process}/fd/{name}") for name in names_in(f"/proc/{process}/fd")]
        shared = [line for line in rig.read(f"/proc/{process}/maps").splitlines() if line.split()[1].endswith("s")]
        found.append((sum(name.startswith("anon_inode") for name in files), len(shared)))
    return found[:1] + sorted(found[1:])


def are_alike(kept: list) -> bool:
    """A worker that has begun has more than the master."""
    return kept[1] == kept[2] and kept[1][0] > kept[0][0]


OWN_OF_MASTER = 2  # an engine's set and its bell


def are_as(kept: list, fresh: list) -> bool:
    """A daemon is a child of the process that has opened the engine, and fork() has closed its copies of the engine's
    descriptors. The new master has opened its engine itself."""
    return kept[1:] == fresh[1:] and kept[0][1] == fresh[0][1] and kept[0][0] <= OWN_OF_MASTER


def without_redis() -> None:
    server = make("alone", "tallywheel_zone all window=1h; tallywheel_zone use window=forever;",
        """location /page { tallywheel_limit all $arg_key $arg_limit; }
        location = /use { tallywheel_hold use one 1; try_files /page =404; }""")
    same([server.ask("/page?key=a&limit=4").status for _ in range(5)], [200] * 4 + [429])
    wait_until("both workers run", lambda: are_alike(kept_by(server.master(), server)))
    fresh = kept_by(server.master(), server)
    load = Load(server, "/page?key=b&limit=1000000", 4)
    old, new = server.upgrade()
    server.stop(master=old)
    wait_until("the new workers have served many", lambda: server.ask("/page?key=b&limit=300").status == 429)
    same((set(load.stop()), load.failures), ({200}, []), "answers, and failures")
    same([server.ask("/page?key=a&limit=4").status for _ in range(5)], [200] * 4 + [429], "counts that begin from 0")
    same(server.ask("/use").status, 200)
    wait_until("the new processes have what the old ones had", lambda: are_as(kept_by(new, server), fresh))
    server.stop()
    server.must_be_clean()


def taken_back() -> None:
    """The new nginx is not wanted: the old one starts workers again."""
    server = make("back", "tallywheel_zone all window=1h;", "location /page { tallywheel_limit all one 6; }")
    same([server.ask("/page").status for _ in range(4)], [200] * 4)
    old, new = server.upgrade()
    os.kill(old, signal.SIGWINCH)
    wait_until("the old workers have ended", lambda: server.children(old) == [new])
    same([server.ask("/page").status for _ in range(7)], [200] * 6 + [429], "with the new one")
    os.kill(old, signal.SIGHUP)
    wait_until("the old one has workers", lambda: len(server.children(old)) == 3)
    server.stop(master=new)
    wait_until("the old one writes its pid file again", lambda: server.master() == old)
    same([server.ask("/page").status for _ in range(3)], [200] * 2 + [429], "with the counts of before")
    server.stop()
    server.must_be_clean()


def with_redis() -> None:
    redis = Redis().start()
    server = make("counts", f"""tallywheel_redis {redis.url} interval=20ms; tallywheel_zone soft window=1d;
        tallywheel_zone hard window=1d mode=hard; tallywheel_zone strict window=1d mode=strict;
        tallywheel_zone use window=forever;""", """location /soft { tallywheel_limit soft one 1000000; try_files /page =404; }
        location /hard { tallywheel_limit hard one 400 wait=5s; try_files /page =404; }
        location /strict { tallywheel_limit strict $arg_key 400; try_files /page =404; }
        location /use { tallywheel_hold use one 1; try_files /page =404; }""")
    wait_until("Redis decides", lambda: server.ask("/strict?key=first").status == 200 and redis.total("strict:first*") > 0)
    loads = [Load(server, path, 2) for path in ("/soft", "/hard", "/strict?key=one")]
    old, new = server.upgrade()
    server.stop(master=old)
    for name, load in zip(("hard", "strict"), loads[1:]):
        wait_until("the limit is reached", lambda name=name, load=load: load.statuses.get(429, 0) > 20, 60)
    found = [load.stop() for load in loads]
    same([load.failures for load in loads], [[], [], []])
    same([set(found[0]), found[1][200], found[2][200]], [{200}, 400, 400], "admitted by the old one and the new one")
    wait_until("the books agree", lambda: [redis.total("soft:one*"), redis.total("strict:one*")] == [found[0][200], 400])
    same(server.ask("/use").status, 200)
    same(server.master(), new)
    server.stop()
    server.must_be_clean()


run("without Redis: no request is lost, counts begin from 0, the old processes leave nothing", without_redis)
run("the old nginx that is called back has its counts", taken_back)
if shutil.which("redis-server"):
    run("with Redis: no request is lost, limits are exact over old and new, the books agree", with_redis)
rig.tap.end(plans=True)
