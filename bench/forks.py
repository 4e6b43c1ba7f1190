#!/usr/bin/env python3
"""Measures a network of forks: archives that share, archives that do not, and git's repositories.

git clones the same network with and without --reference.

WEIR_BENCH_FORKS="BASE FORK ..."   bare repositories, first the one that the others were forked from;
                                   without it, the script generates a network
WEIR_BENCH_SMOKE=1                 that it runs, not how much it saves
"""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time

from programs import HERE, SMOKE, WEIR

COMMITS, FORKS = (50, 3) if SMOKE else (4000, 20)


def git(*args, **more):
    return subprocess.run(
        ["git", *args], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, **more
    ).stdout.strip()


def generated(work):
    """A repository, and forks that each have some commits of their own."""
    base = os.path.join(work, "base.git")
    git("init", "-q", "--bare", "-b", "main", base)
    stream = subprocess.Popen(
        [sys.executable, os.path.join(HERE, "bench/generate-repository.py"), str(COMMITS)],
        stdout=subprocess.PIPE,
    )
    git("fast-import", "--quiet", cwd=base, stdin=stream.stdout)
    git("gc", "-q", cwd=base)
    paths = [base]
    for n in range(FORKS):
        path = os.path.join(work, f"fork{n}.git")
        git("clone", "-q", "--mirror", "--no-hardlinks", base, path)
        who = {
            **os.environ,
            **{
                f"GIT_{w}_{k}": v
                for w in ("AUTHOR", "COMMITTER")
                for k, v in (("NAME", "a"), ("EMAIL", "a@x"))
            },
        }
        tip = git("rev-parse", "HEAD", cwd=path)
        for m in range(n + 1):
            tip = git("commit-tree", "-p", tip, "-m", f"{n} {m}", f"{tip}^{{tree}}", cwd=path, env=who)
        git("update-ref", "refs/heads/own", tip, cwd=path)
        paths.append(path)
    return paths


def size(path):
    return sum(os.path.getsize(os.path.join(folder, f)) for folder, _, files in os.walk(path) for f in files)


def timed(run):
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    run()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.monotonic() - started, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def weir(pool, paths, share):
    def call(*args):
        subprocess.run([WEIR, "--pool", pool, "--quiet", *args], check=True)

    subprocess.run([WEIR, "--quiet", "init", pool], check=True)
    call("add", "--name", "n0", paths[0])
    for n, path in enumerate(paths[1:], 1):
        call("add", "--name", f"n{n}", *(["--reference", "n0"] if share else []), path)
    figures = timed(lambda: call("mirror"))
    call("fsck")
    store = os.path.join(pool, "store")
    return sum(
        os.path.getsize(os.path.join(store, f)) for f in os.listdir(store) if f.endswith(".tar")
    ), *figures


def with_git(folder, paths, share):
    os.makedirs(folder)

    def run():
        for n, path in enumerate(paths):
            more = ["--reference", os.path.join(folder, "n0.git")] if share and n > 0 else []
            # By its protocol: what is cloned by path is linked.
            git("clone", "-q", "--mirror", *more, "file://" + path, f"n{n}.git", cwd=folder)

    figures = timed(run)
    return size(folder), *figures


def main():
    work = tempfile.mkdtemp(prefix="weir-forks-", dir=os.environ.get("WEIR_BENCH_DIR"))
    try:
        named = os.environ.get("WEIR_BENCH_FORKS")
        paths = [os.path.abspath(p) for p in named.split()] if named and not SMOKE else generated(work)
        print(f"\n### A network of {len(paths) - 1} forks\n")
        print("| | bytes, MiB | wall s | CPU s |\n|---|---|---|---|")
        rows = {}
        for name, make, share in [
            ("git clone --mirror", with_git, False),
            ("git clone --mirror --reference", with_git, True),
            ("weir, apart", weir, False),
            ("weir, shared", weir, True),
        ]:
            rows[name] = make(os.path.join(work, name.replace(" ", "-")), paths, share)
            bytes_, wall, cpu = rows[name]
            print(f"| {name} | {bytes_ / 2**20:.1f} | {wall:.2f} | {cpu:.2f} |", flush=True)
            shutil.rmtree(os.path.join(work, name.replace(" ", "-")))
        print(f"\nShared takes 1/{rows['weir, apart'][0] / rows['weir, shared'][0]:.1f} of apart.")
    finally:
        shutil.rmtree(work)


main()
