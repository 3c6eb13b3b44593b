"""watch_files.py PROGRAM ROOT -- do docs/WATCH.md, monitoring/alerts.yml and monitoring/dashboard.json name what the library prints? Prints TAP.

Method: the program (metrics_page.c) prints a page of metrics. Every name in the three files is a metric of it, by its sample's name; the
table of docs/WATCH.md has each of them once. promtool reads the rules, and says which alerts fire for a few series that are known.
The scripts for bpftrace and the table of probes name the probes of the sources, with no argument that there is not.
Covers: engine/base/probe.h.
"""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.append(sys.path[0] + "/../support")
import tap
from tap import ok

program, root = sys.argv[1:]
NAME = re.compile(r"\btallywheel_[a-z_]+[a-z]\b")
# Only of soft families with Redis.
HISTOGRAM = "tallywheel_family_limit_overshoot_ratio"


def read(name):
    with open(os.path.join(root, name), encoding="utf-8") as file:
        return file.read()


def printed():
    page = subprocess.run([program, "prometheus"], stdout=subprocess.PIPE, check=True, timeout=30).stdout.decode()
    names = set(re.findall(r"^(tallywheel_\w+?)[{ ]", page, re.M))
    assert f'"{HISTOGRAM[len("tallywheel_"):]}"' in read("engine/stats.c")
    return names | {HISTOGRAM}


def samples(names):
    return names | {HISTOGRAM + suffix for suffix in ("_bucket", "_count", "_sum")}


def expressions(dashboard):
    """Of all panels, also of those that a closed row holds, and of the variables; every panel has one, but the rows."""
    found = [str(variable.get("query", "")) + str(variable.get("definition", "")) for variable in dashboard["templating"]["list"]]
    panels = [inner for panel in dashboard["panels"] for inner in [panel, *panel.get("panels", [])]]
    for panel in panels:
        queries = [target["expr"] for target in panel.get("targets", [])]
        if panel["type"] != "row" and not (queries and panel["title"] and panel["description"]):
            raise ValueError(f"panel {panel['title']!r} shows nothing, or does not say what")
        found += queries
    return found


def overlaps(dashboard):
    taken = {}
    for panel in dashboard["panels"]:
        grid = panel["gridPos"]
        for cell in ((x, y) for x in range(grid["x"], grid["x"] + grid["w"]) for y in range(grid["y"], grid["y"] + grid["h"])):
            if cell in taken or cell[0] >= 24:
                return f"{panel['title']} and {taken.get(cell, 'the edge')}"
            taken[cell] = panel["title"]
    return ""


# Series over 40 minutes, and the alerts that they raise; no others may come. Each alert has a series that raises it.
CASES = [
    ({"tallywheel_redis_configured": "1x40", "tallywheel_redis_connected": "1x40", "tallywheel_lost_total": "0x40"}, []),
    ({"tallywheel_redis_configured": "1x40", "tallywheel_redis_connected": "0x40"}, ["TallywheelRedisAway"]),
    ({"tallywheel_redis_configured": "0x40", "tallywheel_redis_connected": "0x40"}, []),
    ({"tallywheel_redis_connected": "1x40", "tallywheel_unsent_keys": "100001+50x40"}, ["TallywheelSyncBehind"]),
    ({"tallywheel_redis_connected": "1x40", "tallywheel_unsent_keys": "300000-50x40"}, []),
    ({"tallywheel_lost_total": "0+7x40"}, ["TallywheelCountsLost"]),
    ({"tallywheel_expired_unsynced_total": "0+7x40"}, ["TallywheelCountsLost"]),
    ({"tallywheel_late_deltas_total": "0+7x40"}, ["TallywheelCountsLost"]),
    ({"tallywheel_lost_total": "7x40"}, []),
    ({"tallywheel_uncertain_total": "0+7x40"}, ["TallywheelCountsUncertain"]),
    ({"tallywheel_asks_unknown_total": "0+7x40"}, ["TallywheelCountsUncertain"]),
    ({"tallywheel_rollbacks_total": "0+1x40"}, ["TallywheelRedisWentBack"]),
    ({"tallywheel_regressions_total": "0+1x40"}, ["TallywheelRegressions"]),
    ({"tallywheel_poison_keys_total": "0+1x40"}, ["TallywheelPoisonedKeys"]),
    ({"tallywheel_overflow_increments_total": "0+50x40"}, ["TallywheelTableFull"]),
    ({"tallywheel_rejected_increments_total": "0+50x40"}, ["TallywheelTableFull"]),
    ({"tallywheel_memory_usable_bytes": "10x40", "tallywheel_memory_max_bytes": "100x40"}, ["TallywheelMemoryLow"]),
    ({"tallywheel_memory_usable_bytes": "30x40", "tallywheel_memory_max_bytes": "100x40"}, []),
    ({"tallywheel_sections_oldest_seconds": "31x40"}, ["TallywheelReaderStuck"]),
    ({"tallywheel_clock_ahead_seconds": "6x40", "tallywheel_redis_clock_offset_seconds": "0x40"}, ["TallywheelClockAhead"]),
    ({"tallywheel_clock_ahead_seconds": "0x40", "tallywheel_redis_clock_offset_seconds": "-6x40"}, ["TallywheelClockAhead"]),
    ({"tallywheel_windows_untold_total": "0+1x40"}, ["TallywheelHooksFail"]),
    ({"tallywheel_hooks_again_total": "0+1x40"}, ["TallywheelHooksFail"]),
    ({"tallywheel_lease_stranded": "9x40"}, ["TallywheelUnitsStranded"]),
    ({"tallywheel_limit_at_risk_total": "0+1x40"}, ["TallywheelLimitAtRisk"]),
    ({"tallywheel_strict_fallbacks_total": "0+1x40"}, ["TallywheelStrictFallback"]),
    ({"tallywheel_replicas_short_total": "0+1x40"}, ["TallywheelReplicasShort"]),
    ({"tallywheel_stores_split": "2x40"}, ["TallywheelSlotSplit"]),
    ({"tallywheel_audit_findings": "-1x40"}, ["TallywheelAuditFindings"]),
    ({"tallywheel_audit_findings": "0x40"}, []),
    ({"tallywheel_tls_refused_total": "0+1x40"}, ["TallywheelTlsRefused"]),
    ({"tallywheel_exporter_up": "0x40"}, ["TallywheelEngineSilent"]),
    ({"tallywheel_exporter_up": "1x40"}, []),
]
# Of the exporter; docs/WATCH.md has it in its text.
EXPORTER = {"tallywheel_exporter_up"}


def expand(values):
    return values if re.search(r"\d[+-]", values) else values.replace("x40", "+0x40")


def rule_tests(names):
    tests = []
    for series, fired in CASES:
        inputs = "".join(f"      - {{series: '{name}{{instance=\"a\",socket=\"b.sock\"}}', values: '{expand(values)}'}}\n" for name, values in series.items())
        alerts = "".join(
            f"      - eval_time: 38m\n        alertname: {name}\n"
            + ("        exp_alerts: [{exp_labels: {instance: a, socket: b.sock}}]\n" if name in fired else "") for name in names)
        tests.append(f"  - interval: 1m\n    input_series:\n{inputs}    alert_rule_test:\n{alerts}")
    return tests


def without_texts(rules):
    """The rules alone: which alerts fire is asked here, not in what words."""
    rules = re.sub(r"^ +(annotations|summary|description|labels):.*\n", "", rules, flags=re.M)
    return re.sub(r"^#.*\n", "", rules, flags=re.M)


def promtool(*arguments):
    said = subprocess.run(["promtool", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=60)
    return said.returncode == 0, said.stdout.decode()


def probes():
    """Of the sources, each with how many arguments it has."""
    found = {}
    for folder in ("engine", "sync"):
        for path in sorted(glob.glob(os.path.join(root, folder, "**/*.c"), recursive=True)):
            with open(path, encoding="utf-8") as file:
                found.update((name, int(count or 0)) for count, name in re.findall(r"\bTWI_PROBE(\d?)\((\w+)", file.read()))
    return found


def wrong_scripts(there):
    wrong = []
    for script in ("monitoring/batches.bt", "monitoring/turns.bt"):
        for name, body in re.findall(r"^usdt:\S+:tallywheel:(\w+)\n(.*?)^}", read(script), re.M | re.S):
            highest = max([-1] + [int(number) for number in re.findall(r"\barg(\d)", body)])
            if name not in there or highest >= there[name]:
                wrong.append(f"{script}: {name}")
    return wrong


def look_at_probes():
    there, table = probes(), set()
    for line, arguments in re.findall(r"^\| ([a-z_, ]+) \| [^|]+ \| ?([^|]*?) ?\|$", read("docs/WATCH.md").split("| probe |")[1], re.M):
        names = line.split(", ")
        table |= {(name, len(arguments.split(", ")) if arguments else 0) for name in names}
    ok(table == set(there.items()), "docs/WATCH.md has a row for each static probe, with its arguments", table ^ set(there.items()))
    wrong = wrong_scripts(there)
    ok(not wrong, "the scripts for bpftrace name probes and arguments that are there", wrong)


def main():
    tap.plan(10)
    look_at_probes()
    names, rules = printed(), read("monitoring/alerts.yml")
    rows = re.findall(r"^\| (tallywheel_\w+) \|", read("docs/WATCH.md"), re.M)
    ok(sorted(rows) == sorted(names), "docs/WATCH.md has a row for each metric, and for nothing else", set(rows) ^ names)
    asked = set(NAME.findall("\n".join(re.findall(r"^ +expr: (.*)$", rules, re.M))))
    known = samples(names) | EXPORTER
    ok(asked and asked <= known, "each metric of the alert rules is printed by the library", asked - known)
    events = set(re.findall(r"TW-E\d\d\d", rules))
    alerts = re.findall(r"- alert: (\w+)", rules)
    summaries = re.findall(r"^ +summary: .*\n +description: .*", rules, re.M)
    # The exporter has no Redis and no counts: behind it the program is the socket's. Only one alert is the exporter's own.
    program = "{{ with $labels.socket }}{{ . }} behind the exporter {{ end }}{{ $labels.instance }}"
    nameless = [text for text in summaries if program not in text]
    ok(len(summaries) == len(alerts) and len(nameless) == 1 and "No program answers the exporter at" in nameless[0],
       "each alert names the program that it is about, and not the exporter in its place", nameless)
    untried = set(alerts) ^ {name for _, fired in CASES for name in fired}
    ok(not untried, "each alert is tried below", untried)
    ok(events and events <= set(re.findall(r"^\| (TW-E\d\d\d) ", read("docs/WATCH.md"), re.M)), "and each event that they name is in the table of docs/WATCH.md")
    dashboard = json.loads(read("monitoring/dashboard.json"))
    shown = set(NAME.findall("\n".join(expressions(dashboard))))
    ok(len(shown) > 30 and shown <= known and not overlaps(dashboard), "each metric of the dashboard is, and no panel covers another",
       f"{shown - known} {overlaps(dashboard)}")
    if shutil.which("promtool") is None:
        for sentence in ("promtool takes the rules", "which alerts fire"):
            tap.skip(sentence, "promtool is not installed: apt-get install prometheus")
        tap.end()
    ok(*(lambda good, said: (good, "promtool takes the rules", said))(*promtool("check", "rules", os.path.join(root, "monitoring/alerts.yml"))))
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "rules.yml"), "w", encoding="utf-8") as out:
            out.write(without_texts(rules))
        with open(os.path.join(folder, "tests.yml"), "w", encoding="utf-8") as out:
            out.write("rule_files: [rules.yml]\nevaluation_interval: 1m\ntests:\n" + "".join(rule_tests(alerts)))
        good, said = promtool("test", "rules", os.path.join(folder, "tests.yml"))
        ok(good, "alerts fire for series that call for them, and for no others", said)
    tap.end()


main()
