#!/usr/bin/env python3
"""where.py option NAME | metric NAME -- each place that knows an option or a figure: what a new one beside it must touch.

    option   a field of tw_options, tw_family_options or tw_audit_options
    metric   a field of TW_STATS, or what Prometheus calls it (tallywheel_late_increments_total)
Sources and pages are listed line by line, tests and benchmarks file by file. A name of several words is found in any form
(TW_SUB_WINDOWS_MAX, check_sub_windows). A name of one word is found where it is a field of options or stats, an argument of a macro, or in quotes.
Two lists follow: models (tests/orderings) with a digest of a function that has the name, and sources that know several other
fields of the same struct and not this one: look whether a new field concerns them.
Always true: nothing is written; exit status 0 only if the header has that name, otherwise the nearest ones are said."""
import difflib
import glob
import os
import re
import signal
import sys

sys.dont_write_bytecode = True
import c_source
import header_doc
import model_digests

STRUCTS = {"option": ("tw_family_options", "tw_options", "tw_audit_options"), "metric": ("TW_STATS",)}
# In the order of work: declared, then decided, then told to others.
GROUPS = [
    ("header", ("include",)), ("engine", ("engine",)), ("Redis", ("sync",)), ("files, sockets, commands", ("extras", "tools", "nginx")),
    ("what others read", ("monitoring", "man", "packaging")),
    ("pages", ("docs", "README.md", "README.zh-CN.md", "CHANGELOG.md", "SECURITY.md")), ("scripts", ("scripts",)),
]
BRIEF = ("tests, benchmarks and examples", ("tests", "bench", "examples"))
# How a name of one word is known to be a field: before it stands a variable that holds such a struct, or a macro.
OF_STRUCT = r"\b(?:\w*options?|in|checked|policy|stats|answer)(?:\.|->)"
TAKES_FIELD = r"\b(?:[A-Z_]+|offsetof|twi_port_count|test_stat_of)"
EVERYWHERE = {"size", "error_text", "error_size"}
SEVERAL = 5  # so many other fields make a file one that knows the struct
WIDTH = 120


def fields_of(root: str) -> dict:
    """Each option and figure: struct -> names."""
    with open(os.path.join(root, header_doc.HEADER), encoding="utf-8") as file:
        found = [one for entry in header_doc.entries(file.read()) for one in entry.declarations]
    names: dict = {}
    for one in found:
        texts = [text for text, _ in one.members if text not in ("heading", "text")]
        matches = [re.search(r"\(\*(\w+)\)|(\w+)(?:\[\w+\])?$", text) for text in texts]
        names[one.name] = [match.group(1) or match.group(2) for match in matches if match]
    return names


def metric_of(field: str) -> str:
    """What Prometheus calls a figure: its unit is a base unit, and comes last (engine/stats.c split_name())."""
    match = re.fullmatch(r"(\w+?)_(ms|bytes)(_\w+)?", field)
    return "tallywheel_" + (match[1] + (match[3] or "") + {"ms": "_seconds", "bytes": "_bytes"}[match[2]] if match else field)


class Name:
    """A name, and the lines that know it."""

    def __init__(self, kind: str, name: str, others: list) -> None:
        self.longer = [other for other in others if name in other and other != name]
        alone = rf"{OF_STRUCT}{name}\b(?!\.|->|\()|[\"`]{name}\b(?=[\"`:= ])|{TAKES_FIELD}\((?:[\w.>-]+, )?{name}[,)]"
        if kind == "option" and "_" in name:
            alone = rf"(?i:\w*{name.replace('_', '[_-]')}\w*)"
        elif "_" in name:
            alone = rf"\b{name}\b"
        if kind == "metric":
            alone += rf"|\b{metric_of(name)}(?:_total)?\b"
        self.pattern = re.compile(alone)

    def is_in(self, text: str) -> bool:
        """on_full is not in on_full_limit, which is another option."""
        found = (match.group().lower() for match in self.pattern.finditer(text))
        return any(not any(longer in word for longer in self.longer) for word in found)


def files_below(root: str, tops: tuple) -> list[str]:
    found = []
    for top in tops:
        below = sorted(glob.glob(os.path.join(root, top, "**/*"), recursive=True)) or [os.path.join(root, top)]
        found += [os.path.relpath(path, root) for path in below if os.path.isfile(path) and "__pycache__" not in path]
    return found


def lines_of(root: str, path: str) -> list[str]:
    try:
        with open(os.path.join(root, path), encoding="utf-8") as file:
            return file.read().split("\n")
    except UnicodeDecodeError:
        return []


def declaration_lines(lines: list[str], name: str) -> set:
    """Of the header: a field is declared without a sign before it."""
    return {number for number, line in enumerate(lines) if re.match(rf"    [\w ]+[ *(]{name}\b\)?[;(\[]", line)}


def places(root: str, tops: tuple, wanted: Name, field: str) -> dict:
    """File -> (number, line) of each line that knows the name."""
    found: dict = {}
    for path in files_below(root, tops):
        lines = lines_of(root, path)
        declared = declaration_lines(lines, field) if path == header_doc.HEADER else set()
        here = [(number + 1, line.strip()) for number, line in enumerate(lines) if number in declared or wanted.is_in(line)]
        if here:
            found[path] = here
    return found


def models_of(root: str, wanted: Name) -> list[str]:
    found = []
    for model in files_below(root, ("tests/orderings",)):
        for path, function, _ in model_digests.LINE.findall("\n".join(lines_of(root, model))):
            source = os.path.join(root, path)
            if os.path.exists(source) and wanted.is_in(c_source.functions(source).get(function, "")):
                found.append(f"{model}: has a digest of {function}() of {path}")
    return found


def strangers(root: str, siblings: set, known: set) -> list[str]:
    """Sources that know several fields of the struct. Of these, fields of several words alone are sure to be meant."""
    found = []
    words = {name for name in siblings if "_" in name}
    for path in files_below(root, ("engine", "sync", "extras", "tools", "nginx")):
        if path in known:
            continue
        text = c_source.without_comments("\n".join(lines_of(root, path)))
        here = sorted(words & set(re.findall(r"\w+", text)))
        if len(here) >= SEVERAL:
            found.append(f"{path}: {len(here)} others, such as {', '.join(here[:3])}")
    return found


def show(title: str, lines: list[str]) -> None:
    if lines:
        print(f"{title}:")
        for line in lines:
            print("    " + (line if len(line) <= WIDTH - 4 else line[: WIDTH - 8] + " ..."))


def main() -> int:
    root = os.environ.get("TW_ROOT") or os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    if len(sys.argv) != 3 or sys.argv[1] not in STRUCTS:
        print("usage: where.py option NAME | metric NAME", file=sys.stderr)
        return 2
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a pager that ends
    kind, name = sys.argv[1], sys.argv[2]
    names = fields_of(root)
    if kind == "metric":
        name = {metric_of(field): field for field in names.get("TW_STATS", [])}.get(re.sub(r"_total$", "", name), name)
    structs = [struct for struct in STRUCTS[kind] if name in names.get(struct, [])]
    if not structs:
        every = sorted({one for struct in STRUCTS[kind] for one in names.get(struct, [])})
        near = difflib.get_close_matches(name, every, 3, 0.5)
        print(f"where.py: no {kind} {name} in {header_doc.HEADER}" + (f"; near to it: {', '.join(near)}" if near else ""),
              file=sys.stderr)
        return 2
    wanted = Name(kind, name, [one for struct in STRUCTS[kind] for one in names.get(struct, [])])
    known: set = set()
    for title, tops in GROUPS:
        found = places(root, tops, wanted, name)
        known |= set(found)
        show(title, [f"{path}:{number}: {line}" for path, here in found.items() for number, line in here])
    found = places(root, BRIEF[1], wanted, name)
    show(BRIEF[0], [f"{path}:{here[0][0]}: {len(here)} line{'s' * (len(here) > 1)}" for path, here in found.items()])
    show("digests", models_of(root, wanted))
    siblings = {one for struct in structs for one in names[struct]} - {name} - EVERYWHERE
    show(f"know other fields of {' and '.join(structs)}, and not {name}", strangers(root, siblings, known))
    return 0


if __name__ == "__main__":
    sys.exit(main())
