#!/usr/bin/env python3
"""watch.py TIMEOUT_S PROGRAM [ARGS...] -- runs a test that is a script, and says where it hangs. A PROGRAM that ends in
.py is run by this Python.

After 85 % of TIMEOUT_S, the time after which meson ends it (times TW_TIMEOUT_FACTOR, as in watchdog.h), it prints the last
result, each process that the test has begun with what its threads wait for, and the stacks of those that are Python
(faulthandler, at SIGABRT). Then it ends them all, and fails.
Always true: before, output passes through unchanged, and the exit status is the program's."""
import os
import re
import selectors
import signal
import subprocess
import sys
import time

RESULT = re.compile(rb"^(not )?ok\b")


def read(pid, name):
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return " ".join(file.read().replace(b"\0", b" ").decode(errors="replace").split())
    except OSError:
        return ""


def processes():
    """The test's: descendants, and, if this process leads its session (as meson begins it), all that are in it."""
    own, parents, session = os.getpid(), {}, set()
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        fields = read(pid, "stat").rpartition(")")[2].split()  # behind the command: state, parent, group, session
        if len(fields) > 3:
            parents[pid] = int(fields[1])
            if int(fields[3]) == own:
                session.add(pid)
    found, before = session | {own}, 0
    while len(found) != before:
        before = len(found)
        found |= {pid for pid, parent in parents.items() if parent in found}
    return sorted(found - {own})


def send(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            pass


class Watched:
    def __init__(self, command):
        environment = dict(os.environ, PYTHONFAULTHANDLER="1")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.process.stdout, selectors.EVENT_READ, 1)
        self.selector.register(self.process.stderr, selectors.EVENT_READ, 2)
        self.end = os.pidfd_open(self.process.pid)  # becomes readable
        self.selector.register(self.end, selectors.EVENT_READ, 0)
        self.has_ended = False
        self.partial, self.results, self.last = b"", 0, b"none"
        self.is_over = False  # out of time: what is said on standard error then is a comment

    def take(self, text):
        lines = (self.partial + text).split(b"\n")
        self.partial = lines.pop()
        for line in lines:
            if RESULT.match(line):
                self.results, self.last = self.results + 1, line

    def forward(self, stream, number):
        text = os.read(stream.fileno(), 65536)
        if not text:
            self.selector.unregister(stream)
        elif number == 1:
            self.take(text)
        elif self.is_over:
            text, number = b"".join(b"# " + line + b"\n" for line in text.splitlines()), 1
        while text:
            text = text[os.write(number, text):]

    def follow(self, until):
        """Until the process has ended, and all that it has said so far is forwarded. False: the time was over before."""
        while True:
            rest = 0 if self.has_ended else until - time.monotonic()
            if rest < 0:
                return False
            ready = self.selector.select(rest)
            streams = [(key.fileobj, key.data) for key, _ in ready if key.data != 0]
            for stream, number in streams:
                self.forward(stream, number)
            # A process in the background may keep a stream open for as long as it lives: nobody waits for that.
            if self.has_ended and not streams:
                return True
            if len(streams) < len(ready):
                self.has_ended = True
                self.selector.unregister(self.end)


def report(watched, seconds):
    print(f"{chr(10) if watched.partial else ''}not ok {watched.results + 1} - out of time")
    print(f"# after {seconds:.0f} s; the last result: {watched.last.decode(errors='replace')}")
    for pid in processes():
        print(f"# process {pid}: {read(pid, 'cmdline')[:300]}")
        threads = os.listdir(f"/proc/{pid}/task") if os.path.isdir(f"/proc/{pid}/task") else []
        for thread in threads:
            place = f"task/{thread}/"
            print(f"#   thread {thread} ({read(pid, place + 'comm')}): wchan {read(pid, place + 'wchan')}; "
                  f"syscall {read(pid, place + 'syscall')}")
    sys.stdout.flush()
    send([pid for pid in processes() if read(pid, "comm").startswith("python")], signal.SIGABRT)
    watched.follow(time.monotonic() + 1)
    for number in (signal.SIGTERM, signal.SIGKILL):
        send(processes(), number)
        watched.follow(time.monotonic() + 1)
        time.sleep(0.2)  # what a shell's trap does


def main():
    timeout, command = float(sys.argv[1]), sys.argv[2:]
    if command[0].endswith(".py"):
        command = [sys.executable, *command]
    seconds = timeout * float(os.environ.get("TW_TIMEOUT_FACTOR") or 1) * 0.85
    watched = Watched(command)
    if not watched.follow(time.monotonic() + seconds):
        watched.is_over = True
        report(watched, seconds)
        return 1
    status = watched.process.wait()
    return status if status >= 0 else 128 - status  # as a shell tells of a signal


sys.exit(main())
