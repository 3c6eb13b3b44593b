#!/usr/bin/env python3
"""doc_names.py [DOC...] -- does what docs/*.md and SECURITY.md name exist?

Of what stands in backticks: `name()` is a function or a macro; `file.c`, `folder/file.c`, `file.*` is a file, and so is
a test named as `stress/history`, or a listing of that page (```c NAME.c); any other word with a _ in it stands somewhere in the code. Names right behind a file
of tests (`wire.c` `one_test`, `another_one`) are tests of that file. build/tests/SUITE_NAME is a program of that suite,
in backticks or not, and build/tests/FOLDER/NAME one that the meson.build there makes. In the table of labels (docs/CONCURRENCY.md, column "where") each name is a function of the file
named before it, and each label stands in one of the row's files.
In FINDING.md each function stands right behind its file (`engine/count/api.c` `add_once()`, `twi_add_call()`): that very file defines
it, be it C, Lua or Python. Only the calls of the public header may stand alone. Any other word behind a file stands in that file.
In the drawings of ARCHITECTURE.md each file with its folder exists, a word with a _ in it stands somewhere in the code, and a word
right behind a file stands in that file.
In ARCHITECTURE.md the list of files is what the folders have, no more and no less (files.py).
Always true: each line of output is one name that leads nowhere, or a file that is not listed; exit status 0 only if there is none."""
import fnmatch
import glob
import os
import re
import sys

sys.dont_write_bytecode = True
import c_source
import files

# Directives of nginx, which are in no source here.
OF_NGINX = {"limit_req_log_level", "dry_run", "stub_status"}
ROOMS = ("engine", "sync", "extras", "include", "bindings", "tools", "tests", "bench", "examples", "nginx", "scripts")
# What ./dev amalgamate writes: in no folder of the sources.
MADE = ("tallywheel.c", "build/one/tallywheel.c", "build/one/tallywheel.h")
KINDS = "c|cc|cpp|h|hpp|lua|sh|py"
TICKED = re.compile(r"`([^`\n]+)`")
TOKEN = re.compile(rf"`([^`\n]+)`|((?:\w+/)*\w+\.(?:{KINDS}))\b")
FILE = re.compile(rf"^(?:[\w-]+/)*[\w-]+\.(?:{KINDS}|\*)$")
TEST = re.compile(r"^(?:unit|model|orderings|stress|sim|redis|fault|cli|fuzz)(?:/\w+)+$")
CALL = re.compile(r"^([a-z_]\w*)\(\)$")
WORD = re.compile(r"^[a-z]\w*_\w*[a-z0-9]$")
BEGINNING = re.compile(r"^([a-z]\w*_)(?:…|\.\.\.)$")
BUILT = re.compile(r"\bbuild/((?:tests|bench)(?:/\w+)?)/(\w+)")
NAME = re.compile(r"^[A-Za-z_]\w*$")
ANY_CALL = re.compile(r"^([A-Za-z_]\w*)\(\)$")
NEXT_TO = re.compile(r"^,?\s+$")  # what may part a file from its functions
DRAWING = re.compile(r"^```\n(.*?)^```", re.M | re.S)
DRAWN = re.compile(rf"((?:\w+/)+\w+\.(?:{KINDS}))\b(?: +([A-Za-z]\w*_\w+)\b)?|\b([a-z]\w*_\w+)\b")
LUA_OR_PYTHON = re.compile(r"^\s*(?:local\s+|async\s+)?(?:function|def)\s+(\w+)\s*\(", re.M)
LABELS = re.compile(r"^\| ([A-Z]{1,2}\d+(?:, [A-Z]{1,2}\d+)*) \|")


class Tree:
    def __init__(self) -> None:
        below = [path for room in ROOMS for path in glob.glob(room + "/**/*", recursive=True)]
        self.files = [path for path in below if os.path.isfile(path)]
        self.words: set = set()
        self.functions: set = set()
        for path in self.files:
            try:
                with open(path, encoding="utf-8") as file:
                    text = file.read()
            except UnicodeDecodeError:
                continue
            self.words.update(re.findall(r"[A-Za-z_]\w*", text))
            if path.endswith((".c", ".h", ".cc", ".cpp", ".hpp")):
                self.functions.update(c_source.functions(path), c_source.macros(path))
            if path.endswith((".lua", ".py")):
                self.functions.update(LUA_OR_PYTHON.findall(text))
            if path == "include/tallywheel.h":
                self.functions.update(re.findall(r"\b(tw_\w+)\(", text))

    def named(self, name: str, first: str = "") -> list[str]:
        """The files that a name may mean; those below `first` alone, if there are any."""
        found = [path for path in self.files if any(fnmatch.fnmatchcase(path, to) for to in (name, "*/" + name))]
        return [path for path in found if path.startswith(first)] or found

    def text(self, path: str) -> str:
        with open(path, encoding="utf-8") as file:
            return file.read()

    def builds(self, folder: str, name: str) -> bool:
        suite, _, test = name.partition("_")
        if folder == "tests":  # made by the loop of tests/meson.build
            return bool(glob.glob(f"tests/{suite}/**/{test}.c", recursive=True))
        try:
            with open(folder + "/meson.build", encoding="utf-8") as file:
                return f"executable('{name}'" in file.read()
        except OSError:
            return False

    def defines(self, path: str, name: str) -> bool:
        if path.endswith((".lua", ".py")):
            return name in LUA_OR_PYTHON.findall(self.text(path))
        return name in c_source.functions(path) or name in c_source.macros(path)


def check_labels(tree: Tree, line: str) -> list[str]:
    """A row of the table of labels."""
    wrong, paths, here = [], [], []
    for ticked, bare in TOKEN.findall(line.split("|")[2]):
        if FILE.match(bare or ticked):
            here = tree.named(bare or ticked, "engine/")
            paths += here
            if not here:
                wrong.append(f"no file {bare or ticked}")
        elif not here or not any(tree.defines(path, ticked) for path in here):
            wrong.append(f"no function {ticked}() in {' '.join(here) or 'a file named before it'}")
    text = ""
    for path in paths:
        text += tree.text(path)
    for label in LABELS.match(line).group(1).split(", ") if paths else []:
        if not re.search(rf"\b{label}\b", text):
            wrong.append(f"label {label} stands in none of {' '.join(paths)}")
    return wrong


def check_ticked(tree: Tree, text: str, tests: list[str]) -> str:
    """What is wrong with one name, or nothing; tests: the files of tests named right before it."""
    call, beginning = CALL.match(text), BEGINNING.match(text)
    if call and call.group(1) not in tree.functions:
        return f"no function {text}"
    if text in MADE:
        return ""
    if (FILE.match(text) and not tree.named(text)) or (TEST.match(text) and not tree.named(f"tests/{text}.*")):
        return f"no file {text}"
    if beginning and not any(name.startswith(beginning.group(1)) for name in tree.functions):
        return f"no function that begins with {beginning.group(1)}"
    if WORD.match(text) and tests and not any(tree.defines(path, text) for path in tests):
        return f"no test {text} in {' '.join(tests)}"
    return f"no word {text} in the code" if WORD.match(text) and text not in tree.words | OF_NGINX else ""


def check_pairs(tree: Tree, doc: str, text: str) -> list[str]:
    """FINDING.md: functions and other names behind their files."""
    wrong, path, end = [], "", 0
    for match in re.finditer(r"`([^`\n]+)`", text):
        name, call = match.group(1), ANY_CALL.match(match.group(1))
        path = path if NEXT_TO.match(text[end : match.start()]) else ""
        what, end = "", match.end()
        if FILE.match(name):
            paths = tree.named(name)
            path = paths[0] if len(paths) == 1 else ""
            what = f"{name} may be any of {' '.join(paths)}" if len(paths) > 1 else ""
        elif call and not path:
            what = "" if call.group(1).startswith("tw_") else f"{name} stands behind no file"
        elif call and not tree.defines(path, call.group(1)):
            what = f"no function {name} in {path}"
        elif path and NAME.match(name):
            what = "" if re.search(rf"\b{name}\b", tree.text(path)) else f"no word {name} in {path}"
        if what:
            wrong.append(f"{doc}:{text.count(chr(10), 0, match.start()) + 1}: {what}")
    return wrong


def check_drawings(tree: Tree, doc: str, text: str) -> list[str]:
    """ARCHITECTURE.md: files and what is drawn behind them."""
    wrong = []
    for drawing in DRAWING.finditer(text):
        for match in DRAWN.finditer(drawing.group(1)):
            path, behind, word = match.groups()
            paths = tree.named(path) if path else []
            what = f"no file {path}" if path and not paths else ""
            if paths and behind and not any(re.search(rf"\b{behind}\b", tree.text(one)) for one in paths):
                what = f"no word {behind} in {' '.join(paths)}"
            if word and word not in tree.words:
                what = f"no word {word} in the code"
            if what:
                wrong.append(f"{doc}:{text.count(chr(10), 0, drawing.start(1) + match.start()) + 1}: {what}")
    return wrong


def check(tree: Tree, doc: str) -> list[str]:
    wrong = []
    with open(doc, encoding="utf-8") as file:
        text_all = file.read()
    listings = set(re.findall(r"^```\w+ (\w+\.\w+)$", text_all, re.M))
    words = re.sub(r"^```.*?^```", lambda block: "\n" * block.group(0).count("\n"), text_all, flags=re.M | re.S)
    for number, (line, whole) in enumerate(zip(words.split("\n"), text_all.split("\n")), 1):
        found = check_labels(tree, line) if LABELS.match(line) else []
        for built in BUILT.finditer(whole):
            if not tree.builds(*built.groups()):
                found.append(f"no program {built.group(0)}")
        tests, end = [], 0
        for match in TICKED.finditer(line):
            text, between = match.group(1), line[end : match.start()]
            tests = tests if between in (" ", ", ") else []
            found.append("" if text in listings else check_ticked(tree, text, tests))
            end = match.end()
            if FILE.match(text):
                tests = [path for path in tree.named(text, "tests/redis/") if path.startswith("tests/")]
                tests = tests if line[end : end + 2] == " `" else []
        wrong += [f"{doc}:{number}: {what}" for what in dict.fromkeys(found) if what]
    wrong += check_drawings(tree, doc, text_all) if os.path.basename(doc) == "ARCHITECTURE.md" else []
    return wrong + (check_pairs(tree, doc, words) if os.path.basename(doc) == "FINDING.md" else [])


def main() -> int:
    os.chdir(os.environ.get("TW_ROOT") or os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    tree = Tree()
    wrong = [what for doc in sorted(sys.argv[1:] or glob.glob("docs/*.md") + glob.glob("SECURITY.md")) for what in check(tree, doc)]
    wrong += files.differences() if not sys.argv[1:] else []
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
