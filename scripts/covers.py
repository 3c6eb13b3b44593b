#!/usr/bin/env python3
"""covers.py [FILE... | --renew] -- which tests cover a source file.

    FILE      prints the tests of that file, such as engine/table/area.c, the closest first
    --renew   writes the table of source files and their closest tests into docs/TESTING.md
    nothing   prints where that table differs from the sources and tests, and files without a test
A test covers a file if its head names the file ("Covers: engine/limit/sliding.c"), if it has the file's name
(unit/table/area_test.c), or if it uses a function or a macro that the file defines. A name that few tests use counts more
than a name that many tests use. FILE's tests are those that name it, and those that were measured to execute it
(tests/coverage.txt); where nothing was measured, those that use its names. The table goes by names alone: it stays as it is
when somebody measures again. Nothing is compiled or run.
Always true: exit status 0 only if the table is up to date and each file has a test.
Elsewhere: what was measured (coverage.py); what a change needs (quick.py); whether a test finds a mistake (mutants.py); faults
and their tests (docs/TESTING.md)."""
import glob
import os
import re
import sys
import textwrap
from collections import defaultdict

sys.dont_write_bytecode = True
import c_source
import coverage
import files

LIST = files.PageList("docs/TESTING.md", "covers")
WORD = re.compile(r"[A-Za-z_]\w{4,}")
COVERS = re.compile(r"^(?: \*|#|//)? ?Covers: (.*?)\.(?: \*/|\n)", re.MULTILINE | re.DOTALL)
DECLARED = re.compile(r"^(?!static|typedef|#)[\w *]*\b(twi_\w+)\(", re.MULTILINE)
NAMED, SAME_NAME = 1000.0, 500.0  # any number of names that a test uses weighs less
WITHOUT = re.compile(r"_none$")  # these files replace others in a build without Redis, TLS or a terminal


def read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def names_of(paths: list[str]) -> set[str]:
    """What other files can call: functions, macros of a header, functions that a header declares."""
    names: set[str] = set()
    for path in paths:
        if path.endswith(".lua"):
            continue
        found = c_source.functions(path)
        is_header = path.endswith(".h")
        names |= {name for name, text in found.items() if is_header or not re.match(r"(?:TWI_\w+\s+)*static\b", text)}
        if is_header:
            names |= {name for name in c_source.macros(path) if not name.endswith("_H")}
            names |= set(DECLARED.findall(read(path))) if len(paths) == 1 else set()
    return {name for name in names if WORD.fullmatch(name)}


class Tree:
    def __init__(self) -> None:
        self.sources: dict[str, list[str]] = defaultdict(list)  # without the ending -> its files
        for room in [*files.rooms(), "sync/script"]:
            for path in sorted(glob.glob(room + "/*.[ch]") + glob.glob(room + "/*.lua")):
                self.sources[os.path.splitext(path)[0]].append(path)
        self.names = {stem: names_of(paths) for stem, paths in self.sources.items()}
        defined = set().union(*self.names.values())
        self.uses: dict[str, set[str]] = {}  # test -> the names of sources in it
        self.named: dict[str, set[str]] = {}  # test -> the files in its head, without the ending
        self.wrong: list[str] = []
        users: dict[str, int] = defaultdict(int)
        for test in sorted(glob.glob("tests/**/*", recursive=True)):
            if not test.endswith((".c", ".cpp", ".sh", ".py")) or re.search(r"/(?:mutants|support|user)/", test):
                continue
            text = read(test)
            self.uses[test] = defined & set(WORD.findall(text))
            lists = " ".join(COVERS.findall(text))
            paths = re.findall(r"[a-z][\w/]*\.(?:lua|[ch])\b", lists)
            self.named[test] = {os.path.splitext(path)[0] for path in paths}
            self.wrong += [f"{test}: there is no {path}" for path in paths if not os.path.exists(path)]
            for name in self.uses[test]:
                users[name] += 1
        self.weight = {name: 1 / count for name, count in users.items()}

    def has_name_of(self, test: str, stem: str) -> bool:
        room, base = os.path.split(stem)
        folder = room.split("/")[1] if room.startswith("engine/") else room.split("/")[0]
        return test == f"tests/unit/{folder}/{base}_test.c"

    def is_named(self, test: str, stem: str) -> bool:
        return stem in self.named[test] or self.has_name_of(test, stem)

    def score(self, test: str, stem: str) -> float:
        score = sum(self.weight[name] for name in self.names[stem] & self.uses[test])
        score += NAMED if stem in self.named[test] else 0
        return score + (SAME_NAME if self.has_name_of(test, stem) else 0)

    def tests_of(self, stem: str) -> list[str]:
        scored = [(-self.score(test, stem), test) for test in self.uses]
        return [test for score, test in sorted(scored) if score < 0]

    def rows(self) -> list[str]:
        rows = []
        for room in [*files.rooms(), "sync/script"]:
            by_test: dict[str, list[str]] = {}
            for stem in self.sources:
                if os.path.dirname(stem) == room and not WITHOUT.search(stem):
                    tests = self.tests_of(stem)
                    if tests and not re.fullmatch(rf".*/{os.path.basename(stem)}(?:_test)?\.\w+", tests[0]):
                        by_test.setdefault(re.sub(r"^tests/|\.c$", "", tests[0]), []).append(os.path.basename(stem))
            cells = [f"**{test}** {' '.join(stems)}" for test, stems in sorted(by_test.items())]
            text = f"- `{room}/`: " + ", ".join(cells)
            rows += textwrap.wrap(text, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False) if cells else []
        return rows

    def without_tests(self, measured: coverage.Map) -> list[str]:
        return [paths[0] for stem, paths in self.sources.items()
                if not WITHOUT.search(stem) and not measured.files.keys() & set(paths) and not self.tests_of(stem)]


def closest(tree: Tree, measured: coverage.Map, path: str) -> list[str]:
    """The tests of a file, those that name it before those that were measured; without any of these, by its names."""
    stem = os.path.splitext(path)[0]
    by_text = tree.tests_of(stem) if stem in tree.sources else []
    if path not in measured.files:
        return by_text
    named = [test for test in by_text if tree.is_named(test, stem)]
    return list(dict.fromkeys(named + [source for test, _ in measured.files[path] if (source := coverage.source_of(test))]))


def differences(tree: Tree) -> list[str]:
    remedy = 'add it to a test\'s "Covers:", or run ./dev check coverage'
    wrong = tree.wrong + [f"{path}: no test covers it ({remedy})" for path in tree.without_tests(coverage.Map())]
    return wrong + coverage.differences() + LIST.differences(tree.rows(), "the sources and tests")


def main() -> int:
    os.chdir(os.environ.get("TW_ROOT") or os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    tree, measured = Tree(), coverage.Map()
    if sys.argv[1:] == ["--renew"]:
        LIST.renew(tree.rows())
        return 0
    for path in sys.argv[1:]:
        print("\n".join(closest(tree, measured, path)))
        if path in measured.counts:
            print(f"{path}: {measured.counts[path][1]} tests execute it; these are the closest", file=sys.stderr)
    wrong = [] if sys.argv[1:] else differences(tree)
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
