"""Answers that GitHub once gave, as PyGithub's tests carry them, crawled by weir.

The answers are about repositories, people, organisations, issues, pull requests and releases. The script
fetches the PyPI package PyGithub (LGPL-3) below target/recorded, if it is not there; the package never
becomes part of this project. The script serves the recordings on loopback by GitHub's rules: in pages, in
the order and from the time that a request asks for.
"""

import collections
import glob
import http.server
import json
import os
import re
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import urllib.parse

PACKAGE = "PyGithub==2.10.0"
# Repositories whose issues, comments, pull requests and so on were recorded.
TOLD_OF = ["PyGithub/PyGithub", "openframeworks/openFrameworks"]
STREAMS = {
    "issues": "issues",
    "issues/comments": "comments",
    "labels": "labels",
    "milestones": "milestones",
    "pulls": "pulls",
    "pulls/comments": "review_comments",
    "releases": "releases",
}


def exchanges(folder):
    """Path with query, and answer, of each GET that was answered, in ten lines and an empty one."""
    if not glob.glob(folder + "/pygithub-*.tar.gz"):
        subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "download",
                "-q",
                "--no-deps",
                "--no-binary",
                ":all:",
                "-d",
                folder,
                PACKAGE,
            ],
            check=True,
        )
    with tarfile.open(glob.glob(folder + "/pygithub-*.tar.gz")[0]) as package:
        for member in sorted(
            (m for m in package if re.search(r"/ReplayData/.*\.txt$", m.name)), key=lambda m: m.name
        ):
            lines = package.extractfile(member).read().decode(errors="replace").split("\n")
            for n in range(0, len(lines) - 9, 11):
                if lines[n + 1] == "GET" and lines[n + 7] == "200" and lines[n + 9][:1] in ("[", "{"):
                    try:
                        yield lines[n + 4], json.loads(lines[n + 9])
                    except ValueError:
                        pass


def recorded(folder):
    """Lists by path: what was told last of each repository, account or item."""
    lists = collections.defaultdict(dict)
    for path, answer in exchanges(folder):
        path = urllib.parse.urlsplit(path).path
        told = re.fullmatch(r"/repos/([^/]+/[^/]+)(?:/(.+))?", path)
        # Some were recorded more than once, under other ids.
        if path in ("/repositories", "/users"):
            lists[path].update({one.get("full_name") or one["login"]: one for one in answer})
        elif told and told[1] in TOLD_OF and told[2] is None and answer["full_name"] == told[1]:
            lists["/repositories"][told[1]] = answer
        elif told and told[1] in TOLD_OF and told[2] in STREAMS:
            for item in (one for one in answer if isinstance(one, dict) and "url" in one):
                known = lists[path].get(item["url"])
                if known is None or known.get("updated_at", "") <= item.get("updated_at", ""):
                    lists[path][item["url"]] = item
        elif re.fullmatch(r"/orgs/[^/]+/(public_)?members", path):
            lists[path.replace("public_", "")].update({one["id"]: one for one in answer if "id" in one})
    return {path: list(items.values()) for path, items in lists.items()}


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        asked = dict(urllib.parse.parse_qsl(url.query))
        path, limit = url.path.removeprefix("/api/v3"), int(asked.get("per_page", 30))
        by_id = {str(one["id"]): one["full_name"] for one in self.server.lists["/repositories"]}
        path = re.sub(
            r"^/repositories/(\d+)(?=/)", lambda found: "/repos/" + by_id.get(found[1], found[1]), path
        )
        items = self.server.lists.get(path, [] if path.startswith(("/orgs/", "/repos/")) else None)
        if items is None:
            return self.send_error(404)
        if path in ("/repositories", "/users"):
            items = sorted(
                (one for one in items if one["id"] > int(asked.get("since", 0))), key=lambda one: one["id"]
            )
            rest, items = items[limit:], items[:limit]
            asked["since"] = items[-1]["id"] if items else 0
        else:
            items = [one for one in items if one.get("updated_at", "") >= asked.get("since", "")]
            field = asked.get("sort", "created") + "_at"
            items.sort(key=lambda one: one.get(field, ""), reverse=asked.get("direction", "desc") == "desc")
            page = int(asked.get("page", 1))
            rest, items = items[page * limit :], items[(page - 1) * limit : page * limit]
            asked["page"] = page + 1
        body = json.dumps(items).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if rest:
            own = f"http://127.0.0.1:{self.server.server_port}{url.path}?{urllib.parse.urlencode(asked)}"
            self.send_header("Link", f'<{own}>; rel="next"')
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def upstreams(weir, folder):
    """Serves a repository with one commit under each name of `TOLD_OF`.

    Returns the server's process, and the URL that the names follow."""
    env = dict(
        os.environ,
        GIT_CONFIG_NOSYSTEM="1",
        HOME=folder,
        **{f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    )
    for name in TOLD_OF:
        at = f"{folder}/{name}.git"
        subprocess.run(["git", "init", "-q", "--bare", "-b", "main", at], check=True)
        tree = (
            subprocess.run(["git", "mktree"], cwd=at, input=b"", stdout=subprocess.PIPE, check=True)
            .stdout.decode()
            .strip()
        )
        commit = (
            subprocess.run(
                ["git", "commit-tree", "-m", name, tree], cwd=at, env=env, stdout=subprocess.PIPE, check=True
            )
            .stdout.decode()
            .strip()
        )
        subprocess.run(["git", "update-ref", "refs/heads/main", commit], cwd=at, check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    served = subprocess.Popen(
        [
            weir,
            "daemon",
            "--export-all",
            f"--base-path={folder}",
            "--listen=127.0.0.1",
            f"--port={port}",
            "--log-destination=none",
        ]
    )
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except OSError:
            time.sleep(0.05)
    return served, f"git://127.0.0.1:{port}"


def run(weir, folder):
    """Crawls all that, prints a line for each thing that is compared; says how many differ."""
    lists = recorded(folder)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as temporary:
        pool = temporary + "/pool"
        served, git_url = upstreams(weir, temporary + "/git")
        try:
            text = (
                json.dumps(lists)
                .replace("https://github.com/", git_url + "/")
                .replace("git://github.com/", git_url + "/")
            )
            server.lists = lists = json.loads(text)
            subprocess.run([weir, "--pool", pool, "-q", "init"], check=True)
            with open(pool + "/weir.toml", "w") as f:
                f.write(
                    f'[[forge]]\ntype = "github"\nurl = "http://127.0.0.1:{server.server_port}"\nname = "f"\n'
                    f'clone_from = ["{git_url}"]\n'
                    'tries = 1\naccounts = true\nmetadata = ["issues", "pulls", "releases"]\n'
                )
            return compare(
                lambda *args: subprocess.run(
                    [weir, "--pool", pool, *args], stdout=subprocess.PIPE, check=True, text=True
                ).stdout,
                lists,
            )
        finally:
            served.kill()
            served.wait()
            server.shutdown()


def compare(weir, lists):
    failed = 0

    def line(what, expected, found):
        nonlocal failed
        failed += found != expected
        print(
            f"{'github':10} {what[:34]:34} {len(expected):6} "
            f"{'all there' if found == expected else f'expected, {len(found)} found'}",
            flush=True,
        )

    weir("-q", "crawl")
    line(
        "repositories",
        {"f/" + one["full_name"] for one in lists["/repositories"]},
        {one["name"] for one in json.loads(weir("--json", "ls"))},
    )
    accounts = {one["login"]: one["kind"] for one in json.loads(weir("--json", "accounts"))}
    owners = [one["owner"] for one in lists["/repositories"]]
    # Old answers do not say which is what.
    expected = {
        one["login"]: one.get("type", accounts.get(one["login"], "")).lower()
        for one in owners + lists["/users"]
    }
    line("people, organisations", expected, accounts)
    for name in TOLD_OF:
        weir("-q", "mirror", "f/" + name)
        for again in (False, True):
            said = json.loads(weir("--json", "metadata", "update", "f/" + name).splitlines()[0])
            if again:
                line(f"{name}: new the second time", set(), set(said.get("added") or {}))
        for at, stream in STREAMS.items():
            # Pull requests are issues, too, and have a stream of their own.
            expected = {
                one["url"]: one
                for one in lists.get(f"/repos/{name}/{at}", [])
                if at != "issues" or not any((one.get("pull_request") or {}).values())
            }
            if expected:
                items = [
                    json.loads(text) for text in weir("metadata", "cat", "f/" + name, stream).splitlines()
                ]
                line(f"{name.split('/')[1]}: {stream}", expected, {one["url"]: one for one in items})
    return failed
