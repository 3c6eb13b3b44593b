#!/usr/bin/env python3
"""rooms.py [BUILD] -- the rooms of engine/ and sync/: who may know whom.

A room is a folder. engine/meson.build and sync/meson.build list them from the bottom up; what lies beside those lists is the roof, above
all rooms. Checked by #include lines, and, with BUILD, by the symbols of the objects there:
- no file uses a file of a higher room;
- no files use each other in a circle;
- no struct has more than 25 direct fields (a named part counts as one);
- with BUILD: each internal function or variable is declared in the header of the file that defines it: no .c file without its header, but
  those that define public calls alone. engine/port/*.h are the exception: they are one contract with sync/, whatever file defines what
  they declare, and lie at the bottom.
Always true: each line of output is one break of a rule; exit status 0 only if there is none."""
import collections
import glob
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
import c_source

TREES = ("engine", "sync")
INCLUDE = re.compile(r'^ *# *include "((?:engine|sync)/[^"]+)"', re.MULTILINE)
PORT = "engine/port"
FIELDS_MAX = 25
# Files whose functions another header may declare than their own; a list that only shrinks. stripe.h has the types, which cell.h must not
# see, and which stripe_words.h, which it includes, therefore has not. The fast paths are one template, compiled by two files. Event counts
# have two implementations, of which a build has one.
SHARED = {
    "engine/table/stripe": "engine/table/stripe_words.h",
    "engine/base/event_count_own": "engine/base/event_count.h",
    "engine/fast/fast_aes": "engine/fast/fast.h",
    "engine/fast/fast_portable": "engine/fast/fast.h",
}
PUBLIC = "include/tallywheel.h"

Graph = dict[str, set[str]]  # of files without their suffix


def rooms_of(tree: str) -> list[str]:
    with open(tree + "/meson.build", encoding="utf-8") as file:
        return re.findall(r"^subdir\('(\w+)'\)", file.read(), re.MULTILINE)


ROOMS = {tree: rooms_of(tree) for tree in TREES}


def height(file: str) -> int:
    """Of the room that a file lies in."""
    tree, *folders, _ = file.split("/")
    if file.startswith(PORT):
        return 0
    return ROOMS[tree].index(folders[0]) if folders else len(ROOMS[tree])


def sources() -> list[str]:
    return sorted(path for tree in TREES for path in glob.glob(tree + "/**/*.[ch]", recursive=True))


def includes() -> Graph:
    graph = collections.defaultdict(set)
    for path in sources():
        with open(path, encoding="utf-8") as file:
            names = {os.path.splitext(name)[0] for name in INCLUDE.findall(file.read())}
        own = os.path.splitext(path)[0]
        graph[own] |= names - {own}
    return graph


def symbols(build: str) -> tuple[dict[str, str], Graph]:
    """Where each symbol is defined; and what each file uses of others."""
    objects = {os.path.splitext(path)[0].replace("/", "_"): os.path.splitext(path)[0] for path in sources() if path.endswith(".c")}
    defined, used = {}, collections.defaultdict(set)
    for path in glob.glob(os.path.join(build, "libtallywheel.*.p", "*.c.o")):
        file = objects.get(os.path.basename(path)[: -len(".c.o")])
        if not file:  # of extras/, or of a file that has moved since
            continue
        for line in subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout.splitlines():
            words = line.split()
            if len(words) == 3 and words[1] in "TDBRV":
                defined[words[2]] = file
            elif len(words) == 2 and words[0] == "U":
                used[file].add(words[1])
    return defined, used


def circles(graph: Graph) -> list[list[str]]:
    """Tarjan's strongly connected components of more than one file."""
    index, low, stack, found = {}, {}, [], []

    def visit(file: str) -> None:
        index[file] = low[file] = len(index)
        stack.append(file)
        for other in sorted(graph.get(file, ())):
            if other not in index:
                visit(other)
                low[file] = min(low[file], low[other])
            elif other in stack:
                low[file] = min(low[file], index[other])
        if low[file] == index[file]:
            at = stack.index(file)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for file in sorted(graph):
        if file not in index:
            visit(file)
    return sorted(found)


def broken(graph: Graph, how: str) -> list[str]:
    """What a graph breaks: arrows that run up, and circles."""
    wrong = [
        f"{file} {how} {other}, which lies above it"
        for file, others in sorted(graph.items())
        for other in sorted(others)
        if file.split("/")[0] == other.split("/")[0] and height(other) > height(file)
    ]
    return wrong + [f"a circle of {len(circle)} files by what each {how}: {' '.join(circle)}" for circle in circles(graph)]


def fields(body: str) -> int:
    """Of the text between a struct's braces."""
    while True:
        shorter = re.sub(r"\{[^{}]*\}|\([^()]*\)|\[[^\[\]]*\]", "", body)
        if shorter == body:
            return sum(1 + statement.count(",") for statement in body.split(";") if statement.strip())
        body = shorter


def wide_structs(paths: list[str]) -> list[str]:
    wrong = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            text = c_source.DIRECTIVE.sub("", c_source.without_comments(file.read()))
        for match in re.finditer(r"\bstruct (\w+) \{", text):
            count = fields(text[match.end() : c_source.closing(text, match.end() - 1, "{", "}") - 1])
            if count > FIELDS_MAX:
                wrong.append(f"{path}: struct {match.group(1)} has {count} direct fields, more than {FIELDS_MAX}")
    return wrong


def declared(header: str) -> set[str]:
    """The functions that a header declares, those it defines apart."""
    with open(header, encoding="utf-8") as file:
        text = c_source.DIRECTIVE.sub("", c_source.without_comments(file.read()))
    while True:
        shorter = re.sub(r"\{[^{}]*\}", ";", text)
        if shorter == text:
            break
        text = shorter
    names = (re.search(r"\b(twi_\w+)\s*\(", statement) for statement in text.split(";"))
    return {name.group(1) for name in names if name}


def strays(defined: dict[str, str]) -> list[str]:
    wrong = []
    for header in [path for path in sources() if path.endswith(".h") and not path.startswith(PORT)]:
        for name in sorted(declared(header)):
            home = defined.get(name, "")
            own = home.startswith("sync/") or os.path.exists(home + ".h")
            if home and own and header not in (home + ".h", SHARED.get(home)):
                wrong.append(f"{header} declares {name}(), which is {home}.c's")
    return wrong


def without_header(defined: dict[str, str]) -> list[str]:
    """Internal names that no header of their file has; public calls that the public header has not."""

    def words(header: str) -> set[str]:
        if not os.path.exists(header):
            return set()
        with open(header, encoding="utf-8") as file:
            return set(re.findall(r"\w+", c_source.without_comments(file.read())))

    port = set().union(*(words(header) for header in glob.glob(PORT + "/*.h")))
    public, wrong = words(PUBLIC), []
    for name, file in sorted(defined.items()):
        if name.startswith("tw_"):
            if name not in public:
                wrong.append(f"{file}.c defines {name}, which {PUBLIC} does not declare")
        elif name not in port | words(file + ".h") | words(SHARED.get(file, "")):
            wrong.append(f"{file}.c defines {name}, which {file}.h does not declare")
    return wrong


def main() -> int:
    os.chdir(os.environ.get("TW_ROOT") or os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    wrong = broken(includes(), "includes") + wide_structs(sources())
    if len(sys.argv) > 1:
        defined, used = symbols(sys.argv[1])
        if not defined:
            print(f"rooms.py: no objects below {sys.argv[1]}", file=sys.stderr)
            return 2
        graph = {file: {defined[name] for name in names if name in defined} - {file} for file, names in used.items()}
        wrong += broken(graph, "calls") + strays(defined) + without_header(defined)
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
