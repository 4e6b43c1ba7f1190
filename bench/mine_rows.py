"""Rows of mining as git says them and as weir says them, to be compared."""

import json
import os
import subprocess
from datetime import datetime, timezone

from programs import WEIR

ZERO = "0" * 40
GIT_SAYS = subprocess.check_output(["git", "--version"], text=True).split()[2]
GIT_VERSION = tuple(map(int, GIT_SAYS.split(".")[:2]))
OLD_SIMILARITY = [] if GIT_VERSION >= (2, 44) else ["--old-similarity"]


def git(repo, *args, **kw):
    return subprocess.run(["git", "-C", repo, *args], check=True, stdout=subprocess.PIPE, **kw).stdout


def good_commits(repo, path):
    """Writes to `path` the commits that are no merges, and whose changes name no missing object.

    Returns the number of the others."""
    commits = git(repo, "rev-list", "--all", "--no-merges")
    listed = git(repo, "rev-list", "--all", "--objects", "--no-object-names", "--missing=print")
    missing = {line[1:] for line in listed.split(b"\n") if line[:1] == b"?"}
    bad = set()
    if missing:
        raw = ["diff-tree", "--stdin", "-r", "--root", "--raw", "--no-renames", "--no-abbrev"]
        for line in git(repo, *raw, input=commits).split(b"\n"):
            if line[:1] != b":":
                commit = line
            elif not missing.isdisjoint(line.split(b" ")[2:4]):
                bad.add(commit)
    with open(path, "wb") as f:
        f.writelines(c + b"\n" for c in commits.split(b"\n") if c and c not in bad)
    return len(bad)


def gits_changes(repo, commits):
    """Yields the changes as git says them: commit, modes, ids, status, paths, lines."""
    args = ["diff-tree", "--stdin", "-r", "--root", "-M", "-z", "--raw", "--numstat", "--no-abbrev"]
    with open(commits, "rb") as given:
        words = iter(git(repo, *args, stdin=given).split(b"\0"))
    commit, raws = None, []
    for word in words:
        word = word.lstrip(b"\n")
        if word[:1] == b":":
            old_mode, new_mode, old, new, status = word[1:].decode().split(" ")
            path = next(words)
            new_path = next(words) if status[0] in "RC" else path
            raws.append((old_mode, new_mode, old, new, status, path, new_path))
        elif b"\t" in word:
            insertions, deletions, path = word.split(b"\t", 2)
            if not path:
                next(words), next(words)
            lines = None if insertions == b"-" else (int(insertions), int(deletions))
            yield commit, *raws.pop(0), lines
        elif word:
            assert not raws, "a numstat for each raw line"
            commit = word.decode()


def weirs_rows(repo, table, *args):
    args = [WEIR, "mine", "-q", "--to", "jsonl", "-o", "-", *args, repo]
    with subprocess.Popen(args, stdout=subprocess.PIPE) as process:
        for line in process.stdout:
            found = json.loads(line)
            if found["table"] == table:
                yield found
    if process.returncode:
        raise SystemExit(f"{' '.join(args)} failed")


def raw_text(found, name):
    raw = found.get(name + "_raw")
    return bytes.fromhex(raw) if raw is not None else found[name].encode()


def weirs_changes(repo):
    args = ["--what", "numstat", "--diff-merges", "off", *OLD_SIMILARITY]
    for found in weirs_rows(repo, "file_change", *args):
        path = raw_text(found, "path")
        has_old = "old_path" in found or "old_path_raw" in found
        is_text = not found["is_unavailable"] and not found["is_binary"]
        similarity = found.get("similarity")
        yield (
            found["revision"],
            f"{found.get('old_mode', 0):06o}",
            f"{found.get('mode', 0):06o}",
            found.get("old_blob", ZERO),
            found.get("blob", ZERO),
            found["status"] + ("" if similarity is None else f"{similarity:03}"),
            raw_text(found, "old_path") if has_old else path,
            path,
            (found["insertions"], found["deletions"]) if is_text else None,
        )


def changes_differ(repo, commits):
    with open(commits) as f:
        good = set(f.read().split())
    ours, theirs = {}, {}
    for changes, rows in ((ours, weirs_changes(repo)), (theirs, gits_changes(repo, commits))):
        for found in rows:
            if found[0] in good:
                changes.setdefault(found, 0)
                changes[found] += 1
    return len(theirs), [*(ours.items() ^ theirs.items())]


def zone(minutes):
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}{abs(minutes) % 60:02}"


def weirs_commit(found):
    def line(who):
        if found.get(f"{who}_raw") is not None:
            return bytes.fromhex(found[f"{who}_raw"])
        date = datetime.fromisoformat(found[f"{who}_date"].replace("Z", "+00:00"))
        seconds = int((date - datetime(1970, 1, 1, tzinfo=timezone.utc)).total_seconds())
        offset = zone(found[f"{who}_date_offset"])
        return f"{found[f'{who}_name']} <{found[f'{who}_email']}> {seconds} {offset}".encode()

    return found["directory"].encode(), line("author"), line("committer"), raw_text(found, "message")


def commits_differ(repo):
    """Compares each commit's tree, both idents and message with the object itself."""
    ids = git(repo, "rev-list", "--all")
    data = git(repo, "cat-file", "--batch", input=ids)
    theirs, at = {}, 0
    while at < len(data):
        end = data.index(b"\n", at)
        oid, _, size = data[at:end].split(b" ")
        content = data[end + 1 : end + 1 + int(size)]
        at = end + 2 + int(size)
        head, _, message = content.partition(b"\n\n")
        # Of two lines of authors, git takes the last.
        fields = dict(line.partition(b" ")[::2] for line in head.split(b"\n") if line[:1] != b" ")
        theirs[oid.decode()] = fields[b"tree"], fields[b"author"], fields[b"committer"], message
    ours = {found["id"]: weirs_commit(found) for found in weirs_rows(repo, "revision", "--what", "commits")}
    return len(theirs), [oid for oid in theirs.keys() | ours.keys() if theirs.get(oid) != ours.get(oid)]
