"""Clones, shallow clones and fetches by libraries that are not git, each a small program beside this one."""

import functools
import os
import shutil
import subprocess
import sys

from common import (
    BUILT,
    HERE,
    HOME,
    Pool,
    Skipped,
    cell,
    commits,
    git,
    install,
    need,
    new_upstream,
    run,
    stock,
)


def python_client(name):
    """A virtual environment with one package."""
    folder = os.path.join(BUILT, name)
    python = os.path.join(folder, "bin", "python")
    if not os.path.exists(python):
        install(sys.executable, "-m", "venv", folder)
    if subprocess.run([python, "-c", f"import {name}"], stderr=subprocess.DEVNULL).returncode:
        install(python, "-m", "pip", "install", "--quiet", name)
    return [python, os.path.join(HERE, f"{name}_client.py")]


def go_git():
    need("go")
    folder = os.path.join(BUILT, "go-git")
    program = os.path.join(folder, "client")
    if not os.path.exists(program):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(os.path.join(HERE, "go-git"), folder)
        install("go", "mod", "init", "client", cwd=folder)
        install("go", "get", "github.com/go-git/go-git/v5", cwd=folder)
        install("go", "mod", "tidy", cwd=folder)
        install("go", "build", "-o", program, ".", cwd=folder)
    return [program]


def jgit():
    need("mvn", "java")
    folder = os.path.join(BUILT, "jgit")
    if not os.path.exists(os.path.join(folder, "target", "lib")):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(os.path.join(HERE, "jgit"), folder)
        install(
            "mvn",
            "-q",
            "-B",
            "package",
            "dependency:copy-dependencies",
            "-DoutputDirectory=target/lib",
            cwd=folder,
        )
    return ["java", "-cp", f"{folder}/target/classes:{folder}/target/lib/*", "Client"]


def gix():
    need("cargo")
    folder = os.path.join(BUILT, "gix")
    shutil.copytree(os.path.join(HERE, "gix"), folder, dirs_exist_ok=True)
    install(
        "cargo",
        "build",
        "--quiet",
        cwd=folder,
        env={**os.environ, "HOME": HOME, "CARGO_TARGET_DIR": f"{folder}/target"},
    )
    return [os.path.join(folder, "target", "debug", "client")]


def isomorphic_git():
    need("node", "npm")
    folder = os.path.join(BUILT, "isomorphic-git")
    if not os.path.exists(os.path.join(folder, "node_modules", "isomorphic-git")):
        os.makedirs(folder, exist_ok=True)
        install(
            "npm",
            "install",
            "--silent",
            "--no-audit",
            "--no-fund",
            "--prefix",
            folder,
            "isomorphic-git",
            cwd=folder,
        )
    return ["env", f"NODE_PATH={folder}/node_modules", "node", os.path.join(HERE, "isomorphic_client.cjs")]


def old_git(version):
    """git itself, as it was: built from the clone of git's own repository that WEIR_GIT_REPO names."""
    folder = os.path.join(BUILT, f"git-{version}")
    if not os.path.exists(os.path.join(folder, "git-clone-pack" if version < "1.5" else "git-fetch-pack")):
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        source = subprocess.run(
            ["git", "-C", os.environ["WEIR_GIT_REPO"], "archive", f"v{version}"],
            check=True,
            stdout=subprocess.PIPE,
            timeout=300,
        ).stdout
        subprocess.run(["tar", "xf", "-", "-C", folder], input=source, check=True)
        without = [f"NO_{what}=1" for what in ("OPENSSL", "CURL", "EXPAT", "PERL", "TCLTK", "PYTHON")]
        flags = "CFLAGS=-O1 -w -fcommon -std=gnu89 -include stdlib.h -include string.h -include unistd.h"
        # What does not build any more with today's compilers is not needed.
        subprocess.run(
            ["make", "-k", "MOZILLA_SHA1=1", *without, flags],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    return ["sh", os.path.join(HERE, "old-git.sh"), folder]


CLIENTS = {
    "dulwich": lambda: python_client("dulwich"),
    "pygit2": lambda: python_client("pygit2"),
    "go-git": go_git,
    "jgit": jgit,
    "gix": gix,
    "isomorphic-git": isomorphic_git,
    "one that half-closes": lambda: [sys.executable, os.path.join(HERE, "half_close_client.py")],
}
if "WEIR_GIT_REPO" in os.environ:
    CLIENTS.update({f"git-{version}": functools.partial(old_git, version) for version in ("1.0.0", "1.5.0")})
# What a client does not know: schemes, and shallow clones.
UNKNOWN = {"git-1.0.0": ("http", "shallow"), "git-1.5.0": ("http",), "isomorphic-git": ("git",)}


def check(upstream, command, what, url, target, clone):
    """Does it, and looks with git at what was made."""
    shutil.rmtree(target, ignore_errors=True)
    if what == "fetch":
        assert os.path.exists(clone), "there is no clone"
        shutil.copytree(clone, target, symlinks=True)
        # Each server has its address; git 1.0.0 keeps that elsewhere, and dies of such a section.
        if (
            subprocess.run(
                ["git", "-C", target, "config", "remote.origin.url"], stdout=subprocess.DEVNULL
            ).returncode
            == 0
        ):
            git(target, "config", "remote.origin.url", url)
    said = run(*command, what, url, target)
    head = git(upstream, "rev-parse", "main")
    assert said.split() and said.split()[-1] == head, f"says {said}, not {head}"
    git(target, "fsck", "--full", "--strict")
    if what == "shallow":
        assert git(target, "rev-list", "--count", head) == "1", "more commits than one"
    else:
        objects = [
            sorted(git(repo, "rev-list", "--objects", "--no-object-names", head).split())
            for repo in (target, upstream)
        ]
        assert objects[0] == objects[1], "other objects than upstream"


def table(out, work, wanted):
    upstream = new_upstream(os.path.join(work, "up.git"))
    commits(upstream, 30)
    git(upstream, "tag", "-a", "-m", "one", "v1", "main~3")
    pool = Pool(os.path.join(work, "pool"), upstream)
    out.begin("library", "scheme", "clone", "depth 1", "fetch")
    with stock(work, upstream) as stock_urls:
        for name in wanted:
            unknown = UNKNOWN.get(name, ())
            schemes = [s for s in ("git", "http") if s not in unknown]
            try:
                command = CLIENTS[name]()
            except Skipped as e:
                out.row([name, ", ".join(schemes)], [f"skipped: {e}", "-", "-"])
                continue
            for scheme in schemes:
                cells = []
                clone = os.path.join(work, f"{name}-{scheme}-clone")
                for what in ("clone", "shallow", "fetch"):
                    if what in unknown:
                        cells.append("-")
                        continue
                    target = os.path.join(work, f"{name}-{scheme}-{what}")
                    if what == "fetch":
                        pool.grow(lambda upstream: commits(upstream, 3))

                    def fresh():
                        with pool.serve() as urls:
                            check(upstream, command, what, urls[scheme], target, clone)

                    cells.append(
                        cell(
                            fresh,
                            lambda: check(
                                upstream, command, what, stock_urls[scheme], target + "-stock", clone
                            ),
                        )
                    )
                out.row([name, scheme], cells)
