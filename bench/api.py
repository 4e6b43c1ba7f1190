#!/usr/bin/env python3
"""The API: what an answer costs the server, beside git, which starts a process for the same answer; how long
lists take with a million repositories. Prints the table of docs/benchmarks.md.

WEIR_BENCH_REPO=DIR    a repository (git/git for the figures in the docs); without it a generated one
WEIR_BENCH_ROWS=N      repositories in the catalog (a million)
WEIR_BENCH_SMOKE=1     small inputs: that everything runs, not how fast"""

import hashlib
import http.client
import json
import os
import resource
import shutil
import sqlite3
import subprocess
import tempfile
import time
from urllib.parse import quote

from events import free_port, wait_for_port
from programs import HERE, SMOKE, WEIR

ROWS = 20_000 if SMOKE else int(os.environ.get("WEIR_BENCH_ROWS", "1000000"))
REQUESTS = 50 if SMOKE else 1000
PROCESSES = 10 if SMOKE else 50
LONG = 2 if SMOKE else 5


def repository(work):
    """Returns a bare repository: a copy of the given one, or a generated one."""
    target = os.path.join(work, "up.git")
    given = os.environ.get("WEIR_BENCH_REPO")
    if given and not SMOKE:
        subprocess.run(["git", "clone", "-q", "--bare", "--no-local", given, target], check=True)
        return target
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", target], check=True)
    made = subprocess.run(
        ["python3", os.path.join(HERE, "bench/generate-repository.py"), "300" if SMOKE else "6000"],
        stdout=subprocess.PIPE, check=True,
    )
    subprocess.run(["git", "-C", target, "fast-import", "--quiet"], input=made.stdout, check=True)
    return target


def spent_by(pid):
    """Returns the seconds of processor time of a process, threads that have ended among them."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Server:
    """`weir serve` of a pool, and one connection to it."""

    def __init__(self, pool, mirrors=False):
        self.port = free_port()
        git = free_port()
        self.process = subprocess.Popen(
            [WEIR, "--pool", pool, "serve", *([] if mirrors else ["--no-mirror"]), "--git",
             f"127.0.0.1:{git}", "--http", f"127.0.0.1:{self.port}"],
            stderr=subprocess.DEVNULL,
        )
        wait_for_port(self.port)
        self.connect(self.port)

    def connect(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port)

    def spent(self):
        """The seconds of processor time that the server has used."""
        return spent_by(self.process.pid)

    def get(self, path):
        body = self.ask(path).read()
        return body

    def ask(self, path):
        """Returns the answer to a request, over a new connection if the server has closed the old one."""
        for last in False, True:
            try:
                self.connection.request("GET", "/api/v1" + path)
                response = self.connection.getresponse()
                assert response.status == 200, (path, response.status, response.read())
                return response
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                self.connection.close()
                if last:
                    raise

    def measure(self, path, count):
        """Returns the server's seconds of processor time for an answer, the median and the 99th percentile of
        the milliseconds that a client waits, and the last answer. `{n}` in the path is another number for
        each request."""
        body = self.get(path.replace("{n}", "1"))
        waits, before = [], self.spent()
        for n in range(count):
            at = time.perf_counter()
            body = self.get(path.replace("{n}", str(n + 2)))
            waits.append((time.perf_counter() - at) * 1000)
        waits.sort()
        spent = (self.spent() - before) / count
        return spent, waits[len(waits) // 2], waits[len(waits) * 99 // 100], body

    def first_byte(self, path):
        """Returns the milliseconds until the first byte of a body."""
        at = time.perf_counter()
        response = self.ask(path)
        response.read(1)
        waited = (time.perf_counter() - at) * 1000
        response.read()
        return waited

    def end(self):
        self.process.terminate()
        self.process.wait()


def git_seconds(count, *command):
    """Returns the seconds of processor time that a command of git takes, and what it printed last."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(count):
        done = subprocess.run(["git", *command], stdout=subprocess.PIPE)
        # git grep that finds nothing ends with 1.
        assert done.returncode in (0, 1), command
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / count, done.stdout


def mirrored(work, up):
    """Returns a pool that mirrors the repository `up` under this name."""
    pool = os.path.join(work, "pool")
    for command in ["init", pool], ["add", "-q", "--name", "up", up], ["mirror", "-q"]:
        subprocess.run([WEIR, "--pool", pool, *command], stdout=subprocess.DEVNULL, check=True)
    return pool


def file_of_10_kb(up):
    """Returns the path of the file at HEAD whose size is nearest to that."""
    listed = subprocess.run(["git", "-C", up, "ls-tree", "-rl", "HEAD"], stdout=subprocess.PIPE, check=True)
    sizes = [line.split(None, 4)[3:] for line in listed.stdout.decode().splitlines()]
    files = [(abs(int(size) - 10_000), path) for size, path in sizes if size != "-" and '"' not in path]
    return min(files)[1]


def answers(work):
    """Small answers, and archives."""
    up = repository(work)
    server = Server(mirrored(work, up))
    try:
        measure_answers(server, up, file_of_10_kb(up))
    finally:
        server.end()


def measure_answers(server, up, path):
    folder = os.path.dirname(path)
    # The Makefile of git/git, or the file of a generated repository.
    found = subprocess.run(["git", "-C", up, "cat-file", "-e", "HEAD:Makefile"], stderr=subprocess.DEVNULL)
    blamed = "Makefile" if found.returncode == 0 else path
    # Past the end: numbers with one more digit.
    lines = json.loads(server.get(f"/repositories/up/blame?path={quote(blamed)}"))["line_count"]
    print("\n| answer | weir, CPU of the server | a client waits, median | 99 % | git, CPU | ratio |")
    print("|---|---|---|---|---|---|")
    form = "--format=%H %T %P %an %ae %at %cn %ce %ct %B"
    for what, asked, command in [
        ("a repository", "/repositories/up", None),
        ("a file of 10 KB", f"/repositories/up/file?path={quote(path)}",
         ["cat-file", "blob", f"HEAD:{path}"]),
        ("a commit", "/repositories/up/commits/HEAD", ["show", "-s", form, "HEAD"]),
        ("50 commits", "/repositories/up/commits", ["log", "-50", form]),
        ("50 commits of a file", f"/repositories/up/commits?path={quote(path)}",
         ["log", "-50", form, "HEAD", "--", path]),
        ("a folder", f"/repositories/up/tree?path={quote(folder)}&limit=1000",
         ["ls-tree", "-l", "HEAD", f"{folder}/" if folder else "."]),
        ("blame of a file", f"/repositories/up/blame?path={quote(blamed)}&last_line={lines}{{n}}",
         ["blame", "HEAD", "--", blamed]),
        ("the same again", f"/repositories/up/blame?path={quote(blamed)}",
         ["blame", "HEAD", "--", blamed]),
        ("a patch of 20 commits", "/repositories/up/patch?base=HEAD~20",
         ["diff", "--full-index", "-M", "HEAD~20", "HEAD"]),
        ("lines that match a word", "/repositories/up/grep?pattern=obsolete&literal=true&limit=1000",
         ["grep", "-n", "-I", "-F", "-e", "obsolete", "HEAD"]),
    ]:
        is_long = any(word in what for word in ("match", "of a file", "again", "patch"))
        count = LONG if is_long else REQUESTS
        spent, median, worst, body = server.measure(asked, count)
        if command is None:
            print(f"| {what} | {spent * 1e6:.0f} us | {median:.2f} ms | {worst:.2f} ms | | |")
            continue
        theirs, printed = git_seconds(LONG if count == LONG else PROCESSES, "-C", up, *command)
        if command[0] in ("cat-file", "diff"):
            assert body == printed
        # A few requests may take less than the clock of the kernel counts.
        ratio = f"1/{theirs / spent:.0f}" if theirs > spent > 0 else f"{spent / theirs:.2f}"
        ours = f"{spent * 1e6:.0f} us | {median:.2f} ms | {worst:.2f} ms"
        print(f"| {what} | {ours} | {theirs * 1e6:.0f} us | {ratio} |")
    for format in "tar", "tar.gz", "zip":
        # Each with a prefix of its own: the server keeps archives.
        asked = f"/repositories/up/archive?format={format}&prefix=x{{n}}/"
        spent, median, _, body = server.measure(asked, LONG)
        first = sorted(server.first_byte(asked.format(n=f"-{n}")) for n in range(LONG))[LONG // 2]
        command = "archive", f"--format={format}", f"--prefix=x{LONG + 1}/", "HEAD"
        theirs, printed = git_seconds(LONG, "-C", up, *command)
        if format == "tar":
            assert hashlib.sha256(body).digest() == hashlib.sha256(printed).digest(), "the tars differ"
        sizes = f"{len(body) / 1e6:.1f} MB (git: {len(printed) / 1e6:.1f})"
        print(
            f"| {format}, {sizes}, first byte after {first:.1f} ms "
            f"| {spent * 1000:.0f} ms | {median:.0f} ms | | {theirs * 1000:.0f} ms | {spent / theirs:.2f} |"
        )


def lists(work):
    """Lists, searches and filters with many repositories."""
    pool = os.path.join(work, "many")
    subprocess.run([WEIR, "--pool", pool, "init", pool], stdout=subprocess.DEVNULL, check=True)
    catalog = sqlite3.connect(os.path.join(pool, "catalog.db"))
    def name(n):
        return f"forge/owner{n % 90_000}/project{n}"

    rows = ((name(n), f"https://{name(n)}.git", f"p/{n}.tar", int(n % 1000 == 0)) for n in range(ROWS))
    sql = "INSERT INTO repositories (name, url, path, added_at, paused) VALUES (?, ?, ?, 0, ?)"
    catalog.executemany(sql, rows)
    catalog.commit()
    catalog.close()
    server = Server(pool)
    try:
        measure_lists(server, name)
    finally:
        server.end()


def measure_lists(server, name):
    print(f"\n| with {ROWS:,} repositories | weir, CPU of the server | a client waits, median | 99 % |")
    print("|---|---|---|---|")
    middle = None
    for _ in range(ROWS // 2 // 1000):
        page = server.get("/repositories?limit=1000" + (f"&cursor={middle}" if middle else ""))
        middle = json.loads(page)["next"]
    for what, asked in [
        ("a page of the list", "/repositories"),
        ("a page in the middle", f"/repositories?cursor={middle}"),
        ("a search that finds some", "/repositories?search=project77"),
        ("a search that finds none", "/repositories?search=nothing-like-it"),
        ("those that are paused", "/repositories?state=paused"),
        ("one of them", f"/repositories/{quote(name(ROWS // 2), safe='')}"),
    ]:
        spent, median, worst, _ = server.measure(asked, REQUESTS // 5)
        print(f"| {what} | {spent * 1e6:.0f} us | {median:.2f} ms | {worst:.2f} ms |")


if __name__ == "__main__":
    work = tempfile.mkdtemp(prefix="weir-api-", dir=os.environ.get("WEIR_BENCH_DIR"))
    try:
        answers(work)
        lists(work)
    finally:
        shutil.rmtree(work)
