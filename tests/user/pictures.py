#!/usr/bin/env python3
"""pictures.py ROOT -- scripts/bench_pictures.py: does it draw all that was measured, and refuse what it cannot read?
Method: small files as ./dev bench writes them, each picture read as XML; then one fault after the other planted into
the files. The pictures of docs/pictures are looked at in the same way. Prints TAP.
Always true: nothing is left of a run."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

sys.dont_write_bytecode = True
sys.path.append(sys.path[0] + "/../support")
import tap
from tap import no_faults

ROOT = os.path.abspath(sys.argv[1])
SCRIPT = os.path.join(ROOT, "scripts", "bench_pictures.py")
NAMES = ("latency", "growth", "rollover", "overshoot")
HEADER = "command,workload,variant,threads,key_bytes,peer,form,round,metric,value\n"
HEAD = ("machine:  Some CPU @ 2.00GHz, 7 cores, 9.0 GiB of memory available\n"
        "system:   Linux 6.1.0-9 x86_64; transparent huge pages: always; load: 0.1\n"
        "built by: gcc 12.2.0, optimised; malloc: as it is\ndate:     2026-11-02\n")
PEERS = [("tallywheel", "view"), ("tallywheel", "sized"), ("floor", "as one"), ("Abseil", "inline"),
         ("Abseil", "string"), ("liburcu", "node"), ("Slowest", "string")]


# ---- files as the benchmark writes them ----


def row(command: str, workload: str, variant: str, peer: tuple, a_round: int, metric: str, value: float) -> str:
    return f"{command},{workload},{variant},1,0,{peer[0]},{peer[1]},{a_round},{metric},{value:.9g}\n"


def alone(rounds: tuple) -> str:
    """`rounds`: by what the figures of each are multiplied."""
    text = HEADER
    for a_round, factor in enumerate(rounds):
        for workload in ("W1", "W2"):
            for at, peer in enumerate(PEERS):
                for metric, ns in (("p50", 100), ("p99", 400), ("p99.9", 900), ("p99.99", 5000), ("max", 1e9)):
                    text += row("alone", workload, "dependent", peer, a_round, metric, ns * factor * (at + 1))
                text += row("alone", workload, "in a row", peer, a_round, "p50", 7e9)
            longer = row("alone", workload, "dependent", ("Other", "inline"), a_round, "p50", 7e9)
            text += longer.replace(",0,", ",48,", 1)
    return text


def curves(command: str, workload: str, variants: tuple, peers: list) -> str:
    text = HEADER
    for variant in variants:
        for at, peer in enumerate(peers):
            for step in range(0, 22):
                ns = 50 * (at + 1) * 2.0 ** step
                text += row(command, workload, variant, peer, 0, f"curve {10 ** (-step / 3):.3g}", ns)
    return text


RIVALS = ("ninja: no work to do\n\n| Calls come evenly to all nodes | 2 | 4 | 8 |\n| --- | --- | --- | --- |\n"
          "| deltas sent again on error | +10.0 | +1.6 (+1.7) | +1.8 |\n"
          "| fixed share of the limit | -49.3 | 0 (-0.10) | 0 |\n"
          "| Tallywheel, soft | +0.04 | +0.06 | 0 |\n\n| &nbsp; what Redis has counted | 2 | 4 | 8 |\n"
          "| --- | --- | --- | --- |\n| deltas sent again on error | +77.0 | 0 | 0 |\n")
NOISE = ("clock only", "noise")
WINDOWED = [("tallywheel", "view"), ("tallywheel", "synced"), NOISE]
FILES = {
    "alone.csv": alone((1, 3, 2)),
    "alone.txt": HEAD + "W1 29 1 family: 65536 keys of 29.4 bytes; ns\nW2 29 1 family: 10000000 keys of 29.4 bytes\n",
    "grow.csv": curves("grow", "W5", ("full speed",), [("tallywheel", "view"), NOISE, ("GLib", "inline")])
                + curves("grow", "W5", ("paced",), WINDOWED)[len(HEADER):],
    "grow.txt": HEAD + "W5: 3000000 new keys, growing from small, 1 thread(s)\n"
                       "W5 paced: 1000000 new keys at 200000 a second, 1 thread\n",
    "rollover.csv": curves("rollover", "rollover", ("near", "between"), WINDOWED),
    "rollover.txt": HEAD + "between boundaries, 100000 keys, 6 boundaries a round; times\n",
    "rivals.txt": RIVALS,
}


class Stage:
    """A folder with these files, and one for the pictures."""

    def __init__(self, files: dict) -> None:
        self.folder = tempfile.mkdtemp(prefix="pictures")
        self.out = os.path.join(self.folder, "out")
        os.mkdir(self.out)
        for name, text in files.items():
            with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
                file.write(text)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder)

    def draw(self) -> subprocess.CompletedProcess:
        return subprocess.run([sys.executable, SCRIPT, self.folder, self.out], text=True, capture_output=True,
                              check=False, timeout=60)

    def made(self) -> dict:
        found = {}
        for name in os.listdir(self.out):
            with open(os.path.join(self.out, name), encoding="utf-8") as file:
                found[name[:-4]] = file.read()
        return found


def drawn(files: dict) -> dict:
    with Stage(files) as stage:
        said = stage.draw()
        if said.returncode:
            tap.comment(said.stderr)
        return stage.made()


# ---- a picture, as a reader sees it ----


class Picture:
    def __init__(self, svg: str) -> None:
        self.root = xml.fromstring(svg)
        self.width, self.height = (float(word) for word in self.root.get("viewBox").split()[2:])
        self.style = "".join(one.text for one in self.each("style"))
        self.texts = [(one.text, float(one.get("x")), float(one.get("y")), one.get("class", ""))
                      for one in self.each("text")]

    def each(self, tag: str) -> list:
        return [one for one in self.root.iter() if one.tag.endswith("}" + tag)]

    def names(self) -> list:
        return [words for words, _, _, css in self.texts if css.startswith("name ")]

    def points(self, number: int) -> list:
        pairs = self.each("polyline")[number].get("points").split()
        return [tuple(float(part) for part in pair.split(",")) for pair in pairs]

    def boxes(self, of_char: float) -> list:
        """(left, right, middle, words); letters are so wide."""
        found = []
        for words, x, y, css in self.texts:
            wide = of_char * len(words)
            left = x - (wide if "end" in css.split() else wide / 2 if "middle" in css.split() else 0)
            found.append((left, left + wide, y - 4, words))
        return found


def faults_of(name: str, svg: str) -> list:
    """What a reader would stumble over."""
    try:
        picture = Picture(svg)
    except (xml.ParseError, TypeError, ValueError) as error:
        return [f"{name}: {error}"]
    wrong = []
    page = picture.each("rect")[0]
    if page.get("class") != "page" or ".page{fill:#" not in picture.style or \
              float(page.get("width")) < picture.width - 2 or float(page.get("height")) < picture.height - 2:
        wrong.append(f"{name}: no background of its own")
    if "prefers-color-scheme:dark" not in picture.style or not picture.each("title") or not picture.each("desc"):
        wrong.append(f"{name}: nothing for dark pages, or nothing for who does not see it")
    for left, right, middle, words in picture.boxes(6.6):
        if left < 0 or right > picture.width or middle < 8 or middle > picture.height - 4:
            wrong.append(f"{name}: '{words}' leaves the picture")
    boxes = picture.boxes(6.2)
    for at, one in enumerate(boxes):
        for other in boxes[:at]:
            if abs(one[2] - other[2]) < 10 and one[0] < other[1] and other[0] < one[1]:
                wrong.append(f"{name}: '{one[3]}' stands on '{other[3]}'")
    for line in picture.each("polyline"):
        for pair in line.get("points").split():
            x, y = (float(part) for part in pair.split(","))
            if not (0 < x < picture.width and 0 < y < picture.height):
                wrong.append(f"{name}: a line leaves the picture")
    if len(picture.each("polyline")) != len(picture.names()):
        wrong.append(f"{name}: {len(picture.each('polyline'))} lines, {len(picture.names())} names")
    return wrong


def named(picture: Picture, wanted: dict) -> list:
    """Names that do not stand as often as wanted."""
    names = picture.names()
    return [f"{words}: {names.count(words)} times" for words in {*names, *wanted}
            if names.count(words) != wanted.get(words)]


def away_from(picture: Picture, name: str, wanted: tuple) -> list:
    """Points of a line (number, tick) that do not stand as high as that tick of the first panel."""
    points, wrong = picture.points(picture.names().index(name)), []
    for number, words in wanted:
        tick = next((y - 4 for text, _, y, _ in picture.texts if text == words), 0)
        if abs(tick - points[number][1]) > 0.15:
            wrong.append(f"{name}: {points[number][1]}, the tick {words} is at {tick}")
    return wrong


def check_drawing() -> None:
    made = drawn(FILES)
    wrong = [f"no {name}.svg" for name in NAMES if name not in made]
    no_faults(wrong + [fault for name, svg in made.items() for fault in faults_of(name, svg)],
              "four pictures, well-formed, nothing stands on anything else")
    if wrong:
        return
    latency, growth, rollover, overshoot = (Picture(made[name]) for name in NAMES)
    wanted = ["Abseil inline", "Abseil string", "Slowest string", "Tallywheel", "ours, sized", "floor",
              "liburcu node"]
    no_faults(named(latency, {words: 2 for words in wanted}), "every peer is named in each panel, losers and ours alike")
    no_faults(named(growth, {"GLib inline": 1, "Tallywheel": 2, "ours, synced": 1, "clock only": 2}),
              "growth: at full speed and paced")
    no_faults(named(rollover, {"ours, near": 2, "ours, between": 2, "clock, near": 2, "clock, between": 2}),
              "roll-over: near a boundary and between, and the clock alone")
    no_faults(named(overshoot, {"sent again": 1, "fixed share": 1, "Tallywheel soft": 1}),
              "overshoot: each way of doing it once, what Redis has counted is no case")
    # Rounds of 1, 3, 2 times 100 ns and so on: the medians are twice those.
    no_faults(away_from(latency, "Tallywheel", ((0, "200 ns"), (3, "10 µs"))),
              "a median of 200 ns stands at the tick 200 ns, 10 µs at 10 µs")
    no_faults(away_from(overshoot, "sent again", ((0, "+10"),)) + away_from(overshoot, "Tallywheel soft", ((2, "0"),)),
              "+10 % over the limit stands at the tick +10, 0 at 0")
    one_round = drawn(dict(FILES, **{"alone.csv": alone((2,))}))
    no_faults([] if one_round == made else ["they differ"], "the same medians make the same pictures, to the byte")
    machine = ("Some CPU @ 2.00GHz, 7 cores", "Linux 6.1, ", "gcc 12.2.0", "2026-11-02, load: 0.1 ")
    no_faults([f"{name}: no {words}" for name in NAMES[:3] for words in machine if words not in made[name]],
              "machine, system, compiler and date stand below")


# A file, what stands there, a fault in its place, the line that is named (0: none), and what is said.
FAULTS = [
    ("alone.csv", "command,workload", "workload", 1, "the first line is not"),
    ("alone.csv", ",p50,100\n", ",p50\n", 2, "9 fields, should be 10"),
    ("alone.csv", ",p50,100\n", ",p50,100,7\n", 2, "11 fields, should be 10"),
    ("alone.csv", ",p50,100\n", ",p50,fast\n", 2, "'fast' is no figure"),
    ("alone.csv", ",p50,100\n", ",p50,nan\n", 2, "'nan' is no figure"),
    ("alone.csv", ",dependent,1,0,", ",dependent,one,0,", 2, "threads 'one'"),
    ("alone.csv", FILES["alone.csv"], "", 1, "the first line is not"),
    ("alone.csv", FILES["alone.csv"], HEADER, 0, "nothing there for '65,536 keys'"),
    ("alone.txt", "date:", "when:", 0, "no line begins with 'date:'"),
    ("alone.txt", "machine:", "", 0, "no line begins with 'machine:'"),
    ("alone.txt", "Linux 6.1.0-9", "Linux", 0, "no line begins with 'system:'"),
    ("alone.txt", "W2 29 1 family", "W2", 0, "no title says the number of keys"),
    ("grow.csv", "curve 0.1,", "curve tenth,", 5, "'curve tenth' is no point of a curve"),
    ("rivals.txt", "+1.6 (+1.7)", "+1.6 (+1.7", 5, "not 3 figures"),
    ("rivals.txt", "| +1.8 |", "|", 5, "not 3 figures"),
    ("rivals.txt", "| 2 | 4 | 8 |", "| two | 4 | 8 |", 3, "does not begin with its title and numbers of nodes"),
    ("rivals.txt", RIVALS, "dev: the build failed\n", 0, "no table of ./dev bench rivals"),
]


def check_refusals() -> None:
    wrong = []
    for name, right, fault, number, says in FAULTS:
        planted = FILES[name].replace(right, fault, 1)
        if planted == FILES[name]:
            wrong.append(f"{name} has no '{right}'")
        with Stage(dict(FILES, **{name: planted})) as stage:
            said = stage.draw()
            lines = said.stderr.splitlines()
            where = os.path.join(stage.folder, name) + (f":{number}:" if number else "")
            if said.returncode != 1 or len(lines) != 1 or where not in lines[0] or says not in lines[0]:
                wrong.append(f"{name}, '{fault[:40]}': status {said.returncode}, said {said.stderr}")
            if stage.made():
                wrong.append(f"{name}, '{fault[:40]}': pictures {list(stage.made())}")
    no_faults(wrong, "what is not understood is named by file and line, and nothing is drawn")
    with Stage({name: text for name, text in FILES.items() if not name.startswith(("grow", "rivals"))}) as stage:
        said = stage.draw()
        no_faults([] if said.returncode == 0 and sorted(stage.made()) == ["latency", "rollover"] and
                  "left out: growth.svg" in said.stdout and "left out: overshoot.svg" in said.stdout else [said],
                  "a picture without its files is left out, and a line says so")
    with Stage({}) as stage:
        said = stage.draw()
        no_faults([] if said.returncode == 1 and "nothing to draw from" in said.stderr and not stage.made() else [said],
                  "an empty folder is an error")


def check_repository() -> None:
    folder = os.path.join(ROOT, "docs", "pictures")
    wrong, pages = [], {}
    for name in ("README.md", "README.zh-CN.md", "docs/SPEED.md", "docs/LIMITS.md"):
        with open(os.path.join(ROOT, name), encoding="utf-8") as file:
            pages[name] = file.read()
    for name in NAMES:
        path = os.path.join(folder, f"{name}.svg")
        if not os.path.exists(path):
            wrong.append(f"no {path}")
            continue
        with open(path, encoding="utf-8") as file:
            svg = file.read()
        wrong += faults_of(name, svg)
        machine = r">.+, \d+ cores, Linux \d+\.\d+, gcc \S+, \d{4}-\d\d-\d\d, load: \S+ at the start<"
        if name != "overshoot" and not re.search(machine, svg):
            wrong.append(f"{name}: no machine, system and date")
        if not any(f"pictures/{name}.svg)" in text for text in pages.values()):
            wrong.append(f"{name}: on no page")
    no_faults(wrong, "the pictures of docs/pictures are sound, and stand on a page")


tap.plan(13)
check_drawing()
check_refusals()
check_repository()
tap.end()
