#!/usr/bin/env python3
"""Benchmarks weir beside its peers: run.py [SECTION...]. Prints Markdown tables.

Server CPU, from /proc, is the time of the server's process and of the children that it has waited for. Wall
times are medians. All traffic stays on loopback; the script ends every server by its process id.
"""

import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from programs import BENCH, HERE, SMOKE, WEIR

RUNS = 1 if SMOKE else int(os.environ.get("WEIR_BENCH_RUNS", "3"))
TICK = os.sysconf("SC_CLK_TCK")
GIT_DAEMON = os.path.join(subprocess.check_output(["git", "--exec-path"], text=True).strip(), "git-daemon")

work = tempfile.mkdtemp(prefix="weir-bench-", dir=os.environ.get("WEIR_BENCH_DIR"))
os.environ["HOME"] = work
os.environ["GIT_CONFIG_NOSYSTEM"] = "1"
with open(os.path.join(work, ".gitconfig"), "w") as f:
    f.write(
        "[user]\n\tname = b\n\temail = b@example.com\n[safe]\n\tdirectory = *\n"
        "[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n"
    )
servers = []


def run(*args, **kw):
    return subprocess.run(
        args, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kw
    ).stdout


def git(repo, *args, **kw):
    return run("git", "-C", repo, *args, **kw)


def port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    def __init__(self, args, p, env=None):
        self.port = p
        self.process = subprocess.Popen(args, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        servers.append(self)
        for _ in range(2000):
            try:
                socket.create_connection(("127.0.0.1", p)).close()
                return
            except OSError:
                time.sleep(0.005)
        raise SystemExit(f"{args[0]} does not listen")

    def cpu(self):
        time.sleep(0.15)  # a daemon reaps its children a little later
        fields = open(f"/proc/{self.process.pid}/stat").read().rsplit(") ", 1)[1].split()
        return sum(int(x) for x in fields[11:15]) / TICK

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def git_daemon(base):
    p = port()
    return Server(
        [
            GIT_DAEMON,
            "--export-all",
            "--reuseaddr",
            "--listen=127.0.0.1",
            f"--port={p}",
            f"--base-path={base}",
            "--max-connections=0",
        ],
        p,
    )


def weir(pool, *args):
    return run(WEIR, "--pool", pool, *args)


def weir_serve(pool, *more):
    p = port()
    return Server([WEIR, "--pool", pool, "-q", "serve", "--no-mirror", "--git", f"127.0.0.1:{p}", *more], p)


class Nginx(Server):
    """nginx in front of git-http-backend (fcgiwrap), for the bare repositories below `base`."""

    def __init__(self, base):
        folder, p = tempfile.mkdtemp(dir=work), port()
        # fcgiwrap does not wait for the programs that it starts, so its CPU time is without the backend's.
        # The backend writes down its own time.
        backend, self.log = os.path.join(folder, "backend"), os.path.join(folder, "times")
        with open(backend, "w") as f:
            f.write(f"#!/bin/sh\n{os.path.dirname(GIT_DAEMON)}/git-http-backend\ntimes >>{self.log}\n")
        os.chmod(backend, 0o755)
        parameters = {
            "SCRIPT_FILENAME": backend,
            "GIT_HTTP_EXPORT_ALL": 1,
            "GIT_PROJECT_ROOT": base,
            "PATH_INFO": "$uri",
            "QUERY_STRING": "$query_string",
            "REQUEST_METHOD": "$request_method",
            "CONTENT_TYPE": "$content_type",
            "CONTENT_LENGTH": "$content_length",
            "HTTP_GIT_PROTOCOL": "$http_git_protocol",
            "HTTP_CONTENT_ENCODING": "$http_content_encoding",
            "GIT_CONFIG_COUNT": 1,
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
        }
        with open(os.path.join(folder, "nginx.conf"), "w") as f:
            passed = " ".join(f"fastcgi_param {k} {v};" for k, v in parameters.items())
            temporary = " ".join(
                f"{kind}_temp_path {folder}/{kind};"
                for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
            )
            f.write(
                f"daemon off; pid {folder}/pid; error_log {folder}/err; events {{ }}\n"
                f"                http {{ access_log off; {temporary} client_max_body_size 0;\n"
                f"                server {{ listen 127.0.0.1:{p}; location / {{ fastcgi_buffering off; "
                f"fastcgi_pass unix:{folder}/sock; {passed} }} }} }}"
            )
        # It leaves its workers behind when it ends: they are a group, and end together.
        wrap = ["fcgiwrap", "-s", f"unix:{folder}/sock", "-c", "4"]
        self.wrap = subprocess.Popen(
            wrap, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        while not os.path.exists(os.path.join(folder, "sock")):
            time.sleep(0.01)
        os.chmod(os.path.join(folder, "sock"), 0o777)
        os.chmod(folder, 0o755)
        os.chmod(work, 0o755)
        super().__init__(["nginx", "-c", os.path.join(folder, "nginx.conf")], p)

    def cpu(self):
        """Of nginx, fcgiwrap and all backends."""
        time.sleep(0.3)
        backends = 0.0
        if os.path.exists(self.log):
            # Lines of the shell and of its children in turn, "0m0.12s 0m0.34s".
            for line in open(self.log).read().split("\n")[1::2]:
                backends += sum(
                    60 * float(m) + float(s.rstrip("s"))
                    for m, s in (word.split("m") for word in line.split())
                )
        parents, used = {}, {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                fields = open(f"/proc/{pid}/stat").read().rsplit(") ", 1)[1].split()
            except OSError:
                continue
            parents[int(pid)], used[int(pid)] = int(fields[1]), sum(int(x) for x in fields[11:13])
        ours = {self.process.pid, self.wrap.pid}
        for _ in range(4):
            ours |= {pid for pid, parent in parents.items() if parent in ours}
        return sum(used.get(pid, 0) for pid in ours) / TICK + backends

    def stop(self):
        super().stop()
        if self.wrap.poll() is None:
            os.killpg(self.wrap.pid, signal.SIGTERM)
            self.wrap.wait()


def timed(*args, **kw):
    """Wall and CPU of a command and its children, which must succeed (or kw['ok'] codes)."""
    before = os.times()
    start = time.perf_counter()
    subprocess.run(args, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **kw)
    wall = time.perf_counter() - start
    after = os.times()
    return wall, after.children_user + after.children_system - before.children_user - before.children_system


def sink(server, path, clients, clones, *extra):
    return json.loads(run(BENCH, "sink", f"127.0.0.1:{server.port}", path, str(clients), str(clones), *extra))


rows = []


def row(what, ours, peer, bar, better="lower", unit="s"):
    ratio = ours / peer if peer else float("nan")
    shown = f"{ratio:.3f}" if better == "lower" else f"{ratio:.1f}"
    rows.append((what, f"{ours:.4g} {unit}", f"{peer:.4g} {unit}", shown, bar))
    print(f"| {what} | {ours:.4g} {unit} | {peer:.4g} {unit} | {shown} | {bar} |", flush=True)


def heading(title, peer):
    print(f"\n### {title}\n\n| what | weir | {peer} | ratio | bar |\n|---|---|---|---|---|", flush=True)


def large_repository():
    given = os.environ.get("WEIR_BENCH_REPO")
    target = os.path.join(work, "large.git")
    if given and not SMOKE:
        shutil.copytree(given, target)
    else:
        run("git", "init", "-q", "--bare", "-b", "main", target)
        generated = subprocess.Popen(
            ["python3", os.path.join(HERE, "bench/generate-repository.py"), "300" if SMOKE else "6000"],
            stdout=subprocess.PIPE,
        )
        run("git", "-C", target, "fast-import", "--quiet", stdin=generated.stdout)
        git(target, "repack", "-adbq")
        git(target, "commit-graph", "write", "--reachable")
    plain = os.path.join(work, "large-nobitmap.git")
    shutil.copytree(target, plain)
    for name in os.listdir(os.path.join(plain, "objects/pack")):
        if name.endswith(".bitmap"):
            os.remove(os.path.join(plain, "objects/pack", name))
    return target, plain


def tiny_repository(path, n, seed=1, *more):
    run("git", "init", "-q", "--bare", "-b", "main", path)
    generated = subprocess.run(
        ["python3", os.path.join(HERE, "bench/generate-repository.py"), str(n), str(seed), *more],
        stdout=subprocess.PIPE,
        check=True,
    )
    subprocess.run(
        ["git", "-C", path, "fast-import", "--quiet"],
        input=generated.stdout,
        check=True,
        stderr=subprocess.DEVNULL,
    )


def serving(large, plain):
    pool = os.path.join(work, "serve-pool")
    weir(pool, "init", pool)
    tiny_repository(os.path.join(work, "small.git"), 20)
    weir(pool, "add", "--name", "large", large)
    weir(pool, "add", "--name", "small", os.path.join(work, "small.git"))
    weir(pool, "mirror")
    ours, theirs = weir_serve(pool), git_daemon(work)
    head = git(large, "rev-parse", "HEAD").strip()

    heading("Serving", "git daemon")
    clones = 1 if SMOKE else 5

    def cpu(server, path, clones):
        return clone_cpu(server, f"git://127.0.0.1:{server.port}/{path}", clones)

    # The first after the start maps the archive; those after it are what a server does all day.
    a, b = cpu(ours, "large", 1), cpu(theirs, "large.git", 1)
    row("the first full clone by stock git, server CPU; peer with bitmaps", a, b, "-")
    a, b, c = (
        cpu(ours, "large", clones),
        cpu(theirs, "large.git", clones),
        cpu(theirs, "large-nobitmap.git", 1),
    )
    row("full clone by stock git, server CPU; peer with bitmaps", a, b, "1/25")
    row("full clone by stock git, server CPU; peer without bitmaps", a, c, "1/100")
    for server, path in ((ours, "/large"), (theirs, "/large.git")):
        sink(server, path, 1, 1)
    first = [sink(ours, "/large", 1, 1)["first_byte_median_s"] for _ in range(5)]
    peer = [sink(theirs, "/large.git", 1, 1)["first_byte_median_s"] for _ in range(5)]
    row(
        "time to first pack byte, full clone",
        statistics.median(first),
        statistics.median(peer),
        "1/20 and 5 ms",
    )
    before = ours.cpu()
    a = sink(ours, "/large", 16, 16)
    ours_cpu = (ours.cpu() - before) / 16
    before = theirs.cpu()
    b = sink(theirs, "/large.git", 16, 16)
    theirs_cpu = (theirs.cpu() - before) / 16
    row(
        "16 concurrent full clones into a sink, bytes a second",
        a["bytes"] / a["wall_s"] / 1e6,
        b["bytes"] / b["wall_s"] / 1e6,
        "8 times",
        "higher",
        "MB/s",
    )
    row("the same, server CPU a clone", ours_cpu, theirs_cpu, "-")

    def anonymous():
        total = private = 0
        for line in open(f"/proc/{ours.process.pid}/smaps_rollup"):
            if line.startswith("Rss:"):
                total = int(line.split()[1])
            if line.startswith("Anonymous:"):
                private = int(line.split()[1])
        return total, private

    before = anonymous()
    holding = subprocess.Popen(
        [BENCH, "sink", f"127.0.0.1:{ours.port}", "/large", "200", "200", "--hold", "3"],
        stdout=subprocess.PIPE,
        text=True,
    )
    time.sleep(1.5)
    during = anonymous()
    held = json.loads(holding.communicate()[0])
    row(
        "private memory a connection, 200 full clones running",
        (during[1] - before[1]) / 200,
        256,
        "256 KiB",
        unit="KiB",
    )
    row("server in all, 200 full clones running (resident)", during[0] / 1024, 100, "100 MiB", unit="MiB")
    if held["failed"]:
        print("failed:", held["failed"], held["first_failure"])

    def ls_remote(server, path):
        times = []
        for _ in range(5 if SMOKE else 21):
            times.append(timed("git", "ls-remote", f"git://127.0.0.1:{server.port}/{path}")[0])
        return statistics.median(times)

    row(
        "git ls-remote of a small repository, wall",
        ls_remote(ours, "small"),
        ls_remote(theirs, "small.git"),
        "1/2",
    )
    a, b = sink(ours, "/small", 100, 100 if SMOKE else 2000), sink(theirs, "/small.git", 100, 100)
    row(
        "100 clones of a small repository at once, clones a second",
        a["clones_per_s"],
        b["clones_per_s"],
        "10 times",
        "higher",
        "/s",
    )
    rows.append(("failed of these", str(a["failed"]), str(b["failed"]), "", "0"))
    print(f"| failed of these | {a['failed']} | {b['failed']} | | 0 |")

    depth = int(git(large, "rev-list", "--count", "--first-parent", "HEAD"))
    ours.stop()
    # Answers are not kept here: what is measured is making them.
    keep_nothing(pool)
    ours = weir_serve(pool)
    for behind in (1, 10, 100, 1000, 5000):
        if behind >= depth:
            continue
        have = git(large, "rev-parse", f"HEAD~{behind}").strip()
        args = ("--want", head, "--have", have)
        n = 1 if SMOKE else 10
        before = ours.cpu()
        sink(ours, "/large", 1, 1, *args)
        first = ours.cpu() - before
        before = ours.cpu()
        a = sink(ours, "/large", 1, n, *args)
        ours_cpu = (ours.cpu() - before) / n
        before = theirs.cpu()
        b = sink(theirs, "/large.git", 1, n, *args)
        theirs_cpu = (theirs.cpu() - before) / n
        bar = "1/3" if behind == 1 else "0.7" if behind <= 1000 else "-"
        row(f"fetch, {behind} behind, server CPU; git with bitmaps", ours_cpu, theirs_cpu, bar)
        row("the same, for the first who asks", first, theirs_cpu, "-")
        row(f"fetch, {behind} behind, wall", a["wall_s"] / n, b["wall_s"] / n, "not more")
        c = sink(theirs, "/large-nobitmap.git", 1, 1, *args)
        row(
            f"fetch, {behind} behind, bytes; git without bitmaps",
            a["bytes"] / n,
            c["bytes"],
            "1.2" if behind <= 1000 else "-",
            unit="B",
        )
    ours.stop()
    theirs.stop()


def keep_nothing(pool):
    path = os.path.join(pool, "weir.toml")
    text = open(path).read()
    with open(path, "w") as f:
        f.write(text.replace("#[serve]\n", "[serve]\nkept_bytes_max = 0\n"))


def mirroring(large):
    heading("Mirroring one large repository", "git")
    daemon = git_daemon(work)
    url = f"git://127.0.0.1:{daemon.port}/large.git"
    weir_wall, weir_cpu, git_wall, git_cpu = [], [], [], []
    for i in range(RUNS):
        pool = os.path.join(work, f"mirror-pool-{i}")
        weir(pool, "init", pool)
        weir(pool, "add", "--name", "large", url)
        w, c = timed(WEIR, "--pool", pool, "-q", "mirror")
        weir_wall.append(w)
        weir_cpu.append(c)
        target = os.path.join(work, "git-mirror.git")
        shutil.rmtree(target, ignore_errors=True)
        w, c = timed("git", "clone", "-q", "--mirror", url, target)
        git_wall.append(w)
        git_cpu.append(c)
        if i + 1 < RUNS:
            shutil.rmtree(pool)
    row("first mirror, wall", statistics.median(weir_wall), statistics.median(git_wall), "0.6")
    row("first mirror, CPU", statistics.median(weir_cpu), statistics.median(git_cpu), "0.6")
    # Updates: an upstream set back, mirrored, and set forward again.
    behind_repo = os.path.join(work, "behind.git")
    head = git(large, "rev-parse", "HEAD").strip()
    branch = git(large, "symbolic-ref", "HEAD").strip()
    total = int(git(large, "rev-list", "--count", "HEAD"))
    for commits in (400, 4000):
        if commits * 2 > total:
            continue
        count = lambda back: int(git(large, "rev-list", "--count", f"HEAD~{back}..HEAD"))
        low, high = 1, int(git(large, "rev-list", "--count", "--first-parent", "HEAD")) - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if count(middle) < commits else (low, middle)
        old = git(large, "rev-parse", f"HEAD~{low}").strip()
        weir_walls, git_walls = [], []
        for i in range(RUNS):
            shutil.rmtree(behind_repo, ignore_errors=True)
            run("git", "init", "-q", "--bare", behind_repo)
            git(
                behind_repo,
                "fetch",
                "-q",
                f"file://{large}",
                f"{old}:{branch}",
                env={
                    **os.environ,
                    "GIT_CONFIG_COUNT": "1",
                    "GIT_CONFIG_KEY_0": "uploadpack.allowAnySHA1InWant",
                    "GIT_CONFIG_VALUE_0": "true",
                },
            )
            git(behind_repo, "symbolic-ref", "HEAD", branch)
            git(behind_repo, "repack", "-adbq")
            pool = os.path.join(work, "update-pool")
            shutil.rmtree(pool, ignore_errors=True)
            weir(pool, "init", pool)
            url = f"git://127.0.0.1:{daemon.port}/behind.git"
            weir(pool, "add", "--name", "b", url)
            weir(pool, "mirror")
            copy = os.path.join(work, "update.git")
            shutil.rmtree(copy, ignore_errors=True)
            run("git", "clone", "-q", "--mirror", url, copy)
            git(behind_repo, "fetch", "-q", f"file://{large}", f"{branch}:{branch}")
            weir_walls.append(timed(WEIR, "--pool", pool, "-q", "mirror", "--all")[0])
            git_walls.append(timed("git", "-C", copy, "fetch", "-q", "--prune")[0])
            assert git(copy, "rev-parse", branch).strip() == head
        row(
            f"update of {commits} commits, wall",
            statistics.median(weir_walls),
            statistics.median(git_walls),
            "0.5",
        )
    daemon.stop()


def derived(plain):
    """Bitmaps and commit-graph of a repository that has neither."""
    heading("Derived files of one large repository", "git")
    pool = os.path.join(work, "derived-pool")
    weir(pool, "init", pool)
    weir(pool, "add", "--name", "large", plain)
    said = subprocess.run(
        [WEIR, "--pool", pool, "-v", "mirror"],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ).stderr
    took = re.search(r"commit-graph made in ([0-9.]+)(ms|s)", said)
    if not took:
        print("| bitmaps and commit-graph: the repository is too small for them | - | - | - | 1/3 |")
        return
    ours = float(took[1]) / (1000 if took[2] == "ms" else 1)
    copy = os.path.join(work, "derived.git")
    shutil.copytree(plain, copy)
    peer = (
        timed("git", "-C", copy, "repack", "-adbq")[0]
        + timed("git", "-C", copy, "commit-graph", "write", "--reachable")[0]
    )
    row("bitmaps and commit-graph from nothing, wall", ours, peer, "1/3")


def many():
    n = 40 if SMOKE else 1000
    heading(f"Mirroring {n} small repositories", "xargs -P8 git")
    names = [f"r{i}.git" for i in range(n)]
    arguments = "\n".join(names)
    listing = os.path.join(work, "many.txt")

    def prepare(kind, *more):
        """Upstreams of 5 to 500 commits, a pool that knows them, and folders for git's copies."""
        base, pool, copies, tar = (
            os.path.join(work, f"{kind}-{what}") for what in ("upstream", "pool", "git", "tar")
        )
        for folder in (base, copies, tar):
            os.mkdir(folder)
        templates = []
        for i in range(8):
            path = os.path.join(work, f"{kind}-template{i}.git")
            tiny_repository(path, [5, 10, 20, 50, 100, 200, 300, 500][i], i, *more)
            # As forges keep them: fast-import's own deltas are poor.
            git(path, "repack", "-adfq")
            git(path, "pack-refs", "--all")
            shutil.rmtree(os.path.join(path, "hooks"), ignore_errors=True)
            templates.append(path)
        for i, name in enumerate(names):
            shutil.copytree(templates[i % 8], os.path.join(base, name))
        daemon = git_daemon(base)
        weir(pool, "init", pool)
        with open(listing, "w") as f:
            for name in names:
                f.write(f"git://127.0.0.1:{daemon.port}/{name} {name[:-4]}\n")
        weir(pool, "add", "--from", listing)
        return base, daemon, pool, copies, tar

    base, daemon, pool, copies, tar = prepare("many")

    def xargs(script):
        before = os.times()
        start = time.perf_counter()
        subprocess.run(
            ["xargs", "-P8", "-I{}", "sh", "-c", script],
            input=arguments,
            text=True,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        after = os.times()
        return (
            time.perf_counter() - start,
            after.children_user + after.children_system - before.children_user - before.children_system,
        )

    def both(what, ours, script, cpu_bar, wall_bar):
        w, c = timed(*ours)
        pw, pc = xargs(script)
        row(f"{what}: client CPU", c, pc, cpu_bar)
        row(f"{what}: wall", w, pw, wall_bar)

    def first_mirror(what, daemon, pool, copies, tar):
        mirror = (WEIR, "--pool", pool, "-q", "mirror", "--all")
        clone = (
            f"git clone -q --mirror git://127.0.0.1:{daemon.port}/{{}} {copies}/{{}} "
            f"&& tar cf {tar}/{{}}.tar -C {copies} {{}}"
        )
        both(what, mirror, clone, "1/8", "1/2")

    mirror = (WEIR, "--pool", pool, "-q", "mirror", "--all")
    first_mirror("first mirror", daemon, pool, copies, tar)
    _, light_daemon, *light = prepare("light", "light")
    first_mirror("first mirror of light ones", light_daemon, *light)
    light_daemon.stop()
    store = os.path.join(pool, "store")
    stamp = lambda: {
        f: (os.stat(os.path.join(store, f)).st_mtime_ns, os.stat(os.path.join(store, f)).st_size)
        for f in os.listdir(store)
    }
    before = stamp()
    both("pass over all, unchanged", mirror, f"git -C {copies}/{{}} fetch -q --prune", "1/25", "1/2")
    print(f"| files of the store that changed | {sum(before[f] != s for f, s in stamp().items())} | | | 0 |")
    for name in names:
        subprocess.run(
            ["git", "-C", os.path.join(base, name), "fast-import", "--quiet"],
            check=True,
            stderr=subprocess.DEVNULL,
            input=b"commit refs/heads/main\ncommitter C <c@x> 1700000000 +0000\ndata 1\nx\n"
            b"from refs/heads/main^0\nM 644 inline new.txt\ndata 6\nhello\n\n",
        )
    before = stamp()
    both(
        "pass over all, one commit each",
        mirror,
        f"git -C {copies}/{{}} fetch -q --prune && tar cf {tar}/{{}}.tar -C {copies} {{}}",
        "1/10",
        "1/2",
    )
    after = stamp()
    grown = [after[f][1] - before[f][1] for f in after]
    # The allowance is three times the pack as sent plus 8 KiB.
    packs = [
        json.loads(weir(pool, "--json", "show", name[:-4]))["packs"][-1]["bytes"]
        for name in names[:: max(1, n // 20)]
    ]
    row(
        "bytes written a repository for that; beside 3 packs + 8 KiB",
        statistics.mean(grown),
        3 * statistics.mean(packs) + 8192,
        "1",
        unit="B",
    )
    daemon.stop()
    # Against a weir upstream.
    served = weir_serve(pool)
    pool2 = os.path.join(work, "many-pool-2")
    weir(pool2, "init", pool2)
    with open(listing, "w") as f:
        for name in names:
            f.write(f"git://127.0.0.1:{served.port}/{name[:-4]} {name[:-4]}\n")
    weir(pool2, "add", "--from", listing)
    weir(pool2, "mirror")
    wall, _ = timed(WEIR, "--pool", pool2, "-q", "mirror", "--all")
    row(
        "pass over all, unchanged, from a weir upstream: repositories a second",
        n / wall,
        5000,
        "5,000 /s",
        "higher",
        "/s",
    )
    served.stop()


def clone_cpu(server, url, clones, *options):
    """CPU of the server a clone by stock git."""
    before = server.cpu()
    for _ in range(clones):
        target = os.path.join(work, "clone.git")
        run("git", "clone", "-q", "--bare", *options, url, target)
        shutil.rmtree(target)
    return (server.cpu() - before) / clones


def in_page_cache(*folders):
    """Reads all files below: what the system has cached of them shall not make the difference."""
    for folder in folders:
        for top, _, names in os.walk(folder):
            for name in names:
                with open(os.path.join(top, name), "rb") as f:
                    while f.read(1 << 20):
                        pass


def partial(large):
    pool = os.path.join(work, "partial-pool")
    weir(pool, "init", pool)
    weir(pool, "add", "--name", "large", large)
    weir(pool, "mirror")
    git(large, "config", "uploadpack.allowFilter", "true")
    http = port()
    theirs, nginx = git_daemon(work), Nginx(work)
    clones = 1 if SMOKE else 3
    heading("Partial answers, and HTTP", "git daemon; nginx with http-backend")
    head = git(large, "rev-parse", "HEAD").strip()
    extra = {
        "--depth=1": ("--depth", "1"),
        "--filter=blob:none": ("--filter", "blob:none"),
        "--filter=tree:0": ("--filter", "tree:0"),
    }
    keep_nothing(pool)
    for options in ("--depth=1", "--filter=blob:none", "--filter=tree:0", "--single-branch"):
        # The first clone after a start opens the repository; the server computes the answers to later ones
        # again each time. The servers take turns, as a machine's speed changes from one minute to the next.
        first, a, b = [], [], []
        for n in range(clones):
            cold = weir_serve(pool)
            in_page_cache(os.path.join(pool, "store"), os.path.join(large, "objects"))
            first.append(clone_cpu(cold, f"git://127.0.0.1:{cold.port}/large", 1, options))
            a.append(clone_cpu(cold, f"git://127.0.0.1:{cold.port}/large", 2, options))
            b.append(clone_cpu(theirs, f"git://127.0.0.1:{theirs.port}/large.git", 2, options))
            if n + 1 < clones:
                cold.stop()
        first, a, b = (statistics.mean(samples) for samples in (first, a, b))
        row(f"clone {options} by stock git, server CPU", a, b, "1/3")
        row("the same, the first after a start", first, b, "1/3")
        want = ("--want", head, *extra.get(options, ()))
        a = statistics.median(sink(cold, "/large", 1, 1, *want)["first_byte_median_s"] for _ in range(clones))
        b = statistics.median(
            sink(theirs, "/large.git", 1, 1, *want)["first_byte_median_s"] for _ in range(clones)
        )
        row(f"time to first pack byte, {options}", a, b, "1/3")
        cold.stop()
    path = os.path.join(pool, "weir.toml")
    text = open(path).read()
    with open(path, "w") as f:
        f.write(text.replace("kept_bytes_max = 0\n", ""))
    ours = weir_serve(pool, "--http", f"127.0.0.1:{http}")
    url = f"git://127.0.0.1:{ours.port}/large"
    clone_cpu(ours, url, 2, "--depth=1")
    row(
        "clone --depth=1 that others have asked for, server CPU",
        clone_cpu(ours, url, clones, "--depth=1"),
        clone_cpu(theirs, f"git://127.0.0.1:{theirs.port}/large.git", clones, "--depth=1"),
        "-",
    )
    our_url, their_url = f"http://127.0.0.1:{http}/large", f"http://127.0.0.1:{nginx.port}/large.git"
    clone_cpu(ours, our_url, 1), clone_cpu(nginx, their_url, 1)
    row(
        "full clone over HTTP, server CPU",
        clone_cpu(ours, our_url, clones),
        clone_cpu(nginx, their_url, clones),
        "1/20",
    )
    for server in (ours, theirs, nginx):
        server.stop()


def doors(large):
    """Many small requests, and many who are only there."""
    pool, base = os.path.join(work, "doors-pool"), os.path.join(work, "doors")
    os.mkdir(base)
    weir(pool, "init", pool)
    tiny_repository(os.path.join(base, "small.git"), 20)
    git(os.path.join(base, "small.git"), "repack", "-adq")
    weir(pool, "add", "--name", "small", os.path.join(base, "small.git"))
    weir(pool, "add", "--name", "large", large)
    weir(pool, "mirror")
    path = os.path.join(pool, "weir.toml")
    text = open(path).read()
    with open(path, "w") as f:
        f.write(
            text.replace("#[serve]\n", "[serve]\nconnections_per_address_max = 8192\ninit_timeout = '60s'\n")
        )
    http = port()
    ours, theirs, nginx = weir_serve(pool, "--http", f"127.0.0.1:{http}"), git_daemon(base), Nginx(base)
    heading("Doors", "git daemon; nginx with http-backend; nginx with a file")

    def clones(kind, address, path, n):
        return json.loads(run(BENCH, kind, address, path, "16", str(n)))

    n = 50 if SMOKE else 5000
    failed = [0, 0]
    for title, kind, our_port, their_port in (
        ("clones of a small repository a second, git://", "sink", ours.port, theirs.port),
        ("the same, HTTP; peer is http-backend", "http", http, nginx.port),
    ):
        a = clones(kind, f"127.0.0.1:{our_port}", "/small", n)
        b = clones(kind, f"127.0.0.1:{their_port}", "/small.git", n // 10)
        row(title, a["clones_per_s"], b["clones_per_s"], "20 times", "higher", "/s")
        failed = [failed[0] + a["failed"], failed[1] + b["failed"]]
    print(f"| failed of these | {failed[0]} | {failed[1]} | | 0 |")
    # A static file as long as the answer.
    static, p = tempfile.mkdtemp(dir=work), port()
    os.chmod(static, 0o755)
    with open(os.path.join(static, "file"), "w") as f:
        f.write("x" * 200)
    os.chmod(os.path.join(static, "file"), 0o644)
    with open(os.path.join(static, "nginx.conf"), "w") as f:
        temporary = " ".join(
            f"{kind}_temp_path {static}/{kind};"
            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        f.write(
            f"daemon off; pid {static}/pid; error_log {static}/err; "
            "worker_processes auto; events { worker_connections 4096; }\n"
            f"            http {{ access_log off; {temporary} "
            f"server {{ listen 127.0.0.1:{p}; root {static}; }} }}"
        )
    plain = Server(["nginx", "-c", os.path.join(static, "nginx.conf")], p)

    def front(url):
        said = run(
            "ab", "-q", "-n", "2000" if SMOKE else "100000", "-c", "200", "-H", "Git-Protocol: version=2", url
        )
        number = lambda pattern: float(re.search(pattern, said)[1])
        failed = number(r"Failed requests:\s+(\d+)") + sum(
            float(x) for x in re.findall(r"Non-2xx responses:\s+(\d+)", said)
        )
        return (
            number(r"Requests per second:\s+([0-9.]+)"),
            number(r"50%\s+(\d+)"),
            number(r"100%\s+(\d+)"),
            failed,
        )

    a, b = (
        front(f"http://127.0.0.1:{http}/small/info/refs?service=git-upload-pack"),
        front(f"http://127.0.0.1:{p}/file"),
    )
    row(
        "HTTP requests a second, 200 clients, a connection each; peer serves a file",
        a[0],
        b[0],
        "0.5 times",
        "higher",
        "/s",
    )
    row("the slowest of them beside the median", a[2] / max(a[1], 1), b[2] / max(b[1], 1), "20", unit="times")
    print(f"| failed of these | {a[3]:.0f} | {b[3]:.0f} | | 0 |")
    plain.stop()
    nginx.stop()
    theirs.stop()
    # Active clones alone, and beside a crowd.
    address, active = f"127.0.0.1:{ours.port}", 50 if SMOKE else 100

    def busy():
        return [
            json.loads(run(BENCH, "sink", address, "/large", "50", str(active)))["wall_s"]
            for _ in range(1 if SMOKE else 3)
        ]

    busy()  # maps the archive
    alone = busy()
    crowds = []
    for kind, path, connections in (
        ("idle", "/small", 200 if SMOKE else 5000),
        ("slow", "/large", 20 if SMOKE else 200),
    ):
        crowd = subprocess.Popen(
            [BENCH, kind, address, path, str(connections), "600"], stdout=subprocess.PIPE, text=True
        )
        assert crowd.stdout.readline() == "ready\n"
        crowds.append(crowd)
    beside = busy()
    resident = int(re.search(r"VmRSS:\s+(\d+)", open(f"/proc/{ours.process.pid}/status").read())[1]) / 1024
    gone = sum(c.poll() is not None for c in crowds)
    for crowd in crowds:
        crowd.kill()
        crowd.wait()
    # Before and after: a shared machine becomes slower and faster by itself.
    alone = statistics.median(alone + busy())
    row(
        "50 active clones beside 5,000 idle connections and 200 slow clones, wall; peer is weir without them",
        statistics.median(beside),
        alone,
        "1.1",
    )
    row("resident memory meanwhile", resident, 300, "300 MiB", unit="MiB")
    print(f"| of the crowd, gone before they were sent away | {gone} | | | 0 |")
    ours.stop()


def clones(large, plain):
    """Whole clones with a working tree, by stock git from either server, and by weir."""
    pool = os.path.join(work, "clones-pool")
    weir(pool, "init", pool)
    weir(pool, "add", "--name", "large", large)
    weir(pool, "mirror")
    http = port()
    ours, theirs = weir_serve(pool, "--http", f"127.0.0.1:{http}"), git_daemon(work)
    heading("Clones with a working tree, wall", "git clone from git daemon")

    def walls(*commands):
        """Medians; the commands take turns, as the machine has better and worse minutes."""
        times = [[] for _ in commands]
        for _ in range(RUNS):
            for command, list_of in zip(commands, times):
                # Each command has a folder of its own, removed at the very end: on ext4, making files where
                # many were removed takes seconds. No command should wait for the writes of others.
                os.sync()
                list_of.append(timed(*command, tempfile.mkdtemp(dir=work))[0])
        return [statistics.median(list_of) for list_of in times]

    stock = ["git", "clone", "-q"]
    a, b, c = walls(
        [*stock, f"git://127.0.0.1:{ours.port}/large"],
        [*stock, f"git://127.0.0.1:{theirs.port}/large.git"],
        [*stock, f"git://127.0.0.1:{theirs.port}/large-nobitmap.git"],
    )
    row("git clone; peer with bitmaps", a, b, "not slower")
    row("git clone; peer without", a, c, "faster")
    archive = json.loads(weir(pool, "--json", "show", "large"))["archive"]
    url = f"http://127.0.0.1:{http}/large"
    whole, local, bare, stock_bare = walls(
        [WEIR, "--pool", pool, "-q", "clone", url],
        [WEIR, "--pool", pool, "-q", "clone", archive],
        [WEIR, "--pool", pool, "-q", "clone", "--bare", url],
        [*stock, "--bare", url],
    )
    row("weir clone; peer is git clone from weir", whole, a, "1/5")
    row("weir clone of the archive; the same", local, a, "-")
    row("weir clone --bare; peer is git clone --bare", bare, stock_bare, "1/5")
    ours.stop()
    theirs.stop()


def sizes():
    heading("Size of an archive after 200 small updates", "git gc")
    upstream = os.path.join(work, "sizes.git")
    tiny_repository(upstream, 200)
    pool = os.path.join(work, "sizes-pool")
    weir(pool, "init", pool)
    weir(pool, "add", "--name", "s", upstream)
    weir(pool, "mirror")
    for i in range(20 if SMOKE else 200):
        text = f"update {i}\n" * (i % 17 + 1)
        subprocess.run(
            ["git", "-C", upstream, "fast-import", "--quiet"],
            check=True,
            stderr=subprocess.DEVNULL,
            input=(
                f"commit refs/heads/main\ncommitter C <c@x> {1700000000 + i} +0000\ndata 1\nx\n"
                f"from refs/heads/main^0\nM 644 inline u{i % 9}\ndata {len(text)}\n{text}\n"
            ).encode(),
        )
        weir(pool, "-q", "mirror", "--all")
    archive = json.loads(weir(pool, "--json", "show", "s"))["archive"]
    before = os.path.getsize(archive)
    weir(pool, "compact")
    git(upstream, "gc", "-q", "--prune=now")
    packed = sum(
        os.path.getsize(os.path.join(d, f))
        for d, _, fs in os.walk(os.path.join(upstream, "objects"))
        for f in fs
    )
    row("compacted", os.path.getsize(archive) / 1024, packed / 1024, "1.05", unit="KiB")
    row("as updated (compacted by itself when packs are many)", before / 1024, packed / 1024, "-", unit="KiB")


def main():
    wanted = sys.argv[1:] or [
        "serving",
        "partial",
        "doors",
        "clones",
        "mirroring",
        "derived",
        "many",
        "sizes",
    ]
    try:
        large = plain = None
        if {"serving", "partial", "doors", "clones", "mirroring", "derived"} & set(wanted):
            large, plain = large_repository()
        if "serving" in wanted:
            serving(large, plain)
        if "partial" in wanted:
            partial(large)
        if "doors" in wanted:
            doors(large)
        if "clones" in wanted:
            clones(large, plain)
        if "mirroring" in wanted:
            mirroring(large)
        if "derived" in wanted:
            derived(plain)
        if "many" in wanted:
            many()
        if "sizes" in wanted:
            sizes()
    except subprocess.CalledProcessError as e:
        print(e, e.stdout, e.stderr, file=sys.stderr)
        raise
    finally:
        for server in servers:
            server.stop()
        shutil.rmtree(work, ignore_errors=True)


main()
