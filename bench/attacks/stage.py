"""Repositories to serve, servers, and what their processes take, from /proc."""

import hashlib
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import zlib

from programs import HERE, SMOKE, WEIR

from . import wire

TICK = os.sysconf("SC_CLK_TCK")
# The attack ends when the server has taken this much memory: the bar is missed by then, and other programs
# use the machine, too.
RESIDENT_MAX = 3 << 29

work = tempfile.mkdtemp(prefix="weir-attacks-", dir=os.environ.get("WEIR_BENCH_DIR"))
pool = os.path.join(work, "pool")
os.environ["HOME"] = work
os.environ["GIT_CONFIG_NOSYSTEM"] = "1"
with open(os.path.join(work, ".gitconfig"), "w") as f:
    f.write(
        "[user]\n\tname = b\n\temail = b@example.com\n[safe]\n\tdirectory = *\n"
        "[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n"
        "[uploadpack]\n\tallowAnySHA1InWant = true\n"
    )


def run(*args, **kw):
    return (
        subprocess.run(args, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kw)
        .stdout.decode()
        .strip()
    )


def git(repo, *args, **kw):
    return run("git", "-C", repo, *args, **kw)


def weir(*args):
    return run(WEIR, "--pool", pool, "-q", *args)


def port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def upstream(name):
    return os.path.join(work, f"{name}.git")


def empty(name):
    run("git", "init", "-q", "--bare", "-b", "main", upstream(name))
    return upstream(name)


def import_into(repo, stream):
    git(repo, "fast-import", "--quiet", input=stream)


def commit(n, files, message=b"x"):
    head = b"commit refs/heads/main\ncommitter C <c@x> %d +0000\ndata %d\n%s\n" % (
        1_700_000_000 + n,
        len(message),
        message,
    )
    return head + b"".join(
        b"M 644 inline %s\ndata %d\n%s\n" % (path, len(data), data) for path, data in files
    )


def healthy():
    """What the healthy client fetches."""
    repo = empty("healthy")
    made = subprocess.Popen(
        ["python3", os.path.join(HERE, "bench/generate-repository.py"), "300" if SMOKE else "1500"],
        stdout=subprocess.PIPE,
    )
    git(repo, "fast-import", "--quiet", stdin=made.stdout)
    git(repo, "repack", "-adq")


def rewritten():
    """Makes a long history, and an old branch that shares no commit with it.

    Once it is mirrored, `rewrite` takes back the last commit of the history."""
    repo = empty("rewritten")
    import_into(repo, b"".join(commit(n, [(b"f", b"%06d" % n)]) for n in range(2_000 if SMOKE else 30_000)))
    old = git(
        repo,
        "commit-tree",
        "-m",
        "old",
        git(repo, "mktree", input=b""),
        env={**os.environ, "GIT_COMMITTER_DATE": "1000000000 +0000"},
    )
    git(repo, "update-ref", "refs/heads/old", old)


def rewrite():
    repo = upstream("rewritten")
    git(
        repo,
        "update-ref",
        "refs/heads/main",
        git(repo, "commit-tree", "-m", "another", "-p", "main~1", "main^{tree}"),
    )


def refs():
    """Many refs."""
    repo = empty("refs")
    import_into(repo, commit(0, [(b"f", b"x")]))
    tip = git(repo, "rev-parse", "main")
    with open(os.path.join(repo, "packed-refs"), "w") as f:
        f.write("# pack-refs with: peeled fully-peeled sorted \n")
        for n in range(5_000 if SMOKE else 200_000):
            f.write(f"{tip} refs/tags/a-name-of-some-length-{n:07}\n")


def blobs():
    """What takes long to send: blobs of noise."""
    rng, mib = random.Random(1), 24 if SMOKE else 300
    import_into(
        empty("blobs"), b"".join(commit(n, [(b"f%d" % n, rng.randbytes(4 << 20))]) for n in range(mib // 4))
    )


def zeros():
    """Two versions of a large blob that takes little room."""
    size = (16 if SMOKE else 512) << 20
    import_into(empty("zeros"), b"".join(commit(n, [(b"f", bytes(size - 1) + b"%d" % n)]) for n in range(2)))


def deltas():
    """A large blob of noise, and a later version that is kept as a delta of a few bytes."""
    repo, size = empty("deltas"), (8 if SMOKE else 400) << 20
    first = random.Random(2).randbytes(1 << 20) * (size >> 20)
    oid = lambda data: hashlib.sha1(b"blob %d\0" % len(data) + data)
    second = first + b"x"

    changes = wire.number(size, 7) + wire.number(size + 1, 7)
    for at in range(0, size, 0x800000):
        changes += b"\xff" + struct.pack("<I", at) + struct.pack("<I", min(0x800000, size - at))[:3]
    changes += b"\x01x"
    pack = b"PACK" + struct.pack(">II", 2, 2) + wire.number(size, 4, 3 << 4) + zlib.compress(first, 0)
    pack += wire.number(len(changes), 4, 7 << 4) + oid(first).digest() + zlib.compress(changes)
    git(repo, "index-pack", "--stdin", input=pack + hashlib.sha1(pack).digest())
    for n, data in enumerate((first, second)):
        tree = git(repo, "mktree", input=f"100644 blob {oid(data).hexdigest()}\tf\n".encode())
        git(
            repo,
            "update-ref",
            "refs/heads/main",
            git(repo, "commit-tree", "-m", str(n), *(["-p", "main"] if n else []), tree),
        )


def lfs():
    """A thousand small files kept by Git LFS."""
    repo, files = empty("lfs"), [(b".gitattributes", b"*.bin filter=lfs diff=lfs merge=lfs -text\n")]
    for n in range(1000):
        data = b"%d" % n
        oid = hashlib.sha256(data).hexdigest()
        place = os.path.join(repo, "lfs/objects", oid[:2], oid[2:4], oid)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "wb") as f:
            f.write(data)
        files.append(
            (
                b"%d.bin" % n,
                b"version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %d\n"
                % (oid.encode(), len(data)),
            )
        )
    import_into(repo, commit(0, files))


def lfs_oids():
    return [hashlib.sha256(b"%d" % n).hexdigest() for n in range(1000)]


REPOSITORIES = {made.__name__: made for made in (healthy, rewritten, refs, blobs, zeros, deltas, lfs)}
mirrored = set()


def mirror(names):
    """Makes what is not there yet, in the pool, too."""
    if not mirrored:
        run(WEIR, "-q", "init", pool)
        path = os.path.join(pool, "weir.toml")
        text = open(path).read()
        token = hashlib.sha256(b"right").hexdigest()
        with open(path, "w") as f:
            f.write(
                text + '\n[[access.rules]]\nrepositories = ["hidden"]\npublic = false\ntokens = ["t"]\n'
                f'[[access.tokens]]\nname = "t"\nsha256 = "{token}"\n'
            )
    for name in names:
        if name in mirrored:
            continue
        mirrored.add(name)
        REPOSITORIES[name]()
        weir("add", "--name", name, upstream(name))
        if name == "lfs":
            weir("set", "--lfs", "true", name)
        weir("mirror", name)
        if name == "rewritten":
            rewrite()
            weir("mirror", name)
        if name == "healthy":
            weir("add", "--name", "hidden", upstream(name))
            weir("mirror", "hidden")


class Processes:
    """The processes of a server: every process of the program that belongs to this bench.

    A thread samples their memory and CPU every 50 ms."""

    def __init__(self):
        self.peak, self.peak_anonymous, self.used, self.ended, self.lock = (
            0,
            0,
            {},
            threading.Event(),
            threading.Lock(),
        )
        self.too_much, self.attacker, self.known, self.looked = threading.Event(), None, {}, 0.0
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def ours(self):
        """The processes, looked for four times a second."""
        if time.monotonic() > self.looked + 0.25:
            self.looked = time.monotonic()
            there = set(filter(str.isdigit, os.listdir("/proc")))
            self.known = {pid: is_ours for pid, is_ours in self.known.items() if pid in there}
            for pid in there - set(self.known):
                try:
                    words = open(f"/proc/{pid}/cmdline", "rb").read().split(b"\0")
                except OSError:
                    continue
                # What is about to become one of them is looked at again.
                if words[0].decode(errors="replace") == WEIR and any(work.encode() in word for word in words):
                    self.known[pid] = True
                elif b"git" not in words[0] and b"python" not in words[0] and b"sh" not in words[0]:
                    self.known[pid] = False
        return [pid for pid, is_ours in self.known.items() if is_ours]

    def look(self):
        anonymous = mapped = 0
        for pid in self.ours():
            try:
                fields = open(f"/proc/{pid}/stat").read().rsplit(") ", 1)[1].split()
                status = dict(line.split(":", 1) for line in open(f"/proc/{pid}/status"))
            except OSError:
                continue
            self.used[(pid, fields[19])] = (int(fields[11]) + int(fields[12])) / TICK
            part = lambda name: int(status.get(name, "0").split()[0]) << 10
            anonymous += part("RssAnon") + part("RssShmem")
            # Of several processes the same files.
            mapped = max(mapped, part("RssFile"))
        self.peak, self.peak_anonymous = (
            max(self.peak, anonymous + mapped),
            max(self.peak_anonymous, anonymous),
        )
        if anonymous + mapped > RESIDENT_MAX:
            self.too_much.set()
            if self.attacker:
                self.attacker.kill()
            if anonymous + mapped > 2 * RESIDENT_MAX:
                # It goes on without attackers: it is ended, too.
                for pid in self.ours():
                    os.kill(int(pid), signal.SIGKILL)

    def watch(self):
        while not self.ended.wait(0.05):
            with self.lock:
                self.look()

    def cpu(self):
        with self.lock:
            self.look()
            return sum(self.used.values())

    def stop(self):
        self.ended.set()
        self.thread.join()


class Server:
    """A server under attack: where it is, and its processes."""

    def __init__(self, args, git_port, http_port=None, env=None):
        self.git_port, self.http_port = git_port, http_port
        self.log = open(os.path.join(work, "log"), "ab")
        self.process = subprocess.Popen(args, env=env, stdout=self.log, stderr=self.log) if args else None
        for p in filter(None, (git_port, http_port)) if args else ():
            for _ in range(2000):
                try:
                    socket.create_connection(("127.0.0.1", p)).close()
                    break
                except OSError:
                    time.sleep(0.005)
            else:
                raise SystemExit(f"{args[0]} does not listen")

    def is_alive(self):
        return self.process is None or self.process.poll() is None

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        self.log.close()


def serve():
    a, b = port(), port()
    return Server(
        [WEIR, "--pool", pool, "serve", "--no-mirror", "--git", f"127.0.0.1:{a}", "--http", f"127.0.0.1:{b}"],
        a,
        b,
    )


def base():
    """Makes a folder of git directories for `weir daemon`.

    It also holds a file that is no git directory, and a repository that another program writes to."""
    folder = os.path.join(work, "base")
    if not os.path.exists(folder):
        os.mkdir(folder)
        run("git", "clone", "-q", "--bare", upstream("healthy"), os.path.join(folder, "healthy"))
        run("git", "clone", "-q", "--bare", "--no-local", upstream("blobs"), os.path.join(folder, "theirs"))
        run(
            "git",
            "clone",
            "-q",
            "--bare",
            "--no-local",
            upstream("rewritten"),
            os.path.join(folder, "rewritten"),
        )
        with open(os.path.join(folder, "backup.bin"), "wb") as f:
            f.truncate(1 << 30)
    if "refs" in mirrored and not os.path.exists(os.path.join(folder, "refs")):
        shutil.copytree(upstream("refs"), os.path.join(folder, "refs"))
    return folder


def daemon():
    p = port()
    return Server(
        [WEIR, "daemon", "--export-all", "--listen=127.0.0.1", f"--port={p}", f"--base-path={base()}"], p
    )


def clean():
    shutil.rmtree(work, ignore_errors=True)
