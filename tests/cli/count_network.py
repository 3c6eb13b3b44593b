"""count_network.py TOOL -- count --key client/24/64: the network of an address in place of the address.

Goal: all spellings of the addresses of a network are one key, in every format, and nothing else is.
Method: addresses are drawn and written in several forms; Python's ipaddress says which network each is of. Prints TAP.
"""
import collections
import ipaddress
import os
import random
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.append(sys.path[0] + "/../support")
import tap
from tap import ok as report

tool = sys.argv[1]
seed = int(os.environ.get("TW_SEED") or random.randrange(1 << 24))
draw = random.Random(seed)
print("# seed %d" % seed)


def address():
    if draw.randrange(2):
        return ipaddress.ip_address("10.%d.%d.%d" % (draw.randrange(2), draw.randrange(3), draw.randrange(256)))
    return ipaddress.ip_address((0x20010db8 << 96) + (draw.randrange(3) << 72) + (draw.randrange(3) << 48) + draw.getrandbits(48))


def spelt(a, with_port):
    if a.version == 4:
        text = draw.choice([str(a), str(a), "::ffff:" + str(a)]) if not with_port else str(a)
        return text + (":%d" % draw.randrange(1, 65536) if with_port else "")
    text = draw.choice([str(a), a.exploded, a.exploded.upper()])
    return "[%s]:%d" % (text, draw.randrange(1, 65536)) if with_port else text


def network(a, bits4, bits6):
    return str(ipaddress.ip_network((a, bits4 if a.version == 4 else bits6), strict=False))


def run(args, log):
    return subprocess.run([tool, "count", "--window", "all", "--output", "tsv"] + args, input=log, capture_output=True, text=True, timeout=60)


def rows(keys):
    counts = collections.Counter(keys)
    return "".join("all\t%s\t%d\n" % row for row in sorted(counts.items(), key=lambda row: (-row[1], row[0].encode())))


addresses = [address() for _ in range(2000)]
FORMATS = {
    "combined": (lambda a: '%s - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1 "-" "-"' % a, [], "client"),
    "json": (lambda a: '{"ts":1431857103,"ip":"%s"}' % a, [], "ip"),
    "docker": (lambda a: '{"log":"%s - - [17/May/2015:10:05:03 +0000] \\"GET / HTTP/1.1\\" 200 1\\n","stream":"stdout"}' % a, [], "client"),
    "log-format": (lambda a: "%s 1431857103.500" % a, ["--log-format", "$remote_addr $msec"], "remote_addr"),
}
for name, (write, args, field) in FORMATS.items():
    for bits4, bits6 in ((24, 64), (0, 0), (32, 128), (23, 47)):
        for with_port in (False, True):
            log = "".join(write(spelt(a, with_port)) + "\n" for a in addresses)
            done = run(args + ["--key", "%s/%d/%d" % (field, bits4, bits6)], log)
            want = rows(network(a, bits4, bits6) for a in addresses)
            report((done.returncode, done.stdout, done.stderr) == (0, want, ""), "%s /%d/%d%s" % (
                name, bits4, bits6, ", with ports" if with_port else ""), done.stderr + done.stdout[:300])

log = "".join(FORMATS["combined"][0](a) + "\n" for a in addresses)
done = run(["--key", "status,client/8/32"], log)
report(done.stdout == rows("200:" + network(a, 8, 32) for a in addresses), "among several fields", done.stderr + done.stdout[:300])
done = run(["--key", "status", "--distinct", "client/24/64"], log)
exact = len({network(a, 24, 64) for a in addresses})
report(done.stdout == "all\t200\t%d\n" % exact, "--distinct", done.stderr + done.stdout)
done = run(["--key", "client/24/64"], FORMATS["combined"][0]("desk.example") + "\n" + log)
report(done.stdout == rows(network(a, 24, 64) for a in addresses) and "1 line skipped" in done.stderr and "is no address" in done.stderr,
       "a name has no network, and is reported", done.stderr)
for key in ("client/33/64", "client/24/129", "client/24", "client//64", "/24/64", "client/24/64/1"):
    done = run(["--key", key], log)
    report(done.returncode == 2 and "--key '%s'" % key in done.stderr and done.stdout == "", "refused: " + key, done.stderr[:200])
done = run(["--key", "a/b/c"], '{"ts":1431857103,"a/b/c":"x"}\n')
report(done.stdout == "all\tx\t1\n", "a member of JSON whose name has slashes is a name", done.stderr)
tap.end(plans=True)
