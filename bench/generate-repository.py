#!/usr/bin/env python3
"""Prints a git fast-import stream of a made-up project: generate-repository.py COMMITS [SEED [light]].

The same arguments give the same bytes. Files grow and change a little with each commit, in folders of
several depths, with a tag every hundred commits. "light": each commit changes one file of three lines at the
top, which makes three objects a commit.
"""

import random
import sys

commits = int(sys.argv[1])
rng = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
light = sys.argv[3:] == ["light"]
out = sys.stdout.buffer
words = [bytes(rng.choices(b"abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 10))) for _ in range(2000)]
files = {}


def line():
    return b" ".join(rng.choices(words, k=rng.randint(1, 12))) + b"\n"


def commit(branch, mark, parents, message):
    out.write(b"commit refs/heads/%s\nmark :%d\n" % (branch, mark))
    out.write(b"author Au Thor <au@example.com> %d +0000\n" % (1_500_000_000 + mark * 600))
    out.write(b"committer Com Mitter <com@example.com> %d +0000\n" % (1_500_000_000 + mark * 600))
    out.write(b"data %d\n%s\n" % (len(message), message))
    for i, p in enumerate(parents):
        out.write(b"%s :%d\n" % (b"merge" if i else b"from", p))


def change(mark):
    if light:
        data = line() + line() + line()
        out.write(b"M 644 inline file%d.txt\ndata %d\n%s\n" % (mark % 20, len(data), data))
        return
    for _ in range(rng.randint(1, 3)):
        if not files or rng.random() < 0.05:
            path = b"/".join(rng.choices(words[:40], k=rng.randint(1, 4))) + b".txt"
            if any(p.startswith(path + b"/") or path.startswith(p + b"/") for p in files):
                continue
            files[path] = [line() for _ in range(rng.randint(5, 120))]
        else:
            path = rng.choice(sorted(files))
            text = files[path]
            at = rng.randrange(len(text))
            text[at : at + rng.randint(0, 2)] = [line() for _ in range(rng.randint(0, 3))]
            if not text:
                text.append(line())
        data = b"".join(files[path])
        out.write(b"M 644 inline %s\ndata %d\n%s\n" % (path, len(data), data))


last = None
for mark in range(1, commits + 1):
    message = b" ".join(rng.choices(words, k=6)) + b"\n\n" + line()
    commit(b"main", mark, [last] if last else [], message)
    change(mark)
    out.write(b"\n")
    last = mark
    if mark % 100 == 0:
        out.write(
            b"tag v%d\nfrom :%d\ntagger Tag <tag@example.com> %d +0000\ndata 4\ntag\n\n"
            % (mark // 100, mark, 1_500_000_000 + mark * 600)
        )
out.write(b"done\n")
