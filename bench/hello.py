#!/usr/bin/env python3
"""What a request costs before anything is read: `/healthz`, beside nginx with a file of the same bytes, over
a connection for each (ab, 200 at a time, in turn); and whether any waits where 5,000 begin each second,
whatever the server does. Prints the table of docs/benchmarks.md.

WEIR_BENCH_SMOKE=1     a few requests: that everything runs, not how fast"""

import json
import os
import re
import subprocess
import tempfile

from api import Server
from events import cpu_seconds, free_port, wait_for_port
from programs import BENCH, SMOKE, WEIR

REQUESTS = 2000 if SMOKE else 100_000
ROUNDS = 1 if SMOKE else 3
RATE, SECONDS = (200, 1) if SMOKE else (5000, 60)


class Nginx:
    """nginx with two workers and one small file."""

    def __init__(self, work):
        self.port = free_port()
        os.mkdir(os.path.join(work, "html"))
        with open(os.path.join(work, "html", "healthz"), "w") as file:
            file.write("alive\n")
        conf = os.path.join(work, "nginx.conf")
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        temporary = "".join(f"{kind}_temp_path {work}/{kind};" for kind in kinds)
        with open(conf, "w") as file:
            file.write(f"""
worker_processes 2; pid {work}/nginx.pid; error_log {work}/error.log; daemon off;
events {{ worker_connections 4096; }}
http {{
  access_log off; {temporary}
  server {{ listen 127.0.0.1:{self.port} backlog=4096; root {work}/html; }}
}}
""")
        self.process = subprocess.Popen(["/usr/sbin/nginx", "-c", conf], stderr=subprocess.DEVNULL)
        wait_for_port(self.port)

    def cpu(self):
        listed = open(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read().split()
        return sum(cpu_seconds(int(pid)) for pid in [self.process.pid, *listed])

    def end(self):
        self.process.terminate()
        self.process.wait()


def ab(port, cpu):
    """Returns the server's microseconds of processor time for a request, how many failed, the median and the
    slowest in milliseconds."""
    before = cpu()
    said = subprocess.run(
        ["ab", "-q", "-c", "200", "-n", str(REQUESTS), f"http://127.0.0.1:{port}/healthz"],
        check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ).stdout
    spent = (cpu() - before) / REQUESTS * 1e6
    failed = int(re.search(r"Failed requests: +(\d+)", said)[1])
    median, slowest = (int(re.search(rf" {part}% +(\d+)", said)[1]) for part in (50, 100))
    return spent, failed, median, slowest


def main():
    with tempfile.TemporaryDirectory() as work:
        # nginx's workers are another user's.
        os.chmod(work, 0o755)
        pool = os.path.join(work, "pool")
        subprocess.run([WEIR, "--pool", pool, "init"], check=True, stdout=subprocess.DEVNULL)
        server, nginx = Server(pool), Nginx(work)
        try:
            rounds = {"weir": [], "nginx": []}
            for _ in range(ROUNDS):
                rounds["nginx"].append(ab(nginx.port, nginx.cpu))
                rounds["weir"].append(ab(server.port, lambda: cpu_seconds(server.process.pid)))
            print("| 200 at a time, a connection for each | CPU a request | failed | median | slowest |")
            print("|---|---|---|---|---|")
            middle = {name: sorted(all_of)[ROUNDS // 2] for name, all_of in rounds.items()}
            for name, (spent, failed, median, _) in middle.items():
                slowest = max(one[3] for one in rounds[name])
                print(f"| {name} | {spent:.1f} us | {failed} | {median} ms | {slowest} ms |")
            if middle["nginx"][0]:
                print(f"| ratio | {middle['weir'][0] / middle['nginx'][0]:.2f} | | | |")
            print(f"\n| {RATE:,} begin each second, for {SECONDS} s | failed | median | 99 % | slowest |")
            print("|---|---|---|---|---|")
            for name, port in ("weir", server.port), ("nginx", nginx.port):
                said = subprocess.run(
                    [BENCH, "gets", f"127.0.0.1:{port}", "/healthz", str(RATE), str(SECONDS)],
                    check=True, stdout=subprocess.PIPE, text=True,
                ).stdout
                told = json.loads(said)
                print(f"| {name} | {told['failed']} of {told['started']:,} | {told['median_ms']:.1f} ms | "
                      f"{told['p99_ms']:.1f} ms | {told['max_ms']:.1f} ms |")
        finally:
            server.end()
            nginx.end()


if __name__ == "__main__":
    main()
