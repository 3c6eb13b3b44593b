#!/usr/bin/env python3
"""log_lines.py [--missing] -- each line of the log has a test that provokes its event and reads the line.

tests/log_lines.txt lists the lines, as the sources have them, each with a test or with the reason why it has none.
Prints what is wrong; nothing is wrong if it prints nothing. --missing prints the lines that the list lacks, each with the
tests that seem to read it, in the form of the list.
Always true: a line that is new in the sources, or whose words change, needs an entry, and its test has to have its words.
"""
import re
import sys
from pathlib import Path

import c_source

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests/log_lines.txt"
# What writes a line, or gives a line the words that tell one event from another.
WRITERS = ("twi_port_log", "log_start", "tw_log_stderr", "twi_connection_fail", "twi_connect_not_master",
           "twi_refusal_report", "twi_refusal_login", "twi_closing_note_unreported", "twi_close_election_lack",
           "leave_instance", "leave_uncertain", "restore_all", "send_all_again", "outages_say", "twi_instance_lose")
CALL = re.compile(r"\b(" + "|".join(WRITERS) + r")\s*\(")
REASON = re.compile(r'static const char \w+\[\] = "([^"]* [^"]*)"')  # why an instance ends, if several places say so
TEXT = re.compile(r'"((?:\\.|[^"\\\n])*)"')
CONVERSION = re.compile(r"%[-+ #0]*(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh|h|ll|l|z|j)?[a-zA-Z]")
SHORTEST = 8  # characters of a text that tests can look for


def texts_of(call: str) -> list:
    """The texts in a call; those that stand behind each other are one, also around PRId64."""
    call = re.sub(r"\bPRI[du]64\b", '"lld"', call)
    joined = re.sub(r'"\s*"', "", call)
    return [text.replace('\\"', '"') for text in TEXT.findall(joined)]


def lines_of_sources() -> dict:
    """Each text of a line, with the files that have it."""
    found: dict = {}
    for folder in ("engine", "sync", "extras"):
        for path in sorted((ROOT / folder).rglob("*.c")):
            source = c_source.without_comments(path.read_text())
            for match in CALL.finditer(source):
                end = c_source.closing(source, match.end() - 1, "(", ")")
                if source[end:].lstrip().startswith("{"):
                    continue  # its definition
                for text in texts_of(source[match.end():end]):
                    if len(text) >= SHORTEST and " " in text:
                        found.setdefault(text, set()).add(str(path.relative_to(ROOT)))
            for text in REASON.findall(source) if path.parent.name == "turn" else ():
                found.setdefault(text, set()).add(str(path.relative_to(ROOT)))
    return found


def entries() -> dict:
    """Line -> (file, words) of its test, or ("", reason)."""
    found: dict = {}
    line = None
    for number, row in enumerate(LIST.read_text().splitlines(), 1):
        if not row or row.startswith("#"):
            continue
        if not row.startswith("    "):
            line = row
            if line in found:
                print(f"tests/log_lines.txt:{number}: twice: {line}")
            found[line] = None
        elif line is None or found[line] is not None:
            print(f"tests/log_lines.txt:{number}: no line of the log before it")
        elif row.startswith("    untested: "):
            found[line] = ("", row[len("    untested: "):])
        else:
            file, _, words = row.strip().partition(": ")
            found[line] = (file, words)
    return found


def may_read(line: str, words: str) -> bool:
    """Whether the words can be a part of a line that was made from this format."""
    parts = [re.escape(part) for part in CONVERSION.split(line.replace("%%", "%"))]
    made = re.compile(".*?".join(parts), re.DOTALL)
    if words in line or made.search(words):
        return True
    # With numbers and names in place of the conversions: each piece of the words between them is looked for.
    pieces = [piece for piece in re.split(r"%[a-z]+|\d+|\.\.\.|\"", words) if piece.strip()]
    at = 0
    for piece in pieces:
        found = line.find(piece, at)
        if found < 0:
            return False
        at = found + len(piece)
    return bool(pieces)


def sources_of_tests() -> dict:
    return {str(path.relative_to(ROOT)): path.read_text() for path in sorted((ROOT / "tests").rglob("*"))
            if path.suffix in (".c", ".h", ".py", ".sh")}


def texts_of_test(source: str) -> list:
    return [text.replace('\\"', '"') for text in TEXT.findall(re.sub(r'"\s*\n?\s*"', "", source))]


def suggest(line: str, tests: dict) -> list:
    found = []
    for file, source in tests.items():
        for text in texts_of_test(source):
            if len(text) >= 12 and " " in text and "{" not in text and may_read(line, text):
                found.append(f"    {file}: {text}")
    return found[:4]


def main() -> None:
    lines, known = lines_of_sources(), entries()
    if "--missing" in sys.argv[1:]:
        tests = sources_of_tests()
        for line, files in lines.items():
            if line not in known:
                print(f"# {', '.join(sorted(files))}\n{line}", *suggest(line, tests), sep="\n")
        return
    for line, files in lines.items():
        if line not in known:
            print(f"{', '.join(sorted(files))}: tests/log_lines.txt has no test for the line \"{line}\"")
    for line, entry in known.items():
        if line not in lines:
            print(f"tests/log_lines.txt: no source writes the line \"{line}\"")
        elif entry is None:
            print(f"tests/log_lines.txt: neither a test nor a reason for \"{line}\"")
        elif entry[0] == "":
            if len(entry[1]) < 20:
                print(f"tests/log_lines.txt: no reason for \"{line}\"")
        else:
            path = ROOT / entry[0]
            source = path.read_text() if path.is_file() else ""
            if entry[1] not in "\n".join(texts_of_test(source)):
                print(f"{entry[0]}: has not the words \"{entry[1]}\"")
            if not may_read(line, entry[1]):
                print(f"tests/log_lines.txt: \"{entry[1]}\" is no part of \"{line}\"")


if __name__ == "__main__":
    main()
