"""count_others.py TOOL -- what `count` says of an access log, beside goaccess and Miller. Prints TAP.

Goal: lines and bytes by client, URL and status, and lines by hour, are those of tools that others wrote.
Method: a log is drawn with IPv4 and IPv6, queries, texts with quotes, `-` for no bytes, several statuses, and lines that are
none. Each tool counts it. No row may differ.
Where goaccess differs by definition it is told otherwise, or its answer is put together:
- A URL is in one of three panels: not found, static by its ending, or other. The sum of the three is the URL's.
- Its hours are those of the day, over all days. So the rows of `count` are added up by the hour of the day.
- Its times are those in the line, whatever their zone. Miller's are, too. So the log is in UTC.
- It has no more than 366 rows in a panel. So the log has fewer.
- It decodes %XX in a URL. `count` does not. So the log has none.
- Visitors, who are clients of a day with one agent, and what it takes from agents and referers, are nothing that `count` has.
Miller knows no log: it reads columns between blanks, of which quoted ones are one. \\" in a quoted one would end it there.
"""
import collections
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.append(sys.path[0] + "/../support")
import tap

tool = sys.argv[1]
goaccess, miller = shutil.which("goaccess"), shutil.which("mlr")
if not goaccess and not miller:
    tap.skip_all("goaccess and Miller are not installed: apt-get install goaccess miller")
seed = int(os.environ.get("TW_SEED") or random.randrange(1 << 24))
draw = random.Random(seed)
print("# seed %d" % seed, flush=True)
folder = tempfile.TemporaryDirectory()
log = pathlib.Path(folder.name) / "access.log"

CLIENTS = ["10.0.%d.%d" % (n % 3, n) for n in range(150)] + ["2001:db8::%x" % n for n in range(1, 60)]
URLS = ["/", "/favicon.ico", "/robots.txt"] + ["/%s/%d%s" % (draw.choice(["a", "b/c", "shop"]), n, draw.choice(
    ["", ".html", ".css", ".png", "?q=%d" % n, "?a=b&c=d", ".php?id=%d" % n, "/"])) for n in range(250)]
AGENTS = ["Mozilla/5.0 (X11; Linux x86_64) Firefox/115.0", "curl/7.88.1", "-", "Googlebot/2.1 (+http://www.google.com/bot.html)"]


def line() -> str:
    status = draw.choice([200] * 8 + [206, 301, 304, 403, 404, 404, 500, 503])
    size = "-" if status == 304 or draw.randrange(20) == 0 else draw.choice([0, 1, draw.randrange(5000), draw.randrange(1 << 33)])
    return '%s - %s [%02d/May/2015:%02d:%02d:%02d +0000] "%s %s HTTP/1.%d" %d %s "%s" "%s"' % (
        draw.choice(CLIENTS), draw.choice(["-", "-", "ann"]), 17 + draw.randrange(3), draw.randrange(24), draw.randrange(60), draw.randrange(60),
        draw.choice(["GET"] * 5 + ["POST", "HEAD"]), draw.choice(URLS), draw.randrange(2), status, size,
        draw.choice(["-", "http://example.com/from?x=1"]), draw.choice(AGENTS))


JUNK = ["not a line at all", "", "10.0.0.1 - - [no time] \"GET / HTTP/1.1\" 200 5 \"-\" \"-\""]
lines = [line() for _ in range(20000)]
for at in range(500, 19000, 2000):
    lines.insert(at, JUNK[at // 2000 % 2 * 2])
log.write_text("\n".join(lines) + "\n")


def run(*command) -> str:
    out = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=100, check=False, env={**os.environ, "LC_ALL": "C.UTF-8"})
    if out.returncode != 0:
        raise AssertionError("%s: %d\n%s" % (command, out.returncode, out.stderr))
    return out.stdout


def ours(key: str) -> dict:
    """Key -> lines and bytes."""
    rows = [row.split("\t") for row in run(tool, "count", "--key", key, "--sum", "bytes", "--window", "all", "--output", "tsv", log).splitlines()]
    return {key: (int(count), int(total)) for _, key, count, total in rows}


def our_hours() -> dict:
    hours: collections.Counter = collections.Counter()
    for row in run(tool, "count", "--key", "method", "--window", "1h", "--output", "tsv", log).splitlines():
        stamp, _, count = row.split("\t")
        hours[stamp[11:13]] += int(count)
    return dict(hours)


def differences(mine: dict, theirs: dict) -> list:
    return ["%s: %s, the other says %s" % (key, mine.get(key), theirs.get(key)) for key in sorted({*mine, *theirs}) if mine.get(key) != theirs.get(key)]


def same(mine: dict, theirs: dict, least: int, sentence: str) -> None:
    """No row differs, and there are enough of them."""
    tap.ok(len(mine) >= least and not differences(mine, theirs), sentence, ["%d rows" % len(mine), *differences(mine, theirs)])


def of_goaccess() -> dict:
    out = pathlib.Path(folder.name) / "out.json"
    run(goaccess, log, "--no-global-config", "--log-format=COMBINED", "--no-progress", "--http-method=no", "--http-protocol=no", "--no-term-resolver",
        "-o", out)
    return json.loads(out.read_text())


def panel(answer: dict, *names) -> dict:
    """Of some panels together."""
    rows: dict = {}
    for name in names:
        for row in answer[name]["data"]:
            for one in row.get("items", [row]) if name == "status_codes" else [row]:
                before = rows.get(one["data"], (0, 0))
                rows[one["data"]] = (before[0] + one["hits"]["count"], before[1] + one["bytes"]["count"])
    return rows


def of_miller(field: str) -> dict:
    """The field of each line that has a time and a status, by Miller's own language."""
    answer = json.loads(run(
        miller, "--icsv", "--ojson", "--ifs", " ", "--implicit-csv-header", "--allow-ragged-csv-input",
        "filter", r'is_present($8) && $7 =~ "^[0-9]{3}$" && $4 =~ "^.[0-9]"',
        "then", "put", '$key = %s; $bytes = $8 == "-" ? 0 : $8' % field, "then", "stats1", "-a", "count,sum", "-f", "bytes", "-g", "key", log))
    return {str(row["key"]): (row["bytes_count"], row["bytes_sum"]) for row in answer}


clients, urls, statuses = ours("client"), ours("url"), ours("status")
hours = our_hours()
tap.plan(8)
if goaccess:
    found = of_goaccess()
    tap.ok((found["general"]["valid_requests"], found["general"]["failed_requests"]) == (20000, 10), "goaccess reads the lines that `count` reads", found["general"])
    same(clients, panel(found, "hosts"), 200, "goaccess: lines and bytes of each client")
    same(urls, panel(found, "requests", "static_requests", "not_found"), 200, "goaccess: lines and bytes of each URL, its three panels together")
    same(statuses, {key.split()[0]: row for key, row in panel(found, "status_codes").items()}, 7, "goaccess: lines and bytes of each status")
    same(hours, {row["data"]: row["hits"]["count"] for row in found["visit_time"]["data"]}, 24, "goaccess: lines of each hour of the day")
else:
    for _ in range(5):
        tap.skip("goaccess", "goaccess is not installed: apt-get install goaccess")
if miller:
    same(clients, of_miller("$1"), 200, "Miller: lines and bytes of each client")
    same(urls, of_miller('splitax($6, " ")[2]'), 200, "Miller: lines and bytes of each URL")
    same(statuses, of_miller("$7"), 7, "Miller: lines and bytes of each status")
else:
    for _ in range(3):
        tap.skip("Miller", "Miller is not installed: apt-get install miller")
tap.end()
