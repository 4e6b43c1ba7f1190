#!/usr/bin/env python3
"""Makes working trees of a repository that is some milliseconds away, with weir and with its peers.

Prints a table in Markdown: the time until the tree is there, of the first status and of a later one, and of
reading a thousand files. The server is weir. Needs root and FUSE.

  ARTIFACT_FS=PROGRAM     ArtifactFS (go install github.com/cloudflare/artifact-fs/cmd/artifact-fs)
  SANDFS=PROGRAM          sandfs (cargo install sandfs-cli); its status is `sandfs changes`
  WEIR_BENCH_FILES=N      files of the repository (19384)
  WEIR_BENCH_AWAY=MS      how far away the server is, in milliseconds (1)
  WEIR_BENCH_DIR=DIR      where to work (the system's folder of temporary files)
"""

import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

from delayed import Delayed
from many_files import repository
from programs import WEIR

COUNT = int(os.environ.get("WEIR_BENCH_FILES", "19384"))
AWAY = float(os.environ.get("WEIR_BENCH_AWAY", "1"))
READ = 1000
SECONDS_MAX = 300

work = tempfile.mkdtemp(prefix="weir-bench-peers-", dir=os.environ.get("WEIR_BENCH_DIR"))
up = os.path.join(work, "up.git")
os.environ.update(HOME=work, XDG_STATE_HOME=work + "/state", ARTIFACT_FS_ROOT=work + "/artifact-fs")


def run(*args):
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(args, check=True, timeout=SECONDS_MAX, **quiet)


def timed(*args):
    """The time of a command, or what is wrong with it."""
    start = time.monotonic()
    try:
        run(*args)
    except (subprocess.SubprocessError, OSError) as e:
        return "over 300 s" if isinstance(e, subprocess.TimeoutExpired) else "fails"
    took = time.monotonic() - start
    return f"{took * 1000:.0f} ms" if took < 10 else f"{took:.0f} s"


def read_files(folder):
    """The time to read some files, spread over all folders."""
    listed = subprocess.run(["git", "-C", up, "ls-tree", "-r", "--name-only", "main"], stdout=subprocess.PIPE)
    names = random.Random(1).sample(listed.stdout.decode().splitlines(), min(READ, COUNT))
    return timed("sh", "-c", 'cd "$0" && cat "$@"', folder, *names)


def weir(url):
    folder = os.path.join(work, "weir")
    made = timed(WEIR, "workspace", "attach", "--no-background-fetch", url, folder)
    status = ["git", "-C", folder, "status", "--porcelain"]
    yield from (made, timed(*status), timed(*status), read_files(folder))
    run(WEIR, "workspace", "rm", "--force", folder)


def artifact_fs(url):
    program, folder = os.environ["ARTIFACT_FS"], os.path.join(work, "mounts")
    os.mkdir(folder)
    add = ["add-repo", "--name", "it", "--remote", url, "--mount-root", folder, "--refresh", "never"]
    tree = os.path.join(folder, "it")
    daemon = f'"$0" daemon --root {folder} &'
    made = timed("sh", "-c", f'"$0" "$@"; {daemon} until ls {tree}/.git; do sleep 0.01; done', program, *add)
    status = ["git", "-C", tree, "status", "--porcelain"]
    yield from (made, timed(*status), timed(*status), read_files(tree))
    for process in filter(str.isdigit, os.listdir("/proc")):
        with open(f"/proc/{process}/cmdline") as line:
            if line.read().startswith(f"{program}\0daemon\0"):
                os.kill(int(process), 15)


def sandfs(url):
    program, folder = os.environ["SANDFS"], os.path.join(work, "sandfs")
    os.mkdir(folder)
    made = timed(program, "mount", "--name", "it", f"git:{url}@main", folder)
    status = [program, "changes", "it"]
    yield from (made, timed(*status), timed(*status), read_files(folder))
    run(program, "unmount", "it")


peers = [weir] + [peer for peer in (artifact_fs, sandfs) if peer.__name__.upper() in os.environ]
try:
    repository(up, COUNT)
    with Delayed(work, up, AWAY) as server:
        columns = [list(peer(server.url)) for peer in peers]
    print(f"\n| {COUNT:,} files, {AWAY:g} ms away | " + " | ".join(peer.__name__ for peer in peers) + " |")
    print("|---|" + "---|" * len(peers))
    for what, *row in zip(("make it", "first status", "status", f"read {READ:,} files"), *columns):
        print(f"| {what} | " + " | ".join(row) + " |")
finally:
    for mount in sorted(re.findall(rf" ({re.escape(work)}\S*)", open("/proc/mounts").read()), reverse=True):
        subprocess.run(["umount", "-l", mount], check=False)
    shutil.rmtree(work, ignore_errors=True)
