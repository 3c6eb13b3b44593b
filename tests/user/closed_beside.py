"""closed_beside.py ROOT LIBRARY PEER -- engines of an earlier version beside those of this one, at one Redis and at one
Redis Cluster: each window is closed once with all keys, whichever closes it (TW_CLOSED_BY_ONE). OPERATE.md promises that
for a rolling restart. Prints TAP.

Goal: whoever closes, an engine of the earlier version or one of this, its figures have the keys of all; also of an engine
that was killed as soon as Redis had its counts. What a stopped engine counted is reported again when it goes on.
Method: the library of commit EARLIER is built from git, or taken from TW_EARLIER (a tree that is built). closing_peer.c is
compiled with each library. Families that share nothing but Redis play at the same time, because the death of an engine
takes half a minute. Where this is no work tree of git, or the commit is not there, the test is left out.
Always true: two peers of each version count in each window, under keys of their own and under keys of all."""
import atexit
import os
import pathlib
import queue
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
sys.path.append(sys.path[0] + "/../support")
import tap

EARLIER = "41560198"
PATIENCE_S = 120
LIFE_S = 30  # an engine that says nothing counts as alive for so long
LATE_MS = 2000
KEYS = 150  # of each peer: more than fit into one message of names
SHARED = 10  # keys of all
AGAIN, LOCAL = 4, 2
ONE_STORE, BY_TAG = "%n:%k:%Y%m%d%H%M%S", "%n:{%t}:%k:%Y%m%d%H%M%S"

root, library, source = (pathlib.Path(name).absolute() for name in sys.argv[1:4])
folder = pathlib.Path(tempfile.mkdtemp(prefix="closed_beside."))
atexit.register(shutil.rmtree, folder, ignore_errors=True)


def run(*command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)


def earlier_tree():
    """The earlier version, built; None: it cannot be had here."""
    if os.environ.get("TW_EARLIER"):
        return pathlib.Path(os.environ["TW_EARLIER"])
    tree = folder / "source"
    tree.mkdir()
    archive = subprocess.run(["git", "-C", str(root), "archive", EARLIER], capture_output=True)
    if archive.returncode != 0:
        return None
    subprocess.run(["tar", "-x", "-C", str(tree)], input=archive.stdout, check=True)
    for command in (["meson", "setup", tree / "build", tree, "-Dtests=disabled", "-Dredis=enabled"],
                    ["meson", "compile", "-C", tree / "build", "tallywheel:shared_library"]):
        made = run(*command)
        if made.returncode != 0:
            tap.comment(made.stdout[-2000:] + made.stderr[-2000:])
            sys.exit("closed_beside.py: the earlier version could not be built")
    return tree


def compile_peer(name, include, libraries):
    """A peer that finds its library where it was built."""
    (folder / name).mkdir()
    shared = sorted(libraries.glob("libtallywheel.so.0.*"))[0]
    os.symlink(shared, folder / name / "libtallywheel.so.0")
    os.symlink(shared, folder / name / "libtallywheel.so")
    made = run("cc", "-std=c11", "-D_GNU_SOURCE", "-I", include, source, "-o", folder / name / "peer", "-L", folder / name,
               "-ltallywheel", f"-Wl,-rpath,{folder / name}")
    if made.returncode != 0:
        sys.exit(f"closed_beside.py: {made.stderr}")
    return folder / name / "peer"


class Server:
    """A Redis, or a cluster of one."""

    def __init__(self, is_cluster):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        place = folder / f"redis.{self.port}"
        place.mkdir()
        more = ["--cluster-enabled", "yes", "--cluster-port", str(self.port - 1)] if is_cluster else []
        self.process = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(place)] + more,
            stdout=subprocess.DEVNULL)
        self.url = f"redis{'+cluster' if is_cluster else ''}://127.0.0.1:{self.port}"
        self.wait("PING", "PONG")
        if is_cluster:
            self.ask("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
            self.wait("CLUSTER INFO", "cluster_state:ok")

    def ask(self, *words):
        return run("redis-cli", "-p", self.port, *words).stdout

    def wait(self, question, word):
        end = time.monotonic() + PATIENCE_S
        while word not in self.ask(*question.split()):
            if time.monotonic() > end:
                sys.exit(f"closed_beside.py: Redis does not answer {question} by {word}")
            time.sleep(0.05)


class Peer:
    def __init__(self, number, version, url, family, redis_key, has_hook):
        self.number, self.version, self.windows, self.said = number, version, [], queue.Queue()
        self.is_whole = True  # neither killed nor stopped
        self.process = subprocess.Popen([str(peers[version]), url, family, redis_key, "1" if has_hook else "0"],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self.read, daemon=True).start()
        self.expect("open")

    def read(self):
        for line in self.process.stdout:
            words = line.split()
            if words[0] == "window":
                self.windows.append(tuple(int(word) for word in words[1:]))
            else:
                self.said.put(line.strip())

    def expect(self, *lines):
        said = self.said.get(timeout=PATIENCE_S)
        if said not in lines:
            raise RuntimeError(f"peer {self.number} ({self.version}) said {said}")
        return said

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def begin(self, start_ms):
        """Counts. Its own keys have its number as delta."""
        self.say(f"count {start_ms} {1000 * self.number} {KEYS} {self.number}")
        self.say(f"count {start_ms} 0 {SHARED} 1")

    def keep(self, start_ms):
        """Counts the same once more under its own keys, and is stopped before Redis has it. Returns whether it came in time."""
        self.say(f"keep {start_ms} {1000 * self.number} {KEYS} {self.number}")
        if self.expect("counted", "late") == "late":
            return False
        os.kill(self.process.pid, signal.SIGSTOP)
        return True

    def end(self):
        return [self.expect("counted", "late") for _ in range(2)] == ["counted", "counted"]


class Family:
    """Four peers, two of each version, and the windows in which they count."""

    def __init__(self, name, server, redis_key, hooks):
        self.name = name
        self.peers = [Peer(1 + i, version, server.url, name, redis_key, version in hooks)
                      for i, version in enumerate(["earlier", "this", "earlier", "this"])]

    def count(self):
        """All count in a window. Returns its start; 0: one came too late for it."""
        start_ms = (int(time.time()) + 1) * 1000
        for peer in self.peers:
            peer.begin(start_ms)
        return start_ms if all([peer.end() for peer in self.peers]) else 0

    def count_surely(self):
        for _ in range(20):
            start_ms = self.count()
            if start_ms:
                return start_ms
        raise RuntimeError("the machine is too busy: each window was over before all had counted")

    def whole(self):
        """What a hook gets: how many keys, and the sum of those of all, and of each peer."""
        return (len(self.peers) * KEYS + SHARED, len(self.peers) * SHARED) + tuple(KEYS * peer.number for peer in self.peers)

    def calls(self, start_ms):
        return [(peer, call[1:]) for peer in self.peers for call in list(peer.windows) if call[0] == start_ms]

    def wait(self, is_true, why):
        end = time.monotonic() + PATIENCE_S
        while not is_true():
            if time.monotonic() > end:
                raise RuntimeError(why)
            time.sleep(0.02)

    def closed(self, start_ms):
        """The only call for a window. It had all figures."""
        self.wait(lambda: self.calls(start_ms), f"window {start_ms} is not closed")
        time.sleep(0.5)  # a second call would have come by now
        calls = self.calls(start_ms)
        if len(calls) != 1 or calls[0][1] != (0,) + self.whole():
            raise RuntimeError(f"window {start_ms}: {[(peer.version, call) for peer, call in calls]}, not {self.whole()}")
        return calls[0][0]

    def leave(self):
        for peer in self.peers:
            if peer.is_whole:
                peer.say("close")
                peer.expect("closed 0")
                peer.process.wait()


def play_hooks(server, redis_key, name, hooks):
    """Only one version has hooks, so it closes all windows."""
    family = Family(name, server, redis_key, hooks)
    versions = [family.closed(family.count_surely()).version for _ in range(3)]
    if set(versions) != set(hooks):
        raise RuntimeError(f"closed by {versions}")
    family.leave()


def play_killed(server, redis_key, name, hooks):
    """One of each version is killed as soon as Redis has its counts."""
    family = Family(name, server, redis_key, hooks)
    family.closed(family.count_surely())
    start_ms = family.count_surely()
    for peer in family.peers[:2]:
        peer.process.kill()
        peer.is_whole = False
    family.closed(start_ms)
    family.leave()


def play_stopped(server, redis_key, name, hooks):
    """One of each version is stopped while it has counts that Redis lacks, under keys that Redis knows. The others close the
    window without it. When the two go on, it is closed again: the last call for each of their keys has its whole count."""
    family = Family(name, server, redis_key, hooks)
    family.closed(family.count_surely())
    stopped = family.peers[:2]
    for _ in range(20):
        start_ms = family.count_surely()
        if all([peer.keep(start_ms) for peer in stopped]):
            break
        for peer in stopped:
            os.kill(peer.process.pid, signal.SIGCONT)
    family.wait(lambda: family.calls(start_ms), f"window {start_ms} is not closed without the stopped peers")
    first = family.calls(start_ms)
    if len(first) != 1 or first[0][1][0] != 0:
        raise RuntimeError(f"first {first}")
    for peer in stopped:
        os.kill(peer.process.pid, signal.SIGCONT)

    def is_told(peer):
        last = [call for _, call in family.calls(start_ms) if call[0] & AGAIN and call[2 + peer.number]]
        return last and last[-1][2 + peer.number] == 2 * KEYS * peer.number

    try:
        family.wait(lambda: all(is_told(peer) for peer in stopped), f"window {start_ms} is not closed again with all counts")
    except RuntimeError as error:
        raise RuntimeError(f"{error}: {[(peer.version, call) for peer, call in family.calls(start_ms)]}") from None
    # A minute after its end a window is reported with this flag, before Redis has all of it. The earlier version does that
    # on a busy machine sooner.
    is_late = time.time() * 1000 - start_ms > 60_000
    if not is_late and any(call[0] & LOCAL and peer.version != "earlier" for peer, call in family.calls(start_ms)):
        raise RuntimeError(f"flagged {[(peer.version, call) for peer, call in family.calls(start_ms)]}")
    family.closed(family.count_surely())
    family.leave()


def play(faults, what, *arguments):
    try:
        what(*arguments)
    except Exception as error:
        faults.append(f"{arguments[2]}: {error!r}")


if not shutil.which("git") or not shutil.which("redis-server"):
    tap.skip_all("git, redis-server: apt-get install git redis-server")
tree = earlier_tree()
if tree is None:
    tap.skip_all(f"commit {EARLIER}: git fetch the whole history")
peers = {"earlier": compile_peer("earlier", tree / "include", tree / "build"), "this": compile_peer("this", root / "include", library.parent)}
servers, both = [], ("earlier", "this")
try:
    results = []
    for is_cluster in (False, True):
        servers.append(Server(is_cluster))
        where, redis_key = ("in a cluster", BY_TAG) if is_cluster else ("in one Redis", ONE_STORE)
        for what, name, hooks, sentence in (
            (play_hooks, "before", ["earlier"], "engines of the earlier version close the windows of both"),
            (play_hooks, "after", ["this"], "engines of this version close the windows of both"),
            (play_killed, "dead1", ["earlier"], "the earlier version closes what killed engines have counted"),
            (play_killed, "dead2", ["this"], "this version closes what killed engines have counted"),
            (play_killed, "dead3", both, "either closes what killed engines have counted"),
            (play_stopped, "stopped", both, "counts of stopped engines are reported again")):
            faults = []
            thread = threading.Thread(target=play, args=(faults, what, servers[-1], redis_key, name, hooks))
            results.append((thread, faults, f"{where} {sentence}"))
    for thread, _, _ in results:
        thread.start()
    tap.plan(len(results))
    for thread, faults, sentence in results:
        thread.join()
        tap.no_faults(faults, sentence)
finally:
    for server in servers:
        server.process.kill()
        server.process.wait()
tap.end()
