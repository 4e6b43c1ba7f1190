"""Events: what it costs to take lines from many senders and keep each durably, and to give each to one of 20
programs and put it into a table of PostgreSQL. Beside it, IO::Multiplex, which forwards them to 20 workers
and keeps nothing, the least that servers in Go and on tokio must do to keep lines, and rsyslog over TCP.
Then, what a line costs for the time-out of its connection, how long a sender waits for acknowledgements
beside others that misbehave, and what it costs to open a large spool that is damaged. Prints the tables of
docs/benchmarks.md.

WEIR_BENCH_DIR: where to work; WEIR_BENCH_SMOKE=1: small inputs; WEIR_BENCH_SECONDS: time of a row (10)."""

import contextlib
import json
import os
import resource
import shutil
import socket
import subprocess
import tempfile
import time

from postgres import Postgres
from programs import BENCH, HERE, SMOKE, WEIR

SECONDS = float(os.environ.get("WEIR_BENCH_SECONDS", "1" if SMOKE else "10"))
# Connections, lines a second on each, lines in a write, and whether IO::Multiplex takes part.
ROWS = [(50, 1, 1, True), (3, 50, 1, True)] if SMOKE else [
    (1000, 1, 1, True),
    (30, 50, 1, True),
    (19_000, 1, 1, False),
    (1000, 50, 1, False),
    (1000, 500, 10, False),
]
# Connections over TCP, and lines a second on each.
TCP_ROWS = [(50, 1)] if SMOKE else [(1000, 1), (1000, 50)]
RSYSLOG_CONFIG = """
module(load="imtcp" MaxSessions="2000")
input(type="imtcp" port="{port}" ruleset="lines")
template(name="line" type="string" string="%timegenerated% %fromhost-ip% %rawmsg%\\n")
ruleset(name="lines") {{ action(type="omfile" file="{at}/lines" template="line" sync="on") }}
"""


def cpu_seconds(pid):
    """The time that all threads of a process have run."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/schedstat") as stat:
            total += int(stat.read().split()[0])
    return total / 1e9


def memory_kib(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def wait_for(path):
    for _ in range(200):
        if os.path.exists(path):
            return
        time.sleep(0.05)
    raise SystemExit(f"nothing listens at {path}")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def wait_for_port(port):
    for _ in range(200):
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise OSError(f"nothing listens on port {port}")


def send(address, connections, rate, per_write, line=None):
    command = [WEIR, "--json", "events", "bench", address, "-c", str(connections)]
    command += ["--rate", str(rate), "--seconds", str(SECONDS), "--lines-per-write", str(per_write)]
    command += ["--line", line] if line else []
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def collectors(url):
    """Settings of a table in PostgreSQL, and of 20 programs that answer each line."""
    answer = "while (<STDIN>) { print qq(ok\\n) }"
    return f"""
[[events.table]]
name = "lines"
database = "{url}"
columns = ["host text not null", "n integer", "text text"]

[[events.worker]]
name = "count"
command = ["perl", "-e", "$| = 1; {answer}"]
count = 20
"""


def through_workers(at, postgres, connections, rate):
    """Returns the share of a core of weir's process, which gives each line to one of 20 programs, and puts it
    into a table of PostgreSQL; and how many of the sent lines are missing there."""
    pool, path = os.path.join(at, "pool"), os.path.join(at, "weir.sock")
    url = postgres.schema("lines")
    subprocess.run([WEIR, "-q", "init", pool], check=True)
    with open(os.path.join(pool, "weir.toml"), "a") as settings:
        settings.write(collectors(url))
    server = subprocess.Popen([WEIR, "-q", "--pool", pool, "events", "serve", "--listen", "unix:" + path])
    line = '{"host": "h{i}", "n": {i}, "text": "what an observer has to say in a line of ninety bytes"}'
    try:
        wait_for(path)
        time.sleep(1)
        began = cpu_seconds(server.pid)
        said = send("unix:" + path, connections, rate, 1, line=line)
        # What lies in the spool and in queues belongs to the work.
        for _ in range(600):
            kept = int(postgres.ask("lines", "SELECT count(*) FROM lines"))
            if kept >= said["sent"]:
                break
            time.sleep(0.1)
        return (cpu_seconds(server.pid) - began) / said["seconds"], said["sent"] - kept
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(pool)


def of_weir(at, connections, rate, per_write, port=None):
    """Returns the share of a core, the KiB of a connection, and how many of the sent lines were lost. The
    door is a Unix socket, or TCP at `port`."""
    pool, path = os.path.join(at, "pool"), os.path.join(at, "weir.sock")
    listen = f"127.0.0.1:{port}" if port else "unix:" + path
    subprocess.run([WEIR, "-q", "init", pool], check=True)
    settings = os.path.join(pool, "weir.toml")
    subprocess.run(["sed", "-i", "s/^#connections_max.*/connections_max = 20000/", settings], check=True)
    server = subprocess.Popen(
        [WEIR, "-q", "--pool", pool, "events", "serve", "--listen", listen],
    )
    try:
        wait_for_port(port) if port else wait_for(path)
        time.sleep(0.3)
        began, idle = cpu_seconds(server.pid), memory_kib(server.pid)
        said = send(listen, connections, rate, per_write)
        peak = memory_kib(server.pid)
        # What lies in the spool belongs to the work.
        list_one = [WEIR, "--json", "--pool", pool, "events", "ls", "-n", "1"]
        for _ in range(600):
            listed = subprocess.run(list_one, check=True, capture_output=True, text=True)
            last = json.loads(listed.stdout)
            if last and last[0]["id"] >= said["sent"]:
                break
            time.sleep(0.1)
        used = cpu_seconds(server.pid) - began
        kept = last[0]["id"] if last else 0
        return used / said["seconds"], (peak - idle) / connections, said["sent"] - kept
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(pool)


def of_rsyslog(at, connections, rate):
    """Returns the share of a core of rsyslog, which appends the lines to a file that it syncs, and how many
    of the sent lines are missing there."""
    port, config = free_port(), os.path.join(at, "rsyslog.conf")
    with open(config, "w") as file:
        file.write(RSYSLOG_CONFIG.format(at=at, port=port))
    program = shutil.which("rsyslogd") or "/usr/sbin/rsyslogd"
    server = subprocess.Popen([program, "-n", "-f", config, "-i", os.path.join(at, "rsyslog.pid")])
    try:
        wait_for_port(port)
        began = cpu_seconds(server.pid)
        said = send(f"127.0.0.1:{port}", connections, rate, 1)
        time.sleep(1)
        with open(os.path.join(at, "lines"), "rb") as lines:
            kept = sum(1 for _ in lines)
        return (cpu_seconds(server.pid) - began) / said["seconds"], said["sent"] - kept
    finally:
        server.terminate()
        server.wait()
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(at, "lines"))


def over_tcp(at):
    """Prints the rows over TCP, beside rsyslog."""
    has_rsyslog = shutil.which("rsyslogd") or os.path.exists("/usr/sbin/rsyslogd")
    if not has_rsyslog:
        print("rsyslog is not here: install it to see it beside weir")
    print()
    print("| TCP connections | lines/s each | rsyslog | lost | weir | lost |")
    print("|---|---|---|---|---|---|")
    for connections, rate in TCP_ROWS:
        theirs = "- | -"
        if has_rsyslog:
            try:
                share, missing = of_rsyslog(at, connections, rate)
                theirs = f"{share * 100:.1f} % | {missing}"
            except OSError as e:
                print(f"rsyslog does not run here: {e}")
                has_rsyslog = False
        share, _, lost = of_weir(at, connections, rate, 1, free_port())
        print(f"| {connections} | {rate} | {theirs} | {share * 100:.1f} % | {lost} |", flush=True)


def timers():
    """Prints what a line costs for the time-out of its connection."""
    said = subprocess.run([BENCH, "timers", "50000"], check=True, capture_output=True, text=True).stdout
    found = json.loads(said)
    print()
    print("| a line, for the time-out of one of 50,000 connections | nanoseconds |")
    print("|---|---|")
    print(f"| weir notes the sweep | {found['weir_ns']:.1f} |")
    print(f"| tokio resets a timer | {found['tokio_ns']:.0f} |", flush=True)


def of_multiplex(at, connections, rate, per_write):
    path = os.path.join(at, "multiplex.sock")
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "multiplex.pl")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen(["perl", script, path, "20"], **quiet)
    try:
        wait_for(path)
        time.sleep(0.3)
        began = cpu_seconds(server.pid)
        said = send("unix:" + path, connections, rate, per_write)
        return (cpu_seconds(server.pid) - began) / said["seconds"]
    finally:
        server.terminate()
        server.wait()
        os.unlink(path)


def of_peer(at, command, connections, rate, per_write):
    """Returns the share of a core and the KiB of a connection of a server that takes lines at a socket and
    appends them to a file."""
    path, file = os.path.join(at, "peer.sock"), os.path.join(at, "lines")
    server = subprocess.Popen([*command, path, file])
    try:
        wait_for(path)
        time.sleep(0.3)
        began, idle = cpu_seconds(server.pid), memory_kib(server.pid)
        said = send("unix:" + path, connections, rate, per_write)
        peak = memory_kib(server.pid)
        time.sleep(0.2)
        return (cpu_seconds(server.pid) - began) / said["seconds"], (peak - idle) / connections
    finally:
        server.terminate()
        server.wait()
        os.unlink(path)
        os.unlink(file)


def go_peer(at):
    """Builds the peer in Go. Returns its path; None, if there is no Go."""
    if not shutil.which("go"):
        return None
    built, source = os.path.join(at, "lines_peer"), os.path.join(HERE, "bench/lines_peer.go")
    subprocess.run(["go", "build", "-o", built, source], check=True, env=os.environ | {"GOFLAGS": "-mod=mod"})
    return built


# What a sender does, in Python, with the socket of a door: `path`, and `connect()`.
MISBEHAVING = {
    "one that floods": "s = connect()\nwhile 1: s.sendall(b'it\\n' * 10000)",
    "one that never reads its acknowledgements":
        "s = connect()\nwhile 1:\n  for n in range(1000): s.sendall(b'id=%d it\\n' % n)",
    "100 that send a byte a second":
        "all = [connect() for _ in range(100)]\nwhile 1:\n  [s.sendall(b'x') for s in all]; time.sleep(1)",
    "10,000 that connect and hang up": "for _ in range(10000): connect().close()",
    "one that sends 100 MB without a newline":
        "s = connect()\nfor _ in range(100): s.sendall(b'x' * (1 << 20))",
}


def beside(at):
    """Prints how long acknowledgements take, alone and beside senders that misbehave."""
    pool, path = os.path.join(at, "pool"), os.path.join(at, "weir.sock")
    subprocess.run([WEIR, "-q", "init", pool], check=True)
    server = subprocess.Popen([WEIR, "-q", "--pool", pool, "events", "serve", "--listen", "unix:" + path])
    healthy = [WEIR, "--json", "events", "bench", "unix:" + path, "-c", "10", "--rate", "20"]
    healthy += ["--acknowledged", "--seconds", str(SECONDS)]
    head = f"import socket, time\npath = {path!r}\ndef connect():\n  s = socket.socket(socket.AF_UNIX)\n"
    head += "  s.connect(path)\n  return s\n"
    print()
    print("| beside 10 senders of 20 lines a second | median | 99 % | to alone |")
    print("|---|---|---|---|")
    try:
        wait_for(path)
        alone = None
        for name, script in [("nobody", None), *MISBEHAVING.items()]:
            other = script and subprocess.Popen(["python3", "-c", head + script], stderr=subprocess.DEVNULL)
            time.sleep(0.2)
            said = json.loads(subprocess.run(healthy, check=True, capture_output=True, text=True).stdout)
            if said["acknowledged"] != said["sent"]:
                raise SystemExit(f"beside {name}: {said}")
            if other:
                other.kill()
                other.wait()
            alone = alone or said["p99_us"]
            print(
                f"| {name} | {said['median_us'] / 1000:.0f} ms | {said['p99_us'] / 1000:.0f} ms "
                f"| {said['p99_us'] / alone:.1f} |",
                flush=True,
            )
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(pool)


def spools(at):
    """Prints what it costs to open a large spool, whole and damaged, and to read all of it."""
    print()
    size = 16 if SMOKE else 1024
    print(f"| spool of {size} MiB | open | memory then | records | memory when all is read |")
    print("|---|---|---|---|---|")
    for damage in ("whole", "its end torn off, a segment zeroed, another cut to half"):
        folder = os.path.join(at, "spool")
        subprocess.run([BENCH, "spool", folder, str(size)], check=True)
        sizes = {one.path: one.stat().st_size for one in os.scandir(folder)}
        segments = sorted(path for path in sizes if sizes[path] > 1 << 20)
        if damage != "whole":
            os.truncate(segments[-1], int(sizes[segments[-1]] * 0.7))
        if damage != "whole" and len(segments) > 3:
            os.truncate(segments[1], 0)
            os.truncate(segments[1], sizes[segments[1]])
            os.truncate(segments[2], sizes[segments[2]] // 2)
        opened = subprocess.run([BENCH, "spool", folder], check=True, capture_output=True)
        found = json.loads(opened.stdout)
        print(
            f"| {damage} | {found['seconds'] * 1000:.0f} ms | {found['opened_kib'] / 1024:.0f} MiB "
            f"| {found['records']:,} | {found['read_kib'] / 1024:.0f} MiB |",
            flush=True,
        )
        shutil.rmtree(folder)


def workers(at, has_peer):
    """Prints the row of 20 programs and PostgreSQL."""
    connections = 50 if SMOKE else 1000
    peer = of_multiplex(at, connections, 1, 1) if has_peer else None
    os.chmod(at, 0o755)
    postgres = Postgres(os.path.join(at, "postgres"))
    try:
        share, missing = through_workers(at, postgres, connections, 1)
    finally:
        postgres.end()
    theirs = "-" if peer is None else f"{peer * 100:.1f} %"
    ratio = "-" if peer is None else f"1/{peer / share:.0f}"
    print()
    print("| connections, a line a second each, 20 programs | IO::Multiplex | weir | ratio | missing |")
    print("|---|---|---|---|---|")
    print(f"| {connections} | {theirs} | {share * 100:.1f} % | {ratio} | {missing} |", flush=True)


def main():
    has_peer = subprocess.run(["perl", "-MIO::Multiplex", "-e1"], capture_output=True).returncode == 0
    if not has_peer:
        print("IO::Multiplex is not here: install libio-multiplex-perl to see it beside weir")
    # As many connections as the system lets a process have.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    heads = ["connections", "lines/s each", "lines a write", "IO::Multiplex", "weir", "ratio"]
    heads += ["KiB/connection", "lost", "Go, KiB", "tokio, KiB"]
    print("| " + " | ".join(heads) + " |")
    print("|" + "---|" * len(heads))
    with tempfile.TemporaryDirectory(dir=os.environ.get("WEIR_BENCH_DIR")) as at:
        go = go_peer(at)
        for connections, rate, per_write, is_beside in ROWS:
            peer = of_multiplex(at, connections, rate, per_write) if is_beside and has_peer else None
            share, memory, lost = of_weir(at, connections, rate, per_write)
            theirs = "-" if peer is None else f"{peer * 100:.1f} %"
            ratio = "-" if peer is None else f"1/{peer / share:.0f}"
            print(
                f"| {connections} | {rate} | {per_write} | {theirs} | {share * 100:.1f} % | {ratio} "
                f"| {memory:.1f} | {lost}",
                end="",
                flush=True,
            )
            for command in ([go] if go else None, [BENCH, "lines"]):
                if command is None:
                    print(" | -", end="")
                    continue
                share, memory = of_peer(at, command, connections, rate, per_write)
                print(f" | {share * 100:.1f} %, {memory:.1f}", end="", flush=True)
            print(" |", flush=True)
        over_tcp(at)
        timers()
        beside(at)
        spools(at)
        workers(at, has_peer)


if __name__ == "__main__":
    main()
