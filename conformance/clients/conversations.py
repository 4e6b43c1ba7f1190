"""Runs stock git against a fresh weir and against git's own server: both must leave the same state."""

import os
import re
import shutil
import subprocess

from common import cell, git, run

COLUMNS = ("ls-remote", "--mirror", "clone", "depth 1", "unshallow", "blob:none", "fetch", "push", "missing")


class Git:
    """A git, maybe in a folder that is the root of another system."""

    def __init__(self, name, home, root=""):
        self.name, self.home, self.root, self.more = name, home, root, {}
        os.makedirs(home, exist_ok=True)

    def inside(self, path):
        return path.removeprefix(self.root)

    def start(self, folder, *args, **more):
        env = {
            **os.environ,
            "HOME": self.inside(self.home),
            "GIT_TERMINAL_PROMPT": "0",
            "LC_ALL": "C",
            **self.more,
        }
        if self.root:
            command = ["chroot", self.root, "env", "-C", self.inside(folder), "git", *args]
            env["PATH"] = "/usr/sbin:/usr/bin:/sbin:/bin"
        else:
            command = ["git", *args]
            more["cwd"] = folder
        return subprocess.run(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120, **more
        )

    def __call__(self, folder, *args):
        done = self.start(folder, *args)
        done.check_returncode()
        return done.stdout


def history(upstream):
    """Makes merges, tags of every kind, and many branches.

    A request for all branches exceeds git's HTTP buffer."""
    stream = []

    def commit(branch, mark, parents, path):
        stream.append(
            f"commit refs/heads/{branch}\nmark :{mark}\ncommitter C <c@example.com> "
            f"{1700000000 + 60 * mark} +0000\ndata 2\nx\n"
        )
        stream.extend(f"{word} :{parent}\n" for word, parent in zip(("from", "merge"), parents))
        text = "".join(f"line {n} of {mark // 7 if n % 5 else mark}\n" for n in range(40))
        stream.append(f"M 100644 inline {path}\ndata {len(text)}\n{text}\n")

    for mark in range(1, 301):
        parents = [mark - 1] if mark > 1 else []
        if mark % 50 == 0:
            parents.append(mark - 20)
        commit("main", mark, parents, f"d{mark % 5}/e{mark % 3}/f{mark % 11}")
    for mark in range(301, 1701):
        commit(f"topic/{mark % 40}/{mark}", mark, [(mark * 7) % 300 + 1], f"g{mark % 9}/h")
    run("git", "-C", upstream, "fast-import", "--quiet", input="".join(stream))
    git(upstream, "tag", "light", "main~20")
    git(upstream, "tag", "-a", "-m", "one", "v1", "main~10")
    git(upstream, "tag", "-a", "-m", "of a tag", "tag-of-tag", "v1")
    git(upstream, "tag", "-a", "-m", "of a file", "tag-of-file", "main:d1/e1/f1")
    git(upstream, "update-ref", "refs/notes/other", "main~30")


def grow(upstream):
    """New commits, a branch that is rewritten, one that goes, a tag, and a branch from an old commit."""
    before = int(git(upstream, "rev-list", "--count", "main"))

    def commit(parent):
        blob = git(upstream, "hash-object", "-w", "--stdin", input=f"after {parent}\n")
        name = git(upstream, "rev-parse", "--short", parent)
        tree = git(
            upstream, "mktree", input=git(upstream, "ls-tree", parent) + f"\n100644 blob {blob}\tnew-{name}\n"
        )
        return git(upstream, "commit-tree", "-m", "y", "-p", git(upstream, "rev-parse", parent), tree)

    for _ in range(3):
        git(upstream, "update-ref", "refs/heads/main", commit("main"))
    git(upstream, "update-ref", "refs/heads/topic/21/301", commit("main~50"))
    goes = git(upstream, "for-each-ref", "--count=1", "--format=%(refname)", "refs/heads/topic/22")
    git(upstream, "update-ref", "-d", goes)
    git(upstream, "tag", "-a", "-m", "two", f"v2-{before}", "main~1")
    git(upstream, "update-ref", f"refs/heads/old-{before}", commit("main~200"))


def state(repo):
    """Refs, all that they reach and have not here, and where history is cut off: as git tells it."""
    shallow = os.path.join(git(repo, "rev-parse", "--absolute-git-dir"), "shallow")
    return {
        "refs": git(repo, "for-each-ref", "--format=%(refname) %(objectname) %(symref)"),
        "HEAD": git(repo, "symbolic-ref", "HEAD"),
        "objects": sorted(
            git(repo, "rev-list", "--objects", "--no-object-names", "--all", "--missing=print").split()
        ),
        "cut off": sorted(open(shallow).read().split()) if os.path.exists(shallow) else [],
    }


def from_clone(name, *fetch):
    """Goes on from a clone that was made before, now from this server."""

    def step(client, url, folder, target):
        source = os.path.join(folder, name)
        assert os.path.exists(source), f"there is no {name} to go on from"
        shutil.copytree(source, os.path.join(folder, target), symlinks=True)
        git(os.path.join(folder, target), "config", "remote.origin.url", url)
        client(os.path.join(folder, target), *fetch)

    return step


def clone(*options):
    return lambda client, url, folder, target: client(folder, "clone", "-q", *options, url, target)


def partial(client, url, folder, target):
    client(folder, "clone", "-q", "--filter=blob:none", url, target)
    # Files of older commits are fetched when they are looked at.
    client(os.path.join(folder, target), "log", "-p", "-3", "--first-parent", "v1")


# The columns and their steps: a name for the folder, and what is done. Before the column "fetch", the
# upstream changes (`grow`).
STEPS = (
    ("--mirror", (("mirror", clone("--mirror")),)),
    ("clone", (("clone", clone()), ("chunked", clone("-c", "http.postBuffer=65536", "--no-checkout")))),
    ("depth 1", (("depth", clone("--depth", "1")),)),
    ("unshallow", (("unshallow", from_clone("depth", "fetch", "-q", "--unshallow")),)),
    ("blob:none", (("partial", partial),)),
    (
        "fetch",
        (
            ("clone-fetched", from_clone("clone", "fetch", "-q", "--prune", "--tags", "--force")),
            ("mirror-fetched", from_clone("mirror", "fetch", "-q", "--prune")),
            ("depth-fetched", from_clone("depth", "fetch", "-q")),
            ("partial-fetched", from_clone("partial", "fetch", "-q", "--prune")),
        ),
    ),
)


def refused(client, folder, args, pattern):
    done = client.start(folder, *args)
    assert done.returncode != 0, f"git {args[0]} was not refused"
    assert re.search(pattern, done.stderr), f"refused without the right words: {done.stderr.strip()[-200:]}"


def cells(client, place, pool, fresh, stock_url):
    """The cells of one row. "fresh" is a context with the URL at a weir that has answered nobody yet."""
    upstream = pool.upstream
    folders = [os.path.join(place, "weir"), os.path.join(place, "stock")]
    for folder in folders:
        os.makedirs(folder)

    def same(name, step):
        with fresh() as url:
            step(client, url, folders[0], name)
        step(client, stock_url, folders[1], name)
        repos = [os.path.join(folder, name) for folder in folders]
        git(repos[0], "fsck", "--full", "--strict")
        got, expected = map(state, repos)
        for what in expected:
            assert got[what] == expected[what], f"{name}: {what} are not as from git's own server"
        if name.startswith("mirror"):
            assert got == state(upstream), f"{name}: not as upstream"

    def refs():
        args = ("ls-remote", "--symref")
        with fresh() as url:
            got = client(folders[0], *args, url)
        assert got == client(folders[1], *args, stock_url), "other refs than git's own server lists"

    def push():
        with fresh() as url:
            refused(
                client,
                os.path.join(folders[0], "clone"),
                ("push", url, "HEAD:refs/heads/pushed"),
                "read-only mirror",
            )
            assert "refs/heads/pushed" not in client(folders[0], "ls-remote", url), "the push was taken"

    def missing():
        with fresh() as url:
            refused(client, folders[0], ("clone", url.rsplit("/", 1)[0] + "/missing", "missing"), MISSING)

    yield cell(refs)
    for column, steps in STEPS:
        if column == "fetch":
            pool.grow(grow)

        def all_of_them():
            for name, step in steps:
                same(name, step)

        yield cell(all_of_them)
    yield cell(push)
    yield cell(missing)


MISSING = "not found|not exported|no such repository"
