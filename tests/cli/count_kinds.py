"""count_kinds.py TOOL -- logs of many kinds of servers, proxies and load balancers: the rows are right, or one clear
line says that they are not read.

Goal: nothing is taken for a client, a path or a status that is none, whatever the log.
Method: requests are drawn, and each kind of log writes them in its own form. The rows that are wanted come from the
requests themselves, never from the log. A kind that the command does not read has to end with exit status 1, no rows,
and a message that names the first line and the reason. Prints TAP.
"""
import calendar
import collections
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import urllib.parse

sys.dont_write_bytecode = True
sys.path.append(sys.path[0] + "/../support")
import tap
from tap import ok as report

tool = sys.argv[1]
seed = int(os.environ.get("TW_SEED") or random.randrange(1 << 24))
draw = random.Random(seed)
BEGIN = 1431850000  # 2015-05-17T08:06:40Z
MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()


class Request:
    """One request, with what is in it of a visitor's choice: the user, the path, the query, the agent."""

    def __init__(self, at):
        self.at = at
        self.ms = draw.randrange(1000)
        self.client = draw.choice(["10.0.0.%d" % draw.randrange(1, 6), "203.0.113.7", "2001:db8::%x" % draw.randrange(1, 9)])
        self.port = draw.randrange(1024, 65536)
        self.user = draw.choice(["-", "-", "-", "frank", "john smith", "a [x] b", "x [01/Jan/2001:00:00:00 +0000] y",
                                 "[", "a [b", "10.9.9.9 - x", "10.9.9.9"])
        self.method = draw.choice(["GET", "GET", "POST"])
        self.path = draw.choice(["/", "/a", "/a/b.png", "/caf%C3%A9", "/x]y"])
        self.query = draw.choice(["", "", "q=1", "t=[1]&u=%22"])
        self.status = draw.choice([200, 200, 304, 404, 502])
        self.bytes = draw.randrange(1, 100000)
        self.host = draw.choice(["a.example", "b.example"])
        self.agent = draw.choice(["curl/7.88", "Mozilla/5.0 (X11; Linux) [x]", "odd [17/May/2015:10:05:03 +0000] agent"])
        self.word = draw.choice(["curl/7.88", "Mozilla/5.0"])  # an agent without spaces
        self.plain_user = draw.choice(["-", "frank"])

    def url(self):
        return self.path + ("?" + self.query if self.query else "")

    def request(self, protocol="HTTP/1.1"):
        return "%s %s %s" % (self.method, self.url(), protocol)

    def web(self, zone=0):
        t = time.gmtime(self.at + zone * 60)
        sign = "-" if zone < 0 else "+"
        return time.strftime("%d/", t) + MONTHS[t.tm_mon - 1] + time.strftime("/%Y:%H:%M:%S ", t) + "%s%02d%02d" % (
            sign, abs(zone) // 60, abs(zone) % 60)

    def iso(self, digits=0, zone="Z"):
        fraction = (".%03d" % self.ms + "456789")[: digits + 1] if digits else ""
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(self.at)) + fraction + zone

    def syslog(self):
        t = time.gmtime(self.at)
        return "%s %2d %s" % (MONTHS[t.tm_mon - 1], t.tm_mday, time.strftime("%H:%M:%S", t))

    def common(self, user=None, protocol="HTTP/1.1"):
        return '- %s [%s] "%s" %d %d' % (user or self.user, self.web(draw.choice([0, 120, -480])), self.request(protocol),
                                         self.status, self.bytes)

    def combined(self):
        return '%s %s "-" "%s"' % (self.client, self.common(), self.agent)


requests = [Request(BEGIN + draw.randrange(20000)) for _ in range(150)]
WEB = {"client": lambda r: r.client, "method,path": lambda r: r.method + ":" + r.path, "status": lambda r: str(r.status)}
FULL = dict(WEB, **{"user": lambda r: r.user, "agent": lambda r: r.agent, "bytes": lambda r: str(r.bytes)})
def run(args, log):
    with tempfile.NamedTemporaryFile("w", suffix=".log", newline="") as file:
        file.write(log)
        file.flush()
        done = subprocess.run([tool, "count", "--output", "tsv"] + args + [file.name], capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout, done.stderr.replace(file.name, "LOG")


def escaped(text):
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")


def wanted(key, which=lambda r: True):
    rows = collections.Counter()
    for r in requests:
        if which(r):
            rows[(time.strftime("%Y-%m-%dT%H:00:00Z", time.gmtime(r.at)), escaped(key(r)))] += 1
    ordered = sorted(rows.items(), key=lambda row: (row[0][0], -row[1], row[0][1].encode()))
    return "".join("%s\t%s\t%d\n" % (window, name, count) for (window, name), count in ordered)


def read(kind, write, keys, args=(), head="", tail="\n"):
    """Each key's rows are those of the requests, and nothing is said."""
    log = head + "".join(write(r) + tail for r in requests)
    wrong = ""
    for key, value in keys.items():
        code, out, said = run(list(args) + ["--key", key], log)
        if (code, out, said) != (0, wanted(value), ""):
            wrong += "--key %s: exit status %d, %s\n%s\n%s" % (key, code, said, out[:300], log[:400])
    report(wrong == "", kind, wrong)


def refused(kind, lines, why, args=()):
    """No line is read: one message, with the number of the first one and the reason."""
    code, out, said = run(list(args), "".join(line + "\n" for line in lines))
    good = code == 1 and out == "" and "%d line%s skipped, first: LOG:1: " % (len(lines), "s" * (len(lines) > 1)) in said
    report(good and why in said, kind, "exit status %d\n%s\n%s" % (code, out[:200], said))


# ---- web servers ----

read("Apache: common", lambda r: "%s %s" % (r.client, r.common()), dict(WEB, user=FULL["user"]))
read("Apache: combined", lambda r: r.combined(), FULL)
read("Apache: vhost_combined", lambda r: "%s:443 %s" % (r.host, r.combined()), dict(FULL, host=lambda r: r.host + ":443"))
read("Apache: vhost_combined, by its word", lambda r: "%s:80 %s" % (r.host, r.combined()),
     dict(FULL, host=lambda r: r.host + ":80"), ["--format", "vhost_combined"])
read("Apache: combinedio, with more fields behind", lambda r: r.combined() + " 512 1024 **%d**" % r.ms,
     dict(FULL, **{"10": lambda r: "512", "12": lambda r: "**%d**" % r.ms}))
read("Apache: times of ISO 8601", lambda r: '%s - %s [%s] "%s" %d %d' % (r.client, r.user, r.iso(3, "+00:00"), r.request(),
                                                                         r.status, r.bytes), WEB)
read("nginx: $msec as the time", lambda r: '%s - %s [%d.%03d] "%s" %d %d' % (r.client, r.user, r.at, r.ms, r.request(), r.status,
                                                                             r.bytes), WEB)
read("Apache: times with microseconds", lambda r: '%s - %s [%s.%03d456%s] "%s" %d %d' % (
    r.client, r.user, r.web()[:20], r.ms, r.web()[20:], r.request(), r.status, r.bytes), WEB)
read("nginx: the name _ in front", lambda r: "_ " + r.combined(), dict(FULL, host=lambda r: "_"))
read("Apache: an address of IPv6 with its port in front", lambda r: "[2001:db8::1]:443 " + r.combined(),
     dict(FULL, host=lambda r: "[2001:db8::1]:443"))
refused("Apache: error log", ["[Sun May 17 10:05:03.123456 2015] [core:error] [pid 7:tid 8] [client 10.0.0.1:4711] AH00124: "
                              "Request exceeded the limit", "[Sun May 17 10:05:04.000001 2015] [mpm:notice] [pid 7] AH1"], "time")
refused("Apache: a proxy's list of addresses in front", ["203.0.113.7, 10.1.1.1 " + requests[0].common()] * 3,
        "a list of addresses")
read("Apache: the same, by what comes with the time", lambda r: "203.0.113.7, 10.1.1.1 " + r.common(),
     {"path": lambda r: r.path, "status": WEB["status"]})
refused("Apache: two addresses in front", ["203.0.113.7 10.1.1.1 " + requests[0].common("-")] * 3, "two addresses")
read("nginx: combined", lambda r: r.combined(), FULL)
read("nginx: with a list of forwarded addresses behind", lambda r: r.combined() + ' "203.0.113.9, 10.1.1.1"', FULL)
read("nginx: with the host in front", lambda r: "%s %s" % (r.host, r.combined()), dict(FULL, host=lambda r: r.host))
read("nginx: escape=json", lambda r: json.dumps({"time_iso8601": r.iso(0, "+00:00"), "remote_addr": r.client, "uri": r.path,
                                                 "status": r.status, "http_user_agent": r.agent}),
     {"remote_addr": WEB["client"], "uri": lambda r: r.path, "http_user_agent": FULL["agent"]}, ["--format", "json"])
read("Apache: times with milliseconds", lambda r: '%s - %s [%s.%03d%s] "%s" %d %d' % (
    r.client, r.user, r.web()[:20], r.ms, r.web()[20:], r.request(), r.status, r.bytes), WEB)
read("nginx: $time_iso8601", lambda r: '%s - %s [%s] "%s" %d %d "-" "%s"' % (r.client, r.user, r.iso(0, "+00:00"), r.request(),
                                                                             r.status, r.bytes, r.agent), FULL)
refused("nginx: error log", ['2015/05/17 10:05:03 [error] 7#7: *1 open() "/a" failed (2: No such file or directory), client: '
                             '10.0.0.1, server: a.example, request: "GET /a HTTP/1.1", host: "a.example"'], "")
refused("nginx: stream", ["10.0.0.1 [17/May/2015:10:05:03 +0000] TCP 200 12 34 0.001"], "")
refused("nginx: host, client and user without an identity", ['a.example 10.0.0.1 - [17/May/2015:10:05:03 +0000] "GET /"'] * 2,
        "no client")
refused("nginx: host, dash, client", ['a.example - 10.0.0.1 [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1'], "address")
refused("a time behind the request", ['10.0.0.1 "GET / HTTP/1.1" 200 12 [17/May/2015:10:05:03 +0000]'], "")
refused("a status that is elsewhere", ['10.0.0.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" "a.example" 200 12'],
        "no status", ["--key", "status"])
refused("a path that is elsewhere", ['10.0.0.1 - - [17/May/2015:10:05:03 +0000] "a.example" "GET / HTTP/1.1" 200 12'],
        "no status", ["--key", "path"])
refused("a request that is elsewhere", ['10.0.0.1 - - [17/May/2015:10:05:03 +0000] 0.005 "GET / HTTP/1.1" 200 12'], "")
read("ingress-nginx", lambda r: r.combined() + " 512 0.004 [web-80] [] 10.2.0.1:8080 12 0.004 200 6c1e", FULL)
read("ingress-nginx of old", lambda r: '%s - [%s] - %s [%s] "%s" %d %d "-" "%s" 512 0.004 [web-80] 10.2.0.1:80 12 0.004 200' % (
    r.client, r.client, r.plain_user, r.web(), r.request(), r.status, r.bytes, r.agent), dict(WEB, user=lambda r: r.plain_user))
read("lighttpd", lambda r: '%s %s %s [%s] "%s" %d %d "-" "%s"' % (r.client, r.host, r.plain_user, r.web(), r.request(), r.status,
                                                                  r.bytes, r.agent), dict(WEB, host=lambda r: r.host))
read("Tomcat and Jetty: common", lambda r: "%s %s" % (r.client, r.common(r.plain_user)), WEB)
read("gunicorn", lambda r: '%s - - [%s] "%s" %d %d "-" "%s"' % (r.client, r.web(), r.request(), r.status, r.bytes, r.agent), WEB)
refused("gunicorn behind a socket: no client", ['- - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 12 "-" "x"'], "no host")
refused("uvicorn", ['INFO:     10.0.0.1:4711 - "GET /a HTTP/1.1" 200 OK'], "")
refused("gin", ['[GIN] 2015/05/17 - 10:05:03 | 200 |     1.2ms |        10.0.0.1 | GET      "/a"'], "")

# ---- Caddy, Traefik, Varnish, Squid ----

read("Caddy", lambda r: json.dumps({"level": "info", "ts": r.at + r.ms / 1000, "logger": "http.log.access", "request": {
    "remote_ip": r.client, "method": r.method, "uri": r.url(), "headers": {"User-Agent": [r.agent], "Accept": ["a", "b"]}},
    "size": r.bytes, "status": r.status}),
     {"request.remote_ip": WEB["client"], "status": WEB["status"], "request.headers.User-Agent": FULL["agent"]}, ["--format", "json"])
read("Caddy: a list is a condition, too", lambda r: json.dumps({"ts": "%.9e" % r.at, "request": {"headers": {"User-Agent": [
    "wanted"]}}, "status": r.status}).replace('"ts": "', '"ts": ').replace('", "request', ', "request'),
     {"status": WEB["status"]}, ["--format", "json", "--where", "request.headers.User-Agent=wanted"])
read("Traefik: text", lambda r: r.combined() + ' %d "web@docker" "http://10.2.0.1:80" 4ms' % r.port, FULL)
read("Traefik: JSON", lambda r: json.dumps({"ClientHost": r.client, "RequestPath": r.url(), "DownstreamStatus": r.status,
                                            "StartUTC": "2001-01-01T00:00:00Z", "level": "info", "time": r.iso(0)}),
     {"ClientHost": WEB["client"], "DownstreamStatus": WEB["status"]}, ["--format", "json"])
read("Varnish: varnishncsa", lambda r: '%s - %s [%s] "%s http://%s%s HTTP/1.1" %d %d "-" "%s"' % (
    r.client, r.user, r.web(), r.method, r.host, r.url(), r.status, r.bytes, r.agent),
     {"client": WEB["client"], "path": lambda r: "http://" + r.host + r.path, "agent": FULL["agent"]})
read("Squid: combined", lambda r: r.combined() + " TCP_MISS:HIER_DIRECT", FULL)
refused("Squid: its own format", ["1431857103.123    150 10.0.0.1 TCP_MISS/200 1234 GET http://a.example/ - "
                                  "HIER_DIRECT/10.2.0.1 text/html"], "")

# ---- proxies and load balancers ----

ENVOY = dict(WEB, agent=FULL["agent"], host=lambda r: r.host, bytes=FULL["bytes"])


def envoy(r):
    return '[%s] "%s" %d - 0 %d 5 4 "%s" "%s" "6c1e-9" "%s" "10.2.0.1:80"' % (r.iso(3), r.request(), r.status, r.bytes, r.client,
                                                                              r.agent, r.host)


def istio(r):
    peer = "[%s]:%d" % (r.client, r.port) if ":" in r.client else "%s:%d" % (r.client, r.port)
    return ('[%s] "%s" %d UF,URX via_upstream - "-" 0 %d 5 4 "-" "%s" "6c1e-9" "%s" "10.2.0.1:80" outbound|80||a.example '
            '10.3.0.1:4711 10.3.0.2:80 %s - default' % (r.iso(3), r.request(), r.status, r.bytes, r.agent, r.host, peer))


for words in ([], ["--format", "envoy"]):
    read("Envoy %s" % words, envoy, ENVOY, words)
    read("Envoy of Istio %s" % words, istio, ENVOY, words)
read("Envoy: its own fields", envoy, {"flags,12": lambda r: "-:" + r.host}, ["--format", "envoy"])
refused("Envoy: a list of forwarded addresses is no client", [envoy(requests[0]).replace(
    '"%s"' % requests[0].client, '"10.0.0.1,10.0.0.2"')], "no host")
read("Envoy: JSON", lambda r: json.dumps({"start_time": r.iso(3), "method": r.method, "path": r.url(), "response_code": r.status}),
     {"response_code": WEB["status"]}, ["--format", "json"])


def haproxy(r):
    return ('%s:%d [%s.%03d] http-in~ static/srv%d 10/0/30/69/109 %d %d - - ---- 1/1/1/1/0 0/0 {a.example|x y} {} "%s"' % (
        r.client, r.port, r.web()[:20], r.ms, r.status % 3, r.status, r.bytes, r.request()))


def haproxy_tcp(r):
    return "%s:%d [%s.%03d] fnt bck/srv1 0/0/5007 %d -- 0/0/0/0/3 0/0" % (r.client, r.port, r.web()[:20], r.ms, r.bytes)


for words in ([], ["--format", "haproxy"]):
    read("HAProxy %s" % words, haproxy, dict(WEB, bytes=FULL["bytes"]), words)
    read("HAProxy behind syslog %s" % words, lambda r: "%s lb-1 haproxy[14389]: %s" % (r.syslog(), haproxy(r)), WEB, words)
    read("HAProxy: connections %s" % words, haproxy_tcp, {"client": WEB["client"], "bytes": FULL["bytes"]}, words)
read("HAProxy: backends and servers", haproxy, {"backend,server": lambda r: "static:srv%d" % (r.status % 3),
                                                "frontend": lambda r: "http-in~"}, ["--format", "haproxy"])
refused("HAProxy: connections have no path", [haproxy_tcp(requests[0])], "no such field", ["--key", "path"])
refused("HAProxy: a handshake that failed", ["10.0.0.1:4711 [17/May/2015:10:05:03.123] http-in/1: SSL handshake failure"], "")


def alb(r):
    return ('h2 %s app/lb/50dc6c495c0c9188 %s:%d 10.2.0.1:80 0.000 0.001 0.000 %d 200 34 %d "%s https://%s:443%s HTTP/2.0" "%s" '
            'ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 arn:aws:x "Root=1-2" "%s" "arn:aws:y" 0 %s "forward" "-" "-" "10.2.0.1:80" "200" '
            '"-" "-"' % (r.iso(6), r.client, r.port, r.status, r.bytes, r.method, r.host, r.url(), r.agent, r.host, r.iso(6)))


def elb(r):
    return '%s my-lb %s:%d 10.2.0.1:80 0.000073 0.001048 0.000057 %d 200 0 %d "%s http://%s:80%s HTTP/1.1" "%s" - -' % (
        r.iso(6), r.client, r.port, r.status, r.bytes, r.method, r.host, r.url(), r.agent)


ALB = {"client": WEB["client"], "status": WEB["status"], "agent": FULL["agent"], "bytes": FULL["bytes"]}
for words in ([], ["--format", "alb"]):
    read("AWS: ALB %s" % words, alb, dict(ALB, host=lambda r: r.host, path=lambda r: "https://%s:443%s" % (r.host, r.path)), words)
    read("AWS: classic load balancer %s" % words, elb, ALB, words)
read("AWS: ALB, its own fields", alb, {"target_status,type": lambda r: "200:h2"}, ["--format", "alb"])
refused("AWS: network load balancer", ["tls 2.0 2015-05-17T10:05:03 net/lb/1 l/2 10.0.0.1:4711 10.2.0.1:443 5 2 98 246 - arn:x - "
                                       "ECDHE tlsv12 - a.example - - -"], "")


def s3(r):
    return ('79a59df900b949e5 bucket.%s [%s] %s %s 3E57427F3E REST.GET.OBJECT %s "%s" %d - %d 113 7 6 "-" "%s" - 9vKBE6 SigV4 '
            'ECDHE AuthHeader %s TLSV1.2 - -' % (r.host, r.web(), r.client, r.plain_user, r.path[1:] or "-", r.request(), r.status,
                                                 r.bytes, r.agent, "s3." + r.host))


for words in ([], ["--format", "s3"]):
    read("AWS: S3 %s" % words, s3, dict(FULL, user=lambda r: r.plain_user, host=lambda r: "s3." + r.host), words)
read("AWS: S3, its own fields", s3, {"bucket,operation": lambda r: "bucket.%s:REST.GET.OBJECT" % r.host}, ["--format", "s3"])

CLOUDFRONT = ("date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status cs(Referer) cs(User-Agent) "
              "cs-uri-query cs(Cookie) x-edge-result-type x-edge-request-id x-host-header cs-protocol cs-bytes time-taken "
              "x-forwarded-for ssl-protocol ssl-cipher x-edge-response-result-type cs-protocol-version fle-status "
              "fle-encrypted-fields c-port time-to-first-byte x-edge-detailed-result-type sc-content-type sc-content-len "
              "sc-range-start sc-range-end")


def cloudfront(r):
    return "\t".join([r.iso()[:10], r.iso()[11:19], "FRA2-C1", str(r.bytes), r.client, r.method, "d1.cloudfront.net", r.path,
                      str(r.status), "-", urllib.parse.quote(r.agent), r.query or "-", "-", "Hit", "ID==", r.host, "https", "23",
                      "0.001", "-", "TLSv1.3", "TLS_AES", "Hit", "HTTP/2.0", "-", "-", str(r.port), "0.001", "Hit", "text/html",
                      "78", "-", "-"])


quoted = {"client": WEB["client"], "method,path": WEB["method,path"], "status": WEB["status"], "host": lambda r: r.host,
          "agent": lambda r: urllib.parse.quote(r.agent)}
for words in ([], ["--format", "cloudfront"], ["--format", "w3c"]):
    read("AWS: CloudFront %s" % words, cloudfront, quoted, words, head="#Version: 1.0\n#Fields: " + CLOUDFRONT + "\n")
read("AWS: CloudFront without its head", cloudfront, dict(quoted, **{"x-edge-location": lambda r: "FRA2-C1"}),
     ["--format", "cloudfront"])
read("GCP: load balancer", lambda r: json.dumps({"httpRequest": {"remoteIp": r.client, "status": r.status, "requestUrl": "https://x"},
                                                 "receiveTimestamp": "2001-01-01T00:00:00Z", "timestamp": r.iso(6)}),
     {"httpRequest.remoteIp": WEB["client"], "httpRequest.status": WEB["status"]}, ["--format", "json"])
read("Azure: application gateway", lambda r: json.dumps({"timeStamp": r.iso(0, "+00:00"), "operationName": "x", "properties": {
    "clientIP": r.client, "httpStatus": r.status, "timeTaken": 0.1}}),
     {"properties.clientIP": WEB["client"], "properties.httpStatus": WEB["status"]}, ["--format", "json"])
read("Azure: front door", lambda r: json.dumps({"time": r.iso(7), "properties": {"clientIp": r.client, "httpStatusCode": "200"}}),
     {"properties.clientIp": WEB["client"]}, ["--format", "json"])
read("Cloudflare: logpush", lambda r: json.dumps({"ClientIP": r.client, "EdgeStartTimestamp": r.at * 10**9}),
     {"ClientIP": WEB["client"]}, ["--format", "json", "--time", "EdgeStartTimestamp"])

# ---- IIS ----

IIS_LONG = "date time s-ip cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip cs(User-Agent) sc-status time-taken"
IIS_SHORT = "date time c-ip cs-method cs-uri-stem sc-status"


def iis_head(columns):
    return "#Software: Microsoft Internet Information Services 10.0\r\n#Version: 1.0\r\n#Date: 2015-05-17 00:00:00\r\n#Fields: %s\r\n" % columns


def iis(r):
    """The columns change in mid-file, as after a restart with other settings."""
    day, clock = r.iso()[:10], r.iso()[11:19]
    if r is changed:
        return iis_head(IIS_SHORT) + " ".join([day, clock, r.client, r.method, r.path, str(r.status)])
    if requests.index(r) > requests.index(changed):
        return " ".join([day, clock, r.client, r.method, r.path, str(r.status)])
    return " ".join([day, clock, "10.9.9.9", r.method, r.path, r.query or "-", "80", r.plain_user, r.client,
                     r.agent.replace(" ", "+"), str(r.status), "15"])


changed = requests[75]
for words in ([], ["--format", "w3c"]):
    read("IIS, with columns that change %s" % words, iis, WEB, words, head=iis_head(IIS_LONG), tail="\r\n")
read("IIS, a column's own name", iis, {"c-ip,sc-status": lambda r: "%s:%d" % (r.client, r.status)}, ["--format", "w3c"],
     head="\ufeff" + iis_head(IIS_LONG), tail="\r\n")
# Megabytes, of which each thread sees pieces from the middle; their columns change again and again.
log = "".join(iis_head(IIS_LONG) + "".join(iis(r) + "\r\n" for r in requests) for _ in range(120))
code, out, said = run(["--threads", "8", "--window", "all", "--key", "status"], log)
rows = sorted(wanted(WEB["status"]).splitlines())
totals = collections.Counter()
for row in rows:
    totals[row.split("\t")[1]] += 120 * int(row.split("\t")[2])
report(code == 0 and said == "" and out == "".join("all\t%s\t%d\n" % row for row in sorted(
    totals.items(), key=lambda row: (-row[1], row[0]))), "IIS: heads in the middle of megabytes, by eight threads", said + out)
done = subprocess.run([tool, "count", "--follow", "--format", "w3c", "--output", "tsv", "-"], capture_output=True, text=True,
                      input=iis_head(IIS_LONG) + "".join(iis(r) + "\r\n" for r in requests), timeout=60)
report((done.returncode, done.stdout, done.stderr) == (0, wanted(WEB["client"]), ""), "IIS: --follow", done.stderr)
for words in (["--resume", "--batch", "x", "--redis", "redis://localhost", "--format", "w3c"],):
    code, out, said = run(words, "")
    report(code == 2 and "--resume" in said, "IIS: --resume does not go with a head", said)
refused("IIS: no head", ["2015-05-17 10:05:03 10.0.0.1 GET /a 200"], "#Fields", ["--format", "w3c"])
code, out, said = run(["--format", "w3c"], iis_head(IIS_SHORT) + "2015-05-17 10:05:03 10.0.0.1 GET /a b 200\r\n")
report(code == 1 and out == "" and "LOG:5: the line has more or fewer columns" in said, "IIS: a line with a column too many", said)
refused("IIS: its own format", ["10.0.0.1, -, 05/17/2015, 10:05:03, W3SVC1, WEB, 10.9.9.9, 15, 512, 1024, 200, 0, GET, /a, -,"], "")

# ---- what carries the lines ----

behind = {"client": WEB["client"], "user": FULL["user"], "path": lambda r: r.path}
read("Kubernetes: log files", lambda r: "%s stdout F %s" % (r.iso(9), r.combined()), behind)
read("Kubernetes: log files, by their word", lambda r: "%s stderr F %s" % (r.iso(9, "+00:00"), r.combined()), behind,
     ["--format", "cri"])
read("Kubernetes: Envoy in log files", lambda r: "%s stdout F %s" % (r.iso(9), envoy(r)), ENVOY)
read("Kubernetes: JSON in log files", lambda r: "%s stdout F %s" % (r.iso(9), json.dumps({"ts": r.at, "k": r.client})),
     {"k": WEB["client"]}, ["--format", "cri+json"])
code, out, said = run(["--format", "cri+tsv"], "".join("%s stdout F %d\t%s\n" % (r.iso(9), r.at, r.client) for r in requests))
report((code, out, said) == (0, wanted(WEB["client"]), ""), "Kubernetes: tsv in log files", said)
refused("Kubernetes: a line that is none of its log files", [requests[0].combined()], "stdout F", ["--format", "cri"])
refused("Kubernetes: pieces of a line", ["2015-05-17T10:05:03.123456789Z stdout P " + requests[0].combined()], "piece")
refused("Kubernetes: klog", ["I0517 10:05:03.123456       1 controller.go:42] Starting"], "")
read("kubectl logs --prefix", lambda r: "[pod/web-7d4b9-x/nginx] " + r.combined(), behind)
read("kubectl logs --timestamps", lambda r: "%s %s" % (r.iso(9), r.combined()), behind)
read("docker compose logs", lambda r: "nginx-1  | " + r.combined(), behind)
read("docker-compose logs of old", lambda r: "nginx_1  | " + r.combined(), behind)
read("docker compose logs -t", lambda r: "web-1  | %s %s" % (r.iso(9), r.combined()), behind)
read("docker compose: Envoy", lambda r: "envoy-1  | " + envoy(r), ENVOY)
read("docker compose: JSON", lambda r: "web-1  | " + json.dumps({"ts": r.at, "k": r.client}), {"k": WEB["client"]},
     ["--format", "json"])
read("Docker: json-file", lambda r: json.dumps({"log": r.combined() + "\n", "stream": "stdout", "time": "2001-01-01T00:00:00Z"},
                                               separators=(",", ":")), behind)
refused("Docker: json-file of a program that writes JSON", ['{"log":"{\\"a\\":1}\\n","stream":"stdout","time":"x"}'], "JSON")
read("syslog: RFC 3164", lambda r: "<190>%s web-1 nginx: %s" % (r.syslog(), r.combined()), behind)
read("syslog: RFC 3164 without a host", lambda r: "<190>%s nginx: %s" % (r.syslog(), r.combined()), behind)
read("syslog: RFC 5424", lambda r: '<190>1 %s web-1 nginx 12 - [id@1 a="b] c"] %s' % (r.iso(3), r.combined()), behind)
read("syslog: RFC 5424 without data", lambda r: "<190>1 %s web-1 nginx - - - \ufeff%s" % (r.iso(3), r.combined()), behind)
read("rsyslog", lambda r: "%s web-1 nginx[12]: %s" % (r.iso(6, "+00:00"), r.combined()), behind)
read("journalctl", lambda r: "%s web-1 nginx[12]: %s" % (r.syslog(), r.combined()), behind)
read("journalctl -o short-iso", lambda r: "%s web-1 nginx[12]: %s" % (r.iso(0, "+0000"), r.combined()), behind)
read("journalctl -o json", lambda r: json.dumps({"__REALTIME_TIMESTAMP": "%d" % (r.at * 10**6), "_HOSTNAME": r.host,
                                                 "MESSAGE": "x"}), {"_HOSTNAME": lambda r: r.host}, ["--format", "json"])
refused("Heroku", ['2015-05-17T10:05:03.123456+00:00 heroku[router]: at=info method=GET path="/" host=a.example status=200'], "")

# ---- what is at a file's or a line's start ----

read("a byte order mark", lambda r: r.combined(), FULL, head="\ufeff")
read("a byte order mark and JSON", lambda r: json.dumps({"date": r.iso()[:10], "time": r.iso()[11:19], "k": r.client}),
     {"k": WEB["client"]}, ["--format", "json"], head="\ufeff")
read("a hole of NULs", lambda r: r.combined(), FULL, head="\0" * 5000000)
code, out, said = run([], requests[0].combined()[:20] + "\0" * 100 + requests[1].combined() + "\n")
report(code == 1 and out == "" and "LOG:1: NULs are in the line" in said, "NULs within a line", said)
tap.end(plans=True)
