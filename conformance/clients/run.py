#!/usr/bin/env python3
"""Clients of every sort clone and fetch from an archive served by weir: clients/run.py [NAME...].

NAME is a client or a table. The clients are libraries that are not git, package managers, stock git through
reverse proxies, stock git old and new over git://, HTTP and ssh, agents and a browser; and tools in
workspaces. Each thing that is tried of a server gets one that was just started. git checks what a client has
made: fsck finds nothing, and refs and objects are those of the upstream, or those that git's own server
gives. Rows go to standard output as Markdown tables; what cannot be tried here is a row that says so. A
client that is not there is fetched by its name. If WEIR_GIT_REPO names a clone of git's own repository, old
versions of git are built from it and tried as well.
"""

import os
import shutil
import sys
import tempfile

import agents
import browser
import libraries
import packages
import proxies
import stock_git
import workspaces
from common import BUILT, Skipped, Table, WEIR

TABLES = {
    "libraries": libraries,
    "packages": packages,
    "proxies": proxies,
    "stock": stock_git,
    "agents": agents,
    "browser": browser,
    "workspaces": workspaces,
}


def main():
    for name in sys.argv[1:]:
        if name not in TABLES and not any(name in table.CLIENTS for table in TABLES.values()):
            sys.exit(
                f"{name}: neither a table ({', '.join(TABLES)}) nor one of: "
                f"{'; '.join(c for t in TABLES.values() for c in t.CLIENTS)}"
            )
    if not os.path.exists(WEIR):
        sys.exit("there is no weir to try: build it, or say where it is (WEIR)")
    work = tempfile.mkdtemp(prefix="weir-clients-")
    # Apache's workers are somebody else, and read the upstreams.
    os.chmod(work, 0o755)
    # Servers are where only root looks by default.
    os.environ.update(HOME=work, GIT_CONFIG_NOSYSTEM="1", PATH=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    for who in ("AUTHOR", "COMMITTER"):
        os.environ.update({f"GIT_{who}_NAME": "C", f"GIT_{who}_EMAIL": "c@example.com"})
    cache = os.path.join(BUILT, "cache")
    os.environ.update(
        GOPATH=os.path.join(cache, "go"),
        GOCACHE=os.path.join(cache, "go-build"),
        MAVEN_OPTS=f"-Duser.home={cache}",
    )
    out = Table()
    try:
        for name, table in TABLES.items():
            wanted = [
                c for c in table.CLIENTS if not sys.argv[1:] or name in sys.argv[1:] or c in sys.argv[1:]
            ]
            if wanted:
                folder = os.path.join(work, name)
                os.mkdir(folder)
                try:
                    table.table(out, folder, wanted)
                except Skipped as e:
                    out.row([name], [f"skipped: {e}"])
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(f"\n{out.counts['well']} well, {out.counts['failed']} failed, {out.counts['skipped']} skipped")
    sys.exit(1 if out.counts["failed"] else 0)


main()
