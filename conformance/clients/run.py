#!/usr/bin/env python3
"""Clones, shallow clones and fetches by clients that are not git, from an archive served by weir: clients/run.py [CLIENT...].

Each client is a small program beside this one over a library which is fetched by its name when it is not there. What a client
has made is checked by git: fsck, and the same commits as upstream. Rows go to standard output as a Markdown table. If WEIR_GIT_REPO
names a clone of git's own repository, old versions of git are built from it and tried as well.
"""
import functools
import os
import shutil
import subprocess
import sys
import tempfile
import time
import socket

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
WEIR = os.environ.get("WEIR", os.path.join(ROOT, "target", "debug", "weir"))
BUILT = os.path.join(ROOT, "target", "clients")
HOME = os.path.expanduser("~")


def run(*command, **more):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **{"timeout": 300, **more}).stdout.strip()


def run_bytes(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=300).stdout


def python_client(name):
    """A virtual environment with one package."""
    folder = os.path.join(BUILT, name)
    python = os.path.join(folder, "bin", "python")
    if not os.path.exists(python):
        run(sys.executable, "-m", "venv", folder)
    if subprocess.run([python, "-c", f"import {name}"], stderr=subprocess.DEVNULL).returncode:
        run(python, "-m", "pip", "install", "--quiet", name)
    return [python, os.path.join(HERE, f"{name}_client.py")]


def go_git():
    folder = os.path.join(BUILT, "go-git")
    program = os.path.join(folder, "client")
    if not os.path.exists(program):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(os.path.join(HERE, "go-git"), folder)
        run("go", "mod", "init", "client", cwd=folder)
        run("go", "get", "github.com/go-git/go-git/v5", cwd=folder)
        run("go", "mod", "tidy", cwd=folder)
        run("go", "build", "-o", program, ".", cwd=folder)
    return [program]


def jgit():
    folder = os.path.join(BUILT, "jgit")
    if not os.path.exists(os.path.join(folder, "target", "lib")):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(os.path.join(HERE, "jgit"), folder)
        run("mvn", "-q", "-B", "package", "dependency:copy-dependencies", "-DoutputDirectory=target/lib", cwd=folder)
    return ["java", "-cp", f"{folder}/target/classes:{folder}/target/lib/*", "Client"]


def gix():
    folder = os.path.join(BUILT, "gix")
    shutil.copytree(os.path.join(HERE, "gix"), folder, dirs_exist_ok=True)
    run("cargo", "build", "--quiet", cwd=folder, timeout=1500, env={**os.environ, "HOME": HOME, "CARGO_TARGET_DIR": f"{folder}/target"})
    return [os.path.join(folder, "target", "debug", "client")]


def old_git(version):
    """git itself, as it was: built from the clone of git's own repository that WEIR_GIT_REPO names."""
    folder = os.path.join(BUILT, f"git-{version}")
    if not os.path.exists(os.path.join(folder, "git-clone-pack" if version < "1.5" else "git-fetch-pack")):
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        source = run_bytes("git", "-C", os.environ["WEIR_GIT_REPO"], "archive", f"v{version}")
        subprocess.run(["tar", "xf", "-", "-C", folder], input=source, check=True)
        without = [f"NO_{what}=1" for what in ("OPENSSL", "CURL", "EXPAT", "PERL", "TCLTK", "PYTHON")]
        flags = "CFLAGS=-O1 -w -fcommon -std=gnu89 -include stdlib.h -include string.h -include unistd.h"
        # What does not build any more with today's compilers is not needed.
        subprocess.run(["make", "-k", "MOZILLA_SHA1=1", *without, flags], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return ["sh", os.path.join(HERE, "old-git.sh"), folder]


CLIENTS = {"dulwich": lambda: python_client("dulwich"), "pygit2": lambda: python_client("pygit2"), "go-git": go_git, "jgit": jgit, "gix": gix}
if "WEIR_GIT_REPO" in os.environ:
    CLIENTS.update({f"git-{version}": functools.partial(old_git, version) for version in ("1.0.0", "1.5.0")})
# What a client does not know: schemes, and shallow clones.
UNKNOWN = {"git-1.0.0": ("http", "shallow"), "git-1.5.0": ("http",)}


def port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def git(repo, *args, **more):
    return run("git", "-C", repo, *args, **more)


def commits(upstream, count):
    for _ in range(count):
        tree = git(upstream, "mktree", input="".join(f"100644 blob {git(upstream, 'hash-object', '-w', '--stdin', input=str(time.time_ns()))}\tfile{n}\n" for n in range(3)))
        parent = subprocess.run(["git", "-C", upstream, "rev-parse", "-q", "--verify", "main"], stdout=subprocess.PIPE, text=True).stdout.split()
        git(upstream, "update-ref", "refs/heads/main", git(upstream, "commit-tree", "-m", "x", *(f"-p{p}" for p in parent), tree))


def main():
    wanted = sys.argv[1:] or list(CLIENTS)
    work = tempfile.mkdtemp(prefix="weir-clients-")
    os.environ.update(HOME=work, WEIR_POOL=os.path.join(work, "pool"), GIT_CONFIG_NOSYSTEM="1")
    for who in ("AUTHOR", "COMMITTER"):
        os.environ.update({f"GIT_{who}_NAME": "C", f"GIT_{who}_EMAIL": "c@example.com"})
    cache = os.path.join(BUILT, "cache")
    os.environ.update(GOPATH=os.path.join(cache, "go"), GOCACHE=os.path.join(cache, "go-build"), MAVEN_OPTS=f"-Duser.home={cache}")
    upstream = os.path.join(work, "up.git")
    run("git", "init", "-q", "--bare", "-b", "main", upstream)
    commits(upstream, 30)
    git(upstream, "tag", "-a", "-m", "one", "v1", "main~3")
    run(WEIR, "init")
    run(WEIR, "add", "--name", "it", upstream)
    run(WEIR, "mirror")
    ports = {"git": port(), "http": port()}
    server = subprocess.Popen([WEIR, "-q", "serve", "--no-mirror", "--git", f"127.0.0.1:{ports['git']}", "--http", f"127.0.0.1:{ports['http']}"])
    failed = 0
    try:
        for name in wanted:
            command = CLIENTS[name]()
            unknown = UNKNOWN.get(name, ())
            for scheme in (s for s in ports if s not in unknown):
                url = f"{scheme}://127.0.0.1:{ports[scheme]}/it"
                results = {}
                for what in (w for w in ("clone", "shallow", "fetch") if w not in unknown):
                    target = os.path.join(work, f"{name}-{scheme}-{what}")
                    try:
                        if what == "fetch":
                            assert results["clone"] == "well", "there is no clone"
                            shutil.copytree(os.path.join(work, f"{name}-{scheme}-clone"), target, symlinks=True)
                            commits(upstream, 3)
                            run(WEIR, "mirror", "--all")
                        said = run(*command, what, url, target)
                        head = git(upstream, "rev-parse", "main")
                        assert said.split()[-1] == head, f"says {said}, not {head}"
                        git(target, "fsck", "--full", "--strict")
                        count = 1 if what == "shallow" else int(git(upstream, "rev-list", "--count", head))
                        assert int(git(target, "rev-list", "--count", head)) == count, "other commits than upstream"
                        results[what] = "well"
                    except subprocess.CalledProcessError as e:
                        results[what] = "failed: " + (e.stderr.strip().splitlines() or ["?"])[-1][:200]
                    except AssertionError as e:
                        results[what] = f"failed: {e}"
                failed += sum(r != "well" for r in results.values())
                print(f"| {name} | {scheme} | {results['clone']} | {results.get('shallow', '-')} | {results['fetch']} |", flush=True)
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(work, ignore_errors=True)
    sys.exit(1 if failed else 0)


main()
