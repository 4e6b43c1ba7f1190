"""Shared by the conformance scripts with troubles: checks, pools of weir, loopback servers, PostgreSQL."""

import glob
import json
import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WEIR = os.path.abspath(os.environ.get("WEIR", os.path.join(ROOT, "target", "debug", "weir")))
COMMAND_SECONDS_MAX = 150


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(what, seconds, is_so):
    end = time.time() + seconds
    while not is_so():
        if time.time() > end:
            sys.exit(f"{what}: not within {seconds} s")
        time.sleep(0.05)


def listens(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


def end(process):
    if process and process.poll() is None:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Checks:
    """What was checked, and what came of it."""

    def __init__(self):
        self.rows, self.missed = [], []

    def part(self, name):
        self.name = name
        return self

    def check(self, what, is_met, detail=""):
        """One line of the table; `detail` is told where the check is missed, and kept short in the table."""
        self.rows.append((self.name, what, bool(is_met)))
        if not is_met:
            self.missed.append((self.name, what, str(detail)))
            print(f"MISSED  {self.name}: {what}\n        {str(detail)[:2000]}", file=sys.stderr, flush=True)
        return bool(is_met)

    def same(self, what, found, expected):
        return self.check(what, found == expected, f"found {found!r}, expected {expected!r}")

    def table(self):
        lines = ["| part | check | |", "|---|---|---|"]
        return lines + [
            f"| {part} | {what} | {'met' if is_met else '**missed**'} |" for part, what, is_met in self.rows
        ]


class Said:
    """What a command said, and how it ended."""

    def __init__(self, words, done, seconds):
        self.words, self.out, self.err, self.code, self.seconds = (
            words,
            done.stdout,
            done.stderr,
            done.returncode,
            seconds,
        )

    def json(self):
        return json.loads(self.out)

    def lines(self):
        """Of several JSON values, one a line."""
        return [json.loads(line) for line in self.out.splitlines() if line.startswith("{")]

    @property
    def all(self):
        return self.out + self.err

    def log(self, lines_max=60):
        """For a person to read: the command and what it said."""
        lines = self.all.splitlines()
        more = [f"  ... {len(lines) - lines_max} lines more"] if len(lines) > lines_max else []
        head = f"$ weir {' '.join(self.words)}   (ended with {self.code} after {self.seconds:.1f} s)"
        print("\n".join([head] + [f"  {line}" for line in lines[:lines_max]] + more), flush=True)
        return self


class Pool:
    """A pool of weir's in a folder of its own."""

    def __init__(self, folder, catalog=None):
        self.path, self.home = os.path.join(folder, "pool"), folder
        os.makedirs(folder, exist_ok=True)
        words = ["init"] + (["--catalog", catalog] if catalog else [])
        if self(*words).code:
            sys.exit(f"weir {' '.join(words)} failed")

    def environment(self):
        kept = {
            k: v
            for k, v in os.environ.items()
            if not re.match(r"(WEIR_|GIT_|https?_proxy|all_proxy|no_proxy)", k, re.IGNORECASE)
        }
        return {
            **kept,
            "WEIR_POOL": self.path,
            "HOME": self.home,
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_CONFIG_NOSYSTEM": "1",
        }

    def __call__(self, *words, stdin=None):
        started = time.time()
        try:
            done = subprocess.run(
                [WEIR, *words],
                input=stdin,
                capture_output=True,
                text=True,
                env=self.environment(),
                cwd=self.home,
                timeout=COMMAND_SECONDS_MAX,
            )
        except subprocess.TimeoutExpired:
            done = subprocess.CompletedProcess(words, -1, "", f"not done after {COMMAND_SECONDS_MAX} s")
        return Said(words, done, time.time() - started)

    def start(self, *words, log):
        """Runs beside; what it says goes to the file `log`."""
        with open(log, "w") as f:
            return subprocess.Popen([WEIR, *words], stdout=f, stderr=f, env=self.environment(), cwd=self.home)

    def configure(self, text):
        """Takes the place of all that the pool is told, but for its catalog."""
        path = os.path.join(self.path, "weir.toml")
        with open(path) as f:
            catalog = re.search(r"^url = .*$", f.read().split("[mirror]")[0], re.MULTILINE)
        with open(path, "w") as f:
            f.write((f"[catalog]\n{catalog[0]}\n[mirror]\n" if catalog else "[mirror]\n") + text)


class Postgres:
    """A PostgreSQL server on a free port, with its data in a temporary folder.

    If PostgreSQL is not there, it is installed."""

    def __init__(self):
        if not glob.glob("/usr/lib/postgresql/*/bin/initdb"):
            subprocess.run(
                ["make", "--no-print-directory", "packages", "PACKAGES=postgresql"], cwd=ROOT, check=True
            )
        found = glob.glob("/usr/lib/postgresql/*/bin")
        self.programs = max(found, key=lambda path: int(path.split("/")[-2]))
        self.folder, self.port, self.process = tempfile.mkdtemp(prefix="weir-postgres-"), free_port(), None
        self.data = os.path.join(self.folder, "data")
        self.user = {}
        if os.geteuid() == 0:
            # It does not run as root: then as the user it came with.
            owner = pwd.getpwnam("postgres")
            os.chown(self.folder, owner.pw_uid, owner.pw_gid)
            self.user = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
        subprocess.run(
            [
                f"{self.programs}/initdb",
                "--username=weir",
                "--auth=trust",
                "--no-sync",
                "--no-instructions",
                "--encoding=UTF8",
                "--locale=C.UTF-8",
                "-D",
                self.data,
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd="/",
            **self.user,
        )
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [
                f"{self.programs}/postgres",
                "-D",
                self.data,
                "-k",
                self.folder,
                "-p",
                str(self.port),
                "-c",
                "fsync=off",
                "-c",
                "listen_addresses=127.0.0.1",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            **self.user,
        )
        wait_for("PostgreSQL", 60, lambda: self.sql("SELECT 1") is not None)

    def sql(self, text):
        done = subprocess.run(
            [
                f"{self.programs}/psql",
                "-h",
                "127.0.0.1",
                "-p",
                str(self.port),
                "-U",
                "weir",
                "-d",
                "postgres",
                "-XqAt",
                "-c",
                text,
            ],
            capture_output=True,
            text=True,
        )
        return None if done.returncode else done.stdout.strip()

    def schema(self, name):
        """The URL of a new schema in it."""
        self.sql(f"CREATE SCHEMA {name}")
        return (
            f"postgres://weir@127.0.0.1:{self.port}/postgres?sslmode=disable&options=-csearch_path%3D{name}"
        )

    def stop(self):
        end(self.process)

    def close(self):
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
