#!/usr/bin/env python3
"""Builds and tests projects in a workspace and in a git worktree, and prints a table in Markdown.

  workspace_builds.py REPOSITORY@REVISION BUILD [TEST] [REPOSITORY@REVISION BUILD [TEST]] ...

REPOSITORY is a bare git directory; BUILD and TEST are commands of a shell, TEST may be empty. Each is run in
both places in turn, RUNS times, the build after `git clean -dffx`; the table has the least time of each. Then
the workspace is forked, and the build is run in the fork. In the last build the process that answers the
kernel is killed again and again.

  WEIR=PROGRAM          the weir to ask (target/release/weir)
  WEIR_BENCH_DIR=DIR    where to build (the system's folder of temporary files)
  WEIR_BENCH_RUNS=N     builds of each (2)
  WEIR_BENCH_KILLS=N    kills in the last build (50)
  WEIR_BENCH_AWAY=MS    attach the workspace from a server that is so far away, in milliseconds

Needs root, FUSE and overlayfs. Exits with 1 if a build or a test fails in one place and not in the other.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from delayed import Delayed
from programs import WEIR

RUNS = int(os.environ.get("WEIR_BENCH_RUNS", "2"))
KILLS = int(os.environ.get("WEIR_BENCH_KILLS", "50"))
AWAY = float(os.environ.get("WEIR_BENCH_AWAY", "0"))

work = tempfile.mkdtemp(prefix="weir-bench-builds-", dir=os.environ.get("WEIR_BENCH_DIR"))
state = os.path.join(work, "state")


def run(*args):
    environment = {**os.environ, "XDG_STATE_HOME": state}
    return subprocess.run(args, check=True, stdout=subprocess.PIPE, env=environment).stdout.decode()


def timed(command, folder):
    """The time of a shell's command in a folder, its status, and the last line that it prints."""
    start = time.monotonic()
    done = subprocess.run(command, shell=True, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    lines = done.stdout.decode(errors="replace").strip().splitlines()
    return time.monotonic() - start, done.returncode, lines[-1] if lines else ""


def servers():
    """The processes that serve views: the children of the processes that guard them."""
    ours = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline") as line, open(f"/proc/{name}/stat") as stat:
                if "\0--lower\0" in (text := line.read()) and state in text:
                    ours[int(name)] = int(stat.read().rsplit(") ", 1)[1].split()[1])
        except OSError:
            continue
    return [process for process, parent in ours.items() if parent in ours]


def kill_often(seconds, stop, killed):
    """Kills the processes that serve the view, KILLS times, spread over the seconds of a build."""
    while killed[0] < KILLS and not stop.wait(seconds / KILLS):
        for process in servers():
            os.kill(process, signal.SIGKILL)
            killed[0] += 1


def measured(name, build, test):
    source, revision = name.rsplit("@", 1)
    at = tempfile.mkdtemp(dir=work)
    ours = os.path.join(at, "workspace")
    server = Delayed(at, source, AWAY) if AWAY else contextlib.nullcontext()
    with server:
        if AWAY:
            run(WEIR, "-q", "workspace", "attach", f"{server.url}@{revision}", ours)
        else:
            run(WEIR, "-q", "workspace", "add", f"{source}@{revision}", ours)
        return compared(name, at, ours, build, test)


def compared(name, at, ours, build, test):
    source, revision = name.rsplit("@", 1)
    theirs, fork = (os.path.join(at, place) for place in ("worktree", "fork"))
    run("git", "-C", source, "worktree", "add", "-q", "--detach", theirs, revision)
    rows, same = [], True
    try:
        for what, command in (("build", build), ("its tests", test)):
            if not command:
                continue
            times, ends = {ours: [], theirs: []}, {}
            for _ in range(RUNS):
                for folder in (ours, theirs):
                    if what == "build":
                        run("git", "-C", folder, "clean", "-dffxq")
                    took, *ends[folder] = timed(command, folder)
                    times[folder].append(took)
            least = [min(times[folder]) for folder in (ours, theirs)]
            same = same and ends[ours][0] == ends[theirs][0]
            rows.append((what, f"{least[0]:.1f} s", f"{least[1]:.1f} s", f"{least[0] / least[1]:.2f}"))
            print(f"{name}: {what}: {ends[ours]}, {ends[theirs]}", file=sys.stderr)
        run(WEIR, "-q", "workspace", "fork", ours, fork)
        again = [timed(build, folder)[0] for folder in (fork, theirs)]
        rows.append(("build again, in a fork", *(f"{s:.1f} s" for s in again), ""))
        run("git", "-C", ours, "clean", "-dffxq")
        stop, killed = threading.Event(), [0]
        killer = threading.Thread(target=kill_often, args=(least_of(rows), stop, killed))
        killer.start()
        with open("/proc/sys/vm/drop_caches", "w") as f:
            f.write("3")
        took, status, last = timed(build, ours)
        stop.set()
        killer.join()
        same = same and status == 0
        plain = float(rows[0][2].split()[0])
        rows.append((f"build, {killed[0]} kills", f"{took:.1f} s", rows[0][2], f"{took / plain:.2f}"))
        print(f"{name}: with kills: {status}, {last}", file=sys.stderr)
    finally:
        for folder in filter(os.path.exists, (fork, ours)):
            run(WEIR, "-q", "workspace", "rm", "--force", folder)
        run("git", "-C", source, "worktree", "remove", "--force", theirs)
    print(f"\n| {os.path.basename(source)} {revision} | workspace | git worktree | ratio |")
    print("|---|---|---|---|")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    return same


def least_of(rows):
    return float(rows[0][1].split()[0])


def wanted(args):
    """Parts the arguments: a repository has an @, commands follow it."""
    parts = []
    for arg in args:
        if "@" in arg and os.path.isdir(arg.rsplit("@", 1)[0]):
            parts.append([arg])
        else:
            parts[-1].append(arg)
    return [(part + ["", ""])[:3] for part in parts]


try:
    results = [measured(*part) for part in wanted(sys.argv[1:])]
    if not results:
        sys.exit(__doc__)
    sys.exit(0 if all(results) else "a build or a test fails in one place only")
finally:
    shutil.rmtree(work, ignore_errors=True)
