#!/usr/bin/env python3
"""A clone of what is not mirrored yet, beside a clone from upstream; many at once; a clone of an older state,
beside one of the newest: on_demand.py [on-demand] [states]. Prints the table of docs/benchmarks.md.

WEIR_BENCH_REPO=DIR    a repository (git/git for the figures in the docs); without it a generated one
WEIR_BENCH_SMOKE=1     small inputs: that everything runs, not how fast"""

import os
import shutil
import subprocess
import sys
import tempfile
import time

from api import Server, repository
from events import cpu_seconds, free_port, wait_for_port
from programs import HERE, SMOKE, WEIR

AT_ONCE = 10 if SMOKE else 50
STATES = 5 if SMOKE else 1000
ROUNDS = 1 if SMOKE else 3


def weir(pool, *args):
    return subprocess.run([WEIR, "--pool", pool, *args], check=True, stdout=subprocess.PIPE, text=True).stdout


def clone(url, work):
    """Returns the seconds that a bare clone takes."""
    target = tempfile.mkdtemp(dir=work)
    at = time.perf_counter()
    subprocess.run(["git", "clone", "-q", "--bare", url, target], check=True)
    took = time.perf_counter() - at
    shutil.rmtree(target)
    return took


def on_demand(work, up):
    """Clones from upstream and through a weir that does not have the repository; then many at once."""
    port = free_port()
    base = os.path.dirname(up)
    daemon = subprocess.Popen(
        ["git", "daemon", "--reuseaddr", "--export-all", "--listen=127.0.0.1", f"--port={port}",
         f"--base-path={base}"],
        stderr=subprocess.DEVNULL, start_new_session=True,
    )
    wait_for_port(port)
    direct, through = [], []
    for n in range(ROUNDS):
        pool = os.path.join(work, f"pool{n}")
        weir(pool, "init")
        with open(os.path.join(pool, "weir.toml"), "a") as settings:
            settings.write(f"\n[[serve.fetch_on_demand]]\nrepositories = ['up/*']\n"
                           f"url = 'git://127.0.0.1:{port}/{{path}}'\n")
        server = Server(pool, mirrors=True)
        direct.append(clone(f"git://127.0.0.1:{port}/{os.path.basename(up)}", work))
        through.append(clone(f"http://127.0.0.1:{server.port}/up/{os.path.basename(up)}", work))
        if n == ROUNDS - 1:
            small = os.path.join(base, "small.git")
            subprocess.run(["git", "init", "-q", "--bare", "-b", "main", small], check=True)
            made = subprocess.run(["python3", os.path.join(HERE, "bench/generate-repository.py"), "300"],
                                  stdout=subprocess.PIPE, check=True)
            subprocess.run(["git", "-C", small, "fast-import", "--quiet"], input=made.stdout, check=True)
            url = f"http://127.0.0.1:{server.port}/up/small.git"
            at = time.perf_counter()
            clients = [
                subprocess.Popen(["git", "clone", "-q", "--bare", url, os.path.join(work, f"many{k}")])
                for k in range(AT_ONCE)
            ]
            failed = sum(client.wait() != 0 for client in clients)
            at_once = time.perf_counter() - at
            visits = len(weir(pool, "visits", "up/small").splitlines())
        server.end()
        shutil.rmtree(pool)
    daemon.terminate()
    daemon.wait()
    direct, through = sorted(direct)[ROUNDS // 2], sorted(through)[ROUNDS // 2]
    print(f"| first clone of what is not mirrored: seconds until the client has it | {through:.1f} | "
          f"{direct:.1f}, from upstream | {through / direct:.2f} |")
    print(f"| {AT_ONCE} clones at once of what is not mirrored: failed, visits to the upstream | "
          f"{failed}, {visits} | in {at_once:.1f} s | |")


def older_states(work, up):
    """Mirrors a branch that goes on commit by commit, and clones its first and its last state."""
    pool = os.path.join(work, "states")
    weir(pool, "init")
    grown = os.path.join(work, "grown.git")
    subprocess.run(["git", "clone", "-q", "--bare", "--single-branch", "--no-tags", up, grown], check=True)
    log = subprocess.run(
        ["git", "-C", grown, "rev-list", "--first-parent", f"-{STATES + 1}", "HEAD"],
        check=True, stdout=subprocess.PIPE, text=True,
    ).stdout.split()
    branch = subprocess.run(["git", "-C", grown, "symbolic-ref", "HEAD"], check=True, stdout=subprocess.PIPE,
                            text=True).stdout.strip()
    for n, commit in enumerate(reversed(log)):
        subprocess.run(["git", "-C", grown, "update-ref", branch, commit], check=True)
        if n == 0:
            weir(pool, "add", "--name", "grown", grown)
        weir(pool, "mirror", "--all", "-q")
    with open(os.path.join(pool, "weir.toml")) as settings:
        text = settings.read().replace("[serve]\n", "[serve]\nolder_states = true\n", 1)
    with open(os.path.join(pool, "weir.toml"), "w") as settings:
        settings.write(text)
    for name, compacted in ("as it was written", False), ("after weir compact", True):
        if compacted:
            weir(pool, "compact")
        server = Server(pool)
        spent = {}
        for state in "grown", "grown@1":
            url = f"http://127.0.0.1:{server.port}/{state}"
            before = cpu_seconds(server.process.pid)
            clone(url, work)
            spent[state] = cpu_seconds(server.process.pid) - before
        server.end()
        newest, oldest = spent["grown"], spent["grown@1"]
        ratio = oldest / newest if newest else float("nan")
        print(f"| clone of the state of {STATES} updates ago, {name}: CPU of the server | "
              f"{oldest * 1000:.0f} ms | {newest * 1000:.0f} ms, of the newest | {ratio:.1f} |")


def main():
    with tempfile.TemporaryDirectory() as work:
        os.mkdir(os.path.join(work, "up"))
        up = repository(os.path.join(work, "up"))
        print("| what | weir | beside | ratio |\n|---|---|---|---|")
        for name, measure in ("on-demand", on_demand), ("states", older_states):
            if name in (sys.argv[1:] or [name]):
                measure(work, up)


if __name__ == "__main__":
    main()
