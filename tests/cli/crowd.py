"""crowd.py TOOL ENGINE FOLDER -- slow clients and a hostile socket beside five good engines: each good client and each good
engine is answered within a second.
Goal: whoever is slow, silent or wrong delays nobody else, at the exporter's HTTP, at a watch socket, and as a socket that the
exporter asks. Method: five engines run (watch_engine.c); sockets beside them say nothing, too much, or lies; 300 clients
send half a request, or nothing, and stay. Then good clients ask. A busy machine gets three tries."""
import os
import socket
import subprocess
import sys
import threading
import time

tool, engine, folder = sys.argv[1:]
GOOD = [f"good{i}" for i in range(5)]
number = 0


def ok(good, what, why=""):
    global number
    number += 1
    if not good:
        print("#", why)
    print(f"{'ok' if good else 'not ok'} {number} - {what}", flush=True)


def hostile(name, act):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{folder}/{name}.sock")
    listener.listen(64)

    def serve():
        while True:
            client, _ = listener.accept()
            threading.Thread(target=turn, args=(client,), daemon=True).start()

    def turn(client):
        try:
            act(client)
        except OSError:
            pass
        client.close()

    threading.Thread(target=serve, daemon=True).start()


BUILD = b'# TYPE tallywheel_build_info gauge\ntallywheel_build_info{version="1"} 1\n'


def says(text):
    def act(client):
        client.recv(100)
        client.sendall(text)
    return act


def endless(client):
    while True:
        client.sendall(b"# x\n" * 20000)


def drips(client):
    while True:
        client.sendall(b"#\n")
        time.sleep(0.1)


HOSTILE = {
    "silent": lambda client: time.sleep(60),
    "endless": endless,
    "drips": drips,
    "names": says(b"".join(b"# TYPE tallywheel_m%d gauge\ntallywheel_m%d 1\n" % (i, i) for i in range(40000)) + BUILD),
    "broken": says(b"# TYPE tallywheel_x gauge\ntallywheel_x{a=\"\n" + BUILD),
    "foreign": says(b"# TYPE node_cpu gauge\nnode_cpu 1\n" + BUILD),
    "ours": says(b"# TYPE tallywheel_exporter_up gauge\ntallywheel_exporter_up{socket=\"good0.sock\"} 0\n" + BUILD),
    "no-text": says(b"# TYPE tallywheel_x gauge\ntallywheel_x{a=\"\xff\"} 1\n" + BUILD),
}
for name, act in HOSTILE.items():
    hostile(name, act)
LABELS = b'# TYPE tallywheel_x gauge\ntallywheel_x{a="\\"}",socket="mine",exported_socket="old"} 1\n'
hostile("labelled", says(LABELS + BUILD))

engines = []
for name in GOOD:
    run = subprocess.Popen([engine, f"{folder}/{name}.sock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert run.stdout.readline() == "ready\n"
    engines.append(run)
exporter = subprocess.Popen([tool, "exporter", "--listen", "127.0.0.1:0", f"{folder}/*.sock"], stderr=subprocess.PIPE, text=True)
port = int(exporter.stderr.readline().rsplit(":", 1)[1].split("/")[0])


def scrape():
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        got = b""
        while chunk := client.recv(65536):
            got += chunk
    return got.decode().split("\r\n\r\n", 1)[1]


def ask(name):
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(30)
        client.connect(f"{folder}/{name}.sock")
        client.sendall(b"status\n")
        got = b""
        while chunk := client.recv(65536):
            got += chunk
    assert got.endswith(b"\nend\n"), got[-100:]


def longest(work, arguments):
    """All at the same time; the longest of them, in seconds."""
    took = []

    def one(argument):
        began = time.monotonic()
        try:
            work(*argument)
            took.append(time.monotonic() - began)
        except (OSError, AssertionError, IndexError) as error:
            print("#", error)
            took.append(99)
    threads = [threading.Thread(target=one, args=(argument,)) for argument in arguments]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return max(took)


def within_a_second(work, arguments, crowd=lambda: None):
    best = 99
    for _ in range(3):
        kept = crowd()
        best = min(best, longest(work, arguments))
        for client in kept or []:
            client.close()
        if best <= 1:
            break
    return best


def slow_http():
    clients = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(300)]
    for number, client in enumerate(clients):
        client.sendall([b"", b"GET /met", b"GET /metrics HTTP/1.1\r\n\r\n"][number % 3])
    return clients


def slow_watch():
    clients = []
    for number in range(300):
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(30)
        client.connect(f"{folder}/{GOOD[number % 5]}.sock")
        client.send([b"stat", b"top"][number % 2]) if number % 3 else None
        clients.append(client)
    return clients


print("1..7")
page = scrape()
up = {line.split('"')[1][:-5]: line[-1] for line in page.split("\n") if line.startswith("tallywheel_exporter_up{")}
ok(up == {name: "1" for name in GOOD + ["labelled"]} | {name: "0" for name in HOSTILE}, "five engines are up, and no socket that lies", up)
ok(page.count("# TYPE tallywheel_exporter_up ") == 1 and "node_cpu" not in page and "tallywheel_m1" not in page,
   "nothing of a page that is refused is shown")
ok('tallywheel_x{socket="labelled.sock",a="\\"}",exported_socket="mine",exported_exported_socket="old"} 1' in page.split("\n"),
   "a label of the program's own that is called socket makes room", [line for line in page.split("\n") if "_x{" in line])
took = within_a_second(scrape, [()] * 5, slow_http)
ok(took <= 1, "five scrapes beside 300 slow clients and sockets that are silent, each within a second", took)
took = within_a_second(ask, [(name,) for name in GOOD], slow_watch)
ok(took <= 1, "each of five engines with idle clients on its socket answers within a second", took)
kept = slow_watch()
page = scrape()
ok(all(f'tallywheel_exporter_up{{socket="{name}.sock"}} 1\n' in page for name in GOOD), "and the exporter gets their pages")
began = time.monotonic()
threading.Thread(target=longest, args=(scrape, [()]), daemon=True).start()  # it may be cut off
time.sleep(0.1)
exporter.terminate()
ok(exporter.wait(20) == 143, "SIGTERM ends the exporter in the middle of it", time.monotonic() - began)
for run in engines:
    run.stdin.close()
    run.wait(20)
