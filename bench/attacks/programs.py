"""Attacks on `weir daemon`, on `weir daemon --inetd` and on `weir shell`."""

import os
import select
import shutil
import socket
import subprocess
import threading

from attacks import stage, wire
from attacks.computed import history
from attacks.doors import open_lists

# Programs that one attack starts.
STARTED_MAX = 200


class Inetd(stage.Server):
    """Starts `weir daemon --inetd` for each connection, as inetd does."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        super().__init__(None, self.listener.getsockname()[1])
        self.args = [stage.WEIR, "daemon", "--inetd", "--export-all", f"--base-path={stage.base()}"]
        self.children, self.ended = [], threading.Event()
        self.thread = threading.Thread(target=self.accept, daemon=True)
        self.thread.start()

    def accept(self):
        while not self.ended.is_set():
            if select.select([self.listener], [], [], 0.1)[0]:
                connection, _ = self.listener.accept()
                self.children.append(
                    subprocess.Popen(self.args, stdin=connection, stdout=connection, stderr=self.log)
                )
                connection.close()
            self.children = [child for child in self.children if child.poll() is None]

    def stop(self):
        self.ended.set()
        self.thread.join()
        self.listener.close()
        for child in self.children:
            child.kill()
            child.wait()
        super().stop()


class Shell(stage.Server):
    """Stands for sshd: starts `weir shell` for each connection, by way of GIT_SSH_COMMAND."""

    def __init__(self):
        super().__init__(None, None)
        self.script = os.path.join(stage.work, "ssh")
        with open(self.script, "w") as f:
            f.write(
                f'#!/bin/sh\nfor last; do :; done\nexec {stage.WEIR} --pool {stage.pool} shell -c "$last"\n'
            )
        os.chmod(self.script, 0o755)


def any_file(attack):
    """Finding 14: a file of 1 GiB that is no repository."""
    while attack.goes_on():
        asked = []
        for _ in range(3):
            with attack.tolerant():
                s = wire.connect(attack.address(), attack.git_port)
                s.sendall(wire.greeting("backup.bin", 0))
                asked.append(s)
        attack.pause(0.2)


def truncated(attack):
    """Finding 21: a pack that is cut short while it is sent, and made whole again."""
    folder = os.path.join(stage.base(), "theirs/objects/pack")
    pack = next(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".pack"))
    copy = os.path.join(stage.work, "copy.pack")
    shutil.copyfile(pack, copy)
    os.chmod(pack, 0o644)
    request = wire.command("fetch", f"want {attack.given['blobs']}", "ofs-delta", "done")
    while attack.goes_on():
        asked = []
        for _ in range(4):
            with attack.tolerant():
                s = wire.talk(attack.address(), attack.git_port, "theirs", 2, window=64 << 10)
                s.sendall(request)
                s.recv(1 << 16)
                asked.append(s)
        os.truncate(pack, os.path.getsize(copy) // 4)
        attack.pause(0.1)
        for s in asked:
            with attack.tolerant():
                wire.drain(s, min(attack.until, attack.now() + 5))
                s.close()
        attack.pause(0.5)
        # The same file, as whoever maps it sees.
        with open(pack, "r+b") as to, open(copy, "rb") as f:
            shutil.copyfileobj(f, to, 1 << 20)
        attack.pause(0.5)


def request_for_sizes(attack):
    return wire.command("object-info", "size", *(f"oid {oid}" for oid in attack.given["oids"]))


def start_shell(repository, request):
    """Starts `weir shell` for a repository and sends it a request. Returns the process."""
    child = subprocess.Popen(
        [stage.WEIR, "--pool", stage.pool, "shell", "-c", f"git-upload-pack '{repository}'"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "GIT_PROTOCOL": "version=2"},
    )
    child.stdin.write(request)
    child.stdin.flush()
    return child


def shell_sizes(attack):
    """Finding 20: `object-info` as in 1 over `weir shell`; half of those who ask hang up."""
    request, started = request_for_sizes(attack), []
    while attack.goes_on() and len(started) < STARTED_MAX:
        for n in range(4):
            with attack.tolerant():
                child = start_shell("rewritten", request)
                if n % 2:
                    child.stdin.close()
                    child.stdout.close()
                started.append(child)
        attack.pause(1)
        for child in started:
            child.poll()
    attack.rest()


def shell_slow(attack):
    """The same, fifty who read nothing of a clone without its blobs that is worked out for each."""
    request = wire.command(
        "fetch", f"want {attack.given['blobs']}", "filter blob:limit=100m", "ofs-delta", "done"
    )
    started = []
    while attack.goes_on() and len(started) < 50:
        with attack.tolerant():
            child = start_shell("blobs", request)
            started.append(child)
        attack.pause(0.1)
    attack.rest()


def inetd_sizes(attack):
    """The same as the first, over `weir daemon --inetd`."""
    request, asked = request_for_sizes(attack), []
    for _ in range(STARTED_MAX // 4):
        if not attack.goes_on():
            return
        for n in range(4):
            with attack.tolerant():
                s = wire.talk(attack.address(), attack.git_port, "rewritten", 2)
                s.sendall(request)
                if n % 2:
                    s.close()
                else:
                    asked.append(s)
        asked = [s for s in asked if wire.is_open(s)]
        attack.pause(1)
    attack.rest()


def prepare():
    return {
        "oids": history("rewritten", 10_000),
        "blobs": stage.git(stage.upstream("blobs"), "rev-parse", "main"),
    }


FOLDER = ["blobs", "rewritten"]
# With the server that each is about.
ATTACKS = [
    (
        "file",
        "14: `weir daemon`: a file of 1 GiB that is no repository",
        any_file,
        FOLDER,
        dict,
        1,
        stage.daemon,
    ),
    (
        "truncated",
        "21: `weir daemon`: a pack cut short while it is sent",
        truncated,
        FOLDER,
        prepare,
        1,
        stage.daemon,
    ),
    (
        "directory",
        "5: `weir daemon`: lists of 200,000 refs of a directory, 250 at once",
        open_lists,
        [*FOLDER, "refs"],
        dict,
        1,
        stage.daemon,
    ),
    (
        "inetd",
        "20: `weir daemon --inetd`: sizes of 10,000 objects, half hung up",
        inetd_sizes,
        FOLDER,
        prepare,
        1,
        Inetd,
    ),
    (
        "shell",
        "20: `weir shell`: sizes of 10,000 objects, half hung up",
        shell_sizes,
        FOLDER,
        prepare,
        1,
        Shell,
    ),
    (
        "shell-slow",
        "20: `weir shell`: 50 packs of their own, not read",
        shell_slow,
        FOLDER,
        prepare,
        1,
        Shell,
    ),
]
