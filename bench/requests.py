#!/usr/bin/env python3
"""Measures the memory of one request beside the bytes that its client sends: requests.py [REQUEST...].

Prints a Markdown table. Each request is the costliest of its kind that we know of. It is sent once, to a
server of its own that has opened the repository before. Its memory is the most that the server's process has
beside its file maps while it reads, processes and answers the request, less what the process had before. If
a request is called unread, the client does not read the answer.

  WEIR=PROGRAM          the weir to ask (target/release/weir)
  WEIR_BENCH_SMOKE=1    small repositories: that everything runs, not how it stands

Exits with 1 if a large request takes more than 20 bytes for each byte that was sent, plus 4 MiB that any
request may take; or if any request takes more than 256 MiB. Objects over 128 MiB are an exception: the
server works on them one at a time, and takes what they and what they are made of take. For small requests
that cause much work, there is no bar for each byte.
"""

import contextlib
import sys
import threading
import time

from attacks import doors, stage, wire

BYTES_A_BYTE_MAX = 20
ANY_REQUEST = 4 << 20
REQUEST_MAX = 256 << 20
# An object of 400 MiB and what it is made of, and a little.
OBJECT_MAX = 832 << 20
# Time that an answer may take.
ANSWER_S = 60


class Watch:
    """Bytes of a process that are no file's, looked at all the time."""

    def __init__(self, pid):
        self.pid, self.before, self.peak, self.ended = pid, 0, 0, threading.Event()
        self.before = self.now()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def now(self):
        status = dict(line.split(":", 1) for line in open(f"/proc/{self.pid}/status"))
        return sum(int(status[name].split()[0]) << 10 for name in ("RssAnon", "RssShmem"))

    def run(self):
        while not self.ended.wait(0.001):
            self.peak = max(self.peak, self.now())

    def stop(self):
        self.ended.set()
        self.thread.join()
        return max(0, self.peak - self.before)


def tip(name, ref="main"):
    return stage.git(stage.upstream(name), "rev-parse", ref)


def many(count, line):
    return b"".join(wire.pkt(line(n)) for n in range(10_000 if stage.SMOKE else count))


def v2(name, arguments):
    return wire.pkt(f"command={name}") + wire.pkt("object-format=sha1") + b"0001" + arguments + b"0000"


def over_http(repository, body, packed=False, kind=wire.UPLOAD_PACK, path="git-upload-pack", headers=()):
    return "http", repository, wire.post(f"/{repository}/{path}", body, kind, headers, packed=packed)


def over_git(repository, version, body):
    return "git", repository, wire.greeting(repository, version) + body


def no_id(n):
    return f"{n + 1:040x}"


def bodies():
    """Kinds of requests: what is sent, whether the answer is read, and whether it says much."""
    main, old = tip("rewritten"), tip("rewritten", "old")
    want = wire.pkt(f"want {main}")
    early = wire.pkt(f"want {main} multi_ack_detailed side-band-64k ofs-delta\n") + b"0000"
    oids = stage.git(stage.upstream("rewritten"), "rev-list", "-10000", "main").split("\n")
    wants = v2("fetch", many(590_000, lambda _: f"want {main}") + wire.pkt("done"))
    return {
        "the same want, 590,000 times, packed": (over_http("rewritten", wants, packed=True), True, True),
        "60,000 wants of nothing": (
            over_http(
                "rewritten", v2("fetch", many(60_000, lambda n: f"want {no_id(n)}") + wire.pkt("done"))
            ),
            True,
            True,
        ),
        "60,000 haves of nothing": (
            over_http(
                "rewritten", v2("fetch", want + many(60_000, lambda n: f"have {no_id(n)}") + wire.pkt("done"))
            ),
            True,
            True,
        ),
        "the same have, 590,000 times, packed, unread": (
            over_http(
                "rewritten",
                v2("fetch", wire.pkt("wait-for-done") + many(590_000, lambda _: f"have {main}")),
                packed=True,
            ),
            False,
            True,
        ),
        "60,000 haves of nothing, v0": (
            over_git(
                "rewritten", 0, early + many(60_000, lambda n: f"have {no_id(n)}\n") + wire.pkt("done\n")
            ),
            True,
            True,
        ),
        "60,000 shallow commits, and what is new behind them": (
            over_http(
                "rewritten",
                v2(
                    "fetch",
                    want
                    + many(60_000, lambda n: f"shallow {no_id(n)}")
                    + wire.pkt("deepen 3")
                    + wire.pkt("done"),
                ),
            ),
            True,
            True,
        ),
        "a depth of a million": (
            over_git("rewritten", 2, v2("fetch", want + wire.pkt("deepen 1000000") + wire.pkt("done"))),
            True,
            False,
        ),
        "all but what an old branch has": (
            over_git("rewritten", 2, v2("fetch", want + wire.pkt(f"have {old}") + wire.pkt("done"))),
            True,
            False,
        ),
        "60,000 prefixes of refs": (
            over_http("refs", v2("ls-refs", many(60_000, lambda n: f"ref-prefix refs/none/{n}"))),
            True,
            True,
        ),
        "a list of 200,000 refs, unread": (
            over_git("refs", 2, v2("ls-refs", wire.pkt("peel") + wire.pkt("symrefs"))),
            False,
            False,
        ),
        "a list of 200,000 refs, v0, unread": (over_git("refs", 0, b""), False, False),
        "sizes of 10,000 objects": (
            over_git(
                "rewritten",
                2,
                v2("object-info", wire.pkt("size") + b"".join(wire.pkt(f"oid {oid}") for oid in oids)),
            ),
            True,
            True,
        ),
        "a filter of 6,000 filters": (
            over_http(
                "rewritten",
                v2(
                    "fetch",
                    want + wire.pkt("filter combine:" + "+".join(["blob:none"] * 6_000)) + wire.pkt("done"),
                ),
            ),
            True,
            True,
        ),
        "a batch of 1,000 LFS objects, unread": (
            over_http(
                "lfs",
                doors.lfs_body(),
                True,
                doors.LFS,
                "info/lfs/objects/batch",
                [f"Authorization: {doors.TOKEN}"],
            ),
            False,
            True,
        ),
        "a batch of LFS that is all brackets": (
            over_http("lfs", b"[" * (1 << 20), False, doors.LFS, "info/lfs/objects/batch"),
            True,
            True,
        ),
        "zeros, 512 MiB, packed": (
            over_http("rewritten", bytes((1 if stage.SMOKE else 512) << 20), packed=True),
            True,
            True,
        ),
        "a blob of 512 MiB zeros": (
            over_git("zeros", 2, v2("fetch", wire.pkt(f"want {tip('zeros')}") + wire.pkt("done"))),
            True,
            False,
        ),
        "a blob of 400 MiB noise, without what it is a delta of": (
            over_git(
                "deltas",
                2,
                v2("fetch", wire.pkt(f"want {tip('deltas')}") + wire.pkt("deepen 1") + wire.pkt("done")),
            ),
            True,
            False,
        ),
    }


def ask(server, door, request, is_read):
    """Makes the request; reads the answer to its end, if it is read, else lets it lie for a while."""
    until = time.monotonic() + ANSWER_S
    with contextlib.closing(
        wire.connect(
            "127.0.0.2",
            server.http_port if door == "http" else server.git_port,
            window=None if is_read else 4096,
        )
    ) as s:
        with contextlib.suppress(OSError):
            s.sendall(request)
        if not is_read:
            time.sleep(3)
            return
        s.shutdown(1)
        while time.monotonic() < until:
            try:
                if not s.recv(1 << 20):
                    return
            except BlockingIOError:
                continue
            except OSError:
                return


def main():
    stage.mirror(["healthy", "rewritten", "refs", "zeros", "deltas", "lfs"])
    every = bodies()
    unknown = set(sys.argv[1:]) - set(every)
    if unknown:
        raise SystemExit(
            f"there is no request called {', '.join(sorted(unknown))}; there are {', '.join(every)}"
        )
    print(
        "\n### Memory of one request\n\n"
        "| request | bytes sent | memory | bytes a byte | bar |\n|---|---|---|---|---|",
        flush=True,
    )
    missed = 0
    for title in sys.argv[1:] or every:
        (door, repository, request), is_read, says_much = every[title]
        server = stage.serve()
        try:
            # It has been asked before.
            stage.run("git", "ls-remote", f"git://127.0.0.1:{server.git_port}/{repository}", "HEAD")
            stage.run("git", "ls-remote", f"http://127.0.0.1:{server.http_port}/{repository}", "HEAD")
            watch = Watch(server.process.pid)
            ask(server, door, request, is_read)
            took = watch.stop()
            most = (
                OBJECT_MAX
                if repository == "deltas"
                else min(REQUEST_MAX, ANY_REQUEST + BYTES_A_BYTE_MAX * len(request))
                if says_much
                else REQUEST_MAX
            )
            fits = server.is_alive() and took <= most
            missed += not fits
            a_byte = f"{took / len(request):.1f}" if says_much else "-"
            print(
                f"| {title} | {len(request):,} | {took / (1 << 20):.1f} MiB | {a_byte} | "
                f"{'met' if fits else '**missed**'} |",
                flush=True,
            )
        finally:
            server.stop()
    return 1 if missed and not stage.SMOKE else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    finally:
        stage.clean()
