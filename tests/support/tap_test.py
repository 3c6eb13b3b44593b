"""tap_test.py -- does tap.py print whole lines, whatever threads print at the same time? Prints TAP.

Method: a child prints into a pipe by eight threads and by its main thread, and ends while one more thread goes on. Each
line that came is one that was printed, and none is missing.
"""
import subprocess
import sys
import threading

sys.dont_write_bytecode = True
import tap

THREADS, COMMENTS, RESULTS = 8, 2000, 500


def many_comments(number: int) -> None:
    for i in range(COMMENTS):
        tap.comment(f"thread {number} says {i}")


def forever() -> None:
    while True:
        tap.comment("goes on")


def child() -> None:
    tap.plan(RESULTS)
    threading.Thread(target=forever, daemon=True).start()
    threads = [threading.Thread(target=many_comments, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for i in range(RESULTS):
        tap.ok(i % 100 != 7, "a result", ["why", f"it is {i}"])
    for thread in threads:
        thread.join()
    tap.end()


def asked(word: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, sys.argv[0], word], capture_output=True, text=True, timeout=120, check=False)


def main() -> None:
    if sys.argv[1:] == ["threads"]:
        child()
    if sys.argv[1:] == ["long"]:
        tap.ok(False, "s", "x" * 100000 + "\udc80\n" + "\u20ac" * 5000)
        tap.skip("left", "it: why")
        tap.skip_all("all: why")
    tap.plan(3)
    done = asked("threads")
    said = done.stdout.split("\n")
    wanted = [f"# thread {number} says {i}" for number in range(THREADS) for i in range(COMMENTS)]
    for i in range(RESULTS):
        wanted += [f"not ok {i + 1} - a result", "# why", f"# it is {i}"] if i % 100 == 7 else [f"ok {i + 1} - a result"]
    wanted += [f"1..{RESULTS}", ""]
    tap.ok(sorted(line for line in said if line != "# goes on") == sorted(wanted), "each line of nine threads is whole, and none is missing",
           sorted(set(said) - {*wanted, "# goes on"}) or f"{len(said)} lines")
    below = [said[at + 1] for at, line in enumerate(said) if line.startswith("not ok ")]
    tap.ok(below == ["# why"] * 5 and done.returncode == 1 and done.stderr == "",
           "reasons stand below their result, and a program that goes on printing ends as it should", [below, done.returncode, done.stderr])
    lines = asked("long").stdout.split("\n")
    tap.ok([len(line) for line in lines[1:3]] == [1000, 1000] and lines[3:] == ["ok 2 - left # SKIP it: why", "1..0 # SKIP all: why", ""],
           "long lines are cut, and what is left out is told", lines)
    tap.end()


main()
