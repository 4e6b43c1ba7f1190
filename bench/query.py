#!/usr/bin/env python3
"""Questions about a history, in SQL over the API and by 'weir query', beside git's own log with sort, uniq
and awk. Prints the table of docs/benchmarks.md.

WEIR_BENCH_REPO=DIR    a repository (git/git for the figures in the docs); without it a generated one
WEIR_BENCH_SMOKE=1     small inputs: that everything runs, not how fast"""

import csv
import io
import json
import os
import resource
import shutil
import subprocess
import tempfile
import time
from urllib.parse import urlencode

from api import Server, repository, spent_by
from programs import WEIR

AWK = "awk -F'\\t' 'NF == 3 { lines[$3] += $1 + $2 } END { for (path in lines) print path, lines[path] }'"
LOG = "git log --all --format="
QUESTIONS = [
    ("commits by author", "SELECT author_name, count(*) FROM revision GROUP BY 1",
     LOG + "%an | LC_ALL=C sort | uniq -c"),
    ("commits by year and weekday",
     "SELECT strftime('%Y %w', committer_date), count(*) FROM revision GROUP BY 1",
     "TZ=UTC " + LOG + "'%cd' --date=format-local:'%Y %w' | LC_ALL=C sort | uniq -c"),
    ("authors of messages that say fix",
     "SELECT author_name, count(*) FROM revision WHERE message REGEXP '\\bfix' GROUP BY 1",
     LOG + "%an -P --grep='\\bfix' | LC_ALL=C sort | uniq -c"),
    ("commits that change each path", "SELECT path, count(*) FROM file_change WHERE NOT is_merge GROUP BY 1",
     LOG + " -z --no-merges -M --name-only | tr '\\0' '\\n' | grep . | LC_ALL=C sort | uniq -c"),
    ("lines that changed of each path",
     "SELECT path, sum(insertions + deletions) FROM file_change WHERE NOT is_merge GROUP BY 1",
     LOG + f" --no-merges --no-renames --numstat | {AWK}"),
]


def children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def timed(*command, **more):
    """Returns the seconds of processor time and of the wall of a command, and what it printed."""
    before, at = children(), time.perf_counter()
    done = subprocess.run(*command, stdout=subprocess.PIPE, check=True, **more)
    return children() - before, time.perf_counter() - at, done.stdout


def asked(server, sql):
    """Returns the same of a request."""
    before, at = spent_by(server.process.pid), time.perf_counter()
    answer = json.loads(server.get("/query?" + urlencode({"sql": sql, "repositories": "up", "limit": 10000})))
    return spent_by(server.process.pid) - before, time.perf_counter() - at, answer["rows"]


def main(work):
    up, pool = repository(work), os.path.join(work, "pool")
    for command in ["init", pool], ["add", "-q", "--name", "up", up], ["mirror", "-q"]:
        subprocess.run([WEIR, "--pool", pool, *command], stdout=subprocess.DEVNULL, check=True)
    print("\n| question | by the API, first: CPU, wall | the same again, wall | weir query: CPU, wall "
          "| git: CPU, wall | ratio of CPU, first |")
    print("|---|---|---|---|---|---|")
    for what, sql, command in QUESTIONS:
        # Each question finds a server that has mined nothing yet.
        server = Server(pool)
        try:
            first, again = asked(server, sql), asked(server, sql)
        finally:
            server.end()
        query = timed([WEIR, "--pool", pool, "query", "--csv", sql, "up"])
        theirs = timed(["bash", "-c", command], cwd=up)
        rows = list(csv.reader(io.StringIO(query[2].decode())))[1:]
        assert first[2] == again[2] and len(first[2]) == min(len(rows), 10000), what
        if what.startswith("commits by"):
            counts = sorted(int(line.split(None, 1)[0]) for line in theirs[2].splitlines())
            assert sorted(int(row[1]) for row in rows) == counts, what
        ratio = f"1/{theirs[0] / first[0]:.1f}" if theirs[0] > first[0] > 0 else f"{first[0] / theirs[0]:.2f}"
        print(f"| {what} | {first[0]:.2f} s, {first[1]:.2f} s | {again[1] * 1000:.0f} ms "
              f"| {query[0]:.2f} s, {query[1]:.2f} s | {theirs[0]:.2f} s, {theirs[1]:.2f} s | {ratio} |")


if __name__ == "__main__":
    work = tempfile.mkdtemp(prefix="weir-query-", dir=os.environ.get("WEIR_BENCH_DIR"))
    try:
        main(work)
    finally:
        shutil.rmtree(work)
