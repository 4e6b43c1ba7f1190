#!/usr/bin/env python3
"""Other people's git servers as upstreams of weir: upstreams/run.py [SERVER...].

The script starts one server at a time, and weir mirrors its repository: a first clone; an update with a
forced push, a branch deleted, one new, and an annotated tag; a visit that finds nothing new. After each
visit, the refs, HEAD and all reachable objects of the mirror are those of the repository at the server. git
(clone --mirror, fetch --prune) does the same beside weir. weir also mirrors a repository that is not there:
it must give the failure the right class, as far as the server tells. Rows go to standard output as a
Markdown table. What a server needs is installed or built; if that cannot be had, the row says so.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import libraries
import over_http
import over_ssh
from common import WEIR, Place, Refused, Unavailable, compare, git, run, snapshot, states, tidy, words

SERVERS = {
    "dulwich": libraries.dulwich,
    "jgit": libraries.jgit,
    "go-git": libraries.go_git,
    "soft-serve": libraries.soft_serve,
    "gitolite": over_ssh.gitolite,
    "openssh": over_ssh.openssh,
    "apache": over_http.apache,
    "nginx": over_http.nginx,
    "tls": over_http.tls,
    "dumb": over_http.dumb,
    "dumb-alternates": over_http.dumb_alternates,
    "dumb-http-alternates": over_http.dumb_http_alternates,
    "newest-git": over_ssh.newest_git,
}
# What git says if the server has told it that there is no such repository, or that it may not have it.
TOLD = re.compile(
    r"not found|not exist|not exported|not appear to be|invalid repo"
    r"|no git repository|denied by|authentication failed"
    r"|could not read (username|password)|error: 40[134]|certificate",
    re.I,
)

# So many seconds more than git takes to be told that there is nothing are worth a word.
SLOW = 3


class Pool:
    """A pool of weir for one URL, with the settings that a row wants."""

    def __init__(self, folder, url, settings):
        self.folder = folder
        env, toml = settings
        self.env = {**os.environ, **env, "WEIR_POOL": folder}
        run(WEIR, "init", env=self.env)
        path = os.path.join(folder, "weir.toml")
        with open(path) as f:
            text = f.read()
        for section, line in toml.items():
            text = text.replace(f"[{section}]\n", f"[{section}]\n{line}\n")
        with open(path, "w") as f:
            f.write(text)
        run(WEIR, "add", "--name", "it", url, env=self.env)

    def mirror(self):
        done = subprocess.run(
            [WEIR, "mirror", "it"],
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        if done.returncode:
            raise subprocess.CalledProcessError(
                done.returncode, "weir mirror", stderr=self.error() or done.stdout
            )

    def failure(self):
        """What weir lists of the repository if it fails."""
        listed = json.loads(run(WEIR, "--json", "errors", env=self.env))
        return listed[0] if listed else {}

    def error(self):
        failure = self.failure()
        return f"{failure['error']} ({failure['error_class']})" if failure else ""

    def digest(self):
        with open(os.path.join(self.folder, "store", "it.tar"), "rb") as f:
            return hashlib.sha256(f.read()).digest()

    def check(self, wanted):
        """Whether all is here that is wanted, and sound."""
        target = os.path.join(self.folder, "export")
        run(WEIR, "export", "it", target, env=self.env)
        try:
            git(target, "fsck", "--full", "--strict")
            compare(snapshot(lambda *args: git(target, *args)), wanted)
        finally:
            shutil.rmtree(target, ignore_errors=True)
        run(WEIR, "fsck", "it", env=self.env)


class Row:
    """One upstream, mirrored by weir and by git side by side."""

    def __init__(self, place, upstream, number):
        self.place = place
        self.upstream = upstream
        self.folder = os.path.join(place.folder, f"row-{number}")
        os.makedirs(self.folder)
        self.pool = None
        self.results = {}
        self.by_git = {}
        self.git_env = {**os.environ, **upstream.env, **upstream.git_env}

    def private(self):
        return [self.place.folder]

    def attempt(self, results, what, step):
        try:
            results[what] = step() or "well"
        except AssertionError as e:
            results[what] = f"failed: {tidy(str(e), *self.private())}"
        except (subprocess.SubprocessError, OSError, KeyError, ValueError) as e:
            results[what] = f"failed: {words(e, *self.private())}"

    def ask_git(self, *args):
        return run("git", *self.upstream.git_options, *args, env=self.git_env, timeout=120)

    def visit(self, what, wanted):
        self.attempt(self.results, what, lambda: getattr(self, what)(wanted))
        self.attempt(self.by_git, what, lambda: self.git_visit(what, wanted))

    def clone(self, wanted):
        self.check_protocol()
        self.pool = Pool(
            os.path.join(self.folder, "pool"), self.upstream.url, (self.upstream.env, self.upstream.toml)
        )
        self.update(wanted)

    def update(self, wanted):
        assert self.pool, "there is no pool"
        self.pool.mirror()
        self.pool.check(wanted)

    def unchanged(self, wanted):
        assert self.results["update"] == "well", "there was no update"
        before = self.pool.digest()
        self.pool.mirror()
        assert self.pool.digest() == before, "the archive was written to"
        self.pool.check(wanted)

    def git_visit(self, what, wanted):
        mirror = os.path.join(self.folder, "git")
        if what == "clone":
            self.ask_git("clone", "-q", "--mirror", self.upstream.url, mirror)
        else:
            self.ask_git("-C", mirror, "fetch", "-q", "--prune")
        # git sets HEAD when it clones, and never again.
        compare(
            snapshot(lambda *args: git(mirror, *args)),
            wanted,
            ("refs", "HEAD", "objects") if what == "clone" else ("refs", "objects"),
        )

    def check_protocol(self):
        if self.upstream.protocol is None:
            return
        trace = os.path.join(self.folder, "trace")
        run(
            "git",
            *self.upstream.git_options,
            "ls-remote",
            self.upstream.url,
            env={**self.git_env, "GIT_TRACE_PACKET": trace},
            timeout=60,
        )
        with open(trace) as f:
            version = 2 if "< version 2" in f.read() else 0
        assert (
            version == self.upstream.protocol
        ), f"the server speaks version {version}, which this row is not about"

    def look_for_refused(self):
        for refused in (
            Refused("missing", self.upstream.missing, self.upstream.missing_class),
            *self.upstream.refused,
        ):
            self.attempt(self.results, refused.what, lambda refused=refused: self.refuse(refused))

    def refuse(self, refused):
        """The class that weir gives something that is not to be had, and whether git can tell that."""
        settings = (self.upstream.env, self.upstream.toml) if refused.with_settings else ({}, {})
        pool = Pool(os.path.join(self.folder, refused.what), refused.url, settings)
        command = ["git", *self.upstream.git_options, "ls-remote", refused.url]
        env = self.git_env if refused.with_settings else None
        begun = time.monotonic()
        said = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
        git_took = time.monotonic() - begun
        assert said.returncode, "git finds it"
        self.by_git[refused.what] = "yes" if TOLD.search(said.stderr.replace(refused.url, "")) else "no"
        begun = time.monotonic()
        try:
            pool.mirror()
        except subprocess.CalledProcessError as e:
            failure = pool.failure()
            assert failure, f"not listed as failed: {words(e, *self.private())}"
            found = failure["error_class"]
            assert refused.error_class in (
                None,
                found,
            ), f"{found} instead of {refused.error_class}: {failure['error']}"
            longer = time.monotonic() - begun - git_took
            return found if longer < SLOW else f"{found} ({longer:.0f} s after git)"
        raise AssertionError("mirrored")

    def failures(self):
        return sum(result.startswith("failed") for result in self.results.values())

    def cells(self):
        mirrored = [self.results[what] for what in ("clone", "update", "unchanged")]
        by_git = [f"{what} {result}" for what, result in self.by_git.items() if result.startswith("failed")]
        others = [what for what in self.results if what not in ("clone", "update", "unchanged")]
        classes = "; ".join(
            ("" if what == "missing" else f"{what}: ") + self.results[what] for what in others
        )
        tells = "; ".join(
            ("" if what == "missing" else f"{what}: ") + self.by_git.get(what, "?") for what in others
        )
        return [self.upstream.label, *mirrored, "; ".join(by_git) or "well", classes, tells]


def test(place, server):
    """Rows of one server, from its start to its end."""
    rows = [Row(place, upstream, number) for number, upstream in enumerate(server(place))]
    for what in ("clone", "update", "unchanged"):
        if what == "update":
            place.fill(1)
        wanted = snapshot(place.git)
        for row in rows:
            row.visit(what, wanted)
    for row in rows:
        row.look_for_refused()
    return rows


def line(cells):
    print(f"| {' | '.join(cells)} |", flush=True)


def main():
    wanted = sys.argv[1:] or list(SERVERS)
    unknown = set(wanted) - set(SERVERS)
    if unknown:
        sys.exit(f"no such server: {', '.join(sorted(unknown))}; there are {', '.join(SERVERS)}")
    work = tempfile.mkdtemp(prefix="weir-upstreams-")
    # Servers that give up root's rights must get to what they serve.
    os.chmod(work, 0o755)
    for name in [
        name
        for name in os.environ
        if name.startswith(("GIT_", "SSL_CERT_", "WEIR_")) or name.lower().endswith("_proxy")
    ]:
        del os.environ[name]
    os.environ.update(HOME=work, GIT_CONFIG_NOSYSTEM="1", GIT_TERMINAL_PROMPT="0", LC_ALL="C.UTF-8")
    for who in ("AUTHOR", "COMMITTER"):
        os.environ.update({f"GIT_{who}_NAME": "C", f"GIT_{who}_EMAIL": "c@example.com"})
    failed = 0
    try:
        bundles = states(work)
        line(
            [
                "upstream",
                "clone",
                "update",
                "unchanged",
                "git beside it",
                "missing: weir",
                "missing: git can tell",
            ]
        )
        line(["---"] * 7)
        for name in wanted:
            place = Place(os.path.join(work, name), bundles)
            try:
                for row in test(place, SERVERS[name]):
                    failed += row.failures()
                    line(row.cells())
            except Unavailable as e:
                line([name, f"skipped: {tidy(str(e), work)}", *["-"] * 5])
            except (AssertionError, RuntimeError, subprocess.SubprocessError, OSError) as e:
                failed += 1
                line([name, f"failed: could not be set up: {words(e, work)}", *["-"] * 5])
            finally:
                place.stop()
    finally:
        shutil.rmtree(work, ignore_errors=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
