"""The healthy client: stock git, from 127.0.0.1, and one request with many haves, from 127.0.0.2."""

import os
import shutil
import signal
import statistics
import subprocess
import time

from attacks import stage, wire

# A fetch that takes longer has failed.
PATIENCE_S = 30
# Time between fetches: it is one client among others.
PAUSE_S = 0.05
# Each fetch asks for something else, so that the server cannot answer from what it has kept.
VARIANTS = 100 if stage.SMOKE else 997
HAVES = 1400


class Failed(Exception):
    pass


class Client:
    """Fetches in turns: a clone, a shallow clone and an update from each URL.

    If there is a port for HTTP, also sends a request with many haves."""

    def __init__(self, urls, http_port=None, env=None):
        self.env = {**os.environ, **(env or {})}
        self.upstream = stage.upstream("healthy")
        self.commits = stage.git(self.upstream, "rev-list", "--first-parent", "main").split("\n")
        self.turn, self.measured = 0, 0
        operations = (("clone", self.clone), ("shallow", self.shallow), ("update", self.update))
        self.round = [
            (f"{kind}, {url.partition(':')[0]}", lambda run=run, url=url: run(url))
            for url in urls
            for kind, run in operations
        ]
        if http_port:
            self.round.append(("haves", lambda: self.many_haves(http_port)))

    def variant(self):
        """Gives what the next fetch asks for: as much as in the same turn of the first measurement, and yet
        something else."""
        self.turn += 1
        return (self.turn * 389 + self.measured) % VARIANTS % (len(self.commits) - 5) + 2

    def git(self, *args):
        """Runs git, for so long; gives the time it took."""
        started = time.monotonic()
        process = subprocess.Popen(
            ["git", *args],
            env=self.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            _, said = process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            # A session of its own: git, and what it has started.
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise Failed(f"no answer in {PATIENCE_S} s")
        if process.returncode:
            raise Failed(said.decode(errors="replace").strip().replace("\n", " "))
        return time.monotonic() - started

    def check(self, repo, ref):
        if stage.git(repo, "rev-parse", ref) != self.commits[0]:
            raise Failed("something else was fetched")

    def target(self):
        path = os.path.join(stage.work, "target.git")
        shutil.rmtree(path, ignore_errors=True)
        return path

    def clone(self, url, *options):
        target = self.target()
        taken = self.git("clone", "-q", "--bare", *options, url, target)
        self.check(target, "main")
        return taken

    def shallow(self, url):
        return self.clone(url, f"--depth={self.variant()}")

    def update(self, url):
        target = self.target()
        stage.run("git", "init", "-q", "--bare", target)
        stage.git(
            target,
            "fetch",
            "-q",
            "--no-tags",
            self.upstream,
            f"{self.commits[self.variant()]}:refs/heads/old",
        )
        taken = self.git("-C", target, "fetch", "-q", "--no-tags", url, "main")
        self.check(target, "FETCH_HEAD")
        return taken

    def many_haves(self, port):
        started, first = time.monotonic(), self.variant()
        haves = [f"have {oid}" for oid in self.commits[first:]]
        haves += [f"have {n:040x}" for n in range(HAVES - len(haves))]
        body = wire.command("fetch", f"want {self.commits[0]}", *haves, "ofs-delta", "done")
        try:
            with wire.connect("127.0.0.2", port) as s:
                s.settimeout(PATIENCE_S)
                s.sendall(wire.post("/healthy/git-upload-pack", body, headers=["Connection: close"]))
                said = b""
                while more := s.recv(1 << 16):
                    said += more
                    if time.monotonic() - started > PATIENCE_S:
                        raise Failed(f"no answer in {PATIENCE_S} s")
        except OSError as e:
            raise Failed(str(e))
        if not said.startswith(b"HTTP/1.1 200") or b"PACK" not in said:
            raise Failed(said[:100].decode(errors="replace").split("\r\n")[0])
        return time.monotonic() - started

    def fetch(self, seconds, goes_on=lambda: True):
        """Whole rounds for so long, one at least: the times by kind, and why some failed."""
        end = time.monotonic() + seconds
        self.turn, self.measured = 0, self.measured + 1
        times, failures = {kind: [] for kind, _ in self.round}, []
        while True:
            for kind, run in self.round:
                try:
                    times[kind].append(run())
                except Failed as e:
                    failures.append(f"{kind}: {e}")
                time.sleep(PAUSE_S)
                # A round of what fails may take minutes.
                if time.monotonic() > end + PATIENCE_S:
                    return times, failures
            if time.monotonic() > end or not goes_on():
                return times, failures


def median(times):
    return statistics.median([t for kind in times.values() for t in kind] or [float("nan")])


# What is faster than that is taken for as fast: a few milliseconds are the machine's.
FAST_S = 0.03


def slower(before, during):
    """How many times as long the kind of fetch takes that suffers most, and which it is."""
    time_of = lambda times: max(FAST_S, statistics.median(times))
    ratios = [
        (time_of(during[kind]) / time_of(before[kind]), kind)
        for kind in before
        if before[kind] and during[kind]
    ]
    return max(ratios, default=(float("nan"), "-"))


def late(before, during):
    """Gives the ratio of the slowest of a hundred fetches to the same when nobody attacks. Each fetch is
    measured by the median of its kind when nobody attacks."""
    usual = {kind: statistics.median(times) for kind, times in before.items() if times}
    slowest = lambda times: statistics.quantiles(
        [t / usual[kind] for kind, ts in times.items() if kind in usual for t in ts] or [float("nan")] * 2,
        n=100, method="inclusive",
    )[-1]
    return slowest(during) / slowest(before)
