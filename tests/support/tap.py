"""tap.py -- the results of a test program in Python, as TAP. A program of tests/NAME/ imports it so:

    sys.dont_write_bytecode = True
    sys.path.append(sys.path[0] + "/../support")
    import tap

Always true: a result and a comment are whole lines, whatever threads print at the same time, because each is written by
one write() under a lock. Nothing else writes to standard output. What is printed has left the process.
"""
import os
import sys
import threading

COMMENT_LINES_MAX = 20
COLUMNS_MAX = 1000  # four bytes each at most: a line is no longer than a pipe takes as one
lock = threading.Lock()
count = 0
failed = 0


def put(lines: list) -> None:
    """Whole lines. The caller has the lock."""
    for line in lines:
        left = (line[:COLUMNS_MAX] + "\n").encode(errors="backslashreplace")
        while left:
            left = left[os.write(1, left):]


def comments(text) -> list:
    """A text, or a list of anything. At most so many lines of it."""
    parts = text if isinstance(text, (list, tuple, set)) else [text]
    return ["# " + line for part in parts for line in str(part).splitlines()][:COMMENT_LINES_MAX]


def comment(text) -> None:
    """From any thread."""
    with lock:
        put(comments(text))


def plan(tests: int) -> None:
    with lock:
        put([f"1..{tests}"])


def ok(good, sentence: str, why="") -> bool:
    """A result. If the test has failed, `why` stands below it."""
    global count, failed
    with lock:
        count += 1
        failed += not good
        put([f"{'ok' if good else 'not ok'} {count} - {sentence}"] + ([] if good else comments(why)))
    return bool(good)


def no_faults(faults: list, sentence: str) -> bool:
    """A result: good if the list is empty."""
    return ok(not faults, sentence, faults)


def skip(sentence: str, why: str) -> None:
    ok(True, f"{sentence} # SKIP {why}")


def skip_all(why: str) -> None:
    """In place of the plan. Ends the program."""
    with lock:
        put([f"1..0 # SKIP {why}"])
    sys.exit(0)


def end(plans: bool = False) -> None:
    """Ends the program; with the plan, if it could not be known before."""
    if plans:
        plan(count)
    sys.exit(failed != 0)
