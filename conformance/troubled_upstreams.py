"""Upstreams on loopback as the world has them: good ones by four ways, and bad ones in eleven."""

import http.server
import os
import socket
import subprocess
import threading

from harness import Pool, end, free_port, listens, wait_for

ENVIRONMENT = {
    **{k: v for k, v in os.environ.items() if not k.startswith("GIT_")},
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    **{
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (
            ("NAME", "A U Thor"),
            ("EMAIL", "author@example.com"),
            ("DATE", "1700000000 +0100"),
        )
    },
}


def git(*words, stdin=None):
    return subprocess.run(
        ["git", *words], input=stdin, env=ENVIRONMENT, check=True, capture_output=True
    ).stdout


def make_repository(path, number):
    """A bare repository with a few commits, a branch and a tag."""
    git("init", "-q", "--bare", "-b", "main", path)
    stream = []
    for n in range(3 + number % 4):
        data = f"{number} {n}\n" * (20 + number)
        stream.append(
            f"commit refs/heads/main\ncommitter A <a@x> {1700000000 + n} +0000\ndata 2\nc\n"
            f"M 100644 inline f{n}\ndata {len(data)}\n{data}\n"
        )
    stream.append(
        "reset refs/heads/topic\nfrom refs/heads/main\n\nreset refs/tags/v1\nfrom refs/heads/main\n\n"
    )
    git("-C", path, "fast-import", "--quiet", stdin="".join(stream).encode())


class Tcp:
    """Listens, and does with each connection what it is told to."""

    def __init__(self, serve):
        self.socket, self.serve, self.asked = socket.create_server(("127.0.0.1", 0)), serve, 0
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            connection, _ = self.socket.accept()
            self.asked += 1
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()


def say_nothing(connection, kept=[]):
    # Nobody hangs up.
    kept.append(connection)


def say(text):
    def serve(connection):
        try:
            connection.sendall(text)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(4096):
                pass
        except OSError:
            pass
        connection.close()

    return serve


def spoilt(kind, body, request):
    """What a bad upstream makes of a good answer."""
    if kind == "lying" and b"command=ls-refs" in request:
        # It advertises an id that it does not have: all refs of these repositories are one.
        line = body.find(b" refs/heads/main")
        return body.replace(body[line - 40 : line], b"d" * 40)
    at = body.find(b"PACK")
    if kind == "flipped" and at >= 0:
        at += 60
        return body[:at] + bytes([body[at] ^ 0x55]) + body[at + 1 :]
    if kind == "cut" and at >= 0:
        return body[: at + (len(body) - at) // 2]
    return body


class Web(http.server.ThreadingHTTPServer):
    """git's own http-backend below /good, and below other folders whatever goes wrong with HTTP."""

    daemon_threads, request_queue_size = True, 100

    def __init__(self, folder):
        self.folder, self.asked, self.are_mended = folder, [], False
        super().__init__(("127.0.0.1", 0), Handler)
        self.port = self.server_port
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    # Head and body go together.
    wbufsize = 1 << 16

    def log_message(self, *_):
        pass

    def answer(self, status, text, headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        request = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path, _, query = self.path.partition("?")
        way, _, rest = path.strip("/").partition("/")
        self.server.asked.append(way)
        page = (("Content-Type", "text/html"),)
        if self.server.are_mended:
            service = "info/refs" if rest.endswith("info/refs") else "git-upload-pack"
            return self.backend("good", f"r0.git/{service}", query, request)
        if way in ("good", "flipped", "cut", "lying"):
            return self.backend(way, rest, query, request)
        if way == "loop":
            other = path.replace("/a", "/b", 1) if "/a" in path else path.replace("/b", "/a", 1)
            return self.answer(302, b"", (("Location", f"{other}?{query}"),))
        answers = {
            "401": (401, b"", (("WWW-Authenticate", 'Basic realm="x"'),)),
            "403": (403, b"<h1>Forbidden</h1>", page),
            "500": (500, b"<h1>Internal Server Error</h1>", page),
            "html": (200, b"<!DOCTYPE html><title>Parked</title><h1>This domain is for sale</h1>", page),
        }
        self.answer(*answers.get(way, (404, b"<h1>Not Found</h1>", page)))

    do_POST = do_GET

    def backend(self, way, rest, query, request):
        environment = {
            **ENVIRONMENT,
            "GIT_PROJECT_ROOT": self.server.folder,
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": "/" + rest,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(request)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        done = subprocess.run(["git", "http-backend"], input=request, env=environment, capture_output=True)
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        headers = [tuple(line.split(": ", 1)) for line in head.decode().split("\r\n") if line]
        status = next((int(value.split()[0]) for name, value in headers if name == "Status"), 200)
        self.answer(status, spoilt(way, body, request), [h for h in headers if h[0] != "Status"])


class World:
    """300 URLs: 270 that are well, and 30 that are bad in eleven ways."""

    def __init__(self, folder, kinds=40):
        self.folder, self.processes = os.path.join(folder, "upstreams"), []
        os.makedirs(self.folder)
        for n in range(kinds):
            make_repository(self.path(n), n)
        git("init", "-q", "--bare", os.path.join(self.folder, "nothing.git"))
        self.web, self.silent, self.garbage = (
            Web(self.folder),
            Tcp(say_nothing),
            Tcp(say(bytes(range(256)) * 8)),
        )
        self.banner = Tcp(say(b"SSH-2.0-OpenSSH_9.6\r\n"))
        # Bound, and not listened to: nobody else gets it.
        self.refusing = socket.socket()
        self.refusing.bind(("127.0.0.1", 0))
        self.git_port = free_port()
        program = os.path.join(git("--exec-path").decode().strip(), "git-daemon")
        self.start(
            [
                program,
                "--export-all",
                "--reuseaddr",
                "--listen=127.0.0.1",
                f"--port={self.git_port}",
                f"--base-path={self.folder}",
            ]
        )
        # And weir's own server, of a pool of its own.
        self.pool, self.weir_port = Pool(os.path.join(folder, "served")), free_port()
        self.pool("add", "--from", "-", stdin="".join(f"{self.path(n)} served/r{n}\n" for n in range(kinds)))
        self.pool("mirror")
        self.processes.append(
            self.pool.start(
                "-q",
                "serve",
                "--no-mirror",
                "--git",
                f"127.0.0.1:{self.weir_port}",
                log=os.path.join(folder, "served.log"),
            )
        )
        for port in (self.git_port, self.weir_port):
            wait_for(f"port {port}", 20, lambda: listens(port))

    def path(self, n):
        return os.path.join(self.folder, f"r{n}.git")

    def start(self, command):
        self.processes.append(
            subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT)
        )

    def good(self, count=267):
        """URLs of repositories, many of them of the same few, and what is wanted as name of each."""
        kinds = [
            f"git://127.0.0.1:{self.git_port}/r{{}}.git",
            f"http://127.0.0.1:{self.web.port}/good/r{{}}.git",
            f"git://127.0.0.1:{self.weir_port}/served/r{{}}",
            os.path.join(self.folder, "r{}.git"),
        ]
        urls = {
            f"good{n % 9}.example/owner{n}/name{n}": kinds[n % 4].format(n // 4 % 40) for n in range(count)
        }
        for n, kind in enumerate(
            (
                f"git://127.0.0.1:{self.git_port}/",
                f"http://127.0.0.1:{self.web.port}/good/",
                self.folder + "/",
            )
        ):
            urls[f"empty.example/owner{n}/nothing"] = kind + "nothing.git"
        return urls

    def bad(self):
        """The ways to be bad: for each, URLs, right classes, and words of which one says what is wrong."""
        web, tcp = (
            f"http://127.0.0.1:{self.web.port}",
            lambda scheme, port, n: f"{scheme}://127.0.0.1:{port}/owner{n}/name.git",
        )
        refusing, silent, noisy = self.refusing.getsockname()[1], self.silent.port, self.garbage.port
        plain = os.path.join(self.folder, "plain")
        os.makedirs(os.path.join(plain, "owner1"), exist_ok=True)
        with open(os.path.join(plain, "owner1", "README"), "w") as f:
            f.write("no repository\n")
        return {
            "dead host": (
                [f"{s}://no-such-host.invalid/owner/name.git" for s in ("https", "http", "git")],
                {"network"},
                ["resolve", "lookup", "name", "host"],
            ),
            "refused port": (
                [tcp(s, refusing, 1) for s in ("https", "http", "git")],
                {"network"},
                ["refused"],
            ),
            "404": ([f"{web}/404/owner{n}/name.git" for n in range(3)], {"gone"}, ["404"]),
            "401 or 403": (
                [f"{web}/401/o/r.git", f"{web}/403/o/r.git", f"{web}/403/o/s.git"],
                {"forbidden"},
                ["401", "403", "password"],
            ),
            "500": ([f"{web}/500/owner{n}/name.git" for n in range(3)], {"server"}, ["500"]),
            "silence": (
                [tcp(s, silent, 1) for s in ("git", "http")],
                {"network"},
                ["sent nothing", "timeout", "timed out"],
            ),
            "garbage": (
                [tcp("git", noisy, 1), tcp("http", noisy, 2), tcp("git", self.banner.port, 3)],
                {"protocol"},
                ["protocol"],
            ),
            "corrupt pack": ([f"{web}/flipped/r5.git"], {"bad-pack"}, ["pack", "object", "zlib", "inflate"]),
            "pack cut off": (
                [f"{web}/cut/r6.git"],
                {"network", "bad-pack"},
                ["hung up", "broke", "ended", "pack"],
            ),
            "lies about refs": (
                [f"{web}/lying/r7.git"],
                {"server", "incomplete", "protocol"},
                ["d" * 40, "not our ref"],
            ),
            "redirect loop": (
                [f"{web}/loop/a/r.git", f"{web}/loop/b/r.git"],
                {"protocol", "server"},
                ["redirect"],
            ),
            "HTML with 200": (
                [f"{web}/html/owner{n}/name.git" for n in range(3)],
                {"protocol", "gone"},
                ["html", "content", "protocol", "git server", "no git"],
            ),
            "no repository": (
                [os.path.join(plain, "owner1"), f"git://127.0.0.1:{self.git_port}/plain/owner1"],
                {"gone"},
                ["repository"],
            ),
        }

    def asked(self):
        """Connections that the bad servers saw, and requests over HTTP."""
        return self.silent.asked + self.garbage.asked + self.banner.asked + len(self.web.asked)

    def close(self):
        for process in self.processes:
            end(process)
        self.web.shutdown()
