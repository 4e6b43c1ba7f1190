#!/usr/bin/env python3
"""Measures the memory of a first mirror, of fsck and of compaction, and of git's equivalents.

The figures are the peaks of whole processes. The script also measures the memory of log and compaction for
archives of many refs and many states of them.

WEIR_BENCH_COMMITS=N   commits of the generated repository (600,000: three million objects)
WEIR_BENCH_SMOKE=1     that it runs, not how much it takes
"""

import os
import socket
import subprocess
import tempfile
import time

from programs import BENCH, SMOKE, WEIR

COMMITS = 2000 if SMOKE else int(os.environ.get("WEIR_BENCH_COMMITS", 600_000))
# Refs, commits of the archive, and whether those move none of them.
HISTORIES = (
    [(200, 100, True), (200, 50, False)]
    if SMOKE
    else [
        (20_000, 1000, True),
        (20_000, 10_000, True),
        (20_000, 200, False),
        (20_000, 400, False),
        (20_000, 800, False),
    ]
)


def generate(path):
    """Generates commits that change one small file each, three folders down: five objects a commit.

    Returns the number of objects."""
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", path], check=True)
    load = subprocess.Popen(
        ["git", "-C", path, "fast-import", "--quiet", "--depth=50"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    for n in range(COMMITS):
        place = n * 2654435761 % 1728
        name, data = "d%d/e%d/f%d" % (place // 144, place // 12 % 12, place % 12), "%d\n%d\n" % (n, n * 7919)
        commit = "commit refs/heads/main\ncommitter a <a@x> %d +0000\ndata 8\nc%07d\n" % (1500000000 + n, n)
        load.stdin.write((commit + "M 100644 inline %s\ndata %d\n%s\n" % (name, len(data), data)).encode())
    load.stdin.close()
    assert load.wait() == 0
    count = subprocess.run(
        ["git", "-C", path, "count-objects", "-v"], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    return sum(int(line.split()[1]) for line in count.splitlines() if line.startswith(("count:", "in-pack:")))


def run(*command):
    """Returns the seconds that the command took, and a peak of resident memory in bytes.

    The peak is that of the largest process among the command and its children."""
    started = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    assert status == 0, f"{command} failed"
    return time.monotonic() - started, usage.ru_maxrss * 1024


def serve(folder):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = [
        "--export-all",
        "--reuseaddr",
        f"--base-path={folder}",
        "--listen=127.0.0.1",
        f"--port={port}",
    ]
    # The command forks the daemon, and would leave it behind.
    daemon = os.path.join(
        subprocess.run(["git", "--exec-path"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip(),
        "git-daemon",
    )
    server = subprocess.Popen([daemon, *arguments], stderr=subprocess.DEVNULL)
    for _ in range(100):
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return server, port
        time.sleep(0.05)
    raise SystemExit("git daemon does not answer")


def row(what, objects, ours, theirs):
    per = [
        f"{seconds:.1f} s, {peak / 1e6:.0f} MB, {peak / objects:.0f} B" for seconds, peak in (ours, theirs)
    ]
    print(f"| {what} | {per[0]} | {per[1]} | {ours[1] / theirs[1]:.2f} | 1 |")


def histories(work):
    """Archives of many refs and many commits."""
    upstream = os.path.join(work, "refs.git")
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", upstream], check=True)
    tree = subprocess.run(
        ["git", "-C", upstream, "mktree"],
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    who = {
        **os.environ,
        **{f"GIT_{w}_{k}": v for w in ("AUTHOR", "COMMITTER") for k, v in (("NAME", "a"), ("EMAIL", "a@x"))},
    }
    tips = []
    for n in range(2):
        commit = ["git", "-C", upstream, "commit-tree", "-m", str(n), tree.strip()]
        tips.append(
            subprocess.run(commit, check=True, stdout=subprocess.PIPE, text=True, env=who).stdout.strip()
        )
    print("\n| refs x commits of the archive | `weir log` | `weir compact` | bar |\n|---|---|---|---|")
    for refs, count, same in HISTORIES:
        lines = "".join(f"create refs/heads/branch{n:06} {tips[n % 2]}\n" for n in range(refs))
        subprocess.run(
            ["git", "-C", upstream, "update-ref", "--stdin"],
            check=True,
            input=lines.replace("create", "update"),
            text=True,
        )
        pool = os.path.join(work, f"pool-{refs}-{count}-{same}")
        subprocess.run([WEIR, "--quiet", "init", pool], check=True)
        subprocess.run([WEIR, "--quiet", "--pool", pool, "add", "--name", "r", upstream], check=True)
        subprocess.run([WEIR, "--quiet", "--pool", pool, "mirror"], check=True)
        subprocess.run(
            [BENCH, "states", os.path.join(pool, "store/r.tar"), str(count), *(["--same"] if same else [])],
            check=True,
        )
        figures = [run(WEIR, "--pool", pool, *command) for command in (["log", "r"], ["compact"])]
        shown = " | ".join(f"{seconds:.2f} s, {peak / 1e6:.0f} MB" for seconds, peak in figures)
        moves = "none moves" if same else "one moves in each"
        print(f"| {refs:,} x {count:,}, {moves} | {shown} | 10 s, 256 MiB |", flush=True)
        subprocess.run(["rm", "-rf", pool], check=True)


def main():
    with tempfile.TemporaryDirectory() as work:
        upstream, pool, clone = (os.path.join(work, name) for name in ("up.git", "pool", "clone.git"))
        objects = generate(upstream)
        server, port = serve(work)
        try:
            url = f"git://127.0.0.1:{port}/up.git"
            subprocess.run([WEIR, "--quiet", "init", pool], check=True)
            subprocess.run([WEIR, "--quiet", "--pool", pool, "add", "--name", "up", url], check=True)
            print(
                f"\n### Memory\n\n{objects:,} objects in {COMMITS:,} commits, generated: "
                "wall time, peak, and peak an object.\n"
            )
            print("| what | weir | git | ratio of peaks | bar |\n|---|---|---|---|---|")
            mirror = run(WEIR, "--pool", pool, "mirror")
            row(
                "first mirror; `git clone --mirror`",
                objects,
                mirror,
                run("git", "clone", "-q", "--mirror", url, clone),
            )
            row(
                "`weir fsck`; `git fsck`",
                objects,
                run(WEIR, "--pool", pool, "fsck"),
                run("git", "-C", clone, "fsck", "--no-progress"),
            )
            compact = run(WEIR, "--pool", pool, "compact")
            row(
                "`weir compact`; `git repack -ad`",
                objects,
                compact,
                run("git", "-C", clone, "repack", "-adq"),
            )
        finally:
            server.terminate()
            server.wait()
        histories(work)


if __name__ == "__main__":
    main()
