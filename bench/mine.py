#!/usr/bin/env python3
"""Mines repositories beside git, PyDriller and libgit2, and compares every row with git's.

mine.py [REPOSITORY...] prints tables in Markdown.

A REPOSITORY is a bare repository; without any, one is generated. "In memory" drops the rows. CPU is the time
of the process, user and system. Objects that are missing are left out of git's share, which ends at them.

  WEIR=PROGRAM          the weir to ask (target/release/weir)
  WEIR_BENCH_SMOKE=1    a small repository: that everything runs, not how fast

Exits with 1 if a row differs from git's.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time

from mine_rows import OLD_SIMILARITY, changes_differ, commits_differ, git, good_commits
from postgres import Postgres
from programs import BENCH, HERE, SMOKE, WEIR

RUNS = 1 if SMOKE else 3
SMALL_COUNT = 40 if SMOKE else 2000
PEERS_COUNT = 1000

work = tempfile.mkdtemp(prefix="weir-bench-mine-", dir=os.environ.get("WEIR_BENCH_DIR"))
os.chmod(work, 0o755)  # PostgreSQL runs as another user
os.environ.update(HOME=work, GIT_CONFIG_NOSYSTEM="1", GIT_NO_LAZY_FETCH="1")
with open(os.path.join(work, ".gitconfig"), "w") as f:
    f.write("[user]\n\tname = b\n\temail = b@example.com\n[safe]\n\tdirectory = *\n")


class Measured:
    """The least CPU and wall time of some runs of a command, in seconds, and the most memory, in bytes."""

    def __init__(self, args, stdin=None, runs=RUNS, before=None):
        self.cpu = self.wall = float("inf")
        self.memory = 0
        for _ in range(runs):
            if before:
                before()
            start = time.monotonic()
            with open(stdin or os.devnull, "rb") as given:
                process = subprocess.Popen(args, stdin=given, stdout=subprocess.DEVNULL)
                _, status, usage = os.wait4(process.pid, 0)
            if status:
                raise SystemExit(f"{' '.join(args)} failed")
            self.wall = min(self.wall, time.monotonic() - start)
            self.cpu = min(self.cpu, usage.ru_utime + usage.ru_stime)
            self.memory = max(self.memory, usage.ru_maxrss << 10)


def row(what, weir, peer, bar):
    print(f"| {what} | {weir.cpu:.3g} s | {peer.cpu:.3g} s | {peer.cpu / weir.cpu:.1f} | {bar} |")


def mined(repo, *args):
    """A whole dataset, from nothing."""
    folder = os.path.join(work, "mined")
    run = [WEIR, "mine", "-q", "-o", folder, *args, repo]
    return Measured(run, before=lambda: shutil.rmtree(folder, ignore_errors=True))


def peers():
    """Installs the peers that are programs in Python. Returns the interpreter that finds them."""
    folder = os.path.join(work, "venv")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([folder + "/bin/pip", "install", "-q", "pydriller", "pygit2"], check=True)
    return folder + "/bin/python"


def beside_peers(python, repo, commits, lines):
    """Compares commits a CPU second. The peers get some of the commits, picked evenly."""
    with open(commits) as f:
        ids = f.read().split()
    count = min(len(ids), PEERS_COUNT)
    some = os.path.join(work, "some")
    with open(some, "w") as f:
        f.writelines(ids[n * len(ids) // count] + "\n" for n in range(count))
    # GitPython wants a config that says it is bare.
    clone = os.path.join(work, "peer.git")
    git(".", "clone", "-q", "--mirror", "--shared", os.path.abspath(repo), clone)
    print("\n| commits a CPU second, with changed files and lines | rate | weir's is | bar |")
    print("|---|---|---|---|")
    print(f"| weir, all {len(ids)} | {len(ids) / lines.cpu:.0f} | | |")
    for peer, bar in (("pydriller", 100), ("libgit2", 30)):
        run = [python, os.path.join(HERE, "bench/mine_peers.py"), peer, clone]
        rate = count / Measured(run, some, runs=1).cpu
        print(f"| {peer}, {count} | {rate:.0f} | {len(ids) / lines.cpu / rate:.0f} times | {bar} times |")
    shutil.rmtree(clone)


def into_databases(repo, count):
    """Loads commits, and everything, into databases; indexes and all."""
    print("\n| into databases, wall | commits | commits a second | bar | everything |\n|---|---|---|---|---|")
    server = Postgres(os.path.join(work, "pg"))
    try:
        for name, place in (
            ("postgres", server.schema),
            ("sqlite", lambda name: os.path.join(work, name)),
        ):
            walls = []
            for schema, what in (("commits", ["--what", "commits"]), ("everything", [])):
                run = [WEIR, "mine", "-q", "--to", name, "-o", place(schema), *what, repo]
                walls.append(Measured(run, runs=1).wall)
            bar = "100000" if name == "postgres" else "-"
            print(f"| {name} | {walls[0]:.2f} s | {count / walls[0]:.0f} | {bar} | {walls[1]:.1f} s |")
    finally:
        server.end()
        shutil.rmtree(server.folder)
        for name in ("commits", "everything"):
            os.remove(os.path.join(work, name))


def large(name, repo, python):
    commits = os.path.join(work, "good-commits")
    bad = good_commits(repo, commits)
    print(f"\n### Mining {name}\n\n| what, CPU | weir | git | times | bar |\n|---|---|---|---|---|")
    fields = "--format=%H%n%T%n%P%n%an%n%ae%n%ad%n%cn%n%ce%n%cd%n%B"
    log = Measured(["git", "-C", repo, "log", "--all", "-z", fields])
    in_memory = Measured([BENCH, "mine", repo, "commits", "1"])
    row("commits, all fields, in memory; peer is git log", in_memory, log, 3)
    row("the same, into Parquet", mined(repo, "--what", "commits", "-j1"), log, 2)
    diff = ["git", "-C", repo, "diff-tree", "--stdin", "-r", "--root", "-M"]
    raw = Measured([*diff, "--raw"], commits)
    changes = Measured([BENCH, "mine", repo, "changes", "1"])
    row("changed files with renames; git diff-tree --raw", changes, raw, 3)
    numstat = Measured([*diff, "--numstat"], commits, runs=1)
    lines = Measured([BENCH, "mine", repo, "numstat", "1"])
    row("numstat with renames; git diff-tree --numstat", lines, numstat, 6)
    print(f"\nOf git's share, {bad} commits are left out that name a missing object.")
    print("\n| two threads | CPU | wall | CPU a wall second |\n|---|---|---|---|")
    for what in ("commits", "changes", "numstat"):
        both = Measured([BENCH, "mine", repo, what, "2"])
        print(f"| {what} | {both.cpu:.3g} s | {both.wall:.3g} s | {both.cpu / both.wall:.2f} |")
    everything = mined(repo)
    print(f"\nEverything into Parquet: {everything.wall:.1f} s, CPU {everything.cpu:.1f} s, ", end="")
    print(f"at most {everything.memory / 2**20:.0f} MiB resident, file maps included.")
    if python:
        beside_peers(python, repo, commits, lines)
    into_databases(repo, int(git(repo, "rev-list", "--all", "--count")))
    differs = False
    compared = [("commits", commits_differ(repo)), ("changes", changes_differ(repo, commits))]
    for what, (count, others) in compared:
        print(f"\nOf {count} {what} of git's, {len(others)} differ.")
        for other in others[:5]:
            print(f"    {other}")
        differs |= bool(others)
    return differs


def small():
    print(f"\n### Mining {SMALL_COUNT} small repositories\n")
    first = os.path.join(work, "small/0.git")
    git(".", "init", "-q", "--bare", first)
    generate(first, 3)
    for n in range(1, SMALL_COUNT):
        shutil.copytree(first, os.path.join(work, f"small/{n}.git"))
    repos = [os.path.join(work, f"small/{n}.git") for n in range(SMALL_COUNT)]
    folder = os.path.join(work, "mined")
    shutil.rmtree(folder, ignore_errors=True)
    new = Measured([WEIR, "mine", "-q", "-o", folder, *repos], runs=1)
    again = Measured([WEIR, "mine", "-q", "-o", folder, *repos], runs=1)
    loop = 'for repo; do git -C "$repo" log --all --raw --numstat; done'
    peer = Measured(["sh", "-c", loop, "sh", *repos], runs=1)
    print("| what | weir | git log in a loop | bar |\n|---|---|---|---|")
    for what, measured, other, bar in (
        ("the first time, CPU a repository", new.cpu, peer.cpu, "2 ms"),
        ("the first time, wall a repository", new.wall, peer.wall, "-"),
        ("unchanged, CPU a repository", again.cpu, None, "1 ms"),
    ):
        peers = "" if other is None else f"{other / SMALL_COUNT * 1000:.2f} ms"
        print(f"| {what} | {measured / SMALL_COUNT * 1000:.2f} ms | {peers} | {bar} |")


def generate(repo, commits):
    args = [sys.executable, os.path.join(HERE, "bench/generate-repository.py"), str(commits)]
    made = subprocess.Popen(args, stdout=subprocess.PIPE)
    git(repo, "fast-import", "--quiet", stdin=made.stdout)
    if made.wait():
        raise SystemExit("generate-repository.py failed")


def main():
    repos = [(os.path.basename(os.path.dirname(os.path.abspath(r))), r) for r in sys.argv[1:]]
    if not repos:
        repo = os.path.join(work, "generated.git")
        git(".", "init", "-q", "--bare", repo)
        generate(repo, 300 if SMOKE else 20000)
        git(repo, "gc", "-q")
        repos = [("a generated repository", repo)]
    try:
        python = None if SMOKE else peers()
        differs = [large(name, repo, python) for name, repo in repos]
        small()
    finally:
        shutil.rmtree(work, ignore_errors=True)
    sys.exit(any(differs))


if __name__ == "__main__":
    main()
