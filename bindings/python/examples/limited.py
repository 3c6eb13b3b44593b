"""limited.py -- a WSGI application with one limit for all workers of gunicorn: 1,000 requests of a client in an hour.

    gunicorn -c gunicorn.conf.py limited

The master imports this module once (preload_app), and so opens the engine and its families. Each worker that forks from it
counts in that engine: no request leaves the machine, and no worker asks another one."""
import os

import tallywheel

engine = tallywheel.Engine(shared=True)
requests = engine.family("requests", window="from_first")  # an hour from the client's first request


def application(environ, start_response):
    if environ["PATH_INFO"] == "/metrics":
        start_response("200 OK", [("Content-Type", "text/plain; version=0.0.4; charset=utf-8")])
        return [engine.metrics().encode()]
    verdict = requests.acquire(environ["REMOTE_ADDR"], 1, 1000)
    status = "200 OK" if verdict else "429 Too Many Requests"
    headers = [("Content-Type", "text/plain"), ("RateLimit-Remaining", str(verdict.remaining))]
    if not verdict:
        headers.append(("Retry-After", str(-(-verdict.retry_after_ms // 1000))))
    start_response(status, headers)
    return [b"worker %d\n" % os.getpid()]
