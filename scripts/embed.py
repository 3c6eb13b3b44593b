#!/usr/bin/env python3
"""embed.py NAME INPUT OUTPUT -- writes a script as a C string, static const char NAME[] = "...", and its SHA-1, NAME_sha1.

Used by the build for sync/script/*.lua. A script that has the line "-- In front: OTHER.lua" begins with the text of that
file, which lies beside it. EVALSHA names a script by the SHA-1 of the whole text, so the library needs no SHA-1 of its
own. The standard promises 4,095 bytes of a literal; every compiler that knows this pragma
takes all of them."""
import hashlib
import os
import re
import sys

PRAGMAS = ('#pragma GCC diagnostic push\n#pragma GCC diagnostic ignored "-Woverlength-strings"\n',
           "#pragma GCC diagnostic pop\n")
IN_FRONT = re.compile(rb"^-- In front: (\w+\.lua)$", re.MULTILINE)


def c_line(line: bytes) -> str:
    out = []
    for byte in line:
        char = chr(byte)
        if char == "\n":
            out.append("\\n")
        elif char in '"\\?':
            out.append("\\" + char)
        elif 32 <= byte < 127:
            out.append(char)
        else:
            out.append("\\%03o" % byte)
    return '    "%s"' % "".join(out)


def whole(source: str) -> bytes:
    """The text of a script with what comes in front of it."""
    with open(source, "rb") as file:
        text = file.read()
    front = IN_FRONT.search(text)
    return whole(os.path.join(os.path.dirname(source), front.group(1).decode())) + text if front else text


def embedded(name: str, source: str) -> str:
    script = whole(source)
    lines = script.splitlines(keepends=True)
    head = "/* Made from %s by embed.py: change that, not this. */\n" % source.replace("\\", "/").rsplit("/", 1)[-1]
    text = "static const char %s[] =\n%s;\n" % (name, "\n".join(c_line(line) for line in lines) or '    ""')
    sha1 = 'static const char %s_sha1[] = "%s";\n' % (name, hashlib.sha1(script).hexdigest())
    return head + PRAGMAS[0] + text + PRAGMAS[1] + sha1


def main() -> int:
    name, source, target = sys.argv[1:]
    with open(target, "w", encoding="ascii") as file:
        file.write(embedded(name, source))
    return 0


if __name__ == "__main__":
    sys.exit(main())
