#!/usr/bin/env python3
"""embed.py NAME INPUT OUTPUT -- writes a text file as a C string: static const char NAME[] = "...";

Used by the build for sync/script/*.lua. The bytes are the file's own, so that their SHA-1 is the script's. The standard
promises 4,095 bytes of a literal; every compiler that knows this pragma takes all of them."""
import sys

PRAGMAS = ('#pragma GCC diagnostic push\n#pragma GCC diagnostic ignored "-Woverlength-strings"\n',
           "#pragma GCC diagnostic pop\n")


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
    text = "static const char %s[] =\n%s;\n" % (name, "\n".join(c_line(line) for line in lines) or '    ""')
    return head + PRAGMAS[0] + text + PRAGMAS[1]


def main() -> int:
    name, source, target = sys.argv[1:4]
    with open(target, "w", encoding="ascii") as file:
        file.write(embedded(name, source))
    return 0


if __name__ == "__main__":
    sys.exit(main())
