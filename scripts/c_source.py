"""c_source.py -- C sources as the scripts of this folder read them: functions by name, and what is left of their text.

Always true: nothing is compiled; a definition is a name at the outermost level, its parentheses, and a brace. Text that is
blanked keeps its length and its lines, so that a place in it is a place in the file."""
import re
from functools import lru_cache

COMMENT_OR_TEXT = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL)
TEXT = re.compile(r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'")
EXTERN_C = re.compile(r'extern\s+"C"\s*\{')
DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.MULTILINE)
NAME_BEFORE = re.compile(r"([A-Za-z_]\w*)\s*$")
NAME_MADE_BEFORE = re.compile(r"[A-Za-z_]\w*\s*\(\s*([A-Za-z_]\w*)\s*\)\s*$")  # OWN(take)(int n) {...}: of a template
NAME_INSIDE = re.compile(r"\(\s*([A-Za-z_]\w*)\s*[,)]")  # TEST(a_sentence) {...}: a macro in capitals defines what its first argument names
MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+([A-Za-z_]\w*)", re.MULTILINE)


def without_comments(text: str) -> str:
    return COMMENT_OR_TEXT.sub(lambda match: " " if match.group(0).startswith("/") else match.group(0), text)


def squeezed(text: str) -> str:
    """Without comments and without any blank that parts no two words."""
    text = re.sub(r"\s+", " ", without_comments(text)).strip()
    return re.sub(r" ?([^\w ]) ?", r"\1", text)


def closing(text: str, at: int, opens: str, closes: str) -> int:
    """Behind the bracket that closes the one at `at`."""
    depth = 0
    for index in range(at, len(text)):
        if text[index] == opens:
            depth += 1
        elif text[index] == closes:
            depth -= 1
            if depth == 0:
                return index + 1
    return len(text)


def blanked(pattern: re.Pattern, text: str) -> str:
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match.group(0)), text)


def definitions(text: str) -> list:
    """(name, begin, begin of the body, end) of each function in a text that has no comments."""
    # Brackets within texts and directives are none, nor is the one around a header for C++.
    plain = blanked(DIRECTIVE, blanked(TEXT, blanked(EXTERN_C, text)))
    found: list = []
    begin = at = 0  # begin: of what stands at the outermost level
    while at < len(plain):
        sign = plain[at]
        if sign == ";":
            begin = at = at + 1
        elif sign == "(":
            name, end = NAME_BEFORE.search(plain, begin, at), closing(plain, at, "(", ")")
            name = name or NAME_MADE_BEFORE.search(plain, begin, at)
            behind = re.match(r"\s*\{", plain[end:])
            if name and behind and re.fullmatch(r"[A-Z]\w*", name.group(1)) and name.group(1).isupper():
                name = NAME_INSIDE.match(plain, at) or name
            if name and behind and name.group(1) != "__attribute__":
                body = end + behind.end() - 1
                over = closing(plain, body, "{", "}")
                begin += len(plain[begin:over]) - len(plain[begin:over].lstrip())  # directives in front are not its own
                found.append((name.group(1), begin, body, over))
                begin = end = over
            at = end
        elif sign == "{":
            at = closing(plain, at, "{", "}")  # a struct, an enum, a table
        else:
            at += 1
    return found


@lru_cache(maxsize=None)
def functions(path: str) -> dict:
    """Name -> text of its definition; of several (in branches of #if) all, one after the other."""
    with open(path, encoding="utf-8") as file:
        text = without_comments(file.read())
    found: dict = {}
    for name, begin, _, end in definitions(text):
        found[name] = found.get(name, "") + text[begin:end].strip() + "\n"
    return found


@lru_cache(maxsize=None)
def macros(path: str) -> frozenset:
    with open(path, encoding="utf-8") as file:
        return frozenset(MACRO.findall(file.read()))
