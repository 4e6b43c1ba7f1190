"""The API, held against its own description by schemathesis (PyPI): requests that the description allows and
requests that it forbids, to a weir that serves a small repository. Prints the last lines of the report. Fails
if an answer is not as described, or a request that is forbidden is answered.

schemathesis is installed below target/openapi; it never becomes part of this project. One of its checks stays
off: that each request that the schema allows is answered. A schema cannot say that a parameter needs another,
or that text is no SQL."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

from recorded_webhooks import free_port

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WEIR = os.environ.get("WEIR", os.path.join(ROOT, "target", "debug", "weir"))
BUILT = os.path.join(ROOT, "target", "openapi")
PACKAGE = "schemathesis==4.32.5"
# Values that are there, so that requests find something.
CONFIG = """
[parameters]
"path.repository" = "1"
"path.revision" = "main"
"path.table" = "file_change"
"query.repositories" = "1"
"query.sql" = "select path from file_change limit 3"
"query.path" = "README.md"
"""
# A token that may do everything, and its hash for weir.toml.
TOKEN = "open sesame"
ACCESS = """
[[access.tokens]]
name = "boss"
sha256 = "41ef4bb0b23661e66301aac36066912dac037827b4ae63a7b1165a5aa93ed4eb"
scopes = ["read", "manage"]
"""
HISTORY = """commit refs/heads/main
committer C <c@example.org> 1700000000 +0000
data 1
a
M 644 inline README.md
data 5
read

commit refs/heads/main
committer C <c@example.org> 1700000100 +0000
data 1
b
M 644 inline docs/b.md
data 2
b

"""


def tool():
    """Installs schemathesis, if it is not there. Returns its path."""
    program = os.path.join(BUILT, "bin", "schemathesis")
    if not os.path.exists(program):
        subprocess.run([sys.executable, "-m", "venv", BUILT], check=True)
        pip = os.path.join(BUILT, "bin", "pip")
        subprocess.run([pip, "install", "--quiet", PACKAGE], check=True)
    return program


def serve(work):
    """Serves a pool with one repository. Returns the process, and the URL of the API."""
    upstream, pool, port = os.path.join(work, "up.git"), os.path.join(work, "pool"), free_port()
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", upstream], check=True)
    subprocess.run(["git", "-C", upstream, "fast-import", "--quiet"], input=HISTORY, text=True, check=True)
    for command in ["init", pool], ["add", "-q", "--name", "team/up", upstream], ["mirror", "-q"]:
        subprocess.run([WEIR, "--pool", pool, *command], stdout=subprocess.DEVNULL, check=True)
    with open(os.path.join(pool, "weir.toml"), "a") as file:
        file.write(ACCESS)
    command = ["serve", "--no-mirror", "--git", f"127.0.0.1:{free_port()}", "--http", f"127.0.0.1:{port}"]
    process = subprocess.Popen([WEIR, "--pool", pool, *command], stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}/api/v1"
    for _ in range(100):
        try:
            urllib.request.urlopen(url + "/tables").close()
            return process, url
        except OSError:
            time.sleep(0.1)
    sys.exit("weir serves nothing")


def main():
    program, work = tool(), tempfile.mkdtemp(prefix="weir-openapi-")
    process = None
    try:
        process, url = serve(work)
        with open(os.path.join(work, "schemathesis.toml"), "w") as file:
            file.write(CONFIG)
        command = [program, "--config-file", "schemathesis.toml", "run", url + "/openapi.json"]
        options = ["-H", f"Authorization: Bearer {TOKEN}", "--max-examples", "20", "--seed", "7"]
        options += ["--phases", "examples,coverage,fuzzing"]
        # Requests that change the pool would take the repository away from the others.
        options += ["--include-method", "GET", "--exclude-checks", "positive_data_acceptance"]
        done = subprocess.run([*command, *options], cwd=work, stdout=subprocess.PIPE, text=True)
        lines = done.stdout.splitlines()
        print("\n".join(lines if done.returncode else [line for line in lines if "generated" in line]))
        return done.returncode
    finally:
        if process:
            process.terminate()
            process.wait()
        shutil.rmtree(work)


if __name__ == "__main__":
    sys.exit(main())
