"""Webhooks: what a signed delivery of 10 kB costs a server, and how long its sender waits, beside the least
that a receiver in Go must do (webhook_peer.go). Both sync it before they answer. At two steady rates, and as
fast as wrk sends over 50 connections, if wrk is here. Prints the table of docs/benchmarks.md.

WEIR_BENCH_DIR: where to work; WEIR_BENCH_SMOKE=1: small inputs; WEIR_BENCH_SECONDS: time of a row (10)."""

import hashlib
import hmac
import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time

from events import SECONDS, cpu_seconds, free_port, wait_for_port
from programs import SMOKE, WEIR

SECRET = b"It's a Secret to Everybody"
SENDERS = 10


def body(number):
    """A push with as many commits as make 10 kB."""
    commits = [{"id": hashlib.sha1(b"%d" % n).hexdigest(), "message": "x" * 300} for n in range(26)]
    push = {
        "ref": "refs/heads/main", "before": "0" * 40, "after": hashlib.sha1(b"%d" % number).hexdigest(),
        "commits": commits,
        "repository": {"full_name": "acme/tool", "clone_url": "https://github.invalid/acme/tool.git"},
    }
    return json.dumps(push).encode()


def deliver(port, path, rate):
    """Sends deliveries over kept connections. Returns the milliseconds that each waited, and the statuses."""
    waits, statuses, lock = [], set(), threading.Lock()
    count = int(rate * SECONDS / SENDERS)
    began = time.time() + 0.2
    bodies = [body(n) for n in range(16)]
    signatures = ["sha256=" + hmac.new(SECRET, one, hashlib.sha256).hexdigest() for one in bodies]

    def send(sender):
        own, seen = [], set()
        connection = socket.create_connection(("127.0.0.1", port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for n in range(count):
            request = "\r\n".join([
                f"POST {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json",
                "X-GitHub-Event: push", f"X-GitHub-Delivery: {sender}-{n}",
                f"X-Hub-Signature-256: {signatures[n % 16]}",
                f"Content-Length: {len(bodies[n % 16])}", "", "",
            ]).encode() + bodies[n % 16]
            due = began + (n + sender / SENDERS) * SENDERS / rate
            time.sleep(max(0, due - time.time()))
            at = time.time()
            connection.sendall(request)
            seen.add(int(connection.recv(65536).split(b" ", 2)[1]))
            own.append((time.time() - at) * 1000)
        connection.close()
        with lock:
            waits.extend(own)
            statuses.update(seen)

    threads = [threading.Thread(target=send, args=(n,)) for n in range(SENDERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(waits), statuses


# wrk sends deliveries, each with an id of its own, and prints JSON.
WRK_SCRIPT = """
local file = io.open("%s", "rb")
local body, n = file:read("*a"), 0
file:close()
function request()
  n = n + 1
  local headers = { ["Content-Type"] = "application/json", ["X-GitHub-Event"] = "push" }
  headers["X-GitHub-Delivery"] = n
  headers["X-Hub-Signature-256"] = "sha256=%s"
  return wrk.format("POST", nil, headers, body)
end
function done(summary, latency)
  local text = '{"count": %%d, "failed": %%d, "median": %%f, "late": %%f}'
  local failed = summary.errors.status + summary.errors.read + summary.errors.timeout
  print(text:format(summary.requests, failed, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3))
end
"""


def saturate(at, port, path):
    """Sends deliveries over 50 connections, each as soon as the one before is answered. Returns how many, and
    the median and 99 % of the milliseconds that they waited."""
    given, script = os.path.join(at, "body"), os.path.join(at, "deliveries.lua")
    with open(given, "wb") as file:
        file.write(body(0))
    with open(script, "w") as file:
        file.write(WRK_SCRIPT % (given, hmac.new(SECRET, body(0), hashlib.sha256).hexdigest()))
    command = ["wrk", "-t", "1", "-c", "50", "-d", f"{SECONDS:.0f}s", "-s", script]
    command += [f"http://127.0.0.1:{port}{path}"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = json.loads(said.splitlines()[-1])
    if found["failed"] and not SMOKE:
        raise SystemExit(f"{path}: {said}")
    return found["count"], found["median"], found["late"]


def pace(port, path, rate):
    """Sends `rate` deliveries a second. Returns as `saturate` does."""
    waits, statuses = deliver(port, path, rate)
    if statuses != {202}:
        raise SystemExit(f"{path} answered {statuses}")
    return len(waits), *(waits[int(share * (len(waits) - 1))] for share in (0.5, 0.99))


def measure(at, server, port, path, rate):
    """Returns the deliveries a second, the microseconds of CPU for one, and the median and 99 % of the waits.
    Without a rate, each sender sends the next delivery as soon as the last one is answered."""
    wait_for_port(port)
    time.sleep(0.5)
    began, start = cpu_seconds(server.pid), time.time()
    count, middle, late = pace(port, path, rate) if rate else saturate(at, port, path)
    took = time.time() - start
    # What is written behind the answers belongs to the work.
    time.sleep(1)
    return count / took, (cpu_seconds(server.pid) - began) / count * 1e6, middle, late


def of_weir(at, rate):
    pool, port = os.path.join(at, "pool"), free_port()
    subprocess.run([WEIR, "-q", "init", pool], check=True)
    with open(os.path.join(pool, "weir.toml"), "a") as settings:
        settings.write(f'\n[[events.webhook]]\nforge = "github"\nsecrets = ["{SECRET.decode()}"]\n')
    doors = ["--git", f"127.0.0.1:{free_port()}", "--http", f"127.0.0.1:{port}"]
    server = subprocess.Popen([WEIR, "-q", "--pool", pool, "serve", "--no-mirror", *doors])
    try:
        return measure(at, server, port, "/webhooks/github", rate)
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(pool)


def build_peer(at):
    """Builds the peer, if Go is here."""
    program = os.path.join(at, "webhook_peer")
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "webhook_peer.go")
    try:
        subprocess.run(["go", "build", "-o", program, source], check=True)
    except OSError:
        print("Go is not here: weir is measured alone")
        return None
    return program


def of_peer(at, program, rate):
    port, file = free_port(), os.path.join(at, "lines")
    server = subprocess.Popen([program, str(port), file, SECRET.decode()])
    try:
        return measure(at, server, port, "/", rate)
    finally:
        server.terminate()
        server.wait()


def main():
    print("| deliveries/s | server | CPU a delivery | median | 99 % |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir=os.environ.get("WEIR_BENCH_DIR")) as at:
        peer = build_peer(at)
        has_wrk = shutil.which("wrk") is not None
        if not has_wrk:
            print("wrk is not here: install it to see what a busy server takes")
        for rate in (500, 4000, *([None] if has_wrk else [])):
            rows = [("weir", of_weir(at, rate))]
            if peer:
                rows.append(("Go", of_peer(at, peer, rate)))
            for name, (per_second, cpu, middle, late) in rows:
                asked = rate or f"{per_second:.0f}, as fast as it answers"
                print(f"| {asked} | {name} | {cpu:.0f} us | {middle:.1f} ms | {late:.1f} ms |", flush=True)


if __name__ == "__main__":
    main()
