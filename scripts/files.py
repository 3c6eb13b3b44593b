#!/usr/bin/env python3
"""files.py [ROOM... | --renew] -- the files of engine/, sync/, extras/, tools/ and nginx/, room by room.

    ROOM      prints each file of that folder, such as engine/table, with its purpose: the first sentence of its head
    --renew   writes the list of files into docs/ARCHITECTURE.md
    nothing   prints where that list and the folders differ (scripts/doc_names.py does so, too)
A file whose first sentence is longer than a line of 120 columns is printed as far as that line goes.
Always true: exit status 0 only if the list is what the folders have."""
import glob
import os
import re
import sys

TOPS = ("engine", "sync", "extras", "tools", "nginx")


def names_of(room: str) -> list[str]:
    """`arena.*` for a pair of files, `fast_aes.c` for a single one."""
    kinds: dict[str, list[str]] = {}
    for path in sorted(glob.glob(room + "/*.[ch]")):
        stem, kind = os.path.splitext(os.path.basename(path))
        kinds.setdefault(stem, []).append(kind)
    return [stem + (found[0] if len(found) == 1 else ".*") for stem, found in sorted(kinds.items())]


def rooms() -> list[str]:
    """In the order in which they build on each other, as each top level's meson.build lists them."""
    found = []
    for top in TOPS:
        below = []
        if os.path.exists(top + "/meson.build"):
            with open(top + "/meson.build", encoding="utf-8") as file:
                below = re.findall(r"^\s*subdir\('([\w/]+)'\)", file.read(), re.M)
        found += [f"{top}/{room}" for room in below] + [top]
    every = sorted({os.path.dirname(path) for top in TOPS for path in glob.glob(top + "/**/*.[ch]", recursive=True)})
    return [room for room in found if room in every] + [room for room in every if room not in found]


def expected() -> list[str]:
    rows = [f"| `{room}/` | {', '.join(f'`{name}`' for name in names_of(room))} |" for room in rooms()]
    return ["| folder | files |", "| --- | --- |", *rows]


def purpose(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        lines = file.read(2000).split("\n")
    first = re.sub(r"^/\* \S+ -- ", "", lines[0])
    whole = first
    for line in lines[1:]:
        if not line.startswith(" * ") or re.search(r"[.:](?:\s|$|\*)", whole):
            break
        whole += " " + line[3:]
    return re.split(r"(?<=[.])\s", whole.replace("*/", "").strip())[0]


class PageList:
    """A list that a script writes into a page, between two comments that name the script."""

    def __init__(self, page: str, name: str, script: str = "") -> None:
        self.page, self.command = page, f"scripts/{script or name}.py --renew"
        self.begin, self.end = f"<!-- {name}: begin ({self.command}) -->", f"<!-- {name}: end -->"

    def differences(self, wanted: list[str], source: str) -> list[str]:
        """Where the page and the rows that are wanted differ; nothing if there is no page."""
        if not os.path.exists(self.page):
            return []
        with open(self.page, encoding="utf-8") as file:
            text = file.read()
        if self.begin not in text or self.end not in text:
            return [f"{self.page}: no list of {self.command}"]
        there = text[text.index(self.begin) + len(self.begin) : text.index(self.end)].strip().split("\n")
        return ([f"{self.page}: not in {source} (python3 {self.command}): {row}" for row in there if row not in wanted] +
                [f"{self.page}: missing (python3 {self.command}): {row}" for row in wanted if row not in there])

    def renew(self, rows: list[str]) -> None:
        with open(self.page, encoding="utf-8") as file:
            text = file.read()
        begin, end = text.index(self.begin) + len(self.begin), text.index(self.end)
        with open(self.page, "w", encoding="utf-8") as file:
            file.write(text[:begin] + "\n\n" + "\n".join(rows) + "\n\n" + text[end:])


LIST = PageList("docs/ARCHITECTURE.md", "files")


def differences() -> list[str]:
    return LIST.differences(expected(), "the folders")


def main() -> int:
    os.chdir(os.environ.get("TW_ROOT") or os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    if sys.argv[1:] == ["--renew"]:
        LIST.renew(expected())
    elif sys.argv[1:]:
        for room in sys.argv[1:]:
            for path in sorted(glob.glob(room.rstrip("/") + "/*.[ch]")):
                print(f"{path:40} {purpose(path)}")
    else:
        wrong = differences()
        print("\n".join(wrong), end="\n" if wrong else "")
        return 1 if wrong else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
