#!/usr/bin/env python3
"""quick.py BUILD [FILE...] -- for ./dev quick: which tests to run for the files that differ from the last commit, or for FILE...

Prints "build TARGET..." (of BUILD, for ninja) and "run NAME..." (for meson test); on standard error which tests these are, which
file each is for, and what else covers a file that no quick test covers.
Of each file the closest test comes first, in turn, until the time is spent. The closest are: those of a function that has
changed, if few tests execute it; those that name the file; those of tests/coverage.txt; without any, those that use its names.
A test that has changed covers itself, a file that tests share covers those that include it.
Always true: the same files, map and number of processors choose the same tests."""
import glob
import json
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
import coverage
import covers

TIME_S = 22.0  # for each processor; the rest of half a minute is for those that are begun last
LONGEST_S = 20.0
UNKNOWN_S = 2.0
WAITING = {"redis": 3.0, "cli": 2.0}  # suites that wait for servers and clocks: so many of their seconds cost one
BY_TEXT = 8  # how many tests that only use the file's names are worth it
HUNK_FUNCTION = re.compile(r"^@@ .*@@ [^(]*?(\w+)\(", re.MULTILINE)
INCLUDED = re.compile(r'^#include "(tests/[^"]+)"', re.MULTILINE)
OTHERS = [  # what covers a file that no test of BUILD covers in half a minute
    (r"^docs/|\.md$", "sh scripts/layers.sh"),
    (r"^scripts/|\.sh$", "sh tests/cli/scripts.sh . && ./dev check scripts layers"),
    (r"^(?:nginx|bindings)/", "meson test -C build --suite host"),
    (r"^(?:examples|tests/user)/", "meson test -C build --suite user"),
    (r"^tests/fuzz/", "./dev check fuzz"),
    (r"^tests/orderings/", "./dev check models"),
    (r"^tests/sim/mutants/", "./dev check mutants"),
    (r"^bench/", "./dev bench"),
    (r"", "./dev test"),
]


def git(*words: str) -> str:
    done = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


def changed_files() -> list[str]:
    names = git("diff", "HEAD", "--name-only", "--diff-filter=d", "--relative").splitlines()
    return sorted(set(names + git("ls-files", "--others", "--exclude-standard").splitlines()))


class Chooser:
    def __init__(self, build: str) -> None:
        self.map = coverage.Map()
        self.tree = covers.Tree()
        self.meson: dict[str, dict] = {}  # SUITE/NAME -> what meson says
        for test in json.loads(subprocess.check_output(["meson", "introspect", "--tests", build])):
            suites = [name.split(":")[-1] for name in test["suite"]]
            if "long" not in suites and " " not in test["name"]:
                self.meson[f"{suites[0]}/{test['name']}"] = test
        targets = json.loads(subprocess.check_output(["meson", "introspect", "--targets", build]))
        real = os.path.realpath(build)
        self.targets = {target["id"]: [os.path.relpath(name, real) for name in target["filename"]] for target in targets}

    def test_of(self, path: str) -> str:
        """SUITE/NAME of a file of tests/, or nothing."""
        parts, stem = path.split("/"), os.path.splitext(os.path.basename(path))[0]
        for name in (f"{parts[1]}/{stem}", f"once/{stem}", f"host/nginx_{stem}"):
            if name in self.meson and parts[0] == "tests":
                return name
        return ""

    def including(self, path: str) -> list[str]:
        """Tests that include a file of tests/, or its header, the cheapest first."""
        wanted, found = {os.path.splitext(path)[0] + ".h"}, set()
        includes = {name: set(INCLUDED.findall(covers.read(name))) for name in glob.glob("tests/**/*.[ch]", recursive=True)}
        for _ in range(3):  # by a header that includes it, too
            found = {name for name, those in includes.items() if those & wanted}
            wanted |= {name for name in found if name.endswith(".h")}
        tests = sorted({test for name in found if (test := self.test_of(name))})
        return sorted(tests, key=self.seconds)

    def seconds(self, test: str) -> float:
        return self.map.seconds.get(test, UNKNOWN_S)

    def closest(self, path: str) -> list[str]:
        if path == "dev":
            return ["once/dev"]
        if path.startswith("tests/"):
            return [test] if (test := self.test_of(path)) else self.including(path)
        few = self.map.functions.get(path, {})
        changed = dict.fromkeys(HUNK_FUNCTION.findall(git("diff", "HEAD", "--unified=0", "--", path)))
        tests = [test for name in changed for test in few.get(name, [])]
        stem = os.path.splitext(path)[0]
        if stem in self.tree.sources:
            by_text = self.tree.tests_of(stem)
            named = [name for name in by_text if self.tree.is_named(name, stem)]
            tests += map(self.test_of, named)
            if path not in self.map.files:
                tests += map(self.test_of, by_text[: len(named) + BY_TEXT])
        tests += [test for test, _ in self.map.files.get(path, [])]
        return [test for test in dict.fromkeys(tests) if test in self.meson]

    def choose(self, paths: list[str]) -> dict[str, list[str]]:
        """Test -> the files that it is for."""
        ranks = {path: [test for test in self.closest(path) if self.seconds(test) <= LONGEST_S] for path in paths}
        chosen: dict[str, list[str]] = {}
        left = TIME_S * (os.cpu_count() or 2)
        for rank in range(max(map(len, ranks.values()), default=0)):
            for path, tests in ranks.items():
                if rank >= len(tests):
                    continue
                cost = self.seconds(tests[rank]) / WAITING.get(tests[rank].split("/")[0], 1)
                if tests[rank] in chosen or cost <= left:
                    left -= 0 if tests[rank] in chosen else cost
                    chosen.setdefault(tests[rank], []).append(path)
        return chosen


def main() -> int:
    build, paths = os.path.abspath(sys.argv[1]), [os.path.abspath(path) for path in sys.argv[2:]]
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    paths = [os.path.relpath(path) for path in paths] or changed_files()
    if not paths:
        print("dev: no file differs from the last commit", file=sys.stderr)
    chooser = Chooser(build)
    chosen = chooser.choose(paths)
    for path in paths:
        tests = [test for test, files in chosen.items() if path in files]
        other = next(command for pattern, command in OTHERS if re.search(pattern, path))
        print(f"dev: {path}: {' '.join(tests) or 'no quick test covers it; run ' + other}", file=sys.stderr)
    # meson knows tests by their names: a namesake in another suite runs as well.
    names = sorted({test.split("/")[1] for test in chosen})
    running = [test for test in chooser.meson.values() if test["name"] in names]
    targets = {name for test in running for target in test["depends"] for name in chooser.targets[target]}
    print("build", *sorted(targets))
    print("run", *names)
    return 0


if __name__ == "__main__":
    sys.exit(main())
