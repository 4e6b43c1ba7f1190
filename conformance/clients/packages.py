"""Package managers that take a package from a git repository.

One repository is a crate, an npm package, a Python package and a Go module.
"""

import json
import os
import shutil
import sys

from common import BUILT, HOME, Pool, cell, git, install, need, new_upstream, run, stock

MODULE = "weir.test/it.git"
# A build backend for pip that needs no other package, so that nothing is fetched but the repository.
BACKEND = (
    """import zipfile


def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "it-1.0.0-py3-none-any.whl"
    files = {
        "it.py": open("it.py").read(),
        "it-1.0.0.dist-info/METADATA": "Metadata-Version: 2.1\\nName: it\\nVersion: 1.0.0\\n",
        "it-1.0.0.dist-info/WHEEL": "Wheel-Version: 1.0\\nGenerator: it\\n"""
    """Root-Is-Purelib: true\\nTag: py3-none-any\\n",
    }
    record = "it-1.0.0.dist-info/RECORD"
    files[record] = "".join(f"{file},,\\n" for file in [*files, record])
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        for file, text in files.items():
            wheel.writestr(file, text)
    return name
"""
)


def contents(number):
    return {
        "Cargo.toml": '[package]\nname = "it"\nversion = "1.0.0"\nedition = "2021"\n',
        "src/lib.rs": f"pub const N: u32 = {number};\n",
        "package.json": json.dumps({"name": "it", "version": "1.0.0", "main": "index.js"}),
        "index.js": f"module.exports = {number};\n",
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        "backend.py": BACKEND,
        "it.py": f"N = {number}\n",
        "go.mod": f"module {MODULE}\n\ngo 1.18\n",
        "it.go": f"package it\n\nconst N = {number}\n",
    }


def fill(upstream):
    """Thirty commits, a branch beside, a version tag of each kind."""
    stream = []
    for branch, numbers in (("main", range(1, 25)), ("side", range(25, 31))):
        for number in numbers:
            stream.append(
                f"commit refs/heads/{branch}\nmark :{number}\ncommitter C <c@example.com> "
                f"{1700000000 + number} +0000\ndata 2\nx\n"
            )
            if number == 25:
                stream.append("from :12\n")
            for path, text in contents(number).items():
                stream.append(f"M 100644 inline {path}\ndata {len(text)}\n{text}\n")
    run("git", "-C", upstream, "fast-import", "--quiet", input="".join(stream))
    git(upstream, "tag", "-a", "-m", "one", "v1.0.0", "main~9")
    git(upstream, "tag", "v1.1.0", "main~2")


def same(upstream, commit, path, found):
    with open(found) as f:
        assert f.read().strip() == git(
            upstream, "show", f"{commit}:{path}"
        ), f"another {path} than upstream's"


def whole(upstream, repo, commit):
    """What a package manager keeps as a repository is one, and has the commit as upstream has it."""
    git(repo, "fsck", "--full", "--strict")
    objects = [
        git(r, "rev-parse", f"{commit}^{{tree}}") + git(r, "ls-tree", "-r", commit) for r in (repo, upstream)
    ]
    assert objects[0] == objects[1], "another tree than upstream's"


def cargo(with_cli):
    def by(upstream, folder, url, kind, value, commit):
        need("cargo")
        os.makedirs(f"{folder}/user/src")
        with open(f"{folder}/user/src/main.rs", "w") as f:
            f.write("fn main() {}\n")
        with open(f"{folder}/user/Cargo.toml", "w") as f:
            key = {"sha": "rev"}.get(kind, kind)
            f.write(
                '[package]\nname = "user"\nversion = "0.0.0"\nedition = "2021"\n'
                f'[dependencies]\nit = {{ git = "{url}", {key} = "{value}" }}\n'
                "[workspace]\n"
            )
        rustup = os.environ.get("RUSTUP_HOME", os.path.join(HOME, ".rustup"))
        home = f"{folder}/cargo"
        env = {
            **os.environ,
            "CARGO_HOME": home,
            "RUSTUP_HOME": rustup,
            "CARGO_NET_GIT_FETCH_WITH_CLI": with_cli,
            "CARGO_NET_RETRY": "0",
        }
        run("cargo", "fetch", "--quiet", cwd=f"{folder}/user", env=env)
        with open(f"{folder}/user/Cargo.lock") as f:
            assert f"#{commit}" in f.read(), "another commit is locked"
        (db,) = os.scandir(f"{home}/git/db")
        whole(upstream, db.path, commit)
        (checkouts,) = os.scandir(f"{home}/git/checkouts")
        (checkout,) = os.scandir(checkouts.path)
        same(upstream, commit, "src/lib.rs", f"{checkout.path}/src/lib.rs")

    return by


def npm(upstream, folder, url, kind, value, commit):
    need("npm")
    with open(f"{folder}/package.json", "w") as f:
        json.dump({"name": "user", "version": "0.0.0", "private": True}, f)
    url = url if url.startswith("git:") else f"git+{url}"
    env = {**os.environ, "npm_config_cache": f"{folder}/cache", "npm_config_update_notifier": "false"}
    run("npm", "install", "--no-audit", "--no-fund", f"{url}#{value}", cwd=folder, env=env)
    with open(f"{folder}/package-lock.json") as f:
        resolved = json.load(f)["packages"]["node_modules/it"]["resolved"]
    assert resolved.endswith(f"#{commit}"), f"resolved as {resolved}"
    same(upstream, commit, "index.js", f"{folder}/node_modules/it/index.js")


def pip(upstream, folder, url, kind, value, commit):
    home = os.path.join(BUILT, "pip")
    python = os.path.join(home, "bin", "python")
    if not os.path.exists(python):
        install(sys.executable, "-m", "venv", home)
    run(
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-cache-dir",
        "--no-deps",
        "--target",
        f"{folder}/lib",
        f"git+{url}@{value}",
    )
    with open(f"{folder}/lib/it-1.0.0.dist-info/direct_url.json") as f:
        found = json.load(f)["vcs_info"]["commit_id"]
    assert found == commit, f"installed {found}"
    same(upstream, commit, "it.py", f"{folder}/lib/it.py")


def go(upstream, folder, url, kind, value, commit):
    """A private module: git is told to ask this server instead of the one that the module's path names."""
    url = url.removesuffix("it")
    need("go")
    with open(f"{folder}/go.mod", "w") as f:
        f.write("module user\n\ngo 1.18\n")
    rewritten = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{url}.insteadOf",
        "GIT_CONFIG_VALUE_0": "https://weir.test/",
    }
    modules = {
        "GOPRIVATE": "weir.test",
        "GOPROXY": "direct",
        "GOMODCACHE": f"{folder}/mod",
        "GOFLAGS": "-modcacherw",
        "GOTOOLCHAIN": "local",
    }
    env = {**os.environ, **rewritten, **modules, "GOPATH": f"{folder}/go"}
    if kind == "list":
        said = run("go", "list", "-m", "-versions", MODULE, cwd=folder, env=env)
        assert said == f"{MODULE} v1.0.0 v1.1.0", f"lists {said}"
        return
    download = json.loads(run("go", "mod", "download", "-json", f"{MODULE}@{value}", cwd=folder, env=env))
    assert download["Origin"]["Hash"] == commit, f"downloaded {download['Origin']}"
    same(upstream, commit, "it.go", os.path.join(download["Dir"], "it.go"))
    for repo in os.scandir(f"{folder}/mod/cache/vcs"):
        if repo.is_dir():
            whole(upstream, repo.path, commit)


CLIENTS = {"cargo": cargo("false"), "cargo, git's CLI": cargo("true"), "npm": npm, "pip": pip, "go": go}
KINDS = {
    "cargo": ("branch", "tag", "rev"),
    "npm": ("branch", "tag", "semver", "sha"),
    "pip": ("branch", "tag", "sha"),
    "go": ("list", "branch", "tag", "sha"),
}


def table(out, work, wanted):
    upstream = new_upstream(os.path.join(work, "package.git"))
    fill(upstream)
    pool = Pool(os.path.join(work, "package-pool"), upstream)
    old = git(upstream, "rev-parse", "main~5")
    values = {
        "branch": ("side", "side"),
        "tag": ("v1.0.0", "v1.0.0^{commit}"),
        "semver": ("semver:^1.0.0", "v1.1.0"),
        "rev": (old, old),
        "sha": (old, old),
        "list": ("", "main"),
    }
    out.begin("package manager", "scheme", *("branch", "tag", "commit", "versions"))
    with stock(work, upstream) as stock_urls:
        for name in wanted:
            kinds = KINDS[name.split(",")[0]]
            for scheme in ("git", "http"):
                cells = []
                for column in (("branch",), ("tag",), ("rev", "sha"), ("semver", "list")):
                    kind = next((k for k in column if k in kinds), None)
                    if not kind:
                        cells.append("-")
                        continue
                    value, named = values[kind]
                    commit = git(upstream, "rev-parse", named)

                    def install_from(url, folder):
                        shutil.rmtree(folder, ignore_errors=True)
                        os.makedirs(folder)
                        CLIENTS[name](upstream, folder, url, kind, value, commit)

                    folder = os.path.join(work, f"{name.replace(' ', '')}-{scheme}-{kind}")

                    def fresh():
                        with pool.serve() as urls:
                            install_from(urls[scheme], folder)

                    cells.append(cell(fresh, lambda: install_from(stock_urls[scheme], folder + "-stock")))
                out.row([name, scheme], cells)
