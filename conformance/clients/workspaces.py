"""Tools that people use in a working tree, in a workspace and in a clone of the same repository.

What a tool says and leaves behind is to be the same in both."""

import contextlib
import hashlib
import os
import queue
import random
import shutil
import subprocess
import threading
import time

from common import BUILT, HERE, HOME, WEIR, Skipped, cell, git, install, need, run
from libraries import python_client

FILES = 300
# The number of random edits in a row of the table.
STEPS = int(os.environ.get("WEIR_STEPS", 80))
JJ_VERSION = "0.45.1"


def jj_program():
    """Jujutsu has no package: cargo builds it from its crate, in some ten minutes."""
    need("cargo")
    program = os.path.join(BUILT, "jj", "bin", "jj")
    if not os.path.exists(program):
        folder = os.path.join(BUILT, "jj")
        options = ("--locked", "--quiet", "--root", folder, "--target-dir", f"{folder}/target", "--bin", "jj")
        install("cargo", "install", "jj-cli", "--version", JJ_VERSION, *options, timeout=3600)
        shutil.rmtree(f"{folder}/target")
    return program


def watchers():
    need("node", "npm")
    folder = os.path.join(BUILT, "watchers")
    if not os.path.exists(os.path.join(folder, "node_modules", "chokidar")):
        os.makedirs(folder, exist_ok=True)
        npm = ("npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", folder)
        install(*npm, "@parcel/watcher", "chokidar", cwd=folder, env={**os.environ, "HOME": HOME})
    return ["env", f"NODE_PATH={folder}/node_modules", "node", os.path.join(HERE, "watch_client.cjs")]


def upstream(folder):
    """A repository of two commits, "older" and "main": every second file differs."""
    run("git", "init", "-q", "-b", "main", folder)
    for step in (1, 2):
        for n in range(0, FILES, step):
            path = os.path.join(folder, f"d{n % 9}", f"e{n % 4}", f"f{n}")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "a") as f:
                f.write(f"{step} {n}\n" * (n % 20 + 1))
        for n in range(9):
            os.makedirs(os.path.join(folder, f"n{n}"), exist_ok=True)
            with open(os.path.join(folder, f"n{n}", "g0"), "w") as f:
                f.write("\n")
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", str(step))
    git(folder, "branch", "older", "main~1")
    return folder


@contextlib.contextmanager
def both(work):
    """A workspace and a clone."""
    source, folders = os.path.join(work, "source"), [os.path.join(work, name) for name in ("ours", "plain")]
    shutil.rmtree(folders[1], ignore_errors=True)
    if not os.path.exists(source):
        upstream(source)
    run(WEIR, "-q", "workspace", "add", source, folders[0])
    try:
        run("git", "clone", "-q", source, folders[1])
        yield folders
    finally:
        run(WEIR, "-q", "workspace", "rm", "--force", folders[0])


def tree(folder):
    """The files of a working tree: what is in each, and its mode."""
    found = {}
    for at, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in (".git", ".jj")]
        for name in files:
            path = os.path.join(at, name)
            with open(path, "rb") as f:
                content = hashlib.sha1(f.read()).hexdigest()
            found[os.path.relpath(path, folder)] = content, os.lstat(path).st_mode
    return found


def edit(rng, folders):
    """Writes, adds, deletes or renames a file, the same one in all folders."""
    files, kind, text = sorted(tree(folders[-1])), rng.randrange(4), f"{rng.random()}\n"
    old, new = rng.choice(files), f"n{rng.randrange(9)}/g{rng.randrange(1, 40)}"
    for folder in folders:
        at, to = os.path.join(folder, old), os.path.join(folder, new)
        os.makedirs(os.path.dirname(to), exist_ok=True)
        if kind == 0:
            os.remove(at)
        elif kind == 1:
            os.rename(at, to)
        elif kind == 2:
            # As editors write: another file takes the name.
            with open(f"{at}~", "w") as f:
                f.write(text)
            os.rename(f"{at}~", at)
        else:
            with open(to, "a") as f:
                f.write(text)


def assert_same(what, ours, plain, after):
    assert ours == plain, f"{what} after {after}: {str(ours)[:200]}, and in a clone {str(plain)[:200]}"


def jj(work):
    program = jj_program()
    with open(os.path.join(work, "jj.toml"), "w") as f:
        f.write('ui.paginate = "never"\nui.color = "never"\n')
    times = {name: "2026-11-30T00:00:00Z" for name in ("JJ_TIMESTAMP", "JJ_OP_TIMESTAMP")}
    env = {**os.environ, **times, "JJ_CONFIG": os.path.join(work, "jj.toml"), "JJ_RANDOMNESS_SEED": "7"}
    env.update(JJ_USER="C", JJ_EMAIL="c@example.com")
    rng = random.Random(1)

    def call(folder, *args):
        done = subprocess.run(
            [program, *args], cwd=folder, env=env, capture_output=True, text=True, timeout=300
        )
        return done.returncode, done.stdout

    with both(work) as folders:
        for folder in folders:
            assert call(folder, "git", "init", "--colocate")[0] == 0, "no 'jj git init'"
        for step in range(STEPS):
            edit(rng, folders)
            log = call(folders[1], "log", "--no-graph", "-T", 'commit_id ++ "\n"', "-r", "all() ~ root()")[1]
            commit = rng.choice(log.split())
            command = rng.choice(
                [
                    ["st"],
                    ["commit", "-m", f"c{step}"],
                    ["new", commit],
                    ["new", "-m", "merge", commit, "@"],
                    ["edit", "--ignore-immutable", commit],
                    ["describe", "-m", f"d{step}"],
                    ["squash", "-m", "s"],
                    ["restore", "--from", commit],
                    ["rebase", "-d", commit],
                    ["revert", "-r", commit, "-d", "@"],
                    ["abandon"],
                    ["undo"],
                ]
            )
            after = " ".join(["jj", *command])
            assert_same("the exit code", *(call(folder, *command)[0] for folder in folders), after)
            assert_same("'jj diff'", *(call(folder, "diff", "--summary") for folder in folders), after)
            assert_same("HEAD", *(git(folder, "rev-parse", "HEAD") for folder in folders), after)
            status = (git(folder, "status", "--porcelain", "-uall") for folder in folders)
            assert_same("'git status'", *status, after)
            assert_same("files", *map(tree, folders), after)


def status_by(library):
    def check(work):
        command, rng = python_client(library), random.Random(2)
        command[-1] = os.path.join(HERE, "status_client.py")
        with both(work) as folders:
            for step in range(STEPS // 8):
                said = [run(*command, library, folder) for folder in folders]
                assert_same("its status", *said, f"step {step}")
                for _ in range(8):
                    edit(rng, folders)
                if step % 3 == 2:
                    for folder in folders:
                        git(folder, "add", "-A")

    return check


class Watch:
    """A watcher of a folder, and the paths that it has told."""

    def __init__(self, command, which, folder):
        self.told, self.more = set(), queue.Queue()
        self.process = subprocess.Popen(
            [*command, which, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        threading.Thread(target=self.read).start()
        assert self.more.get(timeout=60) == "ready"

    def read(self):
        for line in self.process.stdout:
            self.more.put(line.strip())

    def misses(self, paths):
        """The paths of which it tells nothing, however long it is waited for."""
        end = time.monotonic() + 20
        while not paths <= self.told and time.monotonic() < end:
            with contextlib.suppress(queue.Empty):
                self.told.add(self.more.get(timeout=1))
        return sorted(paths - self.told)

    def end(self):
        self.process.stdin.close()
        self.process.wait(60)


def watch_by(which):
    def check(work):
        command, rng = watchers(), random.Random(3)
        with both(work) as (folder, _):
            watch = Watch(command, which, folder)
            try:
                for step in range(STEPS):
                    before = tree(folder)
                    edit(rng, [folder])
                    after = tree(folder)
                    paths = before.keys() | after.keys()
                    changed = {path for path in paths if before.get(path) != after.get(path)}
                    watch.told.clear()
                    missed = watch.misses(changed)
                    assert not missed, f"nothing told of {missed[:5]} after step {step}"
                git(folder, "stash", "-q", "-u")
                watch.told.clear()
                changed = set(git(folder, "diff", "--name-only", "origin/older").splitlines())
                run(WEIR, "-q", "workspace", "switch", folder, "older")
                missed = watch.misses(changed)
                assert not missed, f"nothing told of {missed[:5]} after a switch"
            finally:
                watch.end()

    return check


CLIENTS = {
    "jj": jj,
    "status by pygit2": status_by("pygit2"),
    "status by dulwich": status_by("dulwich"),
    "watch by parcel": watch_by("parcel"),
    "watch by chokidar": watch_by("chokidar"),
}


def table(out, work, wanted):
    # A working tree of a clone may be anywhere, a workspace only where this system mounts one.
    doctor = subprocess.run([WEIR, "workspace", "doctor"], capture_output=True)
    if doctor.returncode:
        raise Skipped("'weir workspace doctor' says that there are no workspaces here")
    os.environ["XDG_STATE_HOME"] = os.path.join(work, "state")
    out.begin("tool", "works in a workspace as in a clone")
    for name in wanted:
        out.row([name], [cell(lambda: CLIENTS[name](work))])
