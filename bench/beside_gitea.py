#!/usr/bin/env python3
"""What an answer of the API costs the server, beside the same answer of Gitea, which conformance/gitea.py
builds. Prints the table of docs/benchmarks.md.

WEIR_BENCH_REPO=DIR    a repository (git/git for the figures in the docs); without it a generated one"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from urllib.parse import quote

from api import LONG, PROCESSES, REQUESTS, Server, file_of_10_kb, mirrored, repository
from programs import HERE

sys.path.append(os.path.join(HERE, "conformance"))

from gitea import Gitea  # noqa: E402


class GiteaServer(Server):
    """A Gitea with one repository, and one connection to it."""

    def __init__(self, work):
        self.gitea = Gitea(work)
        self.process = self.gitea.process
        self.connect(int(self.gitea.url.rsplit(":", 1)[1]))

    def adopt(self, up):
        """Puts a copy of `up` into Gitea's folder, and has Gitea adopt it: no push, and no hook runs."""
        folder = os.path.join(self.gitea.work, "repositories", "keeper")
        os.makedirs(folder, exist_ok=True)
        subprocess.run(["git", "clone", "-q", "--bare", up, os.path.join(folder, "up.git")], check=True)
        self.gitea.api("POST", "admin/unadopted/keeper/up")
        branch = subprocess.run(["git", "-C", up, "symbolic-ref", "--short", "HEAD"], check=True,
                                stdout=subprocess.PIPE, text=True).stdout.strip()
        self.gitea.api("PATCH", "repos/keeper/up", {"private": False, "default_branch": branch})

    def wait_for(self, path):
        """Returns the milliseconds until an answer is there."""
        at = time.perf_counter()
        self.get(path)
        return (time.perf_counter() - at) * 1000

    def spent(self):
        """The seconds of processor time of the server, and of the processes of git that it has started."""
        with open(f"/proc/{self.process.pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def commits_below(up, count):
    """The ids of the newest commits."""
    log = subprocess.run(["git", "-C", up, "rev-list", f"-{count}", "HEAD"], check=True,
                         stdout=subprocess.PIPE, text=True)
    return log.stdout.split()


def main(work, servers):
    up = repository(work)
    path, commits = file_of_10_kb(up), commits_below(up, 60)
    head, folder = commits[0], os.path.dirname(path)
    ours = Server(mirrored(work, up))
    servers.callback(ours.end)
    theirs = GiteaServer(work)
    servers.callback(theirs.end)
    theirs.adopt(up)
    brief = "stat=false&verification=false&files=false"
    ids = [lambda body: [commit["oid"] for commit in json.loads(body)["items"]],
           lambda body: [commit["sha"] for commit in json.loads(body)]]
    same = [lambda body: body] * 2
    print("| answer | weir, CPU | a client waits | Gitea, CPU | a client waits | ratio of CPU |")
    print("|---|---|---|---|---|---|")
    for what, asked, asked_there, parts, count in [
        ("a repository", "", "", None, REQUESTS),
        ("a file of 10 KB", f"/file?path={quote(path)}", f"/raw/{quote(path)}", same, REQUESTS),
        ("a commit", f"/commits/{head}", f"/git/commits/{head}?{brief}",
         [lambda body: json.loads(body)["oid"], lambda body: json.loads(body)["sha"]], REQUESTS),
        ("50 commits", "/commits?limit=50", f"/commits?limit=50&{brief}", ids, REQUESTS // 10),
        ("50 commits of a file", f"/commits?limit=50&path={quote(path)}",
         f"/commits?limit=50&path={quote(path)}&{brief}", ids, LONG),
        ("a folder", f"/tree?path={quote(folder)}&limit=1000", f"/contents/{quote(folder)}",
         [lambda body: sorted(os.path.basename(entry["path"]) for entry in json.loads(body)["items"]),
          lambda body: sorted(entry["name"] for entry in json.loads(body))], REQUESTS // 10),
        ("tar.gz", "/archive?format=tar.gz&prefix=x{n}/", "/archive/{commit}.tar.gz", None, LONG),
    ]:
        ours_spent, ours_wait, _, ours_body = ours.measure(f"/repositories/up{asked}", count)
        there = f"/repos/keeper/up{asked_there}"
        if "{commit}" in there:
            # Gitea keeps the archive of a commit.
            before, waits = theirs.spent(), []
            for commit in commits[-count:]:
                waits.append(theirs.wait_for(there.format(commit=commit)))
            spent, wait, body = (theirs.spent() - before) / count, sorted(waits)[count // 2], b""
        else:
            spent, wait, _, body = theirs.measure(there, min(count, PROCESSES))
        if parts:
            assert parts[0](ours_body) == parts[1](body), what
        ratio = f"1/{spent / ours_spent:.0f}" if spent > ours_spent > 0 else f"{ours_spent / spent:.2f}"
        print(f"| {what} | {ours_spent * 1e6:.0f} us | {ours_wait:.2f} ms | {spent * 1e6:.0f} us "
              f"| {wait:.2f} ms | {ratio} |", flush=True)


if __name__ == "__main__":
    work = tempfile.mkdtemp(prefix="weir-gitea-", dir=os.environ.get("WEIR_BENCH_DIR"))
    try:
        with contextlib.ExitStack() as servers:
            main(work, servers)
    finally:
        shutil.rmtree(work)
