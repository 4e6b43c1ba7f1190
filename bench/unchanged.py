#!/usr/bin/env python3
"""Measures a pass over many upstreams that have not changed: how many a second, and in how much memory.

A weir on loopback serves the upstreams.

WEIR_BENCH_COUNT=100000   upstreams (the figure in the docs), ten thousand without
WEIR_BENCH_SMOKE=1        that it runs, not how fast
"""

import os
import shutil
import socket
import subprocess
import tempfile
import time

from programs import SMOKE, WEIR

COUNT = 300 if SMOKE else int(os.environ.get("WEIR_BENCH_COUNT", "10000"))


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def measured(*command):
    """Seconds, and the most memory, in bytes."""
    started = time.time()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed")
    return time.time() - started, usage.ru_maxrss * 1024


def main():
    work = tempfile.mkdtemp(prefix="weir-bench-")
    server = None
    try:
        os.environ["HOME"] = work
        upstream, there, here = (os.path.join(work, name) for name in ("up.git", "there", "here"))
        run("git", "init", "-q", "--bare", "-b", "main", upstream)
        text = (
            "commit refs/heads/main\ncommitter A <a@b> 1700000000 +0000\ndata 1\nm\n"
            "M 100644 inline f\ndata 1\nx\n"
        )
        subprocess.run(["git", "-C", upstream, "fast-import", "--quiet"], input=text.encode(), check=True)
        run(WEIR, "--pool", there, "init")
        # One archive under as many names as are asked for: what is measured is the pass.
        with open(os.path.join(there, "weir.toml"), "a") as f:
            f.write('\n[[serve.map]]\nhost = "*"\npath = "/.*"\nto = "r"\n')
        run(WEIR, "--pool", there, "add", "--name", "r", upstream)
        run(WEIR, "--pool", there, "mirror")
        address = f"127.0.0.1:{port()}"
        server = subprocess.Popen([WEIR, "-q", "--pool", there, "serve", "--no-mirror", "--git", address])
        run(WEIR, "--pool", here, "init")
        with open(os.path.join(work, "list"), "w") as f:
            f.writelines(f"git://{address}/n{n:06}.git n{n // 1000}/n{n:06}\n" for n in range(COUNT))
        with open(os.path.join(here, "weir.toml")) as f:
            text = f.read()
        with open(os.path.join(here, "weir.toml"), "w") as f:
            # All of it is one host.
            f.write(text.replace("#[mirror]\n", "[mirror]\njobs = 32\njobs_per_host = 32\n", 1))
        run(WEIR, "--pool", here, "add", "--from", os.path.join(work, "list"))
        cloned, _ = measured(WEIR, "-q", "--pool", here, "mirror")
        passes = [measured(WEIR, "-q", "--pool", here, "mirror", "--all") for _ in range(1 if SMOKE else 3)]
        wall, memory = sorted(passes)[len(passes) // 2][0], max(memory for _, memory in passes)
        print(f"| {COUNT:,} upstreams of a weir on loopback | weir | bar |\n|---|---|---|")
        print(f"| cloned, a second | {COUNT / cloned:,.0f} | - |")
        print(
            f"| a pass over all, unchanged: a second, the median of {len(passes)} | "
            f"{COUNT / wall:,.0f} | 5,000 |"
        )
        print(f"| the same: memory | {memory / 2**20:.0f} MiB | 200 MiB |")
    finally:
        if server:
            server.terminate()
            server.wait()
        shutil.rmtree(work, ignore_errors=True)


main()
