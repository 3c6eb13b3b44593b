#!/usr/bin/env python3
"""embed.py NAME INPUT OUTPUT -- writes a text file as a C string: static const char NAME[] = "...";

Used by the build for sync/script/*.lua. The bytes are the file's own, so that their SHA-1 is the script's."""
import sys


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


def embedded(name: str, source: str) -> str:
    with open(source, "rb") as file:
        lines = file.read().splitlines(keepends=True)
    head = "/* Made from %s by embed.py: change that, not this. */\n" % source.replace("\\", "/").rsplit("/", 1)[-1]
    return head + "static const char %s[] =\n%s;\n" % (name, "\n".join(c_line(line) for line in lines) or '    ""')


def main() -> int:
    name, source, target = sys.argv[1:4]
    with open(target, "w", encoding="ascii") as file:
        file.write(embedded(name, source))
    return 0


if __name__ == "__main__":
    sys.exit(main())
