#!/usr/bin/env python3
"""Benchmarks the catalog over SQLite and over a PostgreSQL that the script starts.

Measures the visits that are leased and written down a second, and imports.

WEIR_BENCH_ROWS=10000000   repositories in it (the figures in the docs), a million without
WEIR_BENCH_SMOKE=1         that it runs, not how fast
"""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

from postgres import Postgres
from programs import BENCH, SMOKE, WEIR

ROWS = 20_000 if SMOKE else int(os.environ.get("WEIR_BENCH_ROWS", "1000000"))
VISITS = min(ROWS, 5_000 if SMOKE else 500_000)
DUMPED = 20_000 if SMOKE else 1_000_000


def projects(path):
    """GHTorrent's table `projects`, as its dumps have it; generated."""
    choose = random.Random(1)
    with open(path, "w") as f:
        for i in range(1, DUMPED + 1):
            language = choose.choice(['"C"', '"Go"', '"Rust"', '"Python"', "\\N"])
            f.write(
                f'{i},"https://api.github.com/repos/owner{i % 90000}/project{i}",'
                f'{i % 90000},"project{i}",'
                f'"A description of project {i}, '
                f'\\"quoted\\" and long enough to be like the real ones",{language},'
                f'"2013-05-0{i % 9 + 1} 10:00:00",\\N,{int(i % 50 == 0)},'
                f'"2016-01-01 00:00:00",\\N\n'
            )


def events(path):
    """An hour of GH Archive; generated. Few repositories have most events."""
    choose = random.Random(1)
    with open(path, "w") as f:
        for i in range(DUMPED // 2):
            r = int(choose.paretovariate(0.6)) % 300_000
            repo = {
                "id": r,
                "name": f"o{r % 9000}/r{r}",
                "url": f"https://api.github.com/repos/o{r % 9000}/r{r}",
            }
            commits = [{"sha": "a" * 40, "author": {"email": "x@y", "name": "n"}, "message": "m " * 40}] * 2
            f.write(
                json.dumps(
                    {
                        "id": str(i),
                        "type": "PushEvent",
                        "actor": {"id": i % 5000, "login": f"user{i % 5000}"},
                        "repo": repo,
                        "payload": {"push_id": i, "commits": commits},
                        "public": True,
                        "created_at": "2015-01-01T15:00:00Z",
                    }
                )
                + "\n"
            )


def imported(pool, kind, path):
    """Rows a second, and memory in MiB."""
    with open(path, "rb") as f:  # into the page cache
        rows = sum(1 for _ in f)
    started = time.time()
    measured = subprocess.Popen([WEIR, "--pool", pool, "-q", "import", kind, path])
    _, status, usage = os.wait4(measured.pid, 0)
    assert status == 0
    return rows / (time.time() - started), usage.ru_maxrss / 1024


def main():
    folder = tempfile.mkdtemp(prefix="weir-bench-", dir=os.environ.get("TMPDIR"))
    os.chmod(folder, 0o755)
    server = Postgres(os.path.join(folder, "pg"))
    try:
        print(
            f"### The catalog\n\n| with {ROWS:,} repositories, a second | SQLite | bar | PostgreSQL | bar |\n"
            "|---|---|---|---|---|"
        )
        os.makedirs(os.path.join(folder, "sqlite"))
        said = [
            json.loads(
                subprocess.run(
                    [BENCH, "catalog", place, str(ROWS), str(VISITS)],
                    check=True,
                    capture_output=True,
                    text=True,
                ).stdout
            )
            for place in (os.path.join(folder, "sqlite"), server.schema("visits"))
        ]
        shutil.rmtree(os.path.join(folder, "sqlite"))
        for key, what, bars in (
            ("visits_per_second", "leased, visited, written down", ("50,000", "10,000")),
            ("leases_per_second", "leased alone", "--"),
            ("completions_per_second", "written down alone", "--"),
            ("filled_per_second", "new, from pages of a listing", "--"),
        ):
            print(f"| {what} | {said[0][key]:,.0f} | {bars[0]} | {said[1][key]:,.0f} | {bars[1]} |")
        for kind, make in (("ghtorrent", projects), ("gharchive", events)):
            dump, figures = os.path.join(folder, kind), []
            make(dump)
            for catalog in ([], ["--catalog", server.schema(kind)]):
                pool = os.path.join(folder, f"{kind}-{len(catalog)}")
                subprocess.run([WEIR, "init", pool, *catalog], check=True, stdout=subprocess.DEVNULL)
                figures.append("{:,.0f}, {:.0f} MiB".format(*imported(pool, kind, dump)))
            os.remove(dump)
            print(
                f"| `weir import {kind}`, rows generated | {figures[0]} | 20,000, memory flat | "
                f"{figures[1]} | 20,000, memory flat |"
            )
    finally:
        server.end()
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
