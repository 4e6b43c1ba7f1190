#!/usr/bin/env python3
"""Lookups of headers on a request: instructions and allocations, counted by valgrind, as weir looks them up
and as others do. Prints the table of docs/benchmarks.md. Needs valgrind; without it, says so.

WEIR_BENCH_SMOKE=1     fewer lookups"""

import re
import shutil
import subprocess
import tempfile

from programs import BENCH, SMOKE

# Tools of valgrind, and the number that they print.
COUNTS = ("callgrind", r"Collected : ([\d,]+)"), ("memcheck", r"heap usage: ([\d,]+) allocs")
REQUESTS = 10 if SMOKE else 1000
LOOKUPS = 6  # of weir-bench headers, for each request


def counted(tool, pattern, how, requests):
    """Returns a number that a tool of valgrind prints about a run."""
    with tempfile.TemporaryDirectory() as folder:
        out = [f"--callgrind-out-file={folder}/out"] if tool == "callgrind" else []
        command = ["valgrind", f"--tool={tool}", *out, BENCH, "headers", how, str(requests)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(re.search(pattern, done.stderr).group(1).replace(",", ""))


def main():
    if not shutil.which("valgrind"):
        print("valgrind is not installed: lookups of headers are not counted")
        return
    print("\n| lookup of a header among 12 | instructions | allocations |")
    print("|---|---|---|")
    for what, how in [
        ("weir: names that are known when it is built, in hyper's map", "weir"),
        ("a scan that ignores case, as nginx finds `$http_NAME`", "scan"),
        ("a map of names in lower case, as many frameworks have", "lower"),
    ]:
        found = []
        for tool, pattern in COUNTS:
            none, all_of_them = (counted(tool, pattern, how, requests) for requests in (0, REQUESTS))
            found.append((all_of_them - none) / REQUESTS / LOOKUPS)
        print(f"| {what} | {found[0]:.0f} | {found[1]:.0f} |")


if __name__ == "__main__":
    main()
