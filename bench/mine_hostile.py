#!/usr/bin/env python3
"""Mines a hundred good repositories with ten hostile ones among them, into every output, and without them.

Prints a table in Markdown. Each hostile repository is what a review ended or blocked a whole batch with.

  WEIR=PROGRAM          the weir to ask (target/release/weir)
  WEIR_BENCH_SMOKE=1    ten good repositories: that everything runs, not how fast

Exits with 1 if a bar is missed. The bars: every good repository has the rows that it has without the hostile
ones; each hostile one is mined, or named with a reason; 1 GiB of memory; twice the time of the good alone.
"""

import hashlib
import os
import re
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
import zlib

from postgres import Postgres
from programs import HERE, SMOKE, WEIR

GOOD_COUNT = 10 if SMOKE else 100
GOOD_COMMITS = 40 if SMOKE else 2500
MEMORY_MAX = 1 << 30
SLOWER_MAX = 2
KINDS = {"commit": 1, "tree": 2, "blob": 3}

work = tempfile.mkdtemp(prefix="weir-bench-hostile-", dir=os.environ.get("WEIR_BENCH_DIR"))
os.chmod(work, 0o755)  # PostgreSQL runs as another user
os.environ.update(HOME=work, GIT_CONFIG_NOSYSTEM="1", GIT_NO_LAZY_FETCH="1")


def git(*args, **more):
    return subprocess.run(["git", *args], check=True, stdout=subprocess.PIPE, **more).stdout


class Pack:
    """The objects of a repository that git would not write."""

    def __init__(self):
        self.entries, self.seen = [], set()

    def add(self, kind, data):
        """Returns the id of the object."""
        name = hashlib.sha1(b"%s %d\0" % (kind.encode(), len(data)) + data).digest()
        if name not in self.seen:
            self.seen.add(name)
            size = len(data)
            head, size = KINDS[kind] << 4 | size & 15, size >> 4
            header = b""
            while size:
                header += bytes([head | 128])
                head, size = size & 127, size >> 7
            self.entries.append(header + bytes([head]) + zlib.compress(data, 1))
        return name

    def tree(self, *entries):
        return self.add("tree", b"".join(b"%s %s\0%s" % entry for entry in entries))

    def commit(self, tree, *parents, author=b"A <a@example.org>", message=b"m\n"):
        lines = [b"tree " + tree.hex().encode()] + [b"parent " + p.hex().encode() for p in parents]
        lines += [b"author " + author + b" 1700000000 +0000", b"committer C <c@example.org> 1700000000 +0000"]
        return self.add("commit", b"\n".join(lines) + b"\n\n" + message)

    def repository(self, path, tip):
        git("init", "-q", "--bare", "-b", "main", path)
        data = b"PACK" + struct.pack(">II", 2, len(self.entries)) + b"".join(self.entries)
        git("-C", path, "index-pack", "--stdin", input=data + hashlib.sha1(data).digest())
        with open(os.path.join(path, "refs/heads/main"), "w") as f:
            f.write(tip.hex() + "\n")


def hostile(folder):
    """Makes the hostile repositories; returns their paths."""
    paths = []

    def made(name, pack, tip):
        paths.append(os.path.join(folder, name + ".git"))
        pack.repository(paths[-1], tip)

    pack = Pack()
    blob = pack.add("blob", b"x\n")
    noise = hashlib.shake_256(b"noise").hexdigest(4000).encode()
    made("long-path", pack, pack.commit(pack.tree((b"100644", noise, blob))))

    pack = Pack()
    tree = pack.tree((b"100644", b"f", pack.add("blob", b"x\n")))
    made("long-author", pack, pack.commit(tree, author=noise * 1000 + b" <a@example.org>"))

    # Ten trees of ten entries each, in each other: as a tree of 10^10 files.
    pack = Pack()
    commits = []
    for content in (b"x\n", b"y\n"):
        tree = pack.add("blob", content)
        for depth in range(10):
            mode = b"40000" if depth else b"100644"
            tree = pack.tree(*((mode, b"%d" % n, tree) for n in range(10)))
        commits.append(pack.commit(tree, *commits[-1:]))
    made("tree-bomb", pack, commits[-1])

    # A tree in a tree, 20,000 times.
    pack = Pack()
    tree = pack.tree((b"100644", b"f", pack.add("blob", b"x\n")))
    for _ in range(2_000 if SMOKE else 20_000):
        tree = pack.tree((b"40000", b"d", tree))
    made("deep-tree", pack, pack.commit(tree))

    # A blob of zeros that a few kilobytes hold.
    pack = Pack()
    commits = []
    for end in (b"a", b"b"):
        blob = pack.add("blob", bytes(400 << 20 if not SMOKE else 4 << 20) + end)
        commits.append(pack.commit(pack.tree((b"100644", b"zeros", blob)), *commits[-1:]))
    made("zeros", pack, commits[-1])

    # Files that are all alike and all renamed.
    pack = Pack()
    commits = []
    for side in (b"a", b"b"):
        lines = b"".join(b"line %d\n" % n for n in range(200))
        blobs = [pack.add("blob", lines + b"%s %d\n" % (side, n)) for n in range(300 if SMOKE else 3000)]
        tree = pack.tree(*((b"100644", b"%s%05d" % (side, n), blob) for n, blob in enumerate(blobs)))
        commits.append(pack.commit(tree, *commits[-1:]))
    made("renames", pack, commits[-1])

    pack = Pack()
    tree = pack.tree((b"100644", b"f", pack.add("blob", b"x\n")))
    made("message", pack, pack.commit(tree, message=b"\xff\0\r\n" * ((1 << 12) if SMOKE else (16 << 20))))

    # A history whose objects are away, and one whose pack was cut.
    pack = Pack()
    tree = pack.tree((b"100644", b"f", pack.add("blob", b"x\n")))
    made("objects-away", pack, pack.commit(tree, hashlib.sha1(b"away").digest()))
    pack = Pack()
    tree = pack.tree((b"100644", b"f", pack.add("blob", noise * 100)))
    made("cut", pack, pack.commit(tree))
    packs = os.path.join(paths[-1], "objects/pack")
    for name in os.listdir(packs):
        if name.endswith(".pack"):
            os.chmod(os.path.join(packs, name), 0o644)
            os.truncate(os.path.join(packs, name), 50)

    # The name of another repository.
    paths.append(os.path.join(folder, "again.git"))
    os.symlink(paths[0], paths[-1])
    return paths


def mine(to, output, repositories):
    """Returns the time in seconds, the memory in bytes, the status, and what was said."""
    command = [WEIR, "mine", "--to", to, "--output", output, *repositories]
    with tempfile.TemporaryFile() as said:
        start = time.monotonic()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - start
        said.seek(0)
        text = said.read().decode(errors="replace")
    return seconds, usage.ru_maxrss << 10, os.waitstatus_to_exitcode(status), text


def counts(path, said):
    """Returns what was said of the rows of a repository that was mined."""
    found = re.search(rf"^mined {re.escape(path)}: (.*) in [0-9.]+ s$", said, re.MULTILINE)
    return found and found[1]


def of_good(database, good):
    """Returns how many rows each of the good repositories has in each table."""
    connection = sqlite3.connect(database)
    tables = ("revision", "file_change", "ref_change", "default_branch")
    found = [connection.execute(f"SELECT origin, count(*) FROM {table} GROUP BY origin") for table in tables]
    return [sorted(row for row in rows if row[0] in good) for rows in found]


def main():
    good = []
    for n in range(GOOD_COUNT):
        path = os.path.join(work, f"good-{n:03}.git")
        git("init", "-q", "--bare", "-b", "main", path)
        generate = [
            sys.executable,
            os.path.join(HERE, "bench/generate-repository.py"),
            str(GOOD_COMMITS),
            str(n + 1),
        ]
        with subprocess.Popen(generate, stdout=subprocess.PIPE) as made:
            git("-C", path, "fast-import", "--quiet", stdin=made.stdout)
        good.append(path)
    bad = hostile(work)
    mixed = sorted(good + bad, key=lambda path: hashlib.sha1(os.path.basename(path).encode()).digest())
    print("| output | good alone | with the hostile | memory | good mined | hostile named |")
    print("|---|---|---|---|---|---|")
    is_missed = False
    server = Postgres(os.path.join(work, "pg"))
    try:
        for to in ("parquet", "jsonl", "sqlite", "postgres"):
            runs = []
            for name, repositories in (("alone", good), ("mixed", mixed)):
                place = os.path.join(work, f"{to}-{name}")
                output = server.schema(f"{to}_{name}") if to == "postgres" else place
                runs.append(mine(to, output, repositories))
            (alone_s, _, status, alone), (mixed_s, memory, _, said) = runs
            same = sum(
                counts(path, alone) is not None and counts(path, alone) == counts(path, said) for path in good
            )
            named = sum(os.path.realpath(path) in said for path in bad)
            print(f"| {to} | {alone_s:.1f} s | {mixed_s:.1f} s | {memory >> 20} MiB | {same} | {named} |")
            is_right = status == 0 and same == len(good) and named == len(bad)
            if to == "sqlite":
                rows = [of_good(os.path.join(work, f"sqlite-{name}"), good) for name in ("alone", "mixed")]
                is_right &= rows[0] == rows[1]
            # A smoke run has too little to do for its time to mean anything.
            is_slow = not SMOKE and mixed_s > SLOWER_MAX * alone_s
            if not is_right or memory > MEMORY_MAX or is_slow:
                is_missed = True
                print(said, file=sys.stderr)
    finally:
        server.end()
    return is_missed


try:
    sys.exit(main())
finally:
    shutil.rmtree(work, ignore_errors=True)
