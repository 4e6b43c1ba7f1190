#!/usr/bin/env python3
"""A real Gitea, crawled and mirrored by weir through many changes: gitea.py [REPOSITORIES].

The changes are renames, transfers, deletions and force-pushes. The script builds Gitea from its Go module
below target/gitea, if it is not there. Gitea's own API is the oracle: afterwards weir knows exactly what
Gitea lists, serves the same refs, and has kept what was deleted. Prints a line for each step; fails at the
first difference.
"""

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
import socket

import gitea_webhooks

VERSION = "v1.24.6"
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WEIR = os.environ.get("WEIR", os.path.join(ROOT, "target", "debug", "weir"))
BUILT = os.path.join(ROOT, "target", "gitea")
PASSWORD = "a-password-of-nobody"


def run(*command, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr}{done.stdout}")
    return done.stdout


def port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def build():
    """The folder of Gitea's source with the program in it."""
    source = os.path.join(BUILT, "source")
    if not os.path.exists(os.path.join(source, "gitea")):
        shutil.rmtree(source, ignore_errors=True)
        module = os.path.join(BUILT, "module")
        os.makedirs(module, exist_ok=True)
        environment = {**os.environ, "GOPATH": os.path.join(BUILT, "go"), "GOFLAGS": "-mod=mod -modcacherw"}
        if not os.path.exists(os.path.join(module, "go.mod")):
            run("go", "mod", "init", "x", cwd=module, env=environment)
        place = json.loads(
            run(
                "go",
                "mod",
                "download",
                "-json",
                f"code.gitea.io/gitea@{VERSION}",
                cwd=module,
                env=environment,
            )
        )["Dir"]
        shutil.copytree(place, source)
        run("chmod", "-R", "u+w", source)
        run(
            "go",
            "build",
            "-tags",
            "sqlite sqlite_unlock_notify",
            "-o",
            "gitea",
            ".",
            cwd=source,
            env=environment,
        )
    return source


class Gitea:
    def __init__(self, work):
        source = build()
        self.work = os.path.join(work, "gitea")
        os.makedirs(self.work)
        self.url = f"http://127.0.0.1:{port()}"
        config = os.path.join(self.work, "app.ini")
        with open(config, "w") as f:
            f.write(f"""RUN_MODE = prod
RUN_USER = {os.environ.get("USER") or subprocess.check_output(["id", "-un"], text=True).strip()}
[server]
HTTP_ADDR = 127.0.0.1
HTTP_PORT = {self.url.rsplit(":", 1)[1]}
ROOT_URL = {self.url}/
STATIC_ROOT_PATH = {source}
DISABLE_SSH = true
LFS_START_SERVER = true
[database]
DB_TYPE = sqlite3
PATH = {self.work}/gitea.db
SQLITE_JOURNAL_MODE = WAL
[webhook]
ALLOWED_HOST_LIST = loopback
[repository]
ROOT = {self.work}/repositories
[security]
INSTALL_LOCK = true
PASSWORD_HASH_ALGO = pbkdf2_v1
[log]
LEVEL = Error
[cron]
ENABLED = false
[indexer]
REPO_INDEXER_ENABLED = false
""")
        self.program = [os.path.join(source, "gitea"), "--work-path", self.work, "--config", config]
        # It will not run as root unless it is told that this is meant.
        self.environment = {
            **os.environ,
            "GITEA_I_AM_BEING_UNSAFE_RUNNING_AS_ROOT": "true",
            "HOME": self.work,
        }
        self.admin("migrate")
        self.admin(
            "admin",
            "user",
            "create",
            "--admin",
            "--username",
            "keeper",
            "--password",
            PASSWORD,
            "--email",
            "k@example.com",
            "--must-change-password=false",
        )
        self.token = self.admin(
            "admin", "user", "generate-access-token", "--username", "keeper", "--scopes", "all", "--raw"
        ).split()[-1]
        self.process = subprocess.Popen(
            [*self.program, "web"], env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for _ in range(300):
            try:
                self.api("GET", "version")
                return
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.1)
        sys.exit("Gitea does not answer")

    def admin(self, *words):
        return run(*self.program, *words, env=self.environment)

    def api(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"token {self.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/api/v1/{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read()
            return json.loads(text) if text else None

    def repositories(self):
        """Everything it lists, by id."""
        found, page = {}, 1
        while True:
            items = self.api("GET", f"repos/search?limit=50&page={page}&sort=id")["data"]
            found.update({r["id"]: r for r in items})
            if len(items) < 50:
                return found
            page += 1

    def listed(self, place):
        """All items of a list."""
        found, page = [], 1
        while True:
            answer = self.api("GET", f"{place}{'&' if '?' in place else '?'}limit=50&page={page}")
            items = answer["data"] if isinstance(answer, dict) else answer
            found += items
            if len(items) < 50:
                return found
            page += 1

    def push_lfs(self, repository, size):
        """A commit with a file of so many random bytes that Git LFS keeps; its SHA-256."""
        work = tempfile.mkdtemp(dir=self.work)
        run(
            "git",
            "clone",
            "-q",
            repository["clone_url"].replace("http://", f"http://keeper:{PASSWORD}@"),
            work,
        )
        git = lambda *words: run(
            "git", "-C", work, "-c", "user.name=k", "-c", "user.email=k@example.com", *words
        )
        git("lfs", "install", "--local")
        git("lfs", "track", "*.bin")
        data = random.randbytes(size)
        with open(os.path.join(work, "large.bin"), "wb") as f:
            f.write(data)
        git("add", "-A")
        git("commit", "-qm", "large")
        git("push", "-q", "origin", "HEAD:main")
        shutil.rmtree(work)
        return hashlib.sha256(data).hexdigest()

    def push(self, repository, force):
        """Pushes a commit to main; with `force`, one without the history of main. Returns its id."""
        work = tempfile.mkdtemp(dir=self.work)
        url = repository["clone_url"].replace("http://", f"http://keeper:{PASSWORD}@")
        run("git", "clone", "-q", url, work)
        if force:
            run("git", "-C", work, "checkout", "-q", "--orphan", "anew")
        with open(os.path.join(work, f"file{random.randrange(1000)}"), "w") as f:
            f.write("x" * random.randrange(1, 2000))
        run("git", "-C", work, "add", "-A")
        run("git", "-C", work, "-c", "user.name=k", "-c", "user.email=k@example.com", "commit", "-qm", "more")
        run("git", "-C", work, "push", "-q", *(["-f"] if force else []), "origin", "HEAD:main")
        pushed = run("git", "-C", work, "rev-parse", "HEAD").strip()
        shutil.rmtree(work)
        return pushed


def refs(url):
    # Some are private.
    return run("git", "ls-remote", url.replace("http://", f"http://keeper:{PASSWORD}@"))


def compare(gitea, weir, served, kept):
    """weir knows and serves what Gitea has, and still has what it had."""
    theirs = gitea.repositories()
    ours = {r["name"]: r for r in json.loads(weir("--json", "ls"))}
    expected = {f"g/{r['full_name']}": r["clone_url"] for r in theirs.values() if not r["empty"]}
    live = {name: r["url"] for name, r in ours.items() if name not in kept}
    if live != expected:
        odd = {n for n in live.keys() | expected.keys() if live.get(n) != expected.get(n)}
        sys.exit(
            f"{len(odd)} names differ, {sorted(odd)[:5]}: "
            f"{[(live.get(n), expected.get(n)) for n in sorted(odd)[:5]]}"
        )

    def same(item):
        name, url = item
        return name if refs(url) != refs(f"{served}/{name}") else None

    with ThreadPoolExecutor(8) as pool:
        different = [name for name in pool.map(same, expected.items()) if name]
    if different:
        sys.exit(f"{len(different)} repositories have other refs than upstream: {different[:5]}")
    for name, refs_then in kept.items():
        if refs(f"{served}/{name}") != refs_then:
            sys.exit(f"{name} is not what it was when it was deleted")
    return len(expected)


def compare_accounts(gitea, weir):
    """weir knows the people and organisations that Gitea has, and who belongs to which."""
    people = {u["login"] for u in gitea.listed("users/search")}
    organisations = {o["username"] for o in gitea.listed("orgs")}
    expected = {(login, "user") for login in people} | {(login, "organization") for login in organisations}
    belongs = {(m["login"], o) for o in organisations for m in gitea.listed(f"orgs/{o}/members")}
    ours = json.loads(weir("--json", "accounts", "-n", "100000"))
    if {(a["login"], a["kind"]) for a in ours} != expected:
        sys.exit(f"accounts differ: {sorted({(a['login'], a['kind']) for a in ours} ^ expected)[:5]}")
    if {(a["login"], o) for a in ours for o in a["organizations"]} != belongs:
        sys.exit("who belongs to which organisation differs")
    return len(people), len(organisations), len(belongs)


def lfs_and_wiki(gitea, weir, pool_folder, repository):
    """A file of Git LFS, from a real server to a real client, and a wiki."""
    name = f"g/{repository['full_name']}"
    oid = gitea.push_lfs(repository, 3_000_000)
    owner = repository["full_name"]
    gitea.api("POST", f"repos/{owner}/wiki/new", {"title": "Home", "content_base64": "aGVsbG8="})
    with open(os.path.join(pool_folder, "weir.toml")) as f:
        text = f.read()
    with open(os.path.join(pool_folder, "weir.toml"), "w") as f:
        f.write(text.replace("accounts = true", f'wikis = true\ninclude = ["{owner}*"]'))
    weir("set", "--lfs", "true", name)
    weir("crawl")
    weir("mirror", name)
    weir("mirror", f"{name}.wiki")
    web = port()
    server = subprocess.Popen(
        [WEIR, "-q", "serve", "--no-mirror", "--git", f"127.0.0.1:{port()}", "--http", f"127.0.0.1:{web}"]
    )
    try:
        time.sleep(1)
        work = tempfile.mkdtemp(dir=gitea.work)
        run("git", "clone", "-q", f"http://127.0.0.1:{web}/{name}", work)
        run("git", "-C", work, "lfs", "install", "--local")
        run("git", "-C", work, "lfs", "pull")
        with open(os.path.join(work, "large.bin"), "rb") as f:
            if hashlib.sha256(f.read()).hexdigest() != oid:
                sys.exit("a file of Git LFS is not what was pushed")
        if refs(f"http://127.0.0.1:{web}/{name}.wiki") != refs(
            repository["clone_url"].replace(".git", ".wiki.git")
        ):
            sys.exit("the wiki is not what it is upstream")
    finally:
        server.terminate()
        server.wait()


STREAMS = {
    "issues": "issues?state=all&type=issues",
    "comments": "issues/comments",
    "labels": "labels",
    "milestones": "milestones?state=all",
    "pulls": "pulls?state=all",
    "releases": "releases",
}


def compare_metadata(gitea, weir, repository):
    """What weir has of what is said around a repository is what Gitea lists."""
    name, counts = repository["full_name"], []
    # Where branches are by now is no change of a pull request's, to Gitea either.
    of_branches = ("base", "head", "merge_base", "mergeable")
    kept = lambda item: {key: value for key, value in item.items() if key not in of_branches}
    for stream, place in STREAMS.items():
        theirs = {item["id"]: kept(item) for item in gitea.listed(f"repos/{name}/{place}")}
        ours = [kept(json.loads(line)) for line in weir("metadata", "cat", f"g/{name}", stream).splitlines()]
        if len(ours) != len(theirs) or {item["id"]: item for item in ours} != theirs:
            different = [item["id"] for item in ours if theirs.get(item["id"]) != item]
            sys.exit(f"{stream}: {len(ours)} here, {len(theirs)} there, different: {different[:5]}")
        counts.append(f"{len(ours)} {stream}")
    return ", ".join(counts)


def metadata(gitea, weir, repository):
    """Issues, pull requests and releases of a real repository, through changes."""
    name = repository["full_name"]
    api = lambda method, place, body: gitea.api(method, f"repos/{name}/{place}", body)
    for n in range(4):
        api("POST", "labels", {"name": f"label{n}", "color": "#00aabb"})
    for n in range(2):
        api("POST", "milestones", {"title": f"milestone {n}"})
    for n in range(120):
        issue = api("POST", "issues", {"title": f"issue {n}", "body": 'a\nb \u00e9 "quoted"'})
        if n % 2:
            api("POST", f"issues/{issue['number']}/comments", {"body": f"comment on {n}"})
    for n in range(3):
        api(
            "POST",
            "contents/new%d" % n,
            {"content": "aGVsbG8=", "new_branch": f"topic{n}", "message": "more"},
        )
        api("POST", "pulls", {"head": f"topic{n}", "base": "main", "title": f"pull {n}"})
    for n in range(2):
        api("POST", "releases", {"tag_name": f"v{n}", "name": f"Release {n}"})
    weir("metadata", "update", f"g/{name}")
    print("the same:", compare_metadata(gitea, weir, repository), flush=True)
    api("PATCH", "issues/7", {"title": "another title", "state": "closed"})
    api("POST", "issues/8/comments", {"body": "late"})
    api("PATCH", "pulls/122", {"title": "another title"})
    api("POST", "pulls/123/merge", {"Do": "merge"})
    api("POST", "releases", {"tag_name": "v9", "name": "Release 9"})
    print(weir("metadata", "update", f"g/{name}").strip())
    print("the same after changes:", compare_metadata(gitea, weir, repository), flush=True)


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    random.seed(7)
    work = tempfile.mkdtemp(prefix="weir-gitea-")
    processes = []
    try:
        gitea = Gitea(work)
        processes.append(gitea.process)
        started = time.time()
        users = [f"user{n}" for n in range(count * 2 // 5)]
        organisations = [f"org{n}" for n in range(max(count // 25, 1))]
        for name in users:
            gitea.api(
                "POST",
                "admin/users",
                {
                    "username": name,
                    "email": f"{name}@example.com",
                    "password": PASSWORD,
                    "must_change_password": False,
                },
            )
        for name in organisations:
            gitea.api("POST", "orgs", {"username": name})
            team = gitea.api("GET", f"orgs/{name}/teams")[0]["id"]
            for member in random.sample(users, min(7, len(users))):
                gitea.api("PUT", f"teams/{team}/members/{member}")

        def make(n):
            owner = random.Random(n).choice(users + organisations * 5)
            place = f"orgs/{owner}/repos" if owner.startswith("org") else f"admin/users/{owner}/repos"
            return gitea.api(
                "POST",
                place,
                {
                    "name": f"repository{n}",
                    "private": n % 10 == 3,
                    "auto_init": True,
                    "default_branch": "main",
                    "readme": "Default",
                },
            )

        with ThreadPoolExecutor(4) as pool:
            made = list(pool.map(make, range(count)))
        print(
            f"{len(users)} users, {len(organisations)} organisations and "
            f"{len(made)} repositories made in {time.time() - started:.0f} s",
            flush=True,
        )

        pool_folder = os.path.join(work, "pool")
        os.environ.update(WEIR_POOL=pool_folder, HOME=work)
        weir = lambda *words: run(WEIR, *words)
        weir("init")
        with open(os.path.join(pool_folder, "weir.toml"), "w") as f:
            f.write(
                f'[[forge]]\ntype = "gitea"\nurl = "{gitea.url}"\nname = "g"\n'
                f'tokens = ["{gitea.token}"]\naccounts = true\n'
                '[mirror]\nretry = "1s"\n'
                # Private ones are compared, too.
                '[[access.rules]]\nrepositories = ["g"]\npublic = true\n'
            )
        ports = port()
        for step in ("crawl", "mirror"):
            started = time.time()
            print(weir(step).splitlines()[-1], f"({time.time() - started:.1f} s)", flush=True)
        server = subprocess.Popen([WEIR, "-q", "serve", "--no-mirror", "--git", f"127.0.0.1:{ports}"])
        processes.append(server)
        served = f"git://127.0.0.1:{ports}"
        time.sleep(1)
        print(compare(gitea, weir, served, {}), "repositories are the same", flush=True)
        print(
            "%d people, %d organisations and %d memberships are the same" % compare_accounts(gitea, weir),
            flush=True,
        )

        rest = list(gitea.repositories().values())
        random.shuffle(rest)
        tenth = max(count // 10, 1)
        take = lambda: [rest.pop() for _ in range(tenth)]
        kept = {}
        for r in take():
            kept[f"g/{r['full_name']}"] = refs(f"{served}/g/{r['full_name']}")
            gitea.api("DELETE", f"repos/{r['full_name']}")
        freed = []
        for r in take():
            gitea.api("PATCH", f"repos/{r['full_name']}", {"name": f"renamed{r['id']}"})
            freed.append(r["full_name"])
        for r in take():
            owner = random.choice([o for o in organisations if o != r["owner"]["login"]])
            gitea.api("POST", f"repos/{r['full_name']}/transfer", {"new_owner": owner})
        for r in take():
            gitea.push(r, force=True)
        for r in take():
            gitea.push(r, force=False)
        # New ones under the names that others have had.
        for full_name in freed[: tenth // 2]:
            owner, name = full_name.split("/")
            place = f"orgs/{owner}/repos" if owner.startswith("org") else f"admin/users/{owner}/repos"
            gitea.api(
                "POST",
                place,
                {"name": name, "auto_init": True, "default_branch": "main", "readme": "Default"},
            )
        print(
            f"{tenth} each deleted, renamed, transferred, force-pushed, pushed; "
            f"{tenth // 2} made under old names",
            flush=True,
        )
        # Somebody leaves an organisation, another is made.
        left = gitea.listed(f"orgs/{organisations[0]}/members")[0]["login"]
        gitea.api("DELETE", f"orgs/{organisations[0]}/members/{left}")
        gitea.api("POST", "orgs", {"username": "orgnew"})
        for step in ("crawl", "mirror"):
            started = time.time()
            print(weir(step).splitlines()[-1], f"({time.time() - started:.1f} s)", flush=True)
        print(
            "%d people, %d organisations and %d memberships are the same" % compare_accounts(gitea, weir),
            flush=True,
        )
        print(
            compare(gitea, weir, served, kept),
            "repositories are the same,",
            len(kept),
            "that were deleted are kept",
            flush=True,
        )
        weir("fsck")
        print(weir("status"), end="")
        metadata(gitea, weir, rest.pop())
        lfs_and_wiki(gitea, weir, pool_folder, rest.pop())
        print("a file of Git LFS and a wiki are the same", flush=True)
        told = [r for r in rest if not r["private"]][:20]
        took = gitea_webhooks.pushes(gitea, WEIR, weir, pool_folder, told, (port(), port()))
        pushed, told = (sorted(one)[len(took) // 2] for one in zip(*took))
        print(f"{len(took)} pushes are served after {pushed:.1f} s, {told:.2f} s after Gitea told of them")
    finally:
        for process in processes:
            process.terminate()
            process.wait()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
