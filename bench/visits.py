#!/usr/bin/env python3
"""Measures the memory of one visit beside the bytes that its upstream sends: visits.py [UPSTREAM...].

Prints a Markdown table. Each upstream is the costliest of its kind that we know of. A process of its own
(`weir mirror`) visits it once. The visit's memory is the most that this process has beside its file maps,
less what a visit to an upstream without refs takes.

  WEIR=PROGRAM          the weir to ask (target/release/weir)
  WEIR_BENCH_SMOKE=1    small upstreams: that everything runs, not how it stands

Exits with 1 if a visit takes more than 20 bytes for each byte that was sent, plus 8 MiB that any visit may
take; or if it takes more than 256 MiB. Objects that are larger themselves, or are packed so well that the
bytes sent say nothing, are an exception: they may take 1 GiB (limits.held_bytes_max) besides.
"""

import contextlib
import gzip
import hashlib
import random
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib

from attacks import stage, wire

BYTES_A_BYTE_MAX = 20
ANY_VISIT = 8 << 20
VISIT_MAX = 256 << 20
HELD_MAX = (1 << 30) + VISIT_MAX
VISIT_S = 120
KINDS = {"commit": 1, "tree": 2, "blob": 3, "tag": 4}
MIB = 1 << (10 if stage.SMOKE else 20)
CAPABILITIES = "side-band-64k ofs-delta shallow no-progress"


def oid_of(kind, data):
    return hashlib.sha1(f"{kind} {len(data)}\0".encode() + data).digest()


def entry(kind, data, level=6):
    return wire.number(len(data), 4, KINDS[kind] << 4) + zlib.compress(data, level)


def delta(base, base_len, result_len, changes):
    changes = wire.number(base_len, 7) + wire.number(result_len, 7) + changes
    return wire.number(len(changes), 4, 7 << 4) + base + zlib.compress(changes)


def copies(of, length):
    """Instructions that copy the first `length` bytes, in pieces as large as there are."""
    out = b""
    for at in range(0, length, 0x800000):
        out += b"\xff" + struct.pack("<I", at) + struct.pack("<I", min(0x800000, length - at))[:3]
    return out + of


def pack(entries):
    body = b"PACK" + struct.pack(">II", 2, len(entries)) + b"".join(entries)
    return body + hashlib.sha1(body).digest()


def history(tree_entries, more, message=b"x", tree=None):
    """A pack with a commit, its tree, and `more`; and the commit's id."""
    tree = tree or b"".join(b"%s %s\0%s" % e for e in tree_entries)
    commit = b"tree %s\nauthor A <a@x> 1 +0000\ncommitter A <a@x> 1 +0000\n\n%s" % (
        oid_of("tree", tree).hex().encode(),
        message,
    )
    return oid_of("commit", commit), pack([entry("commit", commit), entry("tree", tree), *more])


def refs_of(tip, names=("refs/heads/main",)):
    first, *rest = names
    lines = [f"{tip.hex()} {first}\0{CAPABILITIES}\n", *(f"{tip.hex()} {name}\n" for name in rest)]
    return b"".join(map(wire.pkt, lines)) + b"0000"


def sideband(data, band=1):
    return (
        b"".join(wire.pkt(bytes([band]) + data[at : at + 65515]) for at in range(0, len(data), 65515))
        + b"0000"
    )


def sent(tip, packed):
    return [refs_of(tip), wire.pkt("NAK\n") + sideband(packed)]


def delta_tree():
    """A blob of zeros, and forty times two deltas, of which one waits while the other is worked on."""
    size, made = 64 * MIB, []
    base = bytes(size)
    zeros, made = oid_of("blob", base), [entry("blob", base)]
    files, at, length = [(b"100644", b"f", zeros)], zeros, size
    for level in range(40):
        grown = base + b"x" * (length - size)
        other, next_one = oid_of("blob", grown + b"y"), oid_of("blob", grown + b"x")
        made += [
            delta(at, length, length + 1, copies(b"\x01y", length)),
            delta(at, length, length + 1, copies(b"\x01x", length)),
        ]
        files += [(b"100644", b"o%d" % level, other), (b"100644", b"n%d" % level, next_one)]
        at, length = next_one, length + 1
    return sent(*history(sorted(files, key=lambda f: f[1]), made))


def large_delta():
    """A blob of 400 MiB zeros, and a delta on it."""
    size = 400 * MIB
    base = bytes(size)
    zeros, other = oid_of("blob", base), oid_of("blob", base + b"x")
    return sent(
        *history(
            [(b"100644", b"a", zeros), (b"100644", b"b", other)],
            [entry("blob", base), delta(zeros, size, size + 1, copies(b"\x01x", size))],
        )
    )


def zeros():
    data = bytes(512 * MIB)
    return sent(*history([(b"100644", b"a", oid_of("blob", data))], [entry("blob", data)]))


def small_blobs():
    count = 5_000 if stage.SMOKE else 500_000
    blobs = [b"%d" % n for n in range(count)]
    tree = sorted((b"100644", b"f%07d" % n, oid_of("blob", data)) for n, data in enumerate(blobs))
    return sent(*history(tree, [entry("blob", data, 1) for data in blobs]))


def tree_of_nothing():
    """A tree of a million entries that name nothing that there is."""
    rng = random.Random(3)
    return sent(
        *history(
            [
                (b"100644", b"f%07d" % n, rng.randbytes(20))
                for n in range(10_000 if stage.SMOKE else 1_000_000)
            ],
            [],
        )
    )


def tree_of_one():
    """A tree of three million entries, all of one blob: it takes little room."""
    return sent(
        *history(
            [
                (b"100644", b"f%07d" % n, oid_of("blob", b""))
                for n in range(30_000 if stage.SMOKE else 3_000_000)
            ],
            [entry("blob", b"")],
        )
    )


def long_message():
    return sent(*history([], [], message=bytes(128 * MIB).replace(b"\0", b" "), tree=None))


def many_parents():
    tree, rng = b"", random.Random(4)
    parents = b"".join(
        b"parent %s\n" % rng.randbytes(20).hex().encode() for _ in range(10_000 if stage.SMOKE else 1_000_000)
    )
    commit = b"tree %s\n%sauthor A <a@x> 1 +0000\ncommitter A <a@x> 1 +0000\n\nx" % (
        oid_of("tree", tree).hex().encode(),
        parents,
    )
    return sent(oid_of("commit", commit), pack([entry("commit", commit), entry("tree", tree)]))


def many_refs():
    tip, packed = history([], [])
    return [
        refs_of(
            tip,
            [f"refs/tags/a-name-of-some-length-{n:07}" for n in range(10_000 if stage.SMOKE else 1_000_000)],
        ),
        wire.pkt("NAK\n") + sideband(packed),
    ]


def progress():
    tip, _ = history([], [])
    line = wire.pkt(b"\2" + b"x" * 65500)
    return [refs_of(tip), wire.pkt("NAK\n")] + [line] * (10 if stage.SMOKE else 4_000)


def acks():
    tip, _ = history([], [])
    return [refs_of(tip)] + [wire.pkt(f"ACK {'1' * 40} common\n") * 1000] * (10 if stage.SMOKE else 1_000)


def shallow_lines():
    tip, _ = history([], [])
    lines = [wire.pkt(f"shallow {n:040x}") for n in range(10_000 if stage.SMOKE else 1_000_000)]
    return [refs_of(tip)[:-4] + b"".join(lines) + b"0000"]


def capabilities():
    tip, _ = history([], [])
    return [
        b"".join(
            [
                wire.pkt("version 2\n"),
                *(wire.pkt(f"c{n}=" + "x" * 60_000) for n in range(10 if stage.SMOKE else 1_000)),
                b"0000",
            ]
        ),
        refs_of(tip),
    ]


class GitUpstream:
    """A server of git:// that says what it has been told to, whatever it is asked, piece by piece."""

    scheme = "git"

    def __init__(self, pieces):
        self.pieces, self.sent = pieces, 0
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                self.serve(self.socket.accept()[0])

    def hear(self, connection):
        """Reads until the client waits for something."""
        heard = b""
        while not heard.endswith((b"0000", b"done\n", b"\0")):
            more = connection.recv(1 << 16)
            if not more:
                raise OSError
            heard += more

    def serve(self, connection):
        with contextlib.closing(connection), contextlib.suppress(OSError):
            for n, piece in enumerate(self.pieces):
                if n < 2:
                    self.hear(connection)
                connection.sendall(piece)
                self.sent += len(piece)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 16):
                pass

    def stop(self):
        self.socket.close()


class HttpUpstream(GitUpstream):
    """A web server that says the same to whoever asks."""

    scheme = "http"

    def serve(self, connection):
        with contextlib.closing(connection), contextlib.suppress(OSError):
            heard = b""
            while b"\r\n\r\n" not in heard:
                more = connection.recv(1 << 16)
                if not more:
                    return
                heard += more
            head, body = self.pieces
            connection.sendall(head % len(body) + body)
            self.sent += len(body)


def over_http(body, kind="application/x-git-upload-pack-advertisement", packed=True):
    encoding = "Content-Encoding: gzip\r\n" if packed else ""
    head = (
        f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n"
        f"{encoding}Connection: close\r\nContent-Length: %d\r\n\r\n"
    ).encode()
    return [head, gzip.compress(body, 6) if packed else body]


def advertised(lines):
    return wire.pkt("# service=git-upload-pack\n") + b"0000" + lines


def packed_refs():
    tip, _ = history([], [])
    return over_http(
        advertised(refs_of(tip, [f"refs/tags/{n:07}" for n in range(10_000 if stage.SMOKE else 1_000_000)]))
    )


def packed_lines():
    return over_http(
        advertised(wire.pkt("version 2\n") + wire.pkt("x" * 60_000) * (20 if stage.SMOKE else 4_000))
    )


def dumb_refs():
    return over_http(
        b"".join(
            b"%s\trefs/tags/%07d\n" % (b"1" * 40, n) for n in range(10_000 if stage.SMOKE else 1_000_000)
        ),
        "text/plain",
    )


# What is sent, and what may be taken: by the byte, or what objects hold.
UPSTREAMS = {
    "a blob of 64 MiB zeros, forty times two deltas": (GitUpstream, delta_tree, False),
    "a blob of 400 MiB zeros, and a delta on it": (GitUpstream, large_delta, False),
    "a blob of 512 MiB zeros": (GitUpstream, zeros, False),
    "a commit of 128 MiB spaces": (GitUpstream, long_message, False),
    "a tree of three million entries of one blob": (GitUpstream, tree_of_one, False),
    "a tree of a million entries of nothing": (GitUpstream, tree_of_nothing, True),
    "a commit of a million parents that are nothing": (GitUpstream, many_parents, True),
    "500,000 small blobs": (GitUpstream, small_blobs, True),
    "a million refs": (GitUpstream, many_refs, True),
    "a million shallow commits": (GitUpstream, shallow_lines, True),
    "60 MB of capabilities": (GitUpstream, capabilities, True),
    "260 MB of progress": (GitUpstream, progress, True),
    "a million ACKs": (GitUpstream, acks, True),
    "a million refs, packed, over HTTP": (HttpUpstream, packed_refs, False),
    "240 MB of lines, packed, over HTTP": (HttpUpstream, packed_lines, False),
    "a million refs in a file, packed": (HttpUpstream, dumb_refs, False),
}


def visit(kind, pieces):
    """Has an upstream visited; returns what it sent, the most that the visit took, and what was said."""
    upstream = kind(pieces)
    with tempfile.TemporaryDirectory(dir=stage.work) as folder:
        weir = [stage.WEIR, "--pool", folder + "/pool"]
        stage.run(*weir, "-q", "init")
        stage.run(*weir, "-q", "add", "--name", "up", f"{upstream.scheme}://127.0.0.1:{upstream.port}/up")
        peak, until = 0, time.monotonic() + VISIT_S
        child = subprocess.Popen(
            [*weir, "-q", "mirror", "--all"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        while child.poll() is None:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                status = dict(line.split(":", 1) for line in open(f"/proc/{child.pid}/status"))
                peak = max(
                    peak,
                    sum(
                        int(status[name].split()[0]) << 10
                        for name in ("RssAnon", "RssShmem")
                        if name in status
                    ),
                )
            if time.monotonic() > until:
                child.kill()
            time.sleep(0.001)
        said = child.stderr.read().strip().split("\n")
        upstream.stop()
        return upstream.sent, peak, (child.returncode, said[0])


def main():
    unknown = set(sys.argv[1:]) - set(UPSTREAMS)
    if unknown:
        raise SystemExit(
            f"there is no upstream called {', '.join(sorted(unknown))}; there are {', '.join(UPSTREAMS)}"
        )
    _, before, _ = visit(GitUpstream, [b"0000"])
    print(
        "\n### Memory of one visit\n\n"
        "| upstream | bytes sent | memory | bytes a byte | bar | ended |\n|---|---|---|---|---|---|",
        flush=True,
    )
    missed = 0
    for title in sys.argv[1:] or UPSTREAMS:
        kind, make, says_much = UPSTREAMS[title]
        sent, peak, (code, said) = visit(kind, make())
        took = max(0, peak - before)
        fits = took <= (
            min(VISIT_MAX, ANY_VISIT + BYTES_A_BYTE_MAX * sent) if says_much else HELD_MAX
        ) and code in (0, 1, 3)
        missed += not fits
        a_byte = f"{took / max(1, sent):.1f}" if says_much else "-"
        ended = "taken" if code == 0 else said[-60:].replace("|", "/")
        print(
            f"| {title} | {sent:,} | {took / (1 << 20):.1f} MiB | {a_byte} | "
            f"{'met' if fits else '**missed**'} | {ended} |",
            flush=True,
        )
    return 1 if missed and not stage.SMOKE else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    finally:
        stage.clean()
