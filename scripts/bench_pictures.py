#!/usr/bin/env python3
"""bench_pictures.py FOLDER OUT -- draws what ./dev bench measured, as latency.svg, growth.svg, rollover.svg and
overshoot.svg in OUT.

FOLDER has what the benchmark wrote (NAME.csv) and what it printed (NAME.txt), for alone, grow and rollover, and
rivals.txt, a simulation, which has no CSV. A picture without its files is left out, and a line says so.
Every row of a CSV file is drawn, the losers and ours alike: what a reader sees was not chosen. A point is the median of
the rounds. Machine, system and date come from the head of NAME.txt, numbers of keys from its titles. Of the kernel only
major.minor is named: what follows is the name that somebody gave a build of it.
Always true: a line that is not understood ends it with FILE:LINE and one sentence, exit status 1, and no picture is
written. The same files make the same pictures, byte by byte."""
import math
import os
import re
import statistics
import sys
from xml.sax.saxutils import escape

sys.dont_write_bytecode = True
HEADER = "command,workload,variant,threads,key_bytes,peer,form,round,metric,value"
OURS, NOISE, FLOOR = "tallywheel", "clock only", "floor"
QUANTILES = {"p50": 0.5, "p99": 1e-2, "p99.9": 1e-3, "p99.99": 1e-4}  # as shares of calls that took longer
NAMES = {(OURS, "view"): "Tallywheel", (OURS, "sized"): "ours, sized", (OURS, "synced"): "ours, synced",
         (NOISE, "noise"): "clock only", (FLOOR, "as one"): "floor"}
DASHED, DOTTED = "7 3", "2 3"
DASHES = {"string": DASHED, "sized": DASHED, "synced": DASHED, "between": DASHED, "node": DOTTED, "as one": DOTTED,
          "noise": DOTTED}

WIDTH, HALF, LEFT, LABELS = 760, 380, 52, 138  # of the picture, of a panel, of its axis, of the names beside it
LINE = 13  # from one name to the next
PEERS = (("#1f5fa8", "#7db4f0"), ("#2b7a3d", "#7fcf92"), ("#7a3f9c", "#c79be8"), ("#8a5a0f", "#dcb36a"),
         ("#0f7480", "#6fcdd8"), ("#6b6414", "#cfc56a"), ("#9c2f6b", "#ee94c4"), ("#4b5563", "#aab4c0"))  # light, dark
STYLE = ("text{font:12px system-ui,'Segoe UI','DejaVu Sans',sans-serif;fill:#1f2328}.head,.what{font-weight:600}"
         ".head{font-size:14px}.name{font-size:11.5px}.soft{fill:#57606a}.tick{font-size:11px}"
         ".middle{text-anchor:middle}.end{text-anchor:end}.page{fill:#ffffff;stroke:#d0d7de}"
         ".axis{stroke:#57606a}.grid{stroke:#d0d7de;stroke-width:.7}"
         "polyline{fill:none;stroke-width:1.4}polyline.k{stroke-width:2.6}.lead{stroke-width:.7;opacity:.7}"
         ".far{stroke-width:1;opacity:.6}")
DARK = ("text{fill:#e6edf3}.soft{fill:#a9b4c0}.page{fill:#12171e;stroke:#3d444d}.axis{stroke:#a9b4c0}"
        ".grid{stroke:#2f3740}")


class Fault(Exception):
    """What is wrong with a file, in one line."""


# ---- what was measured ----


def lines_of(path: str) -> list:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise Fault(f"{path}: {error.strerror if isinstance(error, OSError) else 'is no text'}") from error


SHARE = re.compile(r"1|0?\.\d+|\d(?:\.\d+)?e-\d+")


def read_csv(path: str) -> dict:
    """(workload, variant, threads, key_bytes, peer, form) -> metric -> the values of all rounds."""
    rows = {}
    lines = lines_of(path)
    if not lines or lines[0] != HEADER:
        raise Fault(f"{path}:1: the first line is not '{HEADER}'")
    for number, line in enumerate(lines[1:], 2):
        fields = line.split(",")
        if len(fields) != HEADER.count(",") + 1:
            raise Fault(f"{path}:{number}: {len(fields)} fields, should be {HEADER.count(',') + 1}")
        _, workload, variant, threads, key_bytes, peer, form, _, metric, text = fields
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise Fault(f"{path}:{number}: '{text}' is no figure")
        if metric.startswith("curve ") and not SHARE.fullmatch(metric[6:]):
            raise Fault(f"{path}:{number}: '{metric}' is no point of a curve")
        if not threads.isdigit() or not key_bytes.isdigit():
            raise Fault(f"{path}:{number}: threads '{threads}' and key_bytes '{key_bytes}' should be numbers")
        at = (workload, variant, int(threads), int(key_bytes), peer, form)
        rows.setdefault(at, {}).setdefault(metric, []).append(value)
    return rows


def quantiles_of(metrics: dict) -> list:
    """Points (share of the calls that took longer, ns), in the order of the axis: the curve where there is one."""
    found = {}
    for metric, values in metrics.items():
        if metric.startswith("curve "):
            found[float(metric[6:])] = statistics.median(values)
    for metric, beyond in QUANTILES.items() if not found else ():
        if metric in metrics:
            found[beyond] = statistics.median(metrics[metric])
    return [(beyond, found[beyond]) for beyond in sorted(found, reverse=True) if beyond <= 0.5 and found[beyond] > 0]


HEAD = {"machine:": r"(.+?, \d+ cores)", "system:": r"(\S+ \d+\.\d+)", "built by:": r"(.+?),",
        "date:": r"(\d{4}-\d\d-\d\d)", "system: .*;": r"(load: \S+)"}


def machine_of(path: str) -> str:
    """Machine, system, date, and how busy it was at the beginning, of the head that the benchmark prints."""
    said = "\n".join(lines_of(path))
    parts = []
    for begin, pattern in HEAD.items():
        match = re.search(f"^{begin} *{pattern}", said, re.MULTILINE)
        if not match:
            raise Fault(f"{path}: no line begins with '{begin.split()[0]}' and says it")
        parts.append(match.group(1))
    return ", ".join(parts) + " at the start"


def keys_of(path: str, pattern: str) -> int:
    match = re.search(pattern, "\n".join(lines_of(path)), re.MULTILINE)
    if not match:
        raise Fault(f"{path}: no title says the number of keys ('{pattern}')")
    return int(match.group(1))


CELL = re.compile(r"([+-]?\d+(?:\.\d+)?)(?: \(([+-]?\d+(?:\.\d+)?)\))?")


def read_rivals(path: str) -> list:
    """[(title, [nodes], [(scheme, [(median, farthest)])])], the tables of what was admitted."""
    tables, columns = [], 0
    for number, line in enumerate(lines_of(path), 1):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            columns = 0
        elif not columns:
            if len(cells) < 3 or not all(cell.isdigit() for cell in cells[1:]):
                raise Fault(f"{path}:{number}: a table does not begin with its title and numbers of nodes")
            columns = len(cells)
            tables.append((cells[0], [int(cell) for cell in cells[1:]], []))
        elif cells[0] != "---":
            values = [CELL.fullmatch(cell) for cell in cells[1:]]
            if len(cells) != columns or not all(values):
                raise Fault(f"{path}:{number}: not {columns - 1} figures, each as +1.2 (+3.4)")
            tables[-1][2].append((cells[0], [(float(one[1]), float(one[2] or one[1])) for one in values]))
    tables = [table for table in tables if not table[0].startswith("&nbsp;")]
    if not tables or not all(table[2] for table in tables):
        raise Fault(f"{path}: no table of ./dev bench rivals")
    return tables


# ---- drawing ----


class Series:
    """A line of a panel, in values of its axes; `far`: for each point, what lies farthest from it."""

    def __init__(self, name: str, css: str, points: list, dash: str = "", far: list = ()) -> None:
        self.name, self.css, self.points, self.dash, self.far = name, css, points, dash, far


class Axis:
    """Places on it, by `place`; `ticks` are (value, text). `margin`: free room at its beginning."""

    def __init__(self, ticks: list, place, margin: float = 0) -> None:
        self.ticks, self.place = ticks, place
        self.first, self.last = place(ticks[0][0]) - margin, place(ticks[-1][0])

    def share(self, value: float) -> float:
        return (min(max(self.place(value), self.first), self.last) - self.first) / (self.last - self.first)


def text(x: float, y: float, words: str, css: str = "") -> str:
    return f'<text{f" class={chr(34)}{css}{chr(34)}" if css else ""} x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'


def line(css: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{css}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def apart(wanted: list, top: float, bottom: float) -> list:
    """Places for names that want to stand at `wanted`: in that order, LINE or more apart, between top and bottom."""
    order = sorted(range(len(wanted)), key=lambda at: wanted[at])
    step = min(LINE, (bottom - top) / max(1, len(wanted) - 1))
    places = [0.0] * len(wanted)
    least = top
    for at in order:
        places[at] = max(wanted[at], least)
        least = places[at] + step
    most = bottom
    for at in reversed(order):
        places[at] = min(places[at], most)
        most = places[at] - step
    return places


def panel(left: float, top: float, height: float, title: list, axes: tuple, series: list) -> str:
    """Axes, their grid, the lines, and beside its end the name of each."""
    across, up = axes
    x0, x1 = left + LEFT, left + HALF - LABELS
    y0 = top + 16 * len(title)
    y1 = y0 + height

    def x_of(value: float) -> float:
        return x0 + across.share(value) * (x1 - x0)

    def y_of(value: float) -> float:
        return y1 - up.share(value) * height

    made = [text(left + 10, top + 8 + 15 * at, words, "soft" if at else "what")
            for at, words in enumerate(title) if words]
    for value, words in up.ticks:
        made += [line("axis" if words == "0" else "grid", x0, y_of(value), x1, y_of(value)),
                 text(x0 - 5, y_of(value) + 4, words, "tick end")]
    for value, words in across.ticks:
        made.append(line("grid", x_of(value), y0, x_of(value), y1))
        made += [text(x_of(value), y1 + 15, words, "tick middle")] if words else []
    made += [line("axis", x0, y1, x1, y1), line("axis", x0, y0, x0, y1)]
    ends = [y_of(one.points[-1][1]) for one in series]
    for one, end, place in zip(series, ends, apart(ends, y0 + 2, y1 + 2)):
        for (x, y), far in zip(one.points, one.far):
            made.append(line(f"far {one.css}", x_of(x), y_of(y), x_of(x), y_of(far)))
        dash = f' stroke-dasharray="{one.dash}"' if one.dash else ""
        points = " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in one.points)
        made += [f'<polyline class="{one.css}"{dash} points="{points}"/>',
                 line(f"lead {one.css}", x_of(one.points[-1][0]), end, x1 + 12, place),
                 line(one.css, x1 + 12, place, x1 + 24, place).replace("/>", f"{dash}/>"),
                 text(x1 + 27, place + 4, one.name, f"name {one.css}")]
    return "\n".join(made)


def styles(used: set) -> str:
    """The colours of light pages and of dark ones."""
    light = (".k{stroke:#c02617}text.k{fill:#c02617;stroke:none;font-weight:600}"
             ".n{stroke:#57606a}text.n{fill:#57606a;stroke:none}")
    dark = ".k{stroke:#ff7b6b}text.k{fill:#ff7b6b}.n{stroke:#a9b4c0}text.n{fill:#a9b4c0}"
    for at, (one, other) in enumerate(PEERS):
        if f"p{at}" in used:
            light += f".p{at}{{stroke:{one}}}text.p{at}{{fill:{one};stroke:none}}"
            dark += f".p{at}{{stroke:{other}}}text.p{at}{{fill:{other}}}"
    return f"<style>{STYLE}{light}\n@media(prefers-color-scheme:dark){{{DARK}{dark}}}</style>"


def picture(title: str, says: list, panels: list, below: list, height: int, rows_title: int) -> str:
    """`panels`, two beside each other; above them the title and what the axes are, `below` them the machine."""
    top = 46 + 16 * len(says)
    step = height + 16 * rows_title + 36
    rows = (len(panels) + 1) // 2
    whole = top + rows * step + 16 * len(below) + 2
    used = {one.css for panel_ in panels for one in panel_[2]}
    made = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {whole}" role="img" '
            'aria-labelledby="title text">',
            f'<title id="title">{escape(title)}</title>', f'<desc id="text">{escape(" ".join(says))}</desc>',
            styles(used),
            f'<rect class="page" x=".5" y=".5" width="{WIDTH - 1}" height="{whole - 1}" rx="8"/>',
            text(10, 24, title, "head")]
    made += [text(10, 42 + 16 * at, words, "soft") for at, words in enumerate(says)]
    for at, (words, axes, series) in enumerate(panels):
        made.append(panel(at % 2 * HALF, top + at // 2 * step, height, words, axes, series))
    made += [text(10, top + rows * step + 6 + 16 * at, words, "soft") for at, words in enumerate(below)]
    return "\n".join(made) + "\n</svg>\n"


# ---- axes and series of times ----


def time_text(ns: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 1)):
        if ns >= size:
            break
    return f"{ns / size:g} {unit}"


def time_axis(values: list) -> Axis:
    """Logarithmic. Steps of 1, 2, 5 while they are few, else of ten."""
    lowest, highest = min(values), max(values)
    for steps in ((1, 2, 5), (1, 3), (1,)):
        all_ticks = [step * 10.0 ** exponent for exponent in range(-1, 12) for step in steps]
        first = max(at for at, tick in enumerate(all_ticks) if tick <= lowest or at == 0)
        last = min(at for at, tick in enumerate(all_ticks) if tick >= highest or at == len(all_ticks) - 1)
        ticks = all_ticks[first:max(last, first + 1) + 1]
        if len(ticks) <= 9:
            break
    return Axis([(tick, time_text(tick)) for tick in ticks], math.log10)


def share_axis(beyonds: list) -> Axis:
    """How many of the calls were not slower, by nines."""
    nines = max(2, math.ceil(-math.log10(min(beyonds)) - 0.01))
    ticks = [(0.5, "50")]
    for n in range(2, nines + 1):
        words = f"{100 - 10.0 ** (2 - n):.{n - 2}f}"
        has_room = nines <= 4 or (nines - n) % 2 == 0  # long ones need that of two
        ticks.append((10.0 ** -n, words if has_room else ""))
    return Axis(ticks, lambda beyond: -math.log10(beyond))


def css_of(peer: str, peers: list) -> str:
    if peer == OURS:
        return "k"
    return "n" if peer in (NOISE, FLOOR) else f"p{peers.index(peer) % len(PEERS)}"


def time_series(rows: dict, is_wanted, name_of=None) -> list:
    """The lines of a panel; ours come last, above the others. Each library has a colour, each form of it a dash."""
    peers = sorted({at[4] for at in rows} - {OURS, NOISE, FLOOR}, key=str.lower)
    found = []
    for at, metrics in rows.items():
        points = quantiles_of(metrics) if is_wanted(at) else []
        if points:
            _, variant, _, _, peer, form = at
            name = name_of(at) if name_of else NAMES.get((peer, form), f"{peer} {form}")
            dash = DASHES.get(variant if name_of else form, "")
            found.append((peer == OURS, Series(name, css_of(peer, peers), points, dash)))
    return [one for _, one in sorted(found, key=lambda pair: (pair[0], pair[1].name.lower()))]


def time_panels(wanted: list, path: str) -> list:
    """`wanted`: (title, series). The axes are the same in all panels."""
    points = [point for _, series in wanted for one in series for point in one.points]
    for title, series in wanted:
        if not series:
            raise Fault(f"{path}: nothing there for '{title[0]}'")
    axes = (share_axis([beyond for beyond, _ in points]), time_axis([ns for _, ns in points]))
    return [(title, axes, series) for title, series in wanted]


# ---- the pictures ----

KEY_NATURAL = 0  # as the CSV file has keys of 29 bytes on average
ACROSS = "Across: percent of the calls that took no longer."


def latency(folder: str) -> str:
    path, said = os.path.join(folder, "alone.csv"), os.path.join(folder, "alone.txt")
    rows = read_csv(path)

    def of(workload: str) -> list:
        return time_series(rows, lambda at: at[:2] == (workload, "dependent") and at[3] == KEY_NATURAL and
                           at[4] != NOISE)

    wanted = []
    for workload, how in (("W1", "means of 16 calls"), ("W2", "each call by itself")):
        keys = keys_of(said, rf"^{workload} 29 1 family: (\d+) keys")
        wanted.append(([f"{keys:,d} keys", f"of 29 bytes; {how}"], of(workload)))
    panels = [one for pair in wanted for one in time_panels([pair], path)]  # each its own axes: cache and memory
    return picture("One call that waits for the one before it: how long it takes",
                   [ACROSS + " Up: the time of a call, the clock's reading included.",
                    "floor: hash, one read, one atomic add, no table. Dashed: string keys; sized: with "
                    "keys_expected."],
                   panels, [machine_of(said), "./dev bench alone; medians of rounds"], 190, 2)


def growth(folder: str) -> str:
    path, said = os.path.join(folder, "grow.csv"), os.path.join(folder, "grow.txt")
    rows = read_csv(path)
    wanted = []
    for variant, threads in dict.fromkeys((at[1], at[2]) for at in rows):
        begin = "W5 paced" if variant == "paced" else "W5"
        keys = keys_of(said, rf"^{begin}: (\d+) new keys.*\b{threads} thread")
        how = f"{threads} thread{'s' if threads > 1 else ''}"
        note = "only ours: 200,000 a second" if variant == "paced" else "as fast as the threads can"
        wanted.append(([f"{keys:,d} new keys, {how}", note],
                       time_series(rows, lambda at, one=variant, many=threads: at[1:3] == (one, many))))
    return picture("Only new keys, into a table that begins small: how long a call takes",
                   [ACROSS + " Up: the time of a call. Nobody is told how many keys will come.",
                    "clock only: a thread that reads the clock: the machine's stalls. Dashed: string keys; synced: "
                    "with Redis's marks."],
                   time_panels(wanted, path), [machine_of(said), "./dev bench grow; medians of rounds"], 190, 2)


def rollover(folder: str) -> str:
    path, said = os.path.join(folder, "rollover.csv"), os.path.join(folder, "rollover.txt")
    rows = read_csv(path)
    keys = keys_of(said, r"^between boundaries, (\d+) keys")

    def name_of(at: tuple) -> str:
        return ("clock, " if at[4] == NOISE else "ours, ") + at[1]

    wanted = []
    for form, words in (("view", "a family without Redis"), ("synced", "a family with Redis's marks")):
        wanted.append(([words, f"{keys:,d} keys, one thread, without a pause"],
                       time_series(rows, lambda at, one=form: at[4] == NOISE or at[5] == one, name_of)))
    return picture("When one window of 2 s ends and the next begins: how long a call takes",
                   [ACROSS + " Up: the time of a call. Peers have no windows.",
                    "near: 20 ms before to 200 ms after a boundary. clock: a thread that only reads the clock."],
                   time_panels(wanted, path), [machine_of(said), "./dev bench rollover; medians of rounds"], 130, 2)


SHORT = {"deltas cleared on error": "cleared on error", "deltas sent again on error": "sent again",
         "interval sync that counts right": "interval sync", "fixed share of the limit": "fixed share",
         "batches, not given back": "batches", "Tallywheel, soft": "Tallywheel soft",
         "Tallywheel, hard": "Tallywheel hard"}
LINEAR = 0.1  # percent: as far from 0 as the next power of ten from it


def bend(value: float) -> float:
    """Places of percent, on both sides of 0: even up to LINEAR, logarithmic beyond."""
    size = abs(value) / LINEAR
    return math.copysign(size if size <= 1 else 1 + math.log10(size), value)


def percent_axis(values: list) -> Axis:
    steps = range(math.floor(bend(min(0, *values))), max(math.ceil(bend(max(0, *values))), 1) + 1)
    ticks = [math.copysign(LINEAR * 10 ** (abs(at) - 1), at) if at else 0 for at in steps]
    return Axis([(tick, f"{tick:+g}" if tick else "0") for tick in ticks], bend)


def overshoot(folder: str) -> str:
    panels = []
    for title, nodes, rows in read_rivals(os.path.join(folder, "rivals.txt")):
        series = []
        for at, (scheme, cells) in enumerate(rows):
            ours = scheme.startswith("Tallywheel")
            series.append(Series(SHORT.get(scheme, scheme), "k" if ours else f"p{at % len(PEERS)}",
                                 [(count, median) for count, (median, _) in zip(nodes, cells)],
                                 "7 3" if scheme.endswith("hard") else "", [far for _, far in cells]))
        axes = (Axis([(count, str(count)) for count in nodes], math.log2, 0.25),
                percent_axis([value for _, cells in rows for cell in cells for value in cell]))
        head, _, tail = title.partition(", " if len(title) > 44 else "\n")
        panels.append(([head, tail], axes, series))
    return picture("One limit on many nodes: how far it is passed, by way of doing it",
                   ["Across: nodes. Up: percent admitted beyond the limit; below 0: unsold though there were callers; "
                    "steps of ten.",
                    "Lines: medians of the seeds; strokes up or down from them: the seed farthest from 0."],
                   panels, ["./dev bench rivals 9 1: a simulation, the same on every machine and day"], 124, 2)


PICTURES = {"latency": (latency, ("alone.csv", "alone.txt")), "growth": (growth, ("grow.csv", "grow.txt")),
            "rollover": (rollover, ("rollover.csv", "rollover.txt")), "overshoot": (overshoot, ("rivals.txt",))}


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    folder, out = sys.argv[1:]
    made = {}
    try:
        for name, (draw, files) in PICTURES.items():
            missing = [file for file in files if not os.path.exists(os.path.join(folder, file))]
            if missing:
                print(f"left out: {name}.svg, for {folder} has no {' and no '.join(missing)}")
            else:
                made[name] = draw(folder)
        if not made:
            raise Fault(f"{folder}: nothing to draw from")
    except Fault as fault:
        print(f"bench_pictures.py: {fault}", file=sys.stderr)
        return 1
    for name, svg in made.items():
        path = os.path.join(out, f"{name}.svg")
        with open(path, "w", encoding="utf-8") as file:
            file.write(svg)
        print(f"picture: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
