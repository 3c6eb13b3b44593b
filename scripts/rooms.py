#!/usr/bin/env python3
"""rooms.py [--figures] [BUILD] -- the rooms of engine/, sync/ and tools/: who may know whom, and how large things may be.

A room is a folder. The meson.build of each tree lists its rooms from the bottom up. The files beside that list are the top level,
above all rooms. extras/ has no rooms; it lies above engine/. The rules are checked by #include lines, and, with BUILD, by the symbols of the objects
there, which must be newer than their sources:
- no file uses a file of a higher room, and no file of engine/ one of extras/; what the engine asks for by name is in DOORS;
- no files use each other in a circle;
- the boxes of sync/ and of tools/ (a room, or a file of the top level) are joined by no more arrows than ARROWS_MAX says;
- no struct has more than 25 direct fields (a named part counts as one); no function has more than 64 lines, without its comments; no file
  has more than 600 lines;
- a comment that names a file of which there are several names its room, too, unless it means a neighbour in its own folder;
- with BUILD: each internal function or variable is declared in the header of the file that defines it: no .c file without its header,
  except those that define public calls alone. engine/port/*.h are the exception: they are one contract with sync/, whatever file defines
  what they declare, and lie at the bottom.
--figures prints sizes and arrows in place of what is broken.
Always true: each line of output is one break of a rule; exit status 0 only if there is none."""
import collections
import glob
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
import c_source

TREES = ("engine", "extras", "sync")  # of the library
ALL = TREES + ("tools",)
INCLUDE = re.compile(r'^ *# *include "((?:engine|extras|sync|tools)/[^"]+)"', re.MULTILINE)
PORT = "engine/port"
ARROWS_MAX = {"sync": 20, "tools": 25}
FIELDS_MAX, FUNCTION_MAX, FILE_MAX = 25, 64, 600
# The engine finds what lies above it by these functions alone: each gives a table of functions.
DOORS = {"twi_driver_find", "twi_watch_find"}
# Files whose functions another header may declare than their own; a list that only shrinks. stripe.h has the types, which cell.h must not
# see, and which stripe_words.h, which it includes, therefore has not. The fast paths are one template, compiled by two files.
SHARED = {
    "engine/table/stripe": "engine/table/cell.h",
    "engine/fast/fast_aes": "engine/fast/fast.h",
    "engine/fast/fast_portable": "engine/fast/fast.h",
    "engine/ask/strict_gcra": "engine/ask/strict.h",
}
PUBLIC = "include/tallywheel.h"

Graph = dict[str, set[str]]  # of files without their suffix


def rooms_of(tree: str) -> list[str]:
    with open(tree + "/meson.build", encoding="utf-8") as file:
        return re.findall(r"^subdir\('(\w+)'\)", file.read(), re.MULTILINE)


ROOMS = {tree: rooms_of(tree) for tree in ALL}


def height(file: str) -> int:
    """Of the room that a file lies in."""
    tree, *folders, _ = file.split("/")
    if file.startswith(PORT):
        return 0
    return ROOMS[tree].index(folders[0]) if folders else len(ROOMS[tree])


def is_above(other: str, file: str) -> bool:
    tree, other_tree = file.split("/")[0], other.split("/")[0]
    return height(other) > height(file) if tree == other_tree else tree == "engine"


def box(file: str) -> str:
    """A room, or a file of the top level."""
    tree, *folders, name = file.split("/")
    return folders[0] if folders else name


def sources(trees: tuple = ALL) -> list[str]:
    return sorted(path for tree in trees for path in glob.glob(tree + "/**/*.[ch]", recursive=True))


def includes() -> Graph:
    graph = collections.defaultdict(set)
    for path in sources():
        with open(path, encoding="utf-8") as file:
            names = {os.path.splitext(name)[0] for name in INCLUDE.findall(file.read())}
        own = os.path.splitext(path)[0]
        graph[own] |= names - {own}
    return graph


def objects(build: str) -> dict[str, str]:
    """Object -> source, without its suffix. Of the folder of a build: those of files that the tree has."""
    found = {}
    for tree, pattern in (("", "libtallywheel.*.p"), ("tools/", "tools/*.p")):
        names = {os.path.splitext(path)[0][len(tree) :].replace("/", "_"): path for path in sources() if path.endswith(".c")}
        for path in glob.glob(os.path.join(build, pattern, "*.c.o")):
            source = names.get(os.path.basename(path)[: -len(".c.o")])
            if source and source.startswith(tree):
                found[path] = source
    return found


def symbols(build: str) -> tuple[dict[str, str], Graph]:
    """Where each symbol is defined; and what each file uses of others."""
    defined, used = {}, collections.defaultdict(set)
    for path, source in objects(build).items():
        if os.path.getmtime(path) < os.path.getmtime(source):
            sys.exit(f"rooms.py: {source} is newer than what {build} made of it: build it first")
        file = os.path.splitext(source)[0]
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


def arrows(graph: Graph, tree: str) -> set:
    """Between the boxes of a tree."""
    return {
        (box(file), box(other))
        for file, others in graph.items()
        for other in others
        if file.startswith(tree + "/") and other.startswith(tree + "/") and PORT not in (file, other) and box(file) != box(other)
    }


def broken(graph: Graph, how: str) -> list[str]:
    """What a graph breaks: arrows that run up, circles, too many arrows."""
    wrong = [
        f"{file} {how} {other}, which lies above it"
        for file, others in sorted(graph.items())
        for other in sorted(others)
        if is_above(other, file)
    ]
    for tree, most in ARROWS_MAX.items():
        count = len(arrows(graph, tree))
        if count > most:
            wrong.append(f"{tree}/: {count} arrows between its boxes by what each {how}, more than {most}")
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


def lengths(path: str) -> dict[str, int]:
    """Of its functions, in lines without comments and empty lines."""
    return {name: len([line for line in text.split("\n") if line.strip()]) for name, text in c_source.functions(path).items()}


def too_long(paths: list[str]) -> list[str]:
    wrong = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            lines = sum(1 for _ in file)
        if lines > FILE_MAX:
            wrong.append(f"{path} has {lines} lines, more than {FILE_MAX}")
        wrong += [f"{path}: {name}() has {count} lines, more than {FUNCTION_MAX}" for name, count in lengths(path).items() if count > FUNCTION_MAX]
    return wrong


def unclear_names(paths: list[str]) -> list[str]:
    """Comments that name a file of which there are several, and not its room."""
    homes = collections.defaultdict(set)
    for path in paths:
        homes[path.startswith("tools/"), os.path.splitext(os.path.basename(path))[0]].add(os.path.dirname(path))
    wrong = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        for comment in re.finditer(r"/\*.*?\*/|//[^\n]*", text, re.DOTALL):
            for name in re.finditer(r"(?<![\w/.])(\w+)\.(?:[ch]\b|\*)", comment.group(0)):
                others = homes.get((path.startswith("tools/"), name.group(1)), set())
                if len(others) > 1 and os.path.dirname(path) not in others:
                    line = text.count("\n", 0, comment.start() + name.start()) + 1
                    wrong.append(f"{path}:{line}: {name.group(0)} may be that of {' or '.join(sorted(others))}")
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
    for header in [path for path in sources(("engine", "sync")) if path.endswith(".h") and not path.startswith(PORT)]:
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
        if file.startswith(("tools/", "extras/")):  # a header for several files each
            continue
        if name.startswith("tw_"):
            if name not in public:
                wrong.append(f"{file}.c defines {name}, which {PUBLIC} does not declare")
        elif name not in port | words(file + ".h") | words(SHARED.get(file, "")):
            wrong.append(f"{file}.c defines {name}, which {file}.h does not declare")
    return wrong


def print_figures(paths: list[str], graph: Graph) -> None:
    for tree in ALL:
        here = [path for path in paths if path.startswith(tree + "/")]
        longest = max((count, name) for path in here for name, count in lengths(path).items())
        largest = max((open(path, encoding="utf-8").read().count("\n"), path) for path in here)
        joined = arrows(graph, tree)
        boxes = {box(os.path.splitext(path)[0]) for path in here if path.endswith(".c") or not tree == "engine"}
        print(f"{tree}: {len(here)} files, {len(boxes)} boxes, {len(joined)} arrows between them; the longest function is {longest[1]}() with "
              f"{longest[0]} lines, the largest file {largest[1]} with {largest[0]}")
        for file in sorted({file for file, _ in joined}):
            print(f"    {file} -> {' '.join(sorted(other for one, other in joined if one == file))}")


def main() -> int:
    os.chdir(os.environ.get("TW_ROOT") or os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    arguments = [argument for argument in sys.argv[1:] if argument != "--figures"]
    paths, graph = sources(), includes()
    wrong = broken(graph, "includes") + wide_structs(paths) + too_long(paths) + unclear_names(paths)
    if arguments:
        defined, used = symbols(arguments[0])
        if not defined:
            print(f"rooms.py: no objects below {arguments[0]}", file=sys.stderr)
            return 2
        graph = {file: {defined[name] for name in names - DOORS if name in defined} - {file} for file, names in used.items()}
        wrong += broken(graph, "calls") + strays(defined) + without_header(defined)
    if len(arguments) + 1 < len(sys.argv):
        print_figures(paths, graph)
        return 0
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
