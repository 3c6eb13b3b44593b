#!/usr/bin/env python3
"""http3.py MODULE SOURCES -- requests over HTTP/3 have the limits, the headers and the slots of others (TAP).

Method: a real nginx that has HTTP/3, and curl as its client; a client that goes away in the middle of a request, too.
Always true: without such an nginx, and without such a curl, it is left out by name. `./dev check nginx13` has both.
Covers: nginx/request.c, nginx/wait.c.
"""
import os
import socket
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import rig
from rig import Nginx, run, same, wait_until

rig.begin(sys.argv)
if "http_v3_module" not in subprocess.run([rig.NGINX, "-V"], capture_output=True, text=True, check=False).stderr:
    rig.tap.skip_all("this nginx has no HTTP/3: run it with one that has (./dev check nginx13)")
if "HTTP3" not in subprocess.run(["curl", "-V"], capture_output=True, text=True, check=False).stdout:
    rig.tap.skip_all("this curl has no HTTP/3: run it with one that has (./dev check nginx13)")


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


PORT = free_port()
CURL = ["curl", "-s", "--http3-only", "-k", "-o", "/dev/null", "-w", "%{http_version} %{http_code} %header{ratelimit-remaining}"]


def get(path: str, *words: str) -> list:
    """The version, the status and what is left."""
    return subprocess.run([*CURL, *words, f"https://127.0.0.1:{PORT}{path}"], capture_output=True, text=True, check=False).stdout.split()


def make() -> Nginx:
    server = Nginx("http3", "")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test", "-keyout",
        server.home + "/key", "-out", server.home + "/certificate"], capture_output=True, check=True)
    server.write(f"""tallywheel_zone minute window=1h; tallywheel_zone second window=1s shape=gcra burst=1; tallywheel_zone slots window=forever;
server {{ listen unix:{server.socket}; listen 127.0.0.1:{PORT} quic reuseport; http3 on;
ssl_certificate {server.home}/certificate; ssl_certificate_key {server.home}/key;
location /page {{ tallywheel_limit minute $arg_key 3; tallywheel_headers ratelimit; }}
location /waits {{ tallywheel_limit second $arg_key 5 wait=5s; try_files /page =404; }}
location /slow {{ tallywheel_hold slots $arg_key 1; limit_rate 1; try_files /page =404; }}
location /probe {{ tallywheel_hold slots $arg_key 1; try_files /page =404; }} }}""")
    return server.start()


def limited() -> None:
    same([get("/page?key=a") for _ in range(2)], [["3", "200", "2"], ["3", "200", "1"]])
    same(server.ask("/page?key=a").status, 200, "over HTTP/1.1")
    same(get("/page?key=a")[:2], ["3", "429"])


def waiting() -> None:
    begun = time.monotonic()
    same([get("/waits?key=a")[1] for _ in range(4)], ["200"] * 4)
    same(time.monotonic() - begun >= 0.59, True, "three of them waited")


def is_free() -> bool:
    return server.ask("/probe?key=a").status == 200


def a_client_that_goes() -> None:
    """The answer is so slow that its client gives up first. It begins again if a look had the slot just then."""
    for _ in range(20):
        with subprocess.Popen([*CURL, "--max-time", "5", f"https://127.0.0.1:{PORT}/slow?key=a"], stdout=subprocess.DEVNULL) as held:
            wait_until("the slot is in use, or was not to be had", lambda: held.poll() is not None or not is_free())
            ended = held.wait()
        if ended == 28:
            break
    same(ended, 28, "the client gave up")
    wait_until("the slot is free", is_free)


server = make()
run("a limit is one for HTTP/3 and HTTP/1.1, with its headers", limited)
run("requests wait", waiting)
run("a client that goes away gives its slot back", a_client_that_goes)
server.stop()
run("nothing unexpected is in the log", server.must_be_clean)
rig.tap.end(plans=True)
