"""From a line at a door, or the start of `weir hint`, to the updated archive. Beside it, grok-pull of
grokmirror. Both have an upstream on this machine. Prints a table of docs/benchmarks.md.

WEIR_BENCH_DIR: where to work; WEIR_BENCH_SMOKE=1: few rounds, and grok-pull only if it is here."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

from events import wait_for
from programs import SMOKE, WEIR

ROUNDS = 3 if SMOKE else 40
GROK_CONFIG = """
[core]
toplevel = {at}/mirror
manifest = {at}/mirror/manifest.js.gz
log = {at}/grok.log
[remote]
site = file://{at}/upstream
manifest = file://{at}/upstream/manifest.js.gz
[pull]
refresh = 3600
pull_threads = 2
socket = {at}/grok.sock
"""


def git(at, *args):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    command = ["git", "-C", at, *identity, *args]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


class Upstream:
    """A repository that gets one commit after the other."""

    def __init__(self, path):
        self.path = path
        subprocess.run(["git", "init", "-q", "--bare", "-b", "main", path], check=True)
        self.tree = git(path, "hash-object", "-t", "tree", "-w", "/dev/null")
        self.tip = git(path, "commit-tree", "-m", "0", self.tree)
        git(path, "update-ref", "refs/heads/main", self.tip)

    def commit(self):
        self.tip = git(self.path, "commit-tree", "-m", "next", "-p", self.tip, self.tree)
        git(self.path, "update-ref", "refs/heads/main", self.tip)


def waits(upstream, changed, tell, rounds=ROUNDS):
    """Commits again and again, and calls one of `tell` each time. Returns, for each of them, the milliseconds
    until `changed` returned another value, in order of size."""
    found = [[] for _ in tell]
    for n in range(len(tell) * rounds):
        upstream.commit()
        before, began = changed(), time.time()
        tell[n % len(tell)]()
        while changed() == before:
            if time.time() - began > 60:
                raise SystemExit("the archive is not updated")
            time.sleep(0.0005)
        found[n % len(tell)].append((time.time() - began) * 1000)
        # Compactions and the next visits are over, and so is events.debounce.
        time.sleep(2)
    return [sorted(one) for one in found]


def of_weir(at):
    """Returns the waits of a line at a door, and of `weir hint`."""
    pool, path = os.path.join(at, "pool"), os.path.join(at, "watch.sock")
    upstream = Upstream(os.path.join(at, "up.git"))
    weir = [WEIR, "-q", "--pool", pool]
    subprocess.run([WEIR, "-q", "init", pool], check=True)
    subprocess.run([*weir, "add", "--name", "it", upstream.path], check=True)
    subprocess.run([*weir, "mirror"], check=True)
    with open(os.path.join(pool, "weir.toml")) as settings:
        text = settings.read().replace("#listen = []", f'listen = ["unix:{path}"]', 1)
    with open(os.path.join(pool, "weir.toml"), "w") as settings:
        settings.write(text)
    server = subprocess.Popen([*weir, "mirror", "--watch"], stdout=subprocess.DEVNULL)
    archive = os.path.join(pool, "store/it.tar")
    try:
        wait_for(path)
        door = socket.socket(socket.AF_UNIX)
        door.connect(path)
        time.sleep(1)
        hint = lambda: subprocess.run([*weir, "hint", "it"], check=True)
        return waits(upstream, lambda: os.stat(archive).st_size, [lambda: door.sendall(b"it\n"), hint])
    finally:
        server.terminate()
        server.wait()


def grokmirror(at):
    """Returns the folder of grokmirror's programs, which it installs from PyPI if they are not here; None if
    that fails."""
    found = shutil.which("grok-pull")
    if found or SMOKE:
        return found and os.path.dirname(found)
    subprocess.run([sys.executable, "-m", "venv", os.path.join(at, "venv")], check=True)
    programs = os.path.join(at, "venv/bin")
    installed = subprocess.run([os.path.join(programs, "pip"), "install", "-q", "grokmirror"])
    return programs if installed.returncode == 0 else None


def of_grokmirror(at, programs):
    """Returns the waits of a line at the socket of grok-pull, until the ref in its mirror has moved."""
    upstream = Upstream(os.path.join(at, "upstream/it.git"))
    manifest = [os.path.join(programs, "grok-manifest"), "-m", os.path.join(at, "upstream/manifest.js.gz")]
    subprocess.run([*manifest, "-t", os.path.join(at, "upstream")], check=True, capture_output=True)
    os.mkdir(os.path.join(at, "mirror"))
    config = os.path.join(at, "grok.conf")
    with open(config, "w") as file:
        file.write(GROK_CONFIG.format(at=at))
    ref = os.path.join(at, "mirror/it.git/refs/heads/main")
    packed = os.path.join(at, "mirror/it.git/packed-refs")
    server = subprocess.Popen([os.path.join(programs, "grok-pull"), "-o", "-c", config])

    def tip():
        for path in (ref, packed):
            try:
                with open(path) as file:
                    return file.read()
            except OSError:
                pass
        return None

    def tell():
        # One line a connection, as its hooks send it.
        with socket.socket(socket.AF_UNIX) as door:
            door.connect(os.path.join(at, "grok.sock"))
            door.sendall(b"/it.git\n")

    try:
        wait_for(os.path.join(at, "mirror/it.git"))
        time.sleep(10)
        # A round takes seconds.
        return waits(upstream, tip, [tell], rounds=min(ROUNDS, 10))
    finally:
        server.terminate()
        server.wait()


def main():
    with tempfile.TemporaryDirectory(dir=os.environ.get("WEIR_BENCH_DIR")) as at:
        columns = dict(zip(("a line at a door", "`weir hint`"), of_weir(at)))
        programs = grokmirror(at)
        if programs:
            columns["grok-pull"], = of_grokmirror(at, programs)
    print("| until the archive is updated | " + " | ".join(columns) + " |")
    print("|---" * (len(columns) + 1) + "|")
    for name, share in (("median", 0.5), ("99 %", 0.99)):
        cells = [f"{one[int(share * (len(one) - 1))]:.0f} ms" for one in columns.values()]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
