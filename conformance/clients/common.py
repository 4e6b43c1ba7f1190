"""Shared by all tables: commands, an upstream, weir's servers and git's own, and the text of a cell."""

import contextlib
import os
import shutil
import socket
import subprocess
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
WEIR = os.path.abspath(os.environ.get("WEIR", os.path.join(ROOT, "target", "debug", "weir")))
BUILT = os.path.join(ROOT, "target", "clients")
HOME = os.path.expanduser("~")


class Skipped(Exception):
    """This machine lacks something that a row needs."""


def run(*command, **more):
    return subprocess.run(
        command,
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **{"timeout": 300, **more},
    ).stdout.strip()


def git(repo, *args, **more):
    return run("git", "-C", repo, *args, **more)


def install(*command, **more):
    """Fetches or builds a client.

    The errors of package managers name their registries, so they are not passed on."""
    try:
        return run(*command, **{"timeout": 1500, "env": {**os.environ, "HOME": HOME}, **more})
    except (OSError, subprocess.SubprocessError) as e:
        raise Skipped(
            f"{os.path.basename(command[0])} could not install or build it "
            f"({getattr(e, 'returncode', type(e).__name__)})"
        ) from None


def need(*programs):
    for program in programs:
        if not shutil.which(program):
            raise Skipped(f"there is no {program} here")


def port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def listens(number):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", number)) == 0


@contextlib.contextmanager
def process(command, ports, log, **more):
    """A server that runs while it is needed; it must last that long, and is ended by its process id."""
    with open(log, "a") as out:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, **more)
    try:
        end = time.monotonic() + 30
        while not all(map(listens, ports)):
            assert (
                server.poll() is None and time.monotonic() < end
            ), f"{os.path.basename(command[0])} does not start: {last_line(open(log).read())}"
            time.sleep(0.02)
        yield
        assert (
            server.poll() is None
        ), f"{os.path.basename(command[0])} ended by itself: {last_line(open(log).read())}"
    finally:
        server.terminate()
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            server.kill()
            raise AssertionError(f"{os.path.basename(command[0])} does not end when it is told to") from None


class Pool:
    """A pool with one repository, "it", which mirrors an upstream."""

    def __init__(self, folder, upstream):
        self.folder, self.upstream, self.log = folder, upstream, folder + ".log"
        self.scratch = folder + ".scratch"
        run(WEIR, "-q", "init", folder)
        configuration = os.path.join(folder, "weir.toml")
        with open(configuration) as f:
            before = f.read()
        after = before.replace('#folder = "/dev/shm"', f'folder = "{self.scratch}"')
        assert after != before, "weir.toml has no scratch.folder"
        with open(configuration, "w") as f:
            f.write(after)
        os.makedirs(self.scratch)
        self.weir("add", "--name", "it", upstream)
        self.weir("mirror")

    def weir(self, *args):
        return run(WEIR, "-q", "--pool", self.folder, *args)

    def grow(self, how):
        how(self.upstream)
        self.weir("mirror", "--all")

    @contextlib.contextmanager
    def configured(self, section, lines):
        """The pool with more in a section of weir.toml, for a while."""
        configuration, head = os.path.join(self.folder, "weir.toml"), f"[{section}]\n"
        with open(configuration) as f:
            before = f.read()
        assert head in before, section
        with open(configuration, "w") as f:
            f.write(before.replace(f"#{head}", head, 1).replace(head, f"{head}{lines}\n", 1))
        try:
            yield
        finally:
            with open(configuration, "w") as f:
                f.write(before)

    @contextlib.contextmanager
    def serve(self, **ports):
        """Starts a server that no client has asked before, and gives the repository's URLs by scheme.

        The server has no answers of an earlier one. A warm server once hid that clients which half-close
        their sockets got nothing."""
        shutil.rmtree(self.scratch)
        os.makedirs(self.scratch)
        ports = {"git": port(), "http": port(), **ports}
        addresses = (a for scheme, number in ports.items() for a in (f"--{scheme}", f"127.0.0.1:{number}"))
        with process(
            [WEIR, "-q", "--pool", self.folder, "serve", "--no-mirror", *addresses], ports.values(), self.log
        ):
            yield {scheme: f"{scheme}://127.0.0.1:{number}/it" for scheme, number in ports.items()}
        with open(self.log) as f:
            assert "panicked" not in f.read(), "the server panicked"


APACHE = """
ServerName localhost
ServerRoot {folder}
PidFile {folder}/pid
DefaultRuntimeDir {folder}
ErrorLog {folder}/error.log
Listen 127.0.0.1:{port}
User www-data
Group www-data
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
"""
BACKEND = """
LoadModule env_module /usr/lib/apache2/modules/mod_env.so
LoadModule alias_module /usr/lib/apache2/modules/mod_alias.so
LoadModule cgid_module /usr/lib/apache2/modules/mod_cgid.so
ScriptSock {folder}/cgid
SetEnv GIT_HTTP_EXPORT_ALL 1
SetEnv GIT_CONFIG_NOSYSTEM 1
SetEnv GIT_CONFIG_COUNT 1
SetEnv GIT_CONFIG_KEY_0 safe.directory
SetEnv GIT_CONFIG_VALUE_0 *
ScriptAliasMatch "^/it(\\.git)?(/.*)?$" {backend}$2
SetEnv GIT_PROJECT_ROOT {upstream}
<Location />
Require all granted
</Location>
"""


@contextlib.contextmanager
def apache(folder, number, rest):
    os.makedirs(folder, exist_ok=True)
    os.chmod(folder, 0o755)
    with open(os.path.join(folder, "conf"), "w") as f:
        f.write(APACHE.format(folder=folder, port=number) + rest)
    with process(
        ["apache2", "-DFOREGROUND", "-f", os.path.join(folder, "conf")], [number], os.path.join(folder, "log")
    ):
        yield


@contextlib.contextmanager
def stock(work, upstream):
    """git's own servers of an upstream, to compare with: git daemon, and git-http-backend in Apache."""
    need("apache2")
    ports = {"git": port(), "http": port()}
    git(upstream, "config", "uploadpack.allowFilter", "true")
    git(upstream, "config", "uploadpack.allowAnySHA1InWant", "true")
    core = run("git", "--exec-path")
    daemon = [
        f"{core}/git-daemon",
        "--export-all",
        "--listen=127.0.0.1",
        f"--port={ports['git']}",
        f"--interpolated-path={upstream}",
    ]
    folder = os.path.join(work, "apache-stock")
    backend = BACKEND.format(folder=folder, backend=f"{core}/git-http-backend", upstream=upstream)
    with (
        process(daemon, [ports["git"]], os.path.join(work, "daemon.log")),
        apache(folder, ports["http"], backend),
    ):
        yield {scheme: f"{scheme}://127.0.0.1:{number}/it" for scheme, number in ports.items()}


def last_line(text):
    return (text.strip().splitlines() or ["?"])[-1]


def words(error):
    """What a command said that failed: its last line that is an error, or its last line."""
    lines = [line for line in (error.stderr or error.stdout or "").strip().splitlines() if line.strip()]
    errors = [
        line
        for line in lines
        if line.lower().lstrip().startswith(("fatal", "error", "remote", "npm error", "go: ", '"error'))
    ]
    return last_line((errors or lines or ["?"])[-1])


def cell(action, control=None):
    """Returns what a table says about an action: "well", or why the action failed or was skipped.

    If the action failed and there is a `control`, the text tells how that went with git's own server."""
    try:
        action()
        return "well"
    except Skipped as e:
        return f"skipped: {e}"
    except AssertionError as e:
        why = str(e)
    except subprocess.CalledProcessError as e:
        why = words(e)
    except subprocess.TimeoutExpired as e:
        why = f"not done after {e.timeout:.0f} s"
    why = " ".join(why.replace("|", "/").replace(os.environ["HOME"], "WORK").replace(BUILT, "BUILT").split())[
        :300
    ]
    if not control:
        return f"failed: {why}"
    with_stock = cell(control)
    return f"failed: {why} (with git's own server: {'well' if with_stock == 'well' else with_stock})"


class Table:
    """Rows on standard output as Markdown; it counts what went well, failed, and was skipped."""

    def __init__(self):
        self.counts = {"well": 0, "failed": 0, "skipped": 0}

    def begin(self, *columns):
        print(f"\n| {' | '.join(columns)} |\n|{' --- |' * len(columns)}", flush=True)

    def row(self, names, cells):
        for c in cells:
            if c != "-":
                self.counts[c.split(":")[0]] += 1
        print(f"| {' | '.join([*names, *cells])} |", flush=True)


def commits(upstream, count):
    """Some more commits on the upstream's main branch."""
    for _ in range(count):
        tree = git(
            upstream,
            "mktree",
            input="".join(
                "100644 blob "
                f"{git(upstream, 'hash-object', '-w', '--stdin', input=str(time.time_ns()))}\tfile{n}\n"
                for n in range(3)
            ),
        )
        parent = subprocess.run(
            ["git", "-C", upstream, "rev-parse", "-q", "--verify", "main"], stdout=subprocess.PIPE, text=True
        ).stdout.split()
        git(
            upstream,
            "update-ref",
            "refs/heads/main",
            git(upstream, "commit-tree", "-m", "x", *(f"-p{p}" for p in parent), tree),
        )


def new_upstream(folder):
    run("git", "init", "-q", "--bare", "-b", "main", folder)
    return folder
