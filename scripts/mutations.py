#!/usr/bin/env python3
"""mutations.py FILE... -- which comparisons and constants of a C file can be changed, one at a time, each as a mistake.

A comparison becomes its neighbour (< and <=, > and >=, == and !=), && becomes || and || becomes &&, a ! is left out, and an
integer is one more or one less. Prints one change a line: the place, the function, the old text and the new.
Always true: a change is in the body of a function or of a macro. It is never in a comment, in a text, in a condition of #if,
in a size of an array, or in a check of the code by itself (twi_check, static_assert), because those are no behaviour.
Elsewhere: mutants_random.py draws changes and plays tests with them."""
import os
import re
import sys
from dataclasses import dataclass

sys.dont_write_bytecode = True
import c_source

OPERATOR = re.compile(r"->|<<=?|>>=?|[<>=!]=|&&|\|\||[<>!]")
OTHER = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&", "!": ""}
NUMBER = re.compile(r"(?<![\w.])(0[xX][0-9a-fA-F]+|\d+)(?=[uUlL]*(?![\w.]))")
NO_CONSTANT = re.compile(r"^[ \t]*#[ \t]*(?!define\b)(?:\\\n|[^\n])*", re.MULTILINE)
DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+([A-Za-z_]\w*)(\([^)]*\))?", re.MULTILINE)
CALL = re.compile(r"\b(?:twi_check\w*|TWI_TRAP_UNLESS|_?[Ss]tatic_assert|TWI_RACE_POINT|__attribute__|__builtin_expect)\s*\(")
ARRAY = re.compile(r"\b(?!return\b|case\b)\w+[ *]+\w+((?:\[[^\]\n]*\])+)\s*[;=,]")
# Where an expression begins, seen from inside of it.
BEGINS = re.compile(r"[;{}?:,]|(?<![=!<>])=(?!=)|\breturn\b|\\\n")
TRAP = "__extension__({ __builtin_trap(); %s; })"


@dataclass(frozen=True)
class Change:
    path: str
    function: str
    line: int
    column: int
    at: int
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column} {self.function}: {self.old} -> {self.new or 'nothing'}"

    def applied(self, text: str) -> str:
        return text[: self.at] + self.new + text[self.at + len(self.old) :]

    def trapped(self, text: str) -> str:
        """The program ends where the changed expression would be calculated."""
        end = self.at + len(self.old)
        if self.old in ("&&", "||"):
            begin = expression_begin(plain_of(text), self.at)
            return f"{text[:begin]} {TRAP % 1} && {text[begin:]}"
        if self.old == "!":
            return f"{text[:self.at]}{TRAP % 0} + {text[self.at:]}"
        if self.old in OTHER:
            return f"{text[:end]} {TRAP % 0} + {text[end:]}"
        return f"{text[:self.at]}{TRAP % self.old}{text[end:]}"


def plain_of(text: str) -> str:
    """What is left are functions and macros; all else is blank, and each place is where it was."""
    plain = c_source.blanked(NO_CONSTANT, c_source.blanked(c_source.COMMENT_OR_TEXT, text))
    for call in CALL.finditer(plain):
        end = c_source.closing(plain, call.end() - 1, "(", ")")
        plain = plain[: call.start()] + re.sub(r"[^\n]", " ", plain[call.start() : end]) + plain[end:]
    for array in reversed(list(ARRAY.finditer(plain))):
        begin, end = array.span(1)
        plain = plain[:begin] + " " * (end - begin) + plain[end:]
    return plain


def expression_begin(plain: str, at: int) -> int:
    """Behind the bracket, the sign or the word before the expression that contains the place."""
    depth = 0
    for index in range(at - 1, -1, -1):
        if plain[index] in ")]":
            depth += 1
        elif plain[index] in "([":
            if depth == 0:
                return index + 1
            depth -= 1
        elif depth == 0:
            sign = BEGINS.match(plain, index)
            if sign:
                return sign.end()
    return 0


def numbers_beside(old: str) -> list[str]:
    value = int(old, 0) if not re.fullmatch(r"0\d+", old) else int(old, 8)
    form = hex if old[:2] in ("0x", "0X") else str
    return [form(value + 1)] if value == 0 else [form(value + 1), form(value - 1)]


def changes_of(path: str) -> list[Change]:
    """All of a file, in the order of their places."""
    with open(path, encoding="utf-8") as file:
        plain = plain_of(file.read())
    parts = [(name, body, end) for name, _, body, end in c_source.definitions(plain)]
    for macro in DEFINE.finditer(plain):
        parts.append((macro.group(1), macro.end(), c_source.DIRECTIVE.match(plain, macro.start()).end()))
    found = []
    for name, begin, end in parts:
        for sign in OPERATOR.finditer(plain, begin, end):
            if sign.group(0) in OTHER:
                found.append((sign.start(), name, sign.group(0), OTHER[sign.group(0)]))
        for number in NUMBER.finditer(plain, begin, end):
            found += [(number.start(), name, number.group(1), new) for new in numbers_beside(number.group(1))]
    return [Change(path, name, plain.count("\n", 0, at) + 1, at - plain.rfind("\n", 0, at), at, old, new)
            for at, name, old, new in sorted(found)]


def main() -> int:
    os.chdir(os.environ.get("TW_ROOT") or os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    for path in sys.argv[1:]:
        for change in changes_of(path):
            print(change)
    return 0


if __name__ == "__main__":
    sys.exit(main())
