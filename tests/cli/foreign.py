"""foreign.py TOOL FOLDER -- what others chose to be printed: a watch socket that lies, a file's name, keys. Nothing of it reaches a
terminal as a control, ends a JSON string, or becomes a spreadsheet's formula.
Method: each answer of a socket, each name and each key has escape sequences, quotes, backslashes and line ends."""
import csv
import io
import json
import socket
import subprocess
import sys
import threading

sys.dont_write_bytecode = True
sys.path.append(sys.path[0] + "/../support")
import tap
from tap import ok

tool, folder = sys.argv[1:]
EVIL = '\x1b]0;X\x07\x1b[31mEVIL"\\\u202e'


def family(name):
    words = ["family", name, "counter" + EVIL, "aligned" + EVIL, "3600000", "0", "3600000", "soft" + EVIL, "string" + EVIL]
    return "\t".join(words + ["1", "5", "1", "1", "0", "0"]) + "\n"


def status(lies):
    evil = EVIL if lies else ""
    return (f"tallywheel\t9{evil}\nnow_ms\t1700000000000\nprocess\t42\nstat\tincrements{evil}\t5\nstat\tkeys\t7\n"
            f"last_error\tboom{evil}\n{family('views' + evil)}end\n")


def serve(name, answers):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{folder}/{name}")
    listener.listen(8)

    def run():
        while True:
            client, _ = listener.accept()
            with client:
                client.sendall(answers[client.recv(4096).split()[0].decode()].encode())
    threading.Thread(target=run, daemon=True).start()


def run(*arguments, text=b""):
    done = subprocess.run([tool.encode(), *[a if isinstance(a, bytes) else a.encode() for a in arguments]], input=text,
                          capture_output=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def is_plain(output):
    text = output.decode()  # valid UTF-8
    return "\u202e" not in text and all(c == "\n" or c.isprintable() for c in text)


tap.plan(7)
serve("lies", {"status": status(True), "top": f"key\t5\t5\t0\t0\t3600000\tk{EVIL}\\x1B[31m\nend\n"})
serve("refuses", {"status": status(False), "top": f"error\tno{EVIL}\n"})
code, out, err = run("top", "--once", "--json", f"{folder}/lies")
ok(code == 0 and is_plain(out) and json.loads(out)["families"][0]["name"].startswith("views\x1b"), "JSON stays JSON", (code, out, err))
code, out, err = run("top", "--once", f"{folder}/lies")
ok(code == 0 and is_plain(out) and b"EVIL" in out, "the page has no control character", (code, out, err))
code, out, err = run("show", "views", f"{folder}/refuses")
ok(code == 1 and is_plain(err) and b"no\\x1B]0;X" in err, "nor has a refusal", (code, err))
evil_name = EVIL.replace("/", "").encode() + b"\xff"
code, out, err = run("count", folder.encode() + b"/" + evil_name)
ok(code == 1 and is_plain(err) and b"No such file" in err, "nor has a message with a file's name", err)
with open(folder.encode() + b"/" + evil_name, "wb") as log:
    log.write(b"no line\n")
code, out, err = run("count", folder.encode() + b"/" + evil_name)
ok(code == 1 and is_plain(err) and b"skipped" in err, "nor has the report of skipped lines", err)
keys = ["=1+1", "+a", "-2", "@x", '="a",b', "a;=1", "-", "a=1", "\u202ex"]
lines = "".join(f"1431857103\t{key}\n" for key in keys).encode()
code, out, err = run("count", "--format", "tsv", "--output", "csv", "--window", "all", "-", text=lines)
cells = {row[1] for row in list(csv.reader(io.StringIO(out.decode())))[1:]}
ok(cells == {"'=1+1", "'+a", "'-2", "'@x", "'=\"a\",b", "a;=1", "-", "a=1", "\u202ex"}, "no cell is a formula", cells)
code, out, err = run("count", "--format", "tsv", "--window", "all", "-", text=lines)
ok(code == 0 and is_plain(out), "the table moves no text about", out)
tap.end()
