#!/usr/bin/env python3
"""Random states of git clients, against git's servers and weir's side by side.

WEIR_STATES=1000 WEIR_SEED=7 conformance/states.py

Each state is a random upstream that changes (merges, odd dates, several roots, tags of all kinds, branches
deleted and force-pushed). git daemon and git http-backend serve it; weir mirrors it as it changes, and
serves the mirror. Two clients, one of git's servers and one of weir's, do the same: clones and fetches with
random depths, filters and refspecs, in every protocol version. The upstream drops at once what its refs no
longer reach, so that neither server has more to give than the other. Afterwards
- both ended alike; refs, HEAD, .git/shallow and FETCH_HEAD are the same;
- the objects that refs and FETCH_HEAD reach within the shallow boundary, and that are there, are the same;
- all of these objects are there unless the client is partial;
- git fsck --connectivity-only finds nothing wrong in either.

For partial clients, the script counts these cases, and does not take them for differences:
- A later fetch brings one client more trees or blobs than the other. They pass its filter, but the commits
  that the client had before reach them, so that a server may assume that the client has them.
- For the same reason, one of the servers does not send a tree that the client asks for by name.
- Filters are combined and weir's client has more: git leaves out what it met too deep at first, then less
  deep.
- The objects are in a tree that a ref or its tag names: git counts its depth from the entries, and filters
  the tree itself only if git met it in another tree before.

If the dates of commits run backwards, git's walk may miss that a ref reaches a commit of the boundary; git
then does not deepen the commit. The script counts this if git rev-list has the same result. All objects,
with those that nothing reaches, may differ: the script counts how often, and which way.

WEIR_SEED is the seed of the first state; the others follow. WEIR_WITHOUT_DEEPEN=1 leaves out --deepen.
WEIR_JOBS states run at a time. The script prints each difference with a shell script that reproduces it, by
means of `states.py serve FOLDER` (the servers) and `states.py upstream SEED STEP FOLDER` (the upstream after
STEP changes). It exits with 1 if it found a difference.
"""

import collections
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from states_servers import EPOCH, WEIR, Servers, Upstream

IS_CI = bool(os.environ.get("CI"))
STATES = int(os.environ.get("WEIR_STATES", 60 if IS_CI else 1000))
SEED = int(os.environ.get("WEIR_SEED", random.SystemRandom().randrange(10**9)))
JOBS = int(os.environ.get("WEIR_JOBS", os.cpu_count()))
WITH_DEEPEN = not os.environ.get("WEIR_WITHOUT_DEEPEN")
COMMAND_SECONDS_MAX = 30
SIDES = ("git", "weir")


class Difference(Exception):
    pass


class Enough(Exception):
    """The clients differ as they may, and would ever more."""


class State:
    """One upstream, and a client at each server's."""

    def __init__(self, servers, seed, counts):
        self.servers, self.seed, self.counts = servers, seed, counts
        self.name = f"s{seed}"
        self.rng = random.Random(f"client {seed}")
        self.folder = os.path.join(servers.folder, self.name)
        os.makedirs(self.folder)
        self.upstream = Upstream(seed, os.path.join(servers.up, self.name))
        self.step = self.number = 0
        self.script, self.unlike = [], (set(), set())
        self.is_partial = self.combines = self.is_without_commits = False
        self.refs, self.tried, self.boundary = {}, "", []
        # The objects that the clients' commits reached before, whether they were there or not; and objects
        # that one client has and need not have.
        self.known, self.excused = set(), set()

    def run(self, *command):
        try:
            done = subprocess.run(
                command,
                cwd=self.folder,
                env=self.servers.environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                stdin=subprocess.DEVNULL,
                timeout=COMMAND_SECONDS_MAX,
            )
        except subprocess.TimeoutExpired:
            return None, "", "no end"
        return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")

    def weir(self, *arguments):
        self.script.append(
            f'"$WEIR" -q --pool pool {shlex.join(arguments)}'.replace(
                self.servers.urls["git", "git"], '"$URL_git_git"'
            )
        )
        code, _, said = self.run(WEIR, "-q", "--pool", self.servers.pool, *arguments)
        if code:
            raise Difference(f"weir {shlex.join(arguments)} failed: {said}")

    def change(self):
        self.upstream.change()
        self.upstream.write()
        self.step += 1
        self.script.append(f'"$STATES" upstream {self.seed} {self.step} up/{self.name}')
        if self.step == 1:
            self.weir("add", "--name", self.name, self.servers.urls["git", "git"] + self.name)
        self.weir("mirror", self.name)
        if self.rng.random() < 0.15:
            self.weir("compact", self.name)

    def both(self, arguments, is_local=False):
        """The same command for both clients; what it says, if it succeeded."""
        self.number += 1
        self.tried = shlex.join(arguments)
        transport = self.rng.choice(["git", "http"])
        options = (
            [] if is_local else ["-c", f"protocol.version={self.rng.choice([0, 1, 2, 2])}", *self.settings()]
        )
        ended = {}
        for side in SIDES:
            place = [] if arguments[0] == "clone" else ["-C", side]
            words = [word.replace("SIDE", side) for word in arguments]
            # Both clients have the same configuration: `up:` is either server.
            server = [] if is_local else ["-c", f"url.{self.servers.urls[side, transport]}.insteadOf=up:"]
            shown = [] if is_local else [f"-c url.$URL_{side}_{transport}.insteadOf=up:"]
            self.script.append(
                " ".join(["git", *map(shlex.quote, place + options), *shown, shlex.join(words)])
            )
            ended[side] = self.run("git", *place, *options, *server, *words)
        codes = {side: ended[side][0] for side in SIDES}
        # None means that the command did not end: with --refetch, a fetch that wants nothing waits for the
        # server, and the server for the fetch. weir hangs up in the end.
        if (codes["git"] == 0) != (codes["weir"] == 0):
            # Either server may assume that a partial client has a tree that the client asks for by name, as
            # the client's commits reach the tree.
            side = "git" if codes["git"] else "weir"
            lacking = re.search(r"bad (?:object|revision) '?([0-9a-f]{40})", ended[side][2])
            is_partial = self.is_partial or any(a.startswith("--filter") for a in arguments)
            known = self.upstream.reached() if arguments[0] == "clone" else self.known
            if (
                is_partial
                and lacking
                and lacking[1] in known
                and self.upstream.objects[lacking[1]][0] in ("tree", "blob")
            ):
                self.counts[
                    f"{side} does not send a partial client a tree or blob that it wants, "
                    "as its commits reach it"
                ] += 1
                raise Enough
            raise Difference(
                "ended otherwise:\n" + "".join(f"{side}: {codes[side]}: {ended[side][2]}" for side in SIDES)
            )
        if codes["git"] != 0:
            self.counts["operations that failed with both"] += 1
            said = [
                re.sub(
                    r"[0-9a-f]{40}|127\S+|'\S*'",
                    "_",
                    (re.findall(r"(?:fatal|error): .*", ended[s][2]) or [""])[0],
                )
                for s in SIDES
            ]
            if said[0] != said[1]:
                self.counts[f"failed with other words: {said[0]!r} by git, {said[1]!r} by weir"] += 1
        return None if codes["git"] != 0 else ended["git"][1]

    def look(self, side):
        """What there is of a client."""

        def must(*words):
            code, said, wrong = self.run("git", "-C", side, *words)
            if code:
                raise Difference(f"git {shlex.join(words)} with {side}: {wrong}")
            return said

        place = os.path.join(self.folder, side)
        place = os.path.join(place, ".git") if os.path.exists(os.path.join(place, ".git")) else place
        read = (
            lambda name: open(os.path.join(place, name)).read()
            if os.path.exists(os.path.join(place, name))
            else ""
        )
        fetched = read("FETCH_HEAD")
        tips = re.findall(r"(?m)^[0-9a-f]{40}", fetched)
        held = dict(
            line.split(" ")
            for line in must(
                "cat-file", "--batch-all-objects", "--unordered", "--batch-check=%(objectname) %(objecttype)"
            ).splitlines()
        )
        # Where even commits, or a tree that a tag names, are filtered away git 2.39 ends at the first.
        code, listed, wrong = self.run(
            "git",
            "-C",
            side,
            "rev-list",
            "--objects",
            "--missing=print",
            "--all",
            *(tip for tip in tips if tip in held),
        )
        if code and not self.is_partial:
            raise Difference(f"git rev-list with {side}: {wrong}")
        listed = None if code else listed.splitlines()
        code, said, wrong = self.run(
            "git", "-C", side, "fsck", "--connectivity-only", "--no-dangling", "--no-progress"
        )
        return {
            "refs": "".join(
                sorted(must("for-each-ref", "--format=%(refname) %(objectname) %(symref)").splitlines(True))
            )
            + read("HEAD"),
            "shallow": "".join(sorted(read("shallow").splitlines(True))),
            "FETCH_HEAD": re.sub(r"\S+://\S+", "URL", fetched),
            "fsck": f"{code} {said}{wrong}",
            "reached": None
            if listed is None
            else {line[:40] for line in listed if line[0] != "?"} & set(held),
            "missing": {line[1:41] for line in listed or [] if line[0] == "?"}
            | {tip for tip in tips if tip not in held},
            "held": held,
        }

    def compare(self):
        git, weir = (self.look(side) for side in SIDES)
        if git["reached"] is None or weir["reached"] is None:
            # Everything there is counts.
            git["reached"], weir["reached"] = set(git["held"]), set(weir["held"])
        self.counts["operations compared"] += 1
        self.refs = {
            line.split()[0]: line.split()[1]
            for line in git["refs"].splitlines()
            if line.startswith("refs/") and line.split()[0] != "refs/remotes/origin/HEAD"
        }
        wrong = [
            f"{what}:\n  git:\n{git[what]}  weir:\n{weir[what]}"
            for what in ("refs", "shallow", "FETCH_HEAD", "fsck")
            if git[what] != weir[what]
        ]
        if git["fsck"] == weir["fsck"] and not git["fsck"].startswith("0"):
            self.counts[f"fsck is not content with either: {git['fsck'][:60]!r}"] += 1
        kinds = {**git["held"], **weir["held"]}
        tell = lambda oids: " ".join(f"{kinds.get(oid, '?')} {oid}" for oid in sorted(oids)[:20]) or "nothing"
        less, more = (
            git["reached"] - weir["reached"] - self.excused,
            weir["reached"] - git["reached"] - self.excused,
        )
        if less or more:
            named = self.upstream.reached(self.upstream.named())
            way = (
                "each has some of its own"
                if less and more
                else "weir's client has more"
                if more
                else "weir's client has fewer"
            )
            may = self.is_partial and all(kinds[oid] in ("tree", "blob") for oid in less | more)
            if may and self.combines and less <= self.known | named:
                self.counts["combined filters: weir's client has trees or blobs that git forgot"] += 1
            elif may and less | more <= named:
                self.counts[f"partial clients hold other parts of trees that refs name: {way}"] += 1
            elif may and less | more <= self.known | named:
                self.counts[f"partial clients hold other trees or blobs: {way}"] += 1
            else:
                wrong.append(
                    f"reachable objects: weir's client lacks {tell(less)}, and has besides {tell(more)}"
                )
        if not self.is_partial and (git["missing"] or weir["missing"]):
            wrong.append(
                f"missing: git's client lacks {tell(git['missing'])}, weir's {tell(weir['missing'])}"
            )
        self.excused |= less | more
        self.known |= self.upstream.reached(self.refs.values())
        unlike = (set(git["held"]) - set(weir["held"]), set(weir["held"]) - set(git["held"]))
        if unlike != self.unlike and any(unlike):
            self.counts[
                "all objects differ: "
                + (
                    "each has some of its own"
                    if all(unlike)
                    else "weir's client has fewer"
                    if unlike[0]
                    else "weir's client has more"
                )
            ] += 1
        self.unlike = unlike
        if wrong and "--deepen" in self.tried and self.is_misled_by_dates():
            self.counts["git does not deepen a commit that a ref reaches: its dates run backwards"] += 1
            raise Enough
        if wrong:
            raise Difference("\n".join(wrong))
        self.boundary = git["shallow"].split()

    def is_misled_by_dates(self):
        """Returns whether git's own walk takes a commit of the clients' boundary for one that no ref reaches.

        upload-pack uses this walk to find what refs reach."""
        place = os.path.join(self.servers.up, self.name)
        reached = [oid for oid in self.boundary if oid in self.upstream.reached()]
        return bool(
            reached and self.run("git", "-C", place, "rev-list", *reached, "--not", "--all")[1].strip()
        )

    def filter(self, is_clone):
        rng = self.rng
        # A client without commits is of no use: when it fetches, git asks for them one by one, without end.
        kinds = ["commit", "commit", "tree", "blob", "tag"] if is_clone else ["commit"]
        simple = lambda: rng.choice(
            [
                "blob:none",
                f"blob:limit={rng.choice([0, 6, 100, 1000])}",
                f"tree:{rng.randint(0, 4)}",
                f"object:type={rng.choice(kinds)}",
            ]
        )
        return f"combine:{simple()}+{simple()}" if rng.random() < 0.2 else simple()

    def history(self, is_clone):
        """How deep."""
        rng = self.rng
        some = rng.choice([*self.upstream.refs] * 9 + ["refs/heads/none"])
        since = time.strftime(
            "%Y-%m-%dT%H:%M:%SZ", time.gmtime(rng.randint(EPOCH - 1000, self.upstream.clock + 500))
        )
        exclude = f"--shallow-exclude={rng.choice([some, some.split('/', 2)[2]])}"
        what = rng.choices(
            ["all", "depth", "deepen", "unshallow", "since", "exclude", "both"],
            [40, 25, 0 if is_clone else 15, 0 if is_clone else 8, 12, 12, 4],
        )[0]
        # If clocks go backwards, git excludes less than it should: it stops its walk soon after all commits
        # seem to be excluded.
        if (
            what == "deepen"
            and not WITH_DEEPEN
            or what in ("exclude", "both")
            and self.upstream.dates in ("backwards", "wild")
        ):
            what = "all"
        return {
            "all": [],
            "depth": [f"--depth={rng.randint(1, 6)}"],
            "deepen": [f"--deepen={rng.randint(1, 4)}"],
            "unshallow": ["--unshallow"],
            "since": [f"--shallow-since={since}"],
            "exclude": [exclude],
            "both": [f"--shallow-since={since}", exclude],
        }[what]

    def some(self, *choices):
        return [word for chance, word in choices if self.rng.random() < chance]

    def clone(self):
        branch = self.rng.choice(
            [name for name in self.upstream.refs if name.startswith(("refs/heads/", "refs/tags/"))]
        ).split("/", 2)[2]
        arguments = [
            "clone",
            "-q",
            *self.history(True),
            *self.some(
                (0.2, "--single-branch"),
                (0.15, "--no-single-branch"),
                (0.15, "--no-tags"),
                (0.15, f"--branch={branch}"),
            ),
        ]
        arguments += self.rng.choices([["--no-checkout"], ["--mirror"], ["--bare"], []], [6, 2, 1, 1])[0]
        if self.rng.random() < 0.35:
            arguments.append(f"--filter={self.filter(True)}")
            if "combine" in arguments[-1]:
                arguments.append("--no-tags")  # Tags follow objects, and git forgets some of those.
            self.is_without_commits = any(re.search("type=[tb]", a) for a in arguments)
        done = self.both([*arguments, f"up:{self.name}", "SIDE"])
        if done is not None:
            self.is_partial = any(a.startswith("--filter") for a in arguments)
            self.combines = any(a.startswith("--filter=combine") for a in arguments)
            self.compare()
        return done is not None

    def settings(self):
        found = (
            self.rng.choices([[], ["fetch.unpackLimit=1"]], [2, 1])[0]
            + self.rng.choices(
                [[], ["fetch.negotiationAlgorithm=skipping"], ["fetch.negotiationAlgorithm=noop"]], [8, 2, 1]
            )[0]
        )
        return [word for setting in found for word in ("-c", setting)]

    def fetch(self):
        rng = self.rng
        arguments = [
            "fetch",
            "-q",
            *self.history(False),
            *self.some(
                (0.15, "--prune"),
                (0.12, "--tags"),
                (0.12, "--no-tags"),
                (0.08, "--refetch"),
                (0.2, "--force"),
                (0.05, "--atomic"),
            ),
        ]
        if rng.random() < (0.1 if self.is_partial else 0.02):
            arguments.append(f"--filter={self.filter(False)}")
        there = sorted(self.upstream.refs)
        # Where clocks go backwards git takes commits for not reachable that are.
        among = (
            self.upstream.tips() if self.upstream.dates in ("backwards", "wild") else self.upstream.reached()
        )
        name, oid = (
            rng.choice(there),
            rng.choice(sorted(oid for oid in among if self.upstream.objects[oid][0] == "commit") or there),
        )
        arguments += rng.choices(
            [
                [],
                ["origin"],
                ["origin", *rng.sample(there, min(len(there), rng.randint(1, 3)))],
                ["origin", f"+{name}:refs/got/{self.number}"],
                ["origin", "+refs/*:refs/every/*"],
                ["origin", "+refs/heads/*:refs/remotes/origin/*"],
                ["origin", f"{oid}:refs/ids/{self.number}"],
                ["origin", oid],
            ],
            [20, 20, 15, 15, 6, 8, 8, 8],
        )[0]
        self.both(arguments)
        # A fetch that failed may have brought something, too.
        self.is_partial |= any(a.startswith("--filter") for a in arguments)
        self.combines |= any(a.startswith("--filter=combine") for a in arguments)
        self.compare()

    def forget(self):
        """Some refs go, perhaps with what only they reached; or there is a commit that no server knows."""
        if self.refs and self.rng.random() < 0.7:
            for name in self.rng.sample(sorted(self.refs), self.rng.randint(1, len(self.refs))):
                self.both(["update-ref", "--no-deref", "-d", name], True)
            if self.rng.random() < 0.6 and not self.is_partial:
                self.both(["prune", "--expire=now"], True)
                # FETCH_HEAD keeps nothing.
                self.both(["update-ref", "-d", "FETCH_HEAD"], True)
        elif self.refs and not self.is_partial:
            said = self.both(
                [
                    "commit-tree",
                    "-m",
                    "own",
                    "-p",
                    self.rng.choice(sorted(self.refs.values())),
                    "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
                ],
                True,
            )
            if said:
                self.both(["hash-object", "-w", "-t", "tree", "/dev/null"], True)
                self.both(["update-ref", f"refs/heads/own{self.number}", said.strip()], True)
        self.compare()

    def go(self):
        try:
            for _ in range(self.rng.randint(1, 3)):
                self.change()
            while not self.clone():
                if self.number > 20:
                    return None
            for _ in range(0 if self.is_without_commits else self.rng.randint(1, 7)):
                what = self.rng.random()
                if what < 0.3:
                    self.change()
                elif what < 0.4:
                    self.forget()
                self.fetch()
        except Enough:
            pass
        except Difference as e:
            kind = "at --deepen" if "--deepen" in self.tried else "elsewhere"
            return (
                kind,
                f"{'=' * 100}\nWEIR_SEED={self.seed} WEIR_STATES=1: git {self.tried}\n{e}\n\n" + self.again(),
            )
        finally:
            self.counts["states"] += 1
        shutil.rmtree(self.folder)
        return None

    def again(self):
        return (
            "#!/bin/bash\n"
            "# The same again: give WEIR, and STATES, which is conformance/states.py. "
            "Clients are git and weir; afterwards the servers end.\n"
            'cd "$(mktemp -d)"; pwd\n'
            "\"$STATES\" serve . & trap 'kill $!' EXIT\n"
            "until [ -e urls ]; do sleep 0.1; done; . ./urls\n"
            + "\n".join(self.script)
            + "\nfor c in git weir; do\n"
            "    (git -C $c for-each-ref; cat $c/{.git/,}shallow; "
            "git -C $c rev-list --objects --all --missing=print | cut -c1-41 | sort; "
            "git -C $c fsck --connectivity-only) >$c.txt 2>&1\n"
            "done\n"
            "diff git.txt weir.txt\n"
        )


def main():
    if sys.argv[1:2] == ["upstream"]:
        upstream = Upstream(int(sys.argv[2]), sys.argv[4])
        upstream.written = {
            a + b
            for a in os.listdir(f"{sys.argv[4]}/objects")
            for b in os.listdir(f"{sys.argv[4]}/objects/{a}")
        }
        for _ in range(int(sys.argv[3])):
            upstream.change()
        return upstream.write()
    servers = Servers(
        os.path.abspath(sys.argv[2])
        if sys.argv[1:2] == ["serve"]
        else tempfile.mkdtemp(prefix="weir-states-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    )
    try:
        if sys.argv[1:2] == ["serve"]:
            signal.signal(signal.SIGTERM, lambda *_: sys.exit())
            lines = [f"URL_{side}_{transport}={url}" for (side, transport), url in servers.urls.items()]
            lines += [
                f"export {k}={shlex.quote(v)}"
                for k, v in servers.environment.items()
                if k.startswith("GIT_") or k in ("HOME", "TZ", "LC_ALL")
            ]
            with open(os.path.join(servers.folder, "urls.new"), "w") as f:
                f.write("\n".join(lines))
            os.rename(f.name, os.path.join(servers.folder, "urls"))
            return signal.pause()
        print(f"WEIR_SEED={SEED} WEIR_STATES={STATES}", flush=True)
        begun, counts, found = time.time(), collections.Counter(), collections.Counter()
        with ThreadPoolExecutor(JOBS) as workers:
            for difference in workers.map(lambda n: State(servers, SEED + n, counts).go(), range(STATES)):
                if difference:
                    found[difference[0]] += 1
                    print(difference[1], flush=True)
        print(
            *(f"{n:7} {what}" for what, n in sorted(counts.items())),
            f"{STATES / (time.time() - begun):.2f} states a second",
            sep="\n",
        )
        print(*(f"{n} differences {where}" for where, n in found.items()), sep="\n")
        return 1 if found else 0
    finally:
        servers.end()
        shutil.rmtree(servers.folder) if sys.argv[1:2] != ["serve"] else None


sys.exit(main())
