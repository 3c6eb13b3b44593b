#!/usr/bin/env python3
"""coverage.py [FILE... | --learn BUILD [SUITE/NAME...] | --times BUILD [SUITE/NAME...] | --prune] -- which tests execute a source
file, by gcov: tests/coverage.txt, whose first lines say what the others mean.

    FILE      prints the tests of that file, such as engine/turn/closing.c, the closest first
    --learn   runs the tests of BUILD, a build with -Db_coverage=true, and writes what each has executed into that file
    --times   runs the tests of BUILD, one like ./dev test's, and writes how long each has taken
    --prune   takes out of that file what the project does not have any more
    nothing   prints what that file names and the project does not have
`./dev check coverage` measures times, then learns. With SUITE/NAME only these tests run, and what is known of others stays.
Always true: a test is SUITE/NAME, as meson names it; what two tests execute is never mixed; tests that fail count like others.
Elsewhere: which tests a change needs (quick.py)."""
import concurrent.futures
import glob
import json
import math
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from functools import lru_cache

sys.dont_write_bytecode = True

MAP = "tests/coverage.txt"
HEAD = """\
# Which tests execute which source file: measured by ./dev check coverage (scripts/coverage.py), read by ./dev quick and by
# scripts/covers.py. Nobody writes it by hand. First each test with the seconds it takes. Then each source file with the lines
# that have code, the number of tests that execute any of them, and the closest tests with the percent of lines that each
# executes. Below a file stand those of its functions that few tests execute, with these tests.
"""
FILE = re.compile(r"^([\w/]+\.[ch]) (\d+) lines, (\d+) tests: (.*)$")
FUNCTION = re.compile(r"^  (\w+): (.*)$")
SECONDS = re.compile(r"^(\w+/\w+) ([\d.]+) s$")
TOPS = ("engine/", "sync/", "extras/", "tools/")
SUITES = ("unit", "model", "stress", "sim", "fault", "redis", "cli")
SCALE = "25"  # TW_SCALE, percent: ./dev quick's, too
LIMIT_S = 240
CLOSEST = 16  # tests that are named for a file
FEW = 10  # a function that at most so many tests execute is named
CLOSEST_OF_FUNCTION = 4


class Map:
    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.files: dict[str, list[tuple[str, int]]] = {}  # path -> (test, percent), the closest first
        self.functions: dict[str, dict[str, list[str]]] = {}  # path -> function -> tests
        self.counts: dict[str, tuple[int, int]] = {}  # path -> lines with code, tests
        path = ""
        for line in read(MAP).splitlines():
            if found := SECONDS.match(line):
                self.seconds[found.group(1)] = float(found.group(2))
            elif found := FILE.match(line):
                path, words = found.group(1), found.group(4).split()
                self.files[path] = [(name, int(percent)) for name, percent in zip(words[::2], words[1::2])]
                self.functions[path] = {}
                self.counts[path] = (int(found.group(2)), int(found.group(3)))
            elif found := FUNCTION.match(line):
                self.functions[path][found.group(1)] = found.group(2).split()

    def write(self) -> None:
        lines = [f"{test} {seconds:.1f} s" for test, seconds in sorted(self.seconds.items())]
        for path in sorted(self.files):
            tests = " ".join(f"{test} {percent}" for test, percent in self.files[path])
            lines.append("{} {} lines, {} tests: {}".format(path, *self.counts[path], tests))
            lines += [f"  {name}: {' '.join(tests)}" for name, tests in sorted(self.functions[path].items())]
        with open(MAP, "w", encoding="utf-8") as file:
            file.write(HEAD + "\n".join(lines) + "\n")

    def missing(self) -> tuple[list[str], list[str]]:
        """Source files and tests that the project does not have."""
        tests = set(self.seconds) | {test for tests in self.files.values() for test, _ in tests}
        return ([path for path in self.files if not os.path.exists(path)], sorted(test for test in tests if not source_of(test)))

    def prune(self) -> None:
        files, tests = map(set, self.missing())
        self.seconds = {test: seconds for test, seconds in self.seconds.items() if test not in tests}
        for path in files:
            del self.files[path], self.functions[path]
        for path in self.files:
            self.files[path] = [row for row in self.files[path] if row[0] not in tests]
            kept = {name: [test for test in found if test not in tests] for name, found in self.functions[path].items()}
            self.functions[path] = {name: found for name, found in kept.items() if found}


def read(path: str) -> str:
    if not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8") as file:
        return file.read()


def source_of(test: str) -> str:
    """The file of SUITE/NAME, or nothing."""
    suite, name = test.split("/")
    for pattern in (f"tests/{suite}/{name}.*", f"tests/{suite}/**/{name}.*"):
        found = [path for path in sorted(glob.glob(pattern, recursive=True)) if path.endswith((".c", ".sh", ".py"))]
        if found:
            return found[0]
    # These have a name of their own in a meson.build.
    named = [path for path in glob.glob("tests/**/meson.build", recursive=True) if f"test('{name}'" in read(path)]
    return named[0] if named else ""


def programs_of(path: str) -> list[tuple[str, str, int]]:
    """(suite, name, percent of the file's lines that it executes), the closest first; nothing if the map has no such file."""
    return [(*test.split("/"), percent) for test, percent in Map().files.get(path, [])]


def differences() -> list[str]:
    files, tests = Map().missing()
    remedy = "(python3 scripts/coverage.py --prune, or ./dev check coverage)"
    return [f"{MAP}: there is no {name} {remedy}" for name in files + tests]


# ---- running ----------------------------------------------------------------------------------------------------------


def tests_of(build: str, wanted: list[str]) -> dict[str, dict]:
    """SUITE/NAME -> what meson says of it: those of SUITES that run something of the product."""
    found = {}
    for test in json.loads(subprocess.check_output(["meson", "introspect", "--tests", build])):
        suites = [name.split(":")[-1] for name in test["suite"]]
        name = f"{suites[0]}/{test['name']}"
        if suites[0] in SUITES and "long" not in suites and test["depends"] and (not wanted or name in wanted):
            found[name] = test
    return dict(sorted(found.items(), key=lambda item: SUITES.index(item[0].split("/")[0])))  # units are the quickest


def play(build: str, test: dict, more: dict[str, str]) -> tuple[float, bool]:
    """Seconds, and whether it passed. Whatever it has begun ends with it."""
    environment = {**os.environ, **test["env"], "TW_SCALE": SCALE, **more}
    begin = time.monotonic()
    process = subprocess.Popen(test["cmd"], cwd=test["workdir"] or build, env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        passed = process.wait(LIMIT_S) == 0
    except subprocess.TimeoutExpired:
        passed = False
    seconds = time.monotonic() - begin
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
    return seconds, passed


def bits(numbers) -> int:
    found = 0
    for number in numbers:
        found |= 1 << number
    return found


def executed_of(counters: list[str], folder: str, root: str) -> dict:
    """path -> (lines that have code, lines executed, function -> lines that have code). Sets of lines are bits of a number."""
    if not counters:
        return {}
    said = subprocess.run(["gcov", "--relative-only", "--json-format", "--stdout", *counters], cwd=folder, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, check=False).stdout
    found: dict = {}
    for line in said.splitlines():
        try:
            unit = json.loads(line)
        except ValueError:  # cut short by a test that was killed
            continue
        for file in unit["files"]:
            path = os.path.relpath(os.path.join(unit["current_working_directory"], file["file"]), root)
            if not path.startswith(TOPS) or not file["lines"]:
                continue
            code, run, functions = found.get(path, (0, 0, {}))
            by_function = defaultdict(list)
            for row in file["lines"]:
                by_function[row.get("function_name", "")].append(row["line_number"])
            for name, numbers in by_function.items():
                functions[name] = functions.get(name, 0) | bits(numbers)
            code |= bits(row["line_number"] for row in file["lines"])
            run |= bits(row["line_number"] for row in file["lines"] if row["count"])
            found[path] = (code, run, functions)
    return found


@lru_cache(maxsize=None)
def folder_of(build: str) -> str:
    """This process's, for counters: gcov wants the compiler's notes beside them."""
    folder = os.path.join(build + "-counters", str(os.getpid()))
    for note in glob.glob(build + "/**/*.gcno", recursive=True):
        beside = os.path.join(folder, os.path.relpath(note, build))
        os.makedirs(os.path.dirname(beside), exist_ok=True)
        os.symlink(note, beside)
    return folder


def learn_one(build: str, root: str, name: str, test: dict) -> tuple[str, bool, dict]:
    folder = folder_of(build)
    above = len([part for part in build.split("/") if part])
    _, passed = play(build, test, {"GCOV_PREFIX": folder, "GCOV_PREFIX_STRIP": str(above)})
    counters = [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names if name.endswith(".gcda")]
    found = executed_of(counters, folder, root)
    for path in counters:
        os.remove(path)
    return name, passed, found


# ---- choosing the closest ---------------------------------------------------------------------------------------------


class Learned:
    """Of all tests: path -> lines that have code; path -> function -> its lines; path -> test -> lines it has executed."""

    def __init__(self) -> None:
        self.code: dict[str, int] = {}
        self.functions: dict[str, dict[str, int]] = {}
        self.executed: dict[str, dict[str, int]] = {}

    def add(self, test: str, found: dict) -> None:
        for by_test in self.executed.values():
            by_test.pop(test, None)
        for path, (code, run, functions) in found.items():
            self.code[path] = self.code.get(path, 0) | code
            lines = self.functions.setdefault(path, {})
            for name, numbers in functions.items():
                lines[name] = lines.get(name, 0) | numbers
            by_test = self.executed.setdefault(path, {})
            if run:
                by_test[test] = run

    def totals(self) -> dict[str, int]:
        """test -> the lines it executes in all files: whoever executes few looks at them closely."""
        found: dict[str, int] = defaultdict(int)
        for by_test in self.executed.values():
            for test, run in by_test.items():
                found[test] += run.bit_count()
        return found

    def fill(self, known: Map) -> None:
        known.files, known.functions, known.counts = {}, {}, {}
        totals = self.totals()
        for path, by_test in self.executed.items():
            if not by_test or not os.path.exists(path):
                continue
            lines = self.code[path].bit_count()
            order = closest(by_test, totals, known.seconds, CLOSEST)
            known.files[path] = [(test, round(100 * by_test[test].bit_count() / lines)) for test in order]
            known.counts[path] = (lines, len(by_test))
            known.functions[path] = {}
            for name, numbers in self.functions[path].items():
                having = {test: run & numbers for test, run in by_test.items() if run & numbers}
                if name and 0 < len(having) <= FEW < len(by_test):
                    known.functions[path][name] = closest(having, totals, known.seconds, CLOSEST_OF_FUNCTION)


def closest(by_test: dict[str, int], totals: dict[str, int], seconds: dict[str, float], number: int) -> list[str]:
    """The next is always the one that adds most: a line that many tests execute adds less, so does one that was executed before,
    by a test that executes much else, or that takes long."""
    tests_at: dict[int, list[str]] = defaultdict(list)
    for test, run in sorted(by_test.items()):
        for at in range(run.bit_length()):
            if run >> at & 1:
                tests_at[at].append(test)
    worth: dict[tuple, float] = defaultdict(float)  # lines that the same tests execute are one
    for tests in tests_at.values():
        worth[tuple(tests)] += 1 / math.sqrt(len(tests))
    of_test = defaultdict(list)
    for tests in worth:
        for test in tests:
            of_test[test].append(tests)
    factor = {test: 1 / math.sqrt(totals[test] * (1 + seconds.get(test, 1))) for test in by_test}
    left, order = sorted(by_test), []
    while left and len(order) < number:
        best = max(left, key=lambda test: sum(worth[lines] for lines in of_test[test]) * factor[test])
        left.remove(best)
        order.append(best)
        for lines in of_test[best]:
            worth[lines] /= 2
    return order


# ---- main -------------------------------------------------------------------------------------------------------------


def learn(build: str, wanted: list[str]) -> None:
    kept, root, learned = build + "/learned.pickle", os.getcwd(), Learned()
    shutil.rmtree(build + "-counters", ignore_errors=True)
    if wanted and os.path.exists(kept):
        with open(kept, "rb") as file:
            learned = pickle.load(file)
    with concurrent.futures.ProcessPoolExecutor(4 * (os.cpu_count() or 2)) as players:
        games = [players.submit(learn_one, build, root, name, test) for name, test in tests_of(build, wanted).items()]
        for game in concurrent.futures.as_completed(games):
            name, passed, found = game.result()
            learned.add(name, found)
            lines = sum(run.bit_count() for _, run, _ in found.values())
            print(f"{name}: {lines} lines" + ("" if passed else " (it failed)"), flush=True)
            with open(kept, "wb") as file:  # whoever is stopped can learn the rest by name
                pickle.dump(learned, file)
    known = Map()
    learned.fill(known)
    known.write()


def measure(build: str, wanted: list[str]) -> None:
    known = Map()
    with concurrent.futures.ThreadPoolExecutor(2 * (os.cpu_count() or 2)) as players:
        games = {name: players.submit(play, build, test, {}) for name, test in tests_of(build, wanted).items()}
        for name, game in games.items():
            known.seconds[name], passed = game.result()
            print(f"{name}: {known.seconds[name]:.1f} s" + ("" if passed else " (it failed)"), flush=True)
    known.write()


def main() -> int:
    os.chdir(os.environ.get("TW_ROOT") or os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    if sys.argv[1:2] in (["--learn"], ["--times"]) and len(sys.argv) > 2:
        (learn if sys.argv[1] == "--learn" else measure)(os.path.abspath(sys.argv[2]), sys.argv[3:])
        return 0
    if sys.argv[1:] == ["--prune"]:
        known = Map()
        known.prune()
        known.write()
        return 0
    for path in sys.argv[1:]:
        for suite, name, percent in programs_of(path):
            print(f"{suite}/{name} {percent} %")
    wrong = [] if sys.argv[1:] else differences()
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
