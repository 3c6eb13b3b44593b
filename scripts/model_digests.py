#!/usr/bin/env python3
"""model_digests.py [--renew [MODEL...]] -- are the models of tests/orderings still models of the code?

A model repeats functions of the engine word by word, and names each in a line of its head:
    //   engine/count/dirty.c:twi_dirty_mark 0123456789ab
The last word is a digest of the function's text, comments and blanks apart. Where it is another one now, the function has changed
since somebody last read the two side by side. --renew writes the digests of now: it is for who has compared them.
Always true: exit status 0 only if every model names what it copies, all of that exists, and no digest is stale."""
import glob
import hashlib
import os
import re
import sys

sys.dont_write_bytecode = True
import c_source

LINE = re.compile(r"^//   (\S+\.[ch]):(\w+)(?: (\S+))?$", re.MULTILINE)


def digest_of(path: str, name: str) -> str:
    """Empty: there is no such function."""
    text = c_source.functions(path).get(name, "") if os.path.exists(path) else ""
    return hashlib.sha256(c_source.squeezed(text).encode()).hexdigest()[:12] if text else ""


def check(model: str, text: str) -> list[str]:
    lines = LINE.findall(text)
    wrong = [] if lines else [f"{model}: names no function that it copies"]
    for path, name, digest in lines:
        now = digest_of(path, name)
        if not now:
            wrong.append(f"{model}: {path} has no function {name}()")
        elif now != digest:
            wrong.append(f"{model}: {path}: {name}() has changed")
    return wrong


def renewed(text: str) -> str:
    return LINE.sub(lambda line: f"//   {line.group(1)}:{line.group(2)} {digest_of(line.group(1), line.group(2))}".rstrip(), text)


def main() -> int:
    os.chdir(os.environ.get("TW_ROOT") or os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    arguments = sys.argv[1:]
    renew = arguments[:1] == ["--renew"]
    wrong = []
    for model in sorted((renew and arguments[1:]) or glob.glob("tests/orderings/*.cpp")):
        with open(model, encoding="utf-8") as file:
            text = file.read()
        if renew and renewed(text) != text:
            text = renewed(text)
            with open(model, "w", encoding="utf-8") as file:
                file.write(text)
            print(f"{model}: renewed")
        wrong += check(model, text)
    for line in wrong:
        print(line)
    if any(line.endswith("has changed") for line in wrong):
        print("compare each with its model, mend that, then: python3 scripts/model_digests.py --renew")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
