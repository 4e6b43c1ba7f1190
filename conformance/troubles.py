#!/usr/bin/env python3
"""Checks weir with lists and forges that have troubles, over SQLite and PostgreSQL: troubles.py [list|crawl].

Part 1 mirrors 300 URLs of which 30 are bad, and then judges what every listing command says of them. Part 2
crawls a GitHub of 2,000 repositories with many troubles at once, and compares with the same GitHub without
them. PostgreSQL is a real server; everything is on loopback. Prints what the commands said, for a person to
read, and a table of checks. Exits with 1 if a check is missed.
"""

import os
import shutil
import sys
import tempfile
import time

import troubled_crawl
import troubled_list
from harness import Checks, Postgres, WEIR
from troubled_upstreams import World


def lists(checks, work, postgres):
    world = World(work)
    try:
        found = {}
        for database, catalog in (("SQLite", None), ("PostgreSQL", postgres.schema("list"))):
            print(f"\n== A list, over {database}\n", flush=True)
            found[database] = troubled_list.run(
                checks.part(f"list, {database}"), world, os.path.join(work, f"list-{database}"), catalog
            )
        checks.part("list").same(
            "both databases say the same of each failure", found["SQLite"], found["PostgreSQL"]
        )
    finally:
        world.close()


def crawls(checks, work, postgres):
    for name, of in (("SQLite", None), ("PostgreSQL", postgres)):
        print(f"\n== A GitHub in trouble, over {name}\n", flush=True)
        catalogs = [of and of.schema(twin) for twin in ("troubled", "calm")]
        troubled_crawl.run(checks.part(f"crawl, {name}"), os.path.join(work, f"crawl-{name}"), catalogs, of)


def main():
    if not os.access(WEIR, os.X_OK):
        sys.exit(f"there is no program at {WEIR}: build weir, or say in WEIR where it is")
    parts = sys.argv[1:] or ["list", "crawl"]
    work, checks, started = tempfile.mkdtemp(prefix="weir-troubles-"), Checks(), time.time()
    postgres = Postgres()
    try:
        hung = "crawl" in parts and troubled_crawl.Hung(os.path.join(work, "hung"))
        if "list" in parts:
            lists(checks, work, postgres)
        if "crawl" in parts:
            crawls(checks, work, postgres)
            hung.judge(checks.part("crawl"))
    finally:
        postgres.close()
        shutil.rmtree(work, ignore_errors=True)
    print(
        "\n".join(
            [
                "",
                *checks.table(),
                "",
                f"{len(checks.rows) - len(checks.missed)} of {len(checks.rows)} checks are met, "
                f"{time.time() - started:.0f} s",
            ]
        )
    )
    for part, what, detail in checks.missed:
        print(f"\nmissed: {part}: {what}\n  {detail[:1500]}")
    sys.exit(1 if checks.missed else 0)


main()
