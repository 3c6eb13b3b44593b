#!/usr/bin/env python3
"""circles.py BUILD -- which files of engine/ and sync/ call each other in a circle, by the symbols of the built objects; and which
internal functions of theirs are declared in another file's header.

Always true: a circle that is not in KNOWN, or has more files than there, is a failure, and so is one that is gone and still stands
there: the list only shrinks. What engine/port_*.h declare is one contract with sync/, whatever file it is defined in."""
import collections
import glob
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
import c_source

KNOWN = [
    "engine/history engine/lost engine/restore",
]
KNOWN_INCLUDES = [
    "engine/history engine/lost engine/restore",
    "sync/closers sync/lease sync/live sync/parts sync/pipeline sync/refusal sync/replicas sync/side sync/sync",
]
# A header that two files share: stripe.h has the types, which cell.h must not see and stripe_words.h, which it includes, therefore has not.
SHARED = {"engine/stripe": "engine/stripe_words.h"}


def symbols(build: str) -> tuple[dict[str, str], dict[str, set[str]]]:
    """Where each symbol is defined; and what each file uses of others. Files without their suffix."""
    defined, used = {}, collections.defaultdict(set)
    for path in glob.glob(os.path.join(build, "libtallywheel.*.p", "*.o")):
        match = re.match(r"(engine|sync)_(\w+)\.c\.o$", os.path.basename(path))
        if not match:
            continue
        file = f"{match.group(1)}/{match.group(2)}"
        for line in subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout.splitlines():
            words = line.split()
            if len(words) == 3 and words[1] in "TDBRV":
                defined[words[2]] = file
            elif len(words) == 2 and words[0] == "U":
                used[file].add(words[1])
    return defined, used


def includes() -> dict[str, set[str]]:
    """What each file includes of engine/ and sync/. Files without their suffix."""
    graph = collections.defaultdict(set)
    for path in sorted(glob.glob("engine/**/*.[ch]", recursive=True) + glob.glob("sync/**/*.[ch]", recursive=True)):
        with open(path, encoding="utf-8") as file:
            names = re.findall(r'^ *# *include "((?:engine|sync)/[^"]+)"', file.read(), re.MULTILINE)
        graph[os.path.splitext(path)[0]] |= {os.path.splitext(name)[0] for name in names} - {os.path.splitext(path)[0]}
    return graph


def compare(found: list[str], known: list[str], what: str) -> bool:
    """True: a circle that is new or larger, or that stands in the list and is gone."""
    for circle in [circle for circle in found if circle not in known]:
        print(f"a circle of {len(circle.split())} files by {what}: {circle}")
    for circle in [circle for circle in known if circle not in found]:
        print(f"no circle by {what} any more, and still in the list: {circle}")
    return sorted(found) != sorted(known)


def circles(graph: dict[str, set[str]]) -> list[str]:
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
                found.append(" ".join(sorted(stack[at:])))
            del stack[at:]

    for file in sorted(graph):
        if file not in index:
            visit(file)
    return sorted(found)


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


def main() -> int:
    defined, used = symbols(sys.argv[1])
    if not defined:
        print(f"circles.py: no objects below {sys.argv[1]}", file=sys.stderr)
        return 2
    graph = {file: {defined[name] for name in names if name in defined} - {file} for file, names in used.items()}
    failed = compare(circles(graph), KNOWN, "calls")
    failed = compare(circles(includes()), KNOWN_INCLUDES, "includes") or failed
    for header in sorted(glob.glob("engine/*.h") + glob.glob("sync/*.h")):
        if header.startswith("engine/port"):
            continue
        for name in sorted(declared(header)):
            home = defined.get(name, "")
            own = home.startswith("sync/") or os.path.exists(home + ".h")  # in sync/ every file has a header of its own
            if home and own and header not in (home + ".h", SHARED.get(home)):
                print(f"{header} declares {name}(), which is {home}.c's")
                failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
