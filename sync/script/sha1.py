#!/usr/bin/env python3
"""sha1.py NAME INPUT OUTPUT -- writes the SHA-1 of a script as a C string: static const char NAME[] = "...";

EVALSHA names a script by it. Computed at build time, so that the library needs no SHA-1 of its own."""
import hashlib
import sys

name, source, target = sys.argv[1:4]
with open(source, "rb") as file:
    digest = hashlib.sha1(file.read()).hexdigest()
with open(target, "w", encoding="ascii") as file:
    file.write('static const char %s[] = "%s";\n' % (name, digest))
