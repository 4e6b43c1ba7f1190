"""Servers that are not git: dulwich, JGit, go-git and soft-serve, each fetched by name if it is not there."""

import os
import shutil
import subprocess
import sys

from common import BUILT, CACHE, HERE, Unavailable, Upstream, need, port, run, words

GO = {
    "GOPATH": os.path.join(CACHE, "go"),
    "GOCACHE": os.path.join(CACHE, "go-build"),
    "GOFLAGS": "-modcacherw",
}


def both(name, place, git_port, http_port, **more):
    """Rows for a server that speaks git:// and HTTP."""
    for scheme, number in (("git", git_port), ("http", http_port)):
        url = f"{scheme}://127.0.0.1:{number}"
        yield Upstream(
            f"{name}, {'git://' if scheme == 'git' else 'HTTP'}",
            f"{url}/it.git",
            f"{url}/missing.git",
            **more.get(scheme, {}),
        )


def dulwich(place):
    folder = os.path.join(BUILT, "dulwich")
    python = os.path.join(folder, "bin", "python")
    if (
        not os.path.exists(python)
        or subprocess.run([python, "-c", "import dulwich"], stderr=subprocess.DEVNULL).returncode
    ):
        run(sys.executable, "-m", "venv", folder)
        run(python, "-m", "pip", "install", "--quiet", "dulwich")
    ports = port(), port()
    place.create()
    place.start(
        python, os.path.join(HERE, "dulwich_server.py"), place.repositories, *map(str, ports), ready=ports[1]
    )
    # Over git://, if there is no repository, dulwich closes the connection without a word; so do JGit and
    # go-git 5.
    return list(both("dulwich", place, *ports, git={"missing_class": "network"}))


def jgit(place):
    folder = os.path.join(BUILT, "jgit")
    if not os.path.exists(os.path.join(folder, "target", "lib")):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(os.path.join(HERE, "jgit"), folder)
        maven = {**os.environ, "MAVEN_OPTS": f"-Duser.home={CACHE}"}
        run(
            need("mvn", "maven default-jdk-headless"),
            "-q",
            "-B",
            "package",
            "dependency:copy-dependencies",
            "-DoutputDirectory=target/lib",
            cwd=folder,
            env=maven,
            timeout=900,
        )
    ports = port(), port()
    place.create()
    java = ["java", "-Xmx256m", "-cp", f"{folder}/target/classes:{folder}/target/lib/*"]
    place.start(*java, "Server", place.repositories, *map(str, ports), ready=ports[1])
    return list(both("JGit", place, *ports, git={"missing_class": "network"}))


def go_build(folder, modules, package, program):
    go, environment = need("go", "golang"), {**os.environ, **GO}
    try:
        if not os.path.exists(os.path.join(folder, "go.mod")):
            run(go, "mod", "init", "server", cwd=folder, env=environment)
        run(go, "get", *modules, cwd=folder, env=environment, timeout=900)
        if package == ".":
            run(go, "mod", "tidy", cwd=folder, env=environment, timeout=900)
        run(go, "build", "-p", "1", "-o", program, package, cwd=folder, env=environment, timeout=1800)
    except subprocess.CalledProcessError as e:
        raise Unavailable(f"{modules[0]} cannot be built: {words(e)}") from e


def go_git(place):
    folder = os.path.join(BUILT, "go-git")
    program = os.path.join(folder, "server")
    if not os.path.exists(program):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(os.path.join(HERE, "go-git"), folder)
        go_build(
            folder,
            ["github.com/go-git/go-git/v5@v5.19.2", "github.com/go-git/go-git/v6@v6.0.0-alpha.4"],
            ".",
            program,
        )
    ports = port(), port()
    place.create()
    place.start(program, place.repositories, *map(str, ports), ready=ports[0])
    # Version 6 says 500 where there is no repository.
    v5, v6 = both("go-git", place, *ports, git={"missing_class": "network"}, http={"missing_class": "server"})
    v5.label, v6.label = "go-git 5, git://", "go-git 6 alpha, HTTP"
    return [v5, v6]


def soft_serve(place):
    """SOFT_SERVE names its program, where it cannot be built by its name."""
    folder = os.path.join(BUILT, "soft-serve")
    program = os.environ.get("SOFT_SERVE") or shutil.which("soft") or os.path.join(folder, "soft")
    if not os.path.exists(program):
        os.makedirs(folder, exist_ok=True)
        module = "github.com/charmbracelet/soft-serve"
        go_build(folder, [f"{module}@v0.12.2"], f"{module}/cmd/soft", program)
    ssh, git, http, stats = port(), port(), port(), port()
    key = os.path.join(place.folder, "key")
    run(need("ssh-keygen", "openssh-client"), "-q", "-t", "ed25519", "-N", "", "-f", key)
    with open(f"{key}.pub") as f:
        public = f.read().strip()
    settings = {
        "DATA_PATH": os.path.join(place.folder, "soft"),
        "INITIAL_ADMIN_KEYS": public,
        "SSH_PUBLIC_URL": f"ssh://127.0.0.1:{ssh}",
    }
    for name, number in (("SSH", ssh), ("GIT", git), ("HTTP", http), ("STATS", stats)):
        settings[f"{name}_LISTEN_ADDR"] = f"127.0.0.1:{number}"
    place.start(
        program,
        "serve",
        ready=http,
        env={**os.environ, **{f"SOFT_SERVE_{name}": value for name, value in settings.items()}},
    )
    command = (
        f"ssh -F none -i {key} -o IdentitiesOnly=yes "
        f"-o StrictHostKeyChecking=no -o UserKnownHostsFile={place.folder}/known"
    )
    run(*command.split(), "-p", str(ssh), "admin@127.0.0.1", "repo", "create", "it")
    place.repository = os.path.join(place.folder, "soft", "repos", "it.git")
    for state in place.states:
        shutil.copy(state, os.path.dirname(place.repository))
    place.fill(0)
    url = f"ssh://admin@127.0.0.1:{ssh}"
    over_ssh = Upstream(
        "soft-serve, ssh", f"{url}/it.git", f"{url}/missing.git", env={"GIT_SSH_COMMAND": command}
    )
    return [*both("soft-serve", place, git, http), over_ssh]
