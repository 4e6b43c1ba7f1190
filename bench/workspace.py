#!/usr/bin/env python3
"""Makes workspaces beside git's own working trees, and asks git for their status. Prints tables in Markdown.

For each number of files: the time to make a working tree, the first `git status` in it, later ones with no,
ten and a thousand changed files, the calls that git makes (strace), and the disk that it takes. "Cold" is
with the kernel's caches dropped. Needs root, FUSE and overlayfs.

  WEIR=PROGRAM            the weir to ask (target/release/weir)
  WEIR_BENCH_FILES="N .." numbers of files (19384 200000; 2000 in a smoke run)
  WEIR_BENCH_OTHER=PROGRAM  another weir, as of before a change: both switch and attach in turns, and git
                          switches after each
  WEIR_BENCH_AWAY=MS      how far away the server is from which workspaces are attached, in milliseconds (1)
  WEIR_BENCH_SMOKE=1      few files: that everything runs, not how fast

Exits with 1 if git's answers differ between the two.
"""

import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from delayed import Delayed
from many_files import repository
from programs import WEIR

OTHER = os.environ.get("WEIR_BENCH_OTHER")
AWAY = float(os.environ.get("WEIR_BENCH_AWAY", "1"))
SMOKE = bool(os.environ.get("WEIR_BENCH_SMOKE"))
COUNTS = [int(n) for n in os.environ.get("WEIR_BENCH_FILES", "2000" if SMOKE else "19384 200000").split()]
RUNS = 1 if SMOKE else 5

work = tempfile.mkdtemp(prefix="weir-bench-workspace-", dir=os.environ.get("WEIR_BENCH_DIR"))
os.environ.update(HOME=work, XDG_STATE_HOME=work + "/state", GIT_CONFIG_NOSYSTEM="1")
for name in ("author", "committer"):
    os.environ.update({f"GIT_{name}_NAME": "B", f"GIT_{name}_EMAIL": "b@example.org"})


def run(*args, **more):
    return subprocess.run(args, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more).stdout


def seconds(*args, **more):
    start = time.monotonic()
    run(*args, **more)
    return time.monotonic() - start


def status(folder, cold=False):
    """The time of `git status` in milliseconds: the least of some runs."""
    times = []
    for _ in range(1 if cold else RUNS):
        if cold and not SMOKE:
            run("sync")
            with open("/proc/sys/vm/drop_caches", "w") as f:
                f.write("3")
        times.append(seconds("git", "-C", folder, "status", "--porcelain"))
    return f"{min(times) * 1000:.0f} ms"


def own_status(folder):
    """The time of `weir workspace status` in milliseconds: the least of some runs."""
    times = [seconds(WEIR, "workspace", "status", folder) for _ in range(RUNS)]
    return f"{min(times) * 1000:.1f} ms"


def switched(both, runs):
    """The times to show another commit, and to come back: the medians of some runs."""
    times = ([], [])
    for _ in range(runs):
        for branch in ("next", "main"):
            times[0].append(seconds(WEIR, "-q", "workspace", "switch", both[0], branch))
            times[1].append(seconds("git", "-C", both[1], "checkout", "-q", "--detach", branch))
    return [f"{statistics.median(of) * 1000:.0f} ms" for of in times]


def in_turns(both, runs):
    """The times of the switches of two programs, and of git: the medians of some runs."""
    programs = WEIR, OTHER
    times = {program: [] for program in (*programs, "git")}
    for _ in range(runs):
        for program in programs:
            for branch in ("next", "main"):
                times[program].append(seconds(program, "-q", "workspace", "switch", both[0], branch))
                times["git"].append(seconds("git", "-C", both[1], "checkout", "-q", "--detach", branch))
    ours, other, git = (f"{statistics.median(of) * 1000:.1f} ms" for of in times.values())
    return f"{ours}; {other}", git


def read_all(folder):
    """The time to read all files of a working tree."""
    return seconds("tar", "--exclude=.git", "-cf-", "-C", folder, ".")


def calls(folder):
    """What git asks of the kernel in one status: calls of the stat and of the open families."""
    if not shutil.which("strace"):
        return ("strace is not installed",)
    trace = os.path.join(work, "trace")
    run(
        "strace",
        "-f",
        "-o",
        trace,
        "-e",
        "trace=newfstatat,statx,openat",
        "git",
        "-C",
        folder,
        "status",
        "-s",
    )
    with open(trace) as f:
        text = f.read()
    return len(re.findall(r"stat\w*\(", text)), len(re.findall(r"openat\(", text))


def disk(*folders):
    total = sum(int(run("du", "-s", "-B1", "-x", folder).split()[0]) for folder in folders)
    return f"{total / 1e6:.1f} MB"


def change(folders, count):
    for folder in folders:
        paths = run("git", "-C", folder, "ls-files").decode().splitlines()
        for path in random.Random(count).sample(paths, count):
            with open(os.path.join(folder, path), "a") as f:
                f.write("changed\n")


def measured(count):
    at = os.path.join(work, str(count))
    os.mkdir(at)
    up, ours, theirs = (os.path.join(at, name) for name in ("up.git", "workspace", "worktree"))
    repository(up, count)
    # Neither waits for the disk to write the files that were made before.
    os.sync()
    made = [seconds(WEIR, "-q", "workspace", "add", up, ours)]
    made.append(seconds("git", "-C", up, "worktree", "add", "-q", "--detach", theirs))
    both = (ours, theirs)
    state = os.path.join(work, "state/weir/workspaces")
    rows = [("make it", *(f"{s * 1000:.0f} ms" for s in made))]
    sizes = disk(state), disk(theirs, os.path.join(up, "worktrees"))
    rows.append(("first status", *(f"{seconds('git', '-C', f, 'status') * 1000:.0f} ms" for f in both)))
    rows.append(("weir workspace status; git status, nothing touched", own_status(ours), status(theirs)))
    rows.append(("status", *(status(f) for f in both)))
    rows.append(("status, cold", *(status(f, cold=True) for f in both)))
    rows.append(("calls of stat, open", *(", ".join(map(str, calls(f))) for f in both)))
    rows.append(("read all files", *(f"{read_all(f) * 1000:.0f} ms" for f in both)))
    rows.append(("switch, 1 % differs; git checkout", *switched(both, RUNS)))
    if OTHER:
        rows.append(("switch, in turns: this weir; the other", *in_turns(both, 15)))
    # Within the second of a switch git reads the files again that it brought.
    time.sleep(1.1)
    rows.append(("status after that", *(status(f) for f in both)))
    rows.append(("weir workspace status; git status", own_status(ours), status(theirs)))
    forks = [f"{f}-fork" for f in both]
    took = [seconds(WEIR, "-q", "workspace", "fork", ours, forks[0]), seconds("cp", "-a", theirs, forks[1])]
    rows.append(("fork; cp -a", *(f"{s * 1000:.0f} ms" for s in took)))
    run(WEIR, "-q", "workspace", "rm", "--force", forks[0])
    shutil.rmtree(forks[1])
    for changed in (10, 1000):
        change(both, changed)
        rows.append((f"status, {changed} changed", *(status(f) for f in both)))
        what = f"weir workspace status; git status, {changed} changed"
        rows.append((what, own_status(ours), status(theirs)))
    answers = [run("git", "-C", f, "status", "--porcelain") for f in both]
    for f in both:
        run("git", "-C", f, "checkout", "-q", ".")
    with subprocess.Popen(["sleep", "infinity"], cwd=ours) as user:
        try:
            rows.append(("switch, with a program in it, the first time", *switched(both, 1)))
            rows.append(("switch, with a program in it", *switched(both, RUNS)))
        finally:
            user.kill()
    rows.append(("disk, nothing changed", *sizes))
    again = [f"{f}-again" for f in both]
    os.sync()
    took = [seconds(WEIR, "-q", "workspace", "add", up, again[0])]
    took.append(seconds("git", "-C", up, "worktree", "add", "-q", "--detach", again[1]))
    rows.insert(1, ("another of the same commit", *(f"{s * 1000:.0f} ms" for s in took)))
    run(WEIR, "-q", "workspace", "rm", "--force", ours, again[0])
    print(f"\n| {count:,} files | workspace | git worktree |\n|---|---|---|")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    return answers[0] == answers[1]


def attached(count):
    """Makes workspaces of a repository that is served elsewhere, and clones of it."""
    at = os.path.join(work, str(count), "away")
    os.mkdir(at)
    far, near, partial, shallow = (os.path.join(at, name) for name in ("far", "again", "partial", "shallow"))
    with Delayed(at, os.path.join(work, str(count), "up.git"), AWAY) as server:
        attach = [WEIR, "-q", "workspace", "attach", server.url]
        clone = ["git", "clone", "-q", server.url]
        # The server reads the trees once.
        run(*attach, near)
        run(WEIR, "-q", "workspace", "rm", "--force", near)
        places = far, partial, shallow
        programs = [OTHER, WEIR] if OTHER else [WEIR]
        took = {program: [] for program in programs}
        for n in range(2 if SMOKE else 7):
            for program in programs:
                if n or program != programs[0]:
                    run(WEIR, "-q", "workspace", "rm", "--force", far)
                took[program].append(seconds(program, *attach[1:], far))
        made = [
            statistics.median(took[WEIR]),
            seconds(*clone, "--filter=blob:none", partial),
            seconds(*clone, "--depth=1", shallow),
        ]
        rows = [("make it", made)]
        if OTHER:
            rows.append(("by the other weir, in turns", [statistics.median(took[OTHER])]))
        rows.append(("first status", [seconds("git", "-C", place, "status") for place in places]))
        rows.append(("another of the same commit", [seconds(*attach, near)]))
        rows.append(("read all files", [read_all(place) for place in places]))
        run("git", "-C", far, "fsck", "--connectivity-only")
        run(WEIR, "-q", "workspace", "rm", "--force", far, near)
    peers = "git clone --filter=blob:none | git clone --depth=1"
    head = "| {:,} files, {:g} ms away | weir ws attach | " + peers + " |"
    print("\n" + head.format(count, AWAY) + "\n|---|---|---|---|")
    for what, times in rows:
        print(f"| {what} | " + " | ".join(f"{s * 1000:.0f} ms" for s in times) + " |" * (4 - len(times)))


def many(count=100):
    """The time and the disk of many workspaces of one commit."""
    up = os.path.join(work, str(COUNTS[0]), "up.git")
    folders = [os.path.join(work, f"many{n}") for n in range(count)]
    start = time.monotonic()
    for folder in folders:
        run(WEIR, "-q", "workspace", "add", up, folder)
    took = time.monotonic() - start
    size = disk(os.path.join(work, "state/weir/workspaces"))
    for folder in folders:
        run(WEIR, "-q", "workspace", "rm", "--force", folder)
    print(f"\n{count} workspaces of {COUNTS[0]:,} files, one after the other: {took:.1f} s, {size} of disk.")


# Makes $3 workspaces of $2 below $4 with the program $1, and prints the nanoseconds that takes.
MANY = """start=$(date +%s%N)
for n in $(seq "$3"); do "$1" -q workspace add "$2" "$4/$n" || exit; done
echo $(($(date +%s%N) - start))"""
# Runs "$@" as a plain user, who may open the device $0 as /dev/fuse.
AS_USER = """mount --bind "$0" /dev/fuse || exit
exec setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@\""""


def many_of_a_plain_user(count=100):
    """The time and the disk of many workspaces of one commit, in the namespace of a user who is not root."""
    if os.getuid() != 0:
        return
    at = os.path.join(work, "plain")
    device, up, program = (os.path.join(at, name) for name in ("fuse", "up.git", "weir"))
    os.mkdir(at)
    shutil.copytree(os.path.join(work, str(COUNTS[0]), "up.git"), up)
    shutil.copy(WEIR, program)
    subprocess.run(["mknod", "-m", "666", device, "c", "10", "229"])
    run("chown", "-R", "65534:65534", at)
    os.chmod(work, 0o755)
    env = dict(os.environ, HOME=at, XDG_STATE_HOME=at + "/state")
    user = ["unshare", "--mount", "sh", "-c", AS_USER, device]
    if subprocess.run([*user, program, "workspace", "doctor"], env=env, stdout=subprocess.DEVNULL).returncode:
        print("\nA plain user gets no workspaces on this machine.")
        return
    took = int(run(*user, "sh", "-c", MANY, "sh", program, up, str(count), at, env=env)) / 1e9
    size = disk(os.path.join(at, "state/weir/workspaces"))
    folders = [os.path.join(at, str(n + 1)) for n in range(count)]
    run(*user, program, "-q", "workspace", "rm", "--force", *folders, env=env)
    print(f"\nThe same of a plain user: {took:.1f} s, {size} of disk.")


def watched(count, looked=20):
    """The processor time of one process that looks at many workspaces once a second."""
    up = os.path.join(work, "small.git")
    repository(up, 30)
    folders = [os.path.join(work, f"watched{n}") for n in range(count)]
    for folder in folders:
        run(WEIR, "-q", "workspace", "add", up, folder)
    command = [WEIR, "workspace", "status", "--all", "--watch", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        for _ in range(count):
            process.stdout.readline()
        before = ticks(process.pid)
        time.sleep(looked)
        share = (ticks(process.pid) - before) / os.sysconf("SC_CLK_TCK") / looked
        process.terminate()
    run(WEIR, "-q", "workspace", "rm", "--force", *folders)
    print(f"\n{count} workspaces of 30 files, looked at once a second: {share:.1%} of a core (bar: 2 %).")


def ticks(process):
    with open(f"/proc/{process}/stat") as f:
        return sum(int(field) for field in f.read().rsplit(") ", 1)[1].split()[11:13])


if subprocess.run([WEIR, "workspace", "doctor"], stdout=subprocess.DEVNULL).returncode:
    print("\nThis machine mounts no workspaces: 'weir workspace doctor' says why.")
    sys.exit(0)
try:
    results = [measured(count) for count in COUNTS]
    for count in COUNTS:
        attached(count)
    many(5 if SMOKE else 100)
    many_of_a_plain_user(5 if SMOKE else 100)
    watched(5 if SMOKE else 500, 2 if SMOKE else 20)
    sys.exit(0 if all(results) else "git's answers differ")
finally:
    for mount in sorted(re.findall(rf" ({re.escape(work)}\S*)", open("/proc/mounts").read()), reverse=True):
        subprocess.run(["umount", "-l", mount], check=False)
    shutil.rmtree(work, ignore_errors=True)
