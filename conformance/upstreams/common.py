"""Shared by the scripts of this folder: programs to run, repositories in two states, places for servers."""

import dataclasses
import os
import re
import shutil
import signal
import socket
import subprocess
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
WEIR = os.environ.get("WEIR", os.path.join(ROOT, "target", "debug", "weir"))
BUILT = os.path.join(ROOT, "target", "upstreams")
# What Go and Maven have fetched is shared with conformance/clients.
CACHE = os.path.join(ROOT, "target", "clients", "cache")


class Unavailable(Exception):
    """This machine lacks something that a server needs; the message names it."""


def run(*command, **more):
    return subprocess.run(
        command,
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **{"timeout": 300, **more},
    ).stdout.strip()


def git(repository, *args, **more):
    return run("git", "-C", repository, *args, **more)


def words(error, *private):
    """Returns the line in which a failed program says why, fit for a table.

    URLs of registries and paths of this machine are left out."""
    if isinstance(error, subprocess.TimeoutExpired):
        return f"no end after {error.timeout:.0f} s"
    said = error.stderr if isinstance(error, subprocess.CalledProcessError) else str(error)
    lines = said.strip().splitlines() or [f"exit {getattr(error, 'returncode', '?')}"]
    return tidy(next((line for line in lines if line.startswith(("fatal:", "error:"))), lines[-1]), *private)


def tidy(line, *private):
    line = re.sub(r"https?://(?!127\.0\.0\.1|localhost)\S+", "...", line)
    for folder in (*private, BUILT, ROOT):
        line = line.replace(folder, "...")
    return line.replace("|", "/").strip()[:200]


def need(program, package=None):
    """Returns the path of a program. If the program is not there, installs its package.

    The package has the program's name unless told otherwise."""
    path = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])
    if not shutil.which(program, path=path):
        try:
            run(
                "make",
                "--no-print-directory",
                "-C",
                ROOT,
                "packages",
                f"PACKAGES={package or program}",
                timeout=900,
            )
        except subprocess.SubprocessError as e:
            raise Unavailable(f"the package {package or program} cannot be installed: {words(e)}") from e
    return shutil.which(program, path=path)


def port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@dataclasses.dataclass
class Refused:
    """A repository that weir must not get.

    `what` names the case, and `error_class` is the class that weir must report (None: any). `with_settings`
    says whether the row's settings apply."""

    what: str
    url: str
    error_class: str | None
    with_settings: bool = True


@dataclasses.dataclass
class Upstream:
    """A repository at some server: one row of the table."""

    label: str
    url: str
    missing: str
    # What weir is to say of the missing one.
    missing_class: str = "gone"
    # The version of the protocol that git is to get from it, if the row is about that.
    protocol: int | None = None
    # For weir and git; for git alone.
    env: dict = dataclasses.field(default_factory=dict)
    git_env: dict = dataclasses.field(default_factory=dict)
    git_options: tuple = ()
    # Lines for sections of weir.toml.
    toml: dict = dataclasses.field(default_factory=dict)
    # More that is refused.
    refused: list = dataclasses.field(default_factory=list)


class Place:
    """A folder where one server runs, and the repository that it serves."""

    def __init__(self, folder, states):
        self.folder = folder
        self.states = states
        self.processes = []
        self.repositories = os.path.join(folder, "repositories")
        self.repository = os.path.join(self.repositories, "it.git")
        # The git that looks into the repository, and how it calls that; what is to be done after each change.
        self.git = lambda *args, **more: git(self.repository, *args, **more)
        self.changed = lambda: None
        self.cleanup = [folder]
        os.makedirs(self.repositories)
        for state in states:
            shutil.copy(state, self.repositories)

    def write(self, name, text, mode=0o644):
        path = os.path.join(self.folder, name)
        with open(path, "w") as f:
            f.write(text)
        os.chmod(path, mode)
        return path

    def create(self, *options):
        run("git", "init", "-q", "--bare", "-b", "main", *options, self.repository)
        self.fill(0)

    def fill(self, state):
        """Makes the refs, and what they reach, those of a state."""
        bundle = os.path.basename(self.states[state])
        self.git("-c", "gc.auto=0", "fetch", "-q", "--prune", f"../{bundle}", "+refs/*:refs/*")
        self.git("symbolic-ref", "HEAD", ("refs/heads/main", "refs/heads/new")[state])
        self.changed()

    def start(self, *command, ready, **more):
        """Starts a server in a process group of its own.

        Waits until the server listens at a port or has made a socket."""
        log = os.path.join(self.folder, f"log-{len(self.processes)}")
        with open(log, "w") as f:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=f, stderr=f, start_new_session=True, **more
            )
        self.processes.append(process)
        end = time.monotonic() + 60
        while True:
            if process.poll() is not None:
                with open(log) as f:
                    raise RuntimeError(
                        f"{os.path.basename(command[0])} ended: "
                        f"{(f.read().strip().splitlines() or ['?'])[-1]}"
                    )
            if os.path.exists(ready) if isinstance(ready, str) else listens(ready):
                return
            if time.monotonic() > end:
                raise RuntimeError(f"{os.path.basename(command[0])} does not listen")
            time.sleep(0.05)

    def stop(self):
        for process in reversed(self.processes):
            for by in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(process.pid, by)
                    process.wait(10)
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    pass
        for folder in self.cleanup:
            shutil.rmtree(folder, ignore_errors=True)


def listens(number):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", number)) == 0


def snapshot(ask):
    """Refs, HEAD and all reachable objects of a repository, by a function that runs git there."""
    refs = ask("for-each-ref", "--format=%(refname) %(objectname) %(symref)").splitlines()
    objects = sorted({line.split()[0] for line in ask("rev-list", "--objects", "--all").splitlines()})
    return {"refs": refs, "HEAD": [ask("symbolic-ref", "HEAD"), ask("rev-parse", "HEAD")], "objects": objects}


def compare(found, wanted, parts=("refs", "HEAD", "objects")):
    for part in parts:
        lacking, other = set(wanted[part]) - set(found[part]), set(found[part]) - set(wanted[part])
        assert not (lacking or other), (
            f"{part}: {len(lacking)} lacking, "
            f"{len(other)} that upstream has not, {sorted(lacking | other)[0]!r} among them"
        )


def states(work):
    """Makes two bundles: a repository, and the same one after changes.

    The changes are a forced push, a deleted branch, a new one, and an annotated tag."""
    repository = os.path.join(work, "template.git")
    run("git", "init", "-q", "--bare", "-b", "main", repository)
    lines = [f"line {n}" for n in range(500)]

    def commits(branch, count, parent=None):
        for n in range(count):
            lines[n * 7 % len(lines)] = f"{branch} {n} {len(lines)}"
            lines.append(f"{branch} {n} more")
            blob = git(repository, "hash-object", "-w", "--stdin", input="\n".join(lines))
            other = git(repository, "hash-object", "-w", "--stdin", input=f"{branch} {n}")
            folder = git(repository, "mktree", input=f"100644 blob {other}\tfile\n100755 blob {blob}\tlong\n")
            tree = git(
                repository,
                "mktree",
                input=f"100644 blob {blob}\tlong\n40000 tree {folder}\tfolder\n120000 blob {other}\tlink\n",
            )
            parent = git(
                repository, "commit-tree", "-m", f"{branch} {n}", *(["-p", parent] if parent else []), tree
            )
        git(repository, "update-ref", f"refs/heads/{branch}", parent)

    def tag(name, target):
        git(repository, "tag", "-a", "-m", name, name, target)

    commits("main", 30)
    commits("side/one", 8, git(repository, "rev-parse", "main~10"))
    commits("going", 5, git(repository, "rev-parse", "main~2"))
    tag("v1", "main~3")
    tag("v1-again", "v1")
    git(repository, "tag", "light", "main~5")
    git(repository, "notes", "add", "-m", "a note", "main~1")
    git(repository, "update-ref", "refs/pull/1/head", "side/one~2")
    first, second = (os.path.join(work, f"{name}.bundle") for name in ("first", "second"))
    git(repository, "bundle", "create", "-q", first, "--all")
    commits("main", 6, git(repository, "rev-parse", "main~4"))
    commits("new", 4, git(repository, "rev-parse", "side/one"))
    git(repository, "update-ref", "-d", "refs/heads/going")
    tag("v2", "main~1")
    git(repository, "bundle", "create", "-q", second, "--all")
    return first, second
