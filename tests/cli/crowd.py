"""crowd.py TOOL ENGINE FOLDER -- slow clients and a hostile socket beside five good engines: none of them delays a good client.
Goal: whoever is slow, silent or wrong delays nobody else, at the exporter's HTTP, at a watch socket, and as a socket that the
exporter asks. Method: five engines run (watch_engine.c); sockets beside them say nothing, too much, or lies; 300 clients
send half a request, or nothing, and stay. Then good clients ask. Who waited for a slow one would wait for the end of its
time (CLIENT_MS, REQUEST_MS), in every try. A busy machine gets as many tries as there are in 40 seconds."""
import atexit
import socket
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.append(sys.path[0] + "/../support")
import tap
from tap import ok

tool, engine, folder = sys.argv[1:]
GOOD = [f"good{i}" for i in range(5)]
CLIENT_S = 2  # tools/watched/exporter_http.c: the time of a slow client; three silent sockets have more, one after the other
REQUEST_S = 5  # extras/watch.c
PATIENCE_S = 40


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


silent_is_asked = threading.Event()


def silent(client):
    silent_is_asked.set()
    client.recv(1 << 20)  # the request
    client.recv(1)  # until the other end is closed


def drips(client):
    while True:
        client.sendall(b"#\n")
        time.sleep(0.1)


HOSTILE = {
    "silent": silent,
    "silent-too": silent,
    "silent-as-well": silent,
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
atexit.register(exporter.kill)
port = int(exporter.stderr.readline().rsplit(":", 1)[1].split("/")[0])


def scrape():
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        got = b""
        while chunk := client.recv(65536):
            got += chunk
    head, end, page = got.decode().partition("\r\n\r\n")
    if not end:
        raise ConnectionError(f"cut off behind {head[-100:]!r}")
    return page


def ask(name):
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(30)
        client.connect(f"{folder}/{name}.sock")
        client.sendall(b"status\n")
        got = b""
        while chunk := client.recv(65536):
            got += chunk
    if not got.endswith(b"\nend\n"):
        raise ConnectionError(f"cut off behind {got[-100:]!r}")


def together(work, arguments):
    """All at the same time: how long each took, and what went wrong."""
    took, wrong = [], []

    def one(argument):
        began = time.monotonic()
        try:
            work(*argument)
            took.append(time.monotonic() - began)
        except OSError as error:
            wrong.append(error)
    threads = [threading.Thread(target=one, args=(argument,)) for argument in arguments]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return took, wrong


def nobody_waits(work, arguments, crowd, slow_s, sentence):
    """In some try each is answered before the time of any slow client has ended."""
    tries, end = [], time.monotonic() + PATIENCE_S
    while not tries or time.monotonic() < end:
        try:
            kept = crowd()
        except OSError as error:  # so busy that the first one's time has ended before the last one has come
            tries.append(error)
            continue
        took, wrong = together(work, arguments)
        for client in kept:
            client.close()
        if not wrong and max(took) < slow_s:
            ok(True, sentence)
            return
        tries.append(f"{took} {wrong}")
    ok(False, sentence, tries)


def page_once(holds):
    """A page for which it holds. On a busy machine an engine may miss one."""
    end = time.monotonic() + PATIENCE_S
    while not holds(page := scrape()) and time.monotonic() < end:
        pass
    return page


def up_in(page):
    return {line.split('"')[1][:-5]: line[-1] for line in page.split("\n") if line.startswith("tallywheel_exporter_up{")}


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


tap.plan(7)
wanted = {name: "1" for name in GOOD + ["labelled"]} | {name: "0" for name in HOSTILE}
page = page_once(lambda page: up_in(page) == wanted)
ok(up_in(page) == wanted, "five engines are up, and no socket that lies", up_in(page))
ok(page.count("# TYPE tallywheel_exporter_up ") == 1 and "node_cpu" not in page and "tallywheel_m1" not in page,
   "nothing of a page that is refused is shown")
ok('tallywheel_x{socket="labelled.sock",a="\\"}",exported_socket="mine",exported_exported_socket="old"} 1' in page.split("\n"),
   "a label of the program's own that is called socket makes room", [line for line in page.split("\n") if "_x{" in line])
nobody_waits(scrape, [()] * 5, slow_http, CLIENT_S, "five scrapes wait for none of 300 slow clients, nor for sockets that are silent")
nobody_waits(ask, [(name,) for name in GOOD], slow_watch, REQUEST_S, "nor do those who ask five engines, for idle clients of their sockets")
kept = slow_watch()
page = page_once(lambda page: up_in(page) == wanted)
ok(up_in(page) == wanted, "and the exporter gets their pages", up_in(page))
silent_is_asked.clear()
cut_off = threading.Thread(target=together, args=(scrape, [()]))
cut_off.start()
silent_is_asked.wait(PATIENCE_S)
exporter.terminate()
ok(exporter.wait(PATIENCE_S) == 143, "SIGTERM ends the exporter in the middle of it", exporter.returncode)
cut_off.join()
for run in engines:
    run.stdin.close()
    run.wait(20)
tap.end()
