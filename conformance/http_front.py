"""weir's HTTP front, held against HTTP/2's own rules by h2spec (Go module github.com/summerwind/h2spec), and
against slow clients by slowhttptest: a thousand that send heads, bodies or nothing, or read answers, byte by
byte, while a client of stock git clones and others ask for /healthz.

h2spec is built below target/http; it never becomes part of this project. Prints a line for each part. Fails
if h2spec finds a fault that is not listed here with its reason, if a client beside the slow ones is not
answered, or if slow connections outlast the limits of weir.toml."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from harness import Checks, Pool, end, free_port, listens, wait_for
from openapi import HISTORY

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILT = os.path.join(ROOT, "target", "http")
MODULE = "github.com/summerwind/h2spec/cmd/h2spec"
# With what it stands on, as old as the Go of distributions.
REQUIRED = """
require (
	github.com/summerwind/h2spec v2.2.1+incompatible
	golang.org/x/net v0.17.0
	github.com/spf13/cobra v1.7.0
	github.com/fatih/color v1.15.0
)
"""
# Faults that h2spec finds and that are none: its title or the frame that it got, and the reason.
TOLERATED = {
    r"^Sends invalid connection preface":
        "one port has HTTP/1.1 as well: who does not begin as HTTP/2 does gets its 400",
    r"DATA Frame \(length:\d+, flags:0x01":
        "the answer was whole before (RFC 9113, 8.1), or is the 400 of a malformed request (8.1.1)",
    r"above 2\^31-1 on a stream .*RST_STREAM Frame":
        "the stream is reset, as it must be; but its answer was whole before, and so the reason is another",
}
UPLOAD_PACK = "application/x-git-upload-pack-request"
SLOW = 1000
SECONDS = 15
# Times after which weir ends connections that send nothing, or too little. All clients have one address here.
SETTINGS = """[serve]
init_timeout = "5s"
idle_timeout = "8s"
connections_per_address_max = 2000
"""


def h2spec():
    """Builds h2spec, if it is not there. Returns its path."""
    program = os.path.join(BUILT, "h2spec")
    if not os.path.exists(program):
        os.makedirs(BUILT, exist_ok=True)
        with open(os.path.join(BUILT, "go.mod"), "w") as file:
            file.write(f"module http\n\ngo 1.18\n{REQUIRED}")
        environment = {**os.environ, "GOBIN": BUILT, "GOFLAGS": "-mod=mod"}
        subprocess.run(["go", "install", MODULE], cwd=BUILT, env=environment, check=True)
    return program


def check_http2(checks, program, port):
    options = ["-h", "127.0.0.1", "-p", str(port), "-P", "/healthz", "-o", "2"]
    said = subprocess.run([program, *options], stdout=subprocess.PIPE, text=True, timeout=300).stdout
    counted = re.search(r"(\d+) tests, (\d+) passed, (\d+) skipped, (\d+) failed", said)
    if not counted:
        sys.exit(f"h2spec: no count of tests\n{said}")
    listed = said.partition("Failures:")[2]
    faults = [" ".join(fault.split()) for fault in re.split(r"× \d+: ", listed)[1:]]
    others = [fault for fault in faults if not any(re.search(known, fault) for known in TOLERATED)]
    checks.part(f"HTTP/2: h2spec, {counted[1]} tests").same("no fault that counts", others, [])
    print(counted[0])


class Beside(threading.Thread):
    """A client that asks for /healthz ten times a second, and clones: what it was told, and how often."""

    def __init__(self, port, work):
        super().__init__()
        self.url, self.work, self.goes_on = f"http://127.0.0.1:{port}", work, True
        self.answered, self.failures = 0, []

    def run(self):
        while self.goes_on:
            for _ in range(5):
                try:
                    assert urllib.request.urlopen(self.url + "/healthz", timeout=5).read() == b"alive\n"
                    self.answered += 1
                except (OSError, AssertionError) as e:
                    self.failures.append(repr(e))
                time.sleep(0.1)
            target = os.path.join(self.work, "clone")
            command = ["git", "clone", "-q", "--bare", self.url + "/team/up", target]
            done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=60)
            if done.returncode:
                self.failures.append(done.stderr.strip())
            self.answered += 1
            shutil.rmtree(target, ignore_errors=True)


def check_slow(checks, port, work):
    url = f"http://127.0.0.1:{port}"
    kinds = {
        "heads, sent slowly": ["-H", "-i", "2", "-u", url + "/healthz"],
        "bodies, sent slowly": ["-B", "-i", "2", "-s", "100000", "-f", UPLOAD_PACK,
                                "-u", url + "/team/up/git-upload-pack"],
        "answers, read slowly": ["-X", "-w", "10", "-y", "20", "-n", "2", "-z", "32", "-k", "3",
                                 "-u", url + "/api/v1/openapi.json"],
        "ranges of a file": ["-R", "-a", "10", "-b", "3000", "-t", "HEAD", "-u", url + "/team/up/HEAD"],
    }
    for name, options in kinds.items():
        beside = Beside(port, work)
        beside.start()
        command = ["slowhttptest", "-c", str(SLOW), "-r", "500", "-l", str(SECONDS), "-p", "3", *options]
        said = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=10 * SECONDS).stdout
        beside.goes_on = False
        beside.join()
        said = re.sub(r"\x1b\[[0-9;]*m", "", said)
        available = set(re.findall(r"service available: +(\w+)", said))
        checks.part(f"slow clients: {name}")
        checks.same("slowhttptest finds the service available", available, {"YES"})
        checks.check(f"{beside.answered} answers beside", beside.answered and not beside.failures,
                     beside.failures[:3])
        print(f"{name}: {beside.answered} answers beside; {said.strip().splitlines()[-1]}")


def main():
    checks, work = Checks(), tempfile.mkdtemp(prefix="weir-http-")
    server = None
    try:
        pool, upstream = Pool(os.path.join(work, "home")), os.path.join(work, "up.git")
        subprocess.run(["git", "init", "-q", "--bare", "-b", "main", upstream], check=True)
        command = ["git", "-C", upstream, "fast-import", "--quiet"]
        subprocess.run(command, input=HISTORY, text=True, check=True)
        path = os.path.join(pool.path, "weir.toml")
        with open(path) as file:
            text = file.read()
        with open(path, "w") as file:
            file.write(text.replace("[serve]\n", SETTINGS))
        pool("add", "-q", "--name", "team/up", upstream)
        pool("mirror", "-q")
        port = free_port()
        server = pool.start("serve", "--no-mirror", "--git", f"127.0.0.1:{free_port()}",
                            "--http", f"127.0.0.1:{port}", log=os.path.join(work, "log"))
        wait_for("weir serve", 20, lambda: listens(port))
        check_http2(checks, h2spec(), port)
        check_slow(checks, port, work)
        wait_for("the end of slow connections", 20, lambda: established(port) == 0)
    finally:
        end(server)
        shutil.rmtree(work)
    print("\n".join(checks.table()))
    return 1 if checks.missed else 0


def established(port):
    """The connections to the port that are not closed."""
    with open("/proc/net/tcp") as file:
        lines = [line.split() for line in file][1:]
    return sum(line[1].endswith(f":{port:04X}") and line[3] == "01" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
