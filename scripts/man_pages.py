#!/usr/bin/env python3
"""man_pages.py list | OUT [COMMAND] -- writes the man pages.

    list           the names of all files of section 3, one a line: what meson.build installs
    OUT            section 3, out of include/tallywheel.h: a page for each group of calls (header_doc.PAGES), and for each
                   call and type a file that leads to its page
    OUT COMMAND    tallywheel.1, out of what COMMAND and its subcommands say upon --help, and the README's examples; and
                   tallywheel-count.1, with the examples of docs/COUNT.md

Always true: the same sources give the same bytes; no text of a page stands in this file, but headings and what the
command is in a word; the file names that `list` prints are those that OUT gets."""
import os
import re
import subprocess
import sys
import textwrap

sys.dont_write_bytecode = True
import header_doc

ROOT = os.environ.get("TW_ROOT") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
COLUMNS = 76
MARKED = re.compile(r"`([^`]+)`|\b(tw_\w+(?:\.\w+)?(?:\(\))?|TW_[A-Z]\w+)|(?<![\w-])(--[a-z][\w-]*)")
PARAMETER = re.compile(r"(\w+)((?:\[\w*\])?|\)\(.*\))$")


# ---- text -----------------------------------------------------------------------------------------------------------


def literal(text: str) -> str:
    """As it is: for code, where each sign is to be what it looks like."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    return text.replace("^", "\\(ha").replace("~", "\\(ti")


def plain(text: str) -> str:
    return re.sub(r"(?<!\w)-", r"\\-", text.replace("\\", "\\e"))


def inline(text: str) -> str:
    """Names bold, what is in backticks in italics."""
    out, at = "", 0
    for match in MARKED.finditer(text):
        ticked, name, option = match.groups()
        out += plain(text[at : match.start()])
        out += f"\\fI{literal(ticked)}\\fR" if ticked else f"\\fB{literal(name or option)}\\fR"
        at = match.end()
    return out + plain(text[at:])


def guarded(line: str) -> str:
    return "\\&" + line if line.startswith((".", "'")) else line


def filled(text: str) -> list[str]:
    lines = textwrap.wrap(inline(text), COLUMNS, break_long_words=False, break_on_hyphens=False)
    return [guarded(line) for line in lines]


def unfilled(lines: list[str]) -> list[str]:
    return [".nf", *(guarded(line) for line in lines), ".fi"]


def set_off(lines: list[str], columns: str = "") -> list[str]:
    return [f".RS {columns}".strip(), *lines, ".RE"]


def name_lines(names: str, about: str) -> list[str]:
    return textwrap.wrap(f"{names} \\- {plain(about)}", COLUMNS)


def finished(lines: list[str]) -> str:
    """A heading begins a paragraph by itself."""
    return re.sub(r"^(\.S[HS] .*\n)\.PP\n", r"\1", "\n".join(lines) + "\n", flags=re.MULTILINE)


def roff(blocks: list, is_first: bool = False) -> list[str]:
    """is_first: the paragraph has begun already."""
    out: list[str] = []
    for kind, what in blocks:
        if kind == "text":
            out += ([] if is_first else [".PP"]) + filled(what)
        elif kind == "code":
            out += ([] if is_first else [".PP"]) + set_off(unfilled([literal(line) for line in what]), "4")
        elif kind == "table":
            for first, *others in what[1:]:
                out += tagged(first, [("text", "; ".join(others))])
        elif kind == "bullets":
            for item in what:
                out += [".IP \\(bu 2", *within(item)]
        else:
            for tag, body in what:
                out += tagged(tag, body)
        is_first = False
    return out


def within(blocks: list) -> list[str]:
    """The body of an item."""
    return roff(blocks[:1], True) + (set_off(roff(blocks[1:])) if blocks[1:] else [])


def tagged(tag: str, body: list) -> list[str]:
    if not body:
        return [".PP", f"\\fB{literal(tag)}\\fR"]
    return [".TP", f"\\fB{literal(tag)}\\fR", *within(body)]


# ---- section 3 ------------------------------------------------------------------------------------------------------


def split_parameters(text: str) -> list[str]:
    parts, depth = [""], 0
    for sign in text:
        depth += {"(": 1, ")": -1}.get(sign, 0)
        if sign == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts]


def parameter(text: str) -> str:
    match = re.fullmatch(r"(.*\(\*)(\w+)(\)\(.*\))", text) or re.fullmatch(r"(.*?)(\w+)(\[\w*\])?", text)
    before, name, after = match.groups()
    if not before:  # (void)
        return literal(name)
    return f"{literal(before)}\\fI{name}\\fB{literal(after or '')}"


def prototype(call: header_doc.Declaration) -> list[str]:
    """Two lines and more where one is too long, each parameter in italics."""
    if call.kind == "macro":
        return [f"\\fB{literal('#define ' + call.text.split(')')[0].split(' ', 1)[1])})\\fR"]
    head, _, rest = call.text.partition("(")
    lines = [head + "("]
    shown = ["\\fB" + literal(head) + "("]
    parts = split_parameters(rest.removesuffix(");"))
    for number, part in enumerate(parts):
        end = ", " if number + 1 < len(parts) else ");"
        if len(lines[-1] + part + end) > COLUMNS and lines[-1].strip():
            lines.append(" " * 8)
            shown.append("\\fB" + " " * 8)
        lines[-1] += part + end
        shown[-1] += parameter(part) + end
    return [line.rstrip() + "\\fR" for line in shown]


def constants(entry: header_doc.Entry) -> list[str]:
    out = []
    for one in entry.declarations:
        if one.kind == "macro" and "(" not in one.text.split(" ")[1] and not one.members:
            value, _, comment = one.text.split(" ", 2)[2].partition("/*")
            text = " ".join(comment.removesuffix("*/").split())
            out += tagged(f"{one.name} = {value.strip()}", [("text", text)] if text else [])
    return out


def members(one: header_doc.Declaration) -> list[str]:
    out: list[str] = []
    for member, what in one.members:
        if member in ("heading", "text"):
            out += [".PP", *(filled(what) if member == "text" else [f"\\fI{plain(what)}\\fR"])]
        else:
            out += tagged(member, what)
    return out


def call_part(entry: header_doc.Entry) -> list[str]:
    names = ", ".join(f"{one.name}()" for one in entry.calls())
    return [f'.SS "{names}"', *roff(entry.doc)]


def type_part(entry: header_doc.Entry) -> list[str]:
    out: list[str] = []
    for number, one in enumerate(entry.declarations):
        if one.members:
            title = f"{one.kind} {one.name}" if one.kind != "macro" else "Figures"
            out += [f'.SS "{title}"', *(roff(entry.doc) if number == 0 else []), *members(one)]
    if not out and entry.doc:
        out = [f'.SS "{entry.key}"', *roff(entry.doc)]
    return out + constants(entry)


def page(one: header_doc.Page, everything: list[header_doc.Page], version: str, date: str) -> str:
    names = [name for name in one.names() if name != one.name]
    calls = one.calls()
    out = [f'.TH {one.name.upper()} 3 "{date}" "tallywheel {version}" "Library Functions Manual"', ".SH NAME",
           *name_lines(", ".join([one.name, *names]), one.about), ".SH SYNOPSIS", ".nf", ".B #include <tallywheel.h>"]
    for entry in one.entries:
        if entry.calls():
            out += [".PP", *(line for call in entry.calls() for line in prototype(call))]
    out += [".fi", ".SH DESCRIPTION"]
    for number, entry in enumerate(one.entries):
        if not entry.declarations:
            out += [*([".SS Notes"] if number else []), *roff(entry.doc)]
        elif entry.calls() and entry.doc:
            out += call_part(entry)
    types = [entry for entry in one.entries if entry.declarations and not entry.calls()]
    if types:
        out += [".SH TYPES", *(line for entry in types for line in type_part(entry))]
    text = "\n".join(out)
    if one.name != "tw_status" and ("general errors" in text or "A WAITING CALL" in text):
        rule = next(entry for other in everything for entry in other.entries if entry.key.startswith("GENERAL ERRORS"))
        out += [".SH GENERAL ERRORS", *roff(rule.doc)]
    shown = header_doc.examples_with(ROOT, [call.name for call in calls])
    if shown:
        out += [".SH EXAMPLES", "Programs in the folder of examples that is installed with the library:"]
        for name, text in shown:
            out += tagged(name, [("text", text)])
    others = [other.name for other in everything if other is not one]
    out += [".SH SEE ALSO", *(f".BR {name} (3){',' if name != others[-1] else ''}" for name in others)]
    return finished(out)


def section_3() -> dict[str, str]:
    everything = header_doc.pages(ROOT)
    version, date = header_doc.version_and_date(ROOT)
    files = {f"{one.name}.3": page(one, everything, version, date) for one in everything}
    for one in everything:
        for name in one.names():
            if not name.endswith("_sized"):
                files.setdefault(f"{name}.3", f".so man3/{one.name}.3\n")
    return files


# ---- section 1 ------------------------------------------------------------------------------------------------------


def help_of(command: list[str]) -> list[str]:
    said = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True, env={**os.environ, "LC_ALL": "C"})
    return said.stdout.rstrip("\n").split("\n")


def parts_of(lines: list[str]) -> tuple[list[str], list, list, list]:
    """A help: its usage, what it says first, its options, what it says behind them."""
    end = 1
    while end < len(lines) and lines[end].startswith((" ", "or:")) and lines[end].strip():
        end += 1
    usage = [re.sub(r"^(Usage:|or:)?\s+", "", line) for line in lines[:end]]
    before, options, after = [], [], []
    for kind, what in header_doc.blocks(lines[end:]):
        if kind == "list" and what[0][0].startswith("-"):
            options += what
        else:
            (after if options else before).append((kind, what))
    return usage, before, options, after


def exit_status_apart(blocks: list) -> tuple[list, list]:
    rest, status = [], []
    for kind, what in blocks:
        if kind == "text" and "Exit status:" in what:
            before, _, what = what.partition("Exit status:")
            if before.strip():
                rest.append(("text", before.strip()))
            status.append(("text", what.strip()))
        else:
            rest.append((kind, what))
    return rest, status


def command_part(command: str, name: str) -> list[str]:
    usage, before, options, after = parts_of(help_of([command, name]))
    rest, status = exit_status_apart(before + after)
    out = [f".SH {name.upper()}", *unfilled([f"\\fB{literal(line)}\\fR" for line in usage]), *roff(rest)]
    if options:
        out += [".PP", "Options:", *(line for tag, body in options for line in tagged(tag, body))]
    if status:
        out += [".PP", "Exit status:", *filled(status[0][1])]
    return out


def readme_examples() -> list[str]:
    """The lines of the README that run the command out of the sources, as they are with an installed one."""
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        found = re.findall(r"^\./dev run (\w[^\n#]*)(#[^\n]*)?", file.read(), re.MULTILINE)
    return [f"tallywheel {words.strip()}" for words, _ in found]


def section_1(command: str) -> str:
    version, date = header_doc.version_and_date(ROOT)
    usage, before, options, after = parts_of(help_of([command]))
    commands = next(what for kind, what in before if kind == "list")
    out = [f'.TH TALLYWHEEL 1 "{date}" "tallywheel {version}" "User Commands"', ".SH NAME",
           *name_lines("tallywheel", "count the lines of logs by key and window, and look after counters in Redis"), ".SH SYNOPSIS",
           *unfilled([f"\\fB{literal(line)}\\fR" for line in usage]), ".SH DESCRIPTION",
           *roff(before, True), *roff([("list", options)] if options else []), *roff(after)]
    for name, _ in commands:
        out += command_part(command, name)
    if readme_examples():
        out += [".SH EXAMPLES", *unfilled([literal(line) for line in readme_examples()])]
    return finished([*out, ".SH SEE ALSO", ".BR tallywheel (3)"])


def count_examples() -> list[str]:
    with open(os.path.join(ROOT, "docs/COUNT.md"), encoding="utf-8") as file:
        return list(dict.fromkeys(re.findall(r"^tallywheel count .*", file.read(), re.MULTILINE)))


def section_1_count(command: str) -> str:
    """A page of its own for the subcommand that most people look for."""
    version, date = header_doc.version_and_date(ROOT)
    usage, before, options, after = parts_of(help_of([command, "count"]))
    rest, status = exit_status_apart(before + after)
    about = help_of([command])
    line = next(line for line in about if line.split()[:1] == ["count"])
    return finished([
        f'.TH TALLYWHEEL-COUNT 1 "{date}" "tallywheel {version}" "User Commands"', ".SH NAME",
        *name_lines("tallywheel-count", " ".join(line.split()[1:])), ".SH SYNOPSIS",
        *unfilled([f"\\fB{literal(line)}\\fR" for line in usage]), ".SH DESCRIPTION", *roff(rest, True), ".SH OPTIONS",
        *(line for tag, body in options for line in tagged(tag, body)), ".SH EXIT STATUS", *filled(status[0][1]), ".SH EXAMPLES",
        *unfilled([literal(line) for line in count_examples()]), ".SH SEE ALSO", ".BR tallywheel (1)"])


def main() -> int:
    if sys.argv[1:] == ["list"]:
        print("\n".join(section_3()))
        return 0
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    files = section_3() if len(sys.argv) == 2 else {
        "tallywheel.1": section_1(sys.argv[2]), "tallywheel-count.1": section_1_count(sys.argv[2])}
    os.makedirs(sys.argv[1], exist_ok=True)
    for name, text in files.items():
        with open(os.path.join(sys.argv[1], name), "w", encoding="utf-8") as file:
            file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
