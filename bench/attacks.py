#!/usr/bin/env python3
"""Measures what a server gives a healthy client while it is under attack: attacks.py [ATTACK...].

Prints a Markdown table. Each attack is one of a review's findings, and has a server of its own on 127.0.0.1.
One client, stock git from 127.0.0.1, fetches in turns over git:// and HTTP: whole, shallow, and what is new.
From 127.0.0.2 the client also sends requests with 1,400 haves. It fetches alone at first, then while
attackers from 127.0.0.3 on do their worst. The server, the client and the attackers share the machine. The
table tells the attackers' CPU, too, so that a busy machine is not taken for a busy server.

  WEIR=PROGRAM              the weir to attack (target/release/weir)
  WEIR_ATTACK_SECONDS=N     time of each attack (60; 5 in a smoke run)
  WEIR_ATTACK_ADDRESSES=N   addresses that attackers come from (by attack: 1, 4 or 8)
  WEIR_BENCH_SMOKE=1        small repositories: that everything runs, not how it stands

Exits with 1 if a bar is missed. The bars: every fetch is answered; the kind of fetch that suffers most is at
most 3 times slower (median); the server takes at most 1 GiB of resident memory; and it is idle 2 s after the
attackers have gone. All traffic stays on loopback, and every attack ends by itself.
"""

import contextlib
import itertools
import multiprocessing
import os
import resource
import signal
import sys
import time

from attacks import client, computed, doors, http, programs, stage

SECONDS = float(os.environ.get("WEIR_ATTACK_SECONDS", "5" if stage.SMOKE else "60"))
ALONE_SECONDS = min(15.0, SECONDS / 3)
ADDRESSES = os.environ.get("WEIR_ATTACK_ADDRESSES")
SLOWER_MAX = 3
RESIDENT_MAX = 1 << 30
# CPU in a second that counts as idle.
IDLE_S = 0.1
# Time that an attack has to come to its full strength.
READY_S = 10


class Attack:
    """One attack, as its processes see it."""

    def __init__(self, server, addresses, given):
        self.git_port, self.http_port, self.given, self.number = server.git_port, server.http_port, given, 0
        self.sources = itertools.cycle([f"127.0.0.{3 + n}" for n in range(addresses)])
        self.until, self.ready = (
            time.monotonic() + SECONDS + READY_S + 2 * client.PATIENCE_S,
            multiprocessing.Event(),
        )

    def address(self):
        return next(self.sources)

    now = staticmethod(time.monotonic)

    def goes_on(self):
        return self.now() < self.until

    def pause(self, seconds):
        time.sleep(max(0, min(seconds, self.until - self.now())))
        self.ready.set()

    def rest(self):
        """Holds what there is to the end."""
        self.ready.set()
        while self.goes_on():
            self.pause(1)

    @contextlib.contextmanager
    def tolerant(self):
        """Being refused is no reason to give up; but neither is it one to try without end."""
        try:
            yield
        except OSError:
            time.sleep(0.01)


def cpu_of(process):
    try:
        fields = open(f"/proc/{process.pid}/stat").read().rsplit(") ", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / stage.TICK


def attacked(function, attack):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    function(attack)


def row(title, function, repositories, prepare, addresses, start=stage.serve):
    """Makes one row; gives what of it misses its bar."""
    stage.mirror(["healthy", *repositories])
    given = prepare()
    server = start()
    processes = stage.Processes()
    attacker = None
    try:
        if isinstance(server, programs.Shell):
            fetching = client.Client(
                ["ssh://weir/healthy"], env={"GIT_SSH_COMMAND": server.script, "GIT_SSH_VARIANT": "ssh"}
            )
        else:
            over_http = [f"http://127.0.0.1:{server.http_port}/healthy"] if server.http_port else []
            fetching = client.Client(
                [f"git://127.0.0.1:{server.git_port}/healthy", *over_http], server.http_port
            )
        # A round that opens the repository.
        fetching.fetch(0)
        before, failed_before = fetching.fetch(ALONE_SECONDS)
        if failed_before:
            raise SystemExit(f"{title}: without an attack: {failed_before[0]}")
        addresses = int(ADDRESSES or addresses)
        attack = Attack(server, addresses, given)
        attacker = multiprocessing.Process(target=attacked, args=(function, attack))
        attacker.start()
        processes.attacker = attacker
        attack.ready.wait(READY_S)
        started, used, attackers = time.monotonic(), processes.cpu(), cpu_of(attacker)
        during, failures = fetching.fetch(SECONDS, lambda: not processes.too_much.is_set())
        took = time.monotonic() - started
        used, attackers = (processes.cpu() - used) / took, (cpu_of(attacker) - attackers) / took
        was_there = attacker.is_alive()
        attacker.kill()
        attacker.join()
        processes.attacker = None
        time.sleep(2)
        idle, since = processes.cpu(), time.monotonic()
        time.sleep(1)
        idle = (processes.cpu() - idle) / (time.monotonic() - since)
        is_alive = server.is_alive()
    finally:
        if attacker and attacker.is_alive():
            attacker.kill()
        processes.stop()
        server.stop()
    ratio, kind = client.slower(before, during)
    answered = sum(map(len, during.values()))
    worst = max((t for times in during.values() for t in times), default=float("nan"))
    missed = []
    if failures:
        missed.append(f"{len(failures)} failed ({failures[0][:100]})")
    if not ratio <= SLOWER_MAX:
        missed.append(f"{kind} {ratio:.1f} times slower")
    if processes.peak > RESIDENT_MAX:
        missed.append("memory, attack ended early" if processes.too_much.is_set() else "memory")
    if idle > IDLE_S:
        missed.append("not idle")
    if not is_alive:
        missed.append("the server was ended, too" if processes.too_much.is_set() else "the server is gone")
    if not was_there and not processes.too_much.is_set():
        missed.append("the attack is at fault: it broke off")
    mib = lambda n: f"{n / (1 << 20):.0f}"
    print(
        f"| {title} | {addresses} | {answered} | {len(failures)} | "
        f"{client.median(before):.3f} s | {client.median(during):.3f} s | {ratio:.1f} ({kind}) "
        f"| {client.late(before, during):.1f} "
        f"| {worst:.2f} s | {mib(processes.peak)} ({mib(processes.peak_anonymous)}) MiB | "
        f"{used:.0%} | {attackers:.0%} | {idle:.0%} "
        f"| {'missed: ' + '; '.join(missed) if missed else 'met'} |",
        flush=True,
    )
    return missed


def main():
    parts = (computed, doors, http, programs)
    every = {name: rest for part in parts for name, *rest in part.ATTACKS}
    unknown = set(sys.argv[1:]) - set(every)
    if unknown:
        raise SystemExit(
            f"there is no attack called {', '.join(sorted(unknown))}; there are {', '.join(every)}"
        )
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(
        "\n### Under attack\n\n"
        f"Each for {SECONDS:.0f} s; CPU as a share of one of {os.cpu_count()} processors.\n"
    )
    print(
        "| attack | addresses | answered | failed | median alone | median | "
        "slower (the kind that suffers most) | slower, the slowest of 100 | worst | "
        "peak memory, resident (anonymous) "
        "| CPU of the server | of the attackers | of the server 2 s after | bar |\n" + "|---" * 14 + "|",
        flush=True,
    )
    missed = []
    # Whoever is ended cleans up, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        for name in sys.argv[1:] or every:
            missed += row(*every[name])
    finally:
        stage.clean()
    return 1 if missed and not stage.SMOKE else 0


if __name__ == "__main__":
    sys.exit(main())
