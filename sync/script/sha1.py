#!/usr/bin/env python3
"""sha1.py NAME INPUT OUTPUT -- writes the SHA-1 of a script as a C string: static const char NAME[] = "...";

EVALSHA names a script by it. Computed at build time, so that the library needs no SHA-1 of its own."""
import hashlib
import sys


def sha1(name: str, source: str) -> str:
    with open(source, "rb") as file:
        return 'static const char %s[] = "%s";\n' % (name, hashlib.sha1(file.read()).hexdigest())


def main() -> int:
    name, source, target = sys.argv[1:4]
    with open(target, "w", encoding="ascii") as file:
        file.write(sha1(name, source))
    return 0


if __name__ == "__main__":
    sys.exit(main())
