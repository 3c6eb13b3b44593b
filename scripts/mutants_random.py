#!/usr/bin/env python3
"""mutants_random.py FOLDER [COUNT [SEED]] -- a test of the tests: random mistakes in engine/ and sync/ must be caught.

A mistake is one change of a comparison or a constant (mutations.py). COUNT (20) of them are drawn by SEED, which is random
if it is not given. Each is compiled in a copy of the tree below FOLDER, and the programs of unit/, model/ and sim/ that
execute the file (coverage.py) are built and played, the closest first, until one fails twice or hangs. Two mistakes are played
at a time, one for each processor. A file that is included by many others takes long to compile, and is left out.
A mistake does not count if it does not compile, if the compiler makes the same code of it, or if no program reaches it: the
program ends where the mistake was, and all tests pass.
Always true: one line of output for each mistake, and exit status 0 only if all are caught. The same tree and seed make the same
mistakes. A program is played only if it passes in the tree as it is. The tree itself is not touched.
Elsewhere: mistakes that a person thought of (mutants.py)."""
import concurrent.futures
import difflib
import glob
import hashlib
import json
import os
import queue
import random
import re
import sys
import threading
import time
from collections import defaultdict

sys.dont_write_bytecode = True
import coverage
import mutants
import mutations

SUITES = ("unit", "model", "sim")
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
DEPENDENTS_MAX = 60  # files that a header's change compiles anew
SLOW_S = 4.0  # a program that takes longer is played after the others
LIBRARY = "libtallywheel.a"
OPTIONS = ["-Doptimization=1", "-Ddebug=false", "-Dredis=enabled", "-Dtests=enabled", "-Dtools=false"]


def read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def play(copy: str, program: str, seconds: float) -> str:
    """As ./dev test does: with the seeds of the round, and with memory that is never zero by chance."""
    folder = os.path.join(copy, "build")
    seeds = read(os.path.join(mutants.ROOT, "tests", "seeds", "round")).strip()
    environment = dict(os.environ, MALLOC_PERTURB_="165", TW_SEED_ROUND=seeds)
    return mutants.run(os.path.join(folder, program), seconds, cwd=folder, env=environment)


# ---- which changes, and which programs ------------------------------------------------------------------------------


class Sources:
    """Paths are relative to the tree, which is the current folder."""

    def __init__(self) -> None:
        self.map = coverage.Map()
        self.users: dict[str, set[str]] = defaultdict(set)  # file -> those that include it
        for path in glob.glob("engine/**/*.[ch]", recursive=True) + glob.glob("sync/**/*.[ch]", recursive=True):
            for name in INCLUDE.findall(read(path)):
                self.users[name].add(path)

    def dependents(self, path: str) -> set[str]:
        found, waiting = {path}, [path]
        while waiting:
            waiting += (more := self.users[waiting.pop()] - found)
            found |= more
        return found

    def programs_of(self, change: mutations.Change) -> list[str]:
        """As ninja knows them, the closest first: of the function if few tests execute it, or else of the file."""
        of_file = [name for name, _ in self.map.files.get(change.path, [])]
        known = self.map.functions.get(change.path, {}).get(change.function, of_file)
        return [f"tests/{name.replace('/', '_')}" for name in known if name.split("/")[0] in SUITES]

    def drawn(self, seed: int) -> list[mutations.Change]:
        """Every place once, in an order that the seed decides, with one of its changes."""
        drawing, places = random.Random(seed), defaultdict(list)
        for top in ("engine", "sync"):
            for path in sorted(glob.glob(f"{top}/**/*.[ch]", recursive=True)):
                if len(self.dependents(path)) <= DEPENDENTS_MAX:
                    for change in mutations.changes_of(path):
                        places[path, change.at].append(change)
        changes = [drawing.choice(of_place) for of_place in places.values()]
        drawing.shuffle(changes)
        return changes


# ---- copies of the tree ---------------------------------------------------------------------------------------------


class Copy:
    """One is never changed: the others are compared with it."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        mutants.prepare(folder, OPTIONS)
        said = mutants.ninja(folder, LIBRARY)
        if said:
            sys.exit("the tree as it is " + said)
        self.code = self.objects()

    def objects(self) -> dict[str, str]:
        """What the compiler made of each file of the library."""
        found = {}
        for path in glob.glob(os.path.join(self.folder, "build", "libtallywheel*.p", "*.o")):
            with open(path, "rb") as file:
                found[os.path.basename(path)] = hashlib.sha256(file.read()).hexdigest()
        return found

    def write(self, path: str, text: str) -> None:
        with open(os.path.join(self.folder, path), "w", encoding="utf-8") as file:
            file.write(text)


class AsItIs(Copy):
    """Remembers how long each program takes, if it passes. The folder has the answers of earlier runs."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self.answers_path = os.path.join(folder, "..", "as_it_is.json")
        self.answers = json.loads(read(self.answers_path)) if os.path.exists(self.answers_path) else {}
        self.asked: set[str] = set()  # in this run
        self.lock = threading.Lock()

    def is_slow(self, program: str) -> bool:
        guess = 0.0 if program.startswith("tests/unit_") else SLOW_S
        return self.answers.get(program, {}).get("seconds", guess) >= SLOW_S

    def seconds(self, program: str) -> float | None:
        """Nothing if it does not pass, or is none of this build."""
        answer = self.answers.get(program, {})
        if program in self.asked:
            return answer["seconds"] if answer["said"] == "passes" else None
        with self.lock:
            if mutants.ninja(self.folder, program):
                return None
        with open(os.path.join(self.folder, "build", program), "rb") as file:
            made = hashlib.sha256(file.read()).hexdigest()
        if answer.get("made") != made:
            begun = time.monotonic()
            said = play(self.folder, program, 300)
            answer = {"made": made, "said": said, "seconds": round(time.monotonic() - begun, 2)}
            self.remember(program, answer)
        self.asked.add(program)
        return answer["seconds"] if answer["said"] == "passes" else None

    def remember(self, program: str, answer: dict) -> None:
        if answer["said"] != "passes":
            print(f"left out: {program} {answer['said']} in the tree as it is", flush=True)
        with self.lock:
            self.answers[program] = answer
            with open(self.answers_path, "w", encoding="utf-8") as file:
                json.dump(self.answers, file, indent=1, sort_keys=True)


# ---- one mistake ----------------------------------------------------------------------------------------------------


def fails(copy: Copy, as_it_is: AsItIs, program: str) -> str:
    """What the program says of the mistake, or nothing. Once is not enough: the machine may be busy."""
    seconds = as_it_is.seconds(program)
    if seconds is None or mutants.ninja(copy.folder, program):
        return ""
    for _ in range(2):
        said = play(copy.folder, program, 20 + 10 * seconds)
        if said != "fails":
            return said if said == "hangs" else ""
    return "fails"


def judged(change: mutations.Change, copy: Copy, as_it_is: AsItIs, programs: list[str]) -> str:
    """`caught by PROGRAM`, `LIVES`, or why it does not count."""
    text = read(change.path)
    try:
        copy.write(change.path, change.applied(text))
        if mutants.ninja(copy.folder, LIBRARY):
            return "does not compile"
        if copy.objects() == copy.code:
            return "same code"
        programs = sorted(programs, key=as_it_is.is_slow)
        for program in programs:
            said = fails(copy, as_it_is, program)
            if said:
                return f"caught by {program[6:]}{', which hangs' if said == 'hangs' else ''}"
        copy.write(change.path, change.trapped(text))
        if mutants.ninja(copy.folder, LIBRARY):
            return "LIVES"  # a constant that the compiler needs, such as a size
        return "LIVES" if any(fails(copy, as_it_is, program) for program in programs) else "not reached"
    finally:
        copy.write(change.path, text)


def difference(change: mutations.Change) -> str:
    text = read(change.path)
    lines = [side.splitlines(keepends=True) for side in (text, change.applied(text))]
    return "".join(difflib.unified_diff(*lines, f"a/{change.path}", f"b/{change.path}", n=2))


def check(folder: str, count: int, seed: int) -> int:
    sources = Sources()
    as_it_is = AsItIs(os.path.join(folder, "tree0"))
    copies: queue.Queue = queue.Queue()
    players = os.cpu_count() or 2
    for number in range(1, players + 1):
        copies.put(Copy(os.path.join(folder, f"tree{number}")))

    def judge(change: mutations.Change, programs: list[str]) -> str:
        copy = copies.get()
        try:
            return judged(change, copy, as_it_is, programs)
        finally:
            copies.put(copy)

    said: dict[str, int] = defaultdict(int)
    living, counted, waiting = [], 0, []
    changes = ((change, programs) for change in sources.drawn(seed) if (programs := sources.programs_of(change)))
    with concurrent.futures.ThreadPoolExecutor(players) as pool:
        while counted < count:
            while counted + len(waiting) < count and len(waiting) < players:
                change, programs = next(changes)
                waiting.append((change, pool.submit(judge, change, programs)))
            change, answer = waiting.pop(0)
            verdict = answer.result()
            print(f"{verdict:48} {change}", flush=True)
            said[verdict.split()[0]] += 1
            counted += verdict == "LIVES" or verdict.startswith("caught")
            living += [change] if verdict == "LIVES" else []
    for change in living:
        print(f"\nLIVES: {change}\n{difference(change)}")
    left = said["does"] + said["same"] + said["not"]
    print(f"seed {seed}: {counted} mistakes, {said['caught']} caught, {len(living)} live; {left} more do not count: "
          f"{said['same']} same code, {said['does']} do not compile, {said['not']} not reached")
    return 1 if living else 0


def main() -> int:
    os.chdir(mutants.ROOT)
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.SystemRandom().randrange(1 << 31)
    print(f"seed {seed}", flush=True)
    return check(os.path.abspath(sys.argv[1]), count, seed)


if __name__ == "__main__":
    sys.exit(main())
