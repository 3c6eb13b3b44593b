#!/usr/bin/env python3
"""option_tables.py [--renew] -- the tables of docs/OPTIONS.md: each field of tw_options and tw_family_options, as the header explains it.

    --renew   writes the tables into the page
    nothing   prints where the page and the header differ (layers.sh does so)
Of a field that is an enum, the row has its values. A comment above several fields stands in the row of the first; fields without a
comment of their own share that row.
Always true: what a reader needs to set a field is written once, in the header; exit status 0 only if the page has it so."""
import os
import re
import sys

sys.dont_write_bytecode = True
import files
import header_doc

PAGE = "docs/OPTIONS.md"
STRUCTS = ("tw_options", "tw_family_options")
OWN = {"size"}  # what the caller does not set
CODE = re.compile(r"`[^`]*`|\"(?:\\.|[^\"])*\"|'\S'|\w+(?:\+\w+)?://(?:\S*[\w\])])?|\b[A-Za-z]\w*_\w*(?:\(\)|=\w+)?|\w+->\w+|\{?%[\w%]\}?")
HERE = re.compile(r" \((?:docs/)?OPTIONS(?:\.md)?\)")  # the page itself
PAGES = re.compile(r"\bdocs/(\w+\.md)")


def field_name(declaration: str) -> str:
    return re.search(r"\(\*(\w+)\)|(\w+)$", declaration).group().strip("(*)")


def marked(text: str) -> str:
    """Names and what is typed in backticks, and nothing that ends a cell."""
    def tick(match: re.Match) -> str:
        word = match.group()
        return word if word.startswith("`") else f"`{word}`"
    linked = PAGES.sub(r"[\1](\1)", CODE.sub(tick, HERE.sub("", text)))
    return linked.replace("|", "\\|")


def values_of(enum: header_doc.Declaration) -> str:
    """The names of an enum, with what the header says of each. Other names of a value that is there are left out."""
    parts = []
    for text, blocks in enum.members:
        name, value = text.split(" = ")
        if not value.isdigit():
            continue
        said = " ".join(body for _, body in blocks)
        parts.append(f"`{name}`{' (default)' if value == '0' else ''}{': ' if said else ''}{marked(said)}")
    return ". ".join(part.rstrip(".") for part in parts)


def row_of(names: list[str], texts: list[str], enums: dict) -> str:
    said = []
    for text in texts:
        enum = re.match(r"enum (tw_\w+)[.,:]?\s*", text)
        rest = text[enum.end() :] if enum else text
        said += [marked(rest)] if rest else []
        said += [values_of(enums[enum.group(1)])] if enum else []
    sentences = [part if part.endswith((".", ":")) else part + "." for part in said]
    return f"| {', '.join(f'`{name}`' for name in names)} | {' '.join(part[:1].upper() + part[1:] for part in sentences)} |"


def expected(struct: header_doc.Declaration, enums: dict) -> list[str]:
    rows, names, texts, above = [], [], [], []
    for declaration, blocks in struct.members:
        if declaration == "text":
            above = [blocks]
        elif declaration != "heading" and field_name(declaration) not in OWN:
            own = above + [body for _, body in blocks]
            if own and names:
                rows.append(row_of(names, texts, enums))
                names, texts = [], []
            names.append(field_name(declaration))
            texts += own
            above = []
    return ["| option | |", "| --- | --- |", *rows, row_of(names, texts, enums)]


def main() -> int:
    os.chdir(os.environ.get("TW_ROOT") or os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    with open(header_doc.HEADER, encoding="utf-8") as file:
        found = {one.name: one for entry in header_doc.entries(file.read()) for one in entry.declarations}
    enums = {name: one for name, one in found.items() if one.kind == "enum"}
    wrong: list[str] = []
    for name in STRUCTS:
        table = files.PageList(PAGE, name, "option_tables")
        rows = expected(found[name], enums)
        if sys.argv[1:] == ["--renew"]:
            table.renew(rows)
        wrong += table.differences(rows, header_doc.HEADER)
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
