"""What states.py compares clients of: a random upstream, and git's servers and weir's beside one another."""

import hashlib
import os
import random
import signal
import socket
import subprocess
import threading
import time
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WEIR = os.environ.get("WEIR", os.path.join(ROOT, "target", "debug", "weir"))
# The time of the first commit.
EPOCH = 1_000_000_000
CONFIG = """[user]
	name = A
	email = a@example.com
[init]
	defaultBranch = main
[gc]
	auto = 0
[maintenance]
	auto = false
[advice]
	detachedHead = false
[core]
	fsync = none
[uploadpack]
	allowFilter = true
	allowReachableSHA1InWant = true
"""


class Upstream:
    """A bare repository of loose objects: just those that its refs reach, of all it ever had."""

    HEADS = [f"refs/heads/{name}" for name in ("main", "a", "b/c", "b/d", "old", "next")]
    TAGS = [f"refs/tags/{name}" for name in ("v1", "v2", "v3", "rel/1", "rel/2", "odd")]
    OTHERS = ["refs/pull/1/head", "refs/notes/commits", "refs/x/y"]

    def __init__(self, seed, folder):
        self.rng = random.Random(f"upstream {seed}")
        self.folder = folder
        self.objects, self.refs, self.head = {}, {}, "ref: refs/heads/main"
        self.commits, self.trees, self.blobs = [], [], []
        self.clock = EPOCH
        self.dates = self.rng.choice(["in order", "in order", "equal", "backwards", "wild"])
        self.written = set()
        for name in ("objects", "refs"):
            os.makedirs(os.path.join(folder, name), exist_ok=True)
        with open(os.path.join(folder, "config"), "w") as f:
            f.write("[core]\n\tbare = true\n\trepositoryformatversion = 0\n")

    def put(self, kind, data, links=()):
        whole = f"{kind} {len(data)}\0".encode() + data
        oid = hashlib.sha1(whole).hexdigest()
        self.objects[oid] = (kind, whole, tuple(links))
        return oid

    def blob(self):
        if not self.blobs or self.rng.random() < 0.8:
            size = self.rng.choice([0, 5, 40, 300, 3000])
            line = f"{self.rng.randrange(10**6)}\n".encode()
            self.blobs.append(self.put("blob", (line * size)[:size]))
        return self.rng.choice(self.blobs[-6:])

    def tree(self, depth=0):
        if self.trees and self.rng.random() < 0.2:
            return self.rng.choice(self.trees)
        entries = {}
        for _ in range(self.rng.randint(0 if depth else 1, 4)):
            if depth < 3 and self.rng.random() < 0.4:
                entries[f"d{self.rng.randrange(3)}/"] = ("40000", self.tree(depth + 1))
            else:
                entries[f"f{self.rng.randrange(4)}"] = ("100644", self.blob())
        if self.rng.random() < 0.05:
            entries["module"] = ("160000", "12" * 20)
        data = b"".join(
            f"{mode} {name.rstrip('/')}\0".encode() + bytes.fromhex(oid)
            for name, (mode, oid) in sorted(entries.items())
        )
        oid = self.put("tree", data, [oid for mode, oid in entries.values() if mode != "160000"])
        self.trees.append(oid)
        return oid

    def date(self):
        self.clock += self.rng.choice([0, 0, 100]) if self.dates == "equal" else self.rng.randint(1, 1000)
        if self.dates in ("backwards", "wild") and self.rng.random() < 0.3:
            return self.clock - self.rng.randint(0, 5000)
        if self.dates == "wild" and self.rng.random() < 0.15:
            return self.rng.choice([0, 1, 4_000_000_000])
        return self.clock

    def commit(self, parents):
        date = self.date()
        lines = "".join(f"parent {parent}\n" for parent in parents)
        tree = self.tree()
        text = (
            f"tree {tree}\n{lines}"
            f"author A <a@x> {date} +0000\ncommitter A <a@x> {date} +0000\n\n{len(self.commits)}\n"
        )
        oid = self.put("commit", text.encode(), [tree, *parents])
        self.commits.append(oid)
        return oid

    def tag(self, target):
        kind = self.objects[target][0]
        text = (
            f"object {target}\ntype {kind}\n"
            f"tag t\ntagger A <a@x> {self.clock} +0000\n\n{self.rng.randrange(100)}\n"
        )
        return self.put("tag", text.encode(), [target])

    def history(self, at):
        """A branch that goes on from `at`."""
        for _ in range(self.rng.randint(1, 8)):
            parents = [at] if at and self.rng.random() > 0.05 else []
            while parents and self.commits and self.rng.random() < 0.25 and len(parents) < 4:
                other = self.rng.choice(self.commits[-12:] + [self.rng.choice(self.commits)])
                if other in parents:
                    break
                parents.append(other)
            at = self.commit(parents)
        return at

    def change(self):
        rng = self.rng
        for _ in range(rng.randint(2, 7)):
            what = rng.random()
            name = rng.choice(self.HEADS)
            if what < 0.45 or not self.commits:
                self.refs[name] = self.history(self.refs.get(name))
            elif what < 0.6:  # Created or force-pushed, to what may have been removed before.
                self.refs[name] = rng.choice(self.commits)
                if rng.random() < 0.5:
                    self.refs[name] = self.history(self.refs[name])
            elif what < 0.7:
                self.refs.pop(rng.choice(self.HEADS + self.TAGS), None)
            elif what < 0.95:
                target = rng.choice(self.commits)
                if rng.random() < 0.2:
                    target = rng.choice(self.trees + self.blobs)
                for _ in range(rng.choice([0, 0, 1, 1, 1, 2])):
                    target = self.tag(target)
                self.refs[rng.choice(self.TAGS)] = target
            else:
                self.refs[rng.choice(self.OTHERS)] = rng.choice(self.commits)
        if not any(name.startswith("refs/heads/") for name in self.refs):
            self.refs["refs/heads/main"] = self.history(None)
        if rng.random() < 0.1:
            self.head = rng.choice([f"ref: {rng.choice(self.HEADS)}", rng.choice(self.commits)])

    def tips(self):
        return [*self.refs.values(), *([] if self.head.startswith("ref") else [self.head])]

    def named(self):
        """Trees and blobs that refs name, or their tags."""
        for oid in self.tips():
            while self.objects[oid][0] == "tag":
                oid = self.objects[oid][2][0]
            if self.objects[oid][0] != "commit":
                yield oid

    def reached(self, tips=None):
        """What `tips` reach, or else the refs as they are."""
        seen, stack = set(), self.tips() if tips is None else list(tips)
        while stack:
            oid = stack.pop()
            if oid in self.objects and oid not in seen:
                seen.add(oid)
                stack.extend(self.objects[oid][2])
        return seen

    def write(self):
        path = lambda oid: os.path.join(self.folder, "objects", oid[:2], oid[2:])
        reached = self.reached()
        for oid in reached - self.written:
            os.makedirs(os.path.dirname(path(oid)), exist_ok=True)
            with open(path(oid), "wb") as f:
                f.write(zlib.compress(self.objects[oid][1], 1))
        for oid in self.written - reached:
            os.unlink(path(oid))
        self.written = reached
        for name, text in (
            ("packed-refs", "".join(f"{oid} {ref}\n" for ref, oid in sorted(self.refs.items()))),
            ("HEAD", f"{self.head}\n"),
        ):
            with open(os.path.join(self.folder, name), "w") as f:
                f.write(text)


class Backend(BaseHTTPRequestHandler):
    """git http-backend as a CGI program."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        environment = {
            **self.server.environment,
            "GIT_PROJECT_ROOT": self.server.folder,
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        said = subprocess.run(
            ["git", "http-backend"],
            input=body,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ).stdout
        head, _, body = said.partition(b"\r\n\r\n")
        headers = [line.split(": ", 1) for line in head.decode().split("\r\n")]
        status = next((value for name, value in headers if name == "Status"), "200")
        self.send_response(int(status.split()[0]))
        for name, value in headers:
            if name != "Status":
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET


class Servers:
    """git's and weir's, for upstreams below `folder`/up."""

    def __init__(self, folder):
        self.folder, self.up, self.pool = folder, os.path.join(folder, "up"), os.path.join(folder, "pool")
        os.makedirs(self.up)
        config = os.path.join(folder, "config")
        with open(config, "w") as f:
            f.write(CONFIG)
        self.environment = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith("GIT_") and not k.lower().endswith("_proxy")
        }
        self.environment.update(
            GIT_CONFIG_GLOBAL=config,
            GIT_CONFIG_NOSYSTEM="1",
            HOME=folder,
            GIT_TERMINAL_PROMPT="0",
            LC_ALL="C",
            TZ="UTC",
            GIT_AUTHOR_DATE=f"{EPOCH} +0000",
            GIT_COMMITTER_DATE=f"{EPOCH} +0000",
            GIT_DEFAULT_REF_FORMAT="files",
        )
        subprocess.run([WEIR, "-q", "init", self.pool], check=True, env=self.environment)
        ports = [free_port() for _ in range(3)]
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Backend)
        self.http.folder, self.http.environment = self.up, self.environment
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        daemon = [
            "git",
            "daemon",
            "--reuseaddr",
            "--listen=127.0.0.1",
            f"--port={ports[0]}",
            "--export-all",
            f"--base-path={self.up}",
            "--max-connections=0",
        ]
        serve = [
            WEIR,
            "-q",
            "--pool",
            self.pool,
            "serve",
            "--no-mirror",
            "--git",
            f"127.0.0.1:{ports[1]}",
            "--http",
            f"127.0.0.1:{ports[2]}",
        ]
        self.log = open(os.path.join(folder, "log"), "w")
        self.processes = [
            subprocess.Popen(
                c, env=self.environment, stdout=self.log, stderr=self.log, start_new_session=True
            )
            for c in (daemon, serve)
        ]
        for port in ports:
            for _ in range(300):
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    time.sleep(0.1)
        self.urls = {
            ("git", "git"): f"git://127.0.0.1:{ports[0]}/",
            ("git", "http"): f"http://127.0.0.1:{self.http.server_address[1]}/",
            ("weir", "git"): f"git://127.0.0.1:{ports[1]}/",
            ("weir", "http"): f"http://127.0.0.1:{ports[2]}/",
        }

    def end(self):
        for process in self.processes:
            os.killpg(process.pid, signal.SIGTERM)  # git daemon is a child of git's.
            process.wait()
        self.http.shutdown()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
