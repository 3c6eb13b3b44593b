#!/usr/bin/env python3
"""words.py [--figures | -v NAME] -- do pages and comments use words that a reader with English as a second language reads once?

    words          idioms and private words that have a standard word; LEFT has how many of each may be there
    constructions  those that make readers stop. What is above twice the rate of other projects adds up per 1,000 words to the
                   measure of each group; MOST has its limit
    --figures      prints all counts; -v NAME prints the places of one word or construction
Code in blocks and, for words, in backticks is not looked at: identifiers of the header, the command and Redis stay.
Always true: each line of output is one limit that is exceeded; exit status 0 only if there is none. Limits only fall.
Elsewhere: whether named things exist (doc_names.py), links and figures (page_check.py)."""
import glob
import os
import re
import sys

# What to say in its place is in docs/STYLE.md and docs/GLOSSARY.md.
WORDS = {
    "stand (exist, be stored)": r"\b(?:[Ss]tands?|stood)\b(?! for\b)",
    "of before (previous)": r"\b(?:of before|of then|the ones? before|was before)\b",
    "anew (again)": r"\banew\b",
    "go by, go on (use, continue)": r"\b(?:goes|going|go|went) (?:on|by)\b",
    "told, untold (reported, known)": r"\b(?:told|untold|tells?)\b",
    "believe (assume, trust)": r"\b(?:[Bb]elieve[sd]?|beliefs?)\b",
    "owe (unsent)": r"\b(?:owe[sd]?|owing)\b",
    "at rest (idle)": r"\bat rest\b",
    "away (unreachable)": r"\b(?:is|was|while|when|be|are|Redis|master) away\b",
    "homeless (without a master)": r"\bhomeless\b",
    "parked (deferred)": r"\b[Pp]arked\b",
    "stranded (orphaned)": r"\b[Ss]tranded\b",
    "poison (rejected key)": r"\b[Pp]oison(?:ed)?\b",
    "replay window (replay buffer)": r"\breplay window\b",
    "rare words": r"\b(?:beside|torn|lent|dealt|bears?|precious|crumbs|drawn|for good|in hand|dearer)\b",
    "families from first": r"\b(?:families|windows|family|window) from first\b",
    "Answers (Returns)": r"\bAnswers:",
}
CONSTRUCTIONS = {  # what it is, and its highest rate in four well-read C projects
    "semicolon": (r";(?= )", 8.1),
    # Titles that every file or call has, and lists of statuses, apart.
    "colon in place of a verb": (r"(?<=[\w)`*])(?<!Always true)(?<!Elsewhere)(?<!Threads)(?<!Cost)(?<!Goal)(?<!Method)(?<!TW_OK): (?=[A-Za-z`~])", 4.3),
    "'what ...' as a noun": (r"\b[Ww]hat (?!(?:happens|to)\b)[a-z]+ ", 0.8),
    "nothing, nobody, none, neither": (r"\b(?:[Nn]othing|[Nn]obody|[Nn]one|[Nn]either)\b", 0.9),
    "a thing says, asks, knows": (r"\b(?:says?|said|asks? for|asked|wants?|knows?)\b", 2.0),
    "its own, by itself": (r"\b(?:of (?:its|their) own|by (?:it|them)sel(?:f|ves)|its own)\b", 0.1),
    "'Of' in front": (r"(?:^|[.;:] )[Oo]f (?!course)[a-z`]+", 0.1),
    "'where' for 'if'": (r"(?:[,;:] |^|\. )[Ww]here\b", 0.4),
    "'else' for 'otherwise'": (r"\b[Ee]lse\b(?! (?:calls|if|has|is|can))", 0.1),
    "'but for'": (r"\bbut for\b", 0.1),
    "hold": (r"\b(?:holds?|held)\b", 0.6),
    "take": (r"\b(?:takes?|took|taken)\b", 1.1),
}
# The measure of each group, and how often each word may still be there. A smaller number is an improvement: write it down.
MOST: dict[str, float] = {"pages": 4, "header": 3, "engine": 2, "sync": 1, "tools": 1, "extras": 1, "nginx": 1}
LEFT: dict[str, dict[str, int]] = {
    "pages": {"stand (exist, be stored)": 6, "of before (previous)": 3, "anew (again)": 4, "go by, go on (use, continue)": 8, "told, untold (reported, known)": 4, "believe (assume, trust)": 10, "rare words": 9, "families from first": 3},
    "header": {},
    "engine": {"stand (exist, be stored)": 1, "go by, go on (use, continue)": 2, "told, untold (reported, known)": 1, "away (unreachable)": 1, "parked (deferred)": 3, "rare words": 18},
    "sync": {},
    "tools": {"rare words": 2},
    "extras": {},
    "nginx": {},
}
GROUPS = ("pages", "header", "engine", "sync", "tools", "extras", "nginx")


def comments(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return "\n".join(re.findall(r"/\*.*?\*/|//[^\n]*", file.read(), flags=re.S))


def texts_of(group: str) -> list[tuple[str, str]]:
    if group == "pages":
        found = []
        for path in [*glob.glob("README.md"), *sorted(glob.glob("docs/*.md"))]:
            with open(path, encoding="utf-8") as file:
                found.append((path, re.sub(r"```.*?```", "", file.read(), flags=re.S)))
        return found
    below = "include" if group == "header" else group
    return [(path, comments(path)) for path in sorted(glob.glob(below + "/**/*.[ch]", recursive=True)) if path != "include/tallywheel.hpp"]


def without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "``", text)


def counts(texts: list[tuple[str, str]], pattern: str, plain: bool) -> int:
    return sum(len(re.findall(pattern, without_code(text) if plain else text, re.M)) for _, text in texts)


def show(name: str) -> int:
    pattern = WORDS.get(name) or (CONSTRUCTIONS[name][0] if name in CONSTRUCTIONS else None)
    if pattern is None:
        print("one of: " + "; ".join([*WORDS, *CONSTRUCTIONS]), file=sys.stderr)
        return 2
    for group in GROUPS:
        for path, text in texts_of(group):
            text = without_code(text) if name in WORDS else text
            for match in re.finditer(pattern, text, re.M):
                print(f"{path}: {' '.join(text[max(0, match.start() - 60) : match.end() + 40].split())}")
    return 0


class Group:
    def __init__(self, name: str) -> None:
        texts = texts_of(name)
        size = max(1, sum(len(text.split()) for _, text in texts))
        self.words = {word: counts(texts, pattern, True) for word, pattern in WORDS.items()}
        self.rates = {what: 1000 * counts(texts, pattern, False) / size for what, (pattern, _) in CONSTRUCTIONS.items()}
        # Half a word in 1,000 is free, as are twice the rates of others.
        self.measure = sum(max(0, rate - 2 * max(CONSTRUCTIONS[what][1], 0.25)) for what, rate in self.rates.items())
        self.measure += sum(max(0, 1000 * count / size - 0.5) for count in self.words.values())


def figures(groups: dict[str, Group]) -> None:
    head = "".join(f"{name:>9}" for name in groups)
    print(f"{'how often':34}{head}")
    for word in WORDS:
        print(f"{word:34}" + "".join(f"{group.words[word]:9}" for group in groups.values()))
    print(f"{'per 1,000 words':34}{head}   others")
    for what, (_, others) in CONSTRUCTIONS.items():
        print(f"{what:34}" + "".join(f"{group.rates[what]:9.1f}" for group in groups.values()) + f"{others:9.1f}")
    print(f"{'measure':34}" + "".join(f"{group.measure:9.1f}" for group in groups.values()))


def wrong(groups: dict[str, Group]) -> list[str]:
    found = []
    for name, group in groups.items():
        if round(group.measure, 1) > MOST.get(name, 0):
            found.append(f"{name}: measure {group.measure:.1f}, at most {MOST.get(name, 0)} (scripts/words.py --figures)")
        for word, count in group.words.items():
            most = LEFT.get(name, {}).get(word, 0)
            if count > most:
                found.append(f"{name}: {count} times {word}, at most {most} (scripts/words.py -v '{word}')")
    return found


def main() -> int:
    os.chdir(os.environ.get("TW_ROOT") or os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    if len(sys.argv) == 3 and sys.argv[1] == "-v":
        return show(sys.argv[2])
    groups = {name: Group(name) for name in GROUPS}
    if sys.argv[1:] == ["--figures"]:
        figures(groups)
        return 0
    lines = wrong(groups)
    print("\n".join(lines), end="\n" if lines else "")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
