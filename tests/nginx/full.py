#!/usr/bin/env python3
"""full.py MODULE SOURCES -- a zone whose memory is full still limits, and its flood leaves other zones alone (TAP).

Method: a real nginx of two workers, and floods of keys that come once each, ten times as many as fit.
Covers: nginx/full.c.
"""
import re
import socket
import sys

sys.dont_write_bytecode = True
import rig
from rig import Nginx, run, same

rig.begin(sys.argv)
FLOOD = 15000  # ten times as many as a zone of 256k has counters for, guests left out

ZONES = """
tallywheel_memory 4m;
tallywheel_zone fixed window=1d memory=256k; tallywheel_zone sliding window=1d shape=sliding memory=256k;
tallywheel_zone even window=1d shape=gcra memory=256k; tallywheel_zone other window=1d memory=256k;
tallywheel_zone stock window=forever mode=hard memory=256k; tallywheel_zone plain window=1d;
tallywheel_zone admits window=1d memory=256k full=admit;
access_log off; log_format tw '$uri?$args $tallywheel_decided_by';
server {
    LISTEN
    location /fixed { tallywheel_limit fixed $arg_key 3; try_files /page =404; }
    location /sliding { tallywheel_limit sliding $arg_key 3; try_files /page =404; }
    location /even { tallywheel_limit even $arg_key 3; try_files /page =404; }
    location /other { tallywheel_limit other $arg_key 3; try_files /page =404; }
    location /stock { tallywheel_limit stock $arg_key 3; try_files /page =404; }
    location /plain { tallywheel_limit plain $arg_key 3; try_files /page =404; }
    location /admits { tallywheel_limit admits $arg_key 3; try_files /page =404; }
    location /both { tallywheel_limit admits $arg_key 3; tallywheel_limit other both$arg_key 2; try_files /page =404; }
    location = /figures { tallywheel_metrics; }
}
"""


def serve(name: str, http_block: str) -> Nginx:
    server = Nginx(name, "")
    server.write(http_block.replace("LISTEN", f"listen unix:{server.socket};"))
    return server


def flood(path: str, first: int, keys: int) -> int:
    """Sends requests in pieces, without waiting for each answer. Returns how many were admitted."""
    admitted = 0
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(60)
        link.connect(one.socket)
        for start in range(first, first + keys, 100):
            count = min(100, first + keys - start)
            link.sendall(b"".join(f"GET {path}?key=flood{n} HTTP/1.1\r\nHost: x\r\n\r\n".encode() for n in range(start, start + count)))
            answers, text = 0, b""
            while answers < count:
                piece = link.recv(1 << 20)
                if not piece:
                    raise AssertionError("nginx closed the connection")
                text += piece
                answers = text.count(b"page\n") + text.count(b"</html>\r\n")
            admitted += text.count(b"HTTP/1.1 200 ")
    return admitted


def statuses(path: str, count: int) -> list:
    client = one.client()
    found = [client.ask(path).status for _ in range(count)]
    client.close()
    return found


LIMITED = [200] * 3 + [429] * 3


def evicts(zone: str) -> None:
    same(statuses(f"/{zone}?key=before", 2), [200] * 2)
    same(statuses(f"/other?key=before-{zone}", 2), [200] * 2)
    for part in range(10):
        flood(f"/{zone}", part * FLOOD // 10, FLOOD // 10)
        same(statuses(f"/{zone}?key=new{part}", 6), LIMITED, f"a new client in part {part}")
        same(statuses(f"/{zone}?key=before", 1), [200 if part == 0 else 429], "the client that came before the flood")
    # every 250 requests of the flood the client comes once: an eighth of the places of guests
    same(statuses(f"/{zone}?key=regular", 3), [200] * 3)
    for part in range(20):
        flood(f"/{zone}", FLOOD + part * 250, 250)
        same(statuses(f"/{zone}?key=regular", 1), [429], f"the regular client, time {part}")
    for n in range(200):
        same(statuses(f"/other?key={zone}{n}", 4), [200] * 3 + [429], "another zone")
    same(statuses(f"/other?key=before-{zone}", 2), [200, 429], "another zone")


def stock() -> None:
    """What is sold to each key is at most its limit, and keys without room get nothing."""
    sold = flood("/stock", 0, FLOOD)
    assert 1000 < sold < FLOOD, sold
    for _ in range(3):
        flood("/stock", 0, 1000)
    same(statuses("/stock?key=flood5", 3), [429] * 3)
    same(statuses("/stock?key=new", 3), [503] * 3)  # not counted, so nobody knows
    assert 'tallywheel_zone "stock" is full and denies new keys' in one.errors()


def without_memory() -> None:
    """A zone that says nothing has its part of the rest, and evicts."""
    flood("/plain", 0, 2 * FLOOD)
    same(statuses("/plain?key=new", 6), LIMITED)
    same(statuses("/other?key=late", 4), [200] * 3 + [429])


def figure(of: str) -> int:
    """A sample of the page of metrics; 0 if it is not there."""
    client = one.client()
    found = re.findall("^" + re.escape(of) + r" (\d+)$", client.ask("/figures").text, re.M)
    client.close()
    return int(found[0]) if found else 0


def admits() -> None:
    """Each request that was admitted because its zone is full is in a figure, and each other one in another figure."""
    uncounted = 'tallywheel_family_limit_uncounted_total{family="%s",engine="1"}'
    counted = 'tallywheel_family_limit_admitted_total{family="admits",engine="1"}'
    same(flood("/admits", 0, FLOOD), FLOOD)
    full = figure(uncounted % "admits")
    assert 1000 < full < FLOOD, full
    same(figure(counted), FLOOD - full)
    same(statuses("/admits?key=new", 6), [200] * 6)
    same((figure(uncounted % "admits"), figure(counted)), (full + 6, FLOOD - full))
    # of two limits that admit together, the verdict is that of the other one
    same(statuses("/both?key=new", 4), [200, 200, 429, 429])
    same((figure(uncounted % "admits"), figure(counted)), (full + 8, FLOOD - full))
    same(figure(uncounted % "other"), 0)
    assert 'tallywheel_zone "admits" is full and admits new keys without counting them' in one.errors()


def refused() -> None:
    for parameters, rule, sentence in (
        ("window=1d mode=hard full=evict", "tallywheel_limit z $uri 3;", "full=evict is not for mode=hard and mode=strict"),
        ("window=forever full=evict", "tallywheel_limit z $uri 3;", "full=evict is not for window=forever"),
        ("window=forever full=evict", "tallywheel_hold z $uri 3;", "full=evict is not for tallywheel_hold"),
        ("window=1d full=evict", "tallywheel_count z $uri;", "full=evict is not for tallywheel_count"),
        ("full=some", "", "full= is evict, deny or admit"),
        ("memory=some", "", "the memory is a size, such as 4m"),
        ("memory=1024m", "tallywheel_limit z $uri 3;", "memory: 1073741824 is more than"),
    ):
        server = serve("refused", f"tallywheel_zone z {parameters}; server {{ LISTEN location / {{ {rule} }} }}")
        text = server.check()
        assert sentence in text and "test is successful" not in text, (parameters, text)
    server = serve("refused", "tallywheel_redis redis://127.0.0.1:1; tallywheel_zone z window=1d full=evict; server { LISTEN location / { tallywheel_limit z $uri 3; } }")
    assert "full=evict is not for zones with Redis" in server.check()


one = serve("full", ZONES).start()
for zone_name in ("fixed", "sliding", "even"):
    run(f"a flood leaves clients limited, and other zones alone: {zone_name}", evicts, zone_name)
run("a stock never sells above its limit, and denies what it cannot count", stock)
run("a zone without memory= has a part of the rest and evicts", without_memory)
run("full=admit admits, and the log says so", admits)
run("what cannot evict is refused, with one sentence", refused)
one.stop()
one.must_be_clean()
rig.tap.end(plans=True)
