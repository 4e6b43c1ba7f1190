"""A weir that serves one repository, some milliseconds away."""

import os
import socket
import subprocess
import time

from events import free_port
from programs import BENCH, WEIR


class Delayed:
    """Mirrors the git directory `up` into a pool below `at`, and serves it over HTTP at `url`. A request and
    its answer take `milliseconds` longer together than on this machine."""

    def __init__(self, at, up, milliseconds):
        pool = os.path.join(at, "pool")
        weir = [WEIR, "-q", "--pool", pool]
        subprocess.run([WEIR, "-q", "init", pool], check=True)
        subprocess.run([*weir, "add", "--name", "it", "file://" + os.path.abspath(up)], check=True)
        subprocess.run([*weir, "mirror"], check=True)
        git, http, far = (free_port() for _ in range(3))
        ends = [f"127.0.0.1:{port}" for port in (git, http, far)]
        serve = [*weir, "serve", "--no-mirror", "--git", ends[0], "--http", ends[1]]
        self.processes = [
            subprocess.Popen(command, stderr=subprocess.DEVNULL)
            for command in (serve, [BENCH, "delay", ends[2], ends[1], str(milliseconds)])
        ]
        self.url = f"http://{ends[2]}/it"
        for port in (http, far):
            for _ in range(100):
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except OSError:
                    time.sleep(0.05)
            else:
                raise SystemExit(f"{WEIR} or {BENCH} does not listen")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.terminate()
            process.wait()
